"""The model of Triceps' loops, step by step: what may happen next, and what then happens."""

from __future__ import annotations

import copy
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from triceps_graph import END, FIGURE, Graph, Link, Node, Output, Queues, Record, Stamp, earliest_instant
from triceps_log import Diverged, Divergence, Entry, OnDivergence, chained, verify

__all__ = ["Action", "Machine", "Result"]

Action = tuple[str, str]
"""What happens, and to which node or link."""


@dataclass(frozen=True)
class Result:
    """What a run did.

    Attributes:
        outputs: What was written to ``"out"``, in the order of stamps, nodes and writing.
        log: All lines, link by link.
        taken: The stamps and payloads that each node took, in its order.
        divergences: What ``on_divergence="report"`` or ``"restamp"`` found.
        rounded: How many events each scheduler delayed to L.
        most: The most records that waited on each link.
    """

    outputs: tuple[Output, ...]
    log: tuple[Entry, ...]
    taken: Mapping[str, tuple[tuple[Stamp, Any], ...]]
    divergences: tuple[Divergence, ...]
    rounded: Mapping[str, int]
    most: Mapping[str, int]


@dataclass
class _LinkState:
    waiting: deque[Record] = field(default_factory=deque)
    """Records without a new stamp. For a semi-blocking link: its blocking queue."""
    ready: list[Record] = field(default_factory=list)
    """Records with their new stamp, and the scheduler's events."""
    origins: deque[Record] = field(default_factory=deque)
    """What the ``ready`` records were before."""
    n: int = 0
    expected: tuple[Entry, ...] | None = None
    position: int = 0
    log: list[Entry] = field(default_factory=list)
    rounded: int = 0
    most: int = 0

    def copy(self) -> _LinkState:
        made = replace(self, waiting=deque(self.waiting), ready=list(self.ready), origins=deque(self.origins))
        made.log = list(self.log)
        return made


class Machine:
    """A graph with everything that is under way. ``actions`` says what may happen next, and ``do`` makes it happen."""

    def __init__(
        self,
        records: Sequence[tuple[int, Any]],
        program: Mapping[str, Node],
        links: Sequence[Link],
        graph: Graph = FIGURE,
        queues: Queues | None = None,
        replay: Sequence[Entry] | None = None,
        on_divergence: OnDivergence = "abort",
    ) -> None:
        self.records, self.program, self.graph, self.queues = list(records), program, graph, queues or Queues()
        self.links = {link.name: link for link in links}
        # Schedulers before links before the input: at one instant events go first, then what comes round.
        order = [*(k for k in links if k.case == "scheduler"), *(k for k in links if k.case != "scheduler")]
        self.ids = {name: i for i, name in enumerate([*(link.name for link in order), graph.input])}
        self.into = {node: [link for link in order if link.target == node] for node in graph.nodes()}
        self.edges_into = {node: [edge for edge in graph.edges if edge[1] == node] for node in graph.nodes()}
        self.on_divergence = on_divergence
        self.step = 0
        self.position = 0
        self.reached = self.records[0][0] if self.records else END.instant
        self.queue: dict[tuple[str, str], deque[Record]] = {edge: deque() for edge in graph.edges}
        self.state: dict[str, dict[str, Any]] = {node: {} for node in graph.nodes()}
        self.clock = dict.fromkeys(graph.nodes(), Stamp(-1, 0, 0))
        self.outside: dict[str, list[Stamp]] = {node: [] for node in graph.nodes()}
        self.link = {link.name: _LinkState() for link in links}
        self.outputs: list[Output] = []
        self.taken: dict[str, list[tuple[Stamp, Any]]] = {node: [] for node in graph.nodes()}
        self.divergences: list[Divergence] = []
        self._least: dict[str, Stamp] | None = None
        if replay is not None:
            self._begin_replay(replay)

    def fork(self) -> Machine:
        """Return an independent copy: what a checkpoint keeps."""
        made = copy.copy(self)
        made.queue = {edge: deque(queue) for edge, queue in self.queue.items()}
        made.state = copy.deepcopy(self.state)
        made.clock, made.outside = dict(self.clock), {node: list(stamps) for node, stamps in self.outside.items()}
        made.link = {name: state.copy() for name, state in self.link.items()}
        made.taken = {node: list(taken) for node, taken in self.taken.items()}
        made.outputs, made.divergences = list(self.outputs), list(self.divergences)
        return made

    def key(self) -> str:
        """Return a text that is equal for machines that are in the same situation."""
        links = [(name, list(s.waiting), s.ready, s.n, s.log) for name, s in self.link.items()]
        queues = [list(queue) for queue in self.queue.values()]
        return repr((self.position, self.reached, queues, self.state, links, self.taken, sorted(self.outputs, key=repr)))

    # What may happen.

    def actions(self) -> Iterator[Action]:
        """Yield everything that may happen next."""
        if self.can_admit():
            yield "admit", self.graph.input
        if self.position < len(self.records) and self._allowed(self.records[self.position][0]) > self.reached:
            yield "announce", self.graph.input
        for node in self.state:
            if self.can_step(node):
                yield "step", node
        for name, link in self.links.items():
            if link.full != "whole" and self.can_move(name):
                yield "move", name

    def rescue(self) -> Action | None:
        """Return what is to happen when nothing else can: a link with ``full="whole"`` moves a record."""
        moves = [name for name, link in self.links.items() if link.full == "whole" and self.can_move(name)]
        return ("move", moves[0]) if moves else None

    def do(self, action: Action) -> None:
        """Make an action happen."""
        kind, name = action
        self._least = None
        if kind == "admit":
            self._admit()
        elif kind == "announce":
            self.reached = self._allowed(self.records[self.position][0])
        elif kind == "step":
            self._step(name)
        else:
            self.move(name)
        self._least = None

    def tick(self, step: int) -> None:
        """Let the receiving clocks go on."""
        self.step, self._least = step, None

    @property
    def done(self) -> bool:
        """Whether all records have come in and nothing is under way."""
        links = self.link.values()
        under_way = any(self.queue.values()) or any(state.waiting or state.ready for state in links)
        return self.position == len(self.records) and not under_way

    def can_admit(self) -> bool:
        """Whether the timestamper may let in the next record. With a receiving clock, not before its instant."""
        if self.position == len(self.records):
            return False
        instant = self.records[self.position][0]
        return self._allowed(instant) == instant and self._has_room(self.graph.input, None)

    def _allowed(self, instant: int) -> int:
        clocks = [k.clock(self.step) for k in self.links.values() if k.clock and self.link[k.name].expected is None]
        return min([instant, *clocks])

    def can_step(self, node: str) -> bool:
        """Whether a node knows which record is next, and has room for what follows from it."""
        chosen = self._choose(node)
        if chosen is None:
            return False
        if self.queues.waits == "all":
            return self._has_room(node, None)
        record = chosen[1]._replace(stamp=chosen[2])
        return self._has_room(node, {to for to, _ in self._function(node)(record, copy.deepcopy(self.state[node]))})

    def _has_room(self, node: str, written: set[str] | None) -> bool:
        depth = self.queues.depth
        for edge, queue in self.queue.items():
            if edge[0] == node and (written is None or edge[1] in written) and depth is not None and len(queue) >= depth:
                return False
        for link in self.links.values():
            if link.source == node and (written is None or link.name in written) and self._is_full(link):
                return False
        return True

    def _is_full(self, link: Link) -> bool:
        return link.case != "counted" and link.depth is not None and len(self.link[link.name].waiting) >= link.depth

    def can_move(self, name: str) -> bool:
        """Whether a semi-blocking link is to move its first record, so that the loop goes on."""
        link = self.links[name]
        if link.case != "semi-blocking" or not self._is_full(link):
            return False
        if not self.knows_next(name):
            return False
        if link.full == "whole":
            return True
        edges, nodes = self.graph.within(link.target, link.source)
        if link.full == "top":
            edges = [edge for edge in edges if edge[0] == link.target]
        if any(len(self.queue[edge]) < (self.queues.depth or END.instant) for edge in edges):
            return False
        return link.full != "stuck" or all(self._choose(node) and not self.can_step(node) for node in nodes)

    def knows_next(self, name: str) -> bool:
        """Whether it is known which record from outside comes after a link's first record, or that none comes within L."""
        return self._upcoming(self.links[name], self.link[name].waiting[0].stamp) is not None

    # Which stamp is next.

    def least(self) -> dict[str, Stamp]:
        """Return the least stamp that each node may still take."""
        if self._least is None:
            known = dict.fromkeys(self.state, END)
            while True:
                now = {node: self._least_of(node, known) for node in self.state}
                if now == known:
                    break
                known = now
            self._least = known
        return self._least

    def _least_of(self, node: str, least: dict[str, Stamp]) -> Stamp:
        found = [self._bound(edge, least) for edge in self.edges_into[node]]
        for link in self.into[node]:
            state = self.link[link.name]
            if state.ready:
                found.append(state.ready[0].stamp)
            if state.waiting or not state.ready or link.case == "scheduler":
                original = state.waiting[0].stamp if state.waiting else least[link.source]
                found.append(self._earliest(link, original, least))
        return min(found)

    def _bound(self, edge: tuple[str, str], least: dict[str, Stamp]) -> Stamp:
        if self.queue[edge]:
            return self.queue[edge][0].stamp
        return self.frontier() if edge[0] == self.graph.input else least[edge[0]]

    def frontier(self) -> Stamp:
        """Return the least stamp that the timestamper may still give."""
        if self.position == len(self.records):
            return END
        return Stamp(self.reached, self.ids[self.graph.input], self.position)

    def _earliest(self, link: Link, original: Stamp, least: dict[str, Stamp]) -> Stamp:
        """Return the least stamp that a record may get that was stamped ``original`` or later."""
        state = self.link[link.name]
        if state.expected is not None:
            is_played = self.on_divergence == "report" or state.position == len(state.expected)
            return END if is_played else state.expected[state.position].new
        if original >= END:
            return END
        if link.case in ("fixed", "scheduler"):
            return self._delayed(link, original)
        if link.case == "record":
            return self._after(link, self._shown(link), original)
        upcoming = min(self._bound(edge, least) for edge in self.edges_into[link.target])
        return self._after(link, earliest_instant(original.instant, link.lag, upcoming.instant), original)

    def _delayed(self, link: Link, original: Stamp) -> Stamp:
        if link.case == "semi-blocking":  # what it has moved may have gone further
            return self._after(link, original.instant + link.lag, original)
        return Stamp(original.instant + link.lag, self.ids[link.name], self.link[link.name].n)

    def _after(self, link: Link, instant: int, original: Stamp) -> Stamp:
        """Return the link's least stamp from an instant on, after the record's own and after what the target has taken."""
        stamp = Stamp(instant, self.ids[link.name], self.link[link.name].n)
        floor = max(original, self.clock[link.target], *(each.stamp for each in self.link[link.name].ready[-1:]))
        return stamp if stamp > floor else stamp._replace(instant=floor.instant + 1)

    def _shown(self, link: Link) -> int:
        if link.clock is None:
            raise ValueError(f"The link {link.name!r} has no clock.")
        return link.clock(self.step)

    def _upcoming(self, link: Link, original: Stamp) -> Stamp | None:
        """Return the next record from outside, or where the input is if that is enough to know. Else nothing: it must wait."""
        edges, least = self.edges_into[link.target], self.least()
        if link.looks == "above" and link.case != "counted":
            queued, bound = self._queued(link.target), self.frontier()
        else:
            first = min(edges, key=lambda edge: self._bound(edge, least))
            queued, bound = self.queue[first][0].stamp if self.queue[first] else None, self._bound(first, least)
        if queued is not None:
            return queued
        return bound if bound.instant >= original.instant + link.lag else None

    def _queued(self, node: str) -> Stamp | None:
        found: list[Stamp] = []
        for edge in self.edges_into[node]:
            if self.queue[edge]:
                found.append(self.queue[edge][0].stamp)
            elif edge[0] != self.graph.input and (above := self._queued(edge[0])) is not None:
                found.append(above)
        return min(found, default=None)

    def _choose(self, node: str) -> tuple[Link | tuple[str, str], Record, Stamp] | None:
        """Return the input whose record is next, that record, and its stamp; nothing if an earlier one may still come."""
        ways: list[tuple[Link | tuple[str, str], Stamp, Record | None]] = []
        ways += [(link, *self._offer(link)) for link in self.into[node]]
        for edge in self.edges_into[node]:
            ways += [(edge, self._bound(edge, self.least()), self.queue[edge][0] if self.queue[edge] else None)]
        i = min(range(len(ways)), key=lambda i: (ways[i][1], i))
        way, stamp, record = ways[i]
        return None if record is None else (way, record, stamp)

    def _offer(self, link: Link) -> tuple[Stamp, Record | None]:
        """Return the next record of a looping link with its new stamp, or the least stamp that it may get."""
        state = self.link[link.name]
        least = self.least()
        coming = least[link.source]
        if link.case == "scheduler":
            bound = END if coming >= END else self._delayed(link, coming)
            return (state.ready[0].stamp, state.ready[0]) if state.ready and state.ready[0].stamp < bound else (bound, None)
        if state.ready:
            return state.ready[0].stamp, state.ready[0]
        if state.expected is not None:
            return self._earliest(link, coming, least), None
        if link.case == "counted" and self._is_due(link, state.waiting[0].stamp if state.waiting else coming):
            return self._offer_earliest(link)
        if not state.waiting:  # the target asks the link for records up to T2 - L
            if link.case == "record" or coming >= END:
                return self._earliest(link, coming, least), None
            return self._delayed(link, coming), None
        if link.case == "earliest":
            return self._offer_earliest(link)
        original = state.waiting[0].stamp
        stamp = self._after(link, self._shown(link), original) if link.case == "record" else self._delayed(link, original)
        return stamp, state.waiting[0]

    def _offer_earliest(self, link: Link) -> tuple[Stamp, Record | None]:
        state, least = self.link[link.name], self.least()
        if not state.waiting:
            return self._earliest(link, least[link.source], least), None
        original = state.waiting[0].stamp
        upcoming = self._upcoming(link, original)
        if upcoming is None:
            return self._earliest(link, original, least), None
        return self._after(link, earliest_instant(original.instant, link.lag, upcoming.instant), original), state.waiting[0]

    def _is_due(self, link: Link, original: Stamp) -> bool:
        """Whether what has this stamp, or caused it, must come round before the target takes its next record from outside."""
        outside, least = self.outside[link.target], self.least()
        upcoming = min(self._bound(edge, least) for edge in self.edges_into[link.target])
        return original < upcoming and bisect_right(outside, original) + (link.depth or 0) <= len(outside) + 1

    # What happens.

    def _admit(self) -> None:
        instant, payload = self.records[self.position]
        stamp = Stamp(instant, self.ids[self.graph.input], self.position)
        self.position, self.reached = self.position + 1, instant
        for edge, queue in self.queue.items():
            if edge[0] == self.graph.input:
                queue.append(Record(stamp, payload, stamp))

    def _function(self, node: str) -> Node:
        return self.program.get(node) or (lambda record, _: [(to, record.payload) for at, to in self.graph.edges if at == node])

    def _receive(self, node: str) -> None:
        """Give what has come round its stamp, in the cases where this depends on the moment."""
        for link in self.into[node]:
            state = self.link[link.name]
            if link.case in ("record", "earliest") and state.waiting and not state.ready:
                stamp, record = self._offer(link)
                if record is not None:
                    self._stamp(link, stamp)

    def _stamp(self, link: Link, stamp: Stamp) -> None:
        state = self.link[link.name]
        state.origins.append(state.waiting.popleft())
        state.ready.append(state.origins[-1]._replace(stamp=stamp))
        state.n += 1

    def _step(self, node: str) -> None:
        self._receive(node)
        chosen = self._choose(node)
        assert chosen is not None
        way, record, stamp = chosen
        record = self._take(way, record, stamp)
        assert stamp > self.clock[node] or (stamp == self.clock[node] and not isinstance(way, Link)), (node, stamp)
        self.clock[node] = stamp
        self.taken[node].append((stamp, record.payload))
        for to, payload in self._function(node)(record, self.state[node]):
            made = Record(stamp, payload, record.first)
            if to == "out":
                self.outputs.append(Output(stamp, node, payload))
            elif to in self.links:
                self._arrive(self.links[to], made)
            else:
                self.queue[node, to].append(made)

    def _take(self, way: Link | tuple[str, str], record: Record, stamp: Stamp) -> Record:
        if not isinstance(way, Link):
            self.outside[way[1]].append(stamp)
            return self.queue[way].popleft()
        state = self.link[way.name]
        if state.ready:
            state.ready.pop(0)
            if way.case == "scheduler":
                return record
            original = state.origins.popleft()
        else:
            original = state.waiting.popleft()
            state.n += 1
        entry = Entry(way.name, original.first, original.stamp, stamp, original.payload)
        state.log.append(entry)
        return Record(stamp, original.payload, original.first)

    def _arrive(self, link: Link, record: Record) -> None:
        state = self.link[link.name]
        if link.case == "scheduler":
            delay, event = record.payload
            state.rounded += delay < link.lag
            stamp = Stamp(record.stamp.instant + max(delay, link.lag), self.ids[link.name], state.n)
            insort(state.ready, Record(stamp, event, stamp), key=lambda each: each.stamp)
            state.n += 1
        elif state.expected is not None:
            self._compare(link, record)
        else:
            state.waiting.append(record)
        state.most = max(state.most, len(state.waiting) + len(state.ready))

    def move(self, name: str) -> None:
        """Move a semi-blocking link's first record from the blocking queue on, to just before the next record from outside."""
        link, original = self.links[name], self.link[name].waiting[0].stamp
        upcoming = self._upcoming(link, original)
        assert upcoming is not None
        instant = earliest_instant(original.instant, link.lag, upcoming.instant)
        self._stamp(link, self._after(link, instant, original))

    # Replay.

    def _begin_replay(self, log: Sequence[Entry]) -> None:
        altered = verify(log)
        for divergence in altered:
            self._differs(divergence)
        for name, state in self.link.items():
            if self.links[name].case != "scheduler":
                state.expected = tuple(entry for entry in log if entry.link == name)
                if self.on_divergence == "report":  # the log is played, and what comes round is only compared with it
                    played = sorted(state.expected, key=lambda entry: entry.new)
                    state.ready = [Record(entry.new, entry.payload, entry.first) for entry in played]
                    state.origins = deque(Record(entry.original, entry.payload, entry.first) for entry in played)
                elif mine := [each.position for each in altered if each.link == name]:
                    state.expected = state.expected[: mine[0]]

    def _differs(self, divergence: Divergence) -> None:
        if self.on_divergence == "abort":
            raise Diverged(divergence)
        self.divergences.append(divergence)

    def _compare(self, link: Link, got: Record) -> None:
        state = self.link[link.name]
        assert state.expected is not None
        while state.position < len(state.expected):
            entry = state.expected[state.position]
            if entry.original >= got.stamp:
                break
            self._differs(Divergence(link.name, state.position, "missing", entry, got))
            if self.on_divergence == "restamp":
                return self._restamp(link, got)
            state.position += 1
        else:
            entry = None
        if entry is None or entry.original > got.stamp:
            self._differs(Divergence(link.name, state.position, "extra", entry, got))
            return self._restamp(link, got) if self.on_divergence == "restamp" else None
        if (entry.payload, entry.first) != (got.payload, got.first):
            self._differs(Divergence(link.name, state.position, "changed", entry, got))
            if self.on_divergence == "restamp":
                return self._restamp(link, got)
        if self.on_divergence != "report":
            state.ready.append(got._replace(stamp=entry.new))
            state.origins.append(got)
            state.n = max(state.n, entry.new.n + 1)
        state.position += 1
        return None

    def _restamp(self, link: Link, got: Record | None) -> None:
        """Leave the log, and go on by case 2."""
        state = self.link[link.name]
        state.expected = None
        self.links = {**self.links, link.name: replace(link, case="earliest", clock=None)}
        self.into = {node: [self.links[each.name] for each in links] for node, links in self.into.items()}
        if got is not None:
            state.waiting.append(got)

    def resolve(self) -> bool:
        """Find the log's lines that cannot come any more, where nothing else can happen. Returns whether the run goes on."""
        found = False
        for name, state in self.link.items():
            if state.expected is not None and state.position < len(state.expected):
                entry = state.expected[state.position]
                self._differs(Divergence(name, state.position, "missing", entry, None))
                found, self._least = True, None
                if self.on_divergence == "restamp":
                    self._restamp(self.links[name], None)
                else:
                    state.position += 1
        return found

    def result(self) -> Result:
        """Return what has happened until now."""
        return Result(
            tuple(sorted(self.outputs, key=lambda each: each[:2])),
            chained(entry for state in self.link.values() for entry in state.log),
            {node: tuple(taken) for node, taken in self.taken.items()},
            tuple(self.divergences),
            {name: self.link[name].rounded for name, link in self.links.items() if link.case == "scheduler"},
            {name: state.most for name, state in self.link.items()},
        )
