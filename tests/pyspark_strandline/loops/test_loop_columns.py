"""Loops over columns with names that Spark's expressions would take apart, and names that are refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from helpers import contents
from loop_lake import all_rows, finish, make_lake
from loop_plans import FLAT
from pyspark_strandline import Processor, VertexProgram, enter, hold, iterate, on_complete, pregel, process, project, read_loop
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.arrow import time_field
from strandline.time.domain import int64

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's workers do not find what the tests import

DAY, NODE, COST = "the.day", "No.de", "c`o'st\""


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def seeds_in(folder: Path, **more: pa.DataType) -> str:
    """Create a channel with two rows: node 1 on day 0, node 3 on day 1."""
    schema = pa.schema([time_field(DAY, int64), (NODE, pa.int64()), (COST, pa.int64()), *more.items()])
    channel = Channel.create(folder / "seeds", schema, time=DAY, producers=["p"], at=0)
    with channel.producer("p") as producer:
        rows = {DAY: [0, 1], NODE: [1, 3], COST: [0, 0], **{name: [0, 0] for name in more}}
        producer.send(pa.table(rows, schema=channel.schema))
        producer.delay(2)
    return str(folder / "seeds")


@pytest.mark.drawn
@pytest.mark.parametrize(
    "form",
    [
        {"best": {COST: "min"}, "until": 3},
        pytest.param({"until": 3}, marks=pytest.mark.soak),
        pytest.param({"until": f"{quoted(NODE)} = 4", "distinct": False}, marks=pytest.mark.soak),
        pytest.param({}, marks=pytest.mark.soak),
    ],
)
def test_recursion_over_columns_whose_names_have_dots_and_quotes(spark: Any, tmp_path: Path, form: dict[str, Any]) -> None:
    edges = spark.createDataFrame([(1, 2), (2, 3), (3, 4)], "a long, b long")

    def body(rows: Any) -> Any:
        near = rows.join(F.broadcast(edges), rows[quoted(NODE)] == edges.a)
        return near.select(quoted(DAY), F.col("b").alias(NODE), (F.col(quoted(COST)) + 1).alias(COST))

    finish(iterate(spark, seeds_in(tmp_path), body, tmp_path / "out", **form), tmp_path / "checkpoint")
    assert contents(tmp_path / "out" / "result") == [(0, 1, 0), (0, 2, 1), (0, 3, 2), (0, 4, 3), (1, 3, 0), (1, 4, 1)]
    assert Channel.open(tmp_path / "out" / "result").frontier == Antichain(int64, [2])


class Sum(Processor):
    """Adds up what comes to a node at a time."""

    schema = f"{quoted('su.m')} bigint"
    state_schema = "n bigint"

    def on_rows(self, time: Any, rows: pa.Table) -> None:
        self.state = {"n": (self.state or {"n": 0})["n"] + sum(rows[COST].to_pylist())}
        self.notify_at(time)

    def on_notify(self, time: Any) -> None:
        self.emit(time, [{"su.m": self.state["n"]}])
        self.state = None


def test_complete_times_of_such_columns_come_to_a_function(spark: Any, tmp_path: Path) -> None:
    rows = spark.read.format("strandline").load(seeds_in(tmp_path))
    assert [tuple(row) for row in hold(rows, by=[NODE, COST]).collect()] == [(0, 1, 0), (1, 3, 0)]

    def doubled(time: int, key: tuple[int], table: pa.Table) -> list[dict[str, int]]:
        return [{DAY: time, COST: 2 * key[0] + row[COST]} for row in table.to_pylist()]

    result = on_complete(rows, doubled, rows.select(quoted(DAY), quoted(COST)).schema, key=NODE)
    assert sorted(tuple(row) for row in result.collect()) == [(0, 2), (1, 6)]


@pytest.mark.drawn
@pytest.mark.parametrize("how", ["write", pytest.param("route", marks=pytest.mark.soak)])
def test_any_loop_over_columns_whose_names_have_dots_and_quotes(spark: Any, tmp_path: Path, how: str) -> None:
    seeds = seeds_in(tmp_path)
    inner = pa.schema([time_field(DAY, FLAT), (NODE, pa.int64()), (COST, pa.int64())])
    Channel.create(tmp_path / "back", inner, time=DAY, producers=["loop"])
    paths = {"se.eds": seeds, "ba`ck": str(tmp_path / "back")}
    loop = read_loop(spark, paths, feedback={"ba`ck": {"iter": 1}}, domain=FLAT)
    both = hold(loop["se.eds"].union(loop["ba`ck"]), by=NODE)
    sums = process(both, Sum(), key=NODE).select(quoted(DAY), quoted(NODE), F.col("`su.m`").alias(COST))
    more = sums.select(quoted(DAY), (F.col(quoted(NODE)) + 1).alias(NODE), (F.col(quoted(COST)) + 1).alias(COST))
    if how == "write":
        onward, seen = more.where(F.col(quoted(NODE)) < 5), project(sums, "epoch")
        writer = loop.write({"ba`ck": onward, "se.en": (seen, str(tmp_path / "seen"))})
    else:
        where = F.when(F.col(quoted(NODE)) < 5, F.array(F.lit("ba`ck"), F.lit("se.en"))).otherwise(F.array(F.lit("se.en")))
        routed = more.select("*", where.alias("wh.ere"))
        writer = loop.route(routed, "wh.ere", {"ba`ck": None, "se.en": str(tmp_path / "seen")}, leave={"se.en": "epoch"})
    finish(writer, tmp_path / "checkpoint")
    first = 0 if how == "write" else 1
    expected = [(0, node + first, node - 1 + first) for node in range(1, 5)] + [(1, 3 + first, first), (1, 4 + first, 1 + first)]
    assert contents(tmp_path / "seen") == expected


class Far(VertexProgram):
    """How far a vertex is from the first one."""

    state_schema = f"{quoted('f.ar')} bigint"
    message_schema = f"{quoted('f.ar')} bigint, {quoted('so.me')} bigint"
    schema = f"{quoted('f.ar')} bigint, {quoted('_to')} bigint"

    def compute(self, inputs: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
        far = min([message["f.ar"] for message in messages] + [row[COST] for row in inputs])
        self.state = {"f.ar": far}
        if self.vertex < 4:
            self.send(self.vertex + 1, **{"f.ar": far + 1, "so.me": far})

    def result(self) -> dict[str, Any]:
        assert self.state is not None
        return {"f.ar": self.state["f.ar"], "_to": 7}


def from_all(streams: Any) -> Any:
    return streams["se.eds"].withColumn("wi.th", F.lit(1))


@pytest.mark.drawn
def test_vertices_and_messages_whose_names_have_dots(spark: Any, tmp_path: Path) -> None:
    paths = {"se.eds": seeds_in(tmp_path)}
    finish(pregel(spark, paths, Far(), from_all, tmp_path / "out", vertex=NODE), tmp_path / "checkpoint")
    far = [(0, node, node - 1, 7) for node in range(1, 5)] + [(1, 3, 0, 7), (1, 4, 1, 7)]
    assert contents(tmp_path / "out" / "result") == far


@pytest.mark.parametrize(
    ("names", "condition"),
    [
        ({"vertex": "_kind"}, "STRANDLINE_COLUMN_RESERVED.*'_kind'"),
        ({"vertex": "_M_a"}, "STRANDLINE_COLUMN_RESERVED.*'_M_a'"),
        ({"messages": "a int, A int"}, r"STRANDLINE_KEY_INVALID.*messages.*\['a', 'A'\]"),
        ({"results": "a int, Time int"}, r"STRANDLINE_KEY_INVALID.*results.*\['Time'\]"),
        ({"messages": "`a b` int"}, "STRANDLINE_COLUMN_NAME_INVALID.*'a b'"),
        ({"results": "`a b` int"}, "STRANDLINE_COLUMN_NAME_INVALID.*'a b'"),
        ({"input": "_is"}, "STRANDLINE_COLUMN_RESERVED.*'_is'"),
    ],
)
def test_names_that_pregel_cannot_have_are_refused_at_the_call(
    spark: Any, tmp_path: Path, names: dict[str, str], condition: str
) -> None:
    class Named(Far):
        message_schema = names.get("messages", "a int")
        schema = names.get("results", "a int")

    vertex = names.get("vertex", "node")

    def inputs(streams: Any) -> Any:
        seeds = streams["se.eds"]
        return seeds.select(quoted(DAY), F.col(quoted(NODE)).alias(vertex), F.lit(1).alias(names.get("input", "more")))

    with pytest.raises(StrandlineError, match=condition):
        pregel(spark, {"se.eds": seeds_in(tmp_path)}, Named(), inputs, tmp_path / "out", vertex=vertex)


def test_names_that_iterate_and_outputs_cannot_have_are_refused_at_the_call(spark: Any, tmp_path: Path) -> None:
    seeds = seeds_in(tmp_path, _time_0=pa.int64())
    with pytest.raises(StrandlineError, match="STRANDLINE_COLUMN_RESERVED.*_time_0"):
        iterate(spark, seeds, lambda rows: rows, tmp_path / "out")
    for best in ({"cost": "min"}, {NODE.upper(): "min"}):
        with pytest.raises(StrandlineError, match="STRANDLINE_(OPTION_INVALID|COLUMN_RESERVED)"):
            iterate(spark, seeds, lambda rows: rows, tmp_path / "out", best=best)
    inner = pa.schema([time_field(DAY, FLAT), (NODE, pa.int64())])
    Channel.create(tmp_path / "back", inner, time=DAY, producers=["loop"])
    loop = read_loop(spark, {"seeds": seeds, "back": str(tmp_path / "back")}, feedback={"back": {"iter": 1}}, domain=FLAT)
    rows = loop["back"].withColumn("_TIME_1", F.lit(1)).withColumn("to", F.lit("back"))
    with pytest.raises(StrandlineError, match="STRANDLINE_COLUMN_RESERVED.*_TIME_1"):
        loop.route(rows, "to", {"back": None})
    twice = loop["back"].select(quoted(DAY), quoted(NODE), F.col(quoted(NODE)).alias(NODE.upper()))
    with pytest.raises(StrandlineError, match="STRANDLINE_COLUMN_NAME_INVALID.*NO.DE"):
        loop.write({"back": twice})


@pytest.mark.drawn
def test_what_has_left_the_loop_enters_it_again(spark: Any, tmp_path: Path) -> None:
    """Each number goes down to 1 and counts its rounds. Then the share of its epoch's rows that it has is known."""
    lake = make_lake(tmp_path, first=6)
    numbers = Channel.open(lake / "numbers")
    with numbers.producer("p") as producer:
        producer.send(pa.table({"time": [1, 1], "n": [2, 9]}, schema=numbers.schema))
        producer.delay(2)
    channels = {"numbers": lake / "numbers", "back": lake / "back"}
    loop = read_loop(spark, channels, feedback={"back": {"iter": 1}}, domain=str(FLAT))
    rows = all_rows(loop).groupBy("time", "n").count()
    onward = rows.where("n > 1").select("time", F.expr("n div 2").alias("n"))
    epochs = project(rows, "epoch").groupBy("time").agg(F.sum("count").alias("all"))
    inside = enter(epochs, domain=FLAT)
    finish(loop.write({"back": onward, "sums": (inside, lake / "sums")}), lake / "checkpoint")
    sums = Channel.open(lake / "sums")
    assert contents(lake / "sums") == [((0, 0), 3), ((1, 0), 6)]
    assert sums.frontier == Antichain(FLAT, [(2, 0)])


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("way", "message"),
    [
        (lambda rows: enter(project(rows, "epoch"), domain=FLAT), "STRANDLINE_LOOP_SUMMARY_DIFFERS"),
        (
            lambda rows: rows.join(enter(project(rows, "epoch"), domain=FLAT).select("time"), "time"),
            r"STRANDLINE_LOOP_UNSUPPORTED.*came by different ways",
        ),
    ],
)
def test_what_has_left_the_loop_does_not_go_round(spark: Any, tmp_path: Path, way: Any, message: str) -> None:
    """It would come back to its epoch's first round, or wait there for the epoch's last one."""
    lake = make_lake(tmp_path)
    channels = {"numbers": lake / "numbers", "back": lake / "back"}
    loop = read_loop(spark, channels, feedback={"back": {"iter": 1}}, domain=FLAT)
    with pytest.raises(StreamingQueryException, match=message):
        finish(loop.write({"back": way(all_rows(loop))}), lake / "checkpoint")
    assert contents(lake / "back") == []
