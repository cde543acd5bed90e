"""Why is a time of a channel not closed? Follows what holds it, from the channel upstream to the outside streams."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from strandline.channel import Channel
from strandline.channel.progress.query_producer_state import is_query, named
from strandline.channel.statements.statement import REGISTRAR
from strandline.errors import StrandlineError
from strandline.report import errors
from strandline.report.ailments import Causes, Holder, called
from strandline.report.explanation import Explanation
from strandline.report.graph import Edge, QueryGraph
from strandline.report.history import History
from strandline.report.holders import Describer
from strandline.report.waits import Read, Waits
from strandline.scope import Scope
from strandline.time.domain import Time, TimeDomain
from strandline.time.time_text import asked_time

__all__ = ["explain", "explain_least"]

_MOST_DEPTH = 40
_MOST_CHANNELS = 100
_MOST_TIMES = 5
"""So many times of a frontier are explained to find one that somebody waits for."""

_MOST_REMEDIES = 5

ToAsked = Callable[[Time], "list[Time] | None"]
"""The least times that a time of a channel may still cause in the channel that was asked for; ``None``: they are not known."""
Key = tuple[str, str]
"""A holder: the id of its channel's table, and its name."""


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
            raise errors.scope_channel_unknown(source.channels)
        asked = source.channel(channel)
        scopes.append(source)
        storage = storage or source.storage_options
    else:
        asked = source if isinstance(source, Channel) else Channel.open(source, storage)
    asked.refresh()
    graph = _graph(asked, storage, scopes, channels, follow=follow)
    return _Search(asked, asked_time(asked.domain, time), graph, most, history).explanation()


def explain_least(
    source: str | os.PathLike[str] | Channel,
    *,
    storage: Mapping[str, str] | None = None,
    scopes: Iterable[Scope] = (),
    channels: Iterable[str | os.PathLike[str] | Channel] = (),
    most: int = 20,
    history: int = 2000,
    follow: bool = True,
) -> Explanation | None:
    """Return why the least open time for which somebody waits is open; ``None`` if everything is closed.

    An ingest with corrections keeps the right to readmit late rows at any time. Nobody waits for that. So times that only this
    right holds open, here or upstream, are asked for only if there is no other open time.

    Args:
        source: The channel, opened or by its path.
        storage: As for :func:`explain`, like the others.
        scopes: Scopes that say which queries there are.
        channels: Further channels that are upstream.
        most: How many holders of one channel are listed.
        history: About how many commits of each log are read.
        follow: Whether channels are opened that only a log names.

    Raises:
        ChannelError: There is no channel, or it cannot be read.
    """
    asked = source if isinstance(source, Channel) else Channel.open(source, storage)
    asked.refresh()
    graph = _graph(asked, storage, list(scopes), channels, follow=follow)
    first: Explanation | None = None
    later: list[Time] = []
    for time in sorted(asked.frontier, key=asked.domain.sort_key)[:_MOST_TIMES]:
        search = _Search(asked, time, graph, most, history)
        answer = search.explanation()
        if not all(holder.corrects for holder in answer.culprits):
            return answer
        first, later = first or answer, later + search.later
    later = [time for time in later if not asked.frontier.closed(time)]
    if not later:
        return first
    return _Search(asked, min(later, key=asked.domain.sort_key), graph, most, history).explanation()


def _graph(
    asked: Channel,
    storage: Mapping[str, str] | None,
    scopes: list[Scope],
    channels: Iterable[str | os.PathLike[str] | Channel],
    *,
    follow: bool,
) -> QueryGraph:
    opened = [asked, *(each if isinstance(each, Channel) else Channel.open(each, storage) for each in channels)]
    return QueryGraph(storage, scopes, opened, follow=follow)


class _Search:
    """One walk upstream. It collects the holders, the asked channel's first."""

    def __init__(self, asked: Channel, time: Time, graph: QueryGraph, most: int, history: int) -> None:
        self._asked, self._time = asked, time
        self._domain: TimeDomain = asked.domain
        self._graph, self._most, self._limit = graph, most, history
        self._found: dict[Key, Holder] = {}
        self._waits = Waits()
        self._visited: dict[tuple[str, tuple[str, ...]], list[Key]] = {}
        self._hidden: dict[str, int] = {}
        self._notes: dict[str, None] = {}
        self._tools: dict[str, tuple[History, Describer]] = {}
        self.later: list[Time] = []
        """Open times of the asked channel that others than corrections hold, and that do not hold the asked time."""

    def explanation(self) -> Explanation:
        frontier = self._asked.frontier.copy()
        if not frontier.closed(self._time):
            self._visit(self._asked, lambda time: [time], (), (self._asked.path,), (self._asked.table_id,))
        for history, describer in self._tools.values():
            if history.problem is not None:
                self._notes[f"a part of the log of {describer.path} cannot be read: {history.problem.rstrip('.')}"] = None
            self._notes |= dict.fromkeys(f"{describer.path}, {each}" for each in describer.remedies[:_MOST_REMEDIES])
        self._notes |= dict.fromkeys(self._graph.problems)
        holders = _without_followers(list(self._waits.judged(self._found)))
        return Explanation(
            self._asked.path,
            self._asked.version,
            self._domain,
            self._time,
            frontier,
            tuple(holders),
            sum(self._hidden.values()),
            tuple(self._notes),
        )

    def _visit(
        self, channel: Channel, to_asked: ToAsked, steps: tuple[str, ...], way: tuple[str, ...], above: tuple[str, ...]
    ) -> list[Key] | None:
        """Add who holds the time in one channel, and upstream of it. Return them; ``None`` if it is too far away.

        A channel may be reached by several ways. Each with other steps leads to other holders.
        """
        place = channel.table_id, steps
        if place in self._visited:
            return self._visited[place]
        if len(self._visited) >= _MOST_CHANNELS or len(above) > _MOST_DEPTH:
            self._notes[f"more than {_MOST_CHANNELS} channels, or {_MOST_DEPTH} one after the other, are upstream"] = None
            return None
        holding, sure = self._holding(channel, to_asked)
        if channel.table_id not in self._tools:
            history = History(channel, self._limit)
            self._tools[channel.table_id] = history, Describer(channel, history)
            problem = self._tools[channel.table_id][1].problem
            if problem is not None:
                self._notes[f"the states of the ingests of {channel.path} cannot be read: {problem}"] = None
        held = dict(holding)
        causes = Causes(held, channel.progress.producers, self._tools[channel.table_id][1].ingests)
        listed = causes.listed(self._most)
        self._tools[channel.table_id][0].look_for(listed)
        found = self._visited[place] = [(channel.table_id, name) for name in listed]
        for key in found:
            times = held[key[1]]
            here = (called(named(key[1], channel.progress.get(key[1])), key[1]), *way)
            known = self._found.get(key)
            if known is None:
                self._found[key] = causes.of(self._holder(channel, key[1], times, here, to_asked, sure=sure))
            elif len(times) > len(known.times) or (sure and not known.sure):
                self._found[key] = causes.of(self._holder(channel, key[1], times, known.way, to_asked, sure=sure or known.sure))
            if self._found[key].kind == "producer":
                self._follow(key, channel, to_asked, steps, here, above)
        self._hidden[channel.table_id] = max(self._hidden.get(channel.table_id, 0), len(holding) - self._most)
        return found

    def _holding(self, channel: Channel, to_asked: ToAsked) -> tuple[list[tuple[str, tuple[Time, ...]]], bool]:
        """Return who holds the asked time in a channel, with the capabilities that do, the earliest first, and if it is sure.

        Where it is not known what a time can cause, these are the times of the channel's frontier: it is their images that hold
        the output back.
        """
        frontier, less_equal, unsure = channel.frontier, self._domain.comparison, False

        def holds(time: Time) -> bool:
            nonlocal unsure
            arrives = to_asked(time)
            if arrives is None:
                unsure = True
                return time in frontier
            if not any(less_equal(each, self._time) for each in arrives):
                later.extend(arrives)
                return False
            return True

        known: dict[Time, bool] = {}
        later: list[Time] = []
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
        if later:
            self.later.append(min(later, key=self._domain.sort_key))
        key = channel.domain.sort_key
        return sorted(found, key=lambda entry: (min(map(key, entry[1])), entry[0] == REGISTRAR, entry[0])), not unsure

    def _opens(self, to_asked: ToAsked, time: Time) -> bool:
        """Return whether a time of a channel keeps the asked time open, as far as that is known."""
        return any(self._domain.less_equal(each, self._time) for each in to_asked(time) or ())

    def _holder(
        self, channel: Channel, name: str, times: tuple[Time, ...], way: tuple[str, ...], to_asked: ToAsked, *, sure: bool
    ) -> Holder:
        history, describer = self._tools[channel.table_id]
        state = channel.progress.get(name)
        if state is None:
            raise RuntimeError(f"{channel.path} lost its producer {name!r} during an explanation")
        kind, what, release, drop = describer.describe(name, state, partial(self._opens, to_asked))
        if not sure:  # it may be healthy, so nobody should drop it
            what = f"it holds the least times of its channel, and it is not known whether they keep this time open; {what}"
            drop = ""
        return Holder(
            channel.path,
            name,
            kind,
            times,
            tuple(channel.domain.format(time) for time in times),
            history.since(name),
            culprit=True,
            what=what,
            release=f"{release}; {drop}" if drop else release,
            session=None if state.owner is None else str(state.owner),
            gone=True if state.owner is not None and state.owner.is_dead() else None,
            way=way,
            sure=sure,
            query=describer.query_of(name, state),
        )

    def _follow(
        self, key: Key, channel: Channel, to_asked: ToAsked, steps: tuple[str, ...], way: tuple[str, ...], above: tuple[str, ...]
    ) -> None:
        """Look upstream of a holder."""
        holder = self._found[key]
        inputs = self._graph.inputs(channel, holder.name, self._tools[channel.table_id][0])
        if inputs.edges is None:
            if is_query(holder.name, channel.progress.get(holder.name)):
                self._found[key] = _not_known(holder, inputs.why)
            return
        for edge in inputs.edges:
            self._waits.add(key, self._read(edge, holder, to_asked, steps, way, above))

    def _read(
        self,
        edge: Edge,
        holder: Holder,
        to_asked: ToAsked,
        steps: tuple[str, ...],
        way: tuple[str, ...],
        above: tuple[str, ...],
    ) -> Read:
        """Return who holds the time in an input of a query."""
        source = edge.channel
        if source is None:
            note = f"which cannot be opened: {str(edge.problem).rstrip('.')}"
            if edge.unnamed:
                note = "which is not looked at here: name that channel too"
            self._notes[f"{holder.called} reads {edge.label}, {note}"] = None
            return Read(edge)
        arrives = _after(edge, to_asked)
        if source.table_id in above:  # a loop: its rows come back later each time, so once around is enough
            return Read(edge, [(source.table_id, name) for name, _ in self._holding(source, arrives)[0]], loop=True)
        try:
            source.refresh()
        except StrandlineError as error:
            self._notes[f"{holder.called} reads {edge.label}, which cannot be read: {error.what.rstrip('.')}"] = None
            return Read(replace(edge, channel=None, problem=error.what))
        if any(arrives(time) is None for time in source.frontier):
            self._notes[
                f"it is not known what times of {edge.label} {holder.called} can still cause, by the steps in its log"
            ] = None
            if edge.behind is not None or holder.gone:  # what it has not read may close the time
                return Read(edge, unknown=True)
        found = self._visit(source, arrives, (*edge.steps, *steps), (edge.label, *way), (*above, source.table_id))
        return Read(edge, found or [], far=found is None)


def _without_followers(holders: list[Holder]) -> list[Holder]:
    """Return holders of which a registrar is no culprit where a partition holds the time too: sealing releases nothing then."""
    led = {holder.channel for holder in holders if holder.kind == "partition"}
    return [replace(each, culprit=False) if each.kind == "registrar" and each.channel in led else each for each in holders]


def _not_known(holder: Holder, why: str) -> Holder:
    """Return a query of which it is not known what it reads. It may wait for an input, so it is dropped only if it is gone."""
    unknown = f"it is not known which channels it reads, because {why or 'its commits do not say it'}; add it to a scope"
    query = replace(holder, kind="query", what=f"{unknown}; {holder.what}")
    if holder.gone:
        return query
    runs = "see whether it runs, and whether what it reads has closed the time; if it has stopped, start it again"
    return replace(query, release=f"the query's next batches: {runs}")


def _after(edge: Edge, to_asked: ToAsked) -> ToAsked:
    def image(time: Time) -> list[Time] | None:
        there = edge.image(time)
        arrive = [None] if there is None else [to_asked(each) for each in there]
        return None if None in arrive else [time for times in arrive if times is not None for time in times]

    return image
