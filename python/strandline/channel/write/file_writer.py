"""Writing a channel's data files, on the driver or in a Spark task."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.channel import errors
from strandline.channel.batch.batch_digest import RowsDigest
from strandline.channel.batch.row_hashes import FloatSums, row_hashes
from strandline.channel.progress.snapshot import Snapshot
from strandline.channel.statements.message_times import MAX_EXACT, OrderedTimeCounts, TimeCounts
from strandline.channel.statements.statement import Span
from strandline.delta.data_file import DataFile, schema_mark
from strandline.delta.errors import process_forked_object
from strandline.delta.file_stats import stats_text
from strandline.delta.storage import open_store, storage_errors
from strandline.delta.store_errors import native
from strandline.errors import StorageError, TimeError
from strandline.time.domain import Time, TimeDomain

__all__ = ["FileWriter", "conform", "file_writer"]

ROW_GROUP_BYTES = 64 << 20
"""The number of buffered Arrow bytes that become a row group."""
ROW_GROUP_ROWS = 1 << 20
FILE_BYTES = 128 << 20
"""The number of Parquet bytes after which a new file begins."""
_PREFIX = re.compile(r"[A-Za-z0-9-][A-Za-z0-9._-]{0,99}")


def conform(rows: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows as a table of exactly ``schema``. Columns are matched by name.

    Only casts that keep every value are made, such as ``int32`` to ``int64``. Otherwise, raises :class:`ChannelError`
    ``STRANDLINE_SCHEMA_MISMATCH``.
    """
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    if not isinstance(table, pa.Table):
        raise errors.schema_mismatch_of_kind(rows)
    if table.schema.equals(schema):
        return table.replace_schema_metadata(schema.metadata)
    have, want = table.schema.names, schema.names
    missing, more = [n for n in want if n not in have], [n for n in have if n not in want]
    if missing or more or len(have) != len(want):
        parts = [f"lack the columns {missing}"] * bool(missing) + [f"have the additional columns {more}"] * bool(more)
        raise errors.schema_mismatch_of_names(parts, want)
    columns = []
    for field in schema:
        column = table.column(field.name)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise errors.schema_mismatch_of_column(field.name, column.type, field.type, error) from None
    return pa.Table.from_arrays(columns, schema=schema)


class FileWriter:
    """Writes rows into Parquet files of a channel's table, with Delta statistics.

    The files are not part of the table until they are committed. The writer needs only these arguments of a channel, so it
    can be used inside Spark tasks. As a context manager, it removes the files that it wrote if the block raises.

    Args:
        path: The table's path.
        schema: The columns of the table.
        time_column: The time column. Without one (in a table that is not a channel), no times are counted.
        domain: The domain of the time column.
        storage_options: The options of the table's storage.
        name_prefix: The beginning of the files' names. The names also contain :func:`schema_mark`.
        folder: The folder of the files, below the table.
        digests: Whether :attr:`digest` is made of the rows. This needs their times.
        rounding: Whether the digest has floating-point numbers up to rounding, and lists in any order.
        most_times: How many distinct times :meth:`finish` may name exactly.
        stamp: Gives rows their times in the order in which they are written. Until then they have others.
        in_order: Whether the times of rows come in their order, each once, at few instants. The last leaf of the times counts.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: pa.Schema,
        time_column: str | None,
        domain: TimeDomain | None,
        storage_options: Mapping[str, str] | None = None,
        name_prefix: str = "part",
        folder: str = "",
        digests: bool = False,
        rounding: bool = False,
        most_times: int = MAX_EXACT,
        stamp: Callable[[pa.Table], pa.Table] | None = None,
        in_order: bool = False,
    ) -> None:
        if not _PREFIX.fullmatch(name_prefix):
            raise ValueError(
                f"name_prefix is {name_prefix!r}; use letters, digits, '.', '_' and '-', and do not begin with '.' or '_'"
            )
        self._store = open_store(path, storage_options)
        self.schema = schema
        self._prefix = f"{folder}/{name_prefix}" if folder else name_prefix
        self._name = f"{schema_mark(schema)}-{uuid.uuid4().hex}"
        self._buffer: list[pa.Table] = []
        self._buffered_rows = 0
        self._buffered_bytes = 0
        self._time_column = time_column
        counts = OrderedTimeCounts if in_order else TimeCounts
        self._times = None if time_column is None or domain is None else counts(domain, time_column, most_times)
        self._counter = f"{time_column}.{domain.leaves()[-1][0][-1]}" if in_order and domain is not None else None
        self.spans: list[Span] = []
        """After :meth:`finish`: the spans for a statement, for rows whose times are too many to name."""
        self._digests = digests
        self.exact: int | None = 0 if digests and rounding else None
        """If numbers are compared up to rounding: the sum of hashes of the rows with all their bits, so far."""
        self._floats = FloatSums() if rounding else None
        self.digest = RowsDigest()
        """After :meth:`finish`: the digest of the rows, if the writer makes one."""
        self._stamp = stamp
        self.unstamped: RowsDigest | None = None
        """After :meth:`finish`: the digest of the rows before they were stamped; ``None`` if there is none."""
        self._unstamped_hash = 0
        self._unstamped_floats = FloatSums() if rounding and stamp is not None else None
        self.time_hashes: list[int] = []
        """After :meth:`finish`: for each of the times that it returned, the sum of its rows' hashes."""
        self._files: list[DataFile] = []
        self._written: list[str] = []
        self._parquet: pq.ParquetWriter | None = None
        self._sink: pa.NativeFile | None = None
        self._failure: str | None = None
        self._process = os.getpid()

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Add rows.

        Raises:
            ChannelError: The rows have another schema.
            TimeError: A time is null.
            StorageError: The storage fails, here or in :meth:`finish`. Then all files that were written are removed.
        """
        self._check_whole()
        table = conform(rows, self.schema)
        if not table.num_rows:
            return
        with self._removed_on_failure():
            if self._times is not None and self._stamp is None:
                self._times.check(table.column(self._time_column))
            self._buffer.append(table)
            self._buffered_rows += table.num_rows
            self._buffered_bytes += table.nbytes
            if self._buffered_rows >= ROW_GROUP_ROWS or self._buffered_bytes >= ROW_GROUP_BYTES:
                self._flush()

    @contextmanager
    def _removed_on_failure(self) -> Iterator[None]:
        """Remove all files if writing fails.

        A file that was written in part, or to an unknown extent, cannot be continued.
        """
        try:
            location, options = self._store.location, self._store.options
            with storage_errors("write rows to", location, but=(), options=options), native(location, options, threads=False):
                yield
        except TimeError:  # none of these rows was added
            raise
        except BaseException as error:  # an interrupt may come between any two steps
            self._failure = error.what if isinstance(error, StorageError) else f"{type(error).__name__}."
            self.abort()
            raise

    def _check_whole(self) -> None:
        if os.getpid() != self._process:
            raise process_forked_object("writer of data files", self._store.location)
        if self._failure is not None:
            raise errors.rows_thrown_away(self._store.location, self._failure)

    def _flush(self) -> None:
        if not self._buffer:
            return
        # Together, because most of the time for a few rows at once is that of calls.
        rows = self._stamped(pa.concat_tables(self._buffer).combine_chunks())
        if self._times is not None:
            self._times.add(rows.column(self._time_column), row_hashes(rows, self._floats) if self._digests else None)
        if self.exact is not None:
            self.exact += int(row_hashes(rows).sum(dtype=np.uint64))
        if self._parquet is None:
            path = f"{self._prefix}-{self._name}-{len(self._written):05d}.parquet"
            self._written.append(path)
            self._sink = self._store.open_output(path)
            columns = self.schema.remove_metadata()
            # Each page has its CRC, so that strandline.report.verify finds a damaged one.
            self._parquet = pq.ParquetWriter(
                self._sink, columns, compression="zstd", store_schema=False, write_page_checksum=True, **self._encodings()
            )
        self._parquet.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        self._buffer, self._buffered_rows, self._buffered_bytes = [], 0, 0
        if self._sink is not None and self._sink.tell() >= FILE_BYTES:
            self._end_file()

    def _stamped(self, rows: pa.Table) -> pa.Table:
        """Return rows with the times that they are written with. A batch that is repeated has other ones."""
        if self._stamp is None:
            return rows
        if self._counter is not None:
            return self._stamp(rows)
        hashes = row_hashes(rows, self._unstamped_floats)
        self._unstamped_hash += int(hashes.sum(dtype=np.uint64))
        return self._stamp(rows)

    def _encodings(self) -> dict[str, object]:
        """Return how columns are encoded that Parquet's default encodes badly: a dictionary of numbers that all differ."""
        if self._counter is None:
            return {}
        sink = pa.BufferOutputStream()
        pq.write_table(self.schema.empty_table(), sink)
        schema = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
        paths = [schema.column(i).path for i in range(len(schema))]
        others = [path for path in paths if path != self._counter]
        return {"use_dictionary": others, "column_encoding": {self._counter: "DELTA_BINARY_PACKED"}}

    def _end_file(self) -> None:
        if self._parquet is None or self._sink is None:
            return
        self._parquet.close()
        metadata = self._parquet.writer.metadata if hasattr(self._parquet.writer, "metadata") else None
        size = self._sink.tell()
        self._sink.close()
        path = self._written[-1]
        self._store.sync(path)  # before it is committed
        if metadata is None:
            with self._store.open_input(path) as file:
                metadata = pq.read_metadata(file)
        stats = stats_text(metadata, self.schema, lambda: self._store.open_input(path))
        self._files.append(DataFile(path, size, metadata.num_rows, stats))
        self._parquet = self._sink = None

    def finish(self) -> tuple[list[DataFile], list[tuple[Time, int]]]:
        """Close the files. Return them, and the rows by time in ``sort_key`` order.

        Both are empty if nothing was written. Rows with very many distinct times are counted in :attr:`spans` instead.
        """
        self._check_whole()
        with self._removed_on_failure():
            self._flush()
            self._end_file()
            times, self.spans = self._times.result() if self._times is not None else ([], [])
            self._check_counted(times)
            if self._digests and self._times is not None:
                rows = sum(file.rows for file in self._files)
                sums = None if self._floats is None else self._floats.sums
                self.digest = RowsDigest() + RowsDigest(rows, self._times.hashed, sums)
                self.time_hashes = self._times.hashes
                if self._stamp is not None and self._counter is None:
                    sums = None if self._unstamped_floats is None else self._unstamped_floats.sums
                    self.unstamped = RowsDigest() + RowsDigest(rows, self._unstamped_hash, sums)
        return self._files, times

    def _check_counted(self, times: list[tuple[Time, int]]) -> None:
        """Raise unless as many rows were counted as the files have. After an interrupt they may differ."""
        counted = sum(rows for _, rows in times) + sum(span.rows for span in self.spans)
        written = sum(file.rows for file in self._files)
        if self._times is not None and counted != written:
            raise errors.rows_thrown_away_by_interrupt(self._store.location, counted, written)

    def abort(self) -> None:
        """Remove every file that was written. This is for rows that will not be committed."""
        if os.getpid() != self._process:
            return  # the files are those of the process that this one was forked from
        self._buffer = []
        for part in (self._parquet, self._sink):
            with suppress(OSError, pa.ArrowException, ValueError):
                if part is not None:
                    part.close()
        self._parquet = self._sink = None
        for path in self._written:
            with suppress(StorageError):
                self._store.delete(path)
        self._written, self._files = [], []

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.abort()


def file_writer(snapshot: Snapshot, name_prefix: str = "part") -> FileWriter:
    """Return a writer of data files for a channel."""
    table = snapshot.table
    return FileWriter(table.path, table.schema, snapshot.time_column, snapshot.domain, table.storage_options, name_prefix)
