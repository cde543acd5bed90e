"""Session set-up as users do it: a script, spark-submit, the shell, a cluster of two workers, an installed wheel."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import SparkContext, cloudpickle
from pyspark.sql import SparkSession

import pyspark_strandline
from forked_runners import forking_python
from helpers import ROOT, contents, make_channel, say
from pyspark_strandline import configure, shim_jar

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])

BIN = Path(sys.executable).parent
SUM = """
from pyspark.sql import functions as F
frame = spark.readStream.format("strandline").load("{root}/in").groupBy("time").agg(F.sum("n").alias("n"))
sources = spark._jsparkSession.sessionState().dataSourceManager()
shared = sources.lookupDataSource("strandline").dataSourceCls().envVars()
loaded = set(shared)
query = frame.writeStream.format("strandline").option("checkpointLocation", "{root}/checkpoint")
query.trigger(availableNow=True).start("{root}/out").awaitTermination()
print("ran on", spark.sparkContext.master)
print("environment", "as loaded" if set(shared) == loaded else "changed")
"""
SCRIPT = """
from pyspark.sql import SparkSession
from pyspark_strandline import configure
builder = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").config("spark.ui.enabled", "false"){more}
spark = configure(builder, delta=False).getOrCreate()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with a channel whose first time is closed."""
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), (1, 2), (3, 4), then=[2])
    return tmp_path


def start(command: list[str], root: Path, stdin: str | None = None, **environment: str) -> str:
    """Run a program to its end, in a directory of its own; its output, or a failure that shows it."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK", "SPARK"))}
    done = subprocess.run(
        command,
        cwd=root,
        input=stdin,
        env={**ours, "PYSPARK_PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "BrokenPipeError" not in done.stderr, done.stderr[-4000:]
    return done.stdout


def write(root: Path, text: str, more: str = "") -> str:
    script = root / "script.py"
    script.write_text(text or (SCRIPT.format(more=more) + SUM).format(root=root))
    return str(script)


@pytest.mark.soak
def test_spark_submit_takes_the_jar_by_option(root: Path) -> None:
    script = write(root, "")
    start([str(BIN / "spark-submit"), "--master", "local[2]", "--jars", shim_jar(), script], root)
    assert contents(root / "out") == [(1, 3)]


@pytest.mark.soak
def test_the_shell_takes_the_jar_by_option(root: Path) -> None:
    command = [str(BIN / "pyspark"), "--master", "local[2]", "--jars", shim_jar(), "--conf", "spark.sql.shuffle.partitions=2"]
    command += ["--conf", "spark.sql.catalogImplementation=in-memory"]  # Hive's metastore takes as long as all else
    pythons = {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": forking_python()}
    # -i makes the shell interactive though its input is no terminal.
    start(command, root, stdin=SUM.format(root=root), PYSPARK_DRIVER_PYTHON_OPTS="-i", **pythons)
    assert contents(root / "out") == [(1, 3)]


@pytest.mark.soak
def test_a_cluster_of_two_workers_gives_the_same(root: Path) -> None:
    script = write(root, "", '.master("local-cluster[2,1,1024]")')
    output = start([sys.executable, script], root)
    assert "ran on local-cluster" in output
    assert contents(root / "out") == [(1, 3)]


WITHOUT = """
from pyspark.sql import SparkSession
from pyspark_strandline import configure
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()

def told(name, start):
    try:
        start()
    except Exception as error:
        print(name, str(error).replace("\\n", " "))

def run(frame):
    writer = frame.writeStream.format("noop").option("checkpointLocation", "{root}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()

rows = spark.readStream.format("strandline").load("{root}/in")
told("stateful:", lambda: run(rows.groupBy("time").count()))
told("stateless:", lambda: run(rows.select("time", "n")))
told("running:", lambda: configure(SparkSession.builder))
"""


@pytest.mark.drawn("processes")
def test_a_session_without_the_extension_is_refused_by_name(root: Path) -> None:
    output = start([sys.executable, write(root, WITHOUT.format(root=root))], root, PYSPARK_PYTHON=forking_python())
    told = {name: rest for name, _, rest in (line.partition(": ") for line in output.splitlines())}
    for kind in ("stateful", "stateless"):
        assert "[STRANDLINE_EXTENSION_MISSING]" in told[kind]
        assert "pyspark_strandline.configure" in told[kind]
        assert "During handling" not in told[kind]
    assert "[STRANDLINE_SESSION_RUNNING]" in told["running"]


def test_the_command_line_prints_the_jar() -> None:
    command = [sys.executable, "-m", "pyspark_strandline", "jar"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == shim_jar()


@pytest.mark.drawn("processes")
def test_a_wheel_has_the_jar_and_spark_submit_needs_configure_alone(root: Path) -> None:
    """A script without spark-submit is the README's example."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(root / "dist"), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (wheel,) = (root / "dist").glob("*.whl")
    target = root / "elsewhere"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(pip, check=True, capture_output=True, text=True)
    script = write(root, "")
    with open(script, "a") as file:
        file.write("import pyspark_strandline\nprint(pyspark_strandline.__file__, pyspark_strandline.shim_jar())\n")
    output = start([str(BIN / "spark-submit"), "--master", "local[2]", script], root, PYTHONPATH=str(target))
    assert str(target / "pyspark_strandline" / "jars") in output
    assert str(Path(pyspark_strandline.__file__).parent) not in output
    assert contents(root / "out") == [(1, 3)]
    # Two queries that start in the same moment would break it for all of the JVM, if they had to put something into it.
    assert "environment as loaded" in output


def families(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the address families of this worker's sockets."""
    list(batches)
    found = set()
    for name in os.listdir("/dev/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as each:
            found.add(each.family.name)
    yield pa.RecordBatch.from_pydict({"family": sorted(found)})


def test_python_workers_of_this_machine_use_unix_sockets(spark: SparkSession) -> None:
    """Over TCP, Nagle's algorithm and delayed acknowledgements make each Python task wait 40 ms."""
    found = spark.range(1, numPartitions=1).mapInArrow(families, "family string").collect()
    assert [row["family"] for row in found] == ["AF_UNIX"]
    folder = Path(spark.sparkContext.getConf().get("spark.python.unix.domain.socket.dir") or "")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("options", "environment", "has"),
    [
        ({"spark.master": "local[2]"}, {}, True),
        ({"spark.master": "local"}, {"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}, True),
        ({}, {}, True),
        ({}, {"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}, False),
        ({}, {"SPARK_CONF_DIR": "{folder}"}, False),
        ({"spark.master": "local-cluster[2,1,1024]"}, {}, False),
        ({"spark.master": "k8s://there"}, {}, False),
        ({"spark.remote": "sc://there"}, {}, False),
        ({"spark.master": "local", "spark.python.unix.domain.socket.enabled": "false"}, {}, False),
    ],
)
def test_unix_sockets_are_only_for_workers_of_this_machine(
    options: dict[str, str], environment: dict[str, str], has: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.master yarn\n")
    for name in ("PYSPARK_SUBMIT_ARGS", "MASTER", "SPARK_CONF_DIR", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(folder=tmp_path))
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    builder = SparkSession.Builder()
    monkeypatch.setattr(builder, "_options", dict(options))
    configure(builder, delta=False)
    assert (builder._options.get("spark.python.unix.domain.socket.enabled") == "true") == has


@pytest.mark.drawn("processes")
def test_the_folder_of_sockets_is_removed_by_the_process_that_made_it_only() -> None:
    script = """
import os, sys
from pyspark.sql import SparkSession
from pyspark_strandline import configure
builder = configure(SparkSession.builder.master("local"), delta=False)
folder = builder._options["spark.python.unix.domain.socket.dir"]
if os.fork() == 0:
    sys.exit()
os.wait()
print(folder, os.path.isdir(folder))
"""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=ours)
    folder, was_there = done.stdout.split("\n")[0].split()
    assert was_there == "True"
    assert not Path(folder).exists()
