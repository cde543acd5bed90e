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

from helpers import make_channel, run, say, stream
from native_scans import WAYS, add_file, batches, is_native, multiset
from pyspark_strandline import hold, read_channels, write_outputs
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.several.inputs import Inputs
from pyspark_strandline.read.source import StreamReader
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


@pytest.mark.drawn
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


@pytest.mark.drawn
def test_of_structs_only_the_fields_that_a_plan_uses_are_read(spark: Any, tmp_path: Path) -> None:
    """Also above a union and a join of several channels."""
    paths = {"a": mixed(tmp_path / "a", int64, 1), "b": mixed(tmp_path / "b", int64, 2)}
    streams = read_channels(spark, paths)
    united = streams["a"].union(streams["b"]).groupBy("time").agg(F.sum("deep.a").alias("s"))
    _, _, plan = batches(united, tmp_path / "checkpoint1")
    assert set(re.findall(r"ReadSchema: (struct<.*>)", plan)) == {"struct<time:bigint,deep:struct<a:int>>"}
    joined = streams["a"].join(streams["b"].select("time", "n"), ["time", "n"]).select("time", "deep.a")
    _, _, plan = batches(joined, tmp_path / "checkpoint2")
    assert set(re.findall(r"ReadSchema: (struct<.*>)", plan)) == {
        "struct<time:bigint,n:bigint,deep:struct<a:int>>",
        "struct<time:bigint,n:bigint>",
    }


def test_statistics_of_a_channels_own_columns_travel(tmp_path: Path) -> None:
    for name in ("x", "y"):
        say(make_channel(tmp_path / name, producers=("a",)), "a", (1, 5), then=[2])
    options = ReadOptions.parse(
        {"channels": json.dumps({name: str(tmp_path / name) for name in ("x", "y")}), "strandline.extension": "0"}
    ).for_stream()
    source = StreamReader(options, Inputs(options).schema())
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    asked = source.partitions(start, {**end, "statistics": [["x", "n"], ["_channel"], ["y"]]})
    scans = {value["channel"]: value["scan"] for value in (json.loads(part.value) for part in asked)}
    assert {name: [c["path"] for c in scan.get("statistics", {}).get("columns", [])] for name, scan in scans.items()} == {
        "x": [["n"]],
        "y": [],
    }


@pytest.mark.drawn
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


@pytest.mark.drawn
@pytest.mark.parametrize("form", ["rows", "sums", "join"])
def test_the_check_of_a_channels_rows_is_not_applied_to_what_a_batch_is_joined_with(
    spark: Any, tmp_path: Path, form: str
) -> None:
    """Spark concludes from a filter of one side of a join what holds on the other side, too."""
    paths = {name: str(tmp_path / name) for name in ("x", "y")}
    for path in paths.values():
        make_channel(Path(path), producers=("a",))
    days = spark.createDataFrame([(t, f"day {t}") for t in range(9)], "t long, day string")
    found: list[Any] = []

    def joined(batch: Any, _: int) -> None:
        found.extend(tuple(row) for row in batch.join(days, batch.time == days.t).select("time", "day").collect())
        again = batch.select(F.col("time").alias("t"))
        assert batch.join(again, batch.time == again.t).count() == batch.count()

    def run_on() -> None:
        streams = read_channels(spark, paths, nativeScan="on")
        rows = streams["x"].select("time", "n")
        if form == "sums":
            rows = rows.groupBy("time").agg(F.sum("n").alias("n"))
        if form == "join":
            rows = rows.join(streams["y"].select("time", "key"), "time")
        query = rows.writeStream.foreachBatch(joined).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    say(Channel.open(paths["x"]), "a", (1, 1), (3, 2), then=[6])
    say(Channel.open(paths["y"]), "a", (1, 1), then=[2])
    run_on()
    say(Channel.open(paths["x"]), "a", (7, 4), then=[])
    say(Channel.open(paths["y"]), "a", (3, 2), (7, 4), then=[])
    run_on()
    assert sorted(found) == [(1, "day 1"), (3, "day 3"), (7, "day 7")]


def test_a_filter_of_the_query_reaches_what_a_batch_is_joined_with(spark: Any, tmp_path: Path) -> None:
    """It holds on both sides of the join, other than the check of the channel's rows."""
    say(make_channel(tmp_path / "x", producers=("a",)), "a", (1, 1), (3, 2), then=[])
    days = spark.createDataFrame([(t, f"day {t}") for t in range(9)], "t long, day string")
    plans: list[str] = []

    def joined(batch: Any, _: int) -> None:
        both = batch.join(days, batch.n == days.t)
        plans.append(both._jdf.queryExecution().optimizedPlan().toString())
        assert [row.day for row in both.collect()] == ["day 2"]

    rows = read_channels(spark, {"x": tmp_path / "x"}, nativeScan="on")["x"].where("n = 2")
    query = rows.writeStream.foreachBatch(joined).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert re.search(r"Filter .*\bt#\d+L = 2", plans[0])
    assert "in advance of" not in plans[0]


def test_on_is_refused_where_no_filter_by_the_channel_stands_on_the_source(spark: Any, tmp_path: Path) -> None:
    paths = {name: str(tmp_path / name) for name in ("x", "y")}
    for path in paths.values():
        say(make_channel(Path(path), producers=("a",)), "a", (1, 1), then=[2])
    rows = spark.readStream.format("strandline").options(channels=json.dumps(paths))
    assert len(batches(rows.load(), tmp_path / "auto")[0]) == 2  # by Python
    with pytest.raises(Exception, match=r"STRANDLINE_NATIVE_SCAN_REFUSED.*no filter by the channel's name"):
        batches(rows.option("nativeScan", "on").load(), tmp_path / "on")


@pytest.mark.drawn
@pytest.mark.parametrize("domains", [name for name in DOMAINS if name != "equal"])
def test_times_that_enter_are_of_the_declared_type_also_for_the_sink(spark: Any, tmp_path: Path, domains: str) -> None:
    outer, inner = DOMAINS[domains]
    paths = {"a": mixed(tmp_path / "a", outer, 1), "b": mixed(tmp_path / "b", inner, 2)}
    found = {}
    for way in WAYS:
        streams = read_channels(spark, paths, domain=inner, nativeScan=way)
        only, both = streams["a"].select("time", "n"), streams["a"].union(streams["b"]).select("time", "n")
        run(only, tmp_path / f"only-{way}", tmp_path / f"cp-only-{way}")
        outputs = {"both": (both, str(tmp_path / f"both-{way}"))}
        writer = write_outputs(outputs).option("checkpointLocation", str(tmp_path / f"cp-both-{way}"))
        writer.trigger(availableNow=True).start().awaitTermination()
        tables = [Channel.open(tmp_path / f"{name}-{way}") for name in ("only", "both")]
        found[way] = [(table.schema, multiset(table.read().to_pylist())) for table in tables]
    assert found["on"] == found["off"]


OPERATORS: dict[str, Any] = {
    "dedup": lambda a, b: a.dropDuplicates(["time", "n"]),
    "join": lambda a, b: a.join(b.withColumnRenamed("n", "m"), "time"),
    "hold": lambda a, b: hold(a, by="n"),
    "filter": lambda a, b: a.where("n > 1").dropDuplicates(["time", "n"]),
}


@pytest.mark.drawn
@pytest.mark.parametrize("operator", OPERATORS)
def test_each_run_may_read_another_way(spark: Any, tmp_path: Path, operator: str) -> None:
    """Natively, by Python, and natively again: the state of the operators has one schema."""
    pair = parse_domain("product(e int64, i int64)")
    a, b = make_channel(tmp_path / "a", producers=("a",)), make_channel(tmp_path / "b", pair, producers=("a",))
    paths = {name: str(tmp_path / name) for name in ("a", "b")}
    for at, way in enumerate(("on", "off", "on")):
        say(a, "a", (at, at), (at, 2), (at, 2), then=[at + 1])
        say(b, "a", ((at, 0), 5), then=[(at, 1), (at + 1, 0)])
        streams = read_channels(spark, paths, domain=pair, nativeScan=way)
        columns = ("time", "n")
        frame = OPERATORS[operator](streams["a"].select(*columns), streams["b"].select(*columns))
        run(frame, tmp_path / "out", tmp_path / "checkpoint")
    rows = [(at, n) for at in range(3) for n in (at, 2, 2)]
    expected = {
        "dedup": sorted(set(rows)),
        "join": sorted((*row, 5) for row in rows),
        "hold": sorted(rows),
        "filter": sorted({row for row in rows if row[1] > 1}),
    }[operator]
    found = [tuple(row.values()) for row in Channel.open(tmp_path / "out").read().to_pylist()]
    assert sorted((time["e"], *others) for time, *others in found) == expected


def test_a_branch_that_can_have_no_row_reads_nothing(spark: Any, tmp_path: Path) -> None:
    paths = {name: str(tmp_path / name) for name in ("x", "y")}
    for path in paths.values():
        say(make_channel(Path(path), producers=("a",)), "a", (1, 1), (1, 2), then=[2])
    streams = read_channels(spark, paths, nativeScan="on")
    both = streams["x"].where("n > 2 AND n < 1 AND 1 = 0").union(streams["y"])
    rows, progress, _ = batches(both, tmp_path / "checkpoint")
    assert len(rows) == 2
    assert sum(p["numInputRows"] for p in progress) == 2


def test_a_file_with_a_column_of_another_case_is_read_by_python(spark: Any, tmp_path: Path) -> None:
    """Spark's reader does not look at the case of letters, and would take the column for the channel's."""
    channel = make_channel(tmp_path / "c", producers=("a",))
    add_file(
        channel, "foreign.parquet", pa.table({"time": pa.array([1], pa.int64()), "key": ["k"], "N": pa.array([7], pa.int64())})
    )
    rows, _, plan = batches(stream(spark, tmp_path / "c"), tmp_path / "checkpoint")
    assert [(row["time"], row["n"]) for row in rows] == [(1, None)]
    assert "the case of letters" in plan
