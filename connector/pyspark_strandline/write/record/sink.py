"""The sink of a recording: the driver reads the clock, tasks number their rows, and a commit takes them in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_strandline.options import RecordOptions
from pyspark_strandline.schema import arrow_schema
from pyspark_strandline.workers import without_stack, without_stack_in_pickle
from pyspark_strandline.write.channel.channel_output import ChannelOutput
from pyspark_strandline.write.channel.same_batch import ALWAYS
from pyspark_strandline.write.channel.written_files import WrittenFiles
from pyspark_strandline.write.commit_record import record_of
from strandline.channel.write.create import nullable_field
from strandline.replay.clock import CLOCK, NodeStart
from strandline.replay.restamp import Numbered
from strandline.time.antichain import Antichain
from strandline.time.arrow import array_of, time_field
from strandline.time.domain import int64

__all__ = ["RecordWriter", "recording_schema"]

_ROWS_AT_ONCE = 10_000
_QUERY_ID = "sql.streaming.queryId"


def recording_schema(schema: StructType, time_column: str) -> pa.Schema:
    """Return the columns of a recording: the time, and those of the rows."""
    return pa.schema([time_field(time_column, CLOCK), *(nullable_field(each).remove_metadata() for each in arrow_schema(schema))])


@dataclass
class _Recorded(WriterCommitMessage):
    """The message of a task to the driver."""

    query_id: str
    start: NodeStart
    written: WrittenFiles


class RecordWriter(DataSourceStreamArrowWriter):
    """Writes a stream into a recording, as one of its nodes. A batch is one Delta commit, which decides its rows' times."""

    def __init__(self, options: RecordOptions, schema: StructType) -> None:
        self._options = options
        self._output = ChannelOutput(
            options.path,
            recording_schema(schema, options.time),
            options.time,
            CLOCK,
            options.storage,
            options.node,
            options.take_over,
            accept_replay=ALWAYS,  # what was received first counts: the source of a repeated batch may have other rows now
            restamped=True,
        )
        self._start: NodeStart | None = None

    @without_stack_in_pickle
    def __getstate__(self) -> dict[str, object]:
        """Return the state for the tasks: with the instant of the batch, and the node's first number in it."""
        if self._start is None:
            channel = self._output.existing()
            self._start = NodeStart.of(channel, self._options.node, time.time_ns() // 1000)
        return dict(self.__dict__)

    @without_stack
    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Recorded:
        """In a task: stamp the rows, and write them into files that are not part of the channel yet."""
        context = TaskContext.get()
        if context is None or self._start is None:
            raise RuntimeError("the strandline sink writes only in Spark tasks")
        start, part, schema = self._start, context.partitionId(), self._output.schema
        stamp = Numbered(start, part, self._options.time)
        unstamped = array_of([(0, 0, 0)] * _ROWS_AT_ONCE, CLOCK)
        with self._output.file_writer(part, stamp=stamp) as writer:
            for batch in iterator:
                if batch.num_rows > len(unstamped):
                    unstamped = array_of([(0, 0, 0)] * batch.num_rows, CLOCK)
                times = unstamped.slice(0, batch.num_rows)
                by_name = dict(zip(batch.schema.names, batch.columns, strict=True)) | {self._options.time: times}
                columns = [by_name[field.name].cast(field.type) for field in schema]
                writer.write(pa.Table.from_arrays(columns, schema=schema))
            written = WrittenFiles.of(writer, stamp)
        return _Recorded(context.getLocalProperty(_QUERY_ID) or "", start, written)

    @without_stack
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: add the batch's files, and promise that later rows are after this moment."""
        told = [message for message in messages if isinstance(message, _Recorded)]
        if not told:
            raise RuntimeError(f"batch {batchId} has no message from a task")
        query, start, written = told[0].query_id, told[0].start, _together(told)
        output = self._output
        batch = output.batch((query, batchId), written)
        record = record_of(query, self._options.checkpoint, self._options.storage)
        output.check(batch, record, "")
        promised = (max(start.instant + 1, time.time_ns() // 1000), int64.minimum, int64.minimum)
        record.add("", batchId, output.commit(batch, Antichain(CLOCK, [promised]), values={"node": start.node}))
        record.save()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: remove the files that the tasks of a failed batch reported. VACUUM removes the unreported files."""
        told = [message for message in messages if isinstance(message, _Recorded)]
        files = _together(told).files
        if told and len(told) < len(messages):
            self._output.remove(files)
        elif files:
            self._output.remove_second_copies((told[0].query_id, batchId), files)


def _together(told: list[_Recorded]) -> WrittenFiles:
    """Return what all tasks have written."""
    result = WrittenFiles()
    for message in told:
        result.add(message.written)
    return result
