"""Whether a checkpoint has bounds of timestamps in a form that deltalake misreads."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.delta.checks.checkpoints import Checkpoints
from strandline.delta.storage import LOG_DIR, Store
from strandline.delta.store_errors import native

__all__ = ["may_misread_timestamps"]


def may_misread_timestamps(store: Store, version: int) -> bool:
    """Return whether bounds of timestamps that deltalake returns for a version may be wrong.

    Delta Spark keeps the statistics of a checkpoint in columns too, with timestamps as INT96. deltalake reads them as nanoseconds
    in 64 bits, which cover the years 1677 to 2262 only: the year 9999 becomes 1816. A filter would skip the file's rows. If
    deltalake has then written a checkpoint with columns of its own, it has the misread bounds. So the result is ``True`` for all
    checkpoints with timestamps in such columns. It is ``True`` also if it is not known: for a checkpoint of Delta's second kind,
    which has the statistics in other files, or one that cannot be read.

    Args:
        store: The table's storage.
        version: The version; it is read from the newest checkpoint up to it.

    >>> import tempfile
    >>> from deltalake import DeltaTable, write_deltalake
    >>> from strandline.delta.storage import open_store
    >>> path = tempfile.mkdtemp()
    >>> write_deltalake(path, pa.table({"n": [1]}))
    >>> DeltaTable(path).create_checkpoint()
    >>> may_misread_timestamps(open_store(path, None), 0)
    False
    """
    checkpoints = Checkpoints(store.list(LOG_DIR))
    base = max((found for found in {*checkpoints.readable, *checkpoints.second} if found <= version), default=None)
    if base is None:
        return False
    if base in checkpoints.second:
        return True
    return any(_has_timestamps(store, f"{LOG_DIR}/{names[0]}") for names in checkpoints.readable[base])


def _has_timestamps(store: Store, path: str) -> bool:
    try:
        with native(store.location, store.options, threads=False), store.open_input(path) as source:
            file = pq.ParquetFile(source)
            columns = [file.schema.column(i) for i in range(len(file.schema))]
            if _has_sidecars(file.metadata, [each.path for each in columns]):
                return True
    except (pa.ArrowException, OSError, ValueError):
        return True
    parsed = [each for each in columns if each.path.startswith("add.stats_parsed.")]
    return any(each.physical_type == "INT96" or each.logical_type.type == "TIMESTAMP" for each in parsed)


def _has_sidecars(metadata: pq.FileMetaData, columns: list[str]) -> bool:
    """Return whether a checkpoint with the first kind's name is of the second kind: it names files that have its content."""
    if "sidecar.path" not in columns:
        return False
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    found = [group.column(columns.index("sidecar.path")).statistics for group in groups]
    return any(each is None or not each.has_null_count or each.num_values > 0 for each in found)
