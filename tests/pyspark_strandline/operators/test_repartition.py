"""A query that goes on with another number of state partitions, after Spark's offline repartitioning of its checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from helpers import stream
from pyspark_strandline import Processor, hold, process
from strandline.channel import Channel
from strandline.time.arrow import time_field
from strandline.time.domain import int64

pytestmark = pytest.mark.spark

KEYS = "abcdefgh"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def counts() -> Processor:
    # Made here, so that it goes to the tasks by value: they do not have this module.
    class Counts(Processor):
        """How many rows a key has had, told when it is notified."""

        schema = "n bigint"
        state_schema = "n bigint"

        def on_rows(self, time: Any, rows: pa.Table) -> None:
            self.state = {"n": (self.state or {"n": 0})["n"] + len(rows)}
            self.notify_at(time)

        def on_notify(self, time: Any) -> None:
            assert self.state is not None
            self.emit(time, [self.state])

    return Counts()


@pytest.fixture(scope="module")
def rocks(spark: Any) -> Any:
    """A session with RocksDB, the only store that Spark repartitions."""
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    return session


def two_runs(spark: Any, folder: Path, operator: Callable[[Any], Any]) -> list[Any]:
    """What comes out when half of the rows are read with two partitions and the others with five."""
    schema = pa.schema([time_field("time", int64), ("key", pa.string()), ("n", pa.int64())])
    channel = Channel.create(folder / "in", schema, producers=["p"], at=0)
    spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)
    rows = pa.table({"time": [t for t in range(6) for _ in KEYS], "key": list(KEYS) * 6, "n": range(6 * len(KEYS))})
    for begin, holds in ((0, [2]), (2 * len(KEYS), [])):
        with channel.producer("p") as producer:
            producer.send(rows.slice(begin))
            producer.delay(holds)
            producer.commit()
        writer = operator(stream(spark, folder / "in")).writeStream.format("strandline")
        writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start(
            str(folder / "out")
        ).awaitTermination()
        if holds:
            spark._jsparkSession.streamingCheckpointManager().repartition(str(folder / "checkpoint"), 5, True)
    return Channel.open(folder / "out").read().select(["time", "key", "n"]).to_pylist()


def counted(rows: list[Any]) -> Counter[Any]:
    return Counter((row["time"], row["key"], row["n"]) for row in rows)


def expected(times: range, n: Callable[[int], int]) -> Counter[Any]:
    return Counter((time, key, n(time)) for time in times for key in KEYS)


@pytest.mark.drawn
def test_an_aggregation_goes_on(rocks: Any, tmp_path: Path) -> None:
    got = two_runs(rocks, tmp_path, lambda rows: rows.groupBy("time", "key").agg(F.count("*").alias("n")))
    assert counted(got) == expected(range(2), lambda _: 1) + expected(range(2, 6), lambda _: 2)


@pytest.mark.drawn
def test_a_deduplication_goes_on(rocks: Any, tmp_path: Path) -> None:
    got = two_runs(rocks, tmp_path, lambda rows: rows.dropDuplicates(["time", "key"]).withColumn("n", F.lit(1).cast("long")))
    assert counted(got) == expected(range(6), lambda _: 1)


@pytest.mark.drawn
@pytest.mark.parametrize("operator", ["hold", "hold by key", "processor"])
def test_our_own_operators_say_that_their_keys_are_elsewhere(rocks: Any, tmp_path: Path, operator: str) -> None:
    made: dict[str, Callable[[Any], Any]] = {
        "hold": hold,
        "hold by key": lambda rows: hold(rows, by="key"),
        "processor": lambda rows: process(rows, counts(), key="key"),
    }
    with pytest.raises(StreamingQueryException, match="STRANDLINE_STATE_REPARTITIONED.*belongs to partition"):
        two_runs(rocks, tmp_path, made[operator])
