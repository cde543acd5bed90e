"""What a manifest announces: rows by partition and time, from a complete table, or from a channel that may grow."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from strandline.channel import Channel, ChannelError, Log
from strandline.delta.store_errors import native
from strandline.delta.table import open_delta
from strandline.ingest.names import partition_name_problem, partition_names
from strandline.ingest.policies import errors
from strandline.time.arrow import find_time_field, times_of
from strandline.time.domain import Scalar, Time, TimeDomain

__all__ = ["CANCELLED", "EXPECTED", "Announced", "ManifestTable", "manifest_rows", "rewrite", "with_cancelled_of"]

EXPECTED, CANCELLED = "expected", "cancelled"
_MOST_ATTEMPTS = 20


class Announced(NamedTuple):
    """What is announced for a partition and a time: how many rows, and how many of them are cancelled."""

    rows: int
    cancelled: int


class ManifestTable:
    """How many rows are announced for each partition and time.

    A Delta table has one row for each partition and time, with a count ``expected`` (without that column: 1). If it has a column
    ``cancelled``, that counts how many of those rows were cancelled. The table announces all rows that there will be. It is an
    error when a later version announces fewer rows, or more rows for a time that is complete. In a channel, rows add up:
    ``expected`` may be negative to cancel, and the channel's frontier says what may still be announced.
    """

    def __init__(
        self,
        path: str,
        time: str,
        partition: tuple[str, ...],
        domain: TimeDomain,
        storage: Mapping[str, str] | None = None,
    ) -> None:
        self.path, self.domain = path, domain
        self._time, self._partition, self._storage = time, partition, dict(storage) if storage else None
        self._channel = Channel.open(path, storage) if Channel.exists(path, storage) else None
        if self._channel is not None and self._channel.domain != domain:
            raise errors.time_domain_mismatch_manifest(path, self._channel.domain, domain)
        self._version = -1
        self._log = Log(path, storage)
        self._left: dict[str, dict[Time, int]] = {}
        self._full: dict[str, dict[Time, int]] = {}
        self._sorted: dict[str, list[Time]] = {}
        self._sums: dict[tuple[str, bool], tuple[list[Time], list[int]]] = {}
        self._frontier: tuple[Time, ...] = ()
        self._impossible: set[str] = set()
        """Names that no partition can have. All rows that were announced for them are cancelled."""

    @property
    def grows(self) -> bool:
        """Whether the manifest is a channel."""
        return self._channel is not None

    def partitions(self) -> list[str]:
        """Return the partitions that have announcements."""
        return [name for name in self._left if name not in self._impossible]

    def refresh(self) -> set[str] | None:
        """Apply new announcements. Return the partitions that may have changed, or ``None`` for any.

        Raises :class:`IngestError` for a contradiction.
        """
        if self._channel is not None:
            return self._grow(self._channel)
        if self._version >= 0 and not self._log.exists(self._version + 1):
            return set()
        table = self._open()
        if table.version() == self._version:
            return set()
        first = self._version < 0
        with native(self.path, self._storage):
            rows = pa.table(table.to_pyarrow_table())
        changed = self.go_by(rows)
        self._version = table.version()
        return None if first else changed

    def go_by(self, rows: pa.Table) -> set[str]:
        """Take these rows for those of the table, which are compared with the former ones. Return the changed partitions."""
        full, left = self._read(rows)
        self._check_names(left)
        changed = self._compare(full, left)
        self._full, self._left = full, left
        self._sorted, self._sums = {}, {}
        return changed

    def times(self, partition: str) -> list[Time]:
        """Return the announced times of a partition in ``sort_key`` order."""
        found = self._sorted.get(partition)
        if found is None:
            found = self._sorted[partition] = sorted(self._left.get(partition, ()), key=self.domain.sort_key)
        return found

    def announced(self, partition: str, time: Time) -> Announced | None:
        """Return what is announced for a partition and a time, or ``None`` if nothing is."""
        rows = self._full.get(partition, {}).get(time)
        return None if rows is None else Announced(rows, rows - self._left[partition][time])

    def cancel(self, totals: Mapping[tuple[str, Time], int]) -> bool:
        """Write how many of the announced rows of partitions and times are cancelled in all, and refresh.

        A number that is greater in the table already stays. Returns whether anything was written. Only a table that is no channel
        has such numbers. Raises :class:`PolicyError` ``STRANDLINE_MANIFEST_CONTENDED`` if others keep writing to it.
        """

        def changed(rows: pa.Table | None) -> pa.Table | None:
            if rows is None:
                raise errors.manifest_invalid_unwritten()
            names, times, _, before = self._columns(rows)
            now = [max(n, totals.get(key, 0)) for key, n in zip(zip(names, times, strict=True), before, strict=True)]
            return None if now == before else _with_cancelled(rows, now)

        written = rewrite(self.path, self._storage, changed)
        self.refresh()
        return written

    def still_to_announce(self) -> tuple[Time, ...]:
        """Return lower bounds for all rows that may still be announced."""
        return self._frontier

    def incomplete(self, partition: str, arrived: Mapping[Time, int], held: Sequence[Time] | None) -> list[Time]:
        """Return the announced times that still lack rows (in a total order: the least one).

        Times that are in advance of none of ``held`` are already complete, and their arrived rows are no longer remembered.
        """
        times = self.times(partition)
        left = self._left.get(partition, {})
        if not isinstance(self.domain, Scalar):
            if held is not None:
                less_equal = self.domain.comparison
                times = [time for time in times if any(less_equal(h, time) for h in held)]
            return [time for time in times if arrived.get(time, 0) < left[time]]
        first = 0 if held is None else bisect_left(times, min(held)) if held else len(times)
        for at in range(first, len(times)):
            if arrived.get(times[at], 0) < left[times[at]]:
                return [times[at]]
        return []

    def announced_before(self, partition: str, times: Iterable[Time]) -> int:
        """Return how many rows were announced, also cancelled ones, for times that are in advance of none of ``times``."""
        return self._before(self._full, partition, times)

    def left_before(self, partition: str, times: Iterable[Time]) -> int:
        """Return :meth:`announced_before` without the cancelled rows."""
        return self._before(self._left, partition, times)

    def total(self, partition: str) -> int:
        """Return how many rows were announced for the partition, also cancelled ones."""
        return self._cumulated(self._full, partition)[1][-1]

    def _before(self, counts: dict[str, dict[Time, int]], partition: str, times: Iterable[Time]) -> int:
        held = list(times)
        if isinstance(self.domain, Scalar):
            ordered, sums = self._cumulated(counts, partition)
            return sums[bisect_left(ordered, min(held)) if held else len(ordered)]
        less_equal = self.domain.comparison
        return sum(n for time, n in counts.get(partition, {}).items() if not any(less_equal(h, time) for h in held))

    def _cumulated(self, counts: dict[str, dict[Time, int]], partition: str) -> tuple[list[Time], list[int]]:
        key = (partition, counts is self._full)
        found = self._sums.get(key)
        if found is None:
            times = self.times(partition)
            mine = counts.get(partition, {})
            found = self._sums[key] = (times, [0, *accumulate(mine[time] for time in times)])
        return found

    # ------------------------------------------------------------------------------------------------------- reading

    def _open(self) -> DeltaTable:
        try:
            return open_delta(self._log, self._storage)
        except ChannelError as error:
            raise errors.manifest_unreadable(self.path, error) from error

    def _read(self, rows: pa.Table) -> tuple[dict[str, dict[Time, int]], dict[str, dict[Time, int]]]:
        names, times, expected, cancelled = self._columns(rows)
        full: dict[str, dict[Time, int]] = {}
        left: dict[str, dict[Time, int]] = {}
        for name, time, n, n_cancelled in zip(names, times, expected, cancelled, strict=True):
            if time in full.get(name, ()):
                raise errors.manifest_contradiction_twice(self.path, self.domain.format(time), name, full[name][time], n)
            if not 0 <= n_cancelled <= n:
                raise errors.manifest_contradiction_cancelled(self.path, self.domain.format(time), name, n, n_cancelled)
            full.setdefault(name, {})[time] = n
            left.setdefault(name, {})[time] = n - n_cancelled
        return full, left

    def _columns(self, rows: pa.Table) -> tuple[list[str], list[Time], list[int], list[int]]:
        time = self._time
        if self._channel is not None or time not in rows.column_names:
            time = find_time_field(self._channel.schema)[0] if self._channel is not None else time
        wanted = [time, *self._partition]
        missing = [name for name in wanted if name not in rows.column_names]
        if missing:
            raise errors.manifest_invalid_columns(self.path, missing, rows.column_names, wanted)
        for name in [*wanted, EXPECTED, CANCELLED]:
            if name in rows.column_names and rows.column(name).null_count:
                raise errors.manifest_invalid_null(self.path, name)
        try:
            names = partition_names(rows, self._partition).to_pylist()
        except pa.ArrowException as error:
            raise errors.manifest_invalid_partition(self.path, error) from error
        times = times_of(rows.column(time), self.domain, f"{self.path}: {time}")

        def counts(name: str, default: int) -> list[int]:
            if name not in rows.column_names:
                return [default] * rows.num_rows
            try:
                return [int(n) for n in rows.column(name).cast(pa.int64()).to_pylist()]
            except pa.ArrowException as error:
                raise errors.manifest_invalid_counts(self.path, name, error) from error

        return names, times, counts(EXPECTED, 1), counts(CANCELLED, 0)

    def _compare(self, full: dict[str, dict[Time, int]], left: dict[str, dict[Time, int]]) -> set[str]:
        changed = set()
        for name, times in self._full.items():
            for time, n in times.items():
                now = full.get(name, {}).get(time, 0)
                if now < n:
                    raise errors.manifest_shrinks(self.path, n, self.domain.format(time), name, now)
        for name, times in left.items():
            if times != self._left.get(name):
                changed.add(name)
        return changed

    def _grow(self, channel: Channel) -> set[str] | None:
        first, self._version = self._version < 0, -1  # after an error, everything is read again
        commits = channel.refresh()
        if first:
            self._left, self._full = {}, {}
            self._add(channel.read())
        elif commits:
            files = [file for commit in commits for file in commit.files]
            if files:
                self._add(channel.read_files(files))
        before, self._frontier = self._frontier, tuple(channel.frontier)
        self._version = channel.version
        return None if first or commits or before != self._frontier else set()

    def _add(self, rows: pa.Table) -> None:
        names, times, expected, cancelled = self._columns(rows)
        touched: dict[tuple[str, Time], None] = {}
        for name, time, n, n_cancelled in zip(names, times, expected, cancelled, strict=True):
            mine, all_ = self._left.setdefault(name, {}), self._full.setdefault(name, {})
            mine[time] = mine.get(time, 0) + n - n_cancelled
            all_[time] = all_.get(time, 0) + max(0, n)
            touched[name, time] = None
        self._sorted, self._sums = {}, {}
        self._check_names({name: self._left[name] for name, _ in touched})
        for name, time in touched:
            if self._left[name][time] < 0:
                raise errors.manifest_contradiction_negative(self.path, self.domain.format(time), name, self._left[name][time])

    def _check_names(self, left: Mapping[str, Mapping[Time, int]]) -> None:
        """Raise for a name that no partition can have, unless everything that was announced for it is cancelled."""
        for name, times in left.items():
            problem = partition_name_problem(name)
            if problem is None:
                continue
            if any(times.values()):
                raise errors.manifest_invalid_name(self.path, sum(times.values()), name, problem)
            self._impossible.add(name)


def _with_cancelled(rows: pa.Table, counts: Sequence[int]) -> pa.Table:
    """Return the rows with these numbers in the column ``cancelled``."""
    if CANCELLED not in rows.column_names:
        return rows.append_column(CANCELLED, pa.array(counts, pa.int64()))
    at = rows.schema.get_field_index(CANCELLED)
    return rows.set_column(at, rows.schema.field(at), pa.array(counts, rows.schema.field(at).type))


def with_cancelled_of(rows: pa.Table, before: pa.Table, time: str, partition: tuple[str, ...], domain: TimeDomain) -> pa.Table:
    """Return the rows of a manifest with what was cancelled in another version of it."""
    if CANCELLED not in before.column_names or not {time, *partition} <= {*before.column_names} & {*rows.column_names}:
        return rows

    def keys(table: pa.Table) -> list[tuple[str, Time]]:
        times = times_of(table.column(time), domain, time)
        return list(zip(partition_names(table, partition).to_pylist(), times, strict=True))

    known = dict(zip(keys(before), before.column(CANCELLED).to_pylist(), strict=True))
    given = rows.column(CANCELLED).to_pylist() if CANCELLED in rows.column_names else [0] * rows.num_rows
    return _with_cancelled(rows, [max(n or 0, known.get(key) or 0) for key, n in zip(keys(rows), given, strict=True)])


def rewrite(path: str, storage: Mapping[str, str] | None, changed: Callable[[pa.Table | None], pa.Table | None]) -> bool:
    """Write over the rows of a Delta table, so that nothing is lost that others write meanwhile.

    Args:
        path: The table's path.
        storage: The options of its storage.
        changed: Returns the new rows from those that are there (``None``: there is no table), or ``None`` if they stay. It is
            called again whenever another writer was faster.

    Returns:
        Whether anything was written.
    """
    options = dict(storage) if storage else None
    for _ in range(_MOST_ATTEMPTS):
        table: DeltaTable | None = None
        with native(path, storage):
            try:
                table = DeltaTable(path, storage_options=options)
                rows = pa.table(table.to_pyarrow_table())
            except TableNotFoundError:
                rows = None
        now = changed(rows)
        if now is None:
            return False
        same = rows is not None and set(rows.column_names) == set(now.column_names)
        try:
            with native(path, storage):
                once = CommitProperties(max_commit_retries=0)  # a later version may have other rows
                write_deltalake(
                    path if table is None else table,
                    now,
                    mode="overwrite",
                    schema_mode=None if same else "overwrite",
                    storage_options=options,
                    commit_properties=once,
                )
        except CommitFailedError:
            continue
        return True
    raise errors.manifest_contended(path, _MOST_ATTEMPTS)


def manifest_rows(expected: Any, time: str, partition: tuple[str, ...], domain: TimeDomain) -> pa.Table:
    """Return the rows of a manifest.

    The manifest is given as a mapping ``{(partition, time): rows}`` or ``{partition: {time: rows}}``, a DataFrame or a table.
    """
    from strandline.time.arrow import array_of

    if isinstance(expected, Mapping):
        flat: dict[tuple[str, Any], int] = {}
        for key, value in expected.items():
            if isinstance(value, Mapping):
                flat |= {(key, time_): n for time_, n in value.items()}
            else:
                flat[key] = value
        if len(partition) > 1:
            raise errors.manifest_invalid_mapping(partition)
        columns = {time: array_of([t for _, t in flat], domain), EXPECTED: pa.array(list(flat.values()), pa.int64())}
        columns[CANCELLED] = pa.array([0] * len(flat), pa.int64())
        if partition:
            columns[partition[0]] = pa.array([str(name) for name, _ in flat], pa.string())
        return pa.table(columns)
    if isinstance(expected, pa.Table):
        return expected
    if hasattr(expected, "toArrow"):  # a Spark DataFrame
        return expected.toArrow()
    if hasattr(expected, "to_parquet"):
        return pa.Table.from_pandas(expected, preserve_index=False)
    raise errors.manifest_invalid_type(expected)
