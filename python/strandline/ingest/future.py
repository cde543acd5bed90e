"""The bound on the future (``maxFuture``): a row that is dated further ahead of the clock is set aside, and moves nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.errors import IngestError, printable
from strandline.ingest.policies.arguments import as_policy_error
from strandline.time.arrow import leaf_columns
from strandline.time.domain import TimeDomain, timestamp
from strandline.time.duration import Duration

__all__ = ["AUTO", "OFF", "FutureBound", "FutureCheck", "FutureRows", "future_bound", "future_warning"]

AUTO, OFF = "auto", "off"
DEFAULT = Duration.of("1 day")
"""The bound unless one is given. A row with a later time nearly always has a wrong clock or a wrong unit. It would end its
partition for years. A row that was set aside can be readmitted, but a promise cannot be taken back."""
_SHOWN = 10

_Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class FutureBound:
    """How far ahead of the clock a row may be.

    Attributes:
        leaf: The position of the coordinate that is compared with the clock, among all leaf coordinates.
        micros: The bound in microseconds.
        applies: For each pattern of the policy, whether the bound applies to its partitions.
    """

    leaf: int
    micros: int
    applies: tuple[bool, ...]

    def __str__(self) -> str:
        return str(Duration(self.micros, timed=True))


class FutureRows(NamedTuple):
    """The rows beyond the bound, of a task or of a batch.

    ``time`` is the greatest of their times, of ``partition``. ``clock_ms`` is the clock with which they were compared. The time
    is in microseconds since 1970, the clock in milliseconds.
    """

    rows: int
    partition: str
    time: int
    clock_ms: int

    @classmethod
    def together(cls, parts: Sequence[FutureRows]) -> FutureRows | None:
        """Combine what several tasks found, or ``None`` if none of them found any.

        >>> FutureRows.together([FutureRows(1, "a", 7, 0), FutureRows(2, "b", 9, 0)])
        FutureRows(rows=3, partition='b', time=9, clock_ms=0)
        """
        if not parts:
            return None
        return max(parts, key=lambda part: (part.time, part.partition))._replace(rows=sum(part.rows for part in parts))


def future_bound(
    value: str | timedelta | Duration | None, domain: TimeDomain, moved_by_times: Sequence[bool]
) -> FutureBound | None:
    """Return the bound of an ingest, or ``None`` if there is none.

    Args:
        value: A duration. ``"auto"`` is one day where the times have a timestamp coordinate and rows' times move the promise,
            and none elsewhere. ``"off"`` and ``None`` are none.
        domain: The domain of the times. The clock is compared with its first timestamp coordinate.
        moved_by_times: For each pattern of the policy, whether rows' times move the promise.

    Raises:
        IngestError: ``STRANDLINE_MAX_FUTURE_INVALID`` for a bound on times without a timestamp coordinate.
        PolicyError: ``STRANDLINE_DELAY_INVALID`` for a value that is no duration.

    >>> from strandline.time.domain import int64
    >>> str(future_bound("auto", timestamp, [True])), future_bound("auto", int64, [True]), future_bound("off", timestamp, [True])
    ('1 day', None, None)
    """
    if value is None or value == OFF:
        return None
    leaf = next((at for at, (_, part) in enumerate(domain.leaves()) if part == timestamp), None)
    if value == AUTO:
        applies = tuple(moved_by_times)
        return None if leaf is None or not any(applies) else FutureBound(leaf, DEFAULT.amount, applies)
    with as_policy_error():
        bound = Duration.of(value, "maxFuture")
        if leaf is None:
            raise IngestError(
                "STRANDLINE_MAX_FUTURE_INVALID",
                f"maxFuture is {bound}, but times are of {domain}, which has no timestamp to compare with the clock.",
                "Remove maxFuture, or use times with a timestamp coordinate.",
            )
        return FutureBound(leaf, bound.within(timestamp, "maxFuture"), (True,) * len(moved_by_times))


class FutureCheck:
    """Finds the rows of a task that are beyond the bound, and remembers how many there were."""

    def __init__(self, bound: FutureBound | None, clock_ms: int | None) -> None:
        self._bound, self._clock_ms = bound, clock_ms or 0
        self._latest = None if bound is None or clock_ms is None else clock_ms * 1000 + bound.micros
        self._found: list[FutureRows] = []

    def beyond(self, times: pa.Array) -> _Mask | None:
        """Return which times are beyond the bound, or ``None`` if none is."""
        if self._bound is None or self._latest is None:
            return None
        found: _Mask = leaf_columns(times)[self._bound.leaf] > self._latest
        return found if found.any() else None

    def applying(self, found: _Mask, at: npt.NDArray[np.int64], needs: Sequence[int]) -> _Mask:
        """Return those of the times that :meth:`beyond` has found to which the bound applies.

        Args:
            found: What was found.
            at: The index of each row's partition in ``needs``.
            needs: The position of the pattern that decides on each partition.
        """
        if self._bound is None or all(self._bound.applies) or not needs:
            return found
        return found & np.array([self._bound.applies[need] for need in needs], dtype=np.bool_)[at]

    def add(self, times: pa.Array, at: npt.NDArray[np.int64], names: Sequence[str], mask: _Mask) -> None:
        """Remember rows that were set aside: those of ``mask``, with these times."""
        if self._bound is None or not mask.any():
            return
        rows = np.flatnonzero(mask)
        leaf = leaf_columns(times)[self._bound.leaf][rows]
        greatest = int(leaf.argmax())
        name = names[int(at[rows[greatest]])]
        self._found.append(FutureRows(len(rows), name, int(leaf[greatest]), self._clock_ms))

    def refused(self, partition: str, value: str, reason: str) -> IngestError:
        """Return the error for a row beyond the bound, where no row may be set aside."""
        clock = timestamp.format(self._clock_ms * 1000)
        return IngestError(
            "STRANDLINE_ROW_IN_FUTURE",
            f"A row of partition {partition!r} with the time {value} is more than {self._bound} ahead of the clock, which "
            f"showed {clock} ({reason}), and onLate is fail. Nothing of the batch was written.",
            "Correct the row at the source, or set onLate to setAside. If such times are right, as those of bookings, set "
            "maxFuture to a longer time or to off.",
        )

    def result(self) -> FutureRows | None:
        """Return what was found in all rows."""
        return FutureRows.together(self._found)


def future_warning(path: str, late_path: str, bound: FutureBound, found: FutureRows, by: Mapping[str, int], read: int) -> str:
    """Return what the log says about a batch with rows beyond the bound.

    Args:
        path: The channel's path.
        late_path: The late table's path.
        bound: The bound.
        found: The rows.
        by: How many there are, by partition.
        read: How many rows the batch has.
    """
    most = sorted(by.items(), key=lambda entry: (-entry[1], entry[0]))
    shown = ", ".join(f"{name} ({rows})" for name, rows in most[:_SHOWN])
    more = f" and {len(most) - _SHOWN} more" if len(most) > _SHOWN else ""
    greatest, clock = timestamp.format(found.time), timestamp.format(found.clock_ms * 1000)
    text = (
        f"{path}: {found.rows} of {read} rows are dated more than {bound} ahead of the clock, which showed {clock}. They were "
        f"set aside in {late_path} as 'time in the future', and moved nothing. By partition: {shown}{more}. The greatest time is "
        f"{greatest}, of partition {found.partition}. "
    )
    if found.rows > max(2, read // 2):
        text += "These are most rows of the batch: check first that the clock of the driver's machine is right. "
    text += (
        "Repair the clock of what sends them; readmit(…, where=…) adds them with right times, if the channel has corrections. If "
        "such times are right, as those of bookings, set maxFuture (max_future in ingest) to a longer time or to off."
    )
    return printable(text)
