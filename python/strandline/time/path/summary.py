"""Path summaries of timely: the least change of a time along a path, and antichains of the least summaries.

Graphs, trackers and loops have these. What a Spark query does to times is a list of steps: :mod:`strandline.time.path.steps`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from strandline.time import errors
from strandline.time.domain import Lex, Product, Scalar, Time, TimeDomain

__all__ = [
    "Connectivity",
    "LexSummary",
    "PathSummary",
    "ProductSummary",
    "ScalarSummary",
    "SetSummary",
    "Summaries",
    "advance",
    "advance_each",
    "advances",
    "identity",
    "summary_from_json",
    "to_minimum",
]


class PathSummary(ABC):
    """The effect of a path on a time: a function that never moves a time backwards (timely's ``PathSummary``).

    One kind of path does move times backwards in a coordinate, see :attr:`resets`. Operators receive such a summary, but no
    graph contains one.

    Laws (property tests check them for every summary): ``results_in`` is monotone in the time and in the summary, and
    ``t ≤ results_in(t)``; ``s.followed_by(r).results_in(t) = r.results_in(s.results_in(t))``. ``None`` means "no time at all"
    (a coordinate overflowed). It is greater than every time, and it stays ``None`` along the rest of the path.

    >>> from strandline.time.domain import product
    >>> step = advance(product(epoch="int64", iter="int64"), "iter")
    >>> step.results_in((3, 0)), step.followed_by(step).results_in((3, 0))
    ((3, 1), (3, 2))
    """

    __slots__ = ()
    domain: TimeDomain

    @abstractmethod
    def results_in(self, time: Time) -> Time | None:
        """Map a time at the path's beginning to the time at its end; ``None`` when there is none."""

    @abstractmethod
    def followed_by(self, other: Any) -> Any:
        """Return the summary of this path followed by ``other``; ``None`` when no time has a result after both."""

    @abstractmethod
    def less_equal(self, other: Any) -> bool:
        """Whether this summary's result is ≤ the other's for every time."""

    @property
    @abstractmethod
    def is_identity(self) -> bool:
        """Whether every time stays as it is. A summary that is not the identity strictly advances every time."""

    @property
    def resets(self) -> bool:
        """Whether a coordinate starts again, so that a time may return as an earlier or an incomparable time.

        This happens to the coordinate of a scope when a path leaves the scope and enters it again. It does not happen on any
        path within one scope's graph, and :meth:`Graph.add_node <strandline.tracker.graph.Graph.add_node>` refuses such a
        summary.
        """
        return False

    @abstractmethod
    def to_json(self) -> Any:
        """Return plain JSON. :func:`summary_from_json` reads it back with the domain."""


@dataclass(frozen=True)
class ScalarSummary(PathSummary):
    """Adds ``by`` ≥ 0 to a scalar time. There is no result beyond the domain's maximum.

    >>> from strandline.time.domain import uint64
    >>> ScalarSummary(uint64, 5).results_in(3), ScalarSummary(uint64, 2**64 - 3).results_in(3)
    (8, None)
    >>> ScalarSummary(uint64, 5).followed_by(ScalarSummary(uint64, 2**64 - 4)) is None
    True
    """

    __slots__ = ("by", "domain")
    domain: Scalar
    by: int

    def __post_init__(self) -> None:
        if isinstance(self.by, bool) or not isinstance(self.by, int):
            raise errors.summary_invalid_distance(self.domain, self.by)
        if self.by < 0:
            raise errors.summary_invalid_backwards(self.domain, self.by)

    def results_in(self, time: Time) -> Time | None:
        result = time + self.by
        return result if result <= self.domain.maximum else None

    def followed_by(self, other: ScalarSummary | SetSummary) -> ScalarSummary | SetSummary | None:
        if isinstance(other, SetSummary):
            return other  # a lower bound also for a time without a result here
        by = self.by + other.by
        # An advance by more than the domain's width moves even the least time beyond the greatest.
        return ScalarSummary(self.domain, by) if by <= self.domain.maximum - self.domain.minimum else None

    def less_equal(self, other: ScalarSummary | SetSummary) -> bool:
        return isinstance(other, ScalarSummary) and self.by <= other.by

    @property
    def is_identity(self) -> bool:
        return self.by == 0

    def to_json(self) -> Any:
        return self.by

    def __str__(self) -> str:
        return f"+{self.by}"


@dataclass(frozen=True)
class SetSummary(PathSummary):
    """Sets any scalar time to ``value``: a coordinate that starts again.

    >>> from strandline.time.domain import uint64
    >>> SetSummary(uint64, 0).results_in(7)
    0
    >>> advance(uint64, by=3).followed_by(SetSummary(uint64, 0)).followed_by(advance(uint64)).results_in(7)
    1
    """

    __slots__ = ("domain", "value")
    domain: Scalar
    value: Time

    def results_in(self, time: Time) -> Time | None:
        return self.value

    def followed_by(self, other: ScalarSummary | SetSummary) -> SetSummary | None:
        value = other.results_in(self.value)
        return None if value is None else SetSummary(self.domain, value)

    def less_equal(self, other: ScalarSummary | SetSummary) -> bool:
        least = other.results_in(self.domain.minimum)
        return least is None or self.value <= least

    @property
    def is_identity(self) -> bool:
        return False

    @property
    def resets(self) -> bool:
        return True

    def to_json(self) -> Any:
        return {"set": self.value}

    def __str__(self) -> str:
        return f"={self.value}"


@dataclass(frozen=True)
class ProductSummary(PathSummary):
    """One summary for each coordinate, as in timely's ``Product``.

    >>> from strandline.time.domain import product
    >>> s = summary_from_json(product(a="uint64", b="uint64", c="uint64"), [0, 1, 5])
    >>> s.results_in((7, 7, 7)), str(s)
    ((7, 8, 12), '(b+1, c+5)')
    """

    __slots__ = ("domain", "parts")
    domain: Product
    parts: tuple[PathSummary, ...]

    def results_in(self, time: Time) -> Time | None:
        result = []
        for part, coordinate in zip(self.parts, time, strict=True):
            moved = part.results_in(coordinate)
            if moved is None:
                return None
            result.append(moved)
        return tuple(result)

    def followed_by(self, other: ProductSummary) -> ProductSummary | None:
        parts = []
        for mine, theirs in zip(self.parts, other.parts, strict=True):
            both = mine.followed_by(theirs)
            if both is None:
                return None
            parts.append(both)
        return ProductSummary(self.domain, tuple(parts))

    def less_equal(self, other: ProductSummary) -> bool:
        return all(mine.less_equal(theirs) for mine, theirs in zip(self.parts, other.parts, strict=True))

    @property
    def is_identity(self) -> bool:
        return all(part.is_identity for part in self.parts)

    @property
    def resets(self) -> bool:
        return any(part.resets for part in self.parts)

    def to_json(self) -> Any:
        return [part.to_json() for part in self.parts]

    def __str__(self) -> str:
        moved = [
            f"{name}{part}" for (name, _), part in zip(self.domain.coordinates, self.parts, strict=True) if not part.is_identity
        ]
        return f"({', '.join(moved)})" if moved else "+0"


@dataclass(frozen=True)
class LexSummary(PathSummary):
    """Advances one coordinate of a lexicographic time and sets the coordinates after it, as a scope's clock does.

    With ``at = None`` it is the identity. Otherwise the coordinates before ``at`` stay, ``part`` strictly advances coordinate
    ``at``, and the coordinates after it become ``rest``. Their old values do not matter: the advanced coordinate decides the
    order, so the result is still greater than the argument. A composition has the same form.

    A coordinate that overflows carries into the coordinate before it, because "no result" would hide later times that have a
    result. There is no result only when all coordinates have their greatest value. A composition does not carry an overflow if
    a later step resets that coordinate. Only in this case, its result is less than the result of the separate steps. It is a
    lower bound, which is safe.

    Sources: the Hydroflow design of (tick, stratum, iteration), timely's tuples.

    >>> from strandline.time.domain import lex
    >>> d = lex(tick="int64", stratum="uint64", iter="uint64")
    >>> advance(d, "stratum").results_in((4, 1, 9))
    (4, 2, 0)
    >>> advance(d, "tick").followed_by(advance(d, "iter")).results_in((4, 1, 9))
    (5, 0, 1)
    >>> advance(d, "iter").results_in((4, 1, 2**64 - 1))
    (4, 2, 0)
    """

    __slots__ = ("at", "domain", "part", "rest")
    domain: Lex
    at: int | None
    part: PathSummary | None
    rest: tuple[Time, ...]

    def results_in(self, time: Time) -> Time | None:
        if self.at is None or self.part is None:
            return time
        moved = self.part.results_in(time[self.at])
        if moved is not None:
            return (*time[: self.at], moved, *self.rest)
        for i in reversed(range(self.at)):
            carried = _least_step(self.domain.parts[i][1]).results_in(time[i])
            if carried is not None:
                return (*time[:i], carried, *self._least_after(i))
        return None

    def followed_by(self, other: LexSummary) -> LexSummary | None:
        if other.at is None or other.part is None:
            return self
        if self.at is None or self.part is None or other.at < self.at:
            return other
        if other.at == self.at:
            return self._advancing(self.part.followed_by(other.part), other.rest)
        # The other summary advances a coordinate that this one has set, so its value is known.
        tail = Lex(self.domain.parts[self.at + 1 :])
        rest = LexSummary(tail, other.at - self.at - 1, other.part, other.rest).results_in(self.rest)
        if rest is not None:
            return LexSummary(self.domain, self.at, self.part, rest)
        step = _least_step(self.domain.parts[self.at][1])
        return self._advancing(self.part.followed_by(step), self._least_after(self.at))

    def _advancing(self, part: PathSummary | None, rest: tuple[Time, ...]) -> LexSummary | None:
        if self.at is None:
            return self
        if part is not None:
            return LexSummary(self.domain, self.at, part, rest)
        if self.at == 0:
            return None
        before = self.at - 1  # every time overflows here, so every time carries
        return LexSummary(self.domain, before, _least_step(self.domain.parts[before][1]), self._least_after(before))

    def _least_after(self, at: int) -> tuple[Time, ...]:
        return tuple(domain.minimum for _, domain in self.domain.parts[at + 1 :])

    def less_equal(self, other: LexSummary) -> bool:
        if other.at is None or other.part is None:
            return self.is_identity or self._is_minimum
        if self.at is None or self.part is None or other.at < self.at:
            return not other.resets
        if other.at > self.at:
            return self._is_minimum
        tail = self.domain.parts[self.at + 1 :]
        rest = not tail or Lex(tail).less_equal(self.rest, other.rest)
        if self.part == other.part:
            return rest
        # If a coordinate is set, two different parts may map a time to the same value. Then the coordinates after it decide.
        return self.part.less_equal(other.part) and (rest or not (self.resets or other.resets))

    @property
    def _is_minimum(self) -> bool:
        """Whether the coordinates from ``at`` on become their least values. These are ≤ all values they may have had."""
        if self.at is None or self.part is None:
            return False
        return self.part == to_minimum(self.domain.parts[self.at][1]) and self.rest == self._least_after(self.at)

    @property
    def is_identity(self) -> bool:
        return self.at is None

    @property
    def resets(self) -> bool:
        return self.part is not None and self.part.resets

    def to_json(self) -> Any:
        if self.at is None or self.part is None:
            return {}
        tail = self.domain.parts[self.at + 1 :]
        rest = [domain.to_json(value) for (_, domain), value in zip(tail, self.rest, strict=True)]
        return {"advance": self.domain.parts[self.at][0], "by": self.part.to_json(), "then": rest}

    def __str__(self) -> str:
        if self.at is None or self.part is None:
            return "+0"
        names = [name for name, _ in self.domain.parts[self.at :]]
        moved = [f"{names[0]}{self.part}", *(f"{n}={v}" for n, v in zip(names[1:], self.rest, strict=True))]
        return f"({', '.join(moved)})"


def _least_step(domain: TimeDomain) -> PathSummary:
    """Return the least strict advance of a total order. An overflow carries this advance."""
    if domain.is_total:
        last, _ = domain.leaves()[-1]
        return advance(domain, ".".join(last) or None)
    raise errors.time_overflow_partial(domain)


def identity(domain: TimeDomain) -> PathSummary:
    """Return the summary that leaves every time of ``domain`` as it is.

    >>> from strandline.time.domain import product
    >>> identity(product(epoch="int64", iter="int64")).results_in((3, 4))
    (3, 4)
    """
    if isinstance(domain, Scalar):
        return ScalarSummary(domain, 0)
    if isinstance(domain, Product):
        return ProductSummary(domain, tuple(identity(part) for _, part in domain.parts))
    if isinstance(domain, Lex):
        return LexSummary(domain, None, None, ())
    raise errors.time_domain_invalid_summary(domain)


def advance(domain: TimeDomain, coordinate: str | None = None, by: int = 1) -> PathSummary:
    """Return the summary that advances one coordinate, as on a feedback edge or on the entry to the next stratum.

    In a ``lex`` domain the summary sets the coordinates after it to their least values.

    Args:
        domain: The domain of the times.
        coordinate: A name, or names joined by dots for a nested domain; ``None`` for a scalar.
        by: The number to advance by, 0 or more.

    Raises:
        SummaryError: For an unknown coordinate or a negative number.

    >>> from strandline.time.domain import lex, product, uint64
    >>> advance(uint64, by=3).results_in(4)
    7
    >>> advance(product(epoch="int64", loop=lex(outer="uint64", inner="uint64")), "loop.outer").results_in((1, (2, 5)))
    (1, (3, 0))
    """
    if isinstance(domain, Scalar):
        if coordinate:
            raise errors.summary_invalid_scalar(domain, coordinate)
        return ScalarSummary(domain, by)
    name, _, inner = (coordinate or "").partition(".")
    names = [n for n, _ in domain.coordinates]
    if name not in names:
        raise errors.summary_invalid_unknown(domain, name, names)
    at = names.index(name)
    part = advance(domain.coordinates[at][1], inner or None, by)
    if isinstance(domain, Product):
        return ProductSummary(domain, tuple(part if i == at else identity(d) for i, (_, d) in enumerate(domain.parts)))
    if isinstance(domain, Lex):
        if part.is_identity:
            return identity(domain)
        return LexSummary(domain, at, part, tuple(d.minimum for _, d in domain.parts[at + 1 :]))
    raise errors.time_domain_invalid_summary(domain)


def advance_each(domain: TimeDomain, by: Mapping[str, int]) -> PathSummary:
    """Return the summary that advances several coordinates, one after the other.

    Args:
        domain: The domain of the times.
        by: For each coordinate, by how much. A scalar has an empty name.

    Raises:
        SummaryError: As :func:`advance`, or no time has a result (``STRANDLINE_TIME_OVERFLOW``).

    >>> from strandline.time.domain import product
    >>> advance_each(product(epoch="int64", iter="int64"), {"epoch": 1, "iter": 2}).results_in((3, 4))
    (4, 6)
    """
    moved = identity(domain)
    for coordinate, distance in by.items():
        moved = moved.followed_by(advance(domain, coordinate or None, distance))
        if moved is None:
            raise errors.time_overflow_advance(domain, by)
    return moved


def advances(summary: PathSummary) -> dict[str, int] | None:
    """Return by how much each coordinate advances; ``None`` if :func:`advance` does not make the summary. A scalar has no name.

    >>> from strandline.time.domain import lex, product
    >>> advances(advance(product(epoch="int64", loop=lex(outer="int64", inner="int64")), "loop.outer", 2))
    {'loop.outer': 2}
    >>> advances(identity(product(a="int64", b="int64")))
    {}
    """
    if isinstance(summary, ScalarSummary):
        return {"": summary.by} if summary.by else {}
    if isinstance(summary, ProductSummary):
        found: dict[str, int] = {}
        for (name, _), part in zip(summary.domain.parts, summary.parts, strict=True):
            inner = advances(part)
            if inner is None:
                return None
            found |= {f"{name}.{path}" if path else name: by for path, by in inner.items()}
        return found
    if isinstance(summary, LexSummary) and summary.at is None:
        return {}
    if isinstance(summary, LexSummary) and summary.part is not None and summary.at is not None:
        inner, name = advances(summary.part), summary.domain.parts[summary.at][0]
        if inner is None or summary.rest != tuple(part.minimum for _, part in summary.domain.parts[summary.at + 1 :]):
            return None
        return {f"{name}.{path}" if path else name: by for path, by in inner.items()}
    return None


def to_minimum(domain: TimeDomain) -> PathSummary:
    """Return the summary that sets every time of ``domain`` to the least time.

    >>> from strandline.time.domain import product
    >>> to_minimum(product(epoch="uint64", iter="uint64")).results_in((3, 4))
    (0, 0)
    """
    if isinstance(domain, Scalar):
        return SetSummary(domain, domain.minimum)
    if isinstance(domain, Product):
        return ProductSummary(domain, tuple(to_minimum(part) for _, part in domain.parts))
    if isinstance(domain, Lex):
        return LexSummary(domain, 0, to_minimum(domain.parts[0][1]), tuple(d.minimum for _, d in domain.parts[1:]))
    raise errors.time_domain_invalid_summary(domain)


def summary_from_json(domain: TimeDomain, value: Any, field: str = "summary") -> PathSummary:
    """Read a summary from its JSON form.

    This is an integer or ``{"set": value}`` for a scalar, a list for a product, and ``{"advance", "by", "then"}`` for a lex
    domain.

    Args:
        domain: The domain of the times.
        value: The JSON value.
        field: The name of the value in error messages.

    Raises:
        SummaryError: ``value`` is not a summary of the domain.

    >>> from strandline.time.domain import lex, product
    >>> summary_from_json(product(epoch="int64", iter="int64"), [0, 1]).results_in((3, 4))
    (3, 5)
    >>> summary_from_json(lex(tick="int64", iter="uint64"), {"advance": "tick", "by": 1, "then": [0]}).results_in((3, 4))
    (4, 0)
    """
    if isinstance(domain, Scalar):
        if isinstance(value, dict) and set(value) == {"set"}:
            return SetSummary(domain, domain.from_json(value["set"], f"{field}.set"))
        return ScalarSummary(domain, value)
    if isinstance(domain, Product):
        if not isinstance(value, (list, tuple)) or len(value) != len(domain.parts):
            raise errors.summary_invalid_product(domain, field, value, len(domain.parts))
        return ProductSummary(
            domain, tuple(summary_from_json(d, v, f"{field}.{name}") for (name, d), v in zip(domain.parts, value, strict=True))
        )
    if isinstance(domain, Lex):
        if value == {}:
            return identity(domain)
        names = [name for name, _ in domain.parts]
        if not isinstance(value, dict) or set(value) != {"advance", "by", "then"} or value["advance"] not in names:
            raise errors.summary_invalid_lex(domain, field, value)
        at = names.index(value["advance"])
        part = summary_from_json(domain.parts[at][1], value["by"], f"{field}.by")
        tail = domain.parts[at + 1 :]
        if part.is_identity or not isinstance(value["then"], list) or len(value["then"]) != len(tail):
            raise errors.summary_invalid_tail(domain, field, value, len(tail))
        rest = tuple(d.from_json(v, f"{field}.{name}") for (name, d), v in zip(tail, value["then"], strict=True))
        return LexSummary(domain, at, part, rest)
    raise errors.time_domain_invalid_summary(domain)


class Summaries:
    """An antichain of path summaries: the least summaries of all paths between two locations.

    There may be several: if one path advances the iteration and another the epoch, neither is less.

    >>> from strandline.time.domain import product
    >>> d = product(epoch="int64", iter="int64")
    >>> found = Summaries([advance(d, "iter"), advance(d, "epoch"), advance(d, "iter", 2)])
    >>> [str(s) for s in found]
    ['(iter+1)', '(epoch+1)']
    """

    __slots__ = ("_elements",)

    def __init__(self, summaries: Iterable[PathSummary] = ()) -> None:
        self._elements: list[PathSummary] = []
        for summary in summaries:
            self.insert(summary)

    def insert(self, summary: PathSummary) -> bool:
        """Add ``summary`` unless an element is ≤ it. Remove the elements that it is ≤ to. Returns whether it was added."""
        if any(e.less_equal(summary) for e in self._elements):
            return False
        self._elements = [e for e in self._elements if not summary.less_equal(e)]
        self._elements.append(summary)
        return True

    def results_in(self, time: Time) -> list[Time]:
        """Return the result of each summary for ``time``, without the summaries that have no result."""
        return [t for t in (s.results_in(time) for s in self._elements) if t is not None]

    def to_json(self) -> list[Any]:
        """The summaries' JSON forms, sorted."""
        return sorted((s.to_json() for s in self._elements), key=repr)

    def __iter__(self) -> Iterator[PathSummary]:
        return iter(self._elements)

    def __len__(self) -> int:
        return len(self._elements)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Summaries):
            return NotImplemented
        return set(self._elements) == set(other._elements)

    def __hash__(self) -> int:
        return hash(frozenset(self._elements))

    def __repr__(self) -> str:
        return f"Summaries([{', '.join(map(str, self._elements))}])"


Connectivity: TypeAlias = Sequence[dict[int, Summaries]]
"""For each input port, the least summaries to each output port that it can reach. It is sparse, because most ports
reach few ports."""
