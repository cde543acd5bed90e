"""The table of docs/operators.md on batch ends: each operator with a file a batch, and with all files in one batch."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from by_batch import NOT_IN_SPARK, as_json, at, feed, flat, refusal, run, united
from helpers import ROOT
from pyspark_strandline import domain_metadata, hold, on_complete
from strandline.channel import Channel
from strandline.time.arrow import array_of
from strandline.time.domain import timestamp

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's workers do not find what the tests import
SAME, FIRST, CODE = "the same rows", "first come", "the code's own"
FILES: list[tuple[list[tuple[int, str, int]], list[int]]] = [
    ([(1, "k", 0), (1, "l", 1), (5, "k", 2)], [1]),
    ([(1, "k", 3), (5, "l", 4), (5, "k", 2)], [5]),
    ([(12, "k", 5), (5, "k", 6)], [12]),
    ([(12, "k", 7), (13, "m", 8), (12, "k", 5)], []),
]
"""Of each file, the rows (seconds, key, n), and what the producer holds from then on. Groups have rows in several files."""


class Total:
    """A table function that adds up all rows that its task gives it."""

    def __init__(self) -> None:
        self.n = 0

    def eval(self, n: Any) -> None:
        self.n += n if isinstance(n, int) else n["n"]

    def terminate(self) -> Iterator[tuple[int]]:
        yield (self.n,)


class Twice:
    """A table function of each row by itself."""

    def eval(self, n: int) -> Iterator[tuple[int]]:
        yield (2 * n,)


def best(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.sort_values("n", ascending=False).head(1)


def best_arrow(rows: pa.Table) -> pa.Table:
    return rows.sort_by([("n", "descending")]).slice(0, 1)


def counted(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    yield pd.DataFrame({"n": [sum(map(len, frames))]})


def both(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"n": [len(left) * len(right)]})


def both_arrow(left: pa.Table, right: pa.Table) -> pa.Table:
    return pa.table({"n": [left.num_rows * right.num_rows]})


def sql(text: str) -> Callable[[Any, Any], Any]:
    def made(left: Any, right: Any) -> Any:
        left.createOrReplaceTempView("l")
        right.createOrReplaceTempView("r")
        session = left.sparkSession
        for name, function in (("total", Total), ("twice", Twice)):
            session.udtf.register(name, F.udtf(function, returnType="total bigint"))  # type: ignore[arg-type]
        return session.sql(text)

    return made


def table(left: Any, column: str, *values: Any) -> Any:
    return left.sparkSession.createDataFrame([(value,) for value in values], left.select(column).schema)


def summed(left: Any) -> Any:
    return left.groupBy("time", "key").agg(F.sum("n").alias("n"))


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "`select`, `where`, `explode`, `unpivot`": lambda left, _: left.where("n > 0").withColumn(
        "e", F.explode(F.sequence("n", F.lit(9)))
    ),
    "`repartition`, `coalesce`, `observe`": lambda left, _: left.repartition(3).coalesce(1).observe("seen", F.count("*")),
    "`mapInPandas`, `mapInArrow`, a table function, row by row": sql("SELECT * FROM l, LATERAL twice(n)"),
    "`mapInPandas`, `mapInArrow`, across rows": lambda left, _: left.mapInPandas(counted, "n long"),
    "a table function with `terminate`, across rows": sql("SELECT key, total FROM l, LATERAL total(n)"),
    "a table function over `TABLE(…) WITH SINGLE PARTITION`": sql("SELECT * FROM total(TABLE(l) WITH SINGLE PARTITION)"),
    "a table function over `TABLE(…) PARTITION BY …`": sql("SELECT * FROM total(TABLE(l) PARTITION BY time)"),
    "`groupBy(…).applyInPandas`": lambda left, _: left.groupBy("time").applyInPandas(best, left.schema),
    "`groupBy(…).applyInArrow`": lambda left, _: left.groupBy("key").applyInArrow(best_arrow, left.schema),
    "`cogroup(…).applyInPandas`": lambda left, right: (
        left.groupBy("time").cogroup(right.groupBy("time")).applyInPandas(both, "n long")
    ),
    "`cogroup(…).applyInArrow`": lambda left, right: (
        hold(left).groupBy("time").cogroup(hold(right).groupBy("time")).applyInArrow(both_arrow, "n long")
    ),
    "`hold`, then `groupBy` with the time and `applyInPandas`": lambda left, _: (
        hold(left, by="key").groupBy("time", "key").applyInPandas(best, left.schema)
    ),
    "`hold`, then `groupBy` with the time and `applyInArrow`": lambda left, _: (
        hold(left)
        .where("n > 0")
        .withColumnRenamed("time", "at")
        .groupBy("at")
        .applyInArrow(best_arrow, "at timestamp, key string, n long")
    ),
    "`hold`, then `groupBy` without the time and `applyInPandas`": lambda left, _: (
        hold(left).groupBy("key").applyInPandas(best, left.schema)
    ),
    "an aggregation by the time, then `applyInPandas` by the time": lambda left, _: (
        summed(left).groupBy("time").applyInPandas(best, "time timestamp, key string, n long")
    ),
    "a join of streams, then `applyInPandas` by the time": lambda left, right: (
        left.join(right.select(F.col("time").alias("t"), F.col("n").alias("m")), F.expr("time = t AND n = m"))
        .groupBy("time")
        .applyInPandas(best, left.schema.add("t", "timestamp").add("m", "long"))
    ),
    "`zipWithIndex`": lambda left, _: left.zipWithIndex(),
    "aggregation by the time or a window": lambda left, _: left.groupBy(F.window("time", "10 seconds")).agg(
        F.sum("n"), F.max("key")
    ),
    "`pivot`": lambda left, _: left.groupBy("time").pivot("key", ["k", "l"]).sum("n"),
    "`GROUP BY time, ROLLUP(…)`": sql("SELECT time, key, sum(n) FROM l GROUP BY time, ROLLUP(key)"),
    "grouping by a function of the time": lambda left, _: left.groupBy(
        F.udf(lambda t: t, "timestamp")("time").alias("t")
    ).count(),
    "a pandas function as aggregation": lambda left, _: left.groupBy("time").agg(
        F.pandas_udf(lambda v: v.max(), "long", functionType=202)("n")
    ),
    "`first`, `last`, `any_value`; `max_by` of equal values": lambda left, _: left.groupBy("time").agg(F.first("n"), F.last("n")),
    "`collect_list`, `listagg`": lambda left, _: left.groupBy("time").agg(F.sort_array(F.collect_list("n")).alias("n")),
    "`session_window`": lambda left, _: left.groupBy(F.session_window("time", "3 seconds"), "key").agg(F.sum("n")),
    "`distinct`, SQL `DISTINCT`": sql("SELECT DISTINCT * FROM l"),
    "`dropDuplicates`, the key's columns": lambda left, _: left.dropDuplicates(["key"]).select("key"),
    "`dropDuplicates`, the other columns": lambda left, _: left.dropDuplicates(["time", "key"]),
    "`dropDuplicatesWithinWatermark`": lambda left, _: (
        left.withWatermark("time", "3 seconds").dropDuplicatesWithinWatermark(["key"]).select("key", "time")
    ),
    "`limit`, `TABLESAMPLE (n ROWS)`": lambda left, _: left.limit(3),
    "`offset`, `sort`, `sample`, `TABLESAMPLE (n PERCENT)`": lambda left, _: left.sample(0.5, seed=7),
    "a window function": sql("SELECT sum(n) OVER (PARTITION BY time) FROM l"),
    "`rand`, `uuid`, `spark_partition_id`": lambda left, _: left.withColumn("r", F.rand(3)),
    "`monotonically_increasing_id`": lambda left, _: left.withColumn("i", F.monotonically_increasing_id()),
    "join on equal times, inner, outer or semi": lambda left, right: (
        left.alias("l")
        .join(right.alias("r"), F.expr("l.time = r.time AND l.n = r.n + 1"), "left_outer")
        .select("l.*", F.col("r.n").alias("m"))
    ),
    "join with a table, inner, outer, semi or anti": lambda left, _: left.join(table(left, "n", 1, 2), "n", "left_anti"),
    "`EXCEPT` a table, with the time": lambda left, _: left.subtract(left.sparkSession.createDataFrame([], left.schema)),
    "`EXCEPT` a table, without the time": lambda left, _: left.select("key").subtract(table(left, "key", "l")),
    "`EXCEPT ALL` a table, with the time": lambda left, _: left.exceptAll(left.sparkSession.createDataFrame([], left.schema)),
    "`INTERSECT` a table, `EXCEPT` a stream": lambda left, _: left.select("key").intersect(table(left, "key", "l")),
    "`IN`, `NOT IN`, `EXISTS` with a table": sql(
        "SELECT * FROM l WHERE n NOT IN (SELECT id FROM range(3)) AND EXISTS (SELECT 1 FROM range(7) WHERE id = n)"
    ),
    "a lateral subquery, or a correlated one, with an aggregation": sql(
        "SELECT * FROM l, LATERAL (SELECT sum(c) AS s FROM explode(sequence(0, l.n)) AS t(c))"
    ),
    "a recursive query": sql(
        "WITH RECURSIVE t(n) AS (SELECT n FROM l UNION ALL SELECT n + 1 FROM t WHERE n < 3) SELECT * FROM t"
    ),
    "`union`, a self-join": lambda left, _: summed(left.union(left)),
    "`hold`": lambda left, _: hold(left, by="key"),
    "`on_complete`": lambda left, _: on_complete(left, lambda time, key, rows: best_arrow(rows), left.schema, key="key"),
}

DETERMINED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "`first`, `last`, `any_value`; `max_by` of equal values": lambda row: row["time"],
    "`collect_list`, `listagg`": lambda row: (row["time"], row["n"]),
    "`dropDuplicates`, the other columns": lambda row: (row["time"], row["key"]),
    "`dropDuplicatesWithinWatermark`": lambda row: row["key"],
    "`limit`, `TABLESAMPLE (n ROWS)`": lambda row: True,
}
"""Of a row of an operator that takes the first that comes: what no order changes."""


def cells() -> dict[str, str]:
    section = (ROOT / "docs" / "operators.md").read_text().split("## Where a batch ends\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| ")]
    start = next(i for i, row in enumerate(rows) if row[0] == "operator")
    return {row[0]: row[1] for row in rows[start + 1 :]}


Read = Callable[[str, int], Any]


@pytest.fixture(scope="module")
def read(spark: Any, tmp_path_factory: Any) -> Read:
    """Streams of two channels with the same rows, of so many files a batch."""
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    folder = tmp_path_factory.mktemp("ends")
    for side in "lr":
        channel = feed(folder / side)
        for rows, then in FILES:
            with channel.producer("a") as producer:
                times, keys, numbers = zip(*((at(second), key, n) for second, key, n in rows), strict=True)
                producer.send(pa.table({"time": array_of(list(times), timestamp), "key": list(keys), "n": list(numbers)}))
                producer.delay([at(second) for second in then])
    return lambda side, files: spark.readStream.format("strandline").option("maxFilesPerTrigger", files).load(str(folder / side))


def rows_of(read: Read, operators: list[str], files: int, checkpoint: Path) -> dict[str, list[str]]:
    left, right = read("l", files), read("r", files)
    found: dict[str, list[str]] = {operator: [] for operator in operators}
    for operator, row in flat(run(united([as_json(OPERATORS[o](left, right), o) for o in operators]), checkpoint)):
        found[operator].append(row)
    return found


PARTS = 4
"""The operators go in so many queries, of which ``make test`` draws one."""


def test_the_page_has_each_operator() -> None:
    assert cells().keys() == OPERATORS.keys()


@pytest.mark.drawn
@pytest.mark.parametrize("part", range(PARTS))
def test_what_the_page_calls_the_same_has_the_same_rows_in_any_batches(read: Read, tmp_path: Path, part: int) -> None:
    together = [operator for operator, cell in cells().items() if cell in (SAME, FIRST, CODE)][part::PARTS]
    parted, whole = (rows_of(read, together, files, tmp_path / str(files)) for files in (1, 100))
    for operator in together:
        cell = cells()[operator]
        if cell == SAME:
            assert parted[operator] == whole[operator], operator
        elif cell == FIRST:
            a, b = ({str(DETERMINED[operator](json.loads(row))) for row in found[operator]} for found in (parted, whole))
            assert a == b, operator
    if (limit := "`limit`, `TABLESAMPLE (n ROWS)`") in together:
        assert len(parted[limit]) == len(whole[limit]) == 3
    if (across := "`mapInPandas`, `mapInArrow`, across rows") in together:
        assert parted[across] != whole[across]


@pytest.mark.drawn
def test_what_depends_on_batch_ends_is_refused(read: Read, tmp_path: Path) -> None:
    for operator, cell in cells().items():
        if cell in (SAME, FIRST, CODE):
            continue
        said = "nothing"
        try:
            run(OPERATORS[operator](read("l", 1), read("r", 1)), tmp_path / operator.replace("/", ""))
        except PySparkException as error:
            said = refusal(error) if "STRANDLINE" in str(error) else NOT_IN_SPARK
        assert said == cell, operator


def written(frame: Any, folder: Path) -> list[tuple[Any, ...]]:
    writer = frame.writeStream.format("strandline").option("checkpointLocation", f"{folder}-checkpoint")
    writer.trigger(availableNow=True).start(str(folder)).awaitTermination()
    return sorted(tuple(row.values()) for row in Channel.open(folder).read().to_pylist())


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("key", lambda: "key"),
        pytest.param('a"b\\', lambda: '`a"b\\`', marks=pytest.mark.drawn),
        pytest.param("key", lambda: F.concat("key", F.lit('"\\')), marks=pytest.mark.drawn),
        pytest.param("Key", lambda: F.upper("Key").alias("k"), marks=pytest.mark.drawn),
    ],
    ids=["name", "quotes", "expression", "alias"],
)
def test_a_grouped_function_is_refused_before_a_channel_and_the_remedy_works_as_printed(
    read: Read, tmp_path: Path, name: str, key: Any
) -> None:
    """Public questions on applyInPandas over streams: a function over the rows of a group was called once a batch."""

    def renamed(files: int) -> Any:
        return read("l", files).withColumnRenamed("key", name)

    schema = renamed(1).schema
    with pytest.raises(PySparkException, match=r"STRANDLINE_OPERATOR_UNSUPPORTED.*groupBy\(.*, time\).applyInPandas") as refused:
        written(renamed(1).groupBy(key(), "time").applyInPandas(best, schema), tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    code = re.search(r"(hold\(df\)\.groupBy\(.*\)\.applyInPandas\(function, schema\))", str(refused.value))
    assert code is not None
    found = []
    for files in (1, 100):
        names = {"hold": hold, "df": renamed(files), "function": best, "schema": schema, "F": F}
        found.append(written(eval(code.group(1), names), tmp_path / str(files)))  # noqa: S307
    assert found[0] == found[1]
    groups = {(second, key) for rows, _ in FILES for second, key, _ in rows}
    expected = {(s, k): max(n for rows, _ in FILES for s2, k2, n in rows if (s, k) == (s2, k2)) for s, k in groups}
    assert [n for *_, n in found[0]] == [expected[group] for group in sorted(expected)]


@pytest.mark.drawn
def test_times_of_a_function_are_checked_by_the_sink(read: Read, tmp_path: Path) -> None:
    """A function's schema declares its times. A row at a closed time is refused, in the batch after the one that closed it."""
    first = at(1)

    def early(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.set_column(0, "time", pa.array([first] * batch.num_rows, pa.timestamp("us", "UTC")))

    schema = read("l", 1).schema
    assert schema["time"].metadata == domain_metadata("timestamp")
    with pytest.raises(PySparkException, match="STRANDLINE_"):
        written(read("l", 1).mapInArrow(early, schema), tmp_path / "early")
    assert len(Channel.open(tmp_path / "early").read()) == 6  # those of the first two batches, which hold second 1
