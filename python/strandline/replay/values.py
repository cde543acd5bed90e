"""The values of columns: which types compare, and rows as Python values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types as kinds

__all__ = ["comparable", "values_of"]


def comparable(a: pa.DataType, b: pa.DataType) -> bool:
    """Whether equal values of two types have equal hashes, and different ones have different hashes.

    Integers of any width compare, and floats of any width. Decimals need one scale. Fields of structs compare by name.

    >>> comparable(pa.int8(), pa.int64()), comparable(pa.list_(pa.date32()), pa.list_(pa.int32()))
    (True, False)
    >>> comparable(pa.decimal128(12, 2), pa.decimal128(38, 2)), comparable(pa.decimal128(12, 2), pa.decimal128(12, 1))
    (True, False)
    """
    if kinds.is_null(a) or kinds.is_null(b) or a.equals(b):
        return True
    if _is_list(a) and _is_list(b):
        return comparable(a.value_type, b.value_type)
    if kinds.is_struct(a) and kinds.is_struct(b):
        shared = {field.name for field in a} & {field.name for field in b}
        return all(comparable(a.field(name).type, b.field(name).type) for name in shared)
    if kinds.is_map(a) and kinds.is_map(b):
        return comparable(a.key_type, b.key_type) and comparable(a.item_type, b.item_type)
    if kinds.is_decimal(a) and kinds.is_decimal(b):
        return bool(a.scale == b.scale)
    if kinds.is_timestamp(a) and kinds.is_timestamp(b):
        return (a.tz is None) == (b.tz is None) and a.unit == b.unit
    alike = (kinds.is_integer, kinds.is_floating, _is_string, _is_binary)
    return any(kind(a) and kind(b) for kind in alike)


def values_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as Python values. Where Python has no such date, a column's dates and timestamps are text.

    >>> values_of(pa.table({"d": pa.array([2932897], pa.date32()), "n": [1]}))
    [{'d': '10000-01-01', 'n': 1}]
    """
    columns = [_values(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return list(column.cast(_as_text(column.type)).to_pylist())


def _as_text(kind: pa.DataType) -> pa.DataType:
    """Return the type with text in place of dates and timestamps."""
    if kinds.is_date(kind) or kinds.is_timestamp(kind):
        return pa.string()
    if _is_list(kind):
        return pa.list_(_as_text(kind.value_type))
    if kinds.is_struct(kind):
        return pa.struct([pa.field(field.name, _as_text(field.type)) for field in kind])
    if kinds.is_map(kind):
        return pa.map_(_as_text(kind.key_type), _as_text(kind.item_type))
    return kind


def _is_list(kind: pa.DataType) -> bool:
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind))


def _is_string(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(kinds.is_binary(kind) or kinds.is_large_binary(kind))
