"""The errors of times as people write them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from strandline.errors import TimeError
from strandline.time.text.calendar import format_micros
from strandline.time.text.grammar import Wrong


def _time_invalid(field: str, what: str, remedy: str) -> TimeError:
    return TimeError("STRANDLINE_TIME_INVALID", f"{field} {what}.", remedy)


def time_invalid_coordinates(field: str, text: str, names: Iterable[str]) -> TimeError:
    return _time_invalid(field, f"{text!r} is not a list of the coordinates {', '.join(names)}", "Write it like [7, 2].")


def time_invalid_integer(field: str, text: str, domain: str) -> TimeError:
    return _time_invalid(field, f"{text!r:.200} is not an integer, but times are of {domain}", "Write it like 7.")


def time_invalid_length(field: str, length: int, most: int) -> TimeError:
    return _time_invalid(field, f"has {length} characters, but at most {most} are allowed", "Write a time.")


def time_invalid_moment(field: str, text: str, why: Wrong) -> TimeError:
    what, remedy = wrong_moment(text, why)
    return _time_invalid(
        field, what, f"{remedy} Microseconds since 1970 need their unit: '5 µs'." if why is Wrong.EPOCH else remedy
    )


def time_invalid_order(field: str, text: str, name: str, domain: str, expected: str) -> TimeError:
    return _time_invalid(field, f"{text!r} has {name!r} where {domain} has {expected!r}", "Write the coordinates in order.")


def time_invalid_outside(field: str, text: str, domain: str, low: int, high: int) -> TimeError:
    return _time_invalid(field, f"is {text:.200}, outside {domain} ({low} to {high})", f"Use a time from {low} to {high}.")


def time_invalid_zone(field: str, text: str) -> TimeError:
    utc = f"{text}Z" if ":" in text else f"{text}T00:00Z"
    return _time_invalid(
        field, f"{text!r} has no zone", f"Write {utc} for UTC, or its distance from UTC, such as {utc[:-1]}+01:00."
    )


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
    digits = text.strip(" \t\n\r\f\v+")
    if not re.fullmatch("[0-9]{9,16}", digits):
        return "2026-03-01T12:00Z"
    micros = int(digits) * (1_000_000 if len(digits) < 12 else 1_000 if len(digits) < 15 else 1)
    return re.sub(r"0+Z\Z|\.0+Z\Z", "Z", format_micros(micros)) if micros % 1_000_000 else format_micros(micros)
