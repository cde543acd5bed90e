"""Entry into a loop: times of an outer scope get the coordinates of the loop, which begin at 0, as in timely's ``enter``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from strandline.errors import SummaryError
from strandline.time.antichain import Antichain
from strandline.time.arrow import array_of, arrow_type
from strandline.time.domain import Lex, Product, Scalar, Time, TimeDomain
from strandline.time.summary import LexSummary, PathSummary, ProductSummary, SetSummary, advance, identity

__all__ = ["Entry"]


@dataclass(frozen=True)
class Entry:
    """The way of times from an outer domain into an inner one. The coordinates that are added are integers, and begin at 0.

    The outer domain is the inner one itself, the first coordinates of the inner one, or its first coordinate alone.

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

    def __post_init__(self) -> None:
        if self._depth() is None or any(str(leaf) == "timestamp" for part in self._added() for _, leaf in part.leaves()):
            raise SummaryError(
                "STRANDLINE_SUMMARY_INVALID",
                f"Times of {self.outer} do not enter {self.inner}.",
                "The outer domain must be the loop's domain or its first coordinates. The coordinates after it must be integers.",
            )

    def _depth(self) -> int | None:
        """Return how many coordinates of the inner domain the outer one has; 0 if it enters the first coordinate."""
        if self.outer == self.inner:
            return len(self.inner.coordinates)
        if isinstance(self.inner, Scalar):
            return None
        parts = self.inner.coordinates
        mine = self.outer.coordinates
        if type(self.outer) is type(self.inner) and 1 < len(mine) < len(parts) and parts[: len(mine)] == mine:
            return len(mine)
        try:
            Entry(self.outer, parts[0][1])
        except SummaryError:
            return None
        return 0

    def _added(self) -> list[TimeDomain]:
        """Return the coordinates of the inner domain that no outer time has. Those of its first coordinate are not listed."""
        if self.outer == self.inner:
            return []
        return [part for _, part in self.inner.coordinates[self._depth() or 1 :]]

    def time(self, time: Time) -> Time:
        """Return the inner time of an outer time."""
        if self.outer == self.inner:
            return time
        depth = self._depth()
        parts = self.inner.coordinates
        first = tuple(time) if depth else (Entry(self.outer, parts[0][1]).time(time),)
        return (*first, *map(_start, self._added()))

    def leave(self, time: Time) -> Time:
        """Return an inner time without the coordinates that no outer time has, as in timely's ``leave``.

        >>> from strandline.time.domain import int64, product
        >>> Entry(int64, product(epoch="int64", iter="int64")).leave((7, 3))
        7
        """
        if self.outer == self.inner:
            return time
        depth = self._depth()
        return tuple(time[:depth]) if depth else self._first().leave(time[0])

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
        parts = self.inner.coordinates
        first = column.flatten() if self._depth() else [Entry(self.outer, parts[0][1]).column(column)]
        rest = [array_of([_start(part)], part).take(pa.nulls(len(column), pa.int64()).fill_null(0)) for part in self._added()]
        return pa.StructArray.from_arrays([*first, *rest], fields=list(arrow_type(self.inner)))

    def feedback(self, by: Mapping[str, int]) -> PathSummary:
        """Return what a way around the loop does to an inner time, if it leaves to the outer domain, advances there, and enters.

        Args:
            by: For each coordinate of the outer domain that advances, by how much. At least one advances.

        Raises:
            SummaryError: ``STRANDLINE_SUMMARY_INVALID``: nothing advances, or a coordinate is unknown.

        >>> from strandline.time.domain import product
        >>> inner = product(epoch="int64", i="int64", j="int64")
        >>> Entry(inner, inner).feedback({"j": 1}).results_in((7, 2, 5))
        (7, 2, 6)
        >>> Entry(product(epoch="int64", i="int64"), inner).feedback({"i": 1}).results_in((7, 2, 5))
        (7, 3, 0)
        """
        moved = identity(self.outer)
        for coordinate, distance in by.items():
            step = advance(self.outer, coordinate or None, distance)
            both = moved.followed_by(step)
            if both is None:
                raise SummaryError(
                    "STRANDLINE_TIME_OVERFLOW", f"No time of {self.outer} can advance by {dict(by)}.", "Advance by less."
                )
            moved = both
        if moved.is_identity:
            raise SummaryError(
                "STRANDLINE_SUMMARY_INVALID",
                f"The feedback advances times of {self.outer} by {dict(by)}, which changes no time.",
                'Advance at least one coordinate, such as {"iter": 1}. Otherwise no time in the loop would ever be complete.',
            )
        return self._around(moved)

    def _around(self, moved: PathSummary) -> PathSummary:
        if self.outer == self.inner:
            return moved
        depth = self._depth()
        if isinstance(self.inner, Product):
            first = moved.parts if depth and isinstance(moved, ProductSummary) else (self._first()._around(moved),)
            return ProductSummary(self.inner, (*first, *map(_to_start, self._added())))
        assert isinstance(self.inner, Lex)  # noqa: S101 - a scalar has no outer domain but itself
        starts = tuple(map(_start, self._added()))
        if depth and isinstance(moved, LexSummary) and moved.at is not None:
            return LexSummary(self.inner, moved.at, moved.part, (*moved.rest, *starts))
        return LexSummary(self.inner, 0, self._first()._around(moved), starts)

    def _first(self) -> Entry:
        return Entry(self.outer, self.inner.coordinates[0][1])


def _start(domain: TimeDomain) -> Time:
    return 0 if isinstance(domain, Scalar) else tuple(_start(part) for _, part in domain.coordinates)


def _to_start(domain: TimeDomain) -> PathSummary:
    if isinstance(domain, Scalar):
        return SetSummary(domain, 0)
    if isinstance(domain, Product):
        return ProductSummary(domain, tuple(_to_start(part) for _, part in domain.parts))
    assert isinstance(domain, Lex)  # noqa: S101 - there are three kinds of domains
    return LexSummary(domain, 0, _to_start(domain.parts[0][1]), tuple(_start(part) for _, part in domain.parts[1:]))
