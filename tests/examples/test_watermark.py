"""The comparison is fair: what Spark loses in it is what Spark, with its defaults, loses on a live stream of the same rows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from flights import model
from flights.data import events, load
from flights.watermark import write_feed
from helpers import settle

# Spark alone: what it does does not change with ours.
pytestmark = [pytest.mark.spark, pytest.mark.soak]


def test_spark_on_a_live_stream_drops_and_emits_what_the_model_says(spark: Any, tmp_path: Path) -> None:
    """Each file appears when everything before it is done; Spark runs its empty batches, and nothing is set otherwise."""
    arrivals = events(load(1))
    write_feed(tmp_path / "feed", arrivals)
    live = tmp_path / "live"
    live.mkdir()
    delay = 10
    hours = (
        spark.readStream.schema("airport string, scheduled timestamp, delay int")
        .parquet(str(live))
        .withWatermark("scheduled", f"{delay} minutes")
        .groupBy(F.window("scheduled", "1 hour"), "airport")
        .count()
    )
    query = hours.writeStream.format("memory").queryName("live").start()
    for file in sorted((tmp_path / "feed").iterdir()):
        shutil.copy2(file, live / f".{file.name}")  # Spark does not see it before it is whole
        (live / f".{file.name}").rename(live / file.name)
        settle(query)
    query.stop()
    exact = model.watermark(arrivals, delay)
    found = {(int(r["window"]["start"].timestamp()) // 60, r["airport"]): r["count"] for r in spark.table("live").collect()}
    assert found == exact.hours.loc[exact.hours["result"].notna(), "counted"].to_dict()
    assert exact.rows_lost > 0
