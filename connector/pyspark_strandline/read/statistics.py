"""The log's statistics of a batch's files, in the form in which the shim uses them to skip files without wanted rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from strandline.delta.data_file import DataFile
from strandline.delta.data_file_columns import DataFiles

__all__ = ["Statistics", "bounded_columns", "of_files"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
# Delta's writers cut timestamps to milliseconds, some of them towards 1970.
_CUT = 999
# Delta's writers cut strings at this length, and not all of them make the rest a valid bound.
_MAX_STRING = 32
_MANY = 64
"""From this number of files on, statistics are read as columns, not one by one."""


class _Column(TypedDict):
    """The statistics of a column, or of a field inside of a struct, in each file. ``None`` is what a log does not say.

    Attributes:
        path: The names from the column to the field.
        low: The lower bounds: numbers (days for dates, microseconds for timestamps) or strings.
        high: The upper bounds.
        nulls: The numbers of nulls.
    """

    path: list[str]
    low: list[int | str | None]
    high: list[int | str | None]
    nulls: list[int | None]


class Statistics(TypedDict):
    """The numbers of rows of files, and the statistics of their columns."""

    rows: list[int]
    columns: list[_Column]


def bounded_columns(schema: pa.Schema) -> dict[tuple[str, ...], pa.DataType]:
    """Return the columns, and fields inside of structs, with bounds that are used: integers, dates, timestamps, strings.

    Bounds of floating-point numbers are not used, because NaN is Spark's greatest value and bounds leave it out. Bounds of
    decimals are not used, because some are rounded.

    >>> bounded_columns(pa.schema([("s", pa.struct([("n", pa.int32()), ("x", pa.float64())]))]))
    {('s', 'n'): DataType(int32)}
    """
    return dict(_leaves((), schema))


def _leaves(path: tuple[str, ...], fields: Any) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    for field in fields:
        at = (*path, field.name)
        if pa.types.is_struct(field.type):
            yield from _leaves(at, field.type)
        elif _reader(field.type) is not None:
            yield at, field.type


def of_files(files: Sequence[DataFile], schema: pa.Schema, wanted: Sequence[Sequence[str]]) -> Statistics | None:
    """Return the rows, bounds and null counts of the ``wanted`` columns in each file, or ``None`` when there are none.

    >>> schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    >>> low, high = ("1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.002Z")
    >>> stats = json.dumps({"minValues": {"at": low}, "maxValues": {"at": high}, "nullCount": {"at": 0}})
    >>> of_files([DataFile("a", 9, 3, stats)], schema, [["at"]])
    {'rows': [3], 'columns': [{'path': ['at'], 'low': [1], 'high': [2999], 'nulls': [0]}]}
    """
    files = DataFiles.of(files)
    known = bounded_columns(schema)
    columns = {path: known[path] for path in map(tuple, wanted) if path in known}
    if not columns or not any(files.stats):
        return None
    texts = [text or "{}" for text in files.stats]
    columnar = _at_once(texts, columns) if len(texts) >= _MANY else None
    if columnar is None:
        return {"rows": files.rows, "columns": _one_by_one(texts, columns)}
    rows, bounds = columnar
    return {"rows": files.rows if files.counted else rows, "columns": bounds}


_Reader = Callable[[Any, bool], Any]


def _at_once(texts: Sequence[str], columns: Mapping[tuple[str, ...], pa.DataType]) -> tuple[list[int], list[_Column]] | None:
    """Return the rows and the result of :func:`_one_by_one`, read as columns; ``None`` when a text is in any way unusual."""
    # The line of each text ends with a brace, so a damaged text cannot become an object together with the next one. If there are
    # as many objects as texts, each object belongs to its own text.
    joined = '{"of":' + '}\n{"of":'.join(texts) + "}"
    if joined.count("\n") >= len(texts):
        return None
    bounds = {path: pa.int64() if pa.types.is_integer(kind) else pa.string() for path, kind in columns.items()}
    schema = {"minValues": bounds, "maxValues": bounds, "nullCount": dict.fromkeys(columns, pa.int64())}
    fields = [pa.field("numRecords", pa.int64()), *(pa.field(name, _tree(leaves)) for name, leaves in schema.items())]
    options = pj.ParseOptions(explicit_schema=pa.schema([("of", pa.struct(fields))]), unexpected_field_behavior="ignore")
    try:
        parsed = pj.read_json(pa.BufferReader(joined.encode()), parse_options=options).column("of")
        if len(parsed) != len(texts):
            return None
        rows = pc.struct_field(parsed, "numRecords").to_pylist()
        return [-1 if n is None else n for n in rows], [
            {
                "path": list(path),
                "low": _bounds(_leaf(parsed, "minValues", path), kind, False),
                "high": _bounds(_leaf(parsed, "maxValues", path), kind, True),
                "nulls": [n if n is None or n >= 0 else None for n in _leaf(parsed, "nullCount", path).to_pylist()],
            }
            for path, kind in columns.items()
        ]
    except (pa.ArrowException, ValueError):
        return None


def _tree(leaves: Mapping[tuple[str, ...], pa.DataType]) -> pa.DataType:
    """Return the struct type with these fields nested inside each other."""
    inner: dict[str, dict[tuple[str, ...], pa.DataType]] = {}
    for (first, *rest), kind in leaves.items():
        inner.setdefault(first, {})[tuple(rest)] = kind
    return pa.struct([(name, below[()] if () in below else _tree(below)) for name, below in inner.items()])


def _leaf(parsed: pa.ChunkedArray, name: str, path: tuple[str, ...]) -> pa.ChunkedArray:
    return pc.struct_field(parsed, [name, *path])


def _bounds(column: pa.ChunkedArray, kind: pa.DataType, up: bool) -> list[Any]:
    """Return bounds as :func:`_reader` does. Raises ``ArrowInvalid`` for a text that Arrow cannot read as intended."""
    if pa.types.is_date32(kind):
        return list(column.cast(kind).cast(pa.int32()).to_pylist())
    if pa.types.is_timestamp(kind):
        cut = _CUT if up else -_CUT
        micros = column.cast(kind).cast(pa.int64()).to_pylist()
        return [value if value is None or value % 1000 else value + cut for value in micros]
    values = column.to_pylist()
    if up and not pa.types.is_integer(kind):
        return [None if value is None or len(value) >= _MAX_STRING else value for value in values]
    return list(values)


def _one_by_one(texts: Sequence[str], columns: Mapping[tuple[str, ...], pa.DataType]) -> list[_Column]:
    parsed = [_parsed(text) for text in texts]
    return [_column(path, reader, parsed) for path, kind in columns.items() if (reader := _reader(kind))]


def _column(path: tuple[str, ...], reader: _Reader, parsed: list[tuple[Any, Any, Any]]) -> _Column:
    nulls = [_at(nulls, path) for _, _, nulls in parsed]
    return {
        "path": list(path),
        "low": [_bound(reader, _at(low, path), False) for low, _, _ in parsed],
        "high": [_bound(reader, _at(high, path), True) for _, high, _ in parsed],
        "nulls": [count if type(count) is int and count >= 0 else None for count in nulls],
    }


def _parsed(text: str) -> tuple[Any, Any, Any]:
    """Return least values, greatest values and null counts by column, as far as a file's text can be read."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        return None, None, None
    return tree.get("minValues"), tree.get("maxValues"), tree.get("nullCount")


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(name)
    return tree


def _bound(reader: _Reader, value: Any, up: bool) -> Any:
    if value is None:
        return None
    try:
        return reader(value, up)
    except (ValueError, TypeError, AttributeError, OverflowError):
        return None


def _reader(kind: pa.DataType) -> _Reader | None:
    if pa.types.is_signed_integer(kind):
        return _integer
    if pa.types.is_date32(kind):
        return _date
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return _timestamp
    return _string if pa.types.is_string(kind) or pa.types.is_large_string(kind) else None


def _integer(value: Any, _: bool) -> int | None:
    return value if type(value) is int and -(1 << 63) <= value < 1 << 63 else None


def _date(value: Any, _: bool) -> int:
    return (date.fromisoformat(value) - _EPOCH.date()).days


def _timestamp(value: Any, up: bool) -> int:
    moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    micros = (moment - _EPOCH) // _MICROSECOND
    if micros % 1000:
        return micros  # nothing was cut
    return micros + _CUT if up else micros - _CUT


def _string(value: Any, up: bool) -> str | None:
    if not isinstance(value, str) or (up and len(value) >= _MAX_STRING):
        return None
    value.encode()  # raises for half of a surrogate pair, which is not text of a file
    return value
