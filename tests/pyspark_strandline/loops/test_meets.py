"""Rows that meet in loops: a body that joins its own rows and other streams, at times that no batch decides."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import networkx as nx
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as F

from helpers import contents
from loop_lake import channel_of, finish
from pyspark_strandline import hold, iterate, meet, project, read_loop
from pyspark_strandline.operators.meet import met
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.time.arrow import time_field
from strandline.time.domain import lex, product

pytestmark = pytest.mark.spark
BODY = "STRANDLINE_LOOP_BODY_UNSUPPORTED"
TICKS = lex(tick="int64", iter="int64")


def edges_of(path: Path, seed: int, nodes: int = 8, edges: int = 12) -> tuple[Channel, dict[int, set[tuple[int, int]]]]:
    """A channel of edges over two days, in commits whose days are mixed."""
    r = random.Random(seed)
    days = {day: {(r.randrange(nodes), r.randrange(nodes)) for _ in range(edges)} for day in range(2)}
    rows = [(day, *edge) for day, some in days.items() for edge in some]
    r.shuffle(rows)
    channel = channel_of(path, ("a", pa.int64()), ("b", pa.int64()))
    with channel.producer("p") as producer:
        for at in range(0, len(rows), 5):
            some = list(zip(*rows[at : at + 5], strict=True))
            producer.send(pa.table(dict(zip(("time", "a", "b"), some, strict=True)), schema=channel.schema))
            producer.delay(min((day for day, _, _ in rows[at + 5 :]), default=2))
            producer.commit()
    return channel, days


def closure(edges: set[tuple[int, int]]) -> set[tuple[int, int]]:
    graph = nx.DiGraph(list(edges))
    return {(a, b) for a in graph for c in graph[a] for b in {c} | nx.descendants(graph, c)}


def paths_of(folder: Path) -> dict[int, set[tuple[int, int]]]:
    rows = contents(folder / "out" / "result")
    assert len(set(rows)) == len(rows)
    return {day: {(a, b) for at, a, b in rows if at == day} for day in range(2)}


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(4))
def test_paths_of_different_rounds_meet(spark: Any, tmp_path: Path, seed: int) -> None:
    """path(x, z) :- path(x, y), path(y, z): a path of 8 edges takes 3 rounds."""
    _, days = edges_of(tmp_path / "edges", seed)

    def doubled(rows: Any) -> Any:
        other = rows.select("time", F.col("a").alias("b"), F.col("b").alias("z"))
        return meet(rows, other, "b", within="outer").select("time", "a", F.col("z").alias("b"))

    writer = iterate(spark, tmp_path / "edges", doubled, tmp_path / "out", maxFilesPerTrigger=1 + seed % 3)
    finish(writer, tmp_path / "checkpoint")
    assert paths_of(tmp_path) == {day: closure(edges) for day, edges in days.items()}


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(4))
def test_paths_meet_the_edges_of_another_stream(spark: Any, tmp_path: Path, seed: int) -> None:
    """path(x, z) :- path(x, y), edge(y, z) over a stream of edges. Edges of a day meet paths of that day only."""
    edges_of(tmp_path / "seeds", seed, edges=3)
    _, days = edges_of(tmp_path / "edges", seed + 100)
    seeds = contents(tmp_path / "seeds")

    def longer(rows: Any, streams: Any) -> Any:
        edges = streams["edges"].select("time", F.col("a").alias("b"), F.col("b").alias("z"))
        return meet(rows, edges, on="b", within="outer").select("time", "a", F.col("z").alias("b"))

    writer = iterate(
        spark, tmp_path / "seeds", longer, tmp_path / "out", streams={"edges": tmp_path / "edges"}, maxFilesPerTrigger=1
    )
    finish(writer, tmp_path / "checkpoint")
    want = {}
    for day, edges in days.items():
        graph = nx.DiGraph(list(edges))
        first = {(a, b) for at, a, b in seeds if at == day}
        want[day] = first | {(a, c) for a, b in first if b in graph for d in graph[b] for c in {d} | nx.descendants(graph, d)}
    assert paths_of(tmp_path) == want


def test_meets_whose_pairs_depend_on_rounds_are_refused(spark: Any, tmp_path: Path) -> None:
    edges_of(tmp_path / "edges", 0)

    def refused(what: str, how: str = "inner", within: Any = "outer", **options: Any) -> None:
        def body(rows: Any) -> Any:
            other = rows.select("time", F.col("a").alias("b"), F.col("b").alias("z"))
            made = meet(rows, other, "b", how=how, within=within)  # type: ignore[arg-type]
            return made.select("time", "a", F.col("z" if how == "inner" else "b").alias("b"))

        with pytest.raises(AnalysisException, match=rf"(?s){BODY}.*{what}"):
            iterate(spark, tmp_path / "edges", body, tmp_path / "out", **options)

    refused("left_anti meet", how="left_anti")
    refused("rows of other outer times", within=None)
    refused("rows of other outer times", within=["outer", "iter"])
    refused("pairs rows of different rounds", distinct=False, until=3)
    with pytest.raises(StrandlineError, match=r"STRANDLINE_OPTION_INVALID.*seed"):
        iterate(spark, tmp_path / "edges", lambda rows, _: rows, tmp_path / "out", streams={"seed": tmp_path / "edges"})


def test_pairs_at_times_of_no_row_are_refused_in_a_loop(spark: Any, tmp_path: Path) -> None:
    """What waits at (3, 5) for rows at (0, 5) and (3, 1) would not be counted."""
    domain = product(outer="int64", iter="int64")
    edges_of(tmp_path / "edges", 0)
    schema = pa.schema([time_field("time", domain), ("a", pa.int64()), ("b", pa.int64())])
    Channel.create(tmp_path / "back", schema, producers=["loop"])
    channels = {"edges": tmp_path / "edges", "back": tmp_path / "back"}
    loop = read_loop(spark, channels, feedback={"back": {"iter": 1}}, domain=domain)
    rows = loop["edges"].union(loop["back"])
    pairs = met(rows, rows.select("time", F.col("a").alias("b"), F.col("b").alias("z")), "b")
    writer = loop.write({"back": pairs.select("time", "a", F.col("z").alias("b"))})
    with pytest.raises(StreamingQueryException, match=r"STRANDLINE_LOOP_UNSUPPORTED.*at times that are no row's"):
        finish(writer, tmp_path / "checkpoint")


def test_a_row_of_an_earlier_time_that_comes_later_passes_again(spark: Any, tmp_path: Path) -> None:
    """What is kept for good keeps each row's least time, or a tick's answer is short."""
    for name in ("left", "right"):
        channel = channel_of(tmp_path / name, ("k", pa.int64()))
        with channel.producer("p") as producer:
            for time in (1, 0, 2):
                producer.send(pa.table({"time": [time], "k": [7]}))
                producer.commit()
            producer.delay([])
    streams = {
        name: spark.readStream.format("strandline").option("maxFilesPerTrigger", 1).load(str(tmp_path / name))
        for name in ("left", "right")
    }
    writer = met(streams["left"], streams["right"], "k").writeStream.format("strandline")
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start(
        str(tmp_path / "out")
    ).awaitTermination()
    times = sorted(row[0] for row in contents(tmp_path / "out"))
    assert times[0] == 0, "the pair of tick 0"
    assert 2 not in times, "rows that are there already"


@pytest.mark.parametrize("what", ["hold", "an aggregation", "a difference", "a moved time"])
def test_a_promise_that_no_operator_keeps_rows_is_proved_or_refused(spark: Any, tmp_path: Path, what: str) -> None:
    """The source counts the times of such channels for one batch only."""
    edges_of(tmp_path / "edges", 0)
    schema = pa.schema([time_field("time", TICKS), ("a", pa.int64()), ("b", pa.int64())])
    Channel.create(tmp_path / "back", schema, producers=["loop"])
    channels = {"edges": tmp_path / "edges", "back": tmp_path / "back"}
    passing = '["edges"]' if what == "a moved time" else '["back"]'
    loop = read_loop(spark, channels, feedback={"back": {"iter": 1}}, domain=TICKS, passing=passing)
    edges, back = loop["edges"], loop["back"]
    if what == "hold":
        rows = edges.union(hold(back))
    elif what == "an aggregation":
        rows = edges.union(back.groupBy("time", "a").agg(F.max("b").alias("b")))
    elif what == "a difference":
        rows = met(edges, back.select("time", "a"), "a", how="left_anti", within=1, keep=("within", "within"))
    else:
        moved = project(back.select("*", F.col("time").alias("outer")), "tick", column="outer").groupBy("outer", "a").count()
        rows = edges.union(back.where("a > 100"))
        counted = moved.select("outer", "a", "count")
    outputs = {"back": rows.where("a < 0")}
    if what == "a moved time":
        outputs["counted"] = (counted, tmp_path / "counted")  # type: ignore[assignment]
    with pytest.raises(StreamingQueryException, match=r"STRANDLINE_LOOP_UNSUPPORTED.*promise that no operator does"):
        finish(loop.write(outputs), tmp_path / "checkpoint")
