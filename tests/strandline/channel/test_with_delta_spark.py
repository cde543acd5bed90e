"""The same tables with delta-spark: it reads, queries, optimises and vacuums them, and writes them only with a statement."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from helpers import shared_session
from strandline.channel import Channel, ChannelError, CommitStatement, LogError, Statement
from strandline.time.antichain import Antichain
from strandline.time.domain import int64, product, timestamp

pytestmark = pytest.mark.spark

PAIR = product(epoch="int64", iter="int64")
Create = Callable[..., Channel]


def at(*times: Any) -> Antichain:
    return Antichain(int64, times)


def fill(channel: Channel, make: Any, steps: int = 3, name: str = "a") -> None:
    with channel.producer(name) as producer:
        for step in range(steps):
            producer.send(make.rows([step, step]))
            producer.delay(step + 1)
            producer.commit()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Delta's own queries are many, and each runs once: to compile code for them takes longer than to run them without."""
    with shared_session(tmp_path_factory.mktemp("spark")) as session:
        session.conf.set("spark.sql.codegen.wholeStage", "false")
        session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        yield session


@pytest.mark.drawn
@pytest.mark.parametrize("domain", [int64, timestamp, PAIR], ids=str)
def test_delta_spark_reads_rows_schema_and_domain(spark: Any, path: str, make: Any, domain: Any) -> None:
    times = [(1, 2), (3, 4)] if domain is PAIR else [1_000_001, 2_000_002]
    channel = Channel.create(path, make.schema(domain), producers=["a"], at=domain.minimum)
    with channel.producer("a") as a:
        a.send(make.rows(times, domain))
    frame = spark.read.format("delta").load(path)
    assert frame.schema["time"].metadata == {"strandline.time": str(domain)}
    assert frame.count() == 2
    assert sorted(row.n for row in frame.collect()) == [0, 1]
    assert frame.toArrow().select(["n"]).num_rows == 2
    if domain is PAIR:
        assert sorted((row.time.epoch, row.time.iter) for row in frame.collect()) == times


@pytest.mark.drawn
def test_delta_spark_skips_files_by_a_coordinate_of_the_time(spark: Any, path: str, make: Any) -> None:
    channel = Channel.create(path, make.schema(PAIR), producers=["a"], at=(0, 0))
    with channel.producer("a") as a:
        for epoch in range(5):
            a.send(make.rows([(epoch, 0), (epoch, 9)], PAIR))
            a.commit()
    frame = spark.read.format("delta").load(path)
    plan = frame.where("time.epoch = 3")
    assert plan.count() == 2
    scanned = plan._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
    assert scanned.metrics().apply("numFiles").value() == 0  # not run yet
    plan.collect()
    leaves = plan._jdf.queryExecution().executedPlan().collectLeaves()
    assert [leaves.apply(i).metrics().apply("numFiles").value() for i in range(leaves.size())] == [1]


@pytest.mark.drawn
def test_the_history_shows_the_statement_and_the_operation(spark: Any, create: Create, make: Any) -> None:
    channel = create()
    fill(channel, make, 1)
    history = spark.sql(f"DESCRIBE HISTORY delta.`{channel.path}`").orderBy("version").collect()
    assert [row.version for row in history] == list(range(channel.version + 1))
    assert {row.operation for row in history[1:]} == {"WRITE"}
    for row in history:
        said = CommitStatement.from_user_metadata(row.userMetadata, row.version)
        assert said == channel.log.require(row.version).statement


@pytest.mark.drawn
def test_time_travel_agrees(spark: Any, create: Create, make: Any) -> None:
    channel = create()
    fill(channel, make, 2)
    for version in range(channel.version + 1):
        frame = spark.read.format("delta").option("versionAsOf", version).load(channel.path)
        assert frame.count() == channel.read(version).num_rows


@pytest.mark.drawn
def test_what_optimize_rewrites_is_the_same_rows_and_the_same_frontier(spark: Any, create: Create, make: Any) -> None:
    channel = create()
    fill(channel, make)
    reader = Channel.open(channel.path)
    frontier, rows = reader.frontier, sorted(reader.read()["time"].to_pylist())
    spark.sql(f"OPTIMIZE delta.`{channel.path}`")
    (commit,) = reader.refresh()
    assert commit.rearranges_only
    assert commit.removes_files
    for seen in (reader, Channel.open(channel.path)):
        assert seen.frontier == frontier
        assert sorted(seen.read()["time"].to_pylist()) == rows
        assert len(seen.snapshot_files()) == 1
    fill(Channel.open(channel.path), make, name="b")  # and producers go on
    assert reader.refresh()
    assert reader.frontier == at(3)


@pytest.mark.drawn
def test_vacuum_takes_rewritten_files_only_and_old_versions_say_what_is_gone(spark: Any, create: Create, make: Any) -> None:
    channel = create()
    fill(channel, make)
    before = channel.version
    spark.sql(f"OPTIMIZE delta.`{channel.path}`")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"VACUUM delta.`{channel.path}` RETAIN 0 HOURS")
    commits = channel.refresh()
    assert all(commit.rearranges_only for commit in commits)
    assert channel.read().num_rows == 6
    with pytest.raises(ChannelError, match="STRANDLINE_FILE_MISSING"):
        channel.read(before)
    fill(channel, make, name="b")
    assert Channel.open(channel.path).read().num_rows == 12


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("DELETE FROM {t} WHERE time >= 0", r"STRANDLINE_ROWS_CHANGED.*\(DELETE\) deletes rows"),
        ("DELETE FROM {t} WHERE n = 0", r"STRANDLINE_ROWS_CHANGED.*\(DELETE\) rewrites rows"),
        ("UPDATE {t} SET n = 9 WHERE n = 1", r"STRANDLINE_ROWS_CHANGED.*\(UPDATE\) rewrites rows"),
        ("INSERT INTO {t} VALUES (99, 1)", r"STRANDLINE_STATEMENT_MISSING.*\(WRITE\) appends 1 file"),
    ],
)
def test_sql_that_changes_or_adds_rows_stops_readers(spark: Any, create: Create, make: Any, sql: str, message: str) -> None:
    channel = create()
    fill(channel, make)
    spark.sql(sql.format(t=f"delta.`{channel.path}`"))
    with pytest.raises(LogError, match=message):
        channel.refresh()
    assert Channel.open(channel.path).frontier == at(0)
    assert channel.frontier == at(0)


@pytest.mark.drawn
def test_readers_may_be_told_to_pass_over_deletes_and_changes(spark: Any, create: Create, make: Any) -> None:
    channel = create()
    fill(channel, make)
    one, other = Channel.open(channel.path), Channel.open(channel.path)
    spark.sql(f"DELETE FROM delta.`{channel.path}` WHERE time = 0")
    one.refresh(ignore_deletes=True)
    spark.sql(f"UPDATE delta.`{channel.path}` SET n = 7 WHERE n = 1 AND time = 1")
    with pytest.raises(LogError, match="STRANDLINE_ROWS_CHANGED"):
        one.refresh(ignore_deletes=True)
    assert len(other.refresh(skip_change_commits=True)) == 2
    assert sorted(other.read()["n"].to_pylist()) == [0, 0, 1, 7]


@pytest.mark.drawn
def test_delta_spark_may_write_when_it_carries_a_statement(spark: Any, create: Create, make: Any) -> None:
    channel = create()
    reader = Channel.open(channel.path)
    said = CommitStatement({"a": Statement(1, (5,))}, times=((3, 2),))
    frame = spark.createDataFrame([(3, 1), (3, 2)], "time long, n long")
    frame.coalesce(1).write.format("delta").mode("append").option("userMetadata", said.to_user_metadata()).save(channel.path)
    (commit,) = reader.refresh()
    assert commit.statement == said
    assert reader.producers["a"].holds == at(5)
    assert reader.read().num_rows == 2
    fill(Channel.open(channel.path), make, name="b")  # ours after theirs
    assert spark.read.format("delta").load(channel.path).count() == 8


@pytest.mark.drawn
def test_both_engines_commit_in_turn_and_nothing_is_lost(spark: Any, create: Create, make: Any) -> None:
    channel = create()
    a = channel.producer("a")
    for step in range(6):
        a.send(make.rows([step]))
        a.delay(step + 1)
        a.commit()
        if step % 3 == 2:
            spark.sql(f"OPTIMIZE delta.`{channel.path}`")
    a.close()
    fresh = Channel.open(channel.path)
    assert [commit.version for commit in fresh.log.tail(0)] == list(range(fresh.version + 1))
    assert fresh.progress.producers["a"].holds == at(6)
    assert sorted(fresh.read()["time"].to_pylist()) == list(range(6))
    assert spark.read.format("delta").load(channel.path).count() == 6


def age(path: str, by: timedelta) -> None:
    """Make every commit file look older: Delta's cleaning goes by their times."""
    then = time.time() - by.total_seconds()
    for file in Path(path, "_delta_log").iterdir():
        os.utime(file, (then, then))


def checkpoint_by_spark(spark: Any, path: str) -> None:
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    log.checkpoint()


@pytest.mark.drawn
def test_deltas_own_log_cleaning_leaves_a_channel_alone(spark: Any, create: Create, make: Any) -> None:
    channel = create(producers=[f"p{i}" for i in range(100)])
    fill(channel, make, 5, "p1")
    spark.sql(f"OPTIMIZE delta.`{channel.path}`")  # the newest commit has no statement
    age(channel.path, timedelta(days=90))
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    checkpoint_by_spark(spark, channel.path)
    assert channel.log.exists(0)
    fresh = Channel.open(channel.path)
    assert fresh.producers["p1"].holds == at(5)
    assert fresh.frontier_at(0) == at(0)


@pytest.mark.drawn
def test_a_log_that_somebody_lets_delta_clean_is_read_from_what_is_left(spark: Any, create: Create, make: Any) -> None:
    """With few producers every commit says all; only a log whose every statement is gone cannot be read, and that is told."""
    channel = create()
    fill(channel, make, 5)
    path = channel.path
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableExpiredLogCleanup' = 'true')")
    b = Channel.open(path).producer("b")
    b.delay(3)
    newest = b.commit()
    assert newest is not None
    age(path, timedelta(days=90))
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    checkpoint_by_spark(spark, path)
    assert not channel.log.exists(0)
    fresh = Channel.open(path)
    assert fresh.frontier == at(3)
    assert fresh.producers["a"].holds == at(5)
    assert fresh.read().num_rows == 10
    with pytest.raises(LogError, match="STRANDLINE_LOG_TRUNCATED"):
        fresh.frontier_at(1)
    spark.sql(f"OPTIMIZE delta.`{path}`")
    age(path, timedelta(days=90))
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    checkpoint_by_spark(spark, path)
    with pytest.raises(LogError, match=r"STRANDLINE_LOG_TRUNCATED.*enableExpiredLogCleanup"):
        Channel.open(path)


@pytest.mark.drawn
def test_our_cleaned_log_is_a_table_that_delta_spark_reads(spark: Any, create: Create, make: Any) -> None:
    channel = create()
    fill(channel, make, 5)
    assert channel.clean_log(timedelta(0)) > 0
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert spark.read.format("delta").load(channel.path).count() == 10
    fill(channel, make, 5, "b")
    assert spark.read.format("delta").load(channel.path).count() == 20


@pytest.mark.drawn
def test_the_remedy_of_a_torn_commit_leaves_nothing_of_delta_spark(spark: Any, create: Create, make: Any) -> None:
    """Delta Spark writes a .crc file with OPTIMIZE, and Hadoop a hidden one for each of its files."""
    channel = create()
    log = Path(channel.path, "_delta_log")

    def sink(batch: int) -> int | None:
        with channel.file_writer() as writer:
            writer.write(make.rows([batch]))
            files = writer.finish()[0]
        statements = {"a": at(batch)}
        return channel.append(files, statements=statements, times=[(batch, 1)], transaction=("query", batch), owner="q")

    for batch in range(5):
        sink(batch)
    spark.sql(f"OPTIMIZE delta.`{channel.path}`")
    optimized = Channel.open(channel.path).version
    assert (log / f"{optimized:020d}.crc").exists()
    assert Channel.open(channel.path).transaction_version("query") == 4
    torn = optimized - 3
    (log / f"{torn:020d}.json").write_text("")
    with pytest.raises(LogError, match="STRANDLINE_COMMIT_TORN") as error:
        channel.log.require(torn)
    assert f"each file whose name has a version from {torn} on" in error.value.remedy
    for file in log.iterdir():
        if file.name == "_last_checkpoint" or any(int(number) >= torn for number in re.findall(r"\d{20}", file.name)):
            file.unlink()
    channel = Channel.open(channel.path)
    assert (channel.version, channel.transaction_version("query")) == (torn - 1, 1)
    for batch in (2, 3):
        sink(batch)
    while channel.version <= optimized:
        channel.append([], statements={"a": at(3)}, owner="q", always=True)
    channel = Channel.open(channel.path)
    assert channel.transaction_version("query") == 3
    assert sink(4) is not None
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert spark.read.format("delta").load(channel.path).count() == 5


@pytest.mark.drawn
def test_deletion_vectors_that_are_switched_on_later_are_refused(spark: Any, create: Create, make: Any) -> None:
    channel = create()
    fill(channel, make)
    spark.sql(f"ALTER TABLE delta.`{channel.path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    with pytest.raises(ChannelError, match="STRANDLINE_DELETION_VECTORS"):
        channel.refresh()
    with pytest.raises(ChannelError, match="STRANDLINE_DELETION_VECTORS"):
        Channel.open(channel.path)


@pytest.mark.drawn
def test_a_table_of_delta_sparks_own_making_is_no_channel(spark: Any, path: str) -> None:
    frame = spark.range(3).selectExpr("id AS time")
    frame.withMetadata("time", {"strandline.time": "int64"}).write.format("delta").option(
        "delta.enableDeletionVectors", "false"
    ).save(path)
    with pytest.raises(ChannelError, match="STRANDLINE_NOT_A_CHANNEL"):
        Channel.open(path)


@pytest.mark.drawn
def test_deltas_own_stream_reads_a_channel_as_a_plain_table(spark: Any, create: Create, make: Any, tmp_path: Path) -> None:
    channel = create()
    fill(channel, make)
    query = (
        spark.readStream.format("delta")
        .load(channel.path)
        .writeStream.format("delta")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "copy"))
    )
    assert query.awaitTermination(120)
    assert spark.read.format("delta").load(str(tmp_path / "copy")).count() == 6
