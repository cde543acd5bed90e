"""``bounded(delay)``: a row of a partition is at most ``delay`` behind the greatest time that the partition has delivered."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import numpy as np

from strandline.channel.statements.nullable_int64 import Ints
from strandline.ingest.policies import errors
from strandline.ingest.policies.arguments import as_policy_error, quote
from strandline.ingest.policies.policy import Observation, Policy
from strandline.time.domain import Scalar, Time, TimeDomain
from strandline.time.duration import Duration

__all__ = ["Bounded"]


class Bounded(Policy):
    """Rows of a partition are out of order by at most ``delay``: a duration for timestamps, a number for integer times.

    Law: after a batch the partition holds its own greatest time minus the delay, whatever other partitions have delivered. It
    never holds less than it held before, or less than the domain's minimum. In a composite domain the delay applies to one
    coordinate, ``coordinate`` (default: the first). The other coordinates may start again.

    >>> policy = Bounded("60 minutes")
    >>> from strandline.time.domain import timestamp
    >>> policy.bind(timestamp)
    >>> policy.promise(Observation("a", rows=1, least=7_200_000_000, greatest=7_200_000_000), None)
    ([3600000000], None)
    """

    kind = "bounded"

    def __init__(self, delay: str | int | timedelta | Duration, coordinate: str | None = None) -> None:
        with as_policy_error():
            self.delay = Duration.of(delay, "The delay of bounded()")
        self.coordinate = coordinate

    def bind(self, domain: TimeDomain) -> None:
        super().bind(domain)
        self._at, part = find_coordinate(domain, self.coordinate, "bounded()")
        with as_policy_error():
            self._units = self.delay.within(part, "The delay of bounded()")
        self._least = part.minimum

    @property
    def units(self) -> int:
        """The delay in units of the time, once bound."""
        return self._units

    def moved_leaves(self, domain: TimeDomain) -> tuple[int, ...]:
        if self._at is None:
            return (0,)
        moved, _ = domain.coordinates[self._at]
        return tuple(at for at, (path, _) in enumerate(domain.leaves()) if path[0] == moved)

    def promise(self, seen: Observation, state: Any) -> tuple[Iterable[Time] | None, Any]:
        if seen.greatest is None:
            return None, state
        if self._at is None:
            return [max(self._least, seen.greatest - self._units)], state
        minimum = self.domain.minimum
        behind = max(self._least, seen.greatest[self._at] - self._units)
        return [(*minimum[: self._at], behind, *minimum[self._at + 1 :])], state

    def promise_all(self, greatest: Ints) -> Ints | None:
        floor = self._least + self._units  # times that are not greater would fall below the least possible time
        return np.where(greatest > floor, greatest - self._units, self._least) if self._at is None else None

    def arguments(self) -> list[str]:
        return [str(self.delay)] + ([f"coordinate={quote(self.coordinate)}"] if self.coordinate else [])


def find_coordinate(domain: TimeDomain, name: str | None, what: str) -> tuple[int | None, Scalar]:
    """Return position and domain of a scalar coordinate (the first, unless named). A scalar domain has position ``None``."""
    if isinstance(domain, Scalar):
        if name is not None:
            raise errors.policy_invalid_coordinates(what, name, domain)
        return None, domain
    names = [n for n, _ in domain.coordinates]
    if name is not None and name not in names:
        raise errors.policy_invalid_coordinate(what, name, domain, names)
    at = names.index(name) if name is not None else 0
    part = domain.coordinates[at][1]
    if not isinstance(part, Scalar):
        raise errors.policy_invalid_coordinate_kind(what, names[at], part)
    return at, part
