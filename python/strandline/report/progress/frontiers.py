"""The frontiers of a progress report: tentative while a bundle runs, and what the commit makes of them."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.time.antichain import Antichain
from strandline.time.domain import Lex, Product, Scalar, TimeDomain

__all__ = ["clock_lag", "committed_frontier", "frontier_lag", "tentative_frontier"]

_MICROS = 1_000_000


def tentative_frontier(after: Antichain, in_flight: Iterable[Antichain]) -> Antichain:
    """Return the tentative frontier of an output: the least of what each element in flight may still give, and what follows.

    It is for people who look at progress. Nothing closes on it: only the frontier of a commit closes times. Source: seed 3,
    "Buffering and Parallel Processing".

    Args:
        after: The output's frontier when nothing is in flight any more.
        in_flight: For each element in flight, the frontier of what it may still give.

    >>> from strandline.time.domain import int64
    >>> tentative_frontier(Antichain(int64, [9]), [Antichain(int64, [4]), Antichain(int64, [6])])
    Antichain(int64, [4])
    """
    frontier = after
    for each in in_flight:
        frontier = frontier.meet(each)
    return frontier


def committed_frontier(tentative: Antichain, timers: Iterable[Antichain] = ()) -> Antichain:
    """Return the frontier with which a bundle commits: the tentative one, lowered by the times that timers hold.

    Source: seed 3, "Watermarks".

    >>> from strandline.time.domain import int64
    >>> committed_frontier(Antichain(int64, [9]), [Antichain(int64, [7])])
    Antichain(int64, [7])
    """
    return tentative_frontier(tentative, timers)


def frontier_lag(frontier: Antichain, now: float, moved: float) -> float:
    """Return how far a frontier is behind, in seconds: the one figure to alert on.

    The empty frontier closes everything, so its lag is 0. If the first coordinate of the times is a ``timestamp``, the lag is the
    time from the least of them to now, and at least 0. Other times have no relation to a clock. Then the lag is the time since
    the frontier last moved.

    Args:
        frontier: The frontier.
        now: The present, in seconds since 1970.
        moved: When the frontier last moved, in seconds since 1970.

    >>> from strandline.time.domain import int64, timestamp
    >>> frontier_lag(Antichain(timestamp, [40_000_000]), now=100.0, moved=99.0)
    60.0
    >>> frontier_lag(Antichain(int64, [7]), now=100.0, moved=99.0)
    1.0
    """
    lag = clock_lag(frontier, now)
    return max(0.0, now - moved) if lag is None else lag


def clock_lag(frontier: Antichain, now: float) -> float | None:
    """Return how many seconds a frontier is behind the clock; 0 if it is empty, ``None`` if its times have no relation to one.

    >>> from strandline.time.domain import int64, timestamp
    >>> clock_lag(Antichain(timestamp, [40_000_000]), now=100.0), clock_lag(Antichain(int64, [7]), now=100.0)
    (60.0, None)
    """
    if not len(frontier):
        return 0.0
    domain: TimeDomain = frontier.domain
    times = list(frontier)
    while isinstance(domain, Product | Lex):
        times = [time[0] for time in times]
        domain = domain.coordinates[0][1]
    least: int = min(times)
    if isinstance(domain, Scalar) and str(domain) == "timestamp" and least > domain.minimum:
        return max(0.0, now - least / _MICROS)
    return None
