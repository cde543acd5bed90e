"""What an operator does with a running ingest: look at its partitions, ask what holds a time back, give up a dead one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from strandline.antichain import Antichain
from strandline.channel import Channel
from strandline.channel.statement import REGISTRAR
from strandline.ingest.errors import IngestError
from strandline.ingest.late import LateTable
from strandline.ingest.settings import OWN_PREFIX
from strandline.ingest.standing import OWN, PARKED
from strandline.order import Time

__all__ = ["PartitionStatus", "Status", "drop_partitions", "status"]


@dataclass(frozen=True)
class PartitionStatus:
    """One partition: what it holds, when it last brought anything, how many of its rows were set aside.

    ``idle_since`` is when the ingest stopped waiting for it; ``None`` while it does wait. Times of the clock are in ms since
    1970.
    """

    name: str
    holds: Antichain
    last_ms: int | None
    aside: int
    idle_since: int | None
    holds_back: bool


@dataclass(frozen=True)
class Status:
    """An ingest's channel as of ``version``. ``print`` it: it says which partition holds the frontier back, and since when."""

    path: str
    version: int
    frontier: Antichain
    policies: tuple[str, ...]
    partitions: tuple[PartitionStatus, ...]
    parked_rows: int
    aside_without_partition: int
    registrar: Antichain
    silence_unknowable: bool = False
    """Whether ``idle`` was asked for, and cannot be judged because batches may leave rows waiting (option ``readsToEnd``)."""

    @property
    def aside(self) -> int:
        """How many rows were set aside in all."""
        return self.aside_without_partition + sum(p.aside for p in self.partitions)

    def explain(self, at: Time | None = None) -> str:
        """Why ``at`` (default: the frontier) is still open, a line for each that holds it; or that it is closed.

        >>> from strandline.order import int64
        >>> part = PartitionStatus("JFK", Antichain(int64, [5]), 0, 0, None, True)
        >>> closed = Antichain(int64)
        >>> print(Status("/lake/flights", 7, Antichain(int64, [5]), ("ordered()",), (part,), 0, 0, closed).explain(6))
        6 is open: JFK holds 5, last heard of at 1970-01-01T00:00:00Z
        """
        domain = self.frontier.domain
        asked = list(self.frontier) if at is None else [domain.time(at)]
        if not asked:
            return "everything is closed: nobody holds anything"
        lines = []
        for wanted in asked:
            holders = [p for p in self.partitions if p.holds.less_equal(wanted)]
            if not holders and self.registrar.less_equal(wanted):
                at_ = _shown(self.registrar)
                lines.append(f"{domain.format(wanted)} is open: the channel is not sealed, new partitions may join at {at_}")
            elif not holders and self.frontier.closed(wanted):
                lines.append(f"{domain.format(wanted)} is closed")
            elif not holders:
                lines.append(f"{domain.format(wanted)} is open: the ingest itself holds {_shown(self.frontier)}")
            first = f"{domain.format(wanted)} is open: "
            for p in holders:
                lines.append(f"{first}{p.name} holds {_shown(p.holds)}, {_since(p)}")
                first = " " * len(first)
        return "\n".join(lines)

    def __str__(self) -> str:
        idle = [p.name for p in self.partitions if p.idle_since is not None]
        policies = " and ".join(self.policies) or "no policy"
        lines = [f"{self.path}, version {self.version}, {len(self.partitions)} partitions by {policies}"]
        lines.append(f"{self.aside} rows set aside" + (f", {self.parked_rows} parked ahead" if self.parked_rows else ""))
        if idle:
            lines.append(f"not waited for: {', '.join(idle[:10])}{' …' if len(idle) > 10 else ''}")
        if self.silence_unknowable:
            lines.append("idle() judges nobody: the source may leave rows waiting (option readsToEnd)")
        return "\n".join([*lines, self.explain()])


def _shown(times: Antichain) -> str:
    return ", ".join(times.domain.format(time) for time in times) or "nothing"


def _since(partition: PartitionStatus) -> str:
    if partition.last_ms is None:
        return "which it never brought a row of"
    moment = datetime.fromtimestamp(partition.last_ms / 1000, timezone.utc).isoformat().replace("+00:00", "Z")
    idle = "; not waited for, yet nobody else holds more" if partition.idle_since is not None else ""
    return f"last heard of at {moment}{idle}"


def status(path: str, storage: Mapping[str, str] | None = None) -> Status:
    """Where an ingest's partitions stand.

    ``print(status("/lake/flights"))``
    """
    channel = Channel.open(path, storage)
    frontier = channel.frontier
    partitions = []
    for name, state in channel.producers.items():
        if name.startswith(OWN_PREFIX):
            continue
        memory: dict[str, Any] = state.state if isinstance(state.state, dict) else {}
        idle = memory.get("idle")
        partitions.append(
            PartitionStatus(
                name,
                state.holds.copy(),
                memory.get("at"),
                memory.get("aside", 0),
                None if idle is None else idle["since"],
                any(time in frontier for time in state.holds),
            )
        )
    registrar = channel.progress.get(REGISTRAR)
    common = [c for c in ((registrar.state if registrar else None) or {}).values() if isinstance(c, dict)]
    parked = channel.producers.get(PARKED)
    return Status(
        path,
        channel.version,
        frontier,
        tuple(dict.fromkeys(c["policy"] for c in common if "policy" in c)),
        tuple(sorted(partitions, key=lambda p: p.name)),
        (parked.state or {}).get("rows", 0) if parked is not None else 0,
        sum(c.get("aside", 0) for c in common),
        channel.registrar,
        any(c.get("clock", {}).get("certain") is False for c in common),
    )


def drop_partitions(path: str, names: Iterable[str], storage: Mapping[str, str] | None = None) -> int:
    """Give up partitions that are dead: they hold no time open any more. The channel's version after it.

    A decision for good, which nobody but an operator takes: rows that such a partition brings after all are set aside. The query
    may be running; a batch in which the partition does have rows then fails, and goes well when the query is started again.

    Raises :class:`IngestError` for a name that is no partition of the channel, and when the query was killed between its two
    commits: then it must run once before.

    ``drop_partitions("/lake/flights", ["LGA"])``
    """
    channel = Channel.open(path, storage)
    wanted = [names] if isinstance(names, str) else list(dict.fromkeys(names))
    unknown = [name for name in wanted if name not in channel.producers or name.startswith(OWN_PREFIX)]
    if unknown:
        known = sorted(name for name in channel.producers if not name.startswith(OWN_PREFIX))
        raise IngestError(
            "STRANDLINE_PARTITION_UNKNOWN",
            f"{path} has no partition {unknown[0]!r}; it has {', '.join(known) or 'none'}.",
            "Name one of them.",
        )
    _refuse_half_done(channel, storage)
    for name in wanted:
        # A session of our own, closed at once: the query goes on with its other partitions.
        session = channel.producer(name, take_over=True)
        memory = dict(session.state or {})
        memory.pop("idle", None)
        session.state = {**memory, "dropped": time.time_ns() // 1_000_000}
        session.drop()
        session.close()
    channel.append([], statements={}, follow=True, apart=OWN)
    return channel.version


def _refuse_half_done(channel: Channel, storage: Mapping[str, str] | None) -> None:
    """What is late in a batch that has reached the late table alone must be late again in its replay."""
    registrar = channel.progress.get(REGISTRAR)
    for query, common in ((registrar.state if registrar else None) or {}).items():
        late = common.get("late") if isinstance(common, dict) else None
        if late is None:
            continue
        newest, done = LateTable(late, storage).committed(query), channel.transaction_version(query)
        if newest > (-1 if done is None else done):
            raise IngestError(
                "STRANDLINE_BATCH_HALF_DONE",
                f"Batch {newest} of query {query} is in the late table {late}, and not in {channel.path} yet.",
                "Start the query until it has committed that batch, then drop the partition.",
            )
