"""How many rows wait on a looping link: they have come round, or soon will, and the loop has not closed their times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain

__all__ = ["Waiting"]

_MOST = 1024


@dataclass(frozen=True)
class Waiting:
    """The rows of a link that a loop has not closed. The times have a total order.

    Attributes:
        times: Times in their order, each with its rows. Where there are very many, rows count at the time of a later neighbour.
        unread: How many rows of the link it has not taken in.

    >>> from strandline.time.domain import int64
    >>> waiting = Waiting().after([(5, 2), (7, 1)], Antichain(int64, [6]))
    >>> waiting.rows, waiting.after([], Antichain(int64, [])).rows
    (1, 0)
    """

    times: tuple[tuple[Time, int], ...] = ()
    unread: int = 0

    @property
    def rows(self) -> int:
        """How many rows wait."""
        return self.unread + sum(rows for _, rows in self.times)

    def after(self, came: Iterable[tuple[Time, int]], frontier: Antichain) -> Waiting:
        """Return what waits after a batch.

        Args:
            came: The times of the rows that the batch has taken in from the link, each with their number.
            frontier: The frontier of the loop after the batch.
        """
        found: dict[Time, int] = {}
        for time, rows in (*self.times, *came):
            if frontier.less_equal(time):
                found[time] = found.get(time, 0) + rows
        times = sorted(found.items())
        if len(times) > _MOST:
            size = -(-len(times) // _MOST)
            groups = [times[at : at + size] for at in range(0, len(times), size)]
            times = [(group[-1][0], sum(rows for _, rows in group)) for group in groups]
        return Waiting(tuple(times))

    def to_json(self, domain: TimeDomain) -> list[Any]:
        """Return each time with its rows."""
        return [[domain.to_json(time), rows] for time, rows in self.times]

    @classmethod
    def from_json(cls, domain: TimeDomain, value: Any) -> Waiting:
        """Read the output of :meth:`to_json`.

        Raises :class:`ValueError` or :class:`~strandline.errors.TimeError` if it is damaged.
        """
        if not isinstance(value, list) or any(not isinstance(each, list) or len(each) != 2 for each in value):
            raise ValueError("waiting is not a list of times and rows")
        if any(type(rows) is not int or rows < 1 for _, rows in value):
            raise ValueError("a time in waiting has no rows")
        return cls(tuple(sorted((domain.from_json(time, "waiting"), rows) for time, rows in value)))
