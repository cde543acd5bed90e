"""A way back for a partition that has run ahead: it joins its ingest again where the other partitions are."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from strandline.channel import Channel, ProducerState, Progress, WriterSession
from strandline.channel.write.append import Append
from strandline.errors import IngestError
from strandline.ingest import errors
from strandline.ingest.decide.steps.silence import silent_stand_in
from strandline.ingest.late.newest_aside import NewestAside
from strandline.ingest.state.partition_state import IdleState, PartitionState
from strandline.ingest.state.registrar_state import RegistrarState, held_names, own_names
from strandline.json_value import JsonObject
from strandline.shell_words import command
from strandline.time.antichain import Antichain

__all__ = ["joins_at", "owner_id", "rejoin_commands", "rejoin_partitions", "ways_back", "with_way_back"]

_MOST = 20
"""For so many partitions of a batch it is looked whether they may join again."""


def rejoin_partitions(path: str, names: Iterable[str], storage: Mapping[str, str] | None = None) -> int:
    """Let partitions that have run ahead join their ingest again, each as a new generation, where the other partitions are.

    A device with a wrong clock may have moved its partition's promise years ahead, so that all later rows of the partition are
    set aside. The partition gives up what it holds, and from the next batch on it holds the least time that the other partitions
    of its ingest hold. That is never before the channel's frontier, so what is closed stays closed, and a sealed channel allows
    it. If the others are all silent, one of them holds their promises for them, but nothing before the registrar. If there are no
    others, the partition joins as a new one would. Its rows are judged by that from then on. The policy
    begins anew with it, and a manifest counts the rows that the channel has. Rows that were set aside before stay in the late
    table: :func:`~strandline.ingest.readmit` adds them. A partition that was dropped can rejoin too.

    The query may be running. A batch that has rows of the partition then fails, and succeeds when the query is started again.
    It is one commit.

    Args:
        path: The channel's path.
        names: The partitions.
        storage: The options of the channel's storage.

    Returns:
        The channel's version after the call.

    Raises:
        IngestError: ``STRANDLINE_PARTITION_UNKNOWN`` for a name that is not a partition of an ingest of the channel,
            ``STRANDLINE_PARTITION_NOT_AHEAD`` for one that is not ahead of the others, ``STRANDLINE_REJOIN_IMPOSSIBLE`` if no
            other partition holds an earlier time. A producer of ``strandline hold`` is no partition: it may be dropped before
            the next batch, and then the partition would have no time.

    ``rejoin_partitions("/lake/flights", ["LGA"])``
    """
    channel = Channel.open(path, storage)
    wanted = [names] if isinstance(names, str) else list(dict.fromkeys(names))
    now = time.time_ns() // 1_000_000

    def decide() -> Append:
        progress = channel.progress
        partitions, ingests = progress.producers_but(*own_names(progress)), RegistrarState.of(progress).entries
        for name in wanted:
            if name not in partitions:
                raise errors.partition_unknown(path, name, partitions)
            if owner_id(partitions[name]) not in ingests:
                raise errors.partition_unknown_owner(path, name)
        standing = _standing_in(progress, partitions, wanted)
        states: JsonObject = {}
        for name, joins in _joins_at(progress, partitions, wanted, standing).items():
            state = PartitionState.of(name, partitions[name].state)
            if state.idle is not None and state.idle.rejoins:
                continue  # an earlier call is not applied yet
            _check_ahead(progress, path, name, state, joins)
            least = [channel.domain.to_json(channel.domain.minimum)]
            states[name] = _next_generation(state, least, now).to_json()
        holds = {**dict.fromkeys(states, Antichain(channel.domain)), **(standing if states else {})}
        return Append(session=WriterSession.here(), holds=holds, states=states, donors=list(states), kept=list(holds))

    channel.append_decided(decide)
    return channel.version


def with_way_back(newest: NewestAside, progress: Progress, path: str, name: str) -> NewestAside:
    """Return what is known of a partition's rows, with the command by which it may join again, if there is one."""
    way = rejoin_commands(progress, path, [name]).get(name) if newest.only_late else None
    return newest if way is None else replace(newest, rejoin=way)


def rejoin_commands(progress: Progress, path: str, names: Iterable[str]) -> dict[str, str]:
    """Return the commands by which partitions may join their ingests again, for those that :func:`rejoin_partitions` lets join.

    They are looked at together, so that very many partitions are read once: those that may join together may also join alone.
    """
    partitions, entries = progress.producers_but(*own_names(progress)), RegistrarState.of(progress).entries
    asked: dict[str, PartitionState] = {}
    for name in names:
        if name in partitions and owner_id(partitions[name]) in entries:
            state = PartitionState.of(name, partitions[name].state)
            if state.idle is None or not state.idle.rejoins:
                asked[name] = state
    if not asked:
        return {}
    led = {owner_id(state) for name, state in partitions.items() if name not in asked}
    # Without others of their ingest, each joins where the rest of these are.
    groups = [[name for name in asked if owner_id(partitions[name]) in led]]
    groups += [[name] for name in asked if owner_id(partitions[name]) not in led]
    found = {}
    for group in filter(None, groups):
        joins = _joins_at(progress, partitions, group, _standing_in(progress, partitions, group))
        for name in group:
            with suppress(IngestError):
                _check_ahead(progress, "", name, asked[name], joins[name])
                found[name] = command("rejoin", path, name)
    return found


def ways_back(progress: Progress, path: str, names: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Return for partitions with late rows the commands by which they may join again, and which are not waited for."""
    states = {name: PartitionState.of(name, known.state) for name in islice(names, _MOST) if (known := progress.get(name))}
    only_late = [name for name, state in states.items() if (newest := NewestAside.of(state)) is not None and newest.only_late]
    rejoin = rejoin_commands(progress, path, only_late)
    return rejoin, [name for name, state in states.items() if name not in rejoin and state.idle is not None]


def joins_at(progress: Progress, names: Collection[str]) -> dict[str, Antichain]:
    """Return where partitions that rejoin will join: at the least times that the other partitions of their ingest hold."""
    return _joins_at(progress, progress.producers_but(*own_names(progress)), names, {}) if names else {}


def _joins_at(
    progress: Progress, partitions: Mapping[str, ProducerState], names: Collection[str], standing: Mapping[str, Antichain]
) -> dict[str, Antichain]:
    owners = {name: owner_id(partitions[name]) for name in names}
    held: dict[str | None, set[Any]] = {owner: set() for owner in owners.values()}
    for name, state in partitions.items():
        if name not in owners and (owner := owner_id(state)) in held:
            held[owner].update(standing.get(name, state.holds))
    least = {owner: Antichain(progress.domain, times) or progress.registrar for owner, times in held.items()}
    return {name: least[owner] for name, owner in owners.items()}


def _standing_in(progress: Progress, partitions: Mapping[str, ProducerState], names: Collection[str]) -> dict[str, Antichain]:
    """Return what silent partitions hold for their ingests when these partitions give up what the ingests hold."""
    standing: dict[str, Antichain] = {}
    for owner in {owner_id(partitions[name]) for name in names}:
        others = {name: state for name, state in partitions.items() if owner_id(state) == owner and name not in names}
        if not any(state.holds for state in others.values()):
            standing |= silent_stand_in(progress.domain, others, progress.registrar)
    return standing


def owner_id(state: ProducerState) -> str | None:
    """Return the query that a partition belongs to, if it belongs to one."""
    return state.owner.id if state.owner is not None else None


def _check_ahead(progress: Progress, path: str, name: str, state: PartitionState, joins: Antichain) -> None:
    """Raise unless the partition joins at times of which it has promised some: then it gains by it, and loses nothing."""
    domain, known = joins.domain, progress.producers[name]
    was = state.idle.promised(domain) if state.idle is not None and not known.holds else ()
    promised = Antichain(domain, [*known.holds, *was])
    shown = promised.format() if promised else "nothing"
    if not joins or (promised == joins and state.idle is None):
        for hold in held_names(progress):
            if (held := progress.producers[hold].holds) and not joins.dominates(held):
                raise errors.rejoin_impossible_beside_hold(name, path, shown, hold, held.format())
        raise errors.rejoin_impossible(name, path, shown)
    if promised and not all(joins.less_equal(time) for time in promised):
        raise errors.partition_not_ahead(name, path, shown, joins.format())


def _next_generation(state: PartitionState, least: list[Any], now: int) -> PartitionState:
    """Return the state of a partition's next generation: its policy begins anew, and it is not waited for until it joins."""
    generation = 1 if state.generation is None else state.generation
    cancelled = state.own.get("cancelled") if isinstance(state.own, dict) else None  # no row of the channel stands for these
    own = None if cancelled is None else {"came": cancelled, "cancelled": cancelled}
    state = state.changed(idle=None, own=own, soon=None, dropped=None)
    idle = IdleState().changed(was=least, since=now, rejoins=True)
    return state.changed(generation=generation + 1, idle=idle)
