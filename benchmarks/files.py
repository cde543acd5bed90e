"""The driver's work for one batch of very many files: it chooses, plans and splits them before any task runs.

    python benchmarks/files.py [--files 10000] [--rounds 7]

The query's filter excludes every file by the log's statistics, so that no task reads. Delta runs as it comes, and tuned for a
small machine. The benchmark measures the time of a batch minus the time that any batch takes (Spark's own logs), plus the
splitting of as many files that are read. The goal holds when ours takes at most 0.2 s, whatever Delta takes. The ratio is to the
better Delta.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from _alternating import OURS, Measure, alternately, deltas, seconds, spark_session, summary, through
from strandline.channel import Channel
from strandline.delta.data_file import DataFile
from strandline.time.arrow import time_field
from strandline.time.domain import int64

GOAL = 0.2
PHASES = ("latestOffset", "getBatch", "queryPlanning", "addBatch")


def build(path: Path, files: int) -> None:
    """Make one commit of ``files`` files. All of them are one file under many names."""
    schema = pa.schema([time_field("time", int64), ("key", pa.string()), ("value", pa.int64())])
    channel = Channel.create(path, schema, producers=["load"], at=0)
    with channel.file_writer() as writer:
        writer.write(pa.table({"time": np.arange(100), "key": ["k"] * 100, "value": np.arange(100)}))
        (one,), times = writer.finish()
    named: list[DataFile] = []
    for _ in range(files):
        name = one.path[: -len("00000000000000000000000000000000-00000.parquet")] + f"{uuid.uuid4().hex}-00000.parquet"
        os.link(path / one.path, path / name)
        named.append(replace(one, path=name))
    channel.append(named, statements={"load": []}, times=[(time, rows * files) for time, rows in times])


def main() -> None:
    """Build, run alternately, split, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        build(scratch / "table", arguments.files)
        spark = spark_session(scratch)
        phases: dict[str, list[dict[str, int]]] = {}

        def batch(source: str, way: str, turn: int) -> float:
            frame = spark.readStream.format(source).load(through(scratch / "table", way)).where("value < 0")
            writer = frame.writeStream.format("noop").option("checkpointLocation", str(scratch / f"{way}-{turn}"))
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            took = max((p["durationMs"] for p in query.recentProgress), key=lambda d: d.get("queryPlanning", 0))
            phases.setdefault(way, []).append(took)
            return sum(took.get(phase, 0) for phase in PHASES) / 1000

        def split(_: int = 0) -> float:
            frame = spark.read.format("strandline").option("nativeScan", "on").load(str(scratch / "table"))
            leaf: Any = frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
            return seconds(lambda: leaf.inputRDD().getNumPartitions())

        print(f"{arguments.files} files; seconds on the driver")
        runs = {
            OURS: lambda turn: batch("strandline", "ours", turn),
            **deltas(spark, lambda way, turn: batch("delta", way, turn)),
        }
        took = alternately(runs, arguments.rounds)
        splits = [split() for _ in range(arguments.rounds + 1)][1:]
        spark.stop()
        for way, each in phases.items():
            print(way, {phase: statistics.median(d.get(phase, 0) for d in each[1:]) for phase in PHASES}, "ms")
        print(f"splitting: {statistics.median(splits) * 1000:.0f} ms")
        total = statistics.median(took.pop(OURS)) + statistics.median(splits)
        others = {name: statistics.median(each) for name, each in took.items()}
        summary("files", [Measure.alone(f"a batch of {arguments.files} files", total, "s on the driver", GOAL, others=others)])


if __name__ == "__main__":
    main()
