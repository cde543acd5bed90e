"""Cuts sorted record batches into runs of rows that are equal in some columns, as Spark's groups are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["key_values", "runs"]

Numbers = tuple[int, ...]
Mask = np.ndarray[Any, Any]


def runs(batches: Iterable[pa.RecordBatch], *levels: Sequence[str]) -> Iterator[tuple[Numbers, pa.RecordBatch]]:
    """Yield the parts of ``batches`` in which no column of ``levels`` changes, each with the numbers of its runs.

    The first number is that of the run of rows equal in the first level's columns, the second that of the run within it of rows
    equal in the second level's too, and so on. A run that continues over the end of a batch gives several parts with the same
    numbers. Values are equal as in a grouping of Spark: nulls to each other, NaNs to each other, and ``-0.0`` to ``0.0``, in
    structs and arrays too.

    >>> batch = pa.record_batch({"k": ["a", "a", "b"], "n": [1, 2, 2]})
    >>> [(numbers, part.num_rows) for numbers, part in runs([batch, batch.slice(2)], ["k"], ["n"])]
    [((0, 0), 1), ((0, 1), 1), ((1, 2), 1), ((1, 2), 1)]
    >>> [numbers for numbers, part in runs([batch], ["k"])]
    [(0,), (1,)]
    """
    counts, last = [-1] * len(levels), None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        keys = [[batch.column(name) for name in columns] for columns in levels]
        firsts = [True] * len(levels) if last is None else [bool(m[0]) for m in _changes(last, _slices(keys, 0, 1), 1)]
        inner = _changes(_slices(keys, 0, batch.num_rows - 1), _slices(keys, 1, batch.num_rows - 1), batch.num_rows - 1)
        cuts = np.flatnonzero(inner[-1]) + 1
        for number, (start, end) in enumerate(zip([0, *cuts], [*cuts, batch.num_rows], strict=True)):
            for level, (first, mask) in enumerate(zip(firsts, inner, strict=True)):
                counts[level] += int(first if number == 0 else mask[start - 1])
            yield tuple(counts), batch.slice(int(start), int(end - start))
        last = _slices(keys, batch.num_rows - 1, 1)


def key_values(part: pa.RecordBatch, columns: Sequence[str]) -> list[pa.Array]:
    """Return a run's key, an array of one value for each column, in the form that stands for all equal values.

    As in Spark, ``0.0`` stands for ``-0.0``, and there is one NaN.

    >>> [array.to_pylist() for array in key_values(pa.record_batch({"k": [[-0.0, 1.0]]}), ["k"])]
    [[[0.0, 1.0]]]
    """
    return [_normalized(part.column(name).slice(0, 1)) for name in columns]


def _normalized(array: pa.Array) -> pa.Array:
    if not _has_floats(array.type):
        return array
    if pa.types.is_floating(array.type):
        of = array.type.to_pandas_dtype()
        value = array[0].as_py() if len(array) == 1 else None
        if len(array) == 1:
            return pa.array([None if value is None else of("nan") if value != value else of(value) + of(0)], array.type)
        values = array.to_numpy(zero_copy_only=False) + of(0)
        return pa.array(np.where(np.isnan(values), of("nan"), values), array.type, mask=np.asarray(array.is_null()))
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(array.type):
        return pa.StructArray.from_arrays([_normalized(part) for part in array.flatten()], fields=list(array.type), mask=mask)
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    offsets = pa.concat_arrays([pa.array([0], lengths.type), pc.cumulative_sum(lengths)])
    return type(array).from_arrays(offsets, _normalized(pc.list_flatten(array)), type=array.type, mask=mask)


def _has_floats(type_: pa.DataType) -> bool:
    if pa.types.is_struct(type_):
        return any(_has_floats(field.type) for field in type_)
    return pa.types.is_floating(type_) or (_is_list(type_) and _has_floats(type_.value_type))


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def _slices(keys: list[list[pa.Array]], start: int, length: int) -> list[list[pa.Array]]:
    return [[key.slice(start, length) for key in level] for level in keys]


def _changes(before: list[list[pa.Array]], after: list[list[pa.Array]], length: int) -> list[Mask]:
    """Return for each level where it changes, or one before it."""
    changed, found = np.zeros(length, dtype=bool), []
    for old, new in zip(before, after, strict=True):
        for a, b in zip(old, new, strict=True):
            changed = changed | _differ(a, b)
        found.append(changed)
    return found


def _differ(a: pa.Array, b: pa.Array) -> Mask:
    """Return a mask of the positions at which two arrays of one type have different values."""
    nulls = pc.xor(a.is_null(), b.is_null()).to_numpy(zero_copy_only=False)
    if pa.types.is_null(a.type):
        return np.asarray(nulls)
    if pa.types.is_struct(a.type):
        parts = [_differ(x, y) for x, y in zip(a.flatten(), b.flatten(), strict=True)]
        return np.asarray(np.logical_or.reduce([nulls, *parts]))
    if _is_list(a.type):
        return _lists_differ(a, b, nulls)
    if pa.types.is_nested(a.type):
        return np.array([x != y for x, y in zip(a.to_pylist(), b.to_pylist(), strict=True)], dtype=bool)
    differ = pc.fill_null(pc.not_equal(a, b), False).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(a.type):
        both = pc.fill_null(pc.and_(pc.is_nan(a), pc.is_nan(b)), False).to_numpy(zero_copy_only=False)
        differ = differ & ~both
    return np.asarray(differ | nulls)


def _lists_differ(a: pa.Array, b: pa.Array, nulls: Mask) -> Mask:
    """Compare lists of one length element by element, all at once."""
    differ = nulls | pc.fill_null(pc.not_equal(pc.list_value_length(a), pc.list_value_length(b)), False).to_numpy(
        zero_copy_only=False
    )
    alike = pa.array(np.flatnonzero(~differ))
    x, y = a.take(alike), b.take(alike)
    parents = pc.list_parent_indices(x).to_numpy(zero_copy_only=False)
    inner = _differ(pc.list_flatten(x), pc.list_flatten(y))
    differ = np.array(differ)
    differ[alike.to_numpy()[parents[inner]]] = True
    return differ
