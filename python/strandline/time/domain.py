"""Time domains: which values are times, and the partial order between them.

A time is a plain Python value, so that millions of times stay cheap. In a scalar domain it is an ``int`` (a ``timestamp``
counts microseconds since 1970-01-01 UTC). In ``product`` and ``lex`` it is a ``tuple`` of coordinates, nested like the domain.
The domain defines the order, the value does not: Python's ``<`` on tuples is lexicographic, and is never used as the partial
order.

Sources: timely's ``Timestamp``/``PartialOrder`` (``timely/src/progress/timestamp.rs``, ``order.rs``), differential's ``Lattice``.
"""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

from strandline.time import errors
from strandline.time.text.calendar import format_micros

__all__ = [
    "BEGINNING",
    "Lex",
    "Product",
    "Scalar",
    "Time",
    "TimeDomain",
    "int64",
    "leaf_values",
    "lex",
    "parse_domain",
    "product",
    "timestamp",
    "uint64",
]

Time: TypeAlias = Any
"""A value that a :class:`TimeDomain` orders: an ``int``, or a ``tuple`` of times."""

BEGINNING = "the beginning"
"""The text of the least time of a signed domain. Nobody writes rows there: it says that nothing is promised yet."""
_FIRST_WINDOW = 366 * 86_400_000_000
"""Within so many µs after the beginning starts the first window, as of an hour. Its date would say nothing to anybody."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_RANGES = {f"int{bits}": (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) for bits in (8, 16, 32, 64)}
_RANGES["uint64"] = (0, (1 << 64) - 1)
_RANGES["timestamp"] = _RANGES["int64"]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_DEPTH = 8
_MAX_TEXT = 4096


class TimeDomain(ABC):
    """A set of times with a partial order that is a lattice, and with a least and a greatest time.

    Laws (property tests check them for every domain): ``less_equal`` is reflexive, antisymmetric and transitive; ``join`` and
    ``meet`` are least upper and greatest lower bounds; ``sort_key`` is a linear extension of ``less_equal``.

    >>> d = product(epoch="int64", iter="int64")
    >>> d.less_equal((1, 2), (3, 4)), d.less_equal((1, 2), (3, 0))
    (True, False)
    >>> d.join((3, 7), (4, 6)), d.meet((3, 7), (4, 6))
    ((4, 7), (3, 6))
    """

    @property
    @abstractmethod
    def minimum(self) -> Time:
        """The least time: it is ≤ every other time."""

    @property
    @abstractmethod
    def maximum(self) -> Time:
        """The greatest time: every other time is ≤ it."""

    @property
    @abstractmethod
    def is_total(self) -> bool:
        """Whether any two times are comparable. If they are, the :meth:`sort_key` order is the order itself."""

    @abstractmethod
    def less_equal(self, a: Time, b: Time) -> bool:
        """Whether ``a`` ≤ ``b`` in the partial order."""

    @abstractmethod
    def join(self, a: Time, b: Time) -> Time:
        """The least time that is ≥ both ``a`` and ``b``."""

    @abstractmethod
    def meet(self, a: Time, b: Time) -> Time:
        """The greatest time that is ≤ both ``a`` and ``b``."""

    @abstractmethod
    def time(self, value: Any, field: str = "time") -> Time:
        """Return the canonical time for ``value``.

        Args:
            value: A canonical time, a list instead of a tuple, a mapping by coordinate name, or an aware ``datetime`` for
                ``timestamp``.
            field: The name of the value in error messages.

        Raises:
            TimeError: ``value`` is not a time of the domain.

        >>> product(epoch="int64", at="timestamp").time({"epoch": 3, "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)})
        (3, 1000000)
        >>> int64.time(None, "arrived")
        Traceback (most recent call last):
        strandline.errors.TimeError: [STRANDLINE_TIME_INVALID] arrived is null, but a time of int64 is never null. ...
        """

    @abstractmethod
    def has(self, value: Any) -> bool:
        """Return whether ``value`` is a canonical time of the domain.

        >>> int64.has(3), int64.has(1 << 63), product(epoch="int64", iter="int64").has((3, 0)), int64.has(None)
        (True, False, True, False)
        """

    @abstractmethod
    def format(self, time: Time) -> str:
        """Return the human-readable form of a time. :func:`~strandline.time.time_text.parse_time` reads it back.

        >>> timestamp.format(1_000_000), product(epoch="int64", iter="int64").format((3, 0))
        ('1970-01-01T00:00:01Z', '(epoch=3, iter=0)')
        >>> timestamp.format(timestamp.minimum), timestamp.format(timestamp.maximum)
        ('the beginning', '+294247-01-10T04:00:54.775807Z')
        >>> timestamp.format(-(1 << 63) + 54_775_808)
        'the beginning + 54775808 µs'
        """

    @abstractmethod
    def __str__(self) -> str:
        """Return the text that :func:`parse_domain` reads back. Schemas and offsets contain this text."""

    @abstractmethod
    def leaves(self) -> tuple[tuple[tuple[str, ...], Scalar], ...]:
        """Return the path and the scalar domain of every leaf coordinate, in order. The path of a bare scalar is empty."""

    @cached_property
    def comparison(self) -> Callable[[Time, Time], bool]:
        """:meth:`less_equal` as the fastest available function, for loops that compare many canonical times.

        >>> product(epoch="int64", iter="int64").comparison((1, 2), (3, 4))
        True
        """
        if self.is_total:
            return operator.le  # Python's order of ints and tuples is the order of every total domain
        if all(isinstance(part, Scalar) for _, part in self.coordinates):
            return {2: _less_equal_pairs, 3: _less_equal_triples}.get(len(self.coordinates), self.less_equal)
        return self.less_equal

    def less_than(self, a: Time, b: Time) -> bool:
        """Whether ``a`` ≤ ``b`` and they differ."""
        return bool(a != b) and self.less_equal(a, b)

    def sort_key(self, time: Time) -> Time:
        """Return a key whose Python order is a linear extension of the partial order.

        Python compares tuples coordinate by coordinate. This extends the product order, and it is the lexicographic order, so
        the time itself is the key. Call this method nevertheless: its name says that the order is only an extension.
        """
        return time

    def from_json(self, value: Any, field: str = "time") -> Time:
        """Read a time from JSON that another process wrote: only canonical integers and lists, no dates or names.

        Args:
            value: The JSON value.
            field: The name of the value in error messages.

        Raises:
            TimeError: ``value`` is not the JSON form of a time of the domain.

        >>> product(epoch="int64", iter="int64").from_json([3, 0])
        (3, 0)
        """
        if isinstance(value, (Mapping, str)):
            raise errors.time_invalid_json(field, value, self)
        return self.time(value, field)

    def to_json(self, time: Time) -> Any:
        """The JSON form of a canonical time: an integer, or nested lists of integers.

        >>> product(epoch="int64", iter="int64").to_json((3, 0))
        [3, 0]
        """
        return [self_coordinate.to_json(t) for (_, self_coordinate), t in zip(self.coordinates, time, strict=True)]

    @property
    def coordinates(self) -> tuple[tuple[str, TimeDomain], ...]:
        """Name and domain of each coordinate; empty for a scalar."""
        return ()


def leaf_values(time: Time) -> Iterator[int]:
    """Yield the values of all coordinates of a time, in order."""
    if isinstance(time, tuple):
        for part in time:
            yield from leaf_values(part)
    else:
        yield time


def _less_equal_pairs(a: Time, b: Time) -> bool:
    return bool(a[0] <= b[0] and a[1] <= b[1])


def _less_equal_triples(a: Time, b: Time) -> bool:
    return bool(a[0] <= b[0] and a[1] <= b[1] and a[2] <= b[2])


@dataclass(frozen=True)
class Scalar(TimeDomain):
    """A totally ordered domain of bounded integers, or of ``timestamp`` microseconds (UTC)."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in _RANGES:
            raise errors.time_domain_invalid_scalar(self.name, _RANGES)

    @property
    def minimum(self) -> Time:
        return _RANGES[self.name][0]

    @property
    def maximum(self) -> Time:
        return _RANGES[self.name][1]

    @property
    def is_total(self) -> bool:
        return True

    def less_equal(self, a: Time, b: Time) -> bool:
        return bool(a <= b)

    def join(self, a: Time, b: Time) -> Time:
        return max(a, b)

    def meet(self, a: Time, b: Time) -> Time:
        return min(a, b)

    def has(self, value: Any) -> bool:
        low, high = _RANGES[self.name]
        return type(value) is int and low <= value <= high

    def time(self, value: Any, field: str = "time") -> Time:
        if self.has(value):
            return value
        if value is None:
            raise errors.time_invalid_null(field, self)
        if isinstance(value, datetime) and self.name == "timestamp":
            if value.tzinfo is None:
                raise errors.time_invalid_without_zone(field, value)
            value = (value - _EPOCH) // timedelta(microseconds=1)
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            kinds = "an integer of microseconds or an aware datetime" if self.name == "timestamp" else "an integer"
            raise errors.time_invalid_kind(field, value, self, kinds)
        number = value.__index__()
        low, high = _RANGES[self.name]
        if not low <= number <= high:
            raise errors.time_invalid_beyond(field, number, self, low, high)
        return number

    def format(self, time: Time) -> str:
        if time == self.minimum < 0:
            return BEGINNING
        if self.name != "timestamp":
            return str(time)
        after = time - self.minimum
        return f"{BEGINNING} + {after} µs" if after < _FIRST_WINDOW else format_micros(time)

    def to_json(self, time: Time) -> Any:
        return time

    def leaves(self) -> tuple[tuple[tuple[str, ...], Scalar], ...]:
        return (((), self),)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class _Composite(TimeDomain):
    """The base of ``product`` and ``lex``: named coordinates, and times as tuples."""

    parts: tuple[tuple[str, TimeDomain], ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.parts]
        if not names:
            raise errors.time_domain_invalid_empty(self._kind)
        for name in names:
            if not _NAME.fullmatch(name):
                raise errors.time_domain_invalid_name(name)
        # By default Spark ignores case when it resolves struct fields, so it could not distinguish two such names.
        if len({name.lower() for name in names}) != len(names):
            raise errors.time_domain_invalid_twice(self)

    @property
    @abstractmethod
    def _kind(self) -> str: ...

    @property
    def coordinates(self) -> tuple[tuple[str, TimeDomain], ...]:
        return self.parts

    @property
    def minimum(self) -> Time:
        return tuple(part.minimum for _, part in self.parts)

    @property
    def maximum(self) -> Time:
        return tuple(part.maximum for _, part in self.parts)

    def has(self, value: Any) -> bool:
        if type(value) is not tuple or len(value) != len(self.parts):
            return False
        for (_, part), each in zip(self.parts, value, strict=True):  # noqa: SIM110 - a generator takes twice as long
            if not part.has(each):
                return False
        return True

    def time(self, value: Any, field: str = "time") -> Time:
        if self.has(value):
            return value
        if value is None:
            raise errors.time_invalid_null(field, self)
        if isinstance(value, Mapping):
            names = [name for name, _ in self.parts]
            if set(value) != set(names):
                raise errors.time_invalid_names(field, value, self, names)
            value = tuple(value[name] for name in names)
        elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            if len(value) != len(self.parts):
                raise errors.time_invalid_count(field, len(value), self, len(self.parts))
        else:
            raise errors.time_invalid_scalar(field, value, self)
        return tuple(part.time(v, f"{field}.{name}") for (name, part), v in zip(self.parts, value, strict=True))

    def format(self, time: Time) -> str:
        return "(" + ", ".join(f"{name}={part.format(t)}" for (name, part), t in zip(self.parts, time, strict=True)) + ")"

    def leaves(self) -> tuple[tuple[tuple[str, ...], Scalar], ...]:
        return tuple(((name, *path), leaf) for name, part in self.parts for path, leaf in part.leaves())

    def __str__(self) -> str:
        return f"{self._kind}({', '.join(f'{name} {part}' for name, part in self.parts)})"


@dataclass(frozen=True)
class Product(_Composite):
    """The product order: ``a`` ≤ ``b`` when each coordinate of ``a`` is ≤ that of ``b`` (timely's ``Product``).

    >>> product(epoch="int64", iter="int64").less_equal((0, 5), (1, 4))
    False
    """

    @property
    def _kind(self) -> str:
        return "product"

    @property
    def is_total(self) -> bool:
        return len(self.parts) == 1 and self.parts[0][1].is_total

    def less_equal(self, a: Time, b: Time) -> bool:
        return all(part.less_equal(s, t) for (_, part), s, t in zip(self.parts, a, b, strict=True))

    def join(self, a: Time, b: Time) -> Time:
        return tuple(part.join(s, t) for (_, part), s, t in zip(self.parts, a, b, strict=True))

    def meet(self, a: Time, b: Time) -> Time:
        return tuple(part.meet(s, t) for (_, part), s, t in zip(self.parts, a, b, strict=True))


@dataclass(frozen=True)
class Lex(_Composite):
    """The lexicographic order: the first coordinate that differs decides (timely's tuples).

    >>> d = lex(tick="int64", iter="int64")
    >>> d.less_equal((0, 5), (1, 4)), d.join((0, 5), (1, 4))
    (True, (1, 4))
    """

    @property
    def _kind(self) -> str:
        return "lex"

    @property
    def is_total(self) -> bool:
        return all(part.is_total for _, part in self.parts)

    def less_equal(self, a: Time, b: Time) -> bool:
        for (_, part), s, t in zip(self.parts, a, b, strict=True):
            if s != t:
                return part.less_equal(s, t)
        return True

    def join(self, a: Time, b: Time) -> Time:
        return self._bound(a, b, lambda part, s, t: part.join(s, t), lambda part: part.minimum)

    def meet(self, a: Time, b: Time) -> Time:
        return self._bound(a, b, lambda part, s, t: part.meet(s, t), lambda part: part.maximum)

    def _bound(
        self, a: Time, b: Time, both: Callable[[TimeDomain, Time, Time], Time], rest: Callable[[TimeDomain], Time]
    ) -> Time:
        for i, ((_, part), s, t) in enumerate(zip(self.parts, a, b, strict=True)):
            if s != t:
                bound = both(part, s, t)
                if bound == s:
                    return a
                if bound == t:
                    return b
                # s and t are incomparable and their bound is strictly beyond both, so the later coordinates are free.
                return (*a[:i], bound, *(rest(p) for _, p in self.parts[i + 1 :]))
        return a


timestamp = Scalar("timestamp")
int64 = Scalar("int64")
uint64 = Scalar("uint64")


def product(**coordinates: TimeDomain | str) -> Product:
    """Return the product of the named coordinates. Each value is a domain or the text of one.

    >>> str(product(event="timestamp", loop=lex(tick="int64", iter="int64")))
    'product(event timestamp, loop lex(tick int64, iter int64))'
    """
    return Product(tuple((name, _domain(value)) for name, value in coordinates.items()))


def lex(**coordinates: TimeDomain | str) -> Lex:
    """Return the lexicographic order of the named coordinates. The first coordinate is the most significant.

    >>> str(lex(tick="int64", stratum="int32"))
    'lex(tick int64, stratum int32)'
    """
    return Lex(tuple((name, _domain(value)) for name, value in coordinates.items()))


def _domain(value: TimeDomain | str) -> TimeDomain:
    return value if isinstance(value, TimeDomain) else parse_domain(value)


_TOKEN = re.compile(r"\s*(?:([A-Za-z_][A-Za-z0-9_]*)|([(),]))")


@lru_cache(maxsize=256)
def parse_domain(text: str) -> TimeDomain:
    """Parse the text of a domain. A coordinate without a type is an ``int64``. Raises :class:`TimeDomainError`.

    >>> parse_domain("product(epoch, iter)") == product(epoch="int64", iter="int64")
    True
    >>> parse_domain("product(epoch float)")
    Traceback (most recent call last):
    strandline.errors.TimeDomainError: [STRANDLINE_TIME_DOMAIN_INVALID] 'float' is not a scalar time domain. Use one of ...
    """
    if len(text) > _MAX_TEXT:
        raise errors.time_domain_invalid_long(text, _MAX_TEXT)
    tokens, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise errors.time_domain_invalid_character(text, text[at:].strip()[0])
        tokens.append(match.group(1) or match.group(2))
        at = match.end()
    tokens.append("")
    domain, end = _parse(text, tokens, 0, _MAX_DEPTH)
    if tokens[end]:
        raise errors.time_domain_invalid_rest(text, tokens[end])
    return domain


def _parse(text: str, tokens: list[str], at: int, depth: int) -> tuple[TimeDomain, int]:
    word = tokens[at]
    if word in ("product", "lex") and tokens[at + 1] == "(":
        if depth == 0:
            raise errors.time_domain_invalid_deep(text, _MAX_DEPTH)
        parts: list[tuple[str, TimeDomain]] = []
        at += 1
        while tokens[at] in ("(", ","):
            name = tokens[at + 1]
            if not _NAME.fullmatch(name):
                raise errors.time_domain_invalid_coordinate(text, name)
            at += 2
            part: TimeDomain = int64
            if tokens[at] not in (",", ")"):
                part, at = _parse(text, tokens, at, depth - 1)
            parts.append((name, part))
        if tokens[at] != ")":
            raise errors.time_domain_invalid_open(text)
        return (Product if word == "product" else Lex)(tuple(parts)), at + 1
    if not _NAME.fullmatch(word):
        raise errors.time_domain_invalid_part(text, word)
    return Scalar(word), at + 1
