"""Aggregators of ``pregel``: values over all vertices of a superstep, which every vertex of the next one can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StructField, StructType

from pyspark_strandline.loops import errors
from pyspark_strandline.schema import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["AGGREGATED", "Aggregator", "aggregators_of", "given_schema", "with_aggregated"]

AGGREGATED = "_aggregated"
"""The column with the values of the superstep before, in the rows for vertices."""
_PART = "_part"
_PARTS = 128
"""Into how many parts the vertices are divided. It is part of the plan, whose state has it."""
_FUNCTIONS = {"sum": F.sum, "min": F.min, "max": F.max, "count": F.count}


class Aggregator(NamedTuple):
    """A value over all vertices of a superstep.

    Attributes:
        function: ``sum``, ``min``, ``max``, or ``count`` of values that are not null.
        kind: The type of the values that vertices give.
    """

    function: str
    kind: DataType

    @property
    def result(self) -> DataType:
        """The type of the value over all vertices."""
        return LongType() if self.function == "count" else self.kind


def aggregators_of(given: Mapping[str, str]) -> dict[str, Aggregator]:
    """Return a program's aggregators. It needs a session, which reads the types.

    Args:
        given: For each name the function and the type, such as ``sum double``.

    Raises:
        StrandlineError: ``STRANDLINE_OPTION_INVALID`` for another function, or a type of which there is no such value.

    ``aggregators_of({"change": "max double"})`` is ``{"change": Aggregator("max", DoubleType())}``.
    """
    found = {}
    for name, text in given.items():
        function, _, kind = str(text).strip().partition(" ")
        if function.lower() not in _FUNCTIONS or not kind.strip():
            raise errors.option_invalid_aggregator(name, text, _FUNCTIONS)
        found[name] = Aggregator(function.lower(), cast(StructType, StructType.fromDDL(f"value {kind}"))["value"].dataType)
    return found


def given_schema(aggregators: Mapping[str, Aggregator]) -> StructType:
    """Return the columns of what a vertex gives in a call."""
    return StructType([StructField(name, each.kind) for name, each in aggregators.items()])


def with_aggregated(rows: DataFrame, given: DataFrame, aggregators: Mapping[str, Aggregator], *, vertex: str) -> DataFrame:
    """Return the rows for vertices with the values over all vertices of the superstep before, at the same time.

    Each part of the vertices gets a copy of the values, so that no task has all vertices.

    Args:
        rows: The rows for vertices, with the column ``time``.
        given: What vertices gave, at the times at which it comes round.
        aggregators: The aggregators.
        vertex: The column with the vertex's id.
    """
    columns = [_FUNCTIONS[each.function](F.col(quoted(name))).alias(name) for name, each in aggregators.items()]
    whole = given.groupBy("time").agg(*columns)
    value = F.struct(*(F.col(quoted(name)) for name in aggregators)).alias(AGGREGATED)
    numbers = F.array(*(F.lit(part).cast("bigint") for part in range(_PARTS)))
    copies = whole.select(F.col("time"), value, F.explode(numbers).alias(_PART))
    mine = rows.select("*", F.pmod(F.xxhash64(F.col(quoted(vertex))), F.lit(_PARTS)).alias(_PART))
    return mine.join(copies, ["time", _PART], "left").drop(_PART)
