"""Columns of integers, some of them missing: what the statements of very many producers are made of."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

__all__ = ["Ints", "Mask", "NullableInt64", "is_number"]

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def is_number(value: object) -> TypeGuard[int]:
    """Whether a value of JSON can be one of a column: an integer of 64 bits.

    >>> is_number(3), is_number(True), is_number(1 << 63)
    (True, False, False)
    """
    return type(value) is int and _LEAST <= value <= _MOST


class NullableInt64(NamedTuple):
    """64-bit integers by position; one counts only where ``valid`` says so.

    >>> NullableInt64.from_json([3, None], 2, "seq").to_json(), NullableInt64.from_json(7, 2, "seq").to_json()
    ([3, None], 7)
    """

    values: Ints
    valid: Mask

    @classmethod
    def all_of(cls, values: Ints) -> NullableInt64:
        """A column without gaps."""
        return cls(values, np.ones(len(values), dtype=np.bool_))

    @classmethod
    def constant(cls, value: int, length: int) -> NullableInt64:
        """The same number everywhere."""
        return cls.all_of(np.full(length, value, dtype=np.int64))

    @classmethod
    def none(cls, length: int) -> NullableInt64:
        """No number anywhere."""
        return cls(np.zeros(length, dtype=np.int64), np.zeros(length, dtype=np.bool_))

    @classmethod
    def of(cls, values: list[int | None]) -> NullableInt64:
        """From a list, ``None`` for the gaps."""
        if None not in values:
            return cls.all_of(np.array(values, dtype=np.int64))
        valid = np.array([value is not None for value in values], dtype=np.bool_)
        return cls(np.array([value or 0 for value in values], dtype=np.int64), valid)

    @classmethod
    def from_json(cls, value: Any, length: int, what: str) -> NullableInt64:
        """Read what :meth:`to_json` wrote; raises ``ValueError`` naming ``what`` for anything else."""
        if value is None:
            return cls.none(length)
        if is_number(value):
            return cls.constant(value, length)
        if not isinstance(value, list) or len(value) != length:
            raise ValueError(f"{what} is neither a number nor a list of {length}")
        if not set(map(type, value)) <= {int, type(None)}:
            raise ValueError(f"{what} has something that is no integer")
        try:
            return cls.of(value)
        except OverflowError:
            raise ValueError(f"{what} has a number of more than 64 bits") from None

    def to_json(self) -> int | list[int | None] | None:
        """One number, or ``None``, where it is the same everywhere; else a list with ``None`` for the gaps."""
        if not self.valid.any():
            return None
        if not self.valid.all():
            return [n if is_valid else None for n, is_valid in zip(self.values.tolist(), self.valid.tolist(), strict=True)]
        first = int(self.values[0])
        return first if (self.values == first).all() else self.values.tolist()

    def at(self, i: int) -> int | None:
        """The number at a position."""
        return int(self.values[i]) if self.valid[i] else None

    def where(self, chosen: Mask | Ints) -> NullableInt64:
        """The numbers at some positions."""
        return NullableInt64(self.values[chosen], self.valid[chosen])

    def differs(self, other: NullableInt64) -> Mask:
        """Where two columns are not the same."""
        changed: Mask = (self.valid != other.valid) | (self.valid & (self.values != other.values))
        return changed
