"""The pipeline: Kafka, a channel, and the sums of each minute when it is complete. All of it is in an object store."""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_strandline import configure, ingest, storage_options
from pyspark_strandline.report import ProgressReports, serve_prometheus
from strandline.ingest import bounded, idle

PACKAGES = ["org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", "org.apache.hadoop:hadoop-aws:3.5.0"]


def session() -> SparkSession:
    """Return a session that reaches Kafka and the store. ``JARS`` names jars that are here already, with commas."""
    jars = os.environ.get("JARS")
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.hadoop.fs.s3a.endpoint", os.environ.get("S3_ENDPOINT", "http://localhost:9000"))
        .config("spark.hadoop.fs.s3a.endpoint.region", "us-east-1")
        .config("spark.hadoop.fs.s3a.path.style.access", "true")
        .config("spark.hadoop.fs.s3a.access.key", os.environ.get("AWS_ACCESS_KEY_ID", ""))
        .config("spark.hadoop.fs.s3a.secret.key", os.environ.get("AWS_SECRET_ACCESS_KEY", ""))
    )
    if jars:
        builder = builder.config("spark.jars", jars)
    return configure(builder, () if jars else PACKAGES).getOrCreate()


def readings(spark: SparkSession) -> DataFrame:
    """Return the topic as a stream."""
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", os.environ.get("KAFKA", "localhost:9092"))
        .option("subscribe", "readings")
        .option("startingOffsets", "earliest")
        .load()
    )
    reading = F.from_json(F.col("value").cast("string"), "time timestamp, device string, n long")
    return messages.select(reading.alias("reading")).select("reading.*")


def start(spark: SparkSession, lake: str, **trigger: Any) -> None:
    """Start both queries. With ``availableNow`` they end one after the other, otherwise they run until one of them fails."""
    storage = storage_options(spark, f"{lake}/readings")
    # A device that is silent for a minute is not waited for, until it is back. Its rows are late then, and not lost.
    policy = idle(bounded("10 seconds"), "1 minute", counts="wall")
    writer = ingest(
        readings(spark), f"{lake}/readings", time="time", partition="device", policy=policy, heartbeat=True, storage=storage
    )
    first = writer.option("checkpointLocation", f"{lake}/checkpoints/readings").trigger(**trigger).queryName("readings").start()
    while not first.recentProgress and not first.awaitTermination(1):
        pass  # its first batch makes the channel
    if "availableNow" in trigger:
        first.awaitTermination()
    rows = spark.readStream.format("strandline").options(**storage).load(f"{lake}/readings")
    minutes = rows.groupBy(F.window("time", "1 minute"), "device").agg(F.sum("n").alias("n"), F.count("*").alias("rows"))
    second = (
        minutes.select(F.col("window.start").alias("time"), "device", "n", "rows")
        .writeStream.format("strandline")
        .options(**storage)
        .option("checkpointLocation", f"{lake}/checkpoints/minutes")
        .trigger(**trigger)
        .queryName("minutes")
        .start(f"{lake}/minutes")
    )
    if "availableNow" in trigger:
        second.awaitTermination()
    else:
        spark.streams.awaitAnyTermination()


def main() -> None:
    """Run the pipeline, fetch its jars (``--fetch``), or take in what there is (``--once``)."""
    spark = session()
    if "--fetch" in sys.argv:
        return  # the session has fetched its jars
    reports = ProgressReports(spark).start()
    serve_prometheus(
        reports, port=int(os.environ.get("METRICS_PORT", "9464")), address=os.environ.get("METRICS_ADDRESS", "127.0.0.1")
    )
    lake = os.environ.get("LAKE", "s3a://lake")
    if "--once" in sys.argv:
        start(spark, lake, availableNow=True)
    else:
        start(spark, lake, processingTime="5 seconds")


if __name__ == "__main__":
    main()
