"""``idle(policy, after)``: the ingest does not wait for a partition that was silent for long, until it delivers rows again."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from strandline.channel.statements.nullable_int64 import Ints
from strandline.ingest.policies import errors
from strandline.ingest.policies.arguments import as_policy_error
from strandline.ingest.policies.parser import parse_policy
from strandline.ingest.policies.policy import IngestColumns, Observation, Policy, promised_at_once
from strandline.time.domain import Time, TimeDomain, timestamp
from strandline.time.duration import Duration

__all__ = ["Idle"]


class Idle(Policy):
    """Judges as ``policy`` does, and stops waiting for a partition that was silent for ``after`` while the ingest was listening.

    This is a guess, so it is made only on request. Without it, a silent partition holds its times open forever.

    Law. *Listening time* is the time between batches of one run of the query, from planning to planning. Time in which the query
    did not run does not count. A partition becomes idle in a batch in which it is silent, on two conditions. It has been silent
    for ``after`` of listening time. It is certain that none of its rows are waiting: the source has no admission control, so each
    batch reads everything. When this is not known, no partition becomes idle. An idle partition holds nothing from then on, and
    the batch's commit states this. The decision depends only on how long each partition has been silent, so the order in which
    partitions fall silent makes no difference. When the partition delivers rows again, it holds at least the least that the other
    partitions that are not silent hold. Its rows behind that are set aside. Rows that are all set aside neither end a silence nor
    wake a partition. When all partitions are silent, the frontier advances to the greatest of their promises, and no further.

    With ``counts="wall"`` silence is counted on the wall clock, also between runs. So a query that a scheduler runs with
    ``availableNow`` gives up a partition too. A batch judges as of the moment when Spark determined what it reads, which Spark
    records in the checkpoint: a repeated batch judges as of its first attempt. If Python cannot read that, no partition becomes
    idle.

    With ``all_silent="advance"`` the frontier advances by the clock while all partitions are silent: to that moment minus
    ``after``, if this is later than the greatest promise. This guesses that a row's time is at most ``after`` behind the clock.
    So it needs timestamps that are clock times.

    Source: the cases of Flink's ``StatusWatermarkValveTest``, and the problem with the first of its rules (FLINK-27066).

    >>> Idle("bounded(1 hour)", "10 minutes")
    idle(bounded(1 hour), 10 minutes)
    """

    kind = "idle"

    def __init__(
        self,
        policy: Policy | str,
        after: str | timedelta | Duration,
        counts: str = "listening",
        all_silent: str = "hold",
    ) -> None:
        self.policy = parse_policy(policy) if isinstance(policy, str) else policy
        with as_policy_error():
            self.after = Duration.of(after, "The duration of idle()")
        if not self.after.timed or not self.after.amount:
            raise errors.delay_invalid_idle(self.after)
        if self.policy.idle_after_ms is not None:
            raise errors.policy_invalid_idle_twice(self.policy)
        for name, value, known in (("counts", counts, ("listening", "wall")), ("all_silent", all_silent, ("hold", "advance"))):
            if value not in known:
                raise errors.policy_invalid_idle_value(name, value, known)
        if all_silent == "advance" and counts != "wall":
            raise errors.policy_invalid_idle_listening()
        self.counts, self.all_silent = counts, all_silent
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

    @property
    def counts_wall(self) -> bool:
        return self.counts == "wall"

    @property
    def advances_when_silent(self) -> bool:
        return self.all_silent == "advance"

    def moved_leaves(self, domain: TimeDomain) -> tuple[int, ...]:
        return self.policy.moved_leaves(domain)

    def bind(self, domain: TimeDomain) -> None:
        super().bind(domain)
        if self.advances_when_silent and domain != timestamp:
            raise errors.policy_invalid_idle_clock(domain)
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
        return [("*", self)] if len(inner) == 1 else [(pattern, self._around(policy)) for pattern, policy in inner]

    def for_partition(self, partition: str) -> Policy:
        inner = self.policy.for_partition(partition)
        return self if inner is self.policy else self._around(inner)

    def _around(self, policy: Policy) -> Idle:
        return Idle(policy, self.after, self.counts, self.all_silent)

    def promise(self, seen: Observation, state: Any) -> tuple[Iterable[Time] | None, Any]:
        return self.policy.promise(seen, state)

    def promise_all(self, greatest: Ints) -> Ints | None:
        return promised_at_once(self.policy, greatest)

    def arguments(self) -> list[str]:
        named = [f"counts={self.counts}"] * self.counts_wall + [f"all_silent={self.all_silent}"] * self.advances_when_silent
        return [str(self.policy), str(self.after), *named]
