"""Recorded cases of Spark's own suites: a producer at most a delay behind its greatest time holds that much less.

Spark needs a batch without data after each of these to give what is complete; here it comes in the batch that completes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from by_batch import at, feed, flat, put, run
from helpers import run as run_into_channel
from helpers import stream
from strandline.channel import Channel
from strandline.errors import CapabilityError
from strandline.ingest import bounded
from strandline.ingest.policies.policy import Observation
from strandline.time.antichain import Antichain
from strandline.time.domain import timestamp

pytestmark = pytest.mark.spark


class Bounded:
    """A channel of one producer, whose promise is what the policy ``bounded`` makes of its rows."""

    def __init__(self, path: Path, delay: int) -> None:
        self.channel = feed(path)
        self.policy = bounded(f"{delay} seconds")
        self.policy.bind(timestamp)

    def add(self, *seconds: int) -> None:
        """One commit of these rows."""
        with self.channel.producer("a") as producer:
            held = list(producer.holds)
            times = [at(s) for s in seconds]
            promised, _ = self.policy.promise(Observation("a", len(times), min(times), max(times)), None)
            then = max(*held, *promised)
        put(self.channel, *seconds, then=(then - at(0)) / 1_000_000)


def counted(frame: Any, width: int, over: Any = "time") -> Any:
    return frame.groupBy(F.window(over, f"{width} seconds").alias("w")).agg(F.count("*").alias("count"))


def starts(frame: Any, *columns: str) -> Any:
    return frame.select(F.col("w.start").alias("start"), *columns)


def by_commit(spark: Any, path: Path) -> Any:
    return stream(spark, path, maxFilesPerTrigger="1")


def test_append_mode(spark: Any, tmp_path: Path) -> None:
    """EventTimeWatermarkSuite "append mode": delay 10, windows of 5; and a row behind the promise is refused, not dropped."""
    source = Bounded(tmp_path / "in", 10)
    source.add(10, 11, 12, 13, 14, 15)
    source.add(25)
    with pytest.raises(CapabilityError, match="2013-01-01T00:00:10Z"):
        source.add(10)
    frame = starts(counted(by_commit(spark, tmp_path / "in"), 5), "count")
    assert run(frame, tmp_path / "c") == [[], [(10, 5)]]


def test_each_run_once_gives_what_that_run_has_completed(spark: Any, tmp_path: Path) -> None:
    """The same suite's SPARK-24699, ``Trigger.Once``: there (10,3) comes with the run of 50, and (15,1) (25,1) in yet another."""
    source = Bounded(tmp_path / "in", 10)
    for row in ((15,), (10, 12, 14), (25,), (50,)):
        source.add(*row)
    frame = starts(counted(by_commit(spark, tmp_path / "in"), 5), "count")
    assert run(frame, tmp_path / "c") == [[], [], [(10, 3)], [(15, 1), (25, 1)]]


@pytest.mark.drawn
def test_two_streams_and_a_restart(spark: Any, tmp_path: Path) -> None:
    """The same suite, two watermarks of delays 10 and 5: the least governs, and a restart must not forget who leads.

    After it Spark knew the left stream's 41 no more, and let the right one's rows pass alone.
    """
    left, right = Bounded(tmp_path / "left", 10), Bounded(tmp_path / "right", 5)
    frame = stream(spark, tmp_path / "left").union(stream(spark, tmp_path / "right")).groupBy("time").count()
    out, checkpoint = tmp_path / "out", tmp_path / "c"

    def frontier() -> Antichain:
        return Channel.open(out).frontier

    recorded = [(left, 11, 0), (right, 6, 1), (right, 8, 1), (left, 21, 3), (right, 17, 11), (right, 28, 11), (right, 39, 11)]
    recorded += [(left, 31, 21), (left, 41, 31), (left, 51, 34)]
    writer = frame.writeStream.format("strandline").option("checkpointLocation", str(checkpoint))
    query = writer.start(str(out))
    try:
        for source, row, watermark in recorded:
            source.add(row)
            query.processAllAvailable()
            assert frontier().to_json() == [at(watermark)], f"after {row}"
    finally:
        query.stop()
    right.add(60)  # it promises 55; the left one's 41 has not moved, and must be known still
    run_into_channel(frame, out, checkpoint)
    assert frontier().to_json() == [at(41)]


@pytest.mark.drawn
def test_windows_of_windows(spark: Any, tmp_path: Path) -> None:
    """MultiStatefulOperatorsSuite "window agg -> window agg": with nothing dropped."""
    channel = feed(tmp_path / "in")
    put(channel, *range(10, 22), then=20)
    put(channel, *range(20, 30), then=29)
    put(channel, 30, 31, then=31)
    twice = counted(by_commit(spark, tmp_path / "in"), 5).groupBy(F.window("w", "10 seconds").alias("w"))
    frame = starts(twice.agg(F.count("*").alias("count"), F.sum("count").alias("sum")), "count", "sum")
    assert run(frame, tmp_path / "c") == [[(10, 2, 10)], [], [(20, 2, 12)]]


@pytest.mark.drawn
def test_windows_of_windows_of_windows(spark: Any, tmp_path: Path) -> None:
    """The same suite's "agg -> agg -> agg"."""
    channel = feed(tmp_path / "in")
    put(channel, *range(38), then=35)
    put(channel, *range(35, 61), then=60)
    frame = counted(by_commit(spark, tmp_path / "in"), 5).withColumn("sum", F.col("count"))
    for width in (10, 20):
        over = frame.groupBy(F.window(F.window_time("w"), f"{width} seconds").alias("w"))
        frame = over.agg(F.count("*").alias("count"), F.sum("sum").alias("sum"))
    frame = frame.select("w.start", "w.end", "count", "sum")
    assert run(frame, tmp_path / "c") == [[(0, 20, 2, 20)], [(20, 40, 2, 21 + 2), (40, 60, 2, 20)]]


@pytest.mark.drawn
def test_deduplication_then_aggregation_and_the_other_way_round(spark: Any, tmp_path: Path) -> None:
    """The same suite's "stream deduplication -> aggregation" (delay 10), and "aggregation -> stream deduplication" (none)."""
    first = Bounded(tmp_path / "first", 10)
    first.add(*range(1, 16))
    frame = starts(counted(stream(spark, tmp_path / "first").dropDuplicates(["n", "time"]), 5), "count")
    assert run(frame, tmp_path / "c1") == [[(0, 4)]]
    second = Bounded(tmp_path / "second", 0)
    second.add(1, 5, 10, 15)
    sums = counted(stream(spark, tmp_path / "second"), 5).withColumn("time", F.window_time("w"))
    frame = sums.dropDuplicates(["count", "w", "time"]).select("w.end", F.unix_micros("time") - at(0), "count")
    assert run(frame, tmp_path / "c2") == [[(5, 4999999, 1), (10, 9999999, 1), (15, 14999999, 1)]]


@pytest.mark.drawn
def test_a_join_then_windows(spark: Any, tmp_path: Path) -> None:
    """The same suite's "join -> window agg"."""
    sources = [Bounded(tmp_path / name, 0) for name in ("left", "right")]
    for source in sources:
        source.add(1, 2, 3, 4)
        source.add(5)
    left, right = (by_commit(spark, tmp_path / name).alias(name) for name in ("left", "right"))
    joined = left.join(right, F.expr("left.time = right.time")).select("left.time")
    assert flat(run(starts(counted(joined, 5), "count"), tmp_path / "c")) == [(0, 4)]
