"""One query that writes several channels: the rows, frontiers and commits of each, kills in between, and what is refused."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from forked_runners import forking_python
from helpers import ROOT, make_channel, say
from outputs_query import later_and_sums
from pyspark_strandline import advance, project, route, truncate, write_outputs
from pyspark_strandline.operators.published import PublishedOutput
from pyspark_strandline.options import WriteOptions
from strandline import Antichain, int64, parse_domain
from strandline.channel import Channel
from strandline.delta.turn import turn
from strandline.errors import StrandlineError

pytestmark = pytest.mark.spark

PLACE = {"path": "/p", "column": "c", "fields": {"t": "t"}, "time": "t", "domain": "int64"}
PAIR = parse_domain("product(epoch int64, iter int64)")


def rows_of(spark: Any, path: Path, **options: Any) -> Any:
    return spark.readStream.format("strandline").options(**options).load(str(path))


def run(writer: Any, checkpoint: Path) -> Any:
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def read(path: Path) -> list[tuple[Any, ...]]:
    """The rows of a channel, sorted. A time of several coordinates is a tuple."""
    rows = Channel.open(path).read().to_pylist()
    return sorted(tuple(tuple(value.values()) if isinstance(value, dict) else value for value in row.values()) for row in rows)


def refused(condition: str, call: Callable[[], Any]) -> str:
    with pytest.raises(Exception, match=condition) as caught:
        call()
    return str(caught.value)


@pytest.mark.drawn
def test_each_output_has_its_own_rows_times_and_frontier(spark: Any, tmp_path: Path) -> None:
    """Raw rows at a later time, sums by exact time, counts of an epoch in another domain: each as a batch evaluation says."""
    channel = make_channel(tmp_path / "in", PAIR, producers=("a",))
    checkpoint = tmp_path / "checkpoint"

    def start() -> Any:
        rows = rows_of(spark, tmp_path / "in", maxFilesPerTrigger=1)
        sums = rows.groupBy("time").agg(F.sum("n").alias("total"))
        epochs = project(rows, "epoch").groupBy("time").count()
        outputs = {
            "later": (advance(rows.select("time", "n"), 1, "iter"), str(tmp_path / "later")),
            "sums": (sums, str(tmp_path / "sums")),
            "epochs": (epochs, str(tmp_path / "epochs")),
        }
        return run(write_outputs(outputs), checkpoint)

    say(channel, "a", ((0, 0), 1), ((0, 2), 2), ((1, 1), 3), then=[(0, 2), (1, 0)])
    query = start()
    assert len(query.lastProgress["sources"]) == 1
    assert read(tmp_path / "later") == [((0, 1), 1), ((0, 3), 2), ((1, 2), 3)]
    assert Channel.open(tmp_path / "later").frontier == Antichain(PAIR, [(0, 3), (1, 1)])
    assert read(tmp_path / "sums") == [((0, 0), 1)]
    assert Channel.open(tmp_path / "sums").frontier == Antichain(PAIR, [(0, 2), (1, 0)])
    assert read(tmp_path / "epochs") == []
    assert Channel.open(tmp_path / "epochs").frontier == Antichain(int64, [0])
    say(channel, "a", ((1, 5), 4), then=[(2, 0)])
    start()
    assert read(tmp_path / "later") == [((0, 1), 1), ((0, 3), 2), ((1, 2), 3), ((1, 6), 4)]
    assert Channel.open(tmp_path / "later").frontier == Antichain(PAIR, [(2, 1)])
    assert read(tmp_path / "sums") == [((0, 0), 1), ((0, 2), 2), ((1, 1), 3), ((1, 5), 4)]
    assert read(tmp_path / "epochs") == [(0, 2), (1, 2)]
    assert Channel.open(tmp_path / "epochs").frontier == Antichain(int64, [2])


@pytest.mark.drawn
def test_a_channel_gets_a_commit_only_when_something_changes_in_it(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))

    def start() -> None:
        rows = rows_of(spark, tmp_path / "in")
        outputs = {
            "raw": (rows.select("time", "n"), str(tmp_path / "raw")),
            "hundreds": (truncate(rows, 100).groupBy("time").count(), str(tmp_path / "hundreds")),
        }
        run(write_outputs(outputs), tmp_path / "checkpoint")

    versions = []
    for then in (3, 7, 99, 205):
        say(channel, "a", (then, 1), then=[then])
        start()
        versions.append((Channel.open(tmp_path / "raw").version, Channel.open(tmp_path / "hundreds").version))
    assert versions == [(1, 1), (2, 1), (3, 1), (4, 2)]
    assert read(tmp_path / "hundreds") == [(0, 3)]


@pytest.mark.drawn
def test_rows_go_where_they_say_and_the_plan_is_evaluated_once(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", *((t, t) for t in range(6)), then=[4])
    evaluated = spark.sparkContext.accumulator(0)

    @F.udf("array<string>")
    def places(n: int) -> list[str]:
        evaluated.add(1)
        return {0: [], 1: ["x"], 2: ["y"], 3: ["x", "y", "x"]}.get(n, ["y"])

    frame = rows_of(spark, tmp_path / "in").select("time", "n", places.asNondeterministic()("n").alias("to"))
    run(route(frame, "to", {"x": str(tmp_path / "x"), "y": str(tmp_path / "y")}), tmp_path / "checkpoint")
    assert read(tmp_path / "x") == [(1, 1), (3, 3)]
    assert read(tmp_path / "y") == [(2, 2), (3, 3), (4, 4), (5, 5)]
    assert Channel.open(tmp_path / "x").frontier == Channel.open(tmp_path / "y").frontier == Antichain(int64, [4])
    assert evaluated.value == 6
    text = rows_of(spark, tmp_path / "in").select("time", "n", F.when(F.col("n") < 3, "x").otherwise("y").alias("to"))
    run(route(text, "to", {"x": str(tmp_path / "x2"), "y": str(tmp_path / "y2")}), tmp_path / "checkpoint2")
    assert read(tmp_path / "x2") == [(n, n) for n in range(3)]
    assert read(tmp_path / "y2") == [(n, n) for n in range(3, 6)]
    for number, (to, n) in enumerate(((["x", "x"], 6), (["x"], 6), (["x"], 3))):
        names = F.when(F.col("n") < n, F.array(*map(F.lit, to))).otherwise(F.array().cast("array<string>"))
        same = rows_of(spark, tmp_path / "in").select("time", "n", names.alias("to"))
        run(route(same, "to", {"x": str(tmp_path / f"x-{number}")}), tmp_path / f"checkpoint-{number}")
        assert read(tmp_path / f"x-{number}") == [(each, each) for each in range(n)]


@pytest.mark.drawn
@pytest.mark.parametrize("value", [None, "z", ["x", "z"], [None]])
def test_a_row_that_goes_nowhere_by_mistake_fails_the_batch(spark: Any, tmp_path: Path, value: Any) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    kind = "array<string>" if isinstance(value, list) else "string"
    to = F.array(*map(F.lit, value)) if isinstance(value, list) else F.lit(value)
    frame = rows_of(spark, tmp_path / "in").withColumn("to", to.cast(kind))
    writer = route(frame, "to", {"x": str(tmp_path / "x"), "y": str(tmp_path / "y")})
    message = refused("STRANDLINE_OUTPUT_UNKNOWN", lambda: run(writer, tmp_path / "checkpoint"))
    assert "x, y" in message
    assert not (tmp_path / "x").exists() or not list((tmp_path / "x").rglob("*.parquet"))


def committed(folder: Path, name: str, version: int) -> bool:
    return (folder / name / "_delta_log" / f"{version:020d}.json").exists()


def until_between_two_commits(folder: Path, stop: Callable[[], None], check_alive: Callable[[], None]) -> None:
    """Wait until the first channel has a commit of a batch that the second has not, and ``stop``.

    The second channel's commit waits for its turn at the log meanwhile.
    """
    while not committed(folder, "sums", 1):
        check_alive()
        time.sleep(0.001)
    with turn(str(folder / "sums" / "_delta_log"), lambda: None):
        next_one = len(list((folder / "sums" / "_delta_log").glob("*.json")))
        while not committed(folder, "later", next_one):
            check_alive()
            time.sleep(0.001)
        stop()
        assert not committed(folder, "sums", next_one)


def four_times(path: Path) -> None:
    channel = make_channel(path, producers=("a",))
    for t in range(4):
        say(channel, "a", (t, 1), (t, 2), then=[t + 1])


def check_later_and_sums(folder: Path) -> None:
    assert read(folder / "later") == sorted((t + 10, n) for t in range(4) for n in (1, 2))
    assert read(folder / "sums") == [(t, 3) for t in range(4)]
    assert Channel.open(folder / "later").frontier == Antichain(int64, [14])
    assert Channel.open(folder / "sums").frontier == Antichain(int64, [4])


@pytest.mark.drawn
def test_what_a_kill_between_two_commits_leaves_loses_and_doubles_nothing(spark: Any, tmp_path: Path) -> None:
    """The files as they are at that moment are put back when the query is over, and it starts again from them."""
    folder, image = tmp_path / "run", tmp_path / "image"
    four_times(folder / "in")
    query = later_and_sums(spark, folder)

    def copy() -> None:
        shutil.copytree(folder, image, ignore=shutil.ignore_patterns("*.tmp"))

    def check_alive() -> None:
        assert query.exception() is None

    until_between_two_commits(folder, copy, check_alive)
    query.awaitTermination()
    check_later_and_sums(folder)
    shutil.rmtree(folder)
    image.rename(folder)
    later_and_sums(spark, folder).awaitTermination()
    check_later_and_sums(folder)


@pytest.mark.soak
def test_a_kill_between_two_commits_loses_and_doubles_nothing(tmp_path: Path) -> None:
    four_times(tmp_path / "in")
    command = [sys.executable, str(ROOT / "tests" / "support" / "outputs_query.py"), str(tmp_path)]
    environment = {**os.environ, "PYSPARK_PYTHON": forking_python()}
    log = tmp_path / "log"
    with log.open("wb") as out:
        query = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)

    def kill() -> None:
        os.killpg(query.pid, signal.SIGKILL)
        query.wait()

    def check_alive() -> None:
        assert query.poll() is None, log.read_text()[-4000:]

    until_between_two_commits(tmp_path, kill, check_alive)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    check_later_and_sums(tmp_path)


@pytest.mark.drawn
def test_what_does_not_fit_one_channel_is_written_to_none(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    make_channel(tmp_path / "other", producers=("query-x",))  # its columns are time, key and n
    rows = rows_of(spark, tmp_path / "in")
    outputs = {"good": (rows, str(tmp_path / "good")), "other": (rows.select("time", "n"), str(tmp_path / "other"))}
    refused("STRANDLINE_SCHEMA_MISMATCH", lambda: run(write_outputs(outputs), tmp_path / "checkpoint"))
    assert not (tmp_path / "good" / "_delta_log").exists()
    assert Channel.open(tmp_path / "other").version == 0


@pytest.mark.drawn
def test_a_channel_that_was_deleted_under_its_checkpoint_is_refused_for_all(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])

    def start() -> None:
        rows = rows_of(spark, tmp_path / "in")
        outputs = {name: (rows.select("time", "n"), str(tmp_path / name)) for name in ("x", "y")}
        run(write_outputs(outputs), tmp_path / "checkpoint")

    start()
    shutil.rmtree(tmp_path / "y")
    say(channel, "a", (3, 3), then=[4])
    refused("STRANDLINE_OUTPUT_MISSING", start)
    assert read(tmp_path / "x") == [(1, 1)]


@pytest.mark.drawn
def test_other_outputs_than_before_are_refused_and_their_order_does_not_matter(spark: Any, tmp_path: Path) -> None:
    """Spark finds an operator's state by its place in the plan: two aggregations would go on with each other's state."""
    channel = make_channel(tmp_path / "in", producers=("a",))

    def start(**named: str) -> None:
        rows = rows_of(spark, tmp_path / "in")
        kinds = {"most": F.max("n"), "least": F.min("n")}
        outputs = {name: (rows.groupBy("time").agg(kinds[kind].alias("n")), str(tmp_path / kind)) for name, kind in named.items()}
        run(write_outputs(outputs), tmp_path / "checkpoint")

    say(channel, "a", (1, 3), (1, 9), (5, 1), then=[2])
    start(most="most", least="least")
    say(channel, "a", (2, 4), (2, 8), then=[3])
    start(least="least", most="most")
    assert (read(tmp_path / "most"), read(tmp_path / "least")) == ([(1, 9), (2, 8)], [(1, 3), (2, 4)])
    say(channel, "a", (3, 4), then=[4])
    # These names would exchange the states of the two operators.
    assert "least, most" in refused("STRANDLINE_OUTPUTS_CHANGED", lambda: start(a="most", b="least"))
    refused("sources in the checkpoint", lambda: start(most="most"))  # Spark's own check
    start(most="most", least="least")
    assert (read(tmp_path / "most"), read(tmp_path / "least")) == ([(1, 9), (2, 8), (3, 4)], [(1, 3), (2, 4), (3, 4)])


def test_columns_of_nested_types_and_zones_are_written_as_they_are(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", parse_domain("timestamp"), producers=("a",))
    say(channel, "a", (1_000_000, 7), then=[2_000_000])
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        rows = rows_of(spark, tmp_path / "in").select(
            "time",
            F.array(F.struct(F.col("n").alias("x"), F.lit(None).cast("string").alias("y"))).alias("list"),
            F.create_map(F.lit("k"), F.col("n").cast("decimal(12,3)")).alias("map"),
            F.struct(F.col("time").alias("at")).alias("inner"),
            F.lit("2020-02-29").cast("date").alias("day"),
        )
        outputs = {"a": (rows, str(tmp_path / "a")), "b": (rows.select("time", "day"), str(tmp_path / "b"))}
        run(write_outputs(outputs), tmp_path / "checkpoint")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    [row] = Channel.open(tmp_path / "a").read().to_pylist()
    assert row["list"] == [{"x": 7, "y": None}]
    assert [(key, str(value)) for key, value in row["map"]] == [("k", "7.000")]
    assert row["time"] == row["inner"]["at"] == datetime.fromtimestamp(1, timezone.utc)
    assert (str(row["day"]), len(read(tmp_path / "b"))) == ("2020-02-29", 1)


def test_arguments_that_are_wrong_are_refused_at_the_call(spark: Any, tmp_path: Path) -> None:
    make_channel(tmp_path / "in", producers=("a",))
    rows = rows_of(spark, tmp_path / "in")
    path = str(tmp_path / "x")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    cases: list[tuple[str, Callable[[], Any]]] = [
        ("STRANDLINE_OUTPUTS_INVALID", lambda: write_outputs({})),
        ("STRANDLINE_OUTPUTS_INVALID", lambda: write_outputs({"": (rows, path)})),
        ("STRANDLINE_OUTPUTS_INVALID", lambda: write_outputs({"a": (rows, path), "b": (rows, path + "/")})),
        (
            "STRANDLINE_OUTPUTS_INVALID",
            lambda: write_outputs({"a": (rows, str(tmp_path / "real")), "b": (rows, str(tmp_path / "link"))}),
        ),
        ("STRANDLINE_NOT_A_STREAM", lambda: write_outputs({"a": (spark.range(1), path)})),
        ("STRANDLINE_TIME_COLUMN_MISSING", lambda: write_outputs({"a": (rows.select("n"), path)})),
        ("STRANDLINE_TIME_COLUMN_AMBIGUOUS", lambda: write_outputs({"a": (rows.withColumn("u", F.col("time")), path)})),
        ("STRANDLINE_OUTPUTS_INVALID", lambda: route(rows, "nowhere", {"a": path})),
        ("STRANDLINE_OUTPUTS_INVALID", lambda: route(rows, "n", {"a": path})),
        ("STRANDLINE_OUTPUTS_INVALID", lambda: route(rows, "key", {})),
    ]
    for condition, call in cases:
        with pytest.raises(StrandlineError) as caught:
            call()
        assert caught.value.condition == condition


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "x", '{"a": 1}', '{"a": {"path": "p"}}'),
        *(
            json.dumps({"a": {**PLACE, **wrong}})
            for wrong in ({"domain": 1}, {"path": ""}, {"fields": {}}, {"fields": {"t": 1}}, {"x": 1})
        ),
        json.dumps({"": PLACE}),
    ],
)
def test_the_option_is_refused_where_it_is_no_set_of_outputs(text: str) -> None:
    with pytest.raises(StrandlineError) as caught:
        WriteOptions.parse({"outputs": text})
    assert caught.value.condition == "STRANDLINE_OPTION_INVALID"
    with pytest.raises(StrandlineError, match="STRANDLINE_OPTION_CONFLICT"):
        WriteOptions.parse({"outputs": json.dumps({"a": PLACE}), "path": "/q"})


@pytest.mark.parametrize(
    ("published", "told"),
    [
        ({"outputs": {"a": {"error": "No column is a time."}}}, "Output a: No column is a time"),
        ({"error": "Output mode complete."}, "Output a: Output mode complete"),
        ({"outputs": {"b": {"domain": "int64", "end": [1]}}}, "no frontier for the output 'a'"),
    ],
)
def test_an_output_without_a_frontier_is_named(published: Any, told: str) -> None:
    with pytest.raises(StrandlineError, match="STRANDLINE_OUTPUT_FRONTIER_UNKNOWN") as caught:
        PublishedOutput.parse(json.dumps(published), {"a": int64})
    assert told in str(caught.value)


@pytest.mark.drawn
@pytest.mark.parametrize("name", ["outputs", "several-channels", "loops", "progress"])
def test_the_page_prints_what_it_says(spark: Any, name: str) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text()
    found = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    assert found
    names = {"__name__": "__main__"}  # so that workers get classes by value
    for code, said in found:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{name}.md", "exec"), names)  # noqa: S102 - the page is ours
        assert printed.getvalue() == said
