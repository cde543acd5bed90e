"""Queries in Spark say in their outputs' logs what they have read, so that `explain` finds the way upstream by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from helpers import make_channel, run, say, stream
from pyspark_strandline import Processor, iterate, process, read_channels
from strandline.channel import Channel
from strandline.page import Looker
from strandline.report import explain
from strandline.time.domain import int64

pytestmark = pytest.mark.spark


def reminder() -> Processor:
    """A processor of a class that is pickled whole: workers cannot import this module."""

    class Reminder(Processor):
        """Asks to be notified ten units later, and counts then."""

        schema = "seen bigint"
        state_schema = "seen bigint"

        def on_rows(self, time: Any, rows: Any) -> None:
            self.state = {"seen": (self.state or {"seen": 0})["seen"] + rows.num_rows}
            self.notify_at(time + 10)

        def on_notify(self, time: Any) -> None:
            self.emit(time, [self.state or {}])

    return Reminder()


@pytest.mark.drawn
def test_the_way_goes_through_queries_to_the_producer_or_to_the_query_that_is_behind(spark: Any, tmp_path: Path) -> None:
    events, other = make_channel(tmp_path / "events", int64), make_channel(tmp_path / "other", int64, ("c",))
    say(events, "a", (1, 1), then=[20])
    say(events, "b", then=[5])
    say(other, "c", then=[30])
    counts = stream(spark, tmp_path / "events").groupBy("time").count()
    run(counts, tmp_path / "counts", tmp_path / "counts-checkpoint")
    both = read_channels(spark, {"counts": str(tmp_path / "counts"), "other": str(tmp_path / "other")})
    united = both["counts"].select("time", F.lit("k").alias("key")).union(both["other"].select("time", "key"))
    reminded = process(united, reminder(), key="key")
    run(reminded, tmp_path / "reminded", tmp_path / "reminded-checkpoint")

    # A processor was asked for 11. It cannot be notified before b of the events closes that time: b holds it open.
    answer = explain(tmp_path / "reminded", 11)
    first, second, last = answer.holders
    assert (first.kind, second.kind, last.kind) == ("query", "query", "producer")
    assert answer.culprits == (last,)
    assert (last.name, last.shown, last.channel) == ("b", ("5",), str(tmp_path / "events"))
    assert first.reads == (str(tmp_path / "counts"), str(tmp_path / "other"))
    assert second.reads == (str(tmp_path / "events"),)
    assert last.way[0] == "b"
    assert last.way[-1] == str(tmp_path / "reminded")

    # Then b goes on, and the first query does not run: it is behind.
    say(events, "b", (6, 1), (7, 1), then=[40])
    [culprit] = explain(tmp_path / "reminded", 11).culprits
    assert (culprit.kind, culprit.channel) == ("query", str(tmp_path / "counts"))
    [behind] = culprit.behind
    assert (behind.channel, behind.rows) == (str(tmp_path / "events"), 2)
    assert "has not: it has not read " in culprit.what

    page = Looker([str(tmp_path / name) for name in ("events", "other", "counts", "reminded")], interval=0.0).look()
    labels = {node.id: node.label if node.kind == "channel" else node.kind for node in page.nodes}
    assert sorted((labels[edge.source], labels[edge.target]) for edge in page.edges) == [
        *[("counts", "query"), ("events", "query"), ("other", "query")],
        *[("producers", "events"), ("producers", "other"), ("query", "counts"), ("query", "reminded")],
    ]
    assert [each.rows for each in page.channels[0].unread] == [2]
    assert page.channels[3].culprits[0].way[-1] == "reminded"

    run(counts, tmp_path / "counts", tmp_path / "counts-checkpoint")
    [culprit] = explain(tmp_path / "reminded", 11).culprits
    assert (culprit.kind, culprit.channel) == ("query", str(tmp_path / "reminded"))
    run(reminded, tmp_path / "reminded", tmp_path / "reminded-checkpoint")
    assert not explain(tmp_path / "reminded", 11).open
    assert 11 in Channel.open(tmp_path / "reminded").read()["time"].to_pylist()


@pytest.mark.drawn
def test_a_recursion_that_is_behind_is_named_and_not_its_producer(spark: Any, tmp_path: Path) -> None:
    """Rows enter a loop with one more coordinate, and its result leaves it again: the log says how."""
    events = make_channel(tmp_path / "events", int64, ("a",))
    say(events, "a", (0, 3), then=[1])
    body = lambda rows: rows.where("n > 1").withColumn("n", F.col("n") - 1)  # noqa: E731
    loop = iterate(spark, str(tmp_path / "events"), body, str(tmp_path / "all"))
    loop.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    result = tmp_path / "all" / "result"
    culprit = explain(result, 1).culprits[0]
    assert (culprit.kind, culprit.name) == ("producer", "a")
    say(events, "a", (1, 1), then=[20])
    [culprit] = explain(result, 1).culprits
    assert (culprit.kind, culprit.behind[0].channel) == ("loop", str(tmp_path / "events"))
    assert explain(result, 21).culprits[0].name == "a"


@pytest.mark.drawn
def test_a_query_that_has_read_all_without_a_result_is_not_behind(spark: Any, tmp_path: Path) -> None:
    """It makes no commit, and its checkpoint has what it has read. Its commits say where that is, and its name."""
    events = make_channel(tmp_path / "events", int64)
    say(events, "a", (1, 1), then=[20])
    counts = stream(spark, tmp_path / "events").groupBy("time").count()

    def go_on() -> None:
        writer = counts.writeStream.format("strandline").queryName("hours of the day").option("path", str(tmp_path / "counts"))
        writer = writer.option("checkpointLocation", str(tmp_path / "check %20 point"))
        writer.trigger(availableNow=True).start().awaitTermination()

    go_on()
    made = Channel.open(tmp_path / "counts")
    [state] = made.producers.values()
    assert state.state["strandline:name"] == "hours of the day"
    assert state.state["strandline:checkpoint"] == str(tmp_path / "check %20 point")
    say(events, "a", (22, 1), (23, 1), then=[30])  # b holds 0, so nothing closes
    looker = Looker([str(tmp_path / name) for name in ("events", "counts")], interval=0.0)
    assert [(each.rows, each.exact) for each in looker.look().channels[0].unread] == [(2, True)]
    go_on()
    made.refresh()
    assert made.producers == dict.fromkeys(made.producers, state)  # no commit
    assert looker.look().channels[0].unread == ()
    assert [(holder.name, holder.behind) for holder in explain(made, 0).holders if holder.kind == "query"] == [
        (next(iter(made.producers)), ())
    ]
