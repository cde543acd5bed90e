"""The processes of sources: forks of one daemon, which end with their queries. And what happens when one of them is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import make_channel, say

PROGRAM = """
import json, os, shutil, signal, sys, threading, time
import psutil
from pyspark.sql import SparkSession
from pyspark_strandline import configure

folder = sys.argv[1]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1")
spark = configure(builder, delta=False).getOrCreate()
jvm = psutil.Process(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())

def lives(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False

def words(process):
    try:
        return process.cmdline()
    except psutil.Error:  # it has ended
        return []

def processes(module):
    return [p for p in jvm.children(recursive=True) if "-m" in words(p) and module in words(p)]

def daemons():
    return [p for p in processes("pyspark_strandline.source_daemon") if p.parent() == jvm]

def forks():
    return {p.pid for daemon in daemons() for p in daemon.children() if lives(p.pid)}

def start(name):
    rows = spark.readStream.format("strandline").load(folder + "/in")
    writer = rows.groupBy("time").count().writeStream.format("memory").queryName(name)
    return writer.option("checkpointLocation", folder + "/checkpoint-" + name).start()

def forked(name):
    before = forks()
    query = start(name)
    query.processAllAvailable()
    made = forks() - before
    return query, made.pop() if made else None

def ends(of):
    while any(map(lives, of)):
        time.sleep(0.01)

said = {}
one, first = forked("one")
two, second = forked("two")
said["daemons"] = len(daemons())
said["others"] = len([p for p in processes("pyspark.sql.streaming.python_streaming_source_runner") if p not in daemons()
                      and p.parent() not in daemons()])
said["counted"] = [row.asDict() for row in spark.table("two").orderBy("time").collect()]

daemon = daemons()
for pause in (0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3):  # Spark interrupts the thread of a query that asks for a fork, and stops
    short = start("short" + str(int(100 * pause)))
    time.sleep(pause)
    short.stop()
one.processAllAvailable()
two.processAllAvailable()
said["beside queries that stop at once"] = [one.isActive, two.isActive, daemons() == daemon]

shutil.copytree(folder + "/in", folder + "/gone")
gone = spark.readStream.format("strandline").load(folder + "/gone").writeStream.format("noop")
shutil.rmtree(folder + "/gone")
before = forks()
try:
    gone.option("checkpointLocation", folder + "/checkpoint-gone").start().awaitTermination()
except Exception as error:
    said["gone"] = str(error)
ends(forks() - before)

shutil.copytree(folder + "/in", folder + "/gone")
rows = [spark.readStream.format("strandline").load(folder + name) for name in ("/in", "/gone")]
shutil.rmtree(folder + "/gone")
failing = rows[0].union(rows[1]).writeStream.format("noop").option("checkpointLocation", folder + "/checkpoint-second")
before = forks()
try:
    failing.start().awaitTermination()
except Exception as error:
    said["second gone"] = str(error)
ends(forks() - before)  # also the first source's

os.kill(second, signal.SIGKILL)  # the source of one query
try:
    while two.isActive:
        time.sleep(0.01)
    two.awaitTermination()
except Exception as error:
    said["killed"] = str(error)
said["one goes on"] = one.isActive

[daemon] = daemons()
daemon.terminate()  # it ends what is in its process group
ends([daemon.pid])
three, third = forked("three")
one.processAllAvailable()
said["after the daemon's end"] = [one.isActive, three.isActive, len(daemons()), daemons() != [daemon]]
own = forks()
one.stop()
three.stop()
ends([first, third])
again, fourth = forked("again")
again.stop()
ends([fourth])
said["left"] = len(forks() - own)
daemon = daemons()[0]
spark.stop()
ends([daemon.pid])
print("SAID", json.dumps(said))
"""


def run(folder: Path, program: str, python: str) -> subprocess.CompletedProcess[str]:
    """A program beside a channel whose first time is closed, in a session with that Python."""
    channel = make_channel(folder / "in", producers=("a",))
    say(channel, "a", (1, 1), (1, 2), (3, 4), then=[2])
    (folder / "program.py").write_text(program)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK", "SPARK"))}
    done = subprocess.run(
        [sys.executable, "program.py", str(folder)],
        cwd=folder,
        env=environment | {"PYSPARK_PYTHON": python},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done


@pytest.mark.drawn("processes")
def test_the_processes_of_sources(tmp_path: Path) -> None:
    done = run(tmp_path, PROGRAM, sys.executable)
    said = json.loads(done.stdout.partition("SAID ")[2])
    assert said["daemons"] == 1
    assert said["others"] == 0
    assert said["counted"] == [{"time": 1, "count": 2}]
    assert said["beside queries that stop at once"] == [True, True, True]
    assert "[STRANDLINE_NOT_A_TABLE]" in said["gone"], said["gone"]
    assert "[STRANDLINE_NOT_A_TABLE]" in said["second gone"], said["second gone"]
    assert "[STRANDLINE_SOURCE_PROCESS_ENDED]" in said["killed"], said["killed"]
    assert said["one goes on"]
    assert said["after the daemon's end"] == [True, True, 1, True]
    assert said["left"] <= 0
    assert "BrokenPipeError" not in done.stderr, done.stderr[-4000:]


WITHOUT = """
import sys
from pyspark.sql import SparkSession
from pyspark_strandline import configure

folder = sys.argv[1]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1")
builder = builder.config("spark.python.authenticate.socketTimeout", "5")
spark = configure(builder, delta=False).getOrCreate()
for i in range(2):
    rows = spark.readStream.format("strandline").load(folder + "/in").groupBy("time").count()
    writer = rows.writeStream.format("memory").queryName(f"q{i}").option("checkpointLocation", f"{folder}/checkpoint-{i}")
    writer.trigger(availableNow=True).start().awaitTermination()
    print("SAID", spark.table(f"q{i}").collect())
spark.stop()
"""


@pytest.mark.soak  # Spark's own processes must connect within ten seconds, which beside all other tests they may not
@pytest.mark.parametrize("instead", ["exit 1", "sleep 1000", "head -c 64 /dev/zero | tr '\\0' '\\n'; sleep 1000"])
def test_where_no_daemon_starts_spark_starts_processes(tmp_path: Path, instead: str) -> None:
    """It ends, never answers, or says something else: in any case the query goes on, and so does the end of the session."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncase "$*" in *source_daemon*) {instead};; esac\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = run(tmp_path, WITHOUT, str(python))
    assert done.stdout.count("SAID [Row(time=1, count=2)]") == 2
    assert done.stderr.count("no daemon can fork one") == 1


THREADS = """
import os, runpy, sys, threading
from pyspark import daemon

def forks():
    names = {open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")}
    print("SAID", threading.active_count(), "pyspark_strandline.read.source" in sys.modules, *sorted(names))

daemon.manager = forks
sys.argv[1:] = ["pyspark.sql.streaming.python_streaming_source_runner"]
runpy.run_module("pyspark_strandline.source_daemon", run_name="__main__", alter_sys=True)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the names of threads come from /proc")
def test_the_daemon_forks_beside_no_thread_that_its_forks_would_miss() -> None:
    """OpenBLAS and jemalloc start theirs again in a fork. OpenBLAS's have the name of the program."""
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True)
    count, imported, *names = done.stdout.partition("SAID ")[2].split()
    assert (count, imported) == ("1", "True")
    assert set(names) <= {"jemalloc_bg_thd", Path(sys.executable).name, Path(os.path.realpath(sys.executable)).name, "python"}
