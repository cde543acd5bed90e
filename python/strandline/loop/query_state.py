"""What a query of a loop states to the others: what it has read, and what it may still write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strandline.loop.graph import Arrival, LoopGraph
from strandline.time.antichain import Antichain
from strandline.time.domain import Time

__all__ = ["QueryState", "arrivals_of"]


@dataclass(frozen=True)
class QueryState:
    """The pointstamps of a query after a batch. Every commit of the batch to a channel of the loop has them.

    A reader may see any prefix of each channel's log. What it concludes is never ahead of what may come, because every row
    follows from a pointstamp that the reader still sees: a commit has its rows and the state after them, atomically.

    Source: the progress protocol of Naiad and timely, with one log for each sender.

    Attributes:
        outside: The frontier of what may still come to the query from channels that no query of the loop writes.
        consumed: For each channel of the loop that it reads, the first version that it has not taken in completely.
        held: For each channel of the loop that it writes, the least times of rows that it may still write because of rows that
            it has taken in (timely's capabilities of an operator). All times are of the loop's domain.
    """

    outside: Antichain
    consumed: Mapping[str, int]
    held: Mapping[str, Antichain]

    @classmethod
    def unknown(cls, graph: LoopGraph, query: str) -> QueryState:
        """Return the state of a query that has not begun: it has read nothing, and anything may come to it from outside."""
        reads = graph.queries[query].reads
        least = Antichain.least(graph.domain) if any(map(graph.is_outside, reads)) else Antichain(graph.domain)
        consumed = {channel: 0 for channel in reads if not graph.is_outside(channel)}
        return cls(least, consumed, {channel: Antichain(graph.domain) for channel in graph.ways(query)})

    def meet(self, other: QueryState) -> QueryState:
        """Return a state that is no more advanced than both.

        A query that writes several channels commits to one after the other. What a reader has seen in all of them is no more
        advanced than the older of their states.
        """
        return QueryState(
            self.outside.meet(other.outside),
            {channel: min(at, other.consumed[channel]) for channel, at in self.consumed.items()},
            {channel: times.meet(other.held[channel]) for channel, times in self.held.items()},
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "outside": self.outside.to_json(),
            "consumed": dict(self.consumed),
            "held": {channel: times.to_json() for channel, times in self.held.items()},
        }

    @classmethod
    def from_json(cls, graph: LoopGraph, query: str, value: Any) -> QueryState:
        """Read the output of :meth:`to_json`.

        Raises:
            ValueError: It is not the state of such a query.
            TimeError: A time is not of the loop's domain.
        """
        empty = cls.unknown(graph, query)
        if not isinstance(value, dict):
            raise ValueError("the state of a query is not an object")
        consumed, held = value.get("consumed"), value.get("held")
        if not isinstance(consumed, dict) or set(consumed) != set(empty.consumed):
            raise ValueError(f"consumed does not name exactly the channels {sorted(empty.consumed)}")
        if any(type(at) is not int or at < 0 for at in consumed.values()):
            raise ValueError("consumed has a position that is not a whole number of 0 or more")
        if not isinstance(held, dict) or set(held) != set(empty.held):
            raise ValueError(f"held does not name exactly the channels {sorted(empty.held)}")
        read = Antichain.from_json
        times = {channel: read(graph.domain, each, f"held.{channel}") for channel, each in held.items()}
        return cls(read(graph.domain, value.get("outside"), "outside"), consumed, times)


def arrivals_of(
    graph: LoopGraph, states: Mapping[str, QueryState], rows: Mapping[str, Sequence[tuple[int, Sequence[Time]]]]
) -> Iterator[Arrival]:
    """Yield what may come to the queries of a loop, by the states of some of them and the rows in the channels.

    Args:
        graph: The loop.
        states: The states of the queries by name, as the channels' logs have them.
        rows: For each channel of the loop, the times of its commits with rows, each with its version: at least those that a
            query with a state has not consumed. The log is known at least as far as the writer's state comes from it.
    """
    for name, state in states.items():
        yield from ((name, time) for time in state.outside)
        for channel, at in state.consumed.items():
            yield from ((name, time) for version, times in rows[channel] if version >= at for time in times)
        for channel, held in state.held.items():
            yield from graph.arrivals(channel, held)
