"""Reachability: the times that the pointstamps in a graph imply at every location, updated incrementally."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any, Protocol

from strandline.time.antichain import Antichain
from strandline.time.domain import Time
from strandline.time.mutable_antichain import FrontierChange, MutableAntichain
from strandline.time.path.summary import PathSummary, Summaries, identity
from strandline.tracker import errors
from strandline.tracker.explanation import Hold, explain
from strandline.tracker.graph import Graph, Location, source, target

__all__ = ["Recorder", "Tracker", "summarize_outputs"]


class Recorder(Protocol):
    """Receives the changes of a tracker: a :class:`~strandline.ProgressLog`."""

    def begin(self) -> None: ...

    def append(self, location: Location, updates: Iterable[tuple[Time, int]]) -> None: ...


class Tracker:
    """Tracks, for one graph, the implications of pointstamps at its ports (timely's ``reachability::Tracker``).

    A pointstamp ``(location, time)`` counts capabilities held at a source, or messages waiting at a target.
    :meth:`update_source` and :meth:`update_target` buffer changes, which take effect together in :meth:`propagate_all`. After
    it, the *implied* frontier of a location is the antichain of the least ``summary(t)``, over every pointstamp time ``t`` with
    a positive count and every path to the location. The tests compare this invariant with a brute-force computation. Counts may
    be negative for a while.

    Args:
        graph: The graph, which must be complete.
        log: Records every change of a pointstamp, for example a :class:`~strandline.ProgressLog`.

    Raises:
        GraphError: The graph is invalid.

    >>> from strandline.time.domain import uint64
    >>> from strandline.time.path.summary import advance
    >>> ring = Graph(uint64)
    >>> ids = [ring.add_node(1, 1), ring.add_node(1, 1), ring.add_node(1, 1, [{0: [advance(uint64)]}])]
    >>> for node in ids:
    ...     ring.add_edge(node, 0, (node + 1) % 3, 0)
    >>> tracker = Tracker(ring)
    >>> tracker.update_source(0, 0, 17, 1)
    >>> tracker.propagate_all()
    >>> [(str(l), t, d) for l, t, d in tracker.pushed() if not l.is_source]
    [('0.in0', 18, 1), ('1.in0', 17, 1), ('2.in0', 17, 1)]
    """

    def __init__(self, graph: Graph, log: Recorder | None = None) -> None:
        self.graph = graph
        self.domain = graph.domain
        self.log = log
        # Locations are numbered so that a path that changes no time only leads to greater numbers. In this order, each location
        # is visited once per propagation and time.
        self._locations = graph.order()
        self._index = {location: i for i, location in enumerate(self._locations)}
        self._next = self._compile()
        self.scope_summary: list[dict[int, Summaries]]
        """For each scope input, the least summaries to each scope output that it reaches inside."""
        self.scope_summary, self._to_outputs = self._summarize()
        size = len(self._locations)
        # Created on the first change of a location: most ports of a wide graph never hold anything.
        self._pointstamps: list[MutableAntichain | None] = [None] * size
        self._implications: list[MutableAntichain | None] = [None] * size
        self._changes: dict[int, dict[Time, int]] = {}
        self._work: dict[Time, dict[int, int]] = {}
        self._times: list[tuple[Time, Time]] = []
        self._pushed: dict[Time, dict[int, int]] = {}
        self._outputs: list[dict[Time, int]] = [{} for _ in range(graph.nodes[0].inputs if graph.nodes else 0)]
        self._total = 0
        self._capabilities = [0] * len(graph.nodes)

    # Updates.

    def update(self, location: Location, time: Time, delta: int) -> None:
        """Change the count of the pointstamp ``(location, time)`` by ``delta``, from the next :meth:`propagate_all` on.

        Args:
            location: The location.
            time: The time.
            delta: The change of the count.

        Raises:
            GraphError: The location is unknown.
            TimeError: ``time`` is not a time of the domain.
        """
        time = self.domain.time(time)
        index = self._index.get(location)
        if index is None:
            self.graph.check(location)
            raise errors.graph_unknown_port_added_late(location)
        changes = self._changes.get(index)
        if changes is None:
            changes = self._changes[index] = {}
        count = changes.get(time, 0) + delta
        if count:
            changes[time] = count
        elif delta:
            del changes[time]
            if not changes:
                del self._changes[index]

    def update_source(self, node: int, port: int, time: Time, delta: int) -> None:
        """Change the count of capabilities at an operator's output, or at a scope's input."""
        self.update(source(node, port), time, delta)

    def update_target(self, node: int, port: int, time: Time, delta: int) -> None:
        """Change the count of messages at an operator's input."""
        self.update(target(node, port), time, delta)

    def propagate_all(self) -> None:
        """Apply all buffered changes as one atomic batch, and propagate their implications.

        The work list of (time, location) is processed by least time. A change of a location's frontier at a time only causes
        changes at that time or at later times. At the same time, it only causes changes at locations that are later in the
        graph's order. So each (time, location) is final when it is processed. The work terminates, because a cycle advances the
        time and the held pointstamps are finite.
        """
        if self.log is not None:
            self.log.begin()
        for index, updates in self._changes.items():
            stamps = self._pointstamps[index]
            if stamps is None:
                stamps = self._pointstamps[index] = MutableAntichain(self.domain)
            location = self._locations[index]
            if self.log is not None:
                self.log.append(location, updates.items())
            if len(updates) == 1:
                [(time, delta)] = updates.items()
                changes = stamps.update(time, delta)
            else:
                changes = stamps.update_iter(updates.items())
            for time, delta in changes:
                self._total += delta
                if location.is_source:
                    self._capabilities[location.node] += delta
                for output, results_in in self._to_outputs[index]:
                    result = time if results_in is None else results_in(time)
                    if result is not None:
                        _add(self._outputs[output], result, delta)
                self._enqueue(time, index, delta)
        self._changes = {}
        while self._times:
            _, time = heappop(self._times)
            self._propagate(time)

    def _enqueue(self, time: Time, index: int, delta: int) -> None:
        work = self._work.get(time)
        if work is None:
            self._work[time] = {index: delta}
            heappush(self._times, (self.domain.sort_key(time), time))
        else:
            work[index] = work.get(index, 0) + delta

    def _propagate(self, now: Time) -> None:
        """Process every location at one time. This is the inner loop, written for speed."""
        work = self._work[now]
        order = sorted(work)  # a sorted list is a heap
        implications, successors, domain, enqueue = self._implications, self._next, self.domain, self._enqueue
        pushed_now = self._pushed.get(now)
        if pushed_now is None:
            pushed_now = self._pushed[now] = {}
        while order:
            index = heappop(order)
            delta = work.pop(index)
            if not delta:
                continue
            implied = implications[index]
            if implied is None:
                implied = implications[index] = MutableAntichain(domain)
            for time, change in implied.update(now, delta):
                if time == now:
                    _add(pushed_now, index, change)
                    for after, results_in in successors[index]:
                        if results_in is None:
                            if after in work:
                                work[after] += change
                            else:
                                work[after] = change
                                heappush(order, after)
                        else:
                            result = results_in(time)
                            if result is not None:
                                enqueue(result, after, change)
                else:
                    pushed = self._pushed.setdefault(time, {})
                    _add(pushed, index, change)
                    if not pushed:
                        del self._pushed[time]
                    for after, results_in in successors[index]:
                        result = time if results_in is None else results_in(time)
                        if result is not None:
                            enqueue(result, after, change)
        del self._work[now]
        if not pushed_now:
            del self._pushed[now]

    # What is known after a propagation.

    def pushed(self) -> list[tuple[Location, Time, int]]:
        """Return and clear the net changes of every location's implied frontier, sorted by location, then time."""
        locations, key = self._locations, self.domain.sort_key
        changes = [(locations[index], time, delta) for time, at_time in self._pushed.items() for index, delta in at_time.items()]
        self._pushed = {}
        changes.sort(key=lambda change: (change[0], key(change[1])))
        return changes

    def pushed_outputs(self) -> list[list[FrontierChange]]:
        """Return and clear, for each scope output, the net changes of the capabilities that the pointstamps inside imply there.

        A count is a number of (pointstamp frontier element, least summary) pairs, so it may be more than one. The outside world's
        own capabilities at the scope's inputs are not included, because the outside world knows them.
        """
        key = self.domain.sort_key
        changes = [sorted(output.items(), key=lambda change: key(change[0])) for output in self._outputs]
        for output in self._outputs:
            output.clear()
        return changes

    def frontier(self, location: Location) -> Antichain:
        """Return the implied frontier: the least times at which something may still appear at ``location``."""
        return self.implications(location).frontier

    def implications(self, location: Location) -> MutableAntichain:
        """Return the number of frontier elements, here and one step before, that imply each time at ``location``.

        Do not change the result.
        """
        return self._at(self._implications, location)

    def pointstamps(self, location: Location) -> MutableAntichain:
        """Return the counts of the pointstamps held at ``location`` itself. Do not change the result."""
        return self._at(self._pointstamps, location)

    def held(self) -> list[tuple[Location, Time, int]]:
        """Return every pointstamp with a nonzero count, sorted by location, then time."""
        key = self.domain.sort_key
        found = [
            (self._locations[index], time, count)
            for index, stamps in enumerate(self._pointstamps)
            if stamps is not None
            for time, count in stamps.updates()
        ]
        found.sort(key=lambda stamp: (stamp[0], key(stamp[1])))
        return found

    def explain(self, location: Location, time: Time) -> list[Hold]:
        """Return the pointstamps that keep ``time`` open at ``location``, with their least paths. See :func:`explain`."""
        return explain(self, location, time)

    def capabilities(self, node: int) -> int:
        """Return the total size of the frontiers of capabilities held at a node's outputs.

        At 0 the node can send nothing on its own.
        """
        return self._capabilities[node]

    def is_global(self, location: Location, time: Time) -> bool:
        """Whether the location's implied frontier would move if a pointstamp there disappeared.

        It would when no frontier element is strictly less and at most one place implies the time. Such a change must be sent to
        other workers at once. Any other change may wait (timely's ``is_global``).
        """
        implied = self.implications(location)
        return not implied.less_than(time) and implied.count_for(time) <= 1

    def tracking_anything(self) -> bool:
        """Whether any pointstamp has a positive count, or a change waits to be propagated."""
        return bool(self._changes) or self._total > 0

    def _at(self, held: list[MutableAntichain | None], location: Location) -> MutableAntichain:
        index = self._index.get(location)
        if index is None:
            self.graph.check(location)
            raise errors.graph_unknown_port_added_late(location)
        found = held[index]
        return found if found is not None else MutableAntichain(self.domain)

    # Compiling the graph.

    def _compile(self) -> list[tuple[_Step, ...]]:
        """Return, for each location, the next locations of a frontier change, each with its function (``None``: no change)."""
        steps: list[tuple[_Step, ...]] = []
        for location in self._locations:
            node = self.graph.nodes[location.node]
            if location.is_source:
                steps.append(tuple((self._index[to], None) for to in node.edges[location.port]))
            else:
                steps.append(
                    tuple(
                        (self._index[source(location.node, output)], _function(summary))
                        for output, paths in node.summaries[location.port].items()
                        for summary in paths
                    )
                )
        return steps

    def _summarize(self) -> tuple[list[dict[int, Summaries]], list[tuple[_Step, ...]]]:
        found = summarize_outputs(self.graph)
        scope = [found.get(source(0, port), {}) for port in range(self.graph.nodes[0].outputs)] if self.graph.nodes else []
        to_outputs: list[tuple[_Step, ...]] = [
            ()
            if location.node == 0
            else tuple((output, _function(s)) for output, paths in found.get(location, {}).items() for s in paths)
            for location in self._locations
        ]
        return scope, to_outputs


_Step = tuple[int, Callable[[Time], Time | None] | None]


def _function(summary: PathSummary) -> Callable[[Time], Time | None] | None:
    return None if summary.is_identity else summary.results_in


def _add(counts: dict[Any, int], key: Any, delta: int) -> None:
    count = counts.get(key, 0) + delta
    if count:
        counts[key] = count
    else:
        del counts[key]


def summarize_outputs(graph: Graph) -> dict[Location, dict[int, Summaries]]:
    """Return, for each location that reaches a scope output, these outputs with the least summaries of the paths to them.

    The search walks backwards from the scope's outputs (the targets of node 0). It continues only from locations where a summary
    was new or smaller than all known ones. It does not pass through node 0: the outside itself declares what it does with the
    scope's results.

    >>> from strandline.time.domain import uint64
    >>> graph = Graph(uint64)
    >>> outside, inside = graph.add_node(1, 1, [{}]), graph.add_node(1, 1)
    >>> graph.add_edge(outside, 0, inside, 0), graph.add_edge(inside, 0, outside, 0)
    (None, None)
    >>> {str(location): paths for location, paths in summarize_outputs(graph).items()}
    {'1.out0': {0: Summaries([+0])}, '1.in0': {0: Summaries([+0])}, '0.out0': {0: Summaries([+0])}}
    """
    edges_to: dict[Location, list[Location]] = {}
    paths_to: dict[Location, list[tuple[Location, Summaries]]] = {}
    for index, node in enumerate(graph.nodes):
        for port, targets in enumerate(node.edges):
            for to in targets:
                edges_to.setdefault(to, []).append(source(index, port))
        if index == 0:
            continue
        for port, row in enumerate(node.summaries):
            for output, paths in row.items():
                paths_to.setdefault(source(index, output), []).append((target(index, port), paths))
    found: dict[Location, dict[int, Summaries]] = {}
    work: deque[tuple[Location, int, PathSummary]] = deque()
    if graph.nodes:
        unchanged = identity(graph.domain)
        work.extend((target(0, port), port, unchanged) for port in range(graph.nodes[0].inputs))
    while work:
        location, output, summary = work.popleft()
        if location.is_source:
            before = [
                (at, both)
                for at, paths in paths_to.get(location, ())
                for s in paths
                if (both := s.followed_by(summary)) is not None
            ]
        else:
            before = [(at, summary) for at in edges_to.get(location, ())]
        for at, both in before:
            if found.setdefault(at, {}).setdefault(output, Summaries()).insert(both):
                work.append((at, output, both))
    return found
