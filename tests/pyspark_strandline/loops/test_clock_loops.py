"""Loops over real timestamps that come round L later (seed 5, case 3): one result, whatever the batches and restarts."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from helpers import settings
from pyspark_strandline import read_loop
from strandline.channel import Channel
from strandline.loop import LoopQuery
from strandline.replay import CLOCK, Timestamper
from strandline.time.arrow import time_field, times_of
from triceps import Link, run
from triceps_programs import round_trip

pytestmark = pytest.mark.spark

MS = 1000
SCHEMA = pa.schema([time_field("time", CLOCK), ("hops", pa.int64()), ("value", pa.int64())])
Records = list[tuple[int, tuple[int, int]]]


def record(path: Path, records: Records, draw: random.Random) -> None:
    """Record what comes from outside, by a clock that shows its instants, in commits that are drawn."""
    shown = [0]
    with Timestamper(Channel.create(path, SCHEMA), "in", clock=lambda: shown[-1]) as node:
        Channel.open(path).seal()
        for instant, (hops, value) in records:
            shown.append(instant)
            node.send(pa.table({"hops": [hops], "value": [value]}))
            if draw.random() < 0.3:
                node.commit()
        node.drop()


def go_round(spark: Any, folder: Path, lag: str | LoopQuery, stops: int = 0, **options: Any) -> list[tuple[int, int]]:
    """Let rows with hops come round ``lag`` later, equal ones at one time as their sum. Return the others: instant and value."""
    if not Channel.exists(folder / "back"):
        Channel.create(folder / "back", SCHEMA, producers=["loop"])
    channels = {"in": str(folder / "in"), "back": str(folder / "back")}
    for attempt in range(stops + 1):
        if isinstance(lag, str):
            loop = read_loop(spark, channels, feedback={"back": {"instant": lag}}, domain=CLOCK, **options)
        else:
            loop = read_loop(spark, channels, queries={"loop": lag}, query="loop", domain=CLOCK, **options)
        rows = loop["in"].unionByName(loop["back"]).groupBy("time", "hops").agg(F.sum("value").alias("value"))
        again = rows.where("hops > 0").select(
            "time", (F.col("hops") - 1).alias("hops"), (F.col("value") * 3 % 101).alias("value")
        )
        writer = loop.write({"back": again, "out": (rows.where("hops = 0"), folder / "out")})
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        if attempt < stops:
            query = writer.start()
            while query.isActive and query.lastProgress is None:
                query.awaitTermination(0.1)
            query.stop()
        else:
            writer.trigger(availableNow=True).start().awaitTermination()
    out = Channel.open(folder / "out")
    assert not list(out.frontier)
    rows_out = out.read()
    return sorted(
        (time[0], value)
        for time, value in zip(times_of(rows_out.column("time"), CLOCK), rows_out["value"].to_pylist(), strict=True)
    )


def expected(records: Records, lag: int) -> list[tuple[int, int]]:
    """The same in plain Python, one time after the other."""
    waiting: dict[tuple[int, ...], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for n, (instant, (hops, value)) in enumerate(records):
        waiting[(instant, 0, n)][hops] += value
    found = []
    while waiting:
        time = min(waiting)
        for hops, value in waiting.pop(time).items():
            if hops:
                waiting[(time[0] + lag, -(2**63), -(2**63))][hops - 1] += value * 3 % 101
            else:
                found.append((time[0], value))
    return sorted(found)


def drawn(seed: int, count: int) -> Records:
    draw = random.Random(seed)
    instant, records = 0, []
    for _ in range(count):
        instant += draw.choice([0, 1, 10 * MS, 50 * MS, 100 * MS, 250 * MS])
        records.append((instant, (draw.randint(0, 3), draw.randint(0, 99))))
    return records


def check(spark: Any, folder: Path, seed: int, count: int, stops: int) -> None:
    draw = random.Random(seed)
    records = drawn(seed // 100, count)
    record(folder / "in", records, draw)
    options = {"maxFilesPerTrigger": draw.choice([1, 2, 3, 100])}
    with settings(spark, {"spark.sql.shuffle.partitions": str(draw.choice([1, 2, 3]))}):
        found = go_round(spark, folder, "100 milliseconds", stops, **options)
    assert found == expected(records, 100 * MS), f"seed {seed}, {options}"


@pytest.mark.drawn
@pytest.mark.parametrize("seed", [100, 101])
def test_one_result_at_any_cut(spark: Any, tmp_path: Path, seed: int) -> None:
    check(spark, tmp_path, seed, 12, stops=seed % 2)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200, 210))
def test_one_result_at_many_cuts_and_stops(spark: Any, tmp_path: Path, seed: int) -> None:
    check(spark, tmp_path, seed, 60, stops=3)


@pytest.mark.drawn
@pytest.mark.parametrize("following", [1040, 1200])
def test_what_comes_round_is_l_later_whatever_comes_next(spark: Any, tmp_path: Path, following: int) -> None:
    """The seed's numbers: L = 100 ms, a record at 1000 that comes round once, and the next one at 1040 or at 1200."""
    records = [(1000 * MS, (1, 7)), (following * MS, (0, 8))]
    record(tmp_path / "in", records, random.Random(1))
    query = LoopQuery(["in", "back"], {"back": {"instant": 100 * MS}})
    found = go_round(spark, tmp_path, query if following == 1200 else "100 milliseconds")
    model = run([(instant, payload) for instant, payload in records], round_trip(), Link(100 * MS, "fixed"))
    assert [instant for instant, _ in found] == [output.stamp.instant for output in model.outputs]
    assert sorted(instant // MS for instant, _ in found) == sorted([1100, following])
