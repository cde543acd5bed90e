"""The graph of a scope: a node for each channel and for each query, over which the core's tracker does the reachability."""

from __future__ import annotations

from strandline.scope import errors
from strandline.scope.definition import ScopeDefinition
from strandline.tracker.graph import Graph, Location, source

__all__ = ["ScopeGraph"]


class ScopeGraph:
    """The core's :class:`~strandline.Graph` of a scope's definition.

    A channel is a node with one input, the rows of the scope's queries, and one output, from which the queries read. The
    capabilities of the channel's producers are held at this output. A query is a node with an input for each channel that it
    reads, and an output for each that it writes.

    Raises:
        CycleError: A cycle does not strictly advance times. The error shows the cycle.
        GraphError: A summary moves times backwards.
        ScopeError: ``STRANDLINE_SCOPE_TWO_WRITERS``: two queries write a channel of a cycle.

    >>> from strandline.scope.definition import ScopeChannel, ScopeQuery, summaries_of
    >>> from strandline.time.domain import int64
    >>> channels = {name: ScopeChannel(name, name) for name in ("edges", "labels")}
    >>> reads, writes = ("edges", "labels"), ("labels",)
    >>> query = ScopeQuery(reads, writes, summaries_of(int64, "spread", None, reads, writes))
    >>> ScopeGraph(ScopeDefinition("7c1f", int64, channels, {"spread": query}))
    Traceback (most recent call last):
    strandline.errors.CycleError: [STRANDLINE_GRAPH_CYCLE] The cycle channel labels.in0 → ... does not advance times. ...
    """

    def __init__(self, definition: ScopeDefinition) -> None:
        self.graph = Graph(definition.domain)
        self.graph.add_node(0, 0, name="outside")
        self._channels = {name: self.graph.add_node(1, 1, name=f"channel {name}") for name in definition.channels}
        self._queries: dict[str, int] = {}
        for name, query in definition.queries.items():
            outputs = {write: port for port, write in enumerate(query.writes)}
            rows = [
                {outputs[write]: paths for write, paths in query.summaries.get(read, {}).items() if write in outputs}
                for read in query.reads
            ]
            node = self._queries[name] = self.graph.add_node(len(query.reads), len(query.writes), rows, name=f"query {name}")
            for port, read in enumerate(query.reads):
                self.graph.add_edge(self._channels[read], 0, node, port)
            for write, port in outputs.items():
                self.graph.add_edge(node, port, self._channels[write], 0)
        self.graph.validate()
        self._check_writers(definition)

    def output(self, channel: str) -> Location:
        """Return the location at which the channel's rows leave it. Its frontier is the channel's frontier."""
        return source(self._channels[channel], 0)

    def channel_at(self, location: Location) -> str:
        """Return the channel with this output. Raises ``KeyError`` for another location."""
        return {self.output(name): name for name in self._channels}[location]

    def _check_writers(self, definition: ScopeDefinition) -> None:
        for channel in definition.channels:
            writers = [name for name, query in definition.queries.items() if channel in query.writes]
            if len(writers) > 1 and self._is_in_cycle(self._channels[channel]):
                raise errors.scope_two_writers(writers, channel)

    def _is_in_cycle(self, node: int) -> bool:
        """Whether a path leads from a node back to it."""
        seen: set[int] = set()
        left = [node]
        while left:
            for after in self._after(left.pop()):
                if after == node:
                    return True
                if after not in seen:
                    seen.add(after)
                    left.append(after)
        return False

    def _after(self, node: int) -> set[int]:
        reached = {output for row in self.graph.nodes[node].summaries for output in row}
        return {to.node for output in reached for to in self.graph.nodes[node].edges[output]}
