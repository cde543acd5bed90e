"""What a batch's commit states of very many partitions: as :class:`BatchDecision` says it, all at once.

For partitions of integer times whose policy needs no more than the greatest of them, and whose state is a few numbers. Any other
goes the plain way, which is also the specification: the tests hold both equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from strandline.channel import WriterSession
from strandline.channel.progress.capability_updates import CapabilityUpdates
from strandline.channel.progress.producer_state_columns import ProducerStateColumns
from strandline.channel.statements.nullable_int64 import Ints, NullableInt64
from strandline.channel.statements.statement import REGISTRAR
from strandline.channel.statements.statement_columns import MIN_COLUMNAR, Distinct
from strandline.ingest.decide.partition_states import PartitionStates
from strandline.ingest.policies.policy import Policy, promised_at_once
from strandline.ingest.task.observations import Observations
from strandline.time.antichain import Antichain

__all__ = ["moved", "silent"]


def moved(
    seen: Observations, table: ProducerStateColumns, policy: Policy, now: Mapping[str, int], aside: Mapping[str, int]
) -> tuple[Observations, CapabilityUpdates | None]:
    """What is left to be looked at one by one, and what the others hold and remember from now on.

    ``now`` are the numbers that are the same in everybody's state: when it was, what the listening clock read. ``aside`` counts
    what was set aside in this batch.
    """
    if len(seen.columns.names) < MIN_COLUMNAR:
        return seen, None
    promised = promised_at_once(policy, seen.columns.greatest)
    if promised is None:
        return seen, None
    rows = table.find(seen.columns.names)
    plain = (rows >= 0) & table.held[rows] & ~table.irregular[rows]
    if plain.sum() < MIN_COLUMNAR:
        return seen, None
    columns, rows = seen.columns.where(plain), rows[plain]
    count = len(rows)
    state = {key: numbers.where(rows) for key, numbers in table.state.items() if key not in now}
    state |= {key: NullableInt64.constant(value, count) for key, value in now.items()}
    if aside:
        more = np.array([aside.get(name, 0) for name in columns.names], dtype=np.int64)
        before = state.get("aside", NullableInt64.none(count))
        state["aside"] = NullableInt64(np.where(before.valid, before.values, 0) + more, before.valid | (more > 0))
    state = {key: numbers for key, numbers in state.items() if numbers.valid.any()}
    moves = CapabilityUpdates(columns.names, np.maximum(table.times[rows], promised[plain]), state)
    return Observations(seen.single, seen.columns.where(~plain)), moves


def silent(
    table: ProducerStateColumns,
    standing: PartitionStates,
    spoke: Iterable[str],
    holds: Mapping[str, Antichain],
    mine: Callable[[WriterSession | None], bool],
    is_silent: Callable[[str, Any], bool],
    heard_before: int,
) -> tuple[list[str], bool]:
    """The silent ones of an ingest's partitions that hold anything, and whether another one holds anything.

    If no other one does, all silent ones are told. ``mine`` says which sessions are the ingest's, ``holds`` what this batch
    changes. Silent is who was last heard at a reading of the clock before ``heard_before``, who is idle already, and of those
    whose state is more than numbers, whom ``is_silent`` says.
    """
    count = len(table.names)
    sessions = Distinct.of(table.owner[:count])
    judged = np.array([mine(owner) for owner in sessions.owners], dtype=np.bool_)[sessions.which]
    judged[_known(table, (REGISTRAR, *standing.own))] = False
    holding = table.held[:count].copy()
    changed = table.find(holds)
    holding[changed[changed >= 0]] = np.array([len(given) > 0 for given in holds.values()], dtype=np.bool_)[changed >= 0]
    heard = table.state["heard"].where(np.arange(count)) if "heard" in table.state else NullableInt64.none(count)
    quiet = np.where(heard.valid, heard.values, 0) < heard_before
    asked = judged & table.irregular[:count]
    idle, spoken = _known(table, standing.idle), _known(table, spoke)
    asked[idle] = asked[spoken] = False
    for row in np.flatnonzero(asked).tolist():
        known = table.get(table.names[row])
        quiet[row] = known is not None and is_silent(table.names[row], known.state)
    quiet &= holding
    quiet[idle], quiet[spoken] = True, False
    quiet &= judged
    active = bool((judged & ~quiet & holding).any())
    return [table.names[row] for row in np.flatnonzero(quiet & holding if active else quiet).tolist()], active


def _known(table: ProducerStateColumns, names: Iterable[str]) -> Ints:
    rows = table.find(names)
    return rows[rows >= 0]
