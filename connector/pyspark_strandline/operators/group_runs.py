"""Cuts sorted record batches into runs of rows that are equal in some columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["runs"]


def runs(batches: Iterable[pa.RecordBatch], columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the parts of ``batches`` in which ``columns`` do not change, each with the number of its run.

    A run that continues over the end of a batch gives several parts with one number. Nulls are equal to each other, and so are
    NaNs.

    >>> batch = pa.record_batch({"k": ["a", "a", "b"], "n": [1, 2, 3]})
    >>> [(number, part.column("n").to_pylist()) for number, part in runs([batch, batch.slice(2)], ["k"])]
    [(0, [1, 2]), (1, [3]), (1, [3])]
    """
    number, last = -1, None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        keys = [batch.column(name) for name in columns]
        if last is None or _changes(last, [key.slice(0, 1) for key in keys])[0]:
            number += 1
        cuts = [0, *(np.flatnonzero(_changes([k.slice(0, len(k) - 1) for k in keys], [k.slice(1) for k in keys])) + 1)]
        for start, end in zip(cuts, [*cuts[1:], batch.num_rows], strict=True):
            yield number, batch.slice(int(start), int(end - start))
            number += 1
        number -= 1
        last = [key.slice(len(key) - 1) for key in keys]


def _changes(before: Sequence[pa.Array], after: Sequence[pa.Array]) -> np.ndarray[Any, Any]:
    changed = np.zeros(len(before[0]), dtype=bool)
    for a, b in zip(before, after, strict=True):
        changed |= _differ(a, b)
    return changed


def _differ(a: pa.Array, b: pa.Array) -> np.ndarray[Any, Any]:
    """Return a mask of the positions at which two arrays of one type have different values."""
    nulls = pc.xor(a.is_null(), b.is_null()).to_numpy(zero_copy_only=False)
    if pa.types.is_struct(a.type):
        parts = [_differ(x, y) for x, y in zip(a.flatten(), b.flatten(), strict=True)]
        return np.asarray(np.logical_or.reduce([nulls, *parts]))
    if pa.types.is_nested(a.type):
        return np.array([x != y for x, y in zip(a.to_pylist(), b.to_pylist(), strict=True)], dtype=bool)
    differ = pc.fill_null(pc.not_equal(a, b), False).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(a.type):
        both = pc.fill_null(pc.and_(pc.is_nan(a), pc.is_nan(b)), False).to_numpy(zero_copy_only=False)
        differ = differ & ~both
    return np.asarray(differ | nulls)
