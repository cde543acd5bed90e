"""Since when a producer holds what it holds, and what its newest commit says, found with a bounded number of reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from strandline.channel import Channel, Commit, Progress
from strandline.channel.statements.commit_statement import CommitStatement
from strandline.channel.statements.statement import Statement
from strandline.delta.table import CHECKPOINT_INTERVAL
from strandline.errors import StrandlineError
from strandline.time.antichain import Antichain

__all__ = ["History", "Newest", "Since", "newest_commits"]

_PROBE = 100
"""About so many commits are read to know every producer's state at a version."""
_NEAR = 200
_MOST_FOR_NEWEST = 3000
"""So many commits at most are read to find the newest statements of a channel's producers. Halving needs some 100 for each."""


@dataclass(frozen=True)
class Since:
    """The commit with which a producer came to hold what it holds.

    Attributes:
        version: The commit. If it is not ``exact``, the producer held the same before it too.
        ms: When its writer made it, in milliseconds since 1970.
        exact: Whether the producer held something else, or was not there, before this commit.
    """

    version: int
    ms: int
    exact: bool


class Newest(NamedTuple):
    """The commit with a producer's newest statement, or why it is not known. Without both, it has made no statement."""

    commit: Commit | None
    why: str = ""


def newest_commits(channel: Channel, most: int) -> Iterator[Commit]:
    """Yield the newest commits of a channel, the newest first: at most so many, and none before one that the log has lost."""
    for version in range(channel.version, max(-1, channel.version - most), -1):
        commit = channel.log.read(version)
        if commit is None:
            return
        yield commit


class _NotKnown(Exception):  # noqa: N818 - it ends a search, and is no error of it
    """The log does not say it, or too many commits would have to be read."""


class _Reads:
    """How many commits may still be read."""

    def __init__(self, left: int) -> None:
        self.left, self._most = left, left

    def take(self, number: int = 1) -> None:
        if self.left < number:
            raise _NotKnown(f"it is further back in the log than a search that reads {self._most} commits finds")
        self.left -= number


def _middle(low: int, high: int) -> int:
    """Return a version between two, near their middle: one whose commit repeats all statements, if there is one.

    So one read tells of all producers, and holders that fell silent at different versions share it.
    """
    middle = (low + high) // 2
    copy = middle - middle % CHECKPOINT_INTERVAL
    return next((each for each in (copy, copy + CHECKPOINT_INTERVAL) if low < each < high), middle)


@dataclass
class _Found:
    """The earliest version that a search has found so far. It is of use although the search ends early.

    ``seq`` is the number of the statement that the commit makes; ``None`` if it is not known to make one itself.
    """

    version: int
    seq: int | None = None


class History:
    """Looks back in a channel's log, for several producers. A commit is read once.

    To find since when they hold what they hold, it reads at most about ``limit`` commits for all of them together. To find their
    newest statements it has other reads, also for all of them together: what a query reads is known from its newest one only.

    A capability moves forward only, so the commit that changed it is found by halving. (A capability that was given up and came
    back as the same, as that of an idle partition may, counts as held all the time.)

    >>> import tempfile
    >>> import pyarrow as pa
    >>> from strandline.time.arrow import time_field
    >>> from strandline.time.domain import int64
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     channel = Channel.create(folder, pa.schema([time_field("time", int64)]), producers=["a", "b"], at=0)
    ...     for time in (3, 5):
    ...         with channel.producer("a", owner="a") as a:
    ...             a.delay([time])
    ...     history = History(channel)
    ...     history.since("a").version, history.since("b").version, channel.version
    (4, 0, 4)
    """

    def __init__(self, channel: Channel, limit: int = 2000) -> None:
        self._channel = channel
        self._reads = _Reads(limit)
        self._reads_for_newest = _Reads(_MOST_FOR_NEWEST)
        self._commits: dict[int, Commit | None] = {}
        self._said: dict[int, CommitStatement | None] = {}  # what commits say of these names
        self._names: set[str] = set()
        self._states: dict[int, Progress] = {channel.version: channel.progress}
        self._oldest: int | None = None
        self.problem: str | None = None
        """Why a commit could not be read that was looked at."""

    def look_for(self, names: Iterable[str]) -> None:
        """Say about whom the next questions are. Of a commit only what it says of them is kept; others may be asked about too."""
        more = set(names) - self._names
        if more:
            self._names |= more
            self._said.clear()

    def since(self, name: str) -> Since | None:
        """Return since when a producer, or ``$registrar``, holds what it holds; ``None`` if it is not known to the channel."""
        known = self._channel.progress.get(name)
        if known is None:
            return None
        self.look_for([name])
        holds = set(known.holds)
        version, exact = self._first(name, lambda statement: set(statement.holds) == holds, self._reads)
        return self._at(version, exact=exact)

    def newest(self, name: str) -> Newest:
        """Return the commit with a producer's newest statement, or why it is not known."""
        known = self._channel.progress.get(name)
        if known is None:
            return Newest(None, "the channel does not know it")
        seq, reads = known.seq, self._reads_for_newest
        if not seq and known.owner is None:
            return Newest(None)  # others made its first statement when it joined, and it has made none
        self.look_for([name])
        try:
            version = self._newest(name, seq, reads)
            commit, said = self._commit(version, reads), self._statement(version, reads)
        except _NotKnown as why:
            return Newest(None, str(why))
        stated = None if said is None else said.statements.get(name)
        if stated is None or stated.seq != seq:
            return Newest(None, f"the log was cleaned up, and begins after its newest commit, at version {self._earliest}")
        return Newest(commit)

    def frontier_since(self) -> Since:
        """Return since when the channel's frontier is what it is. It moves forward only, so the commit is found by halving.

        It begins where somebody came to hold the frontier's least time.

        >>> import tempfile
        >>> import pyarrow as pa
        >>> from strandline.time.arrow import time_field
        >>> from strandline.time.domain import int64
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     channel = Channel.create(folder, pa.schema([time_field("time", int64)]), producers=["a", "b"], at=0)
        ...     for name, time in (("a", 3), ("b", 2), ("a", 5)):
        ...         with channel.producer(name, owner=name) as producer:
        ...             producer.delay([time])
        ...     since = History(channel).frontier_since()
        ...     channel.frontier_at(since.version), channel.frontier_at(since.version - 1), since.exact
        (Antichain(int64, [2]), Antichain(int64, [0]), True)
        """
        frontier, high, step = self._channel.frontier, self._channel.version, 1
        low = self._earliest - 1
        try:
            held = self._held_since(frontier)
            if held is not None and self._state(held).frontier == frontier:
                high = held
                if held - 1 > low and self._state(held - 1).frontier != frontier:
                    low = held - 1
            elif held is not None:
                low, step = held, high  # the others moved later: it is anywhere after that
            while high - low > 1:
                middle = max((low + high) // 2, high - step)  # the newest commits first: a channel that lives has moved just now
                if self._state(middle).frontier == frontier:
                    high, step = middle, step * 2
                else:
                    low = middle
        except _NotKnown:
            return self._at(high, exact=False)
        return self._at(high, exact=high > self._earliest or self._earliest == 0)

    def _held_since(self, frontier: Antichain) -> int | None:
        """Return since when somebody holds the least time of a frontier. In most cases the frontier stands since then."""
        least = next(iter(frontier), None)
        producers = self._channel.progress.producers
        name = next((name for name, state in producers.items() if least is not None and least in state.holds), None)
        since = None if name is None else self.since(name)
        return None if since is None or not since.exact else since.version

    def last_batch(self, query: str) -> Since | None:
        """Return the newest commit of a query, by its Delta transaction. If it is not among the newest ones, it is not exact: the
        commit was before the version that is returned.
        """
        first = max(-1, self._channel.version - _NEAR)
        reads = _Reads(_NEAR)
        version = self._channel.version
        try:
            for version in range(self._channel.version, first, -1):
                commit = self._commit(version, reads)
                if commit is None:
                    break
                if query in commit.transactions:
                    return self._at(version, exact=True)
        except (_NotKnown, StrandlineError):
            return None
        return self._at(version, exact=False)

    @property
    def _earliest(self) -> int:
        if self._oldest is None:
            self._oldest = self._channel.log.earliest()
        return self._oldest

    def _newest(self, name: str, seq: int, reads: _Reads) -> int:
        """Return a commit that has a producer's newest statement, or the first one that repeats it."""
        newest = self._channel.version
        for version in range(newest, max(-1, newest - _NEAR), -1):
            if self._stated(name, version, reads) is not None:
                return version
        found = _Found(newest)
        self._halve(name, lambda statement: statement.seq == seq, found, reads)
        return found.version

    def _first(self, name: str, same: Callable[[Statement], bool], reads: _Reads) -> tuple[int, bool]:
        """Return the first version from which on a producer's statements are the ``same``, and whether this is certain."""
        newest = self._channel.version
        found = _Found(newest)
        try:
            for version in range(newest, max(-1, newest - _NEAR), -1):
                statement = self._stated(name, version, reads)
                if statement is None:
                    continue
                if not same(statement):
                    return found.version, True
                found.version, found.seq = version, statement.seq
                if statement.seq == 0:
                    return version, True
            if newest >= _NEAR:
                if found.seq is None:  # it has said nothing since
                    found.version = newest - _NEAR + 1
                self._halve(name, same, found, reads)
        except _NotKnown:
            return found.version, False
        return found.version, found.version > self._earliest or self._earliest == 0

    def _halve(self, name: str, same: Callable[[Statement], bool], found: _Found, reads: _Reads) -> None:
        """Move ``found`` back to the first version at which a producer's newest statement is the ``same``."""
        low = self._earliest - 1  # it was another one at ``low``, with this number, and is the same at ``found``
        before = -1 if self._earliest == 0 else None
        while found.version - low > 1 and (before is None or found.seq != before + 1):  # numbers have no gap
            middle = _middle(low, found.version)
            at, statement, makes = self._known(name, middle, low, reads)
            if statement is not None and same(statement):
                found.version, found.seq = at, statement.seq if makes else None
            else:
                before = statement.seq if statement is not None else -1 if at > low else before
                low = middle

    def _known(self, name: str, version: int, low: int, reads: _Reads) -> tuple[int, Statement | None, bool]:
        """Return what was known of a producer as of a version, ``None``: nothing; the commit after ``low`` that says it; and
        whether this commit makes the statement, and does not only repeat it.
        """
        for at in range(version, low, -1):
            if self._commit(at, reads) is None:
                raise _NotKnown(f"commit {at} of the log is gone")
            said = self._statement(at, reads)
            if said is None:
                continue
            found = said.statements.get(name)
            if found is None and said.known is not None:
                return at, said.known.get(name), False
            if found is not None:
                return at, found, True
        if low == self._earliest - 1 and low >= 0:
            raise _NotKnown(f"the log begins at version {self._earliest}, with a commit that does not say what was known before")
        return low, None, False

    def _stated(self, name: str, version: int, reads: _Reads) -> Statement | None:
        if self._commit(version, reads) is None:
            why = f"the log was cleaned up, and begins after its newest commit, at version {self._earliest}"
            raise _NotKnown(why if version < self._earliest else f"commit {version} of the log is gone")
        said = self._statement(version, reads)
        return None if said is None else said.statements.get(name)

    def _at(self, version: int, *, exact: bool) -> Since:
        try:
            commit = self._commit(version, _Reads(1))
            return Since(version, 0 if commit is None else commit.timestamp_ms, exact and commit is not None)
        except (_NotKnown, StrandlineError):
            return Since(version, 0, exact=False)

    def _commit(self, version: int, reads: _Reads) -> Commit | None:
        if version not in self._commits:
            reads.take()
            with self._readable(version):
                self._commits[version] = self._channel.log.read(version)
        return self._commits[version]

    def _statement(self, version: int, reads: _Reads) -> CommitStatement | None:
        """Return what a commit says of the producers that are asked about."""
        commit = self._commit(version, reads)
        if version not in self._said:
            with self._readable(version):
                self._said[version] = None if commit is None else commit.statement_of(self._names)
        return self._said[version]

    @contextmanager
    def _readable(self, version: int) -> Iterator[None]:
        try:
            yield
        except StrandlineError as error:
            self.problem = error.what
            raise _NotKnown(f"commit {version} of the log cannot be read: {error.what.rstrip('.')}") from None

    def _state(self, version: int) -> Progress:
        if version not in self._states:
            self._reads.take(_PROBE)
            try:
                self._states[version] = self._channel.progress_at(version)
            except StrandlineError as error:  # cleaned up to a later commit, or damaged
                raise _NotKnown(error.what) from None
        return self._states[version]
