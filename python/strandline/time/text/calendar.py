"""Microseconds since 1970 as dates and clocks of UTC, for all 64-bit numbers: also years below 1 and beyond 9999.

The calendar is the proleptic Gregorian one of ISO 8601, as in Spark: the year before 1 is 0, and the year before that is -1.
Python's ``datetime`` ends with the years 1 and 9999, so it is not used here.
"""

from __future__ import annotations

__all__ = ["DAY", "days_of", "format_micros", "month_length"]

DAY = 86_400_000_000
"""The microseconds of a day."""
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ERA = 146_097
"""The days of 400 years."""
_TO_MARCH = 719_468
"""The days from 0000-03-01 to 1970-01-01."""


def month_length(year: int, month: int) -> int:
    """Return how many days a month has.

    >>> month_length(2024, 2), month_length(1900, 2), month_length(0, 2)
    (29, 28, 29)
    """
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _LENGTHS[month - 1] + (month == 2 and leap)


def days_of(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01.

    >>> days_of(1970, 1, 2), days_of(0, 3, 1), days_of(-1, 12, 31)
    (1, -719468, -719529)
    """
    year -= month <= 2  # a year from March on, so that a leap day is its last
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * _ERA + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _TO_MARCH


def format_micros(micros: int) -> str:
    """Return a moment as text of ISO 8601. Years of more or fewer than four digits have a sign.

    >>> format_micros(1_500_000), format_micros(253_402_300_800_000_000)
    ('1970-01-01T00:00:01.500000Z', '+10000-01-01T00:00:00Z')
    >>> format_micros(-(1 << 63)), format_micros((1 << 63) - 1)
    ('-290308-12-21T19:59:05.224192Z', '+294247-01-10T04:00:54.775807Z')
    """
    days, rest = divmod(micros, DAY)
    year, month, day = _date_of(days)
    seconds, fraction = divmod(rest, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    years = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    return f"{years}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}" + (f".{fraction:06d}Z" if fraction else "Z")


def _date_of(days: int) -> tuple[int, int, int]:
    """Return year, month and day (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms")."""
    era, of_era = divmod(days + _TO_MARCH, _ERA)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    march = (5 * of_year + 2) // 153
    month = (march + 2) % 12 + 1
    return era * 400 + year + (month <= 2), month, of_year - (153 * march + 2) // 5 + 1
