"""The sink: one Delta commit a batch, exactly once, and what it refuses before anything is written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as F

from helpers import contents, make_channel, run, say, settle, stream
from pyspark_strandline import domain_metadata, truncate
from strandline.channel import Channel, Log
from strandline.time.domain import int64, timestamp

pytestmark = pytest.mark.spark


def forget_last_commit(checkpoint: Path) -> None:
    """What a crash between the sink's commit and Spark's leaves behind."""
    last = max((p for p in (checkpoint / "commits").iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


def test_a_batch_is_one_commit_of_rows_statement_and_transaction(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), (1, 2), (4, 3), then=[5])
    run(stream(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "checkpoint", producer="copy")
    out = Channel.open(tmp_path / "out")
    commit = Log(tmp_path / "out").require(out.version)
    assert out.producers["copy"].holds.to_json() == [5]
    assert commit.statement is not None
    assert list(commit.statement.times) == [(1, 2), (4, 1)]
    assert list(commit.transactions.values()) == [0]
    assert out.sealed


def test_a_replayed_batch_adds_nothing(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    frame = stream(spark, tmp_path / "in").groupBy("time").agg(F.sum("n").alias("n"))
    say(channel, "a", (1, 1), (2, 5), then=[2])
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    version = Channel.open(tmp_path / "out").version
    files = sorted((tmp_path / "out").glob("*.parquet"))
    forget_last_commit(tmp_path / "checkpoint")
    assert [p["batchId"] for p in run(frame, tmp_path / "out", tmp_path / "checkpoint")] == [0]
    assert Channel.open(tmp_path / "out").version == version
    assert sorted((tmp_path / "out").glob("*.parquet")) == files  # the replay's second copies are removed
    say(channel, "a", then=[3])
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert contents(tmp_path / "out") == [(1, 1), (2, 5)]


def test_a_batch_that_changes_nothing_is_no_commit(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    frame = stream(spark, tmp_path / "in").groupBy("time").agg(F.sum("n").alias("n"))
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    version = Channel.open(tmp_path / "out").version
    say(channel, "a", (2, 1), then=[2])  # rows that close nothing: state grows, the output has no news
    assert [p["numInputRows"] for p in run(frame, tmp_path / "out", tmp_path / "checkpoint")] == [1]
    assert Channel.open(tmp_path / "out").version == version


@pytest.mark.drawn
@pytest.mark.parametrize("gone", ["deleted", "made anew", "another"])
def test_a_query_does_not_go_on_without_what_it_wrote_before(spark: Any, tmp_path: Path, gone: str) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    run(stream(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "checkpoint", producer="copy")
    out = tmp_path / ("other" if gone == "another" else "out")
    if gone != "another":
        shutil.rmtree(out)
    if gone == "made anew":
        make_channel(out, producers=("copy",))
    say(channel, "a", (2, 1), then=[3])
    with pytest.raises(StreamingQueryException, match="STRANDLINE_OUTPUT_MISSING"):
        run(stream(spark, tmp_path / "in"), out, tmp_path / "checkpoint", producer="copy")
    assert list(out.rglob("*.parquet")) == []
    assert Channel.exists(out) == (gone == "made anew")


def test_a_query_whose_first_batch_had_no_news_goes_on(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[0])
    counts = stream(spark, tmp_path / "in").groupBy("time").agg(F.sum("n").alias("n"))
    assert [p["batchId"] for p in run(counts, tmp_path / "out", tmp_path / "checkpoint")] == [0]
    out = Channel.open(tmp_path / "out")
    first = Log(tmp_path / "out").require(out.version)
    assert list(first.transactions.values()) == [0]
    assert not first.files
    say(channel, "a", then=[2])
    run(counts, tmp_path / "out", tmp_path / "checkpoint")
    assert contents(tmp_path / "out") == [(1, 1)]


def test_output_modes_other_than_append_are_refused(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    counts = stream(spark, tmp_path / "in").groupBy("time").agg(F.sum("n").alias("n")).writeStream.format("strandline")
    with pytest.raises(StreamingQueryException, match="STRANDLINE_OUTPUT_MODE_UNSUPPORTED"):
        writer = counts.outputMode("complete").option("checkpointLocation", str(tmp_path / "c1")).trigger(availableNow=True)
        writer.start(str(tmp_path / "out")).awaitTermination()
    with pytest.raises(AnalysisException, match="STRANDLINE_OUTPUT_MODE_UNSUPPORTED.*mode update"):
        writer = counts.outputMode("update").option("checkpointLocation", str(tmp_path / "c2")).trigger(availableNow=True)
        writer.start(str(tmp_path / "out")).awaitTermination()
    assert not Channel.exists(tmp_path / "out")


def test_an_aggregation_without_a_time_is_told_what_to_write(spark: Any, tmp_path: Path) -> None:
    make_channel(tmp_path / "in", timestamp, producers=("a",))
    rows = stream(spark, tmp_path / "in")
    for groups in (rows.groupBy(F.date_trunc("hour", "time").alias("hour")), rows.groupBy("key"), rows.groupBy()):
        with pytest.raises(AnalysisException, match=r"STRANDLINE_AGGREGATION_WITHOUT_TIME.*truncate\(df, '1 hour'\)"):
            run(groups.count(), tmp_path / "out", tmp_path / "checkpoint")
    run(truncate(rows, "1 hour").groupBy("time").count(), tmp_path / "out", tmp_path / "checkpoint")


def test_rows_without_a_time_column_are_refused(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    with pytest.raises(StreamingQueryException, match="STRANDLINE_TIME_COLUMN_MISSING"):
        run(stream(spark, tmp_path / "in").select("n"), tmp_path / "out", tmp_path / "checkpoint")
    made_by_hand = stream(spark, tmp_path / "in").select((F.col("time") - 10).alias("time"), "n")
    with pytest.raises(StreamingQueryException, match="STRANDLINE_TIME_COLUMN_MISSING"):
        run(made_by_hand, tmp_path / "out", tmp_path / "checkpoint2")


def test_a_query_without_a_frontier_is_refused(spark: Any, tmp_path: Path) -> None:
    rate = spark.readStream.format("rate").load()
    tagged = rate.select(F.col("value").alias("time", metadata=domain_metadata(int64)), F.col("value").alias("n"))
    with pytest.raises(StreamingQueryException, match="STRANDLINE_"):
        run(tagged, tmp_path / "out", tmp_path / "checkpoint")
    assert not Channel.exists(tmp_path / "out")


@pytest.mark.drawn
def test_another_schema_than_the_channels_is_refused_by_column(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    run(stream(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "checkpoint", producer="p")
    other = stream(spark, tmp_path / "in").select("time", "key", F.col("n").cast("string").alias("n"))
    with pytest.raises(StreamingQueryException, match="STRANDLINE_SCHEMA_MISMATCH.* n "):
        run(other, tmp_path / "out", tmp_path / "checkpoint2", producer="p")


@pytest.mark.drawn
def test_fields_of_structs_that_cannot_be_null_are_written(spark: Any, tmp_path: Path) -> None:
    """A channel's fields may be null. So a query fits the channel that it has made itself."""
    channel = make_channel(tmp_path / "in", producers=("a",))

    def start() -> None:
        deep = F.struct(F.struct(F.lit(1).alias("one")).alias("inner"), F.array(F.struct(F.lit("x").alias("x"))).alias("list"))
        rows = (
            stream(spark, tmp_path / "in")
            .groupBy("time")
            .agg(F.struct(F.count("*").alias("count"), F.sum("n").alias("sum")).alias("s"))
        )
        run(rows.withColumn("deep", deep), tmp_path / "out", tmp_path / "checkpoint")

    say(channel, "a", (0, 1), (0, 2), then=[1])
    start()
    say(channel, "a", (1, 5), then=[])
    start()
    deep = {"inner": {"one": 1}, "list": [{"x": "x"}]}
    rows = sorted(Channel.open(tmp_path / "out").read().to_pylist(), key=lambda row: row["time"])
    assert rows == [
        {"time": 0, "s": {"count": 2, "sum": 3}, "deep": deep},
        {"time": 1, "s": {"count": 1, "sum": 5}, "deep": deep},
    ]
    assert [tuple(row.s) for row in spark.read.format("delta").load(str(tmp_path / "out")).orderBy("time").collect()] == [
        (2, 3),
        (1, 5),
    ]


def test_what_may_be_null_may_differ_from_batch_to_batch(spark: Any, tmp_path: Path) -> None:
    """Spark plans a union without a side that has no rows. So its elements cannot be null in one batch, and are in the next."""
    sides = {name: make_channel(tmp_path / name, producers=("p",)) for name in ("never", "at times")}
    value = F.when(F.col("n") % 2 == 1, F.col("n"))

    def columns(name: str, element: Any) -> Any:
        nested = {
            "list": F.array(element),
            "map": F.create_map(F.lit("k"), element),
            "deep": F.array(F.struct(F.create_map(element, F.array(element)).alias("m")))
            if name == "never"
            else F.array(F.struct(F.create_map(F.lit(1).cast("long"), F.array(element)).alias("m"))),
        }
        made = [each.alias(column) for column, each in nested.items()]
        return stream(spark, tmp_path / name).select("time", "n", element.alias("top"), *made)

    both = columns("never", F.coalesce(value, F.lit(-1).cast("long"))).union(columns("at times", value))
    query = (
        both.writeStream.format("strandline")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start(str(tmp_path / "out"))
    )
    try:
        for at, names in enumerate((["never"], ["at times"], ["never", "at times"], ["at times"], ["never"])):
            for name in names:
                say(sides[name], "p", (at, 2 * at), (at, 2 * at + 1), then=[at + 1])
            settle(query)
    finally:
        query.stop()
    told = [(row["n"], row["top"], row["list"], row["map"]) for row in Channel.open(tmp_path / "out").read().to_pylist()]
    numbers = [number for at in (0, 2, 4) for number in (2 * at, 2 * at + 1)]
    wanted = [(n, n if n % 2 else -1, [n if n % 2 else -1], [("k", n if n % 2 else -1)]) for n in numbers]
    numbers = [number for at in (1, 2, 3) for number in (2 * at, 2 * at + 1)]
    wanted += [(n, n if n % 2 else None, [n if n % 2 else None], [("k", n if n % 2 else None)]) for n in numbers]
    assert sorted(told, key=repr) == sorted(wanted, key=repr)


@pytest.mark.drawn
def test_a_second_query_is_told_that_the_channel_has_its_producer(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    frame = stream(spark, tmp_path / "in")
    run(frame, tmp_path / "out", tmp_path / "checkpoint", producer="p")
    with pytest.raises(StreamingQueryException, match="STRANDLINE_PRODUCER_UNKNOWN"):
        run(frame, tmp_path / "out", tmp_path / "checkpoint2")
    with pytest.raises(StreamingQueryException, match="STRANDLINE_PRODUCER_EXISTS.*would be written twice.*resume"):
        run(frame, tmp_path / "out", tmp_path / "checkpoint3", producer="p")
    assert contents(tmp_path / "out") == [(1, "k", 1)]


@pytest.mark.drawn
def test_a_query_that_takes_over_goes_on_where_its_predecessor_stopped(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    run(stream(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "checkpoint", producer="p")
    version = say(channel, "a", (2, 2), then=[3])
    successor = stream(spark, tmp_path / "in", startingVersion=str(version))
    run(successor, tmp_path / "out", tmp_path / "checkpoint2", producer="p", takeOver="true")
    assert contents(tmp_path / "out") == [(1, "k", 1), (2, "k", 2)]
    say(channel, "a", (3, 3), then=[4])
    with pytest.raises(StreamingQueryException, match="STRANDLINE_PRODUCER_FENCED"):
        run(stream(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "checkpoint", producer="p")


def test_several_queries_write_one_channel_that_names_them(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[4])
    make_channel(tmp_path / "out", producers=("left", "right"))
    frame = stream(spark, tmp_path / "in")
    run(frame, tmp_path / "out", tmp_path / "c1", producer="left")
    assert Channel.open(tmp_path / "out").frontier.to_json() == [0]
    run(frame, tmp_path / "out", tmp_path / "c2", producer="right")
    assert Channel.open(tmp_path / "out").frontier.to_json() == [4]
    assert contents(tmp_path / "out") == [(1, "k", 1), (1, "k", 1)]


def test_batch_writes_are_refused_with_the_way_to_do_it(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    frame = spark.read.format("strandline").load(str(tmp_path / "in"))
    with pytest.raises(Exception, match="STRANDLINE_BATCH_WRITE_UNSUPPORTED"):
        frame.write.format("strandline").mode("append").save(str(tmp_path / "out"))


@pytest.mark.drawn
def test_delta_reads_what_the_sink_wrote(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), (2, 2), then=[3])
    run(stream(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "checkpoint")
    table = spark.read.format("delta").load(str(tmp_path / "out"))
    assert sorted(tuple(r) for r in table.collect()) == [(1, "k", 1), (2, "k", 2)]
    history = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path / 'out'}`").orderBy("version").collect()
    assert all("strandline" in row.userMetadata for row in history)
