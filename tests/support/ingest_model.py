"""A plain model of an ingest over integer times, and a generator of outside traces: row by row, nothing clever."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Row = tuple[int | None, str | None, int, int | None, bool]
"""Time, partition, a number that makes it unique, a punctuation, and whether it only moves time (or was cancelled)."""

LEAST = -(1 << 63)


@dataclass
class Model:
    """What an ingest should do. ``policy`` is one of the kinds below with its parameter, or a function from partition to that."""

    policy: Callable[[str], tuple[str, Any]]
    named: tuple[str, ...] = ()
    sealed: bool = False
    expected: dict[str, Counter[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.holds: dict[str, int | None] = dict.fromkeys(self.named, LEAST)
        self.registrar: int | None = None if self.sealed else LEAST
        self.rows: list[Row] = []
        self.late: list[tuple[Row, str]] = []
        self.came: dict[str, Counter[int]] = {}

    def batch(self, rows: list[Row]) -> None:
        start = dict(self.holds)
        news: dict[str, list[Row]] = {}
        for row in rows:
            time, name, _, mark, flag = row
            if name is None or name == "":
                self.late.append((row, "null partition" if name is None else "invalid partition name"))
                continue
            if name not in self.holds:
                assert self.registrar is not None
                self.holds[name] = start[name] = self.registrar
            kind, _ = self.policy(name)
            mine = news.setdefault(name, [])
            if time is None:
                self.late.append((row, "null time"))
                if kind == "punctuated" and mark is not None:
                    mine.append((None, name, -1, mark, False))
                continue
            held = start[name]
            late = held is None or time < held
            if kind == "heartbeat" and flag:
                mine.append(row)
            elif late:
                self.late.append((row, "late"))
                if kind == "punctuated":
                    mine.append((None, name, -1, mark, False))
            else:
                mine.append(row)
                if not (kind == "manifest" and flag):
                    self.rows.append(row)
        for name in news if not self.expected else self.holds:
            self._promise(name, news.get(name, []))
        open_ = [held for held in self.holds.values() if held is not None]
        if self.registrar is not None and open_:
            self.registrar = max(self.registrar, min(open_))

    def _promise(self, name: str, rows: list[Row]) -> None:
        held, (kind, parameter) = self.holds[name], self.policy(name)
        times = [time for time, *_ in rows if time is not None]
        if kind == "manifest":
            came = self.came.setdefault(name, Counter())
            came.update(times)
            missing = [time for time, n in self.expected.get(name, Counter()).items() if came[time] < n]
            self.holds[name] = None if held is None or not missing else max(held, min(missing))
            return
        if kind in ("ordered", "bounded"):
            promised = max(times) - parameter if times else None
        elif kind == "heartbeat":
            promised = max((time for time, *_, flag in rows if flag and time is not None), default=None)
        else:
            promised = max((mark for *_, mark, _ in rows if mark is not None), default=None)
        if promised is not None and held is not None:
            self.holds[name] = max(held, promised, LEAST)

    @property
    def frontier(self) -> int | None:
        """The least that anybody holds."""
        held = [h for h in [*self.holds.values(), self.registrar] if h is not None]
        return min(held) if held else None


def trace(random_: random.Random, partitions: list[str], batches: int) -> list[list[Row]]:
    """Batches of an outside stream: partitions of different speed that fall silent, disorder, duplicates, rows without a time."""
    clock = {name: random_.randint(0, 20) for name in partitions}
    speed = {name: random_.choice((0, 1, 1, 2, 5)) for name in partitions}
    wild = {name: random_.choice((0, 0, 1, 3, 10)) for name in partitions}
    silent: dict[str, int] = {}
    result: list[list[Row]] = []
    n = 0
    for at in range(batches):
        rows: list[Row] = []
        for name in partitions:
            if random_.random() < 0.1:
                silent[name] = at + random_.randint(1, 6)
            if silent.get(name, 0) > at:
                continue
            for _ in range(random_.choice((0, 1, 1, 2, 6))):
                n += 1
                clock[name] += random_.randint(0, speed[name])
                time: int | None = clock[name] - random_.randint(0, wild[name])
                mark = clock[name] - wild[name] if random_.random() < 0.3 else None
                flag = random_.random() < 0.2
                if random_.random() < 0.02:
                    time = None
                row: Row = (time, name if random_.random() > 0.02 else random_.choice((None, "")), n, mark, flag)
                rows.append(row)
                if random_.random() < 0.05:
                    rows.append(row)  # the source sent it twice
        random_.shuffle(rows)
        result.append(rows)
    return result


def announce(trace_: list[list[Row]], random_: random.Random) -> dict[str, Counter[int]]:
    """A manifest of what a trace brings, with now and then a row announced that never comes."""
    expected: dict[str, Counter[int]] = {}
    for row in [row for rows in trace_ for row in rows]:
        if row[0] is not None and row[1]:
            expected.setdefault(row[1], Counter())[row[0]] += 1
    if random_.random() < 0.3 and expected:
        name = random_.choice(sorted(expected))
        expected[name][max(expected[name]) + random_.randint(0, 3)] += 1
    return expected
