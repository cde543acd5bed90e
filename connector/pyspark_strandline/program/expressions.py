"""Expressions of programs as Spark's columns."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

from pyspark_strandline.schema import quoted
from strandline.program.expression import OPERATORS, Binary, Call, Column, Expression, IsNull, Literal, Not

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql.types import DataType

__all__ = ["column_of", "spark_type"]

_LOGIC: dict[str, Callable[[Any, Any], Any]] = {"and": operator.and_, "or": operator.or_}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"abs": F.abs, "least": F.least, "greatest": F.greatest, "coalesce": F.coalesce}


def spark_type(kind: pa.DataType) -> DataType:
    """Return Spark's type for a type of a program's columns.

    >>> spark_type(pa.int64()), spark_type(pa.timestamp("us", "UTC"))
    (LongType(), TimestampType())
    """
    return from_arrow_type(kind)


def column_of(expression: Expression, schema: pa.Schema) -> SparkColumn:
    """Return an expression over rows of a schema as a column."""
    kind = spark_type(expression.type_in(schema))
    if isinstance(expression, Column):
        return F.col(quoted(expression.name))
    if isinstance(expression, Literal):
        return _literal(expression.value).cast(kind)
    if isinstance(expression, Not):
        return ~column_of(expression.operand, schema)
    if isinstance(expression, IsNull):
        return column_of(expression.operand, schema).isNull()
    if isinstance(expression, Call):
        called: SparkColumn = _FUNCTIONS[expression.function](*(column_of(arg, schema) for arg in expression.args))
        return called.cast(kind)
    if isinstance(expression, Binary):
        left, right = column_of(expression.left, schema), column_of(expression.right, schema)
        result: SparkColumn = (OPERATORS | _LOGIC)[expression.op](left, right)
        return result
    raise TypeError(expression)


def _literal(value: Any) -> SparkColumn:
    """Return a constant. A moment is one whatever the session's time zone is."""
    if isinstance(value, datetime):
        since = value - datetime(1970, 1, 1, tzinfo=timezone.utc)
        return F.timestamp_micros(F.lit(since // timedelta(microseconds=1)))
    return F.lit(value)
