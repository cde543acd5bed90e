"""The streaming source: tails a channel's log, and puts the frontier into the offset of every batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pyspark_strandline import partition
from pyspark_strandline.native import Decision, NativeScan
from pyspark_strandline.offset import SNAPSHOT_UNCHOSEN, Offset
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.schema import arrow_schema
from strandline.antichain import Antichain
from strandline.channel import Channel
from strandline.channel.data_files import DataFiles
from strandline.channel.log import Commit, Log
from strandline.channel.progress import Progress
from strandline.channel.store import open_store
from strandline.errors import StrandlineError

__all__ = ["StreamReader"]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One channel as a stream.

    The driver keeps a cursor in the log, so that a poll costs one look for the next commit. It holds nothing that the offset
    does not say: after a restart everything is found again from the log.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema: pa.Schema = arrow_schema(schema)
        self._state: _Driver | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a pickled copy; they need the options and the schema alone.
        return {"_options": self._options, "_schema": self._schema, "_state": None}

    @property
    def _driver(self) -> _Driver:
        if self._state is None:
            self._state = _Driver(self._options, self._schema)
        return self._state

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins: with ``startingVersion`` or ``startingTimestamp``, else at the first commit."""
        return self._driver.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxFilesPerTrigger`` and ``maxBytesPerTrigger``; both are applied where :meth:`latestOffset` chooses the end."""
        if self._options.max_files is None and self._options.max_bytes is None:
            return ReadAllAvailable()
        return ReadMaxFiles(self._options.max_files or 1)

    def prepareForTriggerAvailableNow(self) -> None:
        """Take what is in the channel now, and nothing that comes later."""
        self._driver.stop_at_newest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch: ``start`` itself when no row and no move of the frontier has come since."""
        driver = self._driver
        begin = driver.offset(start)
        end = driver.end_of_batch(begin, unlimited=isinstance(limit, ReadAllAvailable))
        return start if end == begin else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any]:
        """The newest commit, for progress reports."""
        return self._driver.newest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The data files between two offsets, packed into partitions, and whether the JVM may read them by itself.

        The shim, when it asks, adds to ``end`` which columns the query filters by: it wants the log's statistics of them, and
        needs no partitions.
        """
        driver = self._driver
        filtered = end.get("statistics")
        decision = driver.decide(driver.offset(start), driver.offset(end), filtered or ())
        if filtered is not None:
            return partition.hand_over(decision)
        return partition.plan(decision, self._options.max_partition_bytes, self._options.min_partitions)

    def read(self, partition_: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the rows of a partition's files, as record batches."""
        store = open_store(self._options.path, self._options.storage)
        yield from partition.read(store, partition_, self._schema, self._options.fail_on_data_loss)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the channel keeps its files."""

    def stop(self) -> None:
        """Nothing to release."""


class _Driver:
    """What the driver knows of the channel between batches."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self._options = options
        self._channel = Channel.open(options.path, options.storage)
        self._log = Log(options.path, options.storage)
        self._tip = self._channel.version
        self._last: int | None = None  # the last commit to take, for AvailableNow
        self._progress: Progress | None = None
        # Commits after the last batch that held neither rows nor a move of the frontier: from which offset, to which commit.
        self._quiet: tuple[Offset, int] | None = None
        self._planned: tuple[Offset, Offset, DataFiles] | None = None
        self._partly: Commit | None = None  # the commit that the last batch ended in
        self._initial: Offset | None = None
        self._native = NativeScan(options, schema)

    def offset(self, value: dict[str, Any]) -> Offset:
        channel = self._channel
        return Offset.from_json(value, channel.table_id, channel.domain, channel.path)

    def initial(self) -> Offset:
        if self._initial is None:  # Spark asks twice, and the two answers must be one
            self._initial = self._first()
        return self._initial

    def _first(self) -> Offset:
        start = self._options.starting_version
        if self._options.starting_timestamp_ms is not None:
            start = self._first_at(self._options.starting_timestamp_ms)
        if start is None:
            start = 0 if self._log_is_whole() else "snapshot"
        least = Antichain.least(self._channel.domain)
        if start == "snapshot":
            return Offset(self._channel.table_id, 0, 0, least, SNAPSHOT_UNCHOSEN)
        version = self._newest() + 1 if start == "latest" else int(start)
        if version > self._newest() + 1:
            raise StrandlineError(
                "STRANDLINE_VERSION_MISSING",
                f"startingVersion is {version}, but the newest commit of {self._channel.path} is {self._newest()}.",
                "Give a version of the table, or latest.",
            )
        frontier = self._channel.frontier_at(version - 1) if version > 0 else least
        return Offset(self._channel.table_id, version, 0, frontier)

    def _log_is_whole(self) -> bool:
        """Whether every row can still be read commit by commit, which moves the frontier along; a snapshot moves it once.

        It cannot when the log has lost its first commits, or when files were rewritten (OPTIMIZE) and the old ones vacuumed.
        """
        rewritten = False
        for commit in self._log.tail(0) if self._log.exists(0) else ():
            rewritten = rewritten or commit.removes_files
            if rewritten and commit.operation.startswith("VACUUM"):
                return False
        return self._log.exists(0)

    def _first_at(self, timestamp_ms: int) -> int:
        """The first version whose commit says that it was made at ``timestamp_ms`` or later."""
        version = self._newest() + 1
        while version > 0:
            commit = self._log.read(version - 1)
            if commit is None or commit.timestamp_ms < timestamp_ms:
                break
            version -= 1
        return version

    def _newest(self) -> int:
        while self._log.exists(self._tip + 1):
            self._tip += 1
        return self._tip

    def newest(self) -> dict[str, Any]:
        return {"channel": self._channel.table_id, "commit": self._newest() + 1, "file": 0}

    def stop_at_newest(self) -> None:
        self._last = self._newest()

    # ---- choosing the end of a batch -------------------------------------------------------------------------------------

    def end_of_batch(self, begin: Offset, unlimited: bool) -> Offset:
        room = _Room(None, None) if unlimited else _Room(self._options.max_files, self._options.max_bytes)
        return self._end_in_log(begin, room) if begin.snapshot is None else self._end_in_snapshot(begin, room)

    def _end_in_snapshot(self, begin: Offset, room: _Room) -> Offset:
        version = begin.snapshot
        if version is None or version == SNAPSHOT_UNCHOSEN:
            version = self._newest() if self._last is None else self._last
        files = DataFiles.of(self._channel.snapshot_files(version))
        left = files.sizes[begin.within(len(files)).file :]
        taken = room.take(left)
        if taken < len(left):
            return Offset(begin.channel, version + 1, begin.file + taken, begin.frontier, version)
        self._progress = self._channel.progress_at(version)
        return Offset(begin.channel, version + 1, 0, self._progress.frontier)

    def _end_in_log(self, begin: Offset, room: _Room) -> Offset:
        progress = self._progress_before(begin)
        at = begin.commit
        if self._quiet is not None and self._quiet[0] == begin:
            at = self._quiet[1]
        files: list[DataFiles] = []
        while (commit := self._next(at)) is not None:
            new = _new_rows(commit)
            first = begin.within(len(new)).file if at == begin.commit else 0
            taken = first + room.take(new.sizes[first:])
            if taken > first:
                files.append(new[first:taken])
            if taken < len(new):
                # Of a commit that is only partly in, the statement has not been seen yet.
                self._partly = commit
                return self._plan(begin, Offset(begin.channel, at, taken, progress.frontier), files)
            progress.apply(commit)
            at += 1
        self._partly = None
        if at == begin.commit:
            begin.within(0)
        frontier = progress.frontier
        if not files and frontier == begin.frontier and begin.file == 0:
            self._quiet = (begin, at)
            return begin
        return self._plan(begin, Offset(begin.channel, at, 0, frontier), files)

    def _plan(self, begin: Offset, end: Offset, files: list[DataFiles]) -> Offset:
        planned = DataFiles.joined(files)
        self._planned = (begin, end, planned)
        self._native.look_ahead(planned)
        return end

    def _progress_before(self, begin: Offset) -> Progress:
        """Everybody's statements of the commits before ``begin.commit``, moved along in place from batch to batch."""
        quiet = self._quiet[1] if self._quiet is not None and self._quiet[0] == begin else begin.commit
        if self._progress is None or self._progress.version != quiet - 1:
            self._quiet = None
            self._progress = self._progress_at(begin)
        return self._progress

    def _progress_at(self, at: Offset) -> Progress:
        """Everybody's statements of the commits before an offset that was read from a checkpoint, whose frontier is theirs."""
        progress = self._channel.progress_at(at.commit - 1) if at.commit > 0 else Progress(self._channel.domain)
        at.with_frontier(progress.frontier)
        return progress

    def _next(self, version: int) -> Commit | None:
        if self._last is not None and version > self._last:
            return None
        partly = self._partly
        commit = partly if partly is not None and partly.version == version else self._log.read(version)
        if commit is None:
            if version <= self._tip:
                self._log.require(version)  # raises: the log was cleaned up beyond what this query has read
            return None
        self._tip = max(self._tip, version)
        self._check(commit)
        return commit

    def _check(self, commit: Commit) -> None:
        passing = {"ignore_deletes": self._options.ignore_deletes, "skip_change_commits": self._options.skip_change_commits}
        commit.check_table(self._channel.table_id)
        commit.check(**passing)
        if commit.metadata_changed and commit.version > self._channel.version:
            self._channel.refresh(**passing)  # raises when another table was put in the channel's place

    # ---- the files of a batch --------------------------------------------------------------------------------------------

    def files(self, begin: Offset, end: Offset, *, stats: bool = False) -> DataFiles:
        if self._planned is not None and self._planned[:2] == (begin, end):
            return self._planned[2]
        if end.snapshot is None and self._progress is None:  # a batch that is repeated after a restart
            if begin.snapshot is None:
                self._progress_at(begin)
            self._progress = self._progress_at(end)
        if begin.snapshot is not None:
            version = end.snapshot if end.snapshot is not None else end.commit - 1
            files = DataFiles.of(self._channel.snapshot_files(version, stats=stats))
            first = begin.within(len(files)).file
            return files[first : end.within(len(files)).file if end.snapshot is not None else None]
        parts: list[DataFiles] = []
        for version in range(begin.commit, end.commit + (end.file > 0)):
            commit = self._log.require(version)
            self._check(commit)
            new = _new_rows(commit)
            first = begin.within(len(new)).file if version == begin.commit else 0
            parts.append(new[first : end.within(len(new)).file if version == end.commit else None])
        return DataFiles.joined(parts)

    def decide(self, begin: Offset, end: Offset, filtered: Sequence[Sequence[str]]) -> Decision:
        return self._native.decide(self.files(begin, end, stats=bool(filtered)), self._channel.schema, filtered)


def _new_rows(commit: Commit) -> DataFiles:
    """The files whose rows a reader takes; those of a commit that also deletes rows are passed over (skipChangeCommits)."""
    return DataFiles.of(()) if commit.removes else commit.files


class _Room:
    """What one batch may still take: at least one file, whatever the limits are, so that a stream never stands still."""

    def __init__(self, files: int | None, size: int | None) -> None:
        self._files = files
        self._bytes = size
        self._empty = True

    def take(self, sizes: Sequence[int]) -> int:
        """How many of the files with these sizes, from the first one on, there is room for."""
        if self._files is None and self._bytes is None:
            return len(sizes)
        for taken, size in enumerate(sizes):
            if not self._empty:
                if self._files is not None and self._files < 1:
                    return taken
                if self._bytes is not None and self._bytes < size:
                    return taken
            self._empty = False
            if self._files is not None:
                self._files -= 1
            if self._bytes is not None:
                self._bytes -= size
        return len(sizes)
