"""Offsets that Spark logged are read as places in the log, or refused: nothing is passed over without a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from helpers import make_channel, rows
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.source import StreamReader
from pyspark_strandline.schema import spark_schema
from strandline.channel import Channel, DataFile
from strandline.errors import StrandlineError
from strandline.time.domain import int64


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Channel:
    """Commits of three files each."""
    made = make_channel(tmp_path_factory.mktemp("offsets") / "in", producers=("a",))
    for n in range(3):
        files: list[DataFile] = []
        for i in range(3):
            with made.file_writer() as writer:
                writer.write(rows(int64, (3 * n + i, i)))
                files += writer.finish()[0]
        made.append(files, statements={"a": [3 * n + 3]}, times=[(3 * n + i, 1) for i in range(3)])
    return made


def reader(channel: Channel, **options: str) -> StreamReader:
    parsed = ReadOptions.parse({"path": str(channel.path), **options})
    return StreamReader(parsed, spark_schema(channel.schema, channel.time_column, channel.domain))


def read(channel: Channel, begin: dict[str, Any], end: dict[str, Any] | None = None) -> int:
    """How many rows a reader takes that goes on from ``begin``, or repeats a batch until ``end``."""
    own = reader(channel)
    count, end = 0, end or own.latestOffset(begin, ReadAllAvailable())
    for part in own.partitions(begin, end):
        count += sum(batch.num_rows for batch in own.read(part))
    return count


def place(channel: Channel, **fields: Any) -> dict[str, Any]:
    """An offset of the newest commit, with other fields."""
    return {**reader(channel, startingVersion=str(channel.version)).initialOffset(), **fields}


HOSTILE: dict[str, Callable[[int], dict[str, Any]]] = {
    "a negative file": lambda newest: {"file": -1},
    "a file beyond the commit's": lambda newest: {"file": 4},
    "a file of a commit that is not there yet": lambda newest: {"commit": newest + 1, "file": 1},
    "a negative commit": lambda newest: {"commit": -1},
    "a file that is no number": lambda newest: {"file": "0"},
    "a file that is a truth value": lambda newest: {"file": True},
    "a file with a fraction": lambda newest: {"file": 1.5},
    "a commit that is no number": lambda newest: {"commit": "2"},
    "no commit": lambda newest: {"commit": None},
    "a first snapshot that is not chosen, and a commit": lambda newest: {"snapshot": -1},
    "a first snapshot that is not chosen, and a file": lambda newest: {"snapshot": -1, "commit": 0, "file": 2, "began": None},
    "a negative snapshot": lambda newest: {"snapshot": -2},
    "a snapshot that is a truth value": lambda newest: {"snapshot": True},
    "a snapshot of another commit": lambda newest: {"snapshot": newest},
    "a frontier further on": lambda newest: {"frontier": [99]},
    "a frontier further back": lambda newest: {"frontier": [0]},
    "a stream that has ended": lambda newest: {"frontier": []},
    "a first snapshot in which times are closed": lambda newest: {"snapshot": -1, "commit": 0, "frontier": [3], "began": None},
    "a file beyond the snapshot's": lambda newest: {"snapshot": newest, "commit": newest + 1, "file": 10, "began": None},
    "a beginning further on": lambda newest: {"began": {"commit": newest + 1}},
    "a beginning with the newest snapshot": lambda newest: {"began": {"snapshot": newest}},
    "a beginning that is no object": lambda newest: {"began": newest},
    "a beginning nowhere": lambda newest: {"began": {"removed": 1}},
    "a beginning at two places": lambda newest: {"began": {"commit": 0, "snapshot": 0}},
    "a beginning at a truth value": lambda newest: {"began": {"commit": False}},
    "rows that were removed before the beginning": lambda newest: {"began": {"commit": 2, "removed": 1}},
    "a beginning that is lossy by a number": lambda newest: {"began": {"commit": 0, "lossy": 1}},
}
"""What is changed in a valid offset of the newest commit."""


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("use", ["as the begin", "as the end", "as the begin of a batch that is repeated"])
def test_what_is_no_place_in_the_log_is_refused(channel: Channel, name: str, use: str) -> None:
    hostile = place(channel, **HOSTILE[name](channel.version))
    first = reader(channel, startingVersion="0").initialOffset()
    with pytest.raises(StrandlineError, match="STRANDLINE_(OFFSET_INVALID|LOG_TRUNCATED)"):
        if use == "as the begin":
            read(channel, hostile)
        elif use == "as the end":
            read(channel, first, hostile)
        else:
            read(channel, hostile, reader(channel).latestOffset(place(channel), ReadAllAvailable()))


def test_every_place_that_a_reader_gives_is_one(channel: Channel) -> None:
    """One file a batch, begun at the first commit and with a snapshot; each begin and end is taken by another reader."""
    for start in ("0", "snapshot"):
        own = reader(channel, startingVersion=start, maxFilesPerTrigger="1")
        at, count = own.initialOffset(), 0
        while (end := own.latestOffset(at, own.getDefaultReadLimit())) != at:
            count += read(channel, at, end)
            at = end
        assert count == 9
