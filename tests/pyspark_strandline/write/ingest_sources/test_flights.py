"""The flights of 2013 as an outside stream of three partitions: a file lands each model hour, rows in order of departure."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from flights.data import events, expected, load
from helpers import run, stream
from pyspark_strandline import ingest
from strandline.channel import Channel, Log
from strandline.ingest import bounded, manifest

pytestmark = [pytest.mark.spark, pytest.mark.drawn("processes")]

SCHEMA = "id long, airport string, scheduled timestamp, hour timestamp, cancelled boolean"


def timestamps(minutes: Any) -> pa.Array:
    return pa.array(np.asarray(minutes, dtype=np.int64) * 60_000_000).cast(pa.timestamp("us", "UTC"))


def land(told: pd.DataFrame, folder: Path) -> None:
    """One file for each model hour, in their order by modification time."""
    folder.mkdir()
    for at, (step, rows) in enumerate(told.groupby("step", sort=True)):
        columns = {name: pa.array(rows[name].to_numpy()) for name in ("id", "airport", "cancelled")}
        table = pa.table({**columns, "scheduled": timestamps(rows["scheduled"]), "hour": timestamps(rows["hour"])})
        file = folder / f"{step}.parquet"
        pq.write_table(table, file)
        os.utime(file, (1_700_000_000 + at,) * 2)


def hour_by_hour(spark: Any, folder: Path) -> Any:
    """The files as a stream, a model hour a batch."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def take_in(writer: Any, checkpoint: Path) -> None:
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


def late_by_pandas(told: pd.DataFrame, delay: int) -> set[int]:
    """The flights of which their airport had promised otherwise: over ``delay`` behind its greatest of earlier model hours."""
    late: set[int] = set()
    for _, rows in told[~told["cancelled"]].groupby("airport"):
        newest = rows.groupby("step")["scheduled"].max().cummax()
        before = rows["step"].map(newest.shift()).to_numpy()
        late |= set(rows.loc[rows["scheduled"].to_numpy() < before - delay, "id"].tolist())
    return late


def check_bounded(spark: Any, tmp_path: Path, days: int) -> None:
    told = events(load(days))
    land(told, tmp_path / "landing")
    left = hour_by_hour(spark, tmp_path / "landing").where("NOT cancelled")
    writer = ingest(left, str(tmp_path / "flights"), time="scheduled", partition="airport", policy=bounded("60 minutes"))
    take_in(writer, tmp_path / "checkpoint")
    late = late_by_pandas(told, 60)
    assert late, "no flight was late: the days show nothing"
    aside = DeltaTable(str(tmp_path / "flights_late")).to_pyarrow_table()
    assert sorted(aside["id"].to_pylist()) == sorted(late)
    assert aside["_partition"].to_pylist() == aside["airport"].to_pylist()
    kept = Channel.open(tmp_path / "flights").read()["id"].to_pylist()
    assert sorted(kept) == sorted(set(told.loc[~told["cancelled"], "id"]) - late)


def least_open(told: pd.DataFrame) -> list[int | None]:
    """After each model hour, the least scheduled hour of which an airport has still something to tell; ``None``: of none."""
    last = told.groupby(["hour", "airport"])["step"].max()  # the model hour in which the last news of it comes
    hours = last.index.get_level_values("hour").to_numpy()
    return [hours[last.to_numpy() > step].min(initial=1 << 40) for step in sorted(told["step"].unique())]


def check_manifest(spark: Any, tmp_path: Path, days: int) -> None:
    flights = load(days)
    told = events(flights)
    land(told, tmp_path / "landing")
    schedule = flights.groupby(["airport", "hour"]).size().reset_index(name="expected")
    columns = {"airport": schedule["airport"].to_list(), "hour": timestamps(schedule["hour"]), "expected": schedule["expected"]}
    write_deltalake(str(tmp_path / "schedule"), pa.table(columns))
    policy = manifest(str(tmp_path / "schedule"), cancelled="cancelled")
    rows = hour_by_hour(spark, tmp_path / "landing")
    take_in(ingest(rows, str(tmp_path / "flights"), time="hour", partition="airport", policy=policy), tmp_path / "checkpoint")

    assert DeltaTable(str(tmp_path / "flights_late")).to_pyarrow_table().num_rows == 0
    # After every batch the frontier is where the schedule and the news say, no earlier and no later.
    channel = Channel.open(tmp_path / "flights")
    batches = {b: v for v in range(channel.version + 1) for b in Log(tmp_path / "flights").require(v).transactions.values()}
    frontiers = [channel.frontier_at(version).to_json() for _, version in sorted(batches.items())]
    assert frontiers == [[h * 60_000_000] if h < 1 << 40 else [] for h in least_open(told)]
    # And what closes by it is complete: every hour of every airport comes out once, as pandas counts it.
    counts = stream(spark, tmp_path / "flights").groupBy("hour", "airport").count()
    run(counts, tmp_path / "hours", tmp_path / "hours-checkpoint")
    out = Channel.open(tmp_path / "hours").read()
    minutes = out["hour"].cast(pa.int64()).to_numpy() // 60_000_000
    found = sorted(zip(minutes.tolist(), out["airport"].to_pylist(), out["count"].to_pylist(), strict=True))
    assert found == [(hour, airport, n) for (hour, airport), n in expected(flights)["flights"].items()]


def test_by_the_schedule_no_row_is_late_and_every_hour_is_complete(spark: Any, tmp_path: Path) -> None:
    check_manifest(spark, tmp_path, days=2)


@pytest.mark.soak
def test_the_whole_year_by_the_schedule(spark: Any, tmp_path: Path) -> None:
    check_manifest(spark, tmp_path, days=365)


@pytest.mark.soak
def test_the_whole_year_an_hour_behind(spark: Any, tmp_path: Path) -> None:
    check_bounded(spark, tmp_path, days=365)


def test_the_rows_set_aside_are_those_that_pandas_says(spark: Any, tmp_path: Path) -> None:
    check_bounded(spark, tmp_path, days=2)
