"""Arrow arrays of Python values, each exactly a value of its type: the rules of single values, for many at once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_strandline.operators.results.rules import MisfitError, rule

__all__ = ["array_of_values"]

_NOTHING = type(None)
_INTEGERS = {int, *(np.dtype(code).type for code in "bhilqBHILQ")}
_YEARS = [
    int(at.timestamp()) * 1_000_000
    for at in (datetime(1, 1, 2, tzinfo=timezone.utc), datetime(9999, 12, 31, tzinfo=timezone.utc))
]


class _UnusualError(Exception):
    """Values that must be looked at one by one."""


def array_of_values(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """Return the values as an array of the field's type. Raises :class:`MisfitError` for the first one that is none of them.

    >>> array_of_values([{"n": 1}, None], pa.field("s", pa.struct([("n", pa.int64())]))).to_pylist()
    [{'n': 1}, None]
    >>> array_of_values([1, 2.5], pa.field("n", pa.int64()))
    Traceback (most recent call last):
    pyspark_strandline.operators.results.rules.MisfitError: [1] is 2.5 (float), not a value of bigint
    """
    try:
        return _array(values, field)
    except (_UnusualError, MisfitError):
        # Inside a list or a struct with nulls, a value's place is not that of the row.
        return pa.array(_one_by_one(values, field), field.type)


def _one_by_one(values: Sequence[Any], field: pa.Field) -> list[Any]:
    check = rule(field)
    found: list[Any] = []
    try:
        found.extend(map(check, values))
    except MisfitError as misfit:
        raise misfit.within(f"[{len(found)}]") from None
    return found


def _array(values: Sequence[Any], field: pa.Field) -> pa.Array:
    type_ = field.type
    kinds = set(map(type, values))
    if _NOTHING in kinds and not field.nullable:
        raise _UnusualError
    kinds.discard(_NOTHING)
    if not kinds:
        return pa.nulls(len(values), type_)
    if pa.types.is_struct(type_) or pa.types.is_list(type_) or pa.types.is_map(type_):
        there = [value for value in values if value is not None]
        if len(there) == len(values):
            return _nested(there, kinds, type_)
        number = itertools.count()
        at = pa.array([None if value is None else next(number) for value in values], pa.int64())
        return _nested(there, kinds, type_).take(at)
    if not kinds <= _plain(type_):
        return pa.array(_one_by_one(values, field), type_)
    try:
        made = pa.array(values, type_)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return pa.array(_one_by_one(values, field), type_)
    return made if _is_sure(made, values) else pa.array(_one_by_one(values, field), type_)


def _nested(values: list[Any], kinds: set[type], type_: pa.DataType) -> pa.Array:
    if pa.types.is_struct(type_):
        if kinds != {dict} or set(map(len, values)) != {type_.num_fields}:
            raise _UnusualError
        try:
            columns = [list(map(itemgetter(each.name), values)) for each in type_]
        except KeyError:
            raise _UnusualError from None
        if not columns:
            raise _UnusualError
        return pa.StructArray.from_arrays([_array(c, each) for c, each in zip(columns, type_, strict=True)], fields=list(type_))
    if pa.types.is_map(type_):
        # Different numbers may be one number of the type.
        if kinds != {dict} or pa.types.is_floating(type_.key_type):
            raise _UnusualError
        keys = _array(list(itertools.chain.from_iterable(values)), type_.key_field)
        items = _array([item for value in values for item in value.values()], type_.item_field)
        return pa.MapArray.from_arrays(_offsets(values), keys, items, type_)
    if not kinds <= {list, tuple, np.ndarray}:
        raise _UnusualError
    try:
        offsets, inner = _offsets(values), list(itertools.chain.from_iterable(values))
    except TypeError:  # an array of NumPy without a dimension
        raise _UnusualError from None
    return pa.ListArray.from_arrays(offsets, _array(inner, type_.value_field), type=type_)


def _offsets(values: list[Any]) -> pa.Array:
    return pa.array(itertools.accumulate(map(len, values), initial=0), pa.int32())


def _plain(type_: pa.DataType) -> set[type]:
    """The classes of values that Arrow takes exactly, or refuses."""
    t = pa.types
    if t.is_integer(type_):
        return _INTEGERS
    if t.is_floating(type_):
        return {float, int, np.float64}
    if t.is_decimal(type_):
        return {Decimal, int}
    if t.is_timestamp(type_):
        return {datetime}
    if t.is_string(type_):
        return {str}
    if t.is_boolean(type_):
        return {bool}
    if t.is_binary(type_):
        return {bytes, bytearray}
    if t.is_date32(type_):
        return {date}
    if t.is_duration(type_):
        return {timedelta}
    return {time} if t.is_time(type_) else set()


def _is_sure(made: pa.Array, values: Sequence[Any]) -> bool:
    """Whether Arrow has not taken a value for another one of its class."""
    type_ = made.type
    if pa.types.is_floating(type_) and type_.bit_width < 64:
        return not pc.any(pc.is_inf(made)).as_py()
    if pa.types.is_time(type_):
        return not any(value is not None and value.tzinfo is not None for value in values)
    if pa.types.is_timestamp(type_):
        if any(value is not None and (value.utcoffset() is None) != (type_.tz is None) for value in values):
            return False
        least, most = (pa.scalar(bound, pa.int64()).cast(pa.timestamp("us", type_.tz)).cast(type_) for bound in _YEARS)
        return not pc.any(pc.or_(pc.less(made, least), pc.greater(made, most))).as_py()
    return True
