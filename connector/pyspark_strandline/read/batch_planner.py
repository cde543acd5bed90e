"""Plans the source's batches: the start of the first, the end of each, and the files between two offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read import errors
from pyspark_strandline.read.admission_limits import AdmissionLimits
from pyspark_strandline.read.log_cursor import LogCursor
from pyspark_strandline.read.offset import SNAPSHOT_UNCHOSEN, Offset
from pyspark_strandline.read.replay.end import asked_end, end_of_replay
from pyspark_strandline.read.replay.frontier import parse_frontier
from strandline.channel import Channel, Commit, Progress
from strandline.channel.statements.beginning import Beginning
from strandline.channel.statements.inputs import Input
from strandline.delta.data_file_columns import DataFiles
from strandline.errors import ChannelError, LogError
from strandline.time.antichain import Antichain
from strandline.time.path.entry import Entry

__all__ = ["BatchPlanner", "ChannelBatch"]


@dataclass(frozen=True)
class ChannelBatch:
    """What a batch takes of one channel.

    Attributes:
        begin: Where it begins.
        end: Where it ends. This is ``begin`` itself if no row and no move of the frontier has come.
        files: Its files; ``None`` where they were not looked up, because they are those of the first snapshot.
        commits: The commits of which it takes rows.
    """

    begin: Offset
    end: Offset
    files: DataFiles | None = None
    commits: tuple[Commit, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows the commits state."""
        return 0 if self.files is None else sum(max(rows, 0) for rows in self.files.rows)


class BatchPlanner:
    """Plans batches over a :class:`LogCursor`. All its state can be recreated from the offsets and the log.

    Args:
        options: The source's options for this channel.
        cursor: The cursor in its log.
        entry: How the channel's times enter the domain of a source of several channels.
    """

    def __init__(self, options: ReadOptions, cursor: LogCursor, entry: Entry | None = None) -> None:
        self._options, self.cursor, self._entry = options, cursor, entry
        self._initial: Offset | None = None
        # Every producer's statements in the commits before the next batch, updated in place from batch to batch.
        self._progress: Progress | None = None
        # Commits after the last batch with neither rows nor a move of the frontier: the offset before, and the offset after them.
        self._quiet: tuple[Offset, Offset] | None = None
        self._planned: ChannelBatch | None = None

    @property
    def _channel(self) -> Channel:
        return self.cursor.channel

    # ---- where a new query begins ----------------------------------------------------------------------------------------

    def initial(self) -> Offset:
        """Return the start of a new query. Spark asks twice, and both answers must be equal."""
        if self._initial is None:
            self._initial = self._first()
        return self._initial

    def _first(self) -> Offset:
        channel, start, since = self._channel, self._options.starting_version, self._options.starting_frontier
        if self._options.starting_timestamp_ms is not None:
            start = self.cursor.first_at(self._options.starting_timestamp_ms)
        if start is None:
            start = 0 if self.cursor.is_whole() else "snapshot"
            if start == "snapshot" and self._options.replay is not None:
                raise errors.recording_incomplete(channel.path)
            if start == 0 and since is not None:
                start = self._first_open(parse_frontier("startingFrontier", since, channel.domain))
        least = Antichain.least(channel.domain)
        if start == "snapshot":
            return Offset(channel.table_id, 0, 0, least, SNAPSHOT_UNCHOSEN, since=since)
        newest = self.cursor.newest()
        version = newest + 1 if start == "latest" else int(start)
        if version > newest + 1:
            raise errors.version_missing("startingVersion", version, channel.path, newest)
        frontier = channel.frontier_at(version - 1) if version > 0 else least
        until = None if self._options.replay is None else end_of_replay(self._options, self.cursor, self._entry, version)
        began = Beginning(commit=version, lossy=self._is_lossy, since=self._since)
        return Offset(channel.table_id, version, 0, frontier, began=began, until=until, since=since)

    @property
    def _since(self) -> str | None:
        """The option ``startingFrontier`` in a form that one frontier always has."""
        text = self._options.starting_frontier
        return None if text is None else parse_frontier("startingFrontier", text, self._channel.domain).format()

    def _first_open(self, since: Antichain) -> int:
        """Return the first version that may have a row at a time that a frontier has not closed. The log has all versions."""
        newest = self.cursor.newest()
        for version in range(newest + 1):
            commit = self.cursor.read(version) or self.cursor.require(version)
            said = commit.statement
            if commit.adds_files and (
                said is None
                or any(since.less_equal(time) for time, _ in said.times)
                or any(since.less_equal(span.high) for span in said.spans)
            ):
                return version
        return newest + 1

    def check_kept(self, at: Offset) -> None:
        """Raise ``STRANDLINE_CHECKPOINT_MISMATCH`` if an offset has another ``startingFrontier`` or end than the options."""
        asked, was = asked_end(self._options), None if at.until is None else at.until.asked
        if asked != was:
            raise errors.checkpoint_mismatch_end(self._channel.path, was, asked)
        if at.since != self._options.starting_frontier:
            raise errors.checkpoint_mismatch_since(self._channel.path, at.since, self._options.starting_frontier)

    def is_over(self, at: Offset) -> bool:
        """Whether a replay has no commit from ``at`` on."""
        return at.commit > self.last_of(at)

    def last_of(self, at: Offset) -> int:
        """Return the version of the last commit of a replay, as far as it is there."""
        return self.cursor.newest() if at.until is None else at.until.version

    def first_made_ms(self, begin: Offset) -> int | None:
        """Return when the first commit was made from which a batch that starts at ``begin`` has something, in ms since 1970.

        The commit that has made the channel does not count. If the clock of the first commit was behind, this is the moment of a
        commit before; if it has no moment, that of one behind it. ``None``: there is no such commit.
        """
        if begin.snapshot is not None or self.is_over(begin):
            return None
        before = self.cursor.read(begin.commit - 1) if begin.commit else None
        made_ms = 0 if before is None else before.made_ms or 0
        progress, at, has_come = self._progress_at(begin), begin.commit, False
        while not self._is_behind_end(begin, at) and (commit := self.cursor.next(at)) is not None:
            made_ms = max(made_ms, commit.made_ms or 0)
            progress.apply(commit)
            has_come = has_come or len(_new_rows(commit)) > 0 or (at > 0 and progress.frontier != begin.frontier)
            if has_come and made_ms:
                return made_ms
            at += 1
        return None

    def _is_behind_end(self, begin: Offset, version: int) -> bool:
        return begin.until is not None and version > begin.until.version

    @property
    def _is_lossy(self) -> bool:
        return not self._options.fail_on_data_loss

    def begin_of(self, begin: Offset, end: Offset) -> Offset:
        """Return where a batch begins that was planned before, and is repeated.

        If a crash came in a query's first batch, Spark asks again where the query begins. ``latest`` is elsewhere then. The batch
        still begins where its end says that the query began.

        Args:
            begin: The start of the batch as Spark has it.
            end: The end of the batch.
        """
        if end.began is None or (begin.began is None and begin.snapshot != SNAPSHOT_UNCHOSEN):
            return begin
        same = end.began.snapshot is not None if begin.began is None else begin.began.is_at(end.began)
        return begin if same else self._beginning(end.began)

    def _beginning(self, began: Beginning) -> Offset:
        table, least = self._channel.table_id, Antichain.least(self._channel.domain)
        if began.commit is None:
            return Offset(table, 0, 0, least, SNAPSHOT_UNCHOSEN)
        frontier = self._channel.frontier_at(began.commit - 1) if began.commit > 0 else least
        return Offset(table, began.commit, 0, frontier, began=began)

    # ---- where a batch ends ----------------------------------------------------------------------------------------------

    def next_batch(self, begin: Offset, limits: AdmissionLimits, *, checks_newest: bool = True) -> ChannelBatch:
        """Return the batch that starts at ``begin`` and takes what fits into ``limits``.

        Args:
            begin: Where the batch starts.
            limits: The room that is left in it.
            checks_newest: Whether a look that finds no commit checks that the newest one is still that of this table.

        Raises:
            StrandlineError: ``STRANDLINE_CHECKPOINT_MISMATCH`` if the query has begun with another ``startingFrontier``, or with
                another end of a replay, than the options give.
        """
        self.check_kept(begin)
        if begin.snapshot is None:
            return self._batch_in_log(begin, limits, checks_newest)
        return ChannelBatch(begin, self._end_in_snapshot(begin, limits))

    def end_at(self, begin: Offset, read: Input) -> Offset:
        """Return the end of a new query's first batch that ends exactly where another query had stopped.

        Args:
            begin: The start of the new query.
            read: How far the other query had read the channel.

        Raises:
            StrandlineError: ``STRANDLINE_RESUME_IMPOSSIBLE`` if the new query begins behind that position, or cannot end at it.
            LogError: ``STRANDLINE_CHANNEL_REPLACED`` if the log has other commits than the query had read;
                ``STRANDLINE_LOG_TRUNCATED``.
        """
        at, is_in_log = (read.commit, read.file), begin.snapshot is None and read.snapshot is None
        if at == (0, 0) or (is_in_log and at == (begin.commit, begin.file)):
            return begin  # nothing had been read
        newest = read.commit if read.file and read.snapshot is None else read.commit - 1
        self.cursor.check_reached(newest)
        self.cursor.check_same(newest, read.after)
        return self._end_at_in_log(begin, read) if begin.snapshot is None else self._end_at_in_snapshot(begin, read)

    def _end_at_in_snapshot(self, begin: Offset, read: Input) -> Offset:
        if read.snapshot is None and read.file:
            raise errors.resume_impossible_snapshot(self._channel.path, read)
        version = read.commit - 1
        commit = self.cursor.read(version)
        after = None if commit is None else commit.identity
        try:
            files, progress = self._channel.snapshot_files(version), self._channel.progress_at(version)
        except (ChannelError, LogError) as error:
            raise errors.resume_impossible_cleaned(self._channel.path, read) from error
        if read.snapshot is not None:
            began = Beginning(snapshot=version)
            return Offset(begin.channel, read.commit, read.file, begin.frontier, version, after, began).within(len(files))
        self._progress = progress
        return Offset(begin.channel, read.commit, 0, progress.frontier, after=after, began=Beginning(snapshot=version))

    def _end_at_in_log(self, begin: Offset, read: Input) -> Offset:
        if read.snapshot is not None:
            raise errors.resume_impossible_commits(self._channel.path, read)
        if (read.commit, read.file) < (begin.commit, begin.file):
            raise errors.resume_impossible_begun(self._channel.path, read, begin.commit)
        progress, after, began = self._progress_before(begin), begin.after, begin.began
        files: list[DataFiles] = []
        for version in range(begin.commit, read.commit):
            commit = self.cursor.next(version) or self.cursor.require(version)
            files.append(_new_rows(commit))
            progress.apply(commit)
            after, began = commit.identity, _passing(commit, began)
        end = Offset(begin.channel, read.commit, read.file, progress.frontier, after=after, began=began)
        if read.file:
            commit = self.cursor.next(read.commit) or self.cursor.require(read.commit)
            new = _new_rows(commit)
            end = replace(end.within(len(new)), after=commit.identity)
            files.append(new[: read.file])
            self.cursor.keep(commit)
        return self._plan(begin, end, files).end

    def _end_in_snapshot(self, begin: Offset, limits: AdmissionLimits) -> Offset:
        version = begin.snapshot
        if version is None or version == SNAPSHOT_UNCHOSEN:
            version = self.cursor.end
        self._check_same(begin)
        commit = self.cursor.read(version)
        after = None if commit is None else commit.identity
        files = DataFiles.of(self._channel.snapshot_files(version))
        began = Beginning(snapshot=version, since=self._since) if begin.snapshot == SNAPSHOT_UNCHOSEN else begin.began
        began = None if began is None else began._replace(lossy=began.lossy or self._is_lossy)
        left = files.sizes[begin.within(len(files)).file :]
        taken = limits.take(left)
        if taken < len(left):
            at = begin.file + taken
            return replace(begin, commit=version + 1, file=at, snapshot=version, after=after, began=began)
        self._progress = self._channel.progress_at(version)
        frontier = self._progress.frontier
        return replace(begin, commit=version + 1, file=0, frontier=frontier, snapshot=None, after=after, began=began)

    def _batch_in_log(self, begin: Offset, limits: AdmissionLimits, checks_newest: bool) -> ChannelBatch:
        progress = self._progress_before(begin)
        known = self._known(begin)
        at, after, was_there, began = known.commit, known.after, False, known.began
        if began is not None and self._is_lossy:
            began = began._replace(lossy=True)
        files: list[DataFiles] = []
        commits: list[Commit] = []
        while not self._is_behind_end(begin, at) and (commit := self.cursor.next(at, checks_newest=checks_newest)) is not None:
            new = _new_rows(commit)
            first = begin.within(len(new)).file if at == begin.commit else 0
            if not was_there:
                self._check_same(known)
                was_there = True
            taken = first + limits.take(new.sizes[first:])
            if taken > first:
                files.append(new[first:taken])
                commits.append(commit)
            if taken < len(new):
                # The batch takes only a part of the commit, so the commit's statement does not count yet.
                self.cursor.keep(commit)
                after = commit.identity if taken > first else after
                end = replace(begin, commit=at, file=taken, frontier=progress.frontier, after=after, began=began)
                return self._plan(begin, end, files, commits)
            progress.apply(commit)
            after, began = commit.identity, _passing(commit, began)
            at += 1
        self.cursor.keep(None)
        if not was_there and known is not begin:
            return ChannelBatch(begin, begin)  # nothing has come since the last look, which found nothing
        if at == begin.commit:
            begin.within(0)
        end = replace(begin, commit=at, file=0, frontier=progress.frontier, after=after, began=began)
        # A query that has begun without failOnDataLoss = false may repeat a batch with it. The checkpoint has to say so at once.
        is_told = begin.began is None or begin.began.lossy or not self._is_lossy
        if not files and end.frontier == begin.frontier and begin.file == 0 and is_told:
            self._quiet = (begin, end)
            return ChannelBatch(begin, begin)
        return self._plan(begin, end, files, commits)

    def waiting(self, end: Offset) -> Iterator[Commit]:
        """Yield the commits with rows that a batch which ends at ``end`` does not take."""
        at = end.commit
        while (commit := self.cursor.next(at)) is not None:
            if len(_new_rows(commit)) > (end.file if at == end.commit else 0):
                yield commit
            at += 1

    def _plan(self, begin: Offset, end: Offset, files: list[DataFiles], commits: Iterable[Commit] = ()) -> ChannelBatch:
        self._planned = ChannelBatch(begin, end, DataFiles.joined(files), tuple(commits))
        return self._planned

    def _known(self, begin: Offset) -> Offset:
        """Return the position after the commits that brought nothing since ``begin``."""
        return self._quiet[1] if self._quiet is not None and self._quiet[0] == begin else begin

    def _check_same(self, at: Offset) -> None:
        """Raise if the log has another commit than the newest one that the offset includes."""
        self.cursor.check_same(at.newest, at.after)

    def _progress_before(self, begin: Offset) -> Progress:
        if self._progress is None or self._progress.version != self._known(begin).commit - 1:
            self._quiet = None
            self._progress = self._progress_at(begin)
        return self._progress

    def _progress_at(self, at: Offset) -> Progress:
        """Return every producer's statements before an offset from a checkpoint.

        Raises unless the log has the commit that the offset names, and the offset has the frontier of the statements.
        """
        if at.file:
            commit = self.cursor.read(at.commit)
            at.within(0 if commit is None else len(_new_rows(commit)))
        self._check_same(at)
        self.cursor.check_reached(at.newest)
        progress = self._channel.progress_at(at.commit - 1) if at.commit > 0 else Progress(self._channel.domain)
        at.with_frontier(progress.frontier)
        return progress

    # ---- the files of a batch --------------------------------------------------------------------------------------------

    def files(self, begin: Offset, end: Offset, *, stats: bool = False) -> DataFiles:
        """Return the files between two offsets. With ``stats``, files of a snapshot have their statistics."""
        planned = self._planned
        if planned is not None and planned.files is not None and (planned.begin, planned.end) == (begin, end):
            return planned.files
        if end.snapshot is None and self._progress is None:  # a batch that is repeated after a restart
            if begin.snapshot is None:
                self._progress_at(begin)
            self._progress = self._progress_at(end)
        if begin.snapshot is not None:
            self._check_same(end)
            version = end.snapshot if end.snapshot is not None else end.commit - 1
            files = DataFiles.of(self._channel.snapshot_files(version, stats=stats))
            first = begin.within(len(files)).file
            return files[first : end.within(len(files)).file if end.snapshot is not None else None]
        parts: list[DataFiles] = []
        for version in range(begin.commit, end.commit + (end.file > 0)):
            new = _new_rows(self.cursor.require(version))
            first = begin.within(len(new)).file if version == begin.commit else 0
            parts.append(new[first : end.within(len(new)).file if version == end.commit else None])
        return DataFiles.joined(parts)


def _passing(commit: Commit, began: Beginning | None) -> Beginning | None:
    """Return what is known of a query's beginning behind a commit."""
    return began._replace(removed=commit.version) if began is not None and commit.removes else began


def _new_rows(commit: Commit) -> DataFiles:
    """Return the files with rows for a reader. Files of a commit that also deletes rows are skipped (skipChangeCommits)."""
    return DataFiles.of(()) if commit.removes else commit.files
