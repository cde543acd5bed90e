"""Bodies of ``iterate``: what is exact runs and equals a fixed point by brute force, what is not is refused at the call."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import Window
from pyspark.sql import functions as F

from helpers import contents
from loop_bodies import LEAST, BodyPlan, fixed_point
from loop_lake import channel_of, finish
from pyspark_strandline import Processor, advance, hold, iterate, on_complete, process, project, read_loop
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.time.arrow import time_field
from strandline.time.domain import int64

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's workers do not find what the tests import

BODY = "STRANDLINE_LOOP_BODY_UNSUPPORTED"


class Last(Processor):
    schema = "b bigint"

    def on_rows(self, time: Any, rows: pa.Table) -> None:
        self.notify_at(time)


def seeds_of(folder: Path, rows: list[tuple[int, int, int]], until: int = 2) -> str:
    seeds = channel_of(folder / "seeds", ("a", pa.int64()), ("b", pa.int64()))
    with seeds.producer("p") as producer:
        columns = list(zip(*rows, strict=True)) or [(), (), ()]
        producer.send(pa.table(dict(zip(("time", "a", "b"), columns, strict=True)), schema=seeds.schema))
        producer.delay(until)
    return str(folder / "seeds")


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> str:
    return seeds_of(tmp_path_factory.mktemp("bodies"), [(0, 1, 2), (0, 2, 3), (1, 3, 1)])


@pytest.fixture(scope="module")
def edges(spark: Any) -> Any:
    return spark.createDataFrame([(1, 2), (2, 3), (3, 1), (3, 4)], "x long, y long")


def again(rows: Any) -> Any:
    return rows.select(F.col("time").alias("t"), F.col("a").alias("k"), F.col("b").alias("z"))


def joined(rows: Any, edges: Any, how: str = "inner") -> Any:
    return rows.join(edges, rows.b == edges.x, how)


def stepped(rows: Any, edges: Any) -> Any:
    return joined(rows, edges).select("time", "a", F.col("y").alias("b"))


@pytest.mark.parametrize("tag", [{}, {"metadata": {}}])
def test_a_copy_of_the_whole_time_is_a_look_at_the_round(spark: Any, tmp_path: Path, edges: Any, tag: dict[str, Any]) -> None:
    seeds = channel_of(tmp_path / "seeds", ("a", pa.int64()), ("came", pa.struct([("outer", pa.int64()), ("iter", pa.int64())])))

    def body(rows: Any) -> Any:
        return rows.join(edges, rows.a == edges.x).select("time", F.col("y").alias("a"), F.col("time").alias("came", **tag))

    with pytest.raises(AnalysisException, match=rf"{BODY}.*looks at the round of a row \(column came\).*until=3"):
        iterate(spark, str(seeds.path), body, tmp_path / "out")
    iterate(spark, str(seeds.path), body, tmp_path / "out", until=3)


def in_sql(text: str) -> Any:
    def body(rows: Any, edges: Any) -> Any:
        rows.createOrReplaceTempView("rows_of_the_loop")
        edges.createOrReplaceTempView("edges_of_the_loop")
        return rows.sparkSession.sql(text.format(rows="rows_of_the_loop", edges="edges_of_the_loop"))

    return body


REFUSED = {
    "a self join": (
        lambda rows, _: rows.join(again(rows), F.expr("time = t AND b = k")).select("time", "a", F.col("z").alias("b")),
        "joins the loop's rows with themselves.*time = t.*Use meet",
    ),
    "a self join by branches": (
        lambda rows, edges: stepped(rows, edges).join(again(rows.where("a > 1")), F.expr("time = t")).select("time", "a", "b"),
        "joins the loop's rows with themselves",
    ),
    "a self join in SQL": (
        in_sql("WITH r AS (SELECT * FROM {rows}) SELECT p.time, p.a, q.b FROM r p JOIN r q ON p.time = q.time AND p.b = q.a"),
        "joins the loop's rows with themselves",
    ),
    "a semi join with itself": (
        lambda rows, _: rows.join(again(rows), F.expr("time = t AND b = k"), "left_semi"),
        "joins the loop's rows with themselves",
    ),
    "a global max": (
        lambda rows, _: rows.groupBy().agg(*(F.max(name).alias(name) for name in rows.columns)),
        "an aggregation of all rows",
    ),
    "groups without the time": (lambda rows, _: rows.groupBy("a").agg(F.max("b").alias("b")), r"groupBy\(a\).*Group by time too"),
    "groups of a round": (
        lambda rows, _: rows.groupBy("time", "a").agg(F.max("b").alias("b")),
        r"groupBy\(time, a\).*Pass distinct=False",
    ),
    "distinct": (lambda rows, edges: stepped(rows, edges).distinct(), "drops equal rows.*Leave it out"),
    "dropDuplicates": (lambda rows, edges: stepped(rows, edges).dropDuplicates(["time", "a"]), "drops equal rows"),
    "dropDuplicatesWithinWatermark": (lambda rows, _: rows.dropDuplicatesWithinWatermark(["a"]), "drops equal rows"),
    "UNION in SQL": (in_sql("SELECT * FROM {rows} UNION SELECT * FROM {rows}"), "drops equal rows.*UNION ALL"),
    "limit": (lambda rows, edges: stepped(rows, edges).limit(2), "a limit"),
    "offset": (lambda rows, edges: stepped(rows, edges).offset(2), "a limit or an offset"),
    "sort": (lambda rows, edges: stepped(rows, edges).orderBy("b"), "sorts"),
    "sample": (lambda rows, edges: stepped(rows, edges).sample(0.5), "samples"),
    "a window function": (
        lambda rows, edges: rows.withColumn("b", F.max("b").over(Window.partitionBy("time", "a"))),
        "a window function",
    ),
    "an outer join that lacks rows of the loop": (
        lambda rows, edges: joined(rows, edges, "right").select("time", "a", F.col("y").alias("b")),
        "RIGHT OUTER join in which the loop's rows may be missing",
    ),
    "a full outer join": (
        lambda rows, edges: joined(rows, edges, "full").select("time", "a", F.col("y").alias("b")),
        "FULL OUTER join",
    ),
    "an intersection": (lambda rows, edges: stepped(rows, edges).intersect(rows), "INTERSECT"),
    "a function of a group": (
        lambda rows, _: rows.groupBy("a").applyInPandas(lambda frame: frame, rows.schema),
        "FlatMapGroupsInPandas",
    ),
    "a function of batches": (lambda rows, _: rows.mapInArrow(lambda batches: batches, rows.schema), "MapInArrow"),
    "a processor": (lambda rows, _: process(rows.select("time", "a"), Last(), key="a").select("time", "a", "b"), "a Processor"),
    "a function of a round": (
        lambda rows, _: on_complete(rows, lambda time, table: table, rows.schema),
        "on_complete.*distinct=False",
    ),
    "a filter by the round": (
        lambda rows, edges: stepped(rows.where("time.iter < 3"), edges),
        r"looks at the round.*time.*iter.*until=3",
    ),
    "a column of the round": (
        lambda rows, edges: stepped(rows.withColumn("r", F.col("time.iter")), edges),
        r"looks at the round.*time.*iter",
    ),
    "a join by the round": (
        lambda rows, edges: rows.join(edges, F.expr("b = x AND time.iter = y")).select("time", "a", F.col("y").alias("b")),
        "looks at the round",
    ),
    "a text of the whole time": (
        lambda rows, edges: stepped(rows.where("to_json(time) <> ''"), edges),
        "looks at the round",
    ),
    "the round in SQL": (
        in_sql("SELECT time, a, y AS b FROM (SELECT *, time.iter AS n FROM {rows}) JOIN {edges} ON b = x WHERE n < 3"),
        "looks at the round",
    ),
    "a table": (lambda rows, edges: edges, "a table"),
    "no DataFrame": (lambda rows, _: None, "NoneType"),
    "a moved time": (lambda rows, edges: advance(stepped(rows, edges), {"iter": 1}), "not the time of the loop's rows"),
    "an outer time": (
        lambda rows, edges: project(stepped(rows, edges), "outer"),
        "(STRANDLINE_SCHEMA_MISMATCH.*time|not the time)",
    ),
    "a time of its own": (
        lambda rows, edges: stepped(rows, edges).withColumn("time", F.expr("named_struct('outer', 0L, 'iter', 0L)")),
        "not the time of the loop's rows",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_body_that_is_not_exact_is_refused_at_the_call_and_nothing_is_made(
    spark: Any, tmp_path: Path, seeds: str, edges: Any, name: str
) -> None:
    body, message = REFUSED[name]
    with pytest.raises(Exception, match=message) as caught:
        iterate(spark, seeds, lambda rows: body(rows, edges), tmp_path / "out")
    assert "STRANDLINE_" in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.drawn
@pytest.mark.parametrize("options", [{"until": 3}, {"distinct": False, "until": 3}, {"distinct": False}], ids=str)
def test_the_round_may_be_looked_at_where_it_is_a_row_s_own(
    spark: Any, tmp_path: Path, seeds: str, edges: Any, options: dict[str, Any]
) -> None:
    """And the outer coordinate always."""
    iterate(spark, seeds, lambda rows: stepped(rows.where("time.iter < 2"), edges), tmp_path / "out", **options)
    iterate(spark, seeds, lambda rows: stepped(rows.where("time.outer < 2"), edges), tmp_path / "outer")


def test_another_stream_in_a_body_is_refused(spark: Any, tmp_path: Path, seeds: str) -> None:
    def body(rows: Any) -> Any:
        other = spark.readStream.format("rate").load().select(F.col("value").alias("x"))
        return rows.join(other, rows.b == other.x).select("time", "a", "b")

    with pytest.raises(Exception, match=f"{BODY}.*another stream"):
        iterate(spark, seeds, body, tmp_path / "out")


UNCHANGED = {
    "itself": lambda rows, _: rows,
    "other names and back": lambda rows, _: again(rows).select(
        F.col("t").alias("time"), F.col("z").alias("b"), F.col("k").alias("a")
    ),
    "filtered": lambda rows, _: rows.where("a > 1"),
    "one way of two": lambda rows, edges: stepped(rows, edges).unionByName(rows.repartition(2)),
    "in SQL": in_sql("WITH r AS (SELECT * FROM {rows}) SELECT * FROM r WHERE b IN (SELECT x FROM {edges})"),
    "grouped": lambda rows, _: rows.groupBy("time", "a", "b").count().select("time", "a", "b"),
}


@pytest.mark.drawn
@pytest.mark.parametrize("name", UNCHANGED)
def test_rows_that_come_round_as_they_are_are_refused_unless_they_are_dropped(
    spark: Any, tmp_path: Path, seeds: str, edges: Any, name: str
) -> None:
    def call(**form: Any) -> None:
        iterate(spark, seeds, lambda rows: UNCHANGED[name](rows, edges), tmp_path / "out", **form)

    with pytest.raises(Exception, match=f"{BODY}.*go round for ever"):
        call(distinct=False)
    with pytest.raises(Exception, match=f"{BODY}.*go round for ever"):
        call(distinct=False, until="a > 5")
    call(distinct=False, until=3)
    if name != "grouped":
        call()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda rows, edges: joined(rows, edges).select("time", "a"), r"\['time', 'a'\].*It lacks b\."),
        (lambda rows, edges: joined(rows, edges).select("time", "a", "b", "y"), "It has besides y"),
        (lambda rows, edges: joined(rows, edges).select("time", "a", "b", "b"), "It has twice b"),
        (lambda rows, edges: rows.select("time", F.col("a").alias("A"), "b"), "It lacks a, and has besides A"),
        (lambda rows, edges: rows.select("a", "b"), "It lacks time"),
        (
            lambda rows, edges: rows.withColumn("b", F.col("b").cast("int")),
            r"b has the type int, but in the seed it is bigint\. Append \.withColumn\('b', F\.col\('`b`'\)\.cast\('bigint'\)\)",
        ),
        (lambda rows, edges: rows.withColumn("b", F.col("b") / 2), "b has the type double"),
        (lambda rows, edges: rows.withColumn("a", F.lit(None)), "a has the type void"),
    ],
)
def test_other_columns_are_refused_by_name_with_the_cast(
    spark: Any, tmp_path: Path, seeds: str, edges: Any, body: Any, message: str
) -> None:
    with pytest.raises(StrandlineError, match=f"(?s)STRANDLINE_SCHEMA_MISMATCH.*{message}") as caught:
        iterate(spark, seeds, lambda rows: body(rows, edges), tmp_path / "out")
    assert "union" not in str(caught.value).lower()
    assert not (tmp_path / "out").exists()


def test_arguments_that_contradict_each_other_or_are_no_condition_are_refused(
    spark: Any, tmp_path: Path, seeds: str, edges: Any
) -> None:
    def call(**form: Any) -> None:
        iterate(spark, seeds, lambda rows: stepped(rows, edges), tmp_path / "out", **form)

    with pytest.raises(StrandlineError, match="STRANDLINE_OPTION_CONFLICT.*distinct=False"):
        call(best={"b": "min"}, distinct=False)
    for until in ("nowhere > 3", "b + 1", "max(b) > 3", 0):
        with pytest.raises(StrandlineError, match="STRANDLINE_OPTION_INVALID.*until is"):
            call(until=until)


ALLOWED = {
    "views and subqueries of tables": in_sql(
        "WITH r AS (SELECT * FROM {rows}) SELECT r.time, r.a, e.y AS b FROM r JOIN {edges} e ON r.b = e.x "
        "WHERE r.a IN (SELECT x FROM {edges}) AND r.a < (SELECT max(y) FROM {edges}) "
        "UNION ALL SELECT time, a, b + 10 FROM r WHERE b < 10"
    ),
    "outer, semi and anti joins that keep the rows": lambda rows, edges: (
        joined(rows, edges, "left")
        .select("time", "a", F.coalesce("y", "b").alias("b"))
        .join(edges.select(F.col("y").alias("b")).distinct(), "b", "left_semi")
        .join(edges.where("x > 100"), F.col("a") == F.col("x"), "left_anti")
        .select("b", "a", "time")
    ),
    "explode, functions and hold": lambda rows, edges: hold(
        rows.select("time", "a", F.explode(F.sequence(F.col("b") - 1, F.col("b"))).alias("b"))
        .withColumn("b", F.udf(lambda b: b - 1, "long")("b"))
        .where("b > 0"),
        by="a",
    ),
}


@pytest.mark.drawn
@pytest.mark.parametrize("name", ALLOWED)
def test_a_body_that_looks_at_row_by_row_is_exact(spark: Any, tmp_path: Path, edges: Any, name: str) -> None:
    table = [(1, 2), (2, 3), (3, 1), (3, 4)]

    def after(a: int, b: int) -> set[tuple[int, int]]:
        if name.startswith("views"):
            found = {(a, y) for x, y in table if x == b} if a in {1, 2, 3} and a < 4 else set()
            return found | ({(a, b + 10)} if b < 10 else set())
        if name.startswith("outer"):
            return {(a, to) for to in ([y for x, y in table if x == b] or [b]) if to in {y for _, y in table}}
        return {(a, n - 1) for n in (b - 1, b) if n - 1 > 0}

    rows = [(0, 1, 2), (0, 2, 3), (1, 3, 1)]
    seeds_of(tmp_path, rows)
    writer = iterate(spark, tmp_path / "seeds", lambda each: ALLOWED[name](each, edges), tmp_path / "out", maxFilesPerTrigger=1)
    finish(writer, tmp_path / "checkpoint")
    expected, todo = set(), list(rows)
    while todo:
        time, a, b = todo.pop()
        if (time, a, b) not in expected:
            expected.add((time, a, b))
            todo += [(time, *row) for row in after(a, b)]
    assert contents(tmp_path / "out" / "result") == sorted(expected)


@pytest.mark.drawn
def test_groups_of_a_round_add_up_what_follows_from_the_round_before(spark: Any, tmp_path: Path) -> None:
    uses = [(0, 1, 2), (0, 2, 1), (1, 3, 2), (2, 3, 4), (3, 4, 1), (1, 4, 5)]
    table = spark.createDataFrame(uses, "whole long, piece long, n long")
    rows = [(0, 0, 2), (0, 0, 1), (1, 1, 3)]
    seeds_of(tmp_path, rows)

    def body(each: Any) -> Any:
        made = each.join(F.broadcast(table), each.a == table.whole)
        return made.groupBy("time", F.col("piece").alias("a")).agg(F.sum(F.col("b") * F.col("n")).alias("b"))

    writer = iterate(spark, tmp_path / "seeds", body, tmp_path / "out", distinct=False, maxFilesPerTrigger=1)
    finish(writer, tmp_path / "checkpoint")
    expected, level = [], [(time, part, many) for time, part, many in rows]
    while level:
        expected += level
        sums: dict[tuple[int, int], int] = {}
        for time, part, many in level:
            for whole, piece, n in uses:
                if whole == part:
                    sums[time, piece] = sums.get((time, piece), 0) + many * n
        level = [(*key, many) for key, many in sums.items()]
    assert contents(tmp_path / "out" / "result") == sorted(expected)


@pytest.mark.drawn
def test_a_loop_keeps_the_columns_that_it_began_with(spark: Any, tmp_path: Path, edges: Any) -> None:
    """The seed's channel gets a column. The loop goes on without it, and a new loop has it."""
    seeds_of(tmp_path, [(0, 1, 2)], until=1)
    seen: list[list[str]] = []

    def run(out: str) -> None:
        def body(rows: Any) -> Any:
            seen.append(rows.columns)
            more = [name for name in rows.columns if name == "note"]
            return joined(rows, edges).select("time", "a", F.col("y").alias("b"), *more)

        finish(iterate(spark, tmp_path / "seeds", body, tmp_path / out), tmp_path / f"{out}-checkpoint")

    run("out")
    channel = Channel.open(tmp_path / "seeds")
    channel.add_columns(pa.schema([("note", pa.string())]))
    with channel.producer("p") as producer:
        producer.send(pa.table({"time": [1], "a": [5], "b": [3], "note": ["n"]}, schema=channel.schema))
        producer.delay(2)
    run("out")
    assert all(columns == ["time", "a", "b"] for columns in seen)
    around = [(0, 1, n) for n in (1, 2, 3, 4)] + [(1, 5, n) for n in (1, 2, 3, 4)]
    assert contents(tmp_path / "out" / "result") == around
    run("new")
    assert contents(tmp_path / "new" / "result") == [(*row, None if row[0] == 0 else "n") for row in around]


@pytest.mark.parametrize(
    ("body", "form", "expected"),
    [
        (stepped, {}, {"maxRounds": str(2**31)}),  # all values are in the table: it has an end
        (stepped, {"distinct": False}, {"maxRounds": "500", "maxLoopGrowth": "1000"}),
        (stepped, {"distinct": False, "maxrounds": 7, "maxLoopRows": 9}, {"maxrounds": "7", "maxLoopRows": "9"}),
        (lambda rows, _: rows.selectExpr("time", "a", "b + 1 AS b"), {}, {"maxRounds": "500", "maxLoopGrowth": "1000"}),
        (lambda rows, _: rows.selectExpr("time", "a", "b + 1 AS b"), {"until": 700}, {"maxRounds": str(2**31)}),
        (lambda rows, _: rows.selectExpr("time", "a", "b + 1 AS b"), {"best": {"b": "min"}}, {}),  # a key is not made anew
        (
            lambda rows, _: rows.selectExpr("time", "b AS a", "a + 1 AS b"),
            {"best": {"a": "min"}},
            {"maxRounds": "500", "maxLoopGrowth": "1000"},
        ),
        (lambda rows, _: rows.selectExpr("time", "if(a > 1, b, 0) AS a", "least(a, 7) AS b"), {}, {"maxRounds": str(2**31)}),
        (
            lambda rows, _: rows.selectExpr("time", "a", "explode(array(b, a)) AS b"),
            {},
            {"maxRounds": "500", "maxLoopGrowth": "1000"},
        ),
    ],
)
def test_a_loop_that_may_have_no_end_is_bounded_early(
    spark: Any, tmp_path: Path, seeds: str, edges: Any, body: Any, form: dict[str, Any], expected: dict[str, str]
) -> None:
    given: dict[str, Any] = {}

    def spied(*arguments: Any, **options: Any) -> Any:
        given.update(options)
        return read_loop(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyspark_strandline.loops.iterate.read_loop", spied)
        iterate(spark, seeds, lambda rows: body(rows, edges), tmp_path / "out", **form)
    assert {name: str(given[name]) for name in given if name.lower().startswith("max")} == expected


@pytest.mark.drawn
def test_rows_that_multiply_are_stopped_and_the_loop_goes_on_when_the_bound_is_raised(spark: Any, tmp_path: Path) -> None:
    seeds_of(tmp_path, [(0, 0, 0)])

    def run(**options: Any) -> None:
        def body(rows: Any) -> Any:
            more = F.explode(F.sequence(F.col("b") * 12, F.col("b") * 12 + 11))
            return rows.where("a < 4").select("time", (F.col("a") + 1).alias("a"), more.alias("b"))

        finish(iterate(spark, tmp_path / "seeds", body, tmp_path / "out", **options), tmp_path / "checkpoint")

    with pytest.raises(Exception, match="STRANDLINE_LOOP_UNBOUNDED.*after 1 rows from outside, but maxLoopGrowth is 1"):
        run(maxLoopGrowth=1)
    run()
    assert len(contents(tmp_path / "out" / "result")) == sum(12**n for n in range(5))


def test_another_seed_than_that_of_the_loop_is_refused(spark: Any, tmp_path: Path, seeds: str, edges: Any) -> None:
    iterate(spark, seeds, lambda rows: stepped(rows, edges), tmp_path / "out")
    other = pa.schema([time_field("time", int64), ("a", pa.int64()), ("b", pa.int32())])
    Channel.create(tmp_path / "other", other, producers=["p"])
    with pytest.raises(StrandlineError, match=r"STRANDLINE_SCHEMA_MISMATCH.*Begin a new loop|.*begin a new loop"):
        iterate(spark, tmp_path / "other", lambda rows: rows, tmp_path / "out")


TABLE = [(0, 1), (1, 2), (1, 3), (2, 0), (3, 3)]
ROUNDS = 3


def check_body(spark: Any, folder: Path, seed: int) -> bool:
    """Run a random body: its result is the fixed point, or it is refused when ``iterate`` is called. Returns whether it ran."""
    plan, draw = BodyPlan.of(seed, TABLE), random.Random(seed)
    distinct = draw.random() < 0.5
    rows = [(draw.randrange(2), draw.randrange(LEAST), draw.randrange(LEAST)) for _ in range(3)]
    seeds_of(folder, rows)
    table = spark.createDataFrame(TABLE, "x long, y long")
    form: dict[str, Any] = {} if distinct else {"distinct": False, "until": ROUNDS}

    def call() -> Any:
        return iterate(spark, folder / "seeds", lambda each: plan.spark(each, table), folder / "out", **form)

    if not plan.is_exact(distinct):
        with pytest.raises(Exception, match=f"{BODY}|STRANDLINE_UNION_MISMATCH"):  # a global max has no time, which a union says
            call()
        return False
    finish(call(), folder / "checkpoint")
    assert contents(folder / "out" / "result") == fixed_point(plan, rows, distinct, ROUNDS), plan.text
    return True


@pytest.mark.drawn
@pytest.mark.parametrize("first", [0, 100, 200, 300])
def test_a_random_body_gives_its_fixed_point_or_is_refused(spark: Any, tmp_path: Path, first: int) -> None:
    """Some that are refused, and one that runs."""
    for seed in range(first, first + 100):
        if check_body(spark, tmp_path / str(seed), seed):
            return
    raise AssertionError("each body was refused")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_many_random_bodies(spark: Any, tmp_path: Path, seed: int) -> None:
    check_body(spark, tmp_path, seed)
