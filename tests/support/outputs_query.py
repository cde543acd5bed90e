"""A query with two outputs in a process of its own: ``python outputs_query.py FOLDER``. It reads a commit in each batch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_strandline import advance, configure, write_outputs

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
}


def later_and_sums(spark: Any, folder: Path) -> Any:
    """Start the query: each row ten later, and the sums of each time."""
    rows = spark.readStream.format("strandline").option("maxFilesPerTrigger", 1).load(str(folder / "in"))
    sums = rows.groupBy("time").agg(F.sum("n").alias("total"))
    outputs = {"later": (advance(rows.select("time", "n"), 10), str(folder / "later")), "sums": (sums, str(folder / "sums"))}
    writer = write_outputs(outputs).option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(availableNow=True).start()


def main(folder: Path) -> None:
    """Run it to its end, in a session of its own."""
    builder = SparkSession.builder.master("local[2]")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = configure(builder, delta=False).getOrCreate()
    later_and_sums(spark, folder).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
