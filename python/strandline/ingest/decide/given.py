"""What a decision goes by, and what its steps change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from strandline.channel import ProducerState, Progress
from strandline.channel.progress.capability_updates import CapabilityUpdates
from strandline.errors import StrandlineError
from strandline.ingest import errors
from strandline.ingest.decide.batch import Batch
from strandline.ingest.decide.ownership import Ownership
from strandline.ingest.decide.partition_states import PartitionStates
from strandline.ingest.decide.silence_clock import SilenceClock
from strandline.ingest.policies.policy import Policy
from strandline.ingest.settings import Settings
from strandline.ingest.state.partition_state import PartitionState
from strandline.ingest.state.query_entry import QueryEntry
from strandline.ingest.state.registrar_state import RegistrarState
from strandline.ingest.task.observations import Observations
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain

__all__ = ["Changes", "Given"]


@dataclass(frozen=True)
class Changes:
    """What steps of a decision have changed so far, by partition.

    Attributes:
        holds: What partitions hold from now on.
        states: What is remembered of them from now on.
        moves: The same for very many other partitions.
        donors: The partitions whose capabilities are cloned for others.
        recounts: The partitions whose rows from before the batch their policy has not counted.
        rejoined: The partitions that delivered nothing, and rejoin with the batch.
        fell_silent: The partitions that are not waited for from now on, and for how many ms they have been silent.
        unplaced: How many rows were set aside of partitions that have not joined, or belong to another query.
        unplaced_future: How many of these were dated too far ahead of the clock.
        adopted: Whether another policy, or another ingest, has judged some partitions so far.
    """

    holds: Mapping[str, Antichain] = field(default_factory=dict)
    states: Mapping[str, PartitionState] = field(default_factory=dict)
    moves: CapabilityUpdates | None = None
    donors: frozenset[str] = frozenset()
    recounts: frozenset[str] = frozenset()
    rejoined: tuple[str, ...] = ()
    fell_silent: Mapping[str, int] = field(default_factory=dict)
    unplaced: int = 0
    unplaced_future: int = 0
    adopted: bool = False

    def then(self, more: Changes) -> Changes:
        """Return these changes and ``more``, which were made later."""
        return Changes(
            {**self.holds, **more.holds},
            {**self.states, **more.states},
            self.moves if more.moves is None else more.moves,
            self.donors | more.donors,
            self.recounts | more.recounts,
            (*self.rejoined, *more.rejoined),
            {**self.fell_silent, **more.fell_silent},
            self.unplaced + more.unplaced,
            self.unplaced_future + more.unplaced_future,
            self.adopted or more.adopted,
        )


@dataclass(frozen=True)
class Given:
    """What a decision goes by: the newest progress of the channel, the settings, the policy and the batch.

    Times are the channel's.
    """

    progress: Progress
    settings: Settings
    policy: Policy
    batch: Batch

    @property
    def domain(self) -> TimeDomain:
        """The domain of the channel's times."""
        return self.settings.channel_domain

    @property
    def query(self) -> str:
        """The query's id."""
        return self.batch.transaction[0]

    @cached_property
    def registrar(self) -> RegistrarState:
        """What the channel's ingests share."""
        return RegistrarState.of(self.progress)

    @cached_property
    def entry(self) -> QueryEntry:
        """What is known of the query."""
        return self.registrar.entry(self.query)

    @cached_property
    def same_policy(self) -> bool:
        """Whether the query has had this policy before."""
        return self.entry.policy in (None, str(self.policy))

    @cached_property
    def clock(self) -> SilenceClock:
        """The clocks by which silence counts."""
        return SilenceClock.of(self.entry, self.policy, self.batch.moment)

    @cached_property
    def states(self) -> PartitionStates:
        """The channel's partitions."""
        return PartitionStates.of(self.progress, self.settings)

    @property
    def partitions(self) -> Mapping[str, ProducerState]:
        """The partitions by name."""
        return self.states.partitions

    @cached_property
    def seen(self) -> Observations:
        """What the batch delivered, by partition, without those that are not waited for and delivered nothing in time.

        That ends no silence.
        """
        unheard = [name for name in self.batch.unheard if name in self.states.idle]
        return self.batch.seen.without(unheard) if unheard else self.batch.seen

    @cached_property
    def heard(self) -> Collection[str]:
        """The partitions that delivered something in time."""
        unheard = self.batch.unheard
        return {name for name in self.seen if name not in unheard} if unheard else self.seen

    def counted(self, name: str, state: PartitionState) -> PartitionState:
        """Return the state of a partition with what the batch set aside of it."""
        batch = self.batch
        aside, only = batch.aside_by_partition.get(name, 0), name in batch.unheard
        return state.counted(aside, batch.future.get(name, 0), batch.moment.now_ms, batch.main_reason.get(name, 0), only=only)

    @cached_property
    def ownership(self) -> Ownership:
        """Which partitions belong to the ingest."""
        return Ownership(self.progress, self.batch, self.settings, self.registrar)

    def policy_of(self, name: str) -> Policy | None:
        """Return the policy that judges a partition, if there is one."""
        return policy_for(self.policy, name)

    def state_of(self, name: str, changes: Changes) -> PartitionState:
        """Return what is remembered of a partition. Raises :class:`IngestError` ``STRANDLINE_INGEST_STATE_INVALID``."""
        changed = changes.states.get(name)
        return PartitionState.of(name, self.partitions[name].state) if changed is None else changed

    def holds_of(self, name: str, changes: Changes) -> Antichain:
        """Return what a partition holds."""
        changed = changes.holds.get(name)
        return self.partitions[name].holds if changed is None else changed

    def is_own(self, name: str, state: ProducerState) -> bool:
        """Return whether a partition belongs to the ingest from this commit on."""
        return self.ownership.owns(state.owner) or name in self.ownership.claimed

    def alive(self, changes: Changes) -> Iterator[tuple[str, ProducerState]]:
        """Yield the partitions that held anything before this batch or do now, and the idle ones. The others are dead."""
        states = self.states
        names = (
            states.partitions if states.columns is not None else {**dict.fromkeys(states.holding), **states.idle, **changes.holds}
        )
        for name in names:
            if (known := states.partitions.get(name)) is not None:
                yield name, known

    def may_have_changed(self, name: str) -> bool:
        """Return whether outside changes may have changed a partition's promise."""
        return self.batch.changed is None or name in self.batch.changed

    def held_before(self) -> Antichain:
        """Return what the partitions that belong to the ingest from this commit on held together before it."""
        owned = self.states.held_by([self.query, *self.ownership.donors])
        claimed = [
            self.partitions[name].holds if name in self.partitions else self.progress.registrar for name in self.ownership.claimed
        ]
        return Antichain(self.domain, [time for times in (owned, *claimed) for time in times])

    def holders(self, times: Iterable[Time]) -> frozenset[str]:
        """Return partitions that together held these times before, and belong to the ingest from this commit on."""
        wanted = set(times)
        claimed = {
            name
            for name in self.ownership.claimed
            if name in self.partitions and wanted.intersection(self.partitions[name].holds)
        }
        return frozenset(self.states.donors([self.query, *self.ownership.donors], wanted) | claimed)

    def joining(self, name: str) -> Antichain:
        """Return the times at which a new partition joins. Raises :class:`ProducerError` if the channel is sealed."""
        settings, registrar = self.settings, self.progress.registrar
        if not registrar:
            raise errors.channel_sealed(name, settings.path)
        return Antichain(self.domain, [settings.to_channel_time(time) for time in settings.from_channel_times(registrar)])


def policy_for(policy: Policy, name: str) -> Policy | None:
    """Return the part of a policy that judges a partition.

    ``None``: no pattern matches. The partition delivers nothing more, or the tasks refuse it.
    """
    with suppress(StrandlineError):
        return policy.for_partition(name)
    return None
