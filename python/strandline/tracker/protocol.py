"""The distributed protocol: workers publish atomic batches of changes, and each builds a view of all from those it received."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from strandline.time.domain import Time
from strandline.tracker import errors
from strandline.tracker.graph import Graph, Location
from strandline.tracker.reachability import Tracker

__all__ = ["Batch", "Change", "Snapshot", "View"]

Change = tuple[Location, Time, int]
"""The change of one pointstamp's count."""


@dataclass(frozen=True)
class Batch:
    """The changes of one worker since its last batch. They take effect together. ``seq`` counts its batches from 1."""

    sender: int
    seq: int
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Snapshot:
    """The state of a view: the position up to which it holds each sender's log, and the resulting counts."""

    positions: tuple[int, ...]
    held: tuple[Change, ...]


class View:
    """One worker's view of a computation (Naiad's protocol; Abadi et al., FORTE 2013).

    Batches from different senders may arrive in any order and with any delay. The batches of one sender arrive in its order.
    Each batch is whole, so every view is *safe*: a time that is closed in the view is really closed. A count may be negative for
    a while: the receipt of a message can arrive before its sending. Without each sender's order a view is not safe: a worker that
    received the drop of a capability, but not an earlier message sent under it, closes the message's time. All views that hold
    the same batches are equal.

    Args:
        graph: The graph of the computation.
        workers: The number of workers.
        first: The pointstamps that every worker knows at the start.

    >>> from strandline.tracker.graph import source, target
    >>> from strandline.time.domain import uint64
    >>> graph = Graph(uint64)
    >>> nodes = [graph.add_node(0, 1), graph.add_node(1, 0)]
    >>> graph.add_edge(0, 0, 1, 0)
    >>> view = View(graph, workers=2, first=[(source(0, 0), 0, 1)])
    >>> view.receive(Batch(1, 1, ((target(1, 0), 0, -1),)))  # worker 1 has consumed what worker 0 has yet to report
    True
    >>> view.receive(Batch(0, 1, ((target(1, 0), 0, 1), (source(0, 0), 0, -1), (source(0, 0), 4, 1))))
    True
    >>> view.tracker.frontier(target(1, 0))
    Antichain(uint64, [4])
    """

    def __init__(self, graph: Graph, workers: int, first: Iterable[Change] = ()) -> None:
        self.tracker = Tracker(graph)
        self.positions = [0] * workers
        self._apply(first)

    @classmethod
    def restore(cls, graph: Graph, snapshot: Snapshot) -> View:
        """Recreate a view from its snapshot.

        A worker that crashed starts again from there, and then receives the later batches. The snapshot may be old, and it may
        come from another worker: a view that knows less is only more cautious.

        Args:
            graph: The graph of the computation.
            snapshot: The snapshot.
        """
        view = cls(graph, len(snapshot.positions), snapshot.held)
        view.positions = list(snapshot.positions)
        return view

    def snapshot(self) -> Snapshot:
        """Return the current state of this view."""
        return Snapshot(tuple(self.positions), tuple(self.tracker.held()))

    def receive(self, batch: Batch) -> bool:
        """Apply a batch. Returns ``False`` when the view already holds it (a duplicate, which changes nothing).

        Raises :class:`ProtocolError` for an unknown sender, or when earlier batches of the sender are missing.
        """
        if not 0 <= batch.sender < len(self.positions):
            raise errors.protocol_unknown_sender(batch.seq, batch.sender, len(self.positions))
        held = self.positions[batch.sender]
        if batch.seq <= held:
            return False
        if batch.seq != held + 1:
            raise errors.protocol_gap(batch.seq, batch.sender, held)
        self.positions[batch.sender] = batch.seq
        self._apply(batch.changes)
        return True

    def _apply(self, changes: Iterable[Change] | Sequence[Change]) -> None:
        for location, time, delta in changes:
            self.tracker.update(location, time, delta)
        self.tracker.propagate_all()
        # Users of a view read its frontiers. Nobody reads the changes of the frontiers.
        self.tracker.pushed()
        self.tracker.pushed_outputs()
