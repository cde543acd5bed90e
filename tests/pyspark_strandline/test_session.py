"""Session set-up as users do it: a script, spark-submit, the shell, a cluster of two workers, an installed wheel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pyspark_strandline
from helpers import ROOT, contents, make_channel, say
from pyspark_strandline import shim_jar

pytestmark = pytest.mark.spark

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
    return done.stdout


def write(root: Path, text: str, more: str = "") -> str:
    script = root / "script.py"
    script.write_text(text or (SCRIPT.format(more=more) + SUM).format(root=root))
    return str(script)


def test_a_script_needs_configure_alone(root: Path) -> None:
    script = write(root, "", '.master("local[2]")')
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK", "SPARK"))}
    # Not even PYSPARK_PYTHON: the workers are those of the interpreter that runs the script.
    done = subprocess.run([sys.executable, script], cwd=root, env=ours, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert contents(root / "out") == [(1, 3)]
    # Two queries that start in the same moment would break it for all of the JVM, if they had to put something into it.
    assert "environment as loaded" in done.stdout


@pytest.mark.soak
def test_spark_submit_takes_the_jar_by_option(root: Path) -> None:
    script = write(root, "")
    start([str(BIN / "spark-submit"), "--master", "local[2]", "--jars", shim_jar(), script], root)
    assert contents(root / "out") == [(1, 3)]


def test_spark_submit_without_the_jar_works_by_configure(root: Path) -> None:
    script = write(root, "")
    start([str(BIN / "spark-submit"), "--master", "local[2]", script], root)
    assert contents(root / "out") == [(1, 3)]


def test_the_shell_takes_the_jar_by_option(root: Path) -> None:
    command = [str(BIN / "pyspark"), "--master", "local[2]", "--jars", shim_jar(), "--conf", "spark.sql.shuffle.partitions=2"]
    # -i makes the shell interactive though its input is no terminal.
    start(command, root, stdin=SUM.format(root=root), PYSPARK_DRIVER_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON_OPTS="-i")
    assert contents(root / "out") == [(1, 3)]


@pytest.mark.soak
def test_a_cluster_of_two_workers_gives_the_same(root: Path) -> None:
    script = write(root, "", '.master("local-cluster[2,1,1024]")')
    output = start([sys.executable, script], root)
    assert "ran on local-cluster" in output
    assert contents(root / "out") == [(1, 3)]


def test_a_running_session_without_the_extension_is_told(root: Path) -> None:
    text = (
        "from pyspark.sql import SparkSession\n"
        "from pyspark_strandline import configure\n"
        'spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()\n'
        "try:\n    configure(SparkSession.builder)\nexcept Exception as error:\n    print(error)\n"
    )
    assert "[STRANDLINE_SESSION_RUNNING]" in start([sys.executable, write(root, text)], root)


@pytest.mark.parametrize("query", ["groupBy('time').count()", "select('time', 'n')"])
def test_a_session_without_the_extension_is_refused_by_name(root: Path, query: str) -> None:
    text = (
        "from pyspark.sql import SparkSession\n"
        'spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()\n'
        f'frame = spark.readStream.format("strandline").load("{root}/in").{query}\n'
        f'writer = frame.writeStream.format("noop").option("checkpointLocation", "{root}/checkpoint")\n'
        "try:\n    writer.trigger(availableNow=True).start().awaitTermination()\nexcept Exception as error:\n    print(error)\n"
    )
    output = start([sys.executable, write(root, text)], root)
    assert "[STRANDLINE_EXTENSION_MISSING]" in output
    assert "pyspark_strandline.configure" in output


def test_the_command_line_prints_the_jar() -> None:
    command = [sys.executable, "-m", "pyspark_strandline", "jar"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == shim_jar()


def test_a_wheel_has_the_jar_and_works_where_it_is_installed(root: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(root / "dist"), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (wheel,) = (root / "dist").glob("*.whl")
    target = root / "elsewhere"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(pip, check=True, capture_output=True, text=True)
    script = write(root, "", '.master("local[2]")')
    with open(script, "a") as file:
        file.write("import pyspark_strandline\nprint(pyspark_strandline.__file__, pyspark_strandline.shim_jar())\n")
    output = start([sys.executable, script], root, PYTHONPATH=str(target))
    assert str(target / "pyspark_strandline" / "jars") in output
    assert str(Path(pyspark_strandline.__file__).parent) not in output
    assert contents(root / "out") == [(1, 3)]
