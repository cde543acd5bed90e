"""An ingest that a scheduler runs with ``availableNow``: a device falls silent, then all of them, then one comes back late."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from helpers import ROOT, contents
from ingest_files import Feed, finish
from pyspark_strandline import ingest
from pyspark_strandline.write.ingest import _reads_to_end, with_heartbeat
from strandline.channel import Channel
from strandline.ingest import Policy, bounded, idle, ordered, status

pytestmark = pytest.mark.spark
SOON = "1 millisecond"  # so that each pause between two runs is a silence
SCHEMA = pa.schema([("t", pa.timestamp("us", "UTC")), ("p", pa.string()), ("n", pa.int64())])


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "in", SCHEMA, "t timestamp, p string, n long")


def at(hour: int) -> datetime:
    return datetime(2026, 3, 1, hour, tzinfo=timezone.utc)


def offsets(checkpoint: Path) -> list[int]:
    """When Spark determined what each batch reads."""
    files = sorted((p for p in (checkpoint / "offsets").iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    return [json.loads(file.read_text().splitlines()[1])["batchTimestampMs"] for file in files]


@pytest.fixture
def job(spark: Any, tmp_path: Path, feed: Feed) -> Callable[..., Path]:
    """One run of the scheduled job."""

    def run(policy: Policy, *, heartbeat: bool = True, files: int | None = None) -> Path:
        time.sleep(1)  # the heartbeat counts whole seconds, so that of a run within the same second makes no batch
        writer = ingest(
            feed.stream(spark, files), str(tmp_path / "c"), time="t", partition="p", policy=policy, heartbeat=heartbeat
        )
        finish(writer, tmp_path / "cp")
        return tmp_path / "c"

    return run


@pytest.mark.drawn
def test_one_falls_silent_then_all_then_one_comes_back(job: Callable[..., Path], feed: Feed, spark: Any) -> None:
    policy = idle(ordered(), SOON, counts="wall")
    feed.add([(at(5), "a", 0), (at(3), "b", 1)])
    channel = job(policy)
    assert list(Channel.open(channel).frontier) == [_us(3)]
    feed.add([(at(7), "a", 2)])
    job(policy)
    assert list(Channel.open(channel).frontier) == [_us(7)]
    assert "idle: b" in str(status(str(channel)))
    job(policy)  # nothing arrives at all
    assert list(Channel.open(channel).frontier) == [_us(7)]
    assert "idle: a, b" in str(status(str(channel)))
    feed.add([(at(4), "b", 3), (at(9), "b", 4)])
    job(policy)
    assert [row[2] for row in sorted(contents(channel), key=lambda row: row[2])] == [0, 1, 2, 4]
    late = spark.read.format("delta").load(f"{channel}_late").select("n", "_reason").collect()
    assert [tuple(row) for row in late] == [(3, "late")]
    assert list(Channel.open(channel).frontier) == [_us(9)]


def _us(hour: int) -> int:
    return int(at(hour).timestamp()) * 1_000_000


@pytest.mark.drawn
def test_all_silent_and_advance_closes_the_last_hours(job: Callable[..., Path], feed: Feed, tmp_path: Path) -> None:
    policy = idle(bounded("1 hour"), SOON, counts="wall", all_silent="advance")
    feed.add([(at(5), "a", 0), (at(3), "b", 1)])
    channel = job(policy)
    assert list(Channel.open(channel).frontier) == [_us(2)]
    job(policy)
    planned = offsets(tmp_path / "cp")
    assert len(planned) == 2
    assert list(Channel.open(channel).frontier) == [max(_us(4), (planned[1] - 1) * 1000)]


@pytest.mark.drawn
def test_without_heartbeat_nothing_arrives_so_no_batch_judges(job: Callable[..., Path], feed: Feed, tmp_path: Path) -> None:
    feed.add([(at(5), "a", 0), (at(3), "b", 1)])
    for _ in range(3):
        channel = job(idle(ordered(), SOON, counts="wall"), heartbeat=False)
    assert len(offsets(tmp_path / "cp")) == 1
    assert list(Channel.open(channel).frontier) == [_us(3)]


@pytest.mark.drawn
@pytest.mark.parametrize("before", [False, True], ids=["added", "left out"])
def test_a_checkpoint_keeps_its_heartbeat_as_the_page_says(
    job: Callable[..., Path], feed: Feed, tmp_path: Path, before: bool
) -> None:
    """Spark compares the sources before it asks the sink anything. Its message is on the page."""
    feed.add([(at(5), "a", 0)])
    channel = job(ordered(), heartbeat=before)
    had, has = (2, 1) if before else (1, 2)
    message = f"There are [{had}] sources in the checkpoint offsets and now there are [{has}] sources requested by the query."
    page = " ".join((ROOT / "docs" / "scheduled.md").read_text().split())
    assert (message in page) == (not before)
    feed.add([(at(7), "a", 1)])
    with pytest.raises(StreamingQueryException, match=re.escape(message)):
        job(ordered(), heartbeat=not before)
    job(ordered(), heartbeat=before)
    assert sorted(row[2] for row in contents(channel)) == [0, 1]


@pytest.mark.drawn
def test_a_run_that_leaves_files_unread_judges_nobody(job: Callable[..., Path], feed: Feed) -> None:
    policy = idle(ordered(), SOON, counts="wall")
    feed.add([(at(5), "a", 0), (at(3), "b", 1)])
    channel = job(policy, files=1)
    feed.add([(at(6), "a", 2)])
    job(policy, files=1)
    assert list(Channel.open(channel).frontier) == [_us(3)]
    assert "idle() has no effect" in str(status(str(channel)))


def test_a_repeated_batch_judges_as_of_its_first_attempt(spark: Any, tmp_path: Path, feed: Feed) -> None:
    broken, place = tmp_path / "broken", str(tmp_path / "broken")
    check = F.udf(lambda n: 1 // (0 if Path(place).exists() else 1) * n, "long")
    writer = lambda: ingest(  # noqa: E731
        feed.stream(spark, None).withColumn("n", check("n")),
        str(tmp_path / "c"),
        time="t",
        partition="p",
        policy=idle(ordered(), SOON, counts="wall"),
    ).option("readsToEnd", "true")
    feed.add([(at(5), "a", 0), (at(3), "b", 1)])
    finish(writer(), tmp_path / "cp")
    broken.touch()
    feed.add([(at(7), "a", 2)])
    with pytest.raises(StreamingQueryException, match="ZeroDivisionError"):
        finish(writer(), tmp_path / "cp")
    broken.unlink()
    first = offsets(tmp_path / "cp")
    feed.add([(at(8), "a", 3)])
    finish(writer(), tmp_path / "cp")
    assert offsets(tmp_path / "cp")[:2] == first
    channel = Channel.open(tmp_path / "c")
    (judged,) = [
        commit.statement.statements["b"].state["idle"]["silent"]
        for version in range(channel.version + 1)
        if (commit := channel.log.require(version)).statement is not None
        and commit.transactions.get(_query(tmp_path / "cp")) == 1
        and "b" in commit.statement.statements
    ]
    assert judged == first[1] - first[0]


def _query(checkpoint: Path) -> str:
    return str(json.loads((checkpoint / "metadata").read_text())["id"])


def test_a_heartbeat_changes_no_column(spark: Any, feed: Feed) -> None:
    feed.add([(at(5), "a", 0)])
    stream = feed.stream(spark, None)
    assert with_heartbeat(stream).schema == stream.schema
    assert _reads_to_end(with_heartbeat(stream))
    assert not _reads_to_end(with_heartbeat(feed.stream(spark, 1)))
