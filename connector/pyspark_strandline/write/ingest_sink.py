"""The sink of an ingest: tasks separate late rows from rows in time, and the driver commits the partitions' new promises."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StringType, StructType

from pyspark_strandline.column_types import check_stored_types
from pyspark_strandline.options import FROM_BEGINNING, IngestOptions
from pyspark_strandline.schema import arrow_schema, quoted
from pyspark_strandline.workers import QUERIES_KEPT, Recent, uncollected, without_stack, without_stack_in_pickle
from pyspark_strandline.write import errors
from pyspark_strandline.write.commit_record import CommitRecord, record_of
from pyspark_strandline.write.offset_log import ends_in_first_snapshot, newest_read_moment_ms, read_moment_ms
from pyspark_strandline.write.query_owner import query_owner
from strandline.errors import StrandlineError
from strandline.ingest import BatchStart, Ingest, IngestTask, Moment, Policy, Settings, TaskReport, parse_policy
from strandline.time.arrow import TIME_KEY

__all__ = ["IngestWriter", "settings_of"]

_log = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"  # a query's jobs are grouped by its run

# Spark creates a new writer for every batch, in a process that it keeps. Only the variables here outlive a batch.
_ingests: Recent[tuple[object, ...], Ingest] = Recent(QUERIES_KEPT)


@dataclass
class _TaskMessage(WriterCommitMessage):
    """The message of a task to the driver."""

    query_id: str
    run_id: str
    report: TaskReport


class IngestWriter(DataSourceStreamArrowWriter):
    """Writes an external stream into a channel. Each of its partitions is a producer.

    A batch is one Delta commit of the channel, which decides the batch. If rows were set aside, a commit of the late table
    follows. Both commits have the Delta transaction (query id, batch id).
    """

    def __init__(self, options: IngestOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._ingest = _ingest(options, schema)  # raises for wrong options before a task runs
        self._settings: Settings | None = None
        self._start: BatchStart | None = None

    @without_stack_in_pickle
    def __getstate__(self) -> dict[str, object]:
        """Return the state for the tasks: the settings, and the holds of the partitions at the start of the batch."""
        if self._start is None:
            with uncollected():
                self._settings, self._start = self._ingest.settings.for_tasks(), self._ingest.start(self._clock_ms())
        return {"_settings": self._settings, "_start": self._start}

    def _clock_ms(self) -> int | None:
        """Return when Spark determined what the batch reads, if rows' times are compared with it, and Python can read it."""
        if self._ingest.settings.future is None:
            return None
        return newest_read_moment_ms(self._options.checkpoint, self._options.storage)

    @without_stack
    def write(self, iterator: Iterator[pa.RecordBatch]) -> _TaskMessage:
        """In a task: write rows in time into the channel's files, and the others into the late table's files.

        The files are not part of any table yet.
        """
        context = TaskContext.get()
        if context is None or self._settings is None or self._start is None:
            raise RuntimeError("the strandline sink writes only in Spark tasks")
        query_id = context.getLocalProperty(_QUERY_ID) or ""
        task = IngestTask(
            self._settings,
            self._start,
            name=f"part-{context.partitionId():05d}",
            query=query_id,
            batch=int(context.getLocalProperty(_BATCH_ID) or 0),
            arrival=time.time_ns() // 1000,
        )
        with task:
            for batch in iterator:
                task.write(batch)
            return _TaskMessage(query_id, context.getLocalProperty(_RUN_ID) or "", task.finish())

    @without_stack
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: commit the rows, the promises and the rows that were set aside."""
        received = [message for message in messages if isinstance(message, _TaskMessage)]
        if not received:
            raise RuntimeError(f"batch {batchId} has no message from a task")
        query_id = received[0].query_id
        reports = [message.report for message in received]
        moment = Moment(time.time_ns() // 1_000_000, run=received[0].run_id, to_end=self._options.reads_to_end)
        record = record_of(query_id, self._options.checkpoint, self._options.storage)
        try:
            with uncollected():
                self._check(record, (query_id, batchId), reports)
                moment = replace(
                    moment, in_snapshot=self._in_snapshot(query_id, batchId), read_ms=self._read_ms(query_id, batchId)
                )
                self._ingest.commit((query_id, batchId), reports, query_owner(query_id), moment)
            if (channel := self._ingest.channel) is not None:
                record.add("", batchId, channel)
                record.save()
        except BaseException:
            with suppress(Exception):  # VACUUM removes the remaining files
                self._ingest.abort((query_id, batchId), reports)  # Spark aborts in another process, which knows less
            _ingests.clear()  # so that a policy reads its external data again
            raise

    def _in_snapshot(self, query_id: str, batch: int) -> bool | None:
        """Return whether the batch ends within the source's first snapshot; ``None`` if that is not known."""
        before = self._ingest.in_first_snapshot(query_id)
        decides = before is not False  # a snapshot has begun, or begins with this batch
        found = ends_in_first_snapshot(self._options.checkpoint, batch, self._options.storage, decides=decides)
        if found is None and before is None and self._options.checkpoint is not None:
            _log.warning("Python cannot read the checkpoint of query %s. Does its source begin with a snapshot?", query_id)
        return found

    def _read_ms(self, query_id: str, batch: int) -> int | None:
        """Return as of when the batch read its source, if a policy needs to know it."""
        if not any(policy.counts_wall for _, policy in self._ingest.policy.by_pattern()):
            return None
        found = read_moment_ms(self._options.checkpoint, batch, self._options.storage)
        if found is None:
            _log.warning(
                "Python cannot read the checkpoint of query %s. So idle() with counts=wall gives up none in batch %d. The "
                "next batch tries again. If none succeeds, set checkpointLocation as an option of the query, on a storage that "
                "Python reaches with the options storage.*",
                query_id,
                batch,
            )
        return found

    def _check(self, record: CommitRecord, transaction: tuple[str, int], reports: Sequence[TaskReport]) -> None:
        """Raise unless the channel has what the query has committed before. Then the batch's files are removed."""
        try:
            # Rows that were late might be in time when they are written again, and would be there twice.
            alone = lambda batch: not self._ingest.has_late_rows_after(transaction[0], batch)  # noqa: E731
            record.check("", transaction[1], self._ingest.channel, self._options.path, alone)
        except StrandlineError:
            self._ingest.abort(transaction, reports, all_reported=False)
            raise

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: remove the files that the tasks of a failed batch reported, unless the commit may take effect.

        Spark has tried to commit only if every task has sent its message. An error here is only logged: raised, it would hide
        from Spark the error that stopped the batch.
        """
        received = [message for message in messages if isinstance(message, _TaskMessage)]
        if not received:
            return
        reports, all_reported = [message.report for message in received], len(received) == len(messages)
        try:
            self._ingest.abort((received[0].query_id, batchId), reports, all_reported=all_reported)
        except Exception as error:
            _log.warning("Files of batch %d are left to VACUUM: %s", batchId, error)


def settings_of(options: IngestOptions, schema: StructType, policy: Policy | None = None) -> Settings:
    """Return the core's settings for rows of ``schema``.

    Raises :class:`~strandline.errors.StrandlineError` for invalid options. ``policy`` is the policy that the options name, if an
    object of it already exists.
    """
    _check_collations(options, schema)
    check_stored_types(schema, "The rows to write")
    arrow = arrow_schema(schema)
    domains = {f.name: f.metadata["strandline.time"] for f in schema.fields if "strandline.time" in (f.metadata or {})}
    arrow = pa.schema([f.with_metadata({TIME_KEY: str(domains[f.name])}) if f.name in domains else f for f in arrow])
    settings = Settings.of(
        options.path,
        arrow,
        time=options.time,
        policy=policy or parse_policy(options.policy),
        partition=options.partition,
        partitions=options.partitions,
        on_late=options.on_late,
        late_path=options.late_path,
        max_ahead=options.max_ahead,
        max_future=options.max_future,
        max_set_aside=options.max_set_aside,
        late_columns=options.late_columns,
        late_retention=options.late_retention,
        domain=options.domain,
        corrections=options.corrections,
        take_over=options.take_over != "false",
        from_beginning=None if options.take_over == FROM_BEGINNING else options.from_beginning,
        merge_schema=options.merge_schema,
        storage=options.storage,
    )
    return replace(settings, query_name=options.query_name)


def _check_collations(options: IngestOptions, schema: StructType) -> None:
    """Raise for a partition column by whose collation ``groupBy`` compares: Arrow, and so the ingest, knows no collations."""
    for field in schema.fields:
        collation = field.dataType.collation if isinstance(field.dataType, StringType) else "UTF8_BINARY"
        if field.name in options.partition and collation != "UTF8_BINARY":
            binary = f"collate({quoted(field.name)}, 'UTF8_BINARY')"
            raise errors.partition_column_invalid(field.name, collation, binary)


def _ingest(options: IngestOptions, schema: StructType) -> Ingest:
    key = (repr(options), frozenset((options.storage or {}).items()), schema.json())
    found = _ingests.used(key)
    if found is None:
        found = _ingests[key] = Ingest(settings_of(options, schema))
    return found
