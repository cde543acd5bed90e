"""A table that is deleted and made anew under those who read and write it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from helpers import make_channel, say
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.source import StreamReader
from pyspark_strandline.schema import spark_schema
from strandline.channel import Channel, ChannelError


def made(path: Path, commits: int) -> Channel:
    shutil.rmtree(path, ignore_errors=True)
    channel = make_channel(path, producers=("a",))
    for n in range(commits):
        say(channel, "a", (n, n), then=[n + 1])
    return channel


@pytest.mark.parametrize("commits", [1, 5, 6, 9])
def test_no_row_of_another_table_is_taken_for_the_next(tmp_path: Path, commits: int) -> None:
    """The table of before had five; the new one is shorter, as long, or longer, and nobody passes over its first rows."""
    old = made(tmp_path / "in", 5)
    opened = Channel.open(old.path)
    options = ReadOptions.parse({"path": str(tmp_path / "in"), "startingVersion": "0"})
    reader = StreamReader(options, spark_schema(old.schema, old.time_column, old.domain))
    at = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    made(tmp_path / "in", commits)
    beyond = Channel.open(old.path).version > old.version
    if beyond:
        for read in (lambda: reader.latestOffset(at, ReadAllAvailable()), opened.refresh):
            with pytest.raises(ChannelError, match="STRANDLINE_CHANNEL_REPLACED"):
                read()
    else:
        assert reader.latestOffset(at, ReadAllAvailable()) == at  # nothing is there that it has not passed
    fresh = StreamReader(options, spark_schema(old.schema, old.time_column, old.domain))
    with pytest.raises(Exception, match="STRANDLINE_CHECKPOINT_MISMATCH"):
        fresh.latestOffset(at, ReadAllAvailable())
