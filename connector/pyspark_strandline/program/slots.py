"""One row type for all relations of a program: each column has a slot, which relations share by type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from pyspark_strandline.program.expressions import spark_type
from pyspark_strandline.schema import quoted
from strandline.time.arrow import time_field
from strandline.time.domain import TimeDomain

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["RELATION", "RESERVED", "TIME", "Slots"]

TIME, RELATION = "time", "relation"
"""The columns of a row beside its slots: when it holds, and of which relation it is."""
RESERVED = "_program_"
"""How columns begin that a plan makes for itself."""
_SHORT = {"timestamp[us, tz=UTC]": "timestamp", "date32[day]": "date"}


class Slots:
    """The slots of several schemas. A relation's row has nulls in the slots that it does not use.

    Args:
        schemas: The columns of each relation.

    >>> slots = Slots({"a": pa.schema([("x", pa.int64()), ("t", pa.string())]), "b": pa.schema([("n", pa.int64())])})
    >>> slots.names, slots.of["b"]
    (['int64_0', 'string_0'], {'n': 'int64_0'})
    """

    def __init__(self, schemas: Mapping[str, pa.Schema]) -> None:
        self._schemas = schemas
        self.of: dict[str, dict[str, str]] = {}
        kinds: dict[str, pa.DataType] = {}
        for relation, schema in schemas.items():
            used: Counter[str] = Counter()
            self.of[relation] = {}
            for field in schema:
                kind = _SHORT.get(str(field.type), str(field.type))
                slot = f"{kind}_{used[kind]}"
                used[kind] += 1
                self.of[relation][field.name] = slot
                kinds[slot] = field.type
        self._kinds = dict(sorted(kinds.items()))

    @property
    def names(self) -> list[str]:
        """The names of the slots."""
        return list(self._kinds)

    def schema(self, domain: TimeDomain) -> pa.Schema:
        """Return the schema of a channel of rows at times of a domain."""
        return pa.schema([time_field(TIME, domain), pa.field(RELATION, pa.string()), *self._kinds.items()])

    def pack(self, df: DataFrame, relation: str, tag: str | None = None) -> DataFrame:
        """Return the rows of a relation in slots, under its own name or another ``tag``."""
        back = {slot: name for name, slot in self.of[relation].items()}
        columns = [
            (_canonical(back[slot], kind) if slot in back else F.lit(None).cast(spark_type(kind))).alias(slot)
            for slot, kind in self._kinds.items()
        ]
        return df.select(F.col(TIME), F.lit(tag or relation).alias(RELATION), *columns)

    def unpack(self, df: DataFrame, relation: str, tag: str | None = None) -> DataFrame:
        """Return the rows of a relation, out of their slots."""
        rows = df.where(F.col(RELATION) == (tag or relation))
        return rows.select(F.col(TIME), *(F.col(slot).alias(name) for name, slot in self.of[relation].items()))


def _canonical(name: str, kind: pa.DataType) -> Column:
    """Return a column as rows are compared: -0.0 is 0.0, and all NaN are one."""
    column = F.col(quoted(name))
    if kind != pa.float64():
        return column
    return F.when(F.isnan(column), F.lit(float("nan"))).otherwise(column + F.lit(0.0))
