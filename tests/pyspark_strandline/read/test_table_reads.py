"""A channel that is read as a table is read as it is then, by each execution, at one version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from helpers import make_channel, say, settings
from strandline.channel import Channel

pytestmark = pytest.mark.spark

WAYS = ["delta", "path", "python", "name", "sql"]


def a_channel(folder: Path) -> Channel:
    channel = make_channel(folder / "dim", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    return channel


def read(spark: Any, path: Path, way: str, **options: str) -> Any:
    if way in ("name", "sql"):
        name = f"t_{abs(hash(str(path)))}"
        spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING strandline LOCATION '{path}'")
        return spark.table(name) if way == "name" else spark.sql(f"SELECT * FROM {name}")
    own = {"nativeScan": "off"} if way == "python" else {}
    return spark.read.format("delta" if way == "delta" else "strandline").options(**own, **options).load(str(path))


def numbers(frame: Any) -> list[int]:
    return sorted(row.n for row in frame.select("n").collect())


@pytest.mark.drawn
@pytest.mark.parametrize("way", WAYS)
def test_a_frame_and_a_view_read_the_channel_as_it_is_then(spark: Any, tmp_path: Path, way: str) -> None:
    """As Delta does. The first case is Delta on the same files."""
    channel = a_channel(tmp_path)
    frame = read(spark, tmp_path / "dim", way)
    frame.createOrReplaceTempView("seen")
    spark.sql("CREATE OR REPLACE TEMP VIEW above AS SELECT max(n) AS n FROM seen")
    assert numbers(frame) == [1]
    assert frame.count() == spark.table("seen").count() == 1
    say(channel, "a", (2, 2), then=[3])
    assert numbers(frame) == [1, 2]
    assert frame.count() == spark.table("seen").count() == 2
    assert frame.limit(9).toPandas().n.sum() == 3
    assert numbers(spark.table("above")) == [2]
    assert frame.alias("l").join(frame.alias("r"), F.col("l.n") == F.col("r.n")).count() == 2
    with settings(spark, {"spark.sql.adaptive.enabled": "false"}):
        say(channel, "a", (3, 3), then=[4])
        assert numbers(frame.where("n > 1")) == [2, 3]


@pytest.mark.parametrize("way", ["path", "python", "name"])
def test_an_execution_reads_one_version_wherever_in_the_plan(spark: Any, tmp_path: Path, way: str) -> None:
    """The optimizer plans a subquery by itself, and a join's sides one after the other."""
    a_channel(tmp_path)
    frame = read(spark, tmp_path / "dim", way)
    frame.createOrReplaceTempView("one")
    other = spark.read.format("strandline").load(f"file:{tmp_path}/dim")  # another name of it
    other.createOrReplaceTempView("two")
    query = spark.sql(
        "SELECT n FROM one WHERE n IN (SELECT n FROM two) AND n = (SELECT max(n) FROM one) UNION ALL SELECT n FROM two"
    )
    assert numbers(query) == [1, 1]


def test_what_the_user_has_fixed_stays(spark: Any, tmp_path: Path) -> None:
    channel = a_channel(tmp_path)
    fixed = read(spark, tmp_path / "dim", "path", asOfVersion=str(channel.version))
    progress = spark.read.format("strandline").option("show", "progress").load(str(tmp_path / "dim"))
    cached = read(spark, tmp_path / "dim", "path").cache()
    assert numbers(fixed) == numbers(cached) == [1]
    before = progress.select("version").distinct().collect()[0].version
    say(channel, "a", (2, 2), then=[3])
    assert numbers(fixed) == numbers(cached) == [1]
    assert cached.count() == 1  # Spark's cache, as for other tables
    assert progress.select("version").distinct().collect()[0].version > before
    cached.unpersist()
    assert numbers(cached) == [1, 2]


@pytest.mark.drawn
@pytest.mark.parametrize("way", ["delta", "path", "python", "name"])
def test_a_frame_keeps_its_columns(spark: Any, tmp_path: Path, way: str) -> None:
    channel = a_channel(tmp_path)
    frame = read(spark, tmp_path / "dim", way)
    chosen = None if way in ("delta", "name") else read(spark, tmp_path / "dim", way, columns="time, n")
    assert numbers(frame) == [1]
    channel.add_columns(pa.schema([("more", pa.string())]))
    schema = channel.schema
    with channel.producer("a") as producer:
        producer.send(pa.table({"time": [2], "key": ["k"], "n": [2], "more": ["m"]}, schema=schema))
        producer.delay([3])
    assert numbers(frame) == [1, 2]
    assert frame.columns == ["time", "key", "n"]
    assert chosen is None or numbers(chosen) == [1, 2]
    assert read(spark, tmp_path / "dim", way).columns == ["time", "key", "n", "more"]
