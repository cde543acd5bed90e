"""Recorded cases of other systems whose frontiers are minima over producers: the same answers, and none of the losses."""

from __future__ import annotations

import itertools

import pytest

from strandline.time.domain import int64
from strandline.time.mutable_antichain import MutableAntichain
from strandline.tracker.graph import Graph, source, target
from strandline.tracker.protocol import Batch, View


class Valve:
    """Producers whose capabilities make one frontier; ``None`` gives one up, as an idle channel does."""

    def __init__(self, channels: int) -> None:
        self.at: list[int | None] = [int64.minimum] * channels
        self.stamps = MutableAntichain(int64, [(int64.minimum, channels)])

    def move(self, channel: int, to: int | None) -> int | None:
        """The new least time, or ``None`` when the frontier did not change."""
        before = self.at[channel]
        self.at[channel] = to
        changes = [] if before is None else [(before, -1)]
        moved = self.stamps.update_iter(changes + ([] if to is None else [(to, 1)]))
        arrived = [time for time, delta in moved if delta > 0]
        return arrived[0] if arrived else None


@pytest.mark.parametrize(
    ("channels", "moves"),
    [
        # Flink's StatusWatermarkValveTest, one input: 25, 18, 42 → 25, –, 42 (a watermark behind the last says nothing)
        (1, [(0, 25, 25), (0, 25, None), (0, 42, 42)]),
        (3, [(0, 0, None), (1, 0, None), (2, 0, 0)]),
        (
            3,
            [
                (0, 0, None),
                (1, 0, None),
                (2, 0, 0),
                (0, 12, None),
                (2, 8, None),
                (2, 10, None),
                (1, 15, 10),
                (2, 17, 12),
                (0, 20, 15),
            ],
        ),
        (3, [(0, 25, None), (1, 10, None), (2, 17, 10), (1, None, 17), (2, None, 25)]),
        # Spark's two streams with delays of 10 and 5: L11, R6, R8, L21, R17 R28 R39, L31, L41, L51
        (2, [(0, 1, None), (1, 1, 1), (1, 3, None), (0, 11, 3), (1, 34, 11), (0, 21, 21), (0, 31, 31), (0, 41, 34)]),
    ],
)
def test_the_least_over_producers(channels: int, moves: list[tuple[int, int | None, int | None]]) -> None:
    valve = Valve(channels)
    for channel, to, expected in moves:
        assert valve.move(channel, to) == expected


def test_becoming_idle_in_any_order_ends_the_same() -> None:
    """flink#27066: the result depended on the order of becoming idle."""
    found = set()
    for order in itertools.permutations([(0, None), (1, None), (2, 17)]):
        valve = Valve(3)
        for channel, at in ((0, 25), (1, 10), (2, 12)):
            valve.move(channel, at)
        for channel, to in order:
            valve.move(channel, to)
        found.add(tuple(valve.stamps.frontier))
    assert found == {(17,)}


def test_a_restart_remembers_the_lead_of_each_stream() -> None:
    """After L51 and a restart Spark knows only the minimum, 34: the left stream's lead is forgotten. A snapshot keeps both."""
    graph = Graph(int64)
    graph.add_node(0, 2, name="streams")
    graph.add_node(1, 0, name="join")
    graph.add_edge(0, 0, 1, 0)
    graph.add_edge(0, 1, 1, 0)
    view = View(graph, 2, [(source(0, 0), 0, 1), (source(0, 1), 0, 1)])
    view.receive(Batch(0, 1, ((source(0, 0), 0, -1), (source(0, 0), 41, 1))))
    view.receive(Batch(1, 1, ((source(0, 1), 0, -1), (source(0, 1), 34, 1))))
    assert list(view.tracker.frontier(target(1, 0))) == [34]
    again = View.restore(graph, view.snapshot())
    again.receive(Batch(1, 2, ((source(0, 1), 34, -1), (source(0, 1), 60, 1))))
    assert list(again.tracker.frontier(target(1, 0))) == [41]


def test_updates_that_cancel_and_batches_without_changes_do_not_hold_the_frontier() -> None:
    """timely#523, differential#834: an empty container stalled the frontier, and updates that cancel froze it."""
    graph = Graph(int64)
    graph.add_node(0, 1)
    graph.add_node(1, 0)
    graph.add_edge(0, 0, 1, 0)
    view = View(graph, 1, [(source(0, 0), 0, 1)])
    view.receive(Batch(0, 1, ()))
    view.receive(Batch(0, 2, ((target(1, 0), 3, 1), (target(1, 0), 3, -1))))
    view.receive(Batch(0, 3, ((source(0, 0), 0, -1),)))
    assert not view.tracker.tracking_anything()
    assert view.tracker.held() == []
    assert len(view.tracker.frontier(target(1, 0))) == 0
