"""Aggregators of ``pregel``: every vertex reads what all vertices of the superstep before gave together."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from loop_lake import channel_of, finish
from pyspark_strandline import VertexProgram, pregel
from strandline.channel import Channel
from strandline.errors import StrandlineError

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's workers do not find what the tests import


class Ranks(VertexProgram):
    """PageRank by power iteration, until all ranks together have changed by less than the tolerance."""

    state_schema = "rank double, neighbours array<bigint>"
    message_schema = "share double"
    schema = "rank double"
    aggregators = {"change": "sum double", "vertices": "count bigint", "largest": "max double"}  # noqa: RUF012 - as a user writes it

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance

    def compute(self, inputs: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
        if self.step == 0:
            assert self.aggregated == {"change": None, "vertices": None, "largest": None}
            self.state = {"rank": 1.0, "neighbours": sorted(row["other"] for row in inputs)}
            change = 1.0
        else:
            assert self.state is not None
            assert self.aggregated["largest"] <= self.aggregated["change"]
            if self.aggregated["change"] < self.tolerance:
                return
            rank = 0.15 + 0.85 * sum(sorted(message["share"] for message in messages))
            change = abs(rank - self.state["rank"])
            self.state = {**self.state, "rank": rank}
        self.aggregate(change=change, vertices=self.vertex)
        self.aggregate(largest=change)
        for other in self.state["neighbours"]:
            self.send(other, share=self.state["rank"] / len(self.state["neighbours"]))

    def result(self) -> dict[str, Any] | None:
        assert self.state is not None
        return {"rank": self.state["rank"]}


def by_definition(edges: dict[int, list[int]], tolerance: float) -> dict[int, float]:
    ranks, change = dict.fromkeys(edges, 1.0), float(len(edges))
    while change >= tolerance:
        came: dict[int, list[float]] = {vertex: [] for vertex in edges}
        for vertex, others in edges.items():
            for other in others:
                came[other].append(ranks[vertex] / len(others))
        new = {vertex: 0.15 + 0.85 * sum(sorted(shares)) for vertex, shares in came.items()}
        change = sum(abs(new[vertex] - ranks[vertex]) for vertex in edges)
        ranks = new
    return ranks


def outward(streams: Any) -> Any:
    return streams["edges"].select("time", F.col("a").alias("vertex"), F.col("b").alias("other"))


def graph(folder: Path, seed: int, vertices: int) -> dict[int, list[int]]:
    r = random.Random(seed)
    edges = {v: sorted({(v + 1) % vertices, *(r.randrange(vertices) for _ in range(2))}) for v in range(vertices)}
    channel = channel_of(folder / "edges", ("a", pa.int64()), ("b", pa.int64()))
    with channel.producer("p") as producer:
        rows = [(a, b) for a, others in edges.items() for b in others]
        columns = {"time": [0] * len(rows), "a": [a for a, _ in rows], "b": [b for _, b in rows]}
        producer.send(pa.table(columns, schema=channel.schema))
        producer.delay([])
    return edges


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(2))
def test_all_vertices_stop_at_the_superstep_after_the_one_that_changed_little(spark: Any, tmp_path: Path, seed: int) -> None:
    edges = graph(tmp_path, seed, 12)
    writer = pregel(spark, {"edges": tmp_path / "edges"}, Ranks(1.0), outward, tmp_path / "out")
    finish(writer, tmp_path / "checkpoint")
    found = {row["vertex"]: row["rank"] for row in Channel.open(tmp_path / "out" / "result").read().to_pylist()}
    assert found == pytest.approx(by_definition(edges, 1.0), abs=1e-12)


class Wrong(Ranks):
    def compute(self, inputs: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
        self.aggregate(chance=1.0)


class Nothing(Ranks):
    aggregators = {"change": "average double"}  # noqa: RUF012


def test_an_aggregator_that_is_not_there_is_refused(spark: Any, tmp_path: Path) -> None:
    graph(tmp_path, 0, 3)
    with pytest.raises(StrandlineError, match=r"STRANDLINE_OPTION_INVALID.*change.*average double"):
        pregel(spark, {"edges": tmp_path / "edges"}, Nothing(1.0), outward, tmp_path / "no")
    writer = pregel(spark, {"edges": tmp_path / "edges"}, Wrong(1.0), outward, tmp_path / "out")
    with pytest.raises(StreamingQueryException, match=r"STRANDLINE_RESULT_INVALID.*chance.*change, vertices, largest"):
        finish(writer, tmp_path / "checkpoint")
