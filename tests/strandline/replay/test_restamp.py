"""New times of rows that come round: against a specification that tries one instant after the other, anywhere in the domain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import StrandlineError, TimeError
from strandline.replay import CLOCK, ORIGINAL, recorded
from strandline.replay.clock import NodeStart
from strandline.replay.restamp import LinkStamps, Numbered, Numbers, Restamp, Stamper
from strandline.time.arrow import array_of, arrow_type, time_field, times_of
from strandline.time.domain import Time, int64, timestamp

LEAST, LAST = int64.minimum, int64.maximum
LINK, SCHEDULER = -(1 << 61), -(1 << 62)
TASKS = 1 << 16
SCHEMA = pa.schema([time_field("time", CLOCK), ("value", pa.int64()), ("due", pa.timestamp("us", "UTC"))])
WIDE = 12
"""Instants of an example lie in so many microseconds, so that a specification can try them all."""
DUES = st.sampled_from([None, LEAST, LAST])
BASES = st.sampled_from([timestamp.minimum, -5, 1_700_000_000_000_000, timestamp.maximum - 2 * WIDE, timestamp.maximum - WIDE])


def table(originals: list[Time], lag: int, dues: list[int | None] | None = None, chunks: int = 1) -> pa.Table:
    """Rows that leave a loop at times, as the sink has them: the time is that of ``lag`` later, or null if there is none."""
    lagged = [(at[0] + lag, LEAST, LEAST) if at[0] + lag <= timestamp.maximum else None for at in originals]
    kind = arrow_type(CLOCK)
    leaves = [{"instant": None if at is None else at[0], "node": LEAST, "n": LEAST} for at in lagged]
    times = pa.array([None if at is None else leaf for at, leaf in zip(lagged, leaves, strict=True)], kind)
    rows = pa.table(
        {
            "time": times,
            "value": pa.array(range(len(originals)), pa.int64()),
            "due": pa.array(dues or [0] * len(originals), pa.timestamp("us", "UTC")),
            ORIGINAL: array_of(originals, CLOCK),
        },
        schema=recorded(SCHEMA),
    )
    size = max(1, -(-len(originals) // chunks))
    return pa.concat_tables([rows.slice(at, size) for at in range(0, max(1, len(originals)), size)])


def instant_of(link: LinkStamps, original: Time, lagged: int) -> int | None:
    """The instant of a row, by trying one after the other; ``None`` if there is none in the domain.

    It is after ``T``, and no time of the link at it is before the frontier. Among these, ``clock`` takes the first one at which
    the clock is, and ``earliest`` the first one that is at ``T + L``, or at the instant of what comes next from outside.
    """
    begin = original[0] + 1 if link.frontier is None else max(original[0] + 1, link.frontier[0])
    for instant in range(begin, min(begin + 4 * WIDE, timestamp.maximum) + 1):
        if link.frontier is not None and (instant, link.how.node, link.n) < link.frontier:
            continue
        if link.how.by == "clock" and instant < link.now:
            continue
        before_next = link.upcoming is not None and instant >= link.upcoming[0]
        if link.how.by == "earliest" and instant < lagged and not before_next:
            continue
        return instant
    return None


@st.composite
def examples(draw: Any) -> tuple[LinkStamps, list[list[list[Time]]], int]:
    """A link, what its tasks are called with, and the lag. The frontier is what the loop may have: not after any ``T + L``."""
    base, lag = draw(BASES), draw(st.integers(1, WIDE))
    near = st.integers(base, base + WIDE - 1)
    times = st.tuples(near, st.sampled_from([LEAST, SCHEDULER, LINK, LINK + 1, 0, LAST]), st.sampled_from([LEAST, 0, 3, 70_000]))
    calls = st.lists(st.lists(times, max_size=4), min_size=1, max_size=3)
    tasks = draw(st.lists(calls, min_size=1, max_size=3))
    originals = [at for calls in tasks for rows in calls for at in rows]
    start = draw(st.sampled_from([(near, LEAST, LEAST), (near, LINK, 0), (near, LINK, 5), (near, SCHEDULER, 0)]))
    frontier = draw(st.none() | st.tuples(start[0], *map(st.just, start[1:])))
    if frontier is not None and originals:
        frontier = min(frontier, (min(originals)[0] + lag, LEAST, LEAST))
    comes = st.tuples(near, st.sampled_from([LEAST, SCHEDULER, 0]), st.sampled_from([LEAST, 0, 17]))
    upcoming = draw(comes) if draw(st.integers(0, 4)) else None
    way = draw(st.sampled_from(["clock", "earliest", "earliest"]))
    n = draw(st.sampled_from([5, 100_000, 1 << 40]))
    return LinkStamps(Restamp.of(way, draw(st.integers(0, 1))), frontier, upcoming, draw(near), n), tasks, lag


@settings(max_examples=300)
@given(examples(), st.integers(1, 3))
def test_stamps_are_what_the_specification_says(given: tuple[LinkStamps, list[list[list[Time]]], int], chunks: int) -> None:
    link, tasks, lag = given
    found: list[Time] = []
    last = link.n
    for task, calls in enumerate(tasks):
        stamper, of_task, given_numbers = Stamper(link, task, "time"), [], 0
        for rows in calls:
            before = table(rows, lag, chunks=chunks)
            if any(at[0] + lag > timestamp.maximum for at in rows):
                with pytest.raises(TimeError):
                    stamper(before)
                return
            expected = [instant_of(link, at, at[0] + lag) for at in rows]
            assert None not in expected
            after = stamper(before)
            assert after.schema == before.schema
            assert after.drop(["time"]) == before.drop(["time"])
            stamps = times_of(after.column("time"), CLOCK)
            numbers = [link.n + task + TASKS * (given_numbers + i) for i in range(len(rows))]
            assert stamps == [(at, link.how.node, n) for at, n in zip(expected, numbers, strict=True)]
            given_numbers += len(rows)
            for original, stamp in zip(rows, stamps, strict=True):
                assert stamp > original
                assert link.frontier is None or stamp >= link.frontier
                if link.how.by == "earliest":
                    assert stamp[0] - original[0] <= lag  # never more than L behind
            of_task += stamps
        assert stamper.counts == {"n": of_task[-1][2] + 1 if of_task else link.n, "rounded": 0}
        last = max(last, stamper.counts["n"])
        found += of_task
    assert len(set(found)) == len({n for _, _, n in found}) == len(found)
    assert all(n < last for _, _, n in found)  # the next batch begins after them


@settings(max_examples=100)
@given(st.data())
def test_events_come_at_the_instant_that_they_ask_for_or_l_later(data: Any) -> None:
    base, lag = data.draw(BASES), data.draw(st.integers(1, WIDE))
    near = st.integers(base, base + WIDE - 1)
    calls = data.draw(st.lists(st.lists(st.tuples(near, DUES | near), max_size=4), max_size=3))
    link = LinkStamps(Restamp.of("event", 1, "due"), (base, LEAST, LEAST), data.draw(st.none()), base, 9)
    stamper, rounded = Stamper(link, 2, "time"), 0
    for rows in calls:
        given = table([(at, 0, i) for i, (at, _) in enumerate(rows)], lag, [due for _, due in rows], chunks=2)
        if any(due is None or at + lag > timestamp.maximum for at, due in rows):
            with pytest.raises(StrandlineError):
                stamper(given)
            return
        dues = [due for _, due in rows if due is not None]
        rounded += sum(due < at + lag for (at, _), due in zip(rows, dues, strict=True))
        expected = [(max(due, at + lag), SCHEDULER + 1, 0) for (at, _), due in zip(rows, dues, strict=True)]
        assert times_of(stamper(given).column("time"), CLOCK) == expected
    assert stamper.counts == {"n": 9, "rounded": rounded}


def test_a_row_that_needs_an_instant_after_the_last_one_is_refused_by_name() -> None:
    last = timestamp.maximum
    for frontier in ((last, LINK, 6), (last, 0, 0)):
        link = LinkStamps(Restamp.of("earliest", 0), frontier, None, 0, 5)
        with pytest.raises(StrandlineError, match="STRANDLINE_TIME_OVERFLOW"):
            Stamper(link, 0, "time")(table([(last - 9, 0, 0)], 9))
    for way in ("clock", "earliest"):
        link = LinkStamps(Restamp.of(way, 0), None, None, last, 5)
        with pytest.raises(StrandlineError):
            Stamper(link, 0, "time")(table([(last, 0, 0)], 1))
        with pytest.raises(StrandlineError, match="STRANDLINE_TIME_OVERFLOW"):
            link.instants(np.array([last]), np.array([last]))


def test_what_comes_next_at_the_last_instant_is_no_error() -> None:
    last = timestamp.maximum
    for upcoming in ((last, LEAST, LEAST), (last, 0, 17)):
        link = LinkStamps(Restamp.of("earliest", 0), None, upcoming, 0, 5)
        ((instant, _, _),) = times_of(Stamper(link, 0, "time")(table([(last - 9, 0, 0)], 4)).column("time"), CLOCK)
        assert instant == last - 5


def test_a_link_without_numbers_left_says_so() -> None:
    for first, count in ((LAST - TASKS, 2), (LAST - 1, 3), (LAST, 1)):
        with pytest.raises(StrandlineError, match="STRANDLINE_STAMP_NUMBERS"):
            Numbers(first, 0).take(count)
    assert Numbers(LAST - 1, 0).take(1).tolist() == [LAST - 1]
    with pytest.raises(StrandlineError, match="STRANDLINE_STAMP_NUMBERS"):
        Numbered(NodeStart(0, 7, LAST), 0, "time")(table([(1, 0, 0)], 1))
    with pytest.raises(StrandlineError, match="STRANDLINE_STAMP_TASKS"):
        Numbers(0, TASKS)
