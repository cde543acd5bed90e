"""A scope's channels as batch DataFrames at one cut: the rows that the core says are closed, in every kind of domain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from helpers import say
from pyspark_strandline import snapshot
from strandline import int64, parse_domain
from strandline.channel import Channel
from strandline.scope import Scope
from strandline.time.arrow import time_field

pytestmark = pytest.mark.spark

NESTED = "product(e int64, loop lex(tick int64, inner product(a int32, b int64)))"
LEAST = (0, (0, (0, 0)))
CASES: dict[str, tuple[Any, dict[str, tuple[list[Any], list[Any]]]]] = {
    "int64": (0, {"a": ([1, 2, 5], [3]), "b": ([0, 3, 4], [4])}),
    "timestamp": (-(1 << 50), {"a": ([-5, 0, 1_000_001], [1_000_001]), "b": ([-6, 1_000_000], [1_000_002])}),
    "product(epoch int64, iter int64)": (
        (0, 0),
        {"a": ([(0, 0), (0, 3), (1, 1), (2, 0), (2, 2)], [(2, 1), (1, 3)]), "b": ([(0, 5), (1, 0), (3, 0)], [(3, 0), (1, 1)])},
    ),
    "lex(tick int64, iter int64)": (
        (0, 0),
        {"a": ([(0, 9), (1, 0), (1, 4)], [(1, 3)]), "b": ([(1, 2), (1, 3), (2, 0)], [(2, 0)])},
    ),
    NESTED: (
        LEAST,
        {
            "a": ([LEAST, (0, (1, (0, 2))), (0, (1, (2, 1))), (2, (0, (0, 0)))], [(0, (1, (1, 1))), (1, (1, (0, 0)))]),
            "b": ([LEAST, (3, (0, (1, 1)))], [(0, (1, (0, 2)))]),
        },
    ),
    "int32": (0, {"a": ([1, 2], []), "b": ([7], [])}),
}


@pytest.mark.drawn
@pytest.mark.parametrize("text", CASES)
def test_the_rows_are_those_that_the_core_calls_closed(spark: Any, tmp_path: Path, text: str) -> None:
    domain = parse_domain(text)
    least, channels = CASES[text]
    scope = Scope.create(tmp_path / "scope", domain)
    schema = pa.schema([time_field("time", domain), ("key", pa.string()), ("n", pa.int64())])
    for name, (times, then) in channels.items():
        channel = Channel.create(tmp_path / name, schema, producers=["p"], at=least)
        scope.add_channel(name, tmp_path / name)
        say(channel, "p", *((time, n) for n, time in enumerate(times)), then=then)
    if "(e" in text:  # a channel of the first coordinate, whose times enter
        outer = Channel.create(
            tmp_path / "outer",
            pa.schema([time_field("time", int64), ("key", pa.string()), ("n", pa.int64())]),
            producers=["p"],
            at=0,
        )
        scope.add_channel("outer", tmp_path / "outer")
        say(outer, "p", *((time, time) for time in range(5)), then=[4])
        assert (
            sorted(row.n for row in snapshot(spark, scope)["outer"].collect())
            == scope.read("outer", scope.cut())["n"].to_pylist()
        )
    taken = snapshot(spark, scope)
    for name in channels:
        say(Channel.open(tmp_path / name), "p", then=[])  # what comes later does not count
        wanted = scope.read(name, taken.cut)["n"].to_pylist()
        assert sorted(row.n for row in taken[name].collect()) == sorted(wanted)
        assert len(wanted) > 0
    kept = sum(scope.read(name, taken.cut).num_rows for name in channels)
    assert kept < sum(len(times) for times, _ in channels.values()) or not taken.cut.frontier
    delta = spark.read.format("delta").option("versionAsOf", taken.cut.versions["a"]).load(str(tmp_path / "a"))
    assert delta.count() == len(channels["a"][0])
