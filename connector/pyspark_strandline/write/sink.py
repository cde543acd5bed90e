"""The streaming sink: tasks write Parquet files, and the driver makes one Delta commit for each batch and channel."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_strandline.loop_remedies import loop_remedies
from pyspark_strandline.operators.loop_times import LoopTimes
from pyspark_strandline.operators.published import PublishedOutput
from pyspark_strandline.options import WriteOptions
from pyspark_strandline.resume.row_counter import RowCounter
from pyspark_strandline.resume.sink import FirstBatch
from pyspark_strandline.resume.written import Rows
from pyspark_strandline.workers import without_stack, without_stack_in_pickle
from pyspark_strandline.write import errors
from pyspark_strandline.write.channel.written_files import OutputBatch, WrittenFiles
from pyspark_strandline.write.checkpoint_store import stated_place
from pyspark_strandline.write.commit_record import record_of
from pyspark_strandline.write.loop_check import check_loop, has_late
from pyspark_strandline.write.routing import Routing
from strandline.channel.write.file_writer import FileWriter
from strandline.replay.restamp import Stamper
from strandline.time.antichain import Antichain
from strandline.time.arrow import times_of

__all__ = ["StreamWriter"]

_OUTPUT = "strandline.output"
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"

_log = logging.getLogger(__name__)


@dataclass
class _Written(WriterCommitMessage):
    """The message of a task to the driver: the published frontiers, and by the output's name what the task has written."""

    query_id: str
    published: str
    written: dict[str, WrittenFiles]


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes a query's output into a channel, or into several, as one of the producers of each.

    A batch is one Delta commit in each channel. It contains the batch's files, the Delta transaction (query id, batch id), which
    makes a replayed batch a no-op, and the producer's new holds, which are the plan's output frontier after the batch. A batch
    without rows and without a move of the frontier makes no commit, except a query's first batch. So a query that continues finds
    its commits in the log; otherwise it has not written to this channel. A record in the checkpoint says which batches have
    commits (:class:`CommitRecord`), so a channel that was restored to an earlier state is refused.

    With several channels, every channel is checked before the first commit. If the driver dies between two commits, Spark
    replays the batch: the first channel has the transaction already, and the second one gets its commit.

    With the option ``resume``, a new query goes on with a channel that another one wrote. The rows of its first batch are
    counted, and not written (:class:`FirstBatch`).
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._routing = Routing(options, schema)
        self._outputs = self._routing.outputs
        self._links: dict[str, tuple[int, int]] = {}

    @without_stack_in_pickle
    def __getstate__(self) -> dict[str, object]:
        """Return the state for the tasks: for each looping link, the receiving clock and its first number in the batch."""
        now = time.time_ns() // 1000
        links = {name: (now, output.next_number()) for name, output in self._outputs.items() if output.restamped}
        return {**self.__dict__, "_links": links}

    @without_stack
    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Written:
        """In a task: write the rows into files that are not part of a channel yet."""
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("the strandline sink writes only in Spark tasks")
        text = context.getLocalProperty(_OUTPUT) or ""
        published = self._parse(text)  # raises before anything is written
        loop = published.loop_times
        counts = self._options.resume is not None and context.getLocalProperty(_BATCH_ID) == "0"
        writers: dict[str, FileWriter | RowCounter] = {}
        stampers: dict[str, Stamper] = {}
        with ExitStack() as stack:
            for batch in iterator:
                for name, rows in self._routing.split(batch):
                    if name not in writers:
                        output, part = self._outputs[name], context.partitionId()
                        if output.restamped:
                            stampers[name] = Stamper(published.feedback[name].link(*self._links[name]), part, output.time_column)
                        own: FileWriter | RowCounter = (
                            output.row_counter()
                            if counts
                            else output.file_writer(part, rounding=published.has_roundings, stamp=stampers.get(name))
                        )
                        writers[name] = own
                        stack.enter_context(own)
                    if loop is not None:
                        self._check_round(loop, name, rows)
                    writers[name].write(rows)
            written = {name: WrittenFiles.of(writer, stampers.get(name)) for name, writer in writers.items()}
        return _Written(context.getLocalProperty(_QUERY_ID) or "", text, written)

    def _parse(self, published: str) -> PublishedOutput:
        return PublishedOutput.parse(published, {name: output.domain for name, output in self._outputs.items()})

    def _check_round(self, loop: LoopTimes, name: str, rows: pa.RecordBatch) -> None:
        """Raise if a row of a loop is at a last time, from which no way around leads on.

        In the output such a row has no time at all, or it is at one from which no other query leads on.
        """
        output = self._outputs[name]
        times = rows.column(output.time_column)
        if times.null_count:
            raise errors.time_overflow_beyond(name or output.path, output.domain)
        if loop.has_others and has_late(times) and (table := output.table_id()) is not None:
            last = next((time for time in set(times_of(times, output.domain)) if loop.is_last_in(table, time)), None)
            if last is not None:
                raise errors.time_overflow_last(name or output.path, output.domain, last)

    @without_stack
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: add the batch's files and the producer's progress to each channel, in one Delta commit."""
        told = [message for message in messages if isinstance(message, _Written)]
        if not told:
            raise RuntimeError(f"batch {batchId} has no message from a task")
        query, written, published = told[0].query_id, self._together(told), self._parse(told[0].published)
        feedback = check_loop(published, self._outputs)
        resumes = self._options.resume is not None and batchId == 0
        if feedback or published.loop is not None:
            self._check_loop_options(resumes=resumes)
        checkpoint = self._options.checkpoint or published.checkpoint  # it may be a setting of the session
        record = record_of(query, checkpoint, self._options.storage)
        batches = {}
        for name, output in self._outputs.items():
            # What a link makes is stated also in its own channel, where its rows have new times.
            if output.restamped:
                written[name].join_instants()
            others = {other: each.made for other, each in written.items() if other != name or output.restamped}
            batch = output.batch((query, batchId), written[name], published.inputs(name), others)
            stated = stated_place(published.checkpoint or checkpoint)
            batches[name] = replace(batch, name=self._options.query_name, checkpoint=stated)
            with loop_remedies(bool(feedback)):
                output.check(batches[name], record, name)
            if name in feedback:
                output.check_times(written[name])
        for name, output in self._outputs.items():
            holds, in_loop = published.frontiers[name], name in feedback
            link = published.feedback.get(name)
            if link is not None and link.restamp is not None and link.restamp.is_recorded:
                holds = link.antichain  # the new times are after the loop's frontier, and not after that by the advance
            if resumes:
                channel = output.go_on(self._first_batch(batches[name], holds, published))
            else:
                loop = published.stated_to_loop if in_loop else None
                values = {} if link is None else link.stated(sum(file.rows for file in written[name].files))
                channel = output.commit(batches[name], holds, exact=in_loop, loop=loop, tables=published.tables, values=values)
            record.add(name, batchId, channel)
        record.save()

    def _check_loop_options(self, *, resumes: bool) -> None:
        """Raise for options that a query of a loop must not have."""
        if resumes:
            raise errors.resume_impossible_loop()
        if self._options.accept_replay is not None:
            raise errors.option_invalid_replay()

    def _first_batch(self, batch: OutputBatch, holds: Antichain, published: PublishedOutput) -> FirstBatch:
        return FirstBatch(
            batch.query,
            batch.reads,
            holds,
            Rows.of([(batch.written.times, batch.written.spans)]),
            published.other_sources,
            published.running,
            published.state,
            self._options.resume or "true",
            batch.name,
            batch.checkpoint,
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: remove the files that the tasks of a failed batch reported. VACUUM removes the unreported files.

        Spark has tried to commit only if every task has sent its message. A commit that raised may have taken effect, or may do
        so later. Files that are part of a channel, or may become part of it, stay, and are left to VACUUM. An error here is only
        logged: raised, it would hide from Spark the error that stopped the batch.
        """
        try:
            self._abort(messages, batchId)
        except Exception as error:
            _log.warning("Files of batch %d are left to VACUUM: %s", batchId, error)

    def _abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        told = [message for message in messages if isinstance(message, _Written)]
        for name, written in self._together(told).items():
            if len(told) < len(messages):
                self._outputs[name].remove(written.files)
            elif written.files:
                self._outputs[name].remove_second_copies((told[0].query_id, batchId), written.files)

    def _together(self, told: list[_Written]) -> dict[str, WrittenFiles]:
        """Return by output what all tasks have written."""
        result = {name: WrittenFiles() for name in self._outputs}
        for message in told:
            for name, written in message.written.items():
                result[name].add(written)
        return result
