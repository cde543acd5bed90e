"""Programs on Spark, beside the same fixed points as a plain PySpark loop over DataFrames.

    python benchmarks/strata.py [--paths 10000] [--length 10] [--ticks 4] [--turns 3] [--rounds 40]

Edges are many paths. Two programs take turns with plain loops that compute the same: the transitive closure, and three strata
over it (how many each node reaches, which nodes reach many, which do not). The plain loops are semi-naive and write a checkpoint
every fifth round, as GraphFrames does. Then a tick that adds 1 % of the edges to a closure that is kept for good, beside the
closure of all edges anew. Last, a round of a closure over one path beside a batch of an ordinary query, which aggregates and
writes a channel. A figure of ours is the time from a query's first batch to its last.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from _alternating import OURS, Measure, order, spark_session, summary
from pyspark_strandline import evaluate
from strandline.channel import Channel
from strandline.program import Program, col
from strandline.program.plan import Keep
from strandline.time.arrow import time_field
from strandline.time.domain import int64

PLAIN, ANEW, BATCH = "DataFrames", "anew", "a batch"
EVERY = 5
MANY = 5


def paths(count: int, length: int, first: int = 0) -> pa.Table:
    """The edges of so many paths."""
    starts = first + np.arange(count, dtype=np.int64).repeat(length) * (length + 1) + np.tile(np.arange(length), count)
    return pa.table({"x": starts, "y": starts + 1})


def send(path: Path, tick: int, rows: pa.Table) -> None:
    """Send a tick's edges, in one commit. The channel is made with the first ones."""
    schema = pa.schema([time_field("tick", int64), ("x", pa.int64()), ("y", pa.int64())])
    channel = Channel.create(path, schema, time="tick", producers=["p"], at=0, exist_ok=True)
    with channel.producer("p") as producer:
        producer.send(rows.add_column(0, "tick", pa.array(np.full(len(rows), tick))))
        producer.delay(tick + 1)


def channel(path: Path, ticks: list[pa.Table]) -> None:
    """A channel of edges, a commit a tick."""
    for tick, rows in enumerate(ticks):
        send(path, tick, rows)


def closure(keep: Keep = "tick", *, strata: bool = False) -> Program:
    """The transitive closure, with two more strata if asked."""
    p = Program("closure")
    edge, reach = p.input("edge", "x long, y long", keep), p.relation("reach", "x long, y long", keep)
    p.rule(reach, edge)
    p.rule(reach, reach.meet(edge.select(y="x", z="y"), on="y").select("x", y="z"))
    if strata:
        reached = p.relation("reached", "x long, n long")
        far, near = p.relation("far", "x long"), p.relation("near", "x long")
        p.rule(reached, reach.group_by("x").agg(n=("count", None)))
        p.rule(far, reached.where(col("n") >= MANY).select("x"))
        p.rule(near, edge.select("x").subtract(far))
    return p


def ours(spark: Any, folder: Path, program: Program, **options: Any) -> list[float]:
    """Run a program over the channel ``edges`` to its end. Return the milliseconds of each batch."""
    writer = evaluate(spark, program, {"edge": folder / "edges"}, folder / "out", maxRounds=100_000, **options)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return [float(p["durationMs"]["triggerExecution"]) for p in query.recentProgress if "addBatch" in p["durationMs"]]


def plain(spark: Any, edges: Any, *, strata: bool) -> dict[str, int]:
    """Compute the same by a loop over DataFrames. Return how many rows each relation has."""
    reach = new = edges
    rounds = 0
    while True:
        step = new.join(edges.select(F.col("x").alias("y"), F.col("y").alias("z")), "y").select("x", F.col("z").alias("y"))
        new = step.distinct().join(reach, ["x", "y"], "left_anti").cache()
        reach = reach.union(new)
        if rounds % EVERY == EVERY - 1:
            reach, new = reach.checkpoint(), new.checkpoint()
        rounds += 1
        if not new.count():
            break
    found = {"reach": reach}
    if strata:
        found["reached"] = reach.groupBy("x").agg(F.count(F.lit(1)).alias("n"))
        found["far"] = found["reached"].where(F.col("n") >= MANY).select("x")
        found["near"] = edges.select("x").distinct().join(found["far"], "x", "left_anti")
    for name, rows in found.items():  # as durable as ours
        rows.write.mode("overwrite").parquet(str(Path(spark.sparkContext.getCheckpointDir()) / f"result-{name}"))
    return {
        name: spark.read.parquet(str(Path(spark.sparkContext.getCheckpointDir()) / f"result-{name}")).count() for name in found
    }


def beside_plain(spark: Any, scratch: Path, edges: pa.Table, turns: int, *, strata: bool) -> dict[str, list[float]]:
    """Return the seconds of each way, one figure a turn."""
    table = spark.createDataFrame(edges.to_pandas()).localCheckpoint()
    counts: dict[str, int] = {}

    def run(way: str, turn: int) -> float:
        if way == PLAIN:
            started = time.perf_counter()
            counts.update(plain(spark, table, strata=strata))
            return time.perf_counter() - started
        target = scratch / f"turn-{turn}"
        channel(target / "edges", [edges])
        seconds = sum(ours(spark, target, closure(strata=strata))) / 1000
        found = {name: Channel.open(target / "out" / name).read(columns=["time"]).num_rows for name in counts}
        assert found == counts, (found, counts)  # the fixed point
        shutil.rmtree(target)
        return seconds

    return alternate([PLAIN, OURS], run, turns, "s")


def incremental(spark: Any, scratch: Path, count: int, length: int, ticks: int, turns: int) -> dict[str, list[float]]:
    """Return the seconds of a tick that adds 1 % of the edges, and of the closure of all edges anew."""
    first = paths(count, length)
    more = [paths(count // 100, length, (count + at * count // 100) * (length + 1)) for at in range(ticks)]

    def run(way: str, turn: int) -> float:
        target = scratch / f"turn-{turn}"
        whole = [pa.concat_tables([first, *more[: at + 1]]) for at in range(ticks)]
        given, program = ([first, *more], closure("always")) if way == OURS else ([first, *whole], closure())
        seconds = []
        for tick, rows in enumerate(given):  # the query runs to its rest for each tick
            send(target / "edges", tick, rows)
            seconds.append(sum(ours(spark, target, program)) / 1000)
        shutil.rmtree(target)
        return sum(seconds[1:]) / ticks

    return alternate([ANEW, OURS], run, turns, "s")


def small(spark: Any, scratch: Path, rounds: int, turns: int) -> dict[str, list[float]]:
    """Return the milliseconds of a round over one path, and of a batch of an ordinary query."""

    def run(way: str, turn: int) -> float:
        target = scratch / f"turn-{turn}"
        if way == OURS:
            channel(target / "edges", [paths(1, rounds)])
            times = ours(spark, target, closure())
        else:
            channel(target / "edges", [paths(1, 1, 2 * at) for at in range(rounds)])
            rows = spark.readStream.format("strandline").option("maxFilesPerTrigger", 1).load(str(target / "edges"))
            counted = rows.groupBy("tick", "x").agg(F.max("y").alias("y"))
            writer = counted.writeStream.format("strandline").option("checkpointLocation", str(target / "checkpoint"))
            query = writer.trigger(availableNow=True).start(str(target / "out"))
            query.awaitTermination()
            times = [float(p["durationMs"]["triggerExecution"]) for p in query.recentProgress if "addBatch" in p["durationMs"]]
        shutil.rmtree(target)
        return float(np.median(times[3:]))

    return alternate([BATCH, OURS], run, turns, "ms")


def alternate(ways: list[str], run: Callable[[str, int], float], turns: int, unit: str) -> dict[str, list[float]]:
    """Return the figures of each way, which take turns after a first run that does not count."""
    found: dict[str, list[float]] = {way: [] for way in ways}
    for way in ways:
        run(way, 0)
    for turn in range(1, turns + 1):
        for way in order(ways, turn):
            found[way].append(run(way, turn))
        print(f"turn {turn}: " + ", ".join(f"{way} {each[-1]:.2f} {unit}" for way, each in found.items()), flush=True)
    return found


def main() -> None:
    """Run alternately, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paths", type=int, default=10_000)
    parser.add_argument("--length", type=int, default=10)
    parser.add_argument("--ticks", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        spark = spark_session(scratch)
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "2000")
        spark.sparkContext.setCheckpointDir(str(scratch / "checkpoints"))
        measures = []
        edges = paths(arguments.paths, arguments.length)
        for strata in (False, True) if arguments.paths else ():
            found = beside_plain(spark, scratch, edges, arguments.turns, strata=strata)
            what = "three strata" if strata else "a closure"
            measures.append(Measure.beside(f"{what} over {len(edges)} edges", found, "s", at_most=0.5))
        if arguments.ticks:
            found = incremental(spark, scratch, arguments.paths, arguments.length, arguments.ticks, arguments.turns)
            measures.append(Measure.beside("a tick that adds 1 % of the edges", found, "s", at_most=0.25))
        if arguments.rounds:
            found = small(spark, scratch, arguments.rounds, arguments.turns)
            measures.append(Measure.beside("a round over a small graph", found, "ms", at_most=1.3))
        spark.stop()
        summary("strata", measures)


if __name__ == "__main__":
    main()
