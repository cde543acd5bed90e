"""Delta's per-file statistics, which let readers skip files.

They are made from a Parquet file's own statistics, or read from a snapshot.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.delta.data_file import DataFile

__all__ = ["ABSENT", "Bounds", "check_stats", "delta_stats", "stats_of", "stats_text", "stats_texts"]

_INDEXED_LEAVES = 32
"""Delta's own default: statistics of the first 32 leaf columns."""
_MAX_STRING = 32
_GREATEST = "\U0010ffff"
"""The last character of a shortened upper bound, as in Delta's own statistics."""
_EPOCH = dt.datetime(1970, 1, 1)
ABSENT = object()
"""A bound that is not known."""
Bounds: TypeAlias = tuple[Any, Any, Any]
"""The least value, the greatest value and the null count of a column, each perhaps :data:`ABSENT`."""


def stats_text(metadata: pq.FileMetaData, schema: pa.Schema, opened: Callable[[], AbstractContextManager[Any]]) -> str:
    """Return the text of :func:`delta_stats`, as a commit has it."""
    # Not escaped, here and in the log: deltalake reads a pair of surrogate escapes beyond U+1FFFF as another character.
    return json.dumps(delta_stats(metadata, schema, opened), separators=(",", ":"), ensure_ascii=False)


def delta_stats(
    metadata: pq.FileMetaData, schema: pa.Schema, opened: Callable[[], AbstractContextManager[Any]]
) -> dict[str, Any]:
    """Return the ``stats`` object of an ``add`` action.

    It has the number of rows, and for each leaf column the least value, the greatest value and the null count. Structs are
    nested, as in Delta. A bound is left out if Parquet has none, or if JSON cannot represent it exactly. But text always has
    bounds, because deltalake's filters find nothing in a file without an upper bound. Parquet keeps none of more than 4 KB; then
    the column is read. If it has bytes that are no text, its bounds are the widest. Timestamps are widened to whole milliseconds,
    as readers assume.

    Args:
        metadata: The file's footer.
        schema: Its columns.
        opened: Opens the file.
    """

    def bounds_of(column: int) -> Bounds:
        low, high, nulls = _bounds(metadata, column)
        is_text = metadata.schema.column(column).logical_type.type == "STRING"
        if is_text and low is ABSENT and nulls is not ABSENT and nulls < metadata.num_rows:
            with opened() as source:
                low, high = _text_bounds(source, column)
        return low, high, nulls

    return stats_of(metadata.num_rows, schema, bounds_of)


def _text_bounds(source: Any, column: int) -> tuple[Any, Any]:
    """Read a column of text, a row group at a time, and return its least and its greatest value, if they are text at all."""
    bounds: list[Any] = []
    file = pq.ParquetFile(source)
    for group in range(file.num_row_groups):
        # By its number: a path may be that of two columns, a.b and the field b of a.
        rows = file.reader.read_row_group(group, column_indices=[column], use_threads=False)
        while pa.types.is_struct(rows.schema.field(0).type):
            rows = rows.flatten()
        known = pc.min_max(rows.column(0))
        try:
            bounds += [value for value in known.as_py().values() if value is not None]
        except UnicodeDecodeError:
            return ABSENT, ABSENT
    return (min(bounds), max(bounds)) if bounds else (ABSENT, ABSENT)


def stats_of(rows: int, schema: pa.Schema, bounds_of: Callable[[int], Bounds]) -> dict[str, Any]:
    """Return the same from bounds that the caller knows, by the number of a column among all of Parquet's columns."""
    leaves: list[tuple[tuple[str, ...], pa.DataType, int]] = []
    _walk(schema, (), leaves, [0])
    result: dict[str, Any] = {"numRecords": rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for path, kind, column in leaves[:_INDEXED_LEAVES]:
        if pa.types.is_null(kind):
            continue  # a column of type void: Parquet counts nothing of it
        low, high, nulls = bounds_of(column)
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if is_text and low is ABSENT and nulls is not ABSENT and nulls < rows:
            low, high = "", _GREATEST * (_MAX_STRING + 1)  # some bytes are no text, so no text is a bound of them
        for bounds, value in (
            ("minValues", _json(low, kind, up=False)),
            ("maxValues", _json(high, kind, up=True)),
            ("nullCount", nulls),
        ):
            if value is not ABSENT and value is not None:
                _put(result[bounds], path, value)
    return result


def _walk(fields: Any, path: tuple[str, ...], leaves: list[tuple[tuple[str, ...], pa.DataType, int]], column: list[int]) -> None:
    """Collect the leaves that have statistics. Count all Parquet columns, because lists and maps have some as well."""
    for field in fields:
        if pa.types.is_struct(field.type):
            _walk(field.type, (*path, field.name), leaves, column)
        elif pa.types.is_nested(field.type):
            column[0] += _width(field.type)
        else:
            leaves.append(((*path, field.name), field.type, column[0]))
            column[0] += 1


def _width(kind: pa.DataType) -> int:
    if pa.types.is_map(kind):
        return _width(kind.key_type) + _width(kind.item_type)
    if pa.types.is_struct(kind):
        return sum(_width(field.type) for field in kind)
    if pa.types.is_nested(kind):
        return _width(kind.value_type)
    return 1


def _bounds(metadata: pq.FileMetaData, column: int) -> Bounds:
    lows, highs, nulls, bounded = [], [], 0, True
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(column)
        stats = chunk.statistics
        if stats is None or not stats.has_null_count:
            return ABSENT, ABSENT, ABSENT
        nulls += stats.null_count
        if stats.has_min_max:
            try:
                lows.append(stats.min)
                highs.append(stats.max)
            except (OverflowError, ValueError):  # dates that Python cannot represent
                bounded = False
        elif stats.null_count < chunk.num_values:
            bounded = False
    if not lows or not bounded:
        return ABSENT, ABSENT, nulls
    return min(lows), max(highs), nulls


def _json(value: Any, kind: pa.DataType, *, up: bool) -> Any:
    if value is ABSENT or isinstance(value, (bool, bytes)):  # Delta keeps no bounds of booleans and binaries
        return ABSENT
    if isinstance(value, dt.datetime):
        return _timestamp(value.replace(tzinfo=None), kind, up=up)
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, float):
        # Parquet's bounds ignore NaN, which Spark sorts above every number. So only the lower bound is valid for all rows.
        return value if math.isfinite(value) and not up else ABSENT
    if isinstance(value, decimal.Decimal):
        exact = float(value)
        return exact if decimal.Decimal(exact) == value else ABSENT
    if isinstance(value, str):
        if len(value) <= _MAX_STRING:
            return value
        # Always write the upper bound, as for text without bounds.
        short = value[:_MAX_STRING] + _GREATEST * up
        return value if up and short < value else short
    return value if isinstance(value, int) else ABSENT


def _timestamp(value: dt.datetime, kind: pa.DataType, *, up: bool) -> Any:
    micros = (value - _EPOCH) // dt.timedelta(microseconds=1)
    millis = -(-micros // 1000) if up else micros // 1000
    try:
        rounded = _EPOCH + dt.timedelta(milliseconds=millis)
    except OverflowError:
        return ABSENT
    text = f"{rounded:%Y-%m-%dT%H:%M:%S}.{rounded.microsecond // 1000:03d}"
    text = text.rjust(23, "0")  # strftime does not pad years before 1000 on every platform
    return text + "Z" if kind.tz else text


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def stats_texts(actions: pa.Table, *, timestamps: bool = True, dates: bool = True) -> list[str]:
    """Return the ``stats`` text of each file of a snapshot, from deltalake's ``get_add_actions``.

    It covers integers, dates, timestamps and strings. Whole columns are converted at once, because a snapshot may have very
    many files.

    Args:
        actions: What deltalake returned.
        timestamps: Whether its bounds of timestamps are right (:mod:`~strandline.delta.checks.misread_bounds`). Otherwise they
            are left out.
        dates: Whether its bounds of dates are.
    """
    trees: list[dict[str, Any]] = [
        {"numRecords": rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
        for rows in actions.column("num_records").to_pylist()
    ]
    for name, key in (("min", "minValues"), ("max", "maxValues"), ("null_count", "nullCount")):
        if name not in actions.column_names or not pa.types.is_struct(actions.schema.field(name).type):
            continue  # no file has any
        for path, values in _columns(actions.column(name), (), timestamps, dates):
            for tree, value in zip(trees, values, strict=True):
                if value is not None:
                    _put(tree[key], path, value)
    return [json.dumps(tree, separators=(",", ":")) for tree in trees]


def check_stats(file: DataFile) -> None:
    """Raise ``ValueError`` if statistics have a key twice. Which of the values counts differs from reader to reader."""
    if file.stats is None:
        return

    def once(pairs: list[tuple[str, Any]]) -> None:
        if len({key for key, _ in pairs}) < len(pairs):
            raise ValueError(f"the statistics of {file.path[:200]!r} have a key twice")

    try:
        json.loads(file.stats, object_pairs_hook=once)
    except (json.JSONDecodeError, RecursionError):
        return  # then they are no statistics for anybody


def _columns(
    column: pa.ChunkedArray, path: tuple[str, ...], timestamps: bool, dates: bool
) -> list[tuple[tuple[str, ...], list[Any]]]:
    kind = column.type
    if pa.types.is_struct(kind):
        inner = [_columns(pc.struct_field(column, [i]), (*path, field.name), timestamps, dates) for i, field in enumerate(kind)]
        return [leaf for leaves in inner for leaf in leaves]
    if (pa.types.is_timestamp(kind) and not timestamps) or (pa.types.is_date(kind) and not dates):
        return []
    if pa.types.is_timestamp(kind):
        return [(path, pc.strftime(column, format="%Y-%m-%dT%H:%M:%S" + ("Z" if kind.tz else "")).to_pylist())]
    if pa.types.is_date(kind):
        return [(path, pc.strftime(column, format="%Y-%m-%d").to_pylist())]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # deltalake misreads characters that a log has as two escapes. The misread ones may be less: such a bound is not valid.
        return [(path, [None if value is None or max(value, default="") > "\uffff" else value for value in column.to_pylist()])]
    return [(path, column.to_pylist())] if pa.types.is_integer(kind) else []
