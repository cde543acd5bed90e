"""The driver's work for one batch of very many files: it chooses, plans and splits them before any task runs.

    python benchmarks/files.py [--files 10000] [--rounds 7]

The query's filter excludes every file by the log's statistics, so that no task reads. Delta reads its snapshot with
two tasks. The benchmark measures the time of a batch minus the time that any batch takes (Spark's own logs), plus
the splitting of as many files that are read. The goal holds when ours takes at most 0.2 s, whatever the other takes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from _alternating import alternately, seconds, spark_session
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
        spark = spark_session(scratch, snapshot_partitions=2)
        phases: dict[str, list[dict[str, int]]] = {"strandline": [], "delta": []}

        def batch(source: str, turn: int) -> float:
            frame = spark.readStream.format(source).load(str(scratch / "table")).where("value < 0")
            writer = frame.writeStream.format("noop").option("checkpointLocation", str(scratch / f"{source}-{turn}"))
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            took = max((p["durationMs"] for p in query.recentProgress), key=lambda d: d.get("queryPlanning", 0))
            phases[source].append(took)
            return sum(took.get(phase, 0) for phase in PHASES) / 1000

        def split(_: int = 0) -> float:
            frame = spark.read.format("strandline").option("nativeScan", "on").load(str(scratch / "table"))
            leaf: Any = frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
            return seconds(lambda: leaf.inputRDD().getNumPartitions())

        print(f"{arguments.files} files; seconds on the driver")
        ours, other = alternately(lambda turn: batch("strandline", turn), lambda turn: batch("delta", turn), arguments.rounds)
        splits = [split() for _ in range(arguments.rounds + 1)][1:]
        for source, each in phases.items():
            print(source, {phase: statistics.median(d.get(phase, 0) for d in each[1:]) for phase in PHASES}, "ms")
        print(f"splitting: {statistics.median(splits) * 1000:.0f} ms")
        total = statistics.median(ours) + statistics.median(splits)
        line = {"name": "files", "ours": round(total, 3), "other": round(statistics.median(other), 3), "unit": "s on the driver"}
        line |= {"ratio": round(total / statistics.median(other), 3), "goal": GOAL, "holds": total <= GOAL}
        print(json.dumps(line))
        spark.stop()


if __name__ == "__main__":
    main()
