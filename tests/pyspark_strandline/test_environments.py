"""Settings and surroundings that once changed an answer: each is right now, or refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from helpers import stream
from pyspark_strandline import truncate
from strandline.channel import Channel
from strandline.time.arrow import time_field
from strandline.time.domain import Scalar, timestamp

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([time_field("time", timestamp), ("k", pa.string()), ("v", pa.int64())])


def at(hour: int, minute: int = 0) -> datetime:
    """A time of the third of November 2013: in New York the clocks went back at 6:00 UTC."""
    return datetime(2013, 11, 3, hour, minute, tzinfo=timezone.utc)


def put(channel: Channel, *rows: tuple[datetime, str, int], until: datetime | None = None) -> None:
    """Send rows, and hold ``until`` from then on, or nothing."""
    with channel.producer("p") as producer:
        if rows:
            times, keys, values = zip(*rows, strict=True)
            producer.send(pa.table({"time": pa.array(times, pa.timestamp("us", "UTC")), "k": list(keys), "v": list(values)}))
        if until is None:
            producer.drop()
        else:
            producer.delay([until])


@pytest.fixture
def session(spark: Any) -> Iterator[Any]:
    """A session of its own, in a zone whose clocks change."""
    own = spark.newSession()
    own._jvm.SparkSession.setActiveSession(own._jsparkSession)
    own.conf.set("spark.sql.session.timeZone", "America/New_York")
    own.conf.set("spark.sql.shuffle.partitions", "2")
    yield own
    own._jvm.SparkSession.setActiveSession(spark._jsparkSession)


def channel_at(path: Path) -> Channel:
    return Channel.create(path, SCHEMA, producers=["p"])


def run(frame: Any, checkpoint: Path, mode: str = "append") -> list[tuple[Any, ...]]:
    """All rows of the batches that are there to be run."""
    rows: list[tuple[Any, ...]] = []
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).outputMode(mode).trigger(availableNow=True)
    writer.foreachBatch(lambda batch, _: rows.extend(map(tuple, batch.collect()))).start().awaitTermination()
    return rows


def into(frame: Any, path: Path) -> Channel:
    """The channel that a query writes."""
    writer = frame.writeStream.format("strandline").option("checkpointLocation", f"{path}.checkpoint").trigger(availableNow=True)
    writer.start(str(path)).awaitTermination()
    return Channel.open(path)


@pytest.mark.drawn
@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("shuffle", ["repartition", "join"])
def test_a_shuffled_stateless_query_promises_what_its_output_keeps(
    session: Any, tmp_path: Path, adaptive: str, shuffle: str
) -> None:
    session.conf.set("spark.sql.adaptive.enabled", adaptive)
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    source = channel_at(tmp_path / "source")
    put(source, (at(10, 5), "a", 1), until=at(10, 30))
    rows = stream(session, tmp_path / "source")
    names = session.createDataFrame([("a", "x")], "k string, name string")
    hours = truncate(rows.repartition(2) if shuffle == "repartition" else rows.join(names, "k"), "1 hour")
    assert into(hours, tmp_path / "hours").frontier.format() == "{2013-11-03T10:00:00Z}"
    counts = stream(session, tmp_path / "hours").groupBy("time").count()
    assert run(counts, tmp_path / "counts") == []
    put(source, (at(10, 45), "a", 2), until=at(11, 10))
    assert into(hours, tmp_path / "hours").frontier.format() == "{2013-11-03T11:00:00Z}"
    ((time, count),) = run(counts, tmp_path / "counts")
    assert (time.astimezone(timezone.utc), count) == (at(10), 2)


@pytest.mark.drawn
def test_a_difference_of_local_times_bounds_nothing_where_clocks_change(session: Any, tmp_path: Path) -> None:
    left, right = channel_at(tmp_path / "left"), channel_at(tmp_path / "right")
    put(right, (at(5), "a", 1), until=at(6, 5))
    put(left, (at(5), "z", 0), until=at(6, 5))
    frames = [stream(session, tmp_path / name).alias(name[0]) for name in ("left", "right")]

    def joined(condition: str) -> Any:
        return frames[1].join(frames[0], F.expr(f"l.k = r.k AND {condition}")).select("r.time", "r.k", "l.v")

    local = "l.time - r.time >= INTERVAL '0' MINUTE AND l.time - r.time <= INTERVAL '30' MINUTE"
    with pytest.raises(
        StreamingQueryException, match=r"STRANDLINE_OPERATOR_UNSUPPORTED.*subtracts the local times of America/New_York"
    ):
        run(joined(local), tmp_path / "refused")
    exact = joined("l.time >= r.time AND l.time <= r.time + INTERVAL '90' MINUTE")
    assert run(exact, tmp_path / "exact") == []
    put(left, (at(6, 10), "a", 7))
    put(right)
    assert [(k, v) for _, k, v in run(exact, tmp_path / "exact")] == [("a", 7)]
    session.conf.set("spark.sql.session.timeZone", "+05:30")
    assert run(joined(local), tmp_path / "fixed") == []  # 70 minutes apart


@pytest.mark.drawn
def test_integers_that_wrap_around_bound_nothing(session: Any, tmp_path: Path) -> None:
    schema = pa.schema([time_field("time", Scalar("int8")), ("k", pa.string())])
    for name in ("left", "right"):
        with Channel.create(tmp_path / name, schema, producers=["p"]).producer("p") as producer:
            producer.send(pa.table({"time": pa.array([100 if name == "right" else -100], pa.int8()), "k": ["a"]}))
            producer.drop()
    frames = [stream(session, tmp_path / name).alias(name[0]) for name in ("left", "right")]

    def joined(difference: str) -> Any:
        return frames[0].join(frames[1], F.expr(f"l.k = r.k AND {difference} BETWEEN 0 AND 60")).select("l.time")

    session.conf.set("spark.sql.ansi.enabled", "false")
    with pytest.raises(StreamingQueryException, match="STRANDLINE_OPERATOR_UNSUPPORTED.*wraps around"):
        run(joined("l.time - r.time"), tmp_path / "wraps")
    assert run(joined("try_subtract(l.time, r.time)"), tmp_path / "tries") == []


def test_a_topic_of_our_name_is_not_ours(session: Any, tmp_path: Path) -> None:
    from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

    class Reader(SimpleDataSourceStreamReader):
        def initialOffset(self) -> dict[str, Any]:  # noqa: N802
            return {"strandline": {"0": 0}}

        def read(self, start: Any) -> Any:
            end = start["strandline"]["0"] + 1
            return iter([(end,)] if end < 3 else []), {"strandline": {"0": min(end, 2)}}

        def readBetweenOffsets(self, start: Any, end: Any) -> Any:  # noqa: N802
            return iter([(i + 1,) for i in range(start["strandline"]["0"], end["strandline"]["0"])])

        def commit(self, end: Any) -> None: ...

    class Topic(DataSource):
        @classmethod
        def name(cls) -> str:
            return "topic"

        def schema(self) -> str:
            return "v int"

        def simpleStreamReader(self, schema: Any) -> Any:  # noqa: N802
            return Reader()

    session.dataSource.register(Topic)
    query = (
        session.readStream.format("topic")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "c"))
        .start()
    )
    query.processAllAvailable()
    query.stop()
    assert query.lastProgress is not None
