"""The registrar's capability: producers join at it, it can be delayed, and without it the channel is sealed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from strandline.channel import errors
from strandline.channel.commit.outcome import Committed, Outcome, Unchanged
from strandline.channel.commit.transaction import Plan, transact
from strandline.channel.progress.attempts import Attempt
from strandline.channel.progress.snapshot import Snapshot
from strandline.channel.statements.statement import REGISTRAR, ProducerState, Statement
from strandline.channel.write.create import checked_names
from strandline.time.antichain import Antichain, canonical_times
from strandline.time.domain import Time

__all__ = ["delay", "register", "seal"]


@dataclass(frozen=True)
class _Registration:
    """What a call of :meth:`Channel.register` asked for."""

    names: frozenset[str]
    start: Antichain | None


def register(
    snapshot: Snapshot,
    names: Iterable[str],
    at: Time | Iterable[Time] | None,
    *,
    exist_ok: bool,
    state: Callable[[Mapping[str, ProducerState]], Any] | None = None,
) -> Outcome:
    """Implement :meth:`Channel.register`. ``state`` returns what new producers keep for themselves, from the producers there are.

    If an earlier call that ended by an error asked for the same, and its commit was made, this call repeats it.
    """
    wanted = checked_names(names)
    start = None if at is None else Antichain(snapshot.domain, canonical_times(at, snapshot.domain))
    asked = _Registration(frozenset(wanted), start)

    def plan() -> Plan | Outcome:
        for attempt in snapshot.attempts.of(_Registration):
            if attempt.version is not None and attempt.request == asked:
                return Committed(attempt.version)
        known = snapshot.progress.producers
        new = [name for name in wanted if name not in known]
        if len(new) < len(wanted) and not exist_ok:
            old = [name for name in wanted if name in known]
            raise errors.producer_exists(snapshot.table.path, old)
        if not new:
            return Unchanged(snapshot.version)
        registrar = snapshot.progress.registrar
        if not registrar:
            raise errors.channel_sealed_to_new(new[0], snapshot.table.path)
        joining = registrar if start is None else start
        for time in joining:
            if not registrar.less_equal(time):
                raise errors.time_not_held_by_registrar(snapshot.domain.format(time), registrar.format())
        kept = None if state is None else state(known)
        statements = {name: Statement(snapshot.progress.first_seq, tuple(joining), None, kept) for name in new}
        return Plan(statements=statements, attempt=Attempt(asked))

    outcome = transact(snapshot, plan)
    snapshot.attempts.answer(outcome.committed)
    return outcome


def delay(snapshot: Snapshot, times: Time | Iterable[Time]) -> Outcome:
    """Implement :meth:`Channel.delay_registrar`."""
    wanted = Antichain(snapshot.domain, canonical_times(times, snapshot.domain))

    def plan() -> Plan | Outcome:
        state = snapshot.progress.get(REGISTRAR)
        if state is None or not state.holds:
            raise errors.channel_sealed(snapshot.table.path)
        for time in wanted:
            if not state.holds.less_equal(time):
                raise errors.capability_backwards(REGISTRAR, snapshot.domain, state.holds.format(), time)
        if wanted == state.holds:
            return Unchanged(snapshot.version)
        return Plan(statements={REGISTRAR: Statement(state.seq + 1, tuple(wanted), None, state.state)})

    return transact(snapshot, plan)


def seal(snapshot: Snapshot) -> Outcome:
    """Implement :meth:`Channel.seal`."""

    def plan() -> Plan | Outcome:
        state = snapshot.progress.get(REGISTRAR)
        if state is None or not state.holds:
            return Unchanged(snapshot.version)
        return Plan(statements={REGISTRAR: Statement(state.seq + 1, (), None, state.state)})

    return transact(snapshot, plan)
