"""A channel's log: Delta's commits with the progress statements that they carry."""

from __future__ import annotations

from collections import Counter
from functools import cached_property

from strandline.channel.statements.commit_statement import CommitStatement
from strandline.delta.log import MAX_COMMIT_BYTES, DeltaCommit, DeltaLog
from strandline.delta.storage import commit_name
from strandline.errors import LogError

__all__ = ["Commit", "Log"]


class Commit(DeltaCommit):
    """One version of a channel: a Delta commit, with its progress statement.

    Raises :class:`LogError` or :class:`StatementError` if the file does not follow the protocol of Delta or of Strandline.
    The error names the version.

    >>> line = b'{"add":{"path":"a.parquet","size":9,"dataChange":true,"stats":"{\\\\"numRecords\\\\":3}"}}'
    >>> commit = Commit(4, line)
    >>> commit.files[0].rows, commit.rearranges_only, commit.statement
    (3, False, None)
    """

    @cached_property
    def statement(self) -> CommitStatement | None:
        """The progress statement, or ``None`` when the writer made none."""
        text = self.info.get("userMetadata")
        if not isinstance(text, str) or '"strandline"' not in text:
            return None
        return CommitStatement.from_user_metadata(text, self.version)

    @property
    def rearranges_only(self) -> bool:
        """Whether the commit adds no row, removes no row and has no statement.

        Examples are OPTIMIZE, VACUUM and a change of properties.
        """
        return not self.files and not self.removed and self.statement is None

    def check_whole(self) -> None:
        """Raise :class:`LogError` ``STRANDLINE_COMMIT_TORN`` if the commit lacks something that its statement counts.

        This does not look at the files that the commit adds. :meth:`check` also compares their rows.

        >>> Commit(4, b'{"commitInfo":{"userMetadata":"{\\"strandline\\":{\\"version\\":1,\\"times\\":[[3,7]]}}"}}').check_whole()
        Traceback (most recent call last):
        strandline.errors.LogError: [STRANDLINE_COMMIT_TORN] ...
        """
        statement = self.statement
        if statement is None:
            return
        if statement.rows and not self.adds_files:
            self.torn(f"states {statement.rows} row(s) but adds no file")
        if statement.actions not in (None, self.actions):
            self.torn(f"has {self.actions} action(s), but its statement counts {statement.actions}")

    def names(self, table_id: str) -> bool:
        """Return whether the commit itself says that it belongs to the table."""
        if self.metadata is not None and self.metadata.get("id") == table_id:
            return True
        return self.statement is not None and self.statement.table == table_id

    def check_table(self, table_id: str) -> None:
        """Raise :class:`LogError` ``STRANDLINE_CHANNEL_REPLACED`` if the statement names another table."""
        statement = self.statement
        if statement is not None and statement.table not in (None, table_id):
            raise LogError(
                "STRANDLINE_CHANNEL_REPLACED",
                f"Commit {self.version} belongs to table {statement.table}, but the commits before it belong to table "
                f"{table_id}: the table was deleted and recreated, or its log was changed.",
                "Open the channel again, and start its readers with new checkpoints.",
            )

    def check(self, *, ignore_deletes: bool = False, skip_change_commits: bool = False) -> None:
        """Raise :class:`LogError` if a reader of the channel must not silently skip the commit.

        These are torn commits (:meth:`check_whole`), commits that add rows without a statement, and commits that delete or
        rewrite rows. The options are Delta's.

        Args:
            ignore_deletes: Accept commits that only delete whole files.
            skip_change_commits: Accept every commit that deletes or rewrites rows.
        """
        if self.removed:
            if skip_change_commits or (ignore_deletes and not self.files):
                return
            what = "rewrites rows" if self.files else "deletes rows"
            option = "skipChangeCommits" if self.files else "ignoreDeletes or skipChangeCommits"
            raise LogError(
                "STRANDLINE_ROWS_CHANGED",
                f"Commit {self.version} ({self.operation or 'unnamed operation'}) {what}: it removes {len(self.removed)} "
                f"file(s), {self.removed[0]!r} first. A stream cannot take back rows that it has read.",
                f"Set {option} to skip such commits, or start with a new checkpoint after this commit.",
            )
        if self.files and self.statement is None:
            raise LogError(
                "STRANDLINE_STATEMENT_MISSING",
                f"Commit {self.version} ({self.operation or 'unnamed operation'}) appends {len(self.files)} file(s), "
                f"{self.files[0].path!r} first, without a progress statement. So no producer stated these rows.",
                "Write to channels only through producers or the strandline sink. To continue, RESTORE the table to version "
                f"{self.version - 1}, and start the reader with a new checkpoint.",
            )
        self.check_whole()
        if self.statement is not None:
            stated, rows = self.statement.rows, self.files.rows
            if stated != sum(rows) and -1 not in rows:
                self.torn(f"states {stated} row(s) but adds files with {sum(rows)}")
            if len(set(self.files.paths)) < len(self.files):
                twice = next(path for path, times in Counter(self.files.paths).items() if times > 1)
                self.malformed(f"adds the file {twice[:200]!r} more than once, so a stream would read its rows repeatedly")


class Log(DeltaLog[Commit]):
    """Reads a channel's commits by version, directly from ``_delta_log``."""

    commit_type = Commit
    _known: tuple[str, int, bytes, int, bytes] | None = None
    """A table's id, the newest commit that was looked at, and the commit at or before it that says to which table both belong."""

    def check_exists(self, version: int, table_id: str) -> None:
        """Raise :class:`LogError` if a commit that was read before is gone, or is now another table's.

        This is for the newest known commit, when no later one was found, or one that does not name its table. Usually it only
        reads the file, and finds what was there before.

        Raises:
            LogError: ``STRANDLINE_CHANNEL_REPLACED``, or ``STRANDLINE_LOG_TRUNCATED`` if later commits exist.
        """
        newest = self._bytes(version)
        if newest is None:
            self._check_gone(version, table_id)
            return
        if self._known is not None and self._known[:3] == (table_id, version, newest):
            *_, proof, said = self._known
            if proof == version or self._bytes(proof) == said:
                return
        own = f'\\"table\\":\\"{table_id}\\"'.encode()  # as a statement has it: a commit may have very many of them
        at = version
        data: bytes | None = newest
        while data is not None:
            # A producer's state may have the same text, but it comes before the statement's own actions and table. What a
            # query reads comes after it, and has tables of its own.
            if b'\\"reads\\":' not in data and data.rfind(own) > data.rfind(b'\\"actions\\":') > 0:
                self._known = (table_id, version, newest, at, data)
                return
            commit: Commit = self.commit_type(at, data)
            commit.check_table(table_id)
            if commit.metadata is not None and commit.metadata.get("id") != table_id:
                raise self._replaced(version, table_id)
            if commit.metadata is not None or commit.statement is not None or not at:
                self._known = (table_id, version, newest, at, data)
                return
            at -= 1
            data = self._bytes(at)

    def _bytes(self, version: int) -> bytes | None:
        return self.store.read(commit_name(version), MAX_COMMIT_BYTES)

    def _check_gone(self, version: int, table_id: str) -> None:
        if self.exists(version + 1):  # it has come meanwhile, and the log was cleaned up to it
            return
        if max(self.versions(), default=-1) > version:
            self.require(version)
        raise self._replaced(version, table_id)

    def _replaced(self, version: int, table_id: str) -> LogError:
        return LogError(
            "STRANDLINE_CHANNEL_REPLACED",
            f"Commit {version} of {self.path} is no longer that of table {table_id}: the table was deleted, or another one took "
            "its place.",
            "Open the channel again, and start its readers with new checkpoints.",
        )
