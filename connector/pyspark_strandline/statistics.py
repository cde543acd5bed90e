"""What the channel's log says of a batch's files, in the form in which the shim skips those that no wanted row is in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

from strandline.channel.files import DataFile

__all__ = ["bounded_columns", "of_files"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
# Delta's writers cut timestamps to milliseconds, some of them towards 1970.
_CUT = 999
# Delta's writers cut strings here, and not all make a bound of what is left.
_MAX_STRING = 32


def bounded_columns(schema: pa.Schema) -> dict[tuple[str, ...], pa.DataType]:
    """The columns, and fields inside of structs, whose bounds are used: integers, dates, timestamps, strings.

    Not those of floating-point numbers, for Spark's greatest is NaN, and bounds leave it out; nor of decimals: some are rounded.

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


def of_files(files: Sequence[DataFile], schema: pa.Schema, wanted: Sequence[Sequence[str]]) -> dict[str, Any] | None:
    """Rows, bounds and null counts of the ``wanted`` columns in each file, or ``None`` when there is nothing to say.

    Bounds are numbers (dates count days, timestamps microseconds) or strings, and ``None`` where the log has none that holds.

    >>> schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    >>> low, high = ("1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.002Z")
    >>> stats = json.dumps({"minValues": {"at": low}, "maxValues": {"at": high}, "nullCount": {"at": 0}})
    >>> of_files([DataFile("a", 9, 3, stats)], schema, [["at"]])
    {'rows': [3], 'columns': [{'path': ['at'], 'low': [1], 'high': [2999], 'nulls': [0]}]}
    """
    known = bounded_columns(schema)
    columns = {path: reader for path in map(tuple, wanted) if path in known and (reader := _reader(known[path]))}
    if not columns or not any(file.stats for file in files):
        return None
    parsed = _parsed([file.stats or "{}" for file in files])
    return {
        "rows": [file.rows for file in files],
        "columns": [{"path": list(path), **_column(path, reader, parsed)} for path, reader in columns.items()],
    }


_Reader = Callable[[Any, bool], Any]


def _column(path: tuple[str, ...], reader: _Reader, parsed: list[tuple[Any, Any, Any]]) -> dict[str, list[Any]]:
    nulls = [_at(nulls, path) for _, _, nulls in parsed]
    return {
        "low": [_bound(reader, _at(low, path), False) for low, _, _ in parsed],
        "high": [_bound(reader, _at(high, path), True) for _, high, _ in parsed],
        "nulls": [count if type(count) is int and count >= 0 else None for count in nulls],
    }


def _parsed(texts: Sequence[str]) -> list[tuple[Any, Any, Any]]:
    """Least values, greatest values and null counts of each file by column, as far as its text can be read."""
    trees: list[Any] = []
    with suppress(ValueError, RecursionError):
        trees = json.loads(f"[{','.join(texts)}]")  # at once, for there may be very many
    if len(trees) != len(texts):
        trees = [_parsed_alone(text) for text in texts]
    known = (tree if isinstance(tree, dict) else {} for tree in trees)
    return [(tree.get("minValues"), tree.get("maxValues"), tree.get("nullCount")) for tree in known]


def _parsed_alone(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {}


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
    value.encode()  # half of a surrogate pair is no text of a file
    return value
