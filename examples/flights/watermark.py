"""The same rows through Spark's own ``withWatermark``, at several guessed delays, fed live: a model hour a batch.

Started as ``python -m flights.watermark``. The rows of a model hour are one Parquet file, and ``maxFilesPerTrigger`` makes it one
batch. With fewer, larger batches Spark loses fewer rows, because its watermark only moves between batches.

A watermark that is ``d`` minutes behind the newest time judges a row exactly as a watermark without a delay judges the same row
moved ``d`` minutes later. So one query represents all delays: it has each row once for every delay, moved by it. Spark's work for
a batch, mostly planning, is done only once. The windows are moved too, and moved back in the results.

On a live stream Spark runs an empty batch after each batch that moved the watermark. The empty batch emits what the watermark
closed, and only then the new watermark decides which rows are late. When the next file is already waiting, Spark leaves the empty
batch out, and lateness lags a batch behind. With ``statefulOperator.allowMultiple=false`` the newest watermark counts at once, so
the next batch drops and emits what the empty batch and then the next one would: the same results with half the batches.
``tests/examples`` compares the model with plain ``withWatermark`` queries and Spark's defaults, in which each file only appears
when all batches before it are done.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from flights.data import HOUR
from flights.model import Outcome
from flights.session import session

__all__ = ["BATCHES", "RESULTS", "batches_done", "main", "outcome", "write_feed"]

RESULTS, BATCHES = "results.parquet", "batches.json"

_SCHEMA = "airport string, scheduled timestamp, delay int"
_MICROSECONDS = 60_000_000


def write_feed(folder: Path, arrivals: pd.DataFrame) -> list[int]:
    """Write the rows of each model hour as one file, oldest first by modification time. Return the step of each file."""
    folder.mkdir(parents=True, exist_ok=True)
    steps: list[int] = []
    for step, rows in arrivals[~arrivals["cancelled"]].groupby("step"):
        scheduled = pa.array(rows["scheduled"].to_numpy() * _MICROSECONDS).cast(pa.timestamp("us", tz="UTC"))
        table = pa.table({"airport": pa.array(rows["airport"]), "scheduled": scheduled, "delay": rows["delay"].astype("int32")})
        path = folder / f"{len(steps):05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (int(step), int(step)))  # Spark's file source takes the oldest file first
        steps.append(int(step))
    return steps


_SETTINGS = {
    "spark.sql.streaming.statefulOperator.allowMultiple": "false",  # see above
    # The watermark is a literal in the plan, so that each batch would generate and compile its code anew.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def start(spark: SparkSession, feed: Path, checkpoints: Path, delays: Sequence[int]) -> StreamingQuery:
    """One query with watermarks ``delays`` minutes behind."""
    flights = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(feed))
    rows = (
        flights.withColumn("guess", F.explode(F.array(*map(F.lit, delays))))
        .withColumn("scheduled", F.expr("scheduled + make_dt_interval(0, 0, guess)"))
        # The newest time is moved by the longest delay, so this is the newest time as it was.
        .withWatermark("scheduled", f"{max(delays)} minutes")
    )
    parts = [
        rows.where(F.col("guess") % 60 == past).withColumn("window", F.window("scheduled", "1 hour", startTime=f"{past} minutes"))
        for past in sorted({delay % 60 for delay in delays})
    ]
    hours = (
        functools.reduce(DataFrame.union, parts)
        .groupBy("window", "guess", "airport")
        .agg(F.count("*").alias("flights"), F.avg("delay").alias("delay"))
        .select("guess", F.expr("window.start - make_dt_interval(0, 0, guess)").alias("hour"), "airport", "flights", "delay")
    )
    return (
        hours.writeStream.format("memory")
        .queryName("watermarks")
        .option("checkpointLocation", str(checkpoints))
        .trigger(availableNow=True)
        .start()
    )


def batches_done(checkpoints: Path) -> int:
    """How many batches the query has committed: its checkpoint says."""
    try:
        return max((int(name) + 1 for name in os.listdir(checkpoints / "commits") if name.isdigit()), default=0)
    except FileNotFoundError:
        return 0


def collect(spark: SparkSession, query: StreamingQuery) -> tuple[pa.Table, list[dict[str, Any]]]:
    """A finished query's results, each with the batch that gave it, and a line for each batch."""
    lines: list[dict[str, Any]] = [
        {
            "batch": progress.batchId,
            "rows": progress.numInputRows,
            "results": progress.sink.numOutputRows,
            "dropped": sum(s.numRowsDroppedByWatermark for s in progress.stateOperators),
            "watermark": progress.eventTime.get("watermark"),
        }
        for progress in query.recentProgress
    ]
    results = spark.table(query.name).toArrow()
    # The memory sink keeps the batches' rows in the order of the batches.
    batch = np.repeat([line["batch"] for line in lines], [line["results"] for line in lines])
    return results.append_column("batch", pa.array(batch, pa.int64())), lines


def outcome(arrivals: pd.DataFrame, steps: list[int], results: pd.DataFrame, lines: list[dict[str, Any]], delay: int) -> Outcome:
    """What a run gave at ``delay``, in the terms of :mod:`flights.model`. ``told`` and ``steps`` are what it was fed."""
    results = results[results["guess"] == delay]
    left = arrivals[~arrivals["cancelled"]]
    hours = left.groupby(["hour", "airport"]).agg(flights=("arrives", "size"), last=("arrives", "max")).sort_index()
    hour = results["hour"].dt.tz_localize(None).to_numpy().astype("datetime64[m]").astype(np.int64)
    given = results.set_index(pd.MultiIndex.from_arrays([hour, results["airport"]], names=hours.index.names))
    if not given.index.is_unique or not given.index.isin(hours.index).all():
        raise ValueError("Spark emitted an hour twice, or one that has no departure")
    batch = given["batch"].reindex(hours.index)
    ends = (np.asarray(steps, dtype=np.float64) + 1) * HOUR
    # Batch b emits what the watermark after batch b - 1 closed.
    came = batch.notna().to_numpy()
    result = np.full(len(hours), np.nan)
    result[came] = ends[batch[came].to_numpy(dtype=np.int64) - 1]
    hours["counted"] = given["flights"].reindex(hours.index, fill_value=0)
    hours["result"] = result
    hours["batches"] = batch.to_numpy() - np.searchsorted(steps, (hours["last"] // HOUR).to_numpy())
    moves = pd.DataFrame(
        [(ends[line["batch"] - 1], line["watermark"]) for line in lines if line["batch"] > 0], columns=["minute", "watermark"]
    )
    moves["watermark"] = (
        pd.to_datetime(moves["watermark"], utc=True).dt.tz_localize(None).to_numpy().astype("datetime64[m]").astype(np.int64)
    )
    moves["watermark"] -= delay
    final = moves["watermark"].max()
    # An hour that the watermark has passed and that did not come lost all its rows; one that it has not is still to come.
    short = (hours["flights"] - hours["counted"]).where(came | (hours.index.get_level_values("hour") + HOUR <= final), 0)
    lost = short[short > 0].rename("rows").reset_index()
    return Outcome(hours, lost.loc[lost.index.repeat(lost["rows"])], moves)


def main() -> None:
    """The command line: run every delay at once, and leave ``results.parquet`` and ``batches.json`` in ``--out``."""
    parser = argparse.ArgumentParser(prog="python -m flights.watermark", description=__doc__.splitlines()[0])
    for name in ("feed", "checkpoints", "out"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    parser.add_argument("--delays", required=True, type=int, nargs="+")
    args = parser.parse_args()
    spark = session("withWatermark")
    for key, value in _SETTINGS.items():
        spark.conf.set(key, value)
    query = start(spark, args.feed, args.checkpoints, args.delays)
    query.awaitTermination()
    results, lines = collect(spark, query)
    args.out.mkdir(parents=True, exist_ok=True)
    pq.write_table(results, args.out / RESULTS)
    (args.out / BATCHES).write_text(json.dumps(lines))
    spark.stop()


if __name__ == "__main__":
    main()
