"""The scan alone: strandline's source and Spark's Delta source on the same files, with five ways to use the columns.

    python benchmarks/scan.py [--rows 10000000] [--files 32] [--rounds 9] [--native auto]

The benchmark measures ``addBatch``, the time to run one batch of all rows, of an availableNow query into a sink that does
nothing. The queries run alternately in one session. Delta runs as it comes, and tuned for a small machine. A case holds when ours
takes at most 0.95 of the better one's time. The last line holds when every case holds. The benchmark also prints the processor
time of the batch's tasks, which says more on a busy machine. The tasks of Delta's snapshots are not part of it. With ``--native
off`` Python reads. This is the reference for correctness, not for speed, so it has no goal.
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

from _alternating import OURS, Measure, alternately, deltas, spark_session, summary, through
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

    def of_largest_job(self) -> float:
        """Return the seconds of all stages of that new job which took most: a batch's own.

        Delta has jobs of its own beside it, and a watermark makes a batch without rows after it.
        """
        self._context.listenerBus().waitUntilEmpty()
        store, took = self._context.statusStore(), [0.0]
        while (job := self._next_job(store)) is not None:
            ids = [job.stageIds().apply(i) for i in range(job.stageIds().size())]
            took.append(sum(float(store.lastStageAttempt(i).executorCpuTime()) for i in ids) / 1e9)
        return max(took)

    def _next_job(self, store: Any) -> Any:
        try:
            job = store.job(self._job)
        except Py4JError:  # no job has that number yet
            return None
        self._job += 1
        return job


def main() -> None:
    """Build, run each case alternately, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=9)  # a count takes 0.2 s
    parser.add_argument("--native", choices=("auto", "on", "off"), default="auto")
    parser.add_argument("--case", choices=sorted(CASES), action="append", help="only this one (may be repeated)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        table = scratch / "table"
        build(table, arguments.rows, arguments.files)
        spark = spark_session(scratch)
        tasks = TaskTimes(spark)
        processor: dict[str, list[float]] = {}
        measures: list[Measure] = []
        goal = None if arguments.native == "off" else 0.95

        def add_batch(frame: Any, checkpoint: str, which: str) -> float:
            writer = frame.writeStream.format("noop").option("checkpointLocation", str(scratch / "checkpoints" / checkpoint))
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            processor.setdefault(which, []).append(tasks.of_largest_job())
            return float(sum(p["durationMs"].get("addBatch", 0) for p in query.recentProgress)) / 1000

        print(f"{arguments.rows} rows in {arguments.files} files, nativeScan={arguments.native}; seconds in addBatch")
        for number, (name, use) in enumerate(CASES.items()):
            if arguments.case and name not in arguments.case:
                continue

            def ours(turn: int, use: Callable[[Any], Any] = use, number: int = number) -> float:
                source = spark.readStream.format("strandline").option("nativeScan", arguments.native)
                return add_batch(use(source.load(str(table))), f"ours-{number}-{turn}", OURS)

            def delta(way: str, turn: int, use: Callable[[Any], Any] = use, number: int = number, name: str = name) -> float:
                frame = spark.readStream.format("delta").load(through(table, way))
                if name.startswith("groupBy"):
                    frame = frame.withWatermark("time", "0 seconds")
                return add_batch(use(frame), f"{way}-{number}-{turn}", way)

            processor.clear()
            took = alternately({OURS: ours, **deltas(spark, delta)}, arguments.rounds)
            spent = {which: statistics.median(each[1:]) for which, each in processor.items()}
            ratio = spent[OURS] / min((each for which, each in spent.items() if which != OURS), default=spent[OURS])
            print(f"{name}: processor seconds {', '.join(f'{w} {s:.3f}' for w, s in spent.items())}, ratio {ratio:.3f}")
            more = {"processor": {which: round(each, 3) for which, each in spent.items()}, "processor ratio": round(ratio, 3)}
            measures.append(Measure.beside(name, took, unit="s in addBatch", at_most=goal, more=more))
        spark.stop()
        summary("scan", measures)


if __name__ == "__main__":
    main()
