"""What the log of an output says of the query that wrote it: how far it had read its inputs, and what it has written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_strandline.resume import errors
from strandline.channel import Channel
from strandline.channel.progress.query_producer_state import is_query
from strandline.channel.statements.inputs import Input
from strandline.channel.statements.message_times import TimeCounts
from strandline.channel.statements.statement import Span
from strandline.delta.data_file import DataFile
from strandline.delta.storage import location_of
from strandline.errors import ChannelError, StrandlineError
from strandline.time.domain import Time

__all__ = ["Rows", "Writer", "Written", "open_output", "rows_of", "writer_of", "written"]

_MOST_TIMES = 1 << 16
"""If rows have more different times than this, they are only counted."""


@dataclass(frozen=True)
class Written:
    """A producer of an output, as its newest commit says.

    Attributes:
        producer: Its name.
        version: The version of the commit.
        reads: How far the query had read each of its inputs. What the producer has written is a function of its inputs up to
            there, because results do not depend on how rows are cut into batches. Empty if the commit does not say it.
    """

    producer: str
    version: int
    reads: tuple[Input, ...]

    def position(self, table: str, path: str) -> Input:
        """Return how far the query had read an input. Raises if it had read the table twice, up to different positions."""
        found = [each for each in self.reads if each.table == table]
        if len({(each.commit, each.file, each.snapshot) for each in found}) > 1:
            raise errors.resume_impossible_twice(self.producer, path, _shown(found))
        return found[0]


class Rows(NamedTuple):
    """Rows by their times.

    Attributes:
        total: The number of all rows.
        times: The number at each time; ``None`` if some are only known to be in a span of times, or there are very many times.
    """

    total: int
    times: Mapping[Time, int] | None

    @classmethod
    def of(cls, parts: Iterable[tuple[Iterable[tuple[Time, int]], Iterable[Span]]]) -> Rows:
        """Count the rows of several parts, each with times and spans.

        >>> Rows.of([([(3, 2), (4, 1)], []), ([(3, 1)], [])])
        Rows(total=4, times={3: 3, 4: 1})
        """
        total, found, is_exact = 0, Counter[Time](), True
        for times, spans in parts:
            for time, rows in times:
                total += rows
                if is_exact:
                    found[time] += rows
            for span in spans:
                total, is_exact = total + span.rows, False
            is_exact = is_exact and len(found) <= _MOST_TIMES
        return cls(total, dict(found) if is_exact else None)


class Writer(NamedTuple):
    """Who has written as a producer: a query, or another session.

    >>> print(Writer("5b1"), Writer("nightly-load", False), sep=", ")
    query 5b1, session nightly-load
    """

    id: str
    is_query: bool = True

    def __str__(self) -> str:
        return f"{'query' if self.is_query else 'session'} {self.id}"


def open_output(path: str, storage: Mapping[str, str] | None) -> Channel:
    """Open the output of a query that is to be resumed. Raises if there is no channel."""
    if not Channel.exists(path, storage):
        is_name = re.fullmatch(r"[\w.`]+", path) is not None
        raise errors.resume_impossible_output(path, is_name=is_name)
    return Channel.open(path, storage)


def written(channel: Channel, inputs: Mapping[str, str], producer: str | None = None) -> Written:
    """Return the producer of an output that a new query goes on with: the one that has read the query's inputs.

    Args:
        channel: The output.
        inputs: The ids of the inputs' tables, with their paths.
        producer: The name of the producer, if it is given.

    Raises:
        StrandlineError: ``STRANDLINE_RESUME_IMPOSSIBLE`` if no producer has read them, or several have.
    """
    found = _newest(channel, producer)
    fitting = [each for each in found if inputs.keys() <= {read.table for read in each.reads}]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise errors.resume_impossible_several(channel.path, _places(inputs), [each.producer for each in fitting])
    raise _unread(channel, inputs, found, producer)


def _unread(channel: Channel, inputs: Mapping[str, str], found: list[Written], producer: str | None) -> StrandlineError:
    """Return the error that says why no producer of a channel has read the inputs."""
    shown = _places(inputs)
    if producer is not None and channel.progress.get(producer) is None:
        return errors.resume_impossible_unread_producer(shown, channel.path, producer, channel.progress.producers)
    places = {_location(path): path for path in inputs.values()}
    for each in found:
        for read in each.reads:
            if read.path is not None and read.table not in inputs and _location(read.path) in places:
                return errors.resume_impossible_unread_table(shown, each.producer, channel.path, read.table, read.path)
    silent = [each.producer for each in found if not each.reads]
    if silent:
        return errors.resume_impossible_unread_silent(shown, silent, channel.path)
    if not found:
        name = "a query" if producer is None else repr(producer)
        return errors.resume_impossible_unread_empty(shown, channel.path, name)
    had = "; ".join(f"{each.producer!r} had read {_shown(each.reads)}" for each in found[:10])
    return errors.resume_impossible_unread(shown, channel.path, had)


def _newest(channel: Channel, producer: str | None) -> list[Written]:
    """Return each producer, or the one with that name, as its newest commit with rows or of a query says."""
    missing = set(channel.progress.producers) if producer is None else {producer} & channel.progress.producers.keys()
    found = []
    for version in range(channel.version, -1, -1):
        commit = channel.log.read(version) if missing else None
        if commit is None:
            break
        if commit.statement is None or not (len(commit.files) or commit.transactions):
            continue  # it only moves capabilities, or says who has the producer
        for name in sorted(missing & commit.statement.statements.keys()):
            found.append(Written(name, version, commit.statement.reads))
            missing.discard(name)
    return found


def writer_of(channel: Channel, producer: str) -> Writer | None:
    """Return who made a producer's newest commit with rows, if it was a query; ``None`` if it was none.

    If the log was cleaned up beyond that commit, it is the session that has the producer.
    """
    found = _newest(channel, producer)
    for each in found:
        commit = channel.log.read(each.version) if each.reads else None
        if commit is not None:
            return next((Writer(query) for query in commit.transactions), None)
    known = channel.progress.get(producer)
    if found or known is None or known.owner is None or channel.log.exists(0):
        return None
    return Writer(known.owner.id, is_query(producer, known))


def rows_of(channel: Channel, producer: str) -> Rows | None:
    """Return the rows that a producer has written, from its statements; ``None`` if the log no longer has all of them.

    A statement of a commit with very many times has spans of them. Then the times are read from the commit's files.
    """
    if not channel.log.exists(0):
        return None
    return Rows.of(_counted(channel, producer))


def _counted(channel: Channel, producer: str) -> Iterator[tuple[Iterable[tuple[Time, int]], Iterable[Span]]]:
    """Yield the rows by time of each commit of a producer."""
    read: set[Time] | None = set()  # the times that files had; None when it is of no use to read more files
    for commit in channel.log.tail(0):
        statement = commit.statement
        if commit.version > channel.version or statement is None or producer not in statement.statements:
            continue
        found = None if read is None or not statement.spans else _times_in(channel, commit.files)
        if statement.spans and read is not None:
            read = None if found is None else read | {time for time, _ in found}
            read = None if read is None or len(read) > _MOST_TIMES else read
        yield (statement.times, statement.spans) if found is None else (found, ())


def _times_in(channel: Channel, files: Iterable[DataFile]) -> list[tuple[Time, int]] | None:
    """Return the rows of files by time; ``None`` if there are too many times, or a file was vacuumed."""
    counts = TimeCounts(channel.domain, channel.time_column)
    try:
        for file in files:
            counts.add(channel.read_files([file], [channel.time_column]).column(0))
    except ChannelError as error:
        if error.condition != "STRANDLINE_FILE_MISSING":
            raise
        return None
    times, spans = counts.result()
    return None if spans else times


def _places(inputs: Mapping[str, str]) -> str:
    return ", ".join(f"{path} (table {table})" for table, path in inputs.items()) or "no channel"


def _shown(reads: tuple[Input, ...] | list[Input]) -> str:
    return ", ".join(
        f"{each.path or f'table {each.table}'} up to commit {each.commit}" + (f", file {each.file}" if each.file else "")
        for each in reads
    )


def _location(path: str) -> str:
    try:
        return location_of(path)
    except StrandlineError:  # a path with a password
        return path
