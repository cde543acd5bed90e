"""Times that a batch of a loop has taken in, one by one or as ranges, and what they may still cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from strandline.loop.way import Way
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain, leaf_values

__all__ = ["Taken", "as_ranges", "ranges_from_json", "ranges_to_json"]


@dataclass(frozen=True, order=True)
class Taken:
    """Times of rows that a batch has taken in: one time, or all times between two.

    Attributes:
        low: A time that is ≤ the time of every such row.
        high: A time that is ≥ the time of every such row.
    """

    low: Time
    high: Time

    @property
    def is_range(self) -> bool:
        """Whether the times are known only as a range."""
        return bool(self.low != self.high)

    def is_open(self, way: Way, frontier: Antichain) -> bool:
        """Whether an operator may still keep something of these times: on the way around, the frontier has not closed them."""
        greatest = way.results_in(self.high)
        if greatest is None:  # nothing at the greatest time comes round, but the times before it may
            return way.results_in(self.low) is not None and frontier.less_equal(self.high)
        images = (way.results_in(time) for time in frontier)
        return any(image is not None and way.domain.less_equal(image, greatest) for image in images)

    def results(self, way: Way, frontier: Antichain) -> list[Time]:
        """Return lower bounds of what the times may still cause on a way around, if they are open.

        A time of a range that is still open is not before the range's least time, and on the way around it is not before a
        time of the frontier. So what it causes is not before their join. No greater bounds follow from the range.

        >>> from strandline.time.domain import product
        >>> from strandline.time.path.entry import Entry
        >>> domain = product(epoch="int64", iter="int64")
        >>> way = Way.of(Entry(domain, domain), {"iter": 1})
        >>> Taken((0, 0), (9, 0)).results(way, Antichain(domain, [(0, 0)]))
        [(0, 1)]
        >>> Taken((0, 0), (9, 0)).results(way, Antichain(domain, [(0, 1), (5, 0)]))
        [(5, 1)]
        """
        low = way.results_in(self.low)
        if low is None:
            return []
        high = way.results_in(self.high)
        if not self.is_range or high is None:
            return [low]
        images = (way.results_in(time) for time in frontier)
        least_open = (image for image in images if image is not None and way.domain.less_equal(image, high))
        return list(Antichain(way.domain, [way.domain.join(low, image) for image in least_open]))


def as_ranges(domain: TimeDomain, times: Iterable[Taken], most: int, may_be: Callable[[Taken], bool]) -> list[Taken]:
    """Return about ``most`` times or ranges that have all of these in them.

    Neighbours are times that differ in their first coordinates, such as in the epoch, and are in the same round.

    Args:
        domain: The domain of the times.
        times: The times.
        most: How many are wanted.
        may_be: Whether a range may stand for its times. Where it may not, more are returned.

    >>> from strandline.time.domain import product
    >>> domain = product(epoch="int64", iter="int64")
    >>> times = [Taken((epoch, 0), (epoch, 0)) for epoch in range(10)]
    >>> as_ranges(domain, times, 2, lambda one: True)
    [Taken(low=(0, 0), high=(4, 0)), Taken(low=(5, 0), high=(9, 0))]
    """
    ordered = sorted(times, key=lambda one: tuple(leaf_values(one.low))[::-1])
    size = -(-len(ordered) // most)
    found: list[Taken] = []
    joined, refused = size, 0
    for one in ordered:
        if joined < size and refused < most:  # where ranges are never possible, do not try for ever
            both = Taken(domain.meet(found[-1].low, one.low), domain.join(found[-1].high, one.high))
            if may_be(both):
                found[-1] = both
                joined += 1
                continue
            refused += 1
        found.append(one)
        joined = 1
    return found


def ranges_to_json(domain: TimeDomain, times: Iterable[Taken]) -> list[Any]:
    """Return each time as ``[time]``, and each range as ``[low, high]``."""
    text = domain.to_json
    return [[text(one.low), text(one.high)] if one.is_range else [text(one.low)] for one in times]


def ranges_from_json(domain: TimeDomain, value: Any, field: str) -> tuple[Taken, ...]:
    """Read the output of :func:`ranges_to_json`, sorted.

    Raises :class:`ValueError` or :class:`~strandline.errors.TimeError` if it is damaged.
    """
    if not isinstance(value, list) or any(not isinstance(each, list) or len(each) not in (1, 2) for each in value):
        raise ValueError(f"{field} is not a list of times and ranges")
    found = []
    for each in value:
        low, high = domain.from_json(each[0], field), domain.from_json(each[-1], field)
        if not domain.less_equal(low, high):
            raise ValueError(f"a range in {field} ends before it begins")
        found.append(Taken(low, high))
    return tuple(sorted(found))
