"""From ``start()`` of a query to its first trigger: a channel, and Spark's Delta source, in sessions of their own.

    python benchmarks/start.py [--rounds 5] [--queries 4]

Each round starts a session, in which queries over a small table start one after the other. The first one waits for a daemon,
which imports what a source needs; the others get a fork of it. The goals hold when the first query of a session takes at most
0.8 s, and a later one 0.25 s. The JVM is the same, so the first round warms it up.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from _alternating import Measure, spark_session, summary
from strandline.channel import Channel
from strandline.time.arrow import time_field
from strandline.time.domain import int64

FORMATS = ("strandline", "delta")


def first_trigger(spark: Any, kind: str, table: Path, checkpoint: Path) -> float:
    """Return the seconds from ``start()`` to the first trigger, by the query's own report."""
    writer = spark.readStream.format(kind).load(str(table)).writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    started = time.time()
    query = writer.start()
    query.awaitTermination()
    return datetime.fromisoformat(query.recentProgress[0]["timestamp"].replace("Z", "+00:00")).timestamp() - started


def main() -> None:
    """Start, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--queries", type=int, default=4)
    arguments = parser.parse_args()
    first: dict[str, list[float]] = {kind: [] for kind in FORMATS}
    later: dict[str, list[float]] = {kind: [] for kind in FORMATS}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        channel = Channel.create(scratch / "table", pa.schema([time_field("time", int64), ("n", pa.int64())]), producers=["a"])
        with channel.producer("a") as producer:
            producer.send(pa.table({"time": [1], "n": [1]}))
        for turn in range(arguments.rounds + 1):
            for kind in FORMATS if turn % 2 else FORMATS[::-1]:
                spark = spark_session(scratch)
                places = [scratch / f"{kind}-{turn}-{i}" for i in range(arguments.queries)]
                took = [first_trigger(spark, kind, scratch / "table", place) for place in places]
                spark.stop()
                if turn:  # the first round warms up
                    first[kind].append(took[0])
                    later[kind] += took[1:]
                    print(f"round {turn}: {kind} {took[0]:.3f}, then {', '.join(f'{each:.3f}' for each in took[1:])}", flush=True)
    ours, delta = FORMATS
    measures = [
        Measure.alone(name, statistics.median(took[ours]), "s", at_most=goal, others={"Delta": statistics.median(took[delta])})
        for name, took, goal in (("a session's first query", first, 0.8), ("a later query", later, 0.25))
    ]
    summary("start", measures)


if __name__ == "__main__":
    main()
