"""``meet`` over random streams, batches and restarts, beside its specification."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import meet_spec
from pyspark_strandline import meet, read_channels
from strandline.channel import Channel
from strandline.time.arrow import array_of, time_field, times_of
from strandline.time.domain import Time, TimeDomain, int64, lex, product

pytestmark = pytest.mark.spark
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
LEX, GRID = lex(tick=int64, i=int64), product(a=int64, b=int64)
Commit = tuple[list[meet_spec.Row], Time | None]


def channel(path: Path, domain: TimeDomain, at: Time) -> Channel:
    schema = pa.schema([time_field("time", domain), ("k", pa.string()), ("n", pa.int64())])
    return Channel.create(path, schema, producers=["p"], at=at)


def send(channel: Channel, commits: list[Commit]) -> None:
    with channel.producer("p") as producer:
        for rows, held in commits:
            if rows:
                times, keys, numbers = zip(*rows, strict=True)
                producer.send(
                    pa.table({"time": array_of(list(times), channel.domain), "k": pa.array(keys, pa.string()), "n": numbers})
                )
            producer.delay([] if held is None else [held])
            producer.commit()


def random_commits(r: random.Random, domain: TimeDomain, count: int) -> list[Commit]:
    """Commits of a producer whose capability advances along a random line. Its rows are at or after it."""
    width = max(1, len(domain.coordinates))
    at, commits = [0] * width, []

    def time(values: list[int]) -> Time:
        return tuple(values) if domain.coordinates else values[0]

    for number in range(count):
        rows = []
        for _ in range(r.randrange(6)):
            later = [a + r.randrange(3) for a in at]
            if domain == LEX and later[0] > at[0]:
                later[1] = r.randrange(3)
            rows.append((time(later), r.choice(["x", "y", "z", None]), r.randrange(3)))
        at[r.randrange(width)] += r.randrange(2)
        commits.append((rows, None if number == count - 1 else time(list(at))))
    return commits


def ran(frame: Any, folder: Path) -> None:
    writer = frame.writeStream.format("strandline").option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start(str(folder / "out")).awaitTermination()


def result(folder: Path) -> Counter[tuple[Any, ...]]:
    out = Channel.open(folder / "out")
    assert not out.frontier, "the result is not complete"
    rows = out.read()
    times = times_of(rows.column("time").combine_chunks(), out.domain)
    return Counter(zip(times, *(rows.column(name).to_pylist() for name in rows.column_names if name != "time"), strict=True))


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(24))
def test_what_meets_is_what_the_specification_says(spark: Any, tmp_path: Path, seed: int) -> None:
    r = random.Random(seed)
    domain, within = r.choice([(int64, 0), (LEX, 0), (LEX, 1), (GRID, 0), (GRID, 1)])
    how = r.choice(["inner", "inner", "left_semi", "left_anti"])
    if how == "left_semi" and domain == GRID:
        within = 1
    is_same = how == "inner" and r.random() < 0.3
    if seed % 2:
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
    names = ["left"] if is_same else ["left", "right"]
    sides = {name: random_commits(r, domain, 5) for name in names}
    for name in names:
        channel(tmp_path / name, domain, (0, 0) if domain.coordinates else 0)

    def frame() -> Any:
        limit = {"maxFilesPerTrigger": r.choice([1, 3, 100])}
        if is_same or r.random() < 0.5:
            streams = read_channels(spark, {name: tmp_path / name for name in names}, **limit)
            of = {name: streams[name] for name in names}
        else:
            of = {
                name: spark.readStream.format("strandline").option("maxFilesPerTrigger", 1).load(str(tmp_path / name))
                for name in names
            }
        right = of[names[-1]].withColumnRenamed("n", "m")
        outer = domain.coordinates[0][0] if within else None
        return meet(of["left"], right, "k", how=how, within=outer)  # type: ignore[arg-type]

    state = r.getstate()
    try:
        for part in (slice(0, 2), slice(2, None)):  # the query starts again in between
            for name in names:
                send(Channel.open(tmp_path / name), sides[name][part])
            r.setstate(state)
            ran(frame(), tmp_path)
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
    rows = {name: [row for commit, _ in commits for row in commit] for name, commits in sides.items()}
    assert result(tmp_path) == meet_spec.met(rows["left"], rows[names[-1]], domain, how, within), (domain, how, within)


@pytest.mark.drawn
@pytest.mark.parametrize("how", ["inner", "left_semi", "left_anti"])
def test_a_batch_without_rows_of_a_side_has_a_plan_without_it(spark: Any, tmp_path: Path, how: Any) -> None:
    """Columns that are never null, and two sources: Spark then plans a side alone."""
    commits: dict[str, list[Commit]] = {
        "left": [([(0, "x", 1), (0, None, 5)], 1), ([(1, "y", 2)], 3), ([(3, "x", 3)], 4), ([(4, "z", 4)], None)],
        "right": [([(1, "x", 7)], 2), ([(2, "y", 8)], 3), ([(3, "w", 9)], None)],
    }
    for name in commits:
        # On the left a key may be null, and on the right not.
        key = pa.field("k", pa.string(), nullable=name == "left")
        schema = pa.schema([time_field("time", int64), key, pa.field("n", pa.int64(), nullable=False)])
        Channel.create(tmp_path / name, schema, producers=["p"], at=0)
    done = dict.fromkeys(commits, 0)
    for name in ("left", "left", "right", "left", "right", "left", "right"):
        send(Channel.open(tmp_path / name), commits[name][done[name] : done[name] + 1])
        done[name] += 1
        of = {each: spark.readStream.format("strandline").load(str(tmp_path / each)) for each in commits}
        ran(meet(of["left"], of["right"].withColumnRenamed("n", "m"), "k", how=how), tmp_path)
    rows = {name: [row for commit, _ in each for row in commit] for name, each in commits.items()}
    assert result(tmp_path) == meet_spec.met(rows["left"], rows["right"], int64, how, 0)


@pytest.mark.drawn
def test_a_row_that_waits_sees_the_partner_of_the_batch_that_closes_its_tick(spark: Any, tmp_path: Path) -> None:
    """The partner's tick begins and ends in that batch, and rows of other keys come after it."""
    for name in ("left", "right"):
        channel(tmp_path / name, LEX, (0, 0))
    rows = [((0, 1), key, number) for number, key in enumerate("abcdefgh")]
    partners = [((0, 0), key, 0) for key in "abcdefg"]
    for commits in ({"left": [(rows, (0, 0))]}, {"left": [([], None)], "right": [(partners, None)]}):
        for name, some in commits.items():
            send(Channel.open(tmp_path / name), some)  # type: ignore[arg-type]
        streams = read_channels(spark, {name: tmp_path / name for name in ("left", "right")})
        ran(meet(streams["left"], streams["right"].withColumnRenamed("n", "m"), "k", how="left_anti", within="tick"), tmp_path)
    assert result(tmp_path) == meet_spec.met(rows, partners, LEX, "left_anti", 1) == Counter([((0, 1), "h", 7)])
