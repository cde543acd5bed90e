"""A scope: channels and the queries between them, with the frontiers and the cut that follow from all their logs."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from strandline.channel import Channel
from strandline.delta.storage import location_of
from strandline.errors import SummaryError
from strandline.loop import LoopQuery
from strandline.scope import errors
from strandline.scope.cut import Cut
from strandline.scope.definition import ScopeChannel, ScopeDefinition, ScopeQuery, checked_name, summaries_of
from strandline.scope.definition_log import DefinitionLog
from strandline.scope.scope_graph import ScopeGraph
from strandline.time.antichain import Antichain
from strandline.time.arrow import behind
from strandline.time.domain import Time, TimeDomain, parse_domain
from strandline.time.path.entry import Entry
from strandline.time.path.summary import PathSummary, advance_each, advances
from strandline.time.time_text import asked_time
from strandline.tracker.reachability import Tracker

__all__ = ["Scope", "ScopeHold"]


@dataclass(frozen=True)
class ScopeHold:
    """What keeps a time of a channel open.

    Attributes:
        channel: The channel whose producer holds the capability. It is the channel itself, or one upstream.
        producer: The name of the producer. ``$registrar`` stands for producers that may still join.
        time: The time of the capability.
        arrives: The least time at which its rows may reach the channel that was asked for.
        path: The channels and queries on the way, from ``channel`` to the channel that was asked for.
    """

    channel: str
    producer: str
    time: Time
    arrives: Time
    path: tuple[str, ...]


class Scope:
    """A set of channels and of queries between them. It may contain cycles that advance times.

    The scope is durable: its folder has one small file for each change of the definition. Any number of processes may use it.
    The queries need not run in the process that asks: everything that a scope answers follows from the channels' logs.

    The channels have times of the scope's domain. Channels from outside may have its first coordinates only: their times enter
    the scope, and the other coordinates begin at 0 (timely's ``enter``). No query of the scope writes these.

    >>> import tempfile
    >>> from strandline.time.arrow import time_field
    >>> from strandline.time.domain import int64
    >>> schema = pa.schema([time_field("time", int64), ("n", pa.int64())])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, producer in (("orders", "shop"), ("sums", "query")):
    ...         _ = Channel.create(f"{folder}/{name}", schema, producers=[producer], at=0)
    ...     scope = Scope.create(f"{folder}/scope", int64)
    ...     scope.add_channel("orders", f"{folder}/orders")
    ...     scope.add_channel("sums", f"{folder}/sums")
    ...     scope.add_query("daily", reads=["orders"], writes=["sums"])
    ...     with Channel.open(f"{folder}/orders").producer("shop") as shop:
    ...         shop.delay([7])
    ...     scope.frontier("orders"), scope.frontier("sums")
    ...     [(hold.channel, hold.producer, hold.arrives) for hold in scope.explain("sums", 7)]
    (Antichain(int64, [7]), Antichain(int64, [0]))
    [('sums', 'query', 0), ('orders', 'shop', 7)]
    """

    def __init__(self, log: DefinitionLog, storage_options: Mapping[str, str] | None) -> None:
        self._log = log
        self._storage_options = dict(storage_options or {}) or None
        self._channels: dict[str, Channel] = {}
        self._definition = log.read()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        domain: TimeDomain | str,
        *,
        storage_options: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> Scope:
        """Create a scope without channels and queries.

        Args:
            path: The scope's folder. Channels may lie below it or elsewhere on the same storage.
            domain: The domain of times inside the scope, as an object or as text.
            storage_options: The options of the storage. They are used for the channels too.
            exist_ok: Open an existing scope of the same domain.

        Raises:
            ScopeError: ``STRANDLINE_SCOPE_EXISTS``.
        """
        domain = parse_domain(domain) if isinstance(domain, str) else domain
        log = DefinitionLog(os.fspath(path), storage_options)
        if not log.exists() and log.create(ScopeDefinition(str(uuid.uuid4()), domain)):
            return cls(log, storage_options)
        scope = cls(log, storage_options)
        log.settle()
        if not exist_ok or scope.domain != domain:
            raise errors.scope_exists(scope.domain, log.location)
        return scope

    @classmethod
    def open(cls, path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> Scope:
        """Open an existing scope.

        Args:
            path: The scope's folder.
            storage_options: The options of the storage. They are used for the channels too.

        Raises:
            ScopeError: ``STRANDLINE_NOT_A_SCOPE``, ``STRANDLINE_SCOPE_NEWER``, ``STRANDLINE_SCOPE_INVALID``.
        """
        return cls(DefinitionLog(os.fspath(path), storage_options), storage_options)

    # ---- what is in the scope --------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The location of the scope's folder."""
        return self._log.location

    @property
    def id(self) -> str:
        """The scope's id. A scope that is made anew at the path has another one."""
        return self._definition.id

    @property
    def domain(self) -> TimeDomain:
        """The domain of times inside the scope."""
        return self._definition.domain

    @property
    def channels(self) -> Mapping[str, ScopeChannel]:
        """The channels by name, as of the last call of :meth:`refresh` or of a method that changes the scope."""
        return dict(self._definition.channels)

    @property
    def queries(self) -> Mapping[str, ScopeQuery]:
        """The queries by name, as of the last call of :meth:`refresh` or of a method that changes the scope."""
        return dict(self._definition.queries)

    @property
    def storage_options(self) -> dict[str, str] | None:
        """The options of the storage of the scope and its channels."""
        return self._storage_options

    def refresh(self) -> None:
        """Read the changes that other processes have made to the scope."""
        definition = self._log.read()
        self._check_id(definition)
        self._definition = definition

    def channel(self, name: str) -> Channel:
        """Return a channel of the scope, opened.

        Args:
            name: The channel's name in the scope.

        Raises:
            ScopeError: ``STRANDLINE_SCOPE_CHANNEL_UNKNOWN``; ``STRANDLINE_SCOPE_CHANNEL_REPLACED`` if another table is at its
                path now.
            ChannelError: There is no channel at its path.
        """
        known = self._definition.require_channel(name)
        channel = self._channels.get(name)
        if channel is None or channel.table_id != known.table or channel.was_replaced():
            channel = Channel.open(self.location_of(name), self._storage_options)
            if channel.table_id != known.table:
                raise errors.scope_channel_replaced(name, known.table, channel.path, channel.table_id)
            self._channels[name] = channel
        return channel

    def location_of(self, name: str) -> str:
        """Return the location of a channel of the scope.

        Args:
            name: The channel's name in the scope.

        Raises:
            ScopeError: ``STRANDLINE_SCOPE_CHANNEL_UNKNOWN``; ``STRANDLINE_SCOPE_STORAGE_DIFFERS`` if the scope's file, which
                others may write, names another storage.
            ChannelError: ``STRANDLINE_PATH_OUTSIDE_TABLE`` if the file names a path with ``..``.
        """
        return self._log.absolute(self._definition.require_channel(name).path)

    def add_channel(self, name: str, path: str | os.PathLike[str]) -> None:
        """Add a channel. Nothing changes if the scope has exactly this channel under the name.

        Args:
            name: The channel's name in the scope.
            path: The path of the channel, which exists.

        Raises:
            ScopeError: ``STRANDLINE_SCOPE_CHANNEL_EXISTS`` if the name stands for another channel, or the channel has another
                name; ``STRANDLINE_SCOPE_DOMAIN_DIFFERS`` if its times do not enter the scope's domain;
                ``STRANDLINE_SCOPE_STORAGE_DIFFERS`` if it is on another storage.
            ChannelError: There is no channel at the path.
        """
        checked_name(name, "channel")
        location = location_of(path)
        relative = self._log.relative(location)
        channel = Channel.open(location, self._storage_options)
        new = ScopeChannel(relative, channel.table_id)
        try:
            Entry(channel.domain, self.domain)
        except SummaryError as error:
            raise errors.scope_domain_differs(location, channel.domain, self.domain) from error

        def add(definition: ScopeDefinition) -> ScopeDefinition:
            for other, known in definition.channels.items():
                if (other == name) != (known.table == new.table) or (other == name and known != new):
                    raise errors.scope_channel_exists(other, known.table, known.path, name, new.table, new.path)
            return replace(definition, channels={**definition.channels, name: new})

        self._change(add)
        self._channels[name] = channel

    def add_query(
        self,
        name: str,
        *,
        reads: Iterable[str],
        writes: Iterable[str] | Mapping[str, Mapping[str, int]],
        summaries: Mapping[str, Mapping[str, PathSummary | Iterable[PathSummary]]] | None = None,
    ) -> None:
        """Add a query. Nothing changes if the scope has exactly this query under the name.

        Args:
            name: The query's name in the scope.
            reads: The channels that it reads.
            writes: The channels that it writes. As a mapping: for each of them, by how much each coordinate of its times
                advances, from every input alike, such as ``{"labels": {"iter": 1}}``.
            summaries: For each channel that it reads, the path summaries to each channel that it writes. An output that is
                left out is not reached from that input. By default no time changes between any input and any output.

        Raises:
            ScopeError: ``STRANDLINE_SCOPE_CHANNEL_UNKNOWN``; ``STRANDLINE_SCOPE_QUERY_DIFFERS`` if the scope has recorded
                another query under the name; ``STRANDLINE_SCOPE_TWO_WRITERS`` if two queries would write a channel of a cycle;
                ``STRANDLINE_SCOPE_DOMAIN_DIFFERS`` if it would write a channel whose times enter from outside.
            SummaryError: A mapping of ``writes`` names an unknown coordinate.
            CycleError: The query closes a cycle that does not strictly advance times. The error shows the cycle.
        """
        checked_name(name, "query")
        reads = _names(reads)
        if isinstance(writes, Mapping):
            if summaries is not None:
                raise errors.scope_query_invalid_both(name)
            moves = {write: advance_each(self.domain, by) for write, by in writes.items()}
            summaries = {read: {write: [move] for write, move in moves.items()} for read in reads}
        writes = _names(writes)
        query = ScopeQuery(reads, writes, summaries_of(self.domain, name, summaries, reads, writes))

        def add(definition: ScopeDefinition) -> ScopeDefinition:
            definition.check_query(name, query)
            for write in query.writes:
                if self.channel(write).domain != self.domain:
                    raise errors.scope_domain_differs_at_output(name, write, self.channel(write).domain, self.domain)
            known = definition.queries.get(name)
            if known is not None and known != query:
                raise errors.scope_query_differs(name, known, query)
            after = replace(definition, queries={**definition.queries, name: query})
            ScopeGraph(after)  # raises for a cycle
            return after

        self._change(add)

    def entry(self, name: str) -> Entry:
        """Return how the times of a channel enter the scope. Raises :class:`ScopeError` as :meth:`channel` does."""
        return Entry(self.channel(name).domain, self.domain)

    def loop_queries(self) -> dict[str, LoopQuery]:
        """Return the queries as those of a loop, which a Spark driver each can run (``pyspark_strandline.read_scope``).

        Raises:
            ScopeError: ``STRANDLINE_SCOPE_QUERY_INVALID`` if a query takes its inputs to an output on different paths, or by
                something else than an advance of coordinates.
        """
        queries = {}
        for name, query in self._definition.queries.items():
            writes = {}
            for write in query.writes:
                paths = {path for read in query.reads for path in query.summaries.get(read, {}).get(write, ())}
                reached = all(write in query.summaries.get(read, {}) for read in query.reads)
                by = advances(next(iter(paths))) if len(paths) == 1 and reached else None
                if by is None:
                    raise errors.scope_query_invalid_advances(name, write, paths)
                writes[write] = by
            queries[name] = LoopQuery(query.reads, writes)
        return queries

    def remove_query(self, name: str) -> None:
        """Remove a query from the scope. Its channels stay. Nothing changes if there is no such query."""
        self._change(lambda d: replace(d, queries={other: query for other, query in d.queries.items() if other != name}))

    def remove_channel(self, name: str) -> None:
        """Remove a channel from the scope. Its table stays. Nothing changes if there is no such channel.

        Args:
            name: The channel's name in the scope.

        Raises:
            ScopeError: ``STRANDLINE_SCOPE_CHANNEL_USED``: a query of the scope reads or writes it.
        """

        def remove(definition: ScopeDefinition) -> ScopeDefinition:
            used = [q for q, query in definition.queries.items() if name in (*query.reads, *query.writes)]
            if used:
                raise errors.scope_channel_used(name, used)
            return replace(definition, channels={c: known for c, known in definition.channels.items() if c != name})

        self._change(remove)
        self._channels.pop(name, None)

    def _change(self, decide: Callable[[ScopeDefinition], ScopeDefinition]) -> None:
        def of_this_scope(definition: ScopeDefinition) -> ScopeDefinition:
            self._check_id(definition)
            return decide(definition)

        self._definition = self._log.change(of_this_scope)

    def _check_id(self, definition: ScopeDefinition) -> None:
        if definition.id != self.id:
            raise errors.scope_replaced(self.path, definition.id, self.id)

    # ---- what follows from the logs --------------------------------------------------------------------------------------

    def frontiers(self) -> dict[str, Antichain]:
        """Return the frontier of every channel, from the newest version of every log.

        A query states in its output's log what it may still write, so these are the exact frontiers, also downstream.
        """
        return dict(self.cut().frontiers)

    def frontier(self, name: str) -> Antichain:
        """Return the frontier of one channel, from the newest version of its log."""
        channel = self.channel(name)
        channel.refresh()
        return channel.frontier

    def explain(self, name: str, time: Time | str) -> list[ScopeHold]:
        """Return what keeps a time of a channel open: its own producers, and those upstream for which its queries wait.

        Args:
            name: The channel.
            time: The time, or its text.

        Returns:
            The holds, the earliest arrival first. The list is empty exactly when the time is closed.

        Raises:
            ScopeError: ``STRANDLINE_SCOPE_CHANNEL_UNKNOWN``.
            TimeError: ``time`` is not a time of the channel.
        """
        time = asked_time(self.channel(name).domain, time)
        graph, tracker, holders = self._track()
        if self.channel(name).frontier.closed(time):
            return []
        holds = []
        for hold in tracker.explain(graph.output(name), self.entry(name).time(time)):
            path = dict.fromkeys(graph.graph.nodes[location.node].name for location in hold.path)
            channel = graph.channel_at(hold.location)
            holds += [
                ScopeHold(channel, producer, hold.time, hold.arrives, tuple(path))
                for producer, times in holders[channel].items()
                if hold.time in times
            ]
        return holds

    def cut(self) -> Cut:
        """Return a consistent cut: the newest version of every channel, and the frontier of all of them together."""
        versions, frontiers, least = {}, {}, Antichain(self.domain)
        for name in self._definition.channels:
            channel = self.channel(name)
            channel.refresh()
            versions[name], frontiers[name] = channel.version, channel.frontier
            least = least.meet(self.entry(name).antichain(channel.frontier))
        return Cut(versions, frontiers, least)

    def read(self, name: str, cut: Cut) -> pa.Table:
        """Return the rows of a channel whose times are closed in a cut. Use it for small channels: all rows go into memory.

        Args:
            name: The channel.
            cut: The cut.

        Raises:
            ScopeError: ``STRANDLINE_SCOPE_CHANNEL_UNKNOWN``, also if the channel joined the scope after the cut was made.
        """
        channel = self.channel(name)
        version = cut.versions.get(name)
        if version is None:
            raise errors.scope_channel_unknown_to_cut(name)
        rows = channel.read(version)
        times = rows[channel.time_column].combine_chunks()
        return rows.filter(pa.array(behind(self.entry(name).column(times), cut.frontier)))

    def _track(self) -> tuple[ScopeGraph, Tracker, dict[str, dict[str, Antichain]]]:
        """Return the graph, its tracker with every producer's capabilities, and each channel's producers with theirs."""
        graph = ScopeGraph(self._definition)
        tracker = Tracker(graph.graph)
        holders: dict[str, dict[str, Antichain]] = {}
        for name in self._definition.channels:
            channel = self.channel(name)
            channel.refresh()
            enter = self.entry(name).antichain
            holders[name] = {producer: enter(state.holds) for producer, state in channel.progress.producers.items()}
            if not channel.sealed:
                holders[name]["$registrar"] = enter(channel.registrar)
            for times in holders[name].values():
                for time in times:
                    tracker.update(graph.output(name), time, 1)
        tracker.propagate_all()
        return graph, tracker, holders

    def __repr__(self) -> str:
        channels, queries = len(self._definition.channels), len(self._definition.queries)
        return f"Scope({self.path!r}, {self.domain}, {channels} channels, {queries} queries)"


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
