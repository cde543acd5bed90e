"""Joins of two streams: on equal times, and on a distance of times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from pyspark.sql import functions as F

from plans.environment import ANSI, Environment
from plans.history import Row
from plans.refusal import SPARKS_ANALYSIS, UNCLOSED
from plans.stream import Operator, Stream
from plans.times import DAY, DOMAINS, INT64, SECOND, TIMESTAMP, Domain, Time

FORMS = ("on", "using", "null-safe")
"""In which an equality of two times is written."""
DISTANCE_FORMS = ("between", "both sides", "where", "difference", "days")
"""In which a bound on the distance of two times is written; a day is no fixed time where clocks change, nor is a difference."""
HOW = ("inner", "left_outer", "right_outer", "full_outer", "left_semi")


def _frame(left: Any, right: Any, condition: str, how: str, side: str) -> Any:
    joined = left.alias("l").join(right.alias("r"), F.expr(condition), how)
    if how == "left_semi":
        return joined.select("l.time", "l.key", "l.n")
    time = F.coalesce("l.time", "r.time").alias("time") if how == "full_outer" else F.col(f"{side}.time")
    number = F.coalesce("l.n", F.lit(0)) + 1000 * F.coalesce("r.n", F.lit(0))
    return joined.select(time, F.coalesce("l.key", "r.key").alias("key"), number.alias("n"))


def _rows(
    left: Stream,
    right: Stream,
    matches: Callable[[Row, Row], bool],
    how: str,
    side: str,
    alone: tuple[Callable[[int, Time], bool], Callable[[int, Time], bool]],
) -> Iterator[tuple[Row, int | None]]:
    """A match comes when both are there; a row without one in the batch that ``alone`` says can bring none any more."""
    pairs = [(a, b) for a in left.rows for b in right.rows if matches(a[0], b[0])]
    batches = range(left.batches)
    if how == "left_semi":
        for l in left.rows:  # noqa: E741
            met = [b[1] for a, b in pairs if a is l]
            if met:
                yield l[0], max(l[1], min(met))
        return
    for ((lt, key, ln), i), ((rt, _, rn), j) in pairs:
        yield (lt if side == "l" else rt, key, ln + 1000 * rn), max(i, j)
    if how in ("left_outer", "full_outer"):
        met = {id(a) for a, _ in pairs}
        for l in left.rows:  # noqa: E741
            if id(l) not in met:
                yield l[0], next((i for i in batches if i >= l[1] and alone[0](i, l[0][0])), None)
    if how in ("right_outer", "full_outer"):
        met = {id(b) for _, b in pairs}
        for r in right.rows:
            if id(r) not in met:
                time, key, n = r[0]
                yield (time, key, 1000 * n), next((i for i in batches if i >= r[1] and alone[1](i, time)), None)


@dataclass(frozen=True)
class Join(Operator):
    """A join on equal times, with or without the key."""

    how: str
    by_key: bool
    form: str = "on"
    domains = DOMAINS
    inputs = 2

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> Join:
        return cls(r.choice(HOW), r.random() < 0.6)

    @property
    def last(self) -> bool:  # type: ignore[override]
        """A full outer join's time is of either side: an expression, which nothing may be closed by."""
        return self.how == "full_outer"

    def frame(self, *inputs: Any) -> Any:
        if self.form == "using":
            return self._using(*inputs)
        condition = f"l.time {'<=>' if self.form == 'null-safe' else '='} r.time" + (" AND l.key = r.key" if self.by_key else "")
        return _frame(*inputs, condition, self.how, "r" if self.how == "right_outer" else "l")

    def _using(self, left: Any, right: Any) -> Any:
        right = right.select("time", F.col("key").alias("key" if self.by_key else "other"), F.col("n").alias("m"))
        joined = left.join(right, ["time", "key"] if self.by_key else ["time"], self.how)
        if self.how == "left_semi":
            return joined.select("time", "key", "n")
        key = F.col("key") if self.by_key else F.coalesce("key", "other").alias("key")
        return joined.select("time", key, (F.coalesce("n", F.lit(0)) + 1000 * F.coalesce("m", F.lit(0))).alias("n"))

    def refusals(self, environment: Environment, domain: Domain) -> frozenset[str]:
        return UNCLOSED if self.form == "null-safe" else frozenset()

    def stream(self, *inputs: Stream) -> Stream:
        left, right = inputs
        side = "r" if self.how == "right_outer" else "l"

        def matches(a: Row, b: Row) -> bool:
            return a[0] == b[0] and (not self.by_key or a[1] == b[1])

        def closed(batch: int, time: Time) -> bool:
            return left.closed(batch, time) and right.closed(batch, time)

        rows = _rows(left, right, matches, self.how, side, (right.closed, left.closed))
        return left.derived(left.domain, closed).with_rows(rows)


@dataclass(frozen=True)
class IntervalJoin(Operator):
    """``l.time BETWEEN r.time + low AND r.time + high``, by key; ``side`` is whose time goes on, ``form`` how it is written."""

    how: str
    low: int
    high: int
    side: str
    form: str = "between"
    domains = (TIMESTAMP, INT64)
    inputs = 2

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> IntervalJoin:
        low, high = r.choice(((0, 3), (-3, 0), (-2, 2), (1, 4), (-4, -1)))
        how = r.choice(HOW)
        side = {"left_outer": "l", "full_outer": "l", "left_semi": "l", "right_outer": "r"}.get(how, r.choice("lr"))
        return cls(how, low, high, side)

    @property
    def last(self) -> bool:  # type: ignore[override]
        """As for :class:`Join`."""
        return self.how == "full_outer"

    def frame(self, *inputs: Any) -> Any:
        timed = inputs[0].schema["time"].dataType.typeName() == "timestamp"
        unit = "DAYS" if self.form == "days" else "SECONDS"
        low, high = (f"INTERVAL {d} {unit}" if timed else str(d) for d in (self.low, self.high))
        if self.form == "where":
            joined = inputs[0].alias("l").join(inputs[1].alias("r"), F.expr("l.key = r.key"))
            joined = joined.where(f"l.time BETWEEN r.time + {low} AND r.time + {high}")
            return joined.select(f"{self.side}.time", "l.key", (F.col("l.n") + 1000 * F.col("r.n")).alias("n"))
        condition = {
            "between": f"l.time BETWEEN r.time + {low} AND r.time + {high}",
            "days": f"l.time BETWEEN r.time + {low} AND r.time + {high}",
            "difference": f"l.time - r.time >= {low} AND l.time - r.time <= {high}",
            "both sides": f"l.time - {low} >= r.time AND r.time >= l.time - {high}",
        }[self.form]
        return _frame(*inputs, f"l.key = r.key AND {condition}", self.how, self.side)

    def refusals(self, environment: Environment, domain: Domain) -> frozenset[str]:
        local = environment.clocks_change and self.form in ("days", "difference")
        wraps = environment[ANSI] == "false"  # sums of integers that are too great
        if self.form == "where":
            return UNCLOSED  # the optimizer makes one condition of the two, after the tags are settled
        # Where the distance does not count, the join is refused, or what closes by its time.
        refused = set(UNCLOSED) if (wraps if domain is INT64 else local) else set()
        if self.form == "difference" and domain is not INT64 and self.how != "inner":
            refused.add(SPARKS_ANALYSIS)  # it finds no watermark in a difference of timestamps
        return frozenset(refused)

    def stream(self, *inputs: Stream) -> Stream:
        left, right = inputs
        unit = 1 if left.domain is INT64 else DAY if self.form == "days" else SECOND
        low, high = self.low * unit, self.high * unit

        def left_alone(batch: int, time: Time) -> bool:
            return right.closed(batch, time - low)

        def right_alone(batch: int, time: Time) -> bool:
            return left.closed(batch, time + high)

        # A row of a side may come out as long as one may come in at its time, or a match to one that waits.
        def closed(batch: int, time: Time) -> bool:
            if self.side == "l":
                return left.closed(batch, time) and left_alone(batch, time)
            return right.closed(batch, time) and right_alone(batch, time)

        def matches(a: Row, b: Row) -> bool:
            return a[1] == b[1] and low <= a[0] - b[0] <= high

        rows = _rows(left, right, matches, self.how, self.side, (left_alone, right_alone))
        return left.derived(left.domain, closed).with_rows(rows)
