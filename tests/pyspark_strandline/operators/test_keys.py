"""Keys of processors, functions and vertices are Spark's groups: a batch query with groupBy has the same ones."""

from __future__ import annotations

import random
import struct
from collections import Counter
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_strandline import Processor, VertexProgram, hold, on_complete, pregel, process
from strandline import StrandlineError, int64
from strandline.channel import Channel
from strandline.time.arrow import time_field

pytestmark = pytest.mark.spark
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def nan(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


FLOATS = [0.0, -0.0, 1.5, float("nan"), nan(0xFFF8000000000000), nan(0x7FF8000000000001), float("inf"), None]
SINGLES = [0.0, -0.0, 0.1, float("nan"), None]
# Spark's memory sink keeps rows as java.sql.Timestamp, which knows no days from 1582-10-05 to 14.
MOMENTS = [datetime(2024, 10, 27, 0, 30), datetime(2024, 10, 27, 1, 30), datetime(1582, 10, 4), datetime(1900, 1, 1), None]
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "double": (pa.float64(), FLOATS),
    "single": (pa.float32(), SINGLES),
    "long": (pa.int64(), [2**53, 2**53 + 1, -(2**63), 0, None]),
    "text": (pa.string(), ["a", "A", "a ", "", "é", "e\u0301", None]),
    "bytes": (pa.binary(), [b"", b"\x00", b"\xff", None]),
    "truth": (pa.bool_(), [True, False, None]),
    "money": (pa.decimal128(10, 2), [Decimal("1.00"), Decimal("-1.00"), Decimal("0.00"), None]),
    "huge": (pa.decimal128(38, 2), [Decimal(2**100), Decimal(2**100 + 1), None]),
    "day": (pa.date32(), [date(2024, 1, 1), date(1, 1, 1), date(9999, 12, 31), None]),
    "instant": (pa.timestamp("us", tz="UTC"), [each and each.replace(tzinfo=timezone.utc) for each in MOMENTS]),
    "local": (pa.timestamp("us"), MOMENTS),
    "pair": (
        pa.struct([("x", pa.float64()), ("t", pa.string())]),
        [None, *({"x": x, "t": t} for x in FLOATS for t in ("a", None))],
    ),
    "list": (pa.list_(pa.float64()), [None, [], *([x] for x in FLOATS), [0.0, 1.0], [-0.0, 1.0]]),
    "deep": (
        pa.list_(pa.struct([("x", pa.list_(pa.float32()))])),
        [None, *([{"x": [x]}] for x in SINGLES), [None], [{"x": None}]],
    ),
}
COUNTED = "c bigint"


class Count(Processor):
    """Counts a key's rows, over all batches."""

    schema = COUNTED
    state_schema = COUNTED

    def on_rows(self, time: Any, rows: pa.Table) -> None:
        self.state = {"c": (self.state or {"c": 0})["c"] + rows.num_rows}
        self.notify_at(time)

    def on_notify(self, time: Any) -> None:
        self.emit(time, [self.state])


def written(path: Path, columns: dict[str, pa.DataType], steps: list[list[tuple[Any, ...]]]) -> str:
    """A channel with the rows of each step in a file of its own, all at the time 0."""
    schema = pa.schema([time_field("time", int64), *columns.items()])
    channel = Channel.create(path, schema, producers=["p"], at=0)
    with channel.producer("p") as producer:
        for number, rows in enumerate(steps):
            arrays = [pa.array([row[at] for row in rows], type_) for at, type_ in enumerate(columns.values())]
            producer.send(pa.table([pa.array([0] * len(rows)), *arrays], schema=schema))
            if number < len(steps) - 1:
                producer.commit()
        producer.delay(1)
    return str(path)


def stream(spark: Any, path: str) -> DataFrame:
    frame: DataFrame = spark.readStream.format("strandline").option("maxFilesPerTrigger", 1).load(path)
    return frame


def results(frame: DataFrame, folder: Path, name: str) -> list[tuple[Any, ...]]:
    writer = frame.writeStream.format("memory").queryName(name).outputMode("append").trigger(availableNow=True)
    writer.option("checkpointLocation", str(folder / name)).start().awaitTermination()
    return [tuple(row) for row in frame.sparkSession.table(name).collect()]


def counted(rows: list[tuple[Any, ...]]) -> Counter[str]:
    return Counter(map(repr, rows))


def counts_are_those_of_group_by(spark: Any, tmp_path: Path, kinds: list[str], draw: random.Random) -> None:
    rows = [tuple(draw.choice(KINDS[kind][1]) for kind in kinds) for _ in range(draw.randint(2, 60))]
    cuts = sorted(draw.sample(range(1, len(rows)), min(draw.randint(1, 2), len(rows) - 1)))
    steps = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    path = written(tmp_path / "in", {kind: KINDS[kind][0] for kind in kinds}, steps)
    batch = spark.read.format("strandline").load(path)
    groups = [tuple(row) for row in batch.groupBy(*kinds).count().collect()]
    found = results(process(stream(spark, path), Count(), key=kinds).select(*kinds, "c"), tmp_path, "processor")
    assert counted(found) == counted(groups)

    def count(time: Any, key: tuple[Any, ...], part: pa.Table) -> list[dict[str, Any]]:
        return [{"key": [repr(value) for value in key], "c": part.num_rows}]

    called = [
        tuple(row)
        for row in results(on_complete(stream(spark, path), count, f"key array<string>, {COUNTED}", kinds), tmp_path, "function")
    ]
    again = [tuple(row) for row in on_complete(batch, count, f"key array<string>, {COUNTED}", kinds).collect()]
    assert counted(called) == counted(again)
    assert sorted(c for _, c in called) == sorted(row[-1] for row in groups)
    assert not any("-0.0" in text for key, _ in called for text in key)


# Spark keeps the columns of an operator in a set, which loses their order if there are five: three of a key, the time, the mark.
@pytest.mark.drawn
@pytest.mark.parametrize("kinds", [["double"], ["pair", "deep"], ["long", "text", "pair", "day"]])
def test_a_count_for_each_key_is_that_of_group_by(spark: Any, tmp_path: Path, kinds: list[str]) -> None:
    counts_are_those_of_group_by(spark, tmp_path, kinds, random.Random(7))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(60))
def test_a_count_for_each_drawn_key_is_that_of_group_by(spark: Any, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    if draw.random() < 0.5:
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
    try:
        counts_are_those_of_group_by(spark, tmp_path, draw.sample(list(KINDS), draw.choice([1, 1, 2, 3])), draw)
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")


def test_rows_that_are_held_stay_as_they_are_and_a_key_has_one_place(spark: Any, tmp_path: Path) -> None:
    rows = [(value, [value]) for value in FLOATS for _ in range(3)]
    path = written(tmp_path / "in", {"x": pa.float64(), "xs": pa.list_(pa.float64())}, [rows[::2], rows[1::2]])
    for by in ("x", "xs"):
        held = results(hold(stream(spark, path), by=by).select("x", F.spark_partition_id()), tmp_path, f"held_{by}")
        assert Counter(bits(x) for x, _ in held) == Counter(bits(x) for x, _ in rows)
        groups = [None if x is None else "nan" if x != x else x for x, _ in held]
        # A memory sink has each partition's rows in order.
        runs = [group for number, group in enumerate(groups) if number == 0 or group != groups[number - 1]]
        assert len(runs) == len(set(runs)), by
        assert len({(group, part) for group, (_, part) in zip(groups, held, strict=True)}) == len(set(groups)), by


def bits(x: float | None) -> Any:
    """What a float is, but for the NaN that it is, which Python's rows do not keep."""
    return None if x is None else "nan" if x != x else struct.pack("<d", x)


def test_a_key_that_no_state_finds_is_refused_at_the_call(spark: Any, tmp_path: Path) -> None:
    frame = stream(spark, written(tmp_path / "in", {"x": pa.string()}, [[("a",)]]))
    for made, why in (
        (F.collate("x", "UTF8_LCASE"), "collation UTF8_LCASE"),
        (F.array(F.struct(F.collate("x", "UTF8_LCASE"))), "collation UTF8_LCASE"),
        (F.create_map("x", "x"), "has a map"),
        (F.parse_json(F.lit("1")), "variant"),
        (F.make_interval(F.lit(1)), "interval"),
    ):
        odd = frame.withColumn("k", made)
        for call in (
            lambda odd=odd: process(odd, Count(), "k"),
            lambda odd=odd: hold(odd, by="k"),
            lambda odd=odd: on_complete(odd, len, COUNTED, "k"),
        ):
            with pytest.raises(StrandlineError, match=rf"STRANDLINE_KEY_INVALID.*column k .*{why}"):
                call()


class Tell(VertexProgram):
    """Sends what it gets to another vertex, once, and counts what comes."""

    state_schema = COUNTED
    message_schema = "n bigint"
    schema = COUNTED

    def compute(self, inputs: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
        for row in inputs:
            self.send(row["other"], n=1)
        self.state = {"c": (self.state or {"c": 0})["c"] + len(inputs) + len(messages)}

    def result(self) -> dict[str, Any] | None:
        return self.state


@pytest.mark.drawn
def test_messages_go_to_the_vertex_that_group_by_means(spark: Any, tmp_path: Path) -> None:
    edges = [(0.0, -0.0), (-0.0, 0.0), (float("nan"), nan(0xFFF8000000000000)), (None, None), (1.5, float("nan"))]
    path = written(tmp_path / "in", {"vertex": pa.float64(), "other": pa.float64()}, [edges])
    writer = pregel(spark, {"edges": path}, Tell(), lambda streams: streams["edges"], tmp_path / "out")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    rows = Channel.open(tmp_path / "out" / "result").read().to_pylist()
    assert {str(row["vertex"]): row["c"] for row in rows} == {"0.0": 4, "nan": 3, "None": 2, "1.5": 1}
    assert len(rows) == 4
