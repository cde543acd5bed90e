"""Times as people write them, on a command line, in a form or in an option: the inverse of ``TimeDomain.format``.

The grammar of moments and integers is that of :mod:`strandline.time.text.grammar`.
"""

from __future__ import annotations

import re
from typing import Any

from strandline.time import errors
from strandline.time.domain import BEGINNING, Scalar, Time, TimeDomain
from strandline.time.text.grammar import Wrong, has_zone, read_integer, read_moment

__all__ = ["asked_time", "parse_time"]

_BLANKS = " \t\n\r\f\v"
"""Other blanks, such as a no-break space, are no part of the grammar."""
_MICROS = re.compile(r"([+-]?[0-9]{1,20})[ \t\n\r\f\v]*[µμu]s")
_AFTER_BEGINNING = re.compile(rf"{BEGINNING} \+ ([0-9]{{1,20}}) µs")
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
        raise errors.time_invalid_length(field, len(text), _MOST)
    return domain.time(_parsed(domain, text.strip(_BLANKS), field), field)


def _parsed(domain: TimeDomain, text: str, field: str) -> Time:
    if isinstance(domain, Scalar):
        return _scalar(domain, text, field)
    if len(text) < 2 or (text[0], text[-1]) not in (("[", "]"), ("(", ")")):
        raise errors.time_invalid_coordinates(field, text, [name for name, _ in domain.coordinates], _example(domain))
    parts = _split(text[1:-1])
    if len(parts) != len(domain.coordinates):
        return parts  # the domain says how many it has
    result = []
    for (name, part_domain), part in zip(domain.coordinates, parts, strict=True):
        named = _NAMED.fullmatch(part.strip(_BLANKS))
        if named is not None and named.group(1) != name:
            raise errors.time_invalid_order(field, text, named.group(1), str(domain), name)
        result.append(_parsed(part_domain, (named.group(2) if named else part).strip(_BLANKS), f"{field}.{name}"))
    return result


def _example(domain: TimeDomain) -> str:
    if isinstance(domain, Scalar):
        return "2026-03-01T12:00Z" if domain.name == "timestamp" else "7"
    return f"[{', '.join(_example(part) for _, part in domain.coordinates)}]"


def _scalar(domain: Scalar, text: str, field: str) -> Time:
    if text == BEGINNING:
        return domain.minimum
    if domain.name != "timestamp":
        number = read_integer(text, domain.minimum, domain.maximum)
        if number is Wrong.UNPARSABLE:
            raise errors.time_invalid_integer(field, text, str(domain))
        if number is Wrong.BEYOND:
            raise errors.time_invalid_outside(field, text, str(domain), domain.minimum, domain.maximum)
        return number
    if (after := _AFTER_BEGINNING.fullmatch(text)) is not None:
        return domain.minimum + int(after.group(1))
    micros = _MICROS.fullmatch(text)
    if micros is not None:
        return int(micros.group(1))
    moment = read_moment(text)
    if isinstance(moment, Wrong):
        raise errors.time_invalid_moment(field, text, moment)
    if not has_zone(text):
        raise errors.time_invalid_zone(field, text)
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
