"""The leading coordinate of times: one number for each time, so that distances between times can be shown and drawn."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.page.model import Distance
from strandline.time.domain import Scalar, Time, TimeDomain

__all__ = ["Lead"]

_FAR = 1 << 62
"""Numbers beyond this stand for "the least" or "the greatest" time, not for a time that anything happened at."""


class Lead:
    """Maps times to the number of their first scalar coordinate: of a product, of a ``lex`` domain, or of nestings of these.

    The map is monotone, so what it says of a frontier's least number is never ahead of the frontier.

    >>> from strandline.time.domain import int64, product, timestamp
    >>> lead = Lead(product(epoch="int64", iter="int64"))
    >>> lead.name, lead((3, 9)), lead((int64.minimum, 0))
    ('epoch', 3, None)
    >>> lead.distance(7), Lead(timestamp).distance(90_000_000).text
    (Distance(value=7, unit='epoch', text='7 of epoch'), '1 min 30 s')
    """

    def __init__(self, domain: TimeDomain) -> None:
        path, leaf = domain.leaves()[0]
        self.name = ".".join(path)
        """The coordinate's name; empty for a bare scalar."""
        self.leaf: Scalar = leaf

    @property
    def is_clock(self) -> bool:
        """Whether the numbers are microseconds since 1970."""
        return self.leaf.name == "timestamp"

    def __call__(self, time: Time) -> int | None:
        """Return the number of a time; ``None`` for the least and for extreme ones, which are no distance away from anything."""
        while isinstance(time, tuple):
            time = time[0]
        return None if abs(time) >= _FAR or (self.leaf.minimum < 0 and time == self.leaf.minimum) else int(time)

    def least(self, times: Iterable[Time]) -> int | None:
        """Return the least number of some times; ``None`` if there is none, or if one of them has none."""
        numbers = [self(time) for time in times]
        known = [number for number in numbers if number is not None]
        return min(known) if known and len(known) == len(numbers) else None

    def format(self, number: int) -> str:
        """Return a number as text, as its domain writes it."""
        return self.leaf.format(number)

    def distance(self, number: int) -> Distance:
        """Return a distance with its unit: seconds for clocks, else units of the coordinate."""
        if self.is_clock:
            seconds = number / 1e6
            return Distance(seconds, "s", lasting(seconds))
        return Distance(number, self.name, f"{number:,}".replace(",", "\u202f") + (f" of {self.name}" if self.name else ""))


def lasting(seconds: float) -> str:
    """Return a duration in words, with its two largest units.

    >>> lasting(0.3), lasting(192), lasting(90_000), lasting(86_400 * 800)
    ('0.3 s', '3 min 12 s', '1 d 1 h', '2 y 70 d')
    """
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s" if seconds > 0 else "0 s"
    left = int(seconds)
    parts: list[str] = []
    for size, unit in ((365 * 86400, "y"), (86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts))
