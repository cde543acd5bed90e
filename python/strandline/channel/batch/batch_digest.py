"""What a query's batch wrote, in a few numbers: by them a repeated batch is compared with the committed one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strandline.json_value import JsonObject
from strandline.time.domain import Time, TimeDomain

__all__ = ["BatchDigest", "RowsDigest"]

_MASK = (1 << 63) - 1
_TIME_MASK = (1 << 32) - 1
ROUNDING = 1e-8
"""Two sums of floating-point values are equal up to rounding if they differ by no more than this share of their norm."""


@dataclass(frozen=True)
class RowsDigest:
    """A digest of rows, however they are ordered, and divided into tasks.

    Attributes:
        rows: The number of rows.
        total: The sum of the rows' hashes, of which 63 bits count.
        floats: If floating-point numbers are compared up to rounding: for each column of them, by its path, the weighted sum of
            the values, and the norm of their magnitudes (:class:`strandline.channel.batch.row_hashes.FloatSums`).

    >>> RowsDigest(2, 7) + RowsDigest(1, 5) == RowsDigest(3, 12)
    True
    >>> RowsDigest(1, 7, {"x": (0.30000000000000004, 1.3)}).difference(RowsDigest(1, 7, {"x": (0.3, 1.3)}))
    >>> RowsDigest(1, 7, {"x": (0.3, 1.3)}).difference(RowsDigest(1, 7, {"x": (0.4, 1.4)}))
    "the values of the column 'x' are others"
    """

    rows: int = 0
    total: int = 0
    floats: Mapping[str, tuple[float, float]] | None = None

    def __add__(self, other: RowsDigest) -> RowsDigest:
        floats = dict(self.floats or {})
        for path, (value, magnitude) in (other.floats or {}).items():
            known = floats.get(path, (0.0, 0.0))
            floats[path] = known[0] + value, math.hypot(known[1], magnitude)
        exact = self.floats is None and other.floats is None
        return RowsDigest(self.rows + other.rows, (self.total + other.total) & _MASK, None if exact else floats)

    def is_as_exact_as(self, other: RowsDigest) -> bool:
        """Return whether both compare floating-point numbers in the same way, or one of them has no rows."""
        return not self.rows or not other.rows or (self.floats is None) == (other.floats is None)

    def difference(self, other: RowsDigest) -> str | None:
        """Return in words what another digest has that this one has not; ``None`` if they are of the same rows.

        Floating-point numbers are compared up to rounding. Sums that are not finite are not compared: JSON has none of them.
        """
        if self.rows != other.rows:
            return f"it had {self.rows} row(s) then, and has {other.rows} now"
        if (self.total - other.total) & _MASK:
            if self.is_as_exact_as(other):
                return f"its {self.rows} row(s) have other values"
            ways = ["up to rounding", "to the last bit"]
            then, now = ways if other.floats is None else reversed(ways)
            return f"its {self.rows} row(s) were recorded to be compared {then}, but by this plan they are compared {now}"
        had, has = self.floats or {}, other.floats or {}
        for path in sorted({*had, *has}):
            (a, size), (b, other_size) = had.get(path, (0.0, 0.0)), has.get(path, (0.0, 0.0))
            if math.isfinite(a) != math.isfinite(b) or (math.isfinite(a) and abs(a - b) > ROUNDING * max(size, other_size)):
                return f"the values of the column {path!r} are others"
        return None

    def to_json(self) -> list[Any]:
        """Return the JSON value: the rows and the total; and the sums, if floating-point numbers are compared up to rounding.

        >>> RowsDigest(2, 7, {"x": (1.5, 2.5)}).to_json()
        [2, 7, {'x': [1.5, 2.5]}]
        """
        own = [self.rows, self.total & _MASK]
        if self.floats is None:
            return own
        return [*own, {path: [_finite(a), _finite(b)] for path, (a, b) in sorted(self.floats.items())}]

    @classmethod
    def from_json(cls, value: Any) -> RowsDigest:
        """Read the JSON value. Raises :class:`ValueError` for any other value.

        >>> RowsDigest.from_json([2, 7, {"x": [1.5, None]}]).floats
        {'x': (1.5, inf)}
        """
        if not isinstance(value, list) or len(value) not in (2, 3) or not all(_is_hash(n, _MASK) for n in value[:2]):
            raise ValueError(f"{str(value)[:80]} is not a digest of rows")
        if len(value) == 2:
            return cls(value[0], value[1])
        floats = value[2]
        if not isinstance(floats, dict) or not all(map(_is_sums, floats.values())):
            raise ValueError(f"{str(floats)[:80]} are not sums by column")
        try:
            known = {path: tuple(math.inf if each is None else float(each) for each in sums) for path, sums in floats.items()}
        except OverflowError as error:
            raise ValueError(f"a sum is {error}") from None
        return cls(value[0], value[1], known)  # type: ignore[arg-type]


@dataclass(frozen=True)
class BatchDigest:
    """What a batch wrote: into the channel whose commit states this, and into the query's other outputs.

    Attributes:
        own: The digest of the rows of the commit.
        times: For each message time of the commit, 32 bits of the sum of its rows' hashes. Empty if there are spans.
        others: By name, the digests of what the batch wrote into the query's other outputs.
        exact: If ``own`` compares floating-point numbers up to rounding: the total of hashes that have all their bits. A repeated
            batch may have another one, but the rows that are stored have this one.

    >>> stated = BatchDigest(RowsDigest(2, 7), (3, 4), {"sums": RowsDigest(1, 9)}, exact=5)
    >>> BatchDigest.from_json(stated.to_json()) == stated
    True
    """

    own: RowsDigest
    times: tuple[int, ...] = ()
    others: Mapping[str, RowsDigest] = field(default_factory=dict)
    exact: int | None = None

    @staticmethod
    def of_times(hashes: Iterable[int]) -> tuple[int, ...]:
        """Return what is stated of the sums of hashes at each message time."""
        return tuple(each & _TIME_MASK for each in hashes)

    def first_difference(
        self,
        times: Sequence[tuple[Time, int]],
        other: BatchDigest,
        other_times: Sequence[tuple[Time, int]],
        domain: TimeDomain,
    ) -> str | None:
        """Return the first time at which another batch has other rows, with what differs, in words.

        Args:
            times: The message times of this digest's commit, with their rows.
            other: The digest of the other batch.
            other_times: The times of its rows.
            domain: The domain of the times.

        Returns:
            The words; ``None`` if the times do not show it: one of the digests has no hashes of times, the difference is in the
            values of floating-point numbers alone, or these are compared in two ways.

        >>> from strandline.time.domain import int64
        >>> one, other = BatchDigest(RowsDigest(3, 9), (4, 5)), BatchDigest(RowsDigest(3, 8), (4, 4))
        >>> one.first_difference([(1, 1), (2, 2)], other, [(1, 1), (2, 2)], int64)
        '2: its 2 row(s) have other values'
        """
        if len(self.times) != len(times) or len(other.times) != len(other_times) or not self.own.is_as_exact_as(other.own):
            return None
        had = {time: (rows, hashed) for (time, rows), hashed in zip(times, self.times, strict=True)}
        has = {time: (rows, hashed) for (time, rows), hashed in zip(other_times, other.times, strict=True)}
        differing = [time for time in {*had, *has} if had.get(time) != has.get(time)]
        if not differing:
            return None
        first = min(differing, key=domain.sort_key)
        difference = RowsDigest(*had.get(first, (0, 0))).difference(RowsDigest(*has.get(first, (0, 0))))
        return f"{domain.format(first)}: {difference}"

    def is_of(self, exact: int) -> bool:
        """Return whether the stored rows have a total of hashes; true if none is stated.

        >>> BatchDigest(RowsDigest(), exact=7).is_of(7 + (1 << 63)), BatchDigest(RowsDigest()).is_of(7)
        (True, True)
        """
        return self.exact is None or not (self.exact - exact) & _MASK

    def to_json(self) -> JsonObject:
        """Return the JSON object of a statement."""
        result: JsonObject = {"rows": self.own.to_json()}
        if self.times:
            result["times"] = list(self.times)
        if self.others:
            result["others"] = {name: digest.to_json() for name, digest in self.others.items()}
        if self.exact is not None:
            result["exact"] = self.exact & _MASK
        return result

    @classmethod
    def from_json(cls, value: Any) -> BatchDigest:
        """Read the JSON object. Raises :class:`ValueError` for any other value."""
        if not isinstance(value, dict):
            raise ValueError(f"{str(value)[:80]} is not a digest")
        times, others, exact = value.get("times", []), value.get("others", {}), value.get("exact")
        if not isinstance(times, list) or not all(_is_hash(each, _TIME_MASK) for each in times):
            raise ValueError(f"{str(times)[:80]} are not hashes of times")
        if not isinstance(others, dict):
            raise ValueError(f"{str(others)[:80]} are not digests by output")
        if exact is not None and not _is_hash(exact, _MASK):
            raise ValueError(f"{str(exact)[:80]} is not a total of hashes")
        digests = {name: RowsDigest.from_json(each) for name, each in others.items()}
        return cls(RowsDigest.from_json(value.get("rows")), tuple(times), digests, exact)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _is_sums(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(each is None or type(each) in (int, float) for each in value)


def _is_hash(value: Any, most: int) -> bool:
    return type(value) is int and 0 <= value <= most
