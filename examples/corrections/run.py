"""Counts departures by hour with a guessed delay that is too short, and corrects the hours afterwards, each exactly once.

The stream is ingested with ``bounded("60 minutes")`` for each airport, so flights that leave later than that are late for their
hour. They are set aside, and the hour's count is emitted without them, as in any engine. Here they are not lost: ``readmit`` adds
them to the channel at the time ``(their hour, correction 1)``, and the same query emits what they add to each hour.

Run it as ``python examples/corrections/run.py --days 3``; it checks its results against pandas over the whole file.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from flights.data import AIRPORTS, events, expected, load
from flights.session import session
from pyspark_strandline import ingest, readmit
from strandline.ingest import bounded, drop_partitions, status

__all__ = ["main", "run"]

_FILES_A_DAY = 4


def write_arrivals(flights: pd.DataFrame, folder: Path) -> int:
    """Write the flights that left, in the order in which they left, as files that a stream reads one by one. Return the rows."""
    departures = events(flights)
    departures = departures[~departures["cancelled"]]
    folder.mkdir(parents=True)
    groups = np.unique(departures["arrives"] // (24 * 60 // _FILES_A_DAY), return_inverse=True)[1]
    for i in range(int(groups.max()) + 1):
        mine = departures[groups == i]
        hour = pa.array(mine["hour"].to_numpy() * 60_000_000).cast(pa.timestamp("us", "UTC"))
        table = pa.table({"hour": hour, "airport": mine["airport"].astype(str).to_numpy(), "flight": mine["flight"].to_numpy()})
        pq.write_table(table, folder / f"{i:04d}.parquet")
    return len(departures)


def take_in(spark: SparkSession, arrivals: Path, channel: str, checkpoint: str) -> None:
    """Ingest the outside stream into a channel whose times are (hour, correction). Late rows are set aside."""
    frame = (
        spark.readStream.schema("hour timestamp, airport string, flight int")
        .option("maxFilesPerTrigger", "1")
        .option("latestFirst", "false")
        .parquet(str(arrivals))
    )
    writer = ingest(
        frame,
        channel,
        time="hour",
        partition="airport",
        partitions=AIRPORTS,
        policy=bounded("60 minutes"),
        corrections=True,
    )
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


def count(spark: SparkSession, channel: str, hours: str, checkpoint: str) -> None:
    """Count departures by hour and airport. Each group is emitted once, when its time is complete."""
    counts = spark.readStream.format("strandline").load(channel).groupBy("hour", "airport").agg(F.count("*").alias("flights"))
    writer = counts.writeStream.format("strandline").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start(hours).awaitTermination()


def results(spark: SparkSession, hours: str) -> DataFrame:
    """Return what was emitted: a row for each hour, airport and correction."""
    return spark.read.format("strandline").load(hours).select("hour.event", "hour.correction", "airport", "flights")


def wrong_hours(emitted: DataFrame, flights: pd.DataFrame) -> int:
    """Return how many hours differ from the count by pandas over the file, with all corrections so far added up."""
    right = expected(flights)["flights"]
    summed = emitted.groupBy("event", "airport").agg(F.sum("flights").alias("flights")).toPandas()
    minute = summed["event"].dt.tz_localize("UTC").astype("datetime64[us, UTC]").astype("int64") // 60_000_000
    found = pd.Series(
        summed["flights"].to_numpy(), index=pd.MultiIndex.from_arrays([minute, summed["airport"]], names=right.index.names)
    )
    both = pd.concat({"right": right, "found": found}, axis=1).fillna(0)
    return int((both["right"] != both["found"]).sum())


def run(days: int, folder: Path) -> dict[str, int]:
    """Run everything in ``folder``, and return the figures."""
    flights = load(days)
    rows = write_arrivals(flights, folder / "arrivals")
    spark = session("corrections")
    channel, hours = str(folder / "flights"), str(folder / "hours")
    take_in(spark, folder / "arrivals", channel, f"{folder}/checkpoints/flights")
    drop_partitions(channel, AIRPORTS)  # the file ends here: no more rows will arrive
    count(spark, channel, hours, f"{folder}/checkpoints/hours")
    late = status(channel).aside
    before = wrong_hours(results(spark, hours), flights)
    done = readmit(channel)
    again = readmit(channel)  # nothing is left
    count(spark, channel, hours, f"{folder}/checkpoints/hours")
    emitted = results(spark, hours)
    twice = emitted.groupBy("event", "correction", "airport").count().filter("count > 1").count()
    return {
        "rows": rows,
        "late": late,
        "hours": len(expected(flights)),
        "wrong_before": before,
        "readmitted": done.rows + again.rows,
        "corrected": emitted.filter("correction = 1").count(),
        "wrong_after": wrong_hours(emitted, flights),
        "twice": twice,
    }


def main() -> int:
    """Run the command line. Return 0 if every hour is right in the end, and none was corrected twice."""
    parser = argparse.ArgumentParser(prog="python examples/corrections/run.py", description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=3)
    days = parser.parse_args().days
    with tempfile.TemporaryDirectory() as scratch:
        found = run(days, Path(scratch))
    print(f"{found['rows']} departures of {days} days, ingested with bounded(60 minutes) for each airport")
    print(f"set aside as late: {found['late']}; hours with a wrong count: {found['wrong_before']} of {found['hours']}")
    print(f"readmitted: {found['readmitted']}, as correction 1 of {found['corrected']} hours; corrected twice: {found['twice']}")
    print(f"hours with a wrong count now: {found['wrong_after']}")
    return 0 if not found["wrong_after"] and not found["twice"] and found["readmitted"] == found["late"] else 1


if __name__ == "__main__":
    sys.exit(main())
