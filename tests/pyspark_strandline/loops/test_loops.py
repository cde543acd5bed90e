"""Loops in Spark: recursion, vertex programs, random loops against plain Python, restarts, and what is refused."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F

import loop_plans
from helpers import ROOT, contents, settings
from killed import run_killed
from loop_lake import all_rows, channel_of, finish, make_lake
from loop_plans import FLAT, LoopPlan, create, results, send, start
from pyspark_strandline import (
    Processor,
    VertexProgram,
    advance,
    iterate,
    on_complete,
    pregel,
    process,
    project,
    read_loop,
)
from pyspark_strandline.read.several.offset import checksum
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.arrow import array_of, time_field
from strandline.time.domain import int64, parse_domain
from strandline.time.path.entry import Entry

pytestmark = pytest.mark.spark
for _module in (sys.modules[__name__], loop_plans):
    cloudpickle.register_pickle_by_value(_module)  # Spark's workers do not find what the tests import


@pytest.mark.drawn
def test_rows_go_round_until_nothing_new_comes_for_each_epoch(spark: Any, tmp_path: Path) -> None:
    """Reachability in a graph with a cycle. The second run goes on from the checkpoint, with an epoch that was open before."""
    pairs = [(1, 2), (2, 3), (3, 1), (3, 4), (5, 6)]
    edges = spark.createDataFrame(pairs, "a long, b long")
    graph = nx.DiGraph(pairs)
    seeds = channel_of(tmp_path / "seeds", ("node", pa.int64()))

    def run() -> Any:
        def body(rows: Any) -> Any:
            return rows.join(F.broadcast(edges), rows.node == edges.a).select("time", F.col("b").alias("node"))

        writer = iterate(spark, str(tmp_path / "seeds"), body, tmp_path / "reached", maxFilesPerTrigger=1)
        return finish(writer, tmp_path / "checkpoint")

    def expected(*starts: tuple[int, int]) -> list[tuple[int, int]]:
        return sorted({(time, node) for time, start in starts for node in {start, *nx.descendants(graph, start)}})

    with seeds.producer("p") as producer:
        producer.send(pa.table({"time": [0, 0], "node": [1, 5]}))
        producer.delay(1)
        producer.commit()
        producer.send(pa.table({"time": [1], "node": [4]}))
        producer.commit()
    run()
    reached = Channel.open(tmp_path / "reached" / "result")
    assert contents(tmp_path / "reached" / "result") == expected((0, 1), (0, 5), (1, 4))
    assert reached.frontier == Antichain(int64, [1])
    with seeds.producer("p") as producer:
        producer.send(pa.table({"time": [1], "node": [3]}))
        producer.delay([])
    run()
    assert contents(tmp_path / "reached" / "result") == expected((0, 1), (0, 5), (1, 4), (1, 3))
    assert Channel.open(tmp_path / "reached" / "result").frontier == Antichain(int64)
    batches = len(list((tmp_path / "checkpoint" / "offsets").iterdir()))
    run()
    assert len(list((tmp_path / "checkpoint" / "offsets").iterdir())) == batches  # at rest


@pytest.mark.drawn
def test_only_improvements_go_round_and_the_best_is_the_result(spark: Any, tmp_path: Path) -> None:
    draw = random.Random(3)
    graph = nx.gnp_random_graph(8, 0.3, seed=3, directed=True)
    weighted = [(a, b, draw.randint(1, 9)) for a, b in graph.edges]
    for a, b, weight in weighted:
        graph[a][b]["weight"] = weight
    edges = spark.createDataFrame(weighted, "a long, b long, w long")
    starts = channel_of(tmp_path / "starts", ("node", pa.int64()), ("far", pa.int64()))
    with starts.producer("p") as producer:
        producer.send(pa.table({"time": [0, 1], "node": [0, 5], "far": [0, 0]}))
        producer.delay(2)

    def body(rows: Any) -> Any:
        near = rows.join(F.broadcast(edges), rows.node == edges.a)
        return near.select("time", F.col("b").alias("node"), (F.col("far") + F.col("w")).alias("far"))

    finish(iterate(spark, str(tmp_path / "starts"), body, tmp_path / "paths", best={"far": "min"}), tmp_path / "checkpoint")
    lengths = {time: nx.single_source_dijkstra_path_length(graph, start) for time, start in ((0, 0), (1, 5))}
    assert contents(tmp_path / "paths" / "result") == sorted(
        (t, n, far) for t, each in lengths.items() for n, far in each.items()
    )


@pytest.mark.drawn
@pytest.mark.parametrize(("limit", "best"), [pytest.param(None, None, marks=pytest.mark.soak), (1, {"cost": "min"})])
def test_a_number_of_rounds_does_not_depend_on_the_order_of_the_seeds(
    spark: Any, tmp_path: Path, limit: int | None, best: dict[str, str] | None
) -> None:
    """C is reached by two rounds from A, and is a seed itself: two more rounds lead on from it, whatever comes first."""
    edges = spark.createDataFrame([("A", "B"), ("B", "C"), ("C", "D"), ("D", "E"), ("E", "F")], "a string, b string")
    seeds = channel_of(tmp_path / "seeds", ("node", pa.string()), ("cost", pa.int64()))

    def body(rows: Any) -> Any:
        return rows.join(F.broadcast(edges), rows.node == edges.a).select("time", F.col("b").alias("node"), "cost")

    def run() -> None:
        options = {} if limit is None else {"maxFilesPerTrigger": limit}
        writer = iterate(spark, str(tmp_path / "seeds"), body, tmp_path / "out", until=2, best=best, **options)
        finish(writer, tmp_path / "checkpoint")

    with seeds.producer("p") as producer:
        producer.send(pa.table({"time": [0], "node": ["A"], "cost": [0]}))
        producer.commit()
        if limit is None:
            run()
        producer.send(pa.table({"time": [0], "node": ["C"], "cost": [0]}))
        producer.delay([1])
    run()
    assert contents(tmp_path / "out" / "result") == [(0, node, 0) for node in "ABCDE"]


@pytest.mark.drawn
def test_a_checkpoint_of_another_form_is_refused(spark: Any, tmp_path: Path) -> None:
    channel_of(tmp_path / "seeds", ("n", pa.int64()))

    def run(**options: Any) -> None:
        writer = iterate(spark, str(tmp_path / "seeds"), lambda rows: rows.where("n > 3"), tmp_path / "out", **options)
        finish(writer, tmp_path / "checkpoint")

    run(until=3)
    run(until=3)
    for other in ({"until": 4}, {"until": 3, "distinct": False}):
        with pytest.raises(Exception, match="STRANDLINE_CHECKPOINT_MISMATCH.*the form.*new channels"):
            run(**other)
    newest = newest_offset(tmp_path / "checkpoint")
    for path in (tmp_path / "checkpoint" / "commits").glob(f"*{newest.name}*"):
        path.unlink()  # the batch is repeated, with the operators of another form
    with pytest.raises(Exception, match="STRANDLINE_CHECKPOINT_MISMATCH.*the form"):
        run(until=3, best={"n": "min"})
    run(until=3)
    offset = newest_offset(tmp_path / "checkpoint")
    change_offset(offset, form=None)  # an older form of offsets is refused, too
    with pytest.raises(Exception, match="STRANDLINE_CHECKPOINT_MISMATCH.*the form"):
        run(until=3)


def newest_offset(checkpoint: Path) -> Path:
    return max((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))


def change_offset(path: Path, **fields: Any) -> None:
    """Change fields of the source's offset in a checkpoint, or remove those that are ``None``. Its checksum fits."""
    *head, text = path.read_text().split("\n")
    body = {name: field for name, field in {**json.loads(text), **fields}.items() if field is not None}
    body["checksum"] = checksum(body)
    path.write_text("\n".join([*head, json.dumps(body)]))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


class AtTheEnd(Processor):
    """Emits a row of each epoch when the loop is at rest."""

    schema = "n bigint"

    def on_rows(self, time: Any, rows: pa.Table) -> None:
        self.notify_at((time[0], 2**63 - 1))

    def on_notify(self, time: Any) -> None:
        self.emit(time, [{"n": 1}])


@pytest.mark.drawn
def test_a_row_at_the_last_time_is_no_row_that_goes_round(spark: Any, lake: Path) -> None:
    loop = loop_of(spark, lake)
    ends = process(all_rows(loop).withColumn("k", F.lit(1)), AtTheEnd(), key="k").select("time", "n")
    refused("STRANDLINE_TIME_OVERFLOW.*back has no time there", loop.write({"back": ends}), lake)


@pytest.mark.drawn
def test_equal_rows_that_are_added_up_all_go_round(spark: Any, tmp_path: Path) -> None:
    """Two wheels with two bolts each, and a frame with four: eight bolts."""
    pairs = [("bicycle", "wheel", 2), ("bicycle", "frame", 1), ("wheel", "bolt", 2), ("frame", "bolt", 4)]
    uses = spark.createDataFrame(pairs, "whole string, piece string, many long")
    orders = channel_of(tmp_path / "orders", ("part", pa.string()), ("n", pa.int64()))
    with orders.producer("p") as producer:
        producer.send(pa.table({"time": [0], "part": ["bicycle"], "n": [1]}))
        producer.delay([1])

    def body(rows: Any) -> Any:
        made = rows.join(F.broadcast(uses), rows.part == uses.whole)
        return made.select("time", F.col("piece").alias("part"), (F.col("n") * F.col("many")).alias("n"))

    finish(iterate(spark, str(tmp_path / "orders"), body, tmp_path / "out", distinct=False), tmp_path / "checkpoint")
    rows = contents(tmp_path / "out" / "result")
    assert rows == [(0, "bicycle", 1), (0, "bolt", 4), (0, "bolt", 4), (0, "frame", 1), (0, "wheel", 2)]


class Smallest(VertexProgram):
    """Connected components."""

    state_schema = "label bigint, neighbours array<bigint>"
    message_schema = "label bigint"
    schema = "label bigint"

    def compute(self, inputs: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
        known = self.state or {"label": self.vertex, "neighbours": []}
        new = [row["other"] for row in inputs]
        label = min([known["label"], *(message["label"] for message in messages)])
        neighbours = known["neighbours"] + new
        for other in neighbours if label < known["label"] else new:
            self.send(other, label=label)
        self.state = {"label": label, "neighbours": neighbours}

    def result(self) -> dict[str, Any]:
        assert self.state is not None
        return {"label": self.state["label"]}


def both_ends(loop: Any) -> Any:
    there = loop["edges"].select("time", F.col("a").alias("vertex"), F.col("b").alias("other"))
    return there.union(loop["edges"].select("time", F.col("b").alias("vertex"), F.col("a").alias("other")))


@pytest.mark.drawn
def test_the_components_of_a_graph_that_grows_are_those_of_networkx_each_day(spark: Any, tmp_path: Path) -> None:
    draw, graph = random.Random(7), nx.Graph()
    edges = channel_of(tmp_path / "edges", ("a", pa.int64()), ("b", pa.int64()))
    expected: dict[int, dict[int, int]] = {}
    with edges.producer("p") as producer:
        for day in range(2):
            new = [(draw.randrange(12), draw.randrange(12)) for _ in range(6)]
            graph.add_edges_from(new)
            producer.send(pa.table({"time": [day] * 6, "a": [a for a, _ in new], "b": [b for _, b in new]}))
            producer.delay(day + 1)
            producer.commit()
            expected[day] = {node: min(part) for part in nx.connected_components(graph) for node in part}
    paths = {"edges": str(tmp_path / "edges")}
    finish(pregel(spark, paths, Smallest(), both_ends, tmp_path / "out", maxFilesPerTrigger=1), tmp_path / "checkpoint")

    class Other(Smallest):
        state_schema = "label bigint, neighbours array<int>"

    with pytest.raises(Exception, match="STRANDLINE_CHECKPOINT_MISMATCH.*array<int>"):
        finish(pregel(spark, paths, Other(), both_ends, tmp_path / "out"), tmp_path / "checkpoint")
    found: dict[int, int] = {}
    rows = contents(tmp_path / "out" / "result")
    assert len({row[:2] for row in rows}) == len(rows)
    for day in range(2):
        found.update({vertex: label for time, vertex, label in rows if time == day})
        assert found == expected[day]
    assert Channel.open(tmp_path / "out" / "result").frontier == Antichain(int64, [2])


def check_plan(spark: Any, folder: Path, seed: int) -> None:
    """Run a random loop, phase after phase; after each, exactly what is closed is there."""
    plan = LoopPlan.of(seed)
    create(folder, plan)
    entry, at = Entry(int64, plan.domain), 0
    with settings(spark, plan.settings):
        for number, phase in enumerate(plan.phases):
            at = send(folder, phase, at)
            start(spark, folder, plan).awaitTermination()
            frontier = Channel.open(folder / "seen").frontier
            assert frontier == Antichain(plan.domain, [entry.time(at)]), (plan, number)
            so_far = LoopPlan(**{**plan.__dict__, "phases": plan.phases[: number + 1]})
            assert results(folder) == so_far.seen(frontier), (plan, number)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", [13, 15, 25, 27, 49, 53])  # each shape and each operator
def test_random_loops_are_exact_and_come_to_rest(spark: Any, tmp_path: Path, seed: int) -> None:
    check_plan(spark, tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_many_random_loops(spark: Any, tmp_path: Path, seed: int) -> None:
    check_plan(spark, tmp_path, seed)


def check_kills(folder: Path, seed: int, kills: int) -> None:
    """Run a random loop whose process is killed again and again, at commits that are drawn."""
    plan, draw, at = LoopPlan.of(seed), random.Random(seed), 0
    create(folder, plan)
    for phase in plan.phases:
        at = send(folder, phase, at)
    command = [sys.executable, str(ROOT / "tests" / "support" / "loop_query.py"), str(folder), str(seed)]
    logs = [folder / name / "_delta_log" for name in ("seen", *plan.ways)]

    def commits() -> int:
        return sum(len(list(log.glob("*.json"))) for log in logs if log.exists())

    run_killed(command, folder / "log", commits, draw, kills=kills, most=4)
    frontier = Channel.open(folder / "seen").frontier
    assert frontier == Antichain(plan.domain, [Entry(int64, plan.domain).time(at)])
    assert results(folder) == plan.seen(frontier)


@pytest.mark.soak  # test_loop_queries.py kills one of two queries of a loop in some runs of the tests
@pytest.mark.parametrize("seed", range(2000, 2010))
def test_many_kills_in_loops(tmp_path: Path, seed: int) -> None:
    check_kills(tmp_path, seed, kills=4)


# ---- what is refused -------------------------------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return make_lake(tmp_path)


def loop_of(spark: Any, lake: Path, **options: Any) -> Any:
    paths = {"numbers": str(lake / "numbers"), "back": str(lake / "back")}
    return read_loop(spark, paths, feedback={"back": {"iter": 1}}, domain=FLAT, **options)


def refused(condition: str, writer: Any, lake: Path) -> str:
    with pytest.raises(Exception, match=condition) as caught:
        finish(writer, lake / f"checkpoint-{len(list(lake.iterdir()))}")
    assert not Channel.open(lake / "back").read().num_rows
    return str(caught.value)


@pytest.mark.drawn
def test_a_loop_without_an_end_is_stopped_and_goes_on_when_the_bound_is_raised(spark: Any, lake: Path) -> None:
    def writer(**options: Any) -> Any:
        loop = loop_of(spark, lake, **options)
        rows = all_rows(loop)
        fewer = rows.where("n > 0").withColumn("n", F.col("n") - 1)
        return loop.write({"back": fewer, "done": (project(rows.where("n = 0"), "epoch"), str(lake / "done"))})

    with pytest.raises(Exception, match="STRANDLINE_LOOP_UNBOUNDED") as caught:
        finish(writer(maxRounds=2), lake / "checkpoint")
    assert "(epoch=0, iter=3)" in str(caught.value)
    with pytest.raises(Exception, match="STRANDLINE_LOOP_UNBOUNDED.*maxLoopRows is 3"):
        finish(writer(maxLoopRows=3), lake / "checkpoint")
    finish(writer(), lake / "checkpoint")
    assert contents(lake / "done") == [(0, 0)]
    assert contents(lake / "back") == [((0, i), 5 - i) for i in range(1, 6)]


@pytest.mark.drawn
def test_a_loop_over_a_channel_without_anything_yet_begins_and_goes_on(spark: Any, tmp_path: Path) -> None:
    Channel.create(tmp_path / "numbers", pa.schema([time_field("time", int64), ("n", pa.int64())]), producers=["p"])
    Channel.create(tmp_path / "back", pa.schema([time_field("time", FLAT), ("n", pa.int64())]), producers=["loop"])

    def run() -> None:
        rows = all_rows(loop := loop_of(spark, tmp_path))
        fewer = rows.where("n > 0").withColumn("n", F.col("n") - 1)
        finish(loop.write({"back": fewer, "seen": (rows, str(tmp_path / "seen"))}), tmp_path / "checkpoint")

    run()
    run()
    with Channel.open(tmp_path / "numbers").producer("p") as producer:
        producer.send(pa.table({"time": [3], "n": [1]}))
        producer.delay([])
    run()
    assert contents(tmp_path / "seen") == [((3, 0), 1), ((3, 1), 0)]


@pytest.mark.drawn
def test_a_loop_that_is_not_declared_or_not_closed_is_refused(spark: Any, lake: Path) -> None:
    loop = loop_of(spark, lake)
    with pytest.raises(StrandlineError, match="STRANDLINE_LOOP_OPEN"):
        loop.write({"done": (all_rows(loop), str(lake / "done"))})
    plain = all_rows(loop).writeStream.format("strandline").option("path", str(lake / "done"))
    refused("STRANDLINE_LOOP_OPEN", plain, lake)
    refused("STRANDLINE_LOOP_OPEN", all_rows(loop).writeStream.format("noop"), lake)
    batches = all_rows(loop).writeStream.foreachBatch(lambda rows, number: None)
    refused("STRANDLINE_LOOP_OPEN.*the sink ForeachBatch.*a second query", batches, lake)
    delta = all_rows(loop).writeStream.format("delta").option("path", str(lake / "delta"))
    refused("STRANDLINE_LOOP_OPEN.*the sink Delta", delta, lake)
    memory = all_rows(loop).writeStream.format("memory").queryName("rows_of_a_loop")
    refused("STRANDLINE_LOOP_OPEN.*the sink MemorySink", memory, lake)
    reader = spark.readStream.format("strandline").load(str(lake / "back"))
    refused("STRANDLINE_LOOP_UNDECLARED", reader.writeStream.format("strandline").option("path", str(lake / "back")), lake)


@pytest.mark.drawn
def test_times_that_move_otherwise_than_the_feedback_are_refused(spark: Any, lake: Path) -> None:

    loop = loop_of(spark, lake)
    message = refused("STRANDLINE_LOOP_SUMMARY_DIFFERS", loop.write({"back": advance(all_rows(loop), {"iter": 1})}), lake)
    assert "iter" in message


def _same(table: Any) -> Any:
    return table


def _later() -> Any:
    return F.udf(lambda time: time, "epoch bigint, iter bigint")


@pytest.mark.drawn
@pytest.mark.parametrize(
    "make",
    [
        lambda rows: rows.mapInPandas(lambda frames: frames, rows.schema),
        lambda rows: rows.mapInArrow(lambda batches: batches, rows.schema),
        lambda rows: rows.groupBy("n").applyInPandas(_same, rows.schema),
        lambda rows: rows.groupBy("n").applyInArrow(_same, rows.schema),
        lambda rows: rows.select(_later()("time").alias("time", metadata=rows.schema["time"].metadata), "n"),
        lambda rows: rows.select(
            F.struct("time.epoch", (F.col("time.iter") + 5).alias("iter")).alias("time", metadata=rows.schema["time"].metadata),
            "n",
        ),
    ],
)
def test_times_that_a_user_creates_are_refused(spark: Any, lake: Path, make: Any) -> None:
    loop = loop_of(spark, lake)
    assert "time" in refused("STRANDLINE_LOOP_UNSUPPORTED", loop.write({"back": make(all_rows(loop))}), lake)


@pytest.mark.drawn
@pytest.mark.parametrize("own", ["on_complete", "process"])
def test_a_function_with_the_schema_of_a_result_of_ours_is_refused(spark: Any, lake: Path, own: str) -> None:
    loop = loop_of(spark, lake)
    rows = all_rows(loop)
    if own == "process":
        ours = process(rows.withColumn("m", F.lit(1)), loop_plans.groups(), key="n").select("time", "n")
    else:
        ours = on_complete(rows, lambda time, table: table, rows.schema)
    moved = ours.mapInPandas(lambda frames: frames, ours.schema)
    assert "MapInPandas" in refused("STRANDLINE_LOOP_UNSUPPORTED", loop.write({"back": moved}), lake)


def test_a_channel_that_begins_with_a_snapshot_is_refused(spark: Any, lake: Path) -> None:
    from deltalake import DeltaTable

    with Channel.open(lake / "numbers").producer("p") as producer:
        producer.send(pa.table({"time": [1], "n": [3]}))
    table = DeltaTable(lake / "numbers")
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    loop = loop_of(spark, lake)
    refused("STRANDLINE_LOOP_TIMES_UNKNOWN", loop.write({"back": all_rows(loop)}), lake)


@pytest.mark.drawn
def test_a_second_source_is_refused(spark: Any, lake: Path) -> None:
    loop = loop_of(spark, lake)
    Channel.create(lake / "other", pa.schema([time_field("time", FLAT), ("n", pa.int64())]), producers=["p"])
    other = spark.readStream.format("strandline").load(str(lake / "other"))
    message = refused("STRANDLINE_LOOP_UNSUPPORTED", loop.write({"back": all_rows(loop).union(other)}), lake)
    assert "2 streaming sources" in message


@pytest.mark.drawn
@pytest.mark.parametrize("what", ["notify_at", "emit"])
def test_a_processor_that_goes_on_to_a_later_time_is_refused(spark: Any, lake: Path, what: str) -> None:
    from pyspark_strandline import Processor

    class Ahead(Processor):
        schema = "m bigint"

        def on_rows(self, time: Any, rows: pa.Table) -> None:
            later = (time[0], time[1] + 1)
            if what == "emit":
                self.emit(later, [{"m": 1}])
            else:
                self.notify_at(later)

    loop = loop_of(spark, lake)
    rows = process(all_rows(loop), Ahead(), key="n").select("time", "n")
    assert what in refused("STRANDLINE_LOOP_UNSUPPORTED", loop.write({"back": rows}), lake)


@pytest.mark.drawn
def test_a_feedback_channel_that_was_used_or_made_anew_is_refused(spark: Any, lake: Path) -> None:
    def writer() -> Any:
        loop = loop_of(spark, lake)
        return loop.write({"back": all_rows(loop).where("n > 3").withColumn("n", F.col("n") - 1)})

    finish(writer(), lake / "checkpoint")
    with pytest.raises(Exception, match="STRANDLINE_LOOP_CHANNEL_USED"):
        finish(writer(), lake / "another")
    (lake / "back").rename(lake / "gone")
    Channel.create(lake / "back", pa.schema([time_field("time", FLAT), ("n", pa.int64())]), producers=["loop"])
    with pytest.raises(Exception, match="STRANDLINE_CHECKPOINT_MISMATCH"):
        finish(writer(), lake / "checkpoint")


@pytest.mark.parametrize(
    ("options", "condition"),
    [
        ({"feedback": {}}, "STRANDLINE_OPTION_INVALID"),
        ({"feedback": {"labels": {"iter": 1}}}, "STRANDLINE_OPTION_INVALID"),
        ({"feedback": {"back": {"iter": 0}}}, "STRANDLINE_GRAPH_CYCLE"),
        ({"feedback": {"back": {"round": 1}}}, "STRANDLINE_SUMMARY_INVALID"),
        ({"feedback": {"back": {"iter": -1}}}, "STRANDLINE_DELAY_INVALID"),
        ({"domain": "int64"}, "STRANDLINE_SUMMARY_INVALID"),
        ({"startingVersion": "latest"}, "STRANDLINE_OPTION_CONFLICT"),
        ({"maxRounds": 0}, "STRANDLINE_OPTION_INVALID"),
    ],
)
def test_options_that_make_no_loop_are_refused(spark: Any, lake: Path, options: dict[str, Any], condition: str) -> None:
    given = {"feedback": {"back": {"iter": 1}}, "domain": FLAT, **options}
    with pytest.raises(Exception, match=condition):
        read_loop(spark, {"numbers": str(lake / "numbers"), "back": str(lake / "back")}, **given)


def test_a_feedback_channel_that_begins_at_a_later_time_is_refused(spark: Any, lake: Path) -> None:
    Channel.create(lake / "at", pa.schema([time_field("time", FLAT), ("n", pa.int64())]), producers=["loop"], at=(0, 0))
    paths = {"numbers": str(lake / "numbers"), "at": str(lake / "at")}
    loop = read_loop(spark, paths, feedback={"at": {"iter": 1}}, domain=FLAT)
    message = refused("STRANDLINE_LOOP_CHANNEL_USED", loop.write({"at": loop["numbers"].union(loop["at"])}), lake)
    assert "without at" in message


@pytest.mark.drawn
def test_a_deleted_checkpoint_and_a_second_query_are_refused(spark: Any, lake: Path) -> None:
    """Also if no row has come round yet."""

    def writer() -> Any:
        loop = loop_of(spark, lake)
        return loop.write({"back": all_rows(loop).where("n > 9")})

    finish(writer(), lake / "checkpoint")
    refused("STRANDLINE_LOOP_CHANNEL_USED", writer(), lake)


@pytest.mark.drawn
def test_a_first_batch_that_crashed_after_its_commit_is_repeated(spark: Any, lake: Path) -> None:
    """The feedback has the first batch's commit, and Spark does not know that it was made."""

    def writer() -> Any:
        loop = loop_of(spark, lake)
        return loop.write({"back": all_rows(loop).where("n > 9"), "seen": (all_rows(loop), str(lake / "seen"))})

    writer().option("checkpointLocation", str(lake / "checkpoint")).trigger(once=True).start().awaitTermination()
    assert Channel.open(lake / "back").version == 1
    for path in (lake / "checkpoint" / "commits").iterdir():
        path.unlink()
    finish(writer(), lake / "checkpoint")
    assert contents(lake / "seen") == [((0, 0), 5)]


@pytest.mark.drawn
def test_rows_of_another_query_are_not_taken_in(spark: Any, lake: Path) -> None:
    def writer() -> Any:
        loop = loop_of(spark, lake)
        return loop.write({"back": all_rows(loop).where("n > 3").withColumn("n", F.col("n") - 1)})

    finish(writer(), lake / "checkpoint")
    other = Channel.open(lake / "back")
    loop_rows = pa.table({"time": array_of([(5, 1)], FLAT), "n": [1]})
    with other.producer("loop", take_over=True) as stranger:
        stranger.send(loop_rows)
        stranger.delay([(1, 1)])
    with Channel.open(lake / "numbers").producer("p") as producer:
        producer.send(pa.table({"time": [1], "n": [5]}))
    with pytest.raises(Exception, match="STRANDLINE_LOOP_TWO_WRITERS"):
        finish(writer(), lake / "checkpoint")


@pytest.mark.drawn
def test_many_times_go_round(spark: Any, tmp_path: Path) -> None:
    """Two commits of many times each, the second one while the first goes round: the feedback's times are stated one by one."""
    seeds = channel_of(tmp_path / "seeds", ("n", pa.int64()))

    def body(rows: Any) -> Any:
        return rows.where("n < 2").withColumn("n", F.col("n") + 1)

    with seeds.producer("p") as producer:
        for first in (0, 700):
            producer.send(pa.table({"time": list(range(first, first + 700)), "n": [0] * 700}))
            producer.commit()
        producer.delay([1400])
    finish(iterate(spark, str(tmp_path / "seeds"), body, tmp_path / "out", maxFilesPerTrigger=1), tmp_path / "checkpoint")
    assert contents(tmp_path / "out" / "result") == [(time, n) for time in range(1400) for n in range(3)]


@pytest.mark.drawn
def test_a_damaged_offset_is_refused(spark: Any, lake: Path) -> None:
    def writer(**options: Any) -> Any:
        loop = loop_of(spark, lake, **options)
        return loop.write(
            {"back": all_rows(loop).groupBy("time", "n").count().where("n > 0").select("time", F.expr("n - 1").alias("n"))}
        )

    with pytest.raises(Exception, match="STRANDLINE_LOOP_UNBOUNDED"):
        finish(writer(maxRounds=2), lake / "checkpoint")
    newest = max((lake / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    *head, offset = newest.read_text().split("\n")
    good = json.loads(offset)
    for damaged in ({**good, "pending": [[[0, 1]]]}, {**good, "strandline": 1}, {**good, "rows": 7}, {**good, "frontier": None}):
        newest.write_text("\n".join([*head, json.dumps(damaged)]))
        (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
        with pytest.raises(Exception, match="STRANDLINE_OFFSET_(INVALID|VERSION)"):
            finish(writer(), lake / "checkpoint")
    newest.write_text("\n".join([*head, offset]))
    finish(writer(), lake / "checkpoint")


@pytest.mark.drawn
@pytest.mark.parametrize(("by", "domain"), [(1, "int64"), ({"i": 1}, "product(epoch int64, i int64, j int64)")])
def test_rounds_are_counted_from_where_a_row_entered(spark: Any, tmp_path: Path, by: Any, domain: str) -> None:
    channel_of(tmp_path / "numbers", ("n", pa.int64()))
    outer = parse_domain(domain if domain == "int64" else "product(epoch int64, i int64)")
    Channel.create(tmp_path / "back", pa.schema([time_field("time", outer), ("n", pa.int64())]), producers=["loop"])
    with Channel.open(tmp_path / "numbers").producer("p") as producer:
        producer.send(pa.table({"time": [70], "n": [5]}))
    paths = {"numbers": str(tmp_path / "numbers"), "back": str(tmp_path / "back")}

    def run(**options: Any) -> None:
        loop = read_loop(spark, paths, feedback={"back": by}, domain=domain, **options)
        finish(loop.write({"back": all_rows(loop)}), tmp_path / "checkpoint")

    with pytest.raises(Exception, match="STRANDLINE_LOOP_UNBOUNDED.*more than 3 times"):
        run(maxRounds=3)
    with pytest.raises(Exception, match="STRANDLINE_LOOP_UNBOUNDED.*maxLoopRows is 3"):
        run(maxLoopRows=3)


@pytest.mark.drawn
def test_rows_that_come_round_are_counted_once_and_from_pause_to_pause(spark: Any, lake: Path) -> None:
    """The epoch stays open. Each run has five rows that come round, one file at a time from several files."""

    def run() -> None:
        loop = loop_of(spark, lake, maxLoopRows=6, maxFilesPerTrigger=1)
        fewer = all_rows(loop).repartition(2).where("n > 0").withColumn("n", F.col("n") - 1)
        finish(loop.write({"back": fewer}), lake / "checkpoint")

    for _ in range(2):
        run()
        with Channel.open(lake / "numbers").producer("p") as producer:
            producer.send(pa.table({"time": [1], "n": [5]}))
    run()
    assert Channel.open(lake / "back").read().num_rows == 15


def test_feedback_channels_of_other_producers_are_refused(spark: Any, lake: Path) -> None:
    Channel.create(lake / "two", pa.schema([time_field("time", FLAT), ("n", pa.int64())]), producers=["loop", "p"])
    paths = {"numbers": str(lake / "numbers"), "two": str(lake / "two")}
    loop = read_loop(spark, paths, feedback={"two": {"iter": 1}}, domain=FLAT)
    with pytest.raises(StrandlineError, match="STRANDLINE_LOOP_TWO_WRITERS"):
        loop.write({"two": loop["numbers"].union(loop["two"])})
