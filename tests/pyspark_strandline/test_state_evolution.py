"""A query that goes on with another schema of its state: what Spark lets evolve does, the rest is refused and loses nothing."""

# ruff: noqa: N802, N803 - Spark calls a processor's methods by its own names

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from helpers import stream
from pyspark_strandline import domain_metadata
from strandline.channel import Channel
from strandline.time.arrow import time_field
from strandline.time.domain import timestamp

pytestmark = pytest.mark.spark

START = datetime(2013, 1, 1, tzinfo=timezone.utc)
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    schema = pa.schema([time_field("time", timestamp), ("key", pa.string()), ("n", pa.int64())])
    return Channel.create(tmp_path / "in", schema, producers=["p"], at=START)


def write(channel: Channel, frontier: int | None, *rows: tuple[int, str, int]) -> None:
    with channel.producer("p") as producer:
        if rows:
            times = pa.array([START + timedelta(seconds=t) for t, _, _ in rows], pa.timestamp("us", "UTC"))
            producer.send(pa.table({"time": times, "key": [k for _, k, _ in rows], "n": [n for _, _, n in rows]}))
        producer.delay([] if frontier is None else [START + timedelta(seconds=frontier)])


def run(frame: DataFrame, folder: Path) -> list[tuple[Any, ...]]:
    """What one run of the query gives, times as seconds."""
    given: list[tuple[Any, ...]] = []

    def take(rows: DataFrame, _: int) -> None:
        given.extend(tuple(seconds(v) if isinstance(v, datetime) else v for v in row) for row in rows.collect())

    frame.sparkSession._jvm.SparkSession.setActiveSession(frame.sparkSession._jsparkSession)
    writer = frame.writeStream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.foreachBatch(take).start().awaitTermination()
    return sorted(given)


def seconds(time: datetime) -> float:
    return (time.astimezone(timezone.utc) - START).total_seconds()


@pytest.mark.drawn
@pytest.mark.parametrize("store", ["HDFS-backed", "RocksDB"])
def test_an_aggregation_goes_on_under_other_names(spark: Any, channel: Channel, tmp_path: Path, store: str) -> None:
    session = spark.newSession()
    if store == "RocksDB":
        session.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
    rows = stream(session, channel.path)
    write(channel, 3, (1, "a", 7), (5, "b", 8))
    assert run(rows.groupBy("time", "key").agg(F.sum("n").alias("n")), tmp_path) == [(1, "a", 7)]
    write(channel, None, (5, "b", 1))
    renamed = rows.groupBy("time", F.col("key").alias("name")).agg(F.sum("n").alias("total"))
    assert run(renamed, tmp_path) == [(5, "b", 9)]


@pytest.mark.drawn
def test_an_aggregation_of_something_else_is_refused(spark: Any, channel: Channel, tmp_path: Path) -> None:
    rows = stream(spark, channel.path)
    first = rows.groupBy("time", "key").agg(F.sum("n").alias("n"))
    write(channel, 3, (1, "a", 7), (5, "b", 8))
    assert run(first, tmp_path) == [(1, "a", 7)]
    write(channel, None, (5, "b", 1))
    with pytest.raises(StreamingQueryException, match="STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"):
        run(rows.groupBy("time", "key").agg(F.avg("n").alias("n")), tmp_path)
    with pytest.raises(StreamingQueryException, match="STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"):
        run(rows.groupBy("time", "n").agg(F.sum("n").alias("m")), tmp_path)
    assert run(first, tmp_path) == [(5, "b", 9)]


def test_a_deduplication_by_another_column_is_refused(spark: Any, channel: Channel, tmp_path: Path) -> None:
    rows = stream(spark, channel.path)
    write(channel, 3, (1, "a", 7), (5, "b", 8))
    assert run(rows.dropDuplicates(["time", "key"]), tmp_path) == [(1, "a", 7), (5, "b", 8)]
    write(channel, None, (5, "b", 1), (5, "c", 2))
    with pytest.raises(StreamingQueryException, match="STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"):
        run(rows.dropDuplicates(["time", "n"]), tmp_path)
    assert run(rows.dropDuplicates(["time", "key"]), tmp_path) == [(5, "c", 2)]


def totals(state: str, update: Any) -> StatefulProcessor:
    # Made here, so that it goes to the tasks by value: they do not have this module.
    class Totals(StatefulProcessor):
        """Keeps ``state`` of a key, and tells its fields, joined, ten seconds after each row."""

        def init(self, handle: Any) -> None:
            self.handle = handle
            self.kept = handle.getValueState("kept", state)

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
            for row in rows:
                self.kept.update(update(self.kept.get() if self.kept.exists() else None, row["n"]))
                self.handle.registerTimer(int(row["time"].timestamp() * 1000) + 10_000)
            return iter(())

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
            fired = datetime.fromtimestamp(expiredTimerInfo.getExpiryTimeInMs() / 1000, timezone.utc)
            yield Row(time=fired, key=key[0], kept="/".join(map(str, self.kept.get())))

        def close(self) -> None:
            pass

    return Totals()


@pytest.mark.drawn
def test_a_processors_state_gets_another_field_and_its_timers_go_on(spark: Any, channel: Channel, tmp_path: Path) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
    session.conf.set("spark.sql.streaming.stateStore.encodingFormat", "avro")  # with the other, nothing may evolve
    schema = session.createDataFrame([], "time timestamp, key string, kept string").schema
    schema["time"].metadata = domain_metadata("timestamp")

    def query(processor: StatefulProcessor) -> DataFrame:
        return stream(session, channel.path).groupBy("key").transformWithState(processor, schema, "append", "eventTime")

    only_sum = totals("sum long", lambda was, n: ((was[0] if was else 0) + n,))
    write(channel, 12, (1, "a", 7), (5, "b", 8))
    assert run(query(only_sum), tmp_path) == [(11, "a", "7")]
    with_number = totals("sum long, number int", lambda was, n: ((was[0] if was else 0) + n, ((was[1] if was else 0) or 0) + 1))
    write(channel, 14, (13, "a", 1), (13, "c", 4))
    assert run(query(with_number), tmp_path) == []
    write(channel, None)
    assert run(query(with_number), tmp_path) == [(15, "b", "8/None"), (23, "a", "8/1"), (23, "c", "4/1")]
