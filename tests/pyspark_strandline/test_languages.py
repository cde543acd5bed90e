"""The page on other languages: its Scala by ``spark-shell``, its SQL by ``spark-sql``, the late table in ``pyspark``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers import ROOT
from pyspark_strandline import ingest, shim_jar
from pyspark_strandline.session import submit_options
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
def test_the_options_are_those_of_configure(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-m", "pyspark_strandline", "options"]
    without = {name: value for name, value in os.environ.items() if name != "STRANDLINE_DELTA_JARS"}
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=without).stdout.split()
    assert said[:4] == ["--jars", shim_jar(), "--packages", "io.delta:delta-spark_4.2_2.13:4.4.0"]
    assert "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog" in said
    assert set(said[4::2]) == {"--conf"}
    less = subprocess.run([*command, "--no-delta"], capture_output=True, text=True, check=True, env=without).stdout
    assert "elta" not in less.replace(shim_jar(), "")
    monkeypatch.setenv("STRANDLINE_DELTA_JARS", os.pathsep.join(["/a.jar", "/b.jar"]))
    assert submit_options()[:2] == ["--jars", f"{shim_jar()},/a.jar,/b.jar"]


def test_options_that_a_shell_would_take_apart_are_refused() -> None:
    environment = {**os.environ, "STRANDLINE_DELTA_JARS": "/my jars/delta.jar"}
    command = [sys.executable, "-m", "pyspark_strandline", "options"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert "STRANDLINE_OPTION_INVALID" in done.stderr
    assert "/my jars/delta.jar" in done.stderr
