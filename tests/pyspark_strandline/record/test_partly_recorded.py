"""A recording that was killed between two commits of its last batch is replayed as far as all of its links are recorded."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from pyspark_strandline import read_loop
from pyspark_strandline.replay import replay_loop
from strandline.channel import Channel
from strandline.replay import CLOCK, Timestamper, recorded
from strandline.time.arrow import time_field

pytestmark = [pytest.mark.spark, pytest.mark.drawn]

MS = 1000
SCHEMA = pa.schema([time_field("time", CLOCK), ("hops", pa.int64()), ("value", pa.int64())])
FEEDBACK = {"a": {"instant": "100 milliseconds"}, "b": {"instant": "100 milliseconds"}}


def body(loop: Any, wrong_from: int = 1 << 60) -> dict[str, Any]:
    """Rows with hops come round, the even ones by ``a``. The others do by ``b``, from an instant on with another value."""
    rows = loop["in"].unionByName(loop["a"]).unionByName(loop["b"].select("time", "hops", "value"))
    later = (F.unix_micros(F.col("time").getField("instant")) >= wrong_from) & (F.col("value") % 2 == 1)
    value = F.col("value") + F.when(later, 2).otherwise(0)
    again = rows.where("hops > 0").select("time", (F.col("hops") - 1).alias("hops"), value.alias("value"))
    odd = again.where("value % 2 = 1")
    if "due" in loop["b"].columns:
        odd = odd.withColumn("due", F.col("time").getField("instant") + F.expr("interval 30 milliseconds"))
    return {"a": again.where("value % 2 = 0"), "b": odd, "out": rows.where("hops = 0")}


def record_loop(spark: Any, folder: Path, events: dict[str, str]) -> None:
    channel, shown = Channel.create(folder / "in", SCHEMA), [0]
    with Timestamper(channel, "in", clock=lambda: shown[-1]) as node:
        channel.seal()
        for number in range(6):
            shown.append((1000 + 10 * number) * MS)
            node.send(pa.table({"hops": [2], "value": [number]}))
        node.drop()
    asks = SCHEMA.append(pa.field("due", pa.timestamp("us", "UTC")))
    Channel.create(folder / "a", recorded(SCHEMA), producers=["loop"])
    Channel.create(folder / "b", asks if events else recorded(SCHEMA), producers=["loop"])
    loop = read_loop(spark, paths(folder), feedback=FEEDBACK, domain=CLOCK, record="earliest", events=events)
    made = body(loop)
    writer = loop.write({**made, "out": (made["out"], folder / "out")}).option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def paths(folder: Path) -> dict[str, str]:
    return {name: str(folder / name) for name in ("in", "a", "b")}


def without(folder: Path, link: str, into: Path, most: int = 1 << 62) -> tuple[int, int, int]:
    """Copy a recording without the newest commits of a link: one, or more until its frontier is at most at an instant.

    Return that frontier.
    """
    for name in ("in", "a", "b"):
        shutil.copytree(folder / name, into / name)
    while True:
        max((into / link / "_delta_log").glob("*.json")).unlink()
        frontier = list(Channel.open(into / link).frontier)
        if frontier and frontier[0][0] <= most:
            return frontier[0]


@pytest.mark.parametrize("link", ["a", "b"])
def test_a_recording_that_lacks_the_newest_commit_of_a_link_is_replayed(spark: Any, tmp_path: Path, link: str) -> None:
    record_loop(spark, tmp_path / "whole", {})
    time = without(tmp_path / "whole", link, tmp_path / "killed")
    found = replay_loop(spark, paths(tmp_path / "killed"), body, tmp_path / "again", feedback=FEEDBACK, record="earliest")
    assert found.equal
    assert [list(frontier) for each in found.links.values() for frontier in each.closed] == [[time], [time]]
    other = "b" if link == "a" else "a"
    assert f"The link {other} is recorded up to" in found.to_text()


def test_beside_events_too_and_what_comes_round_has_new_times_from_where_the_recording_ends(spark: Any, tmp_path: Path) -> None:
    """Only events differ, first at an instant at which the other link is not recorded any more."""
    record_loop(spark, tmp_path / "whole", {"b": "due"})
    time = without(tmp_path / "whole", "a", tmp_path / "killed", 1200 * MS)
    found = replay_loop(
        spark,
        paths(tmp_path / "killed"),
        lambda loop: body(loop, time[0] - 100 * MS),
        tmp_path / "again",
        feedback=FEEDBACK,
        record="earliest",
        events={"b": "due"},
        on_divergence="restamp",
    )
    assert found.links["a"].equal
    assert found.first is not None
    assert found.first[1] > time
    assert found.restamped == time
    assert Channel.open(found.outputs["out"]).read().num_rows == 6
