"""The opening of a producer: a session takes its name, unless another one that may live has it."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.channel import errors
from strandline.channel.commit.transaction import Plan, transact
from strandline.channel.progress.attempts import Attempt
from strandline.channel.progress.snapshot import Snapshot
from strandline.channel.statements.session import WriterSession
from strandline.channel.statements.statement import ProducerState, Statement
from strandline.channel.write import admission
from strandline.channel.write.create import checked_names

__all__ = ["open_producer"]


@dataclass(frozen=True)
class _Opening:
    """The opening of a producer. If it ended by an error, nobody has the session, but its commit may have been made."""

    name: str
    session: WriterSession


def open_producer(snapshot: Snapshot, name: str, session: WriterSession, *, take_over: bool) -> ProducerState:
    """Implement :meth:`Channel.producer`. Return what the producer holds."""
    path, attempts, opening = snapshot.table.path, snapshot.attempts, _Opening(name, session)
    checked_names([name])

    def plan() -> Plan:
        state = snapshot.progress.get(name)
        if state is None:
            statement = Statement(snapshot.progress.first_seq, tuple(admission.joining(snapshot, name)), session)
        else:
            lost = [attempt.request for attempt in attempts.of(_Opening)]
            nobody = any((each.name, each.session) == (name, state.owner) for each in lost)
            admission.refuse_live(path, name, state, session, take_over or nobody)
            statement = Statement(state.seq + 1, tuple(state.holds), session, state.state)
        return Plan(statements={name: statement}, attempt=Attempt(opening))

    transact(snapshot, plan)
    attempts.forget(opening)  # also an earlier one, whose answer was lost: from now on somebody has the session
    state = snapshot.progress.get(name)
    if state is None or state.owner != session:
        raise errors.producer_fenced_at_opening(name, path)
    return state
