"""The bodies of rules as DataFrames, at times ``lex(tick, stratum, iter)``.

What must see the whole of a set groups it by its time: all that it reads comes from earlier strata, so all of it is at the
beginning of the rule's stratum.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from pyspark_strandline.operators.meet import Keep, met
from pyspark_strandline.operators.operator_marker import MARK
from pyspark_strandline.program.expressions import column_of
from pyspark_strandline.program.functions import folded, mapped
from pyspark_strandline.program.slots import RESERVED, TIME
from pyspark_strandline.schema import quoted
from strandline.program.plan import Aggregate, Distinct, Except, Fold, Map, Meet, Node, Read, Select, Top, Union, Where

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Bodies", "Rows"]

_TICK = 1
"""The number of coordinates of a time that are its tick."""
_KEY, _ROW, _ROWS = (f"{RESERVED}{name}" for name in ("key", "row", "rows"))
_PARTS = 128
"""In how many parts what is kept for good is read anew in each tick. It is part of the plan, whose state has it."""


class Rows(NamedTuple):
    """The rows of a node.

    Attributes:
        df: Their columns, and the time.
        keep: ``within``: they hold in their tick. ``always``: from their tick on.
        is_set: Whether each comes once in a tick.
    """

    df: DataFrame
    keep: Keep
    is_set: bool


class Bodies:
    """Compiles the bodies of the rules of one stratum.

    Args:
        read: Returns the rows of a relation, as this stratum reads them.
        ticks: Returns a row at the beginning of the stratum for each tick that has rows at all.
        place: The place of the rule, for errors.
    """

    def __init__(self, read: Callable[[str], Rows], ticks: Callable[[], DataFrame], place: str) -> None:
        self._read, self._ticks, self._place = read, ticks, place

    def of(self, node: Node) -> Rows:
        """Return the rows of a node."""
        match node:
            case Read(relation=relation):
                return self._read(relation)
            case Select():
                rows = self.of(node.child)
                columns = [column_of(value, node.child.schema).alias(name) for name, value in node.columns]
                return rows._replace(df=rows.df.select(F.col(TIME), *columns), is_set=False)
            case Where():
                rows = self.of(node.child)
                return rows._replace(df=rows.df.where(column_of(node.condition, node.child.schema)))
            case Distinct():
                return self.of(node.child)
            case Map():
                rows = self.of(node.child)
                return rows._replace(df=mapped(rows.df, node, TIME, self._place), is_set=False)
            case Union():
                return self._union([self.of(child) for child in node.children])
            case Meet():
                return self._meet(node)
            case Except():
                return self._except(node)
            case Aggregate():
                return Rows(self._aggregated(node), "within", is_set=True)
            case Top():
                return Rows(self._top(node), "within", is_set=True)
            case Fold():
                return Rows(folded(self._whole(node.child), node, TIME, self._place), "within", is_set=True)
        raise TypeError(node)

    def in_tick(self, rows: Rows) -> DataFrame:
        """Return the rows of each tick: what is kept for good is there anew in each tick that has any rows."""
        if rows.keep == "within":
            return rows.df
        columns = [F.col(quoted(name)) for name in rows.df.columns if name != TIME]
        part = F.pmod(F.xxhash64(*columns), F.lit(_PARTS)).alias(_KEY)
        parts = F.array(*(F.lit(each).cast("bigint") for each in range(_PARTS)))
        ticks = self._ticks().select(F.col(TIME), F.explode(parts).alias(_KEY))
        return met(rows.df.select("*", part), ticks, _KEY, within=_TICK, keep=("always", "within")).drop(_KEY)

    def _union(self, several: list[Rows]) -> Rows:
        if len({rows.keep for rows in several}) > 1:
            several = [Rows(self.in_tick(rows), "within", rows.is_set) for rows in several]
        return Rows(reduce(lambda a, b: a.unionByName(b), (rows.df for rows in several)), several[0].keep, is_set=False)

    def _meet(self, node: Meet) -> Rows:
        left, right = self.of(node.left), self.of(node.right)
        on = dict(node.on)
        if node.how == "inner" or (node.how == "left_semi" and left.keep == right.keep == "always"):
            # Rows that are kept for good come in any order of their times, so a left row's first partner need not be the least.
            theirs = right.df if node.how == "inner" else right.df.select(TIME, *map(quoted, on.values()))
            df = met(left.df, theirs, on, within=_TICK, keep=(left.keep, right.keep))
            both: Keep = "always" if left.keep == right.keep == "always" else "within"
            return Rows(df, both, is_set=node.how == "inner" and left.is_set and right.is_set)
        df = met(self.in_tick(left), right.df, on, how=node.how, within=_TICK, keep=("within", right.keep))
        return Rows(df, "within", is_set=left.is_set)

    def _except(self, node: Except) -> Rows:
        left, right = self.of(node.left), self.of(node.right)
        # A struct is never null, so rows with nulls have keys too.
        key = F.struct(*(F.col(quoted(name)) for name in node.schema.names)).alias(_KEY)
        mine, theirs = self.in_tick(left).select("*", key), right.df.select(F.col(TIME), key)
        df = met(mine, theirs, _KEY, how="left_anti", within=_TICK, keep=("within", right.keep))
        return Rows(df.drop(_KEY), "within", is_set=left.is_set)

    def _whole(self, node: Node) -> DataFrame:
        """Return the rows of a set, each once in its tick."""
        rows = self.of(node)
        df = self.in_tick(rows)
        return df if rows.is_set else df.dropDuplicates([TIME, *(name for name in df.columns if name != TIME)])

    def _aggregated(self, node: Aggregate) -> DataFrame:
        functions = {"count": F.count, "sum": F.sum, "min": F.min, "max": F.max}
        columns = [
            functions[function](F.lit(1) if column is None else F.col(quoted(column))).alias(name)
            for name, function, column in node.aggregates
        ]
        grouped = self._whole(node.child).groupBy(TIME, *map(quoted, node.by))
        return grouped.agg(*columns) if columns else grouped.agg(F.count(F.lit(1)).alias(MARK)).drop(MARK)

    def _top(self, node: Top) -> DataFrame:
        names = node.child.schema.names
        rows = (
            self._whole(node.child)
            .groupBy(TIME, *map(quoted, node.by))
            .agg(F.collect_list(F.struct(*(F.col(quoted(name)).alias(name) for name in names))).alias(_ROWS))
        )
        order = [*node.order, *((name, "asc") for name in names if name not in dict(node.order))]

        def compare(a: Column, b: Column) -> Column:
            result = F.lit(0)
            for name, way in reversed(order):
                x, y = a.getField(name), b.getField(name)
                before = F.when(x.isNull(), y.isNotNull()).otherwise(F.coalesce(x < y, F.lit(False)))
                after = F.when(y.isNull(), x.isNotNull()).otherwise(F.coalesce(x > y, F.lit(False)))
                first, second = (before, after) if way == "asc" else (after, before)
                result = F.when(first, F.lit(-1)).when(second, F.lit(1)).otherwise(result)
            return result

        best = F.slice(F.array_sort(F.col(_ROWS), compare), 1, node.k)
        each = rows.select(F.col(TIME), F.explode(best).alias(_ROW))
        return each.select(F.col(TIME), *(F.col(_ROW).getField(name).alias(name) for name in names))
