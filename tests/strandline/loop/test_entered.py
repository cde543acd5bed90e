"""Rounds of a row, counted from where it entered: never too many, and exact where one row goes round."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import StrandlineError
from strandline.loop import Entered, LoopGraph, LoopQuery, Rounds, Taken
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain, int64, lex, product

FLAT = product(epoch="int64", iter="int64")
LEX = lex(epoch="int64", iter="int64")
NESTED = product(epoch="int64", i="int64", j="int64")
OUTER = product(epoch="int64", i="int64")

LOOPS: dict[str, tuple[TimeDomain, TimeDomain, dict[str, int], int]] = {
    "anywhere": (FLAT, FLAT, {"iter": 1}, 1),
    "by two": (FLAT, FLAT, {"iter": 2}, 1),
    "lex": (LEX, LEX, {"iter": 1}, 1),
    "scalar": (int64, int64, {"": 1}, 0),
    "at the beginning": (FLAT, int64, {"iter": 1}, 1),
    "inner": (NESTED, OUTER, {"j": 1}, 2),
    "nested": (NESTED, NESTED, {"j": 1}, 2),
}
"""The domain, that of the outside channel, the advance of the feedback, and the number of the coordinate that it advances."""


def graph_of(loop: str) -> LoopGraph:
    domain, outside, by, _ = LOOPS[loop]
    return LoopGraph(domain, {"in": outside, "back": domain}, {"q": LoopQuery(["in", "back"], {"back": by})})


@pytest.mark.drawn
@pytest.mark.parametrize("loop", LOOPS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_no_row_is_said_to_have_come_round_more_often_than_it_has(loop: str, seed: int) -> None:
    """Rows are followed one by one: each knows how often it has come round."""
    draw, graph = random.Random(seed), graph_of(loop)
    (way,), (domain, outside, by, leaf) = graph.ways("q").values(), LOOPS[loop]
    step, enter = next(iter(by.values())), graph.entries["in"].time
    rounds, entered = Rounds(Antichain.least(domain)), Entered()
    waiting: list[tuple[Time, int]] = []
    hold = outside.time(0 if outside == int64 else (0,) * len(outside.leaves()))
    for _ in range(30):
        at = draw.randint(0, len(waiting))
        back, waiting = waiting[:at], waiting[at:]
        for time, often in back:
            assert entered.rounds(graph, time, leaf, step) <= often
            assert entered.first_beyond(graph, [time], leaf, step, often) is None
        new = []
        for _ in range(draw.randint(0, 2)):
            one = tuple(value + draw.randint(0, 9) for value in hold) if isinstance(hold, tuple) else hold + draw.randint(0, 9)
            new.append(enter(one))
        if draw.random() < 0.5:
            hold = outside.join(hold, tuple(v + draw.randint(0, 3) for v in hold) if isinstance(hold, tuple) else hold + 1)
        stamps = [Taken(time, time) for time in [*new, *(time for time, _ in back)]]
        rounds = rounds.after(graph, "q", stamps, [enter(hold)], [time for time, _ in waiting])
        came = [Taken(time, time) for time in new if len(outside.leaves()) > leaf]
        entered = entered.after(graph, came, rounds.frontier)
        for time, often in [(time, 0) for time in new] + back:
            if draw.random() < 0.9 and (result := way.results_in(time)) is not None:
                waiting.append((result, often + 1))


@pytest.mark.parametrize("loop", LOOPS)
def test_the_rounds_of_a_row_that_is_alone_are_exact(loop: str) -> None:
    graph, (domain, outside, by, leaf) = graph_of(loop), LOOPS[loop]
    (way,) = graph.ways("q").values()
    time = graph.entries["in"].time(outside.time(50 if outside == int64 else (50,) * len(outside.leaves())))
    came = [Taken(time, time)] if len(outside.leaves()) > leaf else []
    entered = Entered().after(graph, came, Antichain(domain, [time]))
    assert Entered.from_json(domain, entered.to_json(domain)) == entered
    for often in range(20):
        assert entered.rounds(graph, time, leaf, next(iter(by.values()))) == often
        time = way.results_in(time)
        entered = entered.after(graph, [], Antichain(domain, [time]))


def test_what_no_row_follows_from_any_more_is_forgotten() -> None:
    graph, entered = graph_of("anywhere"), Entered()
    for epoch in range(300):
        came = [Taken((epoch, i), (epoch, i)) for i in range(3)]
        entered = entered.after(graph, came, Antichain(FLAT, [(epoch, 2)]))
        assert len(entered.times) <= 3
    graph, entered = graph_of("scalar"), Entered()
    for time in range(300):
        entered = entered.after(graph, [Taken(time, time)], Antichain(int64, [time]))
        assert len(entered.times) <= 2


def test_very_many_places_become_ranges_and_count_less() -> None:
    graph = graph_of("anywhere")
    came = [Taken((epoch, 50), (epoch, 50)) for epoch in range(0, 6000, 2)]
    entered = Entered().after(graph, came, Antichain(FLAT, [(0, 0)]))
    assert len(entered.times) <= 1024
    assert entered.rounds(graph, (4, 53), 1, 1) == 3
    assert entered.first_beyond(graph, [(4, 53), (8, 57)], 1, 1, 5) == (8, 57)


@pytest.mark.parametrize("damaged", [None, [[]], [[[0, 1], [0, 0]]], [[3]]])
def test_what_is_no_such_time_is_refused(damaged: object) -> None:
    with pytest.raises((ValueError, StrandlineError)):
        Entered.from_json(FLAT, damaged)
