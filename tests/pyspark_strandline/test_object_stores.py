"""Channels on S3 in Spark: Python by deltalake, and Spark by hadoop-aws, on one server. No secret shows anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import strandline.replay
from helpers import spark_session, stream
from native_scans import is_native, plan_of
from object_stores import S3, SECRET, Azurite, hadoop_jars, why_no_azurite, why_no_hadoop_jars
from pyspark_strandline import ingest, iterate, storage_options
from pyspark_strandline.options import IngestOptions, ReadOptions, WriteOptions
from pyspark_strandline.replay import compare
from s3_server import WRITER
from strandline.channel import Channel
from strandline.delta.storage import open_store
from strandline.errors import StrandlineError
from strandline.ingest import status
from strandline.time.arrow import time_field
from strandline.time.domain import parse_domain

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(why_no_hadoop_jars() is not None, reason=why_no_hadoop_jars() or ""),
]

SCHEMA = pa.schema([time_field("hour", parse_domain("int64")), ("n", pa.int64())])
OTHER = "SEKRIT-of-another-store"
HIDDEN = (SECRET, OTHER, WRITER)
NEVER_SHOWN = {
    "storage.AZURE_STORAGE_SAS_KEY": OTHER,
    "storage.azure_storage_account_key": OTHER,
    "storage.bearer_token": OTHER,
    "storage.GOOGLE_SERVICE_ACCOUNT_KEY": OTHER,
}


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with S3() as server:
        yield server


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def spark(s3: S3, events: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark import SparkContext

    SparkContext._ensure_initialized()  # the JVM may have been started by another module, without these jars
    jvm: Any = SparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for jar in hadoop_jars():
        loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
    settings = {f"spark.hadoop.{name}": value for name, value in s3.hadoop().items()}
    settings |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false"}
    with spark_session(tmp_path_factory.mktemp("spark"), settings) as session:
        yield session


@pytest.fixture
def source(s3: S3) -> tuple[str, Channel]:
    """A bucket, and the channel ``in`` there."""
    bucket = s3.bucket()
    channel = Channel.create(f"s3://{bucket}/in", SCHEMA, time="hour", producers=["a"], at=0, storage_options=s3.options())
    say(channel, 1, 1, 2)
    return bucket, channel


def say(channel: Channel, hour: int, *numbers: int) -> None:
    with channel.producer("a") as session:
        session.send(pa.table({"hour": [hour] * len(numbers), "n": list(numbers)}))
        session.delay(hour + 1)


def run(frame: Any, target: str, checkpoint: str, **options: str) -> Any:
    query = (
        frame.writeStream.format("strandline")
        .options(**options)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(target)
    )
    query.awaitTermination()
    return query


def rows(channel: Channel) -> list[tuple[int, int]]:
    return sorted((row["hour"], row["n"]) for row in channel.read().to_pylist())


@pytest.mark.drawn("processes")
def test_one_channel_for_both_engines_and_by_both_schemes(
    spark: Any, s3: S3, source: tuple[str, Channel], events: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bucket, channel = source
    given = storage_options(spark, f"s3a://{bucket}/in") | NEVER_SHOWN
    assert {name: given[f"storage.{name}"] for name in s3.options()} == s3.options()  # Spark's own settings, in the other names
    shown: list[str] = []

    def look(frame: Any) -> None:
        for mode in ("extended", "formatted"):
            frame.explain(mode)

    def sums(scheme: str, native: str) -> Any:
        frame = stream(spark, f"{scheme}://{bucket}/in", nativeScan=native, **given)
        look(frame)
        query = run(
            frame.groupBy("hour").sum("n").withColumnRenamed("sum(n)", "n"), f"{scheme}://{bucket}/out", checkpoint, **given
        )
        query.explain(extended=True)
        shown.extend(json.dumps(progress, default=str) for progress in query.recentProgress)
        return query

    checkpoint = f"s3a://{bucket}/checkpoint"
    assert not is_native(plan_of(sums("s3", "off")))
    say(channel, 2, 5)
    # The same query goes on by another address: offsets and identity know the table, not its address.
    assert is_native(plan_of(sums("s3a", "on")))
    out = Channel.open(f"s3://{bucket}/out", s3.options())
    assert rows(out) == [(1, 3), (2, 5)]
    assert list(out.frontier) == [3]
    record = json.loads(open_store(checkpoint, s3.options()).read("strandline/commits", 1 << 20) or b"null")
    assert [version for _, version, _ in record["outputs"][""]][-1] == out.version

    batch = spark.read.format("strandline").options(**given).option("nativeScan", "on").load(f"s3a://{bucket}/out")
    look(batch)
    plain = spark.read.format("delta").load(f"s3a://{bucket}/out")
    assert sorted(batch.collect()) == sorted(plain.collect()) == rows(out)

    with pytest.raises(Exception, match="STRANDLINE_STORAGE_FAILED.*refuses these credentials") as caught:
        stream(spark, f"s3a://{bucket}/in", **{**given, "storage.AWS_ACCESS_KEY_ID": "AKIAUNKNOWN"})
    shown.append(str(caught.value))
    store = open_store(f"s3://{bucket}", s3.options())
    for folder in ("checkpoint", "checkpoint/offsets", "checkpoint/commits", "out/_delta_log"):
        texts = [store.read(f"{folder}/{name}", 1 << 20) for name in store.list(folder)]
        shown.extend(text.decode("utf-8", "replace") for text in texts if text)
    logged = [file.read_text() for file in events.rglob("*") if file.is_file()]
    assert any("SparkListenerSQLExecutionStart" in text and "in" in text for text in logged)
    shown += [*logged, *capfd.readouterr()]
    assert len(shown) > 12
    for secret in HIDDEN:
        assert [text[max(0, text.find(secret) - 200) :][:300] for text in shown if secret in text] == []


@pytest.mark.drawn("processes")
def test_channels_in_a_bucket_are_compared_by_spark(spark: Any, s3: S3, source: tuple[str, Channel]) -> None:
    bucket, channel = source
    other = Channel.create(f"s3://{bucket}/other", SCHEMA, time="hour", producers=["a"], at=0, storage_options=s3.options())
    say(other, 1, 1, 3)
    for scheme in ("s3", "s3a"):
        paths = [f"{scheme}://{bucket}/{name}" for name in ("in", "other")]
        found = compare(spark, *paths, storage_options=s3.options())
        wanted = strandline.replay.compare(channel, other)
        assert (found.parted, found.times, found.equal) == (wanted.parted, wanted.times, False)
        assert compare(spark, paths[0], paths[0], storage_options=s3.options()).equal


@pytest.mark.soak
def test_a_loop_goes_round_in_a_bucket(spark: Any, s3: S3, source: tuple[str, Channel]) -> None:
    bucket, _ = source
    given = storage_options(spark, f"s3a://{bucket}/in")

    def fewer(rows: Any) -> Any:
        return rows.where("n > 0").selectExpr("hour", "n - 1 as n")

    writer = iterate(spark, f"s3a://{bucket}/in", fewer, f"s3://{bucket}/loop", storage=given)
    checkpoint = f"s3a://{bucket}/loop/checkpoint"
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    result = Channel.open(f"s3://{bucket}/loop/result", s3.options())
    assert rows(result) == [(1, 0), (1, 1), (1, 2)]
    assert list(result.frontier) == [2]


@pytest.mark.soak
def test_a_store_that_overwrites_stops_a_query_before_it_writes(spark: Any, s3: S3, source: tuple[str, Channel]) -> None:
    bucket, _ = source
    careless = s3.bucket("careless")
    given = storage_options(spark, f"s3a://{bucket}/in")
    with pytest.raises(Exception, match="STRANDLINE_STORE_OVERWRITES"):
        run(stream(spark, f"s3a://{bucket}/in", **given), f"s3a://{careless}/out", f"s3a://{bucket}/checkpoint-2", **given)
    assert open_store(f"s3://{careless}/out", s3.options()).list("_delta_log") == []


@pytest.mark.soak
def test_an_ingest_its_late_rows_and_its_status_on_s3(spark: Any, s3: S3, tmp_path: Path) -> None:
    path = f"s3a://{s3.bucket()}/ch"
    given = storage_options(spark, path)
    (tmp_path / "rows").mkdir()
    frame = spark.readStream.schema("hour BIGINT, n BIGINT").json(str(tmp_path / "rows"))
    for name, hour in enumerate((1, 3, 1)):  # the last is late
        (tmp_path / "rows" / f"{name}.json").write_text(f'{{"hour": {hour}, "n": {name}}}\n')
        writer = ingest(frame, path, time="hour", policy="ordered()", storage=given, domain="int64")
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    other = path.replace("s3a", "s3")
    assert rows(Channel.open(other, s3.options())) == [(1, 0), (3, 1)]
    state = status(other, s3.options())
    assert (list(state.frontier), state.aside, state.unpublished, state.unreadable) == ([3], 1, (), ())
    late = spark.read.format("delta").load(f"{path}_late").collect()
    assert [(row["hour"], row["n"]) for row in late] == [(1, 2)]


@pytest.mark.soak
def test_a_query_with_state_is_started_again_and_again_with_its_checkpoint_on_either_side(
    spark: Any, s3: S3, source: tuple[str, Channel], tmp_path: Path
) -> None:
    bucket, channel = source
    given = storage_options(spark, f"s3a://{bucket}/in")
    for hour in range(2, 6):
        say(channel, hour, hour)
        for name, checkpoint in (("far", f"s3a://{bucket}/checkpoint"), ("near", str(tmp_path / "checkpoint"))):
            scheme, native = ("s3a", "on") if hour % 2 else ("s3", "off")
            frame = stream(spark, f"{scheme}://{bucket}/in", nativeScan=native, **given)
            sums = frame.groupBy("hour").sum("n").withColumnRenamed("sum(n)", "n")
            run(sums, f"{scheme}://{bucket}/{name}", checkpoint, **given)
    for name in ("far", "near"):
        assert rows(Channel.open(f"s3://{bucket}/{name}", s3.options())) == [(1, 3), *((hour, hour) for hour in range(2, 6))]


@pytest.mark.soak
@pytest.mark.skipif(why_no_azurite() is not None, reason=why_no_azurite() or "")
def test_a_query_on_azure_by_python_with_its_checkpoint_elsewhere(spark: Any, tmp_path: Path) -> None:
    with Azurite() as azurite:
        container = azurite.container()
        host = f"{container}@{azurite.account}.dfs.core.windows.net"
        path, options = f"abfss://{host}/in", azurite.options()
        channel = Channel.create(path, SCHEMA, time="hour", producers=["a"], at=0, storage_options=options)
        given = {f"storage.{name}": value for name, value in options.items()}
        for hour, scheme in ((1, "abfss"), (2, "abfs")):
            say(channel, hour, hour, hour)
            frame = stream(spark, f"{scheme}://{host}/in", nativeScan="off", **given)
            sums = frame.groupBy("hour").sum("n").withColumnRenamed("sum(n)", "n")
            run(sums, f"{scheme}://{host}/out", str(tmp_path / "checkpoint"), **given)
        assert rows(Channel.open(f"az://{container}/out", options)) == [(1, 2), (2, 4)]


def test_no_object_of_ours_shows_a_secret() -> None:
    base = {"path": "s3://b/c", "storage.aws_secret_access_key": SECRET}
    ingested = IngestOptions.parse({**base, "policy": "ordered()", "time": "hour"})
    for options in (ReadOptions.parse(base), WriteOptions.parse(base), ingested):
        assert options.storage == {"AWS_SECRET_ACCESS_KEY": SECRET}
        assert SECRET not in repr(options)


def test_hadoops_settings_become_options(spark: Any) -> None:
    settings = {
        "fs.s3a.bucket.own.access.key": "AKIAOWN",
        "fs.s3a.bucket.own.secret.key": "own-secret",
        "fs.s3a.bucket.own.endpoint": "store.example:9000",
        "fs.s3a.bucket.own.path.style.access": "false",
        "fs.s3a.bucket.tls.endpoint": "s3.amazonaws.com",
        "fs.azure.account.key.lake.dfs.core.windows.net": "YXp1cmU=",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        assert storage_options(spark, "s3a://own/x") == {
            "storage.AWS_ACCESS_KEY_ID": "AKIAOWN",
            "storage.AWS_SECRET_ACCESS_KEY": "own-secret",
            "storage.AWS_ENDPOINT_URL": "https://store.example:9000",
            "storage.AWS_REGION": "us-east-1",
        }
        assert "storage.AWS_ENDPOINT_URL" not in storage_options(spark, "s3://tls/x")
        assert storage_options(spark, "abfss://c@lake.dfs.core.windows.net/x") == {
            "storage.AZURE_STORAGE_ACCOUNT_NAME": "lake",
            "storage.AZURE_STORAGE_ACCOUNT_KEY": "YXp1cmU=",
        }
    finally:
        for name in settings:
            spark.conf.unset(name)
    for path in ("gs://b/x", "/local"):
        with pytest.raises(StrandlineError, match="STRANDLINE_HADOOP_SETTINGS_UNREACHABLE"):
            storage_options(spark, path)
