"""Reading a channel's data files directly.

The rows of older files, and of files from other engines, are converted to the channel's schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.delta import errors
from strandline.delta.data_file import DataFile
from strandline.delta.storage import LocalStore, Store
from strandline.delta.store_errors import is_from_store, native
from strandline.delta.table import Table

__all__ = ["open_parquet", "read_file"]


@contextmanager
def open_parquet(store: Store, path: str, size: int, rows: int = -1, *, checksums: bool = False) -> Iterator[pq.ParquetFile]:
    """Open a data file. ``size`` and ``rows`` are its bytes and rows according to the log (-1: the log does not say).

    With ``checksums``, the CRC of each page that has one is compared when the page is read.

    Raises ``FileNotFoundError`` if the file is gone. Raises :class:`ChannelError` ``STRANDLINE_FILE_DAMAGED`` if it is
    another file or cannot be read, here or inside the ``with`` block, and :class:`StorageError` if an object store failed.
    """

    try:
        with store.open_input(path) as source:
            if source.size() != size:
                raise errors.file_damaged_size(path, store.location, source.size(), size)
            # delta-spark writes INT96, which has nanoseconds. In 64 bits, nanoseconds cover only three centuries. On a storage
            # other than this machine, one request for each column chunk is too many.
            far = not isinstance(store, LocalStore)
            with (
                native(store.location, store.options, threads=False),
                pq.ParquetFile(
                    source, pre_buffer=far, coerce_int96_timestamp_unit="us", page_checksum_verification=checksums
                ) as parquet,
            ):
                if rows not in (-1, parquet.metadata.num_rows):
                    raise errors.file_damaged_rows(path, store.location, parquet.metadata.num_rows, rows)
                yield parquet
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, KeyError, UnicodeError) as error:
        if not isinstance(store, LocalStore) and is_from_store(error):
            with store.errors("read", path):
                raise OSError(str(error)) from None
        raise errors.file_damaged(path, store.location, error) from error


def read_file(table: Table, file: DataFile, schema: pa.Schema) -> pa.Table:
    """Return the rows of a data file.

    Raises :class:`ChannelError` ``STRANDLINE_FILE_MISSING`` if the file is gone, and ``STRANDLINE_FILE_DAMAGED`` if it
    differs from what the log says.
    """
    try:
        with open_parquet(table.log.store, file.path, file.size, file.rows) as parquet:
            # An older file lacks columns that were added later.
            rows = parquet.read([name for name in schema.names if name in parquet.schema_arrow.names])
            columns = [
                rows.column(f.name).cast(f.type) if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type)
                for f in schema
            ]
    except FileNotFoundError:
        newest = any(each.path == file.path for each in table.files())
        raise (errors.file_missing_newest if newest else errors.file_missing)(file.path, table.path) from None
    return pa.Table.from_arrays(columns, schema=schema)
