"""What a way around a loop does to times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.loop import errors
from strandline.time.domain import Time, TimeDomain
from strandline.time.path.entry import Entry
from strandline.time.path.summary import PathSummary, advance_each

__all__ = ["Way"]


@dataclass(frozen=True)
class Way:
    """What a way around the loop does to a time inside: it leaves to the domain of a channel, advances there, and enters again.

    Attributes:
        entry: How times of the channel enter the loop.
        moved: The advance.
    """

    entry: Entry
    moved: PathSummary

    @classmethod
    def of(cls, entry: Entry, by: Mapping[str, int]) -> Way:
        """Return the way that advances the coordinates of the channel by the given distances.

        Raises:
            SummaryError: ``STRANDLINE_SUMMARY_INVALID``: a coordinate is unknown, or nothing advances;
                ``STRANDLINE_TIME_OVERFLOW``: no time can advance so far.

        >>> from strandline.time.domain import product
        >>> inner = product(epoch="int64", i="int64", j="int64")
        >>> Way.of(Entry(inner, inner), {"j": 1}).results_in((7, 2, 5))
        (7, 2, 6)
        >>> Way.of(Entry(product(epoch="int64", i="int64"), inner), {"i": 1}).results_in((7, 2, 5))
        (7, 3, 0)
        """
        moved = advance_each(entry.outer, by)
        if moved.is_identity:
            raise errors.summary_invalid(entry.outer, by)
        return cls(entry, moved)

    @property
    def domain(self) -> TimeDomain:
        """The domain of the times inside."""
        return self.entry.inner

    @property
    def is_identity(self) -> bool:
        """Whether every time stays as it is."""
        return self.moved.is_identity

    def results_in(self, time: Time) -> Time | None:
        """Return the time at the end of the way; ``None`` if there is none."""
        moved = self.moved.results_in(self.entry.leave(time))
        return None if moved is None else self.entry.time(moved)
