"""The clocks by which an ingest counts silence, as of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from strandline.ingest.clocks.moment import Clock, Moment
from strandline.ingest.policies.policy import Policy
from strandline.ingest.state.partition_state import PartitionState
from strandline.ingest.state.query_entry import ClockState, QueryEntry

__all__ = ["SilenceClock"]


@dataclass(frozen=True)
class SilenceClock:
    """What the clocks show at a batch, and since when they count.

    Attributes:
        policy: The policy of the ingest.
        moment: The time of the batch.
        clock: The clocks.
        since: What the listening clock showed when the policy last changed. Silence counts from then at the earliest.
        since_wall: The same by the wall clock.
    """

    policy: Policy
    moment: Moment
    clock: Clock
    since: int
    since_wall: int

    @classmethod
    def of(cls, entry: QueryEntry, policy: Policy, moment: Moment) -> SilenceClock:
        """Return the clocks at a batch of a query, by its entry before."""
        clock = (entry.clock or ClockState()).clock.at(moment)
        wall = clock.wall_ms or 0
        if entry.policy not in (None, str(policy)):
            return cls(policy, moment, clock, clock.listened, wall)
        return cls(policy, moment, clock, entry.since or 0, wall if entry.since_wall is None else entry.since_wall)

    @cached_property
    def _judging(self) -> list[Policy]:
        return [policy for _, policy in self.policy.by_pattern() if policy.idle_after_ms is not None]

    @property
    def judges(self) -> bool:
        """Whether any silence counts."""
        return bool(self._judging)

    @cached_property
    def has_wall(self) -> bool:
        """Whether any silence counts by the wall clock."""
        return any(policy.counts_wall for _, policy in self.policy.by_pattern())

    @property
    def state(self) -> ClockState:
        """The state of the clocks after the batch."""
        return ClockState.of(self.clock, certain=all(map(self.is_certain, self._judging)))

    def is_certain(self, policy: Policy) -> bool:
        """Return whether no row of a partition that delivered none can have been waiting at the moment of the judgement."""
        return self.moment.to_end and (self.moment.read_ms is not None or not policy.counts_wall)

    def counts_from(self, policy: Policy) -> int:
        """Return the reading from which silence counts at the earliest."""
        return self.since_wall if policy.counts_wall else self.since

    def reading(self, policy: Policy | None) -> int:
        """Return what the clock shows by which a policy counts silence."""
        return self.clock.wall_ms or 0 if policy is not None and policy.counts_wall else self.clock.listened

    def heard(self, policy: Policy | None, state: PartitionState) -> PartitionState:
        """Return the state of a partition that was heard of now, by the clock of its policy."""
        reading = self.reading(policy)
        if policy is not None and policy.counts_wall:
            return (state if state.heard is None else state.changed(heard=None)).placed_last(heard_wall=reading)
        return (state if state.heard_wall is None else state.changed(heard_wall=None)).placed_last(heard=reading)

    def silence(self, policy: Policy, state: PartitionState) -> int:
        """Return for how many ms a partition has been silent, by the clock of its policy."""
        heard = state.heard_wall if policy.counts_wall else state.heard
        return self.reading(policy) - max(heard or 0, self.counts_from(policy))
