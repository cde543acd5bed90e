"""A loop of a drawn shape, in a process of its own: ``python recorded_loop.py record|replay|fixed FOLDER SEED SETTINGS``.

``record`` records the files in ``FOLDER/files`` with :func:`pyspark_strandline.record`, and what comes round in the loop over it,
until it is killed; with ``"ends": true`` in its settings, to the end. ``replay`` replays that into ``FOLDER/<into>``, and goes
on with a replay that was killed. ``fixed`` runs a loop without a recording over :func:`outside`, into ``FOLDER/<into>``.
The settings are JSON, see :class:`Settings`.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_strandline import Processor, configure, hold, process, read_loop, record
from pyspark_strandline.replay import LoopReplay, replay_loop
from strandline.channel import Channel
from strandline.replay import CLOCK, ORIGINAL, Timestamper, recorded
from strandline.time.arrow import time_field, times_of
from strandline.time.domain import Time

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have it

MS = 1000
COLUMNS = ("key", "hops", "value")
OPERATORS = ("sum", "hold", "processor")
SHAPES = ("one", "two", "event")
SESSION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
}
_FIELDS = [("key", pa.string()), ("hops", pa.int64()), ("value", pa.int64())]


@dataclass(frozen=True)
class Settings:
    """How one run goes: none of it may change the result."""

    files: int | None = None
    """``maxFilesPerTrigger``."""
    partitions: int = 2
    cores: int = 2
    ends: bool = False
    into: str = "again"

    @classmethod
    def draw(cls, draw: random.Random, into: str = "again") -> Settings:
        return cls(draw.choice([None, 1, 1, 2, 5]), draw.randint(1, 3), draw.randint(1, 2), False, into)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def options(self) -> dict[str, Any]:
        return {} if self.files is None else {"maxFilesPerTrigger": self.files}


@dataclass(frozen=True)
class Shape:
    """A loop over rows ``(key, hops, value)``: an operator keeps them until their time is closed, some of them come round."""

    way: str
    links: str
    operator: str

    @classmethod
    def of(cls, seed: int) -> Shape:
        """Return the shape of a seed: 18 of these that follow each other have each shape once."""
        order = [cls(way, links, operator) for way in ("clock", "earliest") for links in SHAPES for operator in OPERATORS]
        random.Random(7).shuffle(order)
        return order[seed % len(order)]

    @classmethod
    def fixed(cls, seed: int) -> Shape:
        """Return a shape whose rows come round exactly their lag later: 9 of these that follow each other have each once."""
        order = [cls("fixed", links, operator) for links in SHAPES for operator in OPERATORS]
        random.Random(8).shuffle(order)
        return order[seed % len(order)]

    @property
    def records(self) -> Any:
        """The argument ``record`` of the loop."""
        return False if self.way == "fixed" else self.way

    @property
    def lags(self) -> dict[str, int]:
        """The links, each with its lag in microseconds."""
        second = {"one": {}, "two": {"far": 350 * MS}, "event": {"timers": 40 * MS}}[self.links]
        return {"back": 100 * MS, **second}

    @property
    def events(self) -> dict[str, str]:
        return {"timers": "due"} if self.links == "event" else {}

    @property
    def feedback(self) -> dict[str, dict[str, str]]:
        return {name: {"instant": f"{lag} microseconds"} for name, lag in self.lags.items()}

    def comes(self, link: str, hops: int, value: int) -> tuple[int, int] | None:
        """Return the hops and the value of what a row sends round by a link."""
        goes = hops > 0 and (self.links == "one" or (value % 3 == 0) != (link == "back"))
        return (hops - 1, (value * 3 + 1) % 101) if goes else None


def create(folder: Path, shape: Shape) -> None:
    """Create the links. The recording makes the channel of what comes from outside."""
    schema = pa.schema([time_field("time", CLOCK), *_FIELDS])
    for name in shape.lags:
        event = name in shape.events
        plain = recorded(schema) if shape.records else schema
        own = schema.append(pa.field("due", pa.timestamp("us", "UTC"))) if event else plain
        Channel.create(folder / name, own, producers=["loop"], exist_ok=True)


def put(folder: Path, number: int, draw: random.Random) -> None:
    """Write a file with rows from outside. Each row has an id of its own."""
    files = folder / "files"
    files.mkdir(exist_ok=True)
    rows = [
        {"id": number * 10 + i, "key": draw.choice("abc"), "hops": draw.randint(0, 3), "value": draw.randint(0, 100)}
        for i in range(draw.randint(1, 4))
    ]
    hidden = files / f".{number}"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(files / f"{number:04d}.json")


def outside(folder: Path, seed: int, count: int) -> None:
    """Write what comes from outside by a clock that shows drawn instants, in commits that are drawn."""
    draw, shown = random.Random(seed), [1_700_000_000_000 * MS]
    with Timestamper(
        Channel.create(folder / "in", pa.schema([time_field("time", CLOCK), *_FIELDS])), "in", clock=lambda: shown[-1]
    ) as node:
        Channel.open(folder / "in").seal()
        for _ in range(count):
            shown.append(shown[-1] + draw.choice([0, 1, 10 * MS, 40 * MS, 50 * MS, 100 * MS, 250 * MS]))
            row = {"key": [draw.choice("abc")], "hops": [draw.randint(0, 3)], "value": [draw.randint(0, 100)]}
            node.send(pa.table(row))
            if draw.random() < 0.3:
                node.commit()
        node.drop()


class Totals(Processor):
    """Adds what a key has had so far to each row, in the order of times. So the result depends on that order."""

    schema = "hops bigint, value bigint"
    state_schema = "total bigint, waiting map<string, array<struct<hops bigint, value bigint>>>"

    def on_rows(self, time: Any, rows: pa.Table) -> None:
        known = self.state or {"total": 0, "waiting": {}}
        waiting = dict(known["waiting"])
        waiting[repr(time)] = [*waiting.get(repr(time), []), *rows.select(["hops", "value"]).to_pylist()]
        self.state = {"total": known["total"], "waiting": waiting}
        self.notify_at(time)

    def on_notify(self, time: Any) -> None:
        assert self.state is not None
        total, waiting = self.state["total"], dict(self.state["waiting"])
        for row in sorted(waiting.pop(repr(time)), key=lambda row: (row["hops"], row["value"])):
            total = (total * 7 + row["value"]) % 101
            self.emit(time, [{"hops": row["hops"], "value": total}])
        self.state = {"total": total, "waiting": waiting}


def body(shape: Shape, loop: Any) -> dict[str, Any]:
    """Return what the loop makes: by the names of its links and of its output."""
    rows = reduce(lambda a, b: a.union(b), (loop[name].select("time", *COLUMNS) for name in ("in", *shape.lags)))
    if shape.operator == "sum":
        made = rows.groupBy("time", "key", "hops").agg(F.sum("value").alias("value"))
    elif shape.operator == "hold":
        made = hold(rows, by="key")
    else:
        made = process(rows, Totals(), key="key")
    made = made.select("time", *COLUMNS)
    outputs = {"out": made}
    for name in shape.lags:
        goes = F.lit(True) if shape.links == "one" else ((F.col("value") % 3 == 0) != F.lit(name == "back"))
        moved = [(F.col("hops") - 1).alias("hops"), ((F.col("value") * 3 + 1) % 101).alias("value")]
        due = F.timestamp_micros(F.unix_micros(F.col("time").getField("instant")) + F.col("value") * (2 * MS))
        more = [due.alias("due")] if name in shape.events else []
        outputs[name] = made.where((F.col("hops") > 0) & goes).select("time", "key", *moved, *more)
    return outputs


def _channels(folder: Path, shape: Shape, links: Path | None = None) -> dict[str, str]:
    return {"in": str(folder / "in"), **{name: str((links or folder) / name) for name in shape.lags}}


def record_outside(spark: Any, folder: Path, settings: Settings) -> Any:
    """Return the writer of the recording of the files."""
    files = spark.readStream.schema("id bigint, key string, hops bigint, value bigint").options(**settings.options)
    writer = record(files.json(str(folder / "files")), folder / "in", node="in", take_over=True)
    return writer.option("checkpointLocation", str(folder / "checkpoint-in"))


def record_loop(spark: Any, folder: Path, shape: Shape, settings: Settings) -> Any:
    """Return the writer of the loop over that recording, or of one without a recording."""
    at = folder if shape.records else folder / settings.into
    loop = read_loop(
        spark,
        _channels(folder, shape, at),
        feedback=shape.feedback,
        domain=CLOCK,
        record=shape.records,
        events=shape.events or None,
        **settings.options,
    )
    made = body(shape, loop)
    writer = loop.write({**made, "out": (made["out"], at / "out")})
    return writer.option("checkpointLocation", str(at / "checkpoint"))


def record_all(spark: Any, folder: Path, shape: Shape, settings: Settings) -> None:
    """Record, until the process is killed or to the end of the files. At the end everything is closed."""
    if not settings.ends:
        record_outside(spark, folder, settings).start()
        record_loop(spark, folder, shape, settings).start()
        spark.streams.awaitAnyTermination()
        return
    if Channel.open(folder / "in").frontier:
        record_outside(spark, folder, settings).trigger(availableNow=True).start().awaitTermination()
        with Timestamper(Channel.open(folder / "in"), "in", take_over=True) as node:
            node.drop()
    record_loop(spark, folder, shape, settings).trigger(availableNow=True).start().awaitTermination()


def replay_all(spark: Any, folder: Path, shape: Shape, settings: Settings) -> LoopReplay:
    """Replay, or go on with a replay that was killed."""
    return replay_loop(
        spark,
        _channels(folder, shape),
        lambda loop: body(shape, loop),
        folder / settings.into,
        feedback=shape.feedback,
        record=shape.records,
        events=shape.events or None,
        resume=True,
        **settings.options,
    )


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a channel in the order of their times, which are tuples."""
    table = Channel.open(path).read()
    found: list[dict[str, Any]] = table.to_pylist()
    for name in ("time", ORIGINAL):
        if name in table.column_names:
            for row, at in zip(found, times_of(table.column(name), CLOCK), strict=True):
                row[name] = at
    return sorted(found, key=lambda row: (row["time"], *(row[name] for name in COLUMNS)))


def check_recording(folder: Path, shape: Shape) -> int:
    """Hold a recording that has ended to its own times, in plain Python. Return how many rows came round.

    The operator over the rows from outside and those that came round, in the order of their times, makes exactly these rows and
    the output. New times are unique, after the old ones, and with ``earliest`` never more than the lag behind.
    """
    inside = {name: rows_of(folder / name) for name in ("in", *shape.lags)}
    made = _made(shape, [row for rows in inside.values() for row in rows])
    assert Counter(made) == Counter(_values(rows_of(folder / "out"))), "the output is not what the recorded rows make"
    for name, lag in shape.lags.items():
        assert not Channel.open(folder / name).frontier
        sent = [(at, key, value, comes) for at, key, hops, value in made if (comes := shape.comes(name, hops, value))]
        if name in shape.events:
            first = lambda at, value: (max(at[0] + value * 2 * MS, at[0] + lag), -(1 << 62), 0)  # noqa: B023, E731
            expected = Counter((first(at, value), key, *comes) for at, key, value, comes in sent)
            assert expected == Counter(_values(inside[name])), name
            continue
        expected = Counter((at, key, *comes) for at, key, _, comes in sent)
        assert expected == Counter((row[ORIGINAL], *(row[c] for c in COLUMNS)) for row in inside[name]), name
        for row in inside[name]:
            assert row["time"] > row[ORIGINAL]
            assert shape.way == "clock" or row["time"][0] <= row[ORIGINAL][0] + lag, row
    stamped = [row["time"] for name, rows in inside.items() if name not in shape.events for row in rows]
    assert len(set(stamped)) == len(stamped)
    return sum(len(inside[name]) for name in shape.lags)


def _values(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["time"], *(row[name] for name in COLUMNS)) for row in rows]


def _made(shape: Shape, rows: list[dict[str, Any]], totals: dict[str, int] | None = None) -> list[tuple[Time, str, int, int]]:
    """The operator in plain Python. ``totals``: what the processor has kept from earlier times."""
    totals = defaultdict(int) if totals is None else totals
    if shape.operator == "hold":
        return [(row["time"], row["key"], row["hops"], row["value"]) for row in rows]
    if shape.operator == "sum":
        sums: Counter[tuple[Any, str, int]] = Counter()
        for row in rows:
            sums[(row["time"], row["key"], row["hops"])] += row["value"]
        return [(*group, value) for group, value in sums.items()]
    found = []
    for row in sorted(rows, key=lambda row: (row["time"], row["key"], row["hops"], row["value"])):
        totals[row["key"]] = (totals[row["key"]] * 7 + row["value"]) % 101
        found.append((row["time"], row["key"], row["hops"], totals[row["key"]]))
    return found


def fixed_result(folder: Path, shape: Shape) -> list[tuple[Any, ...]]:
    """Return what a loop without a recording makes, in plain Python, one time after the other."""
    waiting: dict[Time, list[dict[str, Any]]] = defaultdict(list)
    for row in rows_of(folder / "in"):
        waiting[row["time"]].append(row)
    found: list[tuple[Any, ...]] = []
    totals: dict[str, int] = defaultdict(int)
    while waiting:
        at = min(waiting)
        rows = waiting.pop(at)
        for made in _made(shape, rows, totals):
            found.append(made)
            _, key, hops, value = made
            for name, lag in shape.lags.items():
                if comes := shape.comes(name, hops, value):
                    due = (max(at[0] + value * 2 * MS, at[0] + lag), -(1 << 62), 0)
                    later = due if name in shape.events else (at[0] + lag, -(1 << 63), -(1 << 63))
                    waiting[later].append({"time": later, "key": key, "hops": comes[0], "value": comes[1]})
    return sorted(found)


def check_stamps_of_outside(folder: Path) -> int:
    """Hold what was recorded from outside to the files: each row once, at times that grow with the batches. Return how many.

    No row is before the frontier that the channel had before its commit.
    """
    written = [json.loads(line) for file in (folder / "files").glob("*.json") for line in file.read_text().splitlines()]
    kept = Channel.open(folder / "in").read().select(["id", *COLUMNS]).to_pylist()
    by_id = lambda row: row["id"]  # noqa: E731
    assert sorted(kept, key=by_id) == sorted(written, key=by_id)
    channel = Channel.open(folder / "in")
    last: Time | None = None
    seen: set[Time] = set()
    for commit in channel.log.tail(1):
        if not commit.files:
            continue
        times = times_of(channel.read_files(commit.files).column("time"), CLOCK)
        assert len({*times}) == len(times)
        assert seen.isdisjoint(times)
        assert last is None or min(times) > last, f"version {commit.version} begins at {min(times)}, after {last}"
        for at in channel.frontier_at(commit.version - 1):
            assert min(times) >= at, f"version {commit.version} begins at {min(times)}, before the frontier {at}"
        last = max(times)
        seen |= {*times}
    return len(kept)


def session(settings: Settings) -> Any:
    """Return a session of this process."""
    builder = SparkSession.builder.master(f"local[{settings.cores}]").config(map=SESSION)
    builder = builder.config("spark.sql.shuffle.partitions", str(settings.partitions))
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    return configure(builder, delta=False).getOrCreate()


def main(what: str, folder: Path, seed: int, settings: Settings) -> None:
    """Run one part."""
    spark, shape = session(settings), Shape.fixed(seed) if what == "fixed" else Shape.of(seed)
    if what == "record":
        record_all(spark, folder, shape, settings)
    elif what == "fixed":
        record_loop(spark, folder, shape, settings).trigger(availableNow=True).start().awaitTermination()
    else:
        found = replay_all(spark, folder, shape, settings)
        assert found.equal, found.to_text()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), Settings(**json.loads(sys.argv[4])))
