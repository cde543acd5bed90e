"""Channels of which one asks why a time is open, with commits as sinks make them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from strandline.channel import Channel, WriterSession
from strandline.channel.statements.inputs import Input
from strandline.report import Explanation
from strandline.time.arrow import array_of, time_field
from strandline.time.domain import Time, TimeDomain, int64


def make(path: Path, domain: TimeDomain = int64, producers: Iterable[str] = ("a", "b"), at: Time = 0, **more: Any) -> Channel:
    schema = pa.schema([time_field("time", domain), ("n", pa.int64())])
    return Channel.create(path, schema, producers=producers, at=at, **more)


def send(
    channel: Channel,
    producer: str,
    times: list[Time],
    holds: list[Time],
    reads: Iterable[Input] = (),
    owner: WriterSession | None = None,
) -> None:
    """One commit, as a sink makes it."""
    with channel.file_writer() as writer:
        if times:
            columns = [array_of(times, channel.domain), pa.array(range(len(times)), pa.int64())]
            writer.write(pa.Table.from_arrays(columns, schema=channel.schema))
        files, counted = writer.finish()
    owner = owner or WriterSession.here(producer.removeprefix("query-"))
    channel.append(files, statements={producer: holds}, times=counted, owner=owner, reads=tuple(reads))


def read(channel: Channel, *steps: dict[str, Any], domain: TimeDomain | None = None) -> Input:
    """Everything of a channel was read, and its times go through the steps."""
    return Input(channel.table_id, channel.version + 1, 0, channel.path, steps, None if domain is None else str(domain))


def dead(name: str = "1") -> WriterSession:
    """A session of a process that is gone."""
    process = subprocess.Popen(["sleep", "60"])
    session = WriterSession.of(psutil.Process(process.pid), name)
    process.kill()
    process.wait()
    return session


def the_culprit(answer: Explanation) -> Any:
    assert answer.open
    [culprit] = answer.culprits
    return culprit
