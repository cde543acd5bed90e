"""The checks of a channel's log as a whole: one commit after the other, as a reader that has been there from the beginning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from strandline.channel import Commit, Log, Progress
from strandline.channel.statements.statement import REGISTRAR
from strandline.delta.checks.checkpoints import Checkpoints
from strandline.delta.data_file import DataFile
from strandline.delta.log import MAX_COMMIT_BYTES
from strandline.delta.storage import LOG_DIR, commit_name
from strandline.delta.table import Table
from strandline.report.soundness.checkpoint_file import read_checkpoint
from strandline.report.soundness.commit_checks import (
    Metadata,
    actions_of,
    check_actions,
    check_checksum,
    metadata_of,
    refuse_newer,
)
from strandline.report.soundness.stats_columns import StatsColumns
from strandline.report.soundness.verification import refused, violated
from strandline.time.arrow import find_time_field

__all__ = ["CommitFiles", "LogState", "Replay"]


@dataclass
class CommitFiles:
    """The files that a commit adds, and what its statement says of their rows.

    Attributes:
        commit: The commit. Its statement may be ``None`` where it only rearranges rows.
        added: The files that it adds, also if it only rearranges.
        replaced: The files that it removes; ``None`` where the log does not say what they were.
        columns: The names of the table's columns at the commit.
    """

    commit: Commit
    added: list[DataFile]
    replaced: list[DataFile] | None
    columns: tuple[str, ...]


class FileChanges(NamedTuple):
    """The files that a version no longer has, and those that it has since."""

    version: int
    removed: list[DataFile]
    added: list[DataFile]


class ListedCheckpoint(NamedTuple):
    """A checkpoint's files; whether the data files of its version are known from the log; and the transactions up to it."""

    version: int
    names: list[str]
    known: bool
    transactions: dict[str, int]


@dataclass
class LogState:
    """What follows from the log, for the checks of files, checkpoints and states.

    Attributes:
        progress: Every producer's state at the end.
        metadata: The newest metadata; ``None`` if only a checkpoint has it.
        active: The files of the newest version by path; ``None`` while they are not known, because the log was cleaned up.
        changes: The files that each commit removes and adds, where the files of the version are known.
        checkpoints: The Delta checkpoints.
        commits: The commits with files.
        stats_columns: By path, the statistics of files that only the first checkpoint states, and only in columns.
    """

    version: int
    progress: Progress
    metadata: Metadata | None = None
    active: dict[str, DataFile] | None = None
    transactions: dict[str, int] = field(default_factory=dict)
    changes: list[FileChanges] = field(default_factory=list)
    checkpoints: list[ListedCheckpoint] = field(default_factory=list)
    commits: list[CommitFiles] = field(default_factory=list)
    stats_columns: dict[str, StatsColumns] = field(default_factory=dict)
    read: int = 0
    sums: int = 0
    earliest: int = 0


class Replay:
    """Reads every commit that the log has, and checks each against those before it. :attr:`state` is what follows from them.

    Args:
        log: The log.
        table_at: Opens the table, for its columns where the log was cleaned up.
        told: Is told how many commits of how many were read.
    """

    def __init__(self, log: Log, table_at: Callable[[], Table], told: Callable[[int, int], None]) -> None:
        self._log, self._table_at, self._told = log, table_at, told
        self._ids: dict[str, int] = {}
        self._since: dict[str, DataFile] = {}  # the files that the commits before the first checkpoint add and do not remove
        self._table_id: str | None = None
        self._schema_columns: tuple[str, ...] = ()
        self.state: LogState | None = None

    def run(self) -> LogState:
        """Read the commits that the log has now."""
        versions = sorted(self._log.versions())
        if not versions:
            violated(None, LOG_DIR, "no commit", "the table's commits")
        for before, after in pairwise(versions):
            if after != before + 1 and not self._log.exists(before + 1):  # a listing may lack one that comes meanwhile
                violated(after, LOG_DIR, f"a gap after version {before}", "a commit for each version")
        earliest = versions[0]
        self._checkpoints = self._listed_checkpoints()
        if earliest and self._checkpoints.newest < earliest:
            violated(
                earliest, LOG_DIR, f"commits from {earliest} on", "all commits, or a checkpoint that stands for those before"
            )
        return self.go_on(versions[-1], earliest)

    def go_on(self, newest: int, earliest: int | None = None) -> LogState:
        """Read on up to a version."""
        first = earliest if self.state is None else self.state.version + 1
        whole = newest + 1 - (earliest or 0 if self.state is None else self.state.earliest)
        if first is None:
            raise ValueError("the replay has not begun")
        for version in range(first, newest + 1):
            self._commit(version, first=version == earliest)
            self._told(self._known.read, whole)
        if self._known.progress.get(REGISTRAR) is None:
            violated(newest, "statements", "no statement of $registrar", "the founding statement, or a copy of it")
        return self._known

    @property
    def _known(self) -> LogState:
        if self.state is None:
            raise RuntimeError("the replay has not begun")
        return self.state

    def _listed_checkpoints(self) -> Checkpoints:
        return Checkpoints(self._log.store.list(LOG_DIR))

    def _commit(self, version: int, *, first: bool) -> None:
        with refused(version, commit_name(version), "a file with the commit's actions"):
            data = self._log.store.read(commit_name(version), MAX_COMMIT_BYTES + 1)
            if data is None or len(data) > MAX_COMMIT_BYTES:
                violated(version, commit_name(version), "nothing that can be read", "a file with the commit's actions")
            commit = Commit(version, data)
        actions = actions_of(version, data)
        metadata = metadata_of(version, actions)
        refuse_newer(commit, metadata)
        with refused(version, "userMetadata", "a statement as the protocol has it"):
            statement = commit.statement
        with refused(version, "add", "files as Delta's protocol has them"):
            check_actions(commit, actions)
        if first:
            self._begin(version, metadata)
        state = self._known
        if metadata is not None and not first:
            if state.metadata is not None:
                state.metadata.check_next(version, metadata)
            state.metadata = metadata
            self._schema_columns = tuple(metadata.schema.names)
        if first and version == 0 and (metadata is None or "protocol" not in actions or statement is None):
            violated(version, "actions", ", ".join(sorted(actions)), "protocol, metaData and the founding statement")
        if check_checksum(commit, metadata):
            state.sums += 1
        self._check_identity(commit)
        self._apply(commit)
        self._files(commit)
        state.transactions |= commit.transactions
        for names in self._checkpoints.of(version):
            if state.active is None:  # the log was cleaned up to it: it stands for what came before
                found = read_checkpoint(self._log.store, version, names)
                if lost := self._since.keys() - {file.path for file in found.files}:
                    violated(version, f"{found.name}, add", f"{min(lost)} is missing", "the files of the commits before it")
                files = [self._since.get(file.path, file) for file in found.files]
                state.active = {file.path: file for file in files}
                state.stats_columns = {
                    file.path: found.columns[file.path]
                    for file in files
                    if file.stats is None and file.path in found.columns and file.path not in self._since
                }
                state.changes.append(FileChanges(version, [], files))
                state.transactions = {**found.transactions, **state.transactions}
            state.checkpoints.append(ListedCheckpoint(version, names, state.active is not None, dict(state.transactions)))
        state.version = version
        state.read += 1

    def _begin(self, version: int, metadata: Metadata | None) -> None:
        if metadata is not None:
            domain, self._table_id, self._schema_columns = metadata.domain, metadata.id, tuple(metadata.schema.names)
        else:
            with refused(None, "the table", "a table that readers can open"):
                table = self._table_at()
                _, domain = find_time_field(table.schema)
            self._table_id, self._schema_columns = table.id, tuple(table.schema.names)
        active: dict[str, DataFile] | None = {} if version == 0 else None
        self.state = LogState(version - 1, Progress(domain), metadata, active, earliest=version)

    def _check_identity(self, commit: Commit) -> None:
        with refused(commit.version, "table", f"the id of this table, {self._table_id}"):
            commit.check_table(str(self._table_id))
        statement = commit.statement
        if statement is not None and statement.id is not None:
            other = self._ids.setdefault(statement.id, commit.version)
            if other != commit.version:
                violated(commit.version, "id", f"{statement.id}, which version {other} has", "an id that no other commit has")
        for application, number in commit.transactions.items():
            before = self._known.transactions.get(application)
            if before is not None and number <= before:
                violated(commit.version, f"txn of {application}", number, f"more than {before}, which was committed before")

    def _apply(self, commit: Commit) -> None:
        progress, statement, version = self._known.progress, commit.statement, commit.version
        if progress.get(REGISTRAR) is None and version != 0:
            if statement is not None and statement.known is not None:
                with refused(version, "known", "the newest statements of all producers"):
                    progress.begin(commit)
            return
        before = progress.frontier if version else None
        if version == 0 and statement is not None:
            late = [name for name, each in statement.statements.items() if each.seq != 0]
            if late or REGISTRAR not in statement.statements:
                violated(
                    0, "statements", late[:3] or "no $registrar", "the first statements of $registrar and the first producers"
                )
        with refused(version, "statements", "the next statements of its producers, and a true copy of the others"):
            progress.apply(commit)
        if statement is None or before is None:
            return
        low = [time for time, _ in statement.times] + [span.low for span in statement.spans]
        for time in low:
            if before.closed(time):
                shown = progress.domain.format(time)
                violated(version, "times", f"rows at {shown}", f"rows at times that {before.format()} had not closed")
        for span in statement.spans:
            if not progress.domain.less_equal(span.low, span.high):
                violated(version, "spans", f"from {span.low} to {span.high}", "a span from its least to its greatest time")
        if len({time for time, _ in statement.times}) < len(statement.times):
            violated(version, "times", "a time twice", "each distinct time once")

    def _files(self, commit: Commit) -> None:
        state = self._known
        added = [DataFile.from_add(action) for action in commit._actions("add")]
        removed = [DataFile.from_add({**action, "size": 0}).path for action in commit._actions("remove")]
        replaced = []
        if state.active is None:
            for path in removed:
                self._since.pop(path, None)
            self._since |= {file.path: file for file in added}
        else:
            for path in removed:
                if path not in state.active:
                    violated(commit.version, "remove", path, "a file of the version before")
                replaced.append(state.active.pop(path))
            for file in added:
                if file.path in state.active:
                    violated(commit.version, "add", file.path, "a file that the version before does not have")
                state.active[file.path] = file
            if added or replaced:
                state.changes.append(FileChanges(commit.version, replaced, added))
        if commit.statement is None and added and -1 not in (rows := [file.rows for file in (*added, *replaced)]):
            now = sum(rows[: len(added)])
            if state.active is not None and now != sum(rows[len(added) :]):
                violated(
                    commit.version, "add", f"{now} rows", f"the {sum(rows[len(added) :])} rows of the files that it replaces"
                )
        if added:
            known = None if state.active is None else replaced
            state.commits.append(CommitFiles(commit, added, known, self._schema_columns))
