"""Channels and outputs for the tests of queries that go on with an output, and the sources of such queries."""

from __future__ import annotations

from pathlib import Path

from helpers import rows
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.source import StreamReader
from pyspark_strandline.schema import spark_schema
from strandline.channel import Channel
from strandline.channel.statements.inputs import Input
from strandline.time.domain import int64


def send(path: Path, *batches: list[tuple[int, int]], then: int) -> None:
    """One commit with a file for each batch of rows."""
    channel, files, times = Channel.open(path), [], []
    for entries in batches:
        with channel.file_writer() as writer:
            writer.write(rows(int64, *entries))
            found = writer.finish()
        files, times = files + found[0], times + found[1]
    channel.append(files, statements={"a": [then]}, times=times, owner="a", take_over=True)


def commit(out: Channel, producer: str, batch: int, reads: list[Input], *entries: tuple[int, int], then: int = 0) -> None:
    """A batch of a query."""
    with out.file_writer() as writer:
        if entries:
            writer.write(rows(int64, *entries))
        files, times = writer.finish()
    out.append(
        files, statements={producer: [then]}, times=times, transaction=(producer, batch), owner=producer, reads=reads, always=True
    )


def reader(source: Channel, out: Channel, **options: str) -> StreamReader:
    parsed = ReadOptions.parse({"path": str(source.path), "resume": str(out.path), **options})
    return StreamReader(parsed, spark_schema(source.schema, source.time_column, source.domain))
