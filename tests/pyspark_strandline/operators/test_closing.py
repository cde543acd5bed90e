"""Aggregations from channel to channel: every time is emitted once, in the batch that closes it, and never before."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from helpers import contents, make_channel, run, say, stream
from strandline.channel import Channel
from strandline.time.domain import lex, product, timestamp

pytestmark = pytest.mark.spark

MINUTE = 60_000_000
HOUR = 60 * MINUTE


def at(hour: float) -> int:
    return int(hour * HOUR)


def when(hour: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(hours=hour)


@pytest.mark.drawn
def test_incomparable_times_close_each_when_its_own_work_is_done(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", product(epoch="int64", iter="int64"))
    frame = stream(spark, tmp_path / "in").groupBy("time").agg(F.sum("n").alias("n"))
    say(channel, "a", ((0, 3), 1), ((2, 0), 2), then=[(0, 3), (2, 0)])
    say(channel, "b", ((0, 3), 10), then=[(1, 0)])
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert contents(tmp_path / "out") == []
    say(channel, "a", then=[(2, 0)])  # (0, 3) closes though (1, 0) and (2, 0) stay open
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert contents(tmp_path / "out") == [((0, 3), 11)]
    say(channel, "a", then=[])
    say(channel, "b", then=[(2, 1)])
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert contents(tmp_path / "out") == [((0, 3), 11), ((2, 0), 2)]
    assert Channel.open(tmp_path / "out").frontier.to_json() == [[2, 1]]


def test_lexicographic_times_close_in_their_order(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", lex(tick="int64", stratum="int64"), producers=("a",))
    frame = stream(spark, tmp_path / "in").groupBy("time").agg(F.sum("n").alias("n"))
    say(channel, "a", ((0, 9), 1), ((1, 0), 2), then=[(1, 0)])
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert contents(tmp_path / "out") == [((0, 9), 1)]


@pytest.mark.drawn
def test_windows_close_when_their_end_is_reached_and_not_before(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", timestamp, producers=("a",))
    counts = stream(spark, tmp_path / "in").groupBy(F.window("time", "1 hour")).agg(F.sum("n").alias("n"))
    frame = counts.select(F.col("window.start").alias("time"), "n")
    say(channel, "a", (at(0.5), 1), (at(1.5), 2), then=[at(1) - 1])
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert contents(tmp_path / "out") == []
    say(channel, "a", then=[at(1)])
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert contents(tmp_path / "out") == [(when(0), 1)]
    assert Channel.open(tmp_path / "out").frontier.to_json() == [at(1)]
    say(channel, "a", then=[])
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert contents(tmp_path / "out") == [(when(0), 1), (when(1), 2)]  # the last window comes


@pytest.mark.drawn
def test_chained_aggregations_close_in_one_batch(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", timestamp, producers=("a",))
    hours = stream(spark, tmp_path / "in").groupBy(F.window("time", "1 hour")).agg(F.sum("n").alias("n"))
    hours = hours.select(F.col("window.start").alias("time"), "n")
    days = hours.groupBy(F.window("time", "1 day")).agg(F.sum("n").alias("n"), F.count("*").alias("hours"))
    frame = days.select(F.col("window.start").alias("time"), "n", "hours")
    say(channel, "a", (at(1.5), 1), (at(2.5), 2), (at(25), 4), then=[at(24)])
    progress = run(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert len(progress) == 1
    assert contents(tmp_path / "out") == [(when(0), 3, 2)]
    assert Channel.open(tmp_path / "out").frontier.to_json() == [at(24)]


@pytest.mark.drawn
def test_queries_chained_by_channels_carry_the_frontier_on(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", timestamp)
    hours = stream(spark, tmp_path / "in").groupBy(F.window("time", "1 hour")).agg(F.sum("n").alias("n"))
    say(channel, "a", (at(0.5), 1), (at(23.5), 2), then=[at(30)])
    say(channel, "b", (at(0.7), 4), then=[at(26.5)])
    run(hours.select(F.col("window.start").alias("time"), "n"), tmp_path / "hours", tmp_path / "c1")
    days = stream(spark, tmp_path / "hours").groupBy(F.window("time", "1 day")).agg(F.sum("n").alias("n"))
    run(days.select(F.col("window.start").alias("time"), "n"), tmp_path / "days", tmp_path / "c2")
    assert contents(tmp_path / "hours") == [(when(0), 5), (when(23), 2)]
    assert Channel.open(tmp_path / "hours").frontier.to_json() == [at(26)]
    assert contents(tmp_path / "days") == [(when(0), 7)]


@pytest.mark.drawn
def test_a_union_is_held_back_by_the_source_that_is_behind(spark: Any, tmp_path: Path) -> None:
    left = make_channel(tmp_path / "left", producers=("a",))
    right = make_channel(tmp_path / "right", producers=("a",))
    both = stream(spark, tmp_path / "left").union(stream(spark, tmp_path / "right"))
    frame = both.groupBy("time").agg(F.sum("n").alias("n"))
    say(left, "a", (1, 1), then=[9])
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert contents(tmp_path / "out") == []
    say(right, "a", (1, 10), then=[2])
    run(frame, tmp_path / "out", tmp_path / "checkpoint")  # the left source is idle now, and still counts
    assert contents(tmp_path / "out") == [(1, 11)]
    assert Channel.open(tmp_path / "out").frontier.to_json() == [2]


@pytest.mark.drawn
def test_a_restart_keeps_every_sources_frontier(spark: Any, tmp_path: Path) -> None:
    """Spark forgets the leading stream's watermark when it restarts (EventTimeWatermarkSuite); an offset does not."""
    left = make_channel(tmp_path / "left", producers=("a",))
    right = make_channel(tmp_path / "right", producers=("a",))
    say(left, "a", (3, 1), then=[50])
    say(right, "a", (3, 1), then=[3])

    def frame() -> Any:
        both = stream(spark, tmp_path / "left").union(stream(spark, tmp_path / "right"))
        return both.groupBy("time").agg(F.sum("n").alias("n"))

    run(frame(), tmp_path / "out", tmp_path / "checkpoint")
    say(right, "a", then=[60])
    run(frame(), tmp_path / "out", tmp_path / "checkpoint")
    assert Channel.open(tmp_path / "out").frontier.to_json() == [50]
    assert contents(tmp_path / "out") == [(3, 2)]


def test_a_column_made_by_hand_cannot_close_anything(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    by_hand = stream(spark, tmp_path / "in").withColumn("time", F.col("time") + 1)
    with pytest.raises(Exception, match="(?i)watermark|STRANDLINE"):
        run(by_hand.groupBy("time").agg(F.sum("n").alias("n")), tmp_path / "out", tmp_path / "checkpoint")


@pytest.mark.drawn
def test_a_row_behind_the_frontier_stops_the_query_by_name(spark: Any, tmp_path: Path) -> None:
    """A producer cannot write one; a log that was tampered with can have one."""
    channel = make_channel(tmp_path / "in", producers=("a",))
    frame = stream(spark, tmp_path / "in").groupBy("time").agg(F.sum("n").alias("n"))
    say(channel, "a", (1, 1), then=[5])
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    say(channel, "a", (7, 1), then=[8])
    log = tmp_path / "in" / "_delta_log"
    newest = next(p for p in sorted(log.glob("*.json"), reverse=True) if '"add"' in p.read_text())
    first = next(p for p in sorted(log.glob("*.json")) if '"add"' in p.read_text())
    old_add = next(line for line in first.read_text().splitlines() if line.startswith('{"add"'))
    lines = [old_add if line.startswith('{"add"') else line for line in newest.read_text().splitlines()]
    newest.write_text("\n".join(lines))
    with pytest.raises(StreamingQueryException, match=r"STRANDLINE_ROW_BEHIND_FRONTIER.*\b1\b"):
        run(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert contents(tmp_path / "out") == [(1, 1)]


@pytest.mark.drawn
def test_update_mode_shows_open_times_and_forgets_closed_ones(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), (2, 2), then=[2])
    seen: list[tuple[int, int, int]] = []
    frame = stream(spark, tmp_path / "in").groupBy("time").agg(F.sum("n").alias("n"))

    def collect(batch: Any, batch_id: int) -> None:
        seen.extend((batch_id, r.time, r.n) for r in batch.collect())

    def once() -> Any:
        writer = frame.writeStream.foreachBatch(collect).outputMode("update")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        return query.lastProgress

    once()
    say(channel, "a", (2, 5), then=[2])
    progress = once()
    assert sorted(seen) == [(0, 1, 1), (0, 2, 2), (1, 2, 7)]
    assert progress["stateOperators"][0]["numRowsTotal"] == 1
