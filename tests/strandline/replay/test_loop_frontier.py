"""What a node asks its links (seed 5): a looping link for records up to ``T2 - L``, the others up to ``T2``."""

from __future__ import annotations

import pytest

from strandline.loop import LoopGraph, LoopQuery, Rounds, Taken
from strandline.replay import CLOCK
from strandline.time.antichain import Antichain

MS = 1000
LEAST = -(1 << 63)
LAG = 100 * MS
GRAPH = LoopGraph(CLOCK, {"in": CLOCK, "loop": CLOCK}, {"q": LoopQuery(["in", "loop"], {"loop": {"instant": LAG}})})


def instant(ms: int, node: int = LEAST, n: int = LEAST) -> tuple[int, int, int]:
    return ms * MS, node, n


@pytest.mark.parametrize(("second", "closed"), [(1040, 1040), (1100, 1100), (1200, 1100)])
def test_records_of_the_loop_are_awaited_up_to_l_before_a_record_from_outside(second: int, closed: int) -> None:
    """A record at 1000 may come round. With L = 100 ms it holds a record at 1200 back, and none up to 1100."""
    first = instant(1000, 0, 0)
    begin = Rounds(Antichain.least(CLOCK))
    after = begin.after(GRAPH, "q", [Taken(first, first)], [instant(second)], [])
    assert list(after.frontier) == [instant(closed)]


def test_several_records_may_be_in_the_loop() -> None:
    """Records at 1000, 1030 and 1060 go round together: the loop runs behind what comes from outside by L at most."""
    times = [instant(ms, 0, n) for n, ms in enumerate((1000, 1030, 1060))]
    begin = Rounds(Antichain.least(CLOCK))
    rounds = begin.after(GRAPH, "q", [Taken(time, time) for time in times], [instant(1090)], [])
    assert list(rounds.frontier) == [instant(1090)]  # all three were closed, and are on the way
    came = [instant(ms) for ms in (1100, 1130, 1160)]
    assert list(rounds.after(GRAPH, "q", [], [instant(5000)], came).frontier) == [instant(1100)]
    taken = rounds.after(GRAPH, "q", [Taken(time, time) for time in came], [instant(5000)], [])
    assert list(taken.frontier) == [instant(1200)]
