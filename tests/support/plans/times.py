"""The model's own time domains: their order, random walks in them, and their values in Arrow and Spark.

Written again from the definition, not with ``strandline.time.domain``: a model must not share the mistakes of what it judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from random import Random
from typing import Any

from strandline.time import domain as domains

Time = Any
"""An integer, or a tuple of them; a timestamp counts microseconds."""

SECOND = 1_000_000
DAY = 86_400 * SECOND
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
START = int((datetime(2013, 1, 1, tzinfo=timezone.utc) - EPOCH).total_seconds()) * SECOND
FAR = 1 << 40
"""A coordinate greater than all that occur."""


@dataclass(frozen=True)
class Domain:
    """A time domain of the model: its order, where histories begin, and a step of a random walk."""

    name: str
    text: str
    less_equal: Callable[[Time, Time], bool]
    start: Time
    step: Callable[[Random, Time], Time]

    @property
    def core(self) -> domains.TimeDomain:
        """The same domain as the core has it."""
        return domains.parse_domain(self.text)

    def open(self, frontier: Iterable[Time], time: Time) -> bool:
        """Whether ``time`` may still appear."""
        return any(self.less_equal(f, time) for f in frontier)

    def minimal(self, times: Iterable[Time]) -> tuple[Time, ...]:
        """The least of the times."""
        distinct = sorted(set(times))
        return tuple(t for t in distinct if not any(u != t and self.less_equal(u, t) for u in distinct))

    def said(self, time: Time) -> str:
        """A time to be read by people."""
        if isinstance(time, tuple):
            return f"({', '.join(map(self.said, time))})"
        return str(EPOCH + timedelta(microseconds=time)) if self.text != "int64" and time > FAR else str(time)

    def plain(self, value: Any) -> Time:
        """A time as Spark or Arrow gives it, as the model has it."""
        if isinstance(value, datetime):
            return (value.astimezone(timezone.utc) - EPOCH) // timedelta(microseconds=1)
        if isinstance(value, dict):
            value = value.values()
        return value if value is None or isinstance(value, int) else tuple(self.plain(v) for v in value)


def _both(a: Time, b: Time) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True))


def _seconds(r: Random, t: int) -> int:
    """Some seconds on, and now and then a microsecond beside the full second: where bounds are off by one, it shows."""
    if r.random() < 0.35:
        return t
    full = -(-t // SECOND) + r.choice((0, 1, 1, 2, 3, 5, 8))
    return max(t, full * SECOND + r.choice((0, 0, 0, 0, -1, 1)))


def _few(r: Random, n: int) -> int:
    return n + r.choice((0, 0, 1, 1, 2, 3))


def _lexicographic(r: Random, t: Time) -> Time:
    tick = _few(r, t[0])
    return (tick, r.randrange(4)) if tick > t[0] else (tick, _few(r, t[1]))


TIMESTAMP = Domain("timestamp", "timestamp", lambda a, b: a <= b, START, _seconds)
INT64 = Domain("int64", "int64", lambda a, b: a <= b, 0, _few)
PRODUCT = Domain(
    "product", "product(epoch int64, iter int64)", _both, (0, 0), lambda r, t: (_few(r, t[0]), t[1] + r.choice((0, 0, 1, 2)))
)
LEX = Domain("lex", "lex(tick int64, iter int64)", lambda a, b: a <= b, (0, 0), _lexicographic)  # as Python compares tuples
EVENT = Domain(
    "event", "product(event timestamp, iter int64)", _both, (START, 0), lambda r, t: (_seconds(r, t[0]), t[1] + r.choice((0, 1)))
)
DOMAINS = (TIMESTAMP, INT64, PRODUCT, LEX, EVENT)
