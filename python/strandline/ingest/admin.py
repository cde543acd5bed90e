"""What an operator does with an ingest: give up a dead partition, publish or give up late rows, release parked ones."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from strandline.channel import Channel, ProducerState, Progress, Span, WriterSession
from strandline.channel.statements.statement import REGISTRAR
from strandline.channel.write.append import Append
from strandline.delta.storage import location_of, open_store
from strandline.errors import StrandlineError
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
from strandline.ingest.names import CORRECTIONS, PARKED
from strandline.ingest.parked.files import with_stats
from strandline.ingest.parked.lists import ParkedLists
from strandline.ingest.parked.parcel import Parked
from strandline.ingest.parked.release import Parking, Released, release_all
from strandline.ingest.rejoin import owner_id
from strandline.ingest.state.parked_state import ParkedState
from strandline.ingest.state.partition_state import PartitionState
from strandline.ingest.state.query_entry import PendingState
from strandline.ingest.state.registrar_state import RegistrarState, own_names
from strandline.json_value import JsonObject
from strandline.time.antichain import Antichain
from strandline.time.domain import Time

__all__ = [
    "accept_replay",
    "drop_partitions",
    "end_corrections",
    "give_up_late_rows",
    "publish_late_rows",
    "release_near",
    "release_parked",
]


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
