"""``ingest``: Spark's own sources become channels, each partition a producer; exactly once, and refused at the door."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import subprocess
import sys
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from helpers import ROOT, contents, settle
from ingest_files import Feed, finish
from ingest_model import Model, trace
from pyspark_strandline import domain_metadata, ingest, readmit
from pyspark_strandline.write.ingest import _from_beginning, _reads_to_end
from strandline.channel import Channel, Log
from strandline.errors import StrandlineError
from strandline.ingest import bounded, composed, heartbeat, idle, manifest, ordered, punctuated, status

pytestmark = pytest.mark.spark
LEAST = -(1 << 63)


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "in")


def forget_last_commit(checkpoint: Path) -> None:
    """What a crash between the sink's commit and Spark's leaves behind."""
    last = max((p for p in (checkpoint / "commits").iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


def holds(path: Path) -> dict[str, list[Any]]:
    return {name: list(state.holds) for name, state in Channel.open(path).producers.items()}


def late(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    table = pa.table(DeltaTable(str(path)).to_pyarrow_table()).select(list(columns))
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


@pytest.mark.drawn
def test_each_partition_is_a_producer_and_late_rows_are_set_aside(spark: Any, tmp_path: Path, feed: Feed) -> None:
    feed.add([(5, "a", 0), (9, "a", 1), (3, "b", 2)])
    feed.add([(6, "a", 3), (7, "a", 4), (2, "b", 5), (None, "b", 6)])
    writer = ingest(feed.stream(spark), str(tmp_path / "c"), time="t", partition="p", policy=bounded(2))
    query = finish(writer, tmp_path / "cp")
    assert holds(tmp_path / "c") == {"a": [7], "b": [1]}
    assert [row[2] for row in contents(tmp_path / "c")] == [5, 2, 0, 4, 1]
    assert late(tmp_path / "c_late", "n", "_reason", "_partition", "_frontier", "_batch", "_query") == [
        (3, "late", "a", [7], 1, query.id),
        (6, "null time", "b", [1], 1, query.id),
    ]
    arrivals = spark.read.format("delta").load(str(tmp_path / "c_late")).agg(F.min("_arrival"), F.count("*")).first()
    assert arrivals[0].year >= 2026
    assert status(str(tmp_path / "c")).aside == 2
    shown = spark.read.format("strandline").option("show", "progress").load(str(tmp_path / "c"))
    asides = shown.filter("producer IS NOT NULL").select("producer", F.get_json_object("state", "$.aside").alias("n"))
    assert sorted(tuple(row) for row in asides.collect()) == [("a", "1"), ("b", "1")]
    channel = Channel.open(tmp_path / "c")
    for name, application in (("c", query.id), ("c_late", f"{query.id}@{channel.table_id}")):  # both commits name the batch
        log = Log(tmp_path / name)
        assert log.require(log.latest()).transactions[application] == 1


@pytest.mark.drawn
def test_a_row_in_the_future_is_compared_with_the_clock_of_the_batch(spark: Any, tmp_path: Path) -> None:
    """Spark records in the checkpoint when a batch was determined. A batch that is repeated days later is compared with that."""
    now, land = datetime.now(timezone.utc), tmp_path / "in"
    land.mkdir()
    rows = [(now - timedelta(days=20), "a"), (now - timedelta(days=5), "a"), (now + timedelta(days=30), "b")]
    (land / "0.json").write_text("".join(json.dumps({"t": t.isoformat(), "p": p}) + "\n" for t, p in rows))

    def run(**options: Any) -> Any:
        stream = spark.readStream.schema("t timestamp, p string").json(str(land))
        writer = ingest(stream, str(tmp_path / "c"), time="t", partition="p", policy=ordered(), **options)
        return finish(writer, tmp_path / "cp")

    with pytest.raises(StreamingQueryException, match=r"STRANDLINE_ROW_IN_FUTURE.*'b'.*more than 1 day ahead"):
        run(on_late="fail")
    offsets = tmp_path / "cp" / "offsets" / "0"
    ten_days_ago = int((now - timedelta(days=10)).timestamp() * 1000)
    offsets.write_text(re.sub(r'("batchTimestampMs":)\d+', rf"\g<1>{ten_days_ago}", offsets.read_text()))
    (offsets.parent / ".0.crc").unlink(missing_ok=True)
    run()
    found = late(tmp_path / "c_late", "t", "_reason")
    assert [(row[0] < now, row[1]) for row in sorted(found)] == [(True, "time in the future"), (False, "time in the future")]
    (land / "1.json").write_text(json.dumps({"t": rows[2][0].isoformat(), "p": "b"}))
    run(max_future="60 days")
    assert len(late(tmp_path / "c_late", "t")) == 2
    (land / "2.json").write_text(json.dumps({"t": (now + timedelta(days=999)).isoformat(), "p": "b"}))
    run(max_future=None)
    assert len(late(tmp_path / "c_late", "t")) == 2
    assert len(contents(tmp_path / "c")) == 3


def test_late_rows_as_they_came_and_a_limit_on_them(spark: Any, tmp_path: Path) -> None:
    folder, out = tmp_path / "json", tmp_path / "out"
    folder.mkdir()
    (folder / "0.json").write_text('{"t": "2026-03-01T08:00:00Z"}\n{"t": "8 o\'clock"}\n')
    raw = spark.readStream.text(str(folder)).select("value", F.get_json_object("value", "$.t").alias("t"))
    options: dict[str, Any] = {"time": "t", "domain": "timestamp", "policy": ordered(), "late_columns": ["value"]}

    def run(**more: Any) -> None:
        writer = ingest(raw, str(out), **options, **more).option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(
        StreamingQueryException, match="STRANDLINE_SET_ASIDE_LIMIT.*1 without|STRANDLINE_SET_ASIDE_LIMIT.*1 of part"
    ):
        run(max_set_aside="49%")
    assert Channel.open(out).snapshot_files() == []
    run(max_set_aside="50%", late_retention=timedelta(days=30))
    assert Channel.open(out).schema.names == ["t"]
    assert late(tmp_path / "out_late", "value", "_reason") == [('{"t": "8 o\'clock"}', "unparsable time")]


def test_files_are_not_read_again_by_a_takeover_without_a_second_word(spark: Any, tmp_path: Path, feed: Feed) -> None:
    feed.add([(5, "a", 0)])
    out, files = tmp_path / "out", feed.stream(spark)
    options: dict[str, Any] = {"time": "t", "partition": "p", "policy": ordered()}

    def run(checkpoint: str, **more: Any) -> None:
        writer = ingest(files, str(out), **options, **more).option("checkpointLocation", str(tmp_path / checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    run("lost")
    with pytest.raises(StreamingQueryException, match="reads its source from the beginning"):
        run("new")
    with pytest.raises(StreamingQueryException, match="STRANDLINE_TAKE_OVER_READS_AGAIN"):
        run("new", take_over=True)
    assert sum(file.rows for file in Channel.open(out).snapshot_files()) == 1
    run("new", take_over="fromBeginning")
    assert sum(file.rows for file in Channel.open(out).snapshot_files()) == 2  # as was said


def test_sources_that_a_new_checkpoint_begins_anew(spark: Any, tmp_path: Path, feed: Feed) -> None:
    feed.add([(5, "a", 0)])
    finish(ingest(feed.stream(spark), str(tmp_path / "c"), time="t", partition="p", policy=ordered()), tmp_path / "cp")
    assert _from_beginning(feed.stream(spark)) == ["parquet"]
    for source in ("delta", "strandline"):
        path = str(tmp_path / "c")
        assert _from_beginning(spark.readStream.format(source).load(path)) == [source]
        assert _from_beginning(spark.readStream.format(source).option("startingVersion", "0").load(path)) == [source]
        assert _from_beginning(spark.readStream.format(source).option("startingVersion", "1").load(path)) == []
    assert _from_beginning(spark.readStream.format("rate").load()) == []
    both = spark.readStream.format("strandline").load(str(tmp_path / "c")).select("n").union(feed.stream(spark).select("n"))
    assert _from_beginning(both) == ["parquet", "strandline"]


def test_the_options_alone_do_the_same(spark: Any, tmp_path: Path, feed: Feed) -> None:
    feed.add([(5, "a", 0), (9, "b", 1)])
    feed.add([(4, "a", 2), (1, "b", 3)])
    writer = (
        feed.stream(spark)
        .writeStream.format("strandline")
        .option("policy", "composed(a: ordered(), *: bounded(5))")
        .option("time", "t")
        .option("partition", "p")
        .option("partitions", "a, b")
        .option("latePath", str(tmp_path / "aside"))
        .option("path", str(tmp_path / "c"))
    )
    finish(writer, tmp_path / "cp")
    assert holds(tmp_path / "c") == {"a": [5], "b": [4]}
    assert Channel.open(tmp_path / "c").sealed
    assert late(tmp_path / "aside", "n") == [(2,), (3,)]
    assert "composed(a: ordered(), *: bounded(5))" in status(str(tmp_path / "c")).policies


def test_a_replayed_batch_adds_nothing_to_either_table(spark: Any, tmp_path: Path, feed: Feed) -> None:
    feed.add([(5, "a", 0)])
    feed.add([(4, "a", 1), (7, "a", 2)])
    writer = ingest(feed.stream(spark), str(tmp_path / "c"), time="t", partition="p", policy=ordered())
    finish(writer, tmp_path / "cp")
    versions = [Log(tmp_path / name).latest() for name in ("c", "c_late")]
    files = sorted((tmp_path).glob("c*/*.parquet"))
    forget_last_commit(tmp_path / "cp")
    finish(ingest(feed.stream(spark), str(tmp_path / "c"), time="t", partition="p", policy=ordered()), tmp_path / "cp")
    assert [Log(tmp_path / name).latest() for name in ("c", "c_late")] == versions
    assert sorted((tmp_path).glob("c*/*.parquet")) == files


@pytest.mark.drawn
def test_windows_close_when_the_slowest_partition_says_so(spark: Any, tmp_path: Path) -> None:
    minute = 60_000_000
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("p", pa.string())])
    feed = Feed(tmp_path / "in", schema, "at timestamp, p string")
    feed.add([(m * minute, p) for m, p in [(5, "a"), (50, "a"), (130, "a"), (20, "b"), (70, "b")]])
    finish(
        ingest(feed.stream(spark), str(tmp_path / "c"), time="at", partition="p", policy=bounded("10 minutes")), tmp_path / "cp"
    )
    counts = (
        spark.readStream.format("strandline")
        .load(str(tmp_path / "c"))
        .groupBy(F.window("at", "1 hour"))
        .count()
        .select(F.col("window.start").alias("at"), "count")
    )

    def hours() -> list[tuple[int, int]]:
        writer = counts.writeStream.format("strandline").option("path", str(tmp_path / "hours"))
        finish(writer, tmp_path / "cp-hours")
        return [(int(at.timestamp()) // 3600, n) for at, n in contents(tmp_path / "hours")]

    assert hours() == [(0, 3)]  # b has promised nothing before minute 60
    feed.add([(131 * minute, "b")])
    finish(
        ingest(feed.stream(spark), str(tmp_path / "c"), time="at", partition="p", policy=bounded("10 minutes")), tmp_path / "cp"
    )
    assert hours() == [(0, 3), (1, 1)]


def test_a_manifest_given_as_rows_is_written_beside_the_channel(spark: Any, tmp_path: Path, feed: Feed) -> None:
    expected = spark.createDataFrame(pd.DataFrame({"p": ["a", "a", "b"], "t": [1, 2, 1], "expected": [2, 1, 1]}))
    feed.add([(2, "a", 0, None, False), (1, "a", 1, None, True)])
    feed.add([(1, "a", 2, None, False), (1, "b", 3, None, False)])
    for _ in range(2):  # the second time it is there already
        frame = feed.stream(spark)
        policy = manifest(expected, cancelled="flag")
        finish(ingest(frame, str(tmp_path / "c"), time="t", partition="p", policy=policy), tmp_path / "cp")
    assert Channel.open(tmp_path / "c").frontier.to_json() == []
    assert [row[2] for row in contents(tmp_path / "c")] == [2, 3, 0]
    assert DeltaTable(str(tmp_path / "c_manifest")).version() == 0


def test_a_slow_partition_keeps_the_fast_one_out(spark: Any, tmp_path: Path, feed: Feed) -> None:
    feed.add([(1, "a", 0), (2, "b", 1), (500, "b", 2)])
    feed.add([(495, "a", 3)])
    writer = ingest(feed.stream(spark), str(tmp_path / "c"), time="t", partition="p", policy=ordered(), max_ahead=10)
    query = writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start()
    query.awaitTermination()
    out = spark.read.format("strandline").load(str(tmp_path / "c"))
    assert sorted(row.t for row in out.collect()) == [1, 2, 495, 500]
    first = Channel.open(tmp_path / "c").log.require(1)
    assert first.statement is not None
    assert first.statement.statements["strandline:parked"].state["rows"] == 1
    back = spark.readStream.format("strandline").load(str(tmp_path / "c")).select("t", "n")
    finish(back.writeStream.format("strandline").option("path", str(tmp_path / "copy")), tmp_path / "cp2")
    assert [row[0] for row in contents(tmp_path / "copy")] == [1, 2, 495, 500]


@pytest.mark.drawn
def test_corrections_come_back_through_the_same_query(spark: Any, tmp_path: Path, feed: Feed) -> None:
    feed.add([(1, "a", 0), (2, "a", 1)])
    feed.add([(1, "a", 2), (3, "a", 3)])
    path = str(tmp_path / "c")
    finish(ingest(feed.stream(spark), path, time="t", partition="p", policy=ordered(), corrections=True), tmp_path / "cp")

    def counts() -> list[tuple[Any, ...]]:
        frame = spark.readStream.format("strandline").load(path).groupBy("t").agg(F.count("*").alias("n"))
        finish(frame.writeStream.format("strandline").option("path", str(tmp_path / "out")), tmp_path / "cp-out")
        return contents(tmp_path / "out")

    assert counts() == [((1, 0), 1), ((2, 0), 1)]
    assert readmit(path).rows == 1
    assert counts() == [((1, 0), 1), ((1, 1), 1), ((2, 0), 1)]
    assert readmit(path).rows == 0
    assert counts() == [((1, 0), 1), ((1, 1), 1), ((2, 0), 1)]


def test_strangers_and_late_rows_fail_the_query_by_name(spark: Any, tmp_path: Path, feed: Feed) -> None:
    feed.add([(5, "a", 0)])
    feed.add([(6, "b", 1)])
    with pytest.raises(StreamingQueryException, match="STRANDLINE_PARTITION_UNKNOWN.*'b'"):
        finish(
            ingest(feed.stream(spark), str(tmp_path / "c"), time="t", partition="p", policy=ordered(), partitions=["a"]),
            tmp_path / "cp",
        )
    assert [row[2] for row in contents(tmp_path / "c")] == [0]
    feed.add([(4, "b", 2)])
    with pytest.raises(StreamingQueryException, match="STRANDLINE_ROW_LATE.*'b' with t = 4.*[{]6[}]"):
        finish(
            ingest(feed.stream(spark), str(tmp_path / "d"), time="t", partition="p", policy=ordered(), on_late="fail"),
            tmp_path / "cp2",
        )
    assert [row[2] for row in contents(tmp_path / "d")] == [0, 1]
    assert len(list((tmp_path / "d").glob("*.parquet"))) == 2


@pytest.mark.drawn
def test_two_queries_may_not_have_the_same_partition(spark: Any, tmp_path: Path, feed: Feed) -> None:
    feed.add([(5, "a", 0)])
    path = str(tmp_path / "c")
    finish(ingest(feed.stream(spark), path, time="t", partition="p", policy=ordered()), tmp_path / "cp")
    with pytest.raises(StreamingQueryException, match="STRANDLINE_PRODUCER_LIVE.*'a'.*Stop the query there. If it has ended"):
        finish(ingest(feed.stream(spark), path, time="t", partition="p", policy=ordered()), tmp_path / "cp2")
    assert len(list((tmp_path / "c").glob("*.parquet"))) == 1
    finish(
        ingest(feed.stream(spark), path, time="t", partition="p", policy=ordered(), take_over="fromBeginning"), tmp_path / "cp3"
    )
    assert [row[2] for row in contents(tmp_path / "c")] == [0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time": "x"}, "STRANDLINE_COLUMN_UNKNOWN.*time names the column 'x'"),
        ({"partition": "x"}, "STRANDLINE_COLUMN_UNKNOWN.*partition"),
        ({"policy": "bounded(-5)"}, "STRANDLINE_DELAY_INVALID.*negative"),
        ({"policy": bounded("5 minutes")}, "STRANDLINE_DELAY_INVALID.*times are of int64"),
        ({"policy": punctuated("x")}, "STRANDLINE_COLUMN_UNKNOWN.*policy"),
        ({"on_late": "drop"}, "STRANDLINE_OPTION_INVALID.*onLate"),
        ({"domain": "timestamp"}, "STRANDLINE_TIME_COLUMN_INVALID"),
        ({"max_ahead": -1}, "STRANDLINE_DELAY_INVALID.*negative"),
        ({"policy": manifest(5)}, "STRANDLINE_MANIFEST_INVALID"),
    ],
)
def test_what_cannot_be_is_said_at_the_call(change: Any, message: str, spark: Any, tmp_path: Path, feed: Feed) -> None:
    arguments = {"time": "t", "partition": "p", "policy": ordered(), **change}
    with pytest.raises(StrandlineError, match=message):
        ingest(feed.stream(spark), str(tmp_path / "c"), **arguments)
    assert not (tmp_path / "c").exists()


def test_a_frame_that_is_no_stream_and_options_that_are_none(spark: Any, tmp_path: Path, feed: Feed) -> None:
    with pytest.raises(StrandlineError, match="STRANDLINE_NOT_A_STREAM"):
        ingest(spark.range(5), str(tmp_path / "c"), time="id", policy=ordered())
    feed.add([(5, "a", 0)])
    writer = feed.stream(spark).writeStream.format("strandline").option("policy", "ordered()")
    with pytest.raises(StreamingQueryException, match="STRANDLINE_OPTION_MISSING.*time"):
        finish(writer.option("path", str(tmp_path / "c")), tmp_path / "cp1")
    with pytest.raises(StreamingQueryException, match="STRANDLINE_OPTION_UNKNOWN.*'producer'.*strandline ingest"):
        finish(writer.option("time", "t").option("producer", "x").option("path", str(tmp_path / "c")), tmp_path / "cp2")


def test_a_struct_of_times_says_its_domain_in_its_metadata(spark: Any, tmp_path: Path, feed: Feed) -> None:
    feed.add([(1, "a", 5), (2, "a", 1)])
    feed.add([(1, "a", 9), (3, "a", 2)])
    at = F.struct(F.col("t").alias("a"), F.col("n").alias("b")).alias("at", metadata=domain_metadata("lex(a int64, b int64)"))
    frame = feed.stream(spark).select(at, "p")
    finish(ingest(frame, str(tmp_path / "c"), time="at", partition="p", policy=ordered()), tmp_path / "cp")
    assert holds(tmp_path / "c") == {"a": [(3, 2)]}
    assert late(tmp_path / "c_late", "at", "_frontier") == [({"a": 1, "b": 9}, [{"a": 2, "b": 1}])]


@pytest.mark.drawn
def test_whether_a_source_is_read_to_its_end_is_seen(spark: Any, tmp_path: Path, feed: Feed) -> None:
    assert _reads_to_end(feed.stream(spark, None))
    assert not _reads_to_end(feed.stream(spark, 1))
    rate = spark.readStream.format("rate").load()
    assert _reads_to_end(rate)
    assert _reads_to_end(rate.union(rate.filter("value > 5")))
    assert not _reads_to_end(
        rate.select("timestamp").union(feed.stream(spark, 1).select(F.current_timestamp().alias("timestamp")))
    )
    spark.range(3).write.format("delta").save(str(tmp_path / "table"))
    assert not _reads_to_end(spark.readStream.format("delta").load(str(tmp_path / "table")))
    # What keeps rows for a later batch is no silence of those whose rows they are.
    marked = rate.withWatermark("timestamp", "1 hour")
    fixed = spark.range(3).withColumnRenamed("id", "value")
    for passes in (
        marked,
        rate.join(fixed, "value"),
        rate.selectExpr("explode(array(value, 1)) as v"),
        rate.alias("r").repartition(2),
    ):
        assert _reads_to_end(passes)
    for keeps in (
        marked.groupBy(F.window("timestamp", "1 minute")).count(),
        marked.dropDuplicates(["value", "timestamp"]),
        marked.alias("l").join(marked.alias("r"), F.expr("l.value = r.value and l.timestamp = r.timestamp")),
        rate.groupBy("value").applyInPandas(lambda rows: rows, "timestamp timestamp, value long"),
    ):
        assert not _reads_to_end(keeps)


def test_elements_that_cannot_be_null_in_one_batch_may_be_in_the_next(spark: Any, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    schema = "t long, p string, tags"
    never = spark.readStream.schema(f"{schema} string").parquet(str(tmp_path / "a"))
    at_times = spark.readStream.schema(f"{schema} array<string>").parquet(str(tmp_path / "b"))
    both = never.select("t", "p", F.split("tags", ",").alias("tags")).union(at_times)
    for name, times, tags in (("a", [1], ["u,v"]), ("b", [0, 2], [[None], ["w", None]])):
        pq.write_table(pa.table({"t": times, "p": ["k"] * len(times), "tags": tags}), tmp_path / name / "rows.parquet")
        finish(ingest(both, str(tmp_path / "out"), time="t", partition="p", policy=ordered()), tmp_path / "checkpoint")
    assert Channel.open(tmp_path / "out").read().column("tags").to_pylist() == [["u", "v"], ["w", None]]
    assert late(tmp_path / "out_late", "t", "tags") == [(0, [None])]


def test_a_limited_source_is_not_taken_for_silent(spark: Any, tmp_path: Path, feed: Feed) -> None:
    feed.add([(1, "a", 0), (1, "b", 1)])
    for n in range(6):
        feed.add([(10 + n, "a", 2 + n)])
    feed.add([(2, "b", 9)])
    policy = idle(ordered(), "1 millisecond")
    finish(ingest(feed.stream(spark, 1), str(tmp_path / "c"), time="t", partition="p", policy=policy), tmp_path / "cp")
    assert late(tmp_path / "c_late", "n") == []
    assert Channel.open(tmp_path / "c").frontier.to_json() == [2]


def test_a_source_that_is_read_to_its_end_may_fall_silent(spark: Any, tmp_path: Path, feed: Feed) -> None:
    feed.add([(1, "a", 0), (1, "b", 1)])
    writer = ingest(
        feed.stream(spark, None), str(tmp_path / "c"), time="t", partition="p", policy=idle(ordered(), "1 millisecond")
    )
    query = writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(processingTime="100 milliseconds").start()
    try:
        settle(query)
        feed.add([(5, "a", 2)])
        settle(query)
        assert holds(tmp_path / "c") == {"a": [5], "b": []}
        feed.add([(4, "b", 3), (6, "b", 4)])
        settle(query)
        assert late(tmp_path / "c_late", "n", "_frontier") == [(3, [5])]
    finally:
        query.stop()


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(3))
def test_traces_as_the_model_says(seed: int, spark: Any, tmp_path: Path, feed: Feed) -> None:
    random_ = random.Random(seed)
    batches = [rows for rows in trace(random_, [f"p{i}" for i in range(4)], 5) if rows]
    kinds = [
        (bounded(2), ("bounded", 2)),
        (punctuated("mark"), ("punctuated", None)),
        (composed({"p0": heartbeat("flag"), "*": ordered()}), None),
    ]
    policy, rule = kinds[seed]
    model = Model(lambda name: rule or (("heartbeat", None) if name == "p0" else ("ordered", 0)))
    for i, rows in enumerate(batches):
        feed.add(rows)
        model.batch(rows)
        if i == 2:
            finish(ingest(feed.stream(spark), str(tmp_path / "c"), time="t", partition="p", policy=policy), tmp_path / "cp")
            forget_last_commit(tmp_path / "cp")
    finish(ingest(feed.stream(spark), str(tmp_path / "c"), time="t", partition="p", policy=policy), tmp_path / "cp")
    assert holds(tmp_path / "c") == {name: [] if h is None else [h] for name, h in model.holds.items()}
    rows_ = [tuple(row.values()) for row in Channel.open(tmp_path / "c").read().to_pylist()]
    assert Counter(rows_) == Counter(model.rows)
    assert Counter(late(tmp_path / "c_late", "t", "p", "n", "mark", "flag", "_reason")) == Counter((*r, w) for r, w in model.late)


@pytest.mark.drawn
def test_the_page_about_ingest_runs_as_it_stands(spark: Any) -> None:
    page = (ROOT / "docs" / "ingest.md").read_text()
    code, said = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", page, re.DOTALL).groups()  # type: ignore[union-attr]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "ingest.md", "exec"), {"__name__": "page"})  # noqa: S102
    assert printed.getvalue() == said


def test_rows_go_to_python_in_our_own_batches(spark: Any, tmp_path: Path, feed: Feed) -> None:
    feed.add([(5, "a", 0)])
    writer = ingest(feed.stream(spark), str(tmp_path / "c"), time="t", partition="p", policy=ordered())
    query = finish(writer, tmp_path / "cp")
    write = query._jsq.streamingQuery().lastExecution().executedPlan().batchWrite()
    assert write.getClass().getSimpleName() == "SinkWrite"
    assert holds(tmp_path / "c") == {"a": [5]}


PROGRAM = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from ingest_files import Feed, finish
from pyspark_strandline import ingest
from strandline.ingest import bounded
from helpers import spark_builder
root = Path(sys.argv[2])
spark = spark_builder(root, "local-cluster[1,2,1024]").getOrCreate()
feed = Feed(root / "in")
feed.add([(5, "a", 0), (9, "a", 1), (3, "b", 2)])
feed.add([(6, "a", 3), (7, "b", 4)])
finish(ingest(feed.stream(spark), str(root / "c"), time="t", partition="p", policy=bounded(2)), root / "cp")
"""


@pytest.mark.soak
def test_on_a_cluster_in_a_session_without_the_extension(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(ROOT / "tests" / "support"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert holds(tmp_path / "c") == {"a": [7], "b": [5]}
    assert late(tmp_path / "c_late", "n") == [(3,)]
