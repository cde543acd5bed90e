"""``idle(policy, after)``: a partition that has been silent for long is not waited for, until it speaks again."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from strandline.channel.statements.nullable_int64 import Ints
from strandline.errors import DurationError, PolicyError
from strandline.ingest.policies.parser import parse_policy
from strandline.ingest.policies.policy import IngestColumns, Observation, Policy, promised_at_once
from strandline.time.domain import Time, TimeDomain
from strandline.time.duration import Duration

__all__ = ["Idle"]


class Idle(Policy):
    """Judges as ``policy`` does, and stops waiting for a partition that was silent for ``after`` while the ingest was listening.

    It is a guess, so it is made only where it is asked for; without it a silent partition holds its times open for good.

    Law. *Listening time* is the time between batches of one run of the query, from planning to planning; time in which the query
    did not run does not count. A partition is judged in a batch in which it is silent, when it has been silent for ``after`` of
    listening time and it is certain that nothing of it is waiting: the source has no admission control, so that each batch takes
    all there is. Where that is not known nobody is judged. One that is judged holds nothing from then on, which is stated in the
    batch's commit. The judgement is a function of how long each has been silent alone, so the order in which partitions fall
    silent makes no difference. When the partition speaks again, it holds what the others that are not silent hold at least; its
    rows behind that are set aside. When all are silent, the frontier goes to the greatest of what they have promised, and no
    further.

    Source: the cases of Flink's ``StatusWatermarkValveTest``, and what went wrong with the first of its rules (FLINK-27066).

    >>> Idle("bounded(1 hour)", "10 minutes")
    idle(bounded(1 hour), 10 minutes)
    """

    kind = "idle"

    def __init__(self, policy: Policy | str, after: str | timedelta | Duration) -> None:
        self.policy = parse_policy(policy) if isinstance(policy, str) else policy
        self.after = Duration.of(after, "The time of idle()")
        if not self.after.timed or not self.after.amount:
            raise DurationError(
                "STRANDLINE_DELAY_INVALID", f"The time of idle() is {self.after}.", "Give a duration, such as '10 minutes'."
            )
        if self.policy.idle_after_ms is not None:
            raise PolicyError("STRANDLINE_POLICY_INVALID", f"idle() holds {self.policy}, which is one already.", "Drop one.")
        self.needs_times, self.silent_counts = self.policy.needs_times, self.policy.silent_counts

    @property
    def mark_column(self) -> str | None:
        return self.policy.mark_column

    @property
    def silent_column(self) -> str | None:
        return self.policy.silent_column

    @property
    def idle_after_ms(self) -> int | None:
        return max(1, self.after.amount // 1000)

    def bind(self, domain: TimeDomain) -> None:
        super().bind(domain)
        self.policy.bind(domain)

    def save(self, path: str, settings: IngestColumns) -> None:
        self.policy.save(path, settings)

    def open(self, settings: IngestColumns) -> None:
        self.policy.open(settings)

    def refresh(self) -> None:
        self.policy.refresh()

    def partitions(self) -> Iterable[str] | None:
        return self.policy.partitions()

    def changed(self) -> Iterable[str] | None:
        return self.policy.changed()

    def announced(self) -> Iterable[str]:
        return self.policy.announced()

    def ends(self) -> bool:
        return self.policy.ends()

    @property
    def core(self) -> Policy:
        return self.policy.core

    def by_pattern(self) -> list[tuple[str, Policy]]:
        inner = self.policy.by_pattern()
        return [("*", self)] if len(inner) == 1 else [(pattern, Idle(policy, self.after)) for pattern, policy in inner]

    def for_partition(self, partition: str) -> Policy:
        inner = self.policy.for_partition(partition)
        return self if inner is self.policy else Idle(inner, self.after)

    def promise(self, seen: Observation, state: Any) -> tuple[Iterable[Time] | None, Any]:
        return self.policy.promise(seen, state)

    def promise_all(self, greatest: Ints) -> Ints | None:
        return promised_at_once(self.policy, greatest)

    def arguments(self) -> list[str]:
        return [str(self.policy), str(self.after)]
