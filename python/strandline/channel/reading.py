"""Reading a channel's data files as they are: older ones, and those of other engines, brought to its schema."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.channel.errors import ChannelError
from strandline.channel.files import DataFile
from strandline.channel.table import Table

__all__ = ["read_file"]


def read_file(table: Table, file: DataFile, schema: pa.Schema) -> pa.Table:
    """The rows of a data file; raises :class:`ChannelError` ``STRANDLINE_FILE_MISSING`` when it is gone."""
    try:
        with table.log.store.open_input(file.path) as source:
            # INT96, of delta-spark, has nanoseconds, of which 64 bits hold three centuries only.
            parquet = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
            # An older file lacks columns that were added since.
            rows = parquet.read([name for name in schema.names if name in parquet.schema_arrow.names])
    except FileNotFoundError:
        raise ChannelError(
            "STRANDLINE_FILE_MISSING",
            f"The data file {file.path!r} of {table.path} is gone: it was deleted, or vacuumed because later commits had "
            "replaced it.",
            "Read a newer version, or restore the file; VACUUM with a retention longer than any reader's lag.",
        ) from None
    columns = [
        rows.column(f.name).cast(f.type) if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type) for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
