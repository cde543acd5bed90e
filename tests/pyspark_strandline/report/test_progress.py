"""Progress reports of real queries: running and committed batches, several inputs, levels, logs, and the exporters."""

from __future__ import annotations

import json
import logging
import re
import shutil
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import jsonschema
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families
from pyspark import cloudpickle
from pyspark.sql import functions as F

from helpers import ROOT, make_channel, run, say, settle, stream
from pyspark_strandline import advance, ingest, read_channels, write_outputs
from pyspark_strandline.read.admission_limits import AdmissionLimits
from pyspark_strandline.report import ProgressReports, SparkMetrics, open_telemetry, serve_prometheus
from pyspark_strandline.report.exporters import _part
from pyspark_strandline.report.progress_reports import _shim
from pyspark_strandline.report.unread import UnreadWork, _batches
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.report import explain
from strandline.report.progress import (
    METRICS,
    Level,
    ProgressReport,
    State,
    backlog_seconds,
    catch_up_seconds,
    intermediate_unprocessed_elements,
    total_input_elements_remaining,
)
from strandline.time.antichain import Antichain
from strandline.time.domain import int64

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SCHEMA = json.loads((ROOT / "docs" / "schemas" / "progress-report.schema.json").read_text())
T = TypeVar("T")


def soon(ask: Callable[[], T | None]) -> T:
    """What Spark's listener bus brings in its own time."""
    until = time.monotonic() + 60
    while (answer := ask()) is None:
        assert time.monotonic() < until, "it never came"
        time.sleep(0.02)
    return answer


@pytest.fixture
def reports(spark: Any) -> Iterator[ProgressReports]:
    with ProgressReports(spark) as made:
        yield made


def committed(reports: ProgressReports, query: Any, batch: int) -> ProgressReport:
    found = soon(lambda: each if (each := reports.committed(query)) is not None and each.batch >= batch else None)
    jsonschema.validate(json.loads(json.dumps(found.to_json())), SCHEMA)
    assert ProgressReport.from_json(json.loads(json.dumps(found.to_json()))) == found
    return found


def counts(spark: Any, path: Path, **options: str) -> Any:
    return stream(spark, path, **options).where("n > 0").groupBy("time").agg(F.count("*").alias("n"))


def start(frame: Any, path: Path, name: str = "", **options: str) -> Any:
    writer = frame.writeStream.format("strandline").option("checkpointLocation", f"{path}-checkpoint").options(**options)
    return (writer.queryName(name) if name else writer).start(str(path))


@pytest.mark.drawn
def test_the_final_report_of_a_batch_and_the_query_s_backlog(
    spark: Any, tmp_path: Path, reports: ProgressReports, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "strandline.progress")
    channel = make_channel(tmp_path / "in", int64)
    for time_ in range(4):
        say(channel, "a", *[(time_, n) for n in range(10)], then=[time_ + 1])  # n = 0 is filtered away
    say(channel, "b", then=[3])
    query = start(counts(spark, tmp_path / "in", maxFilesPerTrigger="2"), tmp_path / "out", "hourly")
    settle(query)
    report = committed(reports, query, 1)
    assert (report.state, report.level, report.batch, report.name) == (State.COMMITTED, Level.ADVANCED, 1, "hourly")
    assert list(report.transforms) == ["source", "stage 1", "stage 2", "driver"]
    source, first, second, driver = report.transforms.values()
    assert source.output_elements_produced == {"rows": 20}
    assert (first.consumed(), second.consumed()) == (20, 2)
    assert first.output_elements_produced == {"rows": 2}
    assert second.output_elements_produced == {"rows": 3}  # 0, 1 and 2 are closed by 3, and 0 and 1 were kept until then
    assert "HashAggregate" in first.detail
    assert driver.output_elements_produced == {"batches": 1}
    assert first.total_time_spent is not None
    assert driver.total_time_spent
    assert second.total_time_spent
    assert all(each.active_input_elements == 0 for each in report.transforms.values())
    assert backlog_seconds(report.transforms) == 0
    # The frontier is the one that the commit stated.
    [state] = Channel.open(tmp_path / "out").producers.values()
    assert second.frontiers == {"rows": state.holds} == {"rows": Antichain(int64, [3])}

    by_name = {name.split(" ", 1)[1]: each for name, each in report.operators.items()}
    assert by_name["Filter"].output_elements_produced == {"rows": 18}
    assert by_name["FrontierSave"].output_elements_produced == {"rows": 3}
    assert "numTotalStateRows 1" in by_name["FrontierSave"].detail
    assert all(each.is_reported and each.holds("rows") == (3,) for each in report.operators.values())
    assert all(each.total_time_spent is None for each in report.operators.values())  # Spark measures it of stages

    # What Spark's own progress says: the frontier and the position in the offset, and the open times of each operator.
    progress = json.loads(query.lastProgress.json)
    offset = progress["sources"][0]["endOffset"]
    assert (offset["frontier"], offset["commit"]) == ([3], progress["sources"][0]["latestOffset"]["commit"])
    assert progress["stateOperators"][0]["customMetrics"]["numOpenTimes"] == 1

    # A batch that nobody runs yet: its rows and its number of batches are known from the log.
    query.stop()
    for time_ in range(4, 9):
        say(channel, "a", *[(time_, n) for n in range(10)], then=[time_ + 1])
    waiting = reports.of_query(query)
    assert waiting is not None
    assert waiting.batches == 1  # the first batch of a run is no measure for later ones
    assert waiting.transforms["source"].active_output_elements_remaining == {"rows": 50}
    assert waiting.transforms["driver"].active_output_elements_remaining == {"batches": 3}
    assert total_input_elements_remaining(waiting.transforms, "stage 1") == pytest.approx(50)
    assert total_input_elements_remaining(waiting.transforms, "stage 2") == pytest.approx(50 * 2 / 20)
    # While another thread reads the logs, or asks for news, nothing waits: the earlier answer is served.
    with reports._queries[query.id]._reading, reports._asking:
        say(channel, "a", (9, 1))
        assert reports.of_query(query) is waiting
    backlog, catch_up = backlog_seconds(waiting.transforms), catch_up_seconds(waiting.transforms)
    assert backlog is not None
    assert catch_up is not None
    assert 0 < catch_up < 600
    assert 0 < backlog < 600
    assert "query hourly, batch 1: waiting rows 0, backlog s 0, catch-up s 0, frontier lag s" in caplog.text


def waits(path: str) -> Any:
    """A function of a row's key: for ``slow`` it returns when the gate is there."""

    def passes(key: str) -> bool:
        while key == "slow" and not Path(path).exists():
            time.sleep(0.01)
        return True

    return F.udf(passes, "boolean", useArrow=False)


def test_a_running_batch_tells_what_is_done_active_and_waiting(spark: Any, tmp_path: Path, reports: ProgressReports) -> None:
    channel = make_channel(tmp_path / "in", int64)
    for key, rows in (("fast", 7), ("slow", 5), ("slow", 4), ("slow", 3)):
        with channel.producer("a") as session:
            session.send(pa.table({"time": [2] * rows, "key": [key] * rows, "n": [1] * rows}))
            session.commit()
    say(channel, "a", then=[9])
    say(channel, "b", then=[9])
    gate = tmp_path / "gate"
    # Two cores, four files, a task for each: the first passes, the next two wait at the gate, the last one for a core.
    frame = stream(spark, tmp_path / "in", minPartitions="4", nativeScan="off")
    query = start(frame.where(waits(str(gate))("key")), tmp_path / "out")
    try:

        def stuck() -> ProgressReport | None:
            report = reports.running(query)
            if report is None or not (stage := report.transforms["stage 1"]).consumed():
                return None  # Spark adds the counts of a task one after the other, so a report may have only some of them
            return report if stage.output_elements_produced == {"rows": 7} else None

        report = soon(stuck)
        jsonschema.validate(json.loads(json.dumps(report.to_json())), SCHEMA)
        assert (report.state, report.batch) == (State.RUNNING, 0)
        assert report.transforms["source"].output_elements_produced == {"rows": 19}  # from the log
        stage = report.transforms["stage 1"]
        assert stage.output_elements_produced == {"rows": 7}
        assert stage.active_input_elements == 8  # two of three tasks that are left, and 12 rows
        assert stage.active_output_elements_remaining == {}  # not reported, so estimated
        assert stage.total_time_spent
        assert intermediate_unprocessed_elements(report.transforms, "stage 1") == 4
        assert total_input_elements_remaining(report.transforms, "stage 1") == 4
        backlog = backlog_seconds(report.transforms)
        assert backlog is not None
        assert backlog > 0
        # Tentative: any time that was open before the batch may still come. Nothing is closed by it.
        assert stage.holds("rows") == (int64.minimum,)
    finally:
        gate.touch()
    settle(query)
    soon(lambda: reports.running(query) is None or None)  # a batch without rows may follow
    final = committed(reports, query, 0)
    assert (final.transforms["stage 1"].consumed(), final.transforms["stage 1"].active_input_elements) == (19, 0)
    assert final.transforms["stage 1"].holds("rows") == (9,)
    query.stop()


@pytest.mark.drawn
def test_a_union_and_a_join_by_hand(spark: Any, tmp_path: Path, reports: ProgressReports) -> None:
    left, right = make_channel(tmp_path / "left", int64), make_channel(tmp_path / "right", int64)
    for channel, rows in ((left, 6), (right, 4)):
        say(channel, "a", *[(1, n) for n in range(rows)], then=[5])
        say(channel, "b", then=[7])
    one = stream(spark, tmp_path / "left").select("time", F.col("n").alias("a"))
    two = stream(spark, tmp_path / "right").select(F.col("time").alias("t"), F.col("n").alias("b"))
    query = start(one.join(two, (one.time == two.t) & (one.a == two.b)).select("time", "a"), tmp_path / "joined", "joined")
    settle(query)
    report = committed(reports, query, 0)
    assert [report.transforms[f"source {n}"].output_elements_produced["rows"] for n in (1, 2)] == [6, 4]
    join = report.transforms["stage 3"]
    assert sorted(join.input_elements_consumed.values()) == [4, 6]
    assert (join.consumed(), join.output_elements_produced) == (10, {"rows": 4})
    assert report.unreported == ()
    assert join.holds("rows") == (5,)
    query.stop()

    say(left, "a", (5, 1), (6, 2))
    say(right, "b", (8, 1))
    waiting = reports.of_query(query)
    assert waiting is not None
    assert [waiting.transforms[f"source {n}"].active_output_elements_remaining for n in (1, 2)] == [{"rows": 2}, {"rows": 1}]
    assert total_input_elements_remaining(waiting.transforms, "stage 3") == pytest.approx(3)

    both = read_channels(spark, {"left": str(tmp_path / "left"), "right": str(tmp_path / "right")})
    united = both["left"].select("time", "n").union(both["right"].select("time", "n")).groupBy("time").count()
    query = start(united, tmp_path / "united")
    settle(query)
    report = committed(reports, query, 0)
    assert sum(report.transforms["source"].output_elements_produced.values()) == 13
    assert report.transforms["stage 1"].output_elements_produced["rows"] >= 4
    assert report.transforms["stage 2"].frontiers == {"rows": Antichain(int64, [5])}
    assert report.transforms["source"].detail == "channels left, right"
    assert report.unreported == ()
    query.stop()
    say(left, "a", (9, 1))
    waiting = reports.of_query(query)
    assert waiting is not None
    assert total_input_elements_remaining(waiting.transforms, "stage 1") == pytest.approx(1)
    [figure] = [each for each in reports.figures()[query.id] if each.name == "strandline_waiting_rows"]
    assert figure.value == 1


@pytest.mark.drawn
def test_levels_of_a_session_and_of_a_query(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", int64)
    say(channel, "a", (1, 1), then=[5])
    say(channel, "b", then=[7])
    with ProgressReports(spark, "minimal", levels={"hidden": "none"}) as reports:
        seen, hidden = (start(counts(spark, tmp_path / "in"), tmp_path / name, name) for name in ("seen", "hidden"))
        settle(seen)
        settle(hidden)
        report = committed(reports, seen, 0)
        assert report.level is Level.MINIMAL
        assert report.transforms["stage 1"].consumed() == 1
        assert report.transforms["stage 2"].holds("rows") == (5,)
        assert all(each.total_time_spent is None for each in report.transforms.values())
        say(channel, "b", (8, 1))
        soon(lambda: True if committed(reports, seen, 1) else None)
        nothing = soon(lambda: reports.committed(hidden))
        assert (nothing.level, nothing.reason) == (Level.NONE, "the level of this query is none")
        assert reports.running(hidden) == nothing
        assert [each.name for each in reports.figures()["hidden"]] == [
            "strandline_report_level",
            "strandline_query_running",
            "strandline_query_failed",
            "strandline_failed_reports_total",
            "strandline_unreported_transforms",
        ]
        for query in (seen, hidden):
            query.stop()
    late = start(counts(spark, tmp_path / "in"), tmp_path / "late")
    settle(late)
    said = reports.report(late)
    assert (said.level, said.reason) == (Level.NONE, "no batch of this query has been seen yet")
    late.stop()


def shown(reports: ProgressReports, label: str) -> dict[str, float]:
    """The figures of a query, by name without the prefix."""
    figures = reports.figures().get(label, [])
    return {each.name.removeprefix("strandline_"): each.value for each in figures if each.part is None}


def shown_soon(reports: ProgressReports, label: str, **wanted: float) -> dict[str, float]:
    def ask() -> dict[str, float] | None:
        found = shown(reports, label)
        return found if all(found.get(name) == value for name, value in wanted.items()) and "frontier_elements" in found else None

    return soon(ask)


@pytest.mark.drawn
def test_a_query_has_figures_from_its_start_by_logs_and_checkpoint(spark: Any, tmp_path: Path) -> None:
    """A driver starts again, and the input is silent: no batch comes, and the lag is there."""
    channel = make_channel(tmp_path / "in", int64)
    say(channel, "a", (1, 1), then=[5])
    say(channel, "b", then=[3])
    query = start(counts(spark, tmp_path / "in"), tmp_path / "out", "silent")
    settle(query)
    query.stop()
    committed_by = time.time()
    with ProgressReports(spark) as reports:  # as a new driver has it
        query = start(counts(spark, tmp_path / "in"), tmp_path / "out", "silent")
        found = shown_soon(reports, "silent", query_running=1, waiting_rows=0)
        assert reports.labels() == ["silent"]
        assert reports.committed(query) is None
        output = Channel.open(tmp_path / "out")
        moved = output.log.require(output.version).timestamp_ms / 1000
        assert found["frontier_unmoved_seconds"] >= committed_by - moved > 0
        assert found["frontier_lag_seconds"] >= found["frontier_unmoved_seconds"]
        assert (found["frontier_elements"], found["batch"], found["query_failed"]) == (1, 0, 0)
        waiting = reports.report(query)
        jsonschema.validate(json.loads(json.dumps(waiting.to_json())), SCHEMA)
        assert waiting.state is State.QUERY
        assert waiting.transforms["query"].frontiers == {"rows": Antichain(int64, [3])}
        # The first batch does not move the frontier, so it has stood since before the restart.
        say(channel, "b", (4, 1))
        settle(query)
        committed(reports, query, 1)
        found = shown(reports, "silent")
        assert found["frontier_unmoved_seconds"] >= time.time() - committed_by - 0.1
        query.stop()
        say(channel, "a", *[(9, n) for n in range(7)])
        assert shown_soon(reports, "silent", query_running=0)["waiting_rows"] == 7
    with ProgressReports(spark) as reports:
        assert reports.figures() == {}
        # It is started while rows wait that it cannot read: they are counted all the same.
        gate = tmp_path / "gate"
        query = start(counts(spark, tmp_path / "in").where(waits(str(gate))(F.lit("slow"))), tmp_path / "out", "silent")
        try:
            assert shown_soon(reports, "silent", query_running=1)["waiting_rows"] == 7
        finally:
            gate.touch()
            query.stop()


def fails(key: str) -> bool:
    raise ValueError("poison")


def test_a_query_that_hangs_or_crashes_in_its_first_batch_does_not_vanish(
    spark: Any, tmp_path: Path, reports: ProgressReports, caplog: pytest.LogCaptureFixture
) -> None:
    channel = make_channel(tmp_path / "in", int64)
    with channel.producer("a") as session:
        session.send(pa.table({"time": [2], "key": ["slow"], "n": [1]}))
        session.commit()
    say(channel, "a", then=[9])
    say(channel, "b", then=[9])
    gate, began = tmp_path / "gate", time.time()
    rows = stream(spark, tmp_path / "in", nativeScan="off")
    hangs = start(rows.where(waits(str(gate))("key")), tmp_path / "hangs", "hangs")
    crashes = start(rows.where(F.udf(fails, "boolean", useArrow=False)("key")), tmp_path / "crashes", "crashes")
    with SparkMetrics(reports, spark, interval=3600) as metrics:
        try:
            found = shown_soon(reports, "crashes", query_failed=1)
            assert found["query_running"] == 0
            first = found["frontier_lag_seconds"]
            assert shown(reports, "crashes")["frontier_lag_seconds"] > first >= 0
            assert "poison" in (reports.error("crashes") or "")
            assert "query crashes has ended with an error" in caplog.text
            soon(lambda: reports.running(hangs))
            found = shown_soon(reports, "hangs", query_running=1)
            assert 0 < found["frontier_lag_seconds"] <= time.time() - began
            assert "waiting_rows" not in found  # it has read nothing yet, so its checkpoint does not say from where
            assert "batch" not in found
            metrics.update()
            system = spark._jvm.org.apache.spark.SparkEnv.get().metricsSystem()
            assert not system.getSourcesByName("strandline.crashes").isEmpty()
        finally:
            gate.touch()
            settle(hangs)
            hangs.stop()
    assert crashes.exception() is not None
    assert committed(reports, hangs, 0).batch == 0


@pytest.mark.drawn
def test_what_cannot_be_reported_takes_nothing_else_with_it(
    spark: Any, tmp_path: Path, reports: ProgressReports, caplog: pytest.LogCaptureFixture
) -> None:
    """A channel's path has another spelling than Spark's. Then a batch whose facts make no report is in the same answer."""
    for name in ("left", "right", "third"):
        channel = make_channel(tmp_path / "lake" / name, int64)
        say(channel, "a", (1, 1), (2, 1), then=[5])
        say(channel, "b", then=[9])
    lake = f"{tmp_path}/lake/"
    both = read_channels(spark, {"left": f"{lake}left", "right": f"{lake}/right", "third": f"{lake}./third"})
    united = both["left"].select("time").union(both["right"].select("time")).union(both["third"].select("time"))
    query = start(united.groupBy("time").count(), tmp_path / "odd", "odd")
    settle(query)
    source = committed(reports, query, 0).transforms["source"]
    assert source.output_elements_produced == {"rows of left": 2, "rows of right": 2, "rows of third": 2}

    real, bad = reports._shim, {"facts": {"query": "broken", "batch": 7}, "ms": 1, "name": "broken"}

    class Odd:
        """The shim, whose next answer has facts that make no report in front."""

        def news(self, session: Any, since: int) -> str:
            answer = json.loads(real.news(session, since))
            if answer["news"]:
                answer["news"] = [bad, *answer["news"]]
            return json.dumps(answer)

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    reports._shim = Odd()
    say(Channel.open(f"{lake}left"), "a", (6, 1))
    settle(query)
    assert committed(reports, query, 1).batch == 1
    reports._shim = real
    assert reports._thread is not None
    assert reports._thread.is_alive()
    assert shown(reports, "broken")["failed_reports_total"] >= 1
    assert shown(reports, "odd")["failed_reports_total"] == 0
    assert "no progress report of query broken: its batch 7" in caplog.text
    query.stop()


def test_an_ingest_has_a_lag_and_what_waits_for_it_is_not_known(spark: Any, tmp_path: Path, reports: ProgressReports) -> None:
    folder = tmp_path / "csv"
    folder.mkdir()

    def land(number: int, hour: int) -> None:
        (folder / f"{number}.csv").write_text("".join(f"2026-03-01T{hour:02d}:{minute:02d}:00Z,a\n" for minute in range(10)))

    raw = spark.readStream.schema("time timestamp, device string").option("maxFilesPerTrigger", 1).csv(str(folder))
    writer = ingest(raw, str(tmp_path / "out"), time="time", partition="device", partitions=["a"], policy="ordered()")
    writer = writer.queryName("intake").option("checkpointLocation", str(tmp_path / "c"))
    land(0, 8)
    query = writer.start()
    settle(query)
    report = committed(reports, query, 0)
    assert report.transforms["source"].output_elements_produced == {"rows": 10}
    assert report.transforms["stage 1"].input_elements_consumed == {next(iter(report.transforms["stage 1"].inputs)): 10}
    assert report.transforms["stage 1"].frontiers == {"rows": Channel.open(tmp_path / "out").frontier}
    land(1, 7)
    settle(query)
    report = committed(reports, query, 1)
    assert report.set_aside is not None
    assert (report.set_aside["late"], report.set_aside["null time"]) == (10, 0)
    assert report.only_aside == 1
    query.stop()
    land(2, 10)
    found = shown(reports, "intake")
    assert found["frontier_lag_seconds"] > 1000
    assert found.keys().isdisjoint({"waiting_rows", "backlog_seconds", "catch_up_seconds"})
    with ProgressReports(spark) as again:
        waiting = make_channel(tmp_path / "quiet", int64)
        query = writer.trigger(processingTime="1 hour").start()  # its first batch takes the file
        assert shown_soon(again, "intake", query_running=1)["frontier_lag_seconds"] > 1000
        aside = {each.part: each.value for each in again.figures()["intake"] if each.name == "strandline_rows_set_aside_total"}
        assert (aside["late"], aside["unparsable time"]) == (10, 0)  # from the first batch on, whoever reports
        assert waiting.version == 0
        query.stop()


@pytest.mark.drawn
def test_rows_of_several_actions_are_counted_once(spark: Any, tmp_path: Path, reports: ProgressReports) -> None:
    channel = make_channel(tmp_path / "in", int64)
    say(channel, "b", then=[99])

    def thrice(rows: Any, _: int) -> None:
        rows.count()
        rows.selectExpr("sum(n)").collect()
        rows.selectExpr("max(n)").collect()

    slow = F.udf(paused, "long", useArrow=False)
    writer = stream(spark, tmp_path / "in", nativeScan="off").withColumn("n", slow("n")).writeStream.foreachBatch(thrice)
    for time_ in range(2):
        say(channel, "a", *[(time_, n) for n in range(20)], then=[time_ + 1])
        if time_ == 0:
            query = writer.queryName("thrice").option("checkpointLocation", str(tmp_path / "c")).start()
        settle(query)
    report = committed(reports, query, 1)
    assert report.transforms["source"].output_elements_produced == {"rows": 20}
    stage = report.transforms["stage 1"]
    assert (stage.consumed(), stage.output_elements_produced) == (20, {"rows": 20})
    assert stage.total_time_spent is not None
    assert stage.total_time_spent >= 2 * 20 * 10  # the count alone needs no n
    query.stop()
    say(channel, "a", *[(5, n) for n in range(20)])
    waiting = reports.of_query(query)
    assert waiting is not None
    backlog = backlog_seconds(waiting.transforms)
    assert backlog is not None
    assert backlog >= 0.4


def paused(n: int) -> int:
    time.sleep(0.01)
    return n


@pytest.mark.drawn
def test_a_batch_that_reads_one_of_two_sources_hides_nothing_of_the_other(
    spark: Any, tmp_path: Path, reports: ProgressReports
) -> None:
    left, right = make_channel(tmp_path / "left", int64), make_channel(tmp_path / "right", int64)
    for channel in (left, right):
        say(channel, "a", *[(1, n) for n in range(10)], then=[5])
        say(channel, "b", then=[99])
    one = stream(spark, tmp_path / "left").select("time", F.col("n").alias("a"))
    two = stream(spark, tmp_path / "right").select(F.col("time").alias("t"), F.col("n").alias("b"))
    query = start(one.join(two, (one.time == two.t) & (one.a == two.b)).select("time", "a"), tmp_path / "out", "joined")
    settle(query)
    for time_ in (6, 8):
        say(left, "a", (time_, 1), then=[time_ + 1])
        settle(query)
    committed(reports, query, 2)
    query.stop()
    say(right, "a", *[(20, n) for n in range(100)])
    waiting = reports.of_query(query)
    assert waiting is not None
    assert waiting.batch == 2
    assert total_input_elements_remaining(waiting.transforms, "stage 3") == pytest.approx(100)
    backlog = backlog_seconds(waiting.transforms)
    assert backlog is not None
    assert backlog > 0
    assert shown(reports, "joined")["waiting_rows"] == 100

    def joined() -> Any:
        frame = one.join(two, (one.time == two.t) & (one.a == two.b)).select("time", "a")
        query = start(frame, tmp_path / "out", "joined")
        settle(query)
        return query

    joined().stop()
    with ProgressReports(spark) as again:  # this driver sees no batch that reads the right side
        say(left, "a", (30, 1), then=[31])
        query = joined()
        committed(again, query, 4)
        query.stop()
        say(right, "a", *[(30, n) for n in range(50)])
        found = shown_soon(again, "joined", query_running=0)
        assert found["waiting_rows"] == 50
        assert "backlog_seconds" not in found


def test_a_log_that_cannot_be_read_and_a_second_asker_say_no_number(spark: Any, tmp_path: Path, reports: ProgressReports) -> None:
    channel = make_channel(tmp_path / "in", int64)
    say(channel, "a", (1, 1), then=[2])
    say(channel, "b", then=[9])
    query = start(stream(spark, tmp_path / "in"), tmp_path / "out", "unreadable")
    settle(query)
    committed(reports, query, 0)
    query.stop()
    known = reports._queries[query.id]
    known._earlier = None
    with known._reading:  # another thread reads for the first time
        found = shown(reports, "unreadable")
    assert found.keys().isdisjoint({"waiting_rows", "backlog_seconds", "catch_up_seconds"})
    assert shown(reports, "unreadable")["waiting_rows"] == 0
    known._unread = UnreadWork()
    (tmp_path / "in").rename(tmp_path / "away")
    found = shown(reports, "unreadable")
    assert found.keys().isdisjoint({"waiting_rows", "backlog_seconds", "catch_up_seconds"})
    assert found["frontier_lag_seconds"] > 0


def test_a_name_that_is_used_again_is_the_new_query(spark: Any, tmp_path: Path, reports: ProgressReports) -> None:
    channel = make_channel(tmp_path / "in", int64)
    say(channel, "a", (1, 1), then=[2])
    say(channel, "b", then=[9])
    with SparkMetrics(reports, spark, interval=3600) as metrics:
        system = spark._jvm.org.apache.spark.SparkEnv.get().metricsSystem()
        for name in ("one", "two"):
            query = start(stream(spark, tmp_path / "in"), tmp_path / name, "hourly")
            settle(query)
            committed(reports, query, 0)
            metrics.update()
            assert not system.getSourcesByName("strandline.hourly").isEmpty()
            assert reports.labels() == ["hourly"]
            found = reports.committed("hourly")
            assert found is not None
            assert found.query == query.id
            query.stop()
            shown_soon(reports, "hourly", query_running=0)
            metrics.update()  # the next tick
            assert system.getSourcesByName("strandline.hourly").isEmpty()
    assert shown(reports, "hourly")["query_failed"] == 0


def test_a_query_without_a_name_is_called_by_its_producer_as_why_calls_it(
    spark: Any, tmp_path: Path, reports: ProgressReports
) -> None:
    """Two queries may have chosen the same name, in two channels."""
    channel = make_channel(tmp_path / "in", int64)
    say(channel, "a", (1, 1), then=[2])
    say(channel, "b", then=[9])
    queries = []
    with SparkMetrics(reports, spark, interval=3600) as metrics:
        for out in ("one", "two"):
            query = start(stream(spark, tmp_path / "in"), tmp_path / out, producer="hourly")
            queries.append(query)
            metrics.update()  # its sources may not be made yet: then it is called by its id
            settle(query)
            committed(reports, query, 0)
            metrics.update()
            assert {each.query for each in explain(tmp_path / out, 3).holders if each.kind == "query"} == {"hourly"}
        labels = ["hourly", f"hourly {queries[1].id}"]
        assert reports.labels() == sorted(reports.figures()) == sorted(metrics._known) == labels
        assert shown(reports, "hourly")["query_running"] == 1
        queries[0].stop()
        shown_soon(reports, "hourly", query_running=0)
        metrics.update()
        assert sorted(metrics._known) == labels[1:]
    queries[1].stop()


class Counted(ProgressReports):
    asked = 0

    def figures(self) -> Any:
        self.asked += 1
        return super().figures()


def test_a_collection_of_opentelemetry_asks_once(spark: Any) -> None:
    with Counted(spark) as reports:
        reader = InMemoryMetricReader()
        open_telemetry(reports, MeterProvider([reader]).get_meter("test"))
        reader.get_metrics_data()
        assert reports.asked == 1


@given(st.lists(st.integers(0, 9), max_size=30), st.none() | st.integers(1, 4), st.none() | st.integers(1, 12))
def test_batches_of_waiting_files_are_those_of_the_limits(sizes: list[int], files: int | None, size: int | None) -> None:
    rest, expected = sizes, 0
    while rest:
        rest = rest[AdmissionLimits(files, size).take(rest) :]
        expected += 1
    assert _batches(files, size, sizes) == expected


def test_many_files_that_wait_are_counted_in_one_pass() -> None:
    assert _batches(1, None, range(300_000)) == 300_000


def test_what_cannot_be_is_refused(spark: Any) -> None:
    for wrong in ({"level": "much"}, {"levels": {"q": "much"}}, {"window": 0}):
        with pytest.raises(StrandlineError, match="STRANDLINE_OPTION_INVALID"):
            ProgressReports(spark, **wrong)  # type: ignore[arg-type]
    with pytest.raises(StrandlineError, match="STRANDLINE_EXTENSION_MISSING"):
        _shim(SimpleNamespace(_jvm=SimpleNamespace(strandline=spark._jvm.nowhere)))


def test_rows_that_wait_are_counted_from_positions(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", int64)
    first, *_ = [say(channel, "a", *[(1, n) for n in range(rows)]) for rows in (3, 2, 5)]
    assert first is not None
    channel.refresh()

    def source(commit: int, file: int = 0, **more: Any) -> dict[str, Any]:
        offset = {"channel": channel.table_id, "commit": commit, "file": file, **more}
        return {"options": {"path": str(tmp_path / "in"), "maxFilesPerTrigger": "2"}, "end": json.dumps(offset), "start": None}

    unread = UnreadWork()
    assert unread.after(source(first)) == (10, 2, {"": 10})
    assert unread.after(source(first, 1))[:2] == (7, 1)
    assert unread.after(source(channel.version + 1))[:2] == (0, 0)
    assert unread.within(source(channel.version + 1)).rows == 10
    assert unread.within({**source(channel.version + 1), "start": source(first, 1)["end"]}).rows == 7
    end = channel.version + 1
    say(channel, "a", (1, 1))
    assert unread.after(source(end))[:2] == (1, 1)
    assert unread.after(source(end, 0, snapshot=end - 1)).rows == 11
    assert unread.after(source(end, 2, snapshot=end - 1))[:2] == (6, 1)  # two files of the snapshot have been read
    assert unread.within(source(end, 1, snapshot=end - 1)).rows is None
    other = {**source(first), "end": json.dumps({"channel": "another", "commit": first, "file": 0})}
    assert UnreadWork().after(other)[:2] == (None, 0)
    assert UnreadWork().after({**source(first), "options": {"path": str(tmp_path / "nowhere")}})[:2] == (None, 0)


@pytest.mark.drawn
@pytest.mark.parametrize("gone", ["cleaned", "deleted", "made anew"])
def test_what_waits_is_not_known_where_the_log_under_the_position_is_gone(gone: str, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", int64)
    for n in range(1, 40):
        say(channel, "a", (n, n), then=[n])
    channel.refresh()

    def source(commit: int) -> dict[str, Any]:
        offset = {"channel": channel.table_id, "commit": commit, "file": 0}
        return {"options": {"path": str(tmp_path / "in")}, "end": json.dumps(offset), "start": None}

    ran, end = UnreadWork(), source(channel.version + 1)
    assert ran.after(end).rows == 0
    before = channel.log.require(channel.version).timestamp_ms
    while time.time() * 1000 <= before + 1:
        pass
    if gone == "cleaned":
        assert Channel.open(channel.path).clean_log(timedelta(0)) > 3
        assert ran.after(source(channel.version - 1)).rows == 1
    else:
        shutil.rmtree(channel.path)
        if gone == "made anew":
            other = make_channel(tmp_path / "in", int64)
            for n in range(1, 80):
                say(other, "a", (n, n), then=[n])
        assert ran.after(end).rows is None
    for unread in (ran, UnreadWork()):
        assert unread.after(source(3))[:2] == (None, 0)
        assert unread.within(source(3)).rows is None
    assert UnreadWork().after(source(10_000))[:2] == (None, 0)


@pytest.mark.drawn
def test_prometheus_opentelemetry_and_spark_have_the_figures(spark: Any, tmp_path: Path, reports: ProgressReports) -> None:
    channel = make_channel(tmp_path / "in", int64)
    say(channel, "a", (1, 1), then=[5])
    say(channel, "b", then=[7])
    query = start(counts(spark, tmp_path / "in"), tmp_path / "out", 'by "time"')
    settle(query)
    committed(reports, query, 0)

    server, thread = serve_prometheus(reports, port=0)
    try:
        address = f"http://127.0.0.1:{server.server_port}/metrics"
        with urllib.request.urlopen(address, timeout=30) as response:
            families = {each.name: each for each in text_string_to_metric_families(response.read().decode())}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert set(families) == {each.name.removesuffix("_total") for each in METRICS}
    for each in METRICS:
        family = families[each.name.removesuffix("_total")]
        assert family.documentation == each.help
        assert bool(family.samples) == (each.part != "reason"), each.name  # it is no ingest
        assert all(tuple(sample.labels) == each.labels for sample in family.samples)
    [waiting] = families["strandline_waiting_rows"].samples
    assert (waiting.labels, waiting.value) == ({"query": 'by "time"'}, 0)
    by_transform = {each.labels["transform"]: each.value for each in families["strandline_transform_input_rows"].samples}
    assert by_transform == {"source": 0, "stage 1": 1, "stage 2": 1, "driver": 0}

    reader = InMemoryMetricReader()
    open_telemetry(reports, MeterProvider([reader]).get_meter("test"))
    data = json.loads(reader.get_metrics_data().to_json())  # type: ignore[union-attr]
    [scope] = data["resource_metrics"][0]["scope_metrics"]
    assert {each["name"]: each["unit"] for each in scope["metrics"]} == {
        each.name: each.unit for each in METRICS if each.part != "reason"
    }

    with SparkMetrics(reports, spark, interval=3600) as metrics:
        metrics.update()
        system = spark._jvm.org.apache.spark.SparkEnv.get().metricsSystem()

        def gauges() -> dict[str, float]:
            found = system.getSourcesByName(f"strandline.{_part(query.name, exact=True)}")
            if found.isEmpty():
                return {}
            registry = found.head().metricRegistry()
            return {key: registry.getGauges().get(key).getValue() for key in registry.getGauges()}

        now = gauges()
        assert now["waiting_rows"] == 0
        assert now["batch"] == 0
        assert now["transform_output_rows.stage_2"] == 1
        assert now["frontier_lag_seconds"] > 0
        query.stop()
        soon(lambda: True if not gauges() else None)  # a query that has ended has no figures in Spark


def test_several_outputs_have_a_frontier_each(spark: Any, tmp_path: Path, reports: ProgressReports) -> None:
    channel = make_channel(tmp_path / "in", int64)
    say(channel, "a", (1, 1), (2, 2), then=[5])
    say(channel, "b", then=[7])
    rows = stream(spark, tmp_path / "in")
    outputs = {
        "late": (advance(rows, 10), str(tmp_path / "late")),
        "counts": (rows.groupBy("time").count(), str(tmp_path / "counts")),
    }
    query = write_outputs(outputs).option("checkpointLocation", str(tmp_path / "c")).start()
    settle(query)
    last = committed(reports, query, 0).transforms["stage 2"]
    assert last.frontiers == {"late": Antichain(int64, [15]), "counts": Antichain(int64, [5])}
    assert last.output_elements_produced == {"rows": 4}
    assert last.consumed() == 4  # two rows, and two partial counts
    query.stop()


def test_a_query_of_several_plans_runs_on_with_reports(spark: Any, tmp_path: Path, reports: ProgressReports) -> None:
    """Deduplication, a hold and a limit by `availableNow`: the last batch is reported although its query has ended."""
    channel = make_channel(tmp_path / "in", int64)
    say(channel, "a", (1, 1), (1, 1), (2, 1), then=[5])
    say(channel, "b", then=[7])
    run(stream(spark, tmp_path / "in").dropDuplicates(["time", "n"]).select("time", "n"), tmp_path / "out", tmp_path / "c")
    [label] = soon(lambda: reports.labels() or None)
    report = reports.committed(label)
    assert report is not None
    assert report.unreported == ()
    last = [each for name, each in report.transforms.items() if name.startswith("stage")][-1]
    assert last.output_elements_produced == {"rows": 2}
    reports.forget(label)
    assert reports.labels() == []


def test_queries_whose_names_differ_in_what_a_metric_cannot_have_are_apart() -> None:
    names = ["a b", "a.b", "a_b", "a/b"]
    parts = {_part(name, exact=True) for name in names}
    assert len(parts) == len(names)
    assert all(re.fullmatch("[A-Za-z0-9_-]+", part) for part in parts)
