"""The operator of ``iterate`` that lets only improvements go round, and emits the best row of each key at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import CalendarIntervalType, DataType, MapType, StructType, VariantType

from pyspark_strandline.loops import errors
from pyspark_strandline.operators.operator_marker import MARK, mark_metadata
from pyspark_strandline.schema import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BEST", "improvements"]

BEST = "_best"
"""The column that says whether a row is the final best one of its outer time. Other rows are improvements, which go round."""


def improvements(rows: DataFrame, time: str, order: Mapping[str, str]) -> DataFrame:
    """Return the rows that are better than all rows of their key and outer time before, and at the end the best ones.

    The shim's ``BestExec`` does it. It keeps the best row of each key and outer time. At the end of an outer time the best row
    comes out once more, at the last time of it and with ``True`` in the column :data:`BEST`. Then its state is removed.

    Args:
        rows: A stream whose times are structs. All coordinates but the last one are the outer time.
        time: The time column.
        order: The columns that decide, the first one first, each with ``min`` or ``max``. All others, without the time, are
            the key.

    Raises:
        StrandlineError: ``STRANDLINE_OPTION_INVALID`` if ``order`` is not such columns, or has a type without an order.
    """
    wrong = {name: how for name, how in order.items() if name not in rows.columns or name == time or how not in ("min", "max")}
    if wrong or not order:
        raise errors.option_invalid_best(order, rows.columns)
    for name in order:
        kind = rows.schema[name].dataType
        if _lacks_order(kind):
            raise errors.option_invalid_best_type(name, kind)
    key = [name for name in rows.columns if name != time and name not in order]
    text = json.dumps({"order": [[name, how] for name, how in order.items()], "last": BEST})
    mark = F.lit(0).cast("bigint").alias(MARK, metadata={**mark_metadata("best"), "strandline.order": text})
    # No literal: the optimizer may know that a literal stays what it is.
    return rows.select("*", F.isnull(F.col(quoted(time))).alias(BEST), mark).dropDuplicates([time, MARK, *key]).drop(MARK)


def _lacks_order(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_lacks_order(field.dataType) for field in kind.fields)
    return isinstance(getattr(kind, "elementType", kind), MapType | VariantType | CalendarIntervalType)
