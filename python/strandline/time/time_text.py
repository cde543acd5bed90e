"""Times as people write them, on a command line, in a form or in an option: the inverse of ``TimeDomain.format``.

The grammar of moments and integers is that of :mod:`strandline.time.text.grammar`.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from strandline.errors import TimeError
from strandline.time.domain import BEGINNING, Scalar, Time, TimeDomain
from strandline.time.text.calendar import format_micros
from strandline.time.text.grammar import Wrong, has_zone, read_integer, read_moment

__all__ = ["asked_time", "parse_time", "wrong_moment"]

_BLANKS = " \t\n\r\f\v"
"""Other blanks, such as a no-break space, are no part of the grammar."""
_MICROS = re.compile(r"([+-]?[0-9]{1,20})[ \t\n\r\f\v]*[µμu]s")
_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)", re.DOTALL | re.ASCII)
_MOST = 4096


def asked_time(domain: TimeDomain, value: Any) -> Time:
    """Return the time that a person asks about: a text, as :func:`parse_time` reads it, or what the domain takes.

    >>> from strandline.time.domain import timestamp
    >>> asked_time(timestamp, "1970-01-01T00:00:01Z"), asked_time(timestamp, 7)
    (1000000, 7)
    """
    return parse_time(domain, value) if isinstance(value, str) else domain.time(value)


def parse_time(domain: TimeDomain, text: str, field: str = "time") -> Time:
    """Return the time of ``domain`` that a person has written.

    Args:
        domain: The time domain.
        text: An integer; for a ``timestamp`` a moment with a zone (:mod:`strandline.time.text.grammar`), or microseconds since
            1970 with their unit, such as ``5 µs``; ``the beginning``, the least time; for several coordinates a list of these in
            brackets or parentheses, each with its name or all without.
        field: The name of the value in error messages.

    Raises:
        TimeError: ``STRANDLINE_TIME_INVALID``.

    >>> from strandline.time.domain import int64, product, timestamp
    >>> parse_time(int64, "7"), parse_time(timestamp, "2026-03-01T12:00Z") == parse_time(timestamp, "2026-03-01 13:00+01:00")
    (7, True)
    >>> domain = product(at="timestamp", iter="int64")
    >>> parse_time(domain, "[1970-01-01T00:00:01Z, 2]"), parse_time(domain, "(at=3 µs, iter=2)")
    ((1000000, 2), (3, 2))
    >>> domain.time(parse_time(domain, domain.format((5, 6))))
    (5, 6)
    >>> parse_time(timestamp, "2026-03-01T12:00")
    Traceback (most recent call last):
    strandline.errors.TimeError: [STRANDLINE_TIME_INVALID] time '2026-03-01T12:00' has no zone. Write 2026-03-01T12:00Z ...
    """
    if len(text) > _MOST:
        _invalid(field, f"has {len(text)} characters, but at most {_MOST} are allowed", "Write a time.")
    return domain.time(_parsed(domain, text.strip(_BLANKS), field), field)


def _parsed(domain: TimeDomain, text: str, field: str) -> Time:
    if isinstance(domain, Scalar):
        return _scalar(domain, text, field)
    if len(text) < 2 or (text[0], text[-1]) not in (("[", "]"), ("(", ")")):
        names = ", ".join(name for name, _ in domain.coordinates)
        _invalid(field, f"{text!r} is not a list of the coordinates {names}", "Write it like [7, 2].")
    parts = _split(text[1:-1])
    if len(parts) != len(domain.coordinates):
        return parts  # the domain says how many it has
    result = []
    for (name, part_domain), part in zip(domain.coordinates, parts, strict=True):
        named = _NAMED.fullmatch(part.strip(_BLANKS))
        if named is not None and named.group(1) != name:
            _invalid(field, f"{text!r} has {named.group(1)!r} where {domain} has {name!r}", "Write the coordinates in order.")
        result.append(_parsed(part_domain, (named.group(2) if named else part).strip(_BLANKS), f"{field}.{name}"))
    return result


def _scalar(domain: Scalar, text: str, field: str) -> Time:
    if text == BEGINNING:
        return domain.minimum
    if domain.name != "timestamp":
        number = read_integer(text, domain.minimum, domain.maximum)
        if number is Wrong.UNPARSABLE:
            _invalid(field, f"{text!r:.200} is not an integer, but times are of {domain}", "Write it like 7.")
        if number is Wrong.BEYOND:
            low, high = domain.minimum, domain.maximum
            _invalid(field, f"is {text:.200}, outside {domain} ({low} to {high})", f"Use a time from {low} to {high}.")
        return number
    micros = _MICROS.fullmatch(text)
    if micros is not None:
        return int(micros.group(1))
    moment = read_moment(text)
    if isinstance(moment, Wrong):
        what, remedy = wrong_moment(text, moment)
        _invalid(field, what, f"{remedy} Microseconds since 1970 need their unit: '5 µs'." if moment is Wrong.EPOCH else remedy)
    if not has_zone(text):
        utc = f"{text}Z" if ":" in text else f"{text}T00:00Z"
        _invalid(field, f"{text!r} has no zone", f"Write {utc} for UTC, or its distance from UTC, such as {utc[:-1]}+01:00.")
    return moment


def wrong_moment(text: str, why: Wrong) -> tuple[str, str]:
    """Return what is wrong with a text that is no moment, and the remedy.

    >>> wrong_moment("1795010112345", Wrong.EPOCH)[1]
    'Write the moment, such as 2026-11-18T13:55:12.345Z. SQL converts: timestamp_millis(…) or timestamp_seconds(…).'
    """
    if why is Wrong.BEYOND:
        return f"{text!r:.200} is outside the range of timestamps", "Use a time from -290308-12-22 to +294247-01-09."
    if why is Wrong.UNPARSABLE:
        return f"{text!r:.200} is not a moment", "Write it like 2026-03-01T12:00Z."
    return (
        f"{text!r:.200} is a number, which does not say its unit or what it counts from",
        f"Write the moment, such as {_meant(text)}. SQL converts: timestamp_millis(…) or timestamp_seconds(…).",
    )


def _meant(text: str) -> str:
    """Return the moment that a number of milliseconds or seconds since 1970 most likely means."""
    digits = text.strip(f"{_BLANKS}+")
    if not re.fullmatch("[0-9]{9,16}", digits):
        return "2026-03-01T12:00Z"
    micros = int(digits) * (1_000_000 if len(digits) < 12 else 1_000 if len(digits) < 15 else 1)
    return re.sub(r"0+Z\Z|\.0+Z\Z", "Z", format_micros(micros)) if micros % 1_000_000 else format_micros(micros)


def _split(text: str) -> list[str]:
    """Return the parts between the commas that are in no inner brackets."""
    parts, depth, part = [], 0, ""
    for character in text:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += character
    return [*parts, part]


def _invalid(field: str, what: str, remedy: str) -> NoReturn:
    raise TimeError("STRANDLINE_TIME_INVALID", f"{field} {what}.", remedy)
