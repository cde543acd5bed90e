"""The newest known state of a channel, and commits decided on it: each is written as exactly the next version, or not."""

from __future__ import annotations

import random
import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from strandline.arrow import find_time_field
from strandline.channel.commit_statement import MAX_STATEMENT_CHARS, CommitStatement
from strandline.channel.errors import ChannelError, LogError
from strandline.channel.files import DataFile
from strandline.channel.log import Commit
from strandline.channel.progress import Progress
from strandline.channel.statement import REGISTRAR, Span, Statement
from strandline.channel.table import CHECKPOINT_INTERVAL, Table
from strandline.order import Time, TimeDomain

__all__ = ["Plan", "View", "bounded"]

# A commit repeats everybody's statements when there are few, or when as many have come since the last copy as there are
# producers: a statement then pays for one repeated one, and opening reads at most twice as many as there are producers.
_ALWAYS_COPIED = 32
_CONTENTION_SECONDS = 300.0
_UNREADABLE_SECONDS = 3.0
_NEAR = 8
_SMALL = 1000
"""A copy in a commit of so few statements is held against the one before it, when that is so many commits before at most."""


@dataclass(frozen=True)
class Plan:
    """What a commit is to contain, decided on the newest progress."""

    files: Sequence[DataFile] = ()
    statements: Mapping[str, Statement] = field(default_factory=dict)
    times: tuple[tuple[Time, int], ...] = ()
    spans: tuple[Span, ...] = ()
    transactions: Mapping[str, int] = field(default_factory=dict)
    copy: bool = False


class View:
    """A table with everybody's progress at the newest version taken up."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.time_column: str
        self.domain: TimeDomain
        self.time_column, self.domain = find_time_field(table.schema)
        self._transactions: dict[str, int] = {}
        self._since_copy = _SinceCopy()
        self.progress = self._read_back(table.loaded_version, self._since_copy)
        self.take_up()

    @property
    def version(self) -> int:
        """The newest version taken up."""
        return self.progress.version

    def take_up(self) -> list[Commit]:
        """Apply the commits that have come since :attr:`version`, and return them."""
        commits = []
        for commit in self.table.log.tail(self.version + 1):
            if commit.metadata_changed:
                self._reload(commit)
            commit.check_table(self.table.id)
            self.progress.apply(commit)
            self._transactions.update(commit.transactions)
            self._since_copy.count(commit.statement)
            commits.append(commit)
        return commits

    def _reload(self, commit: Commit) -> None:
        was = (self.time_column, self.domain, self.table.id)
        self.table.load()
        self.time_column, self.domain = find_time_field(self.table.schema)
        if (self.time_column, self.domain, self.table.id) != was:
            raise ChannelError(
                "STRANDLINE_CHANNEL_REPLACED",
                f"Commit {commit.version} of {self.table.path} made another table or time column of it: "
                f"{was[0]!r} of {was[1]} in {was[2]} became {self.time_column!r} of {self.domain} in {self.table.id}.",
                "Open the channel again, and start its readers anew.",
            )

    def progress_at(self, version: int) -> Progress:
        """Everybody's state as of ``version``."""
        if version == self.version:
            return self.progress.copy()
        if not 0 <= version <= self.version:
            latest = self.table.log.latest(self.version)
            if not 0 <= version <= latest:
                raise LogError(
                    "STRANDLINE_VERSION_UNKNOWN",
                    f"{self.table.path} has no version {version}; its newest is {latest}.",
                    "Ask for a version that exists.",
                )
        return self._read_back(version, _SinceCopy())

    def _read_back(self, version: int, since: _SinceCopy) -> Progress:
        """Go back from ``version`` to the newest copy of all statements, and forward again from there.

        The newest copy is held against the log from the one before it on, where that costs little.
        """
        progress = Progress(self.domain)
        commits = []
        for at in range(version, -1, -1):
            commit = self.table.log.require(at)
            commit.check_table(self.table.id)
            commits.append(commit)
            if _is_copy(commit):
                commits += self._to_copy_before(commit)
                progress.begin(commits[-1])
                break
        for commit in reversed(commits):
            progress.apply(commit)
            since.count(commit.statement)
        if progress.get(REGISTRAR) is None:
            raise ChannelError(
                "STRANDLINE_NOT_A_CHANNEL",
                f"{self.table.path} is a Delta table with a time domain, but no commit of it carries a progress statement.",
                "Create the channel with Channel.create and write the rows to it.",
            )
        return progress

    def _to_copy_before(self, copy: Commit) -> list[Commit]:
        """The commits before a copy, back to the one before it; none where that is large, far, or cleaned up."""
        commits: list[Commit] = []
        said = copy.statement
        if said is None or len(said.known or ()) + len(said.statements) > _SMALL:
            return commits
        for at in range(copy.version - 1, max(-1, copy.version - 1 - _NEAR), -1):
            commit = self.table.log.read(at)
            if commit is None:
                break
            commit.check_table(self.table.id)
            commits.append(commit)
            if _is_copy(commit):
                return commits
        return []

    def committed(self, application: str) -> int:
        """The newest version of an application's Delta transactions, -1 for none."""
        seen = self._transactions.get(application)
        if seen is None:
            found = self.table.transaction_version(application)
            seen = self._transactions[application] = -1 if found is None else found
        return seen

    def transact(self, plan: Callable[[], Plan | None]) -> int | None:
        """Commit what ``plan`` decides on the newest progress, deciding anew whenever somebody else commits first.

        So whatever a plan checked still holds in the version it is written as. Returns that version, ``None`` for no plan.
        """
        started = progressed = clock.monotonic()
        attempt = 0
        self.take_up()
        while (made := plan()) is not None:
            version = self.version + 1
            copy = made.copy or version % CHECKPOINT_INTERVAL == 0  # a log cleaned up to a checkpoint says where everybody stands
            copy = copy or self._since_copy.due(len(self.progress.producers), len(made.statements))
            known = self.progress.others(made.statements) if copy else None
            said = CommitStatement(
                made.statements,
                made.times,
                made.spans,
                known,
                actions=1 + len(made.files) + len(made.transactions),
                table=self.table.id,
            )
            text = bounded(said.to_user_metadata())
            if self._commit(version, made, text):
                self.progress.accept(version, made.statements)  # what it wrote it need not read
                self._transactions.update(made.transactions)
                self._since_copy.count(said)
                self.table.checkpoint_if_due(version)
                return version
            commits = self.take_up()
            if _is_ours(commits, version, made, text):
                return version
            attempt += 1
            if commits:
                progressed = clock.monotonic()
            elif clock.monotonic() - progressed > _UNREADABLE_SECONDS:
                raise LogError(
                    "STRANDLINE_COMMIT_UNREADABLE",
                    f"Commit {version} of {self.table.path} is there, so none can be written, and it cannot be read.",
                    "Look at its file in _delta_log: a link that leads nowhere is to be removed.",
                )
            if clock.monotonic() - started > _CONTENTION_SECONDS:
                raise LogError(
                    "STRANDLINE_CONTENTION",
                    f"{self.table.path}: another writer was faster in each of {attempt} attempts in {_CONTENTION_SECONDS:.0f} s.",
                    "Let fewer processes write to the channel, or commit less often.",
                )
            clock.sleep(random.uniform(0, min(0.005, 0.001 * attempt)))  # noqa: S311
        return None

    def _commit(self, version: int, made: Plan, text: str) -> bool:
        """Write the version; ``False`` when it exists, be it that of this very attempt.

        An error may come after the commit took effect: then the log has the version.
        """
        try:
            return self.table.commit(version, made.files, text, made.transactions)
        except Exception:
            if not self.table.log.exists(version):
                raise
            return False


def _is_copy(commit: Commit) -> bool:
    """Whether it says where everybody stands."""
    return commit.statement is not None and commit.statement.known is not None


def _is_ours(commits: Sequence[Commit], version: int, made: Plan, text: str) -> bool:
    """Whether the commit that was refused is there all the same: on an object store the answer may get lost."""
    for commit in commits:
        if commit.version == version:
            same_files = {file.path for file in commit.files} == {file.path for file in made.files}
            return same_files and commit.info.get("userMetadata") == text
    return False


def bounded(text: str) -> str:
    """``text``, or :class:`ChannelError` when it is longer than readers take."""
    if len(text) > MAX_STATEMENT_CHARS:
        raise ChannelError(
            "STRANDLINE_STATEMENT_TOO_LARGE",
            f"The commit's statements take {len(text)} characters, more than the {MAX_STATEMENT_CHARS} that readers allow.",
            "Register or state fewer producers in one commit.",
        )
    return text


class _SinceCopy:
    """How many statements have come since the last copy of everybody's."""

    def __init__(self) -> None:
        self._statements = 0

    def count(self, said: CommitStatement | None) -> None:
        if said is not None:
            self._statements = len(said.statements) + (0 if said.known is not None else self._statements)

    def due(self, producers: int, coming: int) -> bool:
        return producers <= _ALWAYS_COPIED or self._statements + coming >= producers
