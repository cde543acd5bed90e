"""What users of watermarks suffer from, by the number of the scenario and the thread where it was told: gone.

Where it is cheap, the same rows go through Spark's own ``withWatermark`` beside it, and it does lose or delay them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from by_batch import at, feed, flat, put, run, running, sparks_own
from helpers import contents, stream
from helpers import run as run_into_channel
from strandline.channel import Channel

pytestmark = pytest.mark.spark


def windowed(frame: Any, *widths: int) -> Any:
    """Sums and counts by windows, and then by windows of those, at the last windows' starts."""
    over = "time"
    for width in widths:
        frame = frame.groupBy(F.window(over, f"{width} seconds").alias("w")).agg(
            F.sum("n").alias("n"), F.count("*").alias("rows")
        )
        over = "w"
    return frame.select(F.col("w.start").alias("time"), "n", "rows")


@pytest.mark.drawn
def test_scenario_01_spark_38405_the_second_aggregation_drops_nothing_of_the_first(spark: Any, tmp_path: Path) -> None:
    """An aggregation of an aggregation: in Spark the second took what the first emitted, which was behind the watermark by
    then, for late. Newer Sparks chain windows; but a row that comes in a file after a later one's is still lost to both.
    """
    channel = feed(tmp_path / "in", "a", "b")
    put(channel, 12, then=13)
    put(channel, 13, then=20)
    put(channel, 1, 3, 7, by="b", then=None)
    put(channel, then=None)
    chained = windowed(stream(spark, tmp_path / "in", maxFilesPerTrigger="1"), 5, 10)
    assert run(chained, tmp_path / "c") == [[], [], [(0, 11, 2), (10, 25, 1)]]
    theirs = windowed(sparks_own(spark, tmp_path / "in"), 5, 10)
    assert flat(run(theirs, tmp_path / "d")) == []  # 1, 3 and 7 dropped as late; the last window held back for ever


def test_scenario_02_spark_24890_an_outer_join_and_then_an_aggregation_lose_nothing(spark: Any, tmp_path: Path) -> None:
    """Rows without a match come out of an outer join when the watermark is past them, so that an aggregation behind it
    dropped them in silence."""
    clicks, views = feed(tmp_path / "clicks"), feed(tmp_path / "views")
    put(views, 1, 2, 8, then=20)
    put(clicks, 2, then=9)
    put(clicks, then=20)
    views_, clicks_ = (stream(spark, tmp_path / name).alias(name) for name in ("views", "clicks"))
    near = F.expr("views.key = clicks.key AND clicks.time BETWEEN views.time AND views.time + INTERVAL 1 SECOND")
    joined = views_.join(clicks_, near, "left_outer").select("views.time", F.col("views.n").alias("n"))
    assert flat(run(windowed(joined, 10), tmp_path / "c")) == [(0, 11, 3)]  # 1 and 2 met the click of 2, 8 met none


@pytest.mark.drawn
def test_scenario_03_spark_23576_several_aggregations_in_append_mode_close_at_once(spark: Any, tmp_path: Path) -> None:
    """Several aggregations in one query were refused, and then each waited for a batch of its own."""
    channel = feed(tmp_path / "in")
    put(channel, *range(38), then=40)
    frame = windowed(stream(spark, tmp_path / "in"), 5, 10, 20)
    assert run(frame, tmp_path / "c") == [[(0, sum(range(20)), 2), (20, sum(range(20, 38)), 2)]]


@pytest.mark.drawn
def test_scenario_05_spark_21220_results_come_when_only_time_moves_on(spark: Any, tmp_path: Path) -> None:
    """A watermark is made of rows: without rows it stands still, and so do the results."""
    channel = feed(tmp_path / "in")
    put(channel, 1, 2, then=3)
    with running(windowed(stream(spark, tmp_path / "in"), 5), tmp_path / "c") as (query, batches):
        query.processAllAvailable()
        assert batches == [[]]
        put(channel, then=5)  # no row
        query.processAllAvailable()
        assert batches == [[], [(0, 3, 2)]]
        assert query.lastProgress["numInputRows"] == 0
    theirs = windowed(sparks_own(spark, tmp_path / "in"), 5)
    assert flat(run(theirs, tmp_path / "d")) == []


def test_scenario_06_spark_21746_a_run_once_gives_what_is_complete_in_that_run(spark: Any, tmp_path: Path) -> None:
    """``Trigger.Once`` computed the watermark at a run's end and never ran the batch that would use it: results of a daily run
    came a day later."""
    channel = feed(tmp_path / "in")
    put(channel, 1, 7, then=10)
    frame = windowed(stream(spark, tmp_path / "in"), 5)
    assert flat(run(frame, tmp_path / "c", once=True)) == [(0, 1, 1), (5, 7, 1)]
    theirs = windowed(sparks_own(spark, tmp_path / "in"), 5)
    assert flat(run(theirs, tmp_path / "d", once=True)) == []


@pytest.mark.smoke
def test_scenario_07_spark_29700_a_restart_after_a_batch_without_data_was_cut_off(spark: Any, tmp_path: Path) -> None:
    """A query that was killed in the batch that only moved the watermark came back with the wrong one."""
    channel = feed(tmp_path / "in")
    put(channel, 1, 2, then=3)
    frame = windowed(stream(spark, tmp_path / "in"), 5)
    run_into_channel(frame, tmp_path / "out", tmp_path / "c")
    put(channel, then=5)
    run_into_channel(frame, tmp_path / "out", tmp_path / "c")
    for file in (tmp_path / "c" / "commits").glob("*1*"):  # killed before Spark knew that this batch was done
        file.unlink()
    put(channel, 6, then=10)
    progress = run_into_channel(frame, tmp_path / "out", tmp_path / "c")
    assert [p["batchId"] for p in progress] == [1, 2]
    assert [row[1:] for row in contents(tmp_path / "out")] == [(3, 2), (6, 1)]
    assert Channel.open(tmp_path / "out").frontier.to_json() == [at(10)]


@pytest.mark.drawn
def test_scenario_09_spark_35854_session_windows_drop_no_row(spark: Any, tmp_path: Path) -> None:
    """Session windows dropped rows behind the watermark without even counting them."""
    channel = feed(tmp_path / "in", "a", "b")
    put(channel, 30, then=31)
    put(channel, 31, then=32)
    put(channel, 3, 4, by="b", then=20)  # b is behind a; b has never promised otherwise
    put(channel, then=None)
    put(channel, by="b", then=None)

    def sessions(frame: Any) -> Any:
        sums = frame.groupBy(F.session_window("time", "5 seconds").alias("s"), "key").agg(F.sum("n").alias("n"))
        return sums.select("s.start", "s.end", "n")

    frame = sessions(stream(spark, tmp_path / "in", maxFilesPerTrigger="1"))
    assert run(frame, tmp_path / "c") == [[], [], [(3, 9, 7), (30, 36, 61)]]
    assert flat(run(sessions(sparks_own(spark, tmp_path / "in")), tmp_path / "d")) == []


@pytest.mark.drawn
def test_scenario_10_spark_56043_rows_at_the_greatest_time_count_wherever_batches_end(spark: Any, tmp_path: Path) -> None:
    """With a delay of zero a row at the watermark's very time is late or not, as it falls into one batch or two."""
    channel = feed(tmp_path / "in")
    for _ in range(3):
        put(channel, 5, then=5)
    put(channel, then=6)

    def counted(frame: Any) -> Any:
        return frame.groupBy("time").agg(F.count("*").alias("rows"))

    for limit, batches in (("1", [[], [], [(5, 3)]]), ("9", [[(5, 3)]])):
        frame = counted(stream(spark, tmp_path / "in", maxFilesPerTrigger=limit))
        assert run(frame, tmp_path / limit) == batches
    one, all_ = (counted(sparks_own(spark, tmp_path / "in", maxFilesPerTrigger=n)) for n in ("1", "9"))
    assert flat(run(one, tmp_path / "d1")) == [(5, 2)]
    assert flat(run(all_, tmp_path / "d9")) == [(5, 3)]


@pytest.mark.drawn
def test_scenario_11_the_last_window_comes_and_each_when_it_is_complete(spark: Any, tmp_path: Path) -> None:
    """ "I am always missing the last window", and "why is 12:00 to 12:10 emitted at 12:25": the delay is waited for in rows."""
    channel = feed(tmp_path / "in")
    put(channel, 1, 9, then=10)
    put(channel, 12, then=13)
    put(channel, 26, then=26)
    put(channel, then=None)
    frame = windowed(stream(spark, tmp_path / "in", maxFilesPerTrigger="1"), 10)
    assert run(frame, tmp_path / "c") == [[(0, 10, 2)], [], [(10, 12, 1), (20, 26, 1)]]
    theirs = run(windowed(sparks_own(spark, tmp_path / "in", "15 seconds"), 10), tmp_path / "d")
    assert flat(theirs) == [(0, 10, 2)]
    assert theirs[:3] == [[], [], []]  # only the row of 26, 16 seconds after the window's end, lets it out


@pytest.mark.drawn
def test_scenario_16_risingwave_19860_windows_do_not_wait_for_rows_that_never_come(spark: Any, tmp_path: Path) -> None:
    """Windows of a stream that has gone quiet stay pending for ever, and those of every query behind it. A frontier goes on
    without rows, also through a channel between two queries."""
    channel = feed(tmp_path / "in")
    put(channel, 1, 3, then=4)
    first = windowed(stream(spark, tmp_path / "in"), 5)
    run_into_channel(first, tmp_path / "between", tmp_path / "c")
    second = stream(spark, tmp_path / "between").groupBy(F.window("time", "10 seconds").alias("w")).agg(F.sum("n").alias("n"))
    second = second.select(F.col("w.start").alias("time"), "n")
    assert flat(run(second, tmp_path / "d")) == []
    put(channel, then=10)
    run_into_channel(first, tmp_path / "between", tmp_path / "c")
    assert flat(run(second, tmp_path / "d")) == [(0, 4)]
