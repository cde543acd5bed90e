"""A stateful query on a cluster whose executors are lost: ``python executor_queries.py FOLDER STORE SEED LOSSES``.

It counts the rows of the channel ``FOLDER/in`` by time and key, a commit a batch. While a batch runs, an executor may be killed;
tasks run in speculative copies, and a partition goes to whichever executor is free. Prints ``RESULT`` and each batch's rows, as
JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_strandline import configure

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "3",
    "spark.executor.memory": "512m",
    "spark.locality.wait": "0s",
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.task.maxFailures": "8",
}


def executors() -> list[int]:
    """The processes of the executors of this cluster: children of the JVM."""
    jvm: Any = SparkContext._gateway
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == jvm.proc.pid and "CoarseGrainedExecutorBackend" in (entry / "cmdline").read_text():
                found.append(int(entry.name))
    return sorted(found)


def slowly(count: int) -> int:
    """So long is a task in the middle of what its state gives."""
    time.sleep(0.05)
    return count


def kill_one(pause: float, choice: random.Random) -> None:
    """Kill an executor of this cluster after a while."""
    while not (pids := executors()):
        time.sleep(0.05)
    threading.Timer(pause, os.kill, (choice.choice(pids), signal.SIGKILL)).start()


def main(folder: Path, store: str, seed: int, losses: float) -> None:
    """Run the query to the channel's end."""
    builder: Any = SparkSession.builder.master("local-cluster[2,1,1024]")
    for key, value in {**SETTINGS, "spark.sql.warehouse.dir": str(folder / "warehouse")}.items():
        builder = builder.config(key, value)
    spark = configure(builder, delta=False).getOrCreate()
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        f"org.apache.spark.sql.execution.streaming.state.{store}StateStoreProvider",
    )
    choice = random.Random(seed)
    given: dict[int, list[Any]] = {}

    def each(rows: Any, batch: int) -> None:
        if choice.random() < losses:
            kill_one(choice.random(), choice)
        given[batch] = sorted([row.time, row.key, row["count"]] for row in rows.collect())

    rows = spark.readStream.format("strandline").option("maxFilesPerTrigger", 1).load(str(folder / "in"))
    counts = rows.groupBy("time", "key").count().select("time", "key", F.udf(slowly, "long")("count").alias("count"))
    writer = counts.writeStream.foreachBatch(each).option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    print("RESULT " + json.dumps([given[batch] for batch in sorted(given)]))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
