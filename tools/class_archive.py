"""Makes an archive of the JVM's classes that a small streaming query loads: ``class_archive.py FILE``.

A JVM that maps this archive (``-XX:SharedArchiveFile``) need not read and verify these classes. The tests start many JVMs. A JVM
with another class path, or of another version, ignores the archive.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_strandline import configure
from strandline.channel import Channel
from strandline.time.arrow import time_field
from strandline.time.domain import int64


def query(spark: Any, folder: Path) -> None:
    """Sum the rows of a channel by time into another channel."""
    channel = Channel.create(folder / "in", pa.schema([time_field("time", int64), ("n", pa.int64())]), producers=["a"], at=0)
    with channel.producer("a") as producer:
        producer.send(pa.table({"time": [1, 1, 2], "n": [1, 2, 3]}))
        producer.drop()
    rows = spark.readStream.format("strandline").load(str(folder / "in")).where(F.udf(lambda n: n > 0, "boolean")("n"))
    sums = rows.groupBy("time").agg(F.sum("n").alias("n"))
    writer = sums.writeStream.format("strandline").option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start(str(folder / "out")).awaitTermination()


def main(target: Path) -> None:
    """Write the archive, by way of another file, so that there is a whole one or none."""
    part = target.with_suffix(".part")
    os.environ["JDK_JAVA_OPTIONS"] = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} -XX:ArchiveClassesAtExit={part} -Xlog:disable"
    with tempfile.TemporaryDirectory() as scratch:
        settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.local.dir": f"{scratch}/local"}
        builder: Any = SparkSession.builder.master("local[2]").config(map=settings)
        spark = configure(builder.config("spark.sql.warehouse.dir", f"{scratch}/warehouse")).getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        query(spark, Path(scratch))
        spark.stop()
        gateway: Any = SparkContext._gateway
        gateway.proc.stdin.close()  # the JVM ends with its standard input, and writes the archive
        gateway.proc.wait()
    part.rename(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
