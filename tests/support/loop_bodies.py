"""Random bodies of ``iterate``: each in Spark, in plain Python, and whether it is one that ``iterate`` takes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["BodyPlan", "Row", "fixed_point"]

Row = tuple[int, int, int]
"""The outer time, and two numbers."""
Rows = list[Row]
LEAST = 5
_ROW_BY_ROW = ["step", "step", "step", "left", "semi", "anti", "filter", "map", "map", "explode", "union", "union"]
_KINDS = [*_ROW_BY_ROW, "group", "self", "distinct", "limit", "sort", "max"]


@dataclass(frozen=True)
class BodyPlan:
    """A body over rows ``(time, a, b)`` and a table of pairs ``(x, y)``.

    Attributes:
        text: The body as a formula.
        spark: The body in Spark: of the loop's rows and the table.
        plain: The rows that follow from all rows of a round.
        is_linear: Whether each row follows from one row.
        looks_at_rounds: Whether rows follow from all rows of a round, by groups that have the time.
    """

    text: str
    spark: Callable[[Any, Any], Any]
    plain: Callable[[Rows], Rows]
    is_linear: bool = True
    looks_at_rounds: bool = False

    def is_exact(self, distinct: bool) -> bool:
        """Whether ``iterate`` takes it."""
        return self.is_linear and (not self.looks_at_rounds or not distinct)

    @classmethod
    def of(cls, seed: int, table: list[tuple[int, int]]) -> BodyPlan:
        """Draw a body."""
        draw = random.Random(seed)
        return _drawn(draw, table, draw.choice([1, 2, 2, 3]))


def _drawn(draw: random.Random, table: list[tuple[int, int]], depth: int) -> BodyPlan:
    from pyspark.sql import functions as F

    if depth == 0:
        return BodyPlan("rows", lambda rows, _: rows, lambda rows: list(rows))
    below = _drawn(draw, table, depth - 1)
    kind = draw.choice(_KINDS)

    def over(text: str, spark: Any, plain: Any, **more: bool) -> BodyPlan:
        known = {"is_linear": below.is_linear, "looks_at_rounds": below.looks_at_rounds}
        return BodyPlan(
            f"{text}({below.text})",
            lambda rows, t: spark(below.spark(rows, t), t),
            lambda rows: plain(below.plain(rows)),
            **{**known, **more},
        )

    def matching(b: int) -> list[int]:
        return [y for x, y in table if x == b]

    if kind == "step":
        return over(
            "step",
            lambda rows, t: rows.join(t, rows.b == t.x).select("time", "a", F.col("y").alias("b")),
            lambda rows: [(time, a, y) for time, a, b in rows for y in matching(b)],
        )
    if kind == "left":
        return over(
            "left",
            lambda rows, t: rows.join(t, rows.b == t.x, "left").select("time", "a", F.coalesce("y", F.lit(0)).alias("b")),
            lambda rows: [(time, a, y) for time, a, b in rows for y in matching(b) or [0]],
        )
    if kind in ("semi", "anti"):
        return over(
            kind,
            lambda rows, t: rows.join(t, rows.a == t.y, f"left_{kind}"),
            lambda rows: [row for row in rows if (row[1] in {y for _, y in table}) == (kind == "semi")],
        )
    if kind == "filter":
        n = draw.randrange(LEAST)
        return over(f"b != {n}", lambda rows, _: rows.where(f"b != {n}"), lambda rows: [row for row in rows if row[2] != n])
    if kind == "map":
        k, c = draw.randint(1, 4), draw.randrange(LEAST)
        return over(
            f"{k} * b + {c}",
            lambda rows, _: rows.selectExpr("time", "b as a", f"(a * {k} + {c}) % {LEAST} as b"),
            lambda rows: [(time, b, (a * k + c) % LEAST) for time, a, b in rows],
        )
    if kind == "explode":
        return over(
            "explode",
            lambda rows, _: rows.select("time", "a", F.explode(F.array("a", "b")).alias("b")),
            lambda rows: [(time, a, each) for time, a, b in rows for each in (a, b)],
        )
    if kind == "group":
        return over(
            "group",
            lambda rows, _: rows.groupBy("time", "a").agg((F.sum("b") % LEAST).alias("b")),
            lambda rows: [
                (time, a, sum(b for *key, b in rows if key == [time, a]) % LEAST) for time, a in {row[:2] for row in rows}
            ],
            looks_at_rounds=True,
        )
    if kind in ("union", "self"):
        other = _drawn(draw, table, draw.randrange(depth))
        both = {
            "is_linear": below.is_linear and other.is_linear and kind == "union",
            "looks_at_rounds": below.looks_at_rounds or other.looks_at_rounds,
        }
        if kind == "union":
            return BodyPlan(
                f"({below.text} + {other.text})",
                lambda rows, t: below.spark(rows, t).unionByName(other.spark(rows, t)),
                lambda rows: below.plain(rows) + other.plain(rows),
                **both,
            )

        def meets(rows: Any, t: Any) -> Any:
            right = other.spark(rows, t).select(F.col("time").alias("t"), F.col("a").alias("k"), F.col("b").alias("z"))
            return below.spark(rows, t).join(right, F.expr("time = t AND b = k")).select("time", "a", F.col("z").alias("b"))

        return BodyPlan(f"({below.text} x {other.text})", meets, lambda rows: rows, **both)
    refused = {
        "distinct": lambda rows, _: rows.distinct(),
        "limit": lambda rows, _: rows.limit(2),
        "sort": lambda rows, _: rows.orderBy("b"),
        "max": lambda rows, _: rows.groupBy().agg(*(F.max(name).alias(name) for name in ("time", "a", "b"))),
    }
    return over(kind, refused[kind], lambda rows: rows, is_linear=False)


def fixed_point(plan: BodyPlan, seeds: Rows, distinct: bool, rounds: int) -> Rows:
    """Return all rows of the loop: with ``distinct`` its fixed point, else those of so many rounds, each as often as it comes."""
    if not distinct:
        found, level = list(seeds), list(seeds)
        for _ in range(rounds):
            level = plan.plain(level)
            found += level
        return sorted(found)
    known = set(seeds)
    while len(more := known | set(plan.plain(sorted(known)))) > len(known):
        known = more
    return sorted(known)
