"""The pointstamps of a loop that Spark runs batch by batch, and the frontier of each batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from strandline.loop import errors
from strandline.loop.graph import Arrival, LoopGraph
from strandline.loop.taken import Taken, as_ranges, ranges_from_json, ranges_to_json
from strandline.loop.way import Way
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain

__all__ = ["MOST_PENDING", "Rounds"]

MOST_PENDING = 1024
"""If more times have been taken in and not closed, they are kept as ranges. A commit states as many times one by one."""


@dataclass(frozen=True)
class Rounds:
    """What may still come round a loop after a batch of a query, and the frontier at which the batch's operators close times.

    A query of the loop reads all of its channels at one cut. Three kinds of pointstamps may still cause rows that come to it:

    - capabilities of outside producers, as the frontiers of the channels that no query of the loop writes;
    - rows of the loop's channels that the query has not taken in yet;
    - times that the query has taken in and has not closed, because an operator may still emit what it keeps at such a time.

    The other queries of the loop have pointstamps of the same kinds (:class:`~strandline.loop.QueryState`).

    A time that a batch's END frontier closes is emitted in that batch, and is among the rows of the loop's channels afterwards.
    So only the others count from then on. For the END frontier itself, the times that are emitted in the batch count.

    Source: the progress protocol of Naiad and timely. ``tests/strandline/loop`` compares it with simulated loops.

    Attributes:
        frontier: The frontier of all that may come to the query.
        pending: The times taken in that count after the batch, sorted. If they are very many, neighbours are ranges. Then the
            frontier may follow a batch later, but it closes nothing early, and is the same when the loop is at rest.

    >>> from strandline.loop import LoopGraph, LoopQuery
    >>> from strandline.time.domain import int64, product
    >>> domain = product(epoch="int64", iter="int64")
    >>> graph = LoopGraph(domain, {"in": int64, "back": domain}, {"q": LoopQuery(["in", "back"], {"back": {"iter": 1}})})
    >>> begin = Rounds(Antichain.least(domain))
    >>> first = begin.after(graph, "q", [Taken((0, 0), (0, 0))], outside=[(1, 0)], waiting=[])
    >>> list(first.frontier)
    [(0, 1), (1, 0)]
    >>> list(first.after(graph, "q", [], outside=[(1, 0)], waiting=[]).frontier)
    [(1, 0)]
    """

    frontier: Antichain
    pending: tuple[Taken, ...] = field(default=())

    @property
    def domain(self) -> TimeDomain:
        """The domain of the times inside the loop."""
        return self.frontier.domain

    def after(
        self,
        graph: LoopGraph,
        query: str,
        taken: Iterable[Taken],
        outside: Iterable[Time],
        waiting: Iterable[Time],
        others: Iterable[Arrival] = (),
        most: int = MOST_PENDING,
        passing: Iterable[Taken] | None = None,
    ) -> Rounds:
        """Return the rounds after the next batch.

        Args:
            graph: The loop.
            query: The query whose batch it is.
            taken: The times of the rows that the batch takes in, of all channels.
            outside: The frontiers of the channels that no query of the loop writes, at the end of the batch.
            waiting: The times of rows of the loop's channels that the query reads and the batch does not take in.
            others: What may come to queries because of the other queries' states.
            most: How many times are kept one by one.
            passing: The times of rows that the batch takes in too, and that no operator keeps to emit something later. They count
                for this batch only. If they are given, an operator keeps nothing at times that were moved on the way around:
                what is closed where it is kept has been emitted. ``None``: neither is known of the operators.

        Raises:
            StrandlineError: ``STRANDLINE_LOOP_TIMES_UNKNOWN`` if rows with too many different times come round: what they cause
                cannot be told from what they wait for.
        """
        ways = graph.ways(query)
        # Times count alike if they lead to the same times on every way that is open: one of them is enough.
        alike: dict[tuple[Any, ...], Taken] = {}
        known = set(self.pending)
        for one in sorted({*known, *taken}):
            open_ways = self._open(one, ways, self.frontier, is_kept_unmoved=passing is not None)
            leads = [(c, s.results_in(one.low), s.results_in(one.high)) for c, s in open_ways]
            if leads:
                alike[tuple(leads)] = one
        arrivals = [*others, *((query, time) for time in outside), *((query, time) for time in waiting)]
        for reached, one in alike.items():
            if one.is_range and one not in known and graph.holds_itself(query, one):
                raise errors.loop_times_unknown(self.domain, one.low, one.high)
            for channel, _, _ in reached:
                arrivals += graph.arrivals(channel, one.results(ways[channel], self.frontier))
        for one in set(passing or ()) - known:
            for channel, way in self._open(one, ways, self.frontier, is_kept_unmoved=True):
                arrivals += graph.arrivals(channel, one.results(way, self.frontier))
        frontier = graph.frontier(query, arrivals)
        left = [one for one in alike.values() if self._open(one, ways, frontier, is_kept_unmoved=passing is not None)]
        if len(left) > most and not self.domain.is_total:  # in a total order a range would wait for itself
            left = as_ranges(self.domain, left, most, lambda one: not graph.holds_itself(query, one))
        return Rounds(frontier, tuple(sorted(left)))

    @staticmethod
    def _open(one: Taken, ways: Mapping[str, Way], frontier: Antichain, *, is_kept_unmoved: bool) -> list[tuple[str, Way]]:
        """Return the ways on which an operator may still keep something of times, by a frontier."""
        if is_kept_unmoved:
            return (
                [(c, way) for c, way in ways.items() if way.results_in(one.low) is not None]
                if frontier.less_equal(one.high)
                else []
            )
        return [(channel, way) for channel, way in ways.items() if one.is_open(way, frontier)]

    def held(self, graph: LoopGraph, query: str) -> dict[str, Antichain]:
        """Return for each channel of the loop that the query writes, the least times of what it may write after the batch."""
        return {
            channel: Antichain(
                self.domain,
                [
                    result
                    for one in self.pending
                    if one.is_open(summary, self.frontier)
                    for result in one.results(summary, self.frontier)
                ],
            )
            for channel, summary in graph.ways(query).items()
        }

    def to_json(self) -> list[Any]:
        """Return the pending times as JSON."""
        return ranges_to_json(self.domain, self.pending)

    @classmethod
    def from_json(cls, frontier: Antichain, value: Any) -> Rounds:
        """Read the output of :meth:`to_json`.

        Raises :class:`ValueError` or :class:`~strandline.errors.TimeError` if it is damaged.
        """
        return cls(frontier, ranges_from_json(frontier.domain, value, "pending"))
