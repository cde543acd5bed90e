"""Durations: an amount of time for timestamps, or a count for integer times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from strandline.time import errors
from strandline.time.domain import Scalar

__all__ = ["Duration"]

_UNITS = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_PART = re.compile(r"\s*([+-]?[0-9]{1,40})\s*([A-Za-z]+)")
_MOST = 1 << 62


@dataclass(frozen=True)
class Duration:
    """A duration in microseconds, for timestamps, or a plain count, for integer times.

    >>> str(Duration.of("90 minutes")), str(Duration.of("1 hour 30 minutes")), str(Duration.of(5))
    ('90 minutes', '90 minutes', '5')
    >>> Duration.of("-5 minutes")
    Traceback (most recent call last):
    strandline.errors.DurationError: [STRANDLINE_DELAY_INVALID] ...
    """

    amount: int
    timed: bool

    @classmethod
    def of(cls, value: str | int | timedelta | Duration, what: str = "The delay") -> Duration:
        """Make a duration from ``"60 minutes"``, ``"1 hour 30 minutes"``, a ``timedelta``, or a count such as ``5`` or ``"5"``.

        Raises :class:`DurationError` for a negative duration and for any other value.
        """
        if isinstance(value, Duration):
            return value
        amount, timed = _read(value, what)
        if not 0 <= amount < _MOST:
            problem = "negative" if amount < 0 else "too large"
            raise errors.delay_invalid_range(what, value, problem)
        return cls(amount, timed)

    def within(self, domain: Scalar, what: str = "The delay") -> int:
        """Return the amount in units of ``domain``. Raises :class:`DurationError` if it is of the other kind (0 fits both)."""
        if self.amount and self.timed != (domain.name == "timestamp"):
            have, want = ("a duration", "a count") if self.timed else ("a count without a unit", "a duration like '60 minutes'")
            raise errors.delay_invalid_kind(what, self, have, domain, want)
        return self.amount

    def __str__(self) -> str:
        if not self.timed:
            return str(self.amount)
        unit, size = next((u, s) for u, s in _UNITS.items() if self.amount % s == 0 and (self.amount or u == "second"))
        count = self.amount // size
        return f"{count} {unit}{'' if count == 1 else 's'}"


def _read(value: str | int | timedelta, what: str) -> tuple[int, bool]:
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1), True
    if isinstance(value, int) and not isinstance(value, bool):
        return value, False
    if isinstance(value, str):
        if re.fullmatch(r"\s*[+-]?[0-9]{1,40}\s*", value):
            return int(value), False
        total, at, text = 0, 0, value.removeprefix("interval ")
        while match := _PART.match(text, at):
            unit = match.group(2).lower()
            size = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
            if size is None:
                break
            total, at = total + int(match.group(1)) * size, match.end()
        if at and not text[at:].strip():
            return total, True
    raise errors.delay_invalid(what, value, _UNITS)
