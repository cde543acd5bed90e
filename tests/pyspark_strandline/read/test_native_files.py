"""The files of a native scan: skipped by the log's statistics, compacted by other engines, or in another place than this disk."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from helpers import make_channel, say, stream
from native_scans import batches, both_ways, is_native, multiset, plan_of
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.native_scan import NativeScan
from strandline.channel import Channel, DataFile
from strandline.errors import ChannelError, StrandlineError
from strandline.time.arrow import time_field
from strandline.time.domain import int64, product

pytestmark = pytest.mark.spark

UTC = timezone.utc
COLUMNS = [
    ("n", pa.int64()),
    ("d", pa.date32()),
    ("at", pa.timestamp("us", "UTC")),
    ("s", pa.string()),
    ("x", pa.float64()),
    ("b", pa.bool_()),
    ("in", pa.struct([("n", pa.int32()), ("s", pa.string())])),
]


def files_read(plan: Any) -> int:
    """How many files the only scan of a physical plan reads: what its metric numFiles shows once it has run."""
    return int(plan.collectLeaves().apply(0).selectedPartitions().totalNumberOfFiles())


# ---- skipping by the log's statistics -----------------------------------------------------------------------------------


def clustered(path: Path, seed: int, files: int = 12) -> Channel:
    """Files whose values lie near each other in each file, with nulls, NaN, long strings and microseconds at the edges."""
    random_ = random.Random(seed)
    channel = Channel.create(path, pa.schema([time_field("time", int64), *COLUMNS]), producers=["a"])

    def maybe(value: Any) -> Any:
        return None if random_.random() < 0.2 else value

    for file in range(files):
        rows = []
        for i in range(random_.randint(1, 5)):
            n = 10 * file + i
            moment = datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC) + timedelta(
                milliseconds=file // 4, microseconds=random_.choice([0, 1, 500, 999])
            )
            text = random_.choice([chr(97 + file), chr(97 + file) * 31, chr(97 + file) * 32, chr(97 + file) * 40 + "🌊"])
            inner = maybe({"n": maybe(n), "s": maybe(text)})
            nothing = file == 3  # a file of nulls only
            values = [n, date(1970, 1, 1) + timedelta(n), moment, text, random_.choice([float("nan"), float(n)]), file % 2 == 0]
            row = {"time": n} | {name: None if nothing else maybe(v) for (name, _), v in zip(COLUMNS[:-1], values, strict=True)}
            rows.append(row | {"in": None if nothing else inner})
        with channel.producer("a") as session:
            session.send(pa.Table.from_pylist(rows, schema=channel.schema))
            session.commit()
    return channel


def a_filter(random_: random.Random, depth: int = 2) -> str:
    """A condition in SQL over those columns."""
    if depth and random_.random() < 0.4:
        return f"({a_filter(random_, depth - 1)} {random_.choice(['and', 'or'])} {a_filter(random_, depth - 1)})"
    if random_.random() < 0.15:
        return f"{random_.choice(['n', 'd', 'at', 's', 'x', 'in', 'in.n', 'in.s'])} is {random_.choice(['', 'not '])}null"
    number, letter = random_.randint(-5, 130), chr(97 + random_.randint(0, 12))
    millis = random_.choice(["59.998999", "59.999", "59.999001", "59.999999"])
    moments = [f"timestamp'1969-12-31 23:59:{millis}'", "timestamp'1970-01-01 00:00:00'", "timestamp'1970-01-01 00:00:00.001'"]
    column, literal = random_.choice(
        [
            ("time", str(number)),
            ("n", str(number)),
            ("in.n", str(number)),
            ("x", f"{number}D"),
            ("d", f"date'{date(1970, 1, 1) + timedelta(number)}'"),
            ("at", random_.choice(moments)),
            ("s", f"'{letter * random_.choice([1, 31, 32, 33, 40])}'"),
            ("in.s", f"'{letter}'"),
        ]
    )
    operator = random_.choice(["=", "<", "<=", ">", ">=", "<=>", "!=", "in", "like"])
    if operator == "in":
        return f"{column} in ({literal})"
    if operator == "like":
        return f"s like '{letter * random_.choice([1, 31, 33])}%'"
    return f"{column} {operator} {literal}"


@pytest.mark.drawn
def test_no_row_that_passes_is_in_a_file_that_is_skipped(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "in")
    clustered(tmp_path / "in", 7)
    # Files of delta-spark too, whose statistics are its own: milliseconds cut off, strings cut with a last letter put on.
    spark.read.format("delta").load(path).repartitionByRange(4, "n").write.format("delta").mode("append").save(path)
    reader = spark.read.format("strandline")
    native = reader.option("nativeScan", "on").load(path)
    python = reader.option("nativeScan", "off").load(path).cache()
    assert python.count() > 40
    random_ = random.Random(7)
    all_files = files_read(native._jdf.queryExecution().executedPlan())
    fewer = 0
    for _ in range(16):
        condition = a_filter(random_)
        got = native.where(condition)
        assert multiset(got.toArrow().to_pylist()) == multiset(python.where(condition).toArrow().to_pylist()), condition
        plan = got._jdf.queryExecution().executedPlan()
        fewer += "FileScan" not in plan.toString() or files_read(plan) < all_files
    python.unpersist()
    assert fewer > 5


@pytest.mark.drawn
def test_a_stream_opens_only_the_files_that_may_have_rows_for_it(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", product(at="timestamp", iter="int64"), producers=("a",))
    for hour in range(8):
        say(channel, "a", ((hour * 3_600_000_000, hour), hour), then=[((hour + 1) * 3_600_000_000, 0)])
    for condition, expected in (
        ("time.at >= timestamp'1970-01-01 06:00:00'", 2),
        ("time.iter = 3 or n = 5", 2),
        ("n > 100", 0),
        ("key = 'k' and n is null", 0),
        ("n + 1 > 7", 8),  # no bound is known of an expression
    ):
        frame = stream(spark, tmp_path / "in", nativeScan="on").where(condition).select("n")
        query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / condition))
        query = query.trigger(availableNow=True).start()
        query.awaitTermination()
        assert is_native(plan_of(query))
        assert files_read(query._jsq.streamingQuery().lastExecution().executedPlan()) == expected
        passed = sum(p["numInputRows"] for p in query.recentProgress)
        assert passed == expected  # rows of files that are skipped are no input


@pytest.mark.drawn
def test_no_row_is_skipped_by_bounds_that_deltalake_misreads(spark: Any, tmp_path: Path) -> None:
    """Delta Spark's checkpoints have timestamps as INT96. deltalake reads the year 9999 as 1816, and 0001 as 1754."""
    far = [datetime(9999, 12, 31, tzinfo=UTC), datetime(1, 1, 2, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]
    schema = pa.schema([time_field("time", int64), ("at", pa.timestamp("us", "UTC"))])
    channel = Channel.create(tmp_path / "in", schema, producers=["a"], at=0)
    for moment in far:
        with channel.producer("a", take_over=True) as producer:
            producer.send(pa.table({"time": [0], "at": [moment]}, schema=schema))
            producer.commit()
    for interval in ("1", "100"):
        alter(spark, channel, {"delta.checkpointInterval": interval})
    assert list((tmp_path / "in" / "_delta_log").glob("*.checkpoint.parquet"))
    after, before = F.col("at") > "2200-01-01", F.col("at") < "1700-01-01"
    for condition in (after, before):
        assert spark.read.format("strandline").load(channel.path).where(condition).count() == 1
        snapshot = stream(spark, Path(channel.path), startingVersion="snapshot").where(condition)
        assert len(batches(snapshot, tmp_path / f"after {condition is after}")[0]) == 1
    # deltalake would make the misread bounds last, in a checkpoint of its own. Then Delta Spark would skip by them too.
    struct, text = "delta.checkpoint.writeStatsAsStruct", "delta.checkpoint.writeStatsAsJson"
    every = "delta.checkpointInterval"
    for properties in ({struct: "true", text: "false", every: "1"}, {every: "100"}):
        alter(spark, channel, properties)
    with pytest.raises(ChannelError, match="STRANDLINE_CHECKPOINT_MISREAD"):
        Channel.open(channel.path).checkpoint()
    for properties in ({struct: "false", text: "true", every: "1"}, {every: "100"}):  # as the error says
        alter(spark, channel, properties)
    Channel.open(channel.path).checkpoint()
    for condition in (after, before):
        assert [spark.read.format(name).load(channel.path).where(condition).count() for name in ("strandline", "delta")] == [1, 1]


def alter(spark: Any, channel: Channel, properties: dict[str, str]) -> None:
    stated = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    spark.sql(f"ALTER TABLE delta.`{channel.path}` SET TBLPROPERTIES ({stated})")


def test_a_stream_from_a_snapshot_skips_as_well(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    for n in range(4):
        say(channel, "a", (n, n), then=[n + 1])
    got = both_ways(spark, tmp_path / "in", tmp_path, lambda frame: frame.where("n = 2"), startingVersion="snapshot")
    assert [row["n"] for row in got] == [2]


def test_skipped_files_do_not_hold_the_frontier_back(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 7), then=[2])
    say(channel, "a", (2, 1), then=[3])
    frame = stream(spark, tmp_path / "in", nativeScan="on").where("n > 5").groupBy("time").agg(F.sum("n").alias("n"))
    got, progress, _ = batches(frame, tmp_path / "checkpoint")
    assert [(row["time"], row["n"]) for row in got] == [(1, 7)]
    assert [p["numInputRows"] for p in progress] == [1]


# ---- very many files ----------------------------------------------------------------------------------------------------


def many(path: Path, files: int = 150) -> Channel:
    """One commit of so many files, file ``i`` with one row of time and ``n`` that number."""
    channel = make_channel(path, producers=("a",))
    written: list[DataFile] = []
    for i in range(files):
        with channel.file_writer() as writer:
            writer.write(pa.table({"time": [i], "key": ["k"], "n": [i]}))
            written += writer.finish()[0]
    channel.append(written, statements={"a": [files]}, times=[(i, 1) for i in range(files)])
    return channel


@pytest.mark.drawn
def test_very_many_files_are_taken_skipped_and_limited_as_few_are(spark: Any, tmp_path: Path) -> None:
    many(tmp_path / "in")
    got = both_ways(spark, tmp_path / "in", tmp_path, lambda frame: frame.where("n >= 141 and key = 'k'"))
    assert sorted(row["n"] for row in got) == list(range(141, 150))
    limited = stream(spark, tmp_path / "in", nativeScan="on", maxFilesPerTrigger=100).where("n % 2 = 0 and n < 110")
    got, progress, _ = batches(limited, tmp_path / "limited")
    assert sorted(row["n"] for row in got) == list(range(0, 110, 2))
    assert [p["numInputRows"] for p in progress] == [100, 10]  # forty files of the second batch are not opened


def test_files_are_looked_for_ahead_once(tmp_path: Path) -> None:
    channel = many(tmp_path / "in")
    (files,) = (commit.files for commit in channel.log.tail(1))
    scan = NativeScan(ReadOptions.parse({"path": str(channel.path)}), channel.schema)
    scan.look_ahead(files)
    assert scan.decide(files, channel.schema).root == str(tmp_path / "in")
    (tmp_path / "in" / files.paths[77]).unlink()
    with pytest.raises(StrandlineError, match=f"STRANDLINE_DATA_FILE_MISSING.*{files.paths[77]}"):
        scan.decide(files, channel.schema)
    scan.look_ahead(files)
    with pytest.raises(StrandlineError, match="STRANDLINE_DATA_FILE_MISSING"):
        scan.decide(files, channel.schema)
    scan.look_ahead(files)  # which is of no use to another batch
    assert len(scan.decide(files[:77], channel.schema).files) == 77


# ---- files of other engines ---------------------------------------------------------------------------------------------


@pytest.mark.drawn
@pytest.mark.parametrize("engine", ["delta-rs", "delta-spark"])
def test_files_compacted_by_either_engine_are_read_natively(spark: Any, tmp_path: Path, engine: str) -> None:
    """delta-spark writes timestamps as INT96, whose nanoseconds no 64 bits hold beyond the years 1677 and 2262."""
    domain = product(at="timestamp", iter="int64")
    columns = [("ats", pa.list_(pa.timestamp("us", "UTC"))), ("ntz", pa.timestamp("us")), ("s", pa.string())]
    channel = Channel.create(tmp_path / "in", pa.schema([time_field("time", domain), *columns]), producers=["a"])
    moments = [datetime(1, 1, 1), datetime(1500, 2, 28, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(9999, 12, 31)]
    for i, moment in enumerate(moments):
        row = {
            "time": {"at": moment.replace(tzinfo=UTC), "iter": i},
            "ats": [moment.replace(tzinfo=UTC)],
            "ntz": moment,
            "s": None,
        }
        with channel.producer("a") as session:
            session.send(pa.Table.from_pylist([row], schema=channel.schema))
            session.commit()
    before = channel.read().to_pylist()
    if engine == "delta-rs":
        DeltaTable(str(tmp_path / "in")).optimize.compact()
    else:
        spark.sql(f"OPTIMIZE delta.`{tmp_path / 'in'}`")
    compacted = Channel.open(tmp_path / "in")
    assert len(compacted.snapshot_files()) == 1
    assert multiset(compacted.read().to_pylist()) == multiset(before)
    read = {}
    for way in ("on", "off"):
        frame = spark.read.format("strandline").option("nativeScan", way).load(str(tmp_path / "in"))
        assert ("StrandlineFileIndex" in frame._jdf.queryExecution().executedPlan().toString()) == (way == "on")
        read[way] = frame.toArrow().to_pylist()
    assert multiset(read["on"]) == multiset(read["off"]) == multiset(before)
    both_ways(spark, tmp_path / "in", tmp_path, startingVersion="snapshot")


# ---- files in other places ----------------------------------------------------------------------------------------------

BUCKET = "strandline-tests"


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """An S3 server on this machine with an empty bucket; the storage options with which delta-rs reaches it."""
    import boto3

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # A process of its own: delta-rs holds Python's lock while it waits for an answer.
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "k"}
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert server.poll() is None
            time.sleep(0.1)
        boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys).create_bucket(Bucket=BUCKET)
        yield {"aws_endpoint_url": url, "aws_region": "us-east-1", "aws_allow_http": "true", **keys}
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def remote(s3: dict[str, str], tmp_path: Path) -> tuple[str, dict[str, str], Path]:
    """A channel in the bucket, its options for Spark, and a copy of its files on this disk."""
    url = f"s3://{BUCKET}/{tmp_path.name}"
    channel = Channel.create(url, make_channel(tmp_path / "like").schema, producers=["a"], at=0, storage_options=s3)
    say(channel, "a", (1, 1), then=[2])
    say(channel, "a", (2, 2), then=[3])
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in channel.snapshot_files():
        with channel.log.store.open_input(file.path) as source:
            (copy / file.path).write_bytes(source.read())
    return url, {f"storage.{k}": v for k, v in s3.items()}, copy


@pytest.mark.drawn
def test_an_object_store_is_read_natively_when_hadoop_reaches_the_same_files(spark: Any, tmp_path: Path, remote: Any) -> None:
    url, options, copy = remote
    frame = stream(spark, url, **options)
    got, _, plan = batches(frame, tmp_path / "auto")
    assert not is_native(plan)
    assert "(Python, because the storage options are for delta-rs" in plan
    assert sorted(row["n"] for row in got) == [1, 2]
    with pytest.raises(Exception, match="STRANDLINE_NATIVE_SCAN_REFUSED.*Hadoop does not reach s3://"):
        batches(stream(spark, url, nativeScan="on", **options), tmp_path / "nowhere")
    # With "on" the user answers for Hadoop's settings; here its file system of that scheme shows the copy.
    settings = {
        "fs.s3.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        "fs.viewfs.overload.scheme.target.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
        f"fs.viewfs.mounttable.{BUCKET}.link./{tmp_path.name}": copy.as_uri(),
    }
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        got, _, plan = batches(stream(spark, url, nativeScan="on", **options), tmp_path / "on")
        assert is_native(plan)
        assert f"StrandlineFileIndex(1 paths)[{url}]" in plan
        assert sorted(row["n"] for row in got) == [1, 2]
        for file in copy.iterdir():
            file.write_bytes(file.read_bytes() + b"more")
        with pytest.raises(Exception, match="STRANDLINE_NATIVE_SCAN_REFUSED.*bytes, but the log states"):
            batches(stream(spark, url, nativeScan="on", **options), tmp_path / "changed")
    finally:
        for key in settings:
            spark.conf.unset(key)


@pytest.mark.drawn
def test_what_python_says_of_places(tmp_path: Path, remote: Any, s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    url, options, _ = remote
    channel = Channel.open(url, s3)

    def decision(**more: str) -> Any:
        files = channel.snapshot_files()
        return NativeScan(ReadOptions.parse({"path": url, **more}), channel.schema).decide(files, channel.schema)

    assert decision(**options).reason == "the storage options are for delta-rs, and Hadoop may reach another storage without them"
    assert decision(nativeScan="on", **options).root == url
    for key, value in s3.items():  # as a cluster's machines have it: nothing in the query, all in their environment
        monkeypatch.setenv(key.upper(), value)
    assert decision().root == url
