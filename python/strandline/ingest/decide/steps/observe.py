"""The third step: what partitions promise after what they have delivered, and after outside changes."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.ingest.decide import decision_columns
from strandline.ingest.decide.given import Changes, Given
from strandline.ingest.decide.steps.promise import Resumed, nothing, promise, promise_unseen, resume
from strandline.ingest.state.partition_state import PartitionState
from strandline.ingest.task.observations import Observations
from strandline.time.antichain import Antichain

__all__ = ["observe"]


def observe(given: Given, changes: Changes) -> Changes:
    """Return the changes with what the batch's tasks have observed, and outside changes."""
    left, changes = _at_once(given, changes)
    changes = changes.then(_one_by_one(given, changes, left))
    changes = changes.then(_rejoining(given, changes))
    every = given.partitions if given.batch.changed is None else given.batch.changed
    changes = changes.then(_outside(given, changes, every))
    if given.entry.snapshot and not given.batch.moment.in_snapshot:
        changes = changes.then(_end_snapshot(given, changes))
    return changes.then(_counted(given, changes))


def _at_once(given: Given, changes: Changes) -> tuple[Observations, Changes]:
    """Apply the observations that can be applied all at once, and return the others."""
    table, seen, batch = given.progress.columns, given.seen, given.batch
    snapshot = batch.moment.in_snapshot or given.entry.snapshot
    if table is None or snapshot or changes.adopted or given.ownership.claimed:
        return seen, changes
    now = PartitionState().changed(at=batch.moment.now_ms)
    if given.clock.judges:
        now = given.clock.heard(given.policy, now)
    numbers = {key: value for key, value in now.to_json().items() if isinstance(value, int)}  # nothing else was set
    counts = {"aside": batch.aside_by_partition, "future": batch.future}
    newest = dict.fromkeys(batch.aside_by_partition, batch.moment.now_ms)
    news = {"asideAt": newest, "asideRows": batch.aside_by_partition, "asideWhy": batch.main_reason}
    left, moves = decision_columns.capability_updates(
        seen, table, given.policy, given.settings.domain, numbers, counts, news, ended=("onlyAside",)
    )
    return left, changes.then(Changes(moves=moves))


def _one_by_one(given: Given, changes: Changes, seen: Observations) -> Changes:
    """Return what changes for partitions that have delivered something."""
    holds: dict[str, Antichain] = {}
    states: dict[str, PartitionState] = {}
    donors = frozenset[str]()
    batch = given.batch
    for name, observation in seen.items():
        known = name in given.partitions or name in changes.states
        state = given.state_of(name, changes) if known else PartitionState()
        again = resume(given, name, state) if name in given.states.idle else Resumed(state)
        donors |= again.donors
        state = given.counted(name, again.state.changed(at=batch.moment.now_ms))
        policy = given.policy.for_partition(name)
        if policy.idle_after_ms is not None and (name in given.heard or not known):
            state = given.clock.heard(policy, state)
        recount = again.recounts or name in changes.recounts
        holds[name], states[name] = promise(given, observation, state, again.held, recount=recount)
    return Changes(holds, states, donors=donors)


def _rejoining(given: Given, changes: Changes) -> Changes:
    """Return what changes for partitions that an operator lets rejoin, and that delivered nothing."""
    holds: dict[str, Antichain] = {}
    states: dict[str, PartitionState] = {}
    donors = frozenset[str]()
    for name, idle in given.states.idle.items():
        if not idle.rejoins or name in given.seen or not given.is_own(name, given.partitions[name]):
            continue
        state = given.state_of(name, changes)
        if state.idle is not None and (policy := given.policy_of(name)) is not None:
            again = resume(given, name, state)
            donors |= again.donors
            state = given.clock.heard(policy, again.state) if given.clock.judges else again.state
            holds[name], states[name] = promise(given, nothing(name), state, again.held, recount=again.recounts)
    return Changes(holds, states, donors=donors, rejoined=tuple(holds))


def _outside(given: Given, changes: Changes, names: Iterable[str]) -> Changes:
    """Return what outside changes change for the ingest's partitions that have delivered nothing."""
    holds: dict[str, Antichain] = {}
    states: dict[str, PartitionState] = {}
    partitions = given.partitions
    for name in names:
        new = name not in given.seen and name not in changes.holds
        if new and name in partitions and given.is_own(name, partitions[name]):
            promised = promise_unseen(given, name, given.state_of(name, Changes()))
            if promised is not None:
                holds[name], states[name] = promised
    return Changes(holds, states)


def _end_snapshot(given: Given, changes: Changes) -> Changes:
    """Return what changes at the end of the first snapshot: from now on, what partitions promised during it counts."""
    names = [
        name
        for name, known in given.partitions.items()
        if name not in given.seen
        and name not in changes.holds
        and given.ownership.owns(known.owner)
        and PartitionState.of(name, known.state).soon is not None
    ]
    return _outside(given, changes, names)


def _counted(given: Given, changes: Changes) -> Changes:
    """Count the rows of partitions that delivered nothing else than rows which are set aside and end no silence."""
    batch = given.batch
    holds: dict[str, Antichain] = {}
    states: dict[str, PartitionState] = {}
    unplaced = [0, 0]
    for name, rows in batch.aside_by_partition.items():
        if name in given.seen:
            continue
        known = given.partitions.get(name)
        counts = rows, batch.future.get(name, 0)
        if name in changes.states or (known is not None and given.is_own(name, known)):
            states[name] = given.counted(name, given.state_of(name, changes))
            if known is not None and name not in changes.holds:
                holds[name] = known.holds
        else:  # it has not joined, or belongs to another query
            unplaced = [total + n for total, n in zip(unplaced, counts, strict=True)]
    return Changes(holds, states, unplaced=unplaced[0], unplaced_future=unplaced[1])
