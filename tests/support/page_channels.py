"""Channels, queries between them, and an ingest, as the tests of the page look at them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from cli_schemas import check
from strandline import advance
from strandline.channel import Channel, WriterSession
from strandline.channel.statements.inputs import Input
from strandline.page import Looker, Page
from strandline.page.model import ChannelView
from strandline.scope import Scope
from strandline.time.arrow import array_of, time_field
from strandline.time.domain import Time, TimeDomain, int64, product

LOOP = product(epoch="int64", iter="int64")


def make(path: Path, domain: TimeDomain = int64, producers: Iterable[str] = ("a", "b"), at: Time = 0, **more: Any) -> Channel:
    schema = pa.schema([time_field("time", domain), ("n", pa.int64())])
    return Channel.create(path, schema, producers=producers, at=at, **more)


def send(channel: Channel, producer: str, times: list[Time], holds: list[Time], *reads: Input) -> None:
    """One commit, as a sink makes it."""
    with channel.file_writer() as writer:
        if times:
            columns = [array_of(times, channel.domain), pa.array(range(len(times)), pa.int64())]
            writer.write(pa.Table.from_arrays(columns, schema=channel.schema))
        files, counted = writer.finish()
    owner = WriterSession.here(producer.removeprefix("query-"))
    channel.append(files, statements={producer: holds}, times=counted, owner=owner, reads=reads)


def read_of(channel: Channel, commit: int | None = None) -> Input:
    """All of a channel as of now, as a query states that it has read it."""
    return Input(channel.table_id, channel.version + 1 if commit is None else commit, 0, channel.path, ())


def a_loop(folder: Path, stated: int = 0) -> Scope:
    """A scope with a query that reads what it writes. It has read all but the newest commit of ``edges``."""
    edges = make(folder / "edges", LOOP, ["feed"], (0, 0))
    labels = make(folder / "labels", LOOP, ["query-5b1"], (0, 0))
    result = make(folder / "result", LOOP, ["query-5b1"], (0, 0))
    scope = Scope.create(folder / "components", LOOP)
    for name in ("edges", "labels", "result"):
        scope.add_channel(name, folder / name)
    step = advance(LOOP, "iter")
    row = {"labels": step, "result": step}
    scope.add_query("spread", reads=["edges", "labels"], writes=["labels", "result"], summaries={"edges": row, "labels": row})
    send(edges, "feed", [(0, 0), (1, 0)], [(3, stated)])
    reads = read_of(edges), read_of(labels)
    send(labels, "query-5b1", [(0, 1), (0, 2)], [(0, 3), (1, 1)], *reads)
    send(result, "query-5b1", [(0, 1)], [(0, 3), (1, 1)], *reads)
    send(edges, "feed", [(3, 0), (4, 0), (4, 0)], [(5, 0)])
    return scope


def look(*paths: object, now_ms: int | None = None, **options: Any) -> Page:
    """One look at some paths, at a moment of the clock if one is given."""
    if now_ms is not None:
        options["clock_ms"] = lambda: now_ms
    page = Looker([str(path) for path in paths], **{"interval": 0.0, **options}).look()
    check("report", json.loads(json.dumps(page.to_json())))
    return page


def view(*paths: object, **options: Any) -> ChannelView:
    """The only channel of a look."""
    [only] = look(*paths, **options).channels
    return only
