"""Explanations: which pointstamps, along which least paths, keep a time open at a location."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from strandline.time.domain import Time, TimeDomain
from strandline.time.path.summary import PathSummary, Summaries, identity
from strandline.tracker.graph import Graph, Location, source, target

__all__ = ["Hold", "explain", "least_paths"]


@dataclass(frozen=True)
class Hold:
    """One pointstamp that keeps a time open: ``count`` held at ``location`` and ``time``, which could arrive at ``arrives``.

    ``path`` lists the locations from that of the pointstamp to the requested one, both included. ``summary`` is its path summary.
    """

    location: Location
    time: Time
    count: int
    path: tuple[Location, ...]
    summary: PathSummary
    arrives: Time

    def describe(self, graph: Graph) -> str:
        """Return the human-readable form, with the operators' names."""
        kind = "capabilities held" if self.location.is_source else "messages waiting"
        domain = graph.domain
        path = " → ".join(graph.name(location) for location in self.path)
        return (
            f"{self.count} {kind} at {graph.name(self.location)}, {domain.format(self.time)}, "
            f"may arrive as {domain.format(self.arrives)} along {path}"
        )


class Pointstamps(Protocol):
    """A graph with counts of pointstamps: the part of a :class:`~strandline.Tracker` that an explanation needs."""

    graph: Graph
    domain: TimeDomain

    def held(self) -> Iterable[tuple[Location, Time, int]]: ...


def explain(tracker: Pointstamps, location: Location, time: Time) -> list[Hold]:
    """Return the pointstamps that keep ``time`` open at ``location``.

    The list is empty exactly when the implied frontier at ``location`` has no element ≤ ``time``, that is, when the time is
    closed.

    Args:
        tracker: The tracker, or another graph with counts of pointstamps.
        location: The location.
        time: The time.

    Returns:
        The pointstamps, each with a path on which it could still result in a time ≤ ``time``. The earliest arrivals come first.

    Raises:
        GraphError: The location is unknown.

    >>> from strandline.time.domain import uint64
    >>> from strandline.tracker.reachability import Tracker
    >>> graph = Graph(uint64)
    >>> nodes = [graph.add_node(0, 0), graph.add_node(0, 1, name="input"), graph.add_node(1, 1, name="count")]
    >>> graph.add_edge(1, 0, 2, 0)
    >>> tracker = Tracker(graph)
    >>> tracker.update_source(1, 0, 3, 1)
    >>> tracker.propagate_all()
    >>> print(explain(tracker, target(2, 0), 7)[0].describe(graph))
    1 capabilities held at input.out0, 3, may arrive as 3 along input.out0 → count.in0
    >>> explain(tracker, target(2, 0), 2)
    []
    """
    domain = tracker.domain
    paths = least_paths(tracker.graph, location)
    holds = []
    for at, held, count in tracker.held():
        if count <= 0:
            continue
        for summary, path in paths.get(at, {}).items():
            arrives = summary.results_in(held)
            if arrives is not None and domain.less_equal(arrives, time):
                holds.append(Hold(at, held, count, path, summary, arrives))
    holds.sort(key=lambda hold: (domain.sort_key(hold.arrives), len(hold.path), hold.location))
    return holds


def least_paths(graph: Graph, to: Location) -> dict[Location, dict[PathSummary, tuple[Location, ...]]]:
    """Return, for each location that reaches ``to``, the least summaries, each with a shortest path of that summary."""
    graph.check(to)
    steps: dict[Location, list[tuple[Location, PathSummary]]] = {}
    unchanged = identity(graph.domain)
    for index, node in enumerate(graph.nodes):
        for port, targets in enumerate(node.edges):
            for end in targets:
                steps.setdefault(end, []).append((source(index, port), unchanged))
        for port, row in enumerate(node.summaries):
            for output, paths in row.items():
                steps.setdefault(source(index, output), []).extend((target(index, port), s) for s in paths)
    least = {to: Summaries([unchanged])}
    after: dict[tuple[Location, PathSummary], tuple[Location, PathSummary]] = {}
    work: deque[tuple[Location, PathSummary]] = deque([(to, unchanged)])
    while work:
        location, summary = work.popleft()
        for before, step in steps.get(location, ()):
            both = step.followed_by(summary)
            if both is not None and least.setdefault(before, Summaries()).insert(both):
                after[before, both] = (location, summary)
                work.append((before, both))
    found: dict[Location, dict[PathSummary, tuple[Location, ...]]] = {}
    for location, summaries in least.items():
        for summary in summaries:
            path, step_at = [location], (location, summary)
            while step_at in after:
                step_at = after[step_at]
                path.append(step_at[0])
            found.setdefault(location, {})[summary] = tuple(path)
    return found
