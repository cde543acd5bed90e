"""The query that the tests of our own operators run in a process of its own: ``python completion_query.py FOLDER STORE CORES``.

Rows wait in ``hold``, are deduplicated, summed by a processor at the times that it asks for, given to a function when their time
is complete, and end in a channel.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_strandline import Processor, configure, hold, on_complete, process
from strandline import int64
from strandline.channel import Channel
from strandline.time.arrow import time_field

_STATE = "org.apache.spark.sql.execution.streaming.state"
STORES: dict[str, dict[str, str]] = {
    "hdfs": {},
    "rocksdb": {
        "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    },
}


class Sums(Processor):
    """Tells the sum of all that a key has had up to a time, when the time after it is closed."""

    schema = "n bigint"
    state_schema = "n bigint"

    def on_rows(self, time: Any, rows: pa.Table) -> None:
        self.state = {"n": (self.state or {"n": 0})["n"] + sum(rows.column("n").to_pylist())}
        self.notify_at(time + 1)

    def on_notify(self, time: Any) -> None:
        assert self.state is not None
        self.emit(time, [{"n": self.state["n"]}])


def fill(path: Path, seed: int, commits: int) -> list[tuple[int, str, int]]:
    """A channel of random rows, some twice, and the results that a query over it must give."""
    r = random.Random(seed)
    schema = pa.schema([time_field("time", int64), ("k", pa.string()), ("n", pa.int64())])
    channel = Channel.create(path, schema, producers=["p"], at=0)
    rows: set[tuple[int, str, int]] = set()
    with channel.producer("p") as producer:
        for at in range(commits):
            new = [(min(at + r.randrange(4), commits - 1), r.choice("abc"), r.randrange(1000)) for _ in range(r.randrange(1, 6))]
            rows |= set(new)
            times, keys, numbers = zip(*new, *new[:1], strict=True)
            producer.send(pa.table({"time": times, "k": keys, "n": numbers}))
            producer.delay([at + 1] if at + 1 < commits else [])
            producer.commit()
    # Each batch closes one time. A key is told, when the next one closes, of all that it has had up to that.
    return sorted({(t + 1, k, sum(n for u, j, n in rows if j == k and u <= t + 1)) for t, k, _ in rows})


def run(spark: Any, folder: Path) -> None:
    """Run the query until everything is read."""
    rows = spark.readStream.format("strandline").option("maxFilesPerTrigger", 1).load(str(folder / "in"))
    sums = process(hold(rows, by="k").dropDuplicates(["time", "k", "n"]), Sums(), key="k")
    told = on_complete(sums, lambda time, key, rows: rows, sums.schema, key="k")
    writer = told.writeStream.format("strandline").option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start(str(folder / "out")).awaitTermination()


def main(folder: Path, store: str, cores: str) -> None:
    """Run it in a session of so many cores."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": cores,
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
        **STORES[store],
    }
    builder = SparkSession.builder.master(f"local[{cores}]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = configure(builder, delta=False).getOrCreate()
    run(spark, folder)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
