"""Subgraphs: a scope of operators that tracks the progress inside it. From outside, the scope is an operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from strandline.time.change_batch import ChangeBatch
from strandline.time.domain import Time
from strandline.time.mutable_antichain import MutableAntichain
from strandline.time.path.summary import Connectivity, Summaries, identity
from strandline.tracker import errors
from strandline.tracker.explanation import Hold
from strandline.tracker.graph import Graph, Location, source, target
from strandline.tracker.operate import Operate, SharedProgress, batches
from strandline.tracker.reachability import Tracker
from strandline.tracker.refinement import Refinement

__all__ = ["Loopback", "Peers", "Pointstamp", "ScopedHold", "Subgraph"]

Pointstamp = tuple[Location, Time]
"""A location and a time. A scope's workers exchange the counts of pointstamps."""


class Peers(Protocol):
    """Carries batches of changes between the workers of one scope. Batches arrive whole, those of each sender in order."""

    def send(self, changes: ChangeBatch[Pointstamp]) -> None:
        """Send a batch to every worker, this one included, and drain it."""

    def recv(self, into: ChangeBatch[Pointstamp]) -> None:
        """Add the batches that have arrived."""


class Loopback:
    """The peers of a single worker: it receives its own batches."""

    def __init__(self) -> None:
        self._changes: ChangeBatch[Pointstamp] = ChangeBatch()

    def send(self, changes: ChangeBatch[Pointstamp]) -> None:
        """Keep the batch for the next :meth:`recv`."""
        changes.drain_into(self._changes)

    def recv(self, into: ChangeBatch[Pointstamp]) -> None:
        """Move the sent batches into ``into``."""
        self._changes.drain_into(into)


@dataclass(frozen=True)
class ScopedHold:
    """A hold that is followed across scopes, from the requested location to the real location of the pointstamp."""

    scope: Subgraph
    hold: Hold
    because: ScopedHold | None = None
    """The cause of a hold at a scope's border: a hold in the scope around it, or inside it."""

    @property
    def root(self) -> ScopedHold:
        """The hold of the real pointstamp."""
        return self if self.because is None else self.because.root

    def describe(self, on: str = "") -> str:
        """Return the human-readable form: the real pointstamp, ``on`` after its scope, then the borders that it acts across."""
        here = f"{self.hold.describe(self.scope.graph)} (in {self.scope.name}"
        return f"{here}{on})" if self.because is None else f"{self.because.describe(on)}; so {here})"


class _Child:
    """The state that a scope keeps for one of its operators."""

    def __init__(self, operator: Operate) -> None:
        self.operator = operator
        self.shared = SharedProgress.of(operator.inputs, operator.outputs)
        self.summary, self.shared.internals = operator.get_internal_summary()
        self.active = True


class Subgraph(Operate):
    """A scope (timely's ``Subgraph``): operators 1, 2, … and, as child 0, the outside world.

    The outputs of child 0 are the scope's inputs, and its inputs are the scope's outputs. The frontiers that the outside reports
    are tracked as capabilities of child 0. Messages that cross the border are reported to the outside. Each pull runs timely's
    ten steps:

    1. accept the outside's frontiers;
    2. count the messages that entered;
    3. receive the changes of the peers;
    4. commit the changes;
    5. propagate;
    6. report the frontiers to the children;
    7. report the capabilities that the scope implies to the outside;
    8. let the children work;
    9. send the changes of the children to the peers;
    10. return whether there is more to do.

    Args:
        name: The name of the scope.
        refinement: How the inner times are derived from the outer times.
        children: The operators.
        edges: The edges between locations. Node 0 is the outside world.
        inputs: The number of the scope's inputs.
        outputs: The number of the scope's outputs.
        peers: Carries the changes between the workers (default: a single worker).
        input_messages: For each input, the messages that enter, by inner time. The code that carries the data updates it.
        eager: Whether all progress is sent at once. Otherwise a change that cannot delay any worker may wait, to be merged with
            later changes.
    """

    local = False

    def __init__(
        self,
        name: str,
        refinement: Refinement,
        children: Sequence[Operate],
        edges: Sequence[tuple[Location, Location]],
        inputs: int = 0,
        outputs: int = 0,
        *,
        peers: Peers | None = None,
        input_messages: Sequence[ChangeBatch[Time]] | None = None,
        eager: bool = True,
    ) -> None:
        self.name = name
        self.refinement = refinement
        self.domain = refinement.outer
        self.input_messages = batches(inputs) if input_messages is None else list(input_messages)
        self._inputs, self._outputs, self._eager = inputs, outputs, eager
        self._peers: Peers = Loopback() if peers is None else peers

        graph = Graph(refinement.inner)
        graph.add_node(outputs, inputs, [{}] * outputs, name=f"outside of {name}")
        self.children: list[_Child] = []
        for operator in children:
            child = _Child(operator)
            self.children.append(child)
            graph.add_node(operator.inputs, operator.outputs, child.summary, name=operator.name)
        for start, end in edges:
            graph.add_edge(start.node, start.port, end.node, end.port)
        self.graph = graph
        self.tracker = Tracker(graph)

        self._local: ChangeBatch[Pointstamp] = ChangeBatch()
        """The changes that this worker made and has not sent yet."""
        self._final: ChangeBatch[Pointstamp] = ChangeBatch()
        """The known changes of all workers. They are committed next."""
        self._output_capabilities = [MutableAntichain(refinement.outer) for _ in range(outputs)]

    @property
    def inputs(self) -> int:
        return self._inputs

    @property
    def outputs(self) -> int:
        return self._outputs

    # Building.

    def get_internal_summary(self) -> tuple[Connectivity, list[ChangeBatch[Time]]]:
        """Return the scope's least summaries as the outside sees them, and the capabilities that it holds at the start."""
        summary: list[dict[int, Summaries]] = [
            {output: Summaries(map(self.refinement.summarize, paths)) for output, paths in row.items()}
            for row in self.tracker.scope_summary
        ]
        # Every worker counts the children's first capabilities for all workers. They are committed here and not exchanged.
        for index, child in enumerate(self.children, 1):
            self._extract(index, child, self._final)
        progress = SharedProgress.of(self.inputs, self.outputs)
        self._commit(progress.consumeds, progress.internals, progress.produceds)
        return summary, progress.internals

    def set_external_summary(self, summaries: Connectivity, frontiers: Sequence[ChangeBatch[Time]]) -> None:
        """Receive the summaries of the outside, and pass to each child the summaries of the paths around it.

        The outside's first frontiers are applied here. Only the children receive the effect of the outside on times. The tracker
        does not need it, because the frontiers that the outside reports contain the times that return through the outside.
        """
        around = self.refinement.around
        outside = [{port: Summaries(map(around, paths)) for port, paths in row.items()} for row in summaries]
        self.push_external_progress(frontiers)
        # The outside's capabilities are not the scope's. They do not change what the scope may send by itself.
        self._propagate(batches(self.outputs))
        for index, child in enumerate(self.children, 1):
            # Computing a summary needs a walk over the scope for each output of the child.
            rows = _external_summary(self.graph, index, outside) if _uses_external_summary(child.operator) else []
            child.operator.set_external_summary(rows, child.shared.frontiers)

    def explain(self, path: Sequence[int], location: Location, time: Time) -> list[ScopedHold]:
        """Return the holds that keep ``time`` open at a location of this scope, or of a scope nested in it along ``path``.

        This does the same as :meth:`Tracker.explain <strandline.tracker.reachability.Tracker.explain>`, but it follows a hold by
        the outside world outwards, as far as this scope, and it follows the capabilities of a nested scope into that scope.

        Args:
            path: The children that lead to the nested scope, from outside to inside.
            location: The location.
            time: The time.

        Raises:
            GraphError: ``path`` contains a child that is not a scope.
        """
        if not path:
            return self._explain_here(location, time)
        inner = self.children[path[0] - 1].operator
        if not isinstance(inner, Subgraph):
            raise errors.graph_invalid_path(inner.name, self.name)
        found = []
        for held in inner.explain(path[1:], location, time):
            at = held.hold.location
            if at.node != 0 or held.scope is not inner:
                found.append(held)
                continue
            outside = self._explain_here(target(path[0], at.port), inner.refinement.to_outer(held.hold.time))
            found += [replace(held, because=other) for other in outside] or [held]
        return found

    def _explain_here(self, location: Location, time: Time) -> list[ScopedHold]:
        found = []
        for hold in self.tracker.explain(location, time):
            at = hold.location
            child = self.children[at.node - 1].operator if at.node else None
            inside = []
            if at.is_source and isinstance(child, Subgraph):
                until = child.refinement.to_inner_greatest(hold.time)
                inside = [h for h in child._explain_here(target(0, at.port), until) if h.hold.location.node]
            found += [ScopedHold(self, hold, h) for h in inside] or [ScopedHold(self, hold)]
        return found

    # Working.

    def push_external_progress(self, frontiers: Sequence[ChangeBatch[Time]]) -> None:
        """Step 1: the outside's frontiers become capabilities of child 0."""
        for port, changes in enumerate(frontiers):
            for time, delta in changes.drain():
                self.tracker.update_source(0, port, self.refinement.to_inner(time), delta)

    def pull_internal_progress(
        self,
        consumeds: Sequence[ChangeBatch[Time]],
        internals: Sequence[ChangeBatch[Time]],
        produceds: Sequence[ChangeBatch[Time]],
    ) -> bool:
        """Steps 2 to 10; see the class."""
        self._harvest_inputs()
        self._peers.recv(self._final)
        self._commit(consumeds, internals, produceds)
        for index, child in enumerate(self.children, 1):
            child.operator.push_external_progress(child.shared.frontiers)
            shared = child.shared
            child.active = child.operator.pull_internal_progress(shared.consumeds, shared.internals, shared.produceds)
            self._extract(index, child, self._local if child.operator.local else self._final)
        if self._must_send():
            self._peers.send(self._local)
        return any(child.active for child in self.children) or not self._final.is_empty() or self.tracker.tracking_anything()

    def _harvest_inputs(self) -> None:
        """Step 2: count entered messages as waiting at the targets of child 0's outputs, and as consumed from the outside."""
        for port, messages in enumerate(self.input_messages):
            for time, count in messages.drain():
                for to in self.graph.nodes[0].edges[port]:
                    self._local.update((to, time), count)
                self._local.update((source(0, port), time), -count)

    def _commit(
        self,
        consumeds: Sequence[ChangeBatch[Time]],
        internals: Sequence[ChangeBatch[Time]],
        produceds: Sequence[ChangeBatch[Time]],
    ) -> None:
        """Steps 4 to 7, which belong together: commit the changes at the border and inside, and propagate them to both sides."""
        to_outer = self.refinement.to_outer
        for (location, time), delta in self._final.drain():
            if location.node != 0:
                self.tracker.update(location, time, delta)
            elif location.is_source:
                consumeds[location.port].update(to_outer(time), -delta)
            else:
                # Not tracked here: the outside sees their consumption.
                produceds[location.port].update(to_outer(time), delta)
        self._propagate(internals)

    def _propagate(self, internals: Sequence[ChangeBatch[Time]]) -> None:
        """Steps 5 to 7: propagate, and report the changes to the children and the outside."""
        to_outer = self.refinement.to_outer
        self.tracker.propagate_all()
        for location, time, delta in self.tracker.pushed():
            if location.node != 0 and not location.is_source:
                self.children[location.node - 1].shared.frontiers[location.port].update(time, delta)
        for port, changes in enumerate(self.tracker.pushed_outputs()):
            outer = ((to_outer(time), delta) for time, delta in changes)
            for time, delta in self._output_capabilities[port].update_iter(outer):
                internals[port].update(time, delta)

    def _extract(self, index: int, child: _Child, into: ChangeBatch[Pointstamp]) -> None:
        """Add a child's progress to ``into`` as changes of pointstamps."""
        for port, consumed in enumerate(child.shared.consumeds):
            for time, count in consumed.drain():
                into.update((target(index, port), time), -count)
        for port, internal in enumerate(child.shared.internals):
            for time, delta in internal.drain():
                into.update((source(index, port), time), delta)
        for port, produced in enumerate(child.shared.produceds):
            for time, count in produced.drain():
                for to in self.graph.nodes[index].edges[port]:
                    into.update((to, time), count)

    def _must_send(self) -> bool:
        """Step 9: whether to send at once, because others may wait for a retired pointstamp or messages crossed the border."""
        return self._eager or any(
            location.node == 0 or (delta < 0 and self.tracker.is_global(location, time))
            for (location, time), delta in self._local
        )


def _uses_external_summary(operator: Operate) -> bool:
    """Whether an operator, or one inside it, uses its external summary."""
    if isinstance(operator, Subgraph):
        return any(_uses_external_summary(child.operator) for child in operator.children)
    return type(operator).set_external_summary is not Operate.set_external_summary


def _external_summary(graph: Graph, index: int, outside: Connectivity) -> Connectivity:
    """Return the least summaries from each output of a node back to each of its inputs.

    The paths go through the rest of its scope and through the outside.
    """
    rows: list[dict[int, Summaries]] = []
    for port in range(graph.nodes[index].outputs):
        found: dict[Location, Summaries] = {source(index, port): Summaries([identity(graph.domain)])}
        work = [(source(index, port), identity(graph.domain))]
        while work:
            location, summary = work.pop()
            if location.is_source:
                after = [(to, summary) for to in graph.nodes[location.node].edges[location.port]]
            elif location.node == index:
                continue
            else:
                row = outside[location.port] if location.node == 0 else graph.nodes[location.node].summaries[location.port]
                steps = [(source(location.node, output), summary.followed_by(s)) for output, paths in row.items() for s in paths]
                after = [(to, both) for to, both in steps if both is not None]
            for to, both in after:
                if found.setdefault(to, Summaries()).insert(both):
                    work.append((to, both))
        back = range(graph.nodes[index].inputs)
        rows.append({i: found[target(index, i)] for i in back if target(index, i) in found})
    return rows
