"""Operators and outputs over several channels close by the channels that lead to them: random plans, channels and restarts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from helpers import make_channel, run, say, settings
from pyspark_strandline import Processor, advance, domain_metadata, hold, on_complete, process, read_channels, write_outputs
from strandline import Antichain, int64
from strandline.channel import Channel
from strandline.report import explain

pytestmark = pytest.mark.spark

NAMES = ["a", "b", "c"]
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

Rows = list[tuple[int, int]]
"""Rows of a channel or a result: the time and a number."""


@dataclass(frozen=True)
class Shape:
    """A plan over three streams: what it gives, of plain rows, and its frontier, of the frontiers of the channels."""

    plan: Callable[[Any, dict[str, Any]], Any]
    rows: Callable[[dict[str, Rows]], Rows]
    frontier: Callable[[int, int, int], int]


def sums(rows: Any) -> Any:
    return rows.groupBy("time").agg(F.sum("n").alias("n"))


def summed(rows: Rows) -> Rows:
    return [(time, sum(n for at, n in rows if at == time)) for time in {at for at, _ in rows}]


def by_names(rows: Any, **columns: str) -> Any:
    """The rows with other names, so that two sides of a join can be told apart."""
    return rows.select(*(F.col(old).alias(new) for old, new in columns.items()))


def near(left: Any, right: Any, how: str) -> Any:
    """Rows of the left side with rows of the right side that are up to 2 later."""
    other = by_names(right, time="then", n="m")
    return left.join(other, F.expr("n = m AND then >= time AND then <= time + 2"), how)


def has_near(row: tuple[int, int], others: Rows) -> bool:
    return any(n == row[1] and row[0] <= time <= row[0] + 2 for time, n in others)


def common_table(spark: Any, streams: dict[str, Any]) -> Any:
    streams["b"].createOrReplaceTempView("input_b")
    streams["c"].createOrReplaceTempView("input_c")
    return spark.sql(
        "WITH x AS (SELECT time, n FROM input_b WHERE n > 1) "
        "SELECT time, n FROM x UNION ALL SELECT time, n FROM input_c UNION ALL SELECT time, n + 1 FROM x"
    )


def joined(data: dict[str, Rows]) -> Rows:
    return [(t, n) for t, n in data["a"] for u, m in data["b"] if (t, n) == (u, m)]


def counts(rows: Any) -> Any:
    """The number of rows of each time, from a processor that waits for the time to be complete."""

    class Counts(Processor):
        schema = "n bigint"
        state_schema = "at array<bigint>"

        def on_rows(self, time: Any, rows: Any) -> None:
            self.state = {"at": [*(self.state or {"at": []})["at"], *[time] * rows.num_rows]}
            self.notify_at(time)

        def on_notify(self, time: Any) -> None:
            assert self.state is not None
            self.emit(time, [{"n": self.state["at"].count(time)}])

    return process(rows.withColumn("key", F.lit("k")), Counts(), key="key").select("time", "n")


SHAPES = {
    "one": Shape(lambda _, s: s["a"], lambda d: d["a"], lambda a, b, c: a),
    "sums of one": Shape(lambda _, s: sums(s["b"]), lambda d: summed(d["b"]), lambda a, b, c: b),
    "sums of two": Shape(lambda _, s: sums(s["a"].union(s["c"])), lambda d: summed(d["a"] + d["c"]), lambda a, b, c: min(a, c)),
    "sums of two, one moved": Shape(
        lambda _, s: sums(s["a"].union(advance(s["b"], 5))),
        lambda d: summed(d["a"] + [(t + 5, n) for t, n in d["b"]]),
        lambda a, b, c: min(a, b + 5),
    ),
    "a union in a union": Shape(
        lambda _, s: sums(s["b"].union(advance(s["a"].union(s["c"]), 1)).where("n > 1")),
        lambda d: summed([row for row in d["b"] + [(t + 1, n) for t, n in d["a"] + d["c"]] if row[1] > 1]),
        lambda a, b, c: min(b, a + 1, c + 1),
    ),
    "a join": Shape(lambda _, s: s["a"].join(s["b"], ["time", "n"]), joined, lambda a, b, c: min(a, b)),
    "a join, then sums": Shape(
        lambda _, s: sums(s["a"].join(s["b"], ["time", "n"])), lambda d: summed(joined(d)), lambda a, b, c: min(a, b)
    ),
    "an outer join, then sums": Shape(
        lambda _, s: sums(
            s["a"].join(by_names(s["b"], time="at", n="m"), F.expr("time = at AND n = m"), "left").select("time", "n")
        ),
        lambda d: summed([row for row in d["a"] for _ in range(max(1, d["b"].count(row)))]),
        lambda a, b, c: min(a, b),
    ),
    "two joins": Shape(
        lambda _, s: sums(s["a"].join(s["b"], ["time", "n"]).join(s["c"], ["time", "n"])),
        lambda d: summed([row for row in joined(d) for other in d["c"] if row == other]),
        min,
    ),
    "a join of sums": Shape(
        lambda _, s: (
            sums(s["a"]).join(sums(s["c"]).select("time", F.col("n").alias("m")), "time").selectExpr("time", "n + m AS n")
        ),
        lambda d: [(t, n + m) for t, n in summed(d["a"]) for u, m in summed(d["c"]) if t == u],
        lambda a, b, c: min(a, c),
    ),
    "a left semi join": Shape(
        lambda _, s: s["a"].join(by_names(s["b"], time="at", n="m"), F.expr("time = at AND n = m"), "left_semi"),
        lambda d: [row for row in d["a"] if row in d["b"]],
        lambda a, b, c: min(a, b),
    ),
    "a left semi join, then sums": Shape(
        lambda _, s: sums(s["a"].join(by_names(s["b"], time="at", n="m"), F.expr("time = at AND n = m"), "left_semi")),
        lambda d: summed([row for row in d["a"] if row in d["b"]]),
        lambda a, b, c: min(a, b),
    ),
    "later rows": Shape(
        lambda _, s: near(s["a"], s["b"], "left").select("time", "n"),
        lambda d: [r for r in d["a"] for _ in range(max(1, sum(n == r[1] and r[0] <= t <= r[0] + 2 for t, n in d["b"])))],
        lambda a, b, c: min(a, b - 2),
    ),
    "later rows, then sums": Shape(
        lambda _, s: sums(near(s["a"], s["b"], "inner").select("time", "n")),
        lambda d: summed([r for r in d["a"] for t, n in d["b"] if n == r[1] and r[0] <= t <= r[0] + 2]),
        lambda a, b, c: min(a, b - 2),
    ),
    "whether there are later rows, then a function": Shape(
        lambda _, s: on_complete(
            near(s["a"], s["b"], "left_semi"), lambda _, rows: rows.select(["time", "n"]), "time long, n long"
        ),
        lambda d: [row for row in d["a"] if has_near(row, d["b"])],
        lambda a, b, c: min(a, b - 2),
    ),
    "a common table": Shape(
        lambda spark, s: sums(common_table(spark, s)),
        lambda d: summed([(t, m) for t, n in d["b"] if n > 1 for m in (n, n + 1)] + d["c"]),
        lambda a, b, c: min(b, c),
    ),
    "a function with the schema of one": Shape(
        lambda _, s: sums(s["a"].union(s["c"]).mapInArrow(lambda batches: batches, s["a"].schema)),
        lambda d: summed(d["a"] + d["c"]),
        lambda a, b, c: min(a, c),
    ),
    "a time of the schema of one": Shape(
        lambda _, s: sums(
            s["b"].union(s["c"]).select(F.expr("time + 0").alias("time", metadata=s["a"].schema["time"].metadata), F.col("n"))
        ),
        lambda d: summed(d["b"] + d["c"]),
        lambda a, b, c: min(b, c),
    ),
    "a declared time": Shape(
        lambda _, s: sums(s["b"].select(F.expr("time + 0").alias("time", metadata=domain_metadata("int64")), F.col("n"))),
        lambda d: summed(d["b"]),
        lambda a, b, c: b,
    ),
    "rows that wait": Shape(lambda _, s: hold(s["c"].union(s["b"])), lambda d: d["c"] + d["b"], lambda a, b, c: min(b, c)),
    "a function of complete times": Shape(
        lambda _, s: on_complete(s["c"].union(s["b"]), lambda _, rows: rows.select(["time", "n"]), s["c"].schema),
        lambda d: d["c"] + d["b"],
        lambda a, b, c: min(b, c),
    ),
    "a processor": Shape(
        lambda _, s: counts(s["a"].union(advance(s["b"], 2))),
        lambda d: [(t, at.count(t)) for at in [[t for t, _ in d["a"]] + [t + 2 for t, _ in d["b"]]] for t in set(at)],
        lambda a, b, c: min(a, b + 2),
    ),
    "a processor above later rows": Shape(
        lambda _, s: counts(near(s["a"], s["b"], "left_semi")),
        lambda d: [(t, at.count(t)) for at in [[t for t, n in d["a"] if has_near((t, n), d["b"])]] for t in set(at)],
        lambda a, b, c: min(a, b - 2),
    ),
    "different rows": Shape(
        lambda _, s: s["a"].union(s["b"]).dropDuplicates(["time", "n"]),
        lambda d: list({*d["a"], *d["b"]}),
        lambda a, b, c: min(a, b),
    ),
}


def streams_of(spark: Any, folder: Path, **options: Any) -> dict[str, Any]:
    streams = read_channels(spark, {name: str(folder / name) for name in NAMES}, **options)
    return {name: streams[name].select("time", "n") for name in streams}


def contents(path: Path) -> Rows:
    return sorted((row["time"], row["n"]) for row in Channel.open(path).read().to_pylist())


def closed(rows: Rows, frontier: Antichain) -> Rows:
    return [row for row in rows if not frontier.less_equal(row[0])]


def check(spark: Any, folder: Path, shapes: list[str], seed: int) -> None:
    """Feed the channels, each at its own pace, and start the query again and again. Its outputs are exact after each run."""
    r = random.Random(seed)
    at, data = dict.fromkeys(NAMES, 2), {name: Rows() for name in NAMES}
    for name in NAMES:
        make_channel(folder / name, producers=("p",), at=2)
    options = {"nativeScan": r.choice(["on", "off"]), **({"maxFilesPerTrigger": r.randint(1, 3)} if r.random() < 0.5 else {})}
    paths = {shape: folder / f"out{number}" for number, shape in enumerate(shapes)}
    seen: list[tuple[str, Antichain, Rows]] = []

    def start() -> None:
        streams = streams_of(spark, folder, **options)
        plans = {shape: SHAPES[shape].plan(spark, streams).select("time", "n") for shape in shapes}
        writer = write_outputs({path.name: (plans[shape], str(path)) for shape, path in paths.items()})
        writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()

    chosen = {"spark.sql.streaming.noDataMicroBatches.enabled": r.choice(["true", "false"])}
    if r.random() < 0.3:
        chosen["spark.sql.streaming.stateStore.providerClass"] = ROCKS
    with settings(spark, chosen):
        for _ in range(4):
            for name in NAMES:
                for _ in range(r.choice([0, 1, 1, 4])):
                    rows = [(at[name] + r.randrange(3), r.randrange(3)) for _ in range(r.randrange(4))]
                    data[name] += rows
                    at[name] += r.randrange(3)
                    say(Channel.open(folder / name), "p", *rows, then=[at[name]])
            start()
            for shape, path in paths.items():
                frontier = Channel.open(path).frontier
                assert frontier == Antichain(int64, [SHAPES[shape].frontier(*at.values())]), (shape, at)
                seen.append((shape, frontier, contents(path)))
        for name in NAMES:
            say(Channel.open(folder / name), "p", then=[])
        start()
    results = {shape: sorted(SHAPES[shape].rows(data)) for shape in shapes}
    assert {shape: contents(path) for shape, path in paths.items()} == results
    for shape, frontier, rows in seen:
        assert closed(rows, frontier) == closed(results[shape], frontier), (shape, frontier)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(6))
def test_each_output_closes_by_the_channels_that_lead_to_it(spark: Any, tmp_path: Path, seed: int) -> None:
    names = list(SHAPES)
    check(spark, tmp_path, names[seed::6], seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_outputs_close_by_the_channels_that_lead_to_them(spark: Any, tmp_path: Path, seed: int) -> None:
    check(spark, tmp_path, random.Random(seed).sample(list(SHAPES), 4), seed)


@pytest.mark.drawn
def test_a_slow_channel_does_not_hold_back_what_it_does_not_lead_to(spark: Any, tmp_path: Path) -> None:
    """Each commit states which channels lead to its output, so a report does not blame the others."""
    for name in NAMES:
        make_channel(tmp_path / name, producers=("p",))
    say(Channel.open(tmp_path / "a"), "p", (0, 1), (1, 2), then=[9])
    say(Channel.open(tmp_path / "b"), "p", (0, 5), then=[1])
    streams = streams_of(spark, tmp_path)
    outputs = {"one": sums(streams["a"]), "two": sums(streams["a"].union(advance(streams["b"], 3)))}
    writer = write_outputs({name: (rows, str(tmp_path / name)) for name, rows in outputs.items()})
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    assert Channel.open(tmp_path / "one").frontier == Antichain(int64, [9])
    assert Channel.open(tmp_path / "two").frontier == Antichain(int64, [4])
    assert contents(tmp_path / "one") == [(0, 1), (1, 2)]
    steps = {}
    for name in outputs:
        channel = Channel.open(tmp_path / name)
        commit = channel.log.read(channel.version)
        assert commit is not None
        steps[name] = {Path(read.path).name: list(read.summary) for read in commit.statement.reads}
    assert {name: list(explain(tmp_path / name, 9).holders[0].reads) for name in outputs} == {
        "one": [str(tmp_path / "a")],
        "two": [str(tmp_path / "a"), str(tmp_path / "b")],
    }
    nowhere = [{"least": []}]
    assert steps == {"one": {"a": [], "b": nowhere, "c": nowhere}, "two": {"a": [], "b": [{"shift": 3}], "c": nowhere}}


def test_a_struct_of_the_source_may_hold_rows_of_other_channels(spark: Any, tmp_path: Path) -> None:
    """Its type is of the first channel, and so would its input be."""
    for name in NAMES:
        make_channel(tmp_path / name, producers=("p",))
    say(Channel.open(tmp_path / "a"), "p", (0, 1), then=[9])
    say(Channel.open(tmp_path / "b"), "p", (0, 5), then=[1])
    say(Channel.open(tmp_path / "c"), "p", then=[3])

    def start() -> None:
        paths = json.dumps({name: str(tmp_path / name) for name in NAMES})
        source = spark.readStream.format("strandline").option("channels", paths).load()
        both = source.select(F.col("a").alias("x")).union(source.select(F.col("b").alias("x"))).where("x IS NOT NULL")
        rows = both.select(F.col("x.time").alias("time", metadata=domain_metadata("int64")), F.col("x.n"))
        run(sums(rows), tmp_path / "out", tmp_path / "checkpoint")

    start()
    assert Channel.open(tmp_path / "out").frontier == Antichain(int64, [1])
    say(Channel.open(tmp_path / "b"), "p", (2, 7), then=[])
    for name in ("a", "c"):
        say(Channel.open(tmp_path / name), "p", then=[])
    start()
    assert contents(tmp_path / "out") == [(0, 6), (2, 7)]
