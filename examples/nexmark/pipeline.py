"""The pipeline: files become channels with a capability policy, queries read the channels and write channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from nexmark.feed import BOUNDS, partitions
from nexmark.queries import QUERIES, inputs_of
from pyspark_strandline import ingest, read_channels
from strandline.ingest import bounded, composed, drop_partitions, ordered

__all__ = ["STREAMS", "end", "files", "run_query", "take_in"]

STREAMS = ("person", "auction", "bid", "landed")
"""The channels. ``landed`` has the bids once more, at the time at which their file landed."""

_SCHEMAS = {
    "person": "id long, name string, emailAddress string, creditCard string, city string, state string",
    "auction": (
        "id long, itemName string, description string, initialBid long, reserve long, expires timestamp, "
        "seller long, category long"
    ),
    "bid": "auction long, bidder long, price long, channel string, url string",
}


def files(spark: SparkSession, feed: Path, stream: str, files_a_batch: int | None = None) -> DataFrame:
    """Return the files of a stream as Spark reads them, the oldest first."""
    name = "bid" if stream == "landed" else stream
    reader = spark.readStream.schema(f"{_SCHEMAS[name]}, dateTime timestamp, extra string, partition string")
    if files_a_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_a_batch)
    rows = reader.parquet(str(feed / name))
    return rows.selectExpr("bidder", "partition", "_metadata.file_modification_time AS landed") if stream == "landed" else rows


def take_in(
    spark: SparkSession,
    feed: Path,
    lake: Path,
    streams: Sequence[str] = STREAMS,
    bounds: Sequence[int] = BOUNDS,
    files_a_batch: int | None = None,
    tasks: int | None = None,
) -> None:
    """Ingest the files that have landed. Each partition promises to be at most its bound behind its own newest row.

    Each commit has the rows of ``files_a_batch`` files, in as many new files as there are ``tasks``.
    """
    names = partitions(tuple(bounds))
    by_bound = composed({name: bounded(f"{bound} seconds") for name, bound in zip(names, bounds, strict=True)})
    for stream in streams:
        rows = files(spark, feed, stream, files_a_batch)
        writer = ingest(
            rows if tasks is None else rows.coalesce(tasks),
            str(lake / stream),
            time="landed" if stream == "landed" else "dateTime",
            partition="partition",
            partitions=names,
            policy=ordered() if stream == "landed" else by_bound,
            on_late="fail",  # no row breaks the promises of its partition
        )
        writer.option("checkpointLocation", f"{lake}/checkpoints/{stream}").trigger(availableNow=True).start().awaitTermination()


def end(lake: Path, streams: Sequence[str] = STREAMS, bounds: Sequence[int] = BOUNDS) -> None:
    """End the streams: no partition delivers any more."""
    for stream in streams:
        drop_partitions(str(lake / stream), partitions(tuple(bounds)))


def run_query(spark: SparkSession, query: str, lake: Path, name: str | None = None, **options: str) -> StreamingQuery:
    """Run a query over what the channels have, into the channel ``lake/<name>``, by default the query's own name."""
    name = name or query
    channels: Mapping[str, Path] = {stream: lake / stream for stream in inputs_of(query)}
    streams = read_channels(spark, channels, **options)
    results = QUERIES[query](**{stream: streams[stream] for stream in channels})
    writer = results.writeStream.format("strandline").option("checkpointLocation", f"{lake}/checkpoints/{name}")
    running = writer.trigger(availableNow=True).start(str(lake / name))
    running.awaitTermination()
    return running
