"""Readers of JSON values: each returns the value, with its type, or raises :class:`Unfit`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from strandline.channel import WriterSession
from strandline.channel.statements.nullable_int64 import is_number
from strandline.json_value import JsonObject

__all__ = [
    "Reader",
    "Unfit",
    "anything",
    "count",
    "counts",
    "flag",
    "listed",
    "moment",
    "number",
    "row",
    "session",
    "text",
    "text_or_null",
]

Reader: TypeAlias = Callable[[Any], Any]
_MOST = 1 << 50
"""Counts, and the milliseconds that an ingest has listened, are below this. So their sums are numbers of 64 bits."""
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999


class Unfit(Exception):  # noqa: N818 - nobody but a record sees it
    """A value is not what a reader reads."""


def anything(value: Any) -> Any:
    """Return any JSON value. A time has any form here: the domain refuses what is not a time of it."""
    return value


def text(value: Any) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise Unfit
    return value


def text_or_null(value: Any) -> str | None:
    """Return a text, or ``None``."""
    return None if value is None else text(value)


def flag(value: Any) -> bool:
    """Return a truth value."""
    if not isinstance(value, bool):
        raise Unfit
    return value


def number(value: Any) -> int:
    """Return an integer of 64 bits."""
    if not is_number(value):
        raise Unfit
    return value


def count(value: Any) -> int:
    """Return how many of something there are, or for how many ms something lasted.

    >>> count(5)
    5
    """
    if not is_number(value) or not 0 <= value < _MOST:
        raise Unfit
    return value


def counts(value: Any) -> JsonObject:
    """Return how many there are of each of several things, by name."""
    if not isinstance(value, dict):
        raise Unfit
    for each in value.values():
        count(each)
    return value


def moment(value: Any) -> int:
    """Return a time in ms since 1970 that a calendar has."""
    if not is_number(value) or not _FIRST_MS <= value <= _LAST_MS:
        raise Unfit
    return value


def session(value: Any) -> JsonObject:
    """Return the JSON form of a :class:`WriterSession`."""
    try:
        WriterSession.from_json(value)
    except ValueError:
        raise Unfit from None
    result: JsonObject = value
    return result


def listed(reader: Reader = anything) -> Reader:
    """Return a reader of lists. It returns the list as it is, so that it is written as it was."""

    def read(value: Any) -> Sequence[Any]:
        if not isinstance(value, list | tuple):
            raise Unfit
        for each in value:
            reader(each)
        return value

    return read


def row(*readers: Reader) -> Reader:
    """Return a reader of lists that have one value for each of ``readers``."""

    def read(value: Any) -> Sequence[Any]:
        if not isinstance(value, list | tuple) or len(value) != len(readers):
            raise Unfit
        for reader, each in zip(readers, value, strict=True):
            reader(each)
        return value

    return read
