"""The queries of a loop, the channels between them, and what may come to each query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from strandline.loop import errors
from strandline.loop.taken import Taken
from strandline.loop.way import Way
from strandline.time.antichain import Antichain
from strandline.time.arrow import times_from_leaves
from strandline.time.domain import Time, TimeDomain, leaf_values, parse_domain
from strandline.time.path.entry import Entry
from strandline.time.path.summary import identity
from strandline.tracker.graph import in_order

__all__ = ["Arrival", "LoopGraph", "LoopQuery"]

Arrival = tuple[str, Time]
"""The name of a query, and a time inside the loop at which a row may come to it."""


@dataclass(frozen=True)
class LoopQuery:
    """One of the queries of a loop.

    Attributes:
        reads: The names of the channels that it reads.
        writes: The loop's channels that it writes: for each, by how much its times advance. ``{}`` leaves them as they are.
            A number is the advance of a channel whose times have no coordinates. Timestamps advance by microseconds.

    >>> LoopQuery(["questions", "labels"], {"answers": {"iter": 1}})
    LoopQuery(reads=('questions', 'labels'), writes={'answers': {'iter': 1}})
    """

    reads: tuple[str, ...]
    writes: Mapping[str, Mapping[str, int]]

    def __init__(self, reads: Iterable[str], writes: Mapping[str, Mapping[str, int] | int]) -> None:
        object.__setattr__(self, "reads", (reads,) if isinstance(reads, str) else tuple(reads))
        object.__setattr__(
            self, "writes", {channel: dict(by) if isinstance(by, Mapping) else {"": by} for channel, by in writes.items()}
        )


class LoopGraph:
    """The graph of a loop: its queries, and an edge for each channel from the query that writes it to each that reads it.

    A query takes every input to every output. It changes no times, but a channel may advance them.

    The core's :class:`~strandline.Graph` is a scope of times with the same coordinates. In this graph, times also leave
    coordinates and enter again at 0, which is what several nested scopes do.

    Args:
        domain: The domain of times inside the loop.
        channels: For each channel, the domain of its own times, which enter the loop's domain.
        queries: The queries by name.

    Raises:
        ScopeError: ``STRANDLINE_SCOPE_CHANNEL_UNKNOWN``, ``STRANDLINE_SCOPE_QUERY_INVALID``, or
            ``STRANDLINE_SCOPE_TWO_WRITERS`` if two queries write a channel.
        SummaryError: ``STRANDLINE_SUMMARY_INVALID``: times of a channel do not enter the loop's domain, or would go back.
        CycleError: ``STRANDLINE_GRAPH_CYCLE``: a way around the loop does not advance times.

    >>> from strandline.time.domain import int64, product
    >>> domain = product(epoch="int64", iter="int64")
    >>> channels = {"in": int64, "asks": domain, "labels": domain}
    >>> ask = LoopQuery(["in", "labels"], {"asks": {}})
    >>> graph = LoopGraph(domain, channels, {"ask": ask, "answer": LoopQuery(["asks"], {"labels": {"iter": 1}})})
    >>> list(graph.frontier("answer", [("ask", (7, 2))])), list(graph.frontier("ask", [("answer", (7, 2))]))
    ([(7, 2)], [(7, 3)])
    >>> LoopGraph(domain, channels, {"ask": ask, "answer": LoopQuery(["asks"], {"labels": {}})})
    Traceback (most recent call last):
    strandline.errors.CycleError: [STRANDLINE_GRAPH_CYCLE] The cycle ask → answer → ask does not advance times. ...
    """

    def __init__(self, domain: TimeDomain, channels: Mapping[str, TimeDomain], queries: Mapping[str, LoopQuery]) -> None:
        self.domain, self.queries = domain, dict(queries)
        self.entries = {name: Entry(outer, domain) for name, outer in channels.items()}
        self.writer: dict[str, str] = {}
        """The query that writes each channel of the loop."""
        for name, query in queries.items():
            self._check(name, query)
        self.readers = {channel: [name for name, query in queries.items() if channel in query.reads] for channel in self.writer}
        """The queries that read each channel of the loop."""
        self._ways = {
            name: {channel: self._way(channel, by) for channel, by in query.writes.items()} for name, query in queries.items()
        }
        self._check_cycles()
        self.moved = frozenset(leaf for ways in self._ways.values() for way in ways.values() for leaf in _moved(way))
        """The numbers of the coordinates, among the leaves of the domain, that some way changes."""

    def begins_at_0(self, leaf: int) -> bool:
        """Whether rows may come into the loop with a 0 in a coordinate, because their channel does not have it."""
        return any(len(entry.outer.leaves()) <= leaf for entry in self.entries.values())

    def ways(self, query: str) -> dict[str, Way]:
        """Return what happens to times on the way through a query into each channel of the loop that it writes."""
        return self._ways[query]

    def is_outside(self, channel: str) -> bool:
        """Whether no query of the loop writes the channel."""
        return channel not in self.writer

    def frontier(self, query: str, arrivals: Iterable[Arrival]) -> Antichain:
        """Return the frontier of all that may come to a query, if rows may come to the queries at some times.

        It is the least fixed point of reachability. It ends, because every cycle advances times in the order of their
        coordinates, and an antichain of such times is finite (Dickson's lemma).
        """
        frontiers = {name: Antichain(self.domain) for name in self.queries}
        left = list(arrivals)
        while left:
            at, time = left.pop()
            if frontiers[at].insert(time):
                for channel, summary in self._ways[at].items():
                    if (result := summary.results_in(time)) is not None:
                        left += self.arrivals(channel, [result])
        return frontiers[query]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "domain": str(self.domain),
            "channels": {name: str(entry.outer) for name, entry in self.entries.items()},
            "queries": {name: {"reads": list(query.reads), "writes": query.writes} for name, query in self.queries.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LoopGraph:
        """Read the output of :meth:`to_json`."""
        queries = {name: LoopQuery(each["reads"], each["writes"]) for name, each in value["queries"].items()}
        channels = {name: parse_domain(text) for name, text in value["channels"].items()}
        return cls(parse_domain(value["domain"]), channels, queries)

    def is_last(self, query: str, time: Time) -> bool:
        """Whether nothing that a query emits at a time can come round to it, though what it emits at other times can.

        >>> from strandline.time.domain import int64, product
        >>> domain = product(epoch="int64", iter="int64")
        >>> queries = {"a": LoopQuery(["in", "back"], {"there": {}}), "b": LoopQuery(["there"], {"back": {"iter": 1}})}
        >>> graph = LoopGraph(domain, {"in": int64, "there": domain, "back": domain}, queries)
        >>> graph.is_last("a", (7, 2**63 - 1)), graph.is_last("a", (7, 0))
        (True, False)
        """
        return not self._comes_round(query, time) and self._comes_round(query, self._least)

    def is_last_in(self, channel: str, query: str, time: Time) -> bool:
        """Whether no row at a time of a channel can lead to one that comes to a query, though rows at other times can."""
        enter, outer = self.entries[channel].time, self.entries[channel].outer
        (least,) = Antichain.least(outer)
        return not any(self.frontier(query, self.arrivals(channel, [enter(time)]))) and any(
            self.frontier(query, self.arrivals(channel, [enter(least)]))
        )

    @cached_property
    def _least(self) -> Time:
        (least,) = Antichain.least(self.domain)
        return least

    def _comes_round(self, query: str, time: Time) -> bool:
        """Whether rows that a query emits at a time may lead to rows that come to it."""
        led = [(channel, way.results_in(time)) for channel, way in self._ways[query].items()]
        return any(self.frontier(query, [at for c, result in led if result is not None for at in self.arrivals(c, [result])]))

    def holds_itself(self, query: str, taken: Taken) -> bool:
        """Whether a way around leads from the least time of a range into the range.

        Then what the range causes cannot be told from what it waits for, and a frontier would wait for itself.
        """
        led = [(c, way.results_in(taken.low)) for c, way in self._ways[query].items()]
        if any(time is not None and self._ways[query][c].results_in(taken.high) is None for c, time in led):
            return True  # the last time of the loop is in it
        around = self.frontier(query, [at for c, time in led if time is not None for at in self.arrivals(c, [time])])
        return around.less_equal(taken.high)

    def arrivals(self, channel: str, times: Iterable[Time]) -> list[Arrival]:
        """Return what rows at these times in a channel of the loop, which nobody has read yet, may bring to its readers."""
        readers = self.readers[channel]
        return [(reader, time) for time in times for reader in readers]

    def _check(self, name: str, query: LoopQuery) -> None:
        for channel in (*query.reads, *query.writes):
            if channel not in self.entries:
                raise errors.scope_channel_unknown(name, channel, self.entries)
        for channel in query.writes:
            other = self.writer.setdefault(channel, name)
            if other != name:
                raise errors.scope_two_writers(other, name, channel)
        if not query.reads or len(set(query.reads)) < len(query.reads):
            raise errors.scope_query_invalid(name, query.reads)

    def _way(self, channel: str, by: Mapping[str, int]) -> Way:
        entry = self.entries[channel]
        if entry.outer == entry.inner and not any(by.values()):
            return Way(entry, identity(self.domain))
        return Way.of(entry, by)

    def _check_cycles(self) -> None:
        unchanged: dict[str, list[str]] = {}
        for name, ways in self._ways.items():
            unchanged[name] = [r for channel, way in ways.items() if way.is_identity for r in self.readers[channel]]
        _, cycle = in_order(unchanged)
        if cycle:
            raise errors.graph_cycle((*cycle, cycle[0]))


def _moved(way: Way) -> list[int]:
    """Return the numbers of the coordinates that a way changes. A way adds to a coordinate, sets it to 0, or leaves it."""
    at = times_from_leaves([[7]] * len(way.domain.leaves()), way.domain)[0]
    before, result = tuple(leaf_values(at)), way.results_in(at)
    after = before if result is None else tuple(leaf_values(result))
    return [leaf for leaf, value in enumerate(after) if result is None or value != before[leaf]]
