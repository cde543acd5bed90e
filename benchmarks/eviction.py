"""The cost of removing closed groups from the state: ours compared with Spark's, at a million open groups.

    python benchmarks/eviction.py [--operators aggregation within session join interval] [--groups 1000000]
                                  [--stores hdfs] [--closings 8] [--conf KEY=VALUE ...]

These defaults take less than ten minutes on two cores. The large run has both stores, and five million groups too. It takes more
than an hour:

    python benchmarks/eviction.py --groups 1000000 5000000 --stores hdfs rocksdb --closings 24

A hundred times are open, each with the same number of groups. First, every batch brings 16 rows and closes one time, which is
1 % of the groups. Then every batch brings 16 rows and closes nothing. So each task has written before it removes: the first write
creates a file, which takes about 10 ms if Hadoop starts a process to set the permissions of a local file. Both queries read the
same table, ours with its frontier, the other with a watermark. Delta is tuned for a small machine: it is the other's source only,
and the removal is Spark's.

The benchmark compares `allRemovalsTimeMs` of the batches that remove groups. It also prints this time for batches that close
nothing, in which all of it is search, and the duration of these batches. Spark's time includes the work of its consumer on the
removed groups. Our time does not. A case's goal holds when ours takes at most a tenth, or 0.15 in RocksDB. `beyond looking` is
the additional time of Spark's own removal when something closes, as a part of its whole removal time: the store itself needs it
for the keys that leave. `join` is on equal times, and `interval` is on a distance of times, against a side without rows. Every
row has its own key.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from _alternating import OURS, TUNED, Measure, spark_session, summary, with_settings
from strandline.channel import Channel
from strandline.time.arrow import time_field
from strandline.time.domain import timestamp

STORES = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
TIMES, SECOND, ROWS = 100, 1_000_000, 16
WARM_UP_CLOSINGS = 4
GOALS = {"hdfs": 0.1, "rocksdb": 0.15}


@dataclass(frozen=True)
class Operator:
    """An operator on rows; the watermark's distance behind them; how long after its time a row is kept (both in seconds)."""

    apply: Callable[[Any], Any]
    delay: int
    kept: int = 0


def identified(frame: Any) -> Any:
    """Return the rows with a column that is different for each group."""
    return frame.withColumn("id", F.col("key") * 1000 + F.unix_seconds("time"))


def none_of(frame: Any) -> Any:
    """Return no row of the frame.

    The condition also uses the time, so Spark does not push it below the watermark, and the watermark advances.
    """
    return frame.where("key + unix_seconds(time) < 0")


OPERATORS = {
    "aggregation": Operator(lambda frame: frame.groupBy("time", "key").count(), TIMES),
    "within": Operator(lambda frame: identified(frame).dropDuplicatesWithinWatermark(["id"]), 2 * TIMES, kept=2 * TIMES),
    "session": Operator(
        lambda frame: identified(frame).groupBy(F.session_window("time", f"{2 * TIMES} seconds"), "id").count(),
        2 * TIMES,
        kept=2 * TIMES,
    ),
    "join": Operator(lambda frame: frame.join(none_of(frame), ["time", "key"]), TIMES),
    "interval": Operator(
        lambda frame: (
            identified(frame)
            .alias("l")
            .join(
                identified(none_of(frame)).alias("r"),
                F.expr(f"l.id = r.id AND r.time BETWEEN l.time AND l.time + INTERVAL {2 * TIMES} SECONDS"),
            )
            .select("l.id")
        ),
        2 * TIMES,
        kept=2 * TIMES,
    ),
}


def fill(path: Path, groups: int, closings: int, operator: Operator) -> None:
    """Write the open groups in one commit, then the commits that close some, then those that close none."""
    schema = pa.schema([time_field("time", timestamp), ("key", pa.int64())])
    channel = Channel.create(path, schema, producers=["p"], at=0)
    keys = np.arange(groups // TIMES)

    def rows(at: np.ndarray, key: np.ndarray) -> pa.Table:
        return pa.table({"time": pa.array(at * SECOND, pa.int64()).cast(pa.timestamp("us", tz="UTC")), "key": key})

    with channel.producer("p") as producer:
        for time in range(TIMES):
            producer.send(rows(np.full(len(keys), time), keys))
        producer.commit()
        for n in range(1, 2 * closings + 1):
            frontier = operator.kept + min(n, closings)  # the watermark must be there after the same row
            producer.send(rows(np.full(ROWS, frontier + operator.delay), n * ROWS + np.arange(ROWS)))
            if n <= closings:
                producer.delay([frontier * SECOND])
            producer.commit()


def run(spark: Any, path: Path, source: str, checkpoint: Path, operator: Operator) -> list[dict[str, Any]]:
    """Return each batch's progress after the first, which fills the state."""
    frame = spark.readStream.format(source).option("maxFilesPerTrigger", 1).load(str(path))
    if source == "delta" or operator is OPERATORS["within"]:  # for ours it only sets the delay
        frame = frame.withWatermark("time", f"{operator.delay} seconds")
    query = (
        operator.apply(frame)
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [p for p in query.recentProgress if p["stateOperators"]][1:]


def removing(batches: list[dict[str, Any]]) -> float:
    """Return the median time that all tasks together spent on removal, in milliseconds."""
    return statistics.median(p["stateOperators"][0]["allRemovalsTimeMs"] for p in batches)


def native(batches: list[dict[str, Any]]) -> float:
    """Return the median time that RocksDB itself spent on reading and writing keys, in milliseconds of all tasks.

    This is 0 for another store.
    """
    metrics = [p["stateOperators"][0]["customMetrics"] for p in batches]
    return statistics.median(m.get("rocksdbGetLatency", 0) + m.get("rocksdbPutLatency", 0) for m in metrics)


def told(what: str, batches: list[dict[str, Any]]) -> str:
    """Describe the median times of removal, of RocksDB's own work and of the whole trigger."""
    whole = statistics.median(p["durationMs"]["triggerExecution"] for p in batches)
    took = f"removal {removing(batches):.0f} ms, RocksDB's gets and puts {native(batches):.0f} ms, trigger {whole:.0f} ms"
    return f"{len(batches)} batches that {what}: {took}"


def compare(spark: Any, scratch: Path, name: str, groups: int, store: str, closings: int) -> tuple[dict[str, float], float]:
    """Return the removal times of both, in milliseconds of two tasks: medians over the batches that close something.

    Also return Spark's removal time for the batches that close nothing.
    """
    operator, path = OPERATORS[name], scratch / f"in-{name}-{groups}"
    if not path.exists():
        fill(path, groups, closings, operator)
    removal, looking = {}, 0.0
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STORES[store])
    for source in ("delta", "strandline"):
        batches = run(spark, path, source, scratch / f"{name}-{source}-{store}-{groups}", operator)
        closing = [p for p in batches if p["stateOperators"][0]["numRowsRemoved"]]
        other = [p for p in batches if not p["stateOperators"][0]["numRowsRemoved"]]
        removal[source] = removing(closing)
        looking = removing(other) if source == "delta" else looking
        print(f"{name}, {groups} groups, {store}, {source}: {told('close', closing)}; {told('do not', other)}", flush=True)
    return removal, looking


def main() -> None:
    """Fill, run each operator, store and size, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", nargs="+", choices=OPERATORS, default=list(OPERATORS))
    parser.add_argument("--groups", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--stores", nargs="+", choices=STORES, default=["hdfs"])
    parser.add_argument("--closings", type=int, default=8)
    parser.add_argument("--conf", nargs="+", default=[], metavar="KEY=VALUE", help="settings of the session, for both queries")
    arguments = parser.parse_args()
    measures: list[Measure] = []
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        spark = spark_session(scratch)
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
        for setting in arguments.conf:
            spark.conf.set(*setting.split("=", 1))
        with with_settings(spark, TUNED):
            print("first with 100000 groups, so that no code is compiled while it is measured", flush=True)
            for name, store in itertools.product(arguments.operators, arguments.stores):
                compare(spark, scratch / "warm-up", name, TIMES * 1000, store, min(arguments.closings, WARM_UP_CLOSINGS))
            print("measured", flush=True)
            for groups, name, store in itertools.product(arguments.groups, arguments.operators, arguments.stores):
                removal, looking = compare(spark, scratch / "measured", name, groups, store, arguments.closings)
                took = {OURS: [max(removal["strandline"], 1)], "Spark": [removal["delta"]]}
                more = {"beyond looking": round(1 - looking / removal["delta"], 3)}
                case = f"{name}, {groups} groups, {store}"
                measures.append(Measure.beside(case, took, unit="ms of two tasks", at_most=GOALS[store], more=more))
        spark.stop()
    summary("eviction", measures)


if __name__ == "__main__":
    main()
