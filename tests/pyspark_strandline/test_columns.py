"""Columns that come later, through three channels and two queries: each goes on with what it knows, or says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from helpers import make_channel, run, say, settle, stream
from ingest_files import Feed, finish
from pyspark_strandline import ingest
from strandline.channel import Channel
from strandline.ingest import ordered

pytestmark = pytest.mark.spark


def table(path: Path) -> list[dict[str, Any]]:
    return sorted(Channel.open(path).read().drop(["time", "key"]).to_pylist(), key=lambda row: row["n"])


@pytest.mark.drawn
def test_a_new_column_goes_through_a_chain_of_queries(spark: Any, tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    channel = make_channel(first, producers=("a",))

    def upstream(column: bool, **options: str) -> None:
        frame = stream(spark, first)
        frame = frame.withColumn("double", F.col("n") * 2) if column else frame
        run(frame, second, tmp_path / "cp1", **options)

    def downstream(**options: str) -> None:
        run(stream(spark, second), third, tmp_path / "cp2", **options)

    say(channel, "a", (0, 0), then=[1])
    upstream(column=False)
    downstream()
    running = stream(spark, second).writeStream.format("strandline").option("checkpointLocation", str(tmp_path / "cp3"))
    query = running.start(str(tmp_path / "fourth"))
    settle(query)

    say(channel, "a", (1, 1), then=[2])
    with pytest.raises(StreamingQueryException, match=r"STRANDLINE_SCHEMA_MISMATCH.*double \(int64 for none\).*mergeSchema"):
        upstream(column=True)
    assert len(list(second.glob("*.parquet"))) == len(Channel.open(second).snapshot_files())  # the refused batch left nothing
    upstream(column=True, mergeSchema="true")
    assert table(second) == [{"n": 0, "double": None}, {"n": 1, "double": 2}]

    settle(query)  # it goes on with the columns that it knows
    assert table(tmp_path / "fourth") == [{"n": 0}, {"n": 1}]
    query.stop()

    with pytest.raises(StreamingQueryException, match=r"STRANDLINE_SCHEMA_MISMATCH.*double.*mergeSchema"):
        downstream()
    downstream(mergeSchema="true")
    assert table(third) == [{"n": 0, "double": None}, {"n": 1, "double": 2}]
    assert list(Channel.open(third).frontier) == [2]

    say(channel, "a", (2, 2), then=[3])
    with pytest.raises(StreamingQueryException, match=r"STRANDLINE_SCHEMA_MISMATCH.*double \(missing for int64\)"):
        upstream(column=False)  # an older version of the program
    upstream(column=False, mergeSchema="true")
    downstream()
    for path in (second, third):
        assert table(path)[-1] == {"n": 2, "double": None}
        for native in ("on", "off"):
            frame = spark.read.format("strandline").option("nativeScan", native).load(str(path))
            assert sorted(tuple(row) for row in frame.select("n", "double").collect()) == [(0, None), (1, 2), (2, None)]


@pytest.mark.drawn
def test_state_that_gets_a_column_goes_on_with_resume(spark: Any, tmp_path: Path) -> None:
    """The sums of the open times have the rows from before the column, too, and the queries further down notice nothing."""
    source, out, third = (tmp_path / name for name in ("in", "out", "third"))
    channel = make_channel(source, producers=("a",))

    def sums(*columns: str, checkpoint: str = "cp", resume: bool = False, **sink: str) -> None:
        frame = stream(spark, source, **({"resume": str(out)} if resume else {}))
        sink |= {"resume": "true"} if resume else {}
        run(frame.groupBy("time").agg(*(F.sum(name).alias(name) for name in columns)), out, tmp_path / checkpoint, **sink)

    def send(*entries: tuple[int, int, int], then: int) -> None:
        with Channel.open(source).producer("a", take_over=True) as producer:
            rows = [{"time": time, "key": "k", "n": n, "m": m} for time, n, m in entries]
            producer.send(pa.Table.from_pylist(rows, schema=Channel.open(source).schema))
            producer.delay([then])

    say(channel, "a", (0, 1), (1, 2), then=[1])
    sums("n")
    run(stream(spark, out), third, tmp_path / "cp3")
    channel.add_columns(pa.schema([("m", pa.int64())]))
    send((1, 4, 40), (2, 8, 80), then=2)

    with pytest.raises(StreamingQueryException, match="STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"):
        sums("n", "m", mergeSchema="true")
    with pytest.raises(StreamingQueryException, match=r"STRANDLINE_SCHEMA_MISMATCH.*m \(int64 for none\).*mergeSchema"):
        sums("n", "m", checkpoint="new", resume=True)
    sums("n", "m", checkpoint="new", resume=True, mergeSchema="true")

    def has(path: Path) -> list[dict[str, Any]]:
        return sorted(Channel.open(path).read().to_pylist(), key=lambda row: row["time"])

    assert has(out) == [{"time": 0, "n": 1, "m": None}, {"time": 1, "n": 6, "m": 40}]
    send(then=3)
    sums("n", "m", checkpoint="new", resume=True, mergeSchema="true")  # the options stay in the program
    assert has(out)[2:] == [{"time": 2, "n": 8, "m": 80}]
    run(stream(spark, out), third, tmp_path / "cp3", mergeSchema="true")
    assert has(third) == has(out)
    assert list(Channel.open(third).frontier) == [3]


@pytest.mark.drawn
def test_a_column_of_another_type_is_refused(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (0, 0), then=[1])
    run(stream(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "cp")
    channel.add_columns([pa.field("more", pa.string())])
    say(channel.open(channel.path), "a", then=[2])
    for kind in ("string", "double"):
        changed = stream(spark, tmp_path / "in").withColumn("n", F.col("n").cast(kind))
        with pytest.raises(StreamingQueryException, match=rf"STRANDLINE_SCHEMA_MISMATCH.*'n' \({kind}\).*'n' \(int64\)"):
            run(changed, tmp_path / "out", tmp_path / "cp", mergeSchema="true")


@pytest.mark.drawn
def test_an_ingest_takes_a_new_column(spark: Any, tmp_path: Path) -> None:
    old = Feed(tmp_path / "in", pa.schema([("t", pa.int64()), ("p", pa.string()), ("n", pa.int64())]), "t long, p string, n long")
    old.add([(5, "a", 0)])

    def take_in(ddl: str, **options: Any) -> None:
        rows = spark.readStream.schema(ddl).parquet(str(tmp_path / "in"))
        writer = ingest(rows, str(tmp_path / "out"), time="t", partition="p", policy=ordered(), **options)
        finish(writer, tmp_path / "cp")

    take_in(old.ddl)
    new = Feed(tmp_path / "in", pa.schema([("m", pa.int64()), *old.schema]), f"m long, {old.ddl}")
    new._next = 1
    new.add([(70, 7, "a", 1), (71, 3, "a", 2)])
    with pytest.raises(StreamingQueryException, match=r"STRANDLINE_SCHEMA_MISMATCH.*m \(int64 for none\).*mergeSchema") as caught:
        take_in(new.ddl)
    assert "During handling" not in str(caught.value)
    take_in(new.ddl, merge_schema=True)
    rows = Channel.open(tmp_path / "out").read().to_pylist()
    assert sorted((row["n"], row["m"]) for row in rows if row["n"]) == [(1, 70)]
    assert [row["m"] for row in rows if not row["n"]] == [None]
    late = spark.read.format("delta").load(str(tmp_path / "out_late"))
    assert [tuple(row) for row in late.select("n", "m", "_reason").collect()] == [(2, 71, "late")]
    for native in ("on", "off"):
        frame = spark.read.format("strandline").option("nativeScan", native).load(str(tmp_path / "out"))
        assert sorted((row.n, row.m) for row in frame.where("m > 0").collect()) == [(1, 70)]


@pytest.mark.drawn
def test_an_ingest_takes_structs_whose_fields_cannot_be_null(spark: Any, tmp_path: Path) -> None:
    feed = Feed(
        tmp_path / "in", pa.schema([("t", pa.int64()), ("p", pa.string()), ("n", pa.int64())]), "t long, p string, n long"
    )
    for rows in ([(5, "a", 1)], [(7, "a", 2), (3, "a", 3)]):
        feed.add(rows)
        frame = spark.readStream.schema(feed.ddl).parquet(str(tmp_path / "in")).withColumn("s", F.struct(F.lit(1).alias("one")))
        writer = ingest(frame, str(tmp_path / "out"), time="t", partition="p", policy=ordered())
        finish(writer, tmp_path / "cp")
    assert [(row["n"], row["s"]) for row in Channel.open(tmp_path / "out").read().to_pylist()] == [
        (1, {"one": 1}),
        (2, {"one": 1}),
    ]
    late = spark.read.format("delta").load(str(tmp_path / "out_late"))
    assert [(row.n, tuple(row.s)) for row in late.collect()] == [(3, (1,))]
