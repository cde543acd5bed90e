"""Recorded loops (seed 5, cases 1 and 2): what comes round gets new times, which are kept with those from before."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from helpers import settings
from pyspark_strandline import read_loop
from strandline.channel import Channel
from strandline.replay import CLOCK, ORIGINAL, Timestamper, nodes, recorded
from strandline.report import verify
from strandline.time.arrow import time_field, times_of

pytestmark = pytest.mark.spark

MS = 1000
SCHEMA = pa.schema([time_field("time", CLOCK), ("hops", pa.int64()), ("value", pa.int64())])
Records = list[tuple[int, tuple[int, int]]]
LINK = -(1 << 61)
LEAST = -(1 << 63)


def record(path: Path, records: Records, draw: random.Random, *, drop: bool = True) -> None:
    """Record what comes from outside, by a clock that shows its instants, in commits that are drawn."""
    shown = [0]
    with Timestamper(Channel.create(path, SCHEMA), "in", clock=lambda: shown[-1]) as node:
        Channel.open(path).seal()
        for instant, (hops, value) in records:
            shown.append(instant)
            node.send(pa.table({"hops": [hops], "value": [value]}))
            if draw.random() < 0.3:
                node.commit()
        if drop:
            node.drop()


def start(spark: Any, folder: Path, way: Any, lag: str = "100 milliseconds", **options: Any) -> Any:
    """Return the writer of a loop in which rows with hops come round."""
    if not Channel.exists(folder / "back"):
        Channel.create(folder / "back", recorded(SCHEMA), producers=["loop"])
    channels = {"in": str(folder / "in"), "back": str(folder / "back")}
    loop = read_loop(spark, channels, feedback={"back": {"instant": lag}}, domain=CLOCK, record=way, **options)
    rows = loop["in"].unionByName(loop["back"]).groupBy("time", "hops").agg(F.sum("value").alias("value"))
    again = rows.where("hops > 0").select("time", (F.col("hops") - 1).alias("hops"), (F.col("value") * 3 % 101).alias("value"))
    writer = loop.write({"back": again, "out": (rows.where("hops = 0"), folder / "out")})
    return writer.option("checkpointLocation", str(folder / "checkpoint"))


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a channel by time, with the times as tuples."""
    table = Channel.open(path).read()
    found = table.to_pylist()
    for name in ("time", ORIGINAL):
        if name in table.column_names:
            for row, at in zip(found, times_of(table.column(name), CLOCK), strict=True):
                row[name] = at
    return sorted(found, key=lambda row: row["time"])


@pytest.mark.drawn
@pytest.mark.parametrize(("lag", "following"), [(100, 1040), (100, 1200), (1000, 1200)])
def test_case_2_comes_round_before_the_next_record(spark: Any, tmp_path: Path, lag: int, following: int) -> None:
    """The seed's numbers: L = 100 ms, T = 1000. The next record at 1040 gives 1040, just before it; at 1200 it gives 1100.

    With L = 1 s, the next record at 1200 gives 1200.
    """
    way = {"way": "earliest", "lag": f"{lag} milliseconds"}
    records: Records = [(1000 * MS, (1, 7)), (following * MS, (0, 8))]
    shown = [0]
    channel = Channel.create(tmp_path / "in", SCHEMA)
    with Timestamper(channel, "in", clock=lambda: shown[-1]) as node:
        channel.seal()
        for instant, (hops, value) in records:
            shown.append(instant)
            node.commit()  # says that nothing comes before this instant
            start(spark, tmp_path, **way).trigger(availableNow=True).start().awaitTermination()
            node.send(pa.table({"hops": [hops], "value": [value]}))
            node.commit()
        shown.append(following * MS + 1)
        node.drop()
    start(spark, tmp_path, **way).trigger(availableNow=True).start().awaitTermination()
    (back,) = rows_of(tmp_path / "back")
    assert back["time"][0] == min(1000 + lag, following) * MS
    assert back["time"] < (following * MS, 0, 1)  # at one instant, what comes round goes first
    assert back["time"][1] == LINK
    assert back[ORIGINAL] == (1000 * MS, 0, 0)
    out = rows_of(tmp_path / "out")
    assert [row["value"] for row in out] == [21, 8]
    assert nodes(Channel.open(tmp_path / "back")) == {"loop": LINK}


def drawn(seed: int, count: int) -> Records:
    draw = random.Random(seed)
    instant, records = 0, []
    for _ in range(count):
        instant += draw.choice([0, 1, 10 * MS, 50 * MS, 100 * MS, 250 * MS])
        records.append((instant, (draw.randint(0, 3), draw.randint(0, 99))))
    return records


def check_recording(folder: Path, records: Records, lag: int, way: str) -> None:
    """The recording and the output are what plain Python makes of the rows at the recorded times, and no stamp is too early."""
    back, out = rows_of(folder / "back"), rows_of(folder / "out")
    assert len({row["time"] for row in back}) == len(back)
    numbers = [row["time"][2] for row in back]
    for row in back:
        assert row["time"][0] > row[ORIGINAL][0]
        if way == "earliest":
            assert row["time"][0] <= row[ORIGINAL][0] + lag
    assert len(set(numbers)) == len(numbers)
    at: dict[Any, dict[int, int]] = {}
    for n, (instant, (hops, value)) in enumerate(records):
        at.setdefault((instant, 0, n), {})[hops] = value
    for row in back:
        at.setdefault(row["time"], {})[row["hops"]] = row["value"]
    made = [(time, hops, value) for time, group in at.items() for hops, value in group.items()]
    again = sorted((time, hops - 1, value * 3 % 101) for time, hops, value in made if hops)
    assert again == sorted((row[ORIGINAL], row["hops"], row["value"]) for row in back)
    assert sorted((time, value) for time, hops, value in made if not hops) == [(row["time"], row["value"]) for row in out]


@pytest.mark.drawn
@pytest.mark.parametrize(("way", "seed"), [("earliest", 5), ("clock", 6)])
def test_a_recording_is_what_the_pipeline_makes_of_its_own_times(spark: Any, tmp_path: Path, way: str, seed: int) -> None:
    draw = random.Random(seed)
    records = drawn(seed, 12)
    record(tmp_path / "in", records, draw)
    with settings(spark, {"spark.sql.shuffle.partitions": "2"}):
        for _ in range(2):
            query = start(spark, tmp_path, way, maxFilesPerTrigger=2).start()
            while query.isActive and query.lastProgress is None:
                query.awaitTermination(0.1)
            query.stop()
        start(spark, tmp_path, way, maxFilesPerTrigger=2).trigger(availableNow=True).start().awaitTermination()
    assert not list(Channel.open(tmp_path / "back").frontier)
    check_recording(tmp_path, records, 100 * MS, way)


@pytest.mark.drawn
def test_very_many_rows_come_round_in_a_batch(spark: Any, tmp_path: Path) -> None:
    """More than are stated one by one: each has a time of its own, and the commit states their instant."""
    count = 70_000
    channel = Channel.create(tmp_path / "in", SCHEMA)
    with Timestamper(channel, "in", clock=lambda: 1000 * MS) as node:
        channel.seal()
        node.send(pa.table({"hops": [1] * count, "value": list(range(count))}))
        node.drop()
    Channel.create(tmp_path / "back", recorded(SCHEMA), producers=["loop"])
    channels = {name: str(tmp_path / name) for name in ("in", "back")}
    loop = read_loop(spark, channels, feedback={"back": {"instant": "1 second"}}, domain=CLOCK, record="earliest")
    writer = loop.write({"back": loop["in"], "out": (loop["back"], tmp_path / "out")})
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    out = Channel.open(tmp_path / "out")
    assert not list(out.frontier)
    assert sorted(out.read().column("value").to_pylist()) == list(range(count))
    assert len(set(times_of(out.read().column("time"), CLOCK))) == count
    assert verify(tmp_path / "back").sound
