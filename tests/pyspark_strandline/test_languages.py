"""The page on other languages: its Scala by ``spark-shell``, its SQL by ``spark-sql``, the late table in ``pyspark``."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from helpers import ROOT
from ports import free_ports
from pyspark_strandline import configure, ingest, shim_jar
from pyspark_strandline.session import submit_options
from strandline.errors import StrandlineError
from strandline.ingest import bounded

pytestmark = pytest.mark.spark

BIN = Path(sys.executable).parent
PAGE = (ROOT / "docs" / "languages.md").read_text(encoding="utf-8")
ROWS = [((8, 5), "a", 1), ((8, 40), "a", 2), ((10, 10), "a", 4), ((9, 10), "b", 8), ((10, 30), "b", 16)]
LATE = [((8, 10), "a", 32)]


def code(language: str, lake: Path) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found.group(1).replace("/lake/", f"{lake}/")


def land(lake: Path, name: str, rows: list[tuple[tuple[int, int], str, int]]) -> None:
    (lake / "raw").mkdir(parents=True, exist_ok=True)
    columns = [
        [datetime(2026, 3, 1, *at, tzinfo=timezone.utc) for at, _, _ in rows],
        [d for _, d, _ in rows],
        [n for *_, n in rows],
    ]
    types = [pa.timestamp("us", "UTC"), pa.string(), pa.int64()]
    table = pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=["time", "device", "n"])
    pq.write_table(table, lake / "raw" / f"{name}.parquet")


def run(program: str, *arguments: str, stdin: str | None = None, **environment: str) -> str:
    """Run one of Spark's programs as the page says, and return what it prints."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK", "SPARK"))}
    settings = ["spark.sql.catalogImplementation=in-memory", "spark.ui.enabled=false", "spark.sql.shuffle.partitions=2"]
    settings += ["spark.sql.session.timeZone=UTC"]
    command = [str(BIN / program), "--master", "local[2]", *submit_options()]
    command += [part for setting in settings for part in ("--conf", setting)]
    done = subprocess.run(
        [*command, *arguments],
        input=stdin,
        env={**ours, "PYSPARK_PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def checked_sql(lines: list[list[str]]) -> None:
    """Compare what the statements of the page find."""
    assert lines == [
        ["a", "7"],
        ["b", "24"],
        ["0"],
        ["08:00", "3"],
        ["09:00", "8"],
        ["b", '["2026-03-01T10:20:00Z"]'],
        ["a", "32", "late"],
    ]


@pytest.mark.soak
@pytest.mark.timeout(1800)  # four of Spark's programs, each with its own limit
def test_scala_and_sql_in_sparks_shells(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    land(lake, "1", ROWS)
    program = tmp_path / "hours.scala"
    program.write_text(code("scala", lake) + "\nSystem.exit(0)\n")
    run("spark-shell", "-i", str(program))
    land(lake, "2", LATE)
    shown = run("spark-shell", "-i", str(program))
    assert re.findall(r"\|2026-03-01 (\d\d:\d\d):00\| +(\d+)\|", shown) == [("08:00", "3"), ("09:00", "8")]
    assert re.findall(r"\| +(\w)\| *(\d+)\| *late\|", shown) == [("a", "32")]
    script = tmp_path / "hours.sql"
    script.write_text(code("sql", lake))
    checked_sql([line.split("\t") for line in run("spark-sql", "-f", str(script)).splitlines() if line.strip()])
    shell = f'spark.read.format("delta").load("{lake}/readings_late").select("n").show()\n'
    pythons = {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON_OPTS": "-i"}
    assert "| 32|" in run("pyspark", stdin=shell, **pythons)


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[Path]:
    """What the Scala of the page makes, made by Python."""
    for name, rows in {"1": ROWS, "2": LATE}.items():
        land(tmp_path, name, rows)
        raw = spark.readStream.schema("time timestamp, device string, n long").parquet(str(tmp_path / "raw"))
        writer = ingest(raw, str(tmp_path / "readings"), time="time", partition="device", policy=bounded("10 minutes"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.sql(f"CREATE TABLE readings USING strandline LOCATION '{tmp_path}/readings'")
    hours = spark.sql("SELECT window.start AS time, sum(n) AS n FROM STREAM readings GROUP BY window(time, '1 hour')")
    writer = hours.writeStream.format("strandline").option("checkpointLocation", str(tmp_path / "checkpoint2"))
    writer.trigger(availableNow=True).start(str(tmp_path / "hours")).awaitTermination()
    spark.sql("DROP TABLE readings")
    yield tmp_path
    for table in ("readings", "hours"):
        spark.sql(f"DROP TABLE IF EXISTS {table}")


@pytest.mark.drawn("processes")
def test_the_sql_of_the_page(spark: Any, lake: Path) -> None:
    lines: list[list[str]] = []
    for statement in code("sql", lake).split(";\n"):
        rows = spark.sql(statement).collect() if statement.strip() else []
        lines += [[str(value) if not isinstance(value, list) else str(value).replace("'", '"') for value in row] for row in rows]
    checked_sql(lines)


@pytest.mark.drawn("processes")
def test_the_options_are_those_of_configure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pyspark_strandline", "options"]
    without = {name: value for name, value in os.environ.items() if name != "STRANDLINE_DELTA_JARS"}
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=without).stdout.split()
    assert said[:4] == ["--jars", shim_jar(), "--packages", "io.delta:delta-spark_4.2_2.13:4.4.0"]
    assert "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog" in said
    assert set(said[4::2]) == {"--conf"}
    less = subprocess.run([*command, "--no-delta"], capture_output=True, text=True, check=True, env=without).stdout
    assert "elta" not in less.replace(shim_jar(), "")
    jars = [str(tmp_path / name) for name in ("a.jar", "b.jar")]
    for jar in jars:
        Path(jar).touch()
    monkeypatch.setenv("STRANDLINE_DELTA_JARS", os.pathsep.join(jars))
    assert submit_options()[:2] == ["--jars", ",".join([shim_jar(), *jars])]


def test_options_that_a_shell_would_take_apart_are_refused(tmp_path: Path) -> None:
    jar = tmp_path / "my jars" / "delta.jar"
    jar.parent.mkdir()
    jar.touch()
    environment = {**os.environ, "STRANDLINE_DELTA_JARS": str(jar)}
    command = [sys.executable, "-m", "pyspark_strandline", "options"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert "STRANDLINE_OPTION_INVALID" in done.stderr
    assert "my jars/delta.jar" in done.stderr


def test_the_jars_of_delta_that_do_not_exist_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StrandlineError, match="STRANDLINE_OPTION_INVALID.*nowhere.jar"):
        configure(SparkSession.Builder(), delta_jars=[str(tmp_path / "nowhere.jar")])
    monkeypatch.setenv("STRANDLINE_DELTA_JARS", f"{shim_jar()[:-5]}*")  # a pattern
    assert submit_options()[1].endswith("*")
    builder = SparkSession.Builder()
    configure(builder, delta_jars=["hdfs://x/a.jar"])  # only Spark can look there
    assert builder._options["spark.jars"].endswith(",hdfs://x/a.jar")
    builder._options.clear()


def test_nothing_is_fetched_where_spark_has_delta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STRANDLINE_DELTA_JARS")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "--packages" in submit_options()
    (tmp_path / "jars" / "delta-spark_4.2_2.13-4.4.0.jar").touch()
    assert "--packages" not in submit_options()


def test_what_is_to_be_fetched_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("STRANDLINE_DELTA_JARS")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert any("spark.jars.excludes=" in option and ":hadoop-client-runtime," in option for option in submit_options())
    assert "installing.md" in caplog.text
    caplog.clear()
    cache = tmp_path / ".ivy2.5.2" / "jars"
    cache.mkdir(parents=True)
    (cache / "io.delta_delta-spark_4.2_2.13-4.4.0.jar").touch()
    submit_options()
    assert not caplog.text


CONNECTED = """
from pyspark.sql import SparkSession, functions as F
from pyspark_strandline import ingest
from strandline.ingest import bounded

spark = SparkSession.builder.remote("sc://127.0.0.1:{port}").getOrCreate()
spark.conf.set("spark.sql.session.timeZone", "UTC")
raw = spark.readStream.schema("time timestamp, device string, n long").parquet("{lake}/raw")
writer = ingest(raw, "{lake}/readings", time="time", partition="device", policy=bounded("10 minutes"))
writer.option("checkpointLocation", "{lake}/cp").trigger(availableNow=True).start().awaitTermination()
readings = spark.readStream.format("strandline").load("{lake}/readings")
hours = readings.groupBy(F.window("time", "1 hour")).agg(F.sum("n").alias("n"))
hours = hours.select(F.col("window.start").alias("time"), "n").writeStream.format("strandline")
hours.option("checkpointLocation", "{lake}/cp2").trigger(availableNow=True).start("{lake}/hours").awaitTermination()
for row in spark.read.format("strandline").load("{lake}/hours").orderBy("time").collect():
    print(row["time"].hour, row["n"])
print(spark.read.format("delta").load("{lake}/readings_late").count(), "late")
"""


@pytest.mark.drawn("processes")
def test_the_connect_server_of_the_page_without_a_network(tmp_path: Path) -> None:
    """Delta's two jars are enough: Ivy's folder is empty, and nobody listens where the JVM's proxy is said to be."""
    lake, [port] = tmp_path / "lake", free_ports(1)
    land(lake, "1", ROWS)
    command = [sys.executable, "-m", "pyspark_strandline", "connect-server", "--port", str(port), "--master", "local[2]"]
    nowhere = " ".join(f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort=9" for scheme in ("http", "https"))
    command += ["--driver-java-options", f"{nowhere} -Duser.home={tmp_path}"]
    settings = ["spark.ui.enabled=false", "spark.sql.shuffle.partitions=2", "spark.databricks.delta.snapshotPartitions=1"]
    settings += [f"spark.sql.warehouse.dir={tmp_path}/warehouse", f"spark.local.dir={tmp_path}"]
    command += [part for setting in settings for part in ("--conf", setting)]
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK", "SPARK_REMOTE"))}
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, env=ours, cwd=tmp_path, stdout=log, stderr=log) as server:
        try:
            while server.poll() is None and not listens(port):
                time.sleep(0.2)
            script = CONNECTED.format(lake=lake, port=port)
            done = subprocess.run(
                [sys.executable, "-c", script], env=ours, capture_output=True, text=True, timeout=300, check=False
            )
        finally:
            server.terminate()
    assert done.returncode == 0, (tmp_path / "log").read_text()[-4000:] + done.stderr[-4000:]
    assert done.stdout.splitlines() == ["8 3", "9 8", "0 late"]
    assert not (tmp_path / ".ivy2.5.2").exists()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
