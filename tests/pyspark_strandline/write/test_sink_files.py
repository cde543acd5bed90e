"""What the sink does with its tasks' files when a commit fails, is repeated, or only seems to fail. Without a Spark session."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_strandline.options import WriteOptions
from pyspark_strandline.write import sink
from pyspark_strandline.write.channel import open_channel
from pyspark_strandline.write.channel.channel_output import ChannelOutput
from pyspark_strandline.write.channel.written_files import WrittenFiles
from pyspark_strandline.write.commit_record import CommitRecord
from strandline.channel import Channel
from strandline.delta.table import Table
from strandline.time.antichain import Antichain
from strandline.time.domain import int64

SCHEMA = StructType([StructField("t", LongType(), True, {"strandline.time": "int64"}), StructField("n", LongType())])


class Query:
    """A query's sink, batch by batch."""

    def __init__(self, path: Path) -> None:
        self.path = str(path / "out")
        self.writer = sink.StreamWriter(WriteOptions.parse({"path": self.path, "producer": "q"}), SCHEMA)

    def message(self, time: int) -> sink._Written:
        with self.writer._outputs[""].file_writer(0) as files:
            files.write(pa.table({"t": [time], "n": [time]}))
            written = WrittenFiles.of(files)
            published = json.dumps({"domain": "int64", "start": [time], "end": [time + 1]})
            return sink._Written("id", published, {"": written})

    def times(self) -> list[int]:
        rows: list[int] = Channel.open(self.path).read()["t"].to_pylist()
        return sorted(rows)

    def files(self) -> int:
        return len(list(Path(self.path).glob("*.parquet")))


@pytest.fixture
def query(tmp_path: Path) -> Query:
    open_channel._open.clear()
    made = Query(tmp_path)
    made.writer.commit([made.message(1)], 0)
    return made


def test_a_batch_whose_tasks_failed_leaves_no_file(query: Query) -> None:
    message = query.message(2)
    assert query.files() == 2
    query.writer.abort([message, None], 1)
    assert query.files() == 1
    query.writer.abort([None], 1)


def test_a_replay_leaves_no_second_copy(query: Query) -> None:
    query.writer.commit([query.message(1)], 0)
    assert query.files() == 1
    assert query.times() == [1]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("told", [lambda _: False, lambda _: (_ for _ in ()).throw(OSError("timed out"))], ids=["no", "error"])
def test_an_answer_that_is_lost_loses_no_file(told: Callable[[bool], Any], restarted: bool, query: Query) -> None:
    real = Table.commit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Table, "commit", lambda *args, **kwargs: told(real(*args, **kwargs)))
        message = query.message(2)
        query.writer.commit([message], 1)
    if restarted:
        open_channel._open.clear()
    query.writer.abort([message], 1)  # Spark aborts whatever it was that raised
    query.writer.commit([query.message(2)], 1)
    query.writer.commit([message], 1)
    assert query.times() == [1, 2]
    assert query.files() == 2


def test_a_file_that_may_still_become_part_of_the_channel_stays(query: Query) -> None:
    real, arrives = Table.commit, list[Callable[[], bool]]()

    def slow(*args: Any, **kwargs: Any) -> bool:
        arrives.append(lambda: real(*args, **kwargs))
        raise OSError("timed out")

    message = query.message(2)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="timed out"):
        patch.setattr(Table, "commit", slow)
        query.writer.commit([message], 1)
    open_channel._open.clear()
    query.writer.abort([message], 1)
    assert arrives[0]()
    query.writer.commit([query.message(2)], 1)
    assert query.times() == [1, 2]


def test_a_query_with_other_storage_options_does_not_write_with_those_of_the_query_before(tmp_path: Path) -> None:
    """The process that commits outlives a query, and keys are rotated."""
    schema = pa.schema([("t", pa.int64()), ("n", pa.int64())])
    first, second = ({"durable": "false"}, {"durable": "true"})
    for batch, options in enumerate([first, second, first]):
        output = ChannelOutput(str(tmp_path / "out"), schema, "t", int64, options, "q")
        empty = output.batch(("id", batch), WrittenFiles())
        output.check(empty, CommitRecord("id", None), "")
        output.commit(empty, Antichain(int64, [batch]))
        found = output._found()
        assert found is not None
        assert found.channel.storage_options == options
    assert Channel.open(tmp_path / "out").frontier == Antichain(int64, [2])
