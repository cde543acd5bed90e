"""Loops as Spark runs them, simulated batch by batch: never early, each time once, always at rest."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import StrandlineError, SummaryError
from strandline.loop import LoopGraph, LoopQuery, Rounds, Taken
from strandline.loop.way import Way
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain, int64, lex, product, timestamp
from strandline.time.path.entry import Entry

FLAT = product(epoch="int64", iter="int64")
LEX = lex(epoch="int64", iter="int64")
NESTED = product(epoch="int64", i="int64", j="int64")
LOOPS: dict[str, tuple[TimeDomain, list[tuple[TimeDomain, dict[str, int]]]]] = {
    "one": (FLAT, [(FLAT, {"iter": 1})]),
    "lex": (LEX, [(LEX, {"iter": 1})]),
    "two": (FLAT, [(FLAT, {"iter": 1}), (FLAT, {"iter": 2})]),
    "nested": (NESTED, [(NESTED, {"j": 1}), (product(epoch="int64", i="int64"), {"i": 1})]),
    "to the next epoch": (FLAT, [(FLAT, {"iter": 1}), (int64, {"": 1})]),
    "three": (NESTED, [(NESTED, {"j": 1}), (product(epoch="int64", i="int64"), {"i": 1}), (int64, {"": 2})]),
}


def graph_of(loop: str) -> LoopGraph:
    """Return the graph of a loop with one query."""
    domain, channels = LOOPS[loop]
    back = {str(number): each for number, each in enumerate(channels)}
    query = LoopQuery(["in", *back], {name: by for name, (_, by) in back.items()})
    return LoopGraph(domain, {"in": int64, **{name: outer for name, (outer, _) in back.items()}}, {"q": query})


ONE = graph_of("one")


class Query:
    """A query with one or two operators in a chain that keep rows until their time is closed, and its channels."""

    def __init__(self, seed: int, loop: str) -> None:
        self.random = random.Random(seed)
        self.graph = graph_of(loop)
        self.domain = self.graph.domain
        self.summaries = list(self.graph.ways("q").values())
        self.rounds = Rounds(Antichain.least(self.domain))
        self.outside: list[tuple[Time, int]] = []  # rows to come: an outer time, and how often its row goes round
        for epoch in range(self.random.randint(1, 4)):
            self.outside += [(epoch, self.random.randint(0, 6)) for _ in range(self.random.randint(0, 3))]
        self.epoch = 0
        self.waiting: list[list[tuple[Time, int]]] = [[] for _ in self.summaries]
        self.kept: list[tuple[Time, int]] = []
        self.chained: list[tuple[Time, int]] = []
        self.closed: Counter[Time] = Counter()
        self.limit = self.random.choice([None, 1, 2])
        self.is_lazy = self.random.random() < 0.5  # an operator that emits rows as they come, such as dropDuplicates
        self.has_second = self.random.random() < 0.5
        self.most = self.random.choice([1, 2, 1024])  # how many pending times are kept one by one
        self.entry = Entry(int64, self.domain)

    def batch(self) -> bool:
        """Run one batch. Returns whether there was one."""
        begin = self.rounds
        taken, may = [], self.limit
        for channel in self.random.sample(self.waiting, len(self.waiting)):
            count = len(channel) if may is None else min(may, len(channel))
            may = None if may is None else may - count
            taken += channel[:count]
            del channel[:count]
        came = [row for row in self.outside if self.random.random() < 0.5 and row[0] == self.epoch]
        for row in came:
            self.outside.remove(row)
            taken.append((self.entry.time(row[0]), row[1]))
        if not any(row[0] == self.epoch for row in self.outside) and self.epoch < 5 and self.random.random() < 0.6:
            self.epoch += 1
        outside = [self.entry.time(self.epoch)]
        waiting = [time for channel in self.waiting for time, _ in channel]
        self.rounds = begin.after(self.graph, "q", [Taken(time, time) for time, _ in taken], outside, waiting, most=self.most)
        if self.rounds.frontier == begin.frontier and not taken:
            return False
        assert begin.frontier.dominates(self.rounds.frontier), "the frontier went back"
        for time, _ in taken:
            assert begin.frontier.less_equal(time), f"{time} came behind {begin.frontier}"
        self.operate(taken)
        return True

    def operate(self, taken: list[tuple[Time, int]]) -> None:
        emitted = []
        for row in taken:
            if self.is_lazy and self.random.random() < 0.5:
                emitted.append(row)
            else:
                self.kept.append(row)
        frontier = self.rounds.frontier
        closing = [row for row in self.kept if frontier.closed(row[0])]
        self.kept = [row for row in self.kept if not frontier.closed(row[0])]
        for time in {time for time, _ in closing}:
            self.closed[time] += 1
            assert self.closed[time] == 1, f"{time} was closed twice"
        emitted += closing
        if self.has_second:  # by the same time: it closes in the same batch, or later if rows came through before
            self.chained += emitted
            emitted = [row for row in self.chained if frontier.closed(row[0])]
            self.chained = [row for row in self.chained if not frontier.closed(row[0])]
        for time, left in emitted:
            for _ in range(self.random.choice([0, 1, 1, 2]) if left else 0):
                way = self.random.randrange(len(self.summaries))
                result = self.summaries[way].results_in(time)
                assert result is not None
                self.waiting[way].append((result, left - 1))


@pytest.mark.drawn
@pytest.mark.parametrize("loop", LOOPS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_a_loop_is_never_early_and_comes_to_rest(loop: str, seed: int) -> None:
    query = Query(seed, loop)
    idle = 0
    for _ in range(5000):
        idle = 0 if query.batch() else idle + 1
        if idle > 60 and not query.outside:
            break
    else:
        pytest.fail("the loop did not come to rest")
    assert not any(query.waiting)
    assert all(
        query.rounds.frontier.less_equal(one.high) for one in query.rounds.pending
    )  # what comes from outside may join them
    assert query.rounds.frontier == Antichain(query.domain, [query.entry.time(query.epoch)])
    assert all(time[0] >= query.epoch for time, _ in [*query.kept, *query.chained])


@given(
    times=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), max_size=4),
    loop=st.sampled_from(sorted(LOOPS)),
)
def test_what_may_come_is_all_that_many_ways_around_lead_to(times: list[Time], loop: str) -> None:
    graph = graph_of(loop)
    summaries = list(graph.ways("q").values())
    start = {time[: len(graph.domain.coordinates)] for time in times}
    seen, left = set(start), list(start)
    for _ in range(6):  # further ways lead only to times after these, in the cube that is looked at
        left = [r for time in left for s in summaries if (r := s.results_in(time)) is not None and r not in seen]
        seen |= set(left)
    found = graph.frontier("q", [("q", time) for time in start])
    assert all(found.less_equal(time) for time in seen)
    assert set(found) <= seen


def test_the_second_epoch_goes_on_while_the_first_one_still_loops() -> None:
    rounds = Rounds(Antichain.least(FLAT)).after(ONE, "q", [Taken((0, 0), (0, 0)), Taken((1, 0), (1, 0))], [(2, 0)], [])
    for i in range(1, 5):
        assert rounds.frontier == Antichain(FLAT, [(0, i), (2, 0)])
        assert rounds.frontier.closed((1, i - 1))
        assert not rounds.frontier.closed((1, i))  # what epoch 0 does at i may change it
        rounds = rounds.after(ONE, "q", [Taken((0, i), (0, i)), Taken((1, i), (1, i))], [(2, 0)], [])


def test_ranges_count_until_their_end_is_closed() -> None:
    domain = product(at="timestamp", iter="int64")
    graph = LoopGraph(domain, {"in": domain, "back": domain}, {"q": LoopQuery(["in", "back"], {"back": {"iter": 1}})})
    first = Rounds(Antichain.least(domain)).after(graph, "q", [Taken((10, 0), (50, 0))], [(30, 0)], [])
    assert set(first.frontier) == {(10, 1), (30, 0)}
    assert set(first.after(graph, "q", [], [(51, 0)], []).frontier) == {(30, 1), (51, 0)}  # (29, 0) was closed before
    assert set(first.after(graph, "q", [], [(51, 0)], []).after(graph, "q", [], [(51, 0)], []).frontier) == {(51, 0)}
    with pytest.raises(StrandlineError, match="STRANDLINE_LOOP_TIMES_UNKNOWN"):
        first.after(graph, "q", [Taken((10, 1), (50, 4))], [(51, 0)], [])


def test_a_range_to_the_last_time_of_the_loop_is_refused() -> None:
    with pytest.raises(StrandlineError, match="STRANDLINE_LOOP_TIMES_UNKNOWN"):
        Rounds(Antichain.least(FLAT)).after(ONE, "q", [Taken((0, 0), (5, 2**63 - 1))], [(9, 0)], [])


@given(
    loop=st.sampled_from(sorted(LOOPS)),
    ends=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=2),
    frontier=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)), max_size=4),
)
def test_what_a_range_may_cause_is_what_its_open_times_may_cause(
    loop: str, ends: list[tuple[int, int, int]], frontier: list[tuple[int, int, int]]
) -> None:
    """The specification: look at every time within the range by itself."""
    graph = graph_of(loop)
    domain, size = graph.domain, len(graph.domain.coordinates)
    one, other = (time[:size] for time in ends)
    span = Taken(domain.meet(one, other), domain.join(one, other))
    front = Antichain(domain, [time[:size] for time in frontier])
    cube = itertools.product(range(6), repeat=size)
    inside = [t for t in cube if domain.less_equal(span.low, t) and domain.less_equal(t, span.high)]
    for way in graph.ways("q").values():
        still = [Taken(time, time) for time in inside if Taken(time, time).is_open(way, front)]
        assert bool(still) == span.is_open(way, front)
        if still and span.is_range:
            assert set(span.results(way, front)) == set(Antichain(domain, [way.results_in(each.low) for each in still]))


@pytest.mark.drawn
@pytest.mark.parametrize("loop", ["one", "two", "nested", "lex", "to the next epoch"])
def test_many_open_times_are_kept_as_ranges_where_these_do_not_wait_for_themselves(loop: str) -> None:
    """An outer time stays open while thousands come. Then it closes step by step, and all rows go round."""
    graph, most = graph_of(loop), 16
    never = loop in ("lex", "to the next epoch")
    count = 40 if never else 600
    entry = Entry(int64, graph.domain)
    few = many = Rounds(Antichain.least(graph.domain))
    sizes = []
    for first in range(0, count, 20):
        taken = [Taken(entry.time(3 * epoch), entry.time(3 * epoch)) for epoch in range(first, first + 20)]
        few = few.after(graph, "q", taken, [entry.time(0)], [], most=most)
        many = many.after(graph, "q", taken, [entry.time(0)], [])
        assert few.frontier == many.frontier
        sizes.append(len(few.pending))
    assert len(many.pending) == count
    assert max(sizes) == (count if never else most)
    for outside in (7, 8, 100, 3 * count):
        few, many = (rounds.after(graph, "q", [], [entry.time(outside)], [], most=most) for rounds in (few, many))
        assert few.frontier.dominates(many.frontier)
        for _ in range(2 * count if never else 3):
            few, many = (rounds.after(graph, "q", [], [entry.time(outside)], [], most=most) for rounds in (few, many))
        assert few.frontier == many.frontier
        assert few.frontier == Antichain(graph.domain, [entry.time(outside)])


def test_ranges_behind_a_way_that_changes_no_time_are_counted() -> None:
    """The other query advances times, so nothing that the range causes comes back into it."""
    queries = {"ask": LoopQuery(["in", "labels"], {"asks": {}}), "answer": LoopQuery(["asks"], {"labels": {"iter": 1}})}
    graph = LoopGraph(FLAT, {"in": int64, "asks": FLAT, "labels": FLAT}, queries)
    first = Rounds(Antichain.least(FLAT)).after(graph, "ask", [Taken((0, 0), (2000, 0))], [(1000, 0)], [])
    assert set(first.frontier) == {(0, 1), (1000, 0)}
    assert first.held(graph, "ask") == {"asks": Antichain(FLAT, [(1000, 0)])}
    second = first.after(graph, "ask", [], [(3000, 0)], [])
    assert set(second.frontier) == {(1000, 1), (3000, 0)}
    assert not second.held(graph, "ask")["asks"]
    with pytest.raises(StrandlineError, match="STRANDLINE_LOOP_TIMES_UNKNOWN"):
        first.after(graph, "ask", [Taken((0, 0), (2000, 4))], [(1000, 0)], [])


def test_pending_times_are_read_back() -> None:
    rounds = Rounds(Antichain(FLAT, [(0, 1)]), (Taken((0, 0), (0, 0)), Taken((1, 0), (4, 0))))
    assert Rounds.from_json(rounds.frontier, rounds.to_json()) == rounds
    for damaged in (None, [[]], [[[0, 1], [0, 0]]], [[3]], [[[0, 0], [0, 0], [0, 0]]]):
        with pytest.raises((ValueError, StrandlineError)):
            Rounds.from_json(rounds.frontier, damaged)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        (FLAT, int64),
        (int64, timestamp),
        (int64, product(a="int64", at="timestamp")),
        (LEX, FLAT),
        (int64, product(a="int32", b="int64")),
    ],
)
def test_times_of_another_shape_do_not_enter(outer: TimeDomain, inner: TimeDomain) -> None:
    with pytest.raises(SummaryError, match="do not enter"):
        Entry(outer, inner)


@pytest.mark.parametrize("by", [{}, {"iter": 0}, {"round": 1}, {"iter": -1}, {"iter": 2**64}])
def test_a_feedback_must_advance(by: dict[str, int]) -> None:
    with pytest.raises(SummaryError):
        Way.of(Entry(FLAT, FLAT), by)


def test_entries_of_nested_domains() -> None:
    inner = lex(outer=product(at="timestamp", i="int64"), j="int64", k=product(a="int64", b="int64"))
    entry = Entry(timestamp, inner)
    assert entry.time(7) == ((7, 0), 0, (0, 0))
    column = entry.column(pa.array([7], pa.timestamp("us", "UTC")))
    assert column.to_pylist()[0]["k"] == {"a": 0, "b": 0}
    assert Way.of(Entry(product(at="timestamp", i="int64"), inner), {"i": 1}).results_in(((7, 2), 5, (1, 1))) == (
        (7, 3),
        0,
        (0, 0),
    )


def test_pending_times_of_an_inner_loop_do_not_add_up() -> None:
    """Of all inner rounds that lead to the same time of the outer loop, one is enough."""
    graph = graph_of("nested")
    rounds = Rounds(Antichain.least(graph.domain)).after(graph, "q", [Taken((0, 0, 0), (0, 0, 0))], [(1, 0, 0)], [])
    for j in range(1, 50):
        rounds = rounds.after(graph, "q", [Taken((0, 0, j), (0, 0, j))], [(1, 0, 0)], [])
        assert len(rounds.pending) <= 2
        assert set(rounds.frontier) == {(0, 0, j + 1), (0, 1, 0), (1, 0, 0)}
