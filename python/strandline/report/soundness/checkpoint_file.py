"""Reading a Delta checkpoint directly: the files with their statistics, the transactions and the table's id that it has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.delta.checks.checkpoints import is_second_kind
from strandline.delta.checks.misread_bounds import is_rebased
from strandline.delta.data_file import DataFile
from strandline.delta.log import MAX_COMMIT_BYTES
from strandline.delta.storage import LOG_DIR, Store
from strandline.delta.store_errors import native
from strandline.report.soundness.stats_columns import StatsColumns, countable, of_new_calendar
from strandline.report.soundness.verification import refused, violated

__all__ = ["CheckpointFile", "read_checkpoint"]

_COLUMNS = [
    *("add.path", "add.size", "add.stats", "add.stats_parsed", "txn.appId", "txn.version", "metaData.id"),
    *("sidecar.path", "sidecar.sizeInBytes", "checkpointMetadata.version"),
]
_MALFORMED = (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError)


class CheckpointFile(NamedTuple):
    """The content of a checkpoint. It may keep statistics as JSON (in ``files``), in columns (by path), or both."""

    name: str
    files: list[DataFile]
    columns: dict[str, StatsColumns]
    transactions: dict[str, int]
    ids: list[str]


def read_checkpoint(store: Store, version: int, names: list[str]) -> CheckpointFile:
    """Read the checkpoint of a version from its files, and from the sidecars that they name, if it is of Delta's second kind.

    A file that is no part of a checkpoint is a violation. So is a sidecar that is missing, or has another size than stated.
    """
    found = CheckpointFile(f"{LOG_DIR}/{names[0]}", [], {}, {}, [])
    for name in names:
        path = f"{LOG_DIR}/{name}"
        more = _read(store, version, path, found)
        if (more.sidecars or is_second_kind(name)) and more.versions != [version]:
            violated(version, f"{path}, checkpointMetadata", more.versions, [version])
        for action in more.sidecars:
            _read_sidecar(store, version, path, action, found)
    return found


class _More(NamedTuple):
    """What a file of a checkpoint of Delta's second kind has besides: its sidecars, and the version that it states, once."""

    sidecars: list[Mapping[str, Any]]
    versions: list[Any]


def _read_sidecar(store: Store, version: int, path: str, action: Mapping[str, Any], found: CheckpointFile) -> None:
    name, size = action.get("path"), action.get("sizeInBytes")
    if not isinstance(name, str) or type(size) is not int or not name.isprintable():
        violated(version, f"{path}, sidecar", action, "a path and a size")
    sidecar = f"{LOG_DIR}/_sidecars/{unquote(name).rsplit('/', 1)[-1]}"  # there, whatever the path says
    with refused(version, f"{path}, sidecar", "a file in the folder of sidecars"):
        there = store.size(sidecar)
    if there != size:
        is_there = "no file" if there is None else f"{there} bytes"
        violated(version, f"{path}, sidecar", f"{sidecar} has {is_there}", f"{size} bytes")
    inner = CheckpointFile(sidecar, found.files, found.columns, {}, [])
    more = _read(store, version, sidecar, inner)
    if more.sidecars or more.versions or inner.transactions or inner.ids:
        violated(version, sidecar, "other actions", "files, as a sidecar has them")


def _read(store: Store, version: int, path: str, found: CheckpointFile) -> _More:
    """Add to ``found`` what a file of a checkpoint has, and return what else it has."""
    try:
        with refused(version, path, "a Delta checkpoint"):
            if path.endswith(".json"):
                return _read_json(store.read(path, MAX_COMMIT_BYTES) or b"", found)
            with native(store.location, store.options, threads=False), store.open_input(path) as source:
                file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")  # Spark's; their nanoseconds end with 2262
                rows, rebased = file.read(columns=_COLUMNS), is_rebased(file.metadata)
        return _read_rows(rows, rebased, found)
    except (*_MALFORMED, pa.ArrowException, OSError) as error:
        violated(version, path, (str(error).splitlines() or [type(error).__name__])[0], "a Delta checkpoint")


def _read_rows(rows: pa.Table, rebased: bool, found: CheckpointFile) -> _More:
    kinds = {field.name: field.type for field in rows.schema.field("add").type} if "add" in rows.schema.names else {}
    if not {"path", "size"} <= kinds.keys() and "sidecar" not in rows.schema.names:
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
    named = [field.name for field in rows.schema.field("sidecar").type] if "sidecar" in rows.schema.names else []
    sidecars: list[Mapping[str, Any]] = [dict(zip(named, row, strict=True)) for row in _rows(rows, "sidecar")]
    return _More(sidecars, [row[0] for row in _rows(rows, "checkpointMetadata")])


def _read_json(data: bytes, found: CheckpointFile) -> _More:
    """Read a file of Delta's second kind that is text: an action a line, as in a commit."""
    more = _More([], [])
    for line in data.splitlines():
        ((kind, action),) = json.loads(line).items()
        if kind == "add":
            found.files.append(DataFile.from_add(action))
        elif kind == "txn":
            found.transactions[action["appId"]] = action["version"]
        elif kind == "metaData":
            found.ids.append(action["id"])
        elif kind == "sidecar":
            more.sidecars.append(dict(action))
        elif kind == "checkpointMetadata":
            more.versions.append(action["version"])
    return more


def _rows(table: pa.Table, kind: str) -> Iterator[tuple[Any, ...]]:
    """Yield the fields of each action of a kind. Every checkpoint has all files, so they are read as columns."""
    if kind not in table.schema.names:
        return iter(())
    column = table.column(kind).combine_chunks()
    return zip(*(countable(field).to_pylist() for field in column.drop_null().flatten()), strict=True)
