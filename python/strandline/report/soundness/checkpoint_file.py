"""Reading a Delta checkpoint directly: the files with their statistics, the transactions and the table's id that it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.delta.checks.misread_bounds import is_rebased
from strandline.delta.data_file import DataFile
from strandline.delta.storage import LOG_DIR, Store
from strandline.delta.store_errors import native
from strandline.report.soundness.stats_columns import StatsColumns, countable, of_new_calendar
from strandline.report.soundness.verification import violated

__all__ = ["CheckpointFile", "read_checkpoint"]

_COLUMNS = ["add.path", "add.size", "add.stats", "add.stats_parsed", "txn.appId", "txn.version", "metaData.id"]


class CheckpointFile(NamedTuple):
    """The content of a checkpoint. It may keep statistics as JSON (in ``files``), in columns (by path), or both."""

    name: str
    files: list[DataFile]
    columns: dict[str, StatsColumns]
    transactions: dict[str, int]
    ids: list[str]


def read_checkpoint(store: Store, version: int, names: list[str]) -> CheckpointFile:
    """Read the checkpoint of a version from its files. A file that is no part of a checkpoint is a violation."""
    found = CheckpointFile(f"{LOG_DIR}/{names[0]}", [], {}, {}, [])
    for name in names:
        path = f"{LOG_DIR}/{name}"
        try:
            with native(store.location, store.options, threads=False), store.open_input(path) as source:
                file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")  # Spark's; their nanoseconds end with 2262
                rows, rebased = file.read(columns=_COLUMNS), is_rebased(file.metadata)
            kinds = {field.name: field.type for field in rows.schema.field("add").type}
            if not {"path", "size"} <= kinds.keys():
                raise KeyError("its files have no path, or no size")
            for row in _rows(rows, "add"):
                add = dict(zip(kinds, row, strict=True))
                found.files.append(DataFile.from_add(add))
                parsed = add.get("stats_parsed")
                if isinstance(parsed, dict):
                    parsed = of_new_calendar(parsed, kinds["stats_parsed"]) if rebased else parsed
                    found.columns[found.files[-1].path] = StatsColumns(parsed, kinds["stats_parsed"])
            found.transactions.update(dict(_rows(rows, "txn")))
            found.ids.extend(row[0] for row in _rows(rows, "metaData"))
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            violated(version, path, (str(error).splitlines() or [type(error).__name__])[0], "a Delta checkpoint")
    return found


def _rows(table: pa.Table, kind: str) -> Iterator[tuple[Any, ...]]:
    """Yield the fields of each action of a kind. Every checkpoint has all files, so they are read as columns."""
    column = table.column(kind).combine_chunks()
    return zip(*(countable(field).to_pylist() for field in column.drop_null().flatten()), strict=True)
