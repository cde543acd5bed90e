"""Vertex programs: which outer times ``pregel`` takes, and the example's PageRank on graphs with vertices that lead nowhere."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F

from helpers import ROOT
from loop_lake import finish
from pyspark_strandline import pregel
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.time.arrow import time_field
from strandline.time.domain import TimeDomain, int64, lex, parse_domain, product

sys.path.insert(0, str(ROOT / "examples"))
from loops import programs

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(programs)  # Spark's workers do not have this folder


def edges_of(folder: Path, domain: TimeDomain) -> Channel:
    schema = pa.schema([time_field("time", domain), ("a", pa.string()), ("b", pa.string())])
    return Channel.create(folder / "edges", schema, producers=["p"])


def outward(streams: Any) -> Any:
    return streams["edges"].select("time", F.col("a").alias("vertex"), F.col("b").alias("other"))


@pytest.mark.parametrize(
    ("domain", "is_taken"),
    [
        (int64, True),
        (lex(day="int64", part="int64"), True),
        (product(day="int64"), True),
        (product(day="int64", part="int64"), False),
        (parse_domain("lex(pair product(a int64, b int64), n int64)"), False),
    ],
    ids=str,
)
def test_only_outer_times_that_have_an_order_are_taken(spark: Any, tmp_path: Path, domain: TimeDomain, is_taken: bool) -> None:
    edges_of(tmp_path, domain)

    def call() -> None:
        pregel(spark, {"edges": tmp_path / "edges"}, programs.PageRank(), outward, tmp_path / "out")

    if is_taken:
        call()
        return
    with pytest.raises(StrandlineError, match=r"STRANDLINE_LOOP_UNSUPPORTED.*product.*project\(rows, coordinate\)"):
        call()
    assert not (tmp_path / "out").exists()


@pytest.mark.drawn
def test_the_ranks_of_a_graph_with_sinks_are_those_of_networkx_each_day(spark: Any, tmp_path: Path) -> None:
    """A sink, a loop of one vertex, an edge twice; on the second day the sink leads on."""
    draw = random.Random(4)
    first = [("a", "b"), ("b", "c"), ("a", "c"), ("a", "c"), ("d", "d"), ("d", "c")]
    second = [("c", "e"), *((draw.choice("abcde"), draw.choice("fgh")) for _ in range(4))]
    channel, graph = edges_of(tmp_path, int64), nx.DiGraph()
    with channel.producer("p") as producer:
        for day, edges in enumerate((first, second)):
            rows = {"time": [day] * len(edges), "a": [a for a, _ in edges], "b": [b for _, b in edges]}
            producer.send(pa.table(rows, schema=channel.schema))
            producer.delay(day + 1)
    program = programs.PageRank(damping=0.5, tolerance=1e-4)
    finish(pregel(spark, {"edges": tmp_path / "edges"}, program, outward, tmp_path / "out"), tmp_path / "checkpoint")
    results, ranks = Channel.open(tmp_path / "out" / "result").read().to_pylist(), {}
    for day, edges in enumerate((first, second)):
        graph.add_edges_from(edges)
        ranks.update({row["vertex"]: row["rank"] for row in results if row["time"] == day})
        expected = nx.pagerank(graph, alpha=0.5, tol=1e-12, max_iter=1000)
        assert set(ranks) == set(expected)
        assert {v: rank / sum(ranks.values()) for v, rank in ranks.items()} == pytest.approx(expected, abs=2e-3)
