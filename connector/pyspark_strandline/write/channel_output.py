"""One channel that a query writes: the files of its tasks, the checks before a commit, the commit itself."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import psutil
import pyarrow as pa

from pyspark_strandline.resume.first_batch import FirstBatch, RowCounter
from pyspark_strandline.resume.written import open_output, writer_of
from pyspark_strandline.workers import QUERIES_KEPT, Recent
from pyspark_strandline.write.commit_record import CommitRecord
from strandline.channel import Channel, Span, WriterSession
from strandline.channel.batch.batch_digest import BatchDigest, RowsDigest
from strandline.channel.batch.table_reads import TableRead
from strandline.channel.progress.continued import CONTINUED_BY, NEWEST_BATCH, NEWEST_DIGEST, continued_by, producer_of
from strandline.channel.statements.commit_statement import MAX_MESSAGE_TIMES, CommitStatement
from strandline.channel.statements.inputs import Input
from strandline.channel.write.append import Append
from strandline.channel.write.create import new_columns
from strandline.channel.write.file_writer import FileWriter
from strandline.delta.data_file import DataFile
from strandline.delta.storage import open_store
from strandline.delta.table import different_columns
from strandline.errors import ChannelError, ProducerError, StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain

__all__ = ["ChannelOutput", "WrittenFiles", "query_owner"]

_log = logging.getLogger(__name__)

# Spark creates a new writer for every batch, in a process that it keeps. Only the variables here outlive a batch.
_channels: Recent[tuple[str, frozenset[tuple[str, str]]], Channel] = Recent(QUERIES_KEPT)
"""By path and storage options: a query that starts again with other keys must not write with those of the query before."""
_names: Recent[tuple[str, str], str] = Recent(QUERIES_KEPT)
"""The names under which queries write, each in a table."""
_begun: Recent[tuple[str, str], bool] = Recent(QUERIES_KEPT)
"""The ids of queries, each with a table that is known to have the query's earlier batches."""

_MOST_TIMES = 1 << 16
"""How many different times the rows of a batch for a feedback channel may have."""


@dataclass
class WrittenFiles:
    """What tasks have written for one channel. It is small for any number of rows."""

    files: list[DataFile] = field(default_factory=list)
    times: list[tuple[Time, int]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    digest: RowsDigest = field(default_factory=RowsDigest)
    hashes: list[int] = field(default_factory=list)
    """For each of ``times``, the sum of its rows' hashes."""

    @classmethod
    def of(cls, writer: FileWriter | RowCounter) -> WrittenFiles:
        """Finish a task's writer, and return what it has written. Rows that are only counted have no digest."""
        files, times = writer.finish()
        if isinstance(writer, FileWriter):
            return cls(files, times, writer.spans, writer.digest, writer.time_hashes)
        return cls(files, times, writer.spans)

    def add(self, other: WrittenFiles) -> None:
        """Add what another task has written."""
        self.files += other.files
        self.times += other.times
        self.spans += other.spans
        self.digest += other.digest
        self.hashes += other.hashes

    def batch(self, domain: TimeDomain, others: Mapping[str, RowsDigest]) -> tuple[list[tuple[Time, int]], BatchDigest]:
        """Return the rows by time, each time once, in ``sort_key`` order; and what the commit states of the rows.

        Args:
            domain: The domain of the times.
            others: What the batch wrote into the query's other outputs.
        """
        rows: dict[Time, int] = {}
        hashes: dict[Time, int] = {}
        for (time, count), hashed in zip(self.times, self.hashes, strict=True):
            rows[time] = rows.get(time, 0) + count
            hashes[time] = hashes.get(time, 0) + hashed
        times = sorted(rows.items(), key=lambda entry: domain.sort_key(entry[0]))
        stated = () if self.spans else BatchDigest.of_times(hashes[time] for time, _ in times)
        return times, BatchDigest(self.digest, stated, others)


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

    def row_counter(self) -> RowCounter:
        """Return what counts a task's rows instead of writing them."""
        return RowCounter(self.schema, self.time_column, self.domain)

    def file_writer(self, partition: int, *, rounding: bool = False) -> FileWriter:
        """Return the writer of a task's files. They are not part of the channel yet.

        Args:
            partition: The number of the task.
            rounding: Whether a repeated batch may have other roundings, and lists in another order.
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
        )

    def table_id(self) -> str | None:
        """Return the id of the channel's table; ``None`` if it does not exist yet."""
        channel = self._found()
        return None if channel is None else channel.table_id

    def check(
        self,
        transaction: tuple[str, int],
        written: WrittenFiles,
        record: CommitRecord,
        name: str,
        reads: Sequence[Input],
        others: Mapping[str, RowsDigest] = MappingProxyType({}),
    ) -> None:
        """Raise unless the batch can be added: the channel has the query's earlier batches, and it has these columns.

        A batch that the channel has already must be the same one. Nothing is written, and the files of a batch that cannot be
        added are removed.

        Args:
            transaction: The query's id and the batch's.
            written: What the batch's tasks have written.
            record: What the query has committed.
            name: The name of this output in the record.
            reads: How far the query has read its inputs.
            others: By name, what the batch wrote into the query's other outputs.
        """
        try:
            self._check_begun(transaction)
            if (channel := self._found()) is not None:
                record.check(name, transaction[1], channel, self.path)
                self._check_replay(channel, transaction, written, reads, others)
                self._check_schema(channel)
                if transaction[1] > 0:
                    self._check_continued(channel, transaction[0])
                    self._check_outputs(channel, transaction[0])
                elif not self.resume:
                    self._check_may_join(channel, transaction[0])
        except StrandlineError:
            self.remove(written.files)
            raise

    def check_times(self, written: WrittenFiles) -> None:
        """Raise if the rows of a feedback channel have so many different times that they cannot be stated one by one.

        The loop would have to read a range of times, in which those that go round cannot be told from those that wait.
        """
        if written.spans or len({time for time, _ in written.times}) > _MOST_TIMES:
            raise StrandlineError(
                "STRANDLINE_LOOP_TIMES_UNKNOWN",
                f"The rows of one batch for the feedback channel {self.path} have more than {_MOST_TIMES} different times.",
                "Truncate the outer coordinates of the times before they enter the loop, or set maxFilesPerTrigger.",
            )

    def commit(
        self,
        transaction: tuple[str, int],
        holds: Antichain,
        written: WrittenFiles,
        *,
        exact: bool = False,
        loop: Mapping[str, Any] | None = None,
        reads: Sequence[Input] = (),
        others: Mapping[str, RowsDigest] = MappingProxyType({}),
        tables: Sequence[TableRead] = (),
    ) -> Channel:
        """Add a batch's files and the producer's progress to the channel, in one Delta commit.

        A batch without rows, without a move of the frontier and without news for the other queries of a loop makes no commit,
        except a query's first batch.

        Args:
            transaction: The query's id and the batch's.
            holds: The frontier of the output after the batch.
            written: What the tasks have written.
            exact: Whether every time of the rows is stated, also if there are many.
            loop: What the query states to the other queries of its loop.
            reads: How far the query has read its inputs.
            others: By name, what the batch wrote into the query's other outputs.
            tables: The tables that the batch has read beside its streams.

        Returns:
            The channel, as it is after the commit.
        """
        query_id, batch = transaction
        times, digest = written.batch(self.domain, others)
        state = {**({"outputs": list(self.outputs)} if self.outputs else {}), **({} if loop is None else {"loop": dict(loop)})}
        channel = self._channel(query_id)
        producer = self._producer(query_id, channel)
        before = writer_of(channel, producer) if batch == 0 else None
        append = Append(
            session=query_owner(query_id),
            files=list(written.files),
            holds={producer: holds},
            times=times,
            spans=list(written.spans),
            take_over=self.take_over,
            always=batch == 0,
            most_times=_MOST_TIMES if exact else MAX_MESSAGE_TIMES,
            reads=tuple(reads),
            digest=digest,
            tables=tuple(tables),
        )

        def decide() -> Append:
            if batch > 0:
                self._check_continued(channel, query_id)  # also if another query went on with the producer meanwhile
            known = channel.progress.get(producer)
            had = dict(known.state) if known is not None and isinstance(known.state, dict) else {}
            if batch == 0:  # another query's
                had.pop("outputs", None)
                had.pop("loop", None)
            now = had | state
            queries = continued_by(had)
            if batch == 0 and (before not in (None, f"query {query_id}") or queries[-1:] not in ([], [query_id])):
                now[CONTINUED_BY] = [*queries, query_id]  # so the other one is refused, whether or not this one runs
            if known is not None and not isinstance(known.state, dict | None):
                return append if not state else replace(append, states={producer: state})  # a program's, which is no object
            if written.files or append.always or now != had or known is None or known.holds != holds:  # there is a commit
                now[NEWEST_BATCH] = _batch_id(transaction, reads)
                now[NEWEST_DIGEST] = {"batch": batch, **replace(digest, times=()).to_json()}
            return replace(append, states={producer: now} if now else {})

        outcome = channel.append_decided(decide, transaction)
        if outcome.committed is None and written.files:
            self.remove_second_copies(transaction, written.files)  # the batch was committed by an earlier run
        return channel

    def go_on(self, batch: FirstBatch) -> Channel:
        """Make the commit of the first batch of a query that goes on with the channel: no rows, and the producer is the query's.

        The producer's state names the query. So the query finds its producer again, and the query before is refused.

        Args:
            batch: What the batch has read and made.

        Returns:
            The channel, as it is after the commit.

        Raises:
            StrandlineError: ``STRANDLINE_RESUME_IMPOSSIBLE``, ``STRANDLINE_RESUME_DIFFERS``, or ``STRANDLINE_PRODUCER_LIVE``
                while the query before runs. Nothing was written.
        """
        transaction, owner = (batch.query, 0), query_owner(batch.query)
        channel = open_output(self.path, self.storage) if (known := self._found()) is None else known
        if channel.transaction_version(batch.query) is not None:
            channel.settle()
            return channel  # a crash came between this commit and Spark's
        found = batch.producer(channel, self.producer)
        state = channel.progress.get(found.producer)
        assert state is not None  # noqa: S101 - it has a commit
        take_over = self.take_over or batch.takes_over(state, owner)
        self._refuse_live(channel, found.producer, owner, take_over=take_over)
        batch.check(channel, found)
        own = dict(state.state) if isinstance(state.state, dict) else {}
        own |= {CONTINUED_BY: [*continued_by(own), batch.query], NEWEST_BATCH: _batch_id(transaction, batch.reads)}
        own.pop("outputs", None)  # the query has one
        own.pop(NEWEST_DIGEST, None)  # this batch writes no rows

        def decide() -> Append:
            now = channel.progress.get(found.producer)
            if now is None or now.seq != state.seq:
                raise StrandlineError(
                    "STRANDLINE_RESUME_IMPOSSIBLE",
                    f"Another session has written to {self.path} as {found.producer!r} while query {batch.query} looked at its "
                    "commits.",
                    "Stop the query that writes the channel, and start this one with a new checkpoint.",
                )
            return Append(
                session=owner,
                holds={found.producer: batch.holds},
                states={found.producer: own},
                take_over=take_over,
                always=True,
                reads=tuple(batch.reads),
            )

        channel.append_decided(decide, transaction)
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

    def _channel(self, query_id: str) -> Channel:
        channel = self._found()
        if channel is None:
            # The query is the only producer of a channel that it creates, so no other can join and the channel is sealed.
            channel = _channels[self._key] = Channel.create(
                self.path,
                self.schema,
                time=self.time_column,
                domain=self.domain,
                producers=[self._producer(query_id, None)],
                storage_options=self.storage,
                exist_ok=True,
            )
        self._check_schema(channel)
        if self.merge_schema and (new := [field for field in self.schema if field.name not in channel.schema.names]):
            channel.add_columns(new)
        return channel

    @property
    def _key(self) -> tuple[str, frozenset[tuple[str, str]]]:
        return self.path, frozenset((self.storage or {}).items())

    @staticmethod
    def _refuse_live(channel: Channel, producer: str, owner: WriterSession, *, take_over: bool) -> None:
        """Raise if the query before may run. The remedy is in the words of a query's options."""
        try:
            channel.refuse_live([producer], owner, take_over=take_over)
        except ProducerError as error:
            raise ProducerError(
                "STRANDLINE_PRODUCER_LIVE",
                error.what,
                "Stop the query that runs there, and start this one again with the same checkpoint. If that process is gone for "
                "good, set the option takeOver at the sink.",
            ) from None

    def _found(self) -> Channel | None:
        """Return the channel that exists now."""
        channel = _channels.used(self._key)
        if channel is None or channel.was_replaced():
            _channels.pop(self._key, None)
            if not Channel.exists(self.path, self.storage):
                return None
            channel = _channels[self._key] = Channel.open(self.path, self.storage)
        return channel

    def _check_begun(self, transaction: tuple[str, int]) -> None:
        """Raise unless the channel has the earlier batches of a query that continues.

        Otherwise the channel would promise rows that are not in it.
        """
        query_id, batch = transaction
        if batch == 0:
            return
        channel = self._found()
        if channel is not None and _begun.used((query_id, channel.table_id)):
            return
        if channel is None or channel.transaction_version(query_id) is None:
            have = "there is no channel" if channel is None else "the channel has no batch of this query"
            raise StrandlineError(
                "STRANDLINE_OUTPUT_MISSING",
                f"The query's checkpoint states that it has written {batch} batch(es) before this one, but {have} at "
                f"{self.path}. With this batch the frontier would close times whose rows are missing.",
                "Restore the channel at that path to its newest commit. Or start the query with a new checkpointLocation and a "
                "new channel, which gets all rows, and let the readers change to it. Or, if the channel is there, with a new "
                "checkpointLocation and the option resume, to go on with what it has (docs/lost-checkpoint.md). A query that "
                "writes to another path needs a new checkpointLocation too.",
            )
        _begun[query_id, channel.table_id] = True

    def _check_may_join(self, channel: Channel, query_id: str) -> None:
        """Raise if a query with a new checkpoint would write a channel that is sealed for others."""
        name = self._producer(query_id, channel)
        if channel.progress.get(name) is not None:
            other = None if self.take_over else writer_of(channel, name)
            if other is not None and other != f"query {query_id}":
                raise ProducerError(
                    "STRANDLINE_PRODUCER_EXISTS",
                    f"This is the first batch of query {query_id}, but {other} has written as producer {name!r} of "
                    f"{self.path}. Rows at open times would be written twice.",
                    "Start the query with the checkpoint that it had. If that is lost, set the option resume, at the sink and at "
                    "each source (docs/lost-checkpoint.md). If the query reads only what the other one has not read, set "
                    "takeOver.",
                )
            return
        if not channel.sealed:
            return
        queries = sorted(name.removeprefix("query-") for name in channel.producers if name.startswith("query-"))
        wrote = f" The query {queries[0]} has written it: was its checkpoint lost or changed?" if len(queries) == 1 else ""
        raise ProducerError(
            "STRANDLINE_PRODUCER_UNKNOWN",
            f"This is the first batch of query {query_id}, but the channel {self.path} is sealed, and none of its producers is "
            f"{name!r}.{wrote}",
            "Start the query with the checkpoint that it had. If that is lost, a query with one output may go on after the rows "
            "that the channel has: set the option resume, at the sink to true and at each source to this path "
            "(docs/lost-checkpoint.md). Or write into a new channel, which gets all rows, and let the readers change to it. The "
            "option producer names one of the channel's producers.",
        )

    def _check_replay(
        self,
        channel: Channel,
        transaction: tuple[str, int],
        written: WrittenFiles,
        reads: Sequence[Input],
        others: Mapping[str, RowsDigest],
    ) -> None:
        """Raise if the channel has a batch of this number that had read or written something else.

        Its rows would be taken for those that the channel has. After a crash Spark repeats the newest batch as it was. If a
        checkpoint was restored to an earlier state, or began anew, a batch of the same number may read more than before. If
        something that the query depends on has changed, the same rows give other ones.
        """
        query_id, batch = transaction
        newest = channel.transaction_version(query_id)
        if newest is None or newest < batch:
            return
        commit = channel.commit_of(transaction)
        before = None if commit is None or commit.statement is None else commit.statement.reads
        if commit is None and batch < newest and not written.files:
            return  # a batch without rows and without a move of the frontier made no commit
        if before and _positions(before) == _positions(reads):
            assert commit is not None  # noqa: S101 - it states what the batch had read
            self._check_rows(transaction, commit.statement, written, others)
            return
        if batch == newest and commit is not None and not before:
            return  # an earlier release did not record it
        why = "the batch had not read the same then"
        if batch == newest and commit is None:  # the log was cleaned up
            known = channel.progress.get(self._producer(query_id, channel))
            state = known.state if known is not None and isinstance(known.state, dict) else {}
            had = state.get(NEWEST_BATCH)
            if had == _batch_id(transaction, reads):
                try:
                    stated = _digest_of(state, batch)
                except ValueError as error:
                    why = f"what the channel's state says of its rows is damaged: {error}"
                else:
                    self._check_rows(transaction, CommitStatement(digest=stated), written, others)
                    return
            elif not isinstance(had, str) or had.partition(":")[0] != str(batch):  # an earlier release made the commit
                why = "the log was cleaned up, and does not say any more what the batch had read then"
        raise ChannelError(
            "STRANDLINE_REPLAY_DIFFERS",
            f"Batch {batch} of query {query_id} was committed to {self.path} before. The channel has the query's batches up to "
            f"{newest}. But {why}. The query's checkpoint may have been restored to an earlier state, or be a copy. Nothing of "
            "the batch was written.",
            "Restore the newest state of the checkpoint. Or start the query with a new checkpointLocation and the option resume: "
            "then it goes on after the rows that the channel has (docs/lost-checkpoint.md). Or with a new checkpointLocation and "
            "a new channel, which gets all rows, and let the readers change to it.",
        )

    def _check_rows(
        self,
        transaction: tuple[str, int],
        stated: CommitStatement | None,
        written: WrittenFiles,
        others: Mapping[str, RowsDigest],
    ) -> None:
        """Raise if a batch that the channel has wrote other rows then, here or into another output of the query."""
        if stated is None or stated.digest is None:
            return  # an earlier release did not record it
        had, where, why = stated.digest, self.path, None
        times, now = written.batch(self.domain, others)
        if (difference := had.own.difference(now.own)) is not None:
            first = None if stated.spans else had.first_difference(stated.times, now, times, self.domain)
            why = f"the batch as a whole: {difference}" if first is None else f"first the time {first}"
        else:
            for name, digest in sorted(had.others.items()):
                if (difference := digest.difference(others.get(name, RowsDigest()))) is not None:
                    where, why = f"the output {name}", f"the batch as a whole: {difference}"
                    break
        if why is None:
            return
        query_id, batch = transaction
        what = (
            f"Batch {batch} of query {query_id} was committed to {self.path} before. Repeated, it has read the same and wrote "
            f"other rows for {where}. What differs is {why}."
        )
        if batch == self.accept_replay:
            _log.warning("%s The committed rows are kept, because acceptReplay is %s.", what, batch)
            return
        raise ChannelError(
            "STRANDLINE_REPLAY_DIFFERS",
            f"{what} So the query depends on something that has changed: a table without a version, a function that gives "
            "another value each time, the order in which rows come (a sketch, a large rounding), or the program. Nothing of the "
            "batch was written.",
            "Bring back what the query depends on, and start it again with the same checkpoint. Or, if the committed rows are as "
            f"good as the others, set the option acceptReplay to {batch} at the sink: the channels that have the batch keep "
            "their rows. Or, if its operators keep no state, start it with a new checkpointLocation and the option resume, set "
            "to changed at the sink and to this path at each source (docs/lost-checkpoint.md). Or start it with a new "
            "checkpointLocation and a new channel, which gets all rows, and let the readers change to it. "
            "docs/repeated-batches.md says what a repeated batch sees.",
        )

    def _producer(self, query_id: str, channel: Channel | None) -> str:
        """Return the name under which the query writes."""
        if self.producer is not None or channel is None:
            return self.producer or f"query-{query_id}"
        key = query_id, channel.table_id
        name = _names.used(key)
        if name is None:
            name = producer_of(channel.progress.producers, query_id)
            if channel.progress.get(name) is not None:
                _names[key] = name
        return name

    def _check_continued(self, channel: Channel, query_id: str) -> None:
        """Raise if another query goes on with the producer: the rows of both would be in the channel."""
        name = self._producer(query_id, channel)
        known = channel.progress.get(name)
        queries = [] if known is None else continued_by(known.state)
        if queries and queries[-1] != query_id:
            raise ProducerError(
                "STRANDLINE_PRODUCER_FENCED",
                f"Query {queries[-1]} goes on with the producer {name!r} of {channel.path}, and writes what query {query_id} "
                "would write.",
                "Stop this query, and do not start it again. If it is to go on, start it with a new checkpoint and the option "
                "resume (docs/lost-checkpoint.md).",
            )

    def _check_outputs(self, channel: Channel, query_id: str) -> None:
        """Raise if the query had other outputs before: Spark would give its operators the states of others."""
        known = channel.progress.get(self._producer(query_id, channel))
        state = None if known is None else known.state
        before = tuple(state["outputs"]) if isinstance(state, dict) and isinstance(state.get("outputs"), list) else ()
        if before != self.outputs:
            had, has = (", ".join(map(str, names)) or "one without a name" for names in (before, self.outputs))
            raise StrandlineError(
                "STRANDLINE_OUTPUTS_CHANGED",
                f"The query's checkpoint was begun with the outputs {had}, but the query now has {has}. Spark finds the state of "
                "an operator by its place in the plan, so operators would continue with the state of others.",
                "Write the same outputs under the same names, or start the query with a new checkpoint and new channels.",
            )

    def _check_schema(self, channel: Channel) -> None:
        if (channel.time_column, channel.domain) != (self.time_column, self.domain):
            raise StrandlineError(
                "STRANDLINE_SCHEMA_MISMATCH",
                f"The query's time column is {self.time_column!r} of {self.domain}, "
                f"but the time column of {channel.path} is {channel.time_column!r} of {channel.domain}.",
                "Rename the column, or write into another channel.",
            )
        have, want = channel.schema, self.schema
        if self.merge_schema:
            new_columns(channel.path, have, want)
            want = pa.schema([*want, *(field for field in have if field.name not in want.names)])
            have = pa.schema([*have, *(field for field in want if field.name not in have.names)])
        different = different_columns(have, want)
        if different is not None:
            raise StrandlineError(
                "STRANDLINE_SCHEMA_MISMATCH",
                f"The query's rows and {channel.path} differ in the columns {different}.",
                "Select and cast the query's columns to the channel's. With the option mergeSchema, the sink adds columns that "
                "the channel lacks, and writes null where the rows lack a column. Types of columns do not change.",
            )


def _positions(reads: Sequence[Input]) -> dict[str, list[tuple[int, int]]]:
    """Return the positions in each table, in the order of the sources: two sources of a query may read one channel."""
    positions: dict[str, list[tuple[int, int]]] = {}
    for each in reads:
        positions.setdefault(each.table, []).append((each.commit, each.file))
    return positions


def _batch_id(transaction: tuple[str, int], reads: Sequence[Input]) -> str:
    """Return what tells a batch from another one of the same number that had read something else.

    >>> reads = [Input("7c1f", 3, 0)]
    >>> _batch_id(("5b1", 4), reads) == _batch_id(("5b1", 4), reads), _batch_id(("5b1", 4), reads) == _batch_id(("5b1", 4), [])
    (True, False)
    """
    text = json.dumps([*transaction, _positions(reads)], sort_keys=True)
    return f"{transaction[1]}:{hashlib.sha256(text.encode('utf-8', 'backslashreplace')).hexdigest()[:16]}"


def _digest_of(state: Mapping[str, Any], batch: int) -> BatchDigest | None:
    """Return what a producer's state says of a batch's rows; ``None`` if it says nothing of it.

    Raises :class:`ValueError` if it is damaged.
    """
    stated = state.get(NEWEST_DIGEST)
    if stated is None or (isinstance(stated, dict) and stated.get("batch") != batch):
        return None  # an earlier release made the commit
    return BatchDigest.from_json(stated)


@lru_cache(maxsize=64)
def query_owner(query_id: str) -> WriterSession:
    """Return the query as the producer's session.

    The session lives as long as its Spark driver, not as long as the Python worker that commits for it.
    """
    for process in psutil.Process().parents():
        if process.name().startswith("java"):
            return WriterSession.of(process, query_id)
    return WriterSession.here(query_id)
