"""What the tasks of a batch have written for one channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark_strandline.resume.row_counter import RowCounter
from strandline.channel import Span
from strandline.channel.batch.batch_digest import BatchDigest, RowsDigest
from strandline.channel.batch.batch_identity import BatchIdentity
from strandline.channel.statements.commit_statement import MAX_MESSAGE_TIMES
from strandline.channel.statements.inputs import Input
from strandline.channel.write.file_writer import FileWriter
from strandline.delta.data_file import DataFile
from strandline.replay.restamp import Numbered, Stamper
from strandline.time.domain import Time, TimeDomain

__all__ = ["OutputBatch", "WrittenFiles"]


@dataclass
class WrittenFiles:
    """What tasks have written for one channel. It is small for any number of rows."""

    files: list[DataFile] = field(default_factory=list)
    times: list[tuple[Time, int]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    digest: RowsDigest = field(default_factory=RowsDigest)
    hashes: list[int] = field(default_factory=list)
    """For each of ``times``, the sum of its rows' hashes."""
    unstamped: RowsDigest | None = None
    """The digest of rows that get new times, before they get them; ``None`` for others. A repeated batch makes the same."""
    counts: dict[str, int] = field(default_factory=dict)
    """What a looping link has counted: the first number that it has not given (``n``), and ``rounded`` events."""

    @property
    def made(self) -> RowsDigest:
        """The digest of the rows as the query makes them, at each time that the batch is repeated."""
        return self.digest if self.unstamped is None else self.unstamped

    @classmethod
    def of(cls, writer: FileWriter | RowCounter, stamper: Stamper | Numbered | None = None) -> WrittenFiles:
        """Finish a task's writer, and return what it has written. Rows that are only counted have no digest."""
        files, times = writer.finish()
        if isinstance(writer, FileWriter):
            counts = {} if stamper is None else dict(stamper.counts)
            return cls(files, times, writer.spans, writer.digest, writer.time_hashes, writer.unstamped, counts)
        return cls(files, times, writer.spans)

    def join_instants(self) -> None:
        """State the rows at each instant of a clock together, if there are many. They come round at one instant, too."""
        if len(self.times) + len(self.spans) <= MAX_MESSAGE_TIMES:
            return
        joined: dict[tuple[int, int], Span] = {}
        for span in [*(Span(time, time, rows) for time, rows in self.times), *self.spans]:
            at = span.low[0], span.high[0]
            had = joined.get(at, Span(span.low, span.high, 0))
            joined[at] = Span(min(had.low, span.low), max(had.high, span.high), had.rows + span.rows)
        self.times, self.hashes, self.spans = [], [], sorted(joined.values())

    def add(self, other: WrittenFiles) -> None:
        """Add what another task has written."""
        self.files += other.files
        self.times += other.times
        self.spans += other.spans
        self.digest += other.digest
        self.hashes += other.hashes
        if other.unstamped is not None:
            self.unstamped = (self.unstamped or RowsDigest()) + other.unstamped
        for name, count in other.counts.items():
            had = self.counts.get(name, 0)
            self.counts[name] = max(had, count) if name == "n" else had + count


@dataclass(frozen=True)
class OutputBatch:
    """A batch of a query, as one of its outputs gets it.

    Attributes:
        path: The path of the output's channel.
        domain: The domain of its times.
        query: The query's id.
        number: The batch's number.
        written: What its tasks have written for the output.
        reads: How far the query has read its inputs.
        others: By name, what the batch wrote into the query's other outputs.
        name: The name that the user has given the query; empty if there is none.
        checkpoint: Where the query's checkpoint is, as its commits state it; empty if that is not known.
    """

    path: str
    domain: TimeDomain
    query: str
    number: int
    written: WrittenFiles
    reads: Sequence[Input] = ()
    others: Mapping[str, RowsDigest] = field(default_factory=dict)
    name: str = ""
    checkpoint: str = ""

    @property
    def transaction(self) -> tuple[str, int]:
        """The Delta transaction of the batch's commit."""
        return self.query, self.number

    def identity(self, wrote: BatchDigest | None = None) -> BatchIdentity:
        """Return what tells the batch from any other."""
        return self.identity_with(self.reads, wrote)

    def identity_with(self, reads: Sequence[Input], wrote: BatchDigest | None) -> BatchIdentity:
        """Return the identity of a batch of this query and number that has read and written this."""
        return BatchIdentity.of(self.query, self.number, [each[:3] for each in reads], wrote)

    def rows(self) -> tuple[list[tuple[Time, int]], BatchDigest]:
        """Return the rows by time, each time once, in ``sort_key`` order; and what the commit states of the rows."""
        rows: dict[Time, int] = {}
        hashes: dict[Time, int] = {}
        for (time, count), hashed in zip(self.written.times, self.written.hashes, strict=True):
            rows[time] = rows.get(time, 0) + count
            hashes[time] = hashes.get(time, 0) + hashed
        times = sorted(rows.items(), key=lambda entry: self.domain.sort_key(entry[0]))
        stated = () if self.written.spans else BatchDigest.of_times(hashes[time] for time, _ in times)
        return times, BatchDigest(self.written.digest, stated, self.others)
