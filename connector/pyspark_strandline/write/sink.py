"""The streaming sink: tasks write Parquet files, and the driver makes one Delta commit for each batch and channel."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_strandline.loop_remedies import loop_remedies
from pyspark_strandline.operators.loop_times import LoopTimes
from pyspark_strandline.operators.published import checkpoint_of, has_roundings, inputs_of, output_frontier, tables_of
from pyspark_strandline.options import WriteOptions
from pyspark_strandline.resume.first_batch import FirstBatch, RowCounter
from pyspark_strandline.resume.written import Rows
from pyspark_strandline.workers import without_stack
from pyspark_strandline.write.channel_output import WrittenFiles
from pyspark_strandline.write.commit_record import record_of
from pyspark_strandline.write.loop_check import check_loop, has_late
from pyspark_strandline.write.routing import Routing
from strandline.channel.write.file_writer import FileWriter
from strandline.errors import StrandlineError, TimeError
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

    @without_stack
    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Written:
        """In a task: write the rows into files that are not part of a channel yet."""
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("the strandline sink writes only in Spark tasks")
        published = context.getLocalProperty(_OUTPUT) or ""
        for name, output in self._outputs.items():  # before anything is written
            output_frontier(published, output.domain, name)
        loop, rounding = LoopTimes.of(published), has_roundings(published)
        counts = self._options.resume is not None and context.getLocalProperty(_BATCH_ID) == "0"
        writers: dict[str, FileWriter | RowCounter] = {}
        with ExitStack() as stack:
            for batch in iterator:
                for name, rows in self._routing.split(batch):
                    if name not in writers:
                        output = self._outputs[name]
                        part = context.partitionId()
                        own: FileWriter | RowCounter = (
                            output.row_counter() if counts else output.file_writer(part, rounding=rounding)
                        )
                        writers[name] = own
                        stack.enter_context(own)
                    if loop is not None:
                        self._check_round(loop, name, rows)
                    writers[name].write(rows)
            written = {name: WrittenFiles.of(writer) for name, writer in writers.items()}
        return _Written(context.getLocalProperty(_QUERY_ID) or "", published, written)

    def _check_round(self, loop: LoopTimes, name: str, rows: pa.RecordBatch) -> None:
        """Raise if a row of a loop is at a last time, from which no way around leads on.

        In the output such a row has no time at all, or it is at one from which no other query leads on.
        """
        output = self._outputs[name]
        times = rows.column(output.time_column)
        remedy = "Do not send rows at the loop's last time round. At that time, a processor may only write results."
        if times.null_count:
            raise TimeError(
                "STRANDLINE_TIME_OVERFLOW",
                f"A row for {name or output.path} has no time there: the feedback advances its time beyond the last time of "
                f"{output.domain}.",
                remedy,
            )
        if loop.has_others and has_late(times) and (table := output.table_id()) is not None:
            last = next((time for time in set(times_of(times, output.domain)) if loop.is_last_in(table, time)), None)
            if last is not None:
                raise TimeError(
                    "STRANDLINE_TIME_OVERFLOW",
                    f"A row for {name or output.path} is at {output.domain.format(last)}, from which no way around the loop "
                    "leads on.",
                    remedy,
                )

    @without_stack
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: add the batch's files and the producer's progress to each channel, in one Delta commit."""
        told = [message for message in messages if isinstance(message, _Written)]
        if not told:
            raise RuntimeError(f"batch {batchId} has no message from a task")
        transaction = (told[0].query_id, batchId)
        written = self._together(told)
        feedback, state = check_loop(told[0].published, self._outputs)
        resumes = self._options.resume is not None and batchId == 0
        if resumes and (feedback or state is not None):
            raise StrandlineError(
                "STRANDLINE_RESUME_IMPOSSIBLE",
                "The option resume is given for a query of a loop. What goes round in a loop depends on the state of its "
                "operators, which is lost.",
                "Start the loop anew: new channels for its feedback and its results, and new checkpoints for all its queries.",
            )
        if self._options.accept_replay is not None and (feedback or state is not None):
            raise StrandlineError(
                "STRANDLINE_OPTION_INVALID",
                "The option acceptReplay is given for a query of a loop. What goes round depends on what went round before.",
                "Leave it out. Bring back what the loop depends on, or start it anew, with new channels and new checkpoints.",
            )
        checkpoint = self._options.checkpoint or checkpoint_of(told[0].published)  # it may be a setting of the session
        record = record_of(told[0].query_id, checkpoint, self._options.storage)
        others = {name: {other: each.digest for other, each in written.items() if other != name} for name in self._outputs}
        for name, output in self._outputs.items():
            with loop_remedies(bool(feedback)):
                output.check(transaction, written[name], record, name, inputs_of(told[0].published, name), others[name])
            if name in feedback:
                output.check_times(written[name])
        for name, output in self._outputs.items():
            holds = output_frontier(told[0].published, output.domain, name)
            in_loop, reads = name in feedback, inputs_of(told[0].published, name)
            loop = state if in_loop else None
            if resumes:
                rows = Rows.of([(written[name].times, written[name].spans)])
                allows = self._options.resume or "true"
                batch = FirstBatch.of(told[0].published, told[0].query_id, reads, holds, rows, allows=allows)
                record.add(name, batchId, output.go_on(batch))
                continue
            channel = output.commit(
                transaction,
                holds,
                written[name],
                exact=in_loop,
                loop=loop,
                reads=reads,
                others=others[name],
                tables=tables_of(told[0].published),
            )
            record.add(name, batchId, channel)
        record.save()

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
