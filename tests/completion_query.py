"""The query that the kill test of our own operators kills: ``python completion_query.py FOLDER STORE``.

Rows wait in ``hold``, are deduplicated, summed by a processor at the times that it asks for, and end in a channel.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_strandline import Processor, configure, hold, process

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


def main(folder: Path, store: str, partitions: str) -> None:
    """Run until everything is read."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": partitions,
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        **STORES[store],
    }
    builder = SparkSession.builder.master(f"local[{partitions}]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = configure(builder, delta=False).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rows = spark.readStream.format("strandline").option("maxFilesPerTrigger", 1).load(str(folder / "in"))
    sums = process(hold(rows, by="k").dropDuplicates(["time", "k", "n"]), Sums(), key="k")
    writer = sums.writeStream.format("strandline").option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start(str(folder / "out")).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
