"""What stands above a stateful operator may leave rows of it unread: its state is right all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from helpers import stream
from pyspark_strandline import hold
from strandline.channel import Channel
from strandline.time.arrow import time_field
from strandline.time.domain import int64, timestamp

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([time_field("time", int64), ("k", pa.string())])
STORES = {
    "default": {},
    "rocksdb": {
        "providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        "checkpointFormatVersion": "2",
    },
}
ROWS = [(time, key) for time in range(4) for key in "abcdef"]


def on_one_store_each(names: str, cases: Iterable[Any]) -> pytest.MarkDecorator:
    """Each case on one of the two stores, in turn."""
    pairs = [(store, *(case if isinstance(case, tuple) else (case,))) for store, case in zip(cycle(STORES), cases)]
    return pytest.mark.parametrize(f"session, {names}", pairs, indirect=["session"])


@pytest.fixture(params=STORES)
def session(spark: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    own = spark.newSession()
    own._jvm.SparkSession.setActiveSession(own._jsparkSession)
    own.conf.set("spark.sql.shuffle.partitions", "2")
    own.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    own.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    for name, value in STORES[request.param].items():
        own.conf.set(f"spark.sql.streaming.stateStore.{name}", value)
    yield own
    own._jvm.SparkSession.setActiveSession(spark._jsparkSession)


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    return Channel.create(tmp_path / "channel", SCHEMA, producers=["p"])


def put(channel: Channel, rows: list[tuple[int, str]], until: int) -> None:
    with channel.producer("p") as producer:
        producer.send(pa.table({"time": [time for time, _ in rows], "k": [key for _, key in rows]}))
        producer.delay([until])


def run(frame: Any, checkpoint: Path) -> list[tuple[Any, ...]]:
    """All rows of the batches that are there to be run."""
    rows: list[tuple[Any, ...]] = []
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.foreachBatch(lambda batch, _: rows.extend(map(tuple, batch.collect()))).start().awaitTermination()
    return rows


def _seen(frame: Any) -> Any:
    return frame.withColumn("k", F.udf(lambda key: key)("k"))


def _names(frame: Any) -> Any:
    return frame.sparkSession.createDataFrame([("a", "A")], "k string, name string")


LIMITED: dict[str, Callable[[Any], Any]] = {
    "a user's function": _seen,
    "a union": lambda frame: frame.union(frame.where("k <> 'a'")),
    "an outer join": lambda frame: frame.join(_names(frame), "k", "left").select("time", "k"),
    # The parts of such a union, and of a coalesce, are begun one after another in one task.
    "an outer join above a union": lambda frame: (
        frame.union(frame.dropDuplicates(["time", "k"])).join(_names(frame), "k", "left").select("time", "k")
    ),
    "an outer join above a coalesce": lambda frame: _seen(frame).coalesce(1).join(_names(frame), "k", "left").select("time", "k"),
}


@pytest.mark.drawn
@on_one_store_each("form", LIMITED)
def test_a_limit_above(session: Any, channel: Channel, tmp_path: Path, form: str) -> None:
    """Spark's optimizer pushes a limit through what stands below it, and such a limit stops reading."""
    put(channel, ROWS, 4)
    frame = LIMITED[form](stream(session, channel.path).dropDuplicates(["time", "k"]))
    assert len(run(frame.limit(3), tmp_path / "checkpoint")) == 3
    put(channel, [(4, "a"), (5, "b")], 6)
    assert run(frame.limit(3), tmp_path / "checkpoint") == []


@pytest.mark.drawn
def test_a_limit_above_what_is_held(session: Any, channel: Channel, tmp_path: Path) -> None:
    put(channel, ROWS, 3)
    frame = _seen(hold(stream(session, channel.path), by=["k"])).limit(20)
    assert len(run(frame, tmp_path / "checkpoint")) == 18
    put(channel, [(4, "a"), (5, "b")], 9)
    assert {time for time, _ in run(frame, tmp_path / "checkpoint")} <= {3, 4, 5}


@pytest.mark.drawn
@on_one_store_each("distinct", [False, True])
def test_a_limit_whose_source_is_idle(session: Any, channel: Channel, tmp_path: Path, distinct: bool) -> None:
    """To Spark's optimizer a source without data has no rows and needs no limit: it dropped the limit with its state."""
    other = Channel.create(tmp_path / "other", SCHEMA, producers=["p"])

    def limited() -> Any:
        left, right = stream(session, channel.path), stream(session, other.path)
        return (left.dropDuplicates(["time", "k"]) if distinct else left).limit(3).union(right.dropDuplicates(["time", "k"]))

    put(channel, [(0, "a"), (1, "b")], 2)
    put(other, [(1, "x")], 2)
    assert set(run(limited(), tmp_path / "checkpoint")) == {(0, "a"), (1, "b"), (1, "x")}
    put(other, [(2, "y")], 3)
    assert run(limited(), tmp_path / "checkpoint") == [(2, "y")]
    put(channel, [(3, "c"), (3, "d")], 4)
    assert len(run(limited(), tmp_path / "checkpoint")) == 1


@pytest.mark.drawn
@on_one_store_each("ordered", [False, True])
def test_a_limit_that_shuffles_inside_itself(session: Any, channel: Channel, tmp_path: Path, ordered: bool) -> None:
    """In complete mode a limit at the top is a plain one, whose tasks take some rows and give them to another stage."""
    other = Channel.create(tmp_path / "other", SCHEMA, producers=["p"])

    def limited() -> Any:
        counted = stream(session, channel.path).groupBy("time", "k").count()
        both = counted.union(stream(session, other.path).dropDuplicates(["time", "k"]).withColumn("count", F.lit(7).cast("long")))
        return (both.orderBy("time", "k") if ordered else both).limit(3)

    def runs() -> list[Any]:
        rows: list[Any] = []
        writer = limited().writeStream.outputMode("complete").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer = writer.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        writer.trigger(availableNow=True).start().awaitTermination()
        return rows

    put(channel, ROWS, 2)
    for time in range(3, 6):
        put(other, [(time, key) for key in "xyz"], time)
        assert len(runs()) == 3
    state = session.read.format("statestore").load(str(tmp_path / "checkpoint"), operatorId=1)
    assert state.count() == 9  # as long as the other channel stands at 2


@pytest.mark.drawn
@on_one_store_each(
    "hint, how",
    [("broadcast", "inner"), ("shuffle_hash", "left_semi"), ("merge", "inner"), ("shuffle_replicate_nl", "inner")],
)
def test_a_join_with_an_empty_table(session: Any, channel: Channel, tmp_path: Path, hint: str, how: str) -> None:
    """Without a row on the other side, a join need not read: the rows are remembered all the same."""
    session.conf.set("spark.sql.codegen.wholeStage", "false")  # generated code does read
    put(channel, ROWS, 2)

    def joined() -> Any:
        names = session.read.schema("k string, time bigint").json(str(tmp_path / "names")).hint(hint)
        return stream(session, channel.path).dropDuplicates(["time", "k"]).join(names, ["time", "k"], how)

    (tmp_path / "names").mkdir()
    assert run(joined(), tmp_path / "checkpoint") == []
    (tmp_path / "names" / "1.json").write_text('{"k": "a", "time": 3}\n{"k": "a", "time": 5}\n')
    put(channel, [(3, "a"), (5, "a"), (5, "a")], 6)
    assert [(time, key) for time, key, *_ in run(joined(), tmp_path / "checkpoint")] == [(5, "a")]


def test_a_users_function_that_stops_reading(session: Any, channel: Channel, tmp_path: Path) -> None:
    def first(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            if len(frame):
                yield frame
                return

    put(channel, ROWS, 2)
    frame = stream(session, channel.path).dropDuplicates(["time", "k"]).mapInPandas(first, "time bigint, k string")
    found = run(frame, tmp_path / "checkpoint")
    assert 1 <= len(found) <= 2
    put(channel, [*ROWS[-12:], (5, "z")], 6)
    assert run(frame, tmp_path / "checkpoint") == [(5, "z")]


@pytest.mark.drawn
def test_between_two_operators(session: Any, channel: Channel, tmp_path: Path) -> None:
    """The upper operator reads to the end what stops reading the lower one."""
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    put(channel, ROWS, 2)
    (tmp_path / "names").mkdir()

    def counted() -> Any:
        names = session.read.schema("k string, time bigint").json(str(tmp_path / "names")).hint("shuffle_hash")
        once = stream(session, channel.path).dropDuplicates(["time", "k"])
        return once.join(names, ["time", "k"]).groupBy("time", "k").count()

    assert run(counted(), tmp_path / "checkpoint") == []
    (tmp_path / "names" / "1.json").write_text('{"k": "a", "time": 3}\n{"k": "a", "time": 5}\n')
    put(channel, [(3, "a"), (5, "a"), (5, "a")], 6)
    assert run(counted(), tmp_path / "checkpoint") == [(5, "a", 1)]


@pytest.mark.drawn
def test_two_operators_of_one_task_have_their_own_stores(session: Any, tmp_path: Path) -> None:
    """With one partition there is no exchange between them, and a coalesce opens what is below it with the first row."""
    session.conf.set("spark.sql.shuffle.partitions", "1")
    schema = pa.schema([time_field("time", timestamp), ("k", pa.string())])
    channel = Channel.create(tmp_path / "channel", schema, producers=["p"])
    counted = stream(session, channel.path).groupBy(F.window("time", "5 seconds"), "k").count()
    ends = counted.select(F.window_time("window").alias("time"), "k").coalesce(1)
    frame = ends.groupBy(F.session_window("time", "1 second"), "k").count().select("count")
    for seconds, until, sessions in (((1, 2, 7), 6, 1), ((8, 11), 30, 2)):
        times = pa.array([second * 1_000_000 for second in seconds]).cast(pa.timestamp("us", tz="UTC"))
        with channel.producer("p") as producer:
            producer.send(pa.table({"time": times, "k": ["x"] * len(seconds)}))
            producer.delay([until * 1_000_000])
        assert run(frame, tmp_path / "checkpoint") == [(1,)] * sessions


@pytest.mark.drawn
def test_a_foreach_batch_that_reads_the_first_rows_only_is_stopped(session: Any, channel: Channel, tmp_path: Path) -> None:
    """Spark runs no tasks for the other partitions: nothing that stands in the plan can help."""
    put(channel, ROWS, 2)
    frame = stream(session, channel.path).dropDuplicates(["time", "k"])

    def start(checkpoint: str, take: Callable[[Any, int], Any]) -> None:
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True)
        writer.foreachBatch(take).start().awaitTermination()

    with pytest.raises(StreamingQueryException):
        start("head", lambda batch, _: batch.head())
    put(channel, [(5, "z")], 6)
    if session.conf.get("spark.sql.streaming.stateStore.checkpointFormatVersion") == "1":
        with pytest.raises(StreamingQueryException):  # Spark had written its commit log before it looked
            start("head", lambda batch, _: batch.count())
    found: list[int] = []

    def take(batch: Any, number: int) -> None:
        found.append(batch.count())
        assert batch.head() is not None

    start("count", take)
    assert sum(found) == len(ROWS) + 1
