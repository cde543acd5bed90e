"""``replay_loop``: a recorded loop runs again exactly, and what comes round is compared with the recording."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from helpers import settings
from pyspark_strandline import read_loop
from pyspark_strandline.replay import replay_loop
from pyspark_strandline.replay.folder import ReplayFolder
from pyspark_strandline.replay.links import ReplayedLinks
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.replay import CLOCK, ORIGINAL, Timestamper, assert_same, recorded
from strandline.time.arrow import array_of, time_field, times_of

pytestmark = pytest.mark.spark

MS = 1000
LAG = 100 * MS
SCHEMA = pa.schema([time_field("time", CLOCK), ("hops", pa.int64()), ("value", pa.int64())])
FEEDBACK = {"back": {"instant": "100 milliseconds"}}
Body = Callable[[Any], dict[str, Any]]


def body(factor: int = 3, wrong_from: int | None = None) -> Body:
    """Rows with hops come round, equal ones at one time as their sum; ``wrong_from`` an instant, with another factor."""

    def made(loop: Any) -> dict[str, Any]:
        rows = loop["in"].unionByName(loop["back"]).groupBy("time", "hops").agg(F.sum("value").alias("value"))
        by = F.lit(factor)
        if wrong_from is not None:
            by = F.when(F.unix_micros(F.col("time").getField("instant")) >= wrong_from, 5).otherwise(factor)
        again = rows.where("hops > 0").select(
            "time", (F.col("hops") - 1).alias("hops"), (F.col("value") * by % 101).alias("value")
        )
        return {"back": again, "out": rows.where("hops = 0")}

    return made


def record_outside(path: Path, seed: int, count: int) -> None:
    draw = random.Random(seed)
    shown = [0]
    channel = Channel.create(path, SCHEMA)
    with Timestamper(channel, "in", clock=lambda: shown[-1]) as node:
        channel.seal()
        for _ in range(count):
            shown.append(shown[-1] + draw.choice([0, 1, 10 * MS, 50 * MS, 100 * MS, 250 * MS]))
            node.send(pa.table({"hops": [draw.randint(0, 3)], "value": [draw.randint(0, 99)]}))
            if draw.random() < 0.3:
                node.commit()
        node.drop()


def record_loop(spark: Any, folder: Path, way: Any, seed: int = 7, count: int = 10) -> dict[str, str]:
    """Record a loop in ``folder``, and return the paths of its channels."""
    record_outside(folder / "in", seed, count)
    Channel.create(folder / "back", recorded(SCHEMA), producers=["loop"])
    channels = {name: str(folder / name) for name in ("in", "back")}
    loop = read_loop(spark, channels, feedback=FEEDBACK, domain=CLOCK, record=way, maxFilesPerTrigger=2)
    made = body()(loop)
    writer = loop.write({"back": made["back"], "out": (made["out"], folder / "out")})
    with settings(spark, {"spark.sql.shuffle.partitions": "2"}):
        writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    return channels


def kept(*paths: str) -> list[Any]:
    return [(Channel.open(path).version, Channel.open(path).read().num_rows) for path in paths]


@pytest.mark.drawn
@pytest.mark.parametrize("way", ["clock", "earliest"])
def test_a_replay_is_the_recorded_run(spark: Any, tmp_path: Path, way: Any) -> None:
    channels = record_loop(spark, tmp_path, way)
    before = kept(*channels.values())
    for files, partitions in ((1, 1), (100, 3)):
        with settings(spark, {"spark.sql.shuffle.partitions": str(partitions)}):
            into = tmp_path / f"again{files}"
            found = replay_loop(spark, channels, body(), into, feedback=FEEDBACK, record=way, maxFilesPerTrigger=files)
        assert found.equal
        assert found.links["back"].rows_a == found.links["back"].rows_b > 5
        assert_same(tmp_path / "out", found.outputs["out"], until=[])
    assert kept(*channels.values()) == before


@pytest.mark.drawn
def test_where_a_changed_program_diverges_is_said_and_the_replay_can_go_on_from_there(spark: Any, tmp_path: Path) -> None:
    channels = record_loop(spark, tmp_path, "earliest")
    rows = Channel.open(channels["back"]).read()
    instants = sorted(time[0] for time in times_of(rows.column(ORIGINAL), CLOCK))
    wrong_from = instants[len(instants) // 2]

    def again(name: str, how: Any) -> Any:
        into = tmp_path / name
        return replay_loop(spark, channels, body(3, wrong_from), into, feedback=FEEDBACK, record="earliest", on_divergence=how)

    with pytest.raises(StrandlineError, match="STRANDLINE_REPLAY_DIVERGED") as error:
        again("abort", "abort")
    reported = again("report", "report")
    link, first = reported.first
    assert link == "back"
    assert first[0] >= wrong_from
    assert CLOCK.format(first) in str(error.value)
    assert "in the replay is not what" in str(error.value)
    restamped = again("restamp", "restamp")
    assert restamped.restamped == first
    new = Channel.open(tmp_path / "restamp" / "restamped" / "back").read()
    for at, original in zip(times_of(new.column("time"), CLOCK), times_of(new.column(ORIGINAL), CLOCK), strict=True):
        assert original >= first
        assert original[0] < at[0] <= original[0] + LAG
    old = [(at, row) for at, row in values(tmp_path / "out") if at < first]
    assert [(at, row) for at, row in values(Path(restamped.outputs["out"])) if at < first] == old


def values(path: Path) -> list[Any]:
    table = Channel.open(path).read()
    return sorted(zip(times_of(table.column("time"), CLOCK), table.column("value").to_pylist(), strict=True))


@pytest.mark.drawn
def test_what_cannot_be_replayed_is_refused_by_name(spark: Any, tmp_path: Path) -> None:
    channels = record_loop(spark, tmp_path, "earliest", count=2)
    for changed, options, condition in (
        ({}, {"on_divergence": "ignore"}, "STRANDLINE_OPTION_INVALID"),
        ({"back": channels["in"]}, {}, "STRANDLINE_COLUMN_MISSING"),
        ({}, {"into": tmp_path}, "STRANDLINE_REPLAY_FOLDER"),
        ({}, {"body": lambda loop: {"out": loop["in"]}}, "STRANDLINE_REPLAY_OUTPUTS"),
        ({}, {"body": lambda loop: {**body()(loop), "../evil": loop["in"]}}, "STRANDLINE_PIPELINE_INVALID"),
        ({}, {"body": lambda loop: loop.write({"back": loop["in"]})}, "STRANDLINE_PIPELINE_WRITES"),
    ):
        given = {"body": body(), "into": tmp_path / "again" / condition, **options}
        with pytest.raises(StrandlineError) as error:
            replay_loop(spark, {**channels, **changed}, given.pop("body"), given.pop("into"), feedback=FEEDBACK, **given)
        assert error.value.condition == condition


@pytest.mark.drawn
def test_a_replay_goes_on_only_if_it_is_said_that_the_program_is_the_same(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = record_loop(spark, tmp_path, "earliest", count=4)

    def again(made: Body, paths: dict[str, str] = channels, by: Any = "100 milliseconds", **options: Any) -> bool:
        feedback = {"back": {"instant": by}}
        return bool(replay_loop(spark, paths, made, tmp_path / "again", feedback=feedback, record="earliest", **options).equal)

    with pytest.raises(StrandlineError, match="STRANDLINE_REPLAY_OUTPUTS"):
        again(lambda loop: {"out": loop["in"]})
    assert again(body())  # no query has run with the other function
    with pytest.raises(StrandlineError, match=r"STRANDLINE_REPLAY_FOLDER.*started at 20.* and has ended at 20.*resume=True"):
        again(body())
    monkeypatch.chdir(tmp_path)
    relative = {name: str(Path(path).relative_to(tmp_path)) for name, path in channels.items()}
    assert again(body(), relative, timedelta(milliseconds=100), maxFilesPerTrigger=1, resume=True)
    for paths, by in (({**channels, "in": channels["back"]}, "100 milliseconds"), (channels, "101 milliseconds")):
        with pytest.raises(StrandlineError, match=r"STRANDLINE_REPLAY_FOLDER.*has a replay with another (channels|feedback)"):
            again(body(), paths, by, resume=True)


def test_the_folder_says_whether_a_replay_has_ended(tmp_path: Path) -> None:
    def refusal() -> str:
        with pytest.raises(StrandlineError) as error:
            ReplayFolder(tmp_path / "again").begin({"part": 1}, resume=False)
        return str(error.value)

    folder = ReplayFolder(tmp_path / "again")
    for _ in range(2):
        folder.begin({"part": 1}, resume=False)
    folder.started()
    assert "has not ended" in refusal()
    folder.ended()
    assert "has ended at 20" in refusal()
    folder.begin({"part": 1}, resume=True)
    folder.started()
    assert "has not ended" in refusal()
    assert [folder.kept("restamped", each) for each in ([1, 0, 0], [2, 0, 0])] == [[1, 0, 0]] * 2


@pytest.mark.drawn
def test_no_time_of_a_recording_is_given_again(spark: Any, tmp_path: Path) -> None:
    """Rows from outside at one instant come round at one instant: those that were recorded keep their numbers."""
    channel = Channel.create(tmp_path / "in", SCHEMA)
    with Timestamper(channel, "in", clock=lambda: 1000 * MS) as node:
        channel.seal()
        node.send(pa.table({"hops": [1, 1], "value": [10, 25]}))
        node.drop()
    Channel.create(tmp_path / "back", recorded(SCHEMA), producers=["loop"])
    channels = {name: str(tmp_path / name) for name in ("in", "back")}

    def made(second: int) -> Body:
        def body(loop: Any) -> dict[str, Any]:
            value = F.when(F.col("value") == 25, second).otherwise(F.col("value")).alias("value")
            return {
                "back": loop["in"].select("time", "hops", value),
                "out": loop["back"].groupBy("time").agg(F.sum("value").alias("value")),
            }

        return body

    loop = read_loop(spark, channels, feedback=FEEDBACK, domain=CLOCK, record="earliest")
    writer = loop.write({name: each if name == "back" else (each, tmp_path / name) for name, each in made(25)(loop).items()})
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    found = replay_loop(
        spark, channels, made(26), tmp_path / "again", feedback=FEEDBACK, record="earliest", on_divergence="restamp"
    )
    assert found.restamped == (1000 * MS, 0, 1)
    rows = Channel.open(found.outputs["out"]).read()
    assert sorted(rows["value"].to_pylist()) == [10, 26]


def test_a_look_compares_links_up_to_one_frontier(tmp_path: Path) -> None:
    """One link of a running replay may be farther than another, which differs at a lesser time then."""

    def write(path: Path, values: list[int], until: int) -> None:
        channel = Channel.create(path, SCHEMA, producers=["loop"])
        with channel.producer("loop") as loop:
            times = array_of([(at * MS, 0, 0) for at in range(len(values))], CLOCK)
            loop.send(pa.table({"time": times, "hops": values, "value": values}, schema=SCHEMA))
            loop.delay([(until * MS, 0, 0)])

    for name in ("a", "b"):
        write(tmp_path / "recorded" / name, [0, 1, 2, 3, 4], 5)
    write(tmp_path / "mine" / "a", [0, 1, 2, 7, 4], 5)
    sides = {name: Channel.open(tmp_path / "recorded" / name) for name in ("a", "b")}
    links = ReplayedLinks(sides, [], {}, tmp_path / "mine", 3, None)
    assert links.look() == {}
    write(tmp_path / "mine" / "b", [0, 1, 7], 2)
    assert [each.equal for each in links.look().values()] == [True, True]
    with Channel.open(tmp_path / "mine" / "b").producer("loop") as loop:
        loop.delay([(5 * MS, 0, 0)])
    found = links.look()
    assert {name: each.first for name, each in found.items()} == {"a": (3 * MS, 0, 0), "b": (2 * MS, 0, 0)}
