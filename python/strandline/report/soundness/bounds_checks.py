"""The checks of a data file's own bounds: those of each row group and page against the rows. Readers skip rows by them."""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from strandline.delta.checks.parquet_footer import Chunk, Footer, footer_of, page_index_of
from strandline.delta.data_file import DataFile
from strandline.delta.file_stats import ABSENT, Bounds
from strandline.delta.storage import Store
from strandline.report.soundness.verification import refused, violated

__all__ = ["bounds_of_rows", "check_bounds"]

_MOST_FOOTER = 1 << 28
_BOOLEAN, _INT32, _INT64, _INT96, _FLOAT, _DOUBLE, _BYTES, _FIXED = range(8)
_WIDTHS = {_INT32: 4, _INT64: 8}
_DECIMALS = decimal.Context(prec=100)


class _Leaf(NamedTuple):
    """The values of one column. ``repeated``: it is inside a list or a map, so values are not rows."""

    values: pa.Array
    repeated: bool


def check_bounds(store: Store, version: int | None, file: DataFile, rows: pa.Table, *, ours: bool) -> str | None:
    """Compare what a file's footer and page indexes say of its columns with its rows.

    Bounds may be wider than the rows, but no row may be outside of them. Counts are exact.

    Args:
        store: Where the file is.
        version: The commit that adds it.
        file: The file.
        rows: All of its rows, with its columns and types.
        ours: Whether it is a file of Strandline, which has no indexes and Bloom filters.

    Returns:
        The first column whose bounds are of a form that this release does not know, and why. Then they are not checked.
    """
    unknown = None
    what = f"footer of {file.path}"
    with refused(version, what, "a data file of the log"), store.open_input(file.path) as source:
        size = source.size()
        tail = source.read_at(8, size - 8)
        length = struct.unpack("<I", tail[:4])[0]
        if not 0 < length <= min(size - 12, _MOST_FOOTER) or tail[4:] != b"PAR1":
            violated(version, what, f"{length} bytes", "the footer of a Parquet file")
        try:
            footer = footer_of(source.read_at(length, size - 8 - length))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            violated(version, what, str(error), "a footer of Parquet")
        _check_counts(version, what, footer, rows)
        first = 0
        for number, (count, chunks) in enumerate(footer.groups):
            for chunk, leaf in zip(chunks, _leaves(rows.slice(first, count)), strict=True):
                where = f"{what}, row group {number}, column {'.'.join(chunk.path)}"
                try:
                    _check_chunk(version, where, chunk, leaf, ours=ours)
                except (TypeError, ValueError, ArithmeticError, pa.ArrowException) as error:  # others may write other forms
                    unknown = unknown or f"{where}: {type(error).__name__}: {error}"
                if ours and (chunk.bloom or chunk.column_index or chunk.offset_index):
                    violated(version, where, "an index or a Bloom filter", "none")
                if chunk.column_index and chunk.offset_index and not leaf.repeated:
                    try:
                        _check_pages(version, where, source, chunk, leaf.values)
                    except (TypeError, ValueError, ArithmeticError, pa.ArrowException) as error:
                        unknown = unknown or f"{where}, page index: {type(error).__name__}: {error}"
            first += count
    return unknown


def bounds_of_rows(rows: pa.Table) -> Callable[[int], Bounds]:
    """Return the function that gives the bounds of a column by its number among Parquet's, for Delta's statistics."""
    leaves = list(_leaves(rows))

    def bounds(column: int) -> Bounds:
        values = leaves[column].values
        try:
            known = _extremes(values)
            low, high = (ABSENT, ABSENT) if known is None else (known[0].as_py(), known[1].as_py())
        except (OverflowError, ValueError):  # dates that Python cannot represent
            low, high = ABSENT, ABSENT
        return low, high, values.null_count

    return bounds


def _check_counts(version: int | None, what: str, footer: Footer, rows: pa.Table) -> None:
    counts = [count for count, _ in footer.groups]
    if footer.rows != rows.num_rows or sum(counts) != rows.num_rows or min(counts, default=0) < 0:
        violated(version, what, f"row groups of {counts} rows", f"{rows.num_rows} rows")
    for number, (_, chunks) in enumerate(footer.groups):
        found = [(chunk.path, chunk.kind) for chunk in chunks]
        if found != footer.leaves:
            violated(version, f"{what}, row group {number}", found, f"the columns {footer.leaves}")
    if len(footer.leaves) != len(list(_leaves(rows.slice(0, 0)))):
        violated(version, what, f"the columns {footer.leaves}", f"the columns {', '.join(rows.column_names)}")


def _check_chunk(version: int | None, where: str, chunk: Chunk, leaf: _Leaf, *, ours: bool) -> None:
    values = leaf.values
    if not leaf.repeated:
        if chunk.values != len(values):
            violated(version, where, f"{chunk.values} values", f"{len(values)} values")
        if chunk.nulls is not None and chunk.nulls != values.null_count:
            violated(version, where, f"{chunk.nulls} nulls", f"{values.null_count} nulls")
    if chunk.bounds == chunk.old_bounds == (None, None) or chunk.kind == _INT96:  # Parquet has no order of the latter
        return
    extremes = _stored(values)
    if extremes is None:
        return
    _check_within(version, where, chunk.bounds, extremes, values, chunk.kind, ours=ours)
    if not pa.types.is_unsigned_integer(values.type) and chunk.kind not in (_BYTES, _FIXED):
        _check_within(version, where, chunk.old_bounds, extremes, values, chunk.kind, ours=ours)


def _check_pages(version: int | None, where: str, source: pa.NativeFile, chunk: Chunk, values: pa.Array) -> None:
    """Compare a column's page indexes, which other writers make."""
    assert chunk.offset_index is not None  # noqa: S101 - the caller has looked
    assert chunk.column_index is not None  # noqa: S101
    where = f"{where}, page index"
    try:
        places = (chunk.offset_index, chunk.column_index)
        if any(offset < 0 or not 0 <= length <= _MOST_FOOTER for offset, length in places):
            raise ValueError(f"it is at {places}")
        index = page_index_of(*(source.read_at(length, offset) for offset, length in places))
    except (ValueError, TypeError, KeyError, AttributeError, pa.ArrowException) as error:
        violated(version, where, str(error), "a page index of Parquet")
    ends = [*index.first_rows[1:], len(values)]
    if index.first_rows[:1] != [0] or any(first > end for first, end in zip(index.first_rows, ends, strict=True)):
        violated(version, where, f"pages that begin at {index.first_rows[:50]}", f"pages of {len(values)} rows")
    for page, (first, end) in enumerate(zip(index.first_rows, ends, strict=True)):
        part = values.slice(first, end - first)
        if index.nulls is not None and index.nulls[page] != part.null_count:
            violated(version, f"{where}, page {page}", f"{index.nulls[page]} nulls", f"{part.null_count} nulls")
        if index.only_nulls[page] != (part.null_count == len(part)):
            violated(version, f"{where}, page {page}", f"only nulls: {index.only_nulls[page]}", part.null_count == len(part))
        extremes = _stored(part)
        if extremes is not None and chunk.kind != _INT96:
            bounds = index.lows[page], index.highs[page]
            _check_within(version, f"{where}, page {page}", bounds, extremes, part, chunk.kind, ours=False)


def _check_within(
    version: int | None,
    where: str,
    bounds: tuple[bytes | None, bytes | None],
    extremes: tuple[Any, Any],
    values: pa.Array,
    physical: int,
    *,
    ours: bool,
) -> None:
    """Compare bounds with the extremes of the rows.

    Parquet says that readers ignore a bound that is NaN, but some skip rows by it. Strandline writes none. Others do where values
    are NaN. Elsewhere ``ArithmeticError`` is raised for theirs.
    """
    kind = values.type
    try:
        low, high = (None if bound is None else _value(bound, kind, physical) for bound in bounds)
    except (ValueError, struct.error):
        violated(version, where, f"the bounds {bounds}", f"bounds of {kind}")
    if low != low or high != high:
        if ours:
            violated(version, where, f"bounds from {low} to {high}", f"bounds that hold {extremes[0]} to {extremes[1]}")
        if not pc.any(pc.is_nan(values)).as_py():
            raise ArithmeticError("a bound is NaN")
        low, high = (None if bound != bound else bound for bound in (low, high))
    if (low is not None and not low <= extremes[0]) or (high is not None and not high >= extremes[1]):
        violated(version, where, f"bounds from {low} to {high}", f"bounds that hold {extremes[0]} to {extremes[1]}")


def _value(data: bytes, kind: pa.DataType, physical: int) -> Any:
    """Return a stored bound in the form of :func:`_stored`."""
    if physical == _BOOLEAN:
        return bool(struct.unpack("?", data)[0])
    if physical in _WIDTHS:
        if len(data) != _WIDTHS[physical]:
            raise ValueError
        return int.from_bytes(data, "little", signed=not pa.types.is_unsigned_integer(kind))
    if physical in (_FLOAT, _DOUBLE):
        return struct.unpack("<f" if physical == _FLOAT else "<d", data)[0]
    return int.from_bytes(data, "big", signed=True) if pa.types.is_decimal(kind) else data


def _stored(values: pa.Array) -> tuple[Any, Any] | None:
    """Return the extremes as numbers, texts as bytes; ``None`` if there is none, or Parquet has no order of the type's values."""
    kind = values.type
    if pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(kind) and kind.unit in ("ms", "us"):
        values = values.cast(pa.int64())
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        values = values.cast(pa.large_binary())
    elif not (
        pa.types.is_integer(kind)
        or kind in (pa.float32(), pa.float64(), pa.bool_(), pa.binary(), pa.large_binary())
        or pa.types.is_decimal(kind)
    ):
        return None
    known = _extremes(values)
    if known is None:
        return None
    low, high = known[0].as_py(), known[1].as_py()
    if pa.types.is_decimal(kind):
        return int(low.scaleb(kind.scale, _DECIMALS)), int(high.scaleb(kind.scale, _DECIMALS))
    return low, high


def _extremes(values: pa.Array) -> tuple[pa.Scalar, pa.Scalar] | None:
    """Return the least and the greatest value. NaN is left out, as Parquet does."""
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    if len(values) == values.null_count:
        return None
    found = pc.min_max(values)
    return found["min"], found["max"]


def _leaves(rows: pa.Table) -> Iterator[_Leaf]:
    """Yield the columns as Parquet has them."""
    for column in rows.columns:
        whole = column.combine_chunks()
        if isinstance(whole, pa.ChunkedArray):  # a table without rows, or texts too long for one array
            whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.nulls(0, column.type)
        yield from _below(whole, repeated=False)


def _below(values: pa.Array, *, repeated: bool) -> Iterator[_Leaf]:
    kind = values.type
    if pa.types.is_struct(kind):
        for inner in values.flatten():
            yield from _below(inner, repeated=repeated)
    elif pa.types.is_map(kind):
        entries = values.drop_null()
        span = slice(entries.offsets[0].as_py(), entries.offsets[-1].as_py()) if len(entries) else slice(0, 0)
        yield from _below(entries.keys[span], repeated=True)
        yield from _below(entries.items[span], repeated=True)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _below(values.flatten(), repeated=True)
    else:
        yield _Leaf(values, repeated)
