"""The same rows, written in other ways: shuffles, hints, SQL, structs, names, user functions. Nothing here changes a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pandas as pd
from pyspark.sql import functions as F

from plans.environment import CASE_SENSITIVE, Environment
from plans.refusal import SPARKS_ANALYSIS, UNCLOSED
from plans.stream import Operator, Stream
from plans.times import DOMAINS, Domain
from plans.unary import StaticJoin

COLUMNS = ("time", "key", "n")


class Form(Operator):
    """Gives the rows that it takes; ``how`` is drawn from the class's ``FORMS``."""

    FORMS: dict[str, Callable[[Any], Any]]
    domains = DOMAINS
    stateful = False
    how: str

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> Form:
        return cls(r.choice(list(cls.FORMS)))  # type: ignore[call-arg]

    def frame(self, *inputs: Any) -> Any:
        return self.FORMS[self.how](inputs[0])

    def stream(self, *inputs: Stream) -> Stream:
        return inputs[0]


@dataclass(frozen=True)
class Shuffled(Form):
    """Rows sent to other tasks: adaptive execution then plans the query stage by stage."""

    how: str
    FORMS = {  # noqa: RUF012
        "repartition": lambda rows: rows.repartition(3),
        "repartition by key": lambda rows: rows.repartition(2, "key"),
        "repartition by time": lambda rows: rows.repartition("time"),
        "repartitionByRange": lambda rows: rows.repartitionByRange(2, "n"),
        "coalesce": lambda rows: rows.coalesce(1),
        "hint rebalance": lambda rows: rows.hint("rebalance"),
        "hint repartition": lambda rows: rows.hint("repartition", 2),
        "hint coalesce": lambda rows: rows.hint("coalesce", 1),
        "twice": lambda rows: rows.repartition(2).repartition(3, "n"),
    }


@dataclass(frozen=True)
class Renamed(Form):
    """Other names in between, and columns that are made of themselves."""

    how: str
    FORMS = {  # noqa: RUF012
        "withColumnRenamed": lambda rows: rows.withColumnRenamed("time", "t").withColumnRenamed("t", "time"),
        "alias": lambda rows: rows.select(F.col("time").alias("t"), "n", "key").select("t", "key", "n").toDF(*COLUMNS),
        "withColumn": lambda rows: rows.withColumn("time", F.col("time")).withColumn("m", F.col("n")).drop("m"),
        "alias of the frame": lambda rows: rows.alias("a").select("a.time", "a.key", "a.n"),
        "alias twice": lambda rows: rows.select(F.col("time").alias("a").alias("time"), "key", "n"),
        "coalesce of n": lambda rows: rows.withColumn("n", F.coalesce("n", F.lit(0))),
    }


@dataclass(frozen=True)
class InSql(Form):
    """SQL over a temporary view."""

    how: str
    FORMS = {  # noqa: RUF012
        "CTE": lambda rows: _sql(rows, "WITH x AS (SELECT * FROM {v}) SELECT time, key, n FROM x"),
        "subquery": lambda rows: _sql(rows, "SELECT q.time, q.key, q.n FROM (SELECT time, key, n FROM {v}) q"),
        "CTE twice": lambda rows: _sql(
            rows, "WITH x AS (SELECT * FROM {v}), y AS (SELECT time t, key, n FROM x) SELECT t time, key, n FROM y"
        ),
        "hint": lambda rows: _sql(rows, "SELECT /*+ REPARTITION(2) */ time, key, n FROM {v}"),
        "lateral": lambda rows: _sql(rows, "SELECT time, key, n + m - 1 AS n FROM {v} LATERAL VIEW explode(array(1)) AS m"),
    }


def _sql(rows: Any, text: str) -> Any:
    return rows.sparkSession.sql(text, v=rows)


@dataclass(frozen=True)
class InStructs(Form):
    """The time goes into a struct or an array and comes out of it; a product's coordinates are a struct as well.

    Whether it is a time after that is the product's to say; when it says no, what needs one is refused.
    """

    how: str
    FORMS = {  # noqa: RUF012
        "struct": lambda rows: rows.select(F.struct(*COLUMNS).alias("s")).select("s.time", "s.key", "s.n"),
        "star": lambda rows: rows.select(F.struct(*COLUMNS).alias("s")).select("s.*"),
        "nested": lambda rows: rows.select(F.struct(F.struct("time", "n").alias("a"), "key").alias("s")).select(
            "s.a.time", "s.key", "s.a.n"
        ),
        "beside": lambda rows: rows.withColumn("s", F.struct("time", "n")).select(F.col("s.time").alias("time"), "key", "s.n"),
        "inline": lambda rows: rows.selectExpr("inline(array(struct(time, key, n)))"),
        "explode": lambda rows: rows.select(F.explode(F.array(F.struct(*COLUMNS))).alias("s")).select("s.time", "s.key", "s.n"),
        "element": lambda rows: rows.select(F.array("time").getItem(0).alias("time"), "key", "n"),
        "map": lambda rows: rows.select(F.create_map(F.lit("t"), F.col("time")).getItem("t").alias("time"), "key", "n"),
        "shuffled": lambda rows: rows.select(F.struct(*COLUMNS).alias("s")).repartition(2).select("s.time", "s.key", "s.n"),
    }

    def refusals(self, environment: Environment, domain: Domain) -> frozenset[str]:
        return UNCLOSED


@dataclass(frozen=True)
class Disguised(Form):
    """The time's value by an expression, or a user's function, of which nothing is known."""

    how: str
    FORMS = {  # noqa: RUF012
        "user function": lambda rows: rows.withColumn("time", _same(rows.schema["time"].dataType)("time")),
        "when": lambda rows: rows.withColumn("time", F.when(F.col("n") > 0, F.col("time")).otherwise(F.col("time"))),
        "coalesce": lambda rows: rows.withColumn("time", F.coalesce("time", "time")),
        "greatest": lambda rows: rows.withColumn("time", F.greatest("time", "time")),
        "cast": lambda rows: rows.withColumn("time", F.col("time").cast(rows.schema["time"].dataType)),
        "array": lambda rows: rows.withColumn("time", F.array_max(F.array("time", "time"))),
    }

    def refusals(self, environment: Environment, domain: Domain) -> frozenset[str]:
        return UNCLOSED


def _same(kind: Any) -> Any:
    return F.udf(lambda value: value, kind)


@dataclass(frozen=True)
class UserFunction(Form):
    """A user's function beside the time."""

    how: str
    FORMS = {  # noqa: RUF012
        "udf": lambda rows: rows.withColumn("n", F.udf(lambda n: n, "long")("n")),
        "udf of key": lambda rows: rows.withColumn("key", F.udf(lambda key: key, "string")("key")),
        "udf in a filter": lambda rows: rows.where(F.udf(lambda n: n is not None, "boolean")("n")),
        "pandas_udf": lambda rows: rows.withColumn("n", _pandas()("n")),
        "udf that sees the time": lambda rows: rows.withColumn("n", F.udf(lambda time, n: n, "long")("time", "n")),
    }


def _pandas() -> Any:
    def same(n: pd.Series) -> pd.Series:
        return n

    return F.pandas_udf(same, "long")


@dataclass(frozen=True)
class OtherCase(Form):
    """Columns addressed in another case."""

    how: str
    FORMS = {  # noqa: RUF012
        "TIME": lambda rows: rows.select(F.col("TIME").alias("time"), "KEY", "N").toDF(*COLUMNS),
        "where": lambda rows: rows.where("Time IS NOT NULL AND N > -1000000000"),
        "goes on": lambda rows: rows.select("TIME", "Key", "n").withColumnRenamed("time", "time").toDF(*COLUMNS),
    }

    def refusals(self, environment: Environment, domain: Domain) -> frozenset[str]:
        if environment[CASE_SENSITIVE] == "true":
            return frozenset({"UNRESOLVED_COLUMN.WITH_SUGGESTION"})
        return frozenset()


@dataclass(frozen=True)
class NotInStreams(Form):
    """What Spark does not let a stream do, in append and update mode."""

    how: str
    FORMS = {  # noqa: RUF012
        "sample": lambda rows: rows.sample(0.999999999, 1),
        "sort": lambda rows: rows.sort("n"),
        "sortWithinPartitions": lambda rows: rows.sortWithinPartitions("n"),
        "offset": lambda rows: rows.offset(0),
    }

    def refusals(self, environment: Environment, domain: Domain) -> frozenset[str]:
        return frozenset({SPARKS_ANALYSIS})


@dataclass(frozen=True)
class UnionedByName(Form):
    """The rows with themselves, columns in another order."""

    how: str
    FORMS = {  # noqa: RUF012
        "unionByName": lambda rows: rows.unionByName(rows.select("n", "time", "key")),
        "allowMissingColumns": lambda rows: rows.withColumn("m", F.lit(1)).unionByName(rows, allowMissingColumns=True).drop("m"),
        "renamed": lambda rows: rows.union(rows.select(F.col("time").alias("t"), "key", "n")),
    }

    def stream(self, *inputs: Stream) -> Stream:
        return inputs[0].with_rows((*inputs[0].rows, *inputs[0].rows))


@dataclass(frozen=True)
class HintedJoin(StaticJoin):
    """:class:`StaticJoin` by a strategy that a hint names."""

    hint: str

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> HintedJoin:
        return cls(r.choice(("inner", "left")), r.choice(("broadcast", "merge", "shuffle_hash", "shuffle_replicate_nl")))

    def table(self, rows: Any) -> Any:
        return super().table(rows).hint(self.hint)


@dataclass(frozen=True)
class OurSchemaJoin(StaticJoin):
    """:class:`StaticJoin` with a table whose schema is the stream's: its time column has our tag."""

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> OurSchemaJoin:
        return cls(r.choice(("inner", "left")))

    def table(self, rows: Any) -> Any:
        same = rows.sparkSession.createDataFrame([(None, key, more) for key, more in self.ROWS], rows.schema)
        return same.select("key", F.col("n").alias("more"), F.col("time").alias("other"))


FORMS: tuple[type[Operator], ...] = (
    *(Shuffled, Shuffled, Shuffled, Renamed, InSql, UserFunction, OtherCase, UnionedByName),
    *(HintedJoin, HintedJoin, OurSchemaJoin),
)
RARE_FORMS: tuple[type[Operator], ...] = (Disguised, InStructs, NotInStreams)
"""They are refused more often than not, so that few plans have them."""
