"""A hundred small commits, one per batch: compares strandline's source and sink with Delta's, which copy the same rows.

    python benchmarks/overhead.py [--commits 100] [--rows 100] [--rounds 4] [--warm-up 200]

The benchmark measures the time of a batch (Spark's ``triggerExecution``), without the first batch of each run. The queries take
turns, with a part of the commits at a time. Delta runs as it comes, and tuned for a small machine. The goal holds when our median
is at most 0.4 of the better one's.

Before that, each query runs ``--warm-up`` batches, because a query that runs for days has compiled code. Those of Delta, whose
batches take ten times as long, run a tenth of them.

Half of such a batch was Spark's own two checkpoint files. The benchmark measures ours beside Spark's, with and without syncing,
and our whole batch beside one of Spark's own file source that writes nothing: at most 1.4 of it with the same checkpoint files.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from _alternating import DELTAS, OURS, Measure, deltas, order, spark_session, summary, through, with_settings
from strandline.channel import Channel, Producer
from strandline.time.arrow import time_field
from strandline.time.domain import int64

UNSYNCED = "ours without syncing"
SPARKS_CHECKPOINTS = "ours with Spark's checkpoint files"
UNSYNCED_CHECKPOINTS = "ours without syncing checkpoints"
SPARKS_FILES = "Spark's files to noop, as they come"
SPARKS_FILES_ALIKE = "Spark's files to noop, with our checkpoint files"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
SPARKS_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"


def commit_some(producer: Producer, first: int, commits: int, rows: int) -> None:
    """Make small commits. Each brings rows and moves the frontier."""
    for time in range(first, first + commits):
        producer.send(pa.table({"time": np.full(rows, time), "value": np.arange(rows)}))
        producer.delay([time + 1])
        producer.commit()


def main() -> None:
    """Commit, run alternately, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=100)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--warm-up", type=int, default=200, metavar="BATCHES")
    arguments = parser.parse_args()
    per_round = arguments.commits // arguments.rounds
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        schema = pa.schema([time_field("time", int64), ("value", pa.int64())])
        channel = Channel.create(scratch / "in", schema, producers=["p"], at=0)
        spark = spark_session(scratch)

        def times_of(frame: Any, target: str, way: str, **options: str) -> list[float]:
            writer = frame.writeStream.format(target).options(checkpointLocation=str(scratch / f"{way}-checkpoint"), **options)
            query: Any = writer.trigger(availableNow=True).start(str(scratch / f"{way}-out"))
            query.awaitTermination()
            return [p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]][1:]

        def run(source: str, way: str, **options: str) -> list[float]:
            reader = spark.readStream.format(source).option("maxFilesPerTrigger", 1).options(**options)
            return times_of(reader.load(through(scratch / "in", way)), source, way, **options)

        def files(way: str) -> list[float]:
            reader = spark.readStream.schema("time long, value long").option("maxFilesPerTrigger", 1)
            return times_of(reader.parquet(str(scratch / "in" / "*.parquet")), "noop", way)

        def under(key: str, value: str, each: Callable[[], list[float]]) -> list[float]:
            with with_settings(spark, {key: value}):
                return each()

        runs = {
            OURS: lambda _: run("strandline", "ours"),
            UNSYNCED: lambda _: run("strandline", "unsynced", **{"storage.durable": "false"}),
            SPARKS_CHECKPOINTS: lambda _: under(MANAGER, SPARKS_MANAGER, lambda: run("strandline", "sparks")),
            UNSYNCED_CHECKPOINTS: lambda _: under(
                "strandline.checkpoint.durable", "false", lambda: run("strandline", "unsynced-checkpoints")
            ),
            SPARKS_FILES: lambda _: under(MANAGER, SPARKS_MANAGER, lambda: files("files")),
            SPARKS_FILES_ALIKE: lambda _: files("files-alike"),
            # Version 0 has made the channel. The option counts for a query's first start only.
            **deltas(spark, lambda way, _: run("delta", way, startingVersion=str(arguments.warm_up - arguments.warm_up // 10))),
        }
        times: dict[str, list[float]] = {name: [] for name in runs}
        with channel.producer("p") as producer:
            commit_some(producer, 0, arguments.warm_up, arguments.rows)
            for each in runs.values():
                each(0)
            for turn in range(arguments.rounds):
                commit_some(producer, arguments.warm_up + turn * per_round, per_round, arguments.rows)
                for name in order(list(runs), turn):
                    times[name] += runs[name](turn)
                medians = (f"{name} {statistics.median(each):.0f} ms" for name, each in times.items())
                print(f"round {turn + 1}: {', '.join(medians)}", flush=True)
        spark.stop()
        beside = {name: {OURS: times[OURS], name: times.pop(name)} for name in list(runs) if name not in (OURS, *DELTAS)}
        unit = "ms a batch"
        summary(
            "overhead",
            [
                Measure.beside("a small batch", times, unit, at_most=0.4),
                Measure.alone("its time", statistics.median(times[OURS]), unit),
                Measure.beside("syncing", beside[UNSYNCED], unit, at_most=1.15),
                Measure.beside("checkpoint files", beside[SPARKS_CHECKPOINTS], unit),
                Measure.beside("syncing checkpoints", beside[UNSYNCED_CHECKPOINTS], unit),
                Measure.beside("beside Spark's files", beside[SPARKS_FILES], unit, at_most=0.6),
                Measure.beside("beside Spark's files alike", beside[SPARKS_FILES_ALIKE], unit, at_most=1.4),
            ],
        )


if __name__ == "__main__":
    main()
