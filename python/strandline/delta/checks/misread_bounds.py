"""Whether a checkpoint has bounds of timestamps, or of dates, in a form that deltalake misreads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.delta.checks.checkpoints import Checkpoints
from strandline.delta.storage import LOG_DIR, Store
from strandline.delta.store_errors import native

__all__ = ["SAME_DAY", "SAME_MOMENT", "Misread", "is_rebased", "misread_bounds", "would_write_misread"]

_PARSED = "add.stats_parsed"
_MOST_BYTES = 1 << 28
"""The limit of a checkpoint of Delta's second kind as JSON. It has the names of other files, and little else."""
_FIRST, _LAST = -(1 << 63) // 1000 + 1, ((1 << 63) - 1) // 1000
"""The microseconds since 1970 that nanoseconds in 64 bits cover."""
_REBASED = {b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"}
"""How Spark marks a file whose dates, or INT96, are of the calendar with Julian days before 1582. deltalake takes no notice."""
SAME_DAY, SAME_MOMENT = -141_427, -2_208_988_800_000_000
"""From this day on (1582-10-15, in days since 1970), both calendars have the same number for a date. From this moment on (1900,
in microseconds since 1970), they have the same number for a moment."""
_EVER = 1 << 62


class Misread(NamedTuple):
    """Of which types the bounds that deltalake returns for a version may be wrong."""

    timestamps: bool
    dates: bool


def misread_bounds(store: Store, version: int, before: Iterable[str] = ()) -> Misread:
    """Return of which types the bounds that deltalake returns for a version may be wrong.

    Delta Spark keeps the statistics of a checkpoint in columns too, with timestamps as INT96. deltalake reads them as nanoseconds
    in 64 bits, which cover the years 1677 to 2262 only: the year 9999 becomes 1816. A filter would skip the file's rows. If
    deltalake has then written a checkpoint with columns of its own, it has the misread bounds. So timestamps in such columns may
    always be wrong. Dates are if Spark has marked the file as rebased: its setting datetimeRebaseModeInWrite was LEGACY.

    Both are also if it is not known: for a checkpoint of Delta's second kind, which has the statistics in other files, or one
    that cannot be read.

    Args:
        store: The table's storage.
        version: The version; it is read from the newest checkpoint up to it.
        before: The names of the log's files before deltalake opened the version. It may have begun at the checkpoint that was
            the newest one then, though a newer one is there now.

    >>> import tempfile
    >>> from deltalake import DeltaTable, write_deltalake
    >>> from strandline.delta.storage import open_store
    >>> path = tempfile.mkdtemp()
    >>> write_deltalake(path, pa.table({"n": [1]}))
    >>> DeltaTable(path).create_checkpoint()
    >>> misread_bounds(open_store(path, None), 0)
    Misread(timestamps=False, dates=False)
    """
    checkpoints, bases = _bases(store, version, before)
    found = [Misread(True, True) for base in bases if base in checkpoints.second]
    for base in bases:
        found += [_misread_in(store, f"{LOG_DIR}/{names[0]}") for names in checkpoints.readable.get(base, ())]
    return Misread(any(each.timestamps for each in found), any(each.dates for each in found))


def would_write_misread(store: Store, version: int, before: Iterable[str], *, columns: bool, texts: bool) -> int | None:
    """Return the version of a checkpoint from which deltalake may write misread bounds into one of a later version, or ``None``.

    deltalake writes columns from columns. It copies the JSON of a file, and makes it from columns where a checkpoint has no JSON.
    Bounds in 64 bits count as right: where deltalake wrote them, it is too late, and nobody else misreads them.

    Args:
        store: The table's storage.
        version: The version of which a checkpoint is to be written.
        before: The names of the log's files before deltalake opened the version.
        columns: Whether the table's properties ask for statistics in columns.
        texts: Whether they ask for statistics as JSON.
    """
    if not columns and not texts:
        return None
    checkpoints, bases = _bases(store, version, before)
    for base in bases:
        files = [name for names in checkpoints.of(base) for name in names]
        try:
            with native(store.location, store.options, threads=False):
                if any(_has_misread(store, f"{LOG_DIR}/{name}", columns) for name in files):
                    return base
        except (pa.ArrowException, OSError, ValueError, KeyError):
            return base  # it is not known
    return None


def _bases(store: Store, version: int, before: Iterable[str]) -> tuple[Checkpoints, list[int]]:
    """Return the log's checkpoints, and the versions of those at which deltalake may have begun."""

    def up_to(checkpoints: Checkpoints) -> list[int]:
        return sorted(found for found in {*checkpoints.readable, *checkpoints.second} if found <= version)

    earlier, now = set(before), store.list(LOG_DIR)
    checkpoints = Checkpoints(earlier.union(now))
    first = max(up_to(Checkpoints(earlier or now)), default=-1)
    return checkpoints, [found for found in up_to(checkpoints) if found >= first]


def _misread_in(store: Store, path: str) -> Misread:
    try:
        with native(store.location, store.options, threads=False), store.open_input(path) as source:
            file = pq.ParquetFile(source)
            columns = [file.schema.column(i) for i in range(len(file.schema))]
            if _has_sidecars(file.metadata, [each.path for each in columns]):
                return Misread(True, True)
    except (pa.ArrowException, OSError, ValueError):
        return Misread(True, True)
    parsed = [each for each in columns if each.path.startswith(f"{_PARSED}.")]
    timestamps = any(each.physical_type == "INT96" or each.logical_type.type == "TIMESTAMP" for each in parsed)
    return Misread(timestamps, is_rebased(file.metadata))


def is_rebased(metadata: pq.FileMetaData) -> bool:
    """Return whether Spark has marked a file: its old dates, or INT96, are of the calendar with Julian days before 1582."""
    return not _REBASED.isdisjoint(metadata.metadata or {})


def _has_sidecars(metadata: pq.FileMetaData, columns: list[str]) -> bool:
    """Return whether a checkpoint with the first kind's name is of the second kind: it names files that have its content."""
    if "sidecar.path" not in columns:
        return False
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    found = [group.column(columns.index("sidecar.path")).statistics for group in groups]
    return any(each is None or not each.has_null_count or each.num_values > 0 for each in found)


def _has_misread(store: Store, path: str, columns: bool) -> bool:
    """Return whether a file of a checkpoint, or one that it names, has a bound that deltalake misreads for certain."""
    if path.endswith(".json"):
        sidecars = _named_by_json(store.read(path, _MOST_BYTES) or b"")
    else:
        with store.open_input(path) as source:
            plain = pq.ParquetFile(source)
            names = [plain.schema.column(i).path for i in range(len(plain.schema))]
            kinds = {name.split(".")[0] for name in names}
            rebased = is_rebased(plain.metadata)
            limited = list(_limited(plain.schema_arrow.field("add").type, rebased)) if "add" in kinds else []
            wanted = ["add.stats", _PARSED] if limited else []
            found = pq.ParquetFile(source, metadata=plain.metadata, coerce_int96_timestamp_unit="us")
            for group in range(found.num_row_groups if wanted else 0):
                if not columns and _all_have_json(found.metadata.row_group(group), names):
                    continue
                if _is_misread(found.read_row_group(group, wanted).column("add"), limited, columns):
                    return True
            rows = plain.read(["sidecar.path"]).column("sidecar") if "sidecar.path" in names else None
        sidecars = [] if rows is None else pc.struct_field(rows, "path").drop_null().to_pylist()
    return any(_has_misread(store, f"{LOG_DIR}/_sidecars/{name.rsplit('/', 1)[-1]}", columns) for name in sidecars)


def _all_have_json(group: pq.RowGroupMetaData, names: list[str]) -> bool:
    """Return whether the footer says that each file has its statistics as JSON, which deltalake copies."""
    if "add.stats" not in names:
        return False
    paths, texts = (group.column(names.index(name)).statistics for name in ("add.path", "add.stats"))
    counted = all(each is not None and each.has_null_count for each in (paths, texts))
    return counted and bool(paths.null_count == texts.null_count)


def _named_by_json(data: bytes) -> list[str]:
    actions = [json.loads(line) for line in data.splitlines() if line.strip()]
    return [action["sidecar"]["path"] for action in actions if isinstance(action, dict) and "sidecar" in action]


class _Limited(NamedTuple):
    """A column of statistics, as the names of nested fields, and the least and the greatest value that deltalake reads right."""

    path: tuple[str, ...]
    least: int
    greatest: int


def _limited(add: pa.DataType, rebased: bool) -> Iterator[_Limited]:
    """Yield the columns of an action's statistics that have limits. Arrow reads INT96 as nanoseconds, and nothing else there."""

    def walk(kind: pa.DataType, path: tuple[str, ...]) -> Iterator[_Limited]:
        if pa.types.is_struct(kind):
            for field in kind:
                yield from walk(field.type, (*path, field.name))
        elif pa.types.is_timestamp(kind) and kind.unit == "ns":
            yield _Limited(path, SAME_MOMENT if rebased else _FIRST, _LAST)
        elif pa.types.is_date32(kind) and rebased:
            yield _Limited(path, SAME_DAY, _EVER)

    for field in add:
        if field.name == "stats_parsed":
            yield from walk(field.type, ("stats_parsed",))


def _is_misread(adds: pa.ChunkedArray, limited: list[_Limited], columns: bool) -> bool:
    """Return whether a bound is beyond its limits, in a file whose statistics deltalake writes from it."""
    if not columns and adds.type.get_field_index("stats") >= 0:
        adds = adds.filter(pc.is_null(pc.struct_field(adds, "stats")))  # deltalake copies the JSON of the others
    for path, least, greatest in limited:
        values = pc.struct_field(adds, list(path))
        whole = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
        found: Any = pc.min_max(whole).as_py()
        if found["min"] is not None and not least <= found["min"] <= found["max"] <= greatest:
            return True
    return False
