"""Parsers of single values: each takes an option's name and its text, and returns the value or raises."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable

from pyspark_strandline.options import errors
from strandline.delta.store_errors import shown_json
from strandline.errors import DurationError, StrandlineError
from strandline.time.duration import Duration
from strandline.time.errors import wrong_moment
from strandline.time.text.grammar import Wrong, read_moment

__all__ = [
    "boolean",
    "duration",
    "invalid",
    "listed",
    "names",
    "one_of",
    "resume",
    "resumed_output",
    "size",
    "speed",
    "starting_version",
    "text",
    "timestamp_ms",
    "whole_number",
]

_BYTES = re.compile(r"([0-9]{1,18})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_SPEED = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*x", re.IGNORECASE)
_RESUME = ("true", "false", "stateful", "changed")


def invalid(name: str, value: str, expected: str) -> StrandlineError:
    """Return the error for a value of another form. Secrets in JSON are not shown."""
    shown = shown_json(value) if value.lstrip()[:1] in ("{", "[") else value
    return errors.option_invalid(name, shown, expected)


def text(name: str, value: str) -> str:
    """Return a text without the blanks around it."""
    if not value.strip():
        raise invalid(name, value, "a name")
    return value.strip()


def boolean(name: str, value: str) -> bool:
    """Read ``true`` or ``false``."""
    return one_of("true", "false")(name, value) == "true"


def one_of(*words: str) -> Callable[[str, str], str]:
    """Return the parser that takes one of some words, in any case, and returns it as it is written here.

    >>> one_of("setAside", "fail")("onLate", "setaside")
    'setAside'
    """

    def parse(name: str, value: str) -> str:
        found = next((word for word in words if word.lower() == value.strip().lower()), None)
        if found is None:
            raise invalid(name, value, f"{', '.join(words[:-1])} or {words[-1]}")
        return found

    return parse


def whole_number(least: int, expected: str) -> Callable[[str, str], int]:
    """Return the parser of a whole number of at least ``least``, which messages call ``expected``."""

    def parse(name: str, value: str) -> int:
        if not re.fullmatch("[0-9]{1,18}", value.strip()) or int(value) < least:
            raise invalid(name, value, expected)
        return int(value)

    return parse


def starting_version(name: str, value: str) -> int | str:
    """Read a version, ``latest`` or ``snapshot``."""
    word = value.strip().lower()
    if word in ("latest", "snapshot"):
        return word
    return whole_number(0, "a version of the table (0, 1, …), latest or snapshot")(name, value)


def timestamp_ms(name: str, value: str) -> int:
    """Return the first millisecond at or after a moment (UTC unless it has a zone)."""
    micros = read_moment(value)
    if isinstance(micros, Wrong):
        what, remedy = wrong_moment(value, micros)
        raise errors.option_invalid_moment(name, what, remedy)
    return -(-micros // 1000)


def size(name: str, value: str) -> int:
    """Read a number of bytes, which may have a unit.

    >>> size("maxBytesPerTrigger", "10m")
    10485760
    """
    match = _BYTES.fullmatch(value.strip())
    found = int(match.group(1)) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match.group(2).lower()] if match else 0
    if found < 1:
        raise invalid(name, value, "a size in bytes, or such as 512m or 10g")
    return found


def duration(name: str, value: str) -> int:
    """Read a duration, and return its microseconds.

    >>> duration("maxLoopLag", "10 seconds")
    10000000
    """
    try:
        found = Duration.of(value)
    except DurationError:
        raise invalid(name, value, "a duration such as 10 seconds") from None
    if not found.timed:
        raise invalid(name, value, "a duration such as 10 seconds")
    return found.amount


def speed(name: str, value: str) -> float:
    """Read how fast a recording is played: how many seconds of it in a second.

    >>> speed("replay", "realtime"), speed("replay", "10x"), speed("replay", "max")
    (1.0, 10.0, inf)
    """
    word = value.strip().lower()
    if word in ("max", "realtime"):
        return math.inf if word == "max" else 1.0
    match = _SPEED.fullmatch(word)
    if match is None or float(match.group(1)) == 0:
        raise invalid(name, value, "max, realtime or a speed such as 10x")
    return float(match.group(1))


def names(name: str, value: str) -> tuple[str, ...]:
    """Read different names, separated by commas."""
    found = tuple(part.strip() for part in value.split(","))
    if not all(found) or len(set(found)) != len(found):
        raise invalid(name, value, "a comma-separated list of different names")
    return found


def listed(name: str, value: str) -> tuple[str, ...]:
    """Read names as JSON, ``["a", "b"]``, or separated by commas if no name contains one."""
    if value.lstrip().startswith("["):
        try:
            found = json.loads(value)
        except ValueError:
            found = None
        if not isinstance(found, list) or not all(isinstance(n, str) and n for n in found) or len(set(found)) != len(found):
            raise invalid(name, value, "a JSON list of different names")
        return tuple(found)
    return names(name, value) if value.strip() else ()


def resume(name: str, value: str) -> str | None:
    """Read how a sink's query goes on with an output; ``None`` if it does not."""
    word = value.strip().lower()
    if word not in _RESUME:
        raise invalid(name, value, "true, stateful, changed or false")
    return None if word == "false" else word


def resumed_output(name: str, value: str) -> str:
    """Return the path of the output that a source resumes. The words of the sink's option of the same name are no paths."""
    if value.strip().lower() in _RESUME:
        raise errors.option_invalid_resume(value)
    return text(name, value)
