"""Decides whether Spark's own Parquet reader may read a batch's files instead of Python: all of them or none."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read import errors
from pyspark_strandline.read.statistics import Statistics, of_files
from strandline.delta.data_file import DataFile, schema_mark
from strandline.delta.data_file_columns import DataFiles
from strandline.delta.storage import LocalStore, Store, inside, open_store
from strandline.delta.table import Table
from strandline.errors import StrandlineError

__all__ = ["Decision", "NativeScan", "data_file_missing"]

_log = logging.getLogger(__name__)

_CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})
_ENCODINGS = frozenset({"PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "RLE", "BIT_PACKED"}) | frozenset(
    {"DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"}
)
# Spark shifts the dates and timestamps of such files between calendars. Python reads them as they are.
_REBASED = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK_VERSION = b"org.apache.spark.version"
_FIRST_UNSHIFTED = (3, 1)
# A URL with the same path for delta-rs, which decodes it, and for Hadoop, which does not.
_PLAIN_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^%?#]*")
_TIMESTAMP = "Timestamp(isAdjustedToUTC=true, timeUnit=microseconds, "
_FOOTERS_KEPT = 100_000
_MANY = 64
"""From this number of files on, files are looked up ahead. Fewer files take less time than another thread."""


@dataclass(frozen=True)
class Decision:
    """How a batch is read: natively below ``root``, or by Python for the given ``reason``. ``files`` are the files to read.

    ``tolerant`` means that files that disappear later are skipped (``failOnDataLoss=false``). ``required`` means that the query
    must fail if the JVM cannot read it. ``statistics`` are the log's statistics, by which files may be skipped.
    """

    files: Sequence[DataFile]
    root: str | None = None
    reason: str | None = None
    tolerant: bool = False
    required: bool = False
    statistics: Statistics | None = None

    def to_json(self) -> dict[str, object]:
        """Return the JSON that the shim reads in a batch's first partition (docs/protocol.md).

        >>> Decision([], reason="nativeScan is off").to_json()
        {'native': False, 'reason': 'nativeScan is off'}
        """
        if self.root is None:
            return {"native": False, "reason": self.reason}
        result: dict[str, object] = {
            "native": True,
            "root": self.root,
            "ignoreMissingFiles": self.tolerant,
            "required": self.required,
        }
        return result | ({"statistics": self.statistics} if self.statistics else {})


class NativeScan:
    """Decides, batch by batch, whether the JVM reads exactly the same rows as Python.

    Files of Strandline's own writer have a mark in their name. It shows that they have the channel's types as the JVM reads them.
    The footer of any other file is read, once. On a local file system every file is looked up, and its size is compared with the
    log. On other storage this would cost one request per file. ``wanted`` lists the columns that the query reads, as the channel
    had them when the query was created.
    """

    def __init__(self, options: ReadOptions, wanted: pa.Schema) -> None:
        self._options = options
        self._wanted = wanted
        self._store = open_store(options.path, options.storage)
        self._schema: pa.Schema | None = None
        self._mark = ""
        self._type_reason: str | None = None
        self._expected: dict[str, _Leaf] | None = None
        self._footers: dict[tuple[str, int], str | None] = {}
        self._ahead: tuple[Sequence[str], Future[list[int | None]]] | None = None
        self._pool = ThreadPoolExecutor(1, "strandline-native")

    def look_ahead(self, files: DataFiles) -> None:
        """Begin to look up the files of the next decision. Spark writes the batch's offset in the meantime."""
        if len(files) >= _MANY and self._options.native_scan != "off" and isinstance(self._store, LocalStore):
            self._ahead = files.paths, self._pool.submit(_sizes, self._store.location, files.paths)

    def decide(self, files: Sequence[DataFile], schema: pa.Schema, filtered: Sequence[Sequence[str]] = ()) -> Decision:
        """Decide on ``files`` of a channel with the columns ``schema``. ``filtered`` lists the columns that the query filters by.

        Raises :class:`StrandlineError`: ``STRANDLINE_DATA_FILE_MISSING``, and ``STRANDLINE_NATIVE_SCAN_REFUSED`` if option
        ``nativeScan`` is ``on`` and Python would have to read.
        """
        mode = self._options.native_scan
        if mode == "off":
            return Decision(files, reason="nativeScan is off")
        files = DataFiles.of(files)
        for path in files.paths:
            inside(path)  # the JVM opens this path
        reason = self._reason_of_the_channel(schema)
        if reason is None:
            files, reason = self._look_at(files, schema)
        if reason is None:
            return Decision(
                files,
                self._store.location,
                tolerant=not self._options.fail_on_data_loss,
                required=mode == "on",
                statistics=of_files(files, schema, filtered) if filtered else None,
            )
        if mode == "on":
            raise errors.native_scan_refused(self._options.path, reason)
        return Decision(files, reason=reason)

    def _reason_of_the_channel(self, schema: pa.Schema) -> str | None:
        if not isinstance(self._store, LocalStore):
            if self._options.storage and self._options.native_scan != "on":
                return "the storage options are for delta-rs, and Hadoop may reach another storage without them"
            if not _PLAIN_URL.fullmatch(self._store.location):
                return f"Hadoop would decode the URL {self._store.location} differently"
        if self._schema is None or not self._schema.equals(schema):
            self._schema, self._mark = schema, schema_mark(schema)
            self._type_reason = next(_unreadable(schema), None) or next(_changed(self._wanted, schema), None)
            self._expected = None
            self._footers.clear()
        return self._type_reason

    def _look_at(self, files: DataFiles, schema: pa.Schema) -> tuple[DataFiles, str | None]:
        if isinstance(self._store, LocalStore):
            files, reason = self._look_for(files, self._store.location)
            if reason is not None:
                return files, reason
        own = f"-{self._mark}-"
        foreign = (
            self._reason_of_footer(path, size, schema)
            for path, size in zip(files.paths, files.sizes, strict=True)
            if own not in path
        )
        return files, next((reason for reason in foreign if reason is not None), None)

    def _look_for(self, files: DataFiles, directory: str) -> tuple[DataFiles, str | None]:
        """Return the files that exist, and a reason if one of them differs from the log."""
        ahead, self._ahead = self._ahead, None
        sizes = ahead[1].result() if ahead is not None and ahead[0] is files.paths else _sizes(directory, files.paths)
        if sizes == files.sizes:
            return files, None
        gone = [path for path, size in zip(files.paths, sizes, strict=True) if size is None]
        if gone and self._options.fail_on_data_loss:
            raise data_file_missing(self._store, gone[0], self._options.storage)
        for path in gone:
            _log.warning("The data file %r of %s does not exist. Its rows are skipped (failOnDataLoss=false).", path, directory)
        found = [(file, size) for file, size in zip(files, sizes, strict=True) if size is not None]
        changed = (f"{file.path} has {size} bytes, but the log states {file.size}" for file, size in found if size != file.size)
        return DataFiles.of(file for file, _ in found), next(changed, None)

    def _reason_of_footer(self, path: str, size: int, schema: pa.Schema) -> str | None:
        if self._expected is None:
            self._expected = _leaves(_as_parquet(schema))
        key = (path, size)
        if key not in self._footers:
            if len(self._footers) >= _FOOTERS_KEPT:
                self._footers.clear()
            self._footers[key] = self._read_footer(path, self._expected)
        return self._footers[key]

    def _read_footer(self, path: str, expected: dict[str, _Leaf]) -> str | None:
        try:
            with self._store.open_input(path) as source:
                metadata = pq.read_metadata(source)
        except (OSError, pa.ArrowException) as error:
            return f"the footer of {path} cannot be read ({str(error).splitlines()[0][:200]})"
        why = next(_differences(metadata, expected), None)
        return None if why is None else f"{path} {why}"


def data_file_missing(store: Store, path: str, storage: Mapping[str, str] | None) -> StrandlineError:
    """Return the error for a data file that a batch needs, and that is gone: a new start helps where the newest version lacks it.

    Raises :class:`StrandlineError` if the newest version cannot be read.
    """
    newest = any(file.path == path for file in Table(store.location, storage).files())
    return (errors.data_file_missing_newest if newest else errors.data_file_missing)(path, store.location)


def _sizes(directory: str, paths: Sequence[str]) -> list[int | None]:
    """Return the sizes of files, ``None`` for a missing file."""
    return [info.size for info in LocalFileSystem().get_file_info([f"{directory}/{path}" for path in paths])]


def _unreadable(schema: pa.Schema) -> Iterator[str]:
    """Yield a reason for each column of a type that the JVM would refuse or read differently."""

    def known(kind: pa.DataType) -> bool:
        if pa.types.is_struct(kind):
            return all(known(field.type) for field in kind)
        if pa.types.is_map(kind):
            return known(kind.key_type) and known(kind.item_type)
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return known(kind.value_type)
        return bool(
            pa.types.is_boolean(kind)
            or pa.types.is_signed_integer(kind)
            or pa.types.is_float32(kind)
            or pa.types.is_float64(kind)
            or pa.types.is_string(kind)
            or pa.types.is_large_string(kind)
            or pa.types.is_binary(kind)
            or pa.types.is_large_binary(kind)
            or pa.types.is_date32(kind)
            or pa.types.is_decimal128(kind)
            or (pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, "UTC"))
        )

    for field in schema:
        if not known(field.type):
            yield f"column {field.name!r} has the type {field.type}"


def _changed(wanted: pa.Schema, schema: pa.Schema) -> Iterator[str]:
    """Yield a reason for each column that differs between channel and query, because there are files of both forms."""
    for field in wanted:
        at = schema.get_field_index(field.name)
        if at < 0 or schema_mark(pa.schema([field])) != schema_mark(pa.schema([schema.field(at)])):
            yield f"column {field.name!r} of the channel is no longer {field.type}"


@dataclass(frozen=True)
class _Leaf:
    """A Parquet column as files declare it: physical and logical type, and how often it may be missing or repeated."""

    physical: str
    logical: str
    decimal: bool
    levels: tuple[int, int]


def _leaves(metadata: pq.FileMetaData) -> dict[str, _Leaf]:
    columns = metadata.schema
    result = {}
    for i in range(len(columns)):
        c = columns.column(i)
        logical = str(c.logical_type)
        is_decimal = c.logical_type.type == "DECIMAL"
        result[c.path] = _Leaf(c.physical_type, logical, is_decimal, (c.max_definition_level, c.max_repetition_level))
    return result


def _is_old(spark_version: bytes | None) -> bool:
    """Whether a file was written by a Spark version that shifted dates without a note in the file."""
    match = re.match(rb"(\d+)\.(\d+)", spark_version or b"")
    return match is not None and (int(match.group(1)), int(match.group(2))) < _FIRST_UNSHIFTED


def _as_parquet(schema: pa.Schema) -> pq.FileMetaData:
    """Return the footer of an empty file, as our own writer makes it."""
    sink = pa.BufferOutputStream()
    nullable = pa.schema([pa.field(field.name, field.type) for field in schema])
    pq.ParquetWriter(sink, nullable, store_schema=False).close()
    return pq.read_metadata(pa.BufferReader(sink.getvalue()))


def _differences(metadata: pq.FileMetaData, expected: dict[str, _Leaf]) -> Iterator[str]:
    """Yield the differences between a file and a file of our own writer with the channel's columns.

    There are none when the JVM may read the file.
    """
    written = metadata.metadata or {}
    if any(key in written for key in _REBASED) or _is_old(written.get(_SPARK_VERSION)):
        yield "may have dates of the Julian calendar"
    found = _leaves(metadata)
    for path, want in expected.items():
        have = found.get(path)
        top = path.split(".", 1)[0]
        if have is None:
            other = next((name for name in found if name.lower() == path.lower()), None)
            if other is not None:  # Spark's reader would take it for the column
                yield f"has the column {other}, which differs from {path} in the case of letters only"
            if any(name.split(".", 1)[0] == top for name in found):
                yield f"lacks {path} inside the column {top}"
            continue  # a whole column that was added later: null in both readers
        # A decimal of few digits may be stored as an integer, and a timestamp as INT96, as delta-spark does: both readers accept
        # them. The column itself may be declared NOT NULL.
        same = have.logical == want.logical and (have.physical == want.physical or (have.decimal and want.decimal))
        same = same or (have.physical == "INT96" and want.logical.startswith(_TIMESTAMP))
        levels = have.levels == want.levels or (path == top and have.levels == (0, 0))
        if not same or not levels:
            yield f"has the column {path} as {have.physical} ({have.logical}), not {want.physical} ({want.logical})"
    for group in range(metadata.num_row_groups):
        for i in range(metadata.num_columns):
            column = metadata.row_group(group).column(i)
            if column.path_in_schema not in expected:
                continue
            if column.compression not in _CODECS:
                yield f"is compressed with {column.compression}"
            unknown = sorted(set(column.encodings) - _ENCODINGS)
            if unknown:
                yield f"has the encoding {unknown[0]}"
