"""The option ``startingFrontier``: all rows at times that a frontier has not closed, and no others."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as F

from helpers import contents, make_channel, rows, run, stream
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.admission_limits import AdmissionLimits
from pyspark_strandline.read.batch_planner import BatchPlanner
from pyspark_strandline.read.driver import Driver
from pyspark_strandline.read.log_cursor import LogCursor
from pyspark_strandline.read.replay.frontier import parse_frontier
from pyspark_strandline.read.source import StreamReader
from pyspark_strandline.schema import spark_schema
from strandline.channel import Channel
from strandline.errors import LogError, StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain, lex, product, timestamp

pytestmark = pytest.mark.spark

EPOCHS = product(epoch="int64", iter="int64")


def add(channel: Channel, then: list[Time], *moments: Time) -> None:
    """One commit with a row of each time, after which the producer holds ``then``."""
    writer = channel.file_writer()
    writer.write(rows(channel.domain, *((moment, at) for at, moment in enumerate(moments))))
    channel.append(writer.finish()[0], statements={"a": then}, times=sorted(Counter(moments).items()))


def scattered(path: Path) -> Channel:
    """Rows of times 5, 6 and 7 come from the second commit on, between rows of lesser ones."""
    channel = make_channel(path, producers=("a",))
    add(channel, [2], 2, 3, 4)
    add(channel, [3], 3, 7, 5)
    add(channel, [4], 4)
    add(channel, [6], 5, 6, 4)
    add(channel, [7], 6, 9)
    return channel


def times(path: Path) -> list[Any]:
    return [time for time, *_ in contents(path)]


def first(path: Path, **options: str) -> tuple[int, list[Time]]:
    """The commit with which a query begins, and the frontier there."""
    parsed = ReadOptions.parse({"path": str(path)} | options)
    begin = BatchPlanner(parsed, LogCursor(parsed)).initial()
    return begin.commit, begin.frontier.to_json()


@pytest.mark.parametrize("native", ["on", "off"])
@pytest.mark.parametrize("limit", ["1", "99"])
def test_rows_since_a_frontier_come_and_no_others(spark: Any, tmp_path: Path, native: str, limit: str) -> None:
    scattered(tmp_path / "in")
    assert first(tmp_path / "in", startingFrontier="5") == (2, [2])
    frame = stream(spark, tmp_path / "in", startingFrontier="5", nativeScan=native, maxFilesPerTrigger=limit)
    assert "strandline.since" not in str(frame.schema.json())
    sums = frame.groupBy("time").agg(F.count("*").alias("n"))
    run(sums, tmp_path / "out", tmp_path / "checkpoint")
    assert contents(tmp_path / "out") == [(5, 2), (6, 2)]
    assert Channel.open(tmp_path / "out").frontier.to_json() == [7]


@pytest.mark.parametrize("domain", [EPOCHS, lex(epoch="int64", iter="int64")], ids=str)
def test_rows_since_a_partially_ordered_frontier(spark: Any, tmp_path: Path, domain: TimeDomain) -> None:
    moments = [(epoch, turn) for turn in range(4) for epoch in range(4)]
    channel = make_channel(tmp_path / "in", domain, producers=("a",))
    for moment in moments:
        add(channel, [(0, 0)], moment)
    text = '["(epoch=1, iter=2)", "[2, 1]"]'
    since = parse_frontier("startingFrontier", text, domain)
    wanted = [moment for moment in moments if since.less_equal(moment)]
    assert 0 < len(wanted) < len(moments)
    assert first(tmp_path / "in", startingFrontier=text)[0] == 1 + moments.index(wanted[0])
    for native in ("on", "off"):
        frame = stream(spark, tmp_path / "in", startingFrontier=text, nativeScan=native)
        run(frame, tmp_path / native, tmp_path / f"checkpoint-{native}")
        assert times(tmp_path / native) == sorted(wanted)


def test_a_moment_is_a_frontier_of_timestamps(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", timestamp, producers=("a",))
    add(channel, [0], 1_000_000, 2_000_000, 3_000_000)
    # A user cannot say in the shim's place that the plan has the filter.
    given = {"startingFrontier": "1970-01-01T00:00:02Z", "Strandline.Since": "1970-01-01T00:00:02Z"}
    frame = stream(spark, tmp_path / "in", **given)
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert times(tmp_path / "out") == [datetime.fromtimestamp(second, timezone.utc) for second in (2, 3)]
    run(stream(spark, tmp_path / "in", startingFrontier="the beginning"), tmp_path / "all", tmp_path / "checkpoint-all")
    assert len(times(tmp_path / "all")) == 3


MOMENTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=3)


@given(st.lists(MOMENTS, min_size=1, max_size=5), st.data())
def test_no_row_since_the_frontier_is_before_the_first_commit(
    tmp_path_factory: pytest.TempPathFactory, commits: list[list[Time]], data: st.DataObject
) -> None:
    channel = make_channel(tmp_path_factory.mktemp("since") / "in", EPOCHS, producers=("a",))
    for moments in commits:
        add(channel, [(0, 0)], *moments)
    elements = data.draw(MOMENTS)
    since = Antichain(EPOCHS, elements)
    text = str([f"[{epoch}, {turn}]" for epoch, turn in elements]).replace("'", '"')
    versions = [n for n, moments in enumerate(commits, start=1) if any(since.less_equal(moment) for moment in moments)]
    assert first(Path(channel.path), startingFrontier=text)[0] == min(versions, default=channel.version + 1)


def test_a_cleaned_log_gives_the_rows_from_a_snapshot(spark: Any, tmp_path: Path) -> None:
    scattered(tmp_path / "in")
    DeltaTable(tmp_path / "in").create_checkpoint()
    for version in (0, 1, 2):
        (tmp_path / "in" / "_delta_log" / f"{version:020}.json").unlink()
    run(stream(spark, tmp_path / "in", startingFrontier="6", maxFilesPerTrigger="2"), tmp_path / "out", tmp_path / "checkpoint")
    assert times(tmp_path / "out") == [6, 6, 7, 9]


def test_a_query_keeps_its_starting_frontier(spark: Any, tmp_path: Path) -> None:
    channel = scattered(tmp_path / "in")
    run(stream(spark, tmp_path / "in", startingFrontier="5"), tmp_path / "out", tmp_path / "checkpoint")
    add(channel, [8], 7, 8)
    for other in ({"startingFrontier": "4"}, {}):
        with pytest.raises(StreamingQueryException, match="STRANDLINE_CHECKPOINT_MISMATCH.*with startingFrontier = 5"):
            run(stream(spark, tmp_path / "in", **other), tmp_path / "out", tmp_path / "checkpoint")
    run(stream(spark, tmp_path / "in", startingFrontier="5"), tmp_path / "out", tmp_path / "checkpoint")
    assert times(tmp_path / "out") == [5, 5, 6, 6, 7, 7, 8, 9]


def test_a_starting_frontier_that_cannot_be_is_refused(spark: Any, tmp_path: Path) -> None:
    scattered(tmp_path / "in")
    with pytest.raises(AnalysisException, match="STRANDLINE_OPTION_INVALID.*startingFrontier is 'soon'"):
        stream(spark, tmp_path / "in", startingFrontier="soon")
    for options, message in (
        ({"startingVersion": "1", "startingFrontier": "3"}, "startingVersion and startingFrontier"),
        ({"resume": "/out", "startingFrontier": "3"}, "startingFrontier and resume"),
    ):
        with pytest.raises(StrandlineError, match=message):
            ReadOptions.parse({"path": "/c"} | options)
    with pytest.raises(StrandlineError, match="startingFrontier"):
        ReadOptions.parse({"channels": '{"a": "/a", "b": "/b"}', "startingFrontier": "3"})


def test_a_batch_that_is_repeated_keeps_its_starting_frontier_and_its_end(tmp_path: Path) -> None:
    """Spark repeats a logged batch without asking where it ends."""
    scattered(tmp_path / "in")

    def driver(**options: str) -> Driver:
        parsed = ReadOptions.parse({"path": str(tmp_path / "in")} | options)
        channel = Channel.open(tmp_path / "in")
        return StreamReader(parsed, spark_schema(channel.schema, channel.time_column, channel.domain))._driver

    given = {"startingFrontier": "5", "replay": "max", "endingVersion": "4"}
    before = driver(**given)
    begin = before.initial()
    end = before.end_of_batch(begin, AdmissionLimits(None, None))
    assert driver(**given).partitions(begin, end)
    for other in ({"startingFrontier": "7"}, {"endingVersion": "3"}):
        with pytest.raises(StrandlineError, match="STRANDLINE_CHECKPOINT_MISMATCH"):
            driver(**given | other).partitions(begin, end)


def test_a_moment_before_what_is_left_of_the_log_is_refused(tmp_path: Path) -> None:
    scattered(tmp_path / "in")
    DeltaTable(tmp_path / "in").create_checkpoint()
    for version in (0, 1, 2):
        (tmp_path / "in" / "_delta_log" / f"{version:020}.json").unlink()
    for options in ({}, {"replay": "max"}):
        with pytest.raises(LogError, match="STRANDLINE_LOG_TRUNCATED"):
            first(tmp_path / "in", startingTimestamp="1970-01-02", **options)
