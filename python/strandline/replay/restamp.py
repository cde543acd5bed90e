"""New times for rows that come round a looping link: by the receiving clock, just before what comes next, or when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.replay import errors
from strandline.replay.clock import CLOCK, FIRST_LINK, FIRST_SCHEDULER, NodeStart, clock_times
from strandline.time.arrow import arrow_type, time_column
from strandline.time.domain import Time, int64, timestamp

__all__ = ["ORIGINAL", "LinkStamps", "Numbered", "Numbers", "Restamp", "StampedBy", "Stamper", "recorded", "start_of_instant"]

ORIGINAL = "original"
"""The column of a recorded link with the time that a row had before it came round."""

StampedBy: TypeAlias = Literal["clock", "earliest", "event"]

_STRIDE = 1 << 16
"""Tasks of a batch take turns in a link's numbers. So a batch has fewer tasks than this."""

_Instants: TypeAlias = npt.NDArray[np.int64]


def recorded(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a recorded link: that of its rows, and the column :data:`ORIGINAL`.

    Args:
        schema: The columns of the rows, with the time.

    >>> from strandline.time.arrow import time_field
    >>> recorded(pa.schema([time_field("time", CLOCK), ("price", pa.int64())])).names
    ['time', 'price', 'original']
    """
    if ORIGINAL in schema.names:
        raise errors.column_reserved(ORIGINAL)
    return schema.append(pa.field(ORIGINAL, arrow_type(CLOCK)))


def start_of_instant(time: Time) -> Time:
    """Return the first time of a clock at the instant of a time.

    >>> start_of_instant((1040, 0, 17))
    (1040, -9223372036854775808, -9223372036854775808)
    """
    return (time[0], int64.minimum, int64.minimum)


class Restamp(NamedTuple):
    """How the rows of a link get the times at which they come round. They leave the loop at ``T``, and the link's lag is ``L``.

    Attributes:
        by: ``clock``: the receiving clock (case 1 of seed 5, Triceps). ``earliest``: ``T + L``, or just before the next record
            from outside if that is earlier (case 2). ``event``: the instant that the row asks for, ``T + L`` at the earliest.
        node: The id of the link in these times. It is below the ids of all inputs, and that of an event below those of links.
        at: The column with the instant that a row asks for.
    """

    by: StampedBy
    node: int
    at: str = ""

    @classmethod
    def of(cls, by: str, place: int, at: str = "") -> Restamp:
        """Return how the link at a place among a loop's links stamps.

        >>> Restamp.of("event", 1, "due").node < Restamp.of("clock", 0).node < 0
        True
        """
        (known,) = (each for each in get_args(StampedBy) if each == by)
        return cls(known, (FIRST_SCHEDULER if by == "event" else FIRST_LINK) + place, at)

    @property
    def is_recorded(self) -> bool:
        """Whether the new times do not follow from the rows, so that both are kept."""
        return self.by != "event"


@dataclass(frozen=True)
class LinkStamps:
    """What the stamps of a batch begin with.

    Attributes:
        how: How the link stamps.
        frontier: The frontier of the loop: no row may come before it. ``None``: everything is closed.
        upcoming: The least time of what may come from outside, ``None`` if nothing does.
        now: The receiving clock, in microseconds since 1970.
        n: The first number that the link has not given.
    """

    how: Restamp
    frontier: Time | None
    upcoming: Time | None
    now: int
    n: int

    def floor(self, time: Time | None) -> int:
        """Return the first instant at which the link's times are not before a time.

        >>> link = LinkStamps(Restamp.of("clock", 0), None, None, 0, 0)
        >>> link.floor((1040, -2**63, -2**63)), link.floor((1040, 0, 17))
        (1040, 1041)
        """
        if time is None:
            return int(timestamp.minimum)
        instant, *rest = time
        return int(instant) if tuple(rest) <= (self.how.node, self.n) else int(instant) + 1

    def instants(self, originals: _Instants, lagged: _Instants) -> _Instants:
        """Return the new instants of rows: at least a microsecond after ``T``, and not before the frontier.

        Args:
            originals: The instants of their times ``T``, in microseconds.
            lagged: Those of ``T + L``.

        Raises:
            StrandlineError: ``STRANDLINE_TIME_OVERFLOW``: there is no such instant.
        """
        floor, last = self.floor(self.frontier), timestamp.maximum
        if len(originals) and (floor > last or originals.max() == last):
            raise errors.time_overflow_link(last)
        least: _Instants = np.maximum(originals + 1, floor)
        if self.how.by == "clock":
            return np.maximum(least, self.now)
        if self.upcoming is None:
            return np.maximum(least, lagged)
        next_instant: int = self.upcoming[0]
        return np.maximum(least, np.minimum(lagged, next_instant))


class Numbers:
    """The numbers that a task of a batch gives to its rows. The tasks take turns, so no two of them give one number.

    Attributes:
        next: The first number after those that were given.

    >>> numbers = Numbers(7, task=1)
    >>> numbers.take(2).tolist(), numbers.take(1).tolist(), numbers.next
    ([8, 65544], [131080], 131081)
    """

    def __init__(self, first: int, task: int) -> None:
        if task >= _STRIDE:
            raise errors.stamp_tasks(task, _STRIDE)
        self._first, self.next = first + task, first
        self._given = 0

    def take(self, count: int) -> npt.NDArray[np.int64]:
        """Return the next numbers. Raises ``STRANDLINE_STAMP_NUMBERS`` if there are none left."""
        if count and self._first + _STRIDE * (self._given + count - 1) >= int64.maximum:
            raise errors.stamp_numbers(self._first, count)
        found: npt.NDArray[np.int64] = self._first + _STRIDE * np.arange(self._given, self._given + count, dtype=np.int64)
        self._given += count
        if count:
            self.next = int(found[-1]) + 1
        return found


@dataclass
class Numbered:
    """Gives a task's rows from outside the times of a node at one instant.

    Attributes:
        start: What the node gives next.
        task: The number of the task.
        time_column: The name of the time column.
    """

    start: NodeStart
    task: int
    time_column: str

    def __post_init__(self) -> None:
        self._numbers = Numbers(self.start.n, self.task)

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Return the rows at their times, in their order."""
        times = clock_times(np.full(rows.num_rows, self.start.instant), self.start.node, self._numbers.take(rows.num_rows))
        return _at_times(rows, self.time_column, times)

    @property
    def counts(self) -> Mapping[str, int]:
        """As for :class:`Stamper`."""
        return {"n": self._numbers.next}


@dataclass
class Stamper:
    """Gives a task's rows their new times. It is called with rows at the times ``T + L``.

    Attributes:
        link: What the batch's stamps begin with.
        task: The number of the task.
        time_column: The name of the time column.
        rounded: How many rows asked for an instant before ``T + L``, and got that.
    """

    link: LinkStamps
    task: int
    time_column: str
    rounded: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._numbers = Numbers(self.link.n, self.task)

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Return the rows at their new times, in their order."""
        how, count = self.link.how, rows.num_rows
        lagged = _instants(rows.column(self.time_column))
        if how.by == "event":
            asked = rows.column(how.at)
            if asked.null_count:
                raise errors.event_time(how.at, "is null in a row that asks for an event")
            wanted = _microseconds(asked.combine_chunks())
            self.rounded += int((wanted < lagged).sum())
            instants, numbers = np.maximum(wanted, lagged), np.zeros(count, dtype=np.int64)
        else:
            instants = self.link.instants(_instants(rows.column(ORIGINAL)), lagged)
            numbers = self._numbers.take(count)
        return _at_times(rows, self.time_column, clock_times(instants, how.node, numbers))

    @property
    def counts(self) -> Mapping[str, int]:
        """What the batch has counted, for the state of the link: numbers as a maximum, and rounded events as a sum."""
        return {"n": self._numbers.next, "rounded": self.rounded}


def _at_times(rows: pa.Table, column: str, times: pa.StructArray) -> pa.Table:
    at = rows.schema.get_field_index(column)
    return rows.set_column(at, rows.schema.field(at), times)


def _instants(times: Any) -> _Instants:
    return _microseconds(time_column(times, CLOCK).field("instant"))


def _microseconds(column: Any) -> _Instants:
    found: _Instants = pc.cast(column.cast(pa.timestamp("us", column.type.tz)), pa.int64()).to_numpy(zero_copy_only=False)
    return found
