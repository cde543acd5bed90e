"""Operators over one input: aggregations, deduplication, limits, and what has no state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F

from plans.history import Row
from plans.stream import Operator, Stream, grouped, ordered
from plans.times import DOMAINS, SECOND, TIMESTAMP, Domain


def anybody() -> Any:
    """One key for all rows, of which Spark does not know that it is: it refuses a join on a constant alone."""
    return F.max(F.lit("*")).alias("key")


@dataclass(frozen=True)
class Sum(Operator):
    """``groupBy("time")``, or with the key, in append mode."""

    by_key: bool
    domains = DOMAINS

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> Sum:
        return cls(r.random() < 0.5)

    def frame(self, *inputs: Any) -> Any:
        if self.by_key:
            return inputs[0].groupBy("time", "key").agg(F.sum("n").alias("n"))
        return inputs[0].groupBy("time").agg(anybody(), F.sum("n").alias("n"))

    def stream(self, *inputs: Stream) -> Stream:
        groups = grouped(inputs[0], lambda row: (row[0], row[1] if self.by_key else "*"))
        return inputs[0].with_rows(
            ((time, key, sum(n for _, _, n in rows)), inputs[0].closing(time)) for (time, key), rows in groups.items()
        )


@dataclass(frozen=True)
class SumInMode(Operator):
    """``groupBy("time", "key")``, or the key alone, in update or complete mode; ``later``: in which after each restart."""

    timed: bool
    mode: str
    later: tuple[str, ...] = ()
    domains = DOMAINS
    last = True
    modes = ("update", "complete")

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> SumInMode:
        timed, mode = r.random() < 0.6, r.choice(cls.modes)
        return cls(timed or mode == "update", mode)  # without the time in update mode: refused where the scan prunes the time

    def mode_in(self, phase: int) -> str:
        return (self.mode, *self.later)[min(phase, len(self.later))]

    def frame(self, *inputs: Any) -> Any:
        if self.timed:
            return inputs[0].groupBy("time", "key").agg(F.sum("n").alias("n"))
        return inputs[0].groupBy("key").agg(F.sum("n").alias("n")).select(F.lit(None).alias("time"), "key", "n")

    def groups(self, row: Row) -> list[Any]:
        """The groups that a row goes into: each ends in the time and the key."""
        return [(row[0] if self.timed else None, row[1])]

    def stream(self, *inputs: Stream) -> Stream:
        """What is kept, batch by batch: complete mode forgets nothing, the others what is closed."""
        child = inputs[0]
        rows: list[tuple[Row, int]] = []
        sums: Counter[Any] = Counter()
        for i in range(child.batches):
            touched = set()
            for row, batch in child.rows:
                if batch == i:
                    for group in self.groups(row):
                        sums[group] += row[2]
                        touched.add(group)
            mode = self.mode_in(child.phases[i])
            done = {group for group in sums if mode != "complete" and group[-2] is not None and child.closed(i, group[-2])}
            given = {"update": touched, "complete": set(sums), "append": done}[mode]
            rows += [((*group[-2:], sums[group]), i) for group in given]
            for group in done:
                del sums[group]
        return child.with_rows(rows)


@dataclass(frozen=True)
class Deduplicate(Operator):
    """``dropDuplicates`` on the time and the key: the first comes through as it comes."""

    domains = DOMAINS

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> Deduplicate:
        return cls()

    def frame(self, *inputs: Any) -> Any:
        return inputs[0].dropDuplicates(["time", "key"]).select("time", "key", F.lit(1).cast("long").alias("n"))

    def stream(self, *inputs: Stream) -> Stream:
        first: dict[Any, int] = {}
        for (time, key, _), batch in inputs[0].rows:
            first[time, key] = min(batch, first.get((time, key), batch))
        return inputs[0].with_rows(((time, key, 1), batch) for (time, key), batch in first.items())


@dataclass(frozen=True)
class Distinct(Operator):
    """``distinct``: every row once, as it first comes."""

    domains = DOMAINS

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> Distinct:
        return cls()

    def frame(self, *inputs: Any) -> Any:
        return inputs[0].distinct()

    def stream(self, *inputs: Stream) -> Stream:
        first: dict[Row, int] = {}
        for row, batch in inputs[0].rows:
            first[row] = min(batch, first.get(row, batch))
        return inputs[0].with_rows(first.items())


@dataclass(frozen=True)
class DeduplicateWithin(Operator):
    """``dropDuplicatesWithinWatermark`` on the key: which of a batch's rows comes first is Spark's to choose."""

    delay: int
    domains = (TIMESTAMP,)
    last = True
    chooses = True

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> DeduplicateWithin:
        return cls(r.choice((1, 3, 10)))

    def frame(self, *inputs: Any) -> Any:
        return inputs[0].withWatermark("time", f"{self.delay} seconds").dropDuplicatesWithinWatermark(["key"])

    def stream(self, *inputs: Stream) -> Stream:
        raise NotImplementedError("the choice is Spark's: see check")

    def check(self, got: list[Counter[Row]], *inputs: Stream) -> None:
        until: dict[Any, int] = {}
        for batch, (have, came) in enumerate(zip(got, inputs[0].by_batch(), strict=True)):
            assert have <= came, f"batch {batch} gave {ordered(have)}, but {ordered(came)} came"
            for key in {key for _, key, _ in came}:
                for time in sorted(time for time, k, _ in have.elements() if k == key):
                    assert key not in until or time > until[key], f"batch {batch} gave {key} at {time} within the delay"
                    until[key] = time + self.delay * SECOND
                beyond = [time for time, k, _ in came if k == key and (key not in until or time > until[key])]
                assert not beyond, f"batch {batch} gave {key} not at {beyond}"
            until = {key: end for key, end in until.items() if not inputs[0].closed(batch, end)}


@dataclass(frozen=True)
class Limit(Operator):
    """The first rows, whichever Spark takes."""

    rows: int
    domains = DOMAINS
    last = True
    chooses = True

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> Limit:
        return cls(r.choice((2, 5)))

    def frame(self, *inputs: Any) -> Any:
        return inputs[0].limit(self.rows)

    def stream(self, *inputs: Stream) -> Stream:
        raise NotImplementedError("the choice is Spark's: see check")

    def check(self, got: list[Counter[Row]], *inputs: Stream) -> None:
        left = self.rows
        for batch, (have, came) in enumerate(zip(got, inputs[0].by_batch(), strict=True)):
            assert have <= came, f"batch {batch} gave {ordered(have)}, but {ordered(came)} came"
            assert have.total() == min(left, came.total()), f"batch {batch} gave {ordered(have)}, with {left} left of the limit"
            left -= have.total()


@dataclass(frozen=True)
class Filter(Operator):
    """Some rows, and some values changed."""

    domains = DOMAINS
    stateful = False

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> Filter:
        return cls()

    def frame(self, *inputs: Any) -> Any:
        return inputs[0].where("n % 4 <> 1").withColumn("n", F.col("n") * 2 + 1)

    def stream(self, *inputs: Stream) -> Stream:
        return inputs[0].with_rows(((time, key, n * 2 + 1), batch) for (time, key, n), batch in inputs[0].rows if n % 4 != 1)


@dataclass(frozen=True)
class InArrow(Operator):
    """``mapInArrow``: Spark does not see where the time comes from, the declared schema says it."""

    domains = DOMAINS
    stateful = False

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> InArrow:
        return cls()

    def frame(self, *inputs: Any) -> Any:
        def twice(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield batch
                yield batch

        return inputs[0].mapInArrow(twice, inputs[0].schema)

    def stream(self, *inputs: Stream) -> Stream:
        return inputs[0].with_rows((*inputs[0].rows, *inputs[0].rows))


@dataclass(frozen=True)
class StaticJoin(Operator):
    """A join with a table that does not move."""

    how: str
    domains = DOMAINS
    stateful = False
    ROWS = (("a", 100), ("b", 200), ("b", 300))

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> StaticJoin:
        return cls(r.choice(("inner", "left")))

    def table(self, rows: Any) -> Any:
        """The table, for a join with a stream."""
        return rows.sparkSession.createDataFrame(self.ROWS, "key string, more long")

    def frame(self, *inputs: Any) -> Any:
        more = F.col("n") + F.coalesce("more", F.lit(0))
        return inputs[0].join(self.table(inputs[0]), "key", self.how).select("time", "key", more.alias("n"))

    def stream(self, *inputs: Stream) -> Stream:
        lonely = (0,) if self.how == "left" else ()
        return inputs[0].with_rows(
            ((time, key, n + m), batch)
            for (time, key, n), batch in inputs[0].rows
            for m in [more for k, more in self.ROWS if k == key] or lonely
        )
