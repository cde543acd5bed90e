"""What a query has not read of its input channels: rows and batches, from the channels' logs. Nothing is guessed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.admission_limits import AdmissionLimits
from strandline.channel import Channel
from strandline.errors import StrandlineError

__all__ = ["UnreadWork", "Work"]


class Work(NamedTuple):
    """Work that waits in the logs.

    Attributes:
        rows: How many rows wait; ``None`` if a file's statistics do not say how many it has, or a log cannot be read.
        batches: How many batches take them, within the limits of the source.
        channels: The rows by channel, for a source of several; by the empty name for a source of one.
    """

    rows: int | None
    batches: int
    channels: Mapping[str, int] = MappingProxyType({})


class _Position(NamedTuple):
    commit: int
    file: int
    snapshot: int | None


class _Commit(NamedTuple):
    rows: tuple[int, ...]
    sizes: tuple[int, ...]


class UnreadWork:
    """Counts what lies between positions of channels' logs. It reads each commit once, while it is ahead of its query.

    Args:
        storage: The options of the storage of the channels.
    """

    def __init__(self, storage: Mapping[str, str] | None = None) -> None:
        self._storage = storage
        self._channels: dict[str, Channel] = {}
        self._commits: dict[str, dict[int, _Commit]] = {}

    def after(self, source: Mapping[str, Any]) -> Work:
        """Return what waits after the end of a batch, in one source of it (the shim's facts)."""
        return self._count(source, "end", None)

    def within(self, source: Mapping[str, Any]) -> Work:
        """Return what a batch takes of one source, between its start and its end."""
        return self._count(source, "start", "end")

    def _count(self, source: Mapping[str, Any], low: str, high: str | None) -> Work:
        if not source.get("channels", True):  # of another system
            return Work(None, 0)
        try:
            files = {name: list(each) for name, each in self._files(source, low, high)}
        except (StrandlineError, OSError, ValueError, TypeError, KeyError):
            return Work(None, 0)
        if any(rows < 0 for each in files.values() for rows, _ in each):
            return Work(None, 0)
        options = ReadOptions.parse(source["options"])
        batches = _batches(options.max_files, options.max_bytes, [size for each in files.values() for _, size in each])
        rows = {name: sum(rows for rows, _ in each) for name, each in files.items()}
        return Work(sum(rows.values()), batches, rows)

    def _files(self, source: Mapping[str, Any], low: str, high: str | None) -> Iterator[tuple[str, Iterator[tuple[int, int]]]]:
        """Yield by channel the rows and the bytes of each file between two offsets."""
        options = ReadOptions.parse(source["options"])
        paths = {"": options.path} if options.channels is None else dict(options.channels)
        starts = _positions(source.get(low))
        ends = None if high is None else _positions(source.get(high))
        for name, path in paths.items():
            start = starts.get(name)
            if start is None and low == "end":
                raise ValueError(f"no position in {name}")
            end = None if ends is None else ends[name]
            table = json.loads(source["end"])
            expected = table["channel"] if not name else table["channels"][name]["channel"]
            yield name, self._between(self._channel(path, expected, refresh=end is None), start or _Position(0, 0, None), end)

    def _channel(self, path: str, table: str, *, refresh: bool) -> Channel:
        """Return a channel, as it is now. One that was deleted, or made anew, has nothing that can be counted."""
        channel = self._channels.get(table)
        if channel is not None and refresh:
            try:
                channel.refresh(skip_change_commits=True)
            except StrandlineError:
                del self._channels[table]
                raise
        if channel is None:
            channel = Channel.open(path, self._storage)
            if channel.table_id != table:
                raise ValueError(f"{path} is another table now")
            self._channels[table] = channel
        return channel

    def _between(self, channel: Channel, start: _Position, end: _Position | None) -> Iterator[tuple[int, int]]:
        if end is not None and end.snapshot is not None:
            raise ValueError("the batch is within the first snapshot")
        at, skipped = start.commit, start.file
        if start.snapshot is not None:
            if start.snapshot < 0 or end is not None:
                raise ValueError("the first snapshot is not chosen yet, or not at its end")
            for file in channel.snapshot_files(start.snapshot)[start.file :]:
                yield file.rows, file.size
            skipped = 0
        known = self._commits.setdefault(channel.table_id, {})
        for version in [version for version in known if version < at]:  # nobody asks for earlier ones again
            del known[version]
        if end is None and at > channel.version + 1:
            raise ValueError(f"the log has {channel.version} as its newest commit, and the position is after {at}")
        while at <= channel.version if end is None else (at, skipped) < (end.commit, end.file):
            if at not in known:
                commit = channel.log.read(at)
                if commit is None:  # the end of the log is known: this one was cleaned away
                    raise ValueError(f"commit {at} is gone")
                files = commit.files
                known[at] = (
                    _Commit((), ()) if commit.removes else _Commit(tuple(map(int, files.rows)), tuple(map(int, files.sizes)))
                )
            last = end.file if end is not None and at == end.commit else None
            yield from zip(known[at].rows[skipped:last], known[at].sizes[skipped:last], strict=True)
            at, skipped = at + 1, 0


def _batches(files: int | None, size: int | None, sizes: Sequence[int]) -> int:
    """Return how many batches take files of these sizes.

    >>> _batches(2, None, [1] * 5), _batches(None, 10, [8, 2, 1, 30]), _batches(None, None, [1, 1]), _batches(1, 1, [])
    (3, 3, 1, 0)
    """
    if files is None and size is None:
        return int(bool(sizes))
    batches, room = 0, AdmissionLimits(files, size)
    for each in sizes:
        if not batches or not room.take((each,)):
            batches, room = batches + 1, AdmissionLimits(files, size)
            room.take((each,))
    return batches


def _positions(offset: str | None) -> dict[str, _Position]:
    """Return the position in each channel that an offset has (docs/protocol.md); none without an offset."""
    if offset is None:
        return {}
    value = json.loads(offset)
    found = value.get("channels") or {"": value}
    return {name: _Position(each["commit"], each["file"], each.get("snapshot")) for name, each in found.items()}
