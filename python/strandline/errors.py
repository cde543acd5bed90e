"""Errors: each names its condition, what happened with the values, and the remedy."""

from __future__ import annotations

import re

__all__ = ["StrandlineError", "TimeDomainError", "TimeError", "printable"]

_NOT_SHOWN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""``text`` for a terminal or a log: what would move the cursor, turn the writing round or cannot be encoded, as escapes.

    Line breaks and tabs stay. Names come from logs that others write.

    >>> printable("JFK\x1b[2J")
    'JFK\\x1b[2J'
    """
    return _NOT_SHOWN.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


class StrandlineError(Exception):
    """Base of every error that Strandline raises on purpose.

    The text has Spark's form, ``[CONDITION] what happened. Remedy.``, so that a log line can be searched by condition.

    >>> error = StrandlineError("STRANDLINE_EXAMPLE", "The tide is out.", "Wait six hours.")
    >>> str(error)
    '[STRANDLINE_EXAMPLE] The tide is out. Wait six hours.'
    >>> error.condition
    'STRANDLINE_EXAMPLE'
    """

    def __init__(self, condition: str, what: str, remedy: str = "") -> None:
        self.condition = condition
        self.what = what
        self.remedy = remedy
        super().__init__(printable(f"[{condition}] {what} {remedy}".rstrip()))

    def __reduce__(self) -> tuple[object, ...]:
        # The default would call the class with the formatted message alone; these errors cross process borders in Spark.
        return (_rebuild, (type(self), self.condition, self.what, self.remedy))


def _rebuild(cls: type[StrandlineError], condition: str, what: str, remedy: str) -> StrandlineError:
    error = cls.__new__(cls)
    StrandlineError.__init__(error, condition, what, remedy)
    return error


class TimeDomainError(StrandlineError):
    """A time domain is written wrongly, or two domains that must be equal differ."""


class TimeError(StrandlineError, ValueError):
    """A value is not a time of the domain."""
