"""The state of an ingest: what its partitions hold, when they delivered rows, and which rows were set aside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from strandline.channel import Channel, ProducerState, Progress
from strandline.errors import StrandlineError, printable
from strandline.ingest.late.late_table import check_storage, is_published, pending
from strandline.ingest.late.lateness import MOVES_NOTHING
from strandline.ingest.late.newest_aside import NewestAside, shown_ms
from strandline.ingest.names import OWN_PREFIX, PARKED
from strandline.ingest.rejoin import joins_at, rejoin_commands
from strandline.ingest.state.parked_state import ParkedState
from strandline.ingest.state.partition_state import states_of_partitions
from strandline.ingest.state.query_entry import QueryEntry
from strandline.ingest.state.registrar_state import RegistrarState, held_names
from strandline.shell_words import command, drop_command
from strandline.time.antichain import Antichain
from strandline.time.domain import Time
from strandline.time.time_text import asked_time

__all__ = ["PartitionStatus", "Status", "aside_by_reason", "idle_problem", "only_aside_of", "status", "status_of"]

_SHOWN = 10
"""So many partitions are listed in a text."""
_MOST_WAYS_BACK = 100


@dataclass(frozen=True)
class PartitionStatus:
    """One partition: what it holds, when it last delivered anything, and how many of its rows were set aside.

    ``idle_since`` is when the ingest stopped waiting for the partition, or ``None`` while it waits. Clock times are in ms since
    1970.
    """

    name: str
    holds: Antichain
    last_ms: int | None
    aside: int
    idle_since: int | None
    holds_back: bool
    future: int = 0
    """How many of the rows that were set aside are dated too far ahead of the clock (``maxFuture``)."""
    generation: int = 1
    """How often the partition has joined. After :func:`rejoin_partitions`, ``holds`` is where it joins with the next batch."""
    newest_aside: NewestAside | None = None
    """The newest batch that set rows of it aside; ``None`` if there is none, or an older version wrote the state."""

    @property
    def delivered(self) -> str:
        """When the partition last delivered rows, in words."""
        newest = self.newest_aside
        more = f"; {newest}" if newest is not None and newest.reason not in MOVES_NOTHING else ""
        were = "was" if self.future == 1 else "were"
        more += f"; {self.future} of its rows {were} set aside, dated in the future" if self.future else ""
        more += f"; it has rejoined, as generation {self.generation}" if self.generation > 1 else ""
        if self.last_ms is None:
            return f"no rows so far{more}"
        idle = "; idle, but no other partition of this ingest holds a later time" if self.idle_since is not None else ""
        return f"last rows at {shown_ms(self.last_ms)}{idle}{more}"


@dataclass(frozen=True)
class Status:
    """An ingest's channel as of ``version``. Printed, it says which partition holds back the frontier, and since when."""

    path: str
    version: int
    frontier: Antichain
    policies: tuple[str, ...]
    partitions: tuple[PartitionStatus, ...]
    parked_rows: int
    aside_without_partition: int
    """Rows that were set aside without a partition, or for a partition that was forgotten."""
    registrar: Antichain
    silence_unknowable: bool = False
    """Whether ``idle`` was requested, but cannot be judged. Batches may leave rows waiting (option ``readsToEnd``), or it is not
    known as of when a batch read its source (``counts=wall``, and a checkpoint that Python cannot read)."""
    unpublished: tuple[tuple[str, str, int], ...] = ()
    """Late rows that are decided, but not in their late table yet: the query, the table's path, the number of rows."""
    unreadable: tuple[tuple[str, str], ...] = ()
    """Late tables that cannot be read, so their content is unknown: the table's path, the error."""
    future_without_partition: int = 0
    aside_by_reason: Mapping[str, int] = field(default_factory=dict)
    """How many rows of all partitions were set aside, by reason. Those that older versions set aside are missing."""
    held: Mapping[str, Antichain] = field(default_factory=dict)
    """What operators hold (``strandline hold``), by the names of the holds."""

    @property
    def aside(self) -> int:
        """The total number of rows that were set aside."""
        return self.aside_without_partition + sum(p.aside for p in self.partitions)

    @property
    def future(self) -> int:
        """How many of them are dated too far ahead of the clock (``maxFuture``)."""
        return self.future_without_partition + sum(p.future for p in self.partitions)

    @property
    def aside_text(self) -> str:
        """How many rows were set aside, why, and of which partitions, in words.

        >>> from strandline.time.domain import int64
        >>> closed = Antichain(int64)
        >>> parts = [PartitionStatus(name, closed, 0, rows, None, False) for name, rows in (("b", 3), ("c", 0))]
        >>> Status("/a", 7, closed, (), tuple(parts), 0, 1, closed, aside_by_reason={"late": 1, "null time": 3}).aside_text
        '4 rows set aside (3 null time, 1 late): 3 of b, 1 without a partition that is known'
        """
        if not self.aside:
            return "0 rows set aside"
        by = sorted(self.aside_by_reason.items(), key=lambda entry: (-entry[1], entry[0]))
        why = f" ({', '.join(f'{rows} {reason}' for reason, rows in by)})" if by else ""
        of = sorted((p for p in self.partitions if p.aside), key=lambda p: (-p.aside, p.name))
        shown = [f"{p.aside} of {p.name}" for p in of[:_SHOWN]]
        shown += [f"{sum(p.aside for p in of[_SHOWN:])} of {len(of) - _SHOWN} more"] if len(of) > _SHOWN else []
        shown += [f"{self.aside_without_partition} without a partition that is known"] if self.aside_without_partition else []
        return f"{self.aside} row{'' if self.aside == 1 else 's'} set aside{why}: {', '.join(shown)}"

    @property
    def idle_problem(self) -> str:
        """Why no silence counts, in words, if it is not known (``silence_unknowable``)."""
        return idle_problem(wall=any("counts=wall" in policy for policy in self.policies))

    @property
    def remedies(self) -> list[str]:
        """For each partition whose rows are all late, and that may join its ingest again: what it is, and what to do."""
        asides = [(p.name, p.newest_aside) for p in self.partitions if p.newest_aside is not None and p.newest_aside.rejoin]
        return [f"partition {name}: {newest}; {newest.remedy}" for name, newest in asides]

    def explain(self, at: Time | str | None = None) -> str:
        """Return why ``at`` (default: the frontier) is still open, with a line for each holder, or that it is closed.

        ``at`` is a time, or its text, such as ``"2026-03-01T12:00Z"``.

        >>> from strandline.time.domain import int64
        >>> part = PartitionStatus("JFK", Antichain(int64, [5]), 0, 0, None, True)
        >>> closed = Antichain(int64)
        >>> print(Status("/lake/flights", 7, Antichain(int64, [5]), ("ordered()",), (part,), 0, 0, closed).explain(6))
        6 is open: JFK holds 5, last rows at 1970-01-01T00:00:00Z
        """
        domain = self.frontier.domain
        asked = list(self.frontier) if at is None else [asked_time(domain, at)]
        if not asked:
            return "everything is closed: no producer holds a capability"
        lines = []
        for wanted in asked:
            holders = [(p.name, p.holds, p.delivered) for p in self.partitions if p.holds.less_equal(wanted)]
            for name, holds in self.held.items():
                if holds.less_equal(wanted):
                    holders.append((name, holds, f"by strandline hold; release it with: {drop_command(self.path, name)}"))
            if not holders and self.registrar.less_equal(wanted):
                at_ = _shown(self.registrar)
                lines.append(f"{domain.format(wanted)} is open: the channel is not sealed, so partitions may join at {at_}")
            elif not holders and self.frontier.closed(wanted):
                lines.append(f"{domain.format(wanted)} is closed")
            elif not holders:
                lines.append(f"{domain.format(wanted)} is open: the ingest itself holds {_shown(self.frontier)}")
            first = f"{domain.format(wanted)} is open: "
            for name, holds, why in holders:
                lines.append(f"{first}{name} holds {_shown(holds)}, {why}")
                first = " " * len(first)
        return "\n".join(printable(line).replace("\n", "\\n") for line in lines)

    def __str__(self) -> str:
        idle = [p.name for p in self.partitions if p.idle_since is not None]
        policies = " and ".join(self.policies) or "no policy"
        lines = [f"{self.path}, version {self.version}, {len(self.partitions)} partitions by {policies}"]
        lines.append(f"{self.aside_text}" + (f", {self.parked_rows} parked ahead" if self.parked_rows else ""))
        if idle:
            lines.append(f"idle: {', '.join(idle[:10])}{' …' if len(idle) > 10 else ''}")
        again = [f"{p.name} (generation {p.generation})" for p in self.partitions if p.generation > 1]
        if again:
            lines.append(f"rejoined: {', '.join(again[:10])}{' …' if len(again) > 10 else ''}")
        lines += self.remedies[:_SHOWN]
        for query, late_path, rows in self.unpublished:
            remedy = f"publish them with: {command('publish-late', self.path)}"
            lines.append(f"{rows} late rows of query {query} are not yet in {late_path}; {remedy}")
        lines += [f"the late table {late_path} cannot be read: {error}" for late_path, error in self.unreadable]
        if self.silence_unknowable:
            lines.append(self.idle_problem)
        return "\n".join([*(printable(line).replace("\n", "\\n") for line in lines), self.explain()])


def _shown(times: Antichain) -> str:
    return ", ".join(times.domain.format(time) for time in times) or "nothing"


def idle_problem(*, wall: bool) -> str:
    """Return in words why no silence counts. ``wall``: whether it would be counted on the wall clock."""
    why = "a batch may leave rows of the source unread (option readsToEnd)"
    if wall:
        why += ", or Python cannot read the query's checkpoint (option checkpointLocation)"
    return f"idle() has no effect: {why}"


def status(path: str, storage: Mapping[str, str] | None = None) -> Status:
    """Return the state of an ingest's partitions.

    Args:
        path: The channel's path.
        storage: The options of the channel's storage.

    Raises:
        ChannelError: There is no channel at ``path``, or it cannot be read.

    ``print(status("/lake/flights"))``
    """
    return status_of(Channel.open(path, storage))


def status_of(channel: Channel) -> Status:
    """Return the state of an ingest's partitions as of an opened channel's version. See :func:`status`."""
    frontier = channel.frontier
    partitions = []
    apart = {*held_names(channel.progress)}
    producers = {
        name: known for name, known in channel.producers.items() if not name.startswith(OWN_PREFIX) and name not in apart
    }
    states = dict(states_of_partitions(channel.progress, ((name, known.state) for name, known in producers.items())))
    rejoin = [name for name, state in states.items() if state.idle is not None and state.idle.rejoins]
    joins = joins_at(channel.progress, [name for name in rejoin if not producers[name].holds])
    for name, state in states.items():
        known, idle = producers[name], state.idle
        partitions.append(
            PartitionStatus(
                name,
                joins[name] if name in joins else known.holds.copy(),
                state.at,
                state.aside or 0,
                None if idle is None or idle.rejoins else idle.since,
                any(time in frontier for time in known.holds),
                state.future or 0,
                1 if state.generation is None else state.generation,
                NewestAside.of(state),
            )
        )
    only_late = [p.name for p in partitions if p.newest_aside is not None and p.newest_aside.only_late]
    ways = rejoin_commands(channel.progress, channel.path, only_late[:_MOST_WAYS_BACK])
    partitions = [_with_way_back(partition, ways.get(partition.name)) for partition in partitions] if ways else partitions
    entries = RegistrarState.of(channel.progress).entries.values()
    unpublished, unreadable = _unpublished(channel)
    parked = [ParkedState.of(name, known) for name, known in channel.producers.items() if name.startswith(PARKED)]
    return Status(
        channel.path,
        channel.version,
        frontier,
        tuple(dict.fromkeys(entry.policy for entry in entries if entry.policy is not None)),
        tuple(sorted(partitions, key=lambda p: p.name)),
        sum(each.rows or 0 for each in parked),
        sum((entry.aside or 0) + (entry.aside_forgotten or 0) for entry in entries),
        channel.registrar,
        any(entry.clock is not None and entry.clock.certain is False for entry in entries),
        unpublished,
        unreadable,
        sum(entry.future or 0 for entry in entries),
        aside_by_reason(entries),
        {name: holds for name in held_names(channel.progress) if (holds := channel.producers[name].holds.copy())},
    )


def aside_by_reason(entries: Iterable[QueryEntry]) -> dict[str, int]:
    """Return how many rows the queries of a channel have set aside, by reason."""
    by: dict[str, int] = {}
    for entry in entries:
        for reason, rows in (entry.aside_by or {}).items():
            by[reason] = by.get(reason, 0) + rows
    return by


def _with_way_back(partition: PartitionStatus, way: str | None) -> PartitionStatus:
    newest = partition.newest_aside
    return partition if way is None or newest is None else replace(partition, newest_aside=replace(newest, rejoin=way))


def only_aside_of(progress: Progress, query: str) -> int:
    """Return of how many partitions of a query all rows are set aside since some batch. Very many cost little."""
    table = progress.columns
    states: Iterable[ProducerState | None] = progress.producers.values()
    if table is not None:
        there = table.irregular[: len(table)].copy()
        if "onlyAside" in table.state:
            there |= table.state["onlyAside"].valid[: len(table)]
        states = (table.get(table.names[row]) for row in np.flatnonzero(there).tolist())
    mine = (state.state for state in states if state is not None and state.owner is not None and state.owner.id == query)
    return sum(isinstance(memory, dict) and "onlyAside" in memory for memory in mine)


def _unpublished(channel: Channel) -> tuple[tuple[tuple[str, str, int], ...], tuple[tuple[str, str], ...]]:
    """Return the late rows that are not in their late tables yet, and the late tables that cannot be read."""
    found, unreadable = [], {}
    for late_path, publication in pending(channel):
        try:
            if not is_published(check_storage(late_path, channel.path), publication, channel.storage_options):
                found.append((publication.query, late_path, publication.rows))
        except StrandlineError as error:  # noqa: PERF203 - the other tables can be read
            unreadable[late_path] = str(error)
    return tuple(found), tuple(unreadable.items())
