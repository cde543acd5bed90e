"""A producer's statement: the capabilities that it holds and may use from now on.

A statement is state, not a difference: the newest ``seq`` wins.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from strandline.channel import errors
from strandline.channel.statements.nullable_int64 import is_number
from strandline.channel.statements.session import WriterSession
from strandline.time.antichain import Antichain
from strandline.time.domain import Time

__all__ = [
    "REGISTRAR",
    "REMOVED",
    "ProducerState",
    "Span",
    "Statement",
    "checked_state",
    "copied_state",
    "first_seq",
    "name_problem",
]

REGISTRAR = "$registrar"
"""The name that holds the right to add producers. No producer's name begins with ``$``."""

REMOVED = "strandline:removed"
"""The key of the registrar's state that says with which ``seq`` producers join, once any were removed (:func:`first_seq`)."""

_MAX_NAME = 1024
_MAX_DEPTH = 500
"""Python's JSON nests less than twice as deep."""
_MAX_VALUES = 1 << 20
_MAX_BITS = 13_000
"""Python reads no longer integers from JSON."""


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


def first_seq(registrar: ProducerState | Statement | None) -> int:
    """Return the ``seq`` of the first statement of a producer that joins: more than that of any producer that was removed.

    So where a name joins again, the newest ``seq`` still wins, in whatever order statements are merged.

    >>> first_seq(None), first_seq(Statement(3, (), None, {REMOVED: 8})), first_seq(Statement(3, (), None, {REMOVED: "8"}))
    (0, 8, 0)
    """
    state = None if registrar is None else registrar.state
    first = state.get(REMOVED) if isinstance(state, dict) else None
    return first if is_number(first) and first >= 0 else 0


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


def checked_state(state: Any, name: str) -> Any:
    """Return a copy of what will be a producer's state.

    Raises :class:`ProducerError` ``STRANDLINE_STATE_INVALID`` if JSON cannot express the state, such as one that contains itself.

    >>> checked_state({"at": (1, 2.5)}, "a")
    {'at': [1, 2.5]}
    >>> checked_state({"at": {1, 2}}, "a")
    Traceback (most recent call last):
    strandline.errors.ProducerError: [STRANDLINE_STATE_INVALID] ...
    """
    copy = [state]
    left: list[tuple[Any, int]] = [(copy, 0)]
    values = 0
    while left:
        holder, depth = left.pop()
        values += len(holder)
        problem = None
        if depth > _MAX_DEPTH:
            problem = f"contains itself, or is nested deeper than {_MAX_DEPTH}"
        elif values > _MAX_VALUES:
            problem = f"has more than {_MAX_VALUES} values"
        for key, inner in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
            problem = problem or _key_problem(key) or _value_problem(inner)
            if isinstance(inner, dict | list | tuple) and problem is None:
                holder[key] = dict(inner) if isinstance(inner, dict) else list(inner)
                left.append((holder[key], depth + 1))
        if problem is not None:
            raise errors.state_invalid(name, problem)
    return copy[0]


def _key_problem(key: object) -> str | None:
    if isinstance(key, str | bool | None):
        return None
    if isinstance(key, int | float):
        return _value_problem(key)
    return f"has a key of the type {type(key).__name__}"


def _value_problem(value: object) -> str | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else f"contains {value}"
    if isinstance(value, int):
        return None if value.bit_length() <= _MAX_BITS else f"contains an integer of {value.bit_length()} bits"
    return None if isinstance(value, str | dict | list | tuple | None) else f"contains a value of the type {type(value).__name__}"


def name_problem(name: object) -> str | None:
    """Return why ``name`` cannot be a producer's name, or ``None`` if it can."""
    if not isinstance(name, str) or not name:
        return "is not a non-empty string"
    if len(name) > _MAX_NAME:
        return f"is longer than {_MAX_NAME} characters"
    if name.startswith("$"):
        return "begins with '$', which is reserved for Strandline"
    return None
