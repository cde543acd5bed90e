"""A hundred small commits, one per batch: compares strandline's source and sink with Delta's, which copy the same rows.

    python benchmarks/overhead.py [--commits 100] [--rows 100] [--rounds 4]

The benchmark measures the time of a batch (Spark's ``triggerExecution``), without the first batch of each run. The queries take
turns, with a part of the commits at a time. Delta runs as it comes, and tuned for a small machine. The goal holds when our median
is at most 0.4 of the better one's.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from _alternating import OURS, Measure, deltas, order, spark_session, summary, through
from strandline.channel import Channel, Producer
from strandline.time.arrow import time_field
from strandline.time.domain import int64

UNSYNCED = "ours without syncing"


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
    arguments = parser.parse_args()
    per_round = arguments.commits // arguments.rounds
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        schema = pa.schema([time_field("time", int64), ("value", pa.int64())])
        channel = Channel.create(scratch / "in", schema, producers=["p"], at=0)
        spark = spark_session(scratch)

        def run(source: str, way: str, **options: str) -> list[float]:
            reader = spark.readStream.format(source).option("maxFilesPerTrigger", 1).options(**options)
            frame = reader.load(through(scratch / "in", way))
            writer = frame.writeStream.format(source).options(checkpointLocation=str(scratch / f"{way}-checkpoint"), **options)
            query: Any = writer.trigger(availableNow=True).start(str(scratch / f"{way}-out"))
            query.awaitTermination()
            return [p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]][1:]

        runs = {
            OURS: lambda _: run("strandline", "ours"),
            UNSYNCED: lambda _: run("strandline", "unsynced", **{"storage.durable": "false"}),
            **deltas(spark, lambda way, _: run("delta", way)),
        }
        times: dict[str, list[float]] = {name: [] for name in runs}
        with channel.producer("p") as producer:
            commit_some(producer, 0, 5, arguments.rows)
            for each in runs.values():
                each(0)  # warm up
            for turn in range(arguments.rounds):
                commit_some(producer, 5 + turn * per_round, per_round, arguments.rows)
                for name in order(list(runs), turn):
                    times[name] += runs[name](turn)
                medians = (f"{name} {statistics.median(each):.0f} ms" for name, each in times.items())
                print(f"round {turn + 1}: {', '.join(medians)}", flush=True)
        spark.stop()
        unsynced = times.pop(UNSYNCED)
        summary(
            "overhead",
            [
                Measure.beside("a small batch", times, unit="ms a batch", at_most=0.4),
                Measure.beside("syncing", {OURS: times[OURS], UNSYNCED: unsynced}, unit="ms a batch", at_most=1.15),
            ],
        )


if __name__ == "__main__":
    main()
