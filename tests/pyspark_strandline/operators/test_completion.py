"""Rows that wait for their time, functions called at completion, and processors that are notified."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_strandline import Processor, hold, on_complete, process
from strandline import Product, StrandlineError, int64, product
from strandline.channel import Channel
from strandline.time.arrow import array_of, time_field
from strandline.time.domain import Time, TimeDomain

pytestmark = pytest.mark.spark
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
GRID = product(a=int64, b=int64)
Steps = list[tuple[list[tuple[Time, str, int]], list[Time]]]


def write(path: Path, domain: TimeDomain, at: Time, steps: Steps) -> Channel:
    """One commit a step: its rows of (time, key, n), and what the producer holds afterwards.

    One without rows belongs to the batch of the one before.
    """
    schema = pa.schema([time_field("time", domain), ("k", pa.string()), ("n", pa.int64())])
    channel = Channel.create(path, schema, producers=["p"], at=at)
    with channel.producer("p") as producer:
        for entries, held in steps:
            if entries:
                times, keys, numbers = zip(*entries, strict=True)
                producer.send(pa.table({"time": array_of(list(times), domain), "k": list(keys), "n": list(numbers)}))
            producer.delay(held)
            producer.commit()
    return channel


def played(frame: DataFrame, checkpoint: Path, name: str) -> tuple[list[list[tuple[Any, ...]]], Any]:
    """Each batch's rows, in the order in which its tasks gave them, and the query, which has ended."""
    seen: dict[int, list[tuple[Any, ...]]] = {}

    def collect(rows: DataFrame, batch: int) -> None:
        seen[batch] = [tuple(row) for row in rows.collect()]

    writer = frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(checkpoint))
    query = writer.queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    return [seen[batch] for batch in sorted(seen)], query


def batches(spark: Any, frame: DataFrame, checkpoint: Path, name: str) -> list[list[tuple[Any, ...]]]:
    return played(frame, checkpoint, name)[0]


@pytest.fixture(params=["hdfs", "rocksdb, checkpoint ids"])
def store(request: pytest.FixtureRequest, spark: Any) -> Iterator[str]:
    if request.param != "hdfs":
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
    if "ids" in request.param:
        spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
    yield request.param
    spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
    spark.conf.unset("spark.sql.streaming.stateStore.checkpointFormatVersion")


def one_at_a_time(spark: Any, path: Path) -> DataFrame:
    # Not by support: Python workers import this module for its processors.
    frame: DataFrame = spark.readStream.format("strandline").option("maxFilesPerTrigger", 1).load(str(path))
    return frame


@pytest.mark.drawn
def test_rows_pass_on_in_the_batch_that_closes_their_time_and_in_its_order(spark: Any, tmp_path: Path, store: str) -> None:
    steps: Steps = [
        ([((1, 1), "a", 0), ((0, 1), "a", 1), ((0, 0), "a", 2), ((2, 0), "a", 3)], [(0, 1), (1, 0)]),
        ([((1, 0), "a", 4), ((0, 1), "a", 5)], [(0, 2), (2, 0)]),
        ([((2, 0), "b", 6)], [(3, 3)]),
    ]
    write(tmp_path / "in", GRID, (0, 0), steps)
    frame = hold(one_at_a_time(spark, tmp_path / "in"), by="k").select("time.a", "time.b", "k", "n")
    assert batches(spark, frame, tmp_path / "cp", "hold") == [
        [(0, 0, "a", 2)],
        [(0, 1, "a", 1), (0, 1, "a", 5), (1, 0, "a", 4), (1, 1, "a", 0)],
        [(2, 0, "a", 3), (2, 0, "b", 6)],
    ]


@pytest.mark.drawn
def test_rows_of_any_type_wait(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", int64, 0, [([(5, "a", 1), (5, "a", 1)], [3]), ([(6, "z", 0)], [6])])
    frame = one_at_a_time(spark, tmp_path / "in").select(
        "time",
        F.create_map(F.col("k"), F.col("n")).alias("m"),
        F.lit(None).alias("nothing"),
        F.array(F.struct(F.lit(b"x").alias("bytes"))).alias("l"),
        F.expr("interval 1 day").alias("i"),
    )
    held = hold(frame).select("time", F.map_entries("m"), "nothing", F.size("l"), F.col("i").cast("string"))
    row = (5, [("a", 1)], None, 1, "INTERVAL '1' DAY")
    seen = batches(spark, held, tmp_path / "cp", "types")
    assert [[(t, [tuple(e) for e in m], *rest) for t, m, *rest in b] for b in seen] == [[], [row, row]]


@pytest.mark.drawn
def test_a_function_is_called_once_for_each_closed_time_and_key(spark: Any, tmp_path: Path, store: str) -> None:
    steps: Steps = [
        ([(1, "a", 0), (1, "b", 1), (2, "a", 2), (7, "a", 9)], [2]),
        ([(2, "a", 3), (3, "b", 4)], [5]),
        ([(7, "a", 8)], []),
    ]
    write(tmp_path / "in", int64, 0, steps)

    def ranked(time: Time, key: tuple[str], rows: pa.Table) -> list[dict[str, Any]]:
        return [{"time": time, "k": key[0], "n": rows.column("n").to_pylist()}]

    frame = on_complete(one_at_a_time(spark, tmp_path / "in"), ranked, "time bigint, k string, n array<bigint>", key="k")
    seen = [sorted((t, k, list(n)) for t, k, n in b) for b in batches(spark, frame, tmp_path / "cp", "complete")]
    assert seen == [[(1, "a", [0]), (1, "b", [1])], [(2, "a", [2, 3]), (3, "b", [4])], [(7, "a", [9, 8])]]


@pytest.mark.drawn
@pytest.mark.parametrize("rows", ["arrow", "pandas", "batches"])
def test_without_a_key_times_come_one_after_another_in_each_form(spark: Any, tmp_path: Path, rows: Any) -> None:
    write(tmp_path / "in", int64, 0, [([(n % 5, "a", n) for n in range(50)], [3]), ([(4, "a", 0)], [])])

    def total(time: Time, part: Any) -> Any:
        if rows == "batches":
            return [{"time": time, "n": sum(sum(b.column("n").to_pylist()) for b in part)}]
        if rows == "pandas":
            return pd.DataFrame({"time": [time], "n": [part["n"].sum()]})
        return pa.table({"time": [time], "n": [np.sum(part.column("n").to_numpy())]})

    frame = on_complete(one_at_a_time(spark, tmp_path / "in"), total, "time bigint, n bigint", rows=rows)
    sums = [(time, sum(range(time, 50, 5))) for time in range(5)]
    assert batches(spark, frame, tmp_path / "cp", "forms") == [sums[:3], sums[3:]]


@pytest.mark.drawn
def test_what_a_function_gives_is_a_channel_and_goes_through_another_operator(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", int64, 0, [([(1, "a", 1), (1, "b", 2), (2, "a", 3)], [2]), ([], [])])
    frame = on_complete(one_at_a_time(spark, tmp_path / "in"), lambda time, rows: rows, "time bigint, n bigint")
    sums = frame.groupBy("time").agg(F.sum("n").alias("n"))
    writer = sums.writeStream.format("strandline").option("checkpointLocation", str(tmp_path / "cp"))
    writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    out = Channel.open(tmp_path / "out")
    assert sorted(map(tuple, (row.values() for row in out.read().to_pylist()))) == [(1, 3), (2, 3)]
    assert list(out.frontier) == []


class Counter(Processor):
    """Counts rows; tells the count at every time that had rows, and once more ten after it."""

    schema = "n bigint, at string"
    state_schema = "n bigint"

    def on_rows(self, time: Time, rows: pa.Table) -> None:
        self.state = {"n": (self.state or {"n": 0})["n"] + rows.num_rows}
        self.notify_at(time)

    def on_notify(self, time: Any) -> None:
        assert self.state is not None
        self.emit(time, [{"n": self.state["n"], "at": str(time)}])
        if time < 10:
            self.notify_at(time + 10)
        elif time > 12:
            self.state = None


@pytest.mark.drawn
def test_a_processor_is_notified_when_the_frontier_passes_and_never_before(spark: Any, tmp_path: Path, store: str) -> None:
    steps: Steps = [
        ([(1, "a", 0), (3, "a", 1), (1, "b", 2)], [1]),
        ([(2, "a", 3)], [3]),
        ([(99, "z", 0)], [12]),
        ([(13, "a", 4)], [14]),
        ([(99, "z", 0)], []),
    ]
    write(tmp_path / "in", int64, 0, steps)
    frame = process(one_at_a_time(spark, tmp_path / "in"), Counter(), key="k").where("k <> 'z'")
    found, ended = played(frame, tmp_path / "cp", "processor")
    seen = [sorted((k, t, n) for k, t, n, _ in batch) for batch in found]
    assert seen == [
        [],
        [("a", 1, 3), ("a", 2, 3), ("b", 1, 1)],
        [("a", 3, 3), ("a", 11, 3), ("b", 11, 1)],
        [("a", 12, 4), ("a", 13, 4)],
        [],
    ]
    kept = spark.read.format("statestore").load(str(tmp_path / "cp")).count()
    assert ended.lastProgress["stateOperators"][0]["numRowsTotal"] == kept


@pytest.mark.drawn
def test_a_restart_goes_on_with_state_and_notifications(spark: Any, tmp_path: Path, store: str) -> None:
    channel = write(tmp_path / "in", int64, 0, [([(1, "a", 0)], [1])])
    frame = process(one_at_a_time(spark, tmp_path / "in"), Counter(), key="k")
    assert batches(spark, frame, tmp_path / "cp", "restart") == [[]]
    with channel.producer("p") as producer:
        producer.send(pa.table({"time": array_of([4], int64), "k": ["a"], "n": [1]}))
        producer.delay([9])
        producer.commit()
    assert batches(spark, frame, tmp_path / "cp", "restart") == [[("a", 1, 2, "1"), ("a", 4, 2, "4")]]


class Partial(Processor):
    """Asks for notification at the join of what it is called with and (1, 1)."""

    schema = "called string"

    def on_rows(self, time: Any, rows: pa.Table) -> None:
        self.notify_at(GRID.join(time, (1, 1)))

    def on_notify(self, time: Any) -> None:
        self.emit(time, [{"called": f"{time}"}])


@pytest.mark.drawn
def test_notifications_at_partially_ordered_times(spark: Any, tmp_path: Path) -> None:
    assert isinstance(GRID, Product)
    steps: Steps = [
        ([((0, 2), "a", 0), ((2, 0), "a", 1), ((0, 0), "a", 2)], [(0, 2), (2, 1)]),
        ([((3, 3), "a", 3)], [(2, 1)]),
        ([((3, 3), "b", 4)], []),
    ]
    write(tmp_path / "in", GRID, (0, 0), steps)
    frame = process(one_at_a_time(spark, tmp_path / "in"), Partial(), key="k").select("called")
    assert batches(spark, frame, tmp_path / "cp", "partial") == [
        [("(1, 1)",)],
        [("(1, 2)",)],
        [("(2, 1)",), ("(3, 3)",), ("(3, 3)",)],
    ]


class Backwards(Processor):
    schema = "n bigint"

    def on_rows(self, time: Any, rows: pa.Table) -> None:
        self.notify_at(time - 1)


@pytest.mark.drawn
def test_what_cannot_be_is_refused_by_name(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", int64, 0, [([(1, "a", 0)], [])])
    frame = one_at_a_time(spark, tmp_path / "in")
    with pytest.raises(StrandlineError, match=r"STRANDLINE_TIME_COLUMN_MISSING"):
        hold(frame.select("k"))
    with pytest.raises(StrandlineError, match=r"STRANDLINE_KEY_INVALID.*\['x'\]"):
        hold(frame, by="x")
    with pytest.raises(StrandlineError, match=r"STRANDLINE_KEY_INVALID.*time"):
        on_complete(frame, lambda time, rows: rows, "n bigint", key=["time"])
    with pytest.raises(StrandlineError, match=r"STRANDLINE_TIME_TYPE_MISMATCH.*timestamp.*bigint"):
        on_complete(frame, lambda time, rows: rows, "time timestamp")
    with pytest.raises(StrandlineError, match=r"STRANDLINE_OPTION_INVALID.*polars"):
        on_complete(frame, lambda time, rows: rows, "n bigint", rows="polars")  # type: ignore[arg-type]
    with pytest.raises(StrandlineError, match=r"STRANDLINE_NOT_A_STREAM"):
        process(spark.read.format("strandline").load(str(tmp_path / "in")), Counter(), key="k")
    with pytest.raises(StrandlineError, match=r"STRANDLINE_COLUMN_RESERVED"):
        hold(frame.withColumn("_strandline", F.lit(1)))
    with pytest.raises(Exception, match=r"STRANDLINE_NOT_IN_ADVANCE.*notify_at at 0.*call is 1"):
        batches(spark, process(frame, Backwards(), key="k"), tmp_path / "cp", "backwards")
    with pytest.raises(Exception, match=r"STRANDLINE_RESULT_INVALID.*lacks the columns \['m'\]"):
        batches(spark, on_complete(frame, lambda time, rows: rows, "m bigint"), tmp_path / "cp2", "lacks")


def test_of_a_batch_every_time_is_complete(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", int64, 0, [([(2, "a", 0), (1, "a", 1), (2, "b", 2)], [2])])
    frame = spark.read.format("strandline").load(str(tmp_path / "in"))
    assert [tuple(row) for row in hold(frame, by="k").where("k = 'a'").collect()] == [(1, "a", 1), (2, "a", 0)]
    calls = on_complete(frame, lambda time, rows: [{"time": time, "n": rows.num_rows}], "time bigint, n bigint")
    assert [tuple(row) for row in calls.collect()] == [(1, 1), (2, 2)]


@pytest.mark.drawn
def test_the_state_can_be_read(spark: Any, tmp_path: Path, store: str) -> None:
    """Spark's own reader of the state finds keys and values of each operator, in each store; the progress tells how many."""
    write(tmp_path / "in", int64, 0, [([(1, "a", 7), (5, "b", 8)], [3])])
    frame = one_at_a_time(spark, tmp_path / "in")
    queries = {
        "hold": hold(frame, by="k"),
        "sums": frame.groupBy("k", "time").agg(F.sum("n").alias("n")),
        "distinct": frame.dropDuplicates(["k", "time"]),
        "process": process(frame, Counter(), key="k"),
    }
    states = {}
    for name, query in queries.items():
        _, ended = played(query, tmp_path / name, name)
        states[name] = spark.read.format("statestore").load(str(tmp_path / name))
        (operator,) = ended.lastProgress["stateOperators"]
        assert (name, operator["numRowsTotal"]) == (name, states[name].count())
    held = states["hold"].select("key.time", "key.k", "value.n")
    assert [tuple(row) for row in held.collect()] == [(5, "b", 8)]
    assert [tuple(row) for row in states["sums"].select("key.time", "key.k", "value.sum").collect()] == [(5, "b", 8)]
    assert [tuple(row) for row in states["distinct"].select("key.time", "key.k").collect()] == [(5, "b")]
    kept = states["process"].select("key.time", "key.k", "value._strandline_state.n")
    assert sorted(map(tuple, kept.collect()), key=str) == sorted(
        [(5, "b", None), (None, "a", 1), (None, "b", 1), (11, "a", None)], key=str
    )


@pytest.mark.drawn
def test_a_restart_with_other_columns_is_refused(spark: Any, tmp_path: Path) -> None:
    """What waits was written with the columns of its time; Spark's check of the state's schema keeps them."""
    write(tmp_path / "in", int64, 0, [([(1, "a", 7), (5, "b", 8)], [3])])
    frame = one_at_a_time(spark, tmp_path / "in")
    assert batches(spark, hold(frame, by="k"), tmp_path / "cp", "columns") == [[(1, "a", 7)]]
    with Channel.open(tmp_path / "in").producer("p") as producer:
        producer.drop()
        producer.commit()
    with pytest.raises(Exception, match="STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"):
        batches(spark, hold(frame.select("time", "k", F.col("n").cast("string")), by="k"), tmp_path / "cp", "columns")
    assert batches(spark, hold(frame, by="k"), tmp_path / "cp", "columns") == [[(5, "b", 8)]]
