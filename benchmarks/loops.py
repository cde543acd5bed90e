"""Rounds of a loop, beside the same fixed point as a plain PySpark loop over DataFrames.

    python benchmarks/loops.py [--rounds 40] [--leaves 2500] [--small 20] [--turns 3] [--long 520] [--channels 20]

Labels spread through a graph, a path with leaves, until nothing changes. Both ways send only changed labels on. The plain loop
writes a checkpoint every fifth round, as GraphFrames does. The ways take turns. A round of ours is durable when it ends: its rows
are in a Delta table, and its state and its offset in the checkpoint. The figure is the rounds of the path, divided by the time
from the first batch to the last. The graph is large (100 000 nodes); a small one, with few leaves, is shown beside it. The
benchmark also compares a late round of a long loop with an early one, and a poll of one source of many channels with a poll of a
source of one.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F

from _alternating import OURS, Measure, order, spark_session, summary
from pyspark_strandline import iterate, read_channels
from strandline.channel import Channel
from strandline.time.arrow import time_field
from strandline.time.domain import int64

PLAIN = "DataFrames"
EVERY = 5


def graph(rounds: int, leaves: int) -> list[tuple[int, int]]:
    """A path of so many steps, with leaves at each node. Each edge in both directions."""
    step = leaves + 1
    path = [(step * at, step * (at + 1)) for at in range(rounds)]
    sides = [(step * at, step * at + leaf) for at in range(rounds + 1) for leaf in range(1, step)]
    return [pair for a, b in path + sides for pair in ((a, b), (b, a))]


def seeds(folder: Path, nodes: list[int]) -> None:
    """Each node begins with its own number as the label. In a path the smallest one has the farthest to go."""
    schema = pa.schema([time_field("time", int64), ("node", pa.int64()), ("label", pa.int64())])
    with Channel.create(folder / "seeds", schema, producers=["p"], at=0).producer("p") as producer:
        producer.send(pa.table({"time": [0] * len(nodes), "node": nodes, "label": nodes}))
        producer.delay([])


def ours(spark: Any, folder: Path, edges: Any) -> list[float]:
    """Return the milliseconds of each round."""

    def body(rows: Any) -> Any:
        return rows.join(F.broadcast(edges), rows.node == edges.a).select("time", F.col("b").alias("node"), "label")

    writer = iterate(spark, str(folder / "seeds"), body, folder / "loop", best={"label": "min"}, maxRounds=100_000)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return [float(p["durationMs"]["triggerExecution"]) for p in query.recentProgress if "addBatch" in p["durationMs"]]


def plain(spark: Any, nodes: list[int], edges: Any) -> list[float]:
    """Return the milliseconds of each round."""
    labels = changed = spark.createDataFrame([(node, node) for node in nodes], "node long, label long").localCheckpoint()
    times = []
    while True:
        started = time.perf_counter()
        came = (
            changed.join(F.broadcast(edges), changed.node == edges.a)
            .groupBy(F.col("b").alias("node"))
            .agg(F.min("label").alias("new"))
        )
        both = labels.join(came, "node", "left").cache()
        changed = both.where("new < label").select("node", F.col("new").alias("label"))
        labels = both.select("node", F.least("label", F.coalesce("new", "label")).alias("label"))
        if len(times) % EVERY == EVERY - 1:
            labels, changed = labels.checkpoint(), changed.checkpoint()
        found = changed.count()
        times.append((time.perf_counter() - started) * 1000)
        if not found:
            return times


def rounds_of(spark: Any, scratch: Path, rounds: int, leaves: int, turns: int) -> dict[str, list[float]]:
    """Return the rounds a second of each way, one figure a turn."""
    pairs = graph(rounds, leaves)
    nodes = sorted({node for pair in pairs for node in pair})
    edges = spark.createDataFrame(pairs, "a long, b long").localCheckpoint()

    def run(way: str, turn: int) -> float:
        if way == PLAIN:
            return rounds * 1000 / sum(plain(spark, nodes, edges))
        target = scratch / f"turn-{turn}"
        seeds(target, nodes)
        times = ours(spark, target, edges)
        labels = {row["label"] for row in Channel.open(target / "loop" / "result").read(columns=["label"]).to_pylist()}
        assert labels == {0}, labels  # the fixed point
        shutil.rmtree(target)
        return rounds * 1000 / sum(times)

    ways = [OURS, PLAIN]
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for way in ways:
        run(way, 0)  # warm up
    for turn in range(1, turns + 1):
        for way in order(ways, turn):
            rates[way].append(run(way, turn))
        shown = ", ".join(f"{way} {each[-1]:.2f} rounds/s" for way, each in rates.items())
        print(f"{len(nodes)} nodes, turn {turn}: {shown}", flush=True)
    return rates


def polls(spark: Any, folder: Path, count: int) -> dict[str, list[float]]:
    """Return the milliseconds of polls that find nothing, of a source of one channel and of many."""
    schema = pa.schema([time_field("time", int64), ("n", pa.int64())])
    for at in range(count):
        Channel.create(folder / f"c{at}", schema, producers=["p"], at=0)
    frames = {
        "one channel": spark.readStream.format("strandline").load(str(folder / "c0")),
        OURS: read_channels(spark, {f"c{at}": str(folder / f"c{at}") for at in range(count)})["c0"],
    }
    found = {}
    for name, frame in frames.items():
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / f"polls {name}"))
        query = writer.trigger(processingTime="100 milliseconds").start()
        query.processAllAvailable()
        at, times = None, []
        while len(times) < 40:
            progress = query.lastProgress
            if progress is not None and progress["timestamp"] != at and "addBatch" not in progress["durationMs"]:
                at = progress["timestamp"]
                times.append(float(progress["durationMs"]["latestOffset"]))
            time.sleep(0.05)
        query.stop()
        found[name] = times
    return found


def main() -> None:
    """Run alternately, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--leaves", type=int, default=2500)
    parser.add_argument("--small", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--long", type=int, default=520)
    parser.add_argument("--channels", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        spark = spark_session(scratch)
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "2000")
        spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "100")
        spark.sparkContext.setCheckpointDir(str(scratch / "checkpoints"))
        measures = []
        for leaves, goal in ((arguments.leaves, 1.5), (arguments.small, None)):
            rates = rounds_of(spark, scratch, arguments.rounds, leaves, arguments.turns) if leaves else {}
            nodes = (arguments.rounds + 1) * (leaves + 1)
            if rates:
                measures.append(Measure.beside(f"rounds of a loop over {nodes} nodes", rates, "rounds/s", at_least=goal))
        if arguments.long:
            pairs = graph(arguments.long, 0)
            edges = spark.createDataFrame(pairs, "a long, b long").localCheckpoint()
            target = scratch / "long"
            seeds(target, sorted({node for pair in pairs for node in pair})[:1])
            times = ours(spark, target, edges)
            early, late = times[3:18], times[-20:-5]
            measures.append(
                Measure.beside(f"round {arguments.long} beside round 5", {OURS: late, "round 5": early}, "ms", at_most=1.1)
            )
        if arguments.channels:
            measures.append(Measure.beside("a poll of many channels", polls(spark, scratch, arguments.channels), "ms", at_most=2))
        spark.stop()
        summary("loops", measures)


if __name__ == "__main__":
    main()
