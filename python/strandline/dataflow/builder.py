"""A small dataflow engine: streams, nested scopes and loops over in-process workers, with exact notifications.

It is written to be readable and correct: timely's own examples are its tests, and Spark pipelines are compared with it. Every
worker builds the same dataflow. Records and progress travel over a :class:`Network`, and a seed decides its delays.

>>> from strandline.time.domain import uint64
>>> with Cluster(workers=2, seed=1) as cluster:
...     inputs, sums = [], []
...     for scope in cluster.scopes(uint64):
...         numbers, stream = scope.input("numbers")
...         counts = {}
...         def count(source, output, notificator, counts=counts):
...             for token, records in source:
...                 counts.setdefault(token.time, []).extend(records)
...                 notificator.notify_at(token.retain())
...             for capability, _ in notificator.ready([source]):
...                 output.send(capability, [sum(counts.pop(capability.time))])
...         sums.append(stream.exchange(lambda n: 0).unary_notify("sum", count).capture())
...         inputs.append(numbers)
...     for worker, numbers in enumerate(inputs):
...         numbers.send(*range(10 * worker, 10 * worker + 10))
...         numbers.close()
>>> sums
[[(0, 190)], []]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from strandline.dataflow import errors
from strandline.dataflow.network import Network
from strandline.dataflow.operators import InputHandle, InputPort, Operator, OutputPort, Probe, Tee
from strandline.time.antichain import Antichain
from strandline.time.change_batch import ChangeBatch
from strandline.time.domain import Time, TimeDomain
from strandline.time.path.summary import Connectivity, PathSummary, Summaries, identity
from strandline.tracker.capability import InputCapability
from strandline.tracker.graph import Location, source, target
from strandline.tracker.notificator import Notificator
from strandline.tracker.operate import Operate, SharedProgress
from strandline.tracker.refinement import Refinement
from strandline.tracker.subgraph import ScopedHold, Subgraph

__all__ = ["Cluster", "Loop", "Scope", "Stream"]

# The logic returns the same as Logic: True means that the operator is active.
UnaryLogic = Callable[[InputPort, OutputPort], bool | None]
BinaryLogic = Callable[[InputPort, InputPort, OutputPort], bool | None]
UnaryNotifyLogic = Callable[[InputPort, OutputPort, Notificator], bool | None]
BinaryNotifyLogic = Callable[[InputPort, InputPort, OutputPort, Notificator], bool | None]


class Cluster:
    """Workers in one process that run the same dataflows, one step at a time.

    The end of a ``with`` block runs the dataflows to their end. With a ``seed``, the seed decides the order in which the workers
    take turns, and in which messages and progress arrive. So a run that fails can be repeated. With ``eager`` off, progress that
    delays no worker is held back and merged.

    Args:
        workers: The number of workers.
        seed: Decides the order of turns and arrivals. Without it everything arrives at once.
        eager: Whether all progress is sent at once.
    """

    def __init__(self, workers: int = 1, seed: int | None = None, *, eager: bool = True) -> None:
        self.network = Network(workers, seed)
        self.eager = eager
        self._roots: list[list[tuple[Subgraph, SharedProgress]]] = [[] for _ in range(workers)]
        self._dataflows = 0
        self._unfinished = True

    @contextmanager
    def dataflow(self, domain: TimeDomain) -> Iterator[Scope]:
        """Build a dataflow on a cluster of one worker. It is complete at the end of the ``with`` block."""
        if self.network.workers != 1:
            raise errors.dataflow_invalid_workers(self.network.workers)
        yield from self.scopes(domain)

    def scopes(self, domain: TimeDomain) -> Iterator[Scope]:
        """Yield the scope of a new dataflow for each worker in turn.

        Every worker must build the same operators in the same order.
        """
        number, self._dataflows = self._dataflows, self._dataflows + 1
        for worker in range(self.network.workers):
            scope = Scope(self, worker, (number,), Refinement.same(domain), None, "dataflow")
            yield scope
            root = scope.build()
            root.get_internal_summary()
            root.set_external_summary([], [])
            self._roots[worker].append((root, SharedProgress.of(0, 0)))

    def step(self) -> bool:
        """Let every worker work once. Returns whether anything is unfinished."""
        order = list(range(self.network.workers))
        self.network.shuffle(order)
        unfinished = False
        for worker in order:
            for root, shared in self._roots[worker]:
                unfinished |= root.pull_internal_progress(shared.consumeds, shared.internals, shared.produceds)
        self._unfinished = unfinished or not self.network.empty()
        return self._unfinished

    def step_while(self, condition: Callable[[], bool]) -> None:
        """Step until ``condition()`` is false.

        Raises :class:`DataflowError` when nothing moves, no operator reports that it is active and the condition still holds.
        The error names the operators that do not read their waiting batches, and lists the pointstamps that are held.

        >>> from strandline.time.domain import uint64
        >>> cluster = Cluster()
        >>> with cluster.dataflow(uint64) as scope:
        ...     numbers, stream = scope.input("numbers")
        ...     probe = stream.unary("deaf", lambda records_in, output: None).probe()
        >>> numbers.send(1, 2)
        >>> numbers.close()
        >>> cluster.step_while(lambda: not probe.done())  # doctest: +NORMALIZE_WHITESPACE
        Traceback (most recent call last):
        strandline.errors.DataflowError: [STRANDLINE_DATAFLOW_STALLED] The dataflow makes no progress, and the condition is
        still true.
        Unread: 1 batch of 2 records waits at deaf.in0 in dataflow, from 0 on. Held: 2 × 0 at deaf.in0 in dataflow.
        Read them: `for token, records in input`.
        """
        # A change in one scope needs a step for each border between it and the operators of another scope.
        scopes = sum(1 for _ in self._scopes())
        idle = 0
        while condition():
            before = self.network.moves
            self.step()
            idle = idle + 1 if self.network.moves == before and self.network.empty() and not self._active() else 0
            if idle > 2 * scopes + 2 and condition():
                unread = self.unread()
                raise errors.dataflow_stalled(unread, self.held())

    def run(self) -> None:
        """Step until all inputs are closed, records handled and capabilities dropped. Raises like :meth:`step_while`."""
        self._unfinished = True
        self.step_while(lambda: self._unfinished)

    def explain(self, probe: Probe, time: Time) -> list[str]:
        """Describe the holds that keep ``time`` open at a probe. The result is empty when the time is closed there.

        Holds are followed across the borders of scopes to the pointstamps behind them. With several workers, a description names
        the workers that have the pointstamp. It names no worker if the pointstamp is gone and the probe's worker has not received
        this change yet.

        Args:
            probe: The probe.
            time: The time.

        Returns:
            One line for each hold, with the pointstamp behind it.
        """
        number, *path = probe.path
        root, _ = self._roots[probe.worker][number]
        return [held.describe(self._on(self._holders(held))) for held in root.explain(path, probe.location, time)]

    def held(self) -> str:
        """Describe every pointstamp that worker 0 knows."""
        return "; ".join(
            f"{count} × {scope.graph.domain.format(time)} at {scope.graph.name(location)} in {names}"
            for worker, _, names, scope in self._scopes()
            if worker == 0
            for location, time, count in scope.tracker.held()
            if location.node != 0
        )

    def unread(self) -> str:
        """Describe the batches that have arrived at operators and were not read."""
        lines = []
        for worker, _, path, scope in self._scopes():
            for operator in (child.operator for child in scope.children):
                for port, waiting in enumerate(operator.waiting() if isinstance(operator, Operator) else []):
                    if waiting:
                        place = f"{operator.name}.in{port} in {path}{self._on([worker])}"
                        lines.append(_unread(operator.domain, waiting, place))
        return "; ".join(lines)

    def _active(self) -> bool:
        children = (child for _, _, _, scope in self._scopes() for child in scope.children)
        return any(child.active for child in children if not isinstance(child.operator, Subgraph))

    def _scopes(self) -> Iterator[tuple[int, tuple[int, ...], str, Subgraph]]:
        """Yield every scope: worker, numbers of the dataflow and of the children that lead to it, their names, and the scope."""
        for worker, roots in enumerate(self._roots):
            for number, (root, _) in enumerate(roots):
                for path, names, scope in _subgraphs(root, (number,), root.name):
                    yield worker, path, names, scope

    def _on(self, workers: Sequence[int]) -> str:
        """Return text that names the workers, if the cluster has several."""
        if self.network.workers == 1 or not workers:
            return ""
        return f" on worker{'s' if len(workers) > 1 else ''} {', '.join(map(str, workers))}"

    def _holders(self, held: ScopedHold) -> list[int]:
        """Return the workers that have the pointstamp behind a hold, according to each worker's own reports."""
        place = next(path for _, path, _, scope in self._scopes() if scope is held.root.scope)
        location, time = held.root.hold.location, held.root.hold.time
        workers = []
        for worker, path, _, scope in self._scopes():
            operator = scope.children[location.node - 1].operator if path == place and location.node else None
            if isinstance(operator, Operator) and operator.holds(location, time):
                workers.append(worker)
        return workers

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Run the dataflows to their end, as timely's ``execute`` does."""
        if error is None:
            self.run()


def _subgraphs(scope: Subgraph, path: tuple[int, ...], names: str) -> Iterator[tuple[tuple[int, ...], str, Subgraph]]:
    yield path, names, scope
    for index, child in enumerate(scope.children, 1):
        if isinstance(child.operator, Subgraph):
            yield from _subgraphs(child.operator, (*path, index), f"{names}.{child.operator.name}")


def _unread(domain: TimeDomain, waiting: Sequence[tuple[Time, int]], place: str) -> str:
    records = sum(count for _, count in waiting)
    batches = "1 batch" if len(waiting) == 1 else f"{len(waiting)} batches"
    least = ", ".join(domain.format(time) for time in Antichain(domain, [time for time, _ in waiting]))
    return (
        f"{batches} of {records} record{'' if records == 1 else 's'} wait{'s' if len(waiting) == 1 else ''} at {place}, "
        f"from {least} on"
    )


class Scope:
    """A scope under construction on one worker. It makes operators and nested scopes, and becomes a subgraph."""

    def __init__(
        self, cluster: Cluster, worker: int, path: tuple[int, ...], refinement: Refinement, parent: Scope | None, name: str
    ) -> None:
        self.cluster, self.worker, self.path = cluster, worker, path
        self.refinement, self.parent, self.name = refinement, parent, name
        self.domain = refinement.inner
        self._children: list[Operate | None] = []
        self._edges: list[tuple[Location, Location]] = []
        self._entered: list[ChangeBatch[Time]] = []
        self._left: list[Tee] = []
        self._loops: list[Loop] = []
        self._built = False

    # Methods for programs.

    def input(self, name: str = "input") -> tuple[InputHandle, Stream]:
        """Return a handle, and the stream that the program feeds through it."""
        operator = self._operator(name, 0, 1, [])
        capability = operator.hold_at_start(0, self.cluster.network.workers)
        handle = InputHandle(operator.output_ports[0], capability, self.cluster.network)
        return handle, self._stream(operator)

    def feedback(self, summary: PathSummary | None = None, name: str = "feedback") -> tuple[Loop, Stream]:
        """Return a loop and the stream at its end. Connect the end to the beginning with ``loop.connect(stream)``.

        Records that go round are advanced by ``summary``, by default by one in the scope's own coordinate.

        Args:
            summary: How records that go round are advanced.
            name: The name of the operator.

        Returns:
            The loop, and the stream at its end.
        """
        by = self.refinement.feedback() if summary is None else summary
        operator = self._operator(name, 1, 1, [{0: Summaries([by])}])
        records_in, output = operator.input_ports[0], operator.output_ports[0]

        def go_round() -> None:
            for token, records in records_in:
                later = by.results_in(token.time)
                if later is not None:
                    with token.delayed(later) as capability:
                        output.send(capability, records)

        operator.logic = go_round
        loop = Loop(self, operator.index)
        self._loops.append(loop)
        return loop, self._stream(operator)

    @contextmanager
    def nested(self, name: str = "loop", refinement: Refinement | None = None) -> Iterator[Scope]:
        """Build a nested scope, by default with its own loop coordinate. Enter streams with ``stream.enter(scope)``.

        Args:
            name: The name of the scope.
            refinement: How the inner times are derived from this scope's times.
        """
        index = self._reserve()
        if refinement is None:
            taken = {taken for taken, _ in self.domain.coordinates}
            own = next(n for n in ("iter", *(f"iter{i}" for i in range(2, len(taken) + 3))) if n not in taken)
            refinement = Refinement.nested(self.domain, own)
        scope = Scope(self.cluster, self.worker, (*self.path, index), refinement, self, name)
        yield scope
        self._children[index - 1] = scope.build()

    def region(self, name: str = "region") -> Any:
        """Build a nested scope with the same times as this one."""
        return self.nested(name, Refinement.same(self.domain))

    # Methods for streams.

    def operator(
        self,
        name: str,
        streams: Sequence[Stream],
        outputs: int,
        summaries: Connectivity | None = None,
        route: Callable[[Any], int] | None = None,
    ) -> tuple[Operator, list[Stream]]:
        """Add an operator that reads ``streams``.

        Args:
            name: The name of the operator.
            streams: Its inputs, in order.
            outputs: The number of its outputs.
            summaries: The path summaries from its inputs to its outputs. By default every input reaches every output and no time
                is changed.
            route: Returns the worker of a record, modulo the number of workers. Without it records stay on their worker.

        Returns:
            The operator, whose ``logic`` the caller sets, and its output streams.

        Raises:
            DataflowError: A stream belongs to another scope, or this scope is already built.
        """
        if summaries is None:
            unchanged = Summaries([identity(self.domain)])
            summaries = [dict.fromkeys(range(outputs), unchanged) for _ in streams]
        operator = self._operator(name, len(streams), outputs, summaries)
        for port, stream in enumerate(streams):
            self._connect(stream, operator.index, port, route)
        return operator, [self._stream(operator, port) for port in range(outputs)]

    def enter(self, stream: Stream) -> Stream:
        """Bring a stream of the surrounding scope into this one."""
        if stream.scope is not self.parent:
            raise errors.dataflow_invalid_enter(stream.scope.name, self.name)
        port, entered, tee, to_inner = len(self._entered), ChangeBatch[Time](), Tee(), self.refinement.to_inner
        self._entered.append(entered)
        stream.scope._edges.append((stream.source, target(self.path[-1], port)))

        def push(time: Time, records: list[Any]) -> None:
            inner = to_inner(time)
            entered.update(inner, len(records))
            tee.push(inner, records)

        stream.tee.pushes.append(push)
        return Stream(self, source(0, port), tee)

    def leave(self, stream: Stream) -> Stream:
        """Send a stream of this scope out to the surrounding one."""
        if self.parent is None:
            raise errors.dataflow_invalid_leave(self.name)
        port, tee, to_outer = len(self._left), Tee(), self.refinement.to_outer
        self._left.append(tee)
        self._edges.append((stream.source, target(0, port)))
        stream.tee.pushes.append(lambda time, records: tee.push(to_outer(time), records))
        return Stream(self.parent, source(self.path[-1], port), tee)

    def connect_loop(self, loop: Loop, stream: Stream) -> None:
        """Connect a stream to a feedback's input."""
        self._connect(stream, loop.index, 0, None)

    def build(self) -> Subgraph:
        """Return the finished subgraph. Raises :class:`DataflowError` for an unconnected loop, and the errors of the graph."""
        for loop in self._loops:
            if not loop.connected:
                raise errors.dataflow_invalid_open_loop(self.name)
        self._built = True
        children = [child for child in self._children if child is not None]
        return Subgraph(
            self.name,
            self.refinement,
            children,
            self._edges,
            len(self._entered),
            len(self._left),
            peers=self.cluster.network.mailbox(("progress", self.path), self.worker),
            input_messages=self._entered,
            eager=self.cluster.eager,
        )

    def _reserve(self) -> int:
        if self._built:
            raise errors.dataflow_invalid_built(self.name)
        self._children.append(None)
        return len(self._children)

    def _operator(self, name: str, inputs: int, outputs: int, summaries: Connectivity) -> Operator:
        index, network = self._reserve(), self.cluster.network
        ports_in = [InputPort(self.domain, network.mailbox((self.path, index, port), self.worker)) for port in range(inputs)]
        ports_out = [OutputPort(self.domain, name) for _ in range(outputs)]
        operator = Operator(name, self.domain, index, ports_in, ports_out, summaries)
        self._children[index - 1] = operator
        return operator

    def _stream(self, operator: Operator, port: int = 0) -> Stream:
        return Stream(self, source(operator.index, port), operator.output_ports[port].tee)

    def _connect(self, stream: Stream, index: int, port: int, route: Callable[[Any], int] | None) -> None:
        if stream.scope is not self:
            raise errors.dataflow_invalid_scope(stream.scope.name, self.name)
        self._edges.append((stream.source, target(index, port)))
        mailbox, workers = self.cluster.network.mailbox((self.path, index, port), self.worker), self.cluster.network.workers

        def push(time: Time, records: list[Any]) -> None:
            if route is None:
                mailbox.post(self.worker, (time, records))
                return
            routed: dict[int, list[Any]] = {}
            for record in records:
                routed.setdefault(route(record) % workers, []).append(record)
            for worker, part in routed.items():
                mailbox.post(worker, (time, part))

        stream.tee.pushes.append(push)


class Loop:
    """The open end of a feedback."""

    def __init__(self, scope: Scope, index: int) -> None:
        self.scope, self.index, self.connected = scope, index, False

    def connect(self, stream: Stream) -> None:
        """Close the loop: the records of ``stream`` go round."""
        if self.connected:
            raise errors.dataflow_invalid_second_loop(self.scope.name)
        self.scope.connect_loop(self, stream)
        self.connected = True


class Stream:
    """Records with times, from one output of an operator or from a scope's input."""

    def __init__(self, scope: Scope, at: Location, tee: Tee) -> None:
        self.scope, self.source, self.tee = scope, at, tee

    # The general operators: the logic runs whenever the operator is scheduled, and returns True if it is active.

    def unary(self, name: str, logic: UnaryLogic) -> Stream:
        """Add an operator with one input.

        Args:
            name: The name of the operator.
            logic: Called as ``logic(input, output)`` whenever the operator is scheduled. It returns ``True`` if the operator is
                active.
        """
        operator, [stream] = self.scope.operator(name, [self], 1)
        [records_in], [output] = operator.input_ports, operator.output_ports
        operator.logic = lambda: logic(records_in, output)
        return stream

    def unary_notify(self, name: str, logic: UnaryNotifyLogic) -> Stream:
        """Add an operator with one input and notifications of closed times.

        Args:
            name: The name of the operator.
            logic: Called as ``logic(input, output, notificator)``.
        """
        notificator = Notificator(self.scope.domain)
        return self.unary(name, lambda records_in, output: logic(records_in, output, notificator))

    def binary(self, name: str, other: Stream, logic: BinaryLogic) -> Stream:
        """Add an operator with two inputs, each with its own frontier.

        Args:
            name: The name of the operator.
            other: The second input.
            logic: Called as ``logic(left, right, output)``.
        """
        operator, [stream] = self.scope.operator(name, [self, other], 1)
        [left, right], [output] = operator.input_ports, operator.output_ports
        operator.logic = lambda: logic(left, right, output)
        return stream

    def binary_notify(self, name: str, other: Stream, logic: BinaryNotifyLogic) -> Stream:
        """Same as :meth:`binary`, with notifications of closed times.

        Args:
            name: The name of the operator.
            other: The second input.
            logic: Called as ``logic(left, right, output, notificator)``.
        """
        notificator = Notificator(self.scope.domain)
        return self.binary(name, other, lambda left, right, output: logic(left, right, output, notificator))

    # Operators that do not change times and keep nothing.

    def each(self, name: str, function: Callable[[list[Any], Time], list[Any]]) -> Stream:
        """Replace each batch of records.

        Args:
            name: The name of the operator.
            function: Called as ``function(records, time)``. It returns the new records.
        """

        def logic(records_in: InputPort, output: OutputPort) -> None:
            for token, records in records_in:
                _reply(token, output, function(records, token.time))

        return self.unary(name, logic)

    def map(self, function: Callable[[Any], Any]) -> Stream:
        """Replace each record."""
        return self.each("map", lambda records, _: [function(record) for record in records])

    def flat_map(self, function: Callable[[Any], Sequence[Any]]) -> Stream:
        """Replace each record by any number of records."""
        return self.each("flat_map", lambda records, _: [new for record in records for new in function(record)])

    def filter(self, function: Callable[[Any], bool]) -> Stream:
        """Keep the records for which ``function`` is true."""
        return self.each("filter", lambda records, _: [record for record in records if function(record)])

    def inspect(self, function: Callable[[Time, Any], object]) -> Stream:
        """Call ``function(time, record)`` for each record that passes.

        When a probe behind it closes a time, the function has seen all records at that time.
        """

        def look(records: list[Any], time: Time) -> list[Any]:
            for record in records:
                function(time, record)
            return records

        return self.each("inspect", look)

    def concat(self, *others: Stream) -> Stream:
        """Merge this stream's records with those of others."""
        return self._pass_on("concat", [self, *others])

    def exchange(self, route: Callable[[Any], int]) -> Stream:
        """Send each record to worker ``route(record)``, modulo the number of workers, so that equal routes meet there."""
        return self._pass_on("exchange", [self], route)

    def _pass_on(self, name: str, streams: list[Stream], route: Callable[[Any], int] | None = None) -> Stream:
        operator, [together] = self.scope.operator(name, streams, 1, route=route)

        def logic() -> None:
            for records_in in operator.input_ports:
                for token, records in records_in:
                    _reply(token, operator.output_ports[0], records)

        operator.logic = logic
        return together

    # Across scopes and out of the dataflow.

    def enter(self, scope: Scope) -> Stream:
        """Return this stream inside a nested scope."""
        return scope.enter(self)

    def leave(self) -> Stream:
        """Return this stream in the scope around."""
        return self.scope.leave(self)

    def probe(self) -> Probe:
        """Return a probe of the frontier here. The records are not kept."""
        operator = self._sink("probe", lambda token, records: None)
        return Probe(operator.input_ports[0], self.scope.path, target(operator.index, 0), self.scope.worker)

    def capture(self) -> list[tuple[Time, Any]]:
        """Return a list that grows by ``(time, record)`` as records arrive at this worker."""
        captured: list[tuple[Time, Any]] = []
        self._sink("capture", lambda token, records: captured.extend((token.time, record) for record in records))
        return captured

    def _sink(self, name: str, take: Callable[[InputCapability, list[Any]], None]) -> Operator:
        operator, _ = self.scope.operator(name, [self], 0)

        def logic() -> None:
            for token, records in operator.input_ports[0]:
                take(token, records)

        operator.logic = logic
        return operator


def _reply(token: InputCapability, output: OutputPort, records: list[Any]) -> None:
    if records:
        with token.retain() as capability:
            output.send(capability, records)
