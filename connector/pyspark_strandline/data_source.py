"""``format("strandline")``: Spark gets schemas, readers and writers from here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pyspark_strandline import errors
from pyspark_strandline.options import IngestOptions, ReadOptions, RecordOptions, WriteOptions
from pyspark_strandline.schema import spark_schema
from pyspark_strandline.workers import without_stack
from strandline import __version__
from strandline.channel import Channel
from strandline.errors import StrandlineError

if TYPE_CHECKING:
    from pyspark_strandline.read.batch import ProgressReader, RowsReader
    from pyspark_strandline.read.overview import OverviewReader
    from pyspark_strandline.read.source import RefusedReader, StreamReader
    from pyspark_strandline.write.ingest_sink import IngestWriter
    from pyspark_strandline.write.record.sink import RecordWriter
    from pyspark_strandline.write.sink import StreamWriter

__all__ = ["StrandlineDataSource"]


class StrandlineDataSource(DataSource):
    """Channels as streams and tables: source, sink and batch reader. Spark finds it by itself under the name ``strandline``.

    Each method imports what it returns: Spark asks it in a process for each method, and an import takes longer than an answer.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(…)``."""
        return "strandline"

    @without_stack
    def schema(self) -> StructType:
        """Return the channel's columns. The time column has its domain in the metadata."""
        options = ReadOptions.parse(self.options)
        if options.show == "progress":
            from pyspark_strandline.read.batch import PROGRESS_SCHEMA

            return PROGRESS_SCHEMA
        if options.show in ("frontiers", "holds"):
            from pyspark_strandline.read.overview import schema_of

            return schema_of(options.for_overview().show)
        if options.channels is not None:
            from pyspark_strandline.read.several.inputs import Inputs

            return Inputs(options).schema()
        channel = Channel.open(options.path, options.storage)
        result = spark_schema(channel.schema, channel.time_column, channel.domain, options.columns)
        if options.starting_frontier is not None:
            from pyspark_strandline.read.replay.frontier import SINCE_KEY, parse_frontier

            since = parse_frontier("startingFrontier", options.starting_frontier, channel.domain)
            result[channel.time_column].metadata[SINCE_KEY] = json.dumps(since.to_json())
        return result

    @without_stack
    def reader(self, schema: StructType) -> RowsReader | ProgressReader | OverviewReader:
        """Return the batch reader."""
        from pyspark_strandline.read.batch import ProgressReader, RowsReader

        options = ReadOptions.parse(self.options).for_batch()
        if options.show == "progress":
            return ProgressReader(options)
        if options.show in ("frontiers", "holds"):
            from pyspark_strandline.read.overview import OverviewReader

            return OverviewReader(options)
        self._check(schema, may_lack=True)  # a DataFrame keeps its columns when the channel gets more
        return RowsReader(options, schema)

    def streamReader(self, schema: StructType) -> StreamReader | RefusedReader:
        """Return the stream reader. If the stream is refused, this reader raises why, before any row is read."""
        from pyspark_strandline.read.source import RefusedReader

        try:
            return self._stream_reader(schema)
        except StrandlineError as error:
            return RefusedReader(error)

    def _stream_reader(self, schema: StructType) -> StreamReader:
        from pyspark_strandline.read.source import StreamReader

        options = ReadOptions.parse(self.options).for_stream()
        if options.extension is None:
            raise errors.extension_missing_for_operators()
        if options.extension != __version__:
            raise errors.extension_version(options.extension, __version__)
        if options.starting_frontier is not None and options.since != options.starting_frontier:
            raise errors.option_invalid_since(options.starting_frontier)
        self._check(schema)
        return StreamReader(options, schema)

    @without_stack
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter | IngestWriter | RecordWriter:
        """Return the stream writer. It is for append mode, because a channel cannot take rows back.

        With the option ``policy`` it is an ingest, and with ``node`` a recording.

        Args:
            schema: The schema of the rows.
            overwrite: Whether the query has output mode complete, which is refused.

        Raises:
            StrandlineError: ``STRANDLINE_OUTPUT_MODE_UNSUPPORTED``, or an option is invalid.
        """
        if overwrite:
            raise errors.output_mode_unsupported()
        if IngestOptions.wanted(self.options):
            from pyspark_strandline.write.ingest_sink import IngestWriter

            return IngestWriter(IngestOptions.parse(self.options), schema)
        if RecordOptions.wanted(self.options):
            from pyspark_strandline.write.record.sink import RecordWriter

            return RecordWriter(RecordOptions.parse(self.options), schema)
        from pyspark_strandline.write.sink import StreamWriter

        return StreamWriter(WriteOptions.parse(self.options), schema)

    @without_stack
    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refuse batch writes: a DataFrame does not say which times it completes."""
        raise errors.batch_write_unsupported()

    def _check(self, schema: StructType, *, may_lack: bool = False) -> None:
        """Raise unless a schema given by ``.schema(…)`` is the channel's own, or has some of its columns: rows are read by it."""
        own = self.schema()
        given, has = ([(f.name, f.dataType) for f in each.fields] for each in (schema, own))
        if given != has and not (may_lack and all(column in has for column in given)):
            raise errors.schema_mismatch(schema, own)
