"""What a query has not read of a channel: the commits after its position in the log, and their rows."""

from __future__ import annotations

from strandline.channel import Channel, Commit
from strandline.channel.statements.inputs import Input
from strandline.errors import StrandlineError
from strandline.report.ailments import Behind
from strandline.report.unread.checkpoints import Position

__all__ = ["UnreadRows"]

_MOST = 1000
"""The rows of so many commits at most are counted: of the newest ones."""


class UnreadRows:
    """Counts the rows of one channel after positions in its log. A commit is read once, whoever asks.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> from strandline.time.arrow import time_field
    >>> from strandline.time.domain import int64
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     channel = Channel.create(folder, pa.schema([time_field("time", int64)]), producers=["a"], at=0)
    ...     with channel.producer("a") as a:
    ...         _ = a.send(pa.table({"time": [3, 3]}, schema=channel.schema))
    ...     for taken in (None, (2, 0)):
    ...         print(UnreadRows(channel).after(Input(channel.table_id, 1, 0, channel.path), taken))
    at most 2 commits (2 rows) of ...
    1 commit (2 rows) of ...
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._rows: dict[tuple[int, int], int | None] = {}
        """By commit and file: the number of rows in that file and in those after it; ``None`` if the log does not say."""
        self.problem: str | None = None
        """Why a commit could not be read."""

    def note(self, commit: Commit, file: int = 0) -> int | None:
        """Remember how many rows a commit has from a file on, and return it. So the commit need not be read again."""
        counts = commit.files.rows[file:]
        rows = None if -1 in counts else int(sum(counts))
        self._rows[commit.version, file] = rows
        if len(self._rows) > 4 * _MOST:
            for old in sorted(self._rows)[: 2 * _MOST]:
                del self._rows[old]
        return rows

    def after(self, read: Input, taken: Position | None = None) -> Behind | None:
        """Return what comes after the position of a query; ``None`` if nothing does.

        Args:
            read: How far it had read when it made its newest commit.
            taken: How far it has read, by its checkpoint. If that is not known, it may have read everything: a batch without
                results makes no commit.
        """
        newest = self._channel.version
        at, file = max((read.commit, read.file), taken or (0, 0))
        if at > newest:
            return None
        first = max(at, newest - _MOST + 1)
        counts = []
        for version in range(first, newest + 1):
            rows = self._of(version, file if version == at else 0)
            if rows is None:
                break
            counts.append(rows)
        known = sum(counts) if len(counts) == newest + 1 - first else None
        if taken is None and first != at:
            known = None  # it is at least, and at most
        return Behind(self._channel.path, newest - at + 1, known, first == at and taken is not None, taken is None)

    def _of(self, version: int, file: int) -> int | None:
        """Return the number of rows of a commit from a file on; ``None`` if it is gone, cannot be read, or does not say it."""
        if (version, file) in self._rows:
            return self._rows[version, file]
        try:
            commit = self._channel.log.read(version)
            return None if commit is None else self.note(commit, file)
        except StrandlineError as error:
            self.problem = error.what
            return None
