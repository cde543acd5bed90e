"""The checks of data files: each against its commit, its statistics, and the times that the statement states for its rows."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from strandline.channel import Channel
from strandline.channel.batch.batch_digest import BatchDigest
from strandline.channel.batch.batch_digest import RowsDigest as Digest
from strandline.channel.batch.row_hashes import FloatSums, row_hashes
from strandline.channel.statements.message_times import TimeCounts
from strandline.delta.data_file import DataFile, schema_mark
from strandline.delta.file_stats import stats_of
from strandline.delta.read_file import open_parquet
from strandline.delta.storage import Store
from strandline.delta.store_errors import native
from strandline.report.soundness.bounds_checks import bounds_of_rows, check_bounds
from strandline.report.soundness.log_checks import CommitFiles, LogState
from strandline.report.soundness.span_checks import SpanCounts, spans_found
from strandline.report.soundness.stats_columns import StatsColumns, countable
from strandline.report.soundness.verification import DATA_FILE_MISSING, refused, violated
from strandline.time.domain import Time

__all__ = ["FileCounts", "check_file", "check_files"]

_BATCH = 10_000
_VACUUMED = "files that were replaced are not there any more, so its rows were not compared with what is stated of them"
_MARK = re.compile(r"-([0-9a-f]{12})-[0-9a-f]{32}-\d{5}\.parquet\Z")


class FileCounts:
    """How many files and rows were read, and what of them could not be checked."""

    def __init__(self) -> None:
        self.files = 0
        self.rows = 0
        self.unchecked: list[str] = []
        """What could not be checked, and why."""


def check_files(channel: Channel, state: LogState, counts: FileCounts, told: Callable[[int, int], None]) -> None:
    """Read the data files of every commit. A file that a later commit replaced may have been vacuumed."""
    store = channel.log.store
    active = state.active if state.active is not None else {file.path: file for file in channel.snapshot_files(state.version)}
    whole = sum(len(each.added) for each in state.commits)
    for each in state.commits:
        times, rows, gone = TimeCounts(channel.domain, channel.time_column), RowsDigest(), False
        read = exact = 0
        digest = None if each.commit.statement is None else each.commit.statement.digest
        floats = None if digest is None or digest.own.floats is None else FloatSums()
        segments = SpanCounts.of(channel.domain, each.commit.statement)
        for file in each.added:
            told(counts.files, whole)
            if store.size(file.path) is None:
                if file.path in active:
                    violated(each.commit.version, file.path, "no file", "a data file of the newest version", DATA_FILE_MISSING)
                gone = True
                continue
            table = check_file(channel, store, each.commit.version, file, each.columns, counts)
            counts.files += 1
            counts.rows += table.num_rows
            read += table.num_rows
            if each.commit.statement is not None:
                with refused(each.commit.version, channel.time_column, "a time of the domain in every row"):
                    times.add(table.column(channel.time_column), None if digest is None else row_hashes(table, floats))
                if digest is not None and digest.exact is not None:
                    exact += int(row_hashes(table).sum(dtype=np.uint64))
                if segments is not None:
                    segments.add(table.column(channel.time_column))
            elif each.replaced is not None:
                rows.add(table)
        if not gone and each.commit.statement is not None:
            counted = _check_times(channel, each, times, segments, counts)
            if digest is not None:
                _check_digest(channel, each, digest, times, counted, read, floats)
                if not digest.is_of(exact):
                    violated(each.commit.version, "digest", "other floating-point values or orders of lists", digest.exact)
        elif not gone and each.replaced is not None:
            _check_rearranged(channel, store, each, rows, counts)
        if gone:
            counts.unchecked.append(f"version {each.commit.version}: {_VACUUMED}")
    known = {file.path for each in state.commits for file in each.added}
    for file in active.values():
        if file.path in known:
            continue
        if store.size(file.path) is None:  # its commit was cleaned up
            violated(None, file.path, "no file", "a data file of the newest version", DATA_FILE_MISSING)
        columns = state.stats_columns.get(file.path)
        counts.rows += check_file(channel, store, None, file, channel.schema.names, counts, columns).num_rows
        counts.files += 1
    told(whole, whole)


def check_file(
    channel: Channel,
    store: Store,
    version: int | None,
    file: DataFile,
    columns: Iterable[str],
    counts: FileCounts,
    stated: StatsColumns | None = None,
    missing: str = DATA_FILE_MISSING,
) -> pa.Table:
    """Read a data file with all its checksums, and return its rows as the channel has them.

    ``stated`` has its statistics if only a checkpoint states them, and in columns. ``missing`` is the condition with which
    readers refuse it once it is gone.
    """
    allowed = set(columns) | set(channel.schema.names)
    if (size := store.size(file.path)) != file.size:
        violated(version, file.path, f"{size} bytes", f"{file.size} bytes")
    with refused(version, file.path, "a data file that can be read, with the rows and columns of the log", missing):
        with open_parquet(store, file.path, file.size, file.rows) as opened:
            found, metadata = opened.schema_arrow, opened.metadata
        names = list(found.names)
        if len(set(names)) < len(names) or set(names) - allowed:
            violated(version, file.path, f"the columns {', '.join(names)}", f"the columns {', '.join(channel.schema.names)}")
        with open_parquet(store, file.path, file.size, file.rows, checksums=True) as checked:
            rows = checked.read()
    if rows.num_rows != metadata.num_rows:
        violated(version, file.path, f"{rows.num_rows} rows", f"{metadata.num_rows} rows, as its footer says")
    mark = _MARK.search(file.path)
    unknown = check_bounds(store, version, file, rows, ours=mark is not None)
    if unknown is not None:
        counts.unchecked.append(unknown)
    if mark is not None:  # a file of Strandline: its name says which columns it has
        if schema_mark(found) != mark.group(1):
            violated(version, file.path, f"the columns {_columns(found)}", f"columns with the mark {mark.group(1)} of its name")
        _check_statistics(version, file, rows, pa.schema([_field(channel.schema, field) for field in found]), stated)
    columns_now = []
    for field in channel.schema:
        try:
            there = field.name in names
            columns_now.append(rows.column(field.name).cast(field.type) if there else pa.nulls(rows.num_rows, field.type))
        except pa.ArrowException as error:  # noqa: PERF203 - it names the column
            violated(version, file.path, str(error).splitlines()[0], f"{field.name} as {field.type}")
    return pa.Table.from_arrays(columns_now, schema=channel.schema)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _field(schema: pa.Schema, field: pa.Field) -> pa.Field:
    return schema.field(field.name) if field.name in schema.names else field


def _check_statistics(
    version: int | None, file: DataFile, rows: pa.Table, schema: pa.Schema, columns: StatsColumns | None
) -> None:
    if file.stats is None and columns is None:
        return
    with native(file.path):
        text = json.dumps(stats_of(rows.num_rows, schema, bounds_of_rows(rows)))
    if columns is not None and (different := columns.differs(text)):
        violated(version, f"stats_parsed of {file.path}, {different[0]}", different[1], different[2])
    if file.stats is None:
        return
    try:
        stated = json.loads(file.stats)
    except (ValueError, RecursionError) as error:
        violated(version, f"stats of {file.path}", str(error)[:200], "Delta's statistics as JSON")
    has = json.loads(text)
    for key in ("numRecords", "minValues", "maxValues", "nullCount"):
        if stated.get(key) != has[key] and not (key == "minValues" and _lacks_numbers(stated.get(key), has[key])):
            violated(version, f"stats of {file.path}, {key}", stated.get(key), has[key])


def _lacks_numbers(stated: object, has: object) -> bool:
    """Return whether bounds are the same, but for numbers with a fraction that are not stated.

    A file has none for a column of floating point that has only NaN in one of its row groups.
    """
    if isinstance(stated, dict) and isinstance(has, dict):
        below = (_lacks_numbers(stated.get(name), each) for name, each in has.items())
        return stated.keys() <= has.keys() and all(below)
    return stated == has or (stated is None and (isinstance(has, float) or (isinstance(has, dict) and _lacks_numbers({}, has))))


def _check_times(
    channel: Channel, each: CommitFiles, counted: TimeCounts, segments: SpanCounts | None, counts: FileCounts
) -> list[tuple[Time, int]]:
    """Compare the times of a commit's rows with those that its statement states. Return those that were counted exactly.

    ``segments`` has the rows if the times are in a total order, and the statement has spans.
    """
    statement, version, domain = each.commit.statement, each.commit.version, channel.domain
    times, ranges = counted.result()
    if statement is None:
        return times
    if segments is not None:
        if (different := segments.difference()) is not None:
            violated(version, *different)
        return times
    left: Counter[Time] = Counter(dict(times))
    if not ranges:
        for time, rows in statement.times:
            if left[time] < rows:
                violated(version, "times", f"{left[time]} rows at {domain.format(time)} in its files", f"{rows} rows")
            left[time] -= rows
        left = +left
        if sum(left.values()) != sum(span.rows for span in statement.spans):
            violated(version, "spans", f"{sum(left.values())} rows in its files", sum(span.rows for span in statement.spans))
    else:  # too many distinct times to count each: their number, and their bounds
        whole = sum(left.values()) + sum(span.rows for span in ranges)
        if whole != statement.rows:
            violated(version, "times", f"{whole} rows in its files", f"{statement.rows} rows")
        for time in [time for time, _ in statement.times]:
            left.pop(time, None)
        ends = {end for span in ranges for end in (span.low, span.high)} - {time for time, _ in statement.times}
        left |= dict.fromkeys(ends - left.keys(), 1)
    found = spans_found(domain, left, statement.spans, bounds=bool(ranges))
    if found.outside is not None:
        violated(
            version, "times", f"rows at {domain.format(found.outside)} in its files", "a time or a span for each of its rows"
        )
    if found.differing is not None:
        span, rows, stated = found.differing
        where = f"from {domain.format(span.low)} to {domain.format(span.high)}"
        violated(version, "spans", f"{rows} rows {where} in its files", stated)
    if found.unchecked is not None:
        counts.unchecked.append(f"version {version}, spans: {found.unchecked}")
    return times


def _check_digest(
    channel: Channel,
    each: CommitFiles,
    digest: BatchDigest,
    counts: TimeCounts,
    times: list[tuple[Time, int]],
    rows: int,
    floats: FloatSums | None,
) -> None:
    """Compare the values of a commit's rows with the digest that its statement states."""
    if each.commit.statement is None:
        return
    found = Digest() + Digest(rows, counts.hashed, None if floats is None else floats.sums)
    difference = digest.own.difference(found)
    if difference is not None:
        now = BatchDigest(found, BatchDigest.of_times(counts.hashes))
        first = digest.first_difference(each.commit.statement.times, now, times, channel.domain)
        violated(
            each.commit.version, "digest", f"other values of its rows, first at {first or 'an unknown time'}", digest.own.total
        )


def _check_rearranged(channel: Channel, store: Store, each: CommitFiles, rows: RowsDigest, counts: FileCounts) -> None:
    """Compare the rows of a commit that only rearranges, such as OPTIMIZE, with those of the files that it replaces."""
    replaced = each.replaced or []
    if any(store.size(file.path) is None for file in replaced):
        counts.unchecked.append(f"version {each.commit.version}: {_VACUUMED}")
        return
    before = RowsDigest()
    for file in replaced:
        before.add(check_file(channel, store, each.commit.version, file, each.columns, counts))
    if before != rows:
        violated(each.commit.version, "add", "other rows", "the rows of the files that it replaces")


class RowsDigest:
    """How many rows there are, and the sum of their hashes: the same for the same rows in any order, in any files.

    >>> one, other = RowsDigest(), RowsDigest()
    >>> one.add(pa.table({"n": [1, 2, 2]}))
    >>> other.add(pa.table({"n": [2]}))
    >>> other.add(pa.table({"n": [2, 1]}))
    >>> one == other
    True
    """

    def __init__(self) -> None:
        self._rows, self._sum = 0, 0

    def add(self, table: pa.Table) -> None:
        """Add rows. A few at a time become values of Python, which take much memory."""
        for batch in table.to_batches(max_chunksize=_BATCH):
            self._rows += batch.num_rows
            columns = (countable(column).to_pylist() for column in batch.columns)
            for row in zip(*columns, strict=True):
                digest = hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()
                self._sum = (self._sum + int.from_bytes(digest, "little")) % (1 << 128)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowsDigest) and (self._rows, self._sum) == (other._rows, other._sum)

    __hash__ = None  # type: ignore[assignment]
