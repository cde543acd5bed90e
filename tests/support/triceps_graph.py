"""What the model of Triceps' loops is made of: stamps, records, nodes, links and queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

__all__ = [
    "END",
    "FIGURE",
    "Case",
    "Full",
    "Graph",
    "Link",
    "Looks",
    "Node",
    "Output",
    "Queues",
    "Record",
    "Stamp",
    "Waits",
    "drop",
    "earliest_instant",
]

Case = Literal["record", "earliest", "fixed", "scheduler", "semi-blocking", "counted"]
Full = Literal["whole", "stuck", "every", "top"]
Looks = Literal["above", "own"]
Waits = Literal["all", "written"]


class Stamp(NamedTuple):
    """A moment that never ties: microseconds, the node that gave the stamp, and that node's own counter."""

    instant: int
    node: int
    n: int


END = Stamp(1 << 62, 0, 0)
"""Later than all stamps: nothing comes any more."""


class Record(NamedTuple):
    """A payload with its current stamp, and the stamp that it or its cause got from the timestamper or a scheduler."""

    stamp: Stamp
    payload: Any
    first: Stamp


class Output(NamedTuple):
    """What a node wrote to ``"out"``."""

    stamp: Stamp
    node: str
    payload: Any


Node = Callable[[Record, dict[str, Any]], Iterable[tuple[str, Any]]]
"""A node's function, of a record and of the node's own state. It returns pairs: where to (a node, a link or "out"), and a
payload. To a scheduler the payload is a pair: a delay, and the event's payload."""


def drop(record: Record, state: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return nothing: a node that takes and sends nothing."""
    return []


@dataclass(frozen=True)
class Graph:
    """The nodes and ordinary links. At equal stamps the link that is named first goes first."""

    edges: tuple[tuple[str, str], ...]
    input: str = "timestamper"

    def nodes(self) -> list[str]:
        """Return all nodes but the timestamper."""
        return list(dict.fromkeys(to for _, to in self.edges))

    def within(self, begin: str, end: str) -> tuple[list[tuple[str, str]], list[str]]:
        """Return the ordinary links on the ways from one node to another, and the nodes of these ways."""

        def reach(start: str, forward: bool) -> set[str]:
            found = {start}
            while more := {e[forward] for e in self.edges if e[not forward] in found} - found:
                found |= more
            return found

        nodes = reach(begin, True) & reach(end, False)
        return [edge for edge in self.edges if set(edge) <= nodes], sorted(nodes)


FIGURE = Graph((("timestamper", "A"), ("A", "B"), ("A", "C"), ("B", "D"), ("C", "D")))
"""The seed's figure; its looping link goes from D to B."""


@dataclass(frozen=True)
class Link:
    """A looping link.

    Attributes:
        lag: L, in microseconds.
        case: ``record``: by the receiving clock (case 1). ``earliest``: ``min(T + L, next)`` (case 2). ``fixed``: ``T + L``
            (case 3). ``scheduler``: events. ``semi-blocking``: the seed's queue. ``counted``: ``T + L``, or before the
            ``depth``-th record that the target takes from outside after ``T``.
        clock: What the receiving clock shows at a step (case 1).
        depth: How many records the blocking queue holds; what ``counted`` counts.
        full: When the semi-blocking queue moves a record. ``whole``: nothing else can happen in the whole graph. ``stuck``: all
            queues of the loop are full, and each of its nodes has a record and no room. ``every``: all queues of the loop are
            full. ``top``: those to and from the target are.
        looks: Where the next record from outside is looked for: ``above``, up the links, or in the target's ``own`` queues.
    """

    lag: int
    case: Case = "fixed"
    name: str = "loop"
    source: str = "D"
    target: str = "B"
    clock: Callable[[int], int] | None = None
    depth: int | None = None
    full: Full = "whole"
    looks: Looks = "above"


@dataclass(frozen=True)
class Queues:
    """How many records an ordinary link holds, and when a full one stops the node before it.

    ``waits="all"``: the node takes nothing unless each of its outputs has room. ``"written"``: unless those have room that it
    will write to.
    """

    depth: int | None = None
    waits: Waits = "all"


def earliest_instant(original: int, lag: int, upcoming: int | None) -> int:
    """Return the instant of case 2; ``upcoming`` is that of the next record from outside.

    >>> [earliest_instant(1000, 100, upcoming) for upcoming in (1040, 1200, 900, None)]
    [1040, 1100, 1000, 1100]
    """
    limit = original + lag
    return limit if upcoming is None else max(original, min(limit, upcoming))
