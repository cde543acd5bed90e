"""What a query has not read of a channel: the commits after its position in the log, and their rows."""

from __future__ import annotations

from strandline.channel import Channel, Commit
from strandline.channel.statements.inputs import Input
from strandline.errors import StrandlineError
from strandline.report.explanation import Behind

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
    ...     found = UnreadRows(channel).after(Input(channel.table_id, 1, 0))
    ...     found.commits, found.rows, found.exact
    (2, 2, True)
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

    def after(self, read: Input) -> Behind | None:
        """Return what comes after the position of a query; ``None`` if nothing does."""
        newest = self._channel.version
        if read.commit > newest:
            return None
        first = max(read.commit, newest - _MOST + 1)
        counts = []
        for version in range(first, newest + 1):
            rows = self._of(version, read.file if version == read.commit else 0)
            if rows is None:
                break
            counts.append(rows)
        known = sum(counts) if len(counts) == newest + 1 - first else None
        return Behind(self._channel.path, newest - read.commit + 1, known, first == read.commit)

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
