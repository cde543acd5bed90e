"""A loop whose operators keep nothing of some channels: its frontier passes what nothing waits at, and never too far."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from strandline.loop import LoopGraph, LoopQuery, Rounds, Taken
from strandline.time.antichain import Antichain
from strandline.time.domain import int64, lex

DOMAIN = lex(tick=int64, stratum=int64, iter=int64)
STRATUM = lex(tick=int64, stratum=int64)
CHANNELS = {"in": int64, "round": DOMAIN, "later": STRATUM, "next": int64}
GRAPH = LoopGraph(DOMAIN, CHANNELS, {"q": LoopQuery(CHANNELS, {"round": {"iter": 1}, "later": {"stratum": 1}, "next": {"": 1}})})
PASSING = ("in", "round", "next")
Time = tuple[int, int, int]


class Machine:
    """Rows that cause others: at once by themselves, and the rows of ``later`` once more when their time is closed."""

    def __init__(self, seed: int, limit: int) -> None:
        self.r, self.limit = random.Random(seed), limit
        self.ticks = sorted(self.r.randrange(4) for _ in range(self.r.randrange(1, 7)))
        self.waiting: dict[str, list[Time]] = {name: [] for name in CHANNELS}
        self.kept: set[Time] = set()
        self.rounds = Rounds(Antichain.least(DOMAIN))
        self.closed: list[Time] = []
        self.fuel = 60
        self.batches = 0

    def emit(self, time: Time) -> list[tuple[str, Time]]:
        """The rows that follow from one at a time."""
        tick, stratum, n = time
        found: list[tuple[str, Time]] = []
        for channel, at in (("round", (tick, stratum, n + 1)), ("later", (tick, stratum + 1, 0)), ("next", (tick + 1, 0, 0))):
            if self.fuel > 0 and stratum < 3 and self.r.random() < 0.4:
                self.fuel -= 1
                found.append((channel, at))
        return found

    def batch(self) -> bool:
        """One batch. Returns whether it did anything."""
        while self.ticks and self.r.random() < 0.5:
            self.waiting["in"].append((self.ticks.pop(0), 0, 0))
        took = {name: each[: self.r.randrange(self.limit + 1)] for name, each in self.waiting.items()}
        for name, each in took.items():
            del self.waiting[name][: len(each)]
        outside = (
            [(min([t for t, _, _ in self.waiting["in"]] + self.ticks[:1]), 0, 0)] if self.waiting["in"] or self.ticks else []
        )
        start = self.rounds.frontier
        of = {name: [Taken(time, time) for time in each] for name, each in took.items()}
        behind = [time for name in ("round", "later", "next") for time in self.waiting[name]]
        self.rounds = self.rounds.after(
            GRAPH,
            "q",
            of["later"],
            outside,
            behind,
            passing=[one for name in PASSING for one in of[name]],
        )
        end = self.rounds.frontier
        new: list[tuple[str, Time]] = []
        for name, each in took.items():
            for time in each:
                assert start.less_equal(time), f"{time} of {name} is behind {start}"
                new += self.emit(time)
                if name == "later":
                    self.kept.add(time)
        for time in sorted(self.kept):
            if not end.less_equal(time):
                self.kept.remove(time)
                self.closed.append(time)
                new += self.emit(time)
        for name, time in new:
            assert end.less_equal(time), f"{time} goes to {name} behind {end}"
            self.waiting[name].append(time)
        self.batches += 1
        return end != start or any(took.values())


@given(st.integers(0, 2**32), st.integers(1, 5))
def test_nothing_comes_behind_the_frontier_and_every_time_that_waits_is_closed_once(seed: int, limit: int) -> None:
    machine = Machine(seed, limit)
    idle = 0
    while idle < 20 or machine.ticks or any(machine.waiting.values()):
        idle = 0 if machine.batch() else idle + 1
    assert not machine.kept
    assert machine.rounds.frontier == Antichain(DOMAIN)
    assert not machine.rounds.pending
    assert len(set(machine.closed)) == len(machine.closed)
    assert machine.closed == sorted(machine.closed)


def test_the_frontier_passes_rounds_at_which_nothing_waits_at_once() -> None:
    """Ten rounds have run while the tick was open. When it closes, they are not walked through again."""
    rounds, time = Rounds(Antichain.least(DOMAIN)), (0, 0, 0)
    for n in range(10):
        rounds = rounds.after(GRAPH, "q", [], [(0, 0, 0)], [], passing=[Taken((0, 0, n), (0, 0, n))])
    kept = rounds.after(GRAPH, "q", [Taken((0, 1, 0), (0, 1, 0))], [(0, 0, 0)], [], passing=[])
    assert list(kept.after(GRAPH, "q", [], [(1, 0, 0)], [], passing=[]).frontier) == [(0, 1, 1)]
    assert list(rounds.after(GRAPH, "q", [], [(1, 0, 0)], [], passing=[]).frontier) == [(1, 0, 0)]
    unknown = Rounds(Antichain.least(DOMAIN))
    for n in range(10):
        unknown = unknown.after(GRAPH, "q", [Taken((0, 0, n), (0, 0, n))], [time], [])
    assert list(unknown.after(GRAPH, "q", [], [(1, 0, 0)], []).frontier) == [(0, 0, 1)]
