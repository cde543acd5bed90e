"""Plain Delta tables as channels: the page's code, and a first snapshot that arrives piece by piece, with a restart in it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pyspark_strandline import ingest
from strandline.channel import Channel
from strandline.ingest import ordered

pytestmark = [pytest.mark.spark, pytest.mark.drawn("processes")]

HOUR = 3_600_000_000


def test_the_page_prints_what_it_says(run_page: Callable[..., tuple[str, str]]) -> None:
    printed, said = run_page("delta")
    assert printed == said


def append(path: Path, *hours: int) -> None:
    """One commit of one file."""
    times = pa.array([h * HOUR for h in hours], pa.int64()).cast(pa.timestamp("us", "UTC"))
    write_deltalake(str(path), pa.table({"time": times, "hour": list(hours)}), mode="append")


@pytest.mark.parametrize("offset_log", [pytest.param("1", marks=pytest.mark.soak), "2"])
def test_no_row_of_the_first_snapshot_is_late_in_whatever_order_its_files_are_read(
    spark: Any, tmp_path: Path, offset_log: str
) -> None:
    """delta-io/delta#2748: in file order and by a watermark, most of a table is late."""
    spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", offset_log)
    hours = random.Random(1).sample(range(12), 12)
    for hour in hours:
        append(tmp_path / "table", hour)

    def start() -> Any:
        rows = spark.readStream.format("delta").option("maxFilesPerTrigger", 2).load(str(tmp_path / "table"))
        writer = ingest(rows, str(tmp_path / "channel"), time="time", policy=ordered())
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint"))

    # Interrupted after its first batches, the snapshot goes on with nothing promised.
    query = start().start()
    while not (query.lastProgress and query.lastProgress["batchId"] >= 1):
        assert not query.awaitTermination(0.05)
    query.stop()
    channel = Channel.open(tmp_path / "channel")
    taken = channel.read().num_rows
    assert taken < 12, "the query was meant to be stopped within the snapshot"
    assert channel.frontier.less_equal(channel.domain.minimum)

    start().trigger(availableNow=True).start().awaitTermination()
    channel.refresh()
    assert sorted(channel.read()["hour"].to_pylist()) == list(range(12))
    assert channel.frontier.to_json() == [11 * HOUR]

    append(tmp_path / "table", 10, 13)
    start().trigger(availableNow=True).start().awaitTermination()
    channel.refresh()
    assert sorted(channel.read()["hour"].to_pylist()) == [*range(12), 13]
    assert DeltaTable(str(tmp_path / "channel_late")).to_pyarrow_table()["hour"].to_pylist() == [10]
