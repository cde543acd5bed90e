"""The native scan: row for row what Python reads, under every guard, plan and restart."""

from __future__ import annotations

import decimal
import math
import random
import re
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

from helpers import contents, make_channel, run, say, stream
from native_scans import WAYS, add_file, batches, both_ways, is_native, multiset, plan_of
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read import input_partition
from pyspark_strandline.read.native_scan import Decision, NativeScan
from strandline.channel import Channel
from strandline.delta.storage import open_store
from strandline.errors import StrandlineError
from strandline.time.arrow import time_field
from strandline.time.domain import int64, product

pytestmark = pytest.mark.spark

UTC = timezone.utc


# ---- generated schemas and data -------------------------------------------------------------------------------------------


SCALARS: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): [-128, 0, 127],
    pa.int16(): [-(1 << 15), (1 << 15) - 1],
    pa.int32(): [-(1 << 31), 7, (1 << 31) - 1],
    pa.int64(): [-(1 << 63), 7, (1 << 63) - 1],
    pa.float32(): [float("nan"), float("inf"), -0.0, 0.0, 1.5],
    pa.float64(): [float("nan"), float("-inf"), -0.0, 5e-324, 1.7976931348623157e308],
    pa.string(): ["", "é", "naïve 🌊", "a\0b", "x" * 300],
    pa.binary(): [b"", b"\x00\xff", b"y" * 100],
    pa.date32(): [date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(1969, 12, 31), date(9999, 12, 31)],
    pa.decimal128(9, 2): [decimal.Decimal("-9999999.99"), decimal.Decimal("0.01")],
    pa.decimal128(18, 0): [decimal.Decimal(10**18 - 1), decimal.Decimal(0)],
    pa.decimal128(38, 18): [decimal.Decimal("99999999999999999999.999999999999999999"), decimal.Decimal("-1.5")],
    pa.timestamp("us", "UTC"): [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1582, 10, 10, 12, tzinfo=UTC),
        datetime(1883, 11, 18, 12, 3, 58, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
    pa.timestamp("us"): [datetime(1, 1, 1), datetime(1899, 12, 31, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)],
}


def a_type(random_: random.Random, depth: int) -> pa.DataType:
    kind = random_.choice(["scalar", "scalar", "struct", "list", "map"]) if depth else "scalar"
    if kind == "struct":
        return pa.struct([(f"f{i}", a_type(random_, depth - 1)) for i in range(random_.randint(1, 3))])
    if kind == "list":
        return pa.list_(a_type(random_, depth - 1))
    if kind == "map":
        return pa.map_(random_.choice([pa.string(), pa.int32(), pa.date32()]), a_type(random_, depth - 1))
    # delta-rs does not find a timestamp without a zone far inside of maps, and makes a table that it cannot open.
    return random_.choice([kind for kind in SCALARS if kind != pa.timestamp("us")])


def a_value(random_: random.Random, kind: pa.DataType, nulls: bool = True) -> Any:
    if nulls and random_.random() < 0.2:
        return None
    if pa.types.is_struct(kind):
        return {f.name: a_value(random_, f.type) for f in kind}
    if pa.types.is_map(kind):
        keys = {a_value(random_, kind.key_type, nulls=False) for _ in range(random_.randint(0, 3))}
        return [(key, a_value(random_, kind.item_type)) for key in sorted(keys)]
    if pa.types.is_list(kind):
        return [a_value(random_, kind.value_type) for _ in range(random_.randint(0, 3))]
    return random_.choice(SCALARS[kind])


def generated(path: Path, seed: int, columns: list[tuple[str, pa.DataType]], files: int = 3) -> Channel:
    """A channel of these columns with generated rows, its time counting them."""
    random_ = random.Random(seed)
    schema = pa.schema([time_field("time", int64), *columns])
    channel = Channel.create(path, schema, producers=["a"])
    for file in range(files):
        n = random_.randint(1, 40)
        data = {"time": pa.array([1000 * file + i for i in range(n)])}
        data |= {name: pa.array([a_value(random_, kind) for _ in range(n)], kind) for name, kind in columns}
        with channel.producer("a") as session:
            session.send(pa.table(data, schema=schema))
            session.delay([1000 * (file + 1)])
            session.commit()
    return channel


@pytest.mark.drawn
def test_every_type_is_read_as_python_reads_it(spark: Any, tmp_path: Path) -> None:
    columns = [(f"c{i}", kind) for i, kind in enumerate(SCALARS)]
    columns.append(("structs", pa.struct([(f"x{i}", kind) for i, kind in enumerate(SCALARS)])))
    columns.append(("lists", pa.struct([(f"x{i}", pa.list_(kind)) for i, kind in enumerate(SCALARS)])))
    columns.append(("maps", pa.struct([(f"x{i}", pa.map_(pa.string(), kind)) for i, kind in enumerate(SCALARS)])))
    generated(tmp_path / "in", 1, columns)
    assert both_ways(spark, tmp_path / "in", tmp_path)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(4))
def test_generated_nested_schemas_are_read_as_python_reads_them(spark: Any, tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    columns = [(f"c{i}", a_type(random_, 3)) for i in range(random_.randint(1, 6))]
    generated(tmp_path / "in", seed, columns)
    assert both_ways(spark, tmp_path / "in", tmp_path)


def test_only_the_columns_and_nested_fields_that_are_used_are_read(spark: Any, tmp_path: Path) -> None:
    inner = pa.struct([("x", pa.int64()), ("y", pa.string()), ("z", pa.list_(pa.int32()))])
    generated(tmp_path / "in", 5, [("n", pa.int64()), ("s", inner), ("unused", pa.string())])
    got = both_ways(spark, tmp_path / "in", tmp_path, lambda frame: frame.select("n", "s.y"))
    assert got
    frame = stream(spark, tmp_path / "in", nativeScan="on").select("n", "s.y")
    _, _, plan = batches(frame, tmp_path / "again")
    assert "ReadSchema: struct<n:bigint,s:struct<y:string>>" in plan


def test_a_time_that_is_used_in_part_is_read_whole_for_its_guard(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", product(at="timestamp", iter="int64"), producers=("a",))
    say(channel, "a", ((5, 1), 1), ((3_600_000_000, 0), 2), then=[(3_600_000_000, 0)])
    frame = stream(spark, tmp_path / "in", nativeScan="on").groupBy(F.window("time.at", "1 hour")).agg(F.sum("n").alias("n"))
    query = frame.writeStream.format("memory").queryName("whole").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = query.trigger(availableNow=True).start()
    query.awaitTermination()
    plan = plan_of(query)
    assert is_native(plan)
    assert "ReadSchema: struct<time:struct<at:timestamp,iter:bigint>,n:bigint>" in plan
    assert "Guard" in plan
    assert [r.n for r in spark.table("whole").collect()] == [1]


@pytest.mark.parametrize("way", WAYS)
def test_a_row_behind_the_frontier_fails_the_batch_whoever_reads(spark: Any, tmp_path: Path, way: str) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    frame = stream(spark, tmp_path / "in", nativeScan=way).groupBy("time").agg(F.sum("n").alias("n"))
    say(channel, "a", (1, 1), then=[5])
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    say(channel, "a", (7, 1), then=[8])
    tamper(tmp_path / "in")
    with pytest.raises(
        StreamingQueryException, match=r"STRANDLINE_ROW_BEHIND_FRONTIER.*time 1 came.*channel " + channel.table_id
    ):
        run(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert contents(tmp_path / "out") == [(1, 1)]


def tamper(path: Path) -> None:
    """Put the first commit's file into the newest commit, whose statement says that it cannot come any more."""
    commits = [p for p in sorted((path / "_delta_log").glob("*.json")) if '"add"' in p.read_text()]
    old_add = next(line for line in commits[0].read_text().splitlines() if line.startswith('{"add"'))
    lines = [old_add if line.startswith('{"add"') else line for line in commits[-1].read_text().splitlines()]
    commits[-1].write_text("\n".join(lines))


@pytest.mark.drawn
def test_each_source_of_a_union_is_held_to_its_own_promise(spark: Any, tmp_path: Path) -> None:
    left, right = (make_channel(tmp_path / name, producers=("a",)) for name in ("left", "right"))
    say(left, "a", (1, 1), then=[5])
    say(right, "a", (1, 10), then=[2])
    both = stream(spark, tmp_path / "left", nativeScan="on").union(stream(spark, tmp_path / "right", nativeScan="off"))
    frame = both.groupBy("time").agg(F.sum("n").alias("n"))
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert contents(tmp_path / "out") == [(1, 11)]
    say(left, "a", (7, 1), then=[8])
    tamper(tmp_path / "left")  # time 1 is behind the left promise, and behind the meet as well
    with pytest.raises(StreamingQueryException, match="STRANDLINE_ROW_BEHIND_FRONTIER.*channel " + left.table_id):
        run(frame, tmp_path / "out", tmp_path / "checkpoint")


@pytest.mark.drawn
def test_idle_sources_unions_and_self_unions_close_as_they_do_with_python(spark: Any, tmp_path: Path) -> None:
    left, right = (make_channel(tmp_path / name, producers=("a",)) for name in ("left", "right"))

    def frame(way: str) -> Any:
        one, other = (stream(spark, tmp_path / name, nativeScan=way) for name in ("left", "right"))
        return one.union(one.where("n > 0")).union(other).groupBy("time").agg(F.sum("n").alias("n"), F.count("*").alias("rows"))

    say(left, "a", (1, 1), then=[9])
    say(right, "a", then=[1])
    seen = []
    # The way changes at restarts; the left source is idle after the first batch, and still counts.
    for way, row, then in (("on", 10, 2), ("off", 100, 3), ("on", 1000, 9)):
        progress = run(frame(way), tmp_path / "out", tmp_path / "checkpoint")
        seen.append((contents(tmp_path / "out"), sum(p["numInputRows"] for p in progress)))
        say(right, "a", (then - 1, row), then=[then])
    assert seen == [([], 2), ([(1, 12, 3)], 1), ([(1, 12, 3), (2, 100, 1)], 1)]
    assert Channel.open(tmp_path / "out").frontier.to_json() == [3]


@pytest.mark.drawn
def test_limits_and_restarts_give_every_row_once_in_either_way(spark: Any, tmp_path: Path) -> None:
    channel = generated(tmp_path / "in", 11, [("n", pa.int64()), ("s", pa.string())], files=7)
    got: list[Any] = []
    for turn, way in enumerate(("on", "off", "auto")):
        frame = stream(spark, tmp_path / "in", nativeScan=way, maxFilesPerTrigger="2")
        rows_, progress, _ = batches(frame, tmp_path / "checkpoint")
        assert sum(p["numInputRows"] for p in progress) == len(rows_)
        got += rows_
        with channel.producer("a") as session:
            session.send(pa.table({"time": [9000 + turn], "n": [turn], "s": [way]}, schema=channel.schema))
            session.commit()
    assert multiset(got) == multiset([r for r in channel.read().to_pylist() if r["time"] != 9002])


def test_a_file_of_many_row_groups_is_split_among_tasks(spark: Any, tmp_path: Path) -> None:
    channel = Channel.create(tmp_path / "in", pa.schema([time_field("time", int64), ("n", pa.int64())]), producers=["a"])
    add_file(channel, "many.parquet", pa.table({"time": range(5000), "n": range(5000)}), row_group_size=100)
    spark.conf.set("spark.sql.files.maxPartitionBytes", "20000")
    try:
        frame = stream(spark, tmp_path / "in", nativeScan="on", maxPartitionBytes="20000")
        got, progress, plan = batches(frame.select("n", F.spark_partition_id().alias("p")), tmp_path / "checkpoint")
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert is_native(plan)
    assert len({r["p"] for r in got}) > 1
    assert sorted(r["n"] for r in got) == list(range(5000))
    assert [p["numInputRows"] for p in progress] == [5000]


# ---- what Python decides --------------------------------------------------------------------------------------------------


def decision(channel: Channel, **options: str) -> Any:
    """What the source would tell the shim of all the channel's files."""
    parsed = ReadOptions.parse({"path": str(channel.path), **options})
    return NativeScan(parsed, channel.schema).decide(channel.snapshot_files(), channel.schema)


def foreign(path: Path, name: str, table: pa.Table, schema: pa.Schema, **how: Any) -> Channel:
    channel = Channel.create(path, schema, producers=["a"])
    add_file(channel, name, table, **how)
    return channel


NUMBERS = pa.schema([time_field("time", int64), ("n", pa.int64())])
MOMENTS = pa.schema([time_field("time", int64), ("at", pa.timestamp("us", "UTC"))])
LOCAL_MOMENTS = pa.schema([time_field("time", int64), ("at", pa.timestamp("us"))])


def numbers(kind: str = "int64") -> pa.Table:
    return pa.table({"time": [1, 2], "n": pa.array([1, 2], kind)})


def moments(unit: str, zone: str | None = "UTC") -> pa.Table:
    return pa.table({"time": [1], "at": pa.array([0], pa.timestamp(unit, zone))})


def test_timestamps_as_int96_are_for_both(tmp_path: Path) -> None:
    channel = foreign(tmp_path / "in", "x.parquet", moments("us"), MOMENTS, use_deprecated_int96_timestamps=True)
    assert decision(channel).root is not None


@pytest.mark.parametrize(
    ("reason", "table", "schema", "how"),
    [
        ("n as INT32", numbers("int32"), NUMBERS, {}),
        ("n as INT64 .*UINT|n as INT64 .*isSigned=false", numbers("uint64"), NUMBERS, {}),
        ("BYTE_STREAM_SPLIT", numbers(), NUMBERS, {"use_dictionary": False, "column_encoding": {"n": "BYTE_STREAM_SPLIT"}}),
        ("BROTLI", numbers(), NUMBERS, {"compression": "brotli"}),
        ("at as INT96", moments("us", None), LOCAL_MOMENTS, {"use_deprecated_int96_timestamps": True}),
        ("at as INT64", moments("ns"), MOMENTS, {}),
        ("at as INT64", moments("ms"), MOMENTS, {}),
    ],
)
def test_what_the_jvm_would_refuse_or_read_otherwise_is_left_to_python(
    tmp_path: Path, reason: str, table: pa.Table, schema: pa.Schema, how: dict[str, Any]
) -> None:
    decided = decision(foreign(tmp_path / "in", "x.parquet", table, schema, **how))
    assert decided.root is None
    assert re.search(reason, decided.reason)


def test_files_of_others_that_are_like_our_own_are_read_natively(tmp_path: Path) -> None:
    channel = foreign(tmp_path / "in", "x.parquet", numbers(), NUMBERS, compression="snappy")
    add_file(channel, "later-column-missing.parquet", numbers().select(["time"]))
    assert decision(channel).root == str(tmp_path / "in")


def test_a_nested_field_that_a_file_lacks_is_left_to_python(tmp_path: Path) -> None:
    schema = pa.schema([time_field("time", int64), ("s", pa.struct([("x", pa.int64()), ("y", pa.int64())]))])
    table = pa.table({"time": [1], "s": pa.array([{"x": 1}], pa.struct([("x", pa.int64())]))})
    assert "lacks s.y" in decision(foreign(tmp_path / "in", "x.parquet", table, schema)).reason


def test_our_own_files_are_known_without_opening_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    monkeypatch.setattr(pq, "read_metadata", lambda *_: pytest.fail("a footer was read"))
    assert decision(channel).root == str(tmp_path / "in")


def test_a_channel_whose_columns_changed_under_the_query_is_left_to_python(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    before = pa.schema([pa.field("n", pa.string())])
    decided = NativeScan(ReadOptions.parse({"path": str(channel.path)}), before).decide(channel.snapshot_files(), channel.schema)
    assert decided.reason == "column 'n' of the channel is no longer string"


def test_a_file_that_is_not_as_the_log_has_it_is_left_to_python(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    name = channel.snapshot_files()[0].path
    with (tmp_path / "in" / name).open("ab") as file:
        file.write(b"more")
    assert "but the log states" in decision(channel).reason
    with pytest.raises(Exception, match="STRANDLINE_NATIVE_SCAN_REFUSED.*but the log states"):
        decision(channel, nativeScan="on")


def test_a_missing_file_is_the_same_error_or_passed_over(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    say(channel, "a", (2, 1), then=[3])
    (tmp_path / "in" / channel.snapshot_files()[0].path).unlink()
    with pytest.raises(Exception, match="STRANDLINE_DATA_FILE_MISSING"):
        decision(channel)
    decided = decision(channel, failOnDataLoss="false")
    assert (len(decided.files), decided.tolerant) == (1, True)
    assert decided.root is not None


@pytest.mark.parametrize("read", ["native", "python"])
@pytest.mark.parametrize("newest", [True, False])
def test_a_missing_file_offers_a_new_start_only_where_the_newest_version_lacks_it(
    newest: bool, read: str, tmp_path: Path
) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    say(channel, "a", (2, 1), then=[3])
    files = channel.snapshot_files()
    if not newest:
        DeltaTable(channel.path).optimize.compact()
    (tmp_path / "in" / files[0].path).unlink()
    with pytest.raises(StrandlineError, match="STRANDLINE_DATA_FILE_MISSING") as caught:
        if read == "native":
            NativeScan(ReadOptions.parse({"path": channel.path}), channel.schema).decide(files, channel.schema)
        else:
            [part] = input_partition.plan(Decision(files, reason="a test"), 128 << 20, 1)
            list(input_partition.read(open_store(channel.path), part, channel.schema, True))
    assert ("startingVersion=snapshot" in caught.value.remedy) is not newest


def test_the_option_is_checked() -> None:
    with pytest.raises(Exception, match="STRANDLINE_OPTION_INVALID.*auto, on or off"):
        ReadOptions.parse({"path": "/x", "nativeScan": "maybe"})


# ---- how the plan shows it ------------------------------------------------------------------------------------------------


def test_a_batch_left_to_python_says_why_in_the_plan(spark: Any, tmp_path: Path) -> None:
    channel = foreign(tmp_path / "in", "x.parquet", numbers("int32"), NUMBERS)
    got, _, plan = batches(stream(spark, tmp_path / "in").select("n"), tmp_path / "checkpoint")
    assert not is_native(plan)
    assert "(Python, because x.parquet has the column n as INT32" in plan
    assert [r["n"] for r in got] == [1, 2]
    with pytest.raises(StreamingQueryException, match="STRANDLINE_NATIVE_SCAN_REFUSED.*n as INT32"):
        batches(stream(spark, channel.path, nativeScan="on"), tmp_path / "again")


def test_filters_skip_no_row_that_spark_would_keep(spark: Any, tmp_path: Path) -> None:
    """Arrow leaves NaN out of a column's bounds; for Spark it is greater than every number."""
    schema = pa.schema([time_field("time", int64), ("x", pa.float64()), ("n", pa.int64())])
    channel = Channel.create(tmp_path / "in", schema, producers=["a"])
    table = pa.table({"time": range(40), "x": [1.0, math.nan] * 20, "n": range(40)})
    add_file(channel, "x.parquet", table, row_group_size=10)
    got = both_ways(spark, tmp_path / "in", tmp_path, lambda frame: frame.where("x > 5 and n >= 30"))
    assert sorted(r["n"] for r in got) == [31, 33, 35, 37, 39]
    _, progress, plan = batches(stream(spark, tmp_path / "in").where("n >= 30"), tmp_path / "again")
    assert "GreaterThanOrEqual(n,30)" in plan
    assert [p["numInputRows"] for p in progress] == [10]  # row groups that the filter rules out are no input


@pytest.mark.drawn
def test_python_udfs_and_stream_static_joins_over_a_native_scan(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), (2, 2), then=[3])
    static = spark.read.format("strandline").option("nativeScan", "on").load(str(tmp_path / "in"))
    assert "StrandlineFileIndex" in static._jdf.queryExecution().executedPlan().toString()
    by_python = spark.read.format("strandline").option("nativeScan", "off").load(str(tmp_path / "in"))
    assert "StrandlineFileIndex" not in by_python._jdf.queryExecution().executedPlan().toString()
    assert sorted(static.collect()) == sorted(by_python.collect())
    twice = F.udf(lambda x: 2.0 * x, DoubleType())

    def query(frame: Any) -> Any:
        return frame.join(static.select("time", F.col("n").alias("m")), "time").select(twice("n").alias("n"), "m")

    frames = {way: query(stream(spark, tmp_path / "in", nativeScan=way)) for way in WAYS}
    got = {way: batches(frame, tmp_path / way)[0] for way, frame in frames.items()}
    assert multiset(got["on"]) == multiset(got["off"])
    assert sorted(r["n"] for r in got["on"]) == [2.0, 4.0]
