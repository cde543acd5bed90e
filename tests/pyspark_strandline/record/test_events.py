"""Events (seed 5, schedulers): a row asks for an instant, and comes round then: L later at least, and before what is outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from pyspark_strandline import read_loop
from pyspark_strandline.replay import replay_loop
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.replay import CLOCK, Timestamper, recorded
from strandline.time.arrow import time_field, times_of

pytestmark = pytest.mark.spark

MS = 1000
SCHEDULER = -(1 << 62)
SCHEMA = pa.schema([time_field("time", CLOCK), ("name", pa.string()), ("delay", pa.int64())])
EVENTS = pa.schema([time_field("time", CLOCK), ("name", pa.string()), ("due", pa.timestamp("us", "UTC"))])
FEEDBACK = {"timers": {"instant": "100 milliseconds"}}


def record(path: Path, records: list[tuple[int, str, int | None]]) -> None:
    shown = [0]
    channel = Channel.create(path, SCHEMA)
    with Timestamper(channel, "in", clock=lambda: shown[-1]) as node:
        channel.seal()
        for instant, name, delay in records:
            shown.append(instant * MS)
            node.send(pa.table({"name": [name], "delay": pa.array([None if delay is None else delay * MS])}))
            node.commit()
        node.drop()


def body(loop: Any) -> dict[str, Any]:
    """Each row from outside asks for an event after its delay. Both come out, in the order of their times."""
    due = F.timestamp_micros(F.unix_micros(F.col("time").getField("instant")) + F.col("delay"))
    asked = loop["in"].where("coalesce(delay != -1000, true)").select("time", "name", due.alias("due"))
    came = loop["timers"].select("time", F.concat("name", F.lit("!")).alias("name"))
    return {"timers": asked, "out": loop["in"].select("time", "name").unionByName(came)}


def start(spark: Any, folder: Path, **options: Any) -> Any:
    Channel.create(folder / "timers", EVENTS, producers=["loop"], exist_ok=True)
    channels = {"in": str(folder / "in"), "timers": str(folder / "timers")}
    loop = read_loop(spark, channels, feedback=FEEDBACK, domain=CLOCK, events={"timers": "due"}, **options)
    made = body(loop)
    writer = loop.write({"timers": made["timers"], "out": (made["out"], folder / "out")})
    return writer.option("checkpointLocation", str(folder / "checkpoint"))


def came_out(path: Path) -> list[tuple[int, int, str]]:
    table = Channel.open(path).read()
    times = times_of(table.column("time"), CLOCK)
    return [(at[0] // MS, at[1], name) for at, name in sorted(zip(times, table.column("name").to_pylist(), strict=True))]


@pytest.mark.drawn
def test_events_come_when_they_are_due_at_least_l_later_and_first(spark: Any, tmp_path: Path) -> None:
    """The seed's numbers: L = 100 ms. A delay of 30 ms becomes 100 ms, and 250 ms stays; no further L is added."""
    record(tmp_path / "in", [(1000, "soon", 30), (1000, "later", 250), (1100, "a", -1), (1250, "b", -1)])
    for _ in range(2):  # what waits outlives the query
        query = start(spark, tmp_path, maxFilesPerTrigger=1).start()
        while query.isActive and query.lastProgress is None:
            query.awaitTermination(0.1)
        query.stop()
    start(spark, tmp_path, maxFilesPerTrigger=1).trigger(availableNow=True).start().awaitTermination()
    assert came_out(tmp_path / "out") == [
        (1000, 0, "soon"),
        (1000, 0, "later"),
        (1100, SCHEDULER, "soon!"),
        (1100, 0, "a"),
        (1250, SCHEDULER, "later!"),
        (1250, 0, "b"),
    ]
    timers = Channel.open(tmp_path / "timers")
    assert not list(timers.frontier)
    assert timers.progress.producers["loop"].state["rounded"] == 1
    channels = {"in": str(tmp_path / "in"), "timers": str(tmp_path / "timers")}
    again = replay_loop(
        spark, channels, body, tmp_path / "again", feedback=FEEDBACK, record=False, events={"timers": "due"}, maxFilesPerTrigger=3
    )
    assert again.equal
    assert again.links["timers"].rows_a == again.links["timers"].rows_b == 2
    assert came_out(Path(again.outputs["out"])) == came_out(tmp_path / "out")


@pytest.mark.drawn
def test_an_event_far_ahead_is_not_taken_for_many_rounds(spark: Any, tmp_path: Path) -> None:
    record(tmp_path / "in", [(1000, "next year", 365 * 86_400_000)])
    start(spark, tmp_path).trigger(availableNow=True).start().awaitTermination()
    assert [name for _, _, name in came_out(tmp_path / "out")] == ["next year", "next year!"]


@pytest.mark.drawn
def test_what_asks_for_no_instant_is_refused_by_name(spark: Any, tmp_path: Path) -> None:
    record(tmp_path / "in", [(1000, "never", None)])
    with pytest.raises(Exception, match="STRANDLINE_EVENT_TIME"):
        start(spark, tmp_path).trigger(availableNow=True).start().awaitTermination()
    channels = {"in": str(tmp_path / "in"), "timers": str(tmp_path / "timers")}
    for events, condition in (({"timers": "name"}, "STRANDLINE_COLUMN_MISSING"), ({"in": "due"}, "STRANDLINE_OPTION_INVALID")):
        with pytest.raises(Exception, match=condition):
            read_loop(spark, channels, feedback=FEEDBACK, domain=CLOCK, events=events)
    with pytest.raises(StrandlineError, match="STRANDLINE_OPTION_INVALID"):
        read_loop(spark, channels, feedback=FEEDBACK, domain=CLOCK, record="sometimes")  # type: ignore[arg-type]
    for leaf in ("node", "n"):  # an event there could be due before the row that asks for it
        with pytest.raises(StrandlineError, match="STRANDLINE_OPTION_INVALID.*instant"):
            read_loop(spark, channels, feedback={"timers": {leaf: 1}}, domain=CLOCK, events={"timers": "due"})


@pytest.mark.drawn
def test_an_event_beside_a_recorded_link_has_the_same_times_in_a_replay(spark: Any, tmp_path: Path) -> None:
    """The replay reads the recorded link, and only the event comes round again."""
    record(tmp_path / "in", [(1000, "soon", 30), (1100, "a", -1)])
    Channel.create(tmp_path / "back", recorded(SCHEMA), producers=["loop"])
    Channel.create(tmp_path / "timers", EVENTS, producers=["loop"])
    channels = {name: str(tmp_path / name) for name in ("in", "back", "timers")}
    feedback = {**FEEDBACK, "back": {"instant": "10 milliseconds"}}

    def both(loop: Any) -> dict[str, Any]:
        return {**body(loop), "back": loop["in"]}

    loop = read_loop(spark, channels, feedback=feedback, domain=CLOCK, record="earliest", events={"timers": "due"})
    made = both(loop)
    writer = loop.write({**made, "out": (made["out"], tmp_path / "out")}).option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    )
    writer.trigger(availableNow=True).start().awaitTermination()
    again = replay_loop(spark, channels, both, tmp_path / "again", feedback=feedback, record="earliest", events={"timers": "due"})
    assert again.links["timers"].rows_b == 1
    assert came_out(Path(again.outputs["out"])) == came_out(tmp_path / "out")
