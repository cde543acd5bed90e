"""Forgetting dead partitions: they leave the channel, and no batch, commit or copy speaks of them any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

from strandline.channel import Channel, ProducerState, Progress, WriterSession
from strandline.channel.statements.statement import REGISTRAR, REMOVED
from strandline.channel.write.append import Append
from strandline.ingest import errors
from strandline.ingest.state.partition_state import PartitionState, states_of_partitions
from strandline.ingest.state.registrar_state import RegistrarState, held_names, own_names
from strandline.json_value import JsonObject

__all__ = ["forget_partitions"]


def forget_partitions(
    path: str,
    names: Iterable[str] | None = None,
    storage: Mapping[str, str] | None = None,
    *,
    before: datetime | None = None,
) -> int | None:
    """Remove dead partitions from the channel, so that they cost nothing any more.

    A partition is dead if it holds nothing and is not idle: it was dropped, or it is complete. ``status`` does not show it any
    more. What it delivered stays, and its rows that were set aside stay counted.

    If a row of a forgotten partition comes nevertheless, the partition joins as a new one does: where new partitions join, so
    its earlier rows are late, and no closed time is opened. In a sealed channel none can join, so such a batch is refused. A name
    that the ingest gives in ``partitions`` joins again with the next batch: remove it there first.

    A hold (``strandline hold``) that was dropped is forgotten if it is named. Then a partition can have its name.

    Args:
        path: The channel's path.
        names: The partitions (default: all that are dead).
        storage: The options of the channel's storage.
        before: Forget only partitions that have delivered no row since this moment, by the driver's clock.

    Returns:
        The channel's version after the call, or ``None`` if there was none to forget.

    Raises:
        IngestError: ``STRANDLINE_PARTITION_UNKNOWN`` for a name that is not a partition of the channel, and
            ``STRANDLINE_PARTITION_NOT_DEAD`` for one that is not dead, or that a manifest counts: it would announce it again.

    ``forget_partitions("/lake/flights", before=datetime(2026, 1, 1, tzinfo=timezone.utc))``
    """
    if before is not None and before.tzinfo is None:
        before = before.replace(tzinfo=timezone.utc)
    until = None if before is None else int(before.timestamp() * 1000)
    channel = Channel.open(path, storage)
    wanted = [names] if isinstance(names, str) else None if names is None else list(dict.fromkeys(names))

    def decide() -> Append | None:
        progress = channel.progress
        own = own_names(progress)
        if wanted is None:
            partitions = progress.producers_but(*own)
            chosen = _dead(progress, partitions)
        else:  # a hold must be named
            partitions = progress.producers_but(*{*own}.difference(held_names(progress)))
            chosen = _checked(path, partitions, wanted)
        if until is not None:
            chosen = [name for name in chosen if (PartitionState.of(name, partitions[name].state).at or 0) < until]
        if not chosen:
            return None
        states = {REGISTRAR: _registrar_state(progress, [(name, partitions[name]) for name in chosen])}
        return Append(session=WriterSession.here(), states=states, removed=tuple(chosen))

    return channel.append_decided(decide).committed


def _dead(progress: Progress, partitions: Mapping[str, ProducerState]) -> list[str]:
    """Return the dead partitions of ingests. A producer without the state of one is another program's."""
    silent = [(name, state.state) for name, state in partitions.items() if not state.holds]
    return sorted(name for name, state in states_of_partitions(progress, silent) if state and _why_not_dead(state) is None)


def _why_not_dead(state: PartitionState) -> str | None:
    if state.idle is not None:
        return "is idle, and continues with its next row"
    if state.soon is not None:
        return "is in its source's first snapshot"
    if isinstance(state.own, dict) and "held" in state.own:
        return "is counted by a manifest, which would announce it again"
    return None


def _checked(path: str, partitions: Mapping[str, ProducerState], names: list[str]) -> list[str]:
    for name in names:
        state = partitions.get(name)
        if state is None:
            raise errors.partition_unknown(path, name, partitions)
        why = f"holds {state.holds.format()}" if state.holds else _why_not_dead(PartitionState.of(name, state.state))
        if why is not None:
            raise errors.partition_not_dead(name, path, why)
    return names


def _registrar_state(progress: Progress, removed: Iterable[tuple[str, ProducerState]]) -> JsonObject:
    """Return the registrar's state: who joins has a greater ``seq`` than those that are removed, and their rows stay counted."""
    registrar, first = RegistrarState.of(progress), progress.first_seq
    for name, known in removed:
        first = max(first, known.seq + 1)
        state = PartitionState.of(name, known.state)
        query = known.owner.id if known.owner is not None else ""
        of = query if query in registrar.entries else next(iter(registrar.entries), None)
        if state.aside and of is not None:
            entry = registrar.entries[of]
            entry = entry.changed(aside_forgotten=(entry.aside_forgotten or 0) + state.aside)
            if state.future:
                entry = entry.changed(future=(entry.future or 0) + state.future)
            registrar = registrar.changed({of: entry})
    return registrar.changed({REMOVED: first}).to_json()
