"""Times as people write them, on a command line or in a form: the inverse of ``TimeDomain.format``, and a little more."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, NoReturn

from strandline.errors import TimeError
from strandline.time.domain import Scalar, Time, TimeDomain

__all__ = ["asked_time", "parse_time"]

_NUMBER = re.compile(r"[+-]?\d{1,20}")
_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)", re.DOTALL)
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
        text: An integer; for a ``timestamp`` also a date and a clock with a zone, as in ISO 8601; for several coordinates a list
            of these in brackets or parentheses, each with its name or all without.
        field: The name of the value in error messages.

    Raises:
        TimeError: ``STRANDLINE_TIME_INVALID``.

    >>> from strandline.time.domain import int64, product, timestamp
    >>> parse_time(int64, "7"), parse_time(timestamp, "2026-03-01T12:00Z") == parse_time(timestamp, "2026-03-01 13:00+01:00")
    (7, True)
    >>> domain = product(at="timestamp", iter="int64")
    >>> parse_time(domain, "[1970-01-01T00:00:01Z, 2]"), parse_time(domain, "(at=3, iter=2)")
    ((1000000, 2), (3, 2))
    >>> domain.time(parse_time(domain, domain.format((5, 6))))
    (5, 6)
    >>> parse_time(timestamp, "2026-03-01T12:00")
    Traceback (most recent call last):
    strandline.errors.TimeError: [STRANDLINE_TIME_INVALID] time '2026-03-01T12:00' has no zone. Write 2026-03-01T12:00Z ...
    """
    if len(text) > _MOST:
        _invalid(field, f"has {len(text)} characters, but at most {_MOST} are allowed", "Write a time.")
    return domain.time(_parsed(domain, text.strip(), field), field)


def _parsed(domain: TimeDomain, text: str, field: str) -> Time:
    if isinstance(domain, Scalar):
        return _scalar(domain, text, field)
    if len(text) < 2 or (text[0], text[-1]) not in (("[", "]"), ("(", ")")):
        names = ", ".join(name for name, _ in domain.coordinates)
        _invalid(field, f"{text!r} is not a list of the coordinates {names}", "Write it like [7, 2].")
    parts = _split(text[1:-1])
    if len(parts) != len(domain.coordinates):
        return [_scalar_text(part) for part in parts]  # the domain says how many it has
    result = []
    for (name, part_domain), part in zip(domain.coordinates, parts, strict=True):
        named = _NAMED.fullmatch(part.strip())
        if named is not None and named.group(1) != name:
            _invalid(field, f"{text!r} has {named.group(1)!r} where {domain} has {name!r}", "Write the coordinates in order.")
        result.append(_parsed(part_domain, (named.group(2) if named else part).strip(), f"{field}.{name}"))
    return result


def _scalar_text(part: str) -> object:
    return int(part) if _NUMBER.fullmatch(part.strip()) else part


def _scalar(domain: Scalar, text: str, field: str) -> Time:
    number = text.removesuffix("µs").strip()
    if _NUMBER.fullmatch(number):
        return int(number)
    if domain.name != "timestamp":
        _invalid(field, f"{text!r} is not an integer, but times are of {domain}", "Write it like 7.")
    try:
        moment = datetime.fromisoformat(re.sub(r"[zZ]\Z", "+00:00", text))
    except ValueError:
        _invalid(field, f"{text!r} is not a moment", "Write it like 2026-03-01T12:00Z, or as microseconds since 1970.")
    if moment.tzinfo is None:
        _invalid(field, f"{text!r} has no zone", f"Write {text}Z for UTC, or its distance from UTC, such as {text}+01:00.")
    return moment


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
