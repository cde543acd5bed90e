"""What a partition promises: by what it holds, by its earlier promises, and by its policy."""

from __future__ import annotations

from typing import NamedTuple

from strandline.ingest.decide.given import Given
from strandline.ingest.policies.policy import Observation
from strandline.ingest.policy_calls import promise_of
from strandline.ingest.state.partition_state import PartitionState
from strandline.time.antichain import Antichain, join_antichains

__all__ = ["Promised", "Resumed", "nothing", "promise", "promise_idle", "promise_unseen", "resume", "to_come"]


class Promised(NamedTuple):
    """What a partition holds, and what is remembered of it."""

    holds: Antichain
    state: PartitionState


class Resumed(NamedTuple):
    """A partition that is waited for again: the times at which it resumes, whether its earlier rows are counted, the donors."""

    state: PartitionState
    held: Antichain | None = None
    recounts: bool = False
    donors: frozenset[str] = frozenset()


def nothing(name: str) -> Observation:
    """Return the observation of a partition that delivered nothing."""
    return Observation(name, 0, None, None)


def to_come(given: Given, seen: Observation, state: PartitionState, held: Antichain, *, recount: bool = False) -> Promised:
    """Return what a partition may still deliver.

    Args:
        given: What the decision goes by.
        seen: What the partition delivered.
        state: What is remembered of it.
        held: What it holds.
        recount: Whether its policy has not counted the rows that the channel has of it.
    """
    settings, domain = given.settings, given.domain
    if recount:
        seen = given.batch.with_rows_before(seen, settings)
    times = held
    if state.soon is not None:
        times = join_antichains(domain, held, [domain.from_json(time) for time in state.soon])
    policy = given.policy.for_partition(seen.partition)
    known = seen._replace(held=settings.from_channel_times(times))
    promised, own = promise_of(policy, known, state.own, settings.domain)
    if promised is not None:
        times = join_antichains(domain, times, [settings.to_channel_time(time) for time in promised])
    if state.soon is not None:
        state = state.changed(soon=None)
    return Promised(times, state if own is None else state.changed(own=own))


def promise(
    given: Given, seen: Observation, state: PartitionState, held: Antichain | None = None, *, recount: bool = False
) -> Promised:
    """Return what a partition that is waited for holds after the batch. In a first snapshot, its promise waits for the end.

    ``held`` is what it holds before (default: what the channel says, or where it joins). The others are those of
    :func:`to_come`.
    """
    if held is None:
        name = seen.partition
        held = given.states.held(name) if name in given.partitions else given.joining(name)
    times, state = to_come(given, seen, state, held, recount=recount)
    if not given.batch.moment.in_snapshot:
        return Promised(times, state)
    return Promised(held, state.changed(soon=times.to_json()) if times != held else state)


def promise_idle(given: Given, name: str, state: PartitionState, *, recount: bool = False) -> Promised:
    """Return what a partition that is not waited for holds after outside changes. It may have nothing more to deliver."""
    idle, holds = state.idle, given.partitions[name].holds
    assert idle is not None  # noqa: S101 - the caller asked
    was = Antichain(given.domain, idle.promised(given.domain))
    times, state = to_come(given, nothing(name), state, was, recount=recount)
    if given.batch.moment.in_snapshot:
        return Promised(holds, state.changed(soon=times.to_json()) if times != was else state)
    if times:
        return Promised(holds, state.changed(idle=idle.changed(was=times.to_json())))
    return Promised(Antichain(given.domain), state.changed(idle=None))


def promise_unseen(given: Given, name: str, state: PartitionState) -> Promised | None:
    """Return what a partition holds after outside changes that has delivered nothing; ``None`` if no policy judges it."""
    if name in given.states.idle:
        return promise_idle(given, name, state)
    return None if given.policy_of(name) is None else promise(given, nothing(name), state)


def resume(given: Given, name: str, state: PartitionState) -> Resumed:
    """End the idleness of a partition."""
    policy = given.policy_of(name)
    recounts = state.idle is not None and bool(state.idle.rejoins) and policy is not None and policy.needs_times
    known, held, donors = given.partitions[name], given.states.held(name), frozenset[str]()
    if not known.holds and held:
        owner = known.owner.id if known.owner is not None else None
        # With its own name among the donors it may hold what the registrar holds, if no other partition holds that any more.
        donors = frozenset(given.states.donors([owner], given.states.held_by([owner])) or {name})
    return Resumed(state.changed(idle=None), held, recounts, donors)
