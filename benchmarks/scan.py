"""The scan alone: strandline's source and Spark's Delta source on the same files, with five ways to use the columns.

    python benchmarks/scan.py [--rows 10000000] [--files 32] [--rounds 5] [--native auto]

The benchmark measures ``addBatch``, the time to run one batch of all rows, of an availableNow query into a sink that does
nothing. Both queries run alternately in one session. A case holds when ours takes at most as long as Delta's. The benchmark also
prints the processor time of the batch's tasks, which says more on a busy machine. Delta's snapshots have two tasks, which are not
part of it. With ``--native off`` Python reads. This is the reference for correctness, not for speed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import functions as F

from _alternating import alternately, report, spark_session
from throughput import build

CASES: dict[str, Callable[[Any], Any]] = {
    "all columns": lambda frame: frame,
    "one column": lambda frame: frame.select("value"),
    "count": lambda frame: frame.select(F.lit(1)),
    "groupBy(time, key)": lambda frame: frame.groupBy("time", "key").agg(F.count("*"), F.sum("value")),
    "selective filter": lambda frame: frame.where("time < timestamp'1970-01-02' and key = 3"),
}


class TaskTimes:
    """The processor time of tasks, job by job, from Spark's own metrics."""

    def __init__(self, spark: Any) -> None:
        self._context = spark.sparkContext._jsc.sc()
        self._job = 0

    def of_newest_job(self) -> float:
        """Return the seconds of all the newest job's stages. A batch's own job is the last job of its query."""
        self._context.listenerBus().waitUntilEmpty()
        store, job = self._context.statusStore(), None
        try:
            while True:
                job = store.job(self._job)
                self._job += 1
        except Py4JError:  # no job has that number yet
            stages = job.stageIds() if job is not None else None
        ids = [stages.apply(i) for i in range(stages.size())] if stages is not None else []
        return sum(float(store.lastStageAttempt(i).executorCpuTime()) for i in ids) / 1e9


def main() -> None:
    """Build, run each case alternately, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--native", choices=("auto", "on", "off"), default="auto")
    parser.add_argument("--case", choices=sorted(CASES), action="append", help="only this one (may be repeated)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        table = str(scratch / "table")
        build(scratch / "table", arguments.rows, arguments.files)
        spark = spark_session(scratch, snapshot_partitions=2)
        tasks = TaskTimes(spark)
        processor: dict[str, list[float]] = {}

        def add_batch(frame: Any, checkpoint: str, which: str) -> float:
            writer = frame.writeStream.format("noop").option("checkpointLocation", str(scratch / "checkpoints" / checkpoint))
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            processor.setdefault(which, []).append(tasks.of_newest_job())
            return float(sum(p["durationMs"].get("addBatch", 0) for p in query.recentProgress)) / 1000

        print(f"{arguments.rows} rows in {arguments.files} files, nativeScan={arguments.native}; seconds in addBatch")
        for number, (name, use) in enumerate(CASES.items()):
            if arguments.case and name not in arguments.case:
                continue

            def ours(turn: int, use: Callable[[Any], Any] = use, number: int = number) -> float:
                source = spark.readStream.format("strandline").option("nativeScan", arguments.native)
                return add_batch(use(source.load(table)), f"ours-{number}-{turn}", "ours")

            def other(turn: int, use: Callable[[Any], Any] = use, number: int = number, name: str = name) -> float:
                frame = spark.readStream.format("delta").load(table)
                if name.startswith("groupBy"):
                    frame = frame.withWatermark("time", "0 seconds")
                return add_batch(use(frame), f"other-{number}-{turn}", "other")

            processor.clear()
            took = alternately(ours, other, arguments.rounds)
            a, b = (statistics.median(processor[which][1:]) for which in ("ours", "other"))
            print(f"{name}: tasks took {a:.3f} s of the processors, other {b:.3f} s, ratio {a / b:.3f}")
            report(name, *took, unit="s in addBatch", goal=1.0)
        spark.stop()


if __name__ == "__main__":
    main()
