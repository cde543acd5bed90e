"""Random programs on Spark, beside the same programs in one process."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import random_programs
from pyspark_strandline import evaluate
from strandline.channel import Channel
from strandline.program import Program
from strandline.program.schema import parse_ddl
from strandline.time.arrow import time_field
from strandline.time.domain import int64

pytestmark = pytest.mark.spark
LAST = 13
Held = dict[str, dict[int, set[tuple[Any, ...]]]]


def drawn(seed: int) -> tuple[random_programs.Draft, Program, Held]:
    """The next program from a seed on that has rules and comes to rest, and what its relations hold."""
    while True:
        draft, _ = random_programs.mended(random_programs.draw(seed))
        program = draft.build()
        want = program.run(draft.facts, last=LAST)
        if want and all(tick < LAST for held in want.values() for tick in held):
            return draft, program, want
        seed += 100_000


def channels(folder: Path, draft: random_programs.Draft) -> dict[str, Channel]:
    found = {}
    for each in draft.relations:
        if each.is_input:
            schema = pa.schema([time_field("at", int64), *parse_ddl(each.schema)])
            found[each.name] = Channel.create(folder / each.name, schema, time="at", producers=["p"], at=0)
    return found


def send(r: random.Random, channels: dict[str, Channel], draft: random_programs.Draft, ticks: range) -> None:
    """Each tick's rows in commits of some rows, the ticks in any order, of which some come late."""
    for name, channel in channels.items():
        facts = draft.facts.get(name, {})
        rows = [(tick, row) for tick in ticks for row in facts.get(tick, [])]
        r.shuffle(rows)
        with channel.producer("p") as producer:
            while rows:
                some, rows = rows[: (count := r.randrange(1, 6))], rows[count:]
                columns = channel.schema.names[1:]
                values = {column: pa.array([row[at] for _, row in some], pa.int64()) for at, column in enumerate(columns)}
                producer.send(pa.table({"at": [tick for tick, _ in some], **values}))
                least = min([tick for tick, _ in rows], default=ticks.stop)
                producer.delay([least])
                producer.commit()
            producer.delay([] if ticks.stop > random_programs.LAST else [ticks.stop])


def held(folder: Path, relation: str) -> dict[int, set[tuple[Any, ...]]]:
    channel = Channel.open(folder / "out" / relation)
    assert not channel.frontier, f"{relation} is not complete"
    found: dict[int, set[tuple[Any, ...]]] = {}
    for row in channel.read().to_pylist():
        tick, values = row.pop("time"), tuple(row.values())
        assert values not in found.setdefault(tick, set()), f"{relation} has {values} twice at {tick}"
        found[tick].add(values)
    return found


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(20))
def test_a_program_on_spark_holds_what_it_holds_in_one_process(spark: Any, tmp_path: Path, seed: int) -> None:
    r, partitions = random.Random(seed), spark.conf.get("spark.sql.shuffle.partitions")
    draft, program, want = drawn(seed)
    inputs = channels(tmp_path, draft)
    buffering = r.choice(["none", "none", "stratum", "tick"])
    limit = r.choice([1, 3, 100])
    cut = r.randrange(1, random_programs.LAST + 1)
    for ticks in (range(cut), range(cut, random_programs.LAST + 1)):  # the query starts again in between
        send(r, inputs, draft, ticks)
        spark.conf.set("spark.sql.shuffle.partitions", r.choice([1, 2, 3]))  # a checkpoint keeps that of its first run
        writer = evaluate(
            spark,
            program,
            {name: channel.path for name, channel in inputs.items()},
            tmp_path / "out",
            buffering=buffering,  # type: ignore[arg-type]
            maxFilesPerTrigger=limit,
        )
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    found = {relation: held(tmp_path, relation) for relation in want}
    assert found == want, f"{program.explain()}\n{buffering}, {limit} files a batch, cut at {cut}\n{draft.facts}"
