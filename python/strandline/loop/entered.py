"""Where rows from outside entered a loop: how often a row has come round is counted from there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from strandline.loop.graph import LoopGraph
from strandline.loop.taken import Taken, as_ranges, ranges_from_json, ranges_to_json
from strandline.time.antichain import Antichain
from strandline.time.domain import Scalar, Time, TimeDomain, leaf_values

__all__ = ["Entered"]

_MOST = 1024


@dataclass(frozen=True)
class Entered:
    """The times at which rows from outside entered a loop, as long as rows may go round that followed from them.

    Channels from outside may have the coordinates that a feedback advances. Then a row may enter the loop anywhere, and its
    time alone does not say how often it has come round. A row keeps the coordinates that no way around changes.

    Attributes:
        times: The times, or ranges where they are very many, sorted.

    >>> from strandline.loop import LoopGraph, LoopQuery
    >>> from strandline.time.domain import product
    >>> domain = product(epoch="int64", iter="int64")
    >>> graph = LoopGraph(domain, {"in": domain, "back": domain}, {"q": LoopQuery(["in", "back"], {"back": {"iter": 1}})})
    >>> entered = Entered().after(graph, [Taken((0, 50), (0, 50))], Antichain(domain, [(0, 50)]))
    >>> entered.rounds(graph, (0, 53), leaf=1, by=1)
    3
    >>> entered.after(graph, [], Antichain(domain, [(1, 0)]))
    Entered(times=())
    """

    times: tuple[Taken, ...] = ()

    def after(self, graph: LoopGraph, came: Iterable[Taken], frontier: Antichain) -> Entered:
        """Return what still matters after a batch.

        Args:
            graph: The loop.
            came: The times of rows that the batch has taken in from outside.
            frontier: The frontier of the loop after the batch.
        """
        kept = {one for one in (*self.times, *came) if frontier.less_equal(_latest(graph, one.high))}
        if len(graph.moved) == 1:
            kept = _newest(graph, kept, frontier)
        if len(kept) > _MOST:
            kept = set(as_ranges(graph.domain, kept, _MOST, lambda _: True))
        return Entered(tuple(sorted(kept)))

    def first_beyond(self, graph: LoopGraph, times: Iterable[Time], leaf: int, by: int, most: int) -> Time | None:
        """Return one of the times to which more than ``most`` ways around have led; ``None`` if there is none."""
        starts = [tuple(leaf_values(one.low))[leaf] for one in self.times] + ([0] if graph.begins_at_0(leaf) else [])
        for time in times if starts else ():
            if (tuple(leaf_values(time))[leaf] - min(starts)) // by > most and self.rounds(graph, time, leaf, by) > most:
                return time
        return None

    def rounds(self, graph: LoopGraph, time: Time, leaf: int, by: int) -> int:
        """Return how many ways around at least led to a time: from the last place before it at which a row may have entered.

        Args:
            graph: The loop.
            time: The time of a row that has come round.
            leaf: The number of the coordinate that counts rounds, among the leaves of the domain.
            by: By how much a way around advances it.
        """
        at = tuple(leaf_values(time))
        starts = [0] if graph.begins_at_0(leaf) else []
        for one in self.times:
            low, high = tuple(leaf_values(one.low)), tuple(leaf_values(one.high))
            if low[leaf] <= at[leaf] and all(low[k] <= at[k] <= high[k] for k in range(len(at)) if k not in graph.moved):
                starts.append(min(high[leaf], at[leaf]))
        return max(0, at[leaf] - max(starts)) // by if starts else 0

    def to_json(self, domain: TimeDomain) -> list[Any]:
        """Return the times as JSON."""
        return ranges_to_json(domain, self.times)

    @classmethod
    def from_json(cls, domain: TimeDomain, value: Any) -> Entered:
        """Read the output of :meth:`to_json`.

        Raises :class:`ValueError` or :class:`~strandline.errors.TimeError` if it is damaged.
        """
        return cls(ranges_from_json(domain, value, "entered"))


def _newest(graph: LoopGraph, times: Iterable[Taken], frontier: Antichain) -> set[Taken]:
    """Leave out times after which every open time is also after a later one, if ways change one coordinate only."""
    (leaf,) = graph.moved
    kept: set[Taken] = set()
    newest: set[Any] = set()
    for one in sorted(times, key=lambda one: tuple(leaf_values(one.high))[leaf], reverse=True):
        low, high = tuple(leaf_values(one.low)), tuple(leaf_values(one.high))
        line = tuple(zip(low[:leaf] + low[leaf + 1 :], high[:leaf] + high[leaf + 1 :], strict=True))
        if line not in newest:
            kept.add(one)
            if low[leaf] > graph.domain.leaves()[leaf][1].minimum and not frontier.less_equal(
                _latest(graph, one.high, low[leaf] - 1)
            ):
                newest.add(line)
    return kept


def _latest(graph: LoopGraph, time: Time, last: int | None = None) -> Time:
    """Return a time with ``last`` in all coordinates that ways around change, by default the greatest value of each."""
    values = iter(enumerate(leaf_values(time)))

    def latest(domain: TimeDomain) -> Time:
        if isinstance(domain, Scalar):
            number, value = next(values)
            return value if number not in graph.moved else domain.maximum if last is None else last
        return tuple(latest(part) for _, part in domain.coordinates)

    return latest(graph.domain)
