"""The streaming sink: tasks write Parquet; the driver makes one Delta commit of files, transaction and progress statement."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import psutil
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_strandline.options import WriteOptions
from pyspark_strandline.schema import channel_schema, time_field_of
from pyspark_strandline.workers import QUERIES_KEPT, Recent
from strandline.channel import Channel, Span, WriterSession
from strandline.channel.write.file_writer import FileWriter
from strandline.delta.data_file import DataFile
from strandline.delta.storage import open_store
from strandline.delta.table import different_columns
from strandline.errors import StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain, parse_domain

__all__ = ["StreamWriter", "query_owner"]

_OUTPUT = "strandline.output"
_QUERY_ID = "sql.streaming.queryId"

# Spark creates a new writer for every batch, in a process that it keeps. Only the variables here outlive a batch.
_channels: Recent[str, Channel] = Recent(QUERIES_KEPT)
_begun: Recent[tuple[str, str], bool] = Recent(QUERIES_KEPT)
"""The ids of queries, each with a table that is known to have the query's earlier batches."""


@dataclass
class _Written(WriterCommitMessage):
    """The message of a task to the driver. It is small for any number of rows."""

    query_id: str
    output: str
    files: list[DataFile]
    times: list[tuple[Time, int]]
    spans: list[Span]


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes a query's output into a channel, as one of its producers.

    A batch is one Delta commit. It contains the batch's files, the Delta transaction (query id, batch id), which makes a replayed
    batch a no-op, and the producer's new holds, which are the plan's output frontier after the batch. A batch without rows
    and without a move of the frontier makes no commit, except a query's first batch. So a query that continues finds its commits
    in the log; otherwise it has not written to this channel.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._time_column, self._domain = time_field_of(schema)
        self._schema = channel_schema(schema, self._time_column, self._domain)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Written:
        """In a task: write the rows into files that are not part of the channel yet."""
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("the strandline sink writes only in Spark tasks")
        output = context.getLocalProperty(_OUTPUT) or ""
        _output_frontier(output, self._domain)  # before anything is written
        query_id = context.getLocalProperty(_QUERY_ID) or ""
        writer = FileWriter(
            self._options.path,
            self._schema,
            self._time_column,
            self._domain,
            self._options.storage,
            name_prefix=f"part-{context.partitionId():05d}",
        )
        with writer:
            for batch in iterator:
                writer.write(batch)
            files, times = writer.finish()
        return _Written(query_id, output, files, times, writer.spans)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: add the batch's files and the producer's progress to the channel, in one Delta commit."""
        written = [message for message in messages if isinstance(message, _Written)]
        if not written:
            raise RuntimeError(f"batch {batchId} has no message from a task")
        query_id = written[0].query_id
        holds = _output_frontier(written[0].output, self._domain)
        files = [file for message in written for file in message.files]
        producer = self._options.producer or f"query-{query_id}"
        times: dict[Time, int] = {}
        for message in written:
            for time, rows in message.times:
                times[time] = times.get(time, 0) + rows
        self._check_begun((query_id, batchId), files)
        version = self._channel(producer).append(
            files,
            statements={producer: holds},
            times=sorted(times.items(), key=lambda entry: self._domain.sort_key(entry[0])),
            spans=[span for message in written for span in message.spans],
            transaction=(query_id, batchId),
            owner=query_owner(query_id),
            take_over=self._options.take_over,
            always=batchId == 0,
        )
        if version is None and files:
            self._remove_second_copies((query_id, batchId), files)  # the batch was committed by an earlier run

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: remove the files that the tasks of a failed batch reported. VACUUM removes the unreported files.

        Spark has tried to commit only if every task has sent its message. A commit that raised may have taken effect, or may do
        so later. Files that are part of the channel, or may become part of it, stay, and are left to VACUUM.
        """
        written = [message for message in messages if isinstance(message, _Written)]
        files = [file for message in written for file in message.files]
        if len(written) < len(messages):
            self._remove([file.path for file in files])
        elif files:
            self._remove_second_copies((written[0].query_id, batchId), files)

    def _remove_second_copies(self, transaction: tuple[str, int], files: Sequence[DataFile]) -> None:
        path, storage = self._options.path, self._options.storage
        if Channel.exists(path, storage):
            self._remove(Channel.open(path, storage).second_copies(transaction, [file.path for file in files]))

    def _remove(self, names: Sequence[str]) -> None:
        store = open_store(self._options.path, self._options.storage)
        for name in names:
            store.delete(name)

    def _channel(self, producer: str) -> Channel:
        channel = self._found()
        if channel is None:
            # The query is the only producer of a channel that it creates, so no other can join and the channel is sealed.
            channel = _channels[self._options.path] = Channel.create(
                self._options.path,
                self._schema,
                time=self._time_column,
                domain=self._domain,
                producers=[producer],
                storage_options=self._options.storage,
                exist_ok=True,
            )
        self._check_schema(channel)
        return channel

    def _found(self) -> Channel | None:
        """Return the channel that exists now."""
        path, storage = self._options.path, self._options.storage
        channel = _channels.used(path)
        if channel is None or channel.was_replaced():
            _channels.pop(path, None)
            if not Channel.exists(path, storage):
                return None
            channel = _channels[path] = Channel.open(path, storage)
        return channel

    def _check_begun(self, transaction: tuple[str, int], files: Sequence[DataFile]) -> None:
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
            self._remove([file.path for file in files])
            have = "there is no channel" if channel is None else "the channel has no batch of this query"
            raise StrandlineError(
                "STRANDLINE_OUTPUT_MISSING",
                f"The query's checkpoint states that it has written {batch} batch(es) before this one, but {have} at "
                f"{self._options.path}. With this batch the frontier would close times whose rows are missing.",
                "Restore the channel at that path, or start the query with a new checkpointLocation, which writes all rows "
                "again. A query that writes to another path needs a new checkpointLocation too.",
            )
        _begun[query_id, channel.table_id] = True

    def _check_schema(self, channel: Channel) -> None:
        if (channel.time_column, channel.domain) != (self._time_column, self._domain):
            raise StrandlineError(
                "STRANDLINE_SCHEMA_MISMATCH",
                f"The query's time column is {self._time_column!r} of {self._domain}, "
                f"but the time column of {channel.path} is {channel.time_column!r} of {channel.domain}.",
                "Rename the column, or write into another channel.",
            )
        different = different_columns(channel.schema, self._schema)
        if different is not None:
            raise StrandlineError(
                "STRANDLINE_SCHEMA_MISMATCH",
                f"The query's rows and {channel.path} differ in the columns {different}.",
                "Select and cast the query's columns to the channel's.",
            )


@lru_cache(maxsize=64)
def query_owner(query_id: str) -> WriterSession:
    """Return the query as the producer's session.

    The session lives as long as its Spark driver, not as long as the Python worker that commits for it.
    """
    for process in psutil.Process().parents():
        if process.name().startswith("java"):
            return WriterSession.of(process, query_id)
    return WriterSession.here(query_id)


def _output_frontier(output: str, domain: TimeDomain) -> Antichain:
    """Return the plan's output frontier after the batch, as the shim published it."""
    if not output:
        raise StrandlineError(
            "STRANDLINE_EXTENSION_MISSING",
            "The Spark session does not have the strandline extension, so the query's output frontier is unknown.",
            "Build the session with pyspark_strandline.configure(builder), or pass the shim's jar with --jars "
            '"$(python -m pyspark_strandline jar)".',
        )
    published: dict[str, Any] = json.loads(output)
    if "error" in published:
        raise StrandlineError("STRANDLINE_OUTPUT_FRONTIER_UNKNOWN", str(published["error"]))
    if parse_domain(published["domain"]) != domain:
        raise StrandlineError(
            "STRANDLINE_TIME_DOMAIN_MISMATCH",
            f"The output frontier has times of {published['domain']}, but the time column has times of {domain}.",
            "Keep the source's time column in the query.",
        )
    return Antichain.from_json(domain, published["end"], "output frontier")
