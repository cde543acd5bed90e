"""Moved times: rows and frontiers move alike, everything closes by the moved frontier, and what is moved otherwise is refused."""

from __future__ import annotations

import contextlib
import io
import random
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as F

from helpers import ROOT, contents, make_channel, run, say, stream
from moving_model import moved
from pyspark_strandline import advance, domain_metadata, enter, project, truncate
from pyspark_strandline.operators.summary_steps import advancing, entering, projecting, truncating
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.arrow import array_of, time_field
from strandline.time.domain import Time, TimeDomain, int64, lex, parse_domain, product, timestamp
from strandline.time.path import summary
from strandline.time.path.steps import Steps

pytestmark = pytest.mark.spark
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
HOUR = 3_600_000_000
PAIR = product(epoch="int64", iter="int64")
SCOPE = lex(tick="int64", stratum="int64", iter="int64")
NESTED = product(event="timestamp", loop=lex(outer="int64", inner="int8"), n="int8")

# What is done to which times, as a move and as a DataFrame; the first ones are run by real queries.
CASES: list[tuple[TimeDomain, Callable[[TimeDomain], Steps], Callable[[Any], Any]]] = [
    (timestamp, lambda d: advancing(d, "1 day"), lambda f: advance(f, timedelta(days=1))),
    (int64, lambda d: truncating(d, 4, offset=1), lambda f: truncate(f, 4, offset=1)),
    (PAIR, lambda d: projecting(d, "epoch"), lambda f: project(f, "epoch")),
    (PAIR, lambda d: advancing(d, {"epoch": 2, "iter": 1}), lambda f: advance(f, {"epoch": 2, "iter": 1})),
    (SCOPE, lambda d: projecting(d, ["tick", "stratum"]), lambda f: project(f, ["tick", "stratum"])),
    (NESTED, lambda d: truncating(d, 3, "loop.outer"), lambda f: truncate(f, 3, "loop.outer")),
    (NESTED, lambda d: projecting(d, ["n", "loop"]), lambda f: project(f, ["n", "loop"])),
    (int64, lambda d: entering(d, product(time="int64", iter="int64")), lambda f: enter(f, "iter")),
    (PAIR, lambda d: truncating(d, 3, "epoch"), lambda f: truncate(f, 3, "epoch")),
    (SCOPE, lambda d: advancing(d, 1, "stratum"), lambda f: advance(f, 1, "stratum")),
    (NESTED, lambda d: projecting(d, "loop.outer"), lambda f: project(f, "loop.outer")),
    (SCOPE, lambda d: entering(d, lex(outer=d, n="uint64")), lambda f: enter(f, domain=lex(outer=SCOPE, n="uint64"))),
    (PAIR, lambda d: entering(d, product(epoch="int64", iter="int64", j="int64")), lambda f: enter(f, "j")),
]
QUERIES = 7


def at(hour: float) -> int:
    return int(hour * HOUR)


def when(hour: float) -> datetime:
    return EPOCH + timedelta(hours=hour)


def near(domain: TimeDomain) -> st.SearchStrategy[Time]:
    return st.tuples(*(near(part) for _, part in domain.coordinates)) if domain.coordinates else st.integers(0, 9)


def pick(domain: TimeDomain, of: Callable[[TimeDomain], int]) -> Time:
    return tuple(pick(part, of) for _, part in domain.coordinates) if domain.coordinates else of(domain)


class Playing:
    """A query that runs on into a channel."""

    def __init__(self, frame: Any, folder: Path) -> None:
        self.path = folder / "out"
        writer = frame.writeStream.format("strandline").option("checkpointLocation", str(folder / "checkpoint"))
        self.query = writer.start(str(self.path))
        self._seen: list[Any] = []

    def added(self) -> list[Any]:
        """The rows that came since the last look."""
        self.query.processAllAvailable()
        rows = Channel.open(self.path).read().to_pylist() if Channel.exists(self.path) else []
        new = [row for row in rows if row not in self._seen]
        self._seen = rows
        return new

    @property
    def frontier(self) -> Any:
        return Channel.open(self.path).frontier.to_json()


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[[Any], Playing]]:
    started: list[Playing] = []

    def start(frame: Any) -> Playing:
        started.append(Playing(frame, tmp_path))
        return started[-1]

    yield start
    for playing in started:
        playing.query.stop()


# Laws


@given(st.data())
def test_moves_are_monotone_and_steps_follow_one_another(data: st.DataObject) -> None:
    domain, move_of, _ = data.draw(st.sampled_from(CASES))
    move = move_of(domain)
    a, b = data.draw(near(domain)), data.draw(near(domain))
    x, y = moved(a, domain, move), moved(b, domain, move)
    assert move.target(domain).time(x) == x
    if domain.less_equal(a, b):
        assert move.target(domain).less_equal(x, y)
    path, leaf = move.target(domain).leaves()[0]
    again = advancing(move.target(domain), "1 second" if leaf == timestamp else 1, ".".join(path) or None)
    assert moved(a, domain, Steps(move.steps + again.steps)) == moved(x, move.target(domain), again)
    if "shift" in move.to_json()[0]:
        assert domain.less_than(a, x)
    if "truncate" in move.to_json()[0]:
        assert domain.less_equal(x, a)
        assert moved(x, domain, move) == x


def test_to_a_unit_of_1_too_a_truncated_coordinate_forgets_those_after_it_in_a_lexicographic_time() -> None:
    least = int64.minimum
    assert (
        moved((3, 4, 5), SCOPE, truncating(SCOPE, 1, "tick"))
        == moved((3, 9, 0), SCOPE, truncating(SCOPE, 1, "tick"))
        == (3, least, least)
    )
    assert (
        truncating(SCOPE, 1, "iter").steps
        == truncating(NESTED, 1, "loop.inner").steps
        == truncating(PAIR, 1, "epoch").steps
        == ()
    )


@pytest.mark.parametrize(
    ("domain", "by", "coordinate"),
    [(int64, 5, None), (NESTED, 3, "loop.inner"), (NESTED, 3, "loop.outer"), (lex(tick="int8", iter="int8"), 1, "tick")],
)
def test_rows_are_advanced_as_the_core_says_at_the_edges_of_their_domain_too(
    spark: Any, domain: TimeDomain, by: int, coordinate: str | None
) -> None:
    r = random.Random(1)

    def edge(part: TimeDomain) -> int:
        return 7 if part == timestamp else r.choice([part.minimum, part.minimum + 3, part.maximum - 5])

    times = [pick(domain, edge) for _ in range(40)]
    table = pa.table([array_of(times, domain)], schema=pa.schema([time_field("time", domain)]))
    frame = spark.createDataFrame(table).select(F.col("time").alias("time", metadata=domain_metadata(domain)))
    results = [summary.advance(domain, coordinate, by).results_in(t) for t in times]
    assert advance(frame, by, coordinate).toArrow().column("time").to_pylist() == array_of(results, domain).to_pylist()


# Closing


@pytest.mark.drawn
@pytest.mark.parametrize("case", range(QUERIES))
def test_groups_of_moved_times_close_when_nothing_open_is_moved_to_them_or_below(
    spark: Any, tmp_path: Path, play: Callable[[Any], Playing], case: int
) -> None:
    domain, move_of, on_frame = CASES[case]
    move = move_of(domain)
    seed = random.randrange(10**6)
    r = random.Random(seed)

    def later(holds: Antichain) -> Time:
        return domain.join(r.choice(list(holds)), pick(domain, lambda _: r.randint(0, 9)))

    channel = make_channel(tmp_path / "in", domain, producers=("a",))
    playing = play(on_frame(stream(spark, tmp_path / "in")).groupBy("time").agg(F.sum("n").alias("n")))
    waiting: dict[Time, int] = {}
    holds = channel.frontier
    for step in range(3):
        times = [later(holds) for _ in range(6)]
        then = Antichain(domain, [later(holds), later(holds)] if step < 2 else [])
        say(channel, "a", *((t, i) for i, t in enumerate(times)), then=list(then))
        for i, t in enumerate(times):
            to = moved(t, domain, move)
            waiting[to] = waiting.get(to, 0) + i
        images = Antichain(move.target(domain), [moved(t, domain, move) for t in then])
        closed = [t for t in waiting if not images.less_equal(t)]
        expected = array_of(closed, move.target(domain)).to_pylist()
        found = {str(row["time"]): row["n"] for row in playing.added()}
        assert found == {str(t): waiting.pop(c) for t, c in zip(expected, closed, strict=True)}, f"seed {seed}, step {step}"
        assert playing.frontier == images.to_json(), f"seed {seed}, step {step}"
        holds = then


def test_a_projected_time_closes_though_times_beside_it_stay_open(
    spark: Any, tmp_path: Path, play: Callable[[Any], Playing]
) -> None:
    domain = product(event="timestamp", iter="int64")
    channel = make_channel(tmp_path / "in", domain, producers=("a",))
    by_event = project(stream(spark, tmp_path / "in"), "event").groupBy(F.window("time", "1 hour")).agg(F.sum("n").alias("n"))
    playing = play(by_event.select(F.col("window.start").alias("time"), "n"))
    say(channel, "a", ((at(0.5), 0), 1), ((at(0.7), 9), 2), ((at(1.5), 0), 4), then=[(at(0.9), 3), (at(3), 0)])
    assert playing.added() == []  # (0.9, 3) may still fall into the first hour
    say(channel, "a", then=[(at(1), 7), (at(3), 0)])
    assert playing.added() == [{"time": when(0), "n": 3}]
    assert playing.frontier == [at(1)]


@pytest.mark.drawn
def test_windows_truncated_to_days_and_moved_on_a_day_close_with_their_last_hour(
    spark: Any, tmp_path: Path, play: Callable[[Any], Playing]
) -> None:
    channel = make_channel(tmp_path / "in", timestamp, producers=("a",))
    hours = stream(spark, tmp_path / "in").groupBy(F.window("time", "1 hour")).agg(F.sum("n").alias("n"))
    days = truncate(hours.select(F.col("window.start").alias("time"), "n"), "1 day")
    days = days.mapInArrow(lambda batches: batches, days.schema)  # the schema says what the function hides
    playing = play(advance(days.groupBy("time").agg(F.sum("n").alias("n"), F.count("*").alias("hours")), "1 day"))
    say(channel, "a", (at(1.5), 1), (at(22.5), 2), (at(25), 4), then=[at(24) - 1])
    assert playing.added() == []
    assert playing.frontier == [at(24)]  # the day that begins at 0, moved on by one
    say(channel, "a", then=[at(24)])
    assert playing.added() == [{"time": when(24), "n": 3, "hours": 2}]
    assert playing.frontier == [at(48)]
    say(channel, "a", then=[])
    assert playing.added() == [{"time": when(48), "n": 4, "hours": 1}]
    assert playing.frontier == []


# Refusals


@pytest.fixture
def pairs(spark: Any, tmp_path: Path) -> Any:
    channel = make_channel(tmp_path / "in", PAIR, producers=("a",))
    say(channel, "a", ((1, 1), 1), then=[(2, 2)])
    return stream(spark, tmp_path / "in")


def test_a_time_that_is_rebuilt_by_hand_is_refused_everywhere(spark: Any, tmp_path: Path, pairs: Any) -> None:
    by_hand = pairs.withColumn("time", F.struct((F.col("time.epoch") + 1).alias("epoch"), F.col("time.iter").alias("iter")))
    same = pairs.withColumn("time", F.struct("time.epoch", "time.iter"))
    for frame in (by_hand, same):
        with pytest.raises(AnalysisException, match="STRANDLINE_AGGREGATION_WITHOUT_TIME.*truncate"):
            run(frame.groupBy("time").count(), tmp_path / "out", tmp_path / "checkpoint-checker")
        with pytest.raises(StrandlineError, match=r"STRANDLINE_TIME_COLUMN_MISSING.*None of the columns time, key, n"):
            advance(frame, 1, "iter")
    with pytest.raises(StreamingQueryException, match="STRANDLINE_TIME_COLUMN_MISSING"):
        run(by_hand, tmp_path / "out", tmp_path / "checkpoint-sink")
    joined = by_hand.alias("l").join(pairs.alias("r"), F.expr("l.time = r.time")).select("r.time", "r.n")
    with pytest.raises(StreamingQueryException, match="STRANDLINE_OPERATOR_UNSUPPORTED"):
        run(joined, tmp_path / "out", tmp_path / "checkpoint-join")
    with pytest.raises(AnalysisException, match="STRANDLINE_UNION_MISMATCH"):
        pairs.union(by_hand)


def test_what_cannot_be_moved_so_is_refused_by_name(spark: Any, pairs: Any) -> None:
    scope = spark.createDataFrame([], "time struct<tick:bigint,stratum:bigint,iter:bigint>")
    scope = scope.select(F.col("time").alias("time", metadata=domain_metadata(SCOPE)))
    times = spark.createDataFrame([], "time timestamp").select(F.col("time").alias("time", metadata=domain_metadata(timestamp)))
    cases: list[tuple[str, Callable[[], Any]]] = [
        (r"STRANDLINE_DELAY_INVALID.*The advance of iter is -1, which is negative", lambda: advance(pairs, -1, "iter")),
        (r"STRANDLINE_DELAY_INVALID.*a duration.*times are of int64", lambda: advance(pairs, "1 day", "iter")),
        (r"STRANDLINE_DELAY_INVALID.*a count without a unit.*of timestamp", lambda: advance(times, 5)),
        (r"STRANDLINE_DELAY_INVALID.*'1 month'", lambda: truncate(times, "1 month")),
        (r"STRANDLINE_SUMMARY_INVALID.*names no coordinate to move.*epoch, iter", lambda: advance(pairs, 1)),
        (r"STRANDLINE_SUMMARY_INVALID.*'x'.*epoch, iter", lambda: advance(pairs, 1, "x")),
        (r"STRANDLINE_SUMMARY_INVALID.*scalar time has none", lambda: advance(times, "1 day", "x")),
        (r"STRANDLINE_SUMMARY_INVALID.*unit of 0", lambda: truncate(pairs, 0, "iter")),
        (r"STRANDLINE_SUMMARY_INVALID.*in addition to those of", lambda: advance(pairs, {"iter": 1}, "epoch")),
        (r"STRANDLINE_SUMMARY_INVALID.*no coordinates", lambda: project(times, "x")),
        (r"STRANDLINE_SUMMARY_INVALID.*may move back.*tick, stratum", lambda: project(scope, ["tick", "iter"])),
        (r"STRANDLINE_SUMMARY_INVALID.*'epoch', 'epoch'", lambda: project(pairs, ["epoch", "epoch"])),
        (r"STRANDLINE_TIME_OVERFLOW.*18446744073709551616|STRANDLINE_DELAY_INVALID", lambda: advance(pairs, 2**64, "iter")),
        (r"STRANDLINE_TIME_DOMAIN_INVALID.*two coordinates with one name", lambda: enter(pairs, "Iter")),
        (r"STRANDLINE_TIME_DOMAIN_INVALID.*'a b' is not a coordinate name", lambda: enter(pairs, "a b")),
        (r"STRANDLINE_SUMMARY_INVALID.*do not enter product\(a int64, b int64\)", lambda: enter(pairs, domain="product(a, b)")),
        (r"STRANDLINE_SUMMARY_INVALID.*do not enter lex", lambda: enter(pairs, domain="lex(epoch, iter, n)")),
        (r"STRANDLINE_TIME_COLUMN_MISSING.*no column 'x'", lambda: advance(pairs, 1, "iter", column="x")),
        (r"STRANDLINE_TIME_COLUMN_MISSING.*key is not a time", lambda: advance(pairs, 1, "iter", column="key")),
        (r"STRANDLINE_TIME_COLUMN_AMBIGUOUS.*time, at", lambda: advance(pairs.withColumn("at", F.col("time")), 1, "iter")),
    ]
    for message, call in cases:
        with pytest.raises(StrandlineError, match=message):
            call()
    tiny = spark.createDataFrame([], "time tinyint").select(F.col("time").alias("time", metadata=domain_metadata("int8")))
    with pytest.raises(StrandlineError, match="STRANDLINE_TIME_OVERFLOW"):
        advance(tiny, 256)
    assert advance(pairs, 0, "iter") is pairs
    assert truncate(times, "1 microsecond") is times
    assert project(pairs, ["iter", "epoch"]) is pairs
    assert enter(pairs, domain=PAIR) is pairs
    for both in ({}, {"coordinate": "j", "domain": PAIR}):
        with pytest.raises(TypeError, match="either a coordinate"):
            enter(pairs, **both)


def test_a_time_that_leaves_its_domain_stops_the_query(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", parse_domain("int8"), producers=("a",))
    say(channel, "a", (126, 1), then=[100])
    with pytest.raises(
        StreamingQueryException, match=r"STRANDLINE_TIME_OVERFLOW\] A row's time 126, moved by 5, is outside int8"
    ):
        run(advance(stream(spark, tmp_path / "in"), 5), tmp_path / "out", tmp_path / "checkpoint")
    assert not Channel.exists(tmp_path / "out") or contents(tmp_path / "out") == []


@pytest.mark.drawn
def test_what_has_left_a_loop_enters_it_again(spark: Any, tmp_path: Path, play: Callable[[Any], Playing]) -> None:
    """The count of each epoch beside the epoch's first rows, in the times inside."""
    channel = make_channel(tmp_path / "in", PAIR, producers=("a",))
    rows = stream(spark, tmp_path / "in")
    counted = project(rows, "epoch").groupBy("time").agg(F.sum("n").alias("all")).select(F.col("time").alias("t"), "all")
    inside = enter(counted, domain=PAIR, column="t")
    playing = play(rows.join(inside, rows.time == inside.t).select("time", "n", "all"))
    say(channel, "a", ((1, 0), 1), ((1, 4), 2), ((2, 0), 4), then=[(1, 5), (2, 0)])
    assert playing.added() == []
    assert playing.frontier == [[1, 0]]
    say(channel, "a", then=[(2, 1)])
    assert playing.added() == [{"time": {"epoch": 1, "iter": 0}, "n": 1, "all": 3}]
    assert playing.frontier == [[2, 0]]
    say(channel, "a", ((2, 1), 8), then=[])
    assert playing.added() == [{"time": {"epoch": 2, "iter": 0}, "n": 4, "all": 12}]
    assert playing.frontier == []


def test_a_session_without_the_extension_says_so(spark: Any, pairs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_strandline.operators.time_functions._FUNCTION", "no_such_function")
    with pytest.raises(StrandlineError, match="STRANDLINE_EXTENSION_MISSING"):
        advance(pairs, 1, "iter")


@pytest.mark.drawn
def test_the_example_of_the_page_prints_what_it_says(spark: Any, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "moving-times.md").read_text()
    [(code, said)] = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", page, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code.replace("FOLDER", repr(str(tmp_path))), {"spark": spark})  # noqa: S102 - the page's own lines
    assert printed.getvalue().split() == said.split()
