"""Loops through several queries, simulated: each sees any prefix of each log, and none is ever early; all come to rest."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import StrandlineError
from strandline.loop import LoopGraph, LoopQuery, QueryState, Rounds, Taken, arrivals_of
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain, int64, lex, product

FLAT = product(epoch="int64", iter="int64")
LEX = lex(epoch="int64", iter="int64")
NESTED = product(epoch="int64", i="int64", j="int64")
OUTER = product(epoch="int64", i="int64")

SHAPES: dict[str, tuple[TimeDomain, dict[str, TimeDomain], dict[str, LoopQuery]]] = {
    "two": (
        FLAT,
        {"in": int64, "asks": FLAT, "labels": FLAT},
        {"ask": LoopQuery(["in", "labels"], {"asks": {}}), "answer": LoopQuery(["asks"], {"labels": {"iter": 1}})},
    ),
    "both from outside": (
        LEX,
        {"in": int64, "more": int64, "asks": LEX, "labels": LEX},
        {
            "ask": LoopQuery(["in", "labels"], {"asks": {"iter": 2}}),
            "answer": LoopQuery(["more", "asks"], {"labels": {"iter": 1}}),
        },
    ),
    "three, and one alone": (
        FLAT,
        {"in": int64, "own": FLAT, "b": FLAT, "c": FLAT, "a": FLAT},
        {
            "A": LoopQuery(["in", "own", "a"], {"own": {"iter": 1}, "b": {}}),
            "B": LoopQuery(["b"], {"c": {}}),
            "C": LoopQuery(["c", "in"], {"a": {"iter": 1}}),
        },
    ),
    "two readers": (
        FLAT,
        {"in": int64, "out": FLAT, "x": FLAT, "y": FLAT, "last": FLAT},
        {
            "A": LoopQuery(["in", "x", "y"], {"out": {}}),
            "B": LoopQuery(["out"], {"x": {"iter": 1}}),
            "C": LoopQuery(["out", "x"], {"y": {"iter": 1}, "last": {}}),
            "D": LoopQuery(["last", "in"], {}),
        },
    ),
    "nested": (
        NESTED,
        {"in": int64, "there": NESTED, "back": NESTED, "outer": OUTER},
        {
            "A": LoopQuery(["in", "back", "outer"], {"there": {}}),
            "B": LoopQuery(["there"], {"back": {"j": 1}, "outer": {"i": 1}}),
        },
    ),
    "to the next epoch": (
        FLAT,
        {"in": int64, "there": FLAT, "back": FLAT, "next": int64},
        {
            "A": LoopQuery(["in", "back"], {"there": {}, "next": {"": 1}}),
            "B": LoopQuery(["there", "next"], {"back": {"iter": 1}}),
        },
    ),
}

Row = tuple[Time, int]
"""A time of the row's channel, and how often the row still goes on."""


@dataclass
class Commit:
    """A commit: rows, and the writer's state as JSON, or the frontier of an outside producer."""

    rows: list[Row]
    states: Any


class World:
    """The logs, and what comes from outside."""

    def __init__(self, seed: int, shape: str) -> None:
        self.random = random.Random(seed)
        domain, channels, queries = SHAPES[shape]
        self.graph = LoopGraph(domain, channels, queries)
        self.logs: dict[str, list[Commit]] = {name: [] for name in channels}
        self.epochs = {name: 0 for name in channels if self.graph.is_outside(name)}
        self.left = {name: self.random.randint(1, 4) for name in self.epochs}
        self.idle = 0
        self.queries = {name: Query(self, name) for name in queries}

    def send(self, channel: str) -> None:
        """Make a commit from outside."""
        if self.left[channel]:
            self.left[channel] -= 1
            epoch = self.epochs[channel]
            rows = [(epoch, self.random.randint(0, 6)) for _ in range(self.random.randint(0, 3))]
            self.epochs[channel] += self.random.randint(0, 2)
            self.logs[channel].append(Commit(rows, self.epochs[channel]))


class Query:
    """A query: an operator keeps rows until their time is closed, or passes them on at once."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.graph, self.random = world, name, world.graph, world.random
        self.reads = self.graph.queries[name].reads
        self.rounds = Rounds(Antichain.least(self.graph.domain))
        self.positions = dict.fromkeys(self.reads, 0)
        self.consumed = {channel: 0 for channel in self.reads if not self.graph.is_outside(channel)}
        self.seen = dict.fromkeys(self.graph.writer, 0)
        self.kept: list[Row] = []
        self.closed: Counter[Time] = Counter()
        self.limit = self.random.choice([None, None, 1, 2])
        self.is_lazy = self.random.random() < 0.5
        self.most = self.random.choice([1, 2, 1024])  # how many pending times are kept one by one
        self.states_ranges = self.random.random() < 0.5
        self.committing: Iterator[None] | None = None

    def step(self) -> bool:
        """Go on by one commit, or plan a batch. Returns whether something happened."""
        if self.committing is not None:
            if next(self.committing, self) is self:
                self.committing = None
            return True
        return self.batch()

    def others(self) -> Iterator[tuple[str, Time]]:
        """Yield what may come because of other queries, by what this query has seen of each log. It sees all of its own."""
        logs, graph = self.world.logs, self.graph
        for channel in self.seen:
            is_all = graph.writer[channel] == self.name or self.world.idle > 50
            self.seen[channel] = len(logs[channel]) if is_all else self.random.randint(self.seen[channel], len(logs[channel]))
        states = {}
        for other in graph.queries:
            if other != self.name:
                found = []
                for channel in graph.ways(other):
                    stated = [commit.states for commit in logs[channel][: self.seen[channel]] if commit.states is not None]
                    unknown = QueryState.unknown(graph, other)
                    found.append(QueryState.from_json(graph, other, json.loads(stated[-1])) if stated else unknown)
                if found:
                    states[other] = found[0]
                    for each in found[1:]:
                        states[other] = states[other].meet(each)
        rows = {
            channel: [
                (version, [graph.entries[channel].time(time) for time, _ in commit.rows])
                for version, commit in enumerate(logs[channel][: self.seen[channel]])
                if commit.rows
            ]
            for channel in self.seen
        }
        return arrivals_of(graph, states, rows)

    def batch(self) -> bool:
        graph, logs, begin = self.graph, self.world.logs, self.rounds
        taken: list[Row] = []
        positions, consumed, may = dict(self.positions), dict(self.consumed), self.limit
        for channel in self.random.sample(self.reads, len(self.reads)):
            while positions[channel] < len(logs[channel]) and may != 0:
                rows = logs[channel][positions[channel]].rows
                positions[channel] += 1
                if rows:
                    may = None if may is None else may - 1
                    taken += [(graph.entries[channel].time(time), left) for time, left in rows]
                    if channel in consumed:
                        consumed[channel] = positions[channel]
        outside = [time for c in self.reads if graph.is_outside(c) for time in self.outside(c, positions[c])]
        waiting = [
            graph.entries[channel].time(time)
            for channel, at in consumed.items()
            for commit in logs[channel][at:]
            for time, _ in commit.rows
        ]
        stamps = self.stamps([time for time, _ in taken])
        self.rounds = begin.after(graph, self.name, stamps, outside, waiting, self.others(), most=self.most)
        if self.rounds.frontier == begin.frontier and not taken:
            self.rounds = begin
            return False
        held = self.rounds.held(graph, self.name)
        consumed = {channel: positions[channel] for channel in consumed}
        self.positions, self.consumed = positions, consumed
        assert begin.frontier.dominates(self.rounds.frontier), f"the frontier of {self.name} went back"
        for time, _ in taken:
            assert begin.frontier.less_equal(time), f"{time} came to {self.name} behind {begin.frontier}"
        state = QueryState(Antichain(graph.domain, outside), consumed, held).to_json()
        self.committing = self.commit(self.operate(taken), json.dumps(state))
        return True

    def stamps(self, times: list[Time]) -> list[Taken]:
        """Return the times as commits state them: one by one, or as ranges of those of one round."""
        domain = self.graph.domain
        rounds: dict[Time, list[Time]] = {}
        for time in times if self.states_ranges else ():
            rounds.setdefault(time[1:], []).append(time)
        spans = [Taken(reduce(domain.meet, each), reduce(domain.join, each)) for each in rounds.values()]
        if not spans or any(span.is_range and self.graph.holds_itself(self.name, span) for span in spans):
            return [Taken(time, time) for time in times]
        return spans

    def outside(self, channel: str, position: int) -> Antichain:
        before = self.world.logs[channel][:position]
        outer = self.graph.entries[channel].outer
        return self.graph.entries[channel].antichain(Antichain(outer, [before[-1].states if before else outer.minimum]))

    def operate(self, taken: list[Row]) -> dict[str, list[Row]]:
        frontier, emitted = self.rounds.frontier, []
        for row in taken:
            (emitted if self.is_lazy and self.random.random() < 0.5 else self.kept).append(row)
        closing = [row for row in self.kept if frontier.closed(row[0])]
        self.kept = [row for row in self.kept if not frontier.closed(row[0])]
        for time in {time for time, _ in closing}:
            self.closed[time] += 1
            assert self.closed[time] == 1, f"{time} was closed twice in {self.name}"
        ways = self.graph.ways(self.name)
        out: dict[str, list[Row]] = {channel: [] for channel in ways}
        for time, left in [*emitted, *closing]:
            for _ in range(self.random.choice([0, 1, 1, 2]) if left and ways else 0):
                channel = self.random.choice(list(ways))
                result = ways[channel].results_in(time)
                assert result is not None
                out[channel].append((self.leave(channel, result), left - 1))
        return out

    def leave(self, channel: str, time: Time) -> Time:
        """Return the channel's own time of a time that has just entered from it."""
        outer = self.graph.entries[channel].outer
        return time if outer == self.graph.domain else time[0] if outer == int64 else time[: len(outer.coordinates)]

    def commit(self, out: dict[str, list[Row]], state: str) -> Iterator[None]:
        """Make one commit in each channel, one after the other. Others go on in between."""
        for channel in self.random.sample(list(out), len(out)):
            log = self.world.logs[channel]
            if out[channel] or not log or log[-1].states != state:
                log.append(Commit(out[channel], state))
            yield


def run(seed: int, shape: str) -> World:
    """Let queries and outside producers take turns until nothing happens any more."""
    world = World(seed, shape)
    weights = [world.random.choice([1, 5]) for _ in world.queries]
    for _ in range(50_000):
        if world.random.random() < 0.2:
            world.send(world.random.choice(list(world.epochs)))
        queries = list(world.queries.values())
        query = queries[world.idle % len(queries)] if world.idle > 50 else world.random.choices(queries, weights)[0]
        world.idle = 0 if query.step() else world.idle + 1
        if world.idle > 100 and not any(world.left.values()):
            return world
    raise AssertionError("the loop did not come to rest")


@pytest.mark.drawn
@pytest.mark.parametrize("shape", SHAPES)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_no_query_is_early_and_all_come_to_rest(shape: str, seed: int) -> None:
    world = run(seed, shape)
    graph = world.graph
    outside = [
        (name, graph.entries[channel].time(epoch))
        for channel, epoch in world.epochs.items()
        for name, query in graph.queries.items()
        if channel in query.reads
    ]
    for name, query in world.queries.items():
        for channel, at in query.positions.items():
            assert not any(commit.rows for commit in world.logs[channel][at:]), "rows were left"
        assert query.rounds.frontier == graph.frontier(name, outside)
        assert not any(query.rounds.frontier.closed(time) for time, _ in query.kept)


def graph() -> LoopGraph:
    return LoopGraph(*SHAPES["two"])


def test_the_last_times_of_a_query_lead_around_no_way() -> None:
    domain, channels, queries = SHAPES["two"]
    graph = LoopGraph(domain, channels, queries)
    assert LoopGraph.from_json(json.loads(json.dumps(graph.to_json()))).to_json() == graph.to_json()
    last = 2**63 - 1
    for query in queries:
        assert [graph.is_last(query, time) for time in ((3, 0), (3, last - 1), (3, last))] == [False, False, True]
    assert graph.is_last_in("asks", "ask", (3, last))
    assert not graph.is_last_in("asks", "ask", (3, last - 1))
    domain, channels, queries = SHAPES["two readers"]
    graph = LoopGraph(domain, channels, queries)
    assert not graph.is_last_in("last", "C", (3, last)), "nothing leads back from this channel at any time"
    assert not graph.is_last("D", (3, last)), "a query that is on no way around has no last time"
    domain, channels, queries = SHAPES["nested"]
    graph = LoopGraph(domain, channels, queries)
    assert [graph.is_last("A", (3, *at)) for at in ((last, 0), (0, last), (last, last))] == [False, False, True]


def test_a_query_that_has_not_begun_closes_nothing() -> None:
    states = {"answer": QueryState.unknown(graph(), "answer"), "ask": QueryState.unknown(graph(), "ask")}
    least = Antichain.least(FLAT)
    assert graph().frontier("answer", arrivals_of(graph(), states, {"asks": [], "labels": []})) == least


def test_states_are_read_back_and_checked() -> None:
    state = QueryState(Antichain(FLAT, [(3, 0)]), {"labels": 4}, {"asks": Antichain(FLAT, [(1, 2), (2, 0)])})
    text = json.loads(json.dumps(state.to_json()))
    assert QueryState.from_json(graph(), "ask", text) == state
    later = QueryState(Antichain(FLAT, [(5, 0)]), {"labels": 7}, {"asks": Antichain(FLAT, [(2, 0)])})
    assert state.meet(later) == later.meet(state) == state
    for damage in ({"outside": 3}, {"consumed": {}}, {"consumed": {"labels": -1}}, {"consumed": {"labels": True}}):
        with pytest.raises((ValueError, StrandlineError)):
            QueryState.from_json(graph(), "ask", {**text, **damage})
    for damage in ({"held": {"asks": [[1]]}}, {"held": {"labels": []}}, {"held": None}):
        with pytest.raises((ValueError, StrandlineError)):
            QueryState.from_json(graph(), "ask", {**text, **damage})


@pytest.mark.parametrize(
    ("queries", "condition"),
    [
        ({"a": LoopQuery(["x"], {"y": {}}), "b": LoopQuery(["y"], {"x": {}})}, "STRANDLINE_GRAPH_CYCLE.*a → b → a|b → a → b"),
        ({"a": LoopQuery(["x"], {"x": {}})}, "STRANDLINE_GRAPH_CYCLE.*a → a"),
        (
            {"a": LoopQuery(["x"], {"y": {"iter": 1}}), "b": LoopQuery(["x"], {"y": {}})},
            "STRANDLINE_SCOPE_TWO_WRITERS.*channel y",
        ),
        ({"a": LoopQuery(["x"], {"z": {"iter": 1}})}, "STRANDLINE_SCOPE_CHANNEL_UNKNOWN.*'z'"),
        ({"a": LoopQuery([], {"x": {"iter": 1}})}, "STRANDLINE_SCOPE_QUERY_INVALID"),
        ({"a": LoopQuery(["x", "x"], {"x": {"iter": 1}})}, "STRANDLINE_SCOPE_QUERY_INVALID"),
        ({"a": LoopQuery(["x"], {"outer": {}})}, "STRANDLINE_SUMMARY_INVALID"),
        ({"a": LoopQuery(["x"], {"x": {"round": 1}})}, "STRANDLINE_SUMMARY_INVALID"),
    ],
)
def test_what_is_no_loop_is_refused(queries: dict[str, LoopQuery], condition: str) -> None:
    with pytest.raises(StrandlineError, match=condition):
        LoopGraph(FLAT, {"x": FLAT, "y": FLAT, "outer": int64}, queries)
