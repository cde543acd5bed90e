"""Dataflow graphs: locations, nodes with path summaries from inputs to outputs, edges, and the validity of a graph.

:func:`in_order` finds a cycle that does not advance. ``loop/graph.py`` asks it of the queries of a loop.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import NamedTuple, TypeVar

from strandline.time.domain import TimeDomain
from strandline.time.path.summary import PathSummary, Summaries, identity
from strandline.tracker import errors

__all__ = ["Graph", "Location", "Node", "in_order", "source", "target"]

N = TypeVar("N")


class Location(NamedTuple):
    """A port: an operator's input (a *target* of messages) or output (a *source* of them).

    Sorts by node, targets before sources, then port. Node 0 stands for the outside world: its sources are the scope's inputs,
    and its targets are the scope's outputs.

    >>> print(target(3, 0), source(0, 1))
    3.in0 0.out1
    """

    node: int
    is_source: bool
    port: int

    def __str__(self) -> str:
        return f"{self.node}.{'out' if self.is_source else 'in'}{self.port}"


def source(node: int, port: int) -> Location:
    """Return the location of the output ``port`` of ``node``. Capabilities are held there."""
    return Location(node, True, port)


def target(node: int, port: int) -> Location:
    """Return the location of the input ``port`` of ``node``. Messages wait there."""
    return Location(node, False, port)


@dataclass
class Node:
    """One operator in the graph: its numbers of ports, and the least summaries from each input to each output."""

    inputs: int
    outputs: int
    summaries: list[dict[int, Summaries]]
    name: str = ""
    edges: list[list[Location]] = field(default_factory=list)
    """For each output, the targets that it is connected to."""


class Graph:
    """The shape of one scope: nodes with their least path summaries, and edges, which do not change times.

    The first node added is node 0, the outside world. It may have path summaries like any other node, as if the outside world
    were an operator in the scope. They describe the outside paths, from the scope's outputs to its inputs.

    >>> from strandline.time.domain import uint64
    >>> from strandline.time.path.summary import advance
    >>> ring = Graph(uint64)
    >>> ids = [ring.add_node(1, 1), ring.add_node(1, 1), ring.add_node(1, 1, [{0: [advance(uint64)]}])]
    >>> for node in ids:
    ...     ring.add_edge(node, 0, (node + 1) % 3, 0)
    >>> ring.validate()
    """

    def __init__(self, domain: TimeDomain) -> None:
        self.domain = domain
        self.nodes: list[Node] = []
        self._edges: set[tuple[Location, Location]] = set()

    def add_node(
        self,
        inputs: int,
        outputs: int,
        summaries: Sequence[Mapping[int, Iterable[PathSummary]]] | None = None,
        name: str = "",
    ) -> int:
        """Add an operator.

        Args:
            inputs: The number of inputs.
            outputs: The number of outputs.
            summaries: For each input, a mapping from outputs to the summaries of the paths between them. An output that is left
                out is not reached. By default every input reaches every output and no time is changed.
            name: The name of the operator (default: its index).

        Returns:
            The index of the node.

        Raises:
            GraphError: A number is negative, or a summary is invalid or leads to an unknown output.
        """
        index = len(self.nodes)
        if inputs < 0 or outputs < 0:
            raise errors.graph_invalid_ports(index, inputs, outputs)
        if summaries is None:
            default = Summaries([identity(self.domain)])
            connectivity = [dict.fromkeys(range(outputs), default) for _ in range(inputs)]
        else:
            if len(summaries) != inputs:
                raise errors.graph_invalid_inputs(index, inputs, len(summaries))
            connectivity = [
                {output: found for output, paths in row.items() if len(found := Summaries(paths))} for row in summaries
            ]
            for input_port, row in enumerate(connectivity):
                for output, paths in row.items():
                    if any(path.domain != self.domain for path in paths):
                        raise errors.graph_invalid_domain(paths, index, self.domain)
                    if any(path.resets for path in paths):
                        raise errors.graph_invalid_backwards(paths, index)
                    if not 0 <= output < outputs:
                        raise errors.graph_unknown_port_of_summary(index, outputs, input_port, output)
        self.nodes.append(Node(inputs, outputs, connectivity, name or f"node {index}", [[] for _ in range(outputs)]))
        return index

    def add_edge(self, from_node: int, output: int, to_node: int, input: int) -> None:  # noqa: A002
        """Connect an output to an input. Several edges may leave an output, and several may end in an input.

        Args:
            from_node: The node of the output.
            output: The output.
            to_node: The node of the input.
            input: The input.

        Raises:
            GraphError: A port does not exist, or the edge exists already: its messages would count twice.
        """
        edge = (source(from_node, output), target(to_node, input))
        for end in edge:
            self.check(end)
        if edge in self._edges:
            raise errors.graph_double_edge(self.name(edge[0]), self.name(edge[1]))
        self._edges.add(edge)
        self.nodes[from_node].edges[output].append(edge[1])

    def check(self, location: Location) -> None:
        """Raise :class:`GraphError` unless ``location`` is a port of this graph."""
        node, is_source, port = location
        if not 0 <= node < len(self.nodes):
            raise errors.graph_unknown_port_of_node(node, len(self.nodes))
        ports = self.nodes[node].outputs if is_source else self.nodes[node].inputs
        if not 0 <= port < ports:
            kind = "output" if is_source else "input"
            raise errors.graph_unknown_port(self.nodes[node].name, node, ports, kind, port)

    def name(self, location: Location) -> str:
        """Return the human-readable form of a location: the operator's name and its port."""
        return f"{self.nodes[location.node].name}.{'out' if location.is_source else 'in'}{location.port}"

    def locations(self) -> list[Location]:
        """Every port, in sorted order."""
        found = []
        for index, node in enumerate(self.nodes):
            found += [target(index, port) for port in range(node.inputs)]
            found += [source(index, port) for port in range(node.outputs)]
        return found

    def validate(self) -> None:
        """Raise :class:`CycleError` when a cycle does not strictly advance times.

        Times on such a cycle would wait for themselves for ever.
        """
        self.order()

    def order(self) -> list[Location]:
        """Return every location, in topological order along the paths that change no time.

        Raises a :class:`CycleError` that shows the cycle when there is no such order. (Timely's ``Builder::build`` only prints.)
        """
        order, cycle = in_order({location: self._unchanged(location) for location in self.locations()})
        if cycle:
            start = cycle.index(min(cycle))
            cycle = cycle[start:] + cycle[:start]
            error = errors.graph_cycle(self.name(location) for location in (*cycle, cycle[0]))
            error.cycle = tuple(cycle)
            raise error
        return order

    def _unchanged(self, location: Location) -> list[Location]:
        """Return the locations that a time can reach from ``location`` in one step without an advance."""
        node = self.nodes[location.node]
        if location.is_source:
            return node.edges[location.port]
        row = node.summaries[location.port]
        return [source(location.node, output) for output, paths in row.items() if any(s.is_identity for s in paths)]


def in_order(unchanged: Mapping[N, Iterable[N]]) -> tuple[list[N], list[N]]:
    """Return the nodes of a graph in topological order, or a cycle of it.

    Args:
        unchanged: For each node, the nodes that times reach from it without an advance.

    Returns:
        The nodes, each before those that it reaches, and an empty list. If there is no such order: an empty list, and the nodes
        of a cycle, each before the one that it reaches.

    >>> in_order({"a": ["b"], "b": ["c"], "c": []}), in_order({"a": ["b"], "b": ["a"]})
    ((['a', 'b', 'c'], []), ([], ['b', 'a']))
    """
    sorter: TopologicalSorter[N] = TopologicalSorter()
    for node, reached in unchanged.items():
        for after in reached:
            sorter.add(after, node)
    for node in unchanged:
        sorter.add(node)
    try:
        return list(sorter.static_order()), []
    except graphlib.CycleError as found:
        return [], found.args[1][:-1]
