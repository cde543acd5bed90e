"""Kafka topics as channels, by a real broker and Spark's own source: the page's code, and a topic that gets more partitions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from broker import Broker
from pyspark_strandline import ingest
from strandline.channel import Channel
from strandline.ingest import bounded

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.mark.drawn("processes")
def test_the_page_prints_what_it_says(run_page: Callable[..., tuple[str, str]], broker: Broker) -> None:
    printed, said = run_page("kafka", **{"localhost:9092": broker.bootstrap})
    assert printed == said


@pytest.mark.drawn("processes")
def test_a_live_topic_gets_more_partitions(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """They join a running query where the slowest partition stands, and none of their rows from there on is late."""
    broker.create("live", 2)
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("kafka.metadata.max.age.ms", "500")
        .option("subscribe", "live")
        .option("startingOffsets", "earliest")
        .load()
        .select(F.col("value").cast("string").cast("long").alias("time"), F.col("partition").cast("string").alias("partition"))
    )
    there_are = ["0", "1", "*"]  # those of the start are waited for, whichever a batch sees first; any may join
    writer = ingest(
        rows, str(tmp_path / "live"), time="time", partition="partition", policy=bounded(10), partitions=there_are, on_late="fail"
    )
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    def until_there_are(n: int) -> Channel:
        while not (Channel.exists(tmp_path / "live") and Channel.open(tmp_path / "live").read().num_rows >= n):
            assert not query.awaitTermination(0.05)
        return Channel.open(tmp_path / "live")

    broker.send("live", [(0, "100"), (1, "1000")])
    assert until_there_are(2).frontier.to_json() == [90]
    broker.repartition("live", 4)
    broker.send("live", [(2, "95"), (3, "5000")])  # 95 is in time as long as nobody has gone on
    until_there_are(4)
    broker.send("live", [(0, "110"), (1, "1100")])
    channel = until_there_are(6)
    query.stop()
    holds = {name: p.holds.to_json() for name, p in channel.producers.items()}
    assert holds == {"0": [100], "1": [1090], "2": [90], "3": [4990]}
    assert channel.frontier.to_json() == [90]
    assert sorted(channel.read()["time"].to_pylist()) == [95, 100, 110, 1000, 1100, 5000]


def taken(spark: Any, broker: Broker, folder: Path, checkpoint: str, **options: str) -> list[int]:
    """Take in two topics until their end, and return the channel's numbers."""
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", "a,b")
    starting = options.pop("startingOffsets", "earliest")
    rows = source.options(**{"kafka.metadata.max.age.ms": "500", "startingOffsets": starting, **options}).load()
    rows = rows.select("topic", "partition", F.col("value").cast("string").cast("long").alias("time"))
    take_over = checkpoint != "checkpoint"
    writer = ingest(
        rows, str(folder / "c"), time="time", partition=["topic", "partition"], policy=bounded(100), take_over=take_over
    )
    query = writer.option("checkpointLocation", str(folder / checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return sorted(Channel.open(folder / "c").read()["time"].to_pylist())


@pytest.mark.drawn("processes")
@pytest.mark.parametrize("fetched", ["admin", "consumer"])
def test_a_topic_that_was_made_anew_is_refused_and_the_remedy_helps(
    spark: Any, broker: Broker, tmp_path: Path, fetched: str
) -> None:
    """Spark would begin the new topic at the offset that it had in the one that is gone."""
    spark.conf.set("spark.sql.streaming.kafka.useDeprecatedOffsetFetching", str(fetched == "consumer").lower())
    try:
        for topic in ("a", "b"):
            broker.create(topic)
        broker.send("a", [(0, "1"), (0, "2"), (0, "3")])
        broker.send("b", [(0, "50")])
        assert taken(spark, broker, tmp_path, "checkpoint") == [1, 2, 3, 50]
        broker.send("b", [(0, "51")])
        assert taken(spark, broker, tmp_path, "checkpoint") == [1, 2, 3, 50, 51]
        broker.remove("a")
        broker.create("a")
        broker.send("a", [(0, str(time)) for time in range(4, 9)])
        broker.send("b", [(0, "52")])
        for _ in range(2):  # once more after a restart
            with pytest.raises(Exception, match="STRANDLINE_TOPIC_MADE_ANEW") as refused:
                taken(spark, broker, tmp_path, "checkpoint")
        assert len(Channel.open(tmp_path / "c").read()) == 5
        starting = re.search(r"startingOffsets set to (\{.*?\}): ", str(refused.value))
        assert starting
        assert json.loads(starting[1]) == {"a": {"0": -2}, "b": {"0": 2}}
        everything = [1, 2, 3, 4, 5, 6, 7, 8, 50, 51, 52]
        assert taken(spark, broker, tmp_path, "another", startingOffsets=starting[1]) == everything
        assert taken(spark, broker, tmp_path, "another") == everything
    finally:
        spark.conf.unset("spark.sql.streaming.kafka.useDeprecatedOffsetFetching")
        for topic in ("a", "b"):
            broker.remove(topic)


@pytest.mark.drawn("processes")
def test_a_topic_that_was_made_anew_under_the_first_batch_is_refused(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """The batch began before the topic's first message, and Spark had not finished it."""
    for topic in ("a", "b"):
        broker.create(topic)
        broker.send(topic, [(0, "1")])
    try:
        assert taken(spark, broker, tmp_path, "checkpoint") == [1, 1]
        for name in ("0", ".0.crc"):
            (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
        stated = (tmp_path / "checkpoint" / "strandline" / "topics" / "0").read_text()
        broker.remove("a")
        broker.create("a")
        broker.send("a", [(0, "2")])
        for _ in range(2):
            with pytest.raises(Exception, match="STRANDLINE_TOPIC_MADE_ANEW"):
                taken(spark, broker, tmp_path, "checkpoint")
        assert (tmp_path / "checkpoint" / "strandline" / "topics" / "0").read_text() == stated
    finally:
        for topic in ("a", "b"):
            broker.remove(topic)
