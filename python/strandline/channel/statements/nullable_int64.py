"""Columns of integers, some of them missing: what the statements of very many producers are made of."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

__all__ = ["Ints", "Mask", "Numbers", "is_number"]

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def is_number(value: object) -> TypeGuard[int]:
    """Whether a value of JSON can be one of a column: an integer of 64 bits.

    >>> is_number(3), is_number(True), is_number(1 << 63)
    (True, False, False)
    """
    return type(value) is int and _LEAST <= value <= _MOST


class Numbers(NamedTuple):
    """64-bit integers by position; one counts only where ``there`` says so.

    >>> Numbers.from_json([3, None], 2, "seq").to_json(), Numbers.from_json(7, 2, "seq").to_json()
    ([3, None], 7)
    """

    values: Ints
    there: Mask

    @classmethod
    def all_of(cls, values: Ints) -> Numbers:
        """A column without gaps."""
        return cls(values, np.ones(len(values), dtype=np.bool_))

    @classmethod
    def constant(cls, value: int, length: int) -> Numbers:
        """The same number everywhere."""
        return cls.all_of(np.full(length, value, dtype=np.int64))

    @classmethod
    def none(cls, length: int) -> Numbers:
        """No number anywhere."""
        return cls(np.zeros(length, dtype=np.int64), np.zeros(length, dtype=np.bool_))

    @classmethod
    def of(cls, values: list[int | None]) -> Numbers:
        """From a list, ``None`` where there is none."""
        if None not in values:
            return cls.all_of(np.array(values, dtype=np.int64))
        there = np.array([value is not None for value in values], dtype=np.bool_)
        return cls(np.array([value or 0 for value in values], dtype=np.int64), there)

    @classmethod
    def from_json(cls, value: Any, length: int, what: str) -> Numbers:
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
        if not self.there.any():
            return None
        if not self.there.all():
            return [n if is_there else None for n, is_there in zip(self.values.tolist(), self.there.tolist(), strict=True)]
        first = int(self.values[0])
        return first if (self.values == first).all() else self.values.tolist()

    def at(self, i: int) -> int | None:
        """The number at a position."""
        return int(self.values[i]) if self.there[i] else None

    def where(self, chosen: Mask | Ints) -> Numbers:
        """The numbers at some positions."""
        return Numbers(self.values[chosen], self.there[chosen])

    def differs(self, other: Numbers) -> Mask:
        """Where two columns are not the same."""
        changed: Mask = (self.there != other.there) | (self.there & (self.values != other.values))
        return changed
