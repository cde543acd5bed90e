"""A channel's log: Delta's commits with the progress statements that they carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import cached_property

from strandline.channel import errors
from strandline.channel.statements.commit_statement import CommitStatement
from strandline.delta import errors as delta_errors
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
        return self.statement_of(None)

    def statement_of(self, producers: Collection[str] | None) -> CommitStatement | None:
        """Return :attr:`statement` as far as it is about some producers. In a commit that repeats very many, it takes less time.

        It may have statements of others too. The result is not kept.

        >>> import json
        >>> known = '{"a":{"seq":0,"holds":[0]},"b":{"seq":4,"holds":[9]}}'
        >>> text = '{"strandline":{"version":1,"statements":{"c":{"seq":1,"holds":[]}},"known":%s}}' % known
        >>> said = Commit(4, json.dumps({"commitInfo": {"userMetadata": text}}).encode()).statement_of(["b"])
        >>> said.statements, said.known["b"].seq, "a" in said.known
        ({}, 4, False)
        """
        text = self.info.get("userMetadata")
        if not isinstance(text, str) or '"strandline"' not in text:
            return None
        return CommitStatement.from_user_metadata(text, self.version, producers)

    @property
    def rearranges_only(self) -> bool:
        """Whether the commit adds no row, removes no row and has no statement.

        Examples are OPTIMIZE, VACUUM and a change of properties.
        """
        return not self.files and not self.removed and self.statement is None

    @property
    def is_copy(self) -> bool:
        """Whether the commit repeats every producer's statement. A reader may begin there."""
        return self.statement is not None and self.statement.known is not None

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
            raise delta_errors.commit_torn_files(self.version, statement.rows, self._table)
        if statement.actions not in (None, self.actions):
            raise delta_errors.commit_torn_actions(self.version, self.actions, statement.actions, self._table)

    @property
    def identity(self) -> str:
        """What tells the commit from any other of its version: the id that its writer gave it, else its digest.

        >>> Commit(4, b'{"commitInfo":{"operation":"OPTIMIZE"}}').identity
        'f1ad7445a7360445f755d7003fd24dd2'
        """
        return self.digest if self.statement is None or self.statement.id is None else self.statement.id

    def names(self, table_id: str) -> bool:
        """Return whether the commit itself says that it belongs to the table."""
        if self.metadata is not None and self.metadata.get("id") == table_id:
            return True
        return self.statement is not None and self.statement.table == table_id

    def check_table(self, table_id: str) -> None:
        """Raise :class:`LogError` ``STRANDLINE_CHANNEL_REPLACED`` if the statement names another table."""
        statement = self.statement
        if statement is not None and statement.table not in (None, table_id):
            raise errors.channel_replaced_table(self.version, statement.table, table_id)

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
            raise errors.rows_changed(self.version, self.operation, what, self.removed, option)
        if self.files and self.statement is None:
            raise errors.statement_missing(self.version, self.operation, len(self.files), self.files[0].path)
        self.check_whole()
        if self.statement is not None:
            stated, rows = self.statement.rows, self.files.rows
            if stated != sum(rows) and -1 not in rows:
                raise delta_errors.commit_torn_rows(self.version, stated, sum(rows), self._table)
            if len(set(self.files.paths)) < len(self.files):
                twice = next(path for path, times in Counter(self.files.paths).items() if times > 1)
                raise delta_errors.commit_invalid_duplicate(self.version, twice, self._table)


class Log(DeltaLog[Commit]):
    """Reads a channel's commits by version, directly from ``_delta_log``."""

    commit_type = Commit
    _known: tuple[str, int, bytes, int, bytes] | None = None
    """A table's id, the newest commit that was looked at, and the commit at or before it that says to which table both belong."""

    def has(self, version: int, identity: str | None) -> bool:
        """Return whether the log has the commit of ``version`` with this :attr:`Commit.identity` (``None``: any)."""
        data = self._bytes(version)
        return data is not None and (identity is None or _identifies(identity, version, data))

    def check_same(self, version: int, identity: str | None) -> None:
        """Raise :class:`LogError` if the log has another commit than the one that was read before.

        Then the log was restored to an earlier state and written on. Or a loss of power undid a commit that another machine had
        seen, and its version was written again. This only reads the file, and looks for the id.

        Args:
            version: The version that was read before.
            identity: Its :attr:`Commit.identity`. If it is not known, nothing is checked.

        Raises:
            LogError: ``STRANDLINE_CHANNEL_REPLACED``. A commit that does not exist any more is no error here: the log may have
                been cleaned up.
        """
        data = None if identity is None else self._bytes(version)
        if data is not None and identity is not None:
            self._check_same(version, data, identity)

    def _check_same(self, version: int, data: bytes, identity: str) -> None:
        if not _identifies(identity, version, data):
            raise errors.channel_replaced_commit(version, self.path, identity[:80], Commit(version, data).identity[:80])

    def check_exists(self, version: int, table_id: str, identity: str | None = None) -> None:
        """Raise :class:`LogError` if a commit that was read before is gone, or is now another one.

        This is for the newest known commit. Usually it only reads the file, and finds what was there before.

        Args:
            version: The version that was read before.
            table_id: The id of its table.
            identity: Its :attr:`Commit.identity`, if it is known.

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
                break
            commit: Commit = self.commit_type(at, data, self.path)
            commit.check_table(table_id)
            if commit.metadata is not None and commit.metadata.get("id") != table_id:
                raise self._replaced(version, table_id)
            if commit.metadata is not None or commit.statement is not None or not at:
                break
            at -= 1
            data = self._bytes(at)
        if identity is not None:
            self._check_same(version, newest, identity)
        if data is not None:
            self._known = (table_id, version, newest, at, data)

    def _bytes(self, version: int) -> bytes | None:
        return self.store.read(commit_name(version), MAX_COMMIT_BYTES)

    def _check_gone(self, version: int, table_id: str) -> None:
        if self.exists(version + 1):  # it has come meanwhile, and the log was cleaned up to it
            return
        if max(self.versions(), default=-1) > version:
            self.require(version)
        raise self._replaced(version, table_id)

    def _replaced(self, version: int, table_id: str) -> LogError:
        return errors.channel_replaced(version, self.path, table_id)


def _identifies(identity: str, version: int, data: bytes) -> bool:
    """Return whether a commit's text is that of the commit with an identity. Usually this does not parse the statement."""
    own = f'\\"id\\":\\"{identity}\\"'.encode()  # as a statement has it
    return own in data or Commit(version, data).identity == identity
