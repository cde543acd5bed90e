"""``hold``, ``on_complete`` and processors in plans."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa

from plans.stream import Operator, Stream, grouped
from plans.times import DOMAINS, Domain
from pyspark_strandline import Processor, hold, on_complete, process


@dataclass(frozen=True)
class Hold(Operator):
    """Every row, when its time is closed."""

    by_key: bool
    domains = DOMAINS

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> Hold:
        return cls(r.random() < 0.5)

    def frame(self, *inputs: Any) -> Any:
        return hold(inputs[0], by="key" if self.by_key else ())

    def stream(self, *inputs: Stream) -> Stream:
        return inputs[0].with_rows((row, inputs[0].closing(row[0])) for row, _ in inputs[0].rows)


@dataclass(frozen=True)
class OnComplete(Operator):
    """The sum of a time, or of a time and key, by a function that sees all its rows at once."""

    by_key: bool
    domains = DOMAINS

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> OnComplete:
        return cls(r.random() < 0.5)

    def frame(self, *inputs: Any) -> Any:
        def total(time: Any, *rest: Any) -> pa.Table:
            rows = rest[-1]
            key = rest[0][0] if len(rest) == 2 else "*"
            return pa.table({"time": rows.column("time").slice(0, 1), "key": [key], "n": [sum(rows.column("n").to_pylist())]})

        return on_complete(inputs[0], total, inputs[0].schema, key="key" if self.by_key else ())

    def stream(self, *inputs: Stream) -> Stream:
        groups = grouped(inputs[0], lambda row: (row[0], row[1] if self.by_key else "*"))
        return inputs[0].with_rows(
            ((time, key, sum(n for _, _, n in rows)), inputs[0].closing(time)) for (time, key), rows in groups.items()
        )


def _sums() -> Processor:
    # Made here, so that it goes to the tasks by value: they do not have this module.
    class Sums(Processor):
        """Keeps a key's sums by time, and tells each when it is notified of its time."""

        schema = "n bigint"
        state_schema = "sums array<struct<time string, n bigint>>"

        def on_rows(self, time: Any, rows: pa.Table) -> None:
            sums = {entry["time"]: entry["n"] for entry in (self.state or {"sums": []})["sums"]}
            sums[repr(time)] = sums.get(repr(time), 0) + sum(rows.column("n").to_pylist())
            self.state = {"sums": [{"time": t, "n": n} for t, n in sums.items()]}
            self.notify_at(time)

        def on_notify(self, time: Any) -> None:
            assert self.state is not None
            self.emit(time, [{"n": entry["n"]} for entry in self.state["sums"] if entry["time"] == repr(time)])
            left = [entry for entry in self.state["sums"] if entry["time"] != repr(time)]
            self.state = {"sums": left} if left else None

    return Sums()


@dataclass(frozen=True)
class Notified(Operator):
    """The sum of a time and key, by a processor that asks to be notified."""

    domains = DOMAINS

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> Notified:
        return cls()

    def frame(self, *inputs: Any) -> Any:
        return process(inputs[0], _sums(), key="key").select("time", "key", "n")

    def stream(self, *inputs: Stream) -> Stream:
        return OnComplete(by_key=True).stream(*inputs)
