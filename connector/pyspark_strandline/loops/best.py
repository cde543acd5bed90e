"""The operator of ``iterate`` that lets only improvements go round, and emits the best row of each key at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

from pyspark_strandline.operators.processor import Processor
from strandline.errors import StrandlineError
from strandline.time.domain import Time

__all__ = ["BEST", "Best"]

BEST = "_best"
"""The column that says whether a row is the final best one of its outer time. Other rows are improvements, which go round."""

_LAST = 2**63 - 1


class Best(Processor):
    """Keeps the best row of each key and outer time.

    A row goes on if it is better than all rows of its key and outer time before. At the end of the outer time the best row comes
    out once, and the state of that outer time is removed.

    Attributes:
        order: The columns that decide, the first one first, each with ``min`` or ``max``. They must not be null.
    """

    def __init__(self, schema: StructType, time: str, at: str, order: Mapping[str, str]) -> None:
        wrong = {
            name: how for name, how in order.items() if name not in schema.names or name == time or how not in ("min", "max")
        }
        if wrong or not order:
            raise StrandlineError(
                "STRANDLINE_OPTION_INVALID",
                f"best is {dict(order)}, but the seed has the columns {schema.names}.",
                "Give min or max for some of these columns, without the time.",
            )
        fields = [StructField(name, schema[name].dataType, True) for name in order]
        self.order = dict(order)
        self.schema = StructType([*fields, StructField(BEST, BooleanType(), True)])
        entry = StructType([StructField("outer", StringType(), True), *fields])
        self.state_schema = StructType([StructField("best", ArrayType(entry), True)])

    def on_rows(self, time: Time, rows: pa.Table) -> None:
        outer, columns = time[:-1], [rows.column(name).to_pylist() for name in self.order]
        known = self._known()
        best = before = known.get(repr(outer))
        for row in zip(*columns, strict=True):
            if None in row or any(value != value for value in row):
                raise StrandlineError(
                    "STRANDLINE_RESULT_INVALID",
                    f"A row of the key {self.key} has the values {row} of {list(self.order)}, with a null or a NaN.",
                    "Filter such rows out: they are neither better nor worse.",
                )
            if best is None or self._is_better(row, best):
                best = row
        if best is None or best == before:
            return
        known[repr(outer)] = best
        self._keep(known)
        self.emit(time, [{**dict(zip(self.order, best, strict=True)), BEST: False}])
        self.notify_at((*outer, _LAST))

    def on_notify(self, time: Time) -> None:
        known = self._known()
        best = known.pop(repr(time[:-1]))
        self._keep(known)
        self.emit(time, [{**dict(zip(self.order, best, strict=True)), BEST: True}])

    def _is_better(self, row: tuple[Any, ...], best: tuple[Any, ...]) -> bool:
        for value, other, how in zip(row, best, self.order.values(), strict=True):
            if value != other:
                return bool(value < other) if how == "min" else bool(value > other)
        return False

    def _known(self) -> dict[str, tuple[Any, ...]]:
        entries = (self.state or {"best": []})["best"]
        return {entry["outer"]: tuple(entry[name] for name in self.order) for entry in entries}

    def _keep(self, known: dict[str, tuple[Any, ...]]) -> None:
        entries = [{"outer": outer, **dict(zip(self.order, best, strict=True))} for outer, best in known.items()]
        self.state = {"best": entries} if entries else None
