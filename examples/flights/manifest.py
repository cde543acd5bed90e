"""The manifest of an airport: which hours may still have a departure, and the capabilities that say so.

The time of a flight is a *box* of hours and airports, and a box ≤ another when it contains it: a capability for a box allows its
holder to write about any hour in it, and shrinking a box moves it forward. As a product order, a box is its least hour and
airport, and its greatest ones negated::

    product(hour timestamp, hour_to int64, airport int8, airport_to int8)

A row's time is the box of one hour at one airport, so the times of any two (hour, airport) are incomparable: a flight that is
21 hours late keeps its own hour open and no other. In a total order the latest flight would hold back all hours.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from flights.data import AIRPORTS
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, product

__all__ = ["DOMAIN", "Manifest", "box", "describe", "point", "schedule", "time_array"]

DOMAIN = product(hour="timestamp", hour_to="int64", airport="int8", airport_to="int8")
_MICROSECONDS = 60_000_000


def box(first: int, last: int, airport: str) -> Time:
    """The hours from ``first`` to ``last`` (minutes since 1970) at one airport.

    >>> DOMAIN.less_equal(box(0, 600, "JFK"), point(120, "JFK")), DOMAIN.less_equal(box(0, 600, "JFK"), point(120, "EWR"))
    (True, False)
    >>> DOMAIN.less_equal(point(60, "JFK"), point(120, "JFK"))
    False
    """
    at = AIRPORTS.index(airport)
    return (first * _MICROSECONDS, -last * _MICROSECONDS, at, -at)


def point(hour: int, airport: str) -> Time:
    """One hour at one airport: the time of a row."""
    return box(hour, hour, airport)


def time_array(hours: npt.NDArray[np.int64], airport: str) -> pa.Array:
    """The times of rows of one airport, as the channel's time column."""
    start = pa.array(hours * _MICROSECONDS, pa.int64())
    at = np.full(len(hours), AIRPORTS.index(airport), dtype=np.int8)
    columns = [start.cast(pa.timestamp("us", tz="UTC")), pa.array(-hours * _MICROSECONDS), pa.array(at), pa.array(-at)]
    return pa.StructArray.from_arrays(columns, names=[name for name, _ in DOMAIN.coordinates])


def describe(time: Time) -> tuple[str, int, int]:
    """Airport, first and last hour (minutes since 1970) of a box.

    >>> describe(box(60, 600, "LGA"))
    ('LGA', 60, 600)
    """
    return AIRPORTS[time[2]], time[0] // _MICROSECONDS, -time[1] // _MICROSECONDS


def schedule(flights: pd.DataFrame, airport: str) -> dict[int, int]:
    """How many flights an airport has scheduled in each hour."""
    return {
        int(hour): int(n) for hour, n in flights.loc[flights["airport"] == airport, "hour"].value_counts().sort_index().items()
    }


class Manifest:
    """Counts down an airport's schedule. The remaining flights are those that the airport may still write.

    >>> m = Manifest("JFK", {60: 1, 120: 2, 300: 1})
    >>> m.settle([120], now=130)
    >>> [describe(t) for t in m.holds()]
    [('JFK', 60, 60), ('JFK', 120, 120), ('JFK', 300, 300)]
    >>> m.settle([60, 120, 300], now=280)
    >>> len(m.holds())
    0
    """

    def __init__(self, airport: str, scheduled: Mapping[int, int]) -> None:
        self.airport = airport
        self._left = dict(scheduled)
        self._future = sorted(scheduled)
        heapq.heapify(self._future)
        self._last = max(scheduled, default=0)
        self._open: set[int] = set()

    @property
    def open(self) -> set[int]:
        """The hours that have begun, or that already have an event, and that are not complete."""
        return set(self._open)

    def settle(self, hours: Iterable[int], now: int) -> None:
        """Count a flight of each of ``hours`` that left or was cancelled. It is minute ``now``.

        Raises ``ValueError`` for more flights than were scheduled.
        """
        begun = now
        for hour in hours:
            if self._left.get(hour, 0) < 1:
                raise ValueError(f"{self.airport} has no flight left in the hour that begins at minute {hour}")
            self._left[hour] -= 1
            begun = max(begun, hour)
        while self._future and self._future[0] <= begun:
            self._open.add(heapq.heappop(self._future))
        self._open -= {hour for hour in self._open if not self._left[hour]}

    def holds(self) -> Antichain:
        """One capability for each open hour, and one for all that are still to begin."""
        held = [point(hour, self.airport) for hour in self._open]
        if self._future:
            held.append(box(self._future[0], self._last, self.airport))
        return Antichain(DOMAIN, held)
