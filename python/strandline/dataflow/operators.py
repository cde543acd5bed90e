"""Operators of the in-process dataflow: logic with input and output ports, which count the records that pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from strandline.dataflow import errors
from strandline.dataflow.network import Mailbox, Network
from strandline.time.antichain import Antichain
from strandline.time.change_batch import ChangeBatch
from strandline.time.domain import Time, TimeDomain
from strandline.time.mutable_antichain import MutableAntichain
from strandline.time.path.summary import Connectivity, Summaries
from strandline.tracker.capability import Capability, InputCapability
from strandline.tracker.graph import Location
from strandline.tracker.operate import Operate, batches

__all__ = ["InputHandle", "InputPort", "Logic", "Operator", "OutputPort", "Probe", "Tee"]

Push = Callable[[Time, list[Any]], None]
"""Takes a batch of records at one time."""

Logic = Callable[[], bool | None]
"""The function that an operator runs when it is scheduled. It reads the inputs and writes the outputs. ``True`` means that the
operator is active: it wants to run again even if it receives nothing new (as the logic of timely's ``build_reschedule``)."""


class Tee:
    """The receivers of an output's records. Each receives its own list."""

    def __init__(self) -> None:
        self.pushes: list[Push] = []

    def push(self, time: Time, records: list[Any]) -> None:
        """Pass a batch of records to every receiver."""
        for push in self.pushes:
            push(time, list(records))


class InputPort:
    """An operator's input: batches of records to read, and the frontier of the times that may still come."""

    def __init__(self, domain: TimeDomain, mailbox: Mailbox) -> None:
        self.domain = domain
        self.consumed: ChangeBatch[Time] = ChangeBatch()
        # Until the scope reports a frontier, every time may come.
        self.mutable_frontier = MutableAntichain(domain, [(domain.minimum, 1)])
        self.summaries: dict[int, Summaries] = {}
        self.internals: list[ChangeBatch[Time]] = []
        self._mailbox = mailbox
        self._tokens: list[InputCapability] = []

    @property
    def frontier(self) -> Antichain:
        """The least times at which records may still arrive, including the records that wait here unread."""
        return self.mutable_frontier.frontier

    def less_equal(self, time: Time) -> bool:
        """Whether records at a time ≤ ``time`` may still arrive. With this method a port is a notificator's frontier."""
        return self.mutable_frontier.less_equal(time)

    def __iter__(self) -> Iterator[tuple[InputCapability, list[Any]]]:
        """Yield the batches that have arrived, each with its right to send, which is valid until the operator's turn ends.

        A batch is read when it is requested. Batches that are not read, because of a ``break`` or an error, stay here for the
        next turn, and they hold their times until then.
        """
        for time, records in self._mailbox.take():
            token = InputCapability(self.domain, time, self.summaries, self.internals)
            self._tokens.append(token)
            # Counted before the operator sees the records, and reported together with its results, in one atomic batch.
            self.consumed.update(time, len(records))
            yield token, records

    def begin_turn(self) -> None:
        """Let batches arrive (the operator calls this before its logic)."""
        self._mailbox.receive()

    def end_turn(self) -> None:
        """End the rights that came with the batches read (the operator calls this after its logic).

        The consumption of these batches is reported now. A token that stayed valid after the turn would be a right to a time that
        may be closed.
        """
        for token in self._tokens:
            token.spend()
        self._tokens.clear()

    def waiting(self) -> list[tuple[Time, int]]:
        """Return the time and the number of records of each batch that has arrived and was not read."""
        return [(time, len(records)) for time, records in self._mailbox.waiting]

    def expects(self, time: Time) -> bool:
        """Whether records at ``time`` wait here unread or are in transit to here."""
        return any(at == time for at, _ in self._mailbox.coming())


class OutputPort:
    """An operator's output: it sends records under a capability, and counts them."""

    def __init__(self, domain: TimeDomain, name: str) -> None:
        self.domain = domain
        self.name = name
        self.internal: ChangeBatch[Time] = ChangeBatch()
        self.produced: ChangeBatch[Time] = ChangeBatch()
        self.held: ChangeBatch[Time] = ChangeBatch()
        """The capabilities that this worker has reported to hold here."""
        self.tee = Tee()

    def send(self, capability: Capability, records: Sequence[Any], time: Time | None = None) -> None:
        """Send records at the capability's time, or at a later one. Raises :class:`CapabilityError` without the right."""
        if not capability.valid_for(self.internal):
            raise errors.capability_invalid(capability, self.name)
        at = capability.time if time is None else self.domain.time(time)
        if not self.domain.less_equal(capability.time, at):
            raise errors.capability_backwards(self.name, self.domain, at, capability)
        if records:
            self.produced.update(at, len(records))
            self.tee.push(at, list(records))


class Operator(Operate):
    """Child ``index`` of a scope: ports, and logic that runs once whenever the operator is scheduled."""

    def __init__(
        self,
        name: str,
        domain: TimeDomain,
        index: int,
        inputs: list[InputPort],
        outputs: list[OutputPort],
        summaries: Connectivity,
    ) -> None:
        self.name, self.domain, self.index = name, domain, index
        self.input_ports, self.output_ports = inputs, outputs
        self.logic: Logic = lambda: None
        self._summaries = summaries
        self._first: list[ChangeBatch[Time]] = batches(len(outputs))
        self._has_frontier = False
        for port, row in zip(inputs, summaries, strict=True):
            port.summaries = row
            port.internals = [output.internal for output in outputs]

    @property
    def inputs(self) -> int:
        return len(self.input_ports)

    @property
    def outputs(self) -> int:
        return len(self.output_ports)

    def hold_at_start(self, output: int, workers: int) -> Capability:
        """Return a capability at the least time. The operator holds it from the start, on each of ``workers`` workers."""
        port = self.output_ports[output]
        capability = Capability(self.domain, self.domain.minimum, port.internal)
        port.internal.clear()  # it is reported to the scope as a first capability, not as a change
        port.held.update(self.domain.minimum, 1)
        self._first[output].update(self.domain.minimum, workers)
        return capability

    def waiting(self) -> list[list[tuple[Time, int]]]:
        """For each input, the batches that have arrived and were not read: the time of each, and its number of records."""
        return [port.waiting() for port in self.input_ports]

    def holds(self, location: Location, time: Time) -> bool:
        """Whether this worker's part of a pointstamp at one of the operator's ports is not 0."""
        if location.is_source:
            return self.output_ports[location.port].held.count_for(time) != 0
        return self.input_ports[location.port].expects(time)

    def get_internal_summary(self) -> tuple[Connectivity, list[ChangeBatch[Time]]]:
        """Return the summaries and first capabilities that the operator was created with."""
        return self._summaries, [batch.copy() for batch in self._first]

    def push_external_progress(self, frontiers: Sequence[ChangeBatch[Time]]) -> None:
        """Update the frontiers of the input ports."""
        for port, changes in zip(self.input_ports, frontiers, strict=True):
            if not self._has_frontier:
                port.mutable_frontier.clear()
            port.mutable_frontier.update_iter(changes.drain())
        self._has_frontier = True

    def pull_internal_progress(
        self,
        consumeds: Sequence[ChangeBatch[Time]],
        internals: Sequence[ChangeBatch[Time]],
        produceds: Sequence[ChangeBatch[Time]],
    ) -> bool:
        """Run the logic and report all its changes at once. Returns whether the logic reported that it is active."""
        for port in self.input_ports:
            port.begin_turn()
        try:
            active = self.logic() is True
        finally:
            for port in self.input_ports:
                port.end_turn()
        for port, consumed in zip(self.input_ports, consumeds, strict=True):
            port.consumed.drain_into(consumed)
        for output, internal, produced in zip(self.output_ports, internals, produceds, strict=True):
            output.held.extend(output.internal)
            output.internal.drain_into(internal)
            output.produced.drain_into(produced)
        return active


class InputHandle:
    """Sends a program's records into a dataflow, at a time that the program advances.

    >>> from strandline.dataflow.builder import Cluster
    >>> from strandline.time.domain import uint64
    >>> with Cluster() as cluster:
    ...     with cluster.dataflow(uint64) as scope:
    ...         numbers, stream = scope.input("numbers")
    ...         probe = stream.probe()
    ...     numbers.send(1, 2)
    ...     numbers.advance_to(3)
    ...     cluster.step_while(lambda: probe.less_than(3))
    ...     numbers.close()
    """

    def __init__(self, output: OutputPort, capability: Capability, network: Network) -> None:
        self._output, self._capability, self._network = output, capability, network

    @property
    def time(self) -> Time:
        """The time at which records are sent."""
        return self._capability.time

    def send(self, *records: Any) -> None:
        """Send records at the handle's time."""
        self._open()
        self._output.send(self._capability, records)

    def advance_to(self, time: Time) -> None:
        """Promise to send only at ``time`` or later. Raises :class:`CapabilityError` unless ``time`` is ≥ the handle's time."""
        self._open()
        self._capability.downgrade(self._output.domain.time(time))
        self._network.moves += 1

    def close(self) -> None:
        """Promise to send nothing more. A second call has no effect."""
        self._capability.drop()
        self._network.moves += 1

    def _open(self) -> None:
        if self._capability.dropped:
            raise errors.input_closed(self._output.name)


class Probe:
    """Reads the frontier at one point of a dataflow: ``location`` in the scope at ``path``, in the view of ``worker``."""

    def __init__(self, port: InputPort, path: tuple[int, ...], location: Location, worker: int) -> None:
        self._port = port
        self.path, self.location, self.worker = path, location, worker

    @property
    def frontier(self) -> Antichain:
        """The least times at which records may still arrive here."""
        return self._port.frontier

    def less_than(self, time: Time) -> bool:
        """Whether some time < ``time`` may still arrive here."""
        return self._port.mutable_frontier.less_than(time)

    def less_equal(self, time: Time) -> bool:
        """Whether some time ≤ ``time`` may still arrive here."""
        return self._port.mutable_frontier.less_equal(time)

    def done(self) -> bool:
        """Whether nothing may arrive here any more."""
        return self._port.mutable_frontier.is_empty()
