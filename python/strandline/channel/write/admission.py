"""Admission: who may write under a name, and where a new producer may join."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.channel import errors
from strandline.channel.progress.snapshot import Snapshot
from strandline.channel.statements.session import WriterSession
from strandline.channel.statements.statement import ProducerState
from strandline.channel.statements.statement_columns import Distinct
from strandline.time.antichain import Antichain

__all__ = ["joining", "refuse_live", "refuse_live_of"]


def joining(snapshot: Snapshot, name: str) -> Antichain:
    """Return where a new producer may join. Raises :class:`ProducerError` if none can."""
    registrar = snapshot.progress.registrar
    if not registrar:
        known = sorted(snapshot.progress.producers)
        shown = ", ".join(known[:10]) + (f" and {len(known) - 10} more" if len(known) > 10 else "")
        raise errors.producer_unknown(snapshot.table.path, name, shown)
    return registrar


def refuse_live(path: str, name: str, state: ProducerState, session: WriterSession, take_over: bool) -> None:
    """Raise :class:`ProducerError` if a producer is open in another session, unless that one is dead or fenced."""
    other = state.owner
    if other is None or other.id == session.id or take_over or other.is_dead():
        return
    raise errors.producer_live(name, path, other)


def refuse_live_of(snapshot: Snapshot, names: Iterable[str], session: WriterSession, take_over: bool) -> None:
    """Do the same as :func:`refuse_live`, for very many producers. Unknown producers are skipped."""
    progress, session = snapshot.progress, snapshot.known_session(session)
    suspects = list(names)
    if progress.columns is not None:
        rows = progress.columns.find(suspects)
        known = rows >= 0
        sessions = Distinct.of(progress.columns.owner[rows[known]])
        suspects = [suspects[place] for place in known.nonzero()[0][sessions.first].tolist()]  # one of each session is enough
    for name in suspects:
        state = progress.get(name)
        if state is not None and state.owner is not session and state.owner is not None:
            refuse_live(snapshot.table.path, name, state, session, take_over)
