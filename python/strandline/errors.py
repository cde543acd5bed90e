"""Every error that Strandline raises on purpose. Each has a condition, says what happened with the values, and gives a remedy."""

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
    "PolicyError",
    "ProducerError",
    "ProtocolError",
    "StatementError",
    "StorageError",
    "StrandlineError",
    "SummaryError",
    "TimeDomainError",
    "TimeError",
    "TraceError",
    "printable",
]

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


class SummaryError(StrandlineError, ValueError):
    """A path summary is not one of its domain."""


class DurationError(StrandlineError, ValueError):
    """A duration is written wrongly, is negative, or does not fit the times' domain."""


class CapabilityError(StrandlineError, ValueError):
    """A time is not in advance of any capability that is held, or a capability is used after it was dropped."""


class GraphError(StrandlineError, ValueError):
    """A graph has an unknown port, an edge twice, or a cycle that does not advance times."""


class CycleError(GraphError):
    """A cycle does not strictly advance times; ``cycle`` lists its locations in order."""

    cycle: tuple[Any, ...] = ()


class ProtocolError(StrandlineError):
    """A batch is out of its sender's order, or a sender says two things under one number."""


class DataflowError(StrandlineError):
    """A dataflow is built wrongly, or waits for something that cannot happen."""


class TraceError(StrandlineError):
    """A trace cannot be read: no such file, not gzip or JSON, or not in the format."""


class ChannelError(StrandlineError):
    """The table is no channel, or not one that can be read and written safely."""


class LogError(ChannelError):
    """The Delta log lacks a commit that is needed, or holds one that breaks the channel's contract."""


class StatementError(ChannelError):
    """A progress statement cannot be read, or contradicts an earlier one."""


class ProducerError(ChannelError):
    """A producer's name is unknown, taken, or was taken over."""


class StorageError(ChannelError):
    """The storage failed or refused: a full disk, missing rights, too many open files, a broken device."""


class IngestError(StrandlineError):
    """An outside stream cannot be taken in as it was asked for."""


class PolicyError(IngestError, ValueError):
    """A capability policy is written wrongly, or does not fit the times that it is to judge."""
