"""A producer's statement: the capabilities that it holds and may use from now on.

A statement is state, not a difference: the newest ``seq`` wins.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from strandline.channel.statements.session import WriterSession
from strandline.time.antichain import Antichain
from strandline.time.domain import Time

__all__ = ["REGISTRAR", "ProducerState", "Span", "Statement", "copied_state", "name_problem"]

REGISTRAR = "$registrar"
"""The name that holds the right to add producers. No producer's name begins with ``$``."""

_MAX_NAME = 1024


class Statement(NamedTuple):
    """One producer's capabilities after a commit, as written in the commit.

    The times are in canonical form. They are not yet of any domain. ``state`` is a JSON value that the producer keeps for
    itself, such as the memory of an ingest policy. Nobody else interprets it.
    """

    seq: int
    holds: tuple[Time, ...]
    owner: WriterSession | None = None
    state: Any = None


class ProducerState(NamedTuple):
    """The known state of a producer: the ``seq`` of its newest statement, and the capabilities that it has held since.

    ``owner`` is the session that made the statement. ``live`` is true if the session had not closed the producer by then.
    ``state`` is a value that the producer keeps for itself.
    """

    seq: int
    holds: Antichain
    owner: WriterSession | None = None
    state: Any = None

    @property
    def live(self) -> bool:
        """Whether a session had the producer open at its newest statement.

        The session's process may have died since (:meth:`WriterSession.is_dead`).
        """
        return self.owner is not None

    def statement(self) -> Statement:
        """Return this state as a statement."""
        return Statement(self.seq, tuple(self.holds), self.owner, self.state)


class Span(NamedTuple):
    """Rows whose times all lie between ``low`` and ``high``. A capability of their producer is ≤ ``low``.

    A tracker counts them at ``low`` and may forget them when ``high`` is closed, because every time in between is then
    closed too.
    """

    low: Time
    high: Time
    rows: int


def copied_state(state: Any) -> Any:
    """Return a copy of a producer's state, which is a JSON value. It may be nested deeper than Python's functions may call.

    >>> state = {"a": [1, {"b": 2}]}
    >>> copied_state(state) == state, copied_state(state)["a"] is state["a"]
    (True, False)
    """
    copy = [state]
    left: list[Any] = [copy]
    while left:
        holder = left.pop()
        for key, inner in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(inner, dict | list | tuple):
                holder[key] = dict(inner) if isinstance(inner, dict) else list(inner)
                left.append(holder[key])
    return copy[0]


def name_problem(name: object) -> str | None:
    """Return why ``name`` cannot be a producer's name, or ``None`` if it can."""
    if not isinstance(name, str) or not name:
        return "is not a non-empty string"
    if len(name) > _MAX_NAME:
        return f"is longer than {_MAX_NAME} characters"
    if name.startswith("$"):
        return "begins with '$', which is reserved for Strandline"
    return None
