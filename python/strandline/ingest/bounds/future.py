"""The bound on the future (``maxFuture``): a row that is dated further ahead of the clock is set aside, and moves nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from heapq import nsmallest
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.errors import IngestError, printable
from strandline.ingest import errors
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
        micros: The bound in microseconds.
        leaves: For each pattern of the policy, the coordinates that are compared with the clock: their positions among all leaf
            coordinates. If there are none, the bound does not apply to the pattern's partitions.
    """

    micros: int
    leaves: tuple[tuple[int, ...], ...]

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
    value: str | timedelta | Duration | None, domain: TimeDomain, moved: Sequence[tuple[int, ...]]
) -> FutureBound | None:
    """Return the bound of an ingest, or ``None`` if there is none.

    Args:
        value: A duration. ``"auto"`` is one day where rows' times move a timestamp coordinate of the promise, and none elsewhere.
            ``"off"`` and ``None`` are none.
        domain: The domain of the times.
        moved: For each pattern of the policy, the coordinates of the promise that rows' times move. The timestamps among them
            are compared with the clock. A bound that is given compares all timestamps where no timestamp is moved.

    Raises:
        IngestError: ``STRANDLINE_MAX_FUTURE_INVALID`` for a bound on times without a timestamp coordinate.
        PolicyError: ``STRANDLINE_DELAY_INVALID`` for a value that is no duration.

    >>> from strandline.time.domain import int64
    >>> str(future_bound("auto", timestamp, [(0,)])), future_bound("auto", int64, [(0,)]), future_bound("off", timestamp, [(0,)])
    ('1 day', None, None)
    """
    if value is None or value == OFF:
        return None
    clocks = tuple(at for at, (_, part) in enumerate(domain.leaves()) if part == timestamp)
    compared = tuple(tuple(at for at in clocks if at in leaves) for leaves in moved)
    if value == AUTO:
        return FutureBound(DEFAULT.amount, compared) if any(compared) else None
    with as_policy_error():
        bound = Duration.of(value, "maxFuture")
        if not clocks:
            raise errors.max_future_invalid(bound, domain)
        return FutureBound(bound.within(timestamp, "maxFuture"), tuple(leaves or clocks for leaves in compared))


class FutureCheck:
    """Finds the rows of a task that are beyond the bound, and remembers how many there were."""

    def __init__(self, bound: FutureBound | None, clock_ms: int | None) -> None:
        self._bound, self._clock_ms = bound, clock_ms or 0
        self._latest = None if bound is None or clock_ms is None else clock_ms * 1000 + bound.micros
        self._found: list[FutureRows] = []

    def beyond(
        self, times: pa.Array, at: npt.NDArray[np.int64], needs: Callable[[], Sequence[int]]
    ) -> tuple[_Mask, npt.NDArray[np.int64]] | None:
        """Return which times are beyond the bound, and the greatest compared coordinate of each, or ``None`` if none is.

        Args:
            times: The rows' times.
            at: The index of each row's partition in what ``needs`` returns.
            needs: Returns the position of the pattern that decides on each partition. Called where patterns differ.
        """
        if self._bound is None or self._latest is None:
            return None
        leaves = leaf_columns(times)
        kinds = {kind: reduce(np.maximum, [leaves[leaf] for leaf in kind]) for kind in set(self._bound.leaves) if kind}
        if not any((values > self._latest).any() for values in kinds.values()):
            return None
        if len(set(self._bound.leaves)) == 1:
            (compared,) = kinds.values()
            return compared > self._latest, compared
        compared = np.full(len(times), np.iinfo(np.int64).min)
        patterns = np.array(needs(), dtype=np.int64)[at]
        for pattern, kind in enumerate(self._bound.leaves):
            if kind:
                chosen = patterns == pattern
                compared[chosen] = kinds[kind][chosen]
        return compared > self._latest, compared

    def add(
        self, compared: npt.NDArray[np.int64], at: npt.NDArray[np.int64], names: Sequence[str], mask: npt.NDArray[np.bool_]
    ) -> None:
        """Remember rows that were set aside: those of ``mask``, with what :meth:`beyond` has compared."""
        if not mask.any():
            return
        rows = np.flatnonzero(mask)
        furthest = rows[int(compared[rows].argmax())]
        self._found.append(FutureRows(len(rows), names[int(at[furthest])], int(compared[furthest]), self._clock_ms))

    def refused(self, partition: str, value: str, reason: str) -> IngestError:
        """Return the error for a row beyond the bound, where no row may be set aside."""
        clock = timestamp.format(self._clock_ms * 1000)
        return errors.row_in_future(partition, value, self._bound, clock, reason)

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
    most = nsmallest(_SHOWN, by.items(), key=lambda entry: (-entry[1], entry[0]))
    shown = ", ".join(f"{name} ({rows})" for name, rows in most)
    more = f" and {len(by) - _SHOWN} more" if len(by) > _SHOWN else ""
    greatest, clock = timestamp.format(found.time), timestamp.format(found.clock_ms * 1000)
    are, they = ("is", "It was") if found.rows == 1 else ("are", "They were")
    text = (
        f"{path}: {found.rows} of {read} rows {are} dated more than {bound} ahead of the clock, which showed {clock}. {they} "
        f"set aside in {late_path} as 'time in the future', and moved nothing. By partition: {shown}{more}. The greatest time is "
        f"{greatest}, of partition {found.partition}. "
    )
    if found.rows > max(2, read // 2):
        text += "These are most rows of the batch: check first that the clock of the driver's machine is right. "
    text += (
        f"Repair the clock of what sends them; readmit({path!r}, {late_path!r}, where=…) adds them with right times, if the "
        "channel has corrections. If such times are right, as those of bookings, set maxFuture (max_future in ingest) to a "
        "longer time or to off."
    )
    return printable(text)
