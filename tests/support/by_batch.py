"""Small streams whose times are seconds, queries seen batch by batch, and the same rows by Spark's own watermark."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from helpers import make_channel
from strandline.channel import Channel
from strandline.time.domain import timestamp

START = datetime(2013, 1, 1, tzinfo=timezone.utc)
Rows = list[tuple[Any, ...]]
NOT_IN_SPARK = "not in Spark"


def at(seconds: float) -> int:
    """A time, in microseconds."""
    return int((START.timestamp() + seconds) * 1_000_000)


def plain(value: Any) -> Any:
    """A timestamp as the seconds since START, a struct as a tuple; whole seconds as integers."""
    if isinstance(value, datetime):
        seconds = (value.astimezone(timezone.utc) - START) / timedelta(seconds=1)
        return int(seconds) if seconds == int(seconds) else seconds
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def feed(path: Path, *producers: str) -> Channel:
    """A channel of ``time``, ``key`` and ``n``, whose producers hold second 0."""
    return make_channel(path, timestamp, producers or ("a",), at=at(0))


def put(channel: Channel, *seconds: float, by: str = "a", then: float | None, key: str = "k") -> None:
    """One commit: rows at these seconds, ``n`` being the second, and what the producer holds from then on (``None``: nothing)."""
    with channel.producer(by) as producer:
        if seconds:
            times = pa.array([at(s) for s in seconds], pa.int64()).cast(pa.timestamp("us", "UTC"))
            producer.send(pa.table({"time": times, "key": [key] * len(seconds), "n": [int(s) for s in seconds]}))
        producer.delay([] if then is None else [at(then)])


def run(frame: Any, checkpoint: Path, mode: str = "append", **trigger: Any) -> list[Rows]:
    """Run to the end of what there is; the rows of each of this run's batches, in order."""
    with running(frame, checkpoint, mode, **(trigger or {"availableNow": True})) as (query, batches):
        query.awaitTermination()
    return batches


@contextmanager
def running(frame: Any, checkpoint: Path, mode: str = "append", **trigger: Any) -> Any:
    """A query that runs on, and the rows of its batches so far."""
    batches: list[Rows] = []

    def take(rows: Any, batch: int) -> None:
        batches.append(sorted(tuple(plain(v) for v in row) for row in rows.collect()))

    writer = frame.writeStream.outputMode(mode).option("checkpointLocation", str(checkpoint)).foreachBatch(take)
    query = (writer.trigger(**trigger) if trigger else writer).start()
    try:
        yield query, batches
    finally:
        query.stop()


def flat(batches: Iterable[Rows]) -> Rows:
    """All rows of some batches."""
    return sorted(row for rows in batches for row in rows)


def sparks_own(spark: Any, path: Path, delay: str = "0 seconds", **options: str) -> Any:
    """The channel's own data files as a stream of Spark, commit by commit, with a watermark."""
    channel = Channel.open(path)
    for commit in channel.log.tail(0):
        for file in commit.files:  # Spark takes files in the order of their modification
            os.utime(path / file.path, (1_000_000_000 + commit.version,) * 2)
    reader = spark.readStream.schema("time timestamp, key string, n long").options(maxFilesPerTrigger="1")
    return reader.options(**options).parquet(str(path)).withWatermark("time", delay)


def refusal(error: BaseException) -> str:
    """The condition that an error says, when it is one of ours."""
    ours = re.search(r"\[(STRANDLINE_[A-Z_]+)\]", str(error))
    if ours is None and isinstance(error, StreamingQueryException):
        raise error
    return f"`{ours.group(1)}`" if ours else NOT_IN_SPARK


def as_json(frame: Any, operator: str) -> Any:
    return frame.select(
        F.lit(operator).alias("operator"), F.to_json(F.struct("*"), {"timestampFormat": "ss.SSSSSS"}).alias("row")
    )


def united(frames: list[Any]) -> Any:
    return reduce(lambda a, b: a.union(b), frames)
