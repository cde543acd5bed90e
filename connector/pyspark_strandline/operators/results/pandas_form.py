"""The rows of a call as a pandas DataFrame, without loss."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_strandline.operators.results.rules import MOST_EXACT

__all__ = ["to_pandas"]


def to_pandas(table: pa.Table) -> Any:
    """Return ``table.to_pandas()``, in which integers stay what they are.

    pandas has a column of integers with nulls as floats. Where a float would be another number, the column is of its nullable
    type ``Int64``, and lists keep Python's integers.

    >>> to_pandas(pa.table({"n": [2**53 + 1, None]}))["n"].tolist()
    [9007199254740993, <NA>]
    """
    frame = table.to_pandas()
    for number, field in enumerate(table.schema):
        column = table.column(number)
        if pa.types.is_integer(field.type) and column.null_count and field.type.bit_width == 64 and _is_far(column):
            name = "UInt64" if pa.types.is_unsigned_integer(field.type) else "Int64"
            frame.isetitem(number, _nullable(column, name))
        elif pa.types.is_nested(field.type):
            frame.isetitem(number, column.to_pandas(integer_object_nulls=True))
    return frame


def _is_far(column: pa.ChunkedArray) -> bool:
    bounds = pc.min_max(column)
    return any(each is not None and abs(each) > MOST_EXACT for each in (bounds["min"].as_py(), bounds["max"].as_py()))


def _nullable(column: pa.ChunkedArray, name: str) -> Any:
    import pandas  # a task without pandas code need not load it

    return pandas.array(column.to_pylist(), dtype=name)
