"""Times as plain values, an integer or a tuple of times, and antichains of them as frozen sets: brute force, no cleverness."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["LEAST", "Holds", "Time", "before", "beyond", "both", "first", "least", "leq", "plain"]

Time = Any
Holds = frozenset[Any]
LEAST = -(1 << 63)


def leq(a: Time, b: Time) -> bool:
    """The product order."""
    if isinstance(a, tuple):
        return all(leq(x, y) for x, y in zip(a, b, strict=True))
    return bool(a <= b)


def join(a: Time, b: Time) -> Time:
    """The least time that is in advance of both."""
    if isinstance(a, tuple):
        return tuple(join(x, y) for x, y in zip(a, b, strict=True))
    return max(a, b)


def least(times: Iterable[Time]) -> Holds:
    """The least of them: an antichain."""
    found = set(times)
    return frozenset(t for t in found if not any(leq(u, t) and u != t for u in found))


def both(a: Iterable[Time], b: Iterable[Time]) -> Holds:
    """What is in advance of one of ``a`` and of one of ``b``."""
    others = list(b)
    return least(join(x, y) for x in a for y in others)


def beyond(holds: Iterable[Time], time: Time) -> bool:
    """Whether a time is in advance of one that is held."""
    return any(leq(held, time) for held in holds)


def before(a: Iterable[Time], b: Iterable[Time]) -> bool:
    """Whether every time of ``b`` is in advance of one of ``a``: the frontier may go from ``a`` to ``b``."""
    held = list(a)
    return all(beyond(held, time) for time in b)


def first(time: Time) -> int:
    """The first coordinate."""
    while isinstance(time, tuple):
        time = time[0]
    return int(time)


def plain(value: Any) -> Time:
    """A time from JSON or from a row."""
    if isinstance(value, dict):
        return tuple(plain(part) for part in value.values())
    return tuple(plain(part) for part in value) if isinstance(value, (list, tuple)) else value
