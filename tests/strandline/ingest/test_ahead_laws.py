"""The law of ``maxAhead``, for each form of time: a parked row joins in the commit whose frontier comes near, none is lost.

The specification beside it goes row by row, and knows no files.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest_bench import Bench
from strandline.channel import Channel
from strandline.ingest import bounded, drop_partitions, ordered, release_parked, status
from strandline.ingest.names import PARKED
from strandline.ingest.parked import lists
from strandline.ingest.parked.lists import ParkedLists
from strandline.ingest.parked.parcel import first_coordinate
from strandline.ingest.state.parked_state import ParkedState
from strandline.report import verify
from strandline.time.arrow import arrow_type
from strandline.time.domain import Time, TimeDomain, parse_domain

FAR = 1 << 61
FORMS = [
    *("int64", "int8", "timestamp", "product(a int64, b int64)", "lex(a int64, b int64)", "lex(a timestamp, b int8, c int64)"),
    *("product(a timestamp, b timestamp)", "product(a int64, b lex(x, y))", "lex(a int32, b product(x, y))"),
    "product(a timestamp, b product(x timestamp, y product(z int64, u int64)))",
]
NAMES = ["x", "y", "z"]


@st.composite
def stories(draw: st.DrawFn) -> tuple[TimeDomain, bool, list[tuple[int | None, list[tuple[Time, str]]]], str]:
    """A domain, whether the channel takes corrections, batches with their ``maxAhead``, and how it ends."""
    domain = parse_domain(draw(st.sampled_from(FORMS)))
    least, most = (first_coordinate(time) for time in (domain.minimum, domain.maximum))
    base = draw(st.sampled_from([0, least, most - 60])) if most > 127 else draw(st.sampled_from([least, most - 60]))
    clock = dict.fromkeys(NAMES, base)
    speed = {name: draw(st.sampled_from([0, 1, 5, 25])) for name in NAMES}

    def of(part: TimeDomain, first: int | None = None) -> Time:
        if part.coordinates:
            inner = [each for _, each in part.coordinates]
            return (of(inner[0], first), *(of(each) for each in inner[1:]))
        return first if first is not None else draw(st.sampled_from([part.minimum, 0, 1, 2, 3, part.maximum]))

    batches = []
    ahead = draw(st.sampled_from([0, 3, 40]))
    for _ in range(draw(st.integers(2, 7))):
        rows = []
        for name in NAMES:
            for _ in range(draw(st.sampled_from([0, 1, 3]))):
                clock[name] = min(most, clock[name] + draw(st.integers(0, speed[name])))
                rows.append((of(domain, max(least, clock[name] - draw(st.integers(0, 3)))), name))
        ahead = draw(st.sampled_from([ahead, ahead, 0, 1, 7, 300, None, FAR]))
        batches.append((ahead, rows))
    return domain, draw(st.booleans()), batches, draw(st.sampled_from(["off", "release", "drop", "near"]))


def bench_of(path: Path, domain: TimeDomain, batch: int, ahead: int | None, corrections: bool, policy: Any) -> Bench:
    schema = pa.schema([("t", arrow_type(domain)), ("p", pa.string()), ("n", pa.int64())])
    bench = Bench(
        path,
        policy,
        schema,
        domain=str(domain),
        partitions=NAMES,
        max_ahead=duration(domain, ahead),
        corrections=corrections,
        max_future=None,
    )
    bench.batch = batch
    return bench


def duration(domain: TimeDomain, units: int | None) -> Any:
    """A distance in units of the first coordinate, as the settings want it."""
    timestamps = domain.leaves()[0][1].name == "timestamp"
    return f"{units} microseconds" if timestamps and units is not None else units


def value(domain: TimeDomain, time: Time) -> Any:
    """What Arrow makes a time of."""
    parts = domain.coordinates
    return {name: value(part, t) for (name, part), t in zip(parts, time, strict=True)} if parts else time


def taken(path: str) -> set[int]:
    return set(Channel.open(path).read(columns=["n"])["n"].to_pylist())


def waiting(path: str) -> list[tuple[Time, Time, set[int]]]:
    """The parcels that wait: least and greatest time, and the rows."""
    channel = Channel.open(path)
    known = channel.producers.get(PARKED)
    parcels = [] if known is None else ParkedLists(path).waiting(ParkedState.of(PARKED, known), channel.domain).parcels
    return [
        (each.least, each.greatest, set(channel.read_files(list(each.files))["n"].to_pylist()))
        for each in parcels
    ]  # fmt: skip


def held_first(channel: Channel) -> int | None:
    """The least first coordinate that a partition holds."""
    firsts = [first_coordinate(t) for name, s in channel.producers.items() if not name.startswith("strandline:") for t in s.holds]
    return min(firsts, default=None)


def tell(story: tuple[TimeDomain, bool, list[tuple[int | None, list[tuple[Time, str]]]], str], root: Path, late: int) -> None:
    domain, corrections, batches, end = story
    policy = bounded(duration(domain, late)) if late else ordered()
    times: dict[int, Time] = {}
    groups: dict[int, int] = {}  # of the rows that may be parked: the first coordinate at which their parcel begins
    path, near = "", None
    for batch, (ahead, rows) in enumerate(batches):
        numbered = [(value(domain, time), name, len(times) + i) for i, (time, name) in enumerate(rows)]
        times |= {len(times) + i: time for i, (time, _) in enumerate(rows)}
        bench = bench_of(root / "one", domain, batch, ahead, corrections, policy)
        plain = bench_of(root / "plain", domain, batch, None, corrections, policy)
        path = bench.settings.path
        before = set() if not batch else taken(path)
        waited = {} if not batch else {n: least for least, _, who in waiting(path) for n in who}
        bench.run(*numbered, tasks=1)
        plain.run(*numbered, tasks=1)
        channel = bench.channel
        assert channel.frontier.domain == Channel.open(plain.settings.path).domain
        now, whole, parcels = taken(path), taken(plain.settings.path), waiting(path)
        rest = {n for _, _, who in parcels for n in who}
        # None is lost, none is twice, none is late because another one waits.
        assert now | rest == whole
        assert not now & rest
        assert before <= now
        assert status(path).parked_rows == len(rest)
        first = held_first(channel)
        near = None if ahead is None or first is None else first + ahead
        for least, greatest, who in parcels:
            assert near is not None
            assert first_coordinate(least) > near, "it waits although the frontier is near"
            assert channel.frontier.less_equal(least), "it is behind the frontier"
            assert all(n in waited or n >= len(times) - len(rows) for n in who)
            for n in who:
                groups[n] = first_coordinate(least)
                if not corrections:
                    assert domain.less_equal(least, times[n])
                    assert domain.less_equal(times[n], greatest)
        # What waited before and is in the channel now, has come because the frontier is near.
        for n in now & waited.keys():
            assert near is None or groups[n] <= near, "it joined although the frontier is not near"
            assert first_coordinate(times[n]) >= groups[n]
    assert verify(path).sound
    if end == "off":
        bench_of(root / "one", domain, len(batches), None, corrections, policy).run()
    elif end == "release":
        release_parked(path, take_over=True)
    elif end == "drop":
        drop_partitions(path, [name for name in NAMES if name in Channel.open(path).producers])
    else:
        bench = bench_of(root / "one", domain, len(batches), 0, corrections, ordered())
        bench.run(*((value(domain, domain.maximum), name, 10**6 + i) for i, name in enumerate(NAMES)))
    assert taken(path) - {10**6 + i for i in range(3)} == taken(str(root / "plain" / "channel"))
    assert Counter(Channel.open(path).read(columns=["n"])["n"].to_pylist()).most_common(1)[0][1] == 1 if times else True
    assert status(path).parked_rows == 0
    assert verify(path).sound


@pytest.mark.drawn
@settings(max_examples=6)
@given(story=stories(), late=st.sampled_from([0, 2]), stated=st.sampled_from([0, 1, 16]))
def test_a_parked_row_joins_when_the_frontier_comes_near(story: Any, late: int, stated: int) -> None:
    with tempfile.TemporaryDirectory() as root, mock.patch.object(lists, "_MOST_STATED", stated):
        tell(story, Path(root), late)


@pytest.mark.soak
@settings(max_examples=600)
@given(story=stories(), late=st.sampled_from([0, 2]), stated=st.sampled_from([0, 1, 16]))
def test_many_stories_of_parked_rows(story: Any, late: int, stated: int) -> None:
    with tempfile.TemporaryDirectory() as root, mock.patch.object(lists, "_MOST_STATED", stated):
        tell(story, Path(root), late)
