"""How the rows of two channels at one time differ: as multisets, and by a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.channel.batch.row_hashes import row_hashes
from strandline.replay.values import values_of

__all__ = ["ChangedRow", "RowDifference", "row_difference"]

_MOST_KEY_COLUMNS = 12
_NOTHING = pa.table({"": pa.nulls(1)})


@dataclass(frozen=True)
class ChangedRow:
    """A row that both channels have by its key, with other values.

    Attributes:
        key: The values of the key's columns.
        a: The values of the columns that differ, in the first channel.
        b: The same in the second.
    """

    key: dict[str, Any]
    a: dict[str, Any]
    b: dict[str, Any]


@dataclass(frozen=True)
class RowDifference:
    """The rows that only one of two tables has, and those that changed."""

    only_a: pa.Table
    only_b: pa.Table
    changed: tuple[ChangedRow, ...]
    key: tuple[str, ...]


def row_difference(a: pa.Table, b: pa.Table, key: Sequence[str] | None = None) -> RowDifference:
    """Return how two tables differ. Rows count as often as they occur.

    Args:
        a: The rows of the first channel at one time.
        b: Those of the second.
        key: The columns that tell rows apart. By default a column, or a pair, by which the rows that differ are unique in each
            table, and which pairs most of them. Rows of one key, one in each table, are a change.

    >>> a, b = pa.table({"k": ["x", "y"], "n": [1, 2]}), pa.table({"k": ["y", "x"], "n": [2, 5]})
    >>> difference = row_difference(a, b)
    >>> difference.changed, difference.only_a.num_rows
    ((ChangedRow(key={'k': 'x'}, a={'n': 1}, b={'n': 5}),), 0)
    """
    only_a, only_b = _surplus(a, b), _surplus(b, a)
    names = tuple(key) if key is not None else _found_key(only_a, only_b)
    if not names or not only_a.num_rows or not only_b.num_rows:
        return RowDifference(only_a, only_b, (), names)
    pairs = _pairs(only_a, only_b, names)
    changed = tuple(_changed(only_a, only_b, names, i, j) for i, j in pairs)
    return RowDifference(_without(only_a, {i for i, _ in pairs}), _without(only_b, {j for _, j in pairs}), changed, names)


def _surplus(of: pa.Table, beside: pa.Table) -> pa.Table:
    """Return the rows that a table has more often than another."""
    hashes, first, counts = np.unique(row_hashes(of), return_index=True, return_counts=True)
    others, other_counts = np.unique(row_hashes(beside), return_counts=True)
    at = np.searchsorted(others, hashes)
    shared = np.zeros(len(hashes), dtype=np.int64)
    if len(others):
        found = others[np.minimum(at, len(others) - 1)] == hashes
        shared[found] = other_counts[at[found]]
    more = np.maximum(counts - shared, 0)
    return of.take(pa.array(np.sort(np.repeat(first, more))))


def _pairs(a: pa.Table, b: pa.Table, key: Sequence[str]) -> list[tuple[int, int]]:
    """Return the places of rows with the same key, if each table has one."""
    (in_a, at_a), (in_b, at_b) = _unique(a, key), _unique(b, key)
    _, i, j = np.intersect1d(in_a, in_b, assume_unique=True, return_indices=True)
    return sorted(zip(at_a[i].tolist(), at_b[j].tolist(), strict=True))


def _unique(table: pa.Table, key: Sequence[str]) -> tuple[Any, Any]:
    hashes, first, counts = np.unique(row_hashes(table.select(list(key))), return_index=True, return_counts=True)
    return hashes[counts == 1], first[counts == 1]


def _changed(a: pa.Table, b: pa.Table, key: Sequence[str], i: int, j: int) -> ChangedRow:
    (in_a,), (in_b,) = values_of(a.slice(i, 1)), values_of(b.slice(j, 1))
    names = [name for name in dict.fromkeys([*in_a, *in_b]) if name not in key]
    other = [name for name in names if not _same(a, b, name, i, j)]
    return ChangedRow(
        {name: in_a[name] for name in key}, {n: in_a[n] for n in other if n in in_a}, {n: in_b[n] for n in other if n in in_b}
    )


def _same(a: pa.Table, b: pa.Table, name: str, i: int, j: int) -> bool:
    """Whether two rows have the same value of a column. One that is not there is null."""
    values = (table.slice(at, 1).select([name]) if name in table.column_names else _NOTHING for table, at in ((a, i), (b, j)))
    one, other = (int(row_hashes(value)[0]) for value in values)
    return one == other


def _without(table: pa.Table, places: set[int]) -> pa.Table:
    return table.take(pa.array([at for at in range(table.num_rows) if at not in places], pa.int64()))


def _found_key(a: pa.Table, b: pa.Table) -> tuple[str, ...]:
    """Return a column, or else a pair, by which most of the rows of two tables are pairs, one in each; nothing if none does."""
    if not a.num_rows or not b.num_rows:
        return ()
    names = [name for name in a.column_names if name in b.column_names][:_MOST_KEY_COLUMNS]
    for size in (1, 2):
        best = max(((_paired(a, b, key), key) for key in combinations(names, size)), key=lambda found: found[0], default=(0, ()))
        if best[0]:
            return best[1]
    return ()


def _paired(a: pa.Table, b: pa.Table, key: Sequence[str]) -> int:
    """Return how many rows a key pairs; 0 if it does not tell the rows of a table apart."""
    (in_a, _), (in_b, _) = _unique(a, key), _unique(b, key)
    is_key = len(in_a) == a.num_rows and len(in_b) == b.num_rows
    return len(np.intersect1d(in_a, in_b, assume_unique=True)) if is_key else 0
