"""One channel that a query writes, as one of its producers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pyspark_strandline.resume.row_counter import RowCounter
from pyspark_strandline.resume.sink import FirstBatch, go_on
from pyspark_strandline.resume.written import Writer, open_output, writer_of
from pyspark_strandline.write import errors
from pyspark_strandline.write.channel.open_channel import OpenChannel
from pyspark_strandline.write.channel.output_checks import (
    check_begun,
    check_may_join,
    check_not_continued,
    check_outputs,
    check_schema,
)
from pyspark_strandline.write.channel.same_batch import check_same_batch
from pyspark_strandline.write.channel.written_files import OutputBatch, WrittenFiles
from pyspark_strandline.write.commit_record import CommitRecord
from pyspark_strandline.write.query_owner import query_owner
from strandline.channel import Channel
from strandline.channel.batch.batch_digest import RowsDigest
from strandline.channel.batch.table_reads import TableRead
from strandline.channel.commit.outcome import Replay
from strandline.channel.progress.query_producer_state import QueryProducerState
from strandline.channel.statements.commit_statement import MAX_MESSAGE_TIMES
from strandline.channel.statements.inputs import Input
from strandline.channel.statements.statement import ProducerState
from strandline.channel.write.append import Append
from strandline.channel.write.file_writer import FileWriter
from strandline.delta.data_file import DataFile
from strandline.delta.storage import open_store
from strandline.errors import StrandlineError
from strandline.replay.restamp import Numbered, Stamper
from strandline.time.antichain import Antichain
from strandline.time.domain import TimeDomain

__all__ = ["ChannelOutput"]

_MOST_TIMES = 1 << 16
"""How many different times the rows of a batch for a feedback channel may have."""


@dataclass(frozen=True)
class ChannelOutput:
    """A channel that a query writes as one of its producers.

    Attributes:
        path: The path of the channel.
        schema: The columns that the query writes.
        time_column: The name of the time column.
        domain: The domain of its times.
        storage: The options of the storage.
        producer: The producer's name (default: ``query-`` and the query's id).
        take_over: Whether to fence another session of the producer.
        merge_schema: Whether columns that the channel lacks are added to it, and those that the rows lack are null in them.
        outputs: The names of all outputs of a query that has several, sorted. The producer's state records them.
        resume: Whether a new query goes on with the channel, as one of its producers.
        accept_replay: A batch whose committed rows are kept, although it makes other rows if it is repeated.
        restamped: Whether it is a looping link that gives its rows new times.
    """

    path: str
    schema: pa.Schema
    time_column: str
    domain: TimeDomain
    storage: dict[str, str] | None = field(default=None, repr=False)
    producer: str | None = None
    take_over: bool = False
    merge_schema: bool = False
    outputs: tuple[str, ...] = ()
    resume: bool = False
    accept_replay: int | None = None
    restamped: bool = False

    def row_counter(self) -> RowCounter:
        """Return what counts a task's rows instead of writing them."""
        return RowCounter(self.schema, self.time_column, self.domain)

    def file_writer(self, partition: int, *, rounding: bool = False, stamp: Stamper | Numbered | None = None) -> FileWriter:
        """Return the writer of a task's files. They are not part of the channel yet.

        Args:
            partition: The number of the task.
            rounding: Whether a repeated batch may have other roundings, and lists in another order.
            stamp: What gives the rows new times.
        """
        return FileWriter(
            self.path,
            self.schema,
            self.time_column,
            self.domain,
            self.storage,
            name_prefix=f"part-{partition:05d}",
            digests=True,
            rounding=rounding,
            stamp=stamp,
            in_order=isinstance(stamp, Numbered),
        )

    def existing(self) -> Channel:
        """Return the channel as it is now. Another process of Spark commits. Raises if there is none."""
        found = self._found()
        channel = Channel.open(self.path, self.storage) if found is None else found.channel
        channel.refresh()
        return channel

    def next_number(self) -> int:
        """Return the first number that a looping link has not given: each of its rows has one of its own."""
        if self._found() is None:
            return 0
        known = self.existing().progress.get(self.producer or "")
        number = known.state.get("n", 0) if known is not None and isinstance(known.state, dict) else 0
        return int(number)

    def batch(
        self,
        transaction: tuple[str, int],
        written: WrittenFiles,
        reads: Sequence[Input] = (),
        others: Mapping[str, RowsDigest] | None = None,
    ) -> OutputBatch:
        """Return a batch for this output.

        Args:
            transaction: The query's id and the batch's.
            written: What the batch's tasks have written for the output.
            reads: How far the query has read its inputs.
            others: By name, what the batch wrote into the query's other outputs.
        """
        return OutputBatch(self.path, self.domain, *transaction, written, reads, others or {})

    def table_id(self) -> str | None:
        """Return the id of the channel's table; ``None`` if it does not exist yet."""
        found = self._found()
        return None if found is None else found.channel.table_id

    def check(self, batch: OutputBatch, record: CommitRecord, name: str) -> None:
        """Raise unless the batch can be added: the channel has the query's earlier batches, and it has these columns.

        A batch that the channel has already must be the same one. Nothing is written, and the files of a batch that cannot be
        added are removed.

        Args:
            batch: The batch.
            record: What the query has committed.
            name: The name of this output in the record.
        """
        try:
            found = self._found()
            check_begun(found, self.path, batch.query, batch.number)
            if found is not None:
                record.check(name, batch.number, found.channel, self.path)
                self._check_channel(found.channel, self._producer(found, batch.query), batch)
        except StrandlineError:
            self.remove(batch.written.files)
            raise

    def _check_channel(self, channel: Channel, producer: str, batch: OutputBatch) -> None:
        check_same_batch(channel, producer, batch, self.accept_replay)
        self._check_schema(channel)
        if batch.number > 0:
            state = _state_of(channel.progress.get(producer))
            check_not_continued(channel, producer, state, batch.query)
            check_outputs(state.outputs, self.outputs)
        elif not self.resume:
            check_may_join(channel, self.path, producer, batch.query, take_over=self.take_over)

    def check_times(self, written: WrittenFiles) -> None:
        """Raise if the rows of a feedback channel have so many different times that they cannot be stated one by one.

        The loop would have to read a range of times, in which those that go round cannot be told from those that wait.
        """
        if self.restamped:
            if len(written.spans) > _MOST_TIMES or any(span.low[0] != span.high[0] for span in written.spans):
                raise errors.loop_times_unknown_instants(self.path, _MOST_TIMES)
        elif written.spans or len({time for time, _ in written.times}) > _MOST_TIMES:
            raise errors.loop_times_unknown(self.path, _MOST_TIMES)

    def commit(
        self,
        batch: OutputBatch,
        holds: Antichain,
        *,
        exact: bool = False,
        loop: Mapping[str, object] | None = None,
        tables: Sequence[TableRead] = (),
        values: Mapping[str, int] | None = None,
    ) -> Channel:
        """Add a batch's files and the producer's progress to the channel, in one Delta commit.

        A batch without rows, without a move of the frontier and without news for the other queries of a loop makes no commit,
        except a query's first batch.

        Args:
            batch: The batch.
            holds: The frontier of the output after the batch.
            exact: Whether every time of the rows is stated, also if there are many.
            loop: What the query states to the other queries of its loop.
            tables: The tables that the batch has read beside its streams.
            values: What else the producer's state has, such as the id of a looping link. What that has counted is added.

        Returns:
            The channel, as it is after the commit.
        """
        query, written = batch.query, batch.written
        found = self._open(query)
        channel, producer = found.channel, self._producer(found, query)
        before = writer_of(channel, producer) if batch.number == 0 else None
        takes_over = before not in (None, Writer(query))
        times, digest = batch.rows()
        append = Append(
            session=query_owner(query),
            files=list(written.files),
            holds={producer: holds},
            times=times,
            spans=list(written.spans),
            take_over=self.take_over,
            always=batch.number == 0,
            most_times=_MOST_TIMES if exact else MAX_MESSAGE_TIMES,
            reads=tuple(batch.reads),
            digest=digest,
            tables=tuple(tables),
        )

        def decide() -> Append:
            known = channel.progress.get(producer)
            if batch.number > 0:  # another query may have gone on with the producer since the check
                check_not_continued(channel, producer, _state_of(known), query)
            state = self._next_state(known, append, batch, loop, takes_over=takes_over)
            if state is not None and values:
                state = state.counted(values, batch.written.counts)
            return replace(append, states={producer: state.to_json()}) if state is not None else append

        if isinstance(channel.append_decided(decide, batch.transaction), Replay):  # the batch was committed by an earlier run
            self.remove_second_copies(batch.transaction, written.files)
        return channel

    def _next_state(
        self,
        known: ProducerState | None,
        append: Append,
        batch: OutputBatch,
        loop: Mapping[str, object] | None,
        *,
        takes_over: bool,
    ) -> QueryProducerState | None:
        """Return the producer's state after a batch; ``None`` if it stays as it is. Each commit has the batch in it."""
        own = QueryProducerState(outputs=self.outputs, loop=loop)
        if known is not None and not isinstance(known.state, dict | None):  # a program's, which is no object
            return own if own != QueryProducerState() else None
        had = _state_of(known)
        if batch.number == 0:  # it is another query's
            now = replace(had.without_plan(), outputs=self.outputs, loop=loop)
            if takes_over or had.writer not in (None, batch.query):
                now = now.continued(batch.query)  # so the other one is refused, whether or not this one runs
        else:
            now = replace(had, outputs=self.outputs or had.outputs, loop=had.loop if loop is None else loop)
        (holds,) = append.holds.values()
        moves = known is None or known.holds != holds
        if not (append.files or append.always or moves or now != had):
            return None
        identity = batch.identity(append.digest)
        return replace(now, newest=identity, damage="", name=batch.name, checkpoint=batch.checkpoint)

    def go_on(self, batch: FirstBatch) -> Channel:
        """Make the commit of the first batch of a query that goes on with the channel: see :func:`go_on`.

        Returns:
            The channel, as it is after the commit.
        """
        found = self._found()
        channel = open_output(self.path, self.storage) if found is None else found.channel
        go_on(channel, self.path, batch, self.producer, query_owner(batch.query), take_over=self.take_over)
        return channel

    def remove_second_copies(self, transaction: tuple[str, int], files: Sequence[DataFile]) -> None:
        """Remove the files of an attempt that are not part of the channel, and never will be."""
        if files and Channel.exists(self.path, self.storage):
            channel = Channel.open(self.path, self.storage)
            self._remove(channel.second_copies(transaction, [file.path for file in files]))

    def remove(self, files: Sequence[DataFile]) -> None:
        """Remove files of which no commit was tried."""
        self._remove([file.path for file in files])

    def _remove(self, names: Sequence[str]) -> None:
        store = open_store(self.path, self.storage)
        for name in names:
            store.delete(name)

    def _found(self) -> OpenChannel | None:
        """Return the channel that exists now."""
        return OpenChannel.find(self.path, self.storage)

    def _open(self, query: str) -> OpenChannel:
        """Return the channel with the query's columns. It is created if it does not exist."""
        found = self._found()
        if found is None:
            producer = self.producer or f"query-{query}"
            found = OpenChannel.create(self.path, self.storage, self.schema, self.time_column, self.domain, producer)
        channel = found.channel
        self._check_schema(channel)
        if self.merge_schema and (new := [field for field in self.schema if field.name not in channel.schema.names]):
            channel.add_columns(new)
        return found

    def _check_schema(self, channel: Channel) -> None:
        check_schema(channel, self.time_column, self.domain, self.schema, merge=self.merge_schema)

    def _producer(self, found: OpenChannel, query: str) -> str:
        """Return the name under which the query writes."""
        return self.producer or found.producer(query)


def _state_of(known: ProducerState | None) -> QueryProducerState:
    return QueryProducerState.from_json(None if known is None else known.state)
