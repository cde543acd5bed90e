"""Why is a time of a channel not closed? Follows what holds it, from the channel upstream to the outside streams."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from strandline.channel import Channel, ProducerState
from strandline.channel.statements.statement import REGISTRAR
from strandline.errors import ScopeError
from strandline.report.explanation import Explanation, Holder
from strandline.report.history import History
from strandline.report.holders import Describer
from strandline.report.upstream import Edge, Upstream
from strandline.scope import Scope
from strandline.time.domain import Time, TimeDomain
from strandline.time.time_text import asked_time

__all__ = ["explain"]

_MOST_DEPTH = 40
_MOST_CHANNELS = 100

ToAsked = Callable[[Time], "Time | None"]
"""What a time of a channel may still cause in the channel that was asked for; ``None`` where that is not known."""


def explain(
    source: str | os.PathLike[str] | Channel | Scope,
    time: Time | str,
    *,
    channel: str | None = None,
    storage: Mapping[str, str] | None = None,
    scopes: Iterable[Scope] = (),
    channels: Iterable[str | os.PathLike[str] | Channel] = (),
    most: int = 20,
    history: int = 2000,
    follow: bool = True,
) -> Explanation:
    """Return why a time of a channel is open: who holds it, since when, and upstream to the end. Or that it is closed.

    What a query reads is known from the commits that it makes, or from a scope. Nothing is guessed: where neither says it, the
    query is where the explanation ends, and it says so.

    Args:
        source: The channel, opened or by its path; or a scope, with ``channel`` as the name of the channel in it.
        time: The time, in a form that the channel's domain takes, or as text: ``"2026-03-01T12:00Z"``, ``"[7, 2]"``.
        channel: The channel's name, if ``source`` is a scope.
        storage: The options of the storage of the channels.
        scopes: Scopes that say which queries there are.
        channels: Further channels that are upstream, opened or by their paths, where the log has only their ids.
        most: How many holders of one channel are listed. The earliest come first.
        history: About how many commits of each log are read to find since when a holder holds.
        follow: Whether channels are opened that only a log names. If not, the way ends at channels that nobody has named.

    Raises:
        ChannelError: There is no channel, or it cannot be read.
        ScopeError: ``STRANDLINE_SCOPE_CHANNEL_UNKNOWN``.
        TimeError: ``time`` is not a time of the channel's domain.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> from strandline.time.arrow import time_field
    >>> from strandline.time.domain import int64
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = Channel.create(folder, pa.schema([time_field("time", int64)]), producers=["a", "b"], at=0)
    ...     with made.producer("a") as a:
    ...         a.delay([9])
    ...     answer = explain(folder, 5)
    >>> answer.open, [(holder.name, holder.shown, holder.since.version) for holder in answer.culprits]
    (True, [('b', ('0',), 0)])
    """
    scopes = list(scopes)
    if isinstance(source, Scope):
        if channel is None:
            have = ", ".join(source.channels) or "none"
            raise ScopeError(
                "STRANDLINE_SCOPE_CHANNEL_UNKNOWN",
                f"No channel of the scope was named. Its channels are: {have}.",
                "Name one of them with channel=….",
            )
        asked = source.channel(channel)
        scopes.append(source)
        storage = storage or source.storage_options
    else:
        asked = source if isinstance(source, Channel) else Channel.open(source, storage)
    asked.refresh()
    opened = [asked, *(each if isinstance(each, Channel) else Channel.open(each, storage) for each in channels)]
    upstream = Upstream(storage, scopes, opened, follow=follow)
    return _Search(asked, asked_time(asked.domain, time), upstream, most, history).explanation()


class _Search:
    """One walk upstream. It collects the holders, the asked channel's first."""

    def __init__(self, asked: Channel, time: Time, upstream: Upstream, most: int, history: int) -> None:
        self._asked, self._time = asked, time
        self._domain: TimeDomain = asked.domain
        self._upstream, self._most, self._limit = upstream, most, history
        self._found: dict[tuple[str, str], Holder] = {}
        self._hidden = 0
        self._visits = 0
        self._notes: dict[str, None] = {}
        self._tools: dict[str, tuple[History, Describer]] = {}

    def explanation(self) -> Explanation:
        frontier = self._asked.frontier.copy()
        if not frontier.closed(self._time):
            self._visit(self._asked, lambda time: time, (self._asked.path,), (self._asked.table_id,))
        holders = tuple(self._found.values())
        return Explanation(
            self._asked.path,
            self._asked.version,
            self._domain,
            self._time,
            frontier,
            holders,
            self._hidden,
            tuple(self._notes),
        )

    def _visit(self, channel: Channel, to_asked: ToAsked, way: tuple[str, ...], above: tuple[str, ...]) -> bool:
        """Add who holds the time in one channel, and upstream of it. Return whether there is anybody."""
        self._visits += 1
        if self._visits > _MOST_CHANNELS or len(above) > _MOST_DEPTH:
            self._notes[f"more than {_MOST_CHANNELS} channels, or {_MOST_DEPTH} one after the other, are upstream"] = None
            return True
        holding = self._holding(channel, to_asked)
        if channel.table_id not in self._tools:
            self._tools[channel.table_id] = History(channel, self._limit), Describer(channel)
            problem = self._tools[channel.table_id][1].problem
            if problem is not None:
                self._notes[f"the states of the ingests of {channel.path} cannot be read: {problem}"] = None
        for name, times in holding[: self._most]:
            key = (channel.table_id, name)
            if key not in self._found:
                self._found[key] = self._holder(channel, name, times, way)
                self._follow(key, channel, to_asked, above)
        self._hidden += max(0, len(holding) - self._most)
        return bool(holding)

    def _holding(self, channel: Channel, to_asked: ToAsked) -> list[tuple[str, tuple[Time, ...]]]:
        """Return who holds the asked time in a channel, with the capabilities that do, the earliest first.

        Where it is not known what a time can cause, these are the times of the channel's frontier: it is their images that hold
        the output back.
        """
        frontier, less_equal = channel.frontier, self._domain.comparison

        def holds(time: Time) -> bool:
            arrives = to_asked(time)
            return time in frontier if arrives is None else less_equal(arrives, self._time)

        known: dict[Time, bool] = {}
        found = []
        progress = channel.progress
        for name, state in [*progress.producers.items(), (REGISTRAR, progress.get(REGISTRAR))]:
            if state is None or not state.holds:
                continue
            times = []
            for time in state.holds:
                if time not in known:
                    known[time] = holds(time)
                if known[time]:
                    times.append(time)
            if times:
                found.append((name, tuple(times)))
        key = channel.domain.sort_key
        return sorted(found, key=lambda entry: (min(map(key, entry[1])), entry[0]))

    def _holder(self, channel: Channel, name: str, times: tuple[Time, ...], way: tuple[str, ...]) -> Holder:
        history, describer = self._tools[channel.table_id]
        state = channel.progress.get(name)
        if state is None:
            raise RuntimeError(f"{channel.path} lost its producer {name!r} during an explanation")
        kind, what, release = describer.describe(name, state)
        return Holder(
            channel.path,
            name,
            kind,
            times,
            tuple(channel.domain.format(time) for time in times),
            history.since(name),
            culprit=True,
            what=what,
            release=release,
            session=None if state.owner is None else str(state.owner),
            gone=True if state.owner is not None and state.owner.is_dead() else None,
            way=(name, *way),
        )

    def _follow(self, key: tuple[str, str], channel: Channel, to_asked: ToAsked, above: tuple[str, ...]) -> None:
        """Look upstream of a holder, and say what follows for it."""
        holder = self._found[key]
        if holder.kind != "producer":
            return
        edges = self._upstream.edges(channel, holder.name, self._tools[channel.table_id][0])
        state: ProducerState | None = channel.progress.get(holder.name)
        is_query = state is not None and state.owner is not None and holder.name == f"query-{state.owner.id}"
        if edges is None:
            if is_query:
                unknown = "it is not known which channels it reads: its commits do not say it; add it to a scope"
                self._found[key] = replace(holder, kind="query", what=f"{unknown}; {holder.what}")
            return
        waits, loop = [], False
        for edge in edges:
            if edge.channel is None:
                self._notes[f"{holder.name} reads {edge.label}, which cannot be opened: {edge.problem}"] = None
            elif edge.channel.table_id in above:
                loop = True
            else:
                edge.channel.refresh()
                if self._visit(edge.channel, _after(edge, to_asked), (edge.label, *holder.way), (*above, edge.channel.table_id)):
                    waits.append(edge.label)
        self._found[key] = _as_query(holder, edges, waits, loop)


def _after(edge: Edge, to_asked: ToAsked) -> ToAsked:
    def image(time: Time) -> Time | None:
        there = edge.image(time)
        return None if there is None else to_asked(there)

    return image


def _as_query(holder: Holder, edges: list[Edge], waits: list[str], loop: bool) -> Holder:
    """Return what is said of a query whose inputs are known."""
    behind = tuple(edge.behind for edge in edges if edge.behind is not None)
    unread = "; ".join(f"it has not read {each}" for each in behind)
    names = dict.fromkeys(edge.query for edge in edges if edge.query is not None)
    called = f"in its scope it is {', '.join(map(str, names))}; " if names else ""
    unopened = [edge.label for edge in edges if edge.channel is None]
    lost = f"its input {unopened[0]} cannot be opened; " if unopened else ""
    if waits:
        what = f"{called}it waits for its input {', '.join(waits)}" + (f"; {unread}" if unread else "")
        release = f"its input {', '.join(waits)} must close the time first"
    elif loop:
        what = f"{called}its inputs from outside have closed the time, but rows still go round its loop: " + (
            unread or "it has read all that is there and has not passed the time"
        )
        release = "rounds that come to rest: bound it with maxRounds and maxLoopRows; if the query has stopped, start it again"
    else:
        what = f"{called}{lost}its inputs have closed the time, but the query has not: " + (
            unread or "it has not committed since, or it keeps an earlier time itself"
        )
        release = "the query's next batches: see whether it runs, and how long a batch takes; if it has stopped, start it again"
    return replace(
        holder,
        kind="loop" if loop else "query",
        culprit=not waits,
        what=f"{what}; {holder.what}",
        release=release,
        behind=behind,
        reads=tuple(edge.label for edge in edges),
    )
