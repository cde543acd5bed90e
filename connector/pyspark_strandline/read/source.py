"""The streaming source: tails the logs of channels, and puts the frontier into the offset of every batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pyspark_strandline.loop_remedies import loop_remedies
from pyspark_strandline.options import ONE_CHANNEL, ReadOptions
from pyspark_strandline.read import input_partition
from pyspark_strandline.read.admission_limits import AdmissionLimits
from pyspark_strandline.read.driver import Driver, Rows
from pyspark_strandline.read.several.cut import Cut
from pyspark_strandline.read.several.rows import SeveralRows
from pyspark_strandline.schema import arrow_schema
from pyspark_strandline.workers import without_stack
from strandline.delta.storage import open_store
from strandline.errors import StrandlineError

__all__ = ["RefusedReader", "StreamReader"]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One channel as a stream, or several as one."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._rows: Rows = _ChannelRows(options, schema) if options.channels is None else SeveralRows(options.each(), schema)
        self._state: Driver | None = None

    def __getstate__(self) -> dict[str, object]:
        # Tasks get a pickled copy. They need no planner.
        return {**self.__dict__, "_state": None}

    @property
    def _driver(self) -> Driver:
        if self._state is None:
            self._state = Driver(self._options, self._rows)
        return self._state

    @without_stack
    def initialOffset(self) -> dict[str, object]:
        """Return the start of a new query: by ``startingVersion`` or ``startingTimestamp``, else the first commit."""
        with loop_remedies(self._options.is_loop):
            return self._driver.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit for ``maxFilesPerTrigger`` and ``maxBytesPerTrigger``, which hold for all channels together.

        :meth:`latestOffset` applies both when it chooses the end.
        """
        if self._options.max_files is None and self._options.max_bytes is None:
            return ReadAllAvailable()
        return ReadMaxFiles(self._options.max_files or 1)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is in the channels now, and nothing that comes later from outside. A loop runs until it is at rest."""
        self._driver.stop_at_newest()

    @without_stack
    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        """Return the end of the next batch. This is ``start`` itself when no row and no move of a frontier has come since."""
        is_unlimited = isinstance(limit, ReadAllAvailable)
        files, size = (None, None) if is_unlimited else (self._options.max_files, self._options.max_bytes)
        with loop_remedies(self._options.is_loop):
            return self._driver.end_of_batch(start, AdmissionLimits(files, size))

    @without_stack
    def reportLatestOffset(self) -> dict[str, object]:
        """Return the newest commit of each channel, for progress reports."""
        newest = self._driver.newest()
        return newest[ONE_CHANNEL] if self._options.channels is None else {"channels": newest}

    @without_stack
    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        """Return the data files between two offsets, packed into partitions (:meth:`Driver.partitions`)."""
        with loop_remedies(self._options.is_loop):
            return self._driver.partitions(start, end)

    def read(self, partition_: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: yield the rows of a partition's files, as record batches."""
        with loop_remedies(self._options.is_loop):
            yield from self._rows.read(partition_)

    def commit(self, end: dict[str, object]) -> None:
        """Nothing to do: the channels keep their files."""

    def stop(self) -> None:
        """Nothing to release."""


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream that is refused: what Spark asks first raises the error.

    If ``streamReader`` raised it, Spark 4.2.0 would end with an ``UnboundLocalError`` about the reader that it does not have.
    """

    def __init__(self, error: StrandlineError) -> None:
        self._error = error.with_traceback(None)

    def initialOffset(self) -> NoReturn:
        raise self._error from None

    def getDefaultReadLimit(self) -> NoReturn:
        raise self._error from None

    def prepareForTriggerAvailableNow(self) -> NoReturn:
        raise self._error from None

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> NoReturn:
        raise self._error from None

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> NoReturn:
        raise self._error from None

    def read(self, partition_: InputPartition) -> NoReturn:
        raise self._error from None


class _ChannelRows:
    """What tasks of a source of one channel do."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self.wanted: dict[str, pa.Schema] = {ONE_CHANNEL: arrow_schema(schema)}

    def beside(self, name: str, begin: Cut) -> Mapping[str, object]:
        return {}

    def own_columns(self, name: str, filtered: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
        return filtered

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        store = open_store(self._options.path, self._options.storage)
        schema = self.wanted[ONE_CHANNEL]
        yield from input_partition.read(store, partition, schema, self._options.fail_on_data_loss)
