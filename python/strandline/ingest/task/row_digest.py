"""A digest of a batch's rows. It tells whether a replayed batch is the same, however its rows are judged then."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.time.arrow import leaf_columns

__all__ = ["RowDigest"]

_PRIMES = tuple(np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5))
_SHIFT = np.uint64(29)


class RowDigest:
    """Adds up a hash of each row's partition and time, so neither the order of rows nor their distribution over tasks matters.

    >>> one, other = RowDigest(), RowDigest()
    >>> one.add(["a", "b"], np.array([0, 1, -1]), pa.array([3, 4, 5]), np.array([0, 0, 4]))
    >>> other.add(["b", "a"], np.array([-1, 0, 1]), pa.array([5, 4, 3]), np.array([4, 0, 0]))
    >>> one.result() == other.result()
    True
    """

    def __init__(self) -> None:
        self._rows, self._sum = 0, 0
        self._known: dict[str, int] = {}

    def add(self, names: list[str], at: npt.NDArray[np.int64], times: pa.Array, codes: npt.NDArray[np.integer]) -> None:
        """Add rows. ``at`` is an index into ``names`` (-1: no valid partition). ``codes`` says why a time is not valid."""
        hashes = np.array([*(self._name(name) for name in names), 0], dtype=np.uint64)[at]
        mixed = hashes ^ (codes.astype(np.uint64) * _PRIMES[3])
        for i, leaf in enumerate(leaf_columns(times)):
            valid = np.where(codes == 0, leaf, 0).astype(np.int64).view(np.uint64)
            mixed = (mixed ^ (valid + _PRIMES[i % 3])) * _PRIMES[(i + 1) % 3]
            mixed ^= mixed >> _SHIFT
        self._rows += len(mixed)
        self._sum = (self._sum + int((mixed * _PRIMES[0]).sum(dtype=np.uint64))) & _MASK

    def _name(self, name: str) -> int:
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")
        return found

    def result(self) -> tuple[int, int]:
        """Return how many rows there were, and the digest of 63 bits."""
        return self._rows, self._sum & (_MASK >> 1)

    @staticmethod
    def together(parts: Iterable[tuple[int, int] | None]) -> tuple[int, int] | None:
        """Combine the results of all tasks. Return ``None`` when a task of an earlier release has none."""
        rows, total = 0, 0
        for part in parts:
            if part is None:
                return None
            rows, total = rows + part[0], (total + part[1]) & (_MASK >> 1)
        return rows, total


_MASK = (1 << 64) - 1
