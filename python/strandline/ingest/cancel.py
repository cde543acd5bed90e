"""Cancelling announced rows of a manifest: the manifest says so, and the channel goes by it at once, without a batch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from strandline.channel import Channel, ProducerState, Span, WriterSession
from strandline.channel.write.append import Append
from strandline.ingest import errors
from strandline.ingest.admin import release_near
from strandline.ingest.clocks.moment import Moment
from strandline.ingest.decide.batch import Batch
from strandline.ingest.decide.given import Changes, Given, policy_for
from strandline.ingest.decide.steps.promise import promise_unseen
from strandline.ingest.decide.steps.silence import stand_in
from strandline.ingest.names import CORRECTIONS, WHOLE_STREAM
from strandline.ingest.parked.files import with_stats
from strandline.ingest.parked.lists import ParkedLists
from strandline.ingest.policies.manifest import Manifest
from strandline.ingest.policies.manifest_table import ManifestTable
from strandline.ingest.policies.parser import recorded_policy
from strandline.ingest.policies.policy import Policy
from strandline.ingest.rejoin import owner_id
from strandline.ingest.settings import Settings, policy_needs
from strandline.ingest.state.manifest_state import ManifestState
from strandline.ingest.state.partition_state import PartitionState
from strandline.ingest.state.query_entry import QueryEntry
from strandline.ingest.state.registrar_state import RegistrarState, own_names
from strandline.ingest.task.observations import Observations
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain
from strandline.time.time_text import asked_time

__all__ = ["Lacking", "Manifests", "cancel", "outside_domain"]


def cancel(
    path: str, rows: Mapping[tuple[str, Time | str | datetime], int] | None = None, storage: Mapping[str, str] | None = None
) -> int:
    """Cancel announced rows of a manifest that will never arrive, so that the times that wait for them close at once.

    The number is how many of the rows that are announced for a partition and a time are cancelled *in all*. So a repeated call
    cancels nothing more. The manifest says it then, in its column ``cancelled``. After that, one commit of the channel goes by
    the manifest. If the manifest is a channel, nobody but its producers can write to it, and no more at a time that they have
    passed. So the ingest's channel itself remembers the number then, in that one commit, and counts these rows as arrived.

    If that commit is not made, because this process dies, a repeated call makes it, and so does the next batch.
    Without ``rows``, the channel goes by what the manifest says now, whoever has written it.

    The query may be running, have stopped, or have ended. A batch that has rows of such a partition then fails, and succeeds when
    the query is started again. A cancelled row that arrives all the same is set aside, if its time is closed.

    Args:
        path: The channel's path.
        rows: How many rows are cancelled in all, by partition and time. A time is one of the ingest's times, or its text.
        storage: The options of the storage of the channel and the manifest.

    Returns:
        The channel's version after the call.

    Raises:
        IngestError: ``STRANDLINE_CANCEL_INVALID`` for a partition or a time that the manifest does not have, and for more rows
            than are missing. ``STRANDLINE_CANCEL_IMPOSSIBLE`` if no ingest of the channel has a manifest that can be read, or if
            the manifest is a channel, and the partition has not joined yet. Nothing was written.

    ``cancel("/lake/flights", {("LGA", "2013-01-02T06:00Z"): 1})``
    """
    channel = Channel.open(path, storage)
    manifests = Manifests(channel)
    if not manifests.judges:
        raise errors.cancel_impossible(path, manifests.why)
    tables: dict[int, tuple[ManifestTable, dict[tuple[str, Time], int]]] = {}
    kept: dict[str, dict[Time, int]] = {}
    for (name, asked), number in (rows or {}).items():
        table, at = manifests.checked(name, asked, number)
        if table.grows:
            kept.setdefault(name, {})[at] = number
        else:
            tables.setdefault(id(table), (table, {}))[1][name, at] = number
    for table, totals in tables.values():
        table.cancel(totals)
    lists = ParkedLists(channel.path, storage)
    wanted = None if rows is None else {name for name, _ in rows}
    channel.append_decided(lambda: manifests.applied(wanted, lists, kept))
    return channel.version


class Lacking(NamedTuple):
    """Announced rows that have not arrived: their time, how many are missing, and how many of it are cancelled so far.

    ``at`` is the time in the channel, ``shown`` its text as :func:`cancel` takes it.
    """

    at: Time
    shown: str
    rows: int
    cancelled: int


@dataclass(frozen=True)
class _Judge:
    """A query of which the policy has manifests, as an operator reads them from the channel's log."""

    query: str
    entry: QueryEntry
    policy: Policy
    settings: Settings

    def table_of(self, name: str) -> ManifestTable | None:
        """Return the manifest that judges a partition."""
        manifest = _manifest_in(policy_for(self.policy, name))
        return None if manifest is None else manifest.table


class Manifests:
    """The manifests of a channel's ingests, as the channel's log names them.

    Args:
        channel: The channel, as of whose version partitions are judged. :meth:`applied` reads its newest progress.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.why = "no ingest of it has a policy with a manifest"
        """Why there are none."""

    @cached_property
    def judges(self) -> list[_Judge]:
        """The queries whose policies have manifests. Raises the errors of reading these."""
        channel, found = self._channel, list[_Judge]()
        outer = outside_domain(channel)
        for query, entry in RegistrarState.of(channel.progress).entries.items():
            if entry.fenced is not None or "manifest(" not in (entry.policy or ""):
                continue
            policy = recorded_policy(entry.policy)
            if policy is None:
                self.why = f"the policy {entry.policy} of its query {query} is of a class that is not loaded here"
                continue
            policy.bind(outer)
            tables = [manifest for _, each in policy.by_pattern() if (manifest := _manifest_in(each)) is not None]
            if not tables:
                continue
            by = _columns(channel, entry, query)
            settings = Settings(
                path=channel.path,
                schema=channel.schema,
                time=channel.time_column,
                partition=by,
                policy=policy,
                domain=outer,
                needs=tuple(policy_needs(policy)),
                corrections=CORRECTIONS in channel.producers,
                storage=dict(channel.storage_options) if channel.storage_options else None,
            )
            policy.open(settings)
            found.append(_Judge(query, entry, policy, settings))
        return found

    def judge_of(self, name: str) -> tuple[_Judge, ManifestTable] | None:
        """Return the query and the manifest that judge a partition, ``None`` if none does."""
        known = self._channel.producers.get(name)
        for judge in self.judges:
            if known is not None and known.owner is not None and known.owner.id != judge.query:
                continue
            table = judge.table_of(name)
            if table is not None and (known is not None or name in table.partitions()):
                return judge, table
        return None

    def lacking(self, name: str) -> list[Lacking] | None:
        """Return which announced rows of a partition have not arrived, as its manifest says now; ``None`` without a manifest."""
        found = self.judge_of(name)
        if found is None:
            return None
        judge, table = found
        lacking = []
        for at in table.times(name):
            announced = table.announced(name, at)
            missing = 0 if announced is None else self._missing(judge, table, name, at)
            if announced is not None and missing > 0:
                shown = judge.settings.domain.format(at)
                cancelled = self._cancelled(judge, table, name, at)
                lacking.append(Lacking(judge.settings.to_channel_time(at), shown, missing, cancelled))
        return lacking

    def checked(self, name: str, asked: Any, number: Any) -> tuple[ManifestTable, Time]:
        """Return the manifest and the time of rows that are to be cancelled. Raises :class:`IngestError` if they cannot be."""
        found = self.judge_of(name)
        if found is None:
            known = sorted({each for judge in self.judges for each in _names(judge)})
            raise errors.cancel_invalid_partition(name, self._channel.path, known)
        judge, table = found
        at = asked_time(judge.settings.domain, asked)
        shown = judge.settings.domain.format(at)
        if type(number) is not int or number < 0:
            raise errors.cancel_invalid_number(number)
        if table.grows and name not in self._channel.producers:
            raise errors.cancel_impossible_unjoined(name, self._channel.path)
        announced = table.announced(name, at)
        if announced is None:
            times = [judge.settings.domain.format(each) for each in table.times(name)]
            raise errors.cancel_invalid_time(shown, name, table.path, times)
        cancelled = self._cancelled(judge, table, name, at)
        if number < cancelled:
            raise errors.cancel_invalid_back(number, shown, name, cancelled)
        missing = self._missing(judge, table, name, at)
        if number - cancelled > missing:
            raise errors.cancel_invalid_more(number, shown, name, announced.rows, cancelled, missing)
        return table, at

    def _cancelled(self, judge: _Judge, table: ManifestTable, name: str, at: Time) -> int:
        """Return how many rows are cancelled in all, as :func:`cancel` counts them."""
        announced, known = table.announced(name, at), self._channel.producers.get(name)
        if not table.grows:
            return 0 if announced is None else announced.cancelled
        own = None if known is None else PartitionState.of(name, known.state).own
        return ManifestState.of(name, own).cancelled_at(judge.settings.domain).get(at, 0)

    def _missing(self, judge: _Judge, table: ManifestTable, name: str, at: Time) -> int:
        """Return how many announced rows have not arrived, at a time that the partition may still deliver rows for."""
        announced, known = table.announced(name, at), self._channel.producers.get(name)
        if announced is None:
            return 0
        left = announced.rows - announced.cancelled
        if known is None:
            return max(0, left)
        domain, state = judge.settings.domain, PartitionState.of(name, known.state)
        counted = ManifestState.of(name, state.own)
        if counted.held is not None and not Antichain.from_json(domain, counted.held).less_equal(at):
            return 0
        if state.idle is None and not known.holds.less_equal(judge.settings.to_channel_time(at)):
            return 0
        arrived = {domain.from_json(each): n for each, n in counted.came or ()}
        return max(0, left - arrived.get(at, 0))

    def applied(
        self, names: Iterable[str] | None, lists: ParkedLists, kept: Mapping[str, Mapping[Time, int]] = MappingProxyType({})
    ) -> Append | None:
        """Return the commit by which partitions (default: all) go by their manifests, ``None`` if they do already.

        It is decided on the channel's newest progress, with the manifests as they are then. ``kept`` says how many rows of each
        partition and time are cancelled in all, where that is remembered with the partition: its manifest is a channel.
        """
        channel, progress = self._channel, self._channel.progress
        partitions = progress.producers_but(*own_names(progress))
        holds: dict[str, Antichain] = {}
        states: dict[str, PartitionState] = {}
        for judge in self.judges:
            judge.policy.refresh()
            mine = {name: known for name, known in partitions.items() if owner_id(known) == judge.query}
            chosen = [name for name in mine if (names is None or name in names) and judge.table_of(name) is not None]
            given = _given(channel, judge)
            for name in chosen:
                state = given.state_of(name, Changes())
                if name in kept:
                    own = ManifestState.of(name, state.own).cancelling(judge.settings.domain, kept[name])
                    state = state.changed(own=own.to_json())
                promised = promise_unseen(given, name, state)
                if promised is None or (promised.holds == mine[name].holds and promised.state.to_json() == mine[name].state):
                    continue
                holds[name], states[name] = promised
            holds |= _silent(channel.domain, mine, holds, states)
        if not holds:
            return None
        released = release_near(progress, lists, partitions, holds)
        parcels = released.joining
        return Append(
            session=WriterSession.here(),
            files=with_stats(channel.path, channel.schema, channel.storage_options, parcels),
            holds={**holds, **released.holds},
            states={name: state.to_json() or None for name, state in {**states, **released.states}.items()},
            spans=[Span(parcel.least, parcel.greatest, parcel.rows) for parcel in parcels],
            follow=True,
            apart=own_names(progress),
            donors=[name for name in holds if partitions[name].holds],
            kept=[*holds, *released.holds],
        )


def _given(channel: Channel, judge: _Judge) -> Given:
    """Return what a decision of a batch without rows would go by."""
    now, progress = time.time_ns() // 1_000_000, channel.progress
    entry = RegistrarState.of(progress).entry(judge.query)
    moment = Moment(now, in_snapshot=bool(entry.snapshot))
    nothing = Observations.of((), judge.settings.domain)
    return Given(progress, judge.settings, judge.policy, Batch((judge.query, -1), WriterSession.here(), moment, (), nothing))


def _silent(
    domain: TimeDomain,
    mine: Mapping[str, ProducerState],
    holds: Mapping[str, Antichain],
    states: Mapping[str, PartitionState],
) -> dict[str, Antichain]:
    """Return what an ingest's silent partitions hold when no other one holds anything: one of them holds for all."""
    if not any(name in mine for name in holds):
        return {}
    idle = dict(_idle(mine, states))
    holders = [name for name, known in mine.items() if holds.get(name, known.holds)]
    if any(name not in idle for name in holders):
        return {}
    promised = {name: times for name, state in idle.items() if (times := state.promised(holds.get(name, mine[name].holds)))}
    held = Antichain(domain, [each for known in mine.values() for each in known.holds])
    if not promised or not held:
        return {}
    chosen, stays = stand_in(domain, promised, held, [name for name in holders if name in promised])
    return {**{name: Antichain(domain) for name in holders}, chosen: stays}


def _idle(mine: Mapping[str, ProducerState], states: Mapping[str, PartitionState]) -> Iterator[tuple[str, PartitionState]]:
    for name, known in mine.items():
        state = states.get(name) or PartitionState.of(name, known.state)
        if state.idle is not None:
            yield name, state


def _names(judge: _Judge) -> list[str]:
    tables = [manifest.table for _, each in judge.policy.by_pattern() if (manifest := _manifest_in(each)) is not None]
    return [name for table in tables for name in table.partitions() if judge.table_of(name) is table]


def _manifest_in(policy: Policy | None) -> Manifest | None:
    """Return the manifest that a policy of one partition consists of, or contains."""
    while policy is not None and not isinstance(policy, Manifest):
        policy = getattr(policy, "policy", None)
    return policy


def outside_domain(channel: Channel) -> TimeDomain:
    """Return the domain of the times that an ingest's rows have outside: without the coordinate of corrections."""
    return channel.domain.coordinates[0][1] if CORRECTIONS in channel.producers else channel.domain


def _columns(channel: Channel, entry: QueryEntry, query: str) -> tuple[str, ...]:
    """Return the columns by which a query names its partitions. Earlier releases did not write them down."""
    if entry.by is not None:
        return tuple(entry.by)
    if any(owner_id(known) == query and name == WHOLE_STREAM for name, known in channel.producers.items()):
        return ()
    raise errors.cancel_impossible(
        channel.path, f"its log does not say by which columns query {query} names its partitions, until a batch of this release"
    )
