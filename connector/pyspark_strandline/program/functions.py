"""The functions that a user gives to a program, as they run in Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import ArrayType, StructField, StructType

from pyspark_strandline.operators.completion import on_complete
from pyspark_strandline.program.expressions import spark_type
from pyspark_strandline.program.slots import RESERVED
from pyspark_strandline.schema import quoted
from strandline.program.local.evaluate import rows_of
from strandline.program.plan import Fold, Map
from strandline.program.schema import row_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["folded", "mapped"]

_ROW = f"{RESERVED}row"


def mapped(df: DataFrame, node: Map, time: str, place: str) -> DataFrame:
    """Return the rows that the function of a :class:`Map` returns for each row, at the times of these rows."""
    fields = [StructField(f.name, spark_type(f.type)) for f in node.schema]
    arrow = pa.list_(pa.struct([pa.field(f.name, f.type) for f in node.schema]))

    def call(rows: pa.Array) -> pa.Array:
        found = rows_of(node, place)
        names = node.schema.names
        given = [tuple(row.values()) for row in _checked(rows, node.child.schema)]
        return pa.array([[dict(zip(names, new, strict=True)) for new in found({row})] for row in given], arrow)

    call.__annotations__ = {"rows": pa.Array, "return": pa.Array}  # the annotations here are texts, which Spark does not resolve
    function = arrow_udf(call, ArrayType(StructType(fields)))  # type: ignore[call-overload]  # its type of function has a default
    given = F.struct(*(F.col(quoted(name)) for name in node.child.schema.names))
    each = df.select(F.col(quoted(time)), F.explode(function(given)).alias(_ROW))
    return each.select(F.col(quoted(time)), *(F.col(_ROW).getField(name).alias(name) for name in node.schema.names))


def folded(df: DataFrame, node: Fold, time: str, place: str) -> DataFrame:
    """Return the state of a :class:`Fold` for each group, when its time is closed."""
    columns = ", ".join(f"`{f.name}` {spark_type(f.type).simpleString()}" for f in node.schema)
    kind = df.schema[time].dataType.simpleString()
    call = partial(_fold, node, time, place)
    return on_complete(df, call if node.by else partial(_without_key, call), f"`{time}` {kind}, {columns}", key=list(node.by))


def _without_key(call: Callable[..., pa.Table], at: Any, rows: pa.Table) -> pa.Table:
    return call(at, (), rows)


def _fold(node: Fold, time: str, place: str, at: Any, key: Any, rows: pa.Table) -> Iterable[dict[str, Any]]:
    del key
    given = rows.select(node.child.schema.names).to_pylist()
    found = rows_of(node, place)({tuple(row.values()) for row in _checked(given, node.child.schema)})
    return [{time: at, **dict(zip(node.schema.names, row, strict=True))} for row in found]


def _checked(rows: Iterable[Any], schema: pa.Schema) -> Iterable[dict[str, Any]]:
    """Return the rows as the program's own run has them."""
    for row in rows:
        value = row.as_py() if isinstance(row, pa.Scalar) else row
        yield dict(zip(schema.names, row_of(value, schema, ValueError), strict=True))
