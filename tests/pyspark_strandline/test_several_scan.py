"""The native scan of a source of several channels: the same rows as by Python, only the columns needed, each row checked."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql.streaming.datasource import ReadAllAvailable

from helpers import make_channel, say
from native_scans import WAYS, batches, is_native, multiset
from pyspark_strandline import read_channels
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.several.inputs import Inputs
from pyspark_strandline.read.several.source import SeveralReader
from strandline.channel import Channel
from strandline.time.arrow import array_of, time_field
from strandline.time.domain import TimeDomain, int64, parse_domain

pytestmark = pytest.mark.spark

DOMAINS = {
    "equal": (int64, int64),
    "a scalar enters": (int64, parse_domain("product(e int64, i int32)")),
    "first coordinates enter": (
        parse_domain("product(e timestamp, i int16)"),
        parse_domain("product(e timestamp, i int16, j int8)"),
    ),
    "a struct enters as the first": (
        parse_domain("product(e int64, i int64)"),
        parse_domain("lex(both product(e int64, i int64), k lex(m int8, n int64))"),
    ),
}


def value(r: random.Random, domain: TimeDomain) -> Any:
    """A small time of a domain."""
    parts = domain.coordinates
    return tuple(value(r, part) for _, part in parts) if len(parts) > 1 else r.randrange(4)


def mixed(path: Path, domain: TimeDomain, seed: int) -> str:
    """A channel with columns of many types, in several files."""
    r = random.Random(seed)
    nested = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
    fields = [("n", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("deep", nested), ("d", pa.decimal128(12, 2))]
    schema = pa.schema([time_field("time", domain), *fields, ("u", pa.timestamp("us", "UTC"))])
    channel = Channel.create(path, schema, time="time", producers=["p"])
    with channel.producer("p") as producer:
        for _ in range(3):
            rows = [
                {
                    "n": r.randrange(9),
                    "x": r.choice([None, 0.0, -0.0, float("nan"), 1.5]),
                    "s": r.choice([None, "", "ä b"]),
                    "deep": r.choice([None, {"a": 1, "b": ["x", None]}, {"a": None, "b": []}]),
                    "d": None,
                    "u": r.choice([None, 0, 1_700_000_000_000_001]),
                }
                for _ in range(r.randrange(6))
            ]
            times = array_of([value(r, domain) for _ in rows], domain)
            table = pa.Table.from_pylist(rows, schema=pa.schema(list(schema)[1:]))
            producer.send(table.add_column(0, schema.field(0), times))
            producer.commit()
        producer.delay([])
    return str(path)


@pytest.mark.parametrize("domains", DOMAINS)
def test_the_jvm_reads_the_same_rows_as_python(spark: Any, tmp_path: Path, domains: str) -> None:
    outer, inner = DOMAINS[domains]
    paths = {"a": mixed(tmp_path / "a", outer, 1), "b c`": mixed(tmp_path / "b", inner, 2)}
    read = {}
    for way in WAYS:
        streams = read_channels(spark, paths, domain=inner, nativeScan=way)
        both = streams["a"].union(streams["b c`"].where("n > 2 OR x IS NULL")).union(streams["a"].where("deep.a = 1"))
        rows, progress, plan = batches(both, tmp_path / way)
        read[way] = multiset(rows)
        assert is_native(plan) == (way == "on")
        if way == "on":  # each branch reads its own rows, those of a twice
            assert sum(p["numInputRows"] for p in progress) == sum(
                Channel.open(path).read().num_rows * times for path, times in zip(paths.values(), (2, 1), strict=True)
            )
    assert read["on"] == read["off"]
    assert len(read["on"]) > 5


def test_a_branch_reads_only_its_columns(spark: Any, tmp_path: Path) -> None:
    paths = {"a": mixed(tmp_path / "a", int64, 1), "b": mixed(tmp_path / "b", int64, 2)}
    streams = read_channels(spark, paths)
    both = streams["a"].select("time", "n").union(streams["b"].where("n > 3").select("time", F.col("deep.a").cast("long")))
    _, _, plan = batches(both, tmp_path / "checkpoint")
    assert re.findall(r"ReadSchema: (struct<.*>)", plan) == [
        "struct<time:bigint,n:bigint>",
        "struct<time:bigint,n:bigint,deep:struct<a:int>>",
    ]
    assert "GreaterThan(n,3)" in plan


def test_statistics_of_a_channels_own_columns_travel(tmp_path: Path) -> None:
    for name in ("x", "y"):
        say(make_channel(tmp_path / name, producers=("a",)), "a", (1, 5), then=[2])
    options = ReadOptions.parse(
        {"channels": json.dumps({name: str(tmp_path / name) for name in ("x", "y")}), "strandline.extension": "0"}
    ).for_stream()
    source = SeveralReader(options, Inputs(options).schema())
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    asked = source.partitions(start, {**end, "statistics": [["x", "n"], ["_channel"], ["y"]]})
    scans = {value["channel"]: value["scan"] for value in (json.loads(part.value) for part in asked)}
    assert {name: [c["path"] for c in scan.get("statistics", {}).get("columns", [])] for name, scan in scans.items()} == {
        "x": [["n"]],
        "y": [],
    }


def test_a_row_behind_its_own_channels_frontier_is_refused_natively(spark: Any, tmp_path: Path) -> None:
    """The other channel still holds the row's time open. That does not excuse it."""
    paths = {name: str(tmp_path / name) for name in ("x", "y")}
    for path in paths.values():
        make_channel(Path(path), producers=("a",))
    say(Channel.open(paths["x"]), "a", (1, 1), then=[5])

    def read() -> list[Any]:
        streams = read_channels(spark, paths, nativeScan="on")
        return batches(streams["x"].union(streams["y"]), tmp_path / "checkpoint")[0]

    assert len(read()) == 1
    say(Channel.open(paths["x"]), "a", (7, 7), then=[8])
    first, *_, newest = (p for p in sorted(Path(paths["x"], "_delta_log").glob("*.json")) if '"add"' in p.read_text())
    old = next(line for line in first.read_text().splitlines() if line.startswith('{"add"'))
    newest.write_text("\n".join(old if line.startswith('{"add"') else line for line in newest.read_text().splitlines()))
    with pytest.raises(Exception, match=r"(?s)STRANDLINE_ROW_BEHIND_FRONTIER.*time 1 .*channel x.*frontier \{5\}.*read from"):
        read()


def test_on_is_refused_where_no_filter_by_the_channel_stands_on_the_source(spark: Any, tmp_path: Path) -> None:
    paths = {name: str(tmp_path / name) for name in ("x", "y")}
    for path in paths.values():
        say(make_channel(Path(path), producers=("a",)), "a", (1, 1), then=[2])
    rows = spark.readStream.format("strandline").options(channels=json.dumps(paths))
    assert len(batches(rows.load(), tmp_path / "auto")[0]) == 2  # by Python
    with pytest.raises(Exception, match=r"STRANDLINE_NATIVE_SCAN_REFUSED.*no filter by the channel's name"):
        batches(rows.option("nativeScan", "on").load(), tmp_path / "on")
