"""Channels as the library makes them, at random: producers, seals, take-overs, columns, spans, OPTIMIZE, checkpoints, ingests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from channel_mutations import BATCHES, ingest_batch, make_ingested
from strandline.channel import Channel, WriterSession
from strandline.channel.statements.inputs import Input
from strandline.ingest import drop_partitions, end_corrections, readmit, release_parked
from strandline.time.antichain import Antichain
from strandline.time.arrow import array_of, time_field
from strandline.time.domain import Time, TimeDomain, int64, lex, product, timestamp

DOMAINS = [int64, timestamp, product(epoch="int64", iter="int64"), lex(tick="int64", step="int64")]
VALUES: list[tuple[pa.DataType, Callable[[Random], Any]]] = [
    (pa.int64(), lambda random: random.choice([None, 0, -5, 1 << 62])),
    (pa.string(), lambda random: random.choice([None, "", "é\U0001f600", "x" * 100, "a\nb"])),
    (pa.float64(), lambda random: random.choice([None, 0.5, float("nan"), float("inf"), -1e300])),
    (pa.list_(pa.string()), lambda random: random.choice([None, [], ["a", None]])),
    (pa.struct([("a", pa.int32()), ("b", pa.bool_())]), lambda random: random.choice([None, {"a": 1, "b": None}])),
    (pa.decimal128(12, 2), lambda random: None),
    (pa.date32(), lambda random: random.choice([None, 0, 20_000])),
    (pa.map_(pa.string(), pa.int64()), lambda random: random.choice([None, [("k", 1)]])),
]


def make_sound(path: Path, random: Random) -> str:
    """Make one channel. Return in words what was done with it."""
    if random.random() < 0.25:
        return _ingested(path, random)
    domain = random.choice(DOMAINS)
    kinds = [VALUES[0], *random.sample(VALUES, random.randrange(3))]
    schema = pa.schema([time_field("time", domain), *((f"c{i}" if i else "n", kind) for i, (kind, _) in enumerate(kinds))])
    names = [f"p{i}" for i in range(random.choice([1, 2, 3, 40, 80]))] if random.random() < 0.9 else []
    channel = Channel.create(path, schema, producers=names, at=_time(domain, 0), sealed=random.random() < 0.4 or None)
    did = [f"{domain}, {len(names)} producers"]
    at = 0
    for step in range(random.randrange(2, 14)):
        at += random.randrange(3)
        do = random.choice([_send, _send, _send, _append, _append, _join, _many, _optimize, _checkpoint, _seal, _alter, _clean])
        did.append(do.__name__)
        try:
            do(channel, random, _time(domain, at), kinds)
        except _NothingError:
            did.pop()
        if step % 3 == 0 or do is _clean:
            channel = Channel.open(path)
    return ", ".join(did)


class _NothingError(Exception):
    """The step does not fit this channel."""


def _time(domain: TimeDomain, at: int) -> Time:
    return tuple(at for _ in domain.coordinates) if domain.coordinates else at


def _rows(channel: Channel, random: Random, times: list[Time], kinds: Any) -> pa.Table:
    columns = [array_of(times, channel.domain)]
    columns += [pa.array([make(random) for _ in times], kind) for kind, make in kinds]
    fields = [channel.schema.field(i) for i in range(1 + len(kinds))]
    missing = channel.schema.names[1 + len(kinds) :]
    columns += [pa.nulls(len(times), channel.schema.field(name).type) for name in missing]
    return pa.Table.from_arrays(columns, schema=pa.schema([*fields, *(channel.schema.field(name) for name in missing)]))


def _holder(channel: Channel, random: Random) -> str:
    holding = [name for name, state in channel.producers.items() if state.holds]
    if not holding:
        raise _NothingError
    return random.choice(holding)


def _later(channel: Channel, name: str, time: Time) -> list[Time]:
    """Return the join of a time with each capability of a producer."""
    return [channel.domain.join(time, held) for held in channel.producers[name].holds]


def _send(channel: Channel, random: Random, time: Time, kinds: Any) -> None:
    name = _holder(channel, random)
    with channel.producer(name, take_over=True) as producer:
        for _ in range(random.randrange(3)):
            producer.send(_rows(channel, random, random.choices(_later(channel, name, time), k=random.randrange(1, 5)), kinds))
            if random.random() < 0.3:
                producer.commit()
        if random.random() < 0.7:
            producer.delay(_later(channel, name, time))
        if random.random() < 0.05:
            producer.drop()


def _append(channel: Channel, random: Random, time: Time, kinds: Any) -> None:
    name = _holder(channel, random)
    times = random.choices(_later(channel, name, time), k=random.choice([1, 3, 2000]))
    if channel.domain in (int64, timestamp) and len(times) == 2000:
        times = [times[0] + i for i in range(2000)]  # too many to name: spans
    with channel.file_writer() as writer:
        writer.write(_rows(channel, random, times, kinds))
        files, counted = writer.finish()
    channel.append(
        files,
        statements={name: _later(channel, name, time)},
        times=counted,
        spans=writer.spans,
        transaction=("query", channel.version + 1),
        owner=WriterSession.here("query"),
        take_over=True,
        states={name: {"at": channel.version, "s": random.choice([None, "x", [1, {"a": 2.5}]])}},
        reads=[Input("another", 3, 1, "/lake/another", ())] if random.random() < 0.5 else [],
    )


def _join(channel: Channel, random: Random, time: Time, kinds: Any) -> None:
    if channel.sealed:
        raise _NothingError
    joins = [channel.domain.join(time, held) for held in channel.registrar]
    channel.register([f"new-{random.randrange(1 << 30)}"], joins)


def _many(channel: Channel, random: Random, time: Time, kinds: Any) -> None:
    holding = [name for name, state in channel.producers.items() if state.holds]
    statements = {name: Antichain(channel.domain, _later(channel, name, time)) for name in holding}
    channel.append([], statements=statements, owner=WriterSession.here("many"), take_over=True)


def _optimize(channel: Channel, random: Random, time: Time, kinds: Any) -> None:
    DeltaTable(channel.path).optimize.compact()


def _checkpoint(channel: Channel, random: Random, time: Time, kinds: Any) -> None:
    channel.checkpoint()


def _seal(channel: Channel, random: Random, time: Time, kinds: Any) -> None:
    if channel.sealed or random.random() < 0.5:
        raise _NothingError
    if random.random() < 0.5:
        channel.delay_registrar([channel.domain.join(time, held) for held in channel.registrar])
    else:
        channel.seal()


def _alter(channel: Channel, random: Random, time: Time, kinds: Any) -> None:
    if "later" in channel.schema.names or random.random() < 0.7:
        raise _NothingError
    from deltalake.schema import Field, PrimitiveType

    DeltaTable(channel.path).alter.add_columns([Field("later", PrimitiveType("string"), nullable=True)])
    channel.refresh()


def _clean(channel: Channel, random: Random, time: Time, kinds: Any) -> None:
    if random.random() < 0.8:
        raise _NothingError
    from datetime import timedelta

    channel.clean_log(timedelta(0))


def _ingested(path: Path, random: Random) -> str:
    make_ingested(path)
    batch, now, did = len(BATCHES), len(BATCHES) * 15, ["ingest"]
    for _ in range(random.randrange(4)):
        rows = [(random.randrange(300), random.choice(["a", "b", "c", "m1", "m3"])) for _ in range(random.randrange(6))]
        do = random.choice(["batch", "batch", "readmit", "drop", "release", "optimize", "checkpoint"])
        did.append(do)
        if do == "batch":
            rows = [(60, name) if name == "m1" else (95, name) if name == "m3" else (time, name) for time, name in rows]
            now += 15
            ingest_batch(path, batch, rows, now)
            batch += 1
        elif do == "readmit":
            readmit(str(path))
        elif do == "drop":
            drop_partitions(str(path), ["b"])
        elif do == "release":
            release_parked(str(path), take_over=True)
        elif do == "optimize":
            DeltaTable(str(path)).optimize.compact()
        else:
            Channel.open(path).checkpoint()
    if random.random() < 0.2:
        did.append("end corrections")
        end_corrections(str(path))
    return ", ".join(did)
