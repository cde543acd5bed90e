"""A file's statistics as a checkpoint keeps them in columns (``stats_parsed``): are they those of a commit's JSON?"""

from __future__ import annotations

import decimal
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from strandline.delta.checks.misread_bounds import SAME_DAY, SAME_MOMENT

__all__ = ["StatsColumns", "countable", "of_new_calendar"]

_ABSENT = object()
_MOMENT = re.compile(
    r"(?P<day>[+-]?\d{4,6}-\d\d-\d\d)(?:[T ](?P<time>\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)\d*)?"
    r"(?:Z|(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)(?::?(?P<seconds>\d\d))?)?"
)
"""A day or a moment in any year. Spark's zones of former times have seconds: ``0000-12-31T20:29:08.000-03:30:52``."""
_OLD_MARCH, _NEW_MARCH = 719_470, 719_468
"""The days from the first of March of the year 0, in either calendar, to 1970-01-01."""
_DIGITS_OF_A_DOUBLE = 17
"""Some writers give decimals as doubles, which never have more digits, but perhaps zeros after. More are the decimal's own."""
_EXACT = decimal.Context(prec=100)
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class StatsColumns(NamedTuple):
    """Statistics of one file in columns, with dates and times as whole numbers, and the columns' type."""

    values: dict[str, Any]
    kind: pa.DataType

    def differs(self, stats: str | None) -> tuple[str, Any, Any] | None:
        """Return the first of them that is not what Delta's JSON says: its name, its value and the JSON's value.

        What is not stated in a column is no difference: no reader skips a file by it.

        >>> kind = pa.struct({"numRecords": pa.int64(), "maxValues": pa.struct({"day": pa.date32()})})
        >>> columns = StatsColumns({"numRecords": 3, "maxValues": {"day": 1}}, kind)
        >>> columns.differs('{"numRecords":3,"maxValues":{"day":"1970-01-02"}}')
        >>> columns.differs('{"numRecords":3,"maxValues":{"day":"1970-01-03"}}')
        ('maxValues.day', 1, '1970-01-03')
        """
        try:
            stated = json.loads(stats or "{}", parse_float=decimal.Decimal)
        except (ValueError, RecursionError, ArithmeticError):
            return None  # then they are no statistics for anybody
        for key in ("numRecords", "minValues", "maxValues", "nullCount"):
            for name, value, kind, said in _leaves(key, self.values.get(key), _inner(self.kind, key), _of(stated, key)):
                if not _same(value, kind, said):
                    return name, value, None if said is _ABSENT else said
        return None

    def differs_from(self, other: StatsColumns) -> tuple[str, Any, Any] | None:
        """Return the first of them that is not what other columns say. Another engine may lay its columns out in another way.

        >>> kind = pa.struct({"maxValues": pa.struct({"x": pa.float64(), "y": pa.int64()})})
        >>> one = StatsColumns({"maxValues": {"x": float("nan"), "y": 3}}, kind)
        >>> one.differs_from(StatsColumns({"maxValues": {"y": 3, "x": float("nan")}}, kind))
        >>> one.differs_from(StatsColumns({"maxValues": {"y": 4, "x": float("nan")}}, kind))
        ('maxValues.y', 3, 4)
        """
        for key in ("numRecords", "minValues", "maxValues", "nullCount"):
            theirs = {name: (value, kind) for name, value, kind, _ in other._stated(key)}
            for name, value, kind, _ in self._stated(key):
                said, as_kind = theirs.get(name, (None, pa.null()))
                if _counted(value, kind) != _counted(said, as_kind):
                    return name, value, said
        return None

    def _stated(self, key: str) -> Iterator[tuple[str, Any, pa.DataType, Any]]:
        return _leaves(key, self.values.get(key), _inner(self.kind, key), _ABSENT)


def _leaves(name: str, value: Any, kind: pa.DataType, said: Any) -> Iterator[tuple[str, Any, pa.DataType, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}", inner, _inner(kind, key), _of(said, key))
    elif value is not None:
        yield name, value, kind, said


def _inner(kind: pa.DataType, key: str) -> pa.DataType:
    return kind.field(key).type if pa.types.is_struct(kind) and kind.get_field_index(key) >= 0 else pa.null()


def _of(stated: Any, key: str) -> Any:
    return stated.get(key, _ABSENT) if isinstance(stated, dict) else _ABSENT


def _same(value: Any, kind: pa.DataType, said: Any) -> bool:
    try:
        if pa.types.is_timestamp(kind):
            return bool(value * 10**6 == _micros(said) * _TICKS[kind.unit])
        if pa.types.is_date32(kind):
            return bool(value * 86_400 * 10**6 == _micros(said))
        if pa.types.is_decimal(kind) and _digits(said) > _DIGITS_OF_A_DOUBLE:
            return bool(value == decimal.Decimal(said))
        if pa.types.is_floating(kind) or pa.types.is_decimal(kind):  # JSON has as many digits as its writer gives it
            exact = np.float32 if kind == pa.float32() else np.float64
            with np.errstate(over="ignore"):
                equal = exact(value) == exact(said) or (value != value and exact(said) != exact(said))
                return bool(equal and not isinstance(said, bool))
    except (ValueError, TypeError, AttributeError, ArithmeticError):
        return False
    return type(value) is type(said) and bool(value == said)


def _digits(number: Any) -> int:
    return len(decimal.Decimal(number).normalize(_EXACT).as_tuple().digits)


def _micros(text: str) -> int:
    """Return a day or a moment in microseconds since 1970. Python's own ones are of the years 1 to 9999 only.

    >>> _micros("0001-01-01"), _micros("0000-12-31T20:29:08.000-03:30:52"), _micros("+10000-01-01T00:00:00Z")
    (-62135596800000000, -62135596800000000, 253402300800000000)
    """
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(text)
    local = int(np.datetime64(f"{found['day']}T{found['time'] or '00:00'}", "us").astype(np.int64))
    hours, minutes, seconds = (int(found[part] or 0) for part in ("hours", "minutes", "seconds"))
    east = (hours * 3600 + minutes * 60 + seconds) * 10**6
    return local + east if found["sign"] == "-" else local - east


def _counted(value: Any, kind: pa.DataType) -> Any:
    """Return a value in one form, whatever its unit. NaN is like itself."""
    if value is not None and pa.types.is_timestamp(kind):
        return value * 10**9 // _TICKS[kind.unit]
    return "NaN" if value != value else value


def of_new_calendar(values: dict[str, Any], kind: pa.DataType) -> dict[str, Any]:
    """Return statistics in columns of a file that Spark has marked as of the old calendar, as Spark reads them.

    Moments before 1900 are left out: Spark shifts them by a time zone's rules.

    >>> kind = pa.struct({"minValues": pa.struct({"day": pa.date32(), "at": pa.timestamp("us")})})
    >>> of_new_calendar({"minValues": {"day": -171499, "at": -(1 << 60)}}, kind)
    {'minValues': {'day': -171509, 'at': None}}
    """

    def of(value: Any, kind: pa.DataType) -> Any:
        if isinstance(value, dict):
            return {key: of(inner, _inner(kind, key)) for key, inner in value.items()}
        if value is None or not (pa.types.is_date32(kind) or pa.types.is_timestamp(kind)):
            return value
        if pa.types.is_timestamp(kind):
            return None if value < SAME_MOMENT // 10**6 * _TICKS[kind.unit] else value
        return value if value >= SAME_DAY else _renamed(value)

    return {key: of(value, _inner(kind, key)) for key, value in values.items()}


def _renamed(days: int) -> int:
    """Return the day that has the name in the new calendar which a day has in the old one: both say 1500-06-01."""
    since = days + _OLD_MARCH
    year, rest = (4 * since + 3) // 1461, (4 * since + 3) % 1461 // 4  # a year of the old calendar, from March on
    month = (5 * rest + 2) // 153
    day = rest - (153 * month + 2) // 5
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - _NEW_MARCH


def countable(array: pa.Array) -> pa.Array:
    """Return an array whose values Python has. Its own dates end with the year 9999."""
    kind = _numbers(array.type)
    return array if kind == array.type else array.cast(kind)


def _numbers(kind: pa.DataType) -> pa.DataType:
    """Return a type with whole numbers in the place of dates and times."""
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind) or pa.types.is_time64(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_numbers(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_numbers(kind.key_type), kind.item_field.with_type(_numbers(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_numbers(kind.value_type)))
    return kind
