"""The query that the kill tests kill: a Kafka topic of readings into a channel, by sink options, until it is killed.

``python ingest_query.py FOLDER BOOTSTRAP TOPIC POLICY``, in a process group of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from broker import spark_jars
from pyspark_strandline import configure

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.minBatchesToRetain": "1000000",  # the offsets say afterwards which batch took which rows
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
}


def main(folder: Path, bootstrap: str, topic: str, policy: str) -> None:
    """Start the query and wait for its end, which comes from outside."""
    builder = SparkSession.builder.master("local[2]").config("spark.jars", spark_jars())
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = configure(builder, delta=False).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "500")
        .load()
    )
    reading = F.from_json(F.col("value").cast("string"), "time timestamp, id long")
    readings = messages.withColumn("reading", reading).select("topic", "partition", "reading.*")
    query = (
        readings.writeStream.format("strandline")
        .option("policy", policy)
        .option("time", "time")
        .option("partition", "topic, partition")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start(str(folder / "channel"))
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
