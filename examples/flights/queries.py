"""The Spark process: one query counts flights by hour and airport, a second one rolls its output up by day.

Started as ``python -m flights.queries``; it ends when the second query's channel is complete. Killed at any moment and started
again, both go on from their checkpoints, and no result is written twice.
"""

from __future__ import annotations

import argparse
import os
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from flights.session import session
from strandline.channel import Channel

__all__ = ["by_day", "by_hour", "main"]


def by_hour(flights: DataFrame) -> DataFrame:
    """Flights and their delay by hour and airport. The group's time is the row's own, so it closes when the manifests say so."""
    return flights.groupBy("time", "airport").agg(
        F.count("*").alias("flights"), F.avg("delay").alias("delay"), F.sum("delay").alias("minutes")
    )


def by_day(hours: DataFrame) -> DataFrame:
    """The same by day and airport, from the hours' results. Days are New York's, which begin at 05:00 UTC."""
    day = F.window(F.col("time.hour"), "1 day", "1 day", "5 hours")
    totals = hours.groupBy(day, "airport").agg(F.sum("flights").alias("flights"), F.sum("minutes").alias("minutes"))
    delay = (F.col("minutes") / F.col("flights")).alias("delay")
    return totals.select(F.col("window.start").alias("time"), "airport", "flights", delay, "minutes")


def run(spark: SparkSession, flights: str, hourly: str, daily: str, checkpoints: str) -> None:
    """Run both queries until everything is closed."""
    read = spark.readStream.format("strandline")
    first = (
        by_hour(read.load(flights))
        .writeStream.format("strandline")
        .queryName("hourly")
        .option("checkpointLocation", f"{checkpoints}/hourly")
        .start(hourly)
    )
    while not Channel.exists(hourly):  # the first query makes it with its first batch
        if first.exception() is not None:
            first.awaitTermination()
        time.sleep(0.02)
    second = (
        by_day(read.load(hourly))
        .writeStream.format("strandline")
        .queryName("daily")
        .option("checkpointLocation", f"{checkpoints}/daily")
        .trigger(processingTime="4 seconds")  # what it gives is the same, however often it looks
        .start(daily)
    )
    result: Channel | None = None
    parent = os.getppid()
    while os.getppid() == parent and (result is None or len(result.frontier)):
        for query in (first, second):
            if not query.isActive:
                query.awaitTermination()  # raises what it died of
        time.sleep(0.1)
        if result is None and Channel.exists(daily):
            result = Channel.open(daily)
        if result is not None:
            result.refresh()
    for query in (first, second):
        query.stop()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m flights.queries", description=__doc__.splitlines()[0])
    for name in ("flights", "hourly", "daily", "checkpoints"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    spark = session("flights")
    run(spark, args.flights, args.hourly, args.daily, args.checkpoints)
    spark.stop()


if __name__ == "__main__":
    main()
