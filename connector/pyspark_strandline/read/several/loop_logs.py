"""The logs of a loop that goes through several queries: what the other queries state, and the rows that they have not read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read import errors
from pyspark_strandline.read.log_cursor import LogCursor
from pyspark_strandline.read.several.inputs import Inputs
from strandline.channel import Commit, Progress
from strandline.channel.progress.query_producer_state import QueryProducerState
from strandline.errors import StrandlineError
from strandline.json_value import JsonObject
from strandline.loop import Arrival, QueryState, arrivals_of
from strandline.time.domain import Time

__all__ = ["LoopLogs", "times_of"]


class Look(NamedTuple):
    """What the logs of a loop say.

    Attributes:
        arrivals: What may come to the queries because of the other ones.
        waiting: The times of rows that this query has not taken in.
        is_quiet: Whether nothing goes round in the other queries, and no row waits for anybody.
    """

    arrivals: list[Arrival]
    waiting: list[Time]
    is_quiet: bool


class LoopLogs:
    """Follows the log of each channel between the queries of a loop. It can be recreated from the logs at any time.

    Any prefix of each log is safe to conclude from. A log's rows are known at least as far as the state of its writer.
    """

    def __init__(self, inputs: Inputs, options: Mapping[str, ReadOptions]) -> None:
        self._inputs, self._options = inputs, options
        self._logs: dict[str, _LoopLog] = {}

    def look(self, positions: Mapping[str, int]) -> Look:
        """Read what is new in the logs, and return what may come to any query.

        Args:
            positions: For each channel between the queries that this one reads, the first version that a batch does not take
                completely.

        Raises:
            StrandlineError: ``STRANDLINE_LOOP_QUERY_DIFFERS`` if another query was started with another definition of the loop;
                ``STRANDLINE_LOOP_TWO_WRITERS`` if a channel has rows of two queries; ``STRANDLINE_LOOP_STATE_INVALID`` if what a
                query states cannot be true.
        """
        graph, own = self._inputs.graph, self._inputs.query
        assert graph is not None  # noqa: S101 - there is a loop
        if not self._logs:
            self._logs = {name: _LoopLog(self._inputs, name, self._options[name]) for name in self._inputs.between}
        for log in self._logs.values():
            log.follow_statements()
        states = {name: self._state(name) for name in graph.queries if name != own and graph.ways(name)}
        read = [positions, *(state.consumed for state in states.values())]
        rows = {
            channel: log.rows_from(min((at[channel] for at in read if channel in at), default=log.end))
            for channel, log in self._logs.items()
        }
        waiting = [
            time for channel, at in positions.items() for version, times in rows[channel] if version >= at for time in times
        ]
        is_quiet = not any(rows.values()) and not any(any(state.held.values()) for state in states.values())
        return Look(list(arrivals_of(graph, states, rows)), waiting, is_quiet)

    def _state(self, query: str) -> QueryState:
        """Return the state of another query, as all of its channels have it."""
        graph = self._inputs.graph
        assert graph is not None  # noqa: S101 - there is a loop
        first, *rest = (self._logs[channel].state() for channel in graph.ways(query))
        for other in rest:
            first = first.meet(other)
        for channel, at in first.consumed.items():
            log = self._logs[channel]
            if at > log.end:
                log.follow_statements()  # the query may have read commits that came since the first look
            if at > log.end:
                raise errors.loop_state_invalid(
                    query, log.path, f"it has consumed version {at - 1} of {channel}, which does not exist"
                )
        return first


class _LoopLog:
    """One channel's log: its writer's newest state, and the times of the commits that somebody has not read."""

    def __init__(self, inputs: Inputs, name: str, options: ReadOptions) -> None:
        self._inputs, self._name = inputs, name
        self._cursor = LogCursor(options)
        self._progress = self._cursor.channel.progress_at(self._cursor.channel.version)
        self._ahead: list[Commit] = []  # read for their statements, and not for their rows yet
        self._from: int | None = None
        self._rows: list[tuple[int, list[Time]]] = []
        self._writer: str | None = None
        self._state: QueryState | None = None
        assert inputs.graph is not None  # noqa: S101 - there is a loop
        self._graph, self._query = inputs.graph, inputs.graph.writer[name]

    @property
    def path(self) -> str:
        """The channel's path."""
        return self._cursor.channel.path

    @property
    def end(self) -> int:
        """The version after the newest one that is known."""
        return self._progress.version + 1

    def follow_statements(self) -> None:
        """Read the new commits. Raises if those before them are no longer there."""
        was_there = False
        while (commit := self._cursor.next(self.end)) is not None:
            if not was_there:
                self._cursor.check_same(self._progress.version, self._progress.identity)
                was_there = True
            self._progress.apply(commit)
            self._ahead.append(commit)

    def state(self) -> QueryState:
        """Return the state of the query that writes the channel, as its newest commit has it."""
        stated = _stated(self._progress, self.path)
        if stated is None:
            return QueryState.unknown(self._graph, self._query)
        if stated.get("query") != self._query or stated.get("definition") != self._inputs.definition:
            raise errors.loop_query_differs(
                self._name, stated.get("query"), stated.get("definition"), self._query, self._inputs.definition
            )
        try:
            state = QueryState.from_json(self._graph, self._query, stated)
        except (ValueError, StrandlineError) as error:
            raise errors.loop_state_invalid(self._query, self.path, str(error)) from error
        before, self._state = self._state, state
        if before is not None and (before.meet(state).consumed != before.consumed or not before.outside.dominates(state.outside)):
            raise errors.loop_state_invalid(self._query, self.path, f"it went back from {before.to_json()} to {state.to_json()}")
        return state

    def rows_from(self, version: int) -> list[tuple[int, list[Time]]]:
        """Return the times of each commit with rows, from a version on, and forget those before. They enter the loop."""
        if self._from is None or version < self._from:  # versions go back only when a query is started anew
            self._from, self._rows = version, []
            for at in range(version, self.end - len(self._ahead)):
                self._add(self._cursor.require(at))
        for commit in self._ahead:
            self._add(commit)
        self._ahead = []
        self._rows = [entry for entry in self._rows if entry[0] >= version]
        self._from = version
        return self._rows

    def _add(self, commit: Commit) -> None:
        times = list(times_of(commit, self._inputs, self._name))
        if not times:
            return
        if _stated(self._progress, self.path) is None:
            raise errors.loop_query_differs_alone(commit.version, self._name, self._query)
        for query in commit.transactions or ("no query",):
            if self._writer is not None and query != self._writer:
                raise errors.loop_two_writers(commit.version, self._name, query, self._writer)
            self._writer = query
        self._rows.append((commit.version, [low for low, _ in times]))


def times_of(commit: Commit, inputs: Inputs, name: str) -> Iterator[tuple[Time, Time]]:
    """Yield the times of a commit's rows, inside the loop: the least and the greatest of each range."""
    enter = inputs.entries[name].time
    if commit.statement is not None:
        yield from ((enter(time), enter(time)) for time, _ in commit.statement.times)
        yield from ((enter(span.low), enter(span.high)) for span in commit.statement.spans)


def _stated(progress: Progress, path: str) -> JsonObject | None:
    """Return what the writer of a channel states about the loop; ``None`` before its first commit."""
    names = list(progress.producers)
    if len(names) != 1:
        raise errors.loop_two_writers_producers(path, names)
    known = progress.get(names[0])
    stated = None if known is None else QueryProducerState.from_json(known.state).loop
    if not isinstance(stated, dict | None):
        raise errors.loop_state_invalid(names[0], path, "it is not an object")
    return stated
