"""A channel's data files: how a commit names them, and the writer that makes them anywhere, a Spark task included."""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.channel.errors import ChannelError, StorageError
from strandline.channel.message_times import TimeCounts
from strandline.channel.statement import Span
from strandline.channel.stats import delta_stats
from strandline.channel.store import open_store, storage_errors
from strandline.errors import TimeError
from strandline.order import Time, TimeDomain

__all__ = ["DataFile", "FileWriter", "conform", "rows_in", "schema_mark"]

ROW_GROUP_BYTES = 64 << 20
"""Arrow bytes buffered before they become a row group."""
ROW_GROUP_ROWS = 1 << 20
_PREFIX = re.compile(r"[A-Za-z0-9-][A-Za-z0-9._-]{0,99}")
_ROWS_FIRST = re.compile(r'\{"numRecords":(\d{1,18})[,}]')
FILE_BYTES = 128 << 20
"""Parquet bytes after which a new file begins."""


@dataclass(frozen=True)
class DataFile:
    """A Parquet file of a channel.

    ``path`` is relative to the table (decoded, not as the log's URL encoding has it), ``size`` in bytes, ``rows`` is -1 when its
    writer kept no statistics, ``stats`` is Delta's statistics JSON or ``None``.

    >>> file = DataFile("part-1.parquet", 900, 3, '{"numRecords":3}')
    >>> DataFile.from_json(file.to_json()) == file
    True
    """

    path: str
    size: int
    rows: int
    stats: str | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON object for messages between processes."""
        return {"path": self.path, "size": self.size, "rows": self.rows, "stats": self.stats}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> DataFile:
        """Read what :meth:`to_json` wrote; raises ``ValueError``."""
        path, size, rows, stats = (value.get(name) for name in ("path", "size", "rows", "stats"))
        if not isinstance(path, str) or not path or not isinstance(size, int) or not isinstance(rows, int):
            raise ValueError(f"{str(value)[:200]!r} is no data file")
        return cls(path, size, rows, stats if isinstance(stats, str) else None)

    @classmethod
    def from_add(cls, action: Mapping[str, Any]) -> DataFile:
        """Read a log's ``add`` action; raises ``ValueError``."""
        path, size, stats = action.get("path"), action.get("size"), action.get("stats")
        if not isinstance(path, str) or not path:
            raise ValueError("it has no path")
        if not isinstance(size, int) or size < 0:
            raise ValueError(f"{path!r} has the size {size!r}")
        text = stats if isinstance(stats, str) else None
        return cls(unquote(path) if "%" in path else path, size, -1 if text is None else rows_in(text), text)


def rows_in(stats: str) -> int:
    """``numRecords`` of Delta's statistics, or -1. Every writer in use puts it first, so that most need not be parsed."""
    if first := _ROWS_FIRST.match(stats):
        return int(first.group(1))
    try:
        rows = json.loads(stats).get("numRecords")
    except (ValueError, AttributeError, RecursionError):
        return -1
    return rows if type(rows) is int else -1


def schema_mark(schema: pa.Schema) -> str:
    """A short mark of the columns' names and types, which :class:`FileWriter` puts into the names of its files.

    So a reader knows what is in a file of ours without opening it. What Parquet does not tell apart makes no difference.

    >>> schema_mark(pa.schema([("n", pa.int64())])) == schema_mark(pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    True
    >>> len(schema_mark(pa.schema([("n", pa.int64())])))
    12
    """
    text = json.dumps([[field.name, _type_text(field.type)] for field in schema])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _type_text(kind: pa.DataType) -> Any:
    def inner(field: pa.Field) -> list[Any]:
        return [_type_text(field.type), field.nullable]

    if pa.types.is_struct(kind):
        return ["struct", [[field.name, *inner(field)] for field in kind]]
    if pa.types.is_map(kind):
        return ["map", _type_text(kind.key_type), *inner(kind.item_field)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return ["list", *inner(kind.value_field)]
    return str(kind).removeprefix("large_")


def conform(rows: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows as a table of exactly ``schema``, columns taken by name.

    Only casts that keep every value are made (``int32`` to ``int64``); else :class:`ChannelError` ``STRANDLINE_SCHEMA_MISMATCH``.
    """
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    if not isinstance(table, pa.Table):
        raise ChannelError(
            "STRANDLINE_SCHEMA_MISMATCH",
            f"Rows must be a pyarrow RecordBatch or Table, not {type(rows).__name__}.",
            "Use pyarrow.Table.from_pandas or pyarrow.table.",
        )
    if table.schema.equals(schema):
        return table.replace_schema_metadata(schema.metadata)
    have, want = table.schema.names, schema.names
    missing, more = [n for n in want if n not in have], [n for n in have if n not in want]
    if missing or more or len(have) != len(want):
        parts = [f"lack {missing}"] * bool(missing) + [f"have {more} besides"] * bool(more)
        raise ChannelError(
            "STRANDLINE_SCHEMA_MISMATCH",
            f"The rows {' and '.join(parts) or 'name a column twice'}; the channel's columns are {want}.",
            "Give exactly the channel's columns.",
        )
    columns = []
    for field in schema:
        column = table.column(field.name)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise ChannelError(
                "STRANDLINE_SCHEMA_MISMATCH",
                f"Column {field.name!r} has the type {column.type}, whose values cannot become {field.type}: {error}.",
                "Cast it before sending.",
            ) from None
    return pa.Table.from_arrays(columns, schema=schema)


class FileWriter:
    """Writes rows into Parquet files of a channel's table, with Delta statistics. The files are no part of it until committed.

    Needs nothing of the channel but these arguments, so that it serves inside Spark tasks. As a context manager it removes what
    it wrote when the block raises. ``name_prefix`` begins the files' names, after ``folder`` when there is one;
    :func:`schema_mark` is in them. Without a time column (a table that is no channel) no times are counted.
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
    ) -> None:
        if not _PREFIX.fullmatch(name_prefix):
            raise ValueError(
                f"name_prefix is {name_prefix!r}; use letters, digits, '.', '_' and '-', and begin with no '.' or '_'"
            )
        self._store = open_store(path, storage_options)
        self.schema = schema
        self._prefix = f"{folder}/{name_prefix}" if folder else name_prefix
        self._name = f"{schema_mark(schema)}-{uuid.uuid4().hex}"
        self._buffer: list[pa.Table] = []
        self._buffered_rows = 0
        self._buffered_bytes = 0
        self._time_column = time_column
        self._times = None if time_column is None or domain is None else TimeCounts(domain, time_column)
        self.spans: list[Span] = []
        """After :meth:`finish`: rows whose times are too many to name, as a statement carries them."""
        self._files: list[DataFile] = []
        self._written: list[str] = []
        self._parquet: pq.ParquetWriter | None = None
        self._sink: pa.NativeFile | None = None
        self._failure: str | None = None

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Add rows. Raises :class:`ChannelError` on another schema, :class:`~strandline.errors.TimeError` on a null time.

        :class:`StorageError` when the storage fails, here and in :meth:`finish`: then all that was written is removed.
        """
        self._check_whole()
        table = conform(rows, self.schema)
        if not table.num_rows:
            return
        with self._removed_on_failure():
            if self._times is not None:
                self._times.add(table.column(self._time_column))
            self._buffer.append(table)
            self._buffered_rows += table.num_rows
            self._buffered_bytes += table.nbytes
            if self._buffered_rows >= ROW_GROUP_ROWS or self._buffered_bytes >= ROW_GROUP_BYTES:
                self._flush()

    @contextmanager
    def _removed_on_failure(self) -> Iterator[None]:
        """A file that was written in part, or of which nobody knows how far, cannot be gone on with."""
        try:
            with storage_errors("write rows to", self._store.location, but=()):
                yield
        except TimeError:  # nothing of these rows was taken
            raise
        except BaseException as error:  # an interrupt may come between any two steps
            self._failure = error.what if isinstance(error, StorageError) else f"{type(error).__name__}."
            self.abort()
            raise

    def _check_whole(self) -> None:
        if self._failure is not None:
            raise StorageError(
                "STRANDLINE_ROWS_THROWN_AWAY",
                f"The rows for {self._store.location} were thrown away when writing them ended in an error: {self._failure}",
                "Abort, then send the rows since the last commit again.",
            )

    def _flush(self) -> None:
        if not self._buffer:
            return
        if self._parquet is None:
            path = f"{self._prefix}-{self._name}-{len(self._written):05d}.parquet"
            self._written.append(path)
            self._sink = self._store.open_output(path)
            self._parquet = pq.ParquetWriter(self._sink, self.schema.remove_metadata(), compression="zstd", store_schema=False)
        self._parquet.write_table(pa.concat_tables(self._buffer), row_group_size=ROW_GROUP_ROWS)
        self._buffer, self._buffered_rows, self._buffered_bytes = [], 0, 0
        if self._sink is not None and self._sink.tell() >= FILE_BYTES:
            self._end_file()

    def _end_file(self) -> None:
        if self._parquet is None or self._sink is None:
            return
        self._parquet.close()
        metadata = self._parquet.writer.metadata if hasattr(self._parquet.writer, "metadata") else None
        size = self._sink.tell()
        self._sink.close()
        path = self._written[-1]
        self._store.sync(path)  # before anybody commits it
        if metadata is None:
            with self._store.open_input(path) as file:
                metadata = pq.read_metadata(file)
        # Not escaped, here and in the log: deltalake takes a pair of surrogate escapes beyond U+1FFFF for another character.
        stats = json.dumps(delta_stats(metadata, self.schema), separators=(",", ":"), ensure_ascii=False)
        self._files.append(DataFile(path, size, metadata.num_rows, stats))
        self._parquet = self._sink = None

    def finish(self) -> tuple[list[DataFile], list[tuple[Time, int]]]:
        """Close the files: them, and the rows by time in ``sort_key`` order. Both are empty when nothing was written.

        Rows with very many distinct times are counted in :attr:`spans` instead.
        """
        self._check_whole()
        with self._removed_on_failure():
            self._flush()
            self._end_file()
        times, self.spans = self._times.result() if self._times is not None else ([], [])
        return self._files, times

    def abort(self) -> None:
        """Remove every file written: for rows that will not be committed."""
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
