"""The streaming source: tails a channel's log, and puts the frontier into the offset of every batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read import input_partition
from pyspark_strandline.read.admission_limits import AdmissionLimits
from pyspark_strandline.read.batch_planner import BatchPlanner
from pyspark_strandline.read.log_cursor import LogCursor
from pyspark_strandline.read.native_scan import NativeScan
from pyspark_strandline.read.offset import Offset
from pyspark_strandline.resume.source import Resumption
from pyspark_strandline.schema import arrow_schema
from pyspark_strandline.workers import without_stack
from strandline.delta.storage import open_store

__all__ = ["StreamReader", "default_limit", "limits_of"]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One channel as a stream.

    The driver keeps a cursor in the log, so that a poll costs a lookup of the next commit and a look at the newest one. It holds
    no state that the offset does not determine: after a restart everything is recreated from the log.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema: pa.Schema = arrow_schema(schema)
        self._state: _Driver | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a pickled copy. They need only the options and the schema.
        return {"_options": self._options, "_schema": self._schema, "_state": None}

    @property
    def _driver(self) -> _Driver:
        if self._state is None:
            self._state = _Driver(self._options, self._schema)
        return self._state

    @without_stack
    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query: by ``startingVersion`` or ``startingTimestamp``, else the first commit."""
        self._driver.resumption.asked_for_initial()
        return self._driver.planner.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit for ``maxFilesPerTrigger`` and ``maxBytesPerTrigger``.

        :meth:`latestOffset` applies both when it chooses the end.
        """
        return default_limit(self._options)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is in the channel now, and nothing that comes later."""
        self._driver.cursor.stop_at_newest()

    @without_stack
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch. This is ``start`` itself when no row and no move of the frontier has come since."""
        driver = self._driver
        begin = driver.offset(start)
        if driver.resumption.is_due:
            table = driver.cursor.channel.table_id
            read = driver.resumption.positions({table: self._options.path})[table]
            end = driver.planner.end_at(begin, read)
        else:
            end = driver.planner.end_of_batch(begin, limits_of(self._options, limit))
        driver.resumption.begin()
        if end == begin:
            return start
        if (planned := driver.planner.planned) is not None and begin.snapshot is None:
            driver.native.look_ahead(planned)
        return end.to_json()

    @without_stack
    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the newest commit, for progress reports."""
        cursor = self._driver.cursor
        return {"channel": cursor.channel.table_id, "commit": cursor.newest_seen() + 1, "file": 0}

    @without_stack
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the data files between two offsets, packed into partitions, and whether the JVM may read them by itself.

        When the shim calls this, it adds to ``end`` the columns that the query filters by. It wants the log's statistics of these
        columns, and needs no partitions.
        """
        driver = self._driver
        driver.resumption.begin()
        filtered = end.get("statistics")
        stop = driver.offset(end)
        begin = driver.planner.begin_of(driver.offset(start), stop)
        files = driver.planner.files(begin, stop, stats=bool(filtered))
        decision = driver.native.decide(files, driver.cursor.channel.schema, filtered or ())
        if filtered is not None:
            return input_partition.hand_over(decision)
        return input_partition.plan(decision, self._options.max_partition_bytes, self._options.min_partitions)

    def read(self, partition_: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: yield the rows of a partition's files, as record batches."""
        store = open_store(self._options.path, self._options.storage)
        yield from input_partition.read(store, partition_, self._schema, self._options.fail_on_data_loss)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the channel keeps its files."""

    def stop(self) -> None:
        """Nothing to release."""


def default_limit(options: ReadOptions) -> ReadLimit:
    """Return the limit that makes Spark ask for batches within ``maxFilesPerTrigger`` and ``maxBytesPerTrigger``."""
    if options.max_files is None and options.max_bytes is None:
        return ReadAllAvailable()
    return ReadMaxFiles(options.max_files or 1)


def limits_of(options: ReadOptions, limit: ReadLimit) -> AdmissionLimits:
    """Return the room of a batch that Spark asks for with ``limit``."""
    if isinstance(limit, ReadAllAvailable):
        return AdmissionLimits(None, None)
    return AdmissionLimits(options.max_files, options.max_bytes)


class _Driver:
    """The parts of the source on the driver."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self.cursor = LogCursor(options)
        self.planner = BatchPlanner(options, self.cursor)
        self.native = NativeScan(options, schema)
        self.resumption = Resumption(options)

    def offset(self, value: dict[str, Any]) -> Offset:
        channel = self.cursor.channel
        return Offset.from_json(value, channel.table_id, channel.domain, channel.path)
