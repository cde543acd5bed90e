"""A stranger's path in a log: neither Python's tasks nor the JVM follow it out of the table."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from helpers import make_channel, say
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.source import StreamReader
from pyspark_strandline.schema import spark_schema
from strandline.channel import ChannelError
from strandline.delta.data_file import schema_mark
from strandline.delta.storage import commit_name


@pytest.mark.parametrize("scan", ["auto", "on", "off"])
@pytest.mark.parametrize("own", [True, False])
def test_no_task_reads_a_file_outside_of_the_table(tmp_path: Path, scan: str, own: bool) -> None:
    """Named as our own writer names files, of which the JVM is told without a look into their footers, and otherwise."""
    channel = make_channel(tmp_path / "in", producers=("a",))
    begin = channel.version + 1
    say(channel, "a", (1, 1), then=[2])
    version, file = next((commit.version, commit.files[0]) for commit in channel.log.tail(begin) if commit.files)
    commit = tmp_path / "in" / commit_name(version)
    stray = f"../salaries-{schema_mark(channel.schema) if own else 'x'}-1.parquet"
    (tmp_path / stray[3:]).write_bytes((tmp_path / "in" / file.path).read_bytes())
    commit.write_text(commit.read_text().replace(file.path, stray))
    options = ReadOptions.parse({"path": str(tmp_path / "in"), "startingVersion": str(begin), "nativeScan": scan})
    reader = StreamReader(options, spark_schema(channel.schema, channel.time_column, channel.domain))
    first = reader.initialOffset()
    with pytest.raises(ChannelError, match="STRANDLINE_PATH_OUTSIDE_TABLE"):
        for part in reader.partitions(first, reader.latestOffset(first, ReadAllAvailable())):
            list(reader.read(part))
