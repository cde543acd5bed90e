"""The one grammar of times in text: for options, for the command line, and for columns of text.

::

    text     = {blank} (moment | integer) {blank}
    moment   = date [("T" | "t" | " ") clock [zone]]
    date     = year "-" month "-" day                        a day that the calendar has
    year     = 4 digits | ("+" | "-") 4 to 6 digits          not -0000; 0000 is the year before 0001
    clock    = hour ":" minute [":" second ["." digit {digit}]]   00:00:00 to 23:59:59; digits after the sixth are cut off
    zone     = "Z" | "z" | ("+" | "-") hour [[":"] minute]   up to 18:00 from UTC
    integer  = ["+" | "-"] digit {digit}
    digit    = "0" to "9";   blank = space, tab, \\n, \\r, \\f, \\v

A moment is a time of ``timestamp``, an integer is one of any other scalar domain. A moment without a zone is in UTC. Everything
else is no time: numbers since 1970, hexadecimal, ``24:00``, the leap second ``:60``, dates without hyphens, named zones.

The functions here read one text. They are the specification of :mod:`strandline.ingest.columns.text_columns`, which reads
columns.
"""

from __future__ import annotations

import re
from enum import IntEnum

from strandline.time.text.calendar import DAY, days_of, month_length

__all__ = ["INTEGER", "MOMENT", "NUMBER", "Wrong", "has_zone", "read_integer", "read_moment"]

_BLANK = r"[ \t\n\r\f\v]*"
MOMENT = (
    rf"^{_BLANK}(?P<year>[0-9]{{4}}|[+-][0-9]{{4,6}})-(?P<month>[0-9]{{2}})-(?P<day>[0-9]{{2}})"
    r"(?:[Tt ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]+))?)?"
    rf"(?P<zone>[Zz]|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)?)?{_BLANK}$"
)
"""The form of a moment. Python and Arrow read this expression alike. Not every match is a moment: 2026-02-30 is none."""
INTEGER = rf"^{_BLANK}[+-]?[0-9]+{_BLANK}$"
"""The form of an integer."""
NUMBER = rf"^{_BLANK}[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?{_BLANK}$"
"""The form of what may be meant as a number of seconds or milliseconds since 1970, as in 1795010112345 and 1.795e12."""

_MOMENT, _INTEGER, _NUMBER = (re.compile(form.removeprefix("^").removesuffix("$")) for form in (MOMENT, INTEGER, NUMBER))
_FARTHEST = 18 * 60
"""Minutes from UTC, as in Java and Spark. The farthest zone in use is 14 hours from UTC."""


class Wrong(IntEnum):
    """Why a text is no time."""

    UNPARSABLE = 2
    """It is not in the grammar."""
    BEYOND = 3
    """It is a moment or an integer, but not one of 64 bits (or of the domain)."""
    EPOCH = 8
    """A moment is wanted, and it is a number."""


def read_moment(text: str) -> int | Wrong:
    """Return the microseconds since 1970 of a text, or why it is no moment.

    >>> read_moment("1970-01-01T01:00:01.5+01:00"), read_moment(" 1970-01-02 "), read_moment("1795010112345")
    (1500000, 86400000000, <Wrong.EPOCH: 8>)
    >>> read_moment("2026-02-30"), read_moment("2026-01-01T24:00Z"), read_moment("+999999-01-01")
    (<Wrong.UNPARSABLE: 2>, <Wrong.UNPARSABLE: 2>, <Wrong.BEYOND: 3>)
    """
    found = _MOMENT.fullmatch(text)
    if found is None:
        return Wrong.EPOCH if _NUMBER.fullmatch(text) else Wrong.UNPARSABLE
    year, month, day = int(found["year"]), int(found["month"]), int(found["day"])
    hour, minute, second = (int(found[part] or 0) for part in ("hour", "minute", "second"))
    offset = _offset(found["zone"] or "Z")
    if (year == 0 and found["year"][0] == "-") or not 1 <= month <= 12 or not 1 <= day <= month_length(year, month):
        return Wrong.UNPARSABLE
    if hour > 23 or minute > 59 or second > 59 or offset is None:
        return Wrong.UNPARSABLE
    seconds = (hour * 60 + minute - offset) * 60 + second
    micros = days_of(year, month, day) * DAY + seconds * 1_000_000 + int(f"{found['fraction'] or 0:0<6}"[:6])
    return micros if -(1 << 63) <= micros < 1 << 63 else Wrong.BEYOND


def _offset(zone: str) -> int | None:
    """Return the minutes from UTC, or ``None`` for a zone that there is not."""
    if zone in "Zz":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[3:].removeprefix(":") or 0)
    distance = hours * 60 + minutes
    if minutes > 59 or distance > _FARTHEST:
        return None
    return -distance if zone[0] == "-" else distance


def has_zone(text: str) -> bool:
    """Return whether a text of a moment states its zone.

    >>> has_zone("2026-03-01T12:00Z"), has_zone("2026-03-01T12:00"), has_zone("2026-03-01")
    (True, False, False)
    """
    found = _MOMENT.fullmatch(text)
    return found is not None and found["zone"] is not None


def read_integer(text: str, low: int, high: int) -> int | Wrong:
    """Return the integer of a text from ``low`` to ``high``, or why it is none.

    >>> read_integer(" +007 ", 0, 9), read_integer("10", 0, 9), read_integer("0x1F", 0, 99), read_integer("1_0", 0, 99)
    (7, <Wrong.BEYOND: 3>, <Wrong.UNPARSABLE: 2>, <Wrong.UNPARSABLE: 2>)
    """
    if not _INTEGER.fullmatch(text):
        return Wrong.UNPARSABLE
    digits = text.strip(" \t\n\r\f\v")
    magnitude = digits.lstrip("+-").lstrip("0") or "0"
    if len(magnitude) > 20:  # no domain has more digits; Python refuses to read thousands of them
        return Wrong.BEYOND
    number = -int(magnitude) if digits[0] == "-" else int(magnitude)
    return number if low <= number <= high else Wrong.BEYOND
