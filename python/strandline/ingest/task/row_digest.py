"""A digest of a batch's rows. It tells whether a replayed batch is the same, however its rows are judged then."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.channel.batch.row_hashes import row_hashes
from strandline.time.arrow import leaf_columns

__all__ = ["RowDigest"]

_PRIMES = tuple(np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5))
_SHIFT = np.uint64(29)


class RowDigest:
    """Adds up hashes of rows, so neither the order of rows nor their distribution over tasks matters.

    There are two sums. The first is of each row's partition and time. The second is of each row's whole content.

    >>> one, other = RowDigest(), RowDigest()
    >>> rows = pa.table({"t": [3, 4, 5], "p": ["a", "b", None]})
    >>> one.add(["a", "b"], np.array([0, 1, -1]), pa.array([3, 4, 5]), np.array([0, 0, 4]), rows)
    >>> other.add(["b", "a"], np.array([-1, 0, 1]), pa.array([5, 4, 3]), np.array([4, 0, 0]), rows.take([2, 1, 0]))
    >>> one.result() == other.result()
    True
    """

    def __init__(self) -> None:
        self._rows, self._sum, self._content = 0, 0, 0
        self._known: dict[str, int] = {}

    def add(
        self, names: list[str], at: npt.NDArray[np.int64], times: pa.Array, codes: npt.NDArray[np.integer], rows: pa.Table
    ) -> None:
        """Add rows.

        Args:
            names: The partitions.
            at: For each row, the index of its partition in ``names`` (-1: no valid partition).
            times: For each row, its time.
            codes: For each row, why its time is not valid.
            rows: The rows as they arrived.
        """
        hashes = np.array([*(self._name(name) for name in names), 0], dtype=np.uint64)[at]
        mixed = hashes ^ (codes.astype(np.uint64) * _PRIMES[3])
        for i, leaf in enumerate(leaf_columns(times)):
            valid = np.where(codes == 0, leaf, 0).astype(np.int64).view(np.uint64)
            mixed = (mixed ^ (valid + _PRIMES[i % 3])) * _PRIMES[(i + 1) % 3]
            mixed ^= mixed >> _SHIFT
        self._rows += len(mixed)
        self._sum = (self._sum + int((mixed * _PRIMES[0]).sum(dtype=np.uint64))) & _MASK
        self._content = (self._content + int(row_hashes(rows).sum(dtype=np.uint64))) & _MASK

    def _name(self, name: str) -> int:
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")
        return found

    def result(self) -> tuple[int, int, int]:
        """Return how many rows there were, and two digests of 63 bits: of partitions and times, and of the rows' content."""
        return self._rows, self._sum & (_MASK >> 1), self._content & (_MASK >> 1)

    @staticmethod
    def together(parts: Iterable[tuple[int, int, int]]) -> tuple[int, int, int]:
        """Combine the results of all tasks."""
        rows, total, content = (sum(numbers) for numbers in zip((0, 0, 0), *parts, strict=True))
        return rows, total & (_MASK >> 1), content & (_MASK >> 1)


_MASK = (1 << 64) - 1
