"""Operator actions on a running ingest: inspect its partitions, ask what holds back a time, give up a dead partition."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial

from strandline.channel import Channel, ProducerState, Progress, Span, WriterSession
from strandline.channel.statements.statement import REGISTRAR
from strandline.channel.write.append import Append
from strandline.delta.storage import location_of, open_store
from strandline.errors import StrandlineError, printable
from strandline.ingest import errors
from strandline.ingest.decide.steps.silence import silent_stand_in
from strandline.ingest.late.late_table import (
    Publication,
    check_storage,
    is_published,
    is_table,
    missing,
    pending,
    publish,
)
from strandline.ingest.names import CORRECTIONS, OWN_PREFIX, PARKED
from strandline.ingest.parked.files import with_stats
from strandline.ingest.parked.lists import ParkedLists
from strandline.ingest.parked.parcel import Parked
from strandline.ingest.parked.release import Parking, Released, release_all
from strandline.ingest.rejoin import joins_at, owner_id
from strandline.ingest.state.parked_state import ParkedState
from strandline.ingest.state.partition_state import PartitionState, states_of_partitions
from strandline.ingest.state.query_entry import PendingState
from strandline.ingest.state.registrar_state import RegistrarState, own_names
from strandline.json_value import JsonObject
from strandline.time.antichain import Antichain
from strandline.time.domain import Time
from strandline.time.time_text import asked_time

__all__ = [
    "PartitionStatus",
    "Status",
    "accept_replay",
    "drop_partitions",
    "end_corrections",
    "give_up_late_rows",
    "publish_late_rows",
    "release_near",
    "release_parked",
    "status",
    "status_of",
]


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

    @property
    def delivered(self) -> str:
        """When the partition last delivered rows, in words."""
        more = f"; {self.future} of its rows were set aside, dated in the future" if self.future else ""
        more += f"; it has rejoined, as generation {self.generation}" if self.generation > 1 else ""
        if self.last_ms is None:
            return f"no rows so far{more}"
        moment = datetime.fromtimestamp(self.last_ms / 1000, timezone.utc).isoformat().replace("+00:00", "Z")
        idle = "; idle, but no other partition of this ingest holds a later time" if self.idle_since is not None else ""
        return f"last rows at {moment}{idle}{more}"


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

    @property
    def aside(self) -> int:
        """The total number of rows that were set aside."""
        return self.aside_without_partition + sum(p.aside for p in self.partitions)

    @property
    def future(self) -> int:
        """How many of them are dated too far ahead of the clock (``maxFuture``)."""
        return self.future_without_partition + sum(p.future for p in self.partitions)

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
            holders = [p for p in self.partitions if p.holds.less_equal(wanted)]
            if not holders and self.registrar.less_equal(wanted):
                at_ = _shown(self.registrar)
                lines.append(f"{domain.format(wanted)} is open: the channel is not sealed, so partitions may join at {at_}")
            elif not holders and self.frontier.closed(wanted):
                lines.append(f"{domain.format(wanted)} is closed")
            elif not holders:
                lines.append(f"{domain.format(wanted)} is open: the ingest itself holds {_shown(self.frontier)}")
            first = f"{domain.format(wanted)} is open: "
            for p in holders:
                lines.append(f"{first}{p.name} holds {_shown(p.holds)}, {p.delivered}")
                first = " " * len(first)
        return "\n".join(printable(line).replace("\n", "\\n") for line in lines)

    def __str__(self) -> str:
        idle = [p.name for p in self.partitions if p.idle_since is not None]
        policies = " and ".join(self.policies) or "no policy"
        lines = [f"{self.path}, version {self.version}, {len(self.partitions)} partitions by {policies}"]
        future = f" ({self.future} of them dated in the future)" if self.future else ""
        lines.append(f"{self.aside} rows set aside{future}" + (f", {self.parked_rows} parked ahead" if self.parked_rows else ""))
        if idle:
            lines.append(f"idle: {', '.join(idle[:10])}{' …' if len(idle) > 10 else ''}")
        again = [f"{p.name} (generation {p.generation})" for p in self.partitions if p.generation > 1]
        if again:
            lines.append(f"rejoined: {', '.join(again[:10])}{' …' if len(again) > 10 else ''}")
        for query, late_path, rows in self.unpublished:
            lines.append(f"{rows} late rows of query {query} are not yet in {late_path}: publish_late_rows(path) publishes them")
        lines += [f"the late table {late_path} cannot be read: {error}" for late_path, error in self.unreadable]
        if self.silence_unknowable:
            why = "a batch may leave rows of the source unread (option readsToEnd)"
            if any("counts=wall" in policy for policy in self.policies):
                why += ", or Python cannot read the query's checkpoint (option checkpointLocation)"
            lines.append(f"idle() has no effect: {why}")
        return "\n".join([*(printable(line).replace("\n", "\\n") for line in lines), self.explain()])


def _shown(times: Antichain) -> str:
    return ", ".join(times.domain.format(time) for time in times) or "nothing"


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
    producers = {name: known for name, known in channel.producers.items() if not name.startswith(OWN_PREFIX)}
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
            )
        )
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
    )


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


def drop_partitions(path: str, names: Iterable[str], storage: Mapping[str, str] | None = None) -> int:
    """Give up dead partitions, so that they no longer hold any time open.

    The decision is permanent, and only an operator makes it. Rows that such a partition still delivers are set aside. The query
    may be running. A batch that has rows of the partition then fails, and succeeds when the query is started again. If the
    remaining partitions are idle, one of them holds the frontier where it was. Parked rows join the channel if the frontier
    comes near them as a result.

    Args:
        path: The channel's path.
        names: The partitions.
        storage: The options of the channel's storage.

    Returns:
        The channel's version after the call.

    Raises:
        IngestError: ``STRANDLINE_PARTITION_UNKNOWN`` for a name that is not a partition of the channel.

    ``drop_partitions("/lake/flights", ["LGA"])``
    """
    channel = Channel.open(path, storage)
    wanted = [names] if isinstance(names, str) else list(dict.fromkeys(names))
    now = time.time_ns() // 1_000_000
    lists = ParkedLists(channel.path, storage)

    def decide() -> Append:
        progress = channel.progress
        partitions = progress.producers_but(*own_names(progress))
        for name in wanted:
            if name not in partitions:
                raise errors.partition_unknown(path, name, partitions)
        holds = {name: Antichain(channel.domain) for name in wanted}
        states: JsonObject = {name: _dropped(name, partitions[name], now).to_json() for name in wanted}
        for owner in {owner_id(partitions[name]) for name in wanted}:
            mine = {name: state for name, state in partitions.items() if owner_id(state) == owner}
            holds |= _stand_in(progress, mine, holds)
        released = release_near(progress, lists, partitions, holds)
        holds |= released.holds
        states |= {name: state.to_json() for name, state in released.states.items()}
        parcels = released.joining
        return Append(
            session=WriterSession.here(),
            files=with_stats(path, channel.schema, storage, parcels),
            holds=holds,
            states=states,
            spans=[Span(parcel.least, parcel.greatest, parcel.rows) for parcel in parcels],
            follow=True,
            apart=own_names(progress),
            donors=wanted,
            kept=list(holds),
        )

    channel.append_decided(decide)
    return channel.version


def _dropped(name: str, known: ProducerState, now: int) -> PartitionState:
    return PartitionState.of(name, known.state).changed(idle=None).changed(dropped=now)


def release_near(
    progress: Progress, lists: ParkedLists, partitions: Mapping[str, ProducerState], holds: Mapping[str, Antichain]
) -> Released:
    """Return the parked rows that may join when partitions hold ``holds``."""
    parkings = []
    for name in own_names(progress):
        known = progress.get(name)
        if name.startswith(PARKED) and known is not None and known.holds:
            ahead = ParkedState.of(name, known).ahead
            if ahead is not None:
                parkings.append(Parking(name, ahead, partial(_held_by, known.owner, partitions, holds)))
    return release_all(progress, parkings, lists, holds)


def _held_by(owner: WriterSession | None, partitions: Mapping[str, ProducerState], holds: Mapping[str, Antichain]) -> list[Time]:
    """Return what the partitions of an ingest hold together from now on."""
    mine = [
        (name, state)
        for name, state in partitions.items()
        if owner is not None and state.owner is not None and state.owner.id == owner.id
    ]
    return [time for name, state in mine for time in holds.get(name, state.holds)]


def _stand_in(progress: Progress, mine: Mapping[str, ProducerState], holds: Mapping[str, Antichain]) -> dict[str, Antichain]:
    """Return what one of an ingest's partitions holds for the idle ones, when the others are given up."""
    if any(holds.get(name, known.holds) for name, known in mine.items()):
        return {}
    held = Antichain(progress.domain, [time_ for known in mine.values() for time_ in known.holds]) or progress.registrar
    return silent_stand_in(progress.domain, {name: known for name, known in mine.items() if name not in holds}, held)


def accept_replay(path: str, query: str, storage: Mapping[str, str] | None = None) -> int | None:
    """Keep the committed rows of a query's newest batch, although its replay delivers other rows.

    Use this for a source that does not repeat its rows (``STRANDLINE_REPLAY_DIFFERS``). The next replay of that batch is skipped,
    whatever rows it delivers. Two queries with the same id need another remedy: give the second query its own checkpoint.

    Args:
        path: The channel's path.
        query: The query's id.
        storage: The options of the channel's storage.

    Returns:
        The channel's version, or ``None`` if nothing changed.

    Raises:
        IngestError: ``STRANDLINE_QUERY_UNKNOWN`` for a query that never wrote to the channel.

    ``accept_replay("/lake/flights", "7d3c…")``
    """
    channel = Channel.open(path, storage)
    _refuse_unknown(channel, query)
    return _forget(channel, query, "batch")


def _refuse_unknown(channel: Channel, query: str) -> None:
    entries = RegistrarState.of(channel.progress).entries
    if query not in entries:
        raise errors.query_unknown(query, channel.path, entries)


def _forget(channel: Channel, query: str, field: str, only: PendingState | None = None) -> int | None:
    """Remove a field from a query's entry in the registrar's state. With ``only``, only if this is still what is pending."""

    def decide() -> Append | None:
        registrar = RegistrarState.of(channel.progress)
        entry = registrar.entry(query)
        if only is not None and (entry.pending is None or entry.pending.to_json() != only.to_json()):
            return None
        state = registrar.changed({query: entry.changed(**{field: None})}).to_json()
        return Append(session=WriterSession.here(), states={REGISTRAR: state})

    return channel.append_decided(decide).committed


def publish_late_rows(path: str, storage: Mapping[str, str] | None = None, *, late_path: str | None = None) -> int:
    """Add late rows that batches have named to their late tables now.

    The next batch of the query does the same, or the next batch of another query with the same ``latePath``. This function is for
    a query that has ended. Calling it twice changes nothing. A late table on a storage other than the channel's is opened only if
    it is ``late_path``, because others write the log.

    Args:
        path: The channel's path.
        storage: The options of the channel's storage.
        late_path: The current path of a late table that was moved. Rows whose files are there are published there.

    Returns:
        The number of rows.

    Raises:
        IngestError: Files are missing, or a late table cannot be read. The late rows of the other queries are published before
            that.

    ``publish_late_rows("/lake/flights")``
    """
    channel, rows = Channel.open(path, storage), 0
    own = [] if late_path is None else [late_path]
    failed: list[StrandlineError] = []
    for named, publication in pending(channel):
        try:
            if late_path is not None and location_of(late_path) != named and _is_there(late_path, publication, storage):
                rows += _published_rows(late_path, publication, storage)
                _forget(channel, publication.query, "pending", publication.state)
            else:
                rows += _published_rows(check_storage(named, path, *own), publication, storage)
                if own and location_of(own[0]) == named:
                    _forget(channel, publication.query, "pending", publication.state)
        except StrandlineError as error:  # noqa: PERF203 - the rows of the other queries are published nevertheless
            failed.append(error)
    if failed:
        raise failed[0]
    return rows


def _published_rows(late_path: str, publication: Publication, storage: Mapping[str, str] | None) -> int:
    """Publish a batch's rows, and return how many they are: none if they were published before."""
    return 0 if publish(late_path, publication, storage) is None else publication.rows


def _is_there(late_path: str, publication: Publication, storage: Mapping[str, str] | None) -> bool:
    """Return whether a batch is published in a late table, or can be published there."""
    if is_published(late_path, publication, storage):
        return True
    return not missing(open_store(late_path, storage), publication.files)


def give_up_late_rows(
    path: str, query: str, storage: Mapping[str, str] | None = None, *, late_path: str | None = None
) -> int | None:
    """Forget late rows of a query that were never published because their files are missing.

    The decision is permanent. ``STRANDLINE_LATE_FILE_MISSING`` says which rows they are. They stay counted in :func:`status`.
    Files that still exist are published. When all of them exist, nothing is forgotten.

    Args:
        path: The channel's path.
        query: The query's id.
        storage: The options of the channel's storage.
        late_path: The current path of the late table, if it was moved, or if it is on a storage other than the channel's.

    Returns:
        The channel's version, or ``None`` if nothing was forgotten.

    Raises:
        IngestError: ``STRANDLINE_QUERY_UNKNOWN`` for a query that never wrote to the channel.
        ChannelError: ``STRANDLINE_NOT_A_TABLE`` if there is no late table at ``late_path``.

    ``give_up_late_rows("/lake/flights", "7d3c…")``
    """
    channel = Channel.open(path, storage)
    _refuse_unknown(channel, query)
    own = [] if late_path is None else [late_path]
    version = None
    while version is None:
        found = [(named, publication) for named, publication in pending(channel) if publication.query == query]
        named_paths = [named for named, _ in found]
        moved = bool(found) and late_path is not None and _published_what_is_there(late_path, found[0][1], storage)
        if late_path is not None and not moved and location_of(late_path) not in named_paths and not is_table(late_path, storage):
            raise errors.not_a_table_late(late_path)
        if not found:
            return None
        named, publication = found[0]
        if not moved and _published_what_is_there(check_storage(named, path, *own), publication, storage):
            return None
        # Forget only the batch that was examined. If the query has named another batch since then, that one is examined next.
        version = _forget(channel, query, "pending", publication.state)
    return version


def _published_what_is_there(late_path: str, publication: Publication, storage: Mapping[str, str] | None) -> bool:
    """Publish the files of a batch that still exist. Return whether there were any, or the batch was published before."""
    if is_published(late_path, publication, storage):
        return True
    gone = missing(open_store(late_path, storage), publication.files)
    left = tuple(file for file in publication.files if file not in gone)
    if left:
        publish(late_path, replace(publication, files=left), storage)
    return bool(left)


def release_parked(
    path: str, storage: Mapping[str, str] | None = None, *, take_over: bool = False, forget_missing: bool = False
) -> int | None:
    """Let rows that wait beyond ``maxAhead`` join the channel now, for ingests that have ended.

    The times of these rows are held while the rows wait. Otherwise only their own ingest ends that.

    Args:
        path: The channel's path.
        storage: The options of the channel's storage.
        take_over: Let the rows join although their ingest may be running. You must state whether a process of another machine has
            ended. An ingest that is running continues, and parks the rows that arrive from then on.
        forget_missing: Give up rows whose files are missing. This is permanent.

    Returns:
        The channel's version, or ``None`` if no rows were parked.

    Raises:
        ProducerError: ``STRANDLINE_PRODUCER_LIVE`` while the ingest of the rows may be running: stop it first, or start it
            without ``maxAhead``.
        IngestError: ``STRANDLINE_PARKED_FILE_MISSING`` without ``forget_missing``.

    ``release_parked("/lake/flights")``
    """
    channel = Channel.open(path, storage)
    lists = ParkedLists(channel.path, storage)

    def decide() -> Append | None:
        waiting = {name: known for name, known in channel.producers.items() if name.startswith(PARKED) and known.holds}
        if not take_over:
            _refuse_running(path, waiting.values())
        if not waiting:
            return None
        states = [ParkedState.of(name, known) for name, known in waiting.items()]
        parcels = [
            parcel for state in states for parcel in lists.waiting(state, channel.domain, forget_missing=forget_missing).parcels
        ]
        if forget_missing:
            parcels = _that_exist(path, storage, parcels)
        return Append(
            session=WriterSession.here(),
            files=with_stats(path, channel.schema, storage, parcels),
            holds={name: Antichain(channel.domain) for name in waiting},
            states={name: ParkedState().changed(rows=0, parked=[]).to_json() for name in waiting},
            spans=[Span(parcel.least, parcel.greatest, parcel.rows) for parcel in parcels],
            kept=list(waiting),
            take_over=take_over,
        )

    return channel.append_decided(decide).committed


def _refuse_running(path: str, waiting: Iterable[ProducerState]) -> None:
    """Raise if the ingest of parked rows may be running."""
    for known in waiting:
        if known.owner is not None and not known.owner.is_dead():
            raise errors.producer_live_parked(path, known.owner)


def _that_exist(path: str, storage: Mapping[str, str] | None, parcels: Iterable[Parked]) -> list[Parked]:
    """Return the parcels with those of their files that exist."""
    store, found = open_store(path, storage), []
    for parcel in parcels:
        files = tuple(file for file in parcel.files if store.size(file.path) is not None)
        if files:
            found.append(replace(parcel, files=files, rows=sum(file.rows for file in files)))
    return found


def end_corrections(path: str, storage: Mapping[str, str] | None = None) -> int | None:
    """Give up the right to corrections permanently. The channel's last times can then close.

    Args:
        path: The channel's path.
        storage: The options of the channel's storage.

    Returns:
        The channel's version, or ``None`` if the channel accepts no corrections.

    ``end_corrections("/lake/flights")``
    """
    channel = Channel.open(path, storage)

    def decide() -> Append | None:
        if not channel.producers.get(CORRECTIONS, ProducerState(0, Antichain(channel.domain))).holds:
            return None
        return Append(session=WriterSession.here(), holds={CORRECTIONS: Antichain(channel.domain)}, take_over=True)

    return channel.append_decided(decide).committed
