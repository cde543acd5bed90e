"""``ordered()``: each partition delivers its rows in the order of their times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from strandline.channel.statements.nullable_int64 import Ints
from strandline.ingest.policies.policy import Observation, Policy
from strandline.time.domain import Time

__all__ = ["Ordered"]


class Ordered(Policy):
    """Rows of a partition arrive in order: no row is less than an earlier row.

    Law: after a batch the partition holds the join of all times that it has delivered. Rows equal to the greatest time are not
    late, wherever a batch ends. In a partial order, a row that is not comparable with the greatest time is late.

    >>> Ordered().promise(Observation("a", rows=2, least=3, greatest=7), None)
    ([7], None)
    """

    kind = "ordered"

    def promise(self, seen: Observation, state: Any) -> tuple[Iterable[Time] | None, Any]:
        return (None if seen.greatest is None else [seen.greatest]), state

    def promise_all(self, greatest: Ints) -> Ints | None:
        return greatest

    def arguments(self) -> list[str]:
        return []
