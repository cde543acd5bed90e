"""A channel at one version: its table, with the state of every producer."""

from __future__ import annotations

from collections.abc import Mapping

from strandline.channel import errors
from strandline.channel.progress.attempts import Attempts
from strandline.channel.progress.handle_lock import HandleLock
from strandline.channel.progress.progress import Progress
from strandline.channel.progress.unreturned import Unreturned
from strandline.channel.statements.commit_statement import CommitStatement
from strandline.channel.statements.log import Commit, Log
from strandline.channel.statements.session import WriterSession
from strandline.channel.statements.statement import REGISTRAR
from strandline.delta.storage import commit_name
from strandline.delta.table import Table
from strandline.time.arrow import find_time_field
from strandline.time.domain import TimeDomain

__all__ = ["Snapshot", "StatementsSinceCopy"]

# A commit repeats every producer's statement if there are few producers, or if as many statements came since the last copy as
# there are producers. So each statement pays for one repeated statement, and opening reads at most two statements per producer.
_ALWAYS_COPIED = 32
_NEAR = 8
_SMALL = 1000
"""A copy in a commit of at most this many statements is compared with the copy before it.

That copy must be at most ``_NEAR`` commits before.
"""


class Snapshot:
    """A channel's table with every producer's state, at the newest version that was read. :meth:`update` reads the later ones.

    Who uses it holds its ``lock``.
    """

    def __init__(self, table: Table) -> None:
        self.lock = HandleLock()
        self.table = table
        self.log = Log(table.path, store=table.log.store)
        self.time_column: str
        self.domain: TimeDomain
        self.time_column, self.domain = find_time_field(table.schema)
        self.transactions: dict[str, int] = {}
        self._changing = False
        """Whether a commit is half applied, because it was interrupted."""
        self.attempts = Attempts()
        self.since_copy = StatementsSinceCopy()
        self.progress = self._read_back(table.loaded_version, self.since_copy)
        self.update()
        self.unreturned = Unreturned(self.version)
        self._session = WriterSession.here()

    @property
    def version(self) -> int:
        """The newest version that was applied."""
        return self.progress.version

    def update(self) -> list[Commit]:
        """Apply the commits that came after :attr:`version`, and return them.

        Raises if the table is no longer the one that was opened, or its log no longer has the commit of :attr:`version`.
        """
        if self._changing:
            self._rebuild()
        commits: list[Commit] = []
        for commit in self.log.tail(self.version + 1):
            if commit.metadata_changed:
                self._reload(commit)
            commit.check_table(self.table.id)
            if not commits:
                self._check_newest(commit)
            self._end_attempts(commit.version, None if commit.statement is None else commit.statement.id)
            self._changing = True
            self.transactions.update(commit.transactions)
            self.progress.apply(commit)
            self.since_copy.count(commit.statement)
            self._changing = False
            commits.append(commit)
        if not commits:
            self.log.check_exists(self.version, self.table.id, self.progress.identity)
        return commits

    def _check_newest(self, following: Commit) -> None:
        """Raise unless the log still has the commit of :attr:`version` before the one that follows it."""
        if following.names(self.table.id):
            self.log.check_same(self.version, self.progress.identity)
        else:
            self.log.check_exists(self.version, self.table.id, self.progress.identity)

    def _end_attempts(self, version: int, commit: str | None) -> None:
        """Tell the attempts at the next version which commit it is. This may be repeated."""
        if self.attempts.has(commit):
            self.unreturned.leave_out(version)  # it is this object's own commit
        self.attempts.end(version, commit)

    def accept(self, version: int, statement: CommitStatement, transactions: Mapping[str, int]) -> None:
        """Apply a commit that this process has just made, without reading it. It is the one after :attr:`version`."""
        self._end_attempts(version, statement.id)
        self._changing = True
        self.transactions.update(transactions)
        self.progress.accept(version, statement.statements, statement.id, statement.removed)
        self.since_copy.count(statement)
        self._changing = False

    def _rebuild(self) -> None:
        """Read the state again: an interrupt may have left a part of a commit in it."""
        since = StatementsSinceCopy()
        progress = self._read_back(self.version, since)
        self.table.load()
        self.transactions.clear()
        self.progress, self.since_copy = progress, since
        self._changing = False

    def _reload(self, commit: Commit) -> None:
        was = (self.time_column, self.domain, self.table.id)
        self.table.load()
        self.time_column, self.domain = find_time_field(self.table.schema)
        if (self.time_column, self.domain, self.table.id) != was:
            raise errors.channel_replaced_time(commit.version, self.table.path, was, self.time_column, self.domain, self.table.id)

    def progress_at(self, version: int) -> Progress:
        """Return every producer's state as of ``version``."""
        if type(version) is not int:
            raise errors.version_unknown_number(self.table.path, version)
        if version == self.version:
            return self.progress.copy()
        if not 0 <= version <= self.version:
            latest = self.log.latest(self.version)
            if not 0 <= version <= latest:
                raise errors.version_unknown(self.table.path, version, latest)
        return self._read_back(version, StatementsSinceCopy())

    def _read_back(self, version: int, since: StatementsSinceCopy) -> Progress:
        """Read back from ``version`` to the newest copy of all statements, and apply the commits from there on.

        If it costs little, this starts at the previous copy instead, and compares the newest copy with the log in between.
        """
        progress = Progress(self.domain)
        commits = []
        for at in range(version, -1, -1):
            if at == version and (copy := self._cleaned_up_to(version)) is not None:
                progress.begin_before(copy)
                break
            commit = self.log.require(at)
            commit.check_table(self.table.id)
            commits.append(commit)
            if commit.is_copy:
                commits += self._to_copy_before(commit)
                progress.begin(commits[-1])
                break
        for commit in reversed(commits):
            progress.apply(commit)
            since.count(commit.statement)
        if progress.get(REGISTRAR) is None:
            raise errors.not_a_channel(self.table.path)
        return progress

    def _cleaned_up_to(self, version: int) -> Commit | None:
        """Return the copy after ``version`` that says what was known at ``version``, whose commit was cleaned up."""
        if self.log.exists(version):
            return None
        copy = self.log.read(version + 1)
        if copy is None or not copy.is_copy or copy.statement is None or len(copy.statement.statements):
            return None
        copy.check_table(self.table.id)
        return copy

    def _to_copy_before(self, copy: Commit) -> list[Commit]:
        """Return the commits before a copy, back to the previous copy.

        Return none if the copy is large, or if the previous copy is far away or was cleaned up.
        """
        commits: list[Commit] = []
        statement = copy.statement
        if statement is None or len(statement.known or ()) + len(statement.statements) > _SMALL:
            return commits
        for at in range(copy.version - 1, max(-1, copy.version - 1 - _NEAR), -1):
            commit = self.log.read(at)
            if commit is None:
                break
            commit.check_table(self.table.id)
            commits.append(commit)
            if commit.is_copy:
                return commits
        return []

    def committed(self, application: str) -> int:
        """Return the newest version of an application's Delta transactions, -1 if there is none."""
        if not isinstance(application, str):
            return -1  # no log can have it
        seen = self.transactions.get(application)
        if seen is None:
            found = self.table.transaction_version(application)
            seen = self.transactions[application] = -1 if found is None else found
        return seen

    def has(self, transaction: tuple[str, int]) -> bool:
        """Return whether an application has committed this Delta transaction, or a later one."""
        application, version = transaction
        return self.committed(application) >= version

    def known_session(self, session: WriterSession) -> WriterSession:
        """Return one object for equal sessions, so that sessions of thousands of producers are compared quickly."""
        if session != self._session:
            self._session = session
        return self._session

    def survives(self, version: int) -> None:
        """Return once a loss of power cannot undo a version that the log was seen to have. Raises :class:`StorageError`."""
        if self.log.exists(version):  # if the log was cleaned up meanwhile, a later commit was synced
            self.log.store.sync_commit(commit_name(version))  # it may be the sync that failed


class StatementsSinceCopy:
    """The number of statements since the last copy of every producer's statement."""

    def __init__(self) -> None:
        self._statements = 0

    def count(self, statement: CommitStatement | None) -> None:
        if statement is not None:
            self._statements = len(statement.statements) + (0 if statement.known is not None else self._statements)

    def due(self, producers: int, coming: int) -> bool:
        return producers <= _ALWAYS_COPIED or self._statements + coming >= producers
