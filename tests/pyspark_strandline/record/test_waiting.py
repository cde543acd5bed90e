"""How much waits on a link is counted, bounded and shown. A lag that is too small is an error with one that is not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from pyspark_strandline import read_loop
from pyspark_strandline.read.errors import loop_behind
from strandline.channel import Channel
from strandline.replay import CLOCK, Timestamper
from strandline.report import explain
from strandline.time.arrow import time_field

pytestmark = [pytest.mark.spark, pytest.mark.drawn]

MS = 1000
SCHEMA = pa.schema([time_field("time", CLOCK), ("n", pa.int64())])


def record(path: Path, instants: list[int], promised: int) -> None:
    """Record a row at each instant, and promise that nothing comes before another one."""
    shown = [0]
    channel = Channel.create(path, SCHEMA)
    node = Timestamper(channel, "in", clock=lambda: shown[-1])
    channel.seal()
    for n, instant in enumerate(instants):
        shown.append(instant * MS)
        node.send(pa.table({"n": [n]}))
    shown.append(promised * MS)
    node.commit()
    node.close()


def run(spark: Any, folder: Path, lag: str = "100 milliseconds", **options: Any) -> None:
    Channel.create(folder / "back", SCHEMA, producers=["loop"], exist_ok=True)
    channels = {"in": str(folder / "in"), "back": str(folder / "back")}
    loop = read_loop(spark, channels, feedback={"back": {"instant": lag}}, domain=CLOCK, **options)
    counts = loop["back"].groupBy("time").agg(F.count("*").alias("n"))
    writer = loop.write({"back": loop["in"].where("n >= 0"), "out": (counts, folder / "out")})
    writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()


def waiting(folder: Path) -> int:
    return int(Channel.open(folder / "back").progress.producers["loop"].state["waiting"])


def test_what_waits_is_counted_and_shown_by_why(spark: Any, tmp_path: Path) -> None:
    record(tmp_path / "in", [1000, 1010, 1020], promised=1105)
    run(spark, tmp_path)
    assert waiting(tmp_path) == 2  # what comes round at 1100 is closed at 1105, and not that at 1110 and 1120
    answer = explain(Channel.open(tmp_path / "out"), (1110 * MS, 0, 0))
    assert f"2 rows wait on the link {tmp_path / 'back'}" in answer.holders[0].what
    assert answer.culprits[0].name == "in"


def test_more_may_not_wait_than_is_allowed(spark: Any, tmp_path: Path) -> None:
    record(tmp_path / "in", [1000, 1010, 1020], promised=1030)
    with pytest.raises(Exception, match=r"STRANDLINE_LOOP_UNBOUNDED\] 3 rows wait on the link back, and at most 2"):
        run(spark, tmp_path, maxLoopWaiting=2)
    run(spark, tmp_path, maxLoopWaiting=3)
    assert waiting(tmp_path) == 3


def test_a_lag_that_is_too_small_is_an_error_with_the_one_that_is_not(spark: Any, tmp_path: Path) -> None:
    record(tmp_path / "in", [1000], promised=9000)
    (tmp_path / "other").mkdir()
    with pytest.raises(
        Exception, match=r"STRANDLINE_LOOP_BEHIND\].*7\.9 s behind.*by 0\.1 s at most.*With 8 s for back \(0\.1 s\) it"
    ):
        run(spark, tmp_path, maxLoopLag="5 seconds")
    record(tmp_path / "other" / "in", [1000], promised=9000)
    run(spark, tmp_path / "other", lag="8 seconds", maxLoopLag="5 seconds")


@pytest.mark.parametrize(
    ("other", "named"),
    [(200 * MS, r"8 s for back \(0\.1 s\), other \(0\.2 s\) it"), (8000 * MS, r"8 s for back \(0\.1 s\) it")],
)
def test_each_link_is_named_whose_lag_is_too_small(other: int, named: str) -> None:
    """So the loop is not behind any more if the error is followed once."""
    error = loop_behind({"other": other, "back": 100 * MS}, 7900 * MS, 5000 * MS)
    assert re.search(named, error.what)
