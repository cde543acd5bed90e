"""The graph of the page: channels, the queries and ingests between them, and the producers that begin it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from strandline.channel import Channel, ProducerState
from strandline.channel.progress.query_producer_state import QueryProducerState, named
from strandline.channel.statements.inputs import Input
from strandline.channel.statements.statement import REGISTRAR
from strandline.delta.store_errors import without_secrets
from strandline.errors import StrandlineError, printable
from strandline.ingest.state.query_entry import QueryEntry
from strandline.ingest.state.registrar_state import RegistrarState
from strandline.page.cursor import Cursor, texts
from strandline.page.model import ChannelView, Edge, Node, Unread
from strandline.report.graph import query_in
from strandline.report.holders import kind_of
from strandline.scope import Scope
from strandline.time.antichain import Antichain
from strandline.time.domain import Time

__all__ = ["Shown", "graph_of"]


class Shown(NamedTuple):
    """A channel on the page: its view, and its cursor unless it cannot be read."""

    view: ChannelView
    cursor: Cursor | None


def graph_of(
    shown: Sequence[Shown], scopes: Sequence[Scope]
) -> tuple[tuple[Node, ...], tuple[Edge, ...], dict[str, tuple[Unread, ...]]]:
    """Return the nodes, the edges, and what is unread of each channel, by the channel's id.

    What a query reads is known from the commits that it makes. A scope adds the queries that it has recorded, with their names.

    Args:
        shown: The channels of the page.
        scopes: The scopes of the page.
    """
    graph = _Graph(shown, scopes)
    for each in shown:
        graph.add_channel(each)
    for each in shown:
        if each.cursor is not None:
            graph.add_writers(each.view, each.cursor)
    graph.add_recorded()
    return tuple(graph.nodes.values()), tuple(graph.edges.values()), {key: tuple(each) for key, each in graph.unread.items()}


class _Writers:
    """Producers of a channel that are one node."""

    def __init__(self) -> None:
        self.count = 0
        self.times: set[Time] = set()

    def add(self, state: ProducerState) -> None:
        self.count += 1
        self.times.update(state.holds)


class _Graph:
    def __init__(self, shown: Sequence[Shown], scopes: Sequence[Scope]) -> None:
        self.nodes: dict[str, Node] = {}
        self.edges: dict[tuple[str, str], Edge] = {}
        self.unread: dict[str, list[Unread]] = {}
        self._scopes = scopes
        self._known: dict[str, tuple[str, str]] = {}
        """The node and the label of each query by its id: a query may write several channels."""
        self._tables = {each.view.table: each for each in shown if each.view.table}

    def add_channel(self, each: Shown) -> None:
        view = each.view
        note = "cannot be read" if view.problem is not None else view.domain
        self.nodes[view.id] = Node(view.id, "channel", view.label, note, view.id, view.stale or view.problem is not None)

    def add_writers(self, view: ChannelView, cursor: Cursor) -> None:
        """Add who writes a channel: each query, each ingest, and all other producers as one node."""
        try:
            ingests: Mapping[str, QueryEntry] = RegistrarState.of(cursor.progress).entries
        except StrandlineError:
            ingests = {}
        groups: dict[tuple[str, str], _Writers] = {}
        queries: dict[str, tuple[str, ProducerState]] = {}
        for name, state in cursor.states:
            kind = kind_of(name, state, ingests)
            if kind == "query" and state.owner is not None:
                queries[state.owner.id] = name, state
            elif kind == "partition":
                groups.setdefault(("ingest", "" if state.owner is None else state.owner.id), _Writers()).add(state)
            elif kind == "ingest":
                groups.setdefault(("ingest", next(iter(ingests), "")), _Writers()).add(state)
            else:
                groups.setdefault(("producers", ""), _Writers()).add(state)
        registrar = cursor.progress.get(REGISTRAR)
        if registrar is not None and registrar.holds:
            group = groups.setdefault(("ingest", next(iter(ingests))) if ingests else ("producers", ""), _Writers())
            group.times.update(registrar.holds)
        for (kind, query), group in groups.items():
            self._add_group(view, cursor, kind, query, group, ingests)
        for query, (name, state) in queries.items():
            self._add_query(view, cursor, query, name, state)

    def _add_group(
        self, view: ChannelView, cursor: Cursor, kind: str, query: str, group: _Writers, ingests: Mapping[str, QueryEntry]
    ) -> None:
        id_ = f"{kind}-{view.id}-{query}"
        if kind == "ingest":
            entry = ingests.get(query, QueryEntry())
            label = printable(entry.name or "ingest")
            note = f"{entry.policy or 'no query'}, {_count(group.count, 'producer')}"
        else:
            label, note = _count(group.count, "producer"), "outside" if view.sealed else "and more may join"
        self.nodes[id_] = Node(id_, kind, label, printable(note), view.id)
        self._add_edge(view, cursor, id_, Antichain(cursor.channel.domain, group.times))

    def _add_edge(self, view: ChannelView, cursor: Cursor, source: str, holds: Antichain) -> None:
        back = view.stale and any(time in cursor.progress.frontier for time in holds)
        self.edges[source, view.id] = Edge(source, view.id, texts(holds), marked=back)

    def _add_query(self, view: ChannelView, cursor: Cursor, query: str, name: str, state: ProducerState) -> None:
        reads = cursor.reads.get(name, ())
        if query not in self._known:
            loop = QueryProducerState.from_json(state.state).loop
            told = loop.get("query") if isinstance(loop, dict) else None
            shown = named(name, state) if not isinstance(told, str) or not told else told
            shown = shown or f"query {query[:8]}"
            self._known[query] = self._recorded(cursor.channel, name, reads) or (f"query-{query}", shown)
        id_, label = self._known[query]
        gone = state.owner is not None and state.owner.is_dead()
        note = "its process is gone" if gone else f"query {query[:8]}" if label != f"query {query[:8]}" else ""
        self.nodes.setdefault(id_, Node(id_, "query", printable(label), printable(note), view.id, marked=gone))
        self._add_edge(view, cursor, id_, state.holds)
        for read in reads:
            self._add_read(id_, printable(label), read, cursor.channel, state)

    def _recorded(self, channel: Channel, producer: str, reads: Sequence[Input]) -> tuple[str, str] | None:
        """Return the id and the name of the query of a scope that writes a channel as a producer."""
        named = ((number, query_in(scope, channel, producer, reads)) for number, scope in enumerate(self._scopes))
        return next(((f"scope-{number}-{name}", name) for number, name in named if name is not None), None)

    def _add_read(self, query: str, label: str, read: Input, output: Channel, state: ProducerState) -> None:
        known = self._tables.get(read.table)
        if known is None:
            id_ = f"table-{read.table}"
            shown = "another channel" if read.path is None else without_secrets(read.path).rstrip("/").rpartition("/")[2]
            self.nodes.setdefault(id_, Node(id_, "channel", printable(shown or "another channel"), "not on this page"))
            self.edges[id_, query] = Edge(id_, query, None)
            return
        unread = None if known.cursor is None else _unread(label, known.cursor, read, output, state)
        before = self.edges.get((known.view.id, query))
        if before is not None and _size(before.unread) >= _size(unread):
            return  # by another output of the query, which is further behind
        if before is not None and before.unread is not None:
            self.unread[known.view.id].remove(before.unread)
        if unread is not None:
            self.unread.setdefault(known.view.id, []).append(unread)
        self.edges[known.view.id, query] = Edge(known.view.id, query, known.view.frontier, unread)

    def add_recorded(self) -> None:
        """Add the queries of the scopes, and their edges, as far as commits have not said the same."""
        for number, scope in enumerate(self._scopes):
            ids = {name: known.view.id for name, channel in scope.channels.items() if (known := self._tables.get(channel.table))}
            for name, query in scope.queries.items():
                id_ = f"scope-{number}-{name}"
                if id_ not in self.nodes:
                    self.nodes[id_] = Node(id_, "query", printable(name), "recorded in the scope")
                for read in query.reads:
                    if read in ids:
                        view = self._tables[scope.channels[read].table].view
                        self.edges.setdefault((ids[read], id_), Edge(ids[read], id_, view.frontier))
                for write in query.writes:
                    if write in ids:
                        self.edges.setdefault((id_, ids[write]), Edge(id_, ids[write], None))


def _unread(label: str, cursor: Cursor, read: Input, output: Channel, state: ProducerState) -> Unread | None:
    """Return what a query has not read of a channel. Its checkpoint is asked only if its newest commit is behind."""
    if read.commit > cursor.channel.version:
        return None
    behind = cursor.unread.after(read, cursor.checkpoints.position(output, state, read.table))
    if behind is None:
        return None
    return Unread(label, behind.commits, behind.rows, behind.exact and behind.rows is not None, behind.at_most)


def _size(unread: Unread | None) -> int:
    return 0 if unread is None else unread.commits


def _count(number: int, what: str) -> str:
    return f"{number:,}".replace(",", "\u202f") + f" {what}{'' if number == 1 else 's'}"
