"""Requests an operator of Strandline from the shim in plain DataFrame calls, so that it also works in Spark Connect.

A marking column and a ``dropDuplicates`` over it represent the operator (``MarkedOperator.scala``, docs/protocol.md). A session
without the shim refuses the source, so no row is ever deduplicated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, CalendarIntervalType, DataType, MapType, StringType, StructField, StructType, VariantType

from pyspark_strandline.operators import errors
from pyspark_strandline.schema import TIME_METADATA, quoted, schema_above, time_field_of
from strandline.errors import StrandlineError
from strandline.time.domain import TimeDomain

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "MARK",
    "checked_key",
    "checked_times",
    "input_time",
    "mark_metadata",
    "result_schema",
    "without_mark",
]

MARK = "_strandline"
_CHECKED = "strandline.checked"


def mark_metadata(operator: str, spread: bool = False) -> dict[str, object]:
    """Return the metadata that makes a ``bigint`` column the mark of an operator.

    >>> mark_metadata("hold")
    {'strandline.operator': 'hold', 'strandline.spread': False}
    """
    return {"strandline.operator": operator, "strandline.spread": spread}


def input_time(df: DataFrame) -> tuple[StructField, TimeDomain]:
    """Return the one time column of ``df`` and its domain. Raises :class:`StrandlineError` when there is none, or several."""
    schema = schema_above(df)
    name, domain = time_field_of(schema)
    taken = [column for column in df.columns if column.startswith(MARK)]
    if taken:
        raise errors.column_reserved(taken, MARK)
    return schema[name], domain


def checked_key(df: DataFrame, key: str | Sequence[str], time: str) -> list[str]:
    """Return the key's columns.

    Raises :class:`StrandlineError` when one is unknown, is named twice, is the time, or has a type that is no key.
    """
    names = [key] if isinstance(key, str) else list(key)
    wrong = [name for name in names if name not in df.columns]
    if wrong or time in names or len(set(names)) != len(names):
        raise errors.key_invalid_columns(names, df.columns, time)
    for name in names:
        if (error := _no_key(name, df.schema[name].dataType)) is not None:
            raise error
    return names


def _no_key(name: str, type_: DataType) -> StrandlineError | None:
    """Return the error for a type whose values no state has as keys, ``None`` if it has them."""
    if isinstance(type_, StringType) and type_.collation != "UTF8_BINARY":
        return errors.key_invalid_collation(name, type_.collation)
    if isinstance(type_, MapType):
        return errors.key_invalid_map(name)
    if isinstance(type_, (VariantType, CalendarIntervalType)):
        return errors.key_invalid_type(name, type_)
    inner = (
        [f.dataType for f in type_.fields]
        if isinstance(type_, StructType)
        else [type_.elementType]
        if isinstance(type_, ArrayType)
        else []
    )
    return next(filter(None, (_no_key(name, each) for each in inner)), None)


def result_schema(schema: StructType | str, time: StructField) -> StructType:
    """Return ``schema`` as a type.

    Its field with the time column's name and type is a time of the same domain and path summary.
    """
    parsed = schema if isinstance(schema, StructType) else cast(StructType, StructType.fromDDL(schema))
    tags = {key: value for key, value in (time.metadata or {}).items() if key.startswith(("strandline.", "spark.watermark"))}

    def tagged(field: StructField) -> StructField:
        if field.name != time.name or TIME_METADATA in (field.metadata or {}):
            return field
        if field.dataType != time.dataType:
            raise errors.time_type_mismatch(field.name, field.dataType, time.dataType)
        return StructField(field.name, field.dataType, field.nullable, {**(field.metadata or {}), **tags})

    return StructType([tagged(field) for field in parsed.fields])


def checked_times(schema: StructType, time: str) -> StructType:
    """Return ``schema`` with a mark on its time column: in a loop, the operator's code checks the times (``LoopRule.scala``).

    The mark is for the operator's own node. :func:`without_mark` removes it above, or a user's function would get it with a
    schema.
    """
    return StructType(
        [
            StructField(f.name, f.dataType, f.nullable, {**(f.metadata or {}), _CHECKED: True}) if f.name == time else f
            for f in schema.fields
        ]
    )


def without_mark(time: StructField) -> Column:
    """Return the time column of a result of :func:`checked_times`, without the mark."""
    kept = {key: value for key, value in (time.metadata or {}).items() if key != _CHECKED}
    return F.col(quoted(time.name)).alias(time.name, metadata=kept)
