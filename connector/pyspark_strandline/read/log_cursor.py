"""The source's cursor in a channel's log: reads the commits one after the other, and checks each."""

from __future__ import annotations

from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read import errors
from pyspark_strandline.read.replay.pace import Pace
from strandline.channel import Channel, Commit, Log, LogError

__all__ = ["LogCursor"]


class LogCursor:
    """Reads a channel's commits by version, each once, and knows the newest version.

    Every commit is checked against the channel's contract, and against the channel that the query began with.

    Args:
        options: The source's options for this channel.
        pace: When commits are due, if they are not all due at once.
    """

    def __init__(self, options: ReadOptions, pace: Pace | None = None) -> None:
        self._place = options.path, options.storage
        self.channel = Channel.open(*self._place)
        self._log = Log(options.path, options.storage)
        self._passing = {"ignore_deletes": options.ignore_deletes, "skip_change_commits": options.skip_change_commits}
        self._tip = self.channel.version
        self._at_end = False  # whether the last look for the next commit found none
        self._last: int | None = None  # the last commit to take, for AvailableNow
        self._partly: Commit | None = None  # the commit that the last batch ended in
        self._pace = pace
        self._coming: Commit | None = None  # the commit that is not due yet
        self.wait_s = 0.0
        """In how many seconds the next commit is due, if the last look found one that is not."""

    def newest(self) -> int:
        """The newest version that exists."""
        while self._log.exists(self._tip + 1):
            self._tip += 1
        return self._tip

    def newest_seen(self) -> int:
        """The newest version as of the last look, if that came to the end of the log. Otherwise this looks again."""
        return self._tip if self._at_end else self.newest()

    def stop_at_newest(self) -> None:
        """Take no commit that comes after this call."""
        self._last = self.newest()

    @property
    def end(self) -> int:
        """The newest version to take."""
        return self.newest() if self._last is None else self._last

    def next(self, version: int, *, checks_newest: bool = True) -> Commit | None:
        """Return the commit of ``version``; ``None`` while it does not exist, or when it comes after the end.

        With ``checks_newest``, a look that finds none also checks that the newest commit is there, and is that of this table.

        Raises if the table is no longer the one that the query began with. Every commit that is returned was checked for that.
        """
        self._at_end, self.wait_s = False, 0.0
        if self._last is not None and version > self._last:
            return None
        commit = self._at(version)
        self._at_end = commit is None
        if commit is None:
            if checks_newest or version <= self._tip:
                self._log.check_exists(self._tip, self.channel.table_id)
            if version <= self._tip:
                self._log.require(version)  # raises: the log was cleaned up beyond the position of this query
            return None
        self._tip = max(self._tip, version)
        if commit is not self._partly and self._is_early(commit):
            return None
        if version and not commit.names(self.channel.table_id):
            self._log.check_exists(version - 1, self.channel.table_id)
        self._check(commit)
        return commit

    def _at(self, version: int) -> Commit | None:
        """Read a commit, unless it is kept."""
        kept = (commit for commit in (self._partly, self._coming) if commit is not None and commit.version == version)
        return next(kept, None) or self._log.read(version)

    def _is_early(self, commit: Commit) -> bool:
        """Whether a commit is not due yet. One whose clock was behind, or that has no moment, is due with the one before it."""
        if self._pace is None or commit.made_ms is None:
            return False
        self.wait_s = self._pace.wait_s(commit.made_ms)
        self._coming = commit if self.wait_s else None
        return self.wait_s > 0

    def require(self, version: int) -> Commit:
        """Return the commit of ``version``, which exists unless the log was cleaned up."""
        commit = self._log.require(version)
        self._check(commit)
        return commit

    def check_same(self, version: int, identity: str | None) -> None:
        """Raise if the log has another commit than the one that was read (:meth:`strandline.channel.Log.check_same`)."""
        self._log.check_same(version, identity)

    def read(self, version: int) -> Commit | None:
        """Return the commit of ``version`` unchecked; ``None`` if it does not exist, or no longer."""
        return self._log.read(version)

    def keep(self, commit: Commit | None) -> None:
        """Keep a commit that was taken in part, so that the next batch does not read it again."""
        self._partly = commit

    def _check(self, commit: Commit) -> None:
        commit.check_table(self.channel.table_id)
        commit.check(**self._passing)
        if commit.metadata_changed and commit.version > self.channel.version:
            self._refresh()  # raises when another table was put in the channel's place

    def _refresh(self) -> None:
        """Read the channel's columns anew. A running query has read commits that were cleaned up since the channel was opened."""
        try:
            self.channel.refresh(**self._passing)
        except LogError as error:
            if error.condition != "STRANDLINE_LOG_TRUNCATED":
                raise
            was, now = self.channel, Channel.open(*self._place)
            if (was.table_id, was.time_column, was.domain) != (now.table_id, now.time_column, now.domain):
                raise errors.channel_replaced_table(now.path) from None
            self.channel = now

    def check_reached(self, version: int) -> None:
        """Raise if the log ends before a version that was read: it was restored to an earlier state."""
        if version > self.newest():
            raise errors.channel_replaced_log(version, self.channel.path, self.newest())

    def is_whole(self) -> bool:
        """Whether every row can still be read commit by commit.

        Commits move the frontier step by step, and a snapshot moves it only once. Rows cannot be read by commit when the log has
        lost its first commits, or when files were rewritten (OPTIMIZE) and the old ones were vacuumed.
        """
        rewritten = False
        for commit in self._log.tail(0) if self._log.exists(0) else ():
            rewritten = rewritten or commit.removes_files
            if rewritten and commit.operation.startswith("VACUUM"):
                return False
        return self._log.exists(0)

    def first_at(self, timestamp_ms: int) -> int:
        """Return the first version with a commit timestamp of ``timestamp_ms`` (since 1970) or later.

        Raises :class:`LogError` ``STRANDLINE_LOG_TRUNCATED`` if commits before, which may be as late, were cleaned from the log.
        """
        version = self.newest() + 1
        while version > 0:
            commit = self._log.read(version - 1)
            if commit is None:
                self._log.require(version - 1)  # raises
            elif commit.timestamp_ms < timestamp_ms:
                break
            version -= 1
        return version
