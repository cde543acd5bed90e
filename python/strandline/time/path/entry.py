"""Entry into a loop: times of an outer scope get the coordinates of the loop, which begin at 0, as in timely's ``enter``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from strandline.time import errors
from strandline.time.antichain import Antichain
from strandline.time.arrow import arrow_type, times_from_leaves
from strandline.time.domain import Scalar, Time, TimeDomain, leaf_values

__all__ = ["Entry"]


@dataclass(frozen=True)
class Entry:
    """The way of times from an outer domain into an inner one. The coordinates that are added are integers, and begin at 0.

    The outer domain is the inner one itself, the first coordinates of the inner one, or its first coordinate alone. So the
    leaves of an outer time are the first leaves of the inner one.

    Source: timely's ``Enter`` and ``Refines::to_inner``.

    Attributes:
        outer: The domain of the times outside.
        inner: The domain of the times inside.

    Raises:
        SummaryError: ``STRANDLINE_SUMMARY_INVALID``: the outer domain does not lead into the inner one.

    >>> from strandline.time.domain import int64, product
    >>> entry = Entry(int64, product(epoch="int64", iter="int64"))
    >>> entry.time(7), entry.antichain(Antichain(int64, [7]))
    ((7, 0), Antichain(product(epoch int64, iter int64), [(7, 0)]))
    >>> Entry(product(a="int64", b="int64"), int64)
    Traceback (most recent call last):
    strandline.errors.SummaryError: [STRANDLINE_SUMMARY_INVALID] Times of product(a int64, b int64) do not enter int64. ...
    """

    outer: TimeDomain
    inner: TimeDomain
    _added: tuple[Scalar, ...] = field(init=False, repr=False, compare=False)
    """The leaves that no outer time has."""

    def __post_init__(self) -> None:
        added = _leaves_after(self.outer, self.inner)
        if added is None or any(str(leaf) == "timestamp" for leaf in added):
            raise errors.summary_invalid_entry(self.outer, self.inner)
        object.__setattr__(self, "_added", tuple(added))

    def time(self, time: Time) -> Time:
        """Return the inner time of an outer time."""
        return time if self.outer == self.inner else _time([*leaf_values(time), *(0 for _ in self._added)], self.inner)

    def leave(self, time: Time) -> Time:
        """Return an inner time without the coordinates that no outer time has, as in timely's ``leave``.

        >>> from strandline.time.domain import int64, product
        >>> Entry(int64, product(epoch="int64", iter="int64")).leave((7, 3))
        7
        """
        return time if self.outer == self.inner else _time(leaf_values(time), self.outer)

    def antichain(self, frontier: Antichain) -> Antichain:
        """Return the inner frontier of an outer frontier."""
        return Antichain(self.inner, [self.time(time) for time in frontier])

    def column(self, column: pa.Array) -> pa.Array:
        """Return a column of inner times for a column of outer times, as :func:`strandline.time.arrow.arrow_type` stores them.

        >>> from strandline.time.domain import int64, product
        >>> Entry(int64, product(epoch="int64", iter="int64")).column(pa.array([4, 5])).to_pylist()
        [{'epoch': 4, 'iter': 0}, {'epoch': 5, 'iter': 0}]
        """
        if self.outer == self.inner:
            return column
        zeros = pa.repeat(pa.scalar(0, pa.int64()), len(column))
        return _column(iter([*_leaves(column), *(zeros.cast(arrow_type(leaf)) for leaf in self._added)]), self.inner)


def _leaves_after(outer: TimeDomain, inner: TimeDomain) -> list[Scalar] | None:
    """Return the leaves of ``inner`` after those of ``outer``; ``None`` if it does not begin with them."""
    if outer == inner:
        return []
    mine, parts = outer.coordinates, inner.coordinates
    if not parts:
        return None
    shared = len(mine) if type(outer) is type(inner) and len(mine) > 1 and parts[: len(mine)] == mine else 0
    first = [] if shared else _leaves_after(outer, parts[0][1])
    return None if first is None else [*first, *(leaf for _, part in parts[shared or 1 :] for _, leaf in part.leaves())]


def _time(leaves: Iterable[int], domain: TimeDomain) -> Time:
    """Return the time of the first leaves."""
    return times_from_leaves([[leaf] for leaf in leaves], domain)[0]


def _leaves(column: pa.Array) -> list[pa.Array]:
    return [leaf for child in column.flatten() for leaf in _leaves(child)] if pa.types.is_struct(column.type) else [column]


def _column(leaves: Iterator[pa.Array], domain: TimeDomain) -> pa.Array:
    if isinstance(domain, Scalar):
        return next(leaves)
    parts = [_column(leaves, part) for _, part in domain.coordinates]
    return pa.StructArray.from_arrays(parts, fields=list(arrow_type(domain)))
