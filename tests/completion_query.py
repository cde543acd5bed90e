"""The query that the tests of our own operators run in a process of its own: ``python completion_query.py FOLDER STORE CORES``.

Rows wait in ``hold``, are deduplicated, summed by a processor at the times that it asks for, given to a function when their time
is complete, and end in a channel. Instead of a number of cores, ``connect`` runs it through Spark Connect.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_strandline import Processor, configure, hold, on_complete, process

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


def main(folder: Path, store: str, cores: str) -> None:
    """Run until everything is read."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2" if cores == "connect" else cores,
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        **STORES[store],
    }
    local = SparkSession.builder
    builder: Any = local.remote("local[2]") if cores == "connect" else local.master(f"local[{cores}]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = configure(builder, delta=False).getOrCreate()
    rows = spark.readStream.format("strandline").option("maxFilesPerTrigger", 1).load(str(folder / "in"))
    sums = process(hold(rows, by="k").dropDuplicates(["time", "k", "n"]), Sums(), key="k")
    told = on_complete(sums, lambda time, key, rows: rows, sums.schema, key="k")
    writer = told.writeStream.format("strandline").option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start(str(folder / "out")).awaitTermination()
    print("ended", type(spark).__module__, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
