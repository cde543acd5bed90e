"""Batch reads: a channel's rows as of a version, or the holds of its producers there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import ArrayType, BooleanType, LongType, StringType, StructField, StructType

from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read import input_partition, statistics
from pyspark_strandline.read.native_scan import NativeScan
from pyspark_strandline.schema import arrow_schema
from strandline.channel import Channel
from strandline.channel.statements.statement import REGISTRAR, ProducerState
from strandline.delta.storage import open_store
from strandline.time.antichain import Antichain

__all__ = ["PROGRESS_SCHEMA", "ProgressReader", "RowsReader"]

PROGRESS_SCHEMA = StructType(
    [
        StructField("version", LongType()),
        StructField("frontier", ArrayType(StringType())),
        StructField("producer", StringType()),
        StructField("seq", LongType()),
        StructField("holds", ArrayType(StringType())),
        StructField("holdsFrontierBack", BooleanType()),
        StructField("state", StringType()),
    ]
)
"""The schema of ``option("show", "progress")``: a row for each producer, and one without a name for an open registrar.

Times are in human-readable form. ``holdsFrontierBack`` means that one of the capabilities is in the frontier. ``state`` is the
producer's own state, as JSON (docs/protocol.md).
"""


class RowsReader(DataSourceReader):
    """A channel's rows as of ``asOfVersion``, or as of now."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema: pa.Schema = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the data files of the version, packed into partitions."""
        channel = Channel.open(self._options.path, self._options.storage)
        # The query's filters are not known at this point, so the log's statistics of all columns are included.
        version = channel.version if self._options.as_of_version is None else self._options.as_of_version
        files = channel.snapshot_files(version, stats=self._options.native_scan != "off")
        filtered = list(statistics.bounded_columns(self._schema))
        decision = NativeScan(self._options, self._schema).decide(files, channel.schema, filtered)
        beside = {"table": channel.table_id, "version": version}  # for the shim
        return input_partition.plan(decision, self._options.max_partition_bytes, self._options.min_partitions, beside)

    def read(self, partition_: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: yield the rows of a partition's files, as record batches."""
        store = open_store(self._options.path, self._options.storage)
        yield from input_partition.read(store, partition_, self._schema, self._options.fail_on_data_loss)


class ProgressReader(DataSourceReader):
    """The holds of every producer, and the resulting frontier."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition: the whole answer is in the log."""
        channel = Channel.open(self._options.path, self._options.storage)
        version = channel.version if self._options.as_of_version is None else self._options.as_of_version
        return [InputPartition(json.dumps({"table": channel.table_id, "version": version}))]

    def read(self, partition_: InputPartition) -> Iterator[tuple[object, ...]]:
        """Yield a row for each producer, with the columns of :data:`PROGRESS_SCHEMA`."""
        channel = Channel.open(self._options.path, self._options.storage)
        version: int = json.loads(partition_.value)["version"]
        progress = channel.progress_at(version)
        frontier = progress.frontier
        shown = _shown(frontier)
        states: list[tuple[str | None, ProducerState | None]] = list(progress.producers.items())
        if not progress.sealed:
            states.append((None, progress.get(REGISTRAR)))
        for name, state in states:
            if state is not None:
                back = any(time in frontier for time in state.holds)
                own = None if state.state is None else json.dumps(state.state)
                yield version, shown, name, state.seq, _shown(state.holds), back, own


def _shown(times: Antichain) -> list[str]:
    return [times.domain.format(time) for time in times]
