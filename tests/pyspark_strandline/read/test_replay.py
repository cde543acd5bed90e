"""Replays: the commits that are recorded, once more, in their order, with their pauses, up to an end; and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from helpers import contents, make_channel, rows, run, say, stream
from pyspark_strandline import read_channels
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.admission_limits import AdmissionLimits
from pyspark_strandline.read.batch_planner import BatchPlanner
from pyspark_strandline.read.driver import Driver
from pyspark_strandline.read.log_cursor import LogCursor
from pyspark_strandline.read.replay.pace import Pace
from pyspark_strandline.read.several.inputs import Inputs
from pyspark_strandline.read.source import StreamReader
from pyspark_strandline.schema import spark_schema
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, product

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000
UNLIMITED = AdmissionLimits(None, None)


def made_at(path: Path, *moments_ms: int) -> None:
    """Give the commits of a channel other moments in which they were made, from version 0 on."""
    for version, moment in enumerate(moments_ms):
        file = path / "_delta_log" / f"{version:020}.json"
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        for action in actions:
            if "commitInfo" in action:
                action["commitInfo"]["timestamp"] = moment
        file.write_text("".join(json.dumps(action) + "\n" for action in actions))


def add(channel: Channel, moment: Time, then: list[Time]) -> None:
    """One commit, with one row of that time; the producer holds ``then`` afterwards."""
    writer = channel.file_writer()
    writer.write(rows(channel.domain, (moment, 1)))
    channel.append(writer.finish()[0], statements={"a": then}, times=[(moment, 1)])


def quiet(path: Path, version: int) -> None:
    """A commit with neither rows nor a statement, as of a table's properties."""
    (path / "_delta_log" / f"{version:020}.json").write_text('{"commitInfo":{"operation":"SET TBLPROPERTIES","timestamp":0}}\n')


def recorded(path: Path, commits: int = 5) -> Channel:
    """A channel of a commit an hour. After the first, commit ``n`` brings a row of time ``n``, and closes the times before."""
    channel = make_channel(path, producers=("a",))
    for n in range(1, commits + 1):
        add(channel, n, [n])
    made_at(path, *(HOUR_MS * n for n in range(commits + 1)))
    return channel


def driver(path: Path, **options: str) -> Driver:
    """The driver's part of a source of one channel."""
    channel = Channel.open(path)
    parsed = ReadOptions.parse({"path": str(path)} | options)
    return StreamReader(parsed, spark_schema(channel.schema, channel.time_column, channel.domain))._driver


def several(paths: dict[str, Path], **options: str) -> Driver:
    """The driver's part of a source of several channels with the same columns."""
    texts = {name: str(path) for name, path in paths.items()}
    parsed = ReadOptions.parse({"channels": json.dumps(texts)} | options)
    return StreamReader(parsed, Inputs(parsed).schema())._driver


def refused(path: Path, condition: str, **options: str) -> str:
    with pytest.raises(StrandlineError) as caught:
        driver(path, **options).initial()
    assert caught.value.condition == condition
    return str(caught.value)


# ---- the end, and the beginning ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "last"),
    [
        ({"endingVersion": "3"}, 3),
        ({"endingVersion": "5"}, 5),
        ({"endingTimestamp": "1970-01-01T03:00Z"}, 3),
        ({"endingTimestamp": "1970-01-01T03:59:59.999Z"}, 3),
        ({"endingTimestamp": "1999-01-01"}, 5),
        ({"endingFrontier": "3"}, 3),
        ({"endingFrontier": '["4", "7"]'}, 4),
        ({}, 5),
    ],
)
@pytest.mark.parametrize("limit", [None, 1])
def test_a_replay_ends_where_it_is_told_to(tmp_path: Path, end: dict[str, str], last: int, limit: int | None) -> None:
    recorded(tmp_path / "in")
    source = driver(tmp_path / "in", replay="max", **end)
    at = source.initial()
    source.stop_at_newest()
    for _ in range(9):
        at = source.end_of_batch(at, AdmissionLimits(limit, None))
    assert (at["commit"], at["file"], at["frontier"]) == (last + 1, 0, [last])
    again = driver(tmp_path / "in", replay="max", **end)  # a query that continues there has nothing to read
    assert again.end_of_batch(at, UNLIMITED) is at


def test_a_replay_ends_with_the_commit_that_closes_all_times_before_a_partially_ordered_frontier(tmp_path: Path) -> None:
    domain = product(epoch="int64", iter="int64")
    channel = make_channel(tmp_path / "in", domain, producers=("a",))
    for frontier in ([(0, 2), (1, 0)], [(0, 3), (1, 0)], [(0, 3), (1, 1)], [(1, 2)]):
        add(channel, frontier[0], frontier)
    wanted = Antichain(domain, [(0, 3), (1, 1)])
    frontiers = [channel.frontier_at(version) for version in range(5)]
    (first, *_) = (version for version, frontier in enumerate(frontiers) if wanted.dominates(frontier))
    source = driver(tmp_path / "in", replay="max", endingFrontier='["(epoch=0, iter=3)", "[1, 1]"]')
    assert source.end_of_batch(source.initial(), UNLIMITED)["commit"] == first + 1 == 4


def test_a_replay_begins_with_a_version_or_a_moment(tmp_path: Path) -> None:
    recorded(tmp_path / "in")
    for start in ({"startingVersion": "2"}, {"startingTimestamp": "1970-01-01T01:00:00.001Z"}):
        begin = driver(tmp_path / "in", replay="max", endingVersion="4", **start).initial()
        assert (begin["commit"], begin["frontier"]) == (2, [1])


def test_what_leaves_a_replay_unclear_is_refused(tmp_path: Path) -> None:
    def conflict(**options: str) -> str:
        with pytest.raises(StrandlineError) as caught:
            ReadOptions.parse({"path": "/c"} | options)
        return f"{caught.value.condition} {caught.value}"

    assert "OPTION_CONFLICT" in conflict(endingVersion="3")
    assert "endingVersion and endingFrontier" in conflict(replay="max", endingVersion="3", endingFrontier="2")
    assert "startingVersion = latest" in conflict(replay="max", startingVersion="latest")
    assert "startingVersion = snapshot" in conflict(replay="1x", startingVersion="snapshot")
    assert "replay and resume" in conflict(replay="max", resume="/out")
    for speed in ("fast", "0x", "-1x", "10", "x"):
        assert "OPTION_INVALID" in conflict(replay=speed)
    with pytest.raises(StrandlineError, match="endingVersion is 3, but several channels"):
        ReadOptions.parse({"channels": '{"a": "/a", "b": "/b"}', "replay": "max", "endingVersion": "3"})


def test_an_end_that_is_not_recorded_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in"
    recorded(path)
    assert "endingVersion is 9" in refused(path, "STRANDLINE_VERSION_MISSING", replay="max", endingVersion="9")
    assert "in the future" in refused(path, "STRANDLINE_OPTION_INVALID", replay="max", endingTimestamp="2999-01-01")
    message = refused(path, "STRANDLINE_RECORDING_END_MISSING", replay="max", endingFrontier="6")
    assert "endingFrontier = 6" in message
    assert "its frontier is {5}" in message
    assert "yesterday" in refused(path, "STRANDLINE_OPTION_INVALID", replay="max", endingFrontier="yesterday")
    for bounds in (
        {"startingVersion": "4", "endingVersion": "3"},
        {"startingVersion": "6"},
        {"endingTimestamp": "1969-01-01"},
        {"startingVersion": "4", "endingFrontier": "2"},
    ):
        refused(path, "STRANDLINE_RECORDING_EMPTY", replay="max", **bounds)


def test_a_log_that_was_cleaned_is_no_recording(tmp_path: Path) -> None:
    recorded(tmp_path / "in")
    DeltaTable(tmp_path / "in").create_checkpoint()
    for version in (0, 1):
        (tmp_path / "in" / "_delta_log" / f"{version:020}.json").unlink()
    refused(tmp_path / "in", "STRANDLINE_RECORDING_INCOMPLETE", replay="max")
    assert driver(tmp_path / "in", replay="max", startingVersion="4").initial()["commit"] == 4


def test_the_end_is_decided_once(tmp_path: Path) -> None:
    """A commit that comes later, by a clock that is behind, is no part of a replay that has begun."""
    path = tmp_path / "in"
    channel = recorded(path)
    moment = {"endingTimestamp": "1970-01-01T23:00Z"}
    begun = driver(path, replay="max", **moment).initial()
    assert begun["until"] == [5, f"endingTimestamp = {23 * HOUR_MS} ms since 1970"]
    add(channel, 6, [6])
    made_at(path, *(HOUR_MS * n for n in (0, 1, 2, 3, 4, 5, 4)))
    ended = driver(path, replay="max", **moment).end_of_batch(begun, UNLIMITED)
    assert (ended["commit"], ended["frontier"], ended["until"]) == (6, [5], begun["until"])
    assert driver(path, replay="max", **moment).initial()["until"][0] == 6


def test_a_moment_ends_a_replay_before_the_first_commit_that_is_later(tmp_path: Path) -> None:
    recorded(tmp_path / "in")
    made_at(tmp_path / "in", *(HOUR_MS * n for n in (1, 2, 9, 3, 9, 4)))
    until = driver(tmp_path / "in", replay="max", endingTimestamp="1970-01-01T05:00Z").initial()["until"]
    assert until[0] == 1
    until = driver(tmp_path / "in", replay="max", startingVersion="3", endingTimestamp="1970-01-01T05:00Z").initial()["until"]
    assert until[0] == 3


def test_another_end_than_the_query_began_with_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path / "in")
    begun = driver(tmp_path / "in", replay="max", endingVersion="3").initial()
    assert driver(tmp_path / "in", replay="10x", endingVersion="3").end_of_batch(begun, UNLIMITED)
    for other in ({"endingVersion": "4"}, {"endingFrontier": "3"}, {}):
        with pytest.raises(StrandlineError, match="reads .* until endingVersion = 3, but") as caught:
            driver(tmp_path / "in", replay="max", **other).end_of_batch(begun, UNLIMITED)
        assert caught.value.condition == "STRANDLINE_CHECKPOINT_MISMATCH"
    endless = driver(tmp_path / "in").initial()
    with pytest.raises(StrandlineError, match="until it is stopped, but the options now say endingVersion = 3"):
        driver(tmp_path / "in", replay="max", endingVersion="3").end_of_batch(endless, UNLIMITED)


def test_a_channel_may_be_quiet_beside_one_that_is_played(tmp_path: Path) -> None:
    for name in ("busy", "quiet"):
        recorded(tmp_path / name)
    made_at(tmp_path / "busy", *(HOUR_MS * n for n in range(20, 26)))
    source = several({name: tmp_path / name for name in ("busy", "quiet")}, startingTimestamp="1970-01-01T19:00Z", replay="max")
    begun = source.initial()
    end = source.end_of_batch(begun, UNLIMITED)
    assert [end["channels"][name]["commit"] for name in ("busy", "quiet")] == [6, 6]
    late = several({name: tmp_path / name for name in ("busy", "quiet")}, startingTimestamp="1970-01-03", replay="max")
    with pytest.raises(StrandlineError, match="STRANDLINE_RECORDING_EMPTY.*/busy it begins with version 6 .*/quiet it begins"):
        late.initial()


# ---- the pace ------------------------------------------------------------------------------------------------------------


class Clock:
    """A clock that stands until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@given(
    st.lists(st.integers(0, 50_000), min_size=1, max_size=6),
    st.sampled_from([0.5, 1.0, 10.0]),
    st.lists(st.integers(0, 40_000), min_size=1, max_size=8),
    st.integers(1, 3),
)
def test_a_commit_is_taken_when_it_is_due(
    tmp_path_factory: pytest.TempPathFactory, moments: list[int], speed: float, looks: list[int], limit: int
) -> None:
    """Each look takes what is due and fits, and nothing else; a clock that went back makes no commit late."""
    path = tmp_path_factory.mktemp("replay") / "in"
    channel = make_channel(path, producers=("a",))
    for n in range(1, len(moments)):
        add(channel, n, [n])
    made_at(path, *moments)
    clock = Clock()
    pace = Pace(speed, clock)
    options = ReadOptions.parse({"path": str(path)})
    planner = BatchPlanner(options, LogCursor(options, pace))
    at = planner.initial()
    pace.begin(moments[0])
    due_s = [(moment - moments[0]) / 1000 / speed for moment in accumulate(moments, max)]
    taken = 0
    for look in sorted(looks):
        clock.now = look / 1000
        at = planner.next_batch(at, AdmissionLimits(limit, None)).end
        due = sum(due <= clock.now for due in due_s)
        # Each commit has one file, the first one none. A limit of n takes the commits of n files.
        most = max(taken, 1) + limit
        taken = at.commit or taken
        assert taken <= due
        assert taken in (due, most)


class Waits(list[float]):
    """The pauses of a source, which take no time: its clock is set instead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.now = 0.0
        monkeypatch.setattr("pyspark_strandline.read.driver.Pace", lambda speed: Pace(speed, lambda: self.now))
        monkeypatch.setattr("pyspark_strandline.read.driver.sleep_while_asked", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.append(seconds)
        self.now += seconds

    def of(self, source: Driver, at: dict[str, object]) -> tuple[list[float], dict[str, object]]:
        """Return the whole pause before each batch of a query with the trigger availableNow, and where it ends."""
        source.stop_at_newest()
        pauses: list[float] = []
        while True:
            self.clear()
            end = source.end_of_batch(at, UNLIMITED)
            if end is at:
                return pauses, at
            pauses.append(sum(self))
            at = end


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    return Waits(monkeypatch)


def test_a_commit_without_a_moment_is_due_with_the_one_before(tmp_path: Path, waits: Waits) -> None:
    recorded(tmp_path / "in", commits=4)
    for moments, pauses in (
        ((0, 0, 1_700_000_000_000, 1_700_000_060_000, 0), [0, 60]),
        ((-5, 1 << 70, 1_700_000_000_000, 1_700_000_060_000, 1 << 200), [0, 60]),
        ((0, 0, 0, 0, 0), [0]),
    ):
        made_at(tmp_path / "in", *moments)
        source = driver(tmp_path / "in", replay="realtime")
        assert waits.of(source, source.initial())[0] == pauses, moments


def test_a_pause_of_years_has_parts(tmp_path: Path, waits: Waits) -> None:
    recorded(tmp_path / "in", commits=2)
    made_at(tmp_path / "in", 1, 1, 1_000_001)
    source = driver(tmp_path / "in", replay="0.001x")
    source.stop_at_newest()
    end = source.end_of_batch(source.end_of_batch(source.initial(), UNLIMITED), UNLIMITED)
    assert (end["commit"], sum(waits), max(waits)) == (3, 1e6, 60)


def test_the_pace_begins_with_the_first_commit_that_has_something(tmp_path: Path, waits: Waits) -> None:
    """Also after a restart: neither the pause behind a quiet commit is played, nor that before the query was stopped."""
    channel = recorded(tmp_path / "in", commits=1)
    quiet(tmp_path / "in", 2)
    add(channel, 2, [2])
    quiet(tmp_path / "in", 4)
    for n in (3, 4):
        add(channel, n, [n])
    # The clocks of commits 5 and 6 are behind.
    made_at(tmp_path / "in", *(1 + HOUR_MS * n for n in (0, 7, 9, 11, 13, 10, 12)))
    source = driver(tmp_path / "in", replay="realtime")
    first = source.initial()
    assert waits.of(source, first)[0] == [0, 4 * 3600, 2 * 3600]  # commits 1, 3, and 5 with 6
    source = driver(tmp_path / "in", replay="realtime")
    at = source.end_of_batch(first, AdmissionLimits(1, None))
    assert at["commit"] == 2
    again = driver(tmp_path / "in", replay="realtime")
    assert waits.of(again, at)[0] == [0, 2 * 3600]
    third = driver(tmp_path / "in", replay="realtime").end_of_batch(at, UNLIMITED)
    assert third["commit"] == 4
    fifth = driver(tmp_path / "in", replay="realtime").end_of_batch(third, UNLIMITED)
    assert fifth["commit"] == 7  # they are due together


def test_a_channel_that_is_over_does_not_begin_the_pace(tmp_path: Path, waits: Waits) -> None:
    for name in ("short", "long"):
        recorded(tmp_path / name, commits=2)
    made_at(tmp_path / "short", *(1 + HOUR_MS * n for n in (0, 1, 2)))
    made_at(tmp_path / "long", *(1 + HOUR_MS * n for n in (0, 10, 11)))
    paths = {name: tmp_path / name for name in ("short", "long")}
    source = several(paths, replay="realtime")
    assert waits.of(source, source.initial())[0] == [0, 3600, 8 * 3600, 3600]
    source = several(paths, replay="realtime")
    at = source.initial()
    source.stop_at_newest()
    for _ in range(2):
        at = source.end_of_batch(at, UNLIMITED)
    assert [at["channels"][name]["commit"] for name in ("short", "long")] == [3, 1]
    assert waits.of(several(paths, replay="realtime"), at)[0] == [0, 3600]


def test_a_replay_has_the_pauses_of_the_recording(spark: Any, tmp_path: Path) -> None:
    recorded(tmp_path / "in", commits=3)
    made_at(tmp_path / "in", 1, 1, 20_001, 40_001)
    began = time.monotonic()
    progress = run(stream(spark, tmp_path / "in", replay="10x"), tmp_path / "out", tmp_path / "checkpoint")
    assert time.monotonic() - began >= 4
    ends = [json.loads(p["sources"][0]["endOffset"])["frontier"] for p in progress]
    assert (ends[0], ends[-1]) == ([1], [3])  # a busy machine may be late for the second commit


def test_channels_are_played_side_by_side(spark: Any, tmp_path: Path) -> None:
    for name in ("early", "late"):
        recorded(tmp_path / name, commits=3)
    made_at(tmp_path / "late", *(10_000 + 10_000 * n for n in range(4)))
    made_at(tmp_path / "early", *(10_000 * n for n in range(4)))
    paths = {name: tmp_path / name for name in ("early", "late")}
    streams = read_channels(spark, paths, replay="10x", endingFrontier="2")
    both = streams["early"].select("time", F.lit("early").alias("key"), "n").union(streams["late"])
    progress = run(both, tmp_path / "out", tmp_path / "checkpoint")
    ends = [json.loads(p["sources"][0]["endOffset"]) for p in progress]
    positions = [tuple(end["channels"][name]["commit"] for name in ("early", "late")) for end in ends]
    assert positions == [(1, 0), (2, 1), (3, 2), (3, 3)][-len(positions) :]
    assert Channel.open(tmp_path / "out").frontier.to_json() == [2]


PROGRAM = """
import sys, time
import psutil
from pyspark.sql import SparkSession
from pyspark_strandline import configure

folder = sys.argv[1]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1")
spark = configure(builder, delta=False).getOrCreate()
jvm = psutil.Process(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
rows = spark.readStream.format("strandline").option("replay", "realtime").load(folder + "/in")
writer = rows.writeStream.format("noop").trigger(availableNow=True).option("checkpointLocation", folder + "/checkpoint")
query = writer.start()
while not query.recentProgress:
    time.sleep(0.05)
time.sleep(1)  # the query waits for a commit that is due in an hour
found = psutil.process_iter(["ppid", "cmdline"])  # a process may end meanwhile
daemons = [p for p in found if p.info["ppid"] == jvm.pid and "pyspark_strandline.source_daemon" in (p.info["cmdline"] or ())]
forks = [fork for daemon in daemons for fork in daemon.children()]
assert len(forks) == 1 and query.isActive, (forks, query.isActive)
began = time.monotonic()
query.stop()
forks[0].wait(20)
assert time.monotonic() - began < 20
print("STOPPED", query.exception())
"""


def test_a_replay_can_be_stopped_in_a_long_pause(tmp_path: Path) -> None:
    recorded(tmp_path / "in", commits=2)
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK", "SPARK"))}
    done = subprocess.run(
        [sys.executable, "program.py", str(tmp_path)],
        cwd=tmp_path,
        env=environment | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "STOPPED None" in done.stdout, done.stderr[-3000:]


# ---- the results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speed", ["max", "100000x"])
def test_a_replay_gives_the_rows_and_the_frontier_of_the_recorded_run(spark: Any, tmp_path: Path, speed: str) -> None:
    """The recorded run had one commit a batch. The replay has one batch, or is stopped after each and continued."""

    def sums(**options: str) -> Any:
        return stream(spark, tmp_path / "in", **options).groupBy("time").agg(F.sum("n").alias("n"))

    channel = make_channel(tmp_path / "in", producers=("a", "b"))
    for n in range(1, 7):
        say(channel, "a", *((n + k, n * k) for k in range(3)), then=[n])
        say(channel, "b", (n + 1, n), then=[n + 1])
        run(sums(), tmp_path / "recorded", tmp_path / "checkpoint")
        if n == 4:
            version, sent, frontier = (
                channel.version,
                contents(tmp_path / "recorded"),
                Channel.open(tmp_path / "recorded").frontier,
            )
    until = {"replay": speed, "endingVersion": str(version)}
    run(sums(**until), tmp_path / "whole", tmp_path / "checkpoint-whole")
    for _ in range(12):
        query = (
            sums(maxFilesPerTrigger="1", **until)
            .writeStream.format("strandline")
            .option("checkpointLocation", str(tmp_path / "checkpoint-cut"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "cut"))
        )
        while query.isActive and not query.recentProgress:
            time.sleep(0.02)
        query.stop()
    run(sums(**until), tmp_path / "cut", tmp_path / "checkpoint-cut")
    for out in ("whole", "cut"):
        assert contents(tmp_path / out) == sent
        assert Channel.open(tmp_path / out).frontier == frontier


def test_an_end_that_is_missing_stops_the_query_before_it_reads(spark: Any, tmp_path: Path) -> None:
    recorded(tmp_path / "in")
    with pytest.raises(StreamingQueryException, match="STRANDLINE_RECORDING_END_MISSING"):
        run(stream(spark, tmp_path / "in", replay="max", endingFrontier="99"), tmp_path / "out", tmp_path / "checkpoint")
    assert not (tmp_path / "out").exists()
