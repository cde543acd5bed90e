"""The graph upstream of a channel: what each producer's query reads, as its commits or a scope say. Nothing is guessed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from strandline.channel import Channel
from strandline.channel.progress.query_producer_state import is_query
from strandline.channel.statements.inputs import Input
from strandline.delta.storage import location_of, storage_of
from strandline.delta.store_errors import without_secrets
from strandline.errors import StrandlineError
from strandline.report.ailments import Behind
from strandline.report.history import History
from strandline.report.steps import least_images
from strandline.report.unread import Checkpoints, UnreadRows
from strandline.scope import Scope
from strandline.time.domain import Time
from strandline.time.path.entry import Entry
from strandline.time.path.steps import Steps
from strandline.time.path.summary import PathSummary

__all__ = ["Edge", "Inputs", "QueryGraph", "query_in"]

_OTHER = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")
"""A URL of Hadoop's without a host, as ``dbfs:/lake/in``. A letter with a colon is a drive."""
_ELSEWHERE = "it is on another storage than the channel: name it with channels=…, or --upstream"

_NOT_NAMED = "only the log names it"

_NOWHERE: tuple[object, ...] = ({"least": []},)
"""The summary of a channel that the query reads, but no row of which leads to the output."""

Image = Callable[[Time], "list[Time] | None"]


@dataclass(frozen=True)
class Edge:
    """A channel that a producer's query reads.

    Attributes:
        query: The query's name in a scope, or ``None`` if the producer's own commits say that it reads the channel.
        label: The channel's path, or its id where no path is known.
        channel: The channel, opened; ``None`` if it cannot be opened.
        problem: Why it cannot be opened.
        image: The least times of the output that a time of this channel can still cause; ``None`` where they are not known.
        steps: What ``image`` does, as a value: edges with the same steps have the same image. Empty: nothing.
        behind: What the query has not read of it, if its commits say how far it has read.
        replaced: Whether another table is at its recorded path now. It may have been moved, or deleted.
    """

    query: str | None
    label: str
    channel: Channel | None
    problem: str | None
    image: Image
    steps: tuple[str, ...] = ()
    behind: Behind | None = None
    replaced: bool = False

    @property
    def unnamed(self) -> bool:
        """Whether nobody has named the channel, and channels that only a log names are not opened."""
        return self.problem == _NOT_NAMED


class Inputs(NamedTuple):
    """What a producer's query reads.

    Attributes:
        edges: The inputs; ``None`` if they are not known.
        why: Why they are not known; empty if the producer's newest commit was found, and names none.
    """

    edges: list[Edge] | None
    why: str = ""


class QueryGraph:
    """Finds the inputs of queries, and opens each channel once.

    Args:
        storage: The options of the storage of channels that commits name.
        scopes: Scopes that know channels and queries.
        channels: Further channels, which commits may name by their ids only.
        follow: Whether a channel is opened that only a commit names.
    """

    def __init__(
        self,
        storage: Mapping[str, str] | None = None,
        scopes: Iterable[Scope] = (),
        channels: Iterable[Channel] = (),
        *,
        follow: bool = True,
    ) -> None:
        self._storage = storage
        self._follow = follow
        self._scopes = list(scopes)
        self._opened: dict[str, Channel] = {channel.table_id: channel for channel in channels}
        self._failed: dict[str, str] = {}
        self._replaced: set[str] = set()
        self._unread: dict[str, UnreadRows] = {}
        self._checkpoints = Checkpoints()

    @property
    def problems(self) -> list[str]:
        """What of the inputs cannot be read, in words."""
        failed = ((path, unread.problem) for path, unread in self._unread.items())
        return [f"a part of {path} cannot be read: {what.rstrip('.')}" for path, what in failed if what is not None]

    def inputs(self, channel: Channel, producer: str, history: History) -> Inputs:
        """Return what a producer's query reads, as its newest commit or a scope says (:func:`query_in`)."""
        newest = history.newest(producer)
        statement = None if newest.commit is None else newest.commit.statement
        if statement is not None and statement.reads:
            reads = [each for each in statement.reads if each.summary != _NOWHERE]
            return Inputs([self._recorded(channel, producer, each) for each in reads])
        edges = [edge for scope in self._scopes for edge in self._of_scope(scope, channel, producer)]
        return Inputs(edges) if edges else Inputs(None, newest.why)

    def _recorded(self, channel: Channel, producer: str, read: Input) -> Edge:
        source, problem = self._open(channel, read)
        behind = None if source is None else self._behind(channel, producer, source, read)
        summary: Steps | None = None
        with suppress(StrandlineError):  # later releases may have other steps
            summary = None if read.summary is None else Steps.from_json(list(read.summary))

        def image(time: Time) -> list[Time] | None:
            if source is None or summary is None:
                return None
            return least_images(summary, source.domain, channel.domain, time, read.domain)

        label = f"table {read.table}" if read.path is None else without_secrets(read.path)
        same = read.summary == () and source is not None and source.domain == channel.domain
        steps = () if same else (f"{read.summary} of {read.domain}",)
        return Edge(None, label, source, problem, image, steps, behind, read.table in self._replaced)

    def _open(self, channel: Channel, read: Input) -> tuple[Channel | None, str | None]:
        """Open an input. Others may write the log, so a path on another storage is not opened with the user's credentials."""
        known = self._opened.get(read.table)
        if known is not None:
            return known, None
        for scope in self._scopes:
            for name, entry in scope.channels.items():
                if entry.table == read.table:
                    return self._of_entry(scope, name, entry.table)
        if read.path is None:
            return None, "its path is not recorded: add it to a scope, and ask with the scope"
        if not self._follow:
            there = {location_of(each.path) for each in self._opened.values()}
            if location_of(read.path) in there:
                self._replaced.add(read.table)
                return None, f"{read.path} holds another table now"
            return None, _NOT_NAMED
        if read.table not in self._failed:
            try:
                location = location_of(read.path)
                if _OTHER.match(read.path):
                    return None, _ELSEWHERE
                if "://" not in read.path and not read.path.removeprefix("file:").startswith("/"):
                    return None, "its recorded path is relative to an unknown folder: name it with channels=…, or --upstream"
                if storage_of(location) != storage_of(channel.path):
                    return None, _ELSEWHERE
                found = Channel.open(location, self._storage)
                if found.table_id == read.table:
                    self._opened[read.table] = found
                    return found, None
                self._replaced.add(read.table)
                self._failed[read.table] = f"{read.path} holds another table now"
            except StrandlineError as error:
                self._failed[read.table] = error.what
        return None, self._failed[read.table]

    def _of_entry(self, scope: Scope, name: str, table: str) -> tuple[Channel | None, str | None]:
        """Open a channel of a scope, or return why it cannot be opened."""
        if table not in self._opened and table not in self._failed:
            try:
                self._opened[table] = scope.channel(name)
            except StrandlineError as error:
                self._failed[table] = error.what
        return self._opened.get(table), self._failed.get(table)

    def _of_scope(self, scope: Scope, channel: Channel, producer: str) -> list[Edge]:
        query_name, name = query_in(scope, channel, producer), _name_in(scope, channel.table_id)
        if query_name is None:
            return []
        query, found = scope.queries[query_name], []
        for read in query.reads:
            summaries = query.summaries.get(read, {}).get(name)
            if not summaries:
                continue  # no row of this input reaches the output
            entry = scope.channels[read]
            source, problem = self._of_entry(scope, read, entry.table)
            if source is None:
                found.append(Edge(query_name, without_secrets(entry.path), None, problem, lambda _: None))
                continue
            paths = list(summaries)
            image = _through(Entry(source.domain, scope.domain), paths, Entry(channel.domain, scope.domain))
            steps = tuple(f"{path} of {scope.domain}" for path in paths if not path.is_identity)
            found.append(Edge(query_name, source.path, source, None, image, steps))
        return found

    def _behind(self, output: Channel, producer: str, channel: Channel, read: Input) -> Behind | None:
        """Return what a query has not read. A commit is read once for all queries."""
        unread = self._unread.setdefault(channel.path, UnreadRows(channel))
        if read.commit > channel.version:
            return None
        return unread.after(read, self._checkpoints.position(output, output.progress.get(producer), read.table))


def query_in(scope: Scope, channel: Channel, producer: str, reads: Iterable[Input] = ()) -> str | None:
    """Return the name of the query of a scope that writes a channel as a producer; ``None`` if the scope does not say it.

    A scope does not name the producer of a query. If the producer's commits say what it reads, the query reads the same channels.
    Otherwise the scope speaks for a producer that has the name of its query, and for a query that is the only producer of a
    channel which one query of the scope writes. A query of the scope that reads no channel is one whose commits do not say it.

    Args:
        scope: The scope.
        channel: The channel.
        producer: The producer's name.
        reads: What the producer's commits say that it reads.
    """
    name, tables = _name_in(scope, channel.table_id), {read.table for read in reads}
    writing = {query_name: query for query_name, query in scope.queries.items() if name in query.writes}
    if not tables and producer in writing:
        return producer
    for query_name, query in writing.items():
        if {scope.channels[read].table for read in query.reads} == tables:
            return query_name
    known = channel.progress.producers
    named = {each for each, state in known.items() if each.startswith("query-") or is_query(each, state)}
    lives = {each for each, state in known.items() if state.holds}  # an operator's that has ended counts no more
    alone = len(writing) == 1 and named | lives == {producer} and producer in named
    return next(iter(writing)) if alone and not tables else None


def _name_in(scope: Scope, table: str) -> str:
    return next((name for name, entry in scope.channels.items() if entry.table == table), "")


def _through(into: Entry, paths: list[PathSummary], out: Entry) -> Image:
    """Return what paths in a scope's domain do to times of one channel, as times of another one."""

    def image(time: Time) -> list[Time]:
        found = [path.results_in(into.time(time)) for path in paths]
        return [out.leave(each) for each in found if each is not None]

    return image
