"""Every error that Strandline raises on purpose. Each has a condition, a text with the values, and a remedy."""

from __future__ import annotations

import re
from typing import Any

__all__ = [
    "CapabilityError",
    "ChannelError",
    "CycleError",
    "DataflowError",
    "DurationError",
    "GraphError",
    "IngestError",
    "LogError",
    "PageError",
    "PolicyError",
    "ProducerError",
    "ProgramError",
    "ProtocolError",
    "ScopeError",
    "StatementError",
    "StorageError",
    "StrandlineError",
    "SummaryError",
    "TimeDomainError",
    "TimeError",
    "TraceError",
    "printable",
]

_NOT_SHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
"""Control characters, those without a width, those that change the writing direction or break lines, and halves of characters."""


def printable(text: str) -> str:
    r"""Return ``text`` in a form that is safe for a terminal or a log.

    Characters that move the cursor, have no width, change the writing direction or cannot be encoded become escapes. Line breaks
    and tabs stay. Names need this because they come from logs that others write.

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
        # The default calls the class with the formatted message alone. In Spark these errors cross process boundaries.
        return (_rebuild, (type(self), self.condition, self.what, self.remedy))


def _rebuild(cls: type[StrandlineError], condition: str, what: str, remedy: str) -> StrandlineError:
    error = cls.__new__(cls)
    StrandlineError.__init__(error, condition, what, remedy)
    return error


class TimeDomainError(StrandlineError):
    """A time domain is invalid, or two domains that must be equal differ."""


class TimeError(StrandlineError, ValueError):
    """A value is not a time of the domain."""


class SummaryError(StrandlineError, ValueError):
    """A value is not a path summary of its domain."""


class DurationError(StrandlineError, ValueError):
    """A duration is malformed, is negative, or does not fit the domain of the times."""


class CapabilityError(StrandlineError, ValueError):
    """A time is not in advance of any held capability, or a capability is used after it was dropped."""


class GraphError(StrandlineError, ValueError):
    """A graph has an unknown port, an edge twice, or a cycle that does not advance times."""


class CycleError(GraphError):
    """A cycle does not strictly advance times; ``cycle`` lists its locations in order."""

    cycle: tuple[Any, ...] = ()


class ProtocolError(StrandlineError):
    """A batch is out of its sender's order, or its sender is unknown."""


class DataflowError(StrandlineError):
    """A dataflow is built incorrectly, or waits for something that cannot happen."""


class TraceError(StrandlineError):
    """A trace cannot be read: no such file, not gzip or JSON, or not in the format."""


class ChannelError(StrandlineError):
    """The table is not a channel, or it cannot be read and written safely."""


class LogError(ChannelError):
    """The Delta log lacks a commit that is needed, or holds one that breaks the channel's contract."""


class StatementError(ChannelError):
    """A progress statement cannot be read, or contradicts an earlier one."""


class ProducerError(ChannelError):
    """A producer's name is unknown, taken, or was taken over."""


class StorageError(ChannelError):
    """The storage failed or refused: a full disk, missing rights, too many open files, a broken device."""


class ScopeError(StrandlineError):
    """A scope's file cannot be read, or a channel or query does not fit the scope."""


class IngestError(StrandlineError):
    """An external stream cannot be ingested in the requested way."""


class PolicyError(IngestError, ValueError):
    """A capability policy is malformed, or does not fit the times that it judges."""


class ProgramError(StrandlineError):
    """A program is written incorrectly, cannot be put into strata, or meets rows that do not fit it.

    ``loop`` lists, for a program without strata, the edges of a loop: a relation, the word for what must see the whole of the one
    that it reads (empty where nothing must), and that one.
    """

    loop: tuple[tuple[str, str, str], ...] = ()


class PageError(StrandlineError):
    """The page cannot be served."""
