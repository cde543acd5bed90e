"""Antichains: sets of pairwise incomparable times. A frontier is the antichain of the least times that may still appear."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from strandline.time import errors
from strandline.time.domain import Product, Scalar, Time, TimeDomain, uint64

__all__ = ["Antichain", "least_times"]

_MANY = 64
"""At least so many times are compared as columns."""


class Antichain:
    """The minimal elements of the inserted times, in one domain's order (timely's ``Antichain``).

    As a frontier ``F``: a time ``t`` is *closed* when no element of ``F`` is ≤ ``t``. The empty antichain closes everything.
    Iteration is in ``sort_key`` order, so that equal antichains have equal printed and serialised forms.

    >>> from strandline.time.domain import product
    >>> f = Antichain(product(epoch="int64", iter="int64"), [(1, 2), (2, 0), (3, 3)])
    >>> f
    Antichain(product(epoch int64, iter int64), [(1, 2), (2, 0)])
    >>> f.less_equal((5, 5)), f.closed((1, 1))
    (True, True)
    """

    __slots__ = ("_elements", "domain")

    def __init__(self, domain: TimeDomain, times: Iterable[Time] = ()) -> None:
        self.domain = domain
        self._elements: list[Time] = []
        self.extend(times)

    @classmethod
    def least(cls, domain: TimeDomain) -> Antichain:
        """The frontier that closes nothing: the domain's minimum.

        >>> from strandline.time.domain import uint64
        >>> Antichain.least(uint64)
        Antichain(uint64, [0])
        """
        return cls(domain, [domain.minimum])

    def insert(self, time: Time) -> bool:
        """Add ``time`` unless an element is ≤ it. Remove the elements that ``time`` is ≤ to. Returns whether it was added."""
        less_equal = self.domain.comparison
        if any(less_equal(e, time) for e in self._elements):
            return False
        self._elements = [e for e in self._elements if not less_equal(time, e)]
        self._elements.append(time)
        return True

    def extend(self, times: Iterable[Time]) -> bool:
        """Insert every time. Returns whether any was added."""
        times = list(times)
        if len(times) > 1 and self.domain.is_total:
            times = [min(times)]
        if len(times) < _MANY:
            added = [self.insert(time) for time in times]
            return any(added)
        before, self._elements = self._elements, least_times(self.domain, [*self._elements, *times])
        return set(before) != set(self._elements)

    def less_equal(self, time: Time) -> bool:
        """Whether some element is ≤ ``time``. For a frontier: whether ``time`` may still appear."""
        less_equal = self.domain.comparison
        return any(less_equal(e, time) for e in self._elements)

    def less_than(self, time: Time) -> bool:
        """Whether some element is < ``time``."""
        return any(self.domain.less_than(e, time) for e in self._elements)

    def closed(self, time: Time) -> bool:
        """Whether no element is ≤ ``time``. For a frontier: whether ``time`` cannot appear again."""
        return not self.less_equal(time)

    def dominates(self, other: Antichain) -> bool:
        """Whether for every element of ``other`` some element of this one is ≤ it (timely's ``PartialOrder`` on antichains).

        For frontiers: this one is not ahead of ``other``, and ``other`` closes every time that this one closes.

        >>> from strandline.time.domain import int64
        >>> Antichain(int64, [3]).dominates(Antichain(int64, [5])), Antichain(int64, [3]).dominates(Antichain(int64))
        (True, True)
        """
        self._same_domain(other)
        columns = _columns(self.domain, self._elements) if len(self) >= _MANY and len(other) >= _MANY else None
        if columns is None:
            return all(self.less_equal(e) for e in other._elements)
        return all(np.logical_and.reduce([c <= part for c, part in zip(columns, e, strict=True)]).any() for e in other._elements)

    def meet(self, other: Antichain) -> Antichain:
        """Return the frontier of both together: a time is closed when both frontiers close it.

        >>> from strandline.time.domain import product
        >>> d = product(epoch="int64", iter="int64")
        >>> Antichain(d, [(1, 2)]).meet(Antichain(d, [(2, 0), (4, 4)]))
        Antichain(product(epoch int64, iter int64), [(1, 2), (2, 0)])
        """
        self._same_domain(other)
        return Antichain(self.domain, [*self._elements, *other._elements])

    def copy(self) -> Antichain:
        """An independent antichain with the same elements."""
        return Antichain.of_incomparable(self.domain, self._elements)

    @classmethod
    def of_incomparable(cls, domain: TimeDomain, times: Iterable[Time]) -> Antichain:
        """Return the antichain of times that are known to be distinct, and none of them ≤ another one."""
        result = cls(domain)
        result._elements = list(times)
        return result

    def to_json(self) -> list[Any]:
        """The elements in ``sort_key`` order, each in its domain's JSON form."""
        return [self.domain.to_json(t) for t in self]

    @classmethod
    def from_json(cls, domain: TimeDomain, value: Any, field: str = "frontier") -> Antichain:
        """Read the output of :meth:`to_json`.

        Args:
            domain: The domain of the times.
            value: The JSON value.
            field: The name of the value in error messages.

        Raises:
            StrandlineError: ``value`` is not a list.
            TimeError: An element is not a time of the domain.

        >>> from strandline.time.domain import int64
        >>> Antichain.from_json(int64, [7])
        Antichain(int64, [7])
        """
        if not isinstance(value, list):
            raise errors.time_invalid_list(field, value, domain)
        return cls(domain, [domain.from_json(t, f"{field}[{i}]") for i, t in enumerate(value)])

    def format(self) -> str:
        """Return the human-readable form. ``{}`` is the empty frontier, which closes everything."""
        return "{" + ", ".join(self.domain.format(t) for t in self) + "}"

    def _same_domain(self, other: Antichain) -> None:
        if self.domain != other.domain:
            raise errors.time_domain_mismatch_of_frontiers(self.domain, other.domain)

    def __iter__(self) -> Iterator[Time]:
        if len(self._elements) < 2:
            return iter(tuple(self._elements))
        return iter(sorted(self._elements, key=self.domain.sort_key))

    def __len__(self) -> int:
        return len(self._elements)

    def __contains__(self, time: Time) -> bool:
        return time in self._elements

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Antichain):
            return NotImplemented
        return self.domain == other.domain and set(self._elements) == set(other._elements)

    def __hash__(self) -> int:
        return hash((self.domain, frozenset(self._elements)))

    def __repr__(self) -> str:
        return f"Antichain({self.domain}, {list(self)!r})"


def least_times(domain: TimeDomain, times: Iterable[Time]) -> list[Time]:
    """Return the times that no other one is ≤ to, each once, in no particular order.

    With two coordinates this costs a sort. With more, each of the result costs a comparison of columns. In other orders it
    costs a comparison of each time with each of the result.

    >>> from strandline.time.domain import product
    >>> least_times(product(epoch="int64", iter="int64"), [(3, 0), (1, 4), (2, 4), (1, 4)])
    [(1, 4), (3, 0)]
    """
    ordered = sorted(set(times), key=domain.sort_key)
    columns = None if domain.is_total or len(ordered) < 2 else _columns(domain, ordered)
    if domain.is_total:
        return ordered[:1]
    least: list[Time] = []
    if columns is None:
        less_equal = domain.comparison
        # The sort order extends the partial order, so a later time cannot displace an earlier one.
        for time in ordered:
            if not any(less_equal(e, time) for e in least):
                least.append(time)
    elif len(columns) == 2:
        # In this order a pair is minimal when its second coordinate is less than all second coordinates before it.
        second = columns[1]
        minimal = np.append(True, second[1:] < np.minimum.accumulate(second)[:-1])
        least = list(compress(ordered, minimal.tolist()))
    else:
        left = np.arange(len(ordered))
        while len(left):  # the first one is minimal among those that are left
            first = ordered[left[0]]
            least.append(first)
            left = left[np.logical_or.reduce([c[left] < part for c, part in zip(columns, first, strict=True)])]
    return least


def _columns(domain: TimeDomain, times: Sequence[Time]) -> list[npt.NDArray[Any]] | None:
    """Return the coordinates of times as columns, or ``None`` unless the domain is a product of scalars."""
    if not isinstance(domain, Product) or not all(isinstance(part, Scalar) for _, part in domain.parts):
        return None
    kinds = [np.uint64 if part == uint64 else np.int64 for _, part in domain.parts]
    return [np.array(column, kind) for column, kind in zip(zip(*times, strict=True), kinds, strict=True)]


def canonical_times(times: Time | Iterable[Time], domain: TimeDomain) -> list[Time]:
    """Return the canonical times for one time, or for an iterable of times."""
    if isinstance(times, Antichain):
        return list(times)
    if isinstance(times, (list, set, frozenset)) or hasattr(times, "__next__"):
        return [domain.time(time, f"times[{i}]") for i, time in enumerate(times)]
    return [domain.time(times)]


def join_antichains(domain: TimeDomain, held: Sequence[Time] | Antichain, promised: Sequence[Time]) -> Antichain:
    """Return the frontier of the times that are in advance of an element of each.

    A promise reduces the capabilities in ``held`` to this frontier.

    >>> from strandline.time.domain import int64
    >>> join_antichains(int64, Antichain(int64, [3]), [1]), join_antichains(int64, Antichain(int64, [3]), [])
    (Antichain(int64, [3]), Antichain(int64, []))
    """
    if isinstance(held, Antichain) and len(held) == 1 and len(promised) == 1 and promised[0] in held:
        return held
    return Antichain(domain, [domain.join(a, b) for a in held for b in promised])
