"""``punctuated(column)`` and ``heartbeat(column)``: the stream itself states the progress of a partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from strandline.ingest.policies import errors
from strandline.ingest.policies.arguments import quote
from strandline.ingest.policies.parser import parse_policy
from strandline.ingest.policies.policy import Observation, Policy
from strandline.time.domain import Time, TimeDomain

__all__ = ["Heartbeat", "Punctuated"]


class Punctuated(Policy):
    """Some rows carry a punctuation. From such a row on, the partition delivers nothing before the punctuation's time.

    ``column`` holds the time, and is null in rows without a punctuation. Or it is boolean, and true means the row's own time.

    Law: after a batch the partition holds the join of the punctuations that it has delivered. Rows alone do not advance the
    partition. A punctuation counts whatever happens to its row. It takes effect at the end of its batch: rows of the same batch
    are judged by what was promised before.

    >>> Punctuated("complete").promise(Observation("a", rows=2, least=3, greatest=9, mark=5), None)
    ([5], None)
    """

    kind = "punctuated"

    def __init__(self, column: str) -> None:
        self.column = column

    @property
    def mark_column(self) -> str | None:
        return self.column

    def promise(self, seen: Observation, state: Any) -> tuple[Iterable[Time] | None, Any]:
        return (None if seen.mark is None else [seen.mark]), state

    def arguments(self) -> list[str]:
        return [quote(self.column)]


class Heartbeat(Policy):
    """Some rows only advance time: when the boolean ``column`` is true, the row states that nothing before its time will arrive.

    Heartbeats are not written to the channel, and are never late.

    Law: after a batch the partition holds the join of its heartbeats. With an inner ``policy`` (for the other rows), it holds the
    join of both promises.

    >>> Heartbeat("is_heartbeat").promise(Observation("a", rows=2, least=3, greatest=9, mark=5), None)
    ([5], None)
    """

    kind = "heartbeat"

    def __init__(self, column: str, policy: Policy | str | None = None) -> None:
        self.column = column
        self.policy = parse_policy(policy) if isinstance(policy, str) else policy
        inner = self.policy
        if inner is not None and (inner.mark_column or inner.silent_column or inner.needs_times or len(inner.by_pattern()) > 1):
            raise errors.policy_invalid_heartbeat(column, self.policy)

    @property
    def mark_column(self) -> str | None:
        return self.column

    @property
    def silent_column(self) -> str | None:
        return self.column

    def bind(self, domain: TimeDomain) -> None:
        super().bind(domain)
        if self.policy is not None:
            self.policy.bind(domain)

    def promise(self, seen: Observation, state: Any) -> tuple[Iterable[Time] | None, Any]:
        inner, state = (None, state) if self.policy is None else self.policy.promise(seen, state)
        if seen.mark is None or inner is None:
            return ([seen.mark] if inner is None and seen.mark is not None else inner), state
        return [self.domain.join(seen.mark, time) for time in inner], state

    def arguments(self) -> list[str]:
        return [quote(self.column)] + ([str(self.policy)] if self.policy is not None else [])
