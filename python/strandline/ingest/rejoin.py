"""A way back for a partition that has run ahead: it joins its ingest again where the other partitions are."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from strandline.channel import Channel, ProducerState, Progress, WriterSession
from strandline.channel.write.append import Append
from strandline.errors import IngestError
from strandline.ingest.recorded import memory_of, own_names
from strandline.time.antichain import Antichain

__all__ = ["REJOINS", "joins_at", "rejoin_partitions", "unknown_partition"]

REJOINS = "rejoins"
"""The key, in what a partition's state says of its idleness, of one that joins again with the next batch of its ingest."""
_FORGOTTEN = ("idle", "own", "soon", "dropped")
"""What the new generation of a partition does not have of the earlier one's state."""


def rejoin_partitions(path: str, names: Iterable[str], storage: Mapping[str, str] | None = None) -> int:
    """Let partitions that have run ahead join their ingest again, each as a new generation, where the other partitions are.

    A device with a wrong clock may have moved its partition's promise years ahead, so that all later rows of the partition are
    set aside. The partition gives up what it holds, and from the next batch on it holds the least time that the other partitions
    of its ingest hold. That is never before the channel's frontier, so what is closed stays closed, and a sealed channel allows
    it. Its rows are judged by that from then on. The policy begins anew with it, and a manifest counts the rows that the channel
    has. Rows that were set aside before stay in the late table: :func:`~strandline.ingest.readmit` adds them. A partition that
    was dropped can rejoin too.

    The query may be running. A batch that has rows of the partition then fails, and succeeds when the query is started again.
    It is one commit.

    Args:
        path: The channel's path.
        names: The partitions.
        storage: The options of the channel's storage.

    Returns:
        The channel's version after the call.

    Raises:
        IngestError: ``STRANDLINE_PARTITION_UNKNOWN`` for a name that is not a partition of the channel,
            ``STRANDLINE_PARTITION_NOT_AHEAD`` for one that is not ahead of the others, ``STRANDLINE_REJOIN_IMPOSSIBLE`` if no
            other partition holds an earlier time.

    ``rejoin_partitions("/lake/flights", ["LGA"])``
    """
    channel = Channel.open(path, storage)
    wanted = [names] if isinstance(names, str) else list(dict.fromkeys(names))
    now = time.time_ns() // 1_000_000

    def decide() -> Append:
        progress = channel.progress
        partitions = progress.producers_but(*own_names(progress))
        for name in wanted:
            if name not in partitions:
                raise unknown_partition(path, name, partitions)
        states: dict[str, Any] = {}
        for name, joins in _joins_at(progress, partitions, wanted).items():
            memory = memory_of(name, partitions[name].state)
            if (memory.get("idle") or {}).get(REJOINS):
                continue  # an earlier call is not applied yet
            _check_ahead(path, name, partitions[name], memory, joins)
            states[name] = _next_generation(memory, [channel.domain.to_json(channel.domain.minimum)], now)
        return Append(
            session=WriterSession.here(),
            holds=dict.fromkeys(states, Antichain(channel.domain)),
            states=states,
            kept=list(states),
        )

    channel.append_decided(decide)
    return channel.version


def joins_at(progress: Progress, names: Collection[str]) -> dict[str, Antichain]:
    """Return where partitions that rejoin will join: at the least times that the other partitions of their ingest hold."""
    return _joins_at(progress, progress.producers_but(*own_names(progress)), names) if names else {}


def _joins_at(progress: Progress, partitions: Mapping[str, ProducerState], names: Collection[str]) -> dict[str, Antichain]:
    owners = {name: _owner(partitions[name]) for name in names}
    held: dict[str | None, set[Any]] = {owner: set() for owner in owners.values()}
    for name, state in partitions.items():
        if name not in owners and (owner := _owner(state)) in held:
            held[owner].update(state.holds)
    least = {owner: Antichain(progress.domain, times) or progress.registrar for owner, times in held.items()}
    return {name: least[owner] for name, owner in owners.items()}


def _owner(state: ProducerState) -> str | None:
    return state.owner.id if state.owner is not None else None


def _check_ahead(path: str, name: str, state: ProducerState, memory: Mapping[str, Any], joins: Antichain) -> None:
    """Raise unless the partition joins at times of which it has promised some: then it gains by it, and loses nothing."""
    domain = joins.domain
    was = memory["idle"]["was"] if "idle" in memory and not state.holds else ()
    promised = Antichain(domain, [*state.holds, *(domain.from_json(time) for time in was)])
    shown = promised.format() if promised else "nothing"
    if not joins or (promised == joins and "idle" not in memory):
        raise IngestError(
            "STRANDLINE_REJOIN_IMPOSSIBLE",
            f"Partition {name!r} of {path} holds {shown}, and no other partition of its ingest holds an earlier time. So the "
            "frontier has passed the times before that, and what is closed is not opened again. Nothing was written.",
            "If the channel has corrections, readmit(path, where=…) adds the rows that were set aside. Otherwise ingest the "
            "stream into a new channel, and let the readers change to it.",
        )
    if promised and not all(joins.less_equal(time) for time in promised):
        raise IngestError(
            "STRANDLINE_PARTITION_NOT_AHEAD",
            f"Partition {name!r} of {path} holds {shown}, and would join at {joins.format()}, which is not before that. Nothing "
            "was written.",
            "Name a partition that is ahead of the others: status(path) shows what each holds. One that is behind and delivers "
            "nothing is dropped.",
        )


def _next_generation(memory: Mapping[str, Any], least: list[Any], now: int) -> dict[str, Any]:
    kept = {key: value for key, value in memory.items() if key not in _FORGOTTEN}
    idle = {"was": least, "since": now, REJOINS: True}
    return {**kept, "generation": memory.get("generation", 1) + 1, "idle": idle}


def unknown_partition(path: str, name: str, partitions: Iterable[str]) -> IngestError:
    """Return the error for a name that is not a partition of the channel."""
    known = sorted(partitions)
    shown = ", ".join(known[:10]) + (f" and {len(known) - 10} more" if len(known) > 10 else "")
    return IngestError(
        "STRANDLINE_PARTITION_UNKNOWN",
        f"{path} has no partition {name!r}. Its partitions: {shown or 'none'}.",
        "Name one of its partitions.",
    )
