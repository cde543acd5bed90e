"""Columns of integers with missing values. They make up the statements of very many producers."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

__all__ = ["Ints", "Mask", "NullableInt64", "is_number"]

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def is_number(value: object) -> TypeGuard[int]:
    """Return whether a column can hold a JSON value: an integer of 64 bits.

    >>> is_number(3), is_number(True), is_number(1 << 63)
    (True, False, False)
    """
    return type(value) is int and _LEAST <= value <= _MOST


class NullableInt64(NamedTuple):
    """64-bit integers by position. A number exists only where ``valid`` is true.

    >>> NullableInt64.from_json([3, None], 2, "seq").to_json(), NullableInt64.from_json(7, 2, "seq").to_json()
    ([3, None], 7)
    """

    values: Ints
    valid: Mask

    @classmethod
    def all_of(cls, values: Ints) -> NullableInt64:
        """Return a column without gaps."""
        return cls(values, np.ones(len(values), dtype=np.bool_))

    @classmethod
    def constant(cls, value: int, length: int) -> NullableInt64:
        """Return a column with the same number everywhere."""
        return cls.all_of(np.full(length, value, dtype=np.int64))

    @classmethod
    def none(cls, length: int) -> NullableInt64:
        """Return a column with no number anywhere."""
        return cls(np.zeros(length, dtype=np.int64), np.zeros(length, dtype=np.bool_))

    @classmethod
    def of(cls, values: list[int | None]) -> NullableInt64:
        """Return the column of a list, in which ``None`` marks the gaps."""
        if None not in values:
            return cls.all_of(np.array(values, dtype=np.int64))
        valid = np.array([value is not None for value in values], dtype=np.bool_)
        return cls(np.array([value or 0 for value in values], dtype=np.int64), valid)

    @classmethod
    def from_json(cls, value: Any, length: int, what: str) -> NullableInt64:
        """Read what :meth:`to_json` wrote. Raises ``ValueError``, which names ``what``, for anything else."""
        if value is None:
            return cls.none(length)
        if is_number(value):
            return cls.constant(value, length)
        if not isinstance(value, list) or len(value) != length:
            raise ValueError(f"{what} is neither a number nor a list of {length} numbers")
        if not set(map(type, value)) <= {int, type(None)}:
            raise ValueError(f"{what} has an element that is not an integer")
        try:
            return cls.of(value)
        except OverflowError:
            raise ValueError(f"{what} has a number of more than 64 bits") from None

    def to_json(self) -> int | list[int | None] | None:
        """Return one number, or ``None``, if it is the same everywhere. Else return a list with ``None`` for the gaps."""
        if not self.valid.any():
            return None
        if not self.valid.all():
            return [n if is_valid else None for n, is_valid in zip(self.values.tolist(), self.valid.tolist(), strict=True)]
        first = int(self.values[0])
        return first if (self.values == first).all() else self.values.tolist()

    def at(self, i: int) -> int | None:
        """Return the number at a position."""
        return int(self.values[i]) if self.valid[i] else None

    def where(self, chosen: Mask | Ints) -> NullableInt64:
        """Return the numbers at the chosen positions."""
        return NullableInt64(self.values[chosen], self.valid[chosen])

    def differs(self, other: NullableInt64) -> Mask:
        """Return where two columns differ."""
        changed: Mask = (self.valid != other.valid) | (self.valid & (self.values != other.values))
        return changed
