"""The registrar's capability: producers join at it, it can be delayed, and without it the channel is sealed.

A producer that only holds a time may join a sealed channel, too: it gets a clone of a capability that another one holds.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from strandline.channel import errors
from strandline.channel.commit.outcome import Committed, Outcome, Unchanged
from strandline.channel.commit.transaction import Plan, transact
from strandline.channel.progress.attempts import Attempt
from strandline.channel.progress.snapshot import Snapshot
from strandline.channel.statements.statement import REGISTRAR, ProducerState, Statement, checked_state
from strandline.channel.write.create import checked_names
from strandline.time.antichain import Antichain, canonical_times
from strandline.time.domain import Time

__all__ = ["HOLD", "Hold", "delay", "hold", "hold_of", "register", "seal"]

HOLD = "strandline:hold"
"""The key in a producer's state that says that it only holds times for somebody."""


class Hold(NamedTuple):
    """Who holds a time by :meth:`Channel.hold`, and since when, in ms since 1970."""

    by: str
    at: int

    def state(self) -> dict[str, object]:
        """Return the state of the producer."""
        return {HOLD: {"by": self.by, "at": self.at}}


def hold_of(state: object) -> Hold | None:
    """Return who holds by a producer with a state, or ``None`` if it is another one.

    >>> hold_of(Hold("ann@host", 5).state()), hold_of({"n": 7})
    (Hold(by='ann@host', at=5), None)
    """
    told = state.get(HOLD) if isinstance(state, dict) else None
    if not isinstance(told, dict) or not isinstance(told.get("by"), str) or type(told.get("at")) is not int:
        return None
    return Hold(told["by"], told["at"])


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
                raise errors.time_not_held_to_join(snapshot.domain.format(time), f"the registrar holds {registrar.format()}")
        kept = None if state is None else state(known)
        statements = {name: Statement(snapshot.progress.first_seq, tuple(joining), None, kept) for name in new}
        return Plan(statements=statements, attempt=Attempt(asked))

    outcome = transact(snapshot, plan)
    snapshot.attempts.answer(outcome.committed)
    return outcome


def hold(snapshot: Snapshot, name: str, at: Time, by: str) -> Outcome:
    """Implement :meth:`Channel.hold`."""
    checked_names([name])
    time = snapshot.domain.time(at)
    state = checked_state(Hold(by, clock.time_ns() // 1_000_000).state(), name)
    asked = _Registration(frozenset([name]), Antichain(snapshot.domain, [time]))

    def plan() -> Plan | Outcome:
        for attempt in snapshot.attempts.of(_Registration):
            if attempt.version is not None and attempt.request == asked:
                return Committed(attempt.version)
        progress, path = snapshot.progress, snapshot.table.path
        if name in progress.producers:
            raise errors.producer_exists(path, [name])
        joins = Statement(progress.first_seq, (time,), None, state)
        if progress.registrar.less_equal(time):
            return Plan(statements={name: joins}, attempt=Attempt(asked))
        donor = _donor(snapshot, time)
        if donor is None:
            raise errors.time_not_held_to_join(snapshot.domain.format(time), f"the frontier is {progress.frontier.format()}")
        known = progress.producers[donor]
        again = Statement(known.seq + 1, tuple(known.holds), known.owner, known.state)  # only what is stated can be cloned
        return Plan(statements={name: joins, donor: again}, attempt=Attempt(asked))

    outcome = transact(snapshot, plan)
    snapshot.attempts.answer(outcome.committed)
    return outcome


def _donor(snapshot: Snapshot, time: Time) -> str | None:
    """Return a producer that holds a time at or before ``time``: if possible one that no session has open."""
    progress = snapshot.progress
    found = [name for name in progress.holding() if name != REGISTRAR and progress.producers[name].holds.less_equal(time)]
    return min(found, key=lambda name: (progress.producers[name].owner is not None, name), default=None)


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
