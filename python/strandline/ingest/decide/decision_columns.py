"""What a batch's commit states about very many partitions: the decision of the plain steps, made for all at once.

This is for partitions with integer times whose policy needs only the greatest time, and whose state is a few numbers. Any other
partition takes the plain path, which is also the specification. The tests check that both paths give equal results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from strandline.channel import WriterSession
from strandline.channel.progress.capability_updates import CapabilityUpdates
from strandline.channel.progress.producer_state_columns import ProducerStateColumns
from strandline.channel.statements.nullable_int64 import Ints, NullableInt64
from strandline.channel.statements.statement import REGISTRAR
from strandline.channel.statements.statement_columns import MIN_COLUMNAR, Distinct
from strandline.ingest.decide.partition_states import PartitionStates
from strandline.ingest.policies.policy import Policy
from strandline.ingest.policy_calls import promises_of
from strandline.ingest.task.observations import Observations
from strandline.time.antichain import Antichain
from strandline.time.domain import TimeDomain

__all__ = ["capability_updates", "silent_partitions"]

_HEARD = frozenset({"heard", "heardWall"})
"""The keys of readings in a partition's state. A state has one of them."""


def capability_updates(
    seen: Observations,
    table: ProducerStateColumns,
    policy: Policy,
    domain: TimeDomain,
    now: Mapping[str, int],
    counts: Mapping[str, Mapping[str, int]],
    news: Mapping[str, Mapping[str, int]],
    ended: Collection[str],
) -> tuple[Observations, CapabilityUpdates | None]:
    """Return the observations left to judge one by one, and what the other partitions hold and remember from now on.

    ``now`` has the numbers that are the same in every partition's state: the time, and the reading of the clock of silence.
    ``counts`` has what is added to numbers in their states, such as the rows of this batch that were set aside, by partition.
    ``news`` has numbers that take the place of those in their states. ``ended`` has the keys that no state has any more.
    """
    if len(seen.columns.names) < MIN_COLUMNAR:
        return seen, None
    promised = promises_of(policy, seen.columns.greatest, domain)
    if promised is None:
        return seen, None
    rows = table.find(seen.columns.names)
    columnar = (rows >= 0) & table.held[rows] & ~table.irregular[rows]
    if columnar.sum() < MIN_COLUMNAR:
        return seen, None
    columns, rows = seen.columns.where(columnar), rows[columnar]
    count = len(rows)
    gone = {*now, *ended, *(_HEARD if now.keys() & _HEARD else ())}
    kept = [key for key in table.state if key not in gone]
    state = {key: table.state[key].where(rows) for key in kept}
    state |= {key: NullableInt64.constant(value, count) for key, value in now.items()}
    for key, by_partition in counts.items():
        if not by_partition:
            continue
        more = np.array([by_partition.get(name, 0) for name in columns.names], dtype=np.int64)
        before = state.get(key, NullableInt64.none(count))
        state[key] = NullableInt64(np.where(before.valid, before.values, 0) + more, before.valid | (more > 0))
    for key, by_partition in news.items():
        if not by_partition:
            continue
        new = np.array([by_partition.get(name, -1) for name in columns.names], dtype=np.int64)
        before = state.get(key, NullableInt64.none(count))
        state[key] = NullableInt64(np.where(new < 0, before.values, new), before.valid | (new >= 0))
    state = {key: numbers for key, numbers in state.items() if numbers.valid.any()}
    moves = CapabilityUpdates(columns.names, np.maximum(table.times[rows], promised[columnar]), state)
    return Observations(seen.single, seen.columns.where(~columnar)), moves


def silent_partitions(
    table: ProducerStateColumns,
    states: PartitionStates,
    observed: Iterable[str],
    holds: Mapping[str, Antichain],
    owns: Callable[[WriterSession | None], bool],
    is_silent: Callable[[str, Any], bool],
    heard_before: int | None,
    *,
    wall: bool,
) -> tuple[list[str], bool]:
    """Return an ingest's silent partitions that hold anything, and whether another of its partitions holds anything.

    If no other partition holds anything, all silent partitions are returned. A partition is silent if it was last observed at a
    clock reading before ``heard_before``, or if it is already idle.

    Args:
        table: The states of all producers.
        states: The states of the partitions.
        observed: The partitions that delivered rows in this batch.
        holds: The capabilities that this batch changes.
        owns: Returns whether a session belongs to the ingest.
        is_silent: Decides for partitions whose state is more than numbers.
        heard_before: The clock reading before which a partition must have delivered its last rows; ``None`` if nobody is
            judged.
        wall: Whether the clock is the wall clock.
    """
    count = len(table.names)
    sessions = Distinct.of(table.owner[:count])
    judged = np.array([owns(owner) for owner in sessions.owners], dtype=np.bool_)[sessions.which]
    judged[_known(table, (REGISTRAR, *states.own))] = False
    holding = table.held[:count].copy()
    changed = table.find(holds)
    holding[changed[changed >= 0]] = np.array([len(given) > 0 for given in holds.values()], dtype=np.bool_)[changed >= 0]
    asked = judged & table.irregular[:count]
    idle, active_now = _known(table, states.idle), _known(table, observed)
    idle_or_silent = np.zeros(count, dtype=np.bool_) if heard_before is None else _heard(table, wall=wall) < heard_before
    asked[idle] = asked[active_now] = False
    for row in np.flatnonzero(asked).tolist():
        known = table.get(table.names[row])
        idle_or_silent[row] = known is not None and is_silent(table.names[row], known.state)
    idle_or_silent &= holding
    idle_or_silent[idle], idle_or_silent[active_now] = True, False
    idle_or_silent &= judged
    active = bool((judged & ~idle_or_silent & holding).any())
    return [table.names[row] for row in np.flatnonzero(idle_or_silent & holding if active else idle_or_silent).tolist()], active


def _heard(table: ProducerStateColumns, *, wall: bool) -> Ints:
    """Return when each producer was last heard of, or 0 if this clock does not say it."""
    count = len(table.names)
    column = table.state.get("heardWall" if wall else "heard")
    if column is None:
        return np.zeros(count, dtype=np.int64)
    heard = column.where(np.arange(count))
    return np.where(heard.valid, heard.values, 0)


def _known(table: ProducerStateColumns, names: Iterable[str]) -> Ints:
    rows = table.find(names)
    return rows[rows >= 0]
