"""Loops through several queries: random loops against plain Python, either of two drivers killed, and what is refused."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import functions as F

import loop_plans
from forked_runners import forking_python
from helpers import ROOT, contents, settings
from loop_lake import all_rows, finish, make_lake
from loop_plans import FLAT, LoopPlan, create, results, send, start_part
from pyspark_strandline import Processor, advance, process, project, read_loop, read_scope
from strandline.channel import Channel
from strandline.loop import LoopQuery
from strandline.scope import Scope
from strandline.time.antichain import Antichain
from strandline.time.arrow import time_field
from strandline.time.domain import int64
from strandline.time.path.entry import Entry

pytestmark = pytest.mark.spark
for _module in (sys.modules[__name__], loop_plans):
    cloudpickle.register_pickle_by_value(_module)  # Spark's workers do not find what the tests import


LAST = 2**63 - 1


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return make_lake(tmp_path)


def check_parts(spark: Any, folder: Path, seed: int) -> None:
    """Run a random loop as two queries beside each other, phase after phase, until what is held outside holds everything."""
    plan = LoopPlan.of(seed)
    create(folder, plan)
    entry, at = Entry(int64, plan.domain), 0
    with settings(spark, plan.settings):
        for number, phase in enumerate(plan.phases):
            at = send(folder, phase, at)
            rest = Antichain(plan.domain, [entry.time(at)])
            queries = {part: start_part(spark, folder, plan, part) for part in ("body", "onward")}
            before_round: list[int] = []
            while (now := batches(folder, queries)) != before_round:
                before_round = now
                for query in (queries["body"], queries["onward"], queries["body"]):
                    query.processAllAvailable()  # raises if the query has failed
            for query in queries.values():
                query.stop()
            assert Channel.open(folder / "seen").frontier == rest
            so_far = LoopPlan(**{**plan.__dict__, "phases": plan.phases[: number + 1]})
            assert results(folder) == so_far.seen(rest), (plan, number)


def batches(folder: Path, parts: Iterable[str], prefix: str = "checkpoint-") -> list[int]:
    """Return how many batches each query has planned."""
    return [len(list((folder / f"{prefix}{part}").glob("offsets/[0-9]*"))) for part in parts]


@pytest.mark.drawn
@pytest.mark.parametrize("seed", [14, pytest.param(53, marks=pytest.mark.soak)])
def test_random_loops_through_two_queries_are_exact_and_come_to_rest(spark: Any, tmp_path: Path, seed: int) -> None:
    check_parts(spark, tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3000, 3050))
def test_many_random_loops_through_two_queries(spark: Any, tmp_path: Path, seed: int) -> None:
    check_parts(spark, tmp_path, seed)


def check_part_kills(folder: Path, seed: int, kills: int) -> None:
    """Run a random loop as two queries in processes of their own. One of them is killed again and again, and comes back."""
    plan, draw, at = LoopPlan.of(seed), random.Random(seed), 0
    create(folder, plan)
    for phase in plan.phases:
        at = send(folder, phase, at)
    rest = Antichain(plan.domain, [Entry(int64, plan.domain).time(at)])
    running: dict[str, subprocess.Popen[bytes]] = {}
    environment = {**os.environ, "PYSPARK_PYTHON": forking_python()}

    def begin(part: str) -> None:
        command = [sys.executable, str(ROOT / "tests" / "support" / "loop_query.py"), str(folder), str(seed), part]
        with (folder / f"log-{part}").open("wb") as out:
            running[part] = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)

    def commits(names: Iterable[str]) -> int:
        return sum(len(list((folder / name / "_delta_log").glob("*.json"))) for name in names)

    def wait(until: Callable[[], bool], every: float) -> None:
        end = time.monotonic() + 300
        while not until():
            for part, process in running.items():
                assert process.poll() is None, (folder / f"log-{part}").read_text()[-4000:]
            assert time.monotonic() < end, "nothing happens"
            time.sleep(every)

    def is_at_rest() -> bool:
        return Channel.exists(folder / "seen") and Channel.open(folder / "seen").frontier == rest

    try:
        begin("body")
        begin("onward")
        for _ in range(kills):
            part = draw.choice(list(running))
            names = ("seen", "there") if part == "body" else tuple(plan.onward_by)
            goal = commits(names) + draw.randint(1, 3)
            wait(lambda: commits(names) >= goal or is_at_rest(), every=0.05)  # noqa: B023
            os.killpg(running[part].pid, signal.SIGKILL)
            running[part].wait()
            begin(part)
        wait(is_at_rest, every=0.2)  # each look opens a channel
    finally:
        for process in running.values():
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert results(folder) == plan.seen(rest)


@pytest.mark.drawn
def test_either_of_two_queries_may_die_and_come_back(tmp_path: Path) -> None:
    check_part_kills(tmp_path, 25, kills=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4000, 4010))
def test_either_of_two_queries_dies_many_times(tmp_path: Path, seed: int) -> None:
    check_part_kills(tmp_path, seed, kills=4)


TWO = {"ask": LoopQuery(["numbers", "back"], {"there": {}}), "answer": LoopQuery(["there"], {"back": {"iter": 1}})}


def loop_of_two(spark: Any, lake: Path, query: str, queries: dict[str, LoopQuery] = TWO, **options: Any) -> Any:
    paths = {name: str(lake / name) for name in ("numbers", "there", "back")}
    return read_loop(spark, paths, queries=queries, query=query, domain=FLAT, **options)


@pytest.fixture
def lake_of_two(tmp_path: Path) -> Path:
    lake = make_lake(tmp_path, first=2)
    Channel.create(lake / "there", pa.schema([time_field("time", FLAT), ("n", pa.int64())]), producers=["ask"])
    return lake


def ask(spark: Any, lake: Path, checkpoint: str = "ask", **options: Any) -> Any:
    loop = loop_of_two(spark, lake, "ask", **options)
    outputs = {"there": all_rows(loop), "seen": (all_rows(loop), str(lake / "seen"))}
    return finish(loop.write(outputs), lake / checkpoint)


def answer(spark: Any, lake: Path, checkpoint: str = "answer", **options: Any) -> Any:
    loop = loop_of_two(spark, lake, "answer", **options)
    fewer = loop["there"].where("n > 0").withColumn("n", F.col("n") - 1)
    return finish(loop.write({"back": fewer}), lake / checkpoint)


@pytest.mark.drawn
def test_two_queries_may_run_in_turns_and_stop_when_nothing_goes_round(spark: Any, lake_of_two: Path) -> None:
    lake, before = lake_of_two, [-1, -1]
    while before != (now := batches(lake, ["ask", "answer"], "")):
        before = now
        ask(spark, lake)
        answer(spark, lake)
    assert contents(lake / "seen") == [((0, i), 2 - i) for i in range(3)]
    for name in ("seen", "there"):
        assert Channel.open(lake / name).frontier == Antichain(FLAT, [(1, 0)])
    assert Channel.open(lake / "back").frontier == Antichain(FLAT, [(1, 1)])
    for name in ("numbers", "there", "back", "seen") * 2:  # two nights later they have nothing to do, and start again
        DeltaTable(str(lake / name)).optimize.compact()
        Channel.open(lake / name).clean_log(timedelta(0))
    ask(spark, lake)
    answer(spark, lake)
    assert batches(lake, ["ask", "answer"], "") == now


@pytest.mark.drawn
def test_two_queries_of_a_scope_run_around_its_cycle(spark: Any, lake_of_two: Path) -> None:
    lake = lake_of_two
    scope = Scope.create(lake / "scope", FLAT)
    for name in ("numbers", "there", "back"):
        scope.add_channel(name, lake / name)
    scope.add_query("ask", reads=["numbers", "back"], writes={"there": {}})
    scope.add_query("answer", reads=["there"], writes={"back": {"iter": 1}})
    for _ in range(4):
        loop = read_scope(spark, Scope.open(lake / "scope"), "ask")
        finish(loop.write({"there": all_rows(loop), "seen": (all_rows(loop), str(lake / "seen"))}), lake / "ask")
        loop = read_scope(spark, scope, "answer")
        fewer = loop["there"].where("n > 0").withColumn("n", F.col("n") - 1)
        finish(loop.write({"back": fewer}), lake / "answer")
    assert contents(lake / "seen") == [((0, i), 2 - i) for i in range(3)]
    assert scope.frontiers() == {
        "numbers": Antichain(int64, [1]),
        "there": Antichain(FLAT, [(1, 0)]),
        "back": Antichain(FLAT, [(1, 1)]),
    }


@pytest.mark.drawn
def test_what_does_not_fit_the_other_query_is_refused(spark: Any, lake_of_two: Path) -> None:
    lake = lake_of_two
    ask(spark, lake)
    other = {**TWO, "answer": LoopQuery(["there"], {"back": {"iter": 2}})}
    for condition, run in (
        ("STRANDLINE_LOOP_QUERY_DIFFERS.*another definition", lambda: answer(spark, lake, queries=other)),
        ("STRANDLINE_CHECKPOINT_MISMATCH", lambda: ask(spark, lake, queries=other)),
        ("STRANDLINE_LOOP_CHANNEL_USED.*channel there", lambda: ask(spark, lake, checkpoint="another")),
    ):
        with pytest.raises(Exception, match=condition):
            run()
    there = Channel.open(lake / "there")
    state = there.progress.producers["ask"].state
    for damaged in (3, {**state["loop"], "held": {"back": []}}, {**state["loop"], "consumed": {"back": -1}}):
        there.append([], statements={"ask": there.frontier}, states={"ask": {**state, "loop": damaged}}, take_over=True)
        with pytest.raises(Exception, match="STRANDLINE_LOOP_STATE_INVALID"):
            answer(spark, lake, checkpoint=f"answer-{damaged}"[:12])
    there.append([], statements={"ask": there.frontier}, states={"ask": state}, take_over=True)
    answer(spark, lake)
    shutil.rmtree(lake / "back")
    Channel.create(lake / "back", pa.schema([time_field("time", FLAT), ("n", pa.int64())]), producers=["loop"])
    with pytest.raises(Exception, match="STRANDLINE_CHECKPOINT_MISMATCH"):
        ask(spark, lake)


class AtTheEnd(Processor):
    """Counts the rows of an epoch, and emits the count when nothing can come round to it any more."""

    schema = "n bigint"
    state_schema = "n bigint"

    def on_rows(self, time: Any, rows: pa.Table) -> None:
        self.state = {"n": (self.state or {"n": 0})["n"] + rows.num_rows}
        self.notify_at((time[0], LAST))

    def on_notify(self, time: Any) -> None:
        assert self.state is not None
        self.emit(time, [{"n": self.state["n"]}])


@pytest.mark.drawn
@pytest.mark.parametrize("where", ["counted", pytest.param("there", marks=pytest.mark.soak)])
def test_a_processor_acts_at_the_last_time_of_a_loop_through_queries(spark: Any, lake_of_two: Path, where: str) -> None:
    """Its query advances no times, but the other one does. What it emits then is a result, and cannot go round."""
    lake = lake_of_two

    def count() -> None:
        loop = loop_of_two(spark, lake, "ask")
        rows = all_rows(loop)
        ends = process(rows.withColumn("k", F.lit(1)), AtTheEnd(), key="k").select("time", "n")
        if where == "there":
            finish(loop.write({"there": rows.union(ends)}), lake / "ask")
        else:
            finish(loop.write({"there": rows, "counted": (project(ends, "epoch"), str(lake / "counted"))}), lake / "ask")

    def run() -> None:
        for _ in range(3):
            count()
            loop = loop_of_two(spark, lake, "answer")
            finish(loop.write({"back": loop["there"].where("n = 2").withColumn("n", F.col("n") - 1)}), lake / "answer")

    if where == "there":
        with pytest.raises(Exception, match=f"STRANDLINE_TIME_OVERFLOW.*there is at .*{LAST}.*only write results"):
            run()
    else:
        run()
        assert contents(lake / "counted") == [(0, 2)]


@pytest.mark.drawn
def test_a_query_that_joins_a_loop_of_one_query_is_refused_with_what_happened(spark: Any, lake: Path) -> None:
    """A loop has one definition for its life. Its checkpoint says so, and so does the query that joins it."""
    scope = Scope.create(lake / "scope", FLAT)
    Channel.create(lake / "there", pa.schema([time_field("time", FLAT), ("n", pa.int64())]), producers=["other"])
    for name in ("numbers", "back", "there"):
        scope.add_channel(name, lake / name)
    scope.add_query("fewer", reads=["numbers", "back"], writes={"back": {"iter": 1}})

    def run(query: str, writes: str) -> None:
        loop = read_scope(spark, scope, query)
        rows = all_rows(loop) if query == "fewer" else loop["back"]
        finish(loop.write({writes: rows.where("n > 3").withColumn("n", F.col("n") - 1)}), lake / query)

    run("fewer", "back")
    scope.add_query("other", reads=["back"], writes={"there": {}})
    with pytest.raises(Exception, match="STRANDLINE_CHECKPOINT_MISMATCH.*loop of one query.*fewer, other.*new channels"):
        run("fewer", "back")
    with pytest.raises(Exception, match="STRANDLINE_LOOP_QUERY_DIFFERS.*'fewer'.*the only query of its loop.*new channels"):
        run("other", "there")


@pytest.mark.drawn
def test_a_query_that_is_left_alone_in_its_loop_is_refused_with_what_happened(spark: Any, lake_of_two: Path) -> None:
    lake = lake_of_two
    ask(spark, lake)
    with pytest.raises(Exception, match="STRANDLINE_CHECKPOINT_MISMATCH.*loop of several queries.*queries ask"):
        ask(spark, lake, queries={"ask": TWO["ask"]})


@pytest.mark.drawn
def test_an_output_that_another_query_of_the_loop_reads_is_declared(spark: Any, lake_of_two: Path) -> None:
    lake = lake_of_two
    Channel.create(lake / "extra", pa.schema([time_field("time", FLAT), ("n", pa.int64())]), producers=["ask"])
    queries = {**TWO, "answer": LoopQuery(["there", "extra"], {"back": {"iter": 1}})}
    paths = {name: str(lake / name) for name in ("numbers", "there", "back", "extra")}
    loop = read_loop(spark, paths, queries=queries, query="ask", domain=FLAT)
    writer = loop.write({"there": all_rows(loop), "extra": (all_rows(loop), str(lake / "extra"))})
    with pytest.raises(Exception, match="STRANDLINE_LOOP_UNDECLARED.*extra"):
        finish(writer, lake / "ask")


@pytest.mark.drawn
def test_a_channel_of_the_loop_that_the_plain_sink_writes_has_the_state_too(spark: Any, lake_of_two: Path) -> None:
    ask(spark, lake_of_two)
    fewer = advance(loop_of_two(spark, lake_of_two, "answer")["there"], {"iter": 1})
    writer = fewer.writeStream.format("strandline").option("path", str(lake_of_two / "back")).option("producer", "loop")
    finish(writer, lake_of_two / "answer")
    assert Channel.open(lake_of_two / "back").progress.producers["loop"].state["loop"]["query"] == "answer"


@pytest.mark.drawn
def test_a_channel_of_the_loop_with_two_producers_is_refused(spark: Any, lake: Path) -> None:
    schema = pa.schema([time_field("time", FLAT), ("n", pa.int64())])
    Channel.create(lake / "there", schema, producers=["ask", "stranger"])
    with pytest.raises(Exception, match="STRANDLINE_LOOP_TWO_WRITERS.*stranger"):
        answer(spark, lake)


@pytest.mark.parametrize(
    ("query", "queries", "condition"),
    [
        ("nobody", TWO, "STRANDLINE_OPTION_INVALID.*ask, answer"),
        (None, TWO, "STRANDLINE_OPTION_INVALID"),
        ("ask", {"ask": LoopQuery(["numbers"], {"their": {}})}, "STRANDLINE_OPTION_INVALID.*their"),
        ("ask", {**TWO, "reader": LoopQuery(["back"], {})}, None),
        ("reader", {**TWO, "reader": LoopQuery(["back"], {})}, "STRANDLINE_OPTION_INVALID"),
        ("ask", {**TWO, "answer": LoopQuery(["there"], {"back": {}})}, "STRANDLINE_GRAPH_CYCLE.*ask → answer|answer → ask"),
        ("ask", {**TWO, "third": LoopQuery(["numbers"], {"back": {"iter": 1}})}, "STRANDLINE_SCOPE_TWO_WRITERS"),
        ("ask", {**TWO, "answer": LoopQuery(["them"], {"back": {"iter": 1}})}, "STRANDLINE_SCOPE_CHANNEL_UNKNOWN"),
    ],
)
def test_queries_that_make_no_loop_are_refused(
    spark: Any, lake_of_two: Path, query: str, queries: dict[str, LoopQuery], condition: str | None
) -> None:
    if condition is None:
        loop_of_two(spark, lake_of_two, query, queries)
        return
    with pytest.raises(Exception, match=condition):
        loop_of_two(spark, lake_of_two, query, queries)


@pytest.mark.drawn
def test_the_bound_on_rounds_holds_for_two_queries(spark: Any, lake_of_two: Path) -> None:
    for _ in range(2):
        ask(spark, lake_of_two)
        answer(spark, lake_of_two)
    with pytest.raises(Exception, match=r"STRANDLINE_LOOP_UNBOUNDED.*go round: \(epoch=0, iter=2\)\. They"):
        ask(spark, lake_of_two, maxRounds=1)
