"""A channel as its readers see it: its columns, its log, the progress of its producers, and its rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from strandline.channel import errors
from strandline.channel.progress.handle_lock import HandleLock, locked
from strandline.channel.progress.producer_states import CopiedStates
from strandline.channel.progress.progress import Progress
from strandline.channel.progress.snapshot import Snapshot
from strandline.channel.statements.log import Commit, Log
from strandline.channel.statements.statement import ProducerState
from strandline.delta.data_file import DataFile
from strandline.delta.read_file import read_file
from strandline.delta.table import Table
from strandline.errors import ChannelError, LogError, TimeDomainError
from strandline.time.antichain import Antichain
from strandline.time.domain import TimeDomain

__all__ = ["ChannelView"]

C = TypeVar("C", bound="ChannelView")


class ChannelView:
    """The part of :class:`~strandline.channel.Channel` that writes nothing."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._log = snapshot.log

    @property
    def lock(self) -> HandleLock:
        """The lock for which the threads that use this object wait."""
        return self._snapshot.lock

    @classmethod
    def open(cls: type[C], path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> C:
        """Open an existing channel at its newest version.

        Args:
            path: The table's path.
            storage_options: The options of the table's storage.

        Raises:
            ChannelError: ``STRANDLINE_NOT_A_TABLE``, ``STRANDLINE_NOT_A_CHANNEL``, or the condition for a table feature that is
                refused.
            TimeDomainError: No column has a time domain.
            LogError: Log cleanup removed too many commits.
        """
        return cls(Snapshot(Table(path, storage_options)))

    @classmethod
    def exists(cls, path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> bool:
        """Return whether there is a channel at ``path``.

        Args:
            path: The table's path.
            storage_options: The options of the table's storage.

        Raises:
            ChannelError: The channel is damaged.

        >>> ChannelView.exists("/no/such/channel")
        False
        """
        try:
            cls.open(path, storage_options)
        except (ChannelError, TimeDomainError) as error:
            if error.condition in ("STRANDLINE_NOT_A_TABLE", "STRANDLINE_NOT_A_CHANNEL", "STRANDLINE_TIME_DOMAIN_MISSING"):
                return False
            raise
        return True

    # ------------------------------------------------------------------------------------------------------ properties

    @property
    def path(self) -> str:
        """The table's path as it was given."""
        return self._snapshot.table.path

    @property
    def properties(self) -> dict[str, str]:
        """The Delta table properties."""
        return dict(self._snapshot.table.configuration)

    @property
    def storage_options(self) -> dict[str, str] | None:
        """The storage options that were given to deltalake to reach the table."""
        return self._snapshot.table.storage_options

    @property
    def table_id(self) -> str:
        """The Delta table's id. Offsets name the table by this id."""
        return self._snapshot.table.id

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema. The metadata of the time column has its domain."""
        return self._snapshot.table.schema

    @property
    def time_column(self) -> str:
        """The name of the column that holds each row's time."""
        return self._snapshot.time_column

    @property
    def domain(self) -> TimeDomain:
        """The domain of the channel's times."""
        return self._snapshot.domain

    @property
    def log(self) -> Log:
        """The log with the table's commits."""
        return self._log

    @property
    def version(self) -> int:
        """The newest version that was applied."""
        return self._snapshot.progress.version

    @property
    def progress(self) -> Progress:
        """Every producer's state at :attr:`version`. It is a live object: copy it to keep it."""
        return self._snapshot.progress

    @property
    @locked
    def frontier(self) -> Antichain:
        """The least times that may still be written after :attr:`version`."""
        return self._snapshot.progress.frontier

    @property
    def producers(self) -> Mapping[str, ProducerState]:
        """The state of each producer, by name. A change of such a state changes nothing in the channel."""
        return CopiedStates(self._snapshot.progress.producers)

    @property
    @locked
    def sealed(self) -> bool:
        """Whether no producer can join any more."""
        return self._snapshot.progress.sealed

    @property
    @locked
    def registrar(self) -> Antichain:
        """The capability at which producers may join; empty when the channel is sealed."""
        return self._snapshot.progress.registrar

    # --------------------------------------------------------------------------------------------------- the log

    @locked
    def refresh(self, *, ignore_deletes: bool = False, skip_change_commits: bool = False) -> list[Commit]:
        """Apply the commits that came after :attr:`version`. Return those of others that no call has returned yet, in order.

        These are all commits since the channel was opened, each once, except those that this object made itself: also those that
        another method of this object has applied meanwhile, such as one that commits. After an error nothing is lost. The next
        call returns what this one would have returned.

        Args:
            ignore_deletes: See :meth:`Commit.check`.
            skip_change_commits: See :meth:`Commit.check`.

        Raises:
            LogError: A commit breaks the channel's contract (see :meth:`Commit.check`). This error is raised only once, and no
                later call returns this commit. Or log cleanup removed commits that are to be returned.
            StatementError: A statement cannot be read.
        """
        applied = {commit.version: commit for commit in self._snapshot.update()}
        commits = []
        for version in self._snapshot.unreturned.versions(self.version):
            commit = applied.get(version)
            commits.append(self._log.require(version) if commit is None else commit)
        commit = None
        try:
            for commit in commits:
                commit.check(ignore_deletes=ignore_deletes, skip_change_commits=skip_change_commits)
        except LogError:
            if commit is not None:
                self._snapshot.unreturned.leave_out(commit.version)
            raise
        self._snapshot.unreturned.all_returned(self.version)
        return commits

    @locked
    def progress_at(self, version: int) -> Progress:
        """Return every producer's state as of ``version``. This reads the log back to the newest copy of all statements."""
        return self._snapshot.progress_at(version)

    def frontier_at(self, version: int) -> Antichain:
        """Return the frontier as of ``version``."""
        return self.progress_at(version).frontier

    def was_replaced(self) -> bool:
        """Return whether the path of the channel now has another table, none, or another log than the one that was read.

        This can happen because a process may exist longer than the channel.
        """
        if not self.log.has(self.version, self.progress.identity):
            return True
        first = self.log.read(0)
        return first is not None and (first.metadata or {}).get("id") != self.table_id

    # --------------------------------------------------------------------------------------------------- rows

    def snapshot_files(self, version: int | None = None, *, stats: bool = False) -> list[DataFile]:
        """Return the data files of a version, oldest first.

        Args:
            version: The version (default: the newest applied).
            stats: Whether to add the files' statistics.
        """
        return self._snapshot.table.files(self.version if version is None else version, stats=stats)

    def read(self, version: int | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of a version, in no particular order.

        Args:
            version: The version (default: the newest applied).
            columns: The columns to read (default: all).

        Raises:
            ChannelError: ``STRANDLINE_FILE_MISSING`` if a file was vacuumed or deleted. ``STRANDLINE_COLUMN_UNKNOWN``.
            LogError: ``STRANDLINE_VERSION_UNKNOWN``.
        """
        if not isinstance(columns, Iterable | None):
            columns = [str(columns)]
        return self.read_files(self.snapshot_files(version), columns)

    def read_files(self, files: Iterable[DataFile], columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of some of the channel's files, for example of one commit's files.

        Args:
            files: The files.
            columns: The columns to read (default: all).

        Raises:
            ChannelError: ``STRANDLINE_FILE_MISSING`` if a file was vacuumed or deleted. ``STRANDLINE_COLUMN_UNKNOWN``.
        """
        unknown = [name for name in columns or () if name not in self.schema.names]
        if unknown:
            raise errors.column_unknown(self.path, unknown[0], self.schema.names)
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        tables = (read_file(self._snapshot.table, file, schema) for file in files)
        return pa.concat_tables([schema.empty_table(), *tables])
