"""Rows behind the frontier stop the query by name, in front of every stateful operator; none is dropped in silence.

Each query takes one honest batch, whose end closes what is before second 10, and in the next one a row of second 3: by a log that
was changed behind the channel's back, or by a function of the user's that moves a time back and keeps its tag.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from by_batch import feed, put, running
from helpers import make_channel, run, say, stream
from strandline.channel import Channel
from strandline.time.domain import product

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's workers do not find what the tests import
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
BEHIND = r"(?s)\[STRANDLINE_ROW_BEHIND_FRONTIER\] A row at time 2013-01-01T00:00:03Z came from "


class Nothing(StatefulProcessor):
    """A processor that keeps and gives nothing."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        for _ in rows:
            yield pd.DataFrame({"key": pd.Series(dtype=str)})

    def close(self) -> None:
        pass


Build = Callable[[Any, Any], Any]
"""An operator over the rows, and a second stream that keeps its promise."""
NEAR = "l.key = r.key AND l.time BETWEEN r.time - INTERVAL 2 SECONDS AND r.time + INTERVAL 2 SECONDS"
OPERATORS: dict[str, Build] = {
    "groupBy": lambda rows, _: rows.groupBy("time").count(),
    "groupBy, update": lambda rows, _: rows.groupBy("time").count(),
    "groupBy, complete": lambda rows, _: rows.groupBy("time").count(),
    "window": lambda rows, _: rows.groupBy(F.window("time", "5 seconds")).count(),
    "session_window": lambda rows, _: rows.groupBy(F.session_window("time", "5 seconds"), "key").count(),
    "dropDuplicates": lambda rows, _: rows.dropDuplicates(["time", "key"]),
    "dropDuplicates without the time": lambda rows, _: rows.dropDuplicates(["key"]),
    "dropDuplicatesWithinWatermark": lambda rows, _: rows.withWatermark("time", "1 second").dropDuplicatesWithinWatermark(
        ["key"]
    ),
    "inner join, left": lambda rows, other: rows.alias("l").join(other.alias("r"), F.expr("l.time = r.time")).select("l.key"),
    "outer join, right": lambda rows, other: (
        other.alias("l").join(rows.alias("r"), F.expr("l.time = r.time"), "left_outer").select("l.key")
    ),
    "join by distance": lambda rows, other: rows.alias("l").join(other.alias("r"), F.expr(NEAR), "full_outer").select("l.key"),
    "transformWithStateInPandas": lambda rows, _: rows.groupBy("key").transformWithStateInPandas(
        Nothing(), "key string", "append", "eventTime"
    ),
}


def backwards(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Times nine seconds earlier."""
    for batch in batches:
        earlier = pc.subtract(batch.column(0), pa.scalar(9_000_000, pa.duration("us")))
        yield pa.RecordBatch.from_arrays([earlier, *batch.columns[1:]], schema=batch.schema)


@pytest.fixture(scope="module")
def failures(spark: Any, tmp_path_factory: Any) -> Iterator[dict[str, Future[tuple[str, int]]]]:
    """Each operator's query over times that were moved back: how it failed, and how many batches it had done."""
    folder: Path = tmp_path_factory.mktemp("guards")
    for name in ("moved", "other"):
        channel = feed(folder / name)
        put(channel, 11, then=10)
        put(channel, 12, then=11)

    def fail(name: str) -> tuple[str, int]:
        session = spark.newSession()
        session.conf.set("spark.sql.shuffle.partitions", "1")
        session.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
        moved, other = (stream(session, folder / name, maxFilesPerTrigger="1") for name in ("moved", "other"))
        frame = OPERATORS[name](moved.mapInArrow(backwards, moved.schema), other)
        mode = name.partition(", ")[2]
        with (
            running(
                frame, folder / f"checkpoint {name}", mode if mode in ("update", "complete") else "append", availableNow=True
            ) as (query, batches),
            pytest.raises(StreamingQueryException) as failure,
        ):
            query.awaitTermination()
        return str(failure.value), len(batches)

    with ThreadPoolExecutor(2) as pool:
        yield {name: pool.submit(fail, name) for name in OPERATORS}
        pool.shutdown(cancel_futures=True)


@pytest.mark.drawn
@pytest.mark.parametrize("name", OPERATORS)
def test_a_time_that_was_moved_back_stops_the_query_before_the_operator(
    failures: dict[str, Future[tuple[str, int]]], name: str
) -> None:
    message, batches = failures[name].result()
    # Of a window the end is what counts, against the frontier of ends.
    second, closed = {"window": (5, 15), "session_window": (8, 10)}.get(name, (3, 10))
    assert f"A row at time 2013-01-01T00:00:{second:02}Z came from the input of a stateful operator" in message
    assert f"whose frontier {{2013-01-01T00:00:{closed}Z}} had closed that time" in message
    assert batches == 1  # the honest one


def tampered(channel: Channel) -> str:
    """Put the first commit's file in place of the newest one's, whose rows the frontier has not closed; its name."""
    log = Path(channel.path) / "_delta_log"
    first, *_, newest = (p for p in sorted(log.glob("*.json")) if '"add"' in p.read_text())
    old = next(line for line in first.read_text().splitlines() if line.startswith('{"add"'))
    newest.write_text("\n".join(old if line.startswith('{"add"') else line for line in newest.read_text().splitlines()))
    return Channel.open(channel.path).log.read(int(newest.stem)).files[0].path  # type: ignore[union-attr]


@pytest.mark.drawn
@pytest.mark.parametrize("native", ["on", "off"])
def test_a_row_that_was_slipped_into_the_table_is_named_with_its_file(spark: Any, tmp_path: Path, native: str) -> None:
    """Whoever reads the file, Spark or Python; and the same of a query without any state."""
    channel = feed(tmp_path / "in")
    put(channel, 3, then=10)
    put(channel, 12, then=13)
    file = tampered(channel)
    rows = stream(spark, tmp_path / "in", maxFilesPerTrigger="1", nativeScan=native)
    for i, frame in enumerate((rows.groupBy("time").count(), rows.select("time", "key"))):
        with pytest.raises(StreamingQueryException, match=BEHIND) as failure:
            run(frame, tmp_path / f"out{i}", tmp_path / f"checkpoint{i}")
        message = str(failure.value)
        assert f"the source of channel {channel.table_id}" in message
        assert "{2013-01-01T00:00:10Z}" in message
        assert f"file {tmp_path / 'in' / file if native == 'on' else file}." in message
        assert Channel.open(tmp_path / f"out{i}").read().num_rows == 1


def test_a_time_of_several_coordinates_is_named_with_its_file(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", product(epoch="int64", iter="int64"), producers=("a",))
    say(channel, "a", ((0, 1), 1), ((2, 2), 1), then=[(0, 2), (1, 0)])
    say(channel, "a", ((3, 3), 1), ((3, 4), 1), then=[(1, 0)])
    file = tampered(channel)
    frame = stream(spark, tmp_path / "in", maxFilesPerTrigger="1").groupBy("time").count()
    message = r"(?s)at time \(epoch=0, iter=1\) came from the source of channel .*\{.*epoch=0, iter=2.*\}.*file \S+" + file
    with pytest.raises(StreamingQueryException, match=message):
        run(frame, tmp_path / "out", tmp_path / "checkpoint")
