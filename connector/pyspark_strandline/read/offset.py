"""Offsets of the source: how far a channel has been read, and the frontier there. Spark logs them before a batch runs."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_strandline.read import errors
from pyspark_strandline.read.replay.end import End
from strandline.channel.statements.beginning import Beginning
from strandline.time.antichain import Antichain
from strandline.time.domain import TimeDomain

__all__ = ["SNAPSHOT_UNCHOSEN", "Offset"]

_VERSION = 1
SNAPSHOT_UNCHOSEN = -1
"""In ``snapshot``: the stream begins with a snapshot, at a version that the first batch will choose."""


@dataclass(frozen=True)
class Offset:
    """A position in a channel's log, with the frontier of all commits that are wholly before it (docs/protocol.md).

    All commits before ``commit`` have been read, and the first ``file`` files of commit ``commit``. While the stream is still in
    its first snapshot, ``snapshot`` is that table version and ``file`` counts the snapshot's files. ``after`` tells the commit of
    :attr:`newest` from any other of its version (:attr:`strandline.channel.Commit.identity`). It is ``None`` where nothing was
    read yet. ``began`` says where the query began to read the channel. Every later offset has it, because Spark asks for the
    beginning of a new query only. It is ``None`` before a first snapshot is chosen, and after one that only a later release
    knows. ``until`` is where a replay ends, which is decided once, and ``since`` is the option ``startingFrontier``; every later
    offset has them too.
    """

    channel: str
    commit: int
    file: int
    frontier: Antichain
    snapshot: int | None = None
    after: str | None = None
    began: Beginning | None = None
    until: End | None = None
    since: str | None = None

    @property
    def newest(self) -> int:
        """The newest version of which this offset includes anything; -1 before the first one.

        >>> from strandline.time.domain import int64
        >>> Offset("7c1f", 3, 0, Antichain(int64, [5])).newest, Offset("7c1f", 3, 2, Antichain(int64, [5])).newest
        (2, 3)
        """
        return self.commit if self.file and self.snapshot is None else self.commit - 1

    def to_json(self) -> dict[str, object]:
        """Return the JSON object. Its keys are always in the same order, because Spark compares offsets as text."""
        result: dict[str, object] = {
            "strandline": _VERSION,
            "channel": self.channel,
            "domain": str(self.frontier.domain),
            "commit": self.commit,
            "file": self.file,
        }
        if self.snapshot is not None:
            result["snapshot"] = self.snapshot
        if self.after is not None:
            result["after"] = self.after
        if self.began is not None:
            result["began"] = self.began.to_json()
        if self.until is not None:
            result["until"] = self.until.to_json()
        if self.since is not None:
            result["since"] = self.since
        result["frontier"] = self.frontier.to_json()
        return result

    @classmethod
    def from_json(cls, value: object, channel: str, domain: TimeDomain, path: str) -> Offset:
        """Read an offset of the channel with id ``channel``. Raises a :class:`StrandlineError` that names any other channel.

        >>> from strandline.time.domain import int64
        >>> offset = Offset("7c1f", 3, 0, Antichain(int64, [5]))
        >>> Offset.from_json(offset.to_json(), "7c1f", int64, "/data/flights") == offset
        True
        >>> Offset.from_json(offset.to_json(), "90ab", int64, "/data/flights")
        Traceback (most recent call last):
        strandline.errors.StrandlineError: [STRANDLINE_CHECKPOINT_MISMATCH] ...
        """
        if not isinstance(value, dict) or value.get("strandline") != _VERSION:
            raise errors.offset_version(value, _VERSION)
        if value.get("channel") != channel:
            raise errors.checkpoint_mismatch_channel(value.get("channel"), path, channel)
        if value.get("domain") != str(domain):
            raise errors.checkpoint_mismatch_times(value.get("domain"), path, domain)
        frontier = Antichain.from_json(domain, value.get("frontier"))
        after = value.get("after")
        if after is not None and (not isinstance(after, str) or not after):
            raise errors.offset_invalid(value, "after must be the id of a commit")
        try:
            began, until = Beginning.from_json(value.get("began")), End.from_json(value.get("until"))
        except ValueError as error:
            raise errors.offset_invalid(value, str(error)) from error
        since = value.get("since")
        if since is not None and not isinstance(since, str):
            raise errors.offset_invalid(value, "since must be the text of a frontier")
        commit, file = _count(value, "commit"), _count(value, "file")
        offset = cls(channel, commit, file, frontier, _snapshot(value), after, began, until, since)
        if offset.snapshot is not None and frontier != Antichain.least(domain):
            raise errors.offset_invalid(value, "its frontier must be the least one while the first snapshot is read")
        if offset.snapshot == SNAPSHOT_UNCHOSEN and (offset.commit, offset.file) != (0, 0):
            raise errors.offset_invalid(value, "commit and file must be 0 before the first snapshot is chosen")
        if offset.snapshot not in (None, SNAPSHOT_UNCHOSEN, offset.commit - 1):
            raise errors.offset_invalid(value, "commit must be the version after snapshot while the snapshot is read")
        if began is not None and not _follows(offset, began):
            raise errors.offset_invalid(value, "it must not be before the place where the query began")
        return offset

    def within(self, files: int) -> Offset:
        """Return this offset if its commit, or its snapshot, has as many files as the offset counts as read.

        Raises :class:`StrandlineError` ``STRANDLINE_OFFSET_INVALID`` otherwise, because rows would be skipped silently.

        >>> from strandline.time.domain import int64
        >>> Offset("7c1f", 3, 2, Antichain(int64, [5])).within(1)
        Traceback (most recent call last):
        strandline.errors.StrandlineError: [STRANDLINE_OFFSET_INVALID] ...
        """
        if self.file > files:
            raise errors.offset_invalid(self.to_json(), f"its commit or snapshot has only {files} file(s)")
        return self

    def with_frontier(self, frontier: Antichain) -> Offset:
        """Return this offset if its frontier equals ``frontier``, which the log has at this position.

        Raises :class:`StrandlineError` ``STRANDLINE_OFFSET_INVALID`` otherwise, because open times would be closed.

        >>> from strandline.time.domain import int64
        >>> Offset("7c1f", 3, 0, Antichain(int64, [5])).with_frontier(Antichain(int64, [4]))
        Traceback (most recent call last):
        strandline.errors.StrandlineError: [STRANDLINE_OFFSET_INVALID] ...
        """
        if self.frontier != frontier:
            raise errors.offset_invalid(self.to_json(), f"the log has the frontier {frontier.format()} there")
        return self


def _follows(offset: Offset, began: Beginning) -> bool:
    if offset.snapshot is not None:
        return began.snapshot == offset.snapshot
    return offset.commit >= ((began.commit or 0) if began.snapshot is None else began.snapshot + 1)


def _snapshot(value: dict[str, object]) -> int | None:
    found = value.get("snapshot")
    return found if found is None or (type(found) is int and found == SNAPSHOT_UNCHOSEN) else _count(value, "snapshot")


def _count(value: dict[str, object], field: str) -> int:
    found = value.get(field)
    if type(found) is not int or found < 0:
        raise errors.offset_invalid(value, f"{field} must be a whole number of 0 or more")
    return found
