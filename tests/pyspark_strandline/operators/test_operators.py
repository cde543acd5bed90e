"""Stateful operators of Spark's Python API over a channel: user state with timers, sessions, and chains of them."""

# ruff: noqa: N802, N803 - Spark calls a processor's methods by its own names

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from pyspark_strandline import domain_metadata
from strandline import timestamp
from strandline.channel import Channel
from strandline.time.arrow import time_field

pytestmark = pytest.mark.spark
START = datetime(2013, 1, 1, tzinfo=timezone.utc)
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
ALARMS = StructType(
    [
        StructField("k", StringType()),
        StructField("time", TimestampType(), metadata=domain_metadata("timestamp")),
        StructField("n", LongType()),
    ]
)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Alarms(StatefulProcessor):
    """Counts a key's rows, and tells the count ten seconds after each of them."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", StructType([StructField("n", LongType())]))

    def _add(self, times: list[datetime]) -> None:
        before = self.count.get()[0] if self.count.exists() else 0
        self.count.update((before + len(times),))
        for time in times:
            self.handle.registerTimer(int(time.timestamp() * 1000) + 10_000)

    def close(self) -> None:
        pass


class PandasAlarms(Alarms):
    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        for frame in rows:
            self._add([t.tz_localize(None).to_pydatetime().replace(tzinfo=timezone.utc) for t in frame["time"]])
        yield pd.DataFrame({"k": pd.Series(dtype=str), "time": pd.Series(dtype="datetime64[us]"), "n": pd.Series(dtype="int64")})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        fired = pd.Timestamp(expiredTimerInfo.getExpiryTimeInMs(), unit="ms")
        yield pd.DataFrame({"k": [key[0]], "time": [fired], "n": [self.count.get()[0]]})


class RowAlarms(Alarms):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self._add([row["time"].astimezone(timezone.utc) for row in rows])
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        fired = datetime.fromtimestamp(expiredTimerInfo.getExpiryTimeInMs() / 1000, timezone.utc)
        yield Row(k=key[0], time=fired, n=self.count.get()[0])


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    schema = pa.schema([time_field("time", timestamp), ("k", pa.string())])
    return Channel.create(tmp_path / "rows", schema, producers=["p"], at=START)


def write(channel: Channel, frontier: float | None, *rows: tuple[float, str]) -> None:
    with channel.producer("p") as p:
        if rows:
            p.send(pa.table({"time": pa.array([at(t) for t, _ in rows], pa.timestamp("us", "UTC")), "k": [k for _, k in rows]}))
        if frontier is None:
            p.drop()
        else:
            p.delay([at(frontier)])


def advance(frame: DataFrame, tmp_path: Path) -> set[tuple[Any, ...]]:
    """Run what is there, and give the rows that this run added to the output channel."""
    out = tmp_path / "out"
    before = Channel.open(out).version if Channel.exists(out) else 0
    writer = frame.writeStream.format("strandline").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(str(out)).awaitTermination()
    spark = frame.sparkSession
    rows = spark.read.format("strandline").load(str(out)).collect()
    earlier = spark.read.format("strandline").option("asOfVersion", str(before)).load(str(out)).collect() if before else []
    return {tuple(row) for row in rows} - {tuple(row) for row in earlier}


def seconds(time: datetime) -> float:
    return (time.astimezone(timezone.utc) - START).total_seconds()


@pytest.mark.parametrize("form", [pytest.param("pandas", marks=pytest.mark.soak), "rows"])
def test_timers_fire_when_the_frontier_passes_them_and_what_they_give_is_a_channel(
    spark: Any, channel: Channel, tmp_path: Path, form: str
) -> None:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
    try:
        grouped = spark.readStream.format("strandline").load(channel.path).groupBy("k")
        transform = grouped.transformWithStateInPandas if form == "pandas" else grouped.transformWithState
        processor = PandasAlarms() if form == "pandas" else RowAlarms()
        alarms = transform(processor, ALARMS, "append", "eventTime").select("time", "k", "n")

        def run() -> set[tuple[float, str, int]]:
            return {(seconds(t), k, n) for t, k, n in advance(alarms, tmp_path)}

        write(channel, 5, (1, "a"), (2, "b"))
        assert run() == set()
        write(channel, 11, (6, "a"))
        assert run() == set()  # a's first timer is at 11, and 11 may still come
        write(channel, 11.001)
        assert run() == {(11, "a", 2)}
        assert Channel.open(tmp_path / "out").frontier.to_json() == [int(at(11.001).timestamp() * 1_000_000)]
        write(channel, None)
        assert run() == {(12, "b", 1), (16, "a", 2)}
        assert not len(Channel.open(tmp_path / "out").frontier)
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")


@pytest.mark.drawn
def test_sessions_then_windows_of_their_ends_close_together(spark: Any, channel: Channel, tmp_path: Path) -> None:
    rows = spark.readStream.format("strandline").load(channel.path)
    sessions = rows.groupBy(F.session_window("time", "10 seconds").alias("s"), "k").agg(F.count("*").alias("n"))
    by_end = sessions.groupBy(F.window(F.col("s.end"), "30 seconds").alias("w"))
    ended = by_end.agg(F.sum("n").alias("n"), F.count("*").alias("sessions"))
    frame = ended.select(F.col("w.start").alias("time"), "n", "sessions")

    def run() -> set[tuple[float, int, int]]:
        return {(seconds(t), n, many) for t, n, many in advance(frame, tmp_path)}

    write(channel, 15, (0, "a"), (4, "a"), (3, "b"))
    assert run() == set()
    write(channel, 29.9, (19.5, "a"))
    assert run() == set()  # the session that ends at 29.5 is closed, but one may still end before 30
    write(channel, 30)
    assert run() == {(0, 4, 3)}


@pytest.mark.drawn
def test_a_chain_of_deduplication_join_by_distance_and_aggregation(spark: Any, channel: Channel, tmp_path: Path) -> None:
    rows = spark.readStream.format("strandline").load(channel.path)
    clicks = rows.where("k like 'click%'").dropDuplicates(["time", "k"]).alias("c")
    views = rows.where("k like 'view%'").alias("v")
    near = F.expr("substr(c.k, 6) = substr(v.k, 5) AND c.time BETWEEN v.time AND v.time + INTERVAL 5 SECONDS")
    counted = clicks.join(views, near).groupBy(F.window("v.time", "10 seconds").alias("w")).count()
    frame = counted.select(F.col("w.start").alias("time"), "count")

    def run() -> set[tuple[float, int]]:
        return {(seconds(t), n) for t, n in advance(frame, tmp_path)}

    write(channel, 10, (1, "view1"), (9, "view2"), (3, "click1"), (3, "click1"))
    assert run() == set()
    write(channel, 14.9, (13, "click2"))
    assert run() == set()  # a view of the first window may still meet a click
    write(channel, 15)
    assert run() == {(0, 2)}
    holds = json.loads(json.dumps(Channel.open(tmp_path / "out").frontier.to_json()))
    assert holds == [int(at(10).timestamp() * 1_000_000)]
