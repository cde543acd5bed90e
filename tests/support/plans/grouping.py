"""Aggregations in other forms: aliases, SQL, structs as keys and values, grouping sets; and modes that change at a restart."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from pyspark.sql import functions as F

from plans.environment import Environment
from plans.history import Row
from plans.refusal import UNCLOSED
from plans.stream import Operator, Stream, grouped
from plans.times import SECOND, TIMESTAMP, Domain, Time
from plans.unary import Sum, SumInMode
from plans.windows import Window


@dataclass(frozen=True)
class SumInForm(Sum):
    """:class:`Sum` with the key, written in another way."""

    how: str
    FORMS = {  # noqa: RUF012
        "alias": lambda rows: (
            rows.groupBy(F.col("time").alias("t"), "key").agg(F.sum("n").alias("n")).select(F.col("t").alias("time"), "key", "n")
        ),
        "SQL": lambda rows: _sql(rows, "SELECT time, key, sum(n) AS n FROM {v} GROUP BY time, key"),
        "GROUP BY ALL": lambda rows: _sql(rows, "SELECT time, key, sum(n) AS n FROM {v} GROUP BY ALL"),
        "CTE": lambda rows: _sql(
            rows,
            "WITH s AS (SELECT time AS t, key AS k, sum(n) AS n FROM {v} GROUP BY 1, 2) SELECT t time, k key, n FROM s",
        ),
        "HAVING": lambda rows: _sql(rows, "SELECT time, key, sum(n) AS n FROM {v} GROUP BY time, key HAVING count(*) > 0"),
        "time twice": lambda rows: (
            rows.groupBy("time", F.col("time").alias("t"), "key").agg(F.sum("n").alias("n")).select("time", "key", "n")
        ),
        "struct as key": lambda rows: (
            rows.groupBy(F.struct("time", "key").alias("s")).agg(F.sum("n").alias("n")).select("s.time", "s.key", "n")
        ),
        "one group of a grouping set": lambda rows: _sql(
            rows, "SELECT time, key, sum(n) AS n FROM {v} GROUP BY GROUPING SETS ((time, key))"
        ),
    }

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> SumInForm:
        return cls(by_key=True, how=r.choice(list(cls.FORMS)))

    def frame(self, *inputs: Any) -> Any:
        return self.FORMS[self.how](inputs[0])

    def refusals(self, environment: Environment, domain: Domain) -> frozenset[str]:
        return UNCLOSED if self.how in ("struct as key", "one group of a grouping set") else frozenset()


def _sql(rows: Any, text: str) -> Any:
    return rows.sparkSession.sql(text, v=rows)


@dataclass(frozen=True)
class LastOfWindow(Operator):
    """``max(struct(time, n))`` of a window: the struct's time is of a row, and comes out when it has long been closed."""

    width: int
    domains = (TIMESTAMP,)

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> LastOfWindow:
        return cls(r.choice((2, 5)))

    @property
    def window(self) -> Window:
        """The window."""
        return Window(self.width, self.width, 0, True, "start")

    def frame(self, *inputs: Any) -> Any:
        last = F.max(F.struct("time", "n")).alias("m")
        return inputs[0].groupBy(F.window("time", f"{self.width} seconds"), "key").agg(last).select("m.time", "key", "m.n")

    def stream(self, *inputs: Stream) -> Stream:
        child, width = inputs[0], self.width * SECOND

        def closed(batch: int, time: Time) -> bool:
            return child.closed(batch, time - time % width + width - 1)

        groups = grouped(child, lambda row: (row[0] - row[0] % width, row[1]))
        last = {group: max((time, n) for time, _, n in rows) for group, rows in groups.items()}
        rows = [
            ((time, key, n), next((i for i in range(child.batches) if closed(i, start)), None))
            for (start, key), (time, n) in last.items()
        ]
        return child.derived(child.domain, closed).with_rows(rows)

    def refusals(self, environment: Environment, domain: Domain) -> frozenset[str]:
        return UNCLOSED


SETS: dict[str, tuple[tuple[bool, bool], ...]] = {
    "ROLLUP (time, key)": ((True, True), (True, False), (False, False)),
    "ROLLUP (key, time)": ((True, True), (False, True), (False, False)),
    "CUBE (time, key)": ((True, True), (True, False), (False, True), (False, False)),
    "GROUPING SETS ((time, key), (key))": ((True, True), (False, True)),
    "GROUPING SETS ((time, key), (time))": ((True, True), (True, False)),
    "time, ROLLUP (key)": ((True, True), (True, False)),
    "ROLLUP (key)": ((False, True), (False, False)),
}


@dataclass(frozen=True)
class GroupingSets(SumInMode):
    """``GROUP BY`` sets of columns, some with the time and some without; of the others a row has NULL."""

    sets: str = "ROLLUP (time, key)"

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> GroupingSets:
        sets = r.choice(list(SETS))
        mode = "complete" if sets == "ROLLUP (key)" else r.choice(("append", *cls.modes))
        return cls(timed=True, mode=mode, sets=sets)

    def frame(self, *inputs: Any) -> Any:
        time = "CAST(NULL AS STRING) AS time" if self.sets == "ROLLUP (key)" else "time"
        return _sql(inputs[0], f"SELECT {time}, key, sum(n) AS n FROM {{v}} GROUP BY {self.sets}")

    def groups(self, row: Row) -> list[Any]:
        time, key, _ = row
        return [(place, time if timed else None, key if keyed else None) for place, (timed, keyed) in enumerate(SETS[self.sets])]

    def refusals(self, environment: Environment, domain: Domain) -> frozenset[str]:
        # A group without the time would never come in append mode.
        timeless = not all(timed for timed, _ in SETS[self.sets])
        return UNCLOSED if timeless and self.mode == "append" else frozenset()
