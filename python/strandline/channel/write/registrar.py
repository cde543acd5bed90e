"""The registrar's capability: producers join at it, it can be delayed, and without it the channel is sealed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from strandline.channel.progress.attempt import Attempt
from strandline.channel.progress.snapshot import Snapshot
from strandline.channel.statements.statement import REGISTRAR, Statement
from strandline.channel.write.capability import backwards
from strandline.channel.write.create import checked_names
from strandline.channel.write.transaction import Plan, survives, transact
from strandline.errors import CapabilityError, ProducerError
from strandline.time.antichain import Antichain, canonical_times
from strandline.time.domain import Time

__all__ = ["Registration", "delay", "register", "seal"]


@dataclass(frozen=True)
class Registration:
    """A call of :meth:`Channel.register`, with its attempt to commit."""

    names: frozenset[str]
    start: Antichain | None
    attempt: Attempt

    def made(self, names: frozenset[str], start: Antichain | None) -> bool:
        """Return whether the commit was made, and the call asked for the same."""
        return self.attempt.version is not None and (self.names, self.start) == (names, start)


def register(
    snapshot: Snapshot,
    names: Iterable[str],
    at: Time | Iterable[Time] | None,
    *,
    exist_ok: bool,
    unanswered: list[Registration],
) -> int | None:
    """Implement :meth:`Channel.register`.

    ``unanswered`` has the earlier calls that ended by an error. If one of them asked for the same and its commit was made, this
    call repeats it, and returns its version. This call is added until it returns.
    """
    wanted = checked_names(names)
    start = None if at is None else Antichain(snapshot.domain, canonical_times(at, snapshot.domain))
    asked = frozenset(wanted)
    made: int | None = None

    def plan() -> Plan | None:
        nonlocal made
        unanswered[:] = [call for call in unanswered if call.attempt.open or call.attempt.version is not None]
        made = next((call.attempt.version for call in unanswered if call.made(asked, start)), None)
        if made is not None:
            return None
        known = snapshot.progress.producers
        new = [name for name in wanted if name not in known]
        if len(new) < len(wanted) and not exist_ok:
            old = [name for name in wanted if name in known]
            raise ProducerError(
                "STRANDLINE_PRODUCER_EXISTS",
                f"{snapshot.table.path} already has the producer {old[0]!r}"
                + (f" and {len(old) - 1} more of the given names." if len(old) > 1 else "."),
                "Register only new names, or pass exist_ok=True.",
            )
        if not new:
            return None
        registrar = snapshot.progress.registrar
        if not registrar:
            _sealed(snapshot, f"The producer {new[0]!r} cannot join")
        joining = registrar if start is None else start
        for time in joining:
            if not registrar.less_equal(time):
                raise CapabilityError(
                    "STRANDLINE_TIME_NOT_HELD",
                    f"Producers cannot join at {snapshot.domain.format(time)}, because the registrar holds {registrar.format()}.",
                    "Choose a time at or after the registrar's capability.",
                )
        planned = Plan(statements={name: Statement(snapshot.progress.first_seq, tuple(joining)) for name in new})
        unanswered.append(Registration(asked, start, planned.attempt))
        return planned

    version = transact(snapshot, plan)
    if made is not None:
        version = survives(snapshot, made)
    unanswered[:] = [call for call in unanswered if version is None or call.attempt.version != version]  # this one is answered
    return version


def delay(snapshot: Snapshot, times: Time | Iterable[Time]) -> int | None:
    """Implement :meth:`Channel.delay_registrar`."""
    wanted = Antichain(snapshot.domain, canonical_times(times, snapshot.domain))

    def plan() -> Plan | None:
        state = snapshot.progress.get(REGISTRAR)
        if state is None or not state.holds:
            _sealed(snapshot, "The registrar's capability cannot move")
        for time in wanted:
            if not state.holds.less_equal(time):
                raise backwards(REGISTRAR, snapshot.domain, state.holds.format(), time)
        if wanted == state.holds:
            return None
        return Plan(statements={REGISTRAR: Statement(state.seq + 1, tuple(wanted), None, state.state)})

    return transact(snapshot, plan)


def seal(snapshot: Snapshot) -> int | None:
    """Implement :meth:`Channel.seal`."""

    def plan() -> Plan | None:
        state = snapshot.progress.get(REGISTRAR)
        if state is None or not state.holds:
            return None
        return Plan(statements={REGISTRAR: Statement(state.seq + 1, (), None, state.state)})

    return transact(snapshot, plan)


def _sealed(snapshot: Snapshot, what: str) -> NoReturn:
    raise ProducerError(
        "STRANDLINE_CHANNEL_SEALED",
        f"{what}, because the channel {snapshot.table.path} is sealed.",
        "Name every producer when you create the channel, or seal the channel later.",
    )
