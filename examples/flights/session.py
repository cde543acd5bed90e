"""The Spark session of the example: two cores, and settings for tiny batches."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pyspark_strandline import configure

__all__ = ["session"]

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "20000",
    "spark.sql.streaming.minBatchesToRetain": "1000000",  # the offsets of all batches show afterwards which batch emitted what
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # Short runs: the quick compiler and the collector without threads leave two cores for the work.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
}


def session(name: str, *, delta: bool = False) -> SparkSession:
    """A local session with strandline in it, and with Delta for Spark if it is asked for."""
    builder = SparkSession.builder.master("local[2]").appName(name)
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    spark = configure(builder, delta=delta).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
