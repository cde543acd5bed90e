"""``mapInArrow`` for columns of any name: PySpark takes a name with a dot for a field of a struct."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pyspark_strandline.operators.operator_marker import MARK
from pyspark_strandline.schema import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["map_batches"]

Batches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_batches(df: DataFrame, function: Batches, schema: StructType) -> DataFrame:
    """Return ``df.mapInArrow(function, schema)``. The function's batches have the names of ``df``, whatever these are.

    Args:
        df: The DataFrame.
        function: The function that runs in tasks.
        schema: The columns of its results.
    """
    names = df.columns
    if not any("." in name or "`" in name for name in names):
        return df.mapInArrow(function, schema)
    plain = df.select(*(F.col(quoted(name)).alias(f"{MARK}_{number}") for number, name in enumerate(names)))
    return plain.mapInArrow(_Renamed(function, names), schema)


class _Renamed:
    """The function, called with batches that have the columns' own names again."""

    def __init__(self, function: Batches, names: list[str]) -> None:
        self._function, self._names = function, names

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self._function(batch.rename_columns(self._names) for batch in batches)
