"""Random loops: the same body in Spark, in plain Python, and (for one feedback) in the core's dataflow."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from strandline.channel import Channel
from strandline.loop import LoopQuery
from strandline.loop.way import Way
from strandline.time.antichain import Antichain
from strandline.time.arrow import time_field
from strandline.time.domain import Time, TimeDomain, int64, lex, product
from strandline.time.path.entry import Entry

FLAT = product(epoch="int64", iter="int64")
LEX = lex(epoch="int64", iter="int64")
NESTED = product(epoch="int64", i="int64", j="int64")
OUTER = product(epoch="int64", i="int64")

Feedback = tuple[TimeDomain, dict[str, int]]
SHAPES: dict[str, tuple[TimeDomain, dict[str, Feedback]]] = {
    "one": (FLAT, {"back": (FLAT, {"iter": 1})}),
    "lex": (LEX, {"back": (LEX, {"iter": 1})}),
    "two": (FLAT, {"back": (FLAT, {"iter": 1}), "far": (FLAT, {"iter": 2})}),
    "nested": (NESTED, {"inner": (NESTED, {"j": 1}), "outer": (OUTER, {"i": 1})}),
    "next epoch": (FLAT, {"back": (FLAT, {"iter": 1}), "next": (int64, {"": 1})}),
}
OPERATORS = ("group", "hold", "distinct", "processor", "join")

Row = tuple[int, int]
"""A number, and how often it may still go round."""


@dataclass(frozen=True)
class LoopPlan:
    """A loop over rows ``(n, left)``: rows of one time and number become one row, with the most that is left and their number.

    Then each feedback takes some of them on, with another number and one less left. So every loop ends.
    """

    seed: int
    shape: str
    operator: str
    limit: int | None
    settings: dict[str, str]
    phases: list[list[tuple[int, list[Row]]]]
    """What comes from outside between two runs: an epoch that is held afterwards, and rows at the epoch before it."""
    onward_by: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, seed: int) -> LoopPlan:
        """Draw a plan."""
        draw = random.Random(seed)
        shape = draw.choice(sorted(SHAPES))
        phases, epoch = [], 0
        for _ in range(draw.choice([1, 2, 2, 3])):
            phase = []
            for _ in range(draw.randint(1, 3)):
                rows = [(draw.randrange(6), draw.randint(0, 3)) for _ in range(draw.randint(0, 3))]
                epoch += draw.randint(0, 2)
                phase.append((epoch, rows))
            phases.append(phase)
        settings = {
            "spark.sql.shuffle.partitions": draw.choice(["1", "2", "3"]),
            "spark.sql.adaptive.enabled": draw.choice(["true", "false"]),
            "spark.sql.codegen.wholeStage": draw.choice(["true", "false"]),
            "spark.sql.streaming.noDataMicroBatches.enabled": draw.choice(["true", "false"]),
            "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
            + draw.choice(["RocksDBStateStoreProvider", "HDFSBackedStateStoreProvider"]),
        }
        ways = {name: (draw.randint(1, 5), draw.randrange(5), draw.choice([1, 1, 2, 3])) for name in SHAPES[shape][1]}
        return cls(seed, shape, draw.choice(OPERATORS), draw.choice([None, None, 1, 2]), settings, phases, ways)

    @property
    def domain(self) -> TimeDomain:
        return SHAPES[self.shape][0]

    @property
    def ways(self) -> dict[str, Way]:
        return {name: Way.of(Entry(domain, self.domain), by) for name, (domain, by) in SHAPES[self.shape][1].items()}

    def onward(self, name: str, n: int, left: int) -> Row | None:
        """Return the row that goes round by a feedback."""
        factor, shift, every = self.onward_by[name]
        return ((n * factor + shift) % 7, left - 1) if left > 0 and n % every == 0 else None

    def seen(self, frontier: Antichain) -> list[tuple[Time, int, int, int]]:
        """Return every row of the body at a time that ``frontier`` closes, by plain evaluation in the order of times."""
        waiting: dict[Time, list[Row]] = defaultdict(list)
        at = 0
        entry = Entry(int64, self.domain)
        for epoch, rows in (commit for phase in self.phases for commit in phase):
            for row in rows:
                waiting[entry.time(at)].append(row)
            at = epoch
        result = []
        while waiting:
            time = min(waiting)  # as tuples: an order that extends the partial one, and in which every feedback advances
            groups: dict[int, list[int]] = defaultdict(list)
            for n, each in waiting.pop(time):
                groups[n].append(each)
            for n, lefts in groups.items():
                left = max(lefts)
                if self.operator == "distinct":
                    lefts = sorted(set(lefts))
                if frontier.closed(time):
                    result.append((time, n, left, len(lefts)))
                for name, summary in self.ways.items():
                    if (row := self.onward(name, n, left)) is not None:
                        moved = summary.results_in(time)
                        assert moved is not None
                        waiting[moved].append(row)
        return sorted(result)


def create(folder: Path, plan: LoopPlan) -> None:
    """Create the channels of a plan."""
    fields = [("n", pa.int64()), ("left", pa.int64())]
    Channel.create(folder / "in", pa.schema([time_field("time", int64), *fields]), producers=["p"], at=0)
    for name, (domain, _) in {**SHAPES[plan.shape][1], "there": (plan.domain, {})}.items():
        Channel.create(folder / name, pa.schema([time_field("time", domain), *fields]), producers=["loop"])


def send(folder: Path, phase: list[tuple[int, list[Row]]], at: int) -> int:
    """Write what comes from outside before a run. Returns the epoch that is held then."""
    channel = Channel.open(folder / "in")
    with channel.producer("p") as producer:
        for epoch, rows in phase:
            if rows:
                n, left = zip(*rows, strict=True)
                producer.send(pa.table({"time": [at] * len(rows), "n": list(n), "left": list(left)}))
            producer.delay(epoch)
            producer.commit()
            at = epoch
    return at


def body(plan: LoopPlan, rows: Any) -> Any:
    """Return the rows of the body in Spark: by one of the operators that keep rows until their time is closed."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType, StructField, StructType

    from pyspark_strandline import hold, on_complete, process

    def summed(frame: Any) -> Any:
        return frame.groupBy("time", "n").agg(F.max("left").alias("left"), F.count("*").alias("many"))

    if plan.operator == "hold":
        return summed(hold(rows, by="n"))
    if plan.operator == "distinct":  # an operator that passes rows on at once, before one that waits
        return summed(rows.dropDuplicates(["time", "n", "left"]))
    if plan.operator == "processor":
        return process(rows, groups(), key="n").select("time", "n", "left", "many")
    if plan.operator == "join":  # with itself, on the time and the number
        left = summed(rows)
        return left.join(left.select(F.col("time").alias("t"), F.col("n").alias("m")), F.expr("time = t AND n = m")).select(
            "time", "n", "left", "many"
        )

    def total(time: Any, key: Any, table: pa.Table) -> list[dict[str, Any]]:
        return [
            {
                "time": table.column("time")[0].as_py(),
                "n": key[0],
                "left": max(table.column("left").to_pylist()),
                "many": table.num_rows,
            }
        ]

    schema = StructType([*rows.schema.fields, StructField("many", LongType())])
    return on_complete(rows, total, schema, key="n") if plan.seed % 2 else summed(rows)


def groups() -> Any:
    """Return the processor that makes the row of a group at its notification."""
    from pyspark_strandline import Processor

    class Groups(Processor):
        schema = "left bigint, many bigint"
        state_schema = "lefts map<string, array<bigint>>"

        def on_rows(self, time: Any, rows: pa.Table) -> None:
            known = dict((self.state or {"lefts": {}})["lefts"])
            known[repr(time)] = [*known.get(repr(time), []), *rows.column("left").to_pylist()]
            self.state = {"lefts": known}
            self.notify_at(time)

        def on_notify(self, time: Any) -> None:
            known = dict((self.state or {"lefts": {}})["lefts"])
            lefts = known.pop(repr(time))
            self.emit(time, [{"left": max(lefts), "many": len(lefts)}])
            self.state = {"lefts": known} if known else None

    return Groups()


def start(spark: Any, folder: Path, plan: LoopPlan) -> Any:
    """Start the query of a plan. It runs until the loop is at rest."""
    from functools import reduce

    from pyspark.sql import functions as F

    from pyspark_strandline import read_loop

    names = list(SHAPES[plan.shape][1])
    options = {} if plan.limit is None else {"maxFilesPerTrigger": plan.limit}
    loop = read_loop(
        spark,
        {name: str(folder / name) for name in ("in", *names)},
        feedback={name: by for name, (_, by) in SHAPES[plan.shape][1].items()},
        domain=plan.domain,
        **options,
    )
    columns = ["time", "n", "left"]
    rows = reduce(lambda a, b: a.union(b), (loop[name].select(*columns) for name in ("in", *names)))
    seen = body(plan, rows).select(*columns, "many")
    outputs: dict[str, Any] = {"seen": (seen, str(folder / "seen"))}
    if plan.seed % 3:  # all outputs from one evaluation of the body
        to = [F.when(_goes(plan, name), F.lit(name)) for name in names]
        moved = seen.withColumn("to", F.array_compact(F.array(F.lit("seen"), *to)))
        for name in names:
            factor, shift, _ = plan.onward_by[name]
            moved = moved.withColumn(f"n_{name}", (F.col("n") * factor + shift) % 7)
        moved = moved.withColumn("less", F.col("left") - 1)
        back = {name: {"n": f"n_{name}", "left": "less"} for name in names}
        writer = loop.route(
            moved,
            "to",
            {"seen": str(folder / "seen"), **dict.fromkeys(names)},
            columns={"seen": {"n": "n", "left": "left", "many": "many"}, **back},
        )
    else:
        for name in names:
            factor, shift, _ = plan.onward_by[name]
            onward = seen.where(_goes(plan, name))
            outputs[name] = onward.select(
                "time", ((F.col("n") * factor + shift) % 7).alias("n"), (F.col("left") - 1).alias("left")
            )
        writer = loop.write(outputs)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()


def parts(plan: LoopPlan) -> dict[str, LoopQuery]:
    """Return the same loop as two queries: ``body`` sends its rows to ``onward``, which sends some of them round."""
    back = {name: by for name, (_, by) in SHAPES[plan.shape][1].items()}
    return {"body": LoopQuery(["in", *back], {"there": {}}), "onward": LoopQuery(["there"], back)}


def start_part(spark: Any, folder: Path, plan: LoopPlan, part: str) -> Any:
    """Start one of the two queries. It runs until it is stopped."""
    from functools import reduce

    from pyspark.sql import functions as F

    from pyspark_strandline import hold, read_loop

    names = list(SHAPES[plan.shape][1])
    options = {} if plan.limit is None else {"maxFilesPerTrigger": plan.limit}
    paths = {name: str(folder / name) for name in ("in", *names, "there")}
    loop = read_loop(spark, paths, queries=parts(plan), query=part, domain=plan.domain, **options)
    columns = ["time", "n", "left"]
    if part == "body":
        rows = reduce(lambda a, b: a.union(b), (loop[name].select(*columns) for name in ("in", *names)))
        seen = body(plan, rows).select(*columns, "many")
        both = F.array(F.lit("seen"), F.lit("there"))
        to = {"seen": str(folder / "seen"), "there": None}
        fields = {"seen": {"n": "n", "left": "left", "many": "many"}}
        writer = loop.route(seen.withColumn("to", both), "to", to, columns=fields)
    else:
        there = loop["there"] if plan.seed % 2 else hold(loop["there"], by="n")
        outputs = {}
        for name in names:
            factor, shift, _ = plan.onward_by[name]
            moved = [((F.col("n") * factor + shift) % 7).alias("n"), (F.col("left") - 1).alias("left")]
            outputs[name] = there.where(_goes(plan, name)).select("time", *moved)
        writer = loop.write(outputs)
    return writer.option("checkpointLocation", str(folder / f"checkpoint-{part}")).start()


def _goes(plan: LoopPlan, name: str) -> Any:
    from pyspark.sql import functions as F

    return (F.col("left") > 0) & (F.col("n") % plan.onward_by[name][2] == 0)


def results(folder: Path) -> list[tuple[Time, int, int, int]]:
    """Return the rows that the loop has written for others, sorted."""
    rows = Channel.open(folder / "seen").read().to_pylist()
    return sorted((tuple(row["time"].values()), row["n"], row["left"], row["many"]) for row in rows)
