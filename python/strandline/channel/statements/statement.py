"""What a producer states: the capabilities it holds and may use from now on. State, not a difference: the newest ``seq`` wins."""

from __future__ import annotations

from typing import Any, NamedTuple

from strandline.channel.statements.session import WriterSession
from strandline.time.antichain import Antichain
from strandline.time.domain import Time

__all__ = ["REGISTRAR", "ProducerState", "Span", "Statement", "name_problem"]

REGISTRAR = "$registrar"
"""The name under which the right to add producers is held; no producer's name begins with ``$``."""

_MAX_NAME = 1024


class Statement(NamedTuple):
    """One producer's capabilities after a commit, as the commit says them: times in canonical form, not yet of any domain.

    ``state`` is what the producer keeps for itself, in JSON: an ingest policy's memory. Nobody else interprets it.
    """

    seq: int
    holds: tuple[Time, ...]
    owner: WriterSession | None = None
    state: Any = None


class ProducerState(NamedTuple):
    """What is known of a producer: the ``seq`` of its newest statement, and the capabilities it holds since.

    ``owner`` is the session that made the statement; ``live`` says that the session had not closed the producer by then.
    ``state`` is what the producer keeps for itself.
    """

    seq: int
    holds: Antichain
    owner: WriterSession | None = None
    state: Any = None

    @property
    def live(self) -> bool:
        """Whether a session had it open when it last spoke (its process may be dead since: :meth:`WriterSession.is_dead`)."""
        return self.owner is not None

    def statement(self) -> Statement:
        """This state as a statement."""
        return Statement(self.seq, tuple(self.holds), self.owner, self.state)


class Span(NamedTuple):
    """Rows whose times all lie between ``low`` (which a capability of their producer is ≤) and ``high``.

    A tracker counts them at ``low`` and may forget them when ``high`` is closed: then every time in between is closed too.
    """

    low: Time
    high: Time
    rows: int


def name_problem(name: object) -> str | None:
    """Why ``name`` cannot be a producer's name, or ``None`` when it can."""
    if not isinstance(name, str) or not name:
        return "is not a non-empty string"
    if len(name) > _MAX_NAME:
        return f"is longer than {_MAX_NAME} characters"
    if name.startswith("$"):
        return "begins with '$', which is kept for Strandline itself"
    return None
