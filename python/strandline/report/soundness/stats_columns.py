"""A file's statistics as a checkpoint keeps them in columns (``stats_parsed``): are they those of a commit's JSON?"""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

__all__ = ["StatsColumns", "countable"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_ABSENT = object()


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
        except (ValueError, RecursionError):
            return None  # then they are no statistics for anybody
        for key in ("numRecords", "minValues", "maxValues", "nullCount"):
            for name, value, kind, said in _leaves(key, self.values.get(key), _inner(self.kind, key), _of(stated, key)):
                if not _same(value, kind, said):
                    return name, value, None if said is _ABSENT else said
        return None


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
            moment = dt.datetime.fromisoformat(said.replace("Z", "+00:00"))
            moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.timezone.utc)
            ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
            return bool(value * 10**6 == (moment - _EPOCH) // dt.timedelta(microseconds=1) * ticks)
        if pa.types.is_date32(kind):
            return bool(value == (dt.date.fromisoformat(said) - _EPOCH.date()).days)
        if pa.types.is_floating(kind) or pa.types.is_decimal(kind):  # JSON has as many digits as its writer gives it
            exact = np.float32 if kind == pa.float32() else np.float64
            with np.errstate(over="ignore"):
                return bool(exact(value) == exact(said) or (value != value and exact(said) != exact(said)))
    except (ValueError, TypeError, AttributeError, OverflowError):
        return False
    return type(value) is type(said) and bool(value == said)


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
