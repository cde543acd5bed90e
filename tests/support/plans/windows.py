"""Windows of timestamps: tumbling, sliding, of a coordinate, of windows, and sessions."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from pyspark.sql import functions as F

from plans.stream import Operator, Stream, grouped
from plans.times import EVENT, FAR, SECOND, TIMESTAMP, Domain, Time
from plans.unary import anybody


@dataclass(frozen=True)
class Window(Operator):
    """``window(time, width, slide, offset)``, by key or not; ``bound`` is what the rows' time is from then on."""

    width: int
    slide: int
    offset: int
    by_key: bool
    bound: str
    domains = (TIMESTAMP, EVENT)

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> Window:
        width, slide = r.choice(((2, 2), (5, 5), (10, 5), (6, 2), (10, 10)))
        return cls(width, slide, r.choice((0, 0, 1)), r.random() < 0.5, r.choice(("start", "end", "time")))

    def output(self, domain: Domain) -> Domain:
        return TIMESTAMP

    def frame(self, *inputs: Any) -> Any:
        composite = inputs[0].schema["time"].dataType.typeName() == "struct"
        w = F.window("time.event" if composite else "time", *(f"{s} seconds" for s in (self.width, self.slide, self.offset)))
        keys = (["key"], []) if self.by_key else ([], [anybody()])
        sums = inputs[0].groupBy(w.alias("w"), *keys[0]).agg(F.sum("n").alias("n"), *keys[1])
        return sums.select(bound_of("w", self.bound).alias("time"), "key", "n")

    def starts(self, event: int) -> list[int]:
        """The starts of the windows that hold ``event``."""
        slide, width = self.slide * SECOND, self.width * SECOND
        last = event - (event - self.offset * SECOND) % slide
        return [s for s in range(last, last - width, -slide) if s + width > event]

    def stream(self, *inputs: Stream) -> Stream:
        child, width = inputs[0], self.width * SECOND
        shift = {"start": 0, "end": width, "time": width - 1}[self.bound]
        composite = child.domain is EVENT

        def over(batch: int, start: int) -> bool:
            last = start + width - 1
            return child.closed(batch, (last, FAR) if composite else last)

        def closed(batch: int, time: Time) -> bool:
            # The latest window whose bound is at or before the time: are its rows all there?
            return over(batch, time - (time - shift - self.offset * SECOND) % (self.slide * SECOND) - shift)

        each = child.with_rows(
            ((start, key if self.by_key else "*", n), batch)
            for (time, key, n), batch in child.rows
            for start in self.starts(time[0] if composite else time)
        )
        rows = [
            ((start + shift, key, sum(n for _, _, n in rows)), next((i for i in range(child.batches) if over(i, start)), None))
            for (start, key), rows in grouped(each, lambda row: row[:2]).items()
        ]
        return child.derived(TIMESTAMP, closed).with_rows(rows)


@dataclass(frozen=True)
class WindowOfWindow(Operator):
    """An aggregation by windows, and one by windows of those: ``window(window)``, or its ``window_time``."""

    inner: Window
    outer: Window
    direct: bool
    domains = (TIMESTAMP, EVENT)

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> WindowOfWindow:
        width = r.choice((2, 5))
        outer = Window(2 * width, r.choice((width, 2 * width)), 0, False, r.choice(("start", "end")))
        return cls(Window(width, width, 0, r.random() < 0.5, "time"), outer, r.random() < 0.5)

    def output(self, domain: Domain) -> Domain:
        return TIMESTAMP

    def frame(self, *inputs: Any) -> Any:
        if not self.direct:
            return self.outer.frame(self.inner.frame(inputs[0]))
        composite = inputs[0].schema["time"].dataType.typeName() == "struct"
        small = F.window("time.event" if composite else "time", f"{self.inner.width} seconds").alias("w")
        sums = inputs[0].groupBy(small, *(["key"] if self.inner.by_key else [])).agg(F.sum("n").alias("n"))
        large = F.window(F.col("w"), f"{self.outer.width} seconds", f"{self.outer.slide} seconds").alias("w")
        again = sums.groupBy(large).agg(F.sum("n").alias("n"), anybody())
        return again.select(bound_of("w", self.outer.bound).alias("time"), "key", "n")

    def stream(self, *inputs: Stream) -> Stream:
        return self.outer.stream(self.inner.stream(inputs[0]))


@dataclass(frozen=True)
class Session(Operator):
    """``session_window``, by key: a row at exactly a session's end still prolongs it, in Spark's merge."""

    gap: int
    bound: str
    domains = (TIMESTAMP,)

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> Session:
        return cls(r.choice((1, 2, 4)), r.choice(("end", "time")))

    def frame(self, *inputs: Any) -> Any:
        sums = inputs[0].groupBy(F.session_window("time", f"{self.gap} seconds").alias("s"), "key").agg(F.sum("n").alias("n"))
        return sums.select(bound_of("s", self.bound).alias("time"), "key", "n")

    def stream(self, *inputs: Stream) -> Stream:
        child, shift = inputs[0], 0 if self.bound == "end" else 1
        rows = []
        for key, members in grouped(child, lambda row: row[1]).items():
            sessions: list[list[int]] = []
            for time, _, n in sorted(members, key=lambda row: row[0]):
                if sessions and time <= sessions[-1][0]:
                    sessions[-1] = [time + self.gap * SECOND, sessions[-1][1] + n]
                else:
                    sessions.append([time + self.gap * SECOND, n])
            rows += [((end - shift, key, n), child.closing(end)) for end, n in sessions]
        return child.derived(TIMESTAMP, lambda batch, time: child.closed(batch, time + shift)).with_rows(rows)


def bound_of(window: str, bound: str) -> Any:
    """The start or end of a window column, or its ``window_time``."""
    return F.window_time(window) if bound == "time" else F.col(f"{window}.{bound}")
