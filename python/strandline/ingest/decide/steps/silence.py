"""The fourth step: the ingest stops waiting for partitions that have been silent for long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from strandline.channel import ProducerState
from strandline.ingest.decide import decision_columns
from strandline.ingest.decide.given import Changes, Given
from strandline.ingest.decide.steps.promise import nothing, to_come
from strandline.ingest.state.partition_state import IdleState, PartitionState
from strandline.time.antichain import Antichain, join_antichains
from strandline.time.domain import Time, TimeDomain

__all__ = ["fall_silent", "silent_stand_in", "stand_in"]


def fall_silent(given: Given, changes: Changes) -> Changes:
    """Return the changes with those of the partitions that have been silent for long, all of them at once."""
    if not given.clock.judges or given.batch.moment.in_snapshot:
        return changes
    silent, active = _silent(given, changes)
    if active or any(changes.holds[name] for name in given.ownership.joined):
        nothing_held = Antichain(given.domain)
        return changes.then(_idle(given, changes, {name: nothing_held for name in silent if given.holds_of(name, changes)}))
    return _all_silent(given, changes, silent) if silent else changes


def _silent(given: Given, changes: Changes) -> tuple[list[str], bool]:
    """Return the ingest's silent partitions, and whether another of its partitions holds anything."""
    table, after = given.progress.columns, given.policy.idle_after_ms
    if table is not None and after is not None and not changes.adopted and not given.ownership.claimed:
        before = given.clock.reading(given.policy) - after + 1
        may_be_silent = given.clock.is_certain(given.policy) and given.clock.counts_from(given.policy) < before
        return decision_columns.silent_partitions(
            table,
            given.states,
            [*given.heard, *changes.rejoined] if changes.rejoined else given.heard,
            changes.holds,
            given.ownership.owns,
            lambda name, state: _is_silent(given, name, PartitionState.of(name, state)),
            before if may_be_silent else None,
            wall=given.policy.counts_wall,
        )
    silent: list[str] = []
    active = False
    for name, known in given.alive(changes):
        if not given.is_own(name, known):
            continue
        holds, state = given.holds_of(name, changes), given.state_of(name, changes)
        if name not in given.heard and (state.idle is not None or (holds and _is_silent(given, name, state))):
            silent.append(name)
        elif holds:
            active = True
    return silent, active


def _is_silent(given: Given, name: str, state: PartitionState) -> bool:
    policy = given.policy_of(name)
    if policy is None or policy.idle_after_ms is None or not given.clock.is_certain(policy):
        return False
    return given.clock.silence(policy, state) >= policy.idle_after_ms


def _idle(given: Given, changes: Changes, holds: Mapping[str, Antichain]) -> Changes:
    """Return what changes for partitions that are not waited for from now on, and hold ``holds``."""
    states: dict[str, PartitionState] = {}
    fell_silent: dict[str, int] = {}
    for name in holds:
        state = given.state_of(name, changes)
        if state.idle is None:
            policy = given.policy_of(name)
            silence = 0 if policy is None else max(0, given.clock.silence(policy, state))
            was = given.holds_of(name, changes).to_json()
            idle = IdleState().changed(was=was, since=given.batch.moment.now_ms, listened=given.clock.clock.listened)
            if policy is not None and policy.counts_wall:
                idle = idle.changed(silent=silence)
            state, fell_silent[name] = state.changed(idle=idle), silence
        states[name] = state
    return Changes(holds, states, fell_silent=fell_silent)


def _all_silent(given: Given, changes: Changes, silent: Sequence[str]) -> Changes:
    """Return the changes when all partitions are silent.

    The frontier advances to the greatest of their promises, or by the clock if all their policies say so. One of them holds it
    there. A partition whose announced rows would all be late is complete then, and does not count.
    """
    left, held = list(silent), given.held_before() or given.progress.registrar
    while True:
        promised = {name: given.state_of(name, changes).promised(given.holds_of(name, changes)) for name in left}
        promised = {name: times for name, times in promised.items() if times}
        if not promised:
            return changes
        clock = _clock_promise(given, promised)
        least = held if clock is None else join_antichains(given.domain, held, [clock])
        holders = [name for name in promised if given.holds_of(name, changes)]
        chosen, holds = stand_in(given.domain, promised, least, holders)
        complete = [name for name in promised if _has_nothing_at(given, changes, name, holds)]
        if not complete:
            break
        ended = {name: given.state_of(name, changes).changed(idle=None) for name in complete}
        changes = changes.then(Changes(dict.fromkeys(complete, Antichain(given.domain)), ended))
        left = [name for name in left if name not in ended]
    if not holders:
        # Only partitions that were already idle are left: what the last others held goes to one of them.
        changes = changes.then(Changes(donors=given.holders(least) | {chosen}))
    nothing_held = Antichain(given.domain)
    given_to = {name: holds if name == chosen else nothing_held for name in {*holders, chosen}}
    return changes.then(_idle(given, changes, given_to))


def _clock_promise(given: Given, silent: Iterable[str]) -> Time | None:
    """Return the time to which the clock alone lets the frontier advance while these partitions are all silent."""
    policies = [given.policy_of(name) for name in silent]
    afters = [p.idle_after_ms for p in policies if p is not None and p.advances_when_silent and given.clock.is_certain(p)]
    known = [after for after in afters if after is not None]
    if len(known) < len(policies) or not known:
        return None
    settings = given.settings
    return settings.to_channel_time(max(settings.domain.minimum, (given.clock.clock.trusted_ms - max(known)) * 1000))


def _has_nothing_at(given: Given, changes: Changes, name: str, holds: Antichain) -> bool:
    """Return whether all announced rows of a partition are at times that the ingest has passed, so they would be late."""
    policy = given.policy_of(name)
    if policy is None or not policy.needs_times:
        return False
    return not to_come(given, nothing(name), given.state_of(name, changes), holds).holds


def stand_in(
    domain: TimeDomain, promised: Mapping[str, Sequence[Time]], held: Antichain, candidates: Sequence[str] = ()
) -> tuple[str, Antichain]:
    """Return which silent partition holds the frontier for all of them, and at which times.

    The frontier advances to the greatest promise and no further. It does not go back, even when the partition that made a greater
    promise is complete by now, or was given up.

    Args:
        domain: The domain of the times.
        promised: What each partition has promised, which is never nothing.
        held: What all partitions of the ingest held together before.
        candidates: The partitions that may be chosen, if not all.

    >>> from strandline.time.domain import int64
    >>> stand_in(int64, {"a": [3], "b": [5]}, Antichain(int64, [4]))
    ('b', Antichain(int64, [5]))
    >>> stand_in(int64, {"a": [3], "b": [5]}, Antichain(int64, [9]), candidates=["a"])
    ('a', Antichain(int64, [9]))
    """
    if domain.is_total:
        furthest: Sequence[Time] = [max((next(iter(times)) for times in promised.values()), key=domain.sort_key)]
    else:
        furthest = list(next(iter(promised.values())))
        for times in promised.values():
            furthest = list(join_antichains(domain, furthest, list(times)))
    chosen = max(candidates or promised, key=lambda name: ([domain.sort_key(time) for time in promised[name]], name))
    return chosen, join_antichains(domain, held, furthest)


def silent_stand_in(domain: TimeDomain, partitions: Mapping[str, ProducerState], held: Antichain) -> dict[str, Antichain]:
    """Return which of an ingest's silent partitions holds the frontier for all of them, and at which times.

    It is empty if none of them has anything more to deliver.

    Args:
        domain: The domain of the times.
        partitions: The partitions that are left. None of them holds anything.
        held: What the ingest held together before.
    """
    idle = {name: PartitionState.of(name, known.state).idle for name, known in partitions.items()}
    promised = {name: each.promised(domain) for name, each in idle.items() if each is not None and each.was}
    if not promised or not held:
        return {}
    chosen, stays = stand_in(domain, promised, held)
    return {chosen: stays}
