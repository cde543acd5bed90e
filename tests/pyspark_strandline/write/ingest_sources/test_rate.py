"""The rate sources as channels: the page's code, and Spark's clock-driven source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_strandline import ingest
from strandline.channel import Channel
from strandline.ingest import ordered

pytestmark = pytest.mark.spark


@pytest.mark.drawn("pages")
def test_the_page_prints_what_it_says(run_page: Callable[..., tuple[str, str]]) -> None:
    printed, said = run_page("rate")
    assert printed == said


@pytest.mark.drawn
def test_rows_by_the_clock_are_never_late(spark: Any, tmp_path: Path) -> None:
    ticks = spark.readStream.format("rate").option("rowsPerSecond", 200).option("numPartitions", 3).load()
    writer = ingest(ticks, str(tmp_path / "ticks"), time="timestamp", policy=ordered(), on_late="fail")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    while not (Channel.exists(tmp_path / "ticks") and Channel.open(tmp_path / "ticks").read().num_rows >= 400):
        assert not query.awaitTermination(0.1)
    query.stop()
    values = sorted(Channel.open(tmp_path / "ticks").read()["value"].to_pylist())
    assert values == list(range(len(values)))
