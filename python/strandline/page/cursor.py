"""One channel, followed commit by commit: what the page remembers of the newest commits, so that a look reads only new ones."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple

from strandline.channel import Channel, Commit, LogError, Progress
from strandline.channel.progress.query_producer_state import is_query
from strandline.channel.statements.inputs import Input
from strandline.channel.statements.statement import REGISTRAR, ProducerState
from strandline.errors import StrandlineError
from strandline.page.lead import Lead
from strandline.page.model import Move, Since
from strandline.report.history import History
from strandline.report.unread import Checkpoints, UnreadRows
from strandline.time.antichain import Antichain

__all__ = ["Cursor"]

_MOST_MOVES = 200
_MOST_SEARCHES = 20


class _Rows(NamedTuple):
    """The rows of one commit by the number of their times. Rows of a span count at its least time."""

    version: int
    by_number: tuple[tuple[int, int], ...]


class Cursor:
    """A position in a channel's log. :meth:`update` reads the commits after it, and nothing else.

    It begins ``window`` commits before the newest one. So what it says about the past reaches back so far, and no further.

    Args:
        channel: The channel, opened.
        window: How many of the newest commits are read at first, and remembered.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> from strandline.time.arrow import time_field
    >>> from strandline.time.domain import int64
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     channel = Channel.create(folder, pa.schema([time_field("time", int64)]), producers=["a", "b"], at=0)
    ...     cursor = Cursor(channel)
    ...     with Channel.open(folder).producer("a") as a:
    ...         a.delay([9])
    ...     cursor.update()
    ...     cursor.since("a").version, cursor.since("b").version, cursor.progress.frontier.format()
    (2, 0, '{0}')
    """

    def __init__(self, channel: Channel, window: int = 500) -> None:
        self.channel = channel
        self.lead = Lead(channel.domain)
        self.refused: StrandlineError | None = None
        """The first commit in the window that a stream would refuse."""
        self.furthest: int | None = None
        """The greatest number of a time that was stated or written."""
        self.changed_ms: int | None = None
        self.reads: dict[str, tuple[Input, ...]] = {}
        """What the newest commit of each producer says that its query has read."""
        self.unread = UnreadRows(channel)
        self.checkpoints = Checkpoints()
        """The checkpoints of the queries that read the channel."""
        self.moves: deque[Move] = deque(maxlen=_MOST_MOVES)
        self.rows: Counter[int] = Counter()
        """The rows of the commits in the window, by the number of their times."""
        self._window = window
        self._row_commits: deque[_Rows] = deque()
        self._since: dict[str, tuple[int, int | None]] = {}
        self._steps: dict[str | None, deque[tuple[int, int | None]]] = {}
        """The number of what each producer held, and of the frontier (``None``), from each moment on."""
        self._far: deque[tuple[int, int]] = deque(maxlen=_MOST_MOVES)
        """The furthest number, from each moment on."""
        self._searched: set[str] = set()
        self._stands: Since | None = None
        self._states: tuple[int, list[tuple[str, ProducerState]]] | None = None
        self._begin()

    def _begin(self) -> None:
        newest = self.channel.version
        first = max(0, newest - self._window, self.channel.log.earliest())
        try:
            self.progress: Progress = self.channel.progress_at(first)
        except LogError:  # the log was cleaned to a later commit
            first = newest
            self.progress = self.channel.progress_at(newest)
        self.version = self.first = first
        """The newest, and the oldest, commit that was read."""
        commit = self.channel.log.read(first)
        self.first_ms = None if commit is None else commit.made_ms
        self.changed_ms = self.first_ms
        self._moved(first, self.first_ms)
        for state in [*(state for _, state in self.states), self.progress.get(REGISTRAR)]:
            for time in () if state is None else state.holds:
                self._reach(self.lead(time), self.first_ms)
        if commit is not None:
            self._note(commit, self.first_ms)
        self.update()
        self._search()
        if len(self.moves) == 1 and first > 0:  # the frontier stands for longer than the window
            with suppress(StrandlineError):
                found = History(self.channel).frontier_since()
                self._stands = Since(found.version, found.ms, found.exact)

    def update(self) -> None:
        """Read the commits that are new.

        Raises:
            StrandlineError: The log cannot be read.
        """
        known: dict[int, Commit] = {}
        try:
            known = {commit.version: commit for commit in self.channel.refresh()}
        except StrandlineError:
            if self.channel.version <= self.version:
                raise  # otherwise a commit after this one is refused: _apply finds it
        for version in range(self.version + 1, self.channel.version + 1):
            self._apply(known.get(version) or self.channel.log.require(version))

    def _apply(self, commit: Commit) -> None:
        ms = commit.made_ms
        self.version, self.changed_ms = commit.version, ms
        if self.refused is None:
            try:
                commit.check()
            except StrandlineError as error:
                self.refused = error
        statement = commit.statement
        if statement is not None:
            before = {name: self.progress.get(name) for name in statement.statements}
            self.progress.apply(commit)
            for name, old in before.items():
                state = self.progress.get(name)
                if state is None or (old is not None and old.holds == state.holds):
                    continue
                self._since[name] = (commit.version, ms)
                if ms is not None and old is not None and name not in self._steps:
                    self._step(name, old.holds, self.first_ms)
                self._step(name, state.holds, ms)
                for time in state.holds:
                    self._reach(self.lead(time), ms)
            for name in statement.removed:
                for of in (self._since, self._steps, self.reads):
                    of.pop(name, None)
        self._note(commit, ms)
        if self.progress.frontier != self._frontier:
            self._moved(commit.version, ms)

    def _note(self, commit: Commit, ms: int | None) -> None:
        """Remember what a commit brings: its rows, and what its query has read."""
        self.unread.note(commit)
        statement = commit.statement
        if statement is None:
            return
        if statement.reads:
            for name in statement.statements:
                self.reads[name] = statement.reads
        pairs = [*statement.times, *((span.low, span.rows) for span in statement.spans)]
        numbers = tuple((number, rows) for time, rows in pairs if (number := self.lead(time)) is not None)
        for number, rows in numbers:
            self.rows[number] += rows
        highs = (self.lead(span.high) for span in statement.spans)
        self._reach(max((number for number in (*(n for n, _ in numbers), *highs) if number is not None), default=None), ms)
        if numbers:
            self._row_commits.append(_Rows(commit.version, numbers))
        while self._row_commits and self._row_commits[0].version < commit.version - self._window:
            for number, rows in self._row_commits.popleft().by_number:
                self.rows[number] -= rows
                if self.rows[number] <= 0:
                    del self.rows[number]

    def _reach(self, number: int | None, ms: int | None) -> None:
        if number is not None and (self.furthest is None or number > self.furthest):
            self.furthest = number
            if ms is not None:
                self._far.append((ms, number))

    def _moved(self, version: int, ms: int | None) -> None:
        """Remember that the frontier is what it is from this commit on."""
        self._frontier = self.progress.frontier.copy()
        self.moves.append(Move(version, ms, texts(self._frontier)))
        self._step(None, self._frontier, ms)

    def _step(self, name: str | None, holds: Antichain, ms: int | None) -> None:
        if ms is not None:
            self._steps.setdefault(name, deque(maxlen=_MOST_MOVES)).append((ms, self.lead.least(holds)))

    def _search(self) -> None:
        """Find what queries have read whose newest commits are older than the window. Each is searched for once."""
        names = [name for name, state in self.states if name not in self.reads and is_query(name, state)]
        history = History(self.channel)
        for name in names[:_MOST_SEARCHES]:
            if name not in self._searched:
                self._searched.add(name)
                commit = history.newest(name).commit
                if commit is not None and commit.statement is not None and commit.statement.reads:
                    self.reads[name] = commit.statement.reads

    # ---- what the page asks --------------------------------------------------------------------------------------------

    @property
    def states(self) -> list[tuple[str, ProducerState]]:
        """The state of each producer. The list is made once for each version, because a channel may have very many."""
        if self._states is None or self._states[0] != self.version:
            self._states = self.version, list(self.progress.producers.items())
        return self._states[1]

    def since(self, name: str) -> Since:
        """Return when a producer's capabilities last changed, as far as the window reaches."""
        found = self._since.get(name)
        return Since(self.first, self.first_ms, self.first == 0) if found is None else Since(*found, exact=True)

    def stands_since(self) -> Since:
        """Return the commit with which the frontier came to be what it is."""
        move = self.moves[-1]
        if len(self.moves) == 1 and self._stands is not None:
            return self._stands
        return Since(move.version, move.ms, len(self.moves) > 1 or self.first == 0)

    def lag(self, name: str | None, now_ms: int) -> tuple[tuple[int, float], ...]:
        """Return how far a producer, or with ``None`` the frontier, was behind the furthest time, from each moment on.

        Args:
            name: The producer.
            now_ms: The last moment.

        Returns:
            Moments with distances, in seconds for clocks. Where there is no distance, because nothing was held or stated, 0.
        """
        steps = list(self._steps.get(name, ()))
        if not steps and name is not None and self.first_ms is not None:
            state = self.progress.get(name)
            steps = [(self.first_ms, None if state is None else self.lead.least(state.holds))]
        scale = 1e6 if self.lead.is_clock else 1
        return tuple((ms, value / scale) for ms, value in _behind(steps, list(self._far), now_ms))


def texts(times: Antichain, most: int = 100) -> tuple[str, ...]:
    """Return the elements of an antichain as text, in their order: the first ``most``, and how many more there are.

    >>> from strandline.time.domain import int64, product
    >>> texts(Antichain(product(a="int64", b="int64"), [(0, 2), (1, 1), (2, 0)]), most=2)
    ('(a=0, b=2)', '(a=1, b=1)', 'and 1 more')
    """
    shown = tuple(times.domain.format(time) for time in islice(times, most))
    return shown if len(times) <= most else (*shown, f"and {len(times) - most} more")


def _behind(steps: list[tuple[int, int | None]], far: list[tuple[int, int]], now_ms: int) -> Iterator[tuple[int, float]]:
    """Merge what was held with the furthest time, both as steps. Moments go forward, whatever the writers' clocks say.

    >>> list(_behind([(0, None), (10, 3), (30, 9)], [(0, 5), (20, 9), (30, 9)], 40))
    [(0, 0), (10, 2), (20, 6), (30, 0), (40, 0)]
    """
    if not steps:
        return
    held, furthest, last = steps[0][1], None, None
    events = sorted(
        [*((ms, True, number) for ms, number in steps), *((ms, False, number) for ms, number in far)], key=itemgetter(0)
    )
    for ms, together in groupby(events, key=itemgetter(0)):  # a commit moves both at once
        for _, is_step, number in together:
            if is_step:
                held = number
            elif number is not None:
                furthest = number if furthest is None else max(furthest, number)
        value = 0 if held is None or furthest is None else max(0, furthest - held)
        if ms >= steps[0][0] and value != last:
            yield ms, value
            last = value
    if last is not None and now_ms > events[-1][0]:
        yield now_ms, last
