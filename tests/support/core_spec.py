"""Brute force: what the core's fast algorithms must answer, written as the definitions read. No speed, no state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from strandline.time.domain import Time, TimeDomain
from strandline.time.path.summary import PathSummary, identity
from strandline.tracker.graph import Graph, Location, source, target


def minimal(domain: TimeDomain, times: Iterable[Time]) -> set[Time]:
    """The times that no other of them is strictly less than."""
    distinct = set(times)
    return {t for t in distinct if not any(domain.less_than(u, t) for u in distinct)}


def frontier(domain: TimeDomain, counts: Counter[Time]) -> set[Time]:
    return minimal(domain, (t for t, count in counts.items() if count > 0))


def least(paths: Iterable[PathSummary]) -> set[PathSummary]:
    distinct = set(paths)
    return {s for s in distinct if not any(r != s and r.less_equal(s) for r in distinct)}


def closure(graph: Graph) -> dict[tuple[Location, Location], set[PathSummary]]:
    """The least summaries of all paths between any two locations, by relaxing until nothing changes (the transitive closure)."""
    steps: dict[Location, list[tuple[PathSummary, Location]]] = {location: [] for location in graph.locations()}
    for n, node in enumerate(graph.nodes):
        for o, targets in enumerate(node.edges):
            steps[source(n, o)] += [(identity(graph.domain), to) for to in targets]
        for i, row in enumerate(node.summaries):
            steps[target(n, i)] += [(s, source(n, o)) for o, paths in row.items() for s in paths]
    found = {(location, location): {identity(graph.domain)} for location in graph.locations()}
    changed = True
    while changed:
        changed = False
        for (start, middle), paths in list(found.items()):
            for step, end in steps[middle]:
                longer = {both for s in paths if (both := s.followed_by(step)) is not None}
                known = found.get((start, end), set())
                merged = least(known | longer)
                if merged != known:
                    found[start, end] = merged
                    changed = True
    return found


def implied(
    graph: Graph, paths: dict[tuple[Location, Location], set[PathSummary]], counts: Counter[tuple[Location, Time]]
) -> dict[Location, set[Time]]:
    """Invariant 5: F(l) = minimal { σ(t) : p(l', t) > 0, σ ∈ path(l', l) }."""
    arrived: dict[Location, list[Time]] = {location: [] for location in graph.locations()}
    for (start, end), summaries in paths.items():
        for (held_at, time), count in counts.items():
            if held_at == start and count > 0:
                arrived[end] += [t for s in summaries if (t := s.results_in(time)) is not None]
    return {location: minimal(graph.domain, found) for location, found in arrived.items()}


def scope_outputs(
    graph: Graph, paths: dict[tuple[Location, Location], set[PathSummary]]
) -> dict[Location, dict[int, set[PathSummary]]]:
    """Least summaries from each location to each scope output, over paths that stay inside the scope (node 0 must be empty)."""
    found: dict[Location, dict[int, set[PathSummary]]] = {}
    for (start, end), summaries in paths.items():
        if end.node == 0 and not end.is_source and start != end and summaries:
            found.setdefault(start, {})[end.port] = summaries
    return found
