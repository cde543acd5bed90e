"""Runs a program in one process, as a dataflow over times ``lex(tick, stratum, iter)``: the specification of what it means.

Each stratum is one operator. Rows that enter a tick, and those of earlier strata, wait at it until their time is closed: then
the frontier says that all of them are there, and it takes them whole. What it finds in round i comes back to it at round i + 1,
until it finds nothing new. Rows for the next tick enter there, at (tick + step, 0, 0).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from strandline.dataflow.builder import Cluster, Scope, Stream
from strandline.dataflow.operators import InputHandle, InputPort, OutputPort, Probe
from strandline.program import errors
from strandline.program.local.evaluate import Body, Changes, body
from strandline.program.plan import ProgramPlan, RulePlan, reads
from strandline.program.schema import Row, row_of
from strandline.time.domain import Time, TimeDomain, lex, parse_domain
from strandline.time.path.summary import advance
from strandline.tracker.capability import Capability, InputCapability
from strandline.tracker.notificator import Notificator

__all__ = ["dataflow", "run"]

Facts = Mapping[str, Mapping[Any, "Iterable[object] | pa.Table"]]
Record = tuple[str, Row]
"""A relation and a row of it."""
Rows = dict[str, set[Row]]
"""The rows of relations."""
Captured = list[tuple[Time, Record]]

ROWS, AGAIN, LATER = range(3)
"""The outputs of a stratum: new rows for later strata, for its own next round, and for the next tick."""


def run(plan: ProgramPlan, facts: Facts, *, last: Any = None, seed: int | None = None) -> dict[str, dict[int, set[Row]]]:
    """Return what the relations of a program hold: see :meth:`Program.run <strandline.program.program.Program.run>`."""
    tick = parse_domain(plan.tick)
    end = tick.maximum if last is None else tick.time(last, "last")
    given = {at: records for at, records in _facts(plan, facts, tick).items() if at <= end}
    with Cluster(seed=seed) as cluster:
        handle, captured, probe = dataflow(plan, cluster, last=None if last is None else end)
        for at in sorted(given):
            handle.advance_to((at, 0, 0))
            if seed is None:  # what waits for its turn costs time at each step
                cluster.step_while(lambda turn=(at, 0, 0): probe.less_than(turn))  # type: ignore[misc]
            _send(handle, given[at], seed)
        handle.close()
    return _results(plan, chain.from_iterable(captured))


def dataflow(plan: ProgramPlan, cluster: Cluster, *, last: int | None = None) -> tuple[InputHandle, list[Captured], Probe]:
    """Build the dataflow of a program.

    Args:
        plan: The program.
        cluster: Runs the dataflow. It has one worker.
        last: The last tick that is evaluated.

    Returns:
        The handle of the facts, each a pair of an input and a row, at (tick, 0, 0); the rows that enter a tick, then those of
        each stratum, as they come; and a probe of all strata.
    """
    domain = lex(tick=parse_domain(plan.tick), stratum="uint64", iter="uint64")
    with cluster.dataflow(domain) as scope:
        handle, stream = scope.input("facts")
        loop, carried = scope.feedback(advance(domain, "tick"), "next tick")
        streams, later = [stream.concat(_delayed(carried, plan.step - 1))], []
        for number in range(1 + max((rule.stratum for rule in plan.rules), default=0)):
            rows, carry = _Stratum(plan, number, last).build(scope, streams)
            streams.append(rows)
            later.append(carry)
        carry = later[0].concat(*later[1:])
        loop.connect(carry)
        return handle, [each.capture() for each in streams], carry.probe()


class _Stratum:
    """One stratum: an operator that evaluates its rules in each tick, round after round."""

    def __init__(self, plan: ProgramPlan, number: int, last: int | None) -> None:
        self._number, self._step, self._last = number, plan.step, last
        self._domain = parse_domain(plan.tick)
        self._rules = [rule for rule in plan.rules if rule.stratum == number]
        self._reads = {relation for rule in self._rules for relation, _ in reads(rule.body)}
        self._own = {relation.name for relation in plan.relations.values() if relation.stratum == number}
        self._always = {name: set[Row]() for name in self._reads | self._own if plan.relations[name].keep == "always"}
        """What relations that are kept always hold."""
        self._waiting: dict[int, Rows] = {}
        """For each tick that has not begun, the rows that have come for it."""
        self._rights: dict[int, list[Capability]] = {}
        self._bodies: list[tuple[RulePlan, Body]] = []
        self._held: Rows = {}
        """What the stratum's relations hold in the tick that is evaluated."""
        self._carried: Rows = {}
        """What its rules have carried to the next tick."""

    def build(self, scope: Scope, streams: Sequence[Stream]) -> tuple[Stream, Stream]:
        """Add the operator, and return the streams of its rows and of those for the next tick.

        Args:
            scope: The scope of the dataflow.
            streams: What enters ticks, and the rows of each earlier stratum.
        """
        loop, again = scope.feedback(advance(scope.domain, "iter"), f"round of stratum {self._number}")
        self._operator, [rows, to_loop, later] = scope.operator(f"stratum {self._number}", [*streams, again], 3)
        loop.connect(to_loop)
        notificator = Notificator(scope.domain)
        *handoffs, rounds = self._operator.input_ports

        def logic() -> None:
            for port in handoffs:
                for token, records in port:
                    self._wait(token, records, notificator)
            for token, records in rounds:
                self._round(_by_relation(records), [token.retain(output) for output in range(3)])
            for capability, _ in notificator.ready(self._operator.input_ports):
                self._begin(capability.time[0])

        self._operator.logic = logic
        return rows, later

    def _wait(self, token: InputCapability, records: list[Record], notificator: Notificator) -> None:
        """Keep rows of a handoff until their tick's turn in this stratum has come."""
        tick, *_ = token.time
        if tick not in self._waiting:
            self._waiting[tick] = defaultdict(set)
            turn = (tick, self._number, 0)
            self._rights[tick] = [token.delayed(turn, output) for output in range(3)]
            notificator.notify_at(token.delayed(turn))
        for name, row in records:
            if name in self._reads or name in self._own:
                self._waiting[tick][name].add(row)

    def _begin(self, tick: int) -> None:
        """Evaluate the first round of a tick: all that its relations hold is new to it."""
        new = self._waiting.pop(tick)
        for name, held in self._always.items():
            held |= new[name]
            new[name] = set(held)
        self._held = defaultdict(set, {name: set(new[name]) for name in self._own})
        self._carried = defaultdict(set)
        self._bodies = [(rule, body(rule.body, rule.place)) for rule in self._rules]
        self._round(new, self._rights.pop(tick))

    def _round(self, changes: Changes, rights: Sequence[Capability]) -> None:
        """Evaluate the rules over new rows, and send what is new in turn."""
        found: tuple[list[Record], list[Record], list[Record]] = [], [], []
        for rule, evaluate in self._bodies:
            held = (self._carried if rule.next_tick else self._held)[rule.head]
            new = evaluate(changes) - held
            held |= new
            if not rule.next_tick and rule.head in self._always:
                self._always[rule.head] |= new
            records = [(rule.head, row) for row in new]
            if rule.next_tick:
                found[LATER].extend(records)
            else:
                found[ROWS].extend(records)
                found[AGAIN].extend(records if rule.head in self._reads else ())
        if found[LATER] and not self._has_next(rights[LATER].time[0]):
            found[LATER].clear()
        for output, right, records in zip(self._operator.output_ports, rights, found, strict=True):
            output.send(right, records)
            right.drop()

    def _has_next(self, tick: int) -> bool:
        """Return whether the next tick is evaluated. Raises :class:`ProgramError` when there is none."""
        if self._last is not None:
            return tick + self._step <= self._last
        if tick + self._step > self._domain.maximum:
            raise errors.program_overflow_tick(self._domain.format(tick), self._step)
        return True


def _delayed(stream: Stream, by: int) -> Stream:
    """Return a stream whose records are ``by`` ticks later. They have been advanced by one on their way round."""

    def logic(records_in: InputPort, output: OutputPort) -> None:
        for token, records in records_in:
            tick, *_ = token.time
            with token.delayed((tick + by, 0, 0)) as capability:
                output.send(capability, records)

    return stream.unary("delay", logic)


def _facts(plan: ProgramPlan, facts: Facts, tick: TimeDomain) -> dict[int, list[Record]]:
    """Return the checked rows of the inputs, by their ticks."""
    inputs = [relation.name for relation in plan.relations.values() if relation.is_input]
    found: defaultdict[int, list[Record]] = defaultdict(list)
    for name, ticks in facts.items():
        if name not in inputs:
            raise errors.program_rows_invalid_input(name, inputs)
        schema = plan.relations[name].schema
        for value, rows in ticks.items():
            at = tick.time(value, f"The tick of {name}")

            def fail(what: str, name: str = name, at: int = at) -> Exception:
                return errors.program_rows_invalid(name, tick.format(at), what)

            given = rows.to_pylist() if isinstance(rows, pa.Table) else rows
            found[at].extend((name, row_of(row, schema, fail)) for row in given)
    return {at: records for at, records in found.items() if records}


def _send(handle: InputHandle, records: list[Record], seed: int | None) -> None:
    """Send the rows of a tick: all at once, or one by one in an order that the seed decides."""
    if seed is None:
        handle.send(*records)
        return
    random.Random(seed).shuffle(records)  # noqa: S311 - reproducible, not secret
    for record in records:
        handle.send(record)


def _by_relation(records: Iterable[Record]) -> Rows:
    found: Rows = defaultdict(set)
    for name, row in records:
        found[name].add(row)
    return found


def _results(plan: ProgramPlan, captured: Iterable[tuple[Time, Record]]) -> dict[str, dict[int, set[Row]]]:
    """Return the rows of the relations by their ticks, in the order of the ticks."""
    ticks: defaultdict[str, defaultdict[int, set[Row]]] = defaultdict(lambda: defaultdict(set))
    for (tick, _, _), (name, row) in captured:
        ticks[name][tick].add(row)
    relations = [relation.name for relation in plan.relations.values() if not relation.is_input]
    return {name: dict(sorted(ticks[name].items())) for name in relations}
