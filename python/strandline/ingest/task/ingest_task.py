"""Ingests a batch's rows in a task: rows in time to the channel's files, late or bad rows to the late table's files."""

from __future__ import annotations

from types import TracebackType
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.channel import FileWriter
from strandline.channel.statements.commit_statement import MAX_MESSAGE_TIMES
from strandline.channel.write.file_writer import conform
from strandline.errors import IngestError
from strandline.ingest import errors
from strandline.ingest.bounds.future import FutureCheck
from strandline.ingest.columns.time_column import EPOCH, UNPARSABLE, check_times, shown_value
from strandline.ingest.late.late_table import STAGED
from strandline.ingest.late.lateness import BAD_MARK, BAD_PARTITION, FUTURE, FUTURE_MARK, LATE, NULL_PARTITION, REASONS, late_rows
from strandline.ingest.late.promises import without_least
from strandline.ingest.names import WHOLE_STREAM, matched, partition_name_problem, partition_names
from strandline.ingest.policies.errors import policy_missing
from strandline.ingest.policies.policy import Observation, ObservationColumns
from strandline.ingest.settings import Settings
from strandline.ingest.task.ahead import AheadWriter
from strandline.ingest.task.batch_start import BatchStart
from strandline.ingest.task.partition_stats import PartitionStats
from strandline.ingest.task.row_digest import RowDigest
from strandline.ingest.task.task_report import TaskReport
from strandline.time.antichain import Antichain
from strandline.time.arrow import array_of, behind, times_of
from strandline.time.domain import Time

__all__ = ["IngestTask"]

_Mask: TypeAlias = npt.NDArray[np.bool_]
_Ints: TypeAlias = npt.NDArray[np.int64]


class _Partition(NamedTuple):
    """What is known about one partition while a batch is ingested."""

    holds: tuple[Time, ...]
    need: int


_SHOWN_CHARS = 60
"""So many characters of a time are shown."""


class IngestTask:
    """Ingests a task's share of a batch. As a context manager it removes its files when the block raises.

    The rule: a row is late when its partition held, at the start of the batch, no capability that is ≤ its time. The task needs
    neither Spark nor the policy's class, because the settings contain what the policy wants to know. When the channel already has
    the batch, nothing is judged or written. Only the batch's digest is computed.
    """

    def __init__(
        self, settings: Settings, start: BatchStart, *, name: str = "part", query: str = "", batch: int = 0, arrival: int = 0
    ) -> None:
        self._settings, self._start = settings, start
        self._query, self._batch, self._arrival = query, batch, arrival
        self._needs = [need for _, need in settings.needs]
        self._known: dict[str, _Partition] = {}
        domain = settings.channel_domain
        # A commit states no more times exactly, so the tasks do not send more to the driver.
        self._rows = FileWriter(
            settings.path,
            settings.channel_schema,
            settings.time,
            domain,
            settings.storage,
            name,
            most_times=MAX_MESSAGE_TIMES,
        )
        self._late = FileWriter(settings.late_path, settings.late_schema, None, None, settings.storage, name, STAGED)
        self._parking = AheadWriter(settings, start, name)
        self._stats = {
            by_time: PartitionStats(settings.domain, by_time=by_time) for by_time in {need.times for need in self._needs}
        }
        self._marks = PartitionStats(settings.domain)
        self._observed: dict[str, None] = {}
        self._future = FutureCheck(settings.future, start.clock_ms)
        self._digest = RowDigest()
        self._replays = start.replays(query, batch)
        self._aside: dict[tuple[str | None, str], int] = {}
        self._examples: dict[tuple[str | None, str], str] = {}
        self._in_time: set[str] = set()  # partitions with rows that only advance time, and are not behind their promise

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Ingest rows.

        Raises :class:`IngestError` for a row of a partition that may not join. With ``onLate`` = ``fail``, raises it also for a
        row that would be set aside.
        """
        table = conform(rows, self._settings.schema)
        if not table.num_rows:
            return
        table = table.combine_chunks()
        times, codes = check_times(table.column(self._settings.time), self._settings.domain)
        names, at = self._partitions(table, codes)
        told = np.where(codes == EPOCH, UNPARSABLE, codes)  # the digest does not say why a text is not a time
        self._digest.add(names, at, times, told, self._committed_columns(table))
        if self._replays:
            return
        known = [self._of(name) for name in names]
        if (beyond := self._beyond(times, at, known)) is not None:
            future, compared = beyond
            future &= codes == 0
            codes[future] = FUTURE
            self._future.add(compared, at, names, future)
        marks = self._mark_columns(table, times, codes, at, names, known)
        codes[(codes == 0) & late_rows(times, at, [each.holds for each in known], self._settings.domain)] = LATE
        silent, counted = self._silent(table, at, known)
        keep = (codes == 0) & ~silent
        column = pa.DictionaryArray.from_arrays(pa.array(at, mask=at < 0), pa.array(names, pa.string())).cast(pa.string())
        self._count(column, times, at, known, keep | ((codes == 0) & counted))
        for mark, mask in marks:
            self._marks.add(column, mark, mask)
        self._observed.update(dict.fromkeys(self._moving(names, at, codes)))
        uncounted = silent & ~counted
        if uncounted.any():
            self._in_time.update(names[i] for i in np.unique(at[uncounted & (codes == 0)]).tolist())
        aside = (codes != 0) & ~(uncounted & (codes == LATE))
        if aside.any():
            self._set_aside(table, column, at, known, codes, aside)
        self._keep(table, times, at, known, keep)

    def _committed_columns(self, table: pa.Table) -> pa.Table:
        """Return the rows with the channel's columns. A batch that is committed already may lack those that came after it."""
        columns = self._start.columns
        if self._settings.late_columns:  # they may change when the query is started again
            table = table.drop_columns(list(self._settings.late_columns))
        if not self._replays or columns is None:
            return table
        return table.select([name for name in table.column_names if name in columns])

    def finish(self) -> TaskReport:
        """Close the files, and report what arrived."""
        files, message_times = self._rows.finish()
        parked = self._parking.finish()
        late, _ = self._late.finish()
        bounds: dict[str, tuple[int, Time, Time]] = {}
        columns = self._stats_columns()
        for stats in self._stats.values() if columns is None else ():
            bounds |= stats.bounds()
        marks = {name: high for name, (_, _, high) in self._marks.bounds().items()}
        counts = self._stats[True].counts() if True in self._stats else {}
        digest = self._digest.result()
        seen = []
        in_columns = set(columns.names) if columns is not None else set[str]()
        asked = {*self._observed, *(name for name, _ in self._aside if name is not None)} - in_columns - bounds.keys()
        unheard = {name for name in asked - self._in_time if name not in marks or not self._moves(name, marks[name])}
        for name in self._observed:
            if name in in_columns:
                continue
            rows, low, high = bounds.get(name, (0, None, None))
            seen.append(Observation(name, rows, low, high, counts.get(name), marks.get(name)))
        return TaskReport(
            self._start.version,
            self._start.planned_ms,
            files,
            message_times,
            self._rows.spans,
            late,
            parked,
            seen,
            self._aside,
            columns,
            digest,
            self._replays and digest[0] > 0,
            self._start.tick,
            self._examples,
            self._future.result(),
            frozenset(unheard),
        )

    def _moves(self, name: str, mark: Time) -> bool:
        """Return whether the punctuations of a partition move its promise: their join is not at or before all that it held."""
        less_equal = self._settings.domain.comparison
        return not all(less_equal(mark, time) for time in self._known[name].holds)

    def _stats_columns(self) -> ObservationColumns | None:
        """Return the statistics as columns, when no policy needs more than least and greatest times."""
        if len(self._stats) > 1 or any(need.mark is not None for need in self._needs):
            return None
        return next(iter(self._stats.values())).columns()

    def abort(self) -> None:
        """Remove every file."""
        for writer in (self._rows, self._late, self._parking):
            writer.abort()

    def _of(self, name: str) -> _Partition:
        found = self._known.get(name)
        if found is None:
            need = next((i for i, (pattern, _) in enumerate(self._settings.needs) if matched(pattern, name)), None)
            if not matched(name, name) and any(pattern == name for pattern, _ in self._settings.needs):
                raise errors.policy_missing_pattern(name)
            if need is None:
                raise policy_missing(name, [pattern for pattern, _ in self._settings.needs])
            found = self._known[name] = _Partition(tuple(self._start.of(name)), need)
        return found

    def _partitions(self, table: pa.Table, codes: npt.NDArray[np.int8]) -> tuple[list[str], _Ints]:
        """Return the distinct partitions, and each row's index in them.

        Rows without a valid partition get a code (and the index -1).
        """
        settings = self._settings
        if not settings.partition:
            return [WHOLE_STREAM], np.zeros(table.num_rows, dtype=np.int64)
        joined = partition_names(table, settings.partition)
        encoded = joined.dictionary_encode()
        encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
        at = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        names = _texts_of(encoded.dictionary)
        codes[at < 0] = NULL_PARTITION  # whatever its time is: it has no partition
        wrong = [i for i, name in enumerate(names) if name is None or partition_name_problem(name)]
        if wrong:
            bad = np.isin(at, wrong)
            codes[bad] = BAD_PARTITION
            at[bad] = -1
            place = np.cumsum([0 if i in set(wrong) else 1 for i in range(len(names))]) - 1
            at = np.where(at < 0, -1, place[at])
            names = [name for i, name in enumerate(names) if i not in set(wrong)]
        return [name for name in names if name is not None], at

    def _rows_needing(self, at: _Ints, known: list[_Partition], need: int) -> _Mask | None:
        """Return the rows whose partitions have this need, or ``None`` for all rows."""
        if len(self._needs) == 1 or not known:
            return None
        of: _Mask = np.array([p.need == need for p in known], dtype=np.bool_)[at]
        return of

    def _mark_columns(
        self,
        table: pa.Table,
        times: pa.Array,
        codes: npt.NDArray[np.int8],
        at: _Ints,
        names: list[str],
        known: list[_Partition],
    ) -> list[tuple[pa.Array, _Mask]]:
        """Return the punctuations: for each need that has such a column, the column's times and the rows that carry one."""
        result = []
        for i, need in enumerate(self._needs):
            if need.mark is None:
                continue
            mine = self._rows_needing(at, known, i)
            column = table.column(need.mark)
            if pa.types.is_boolean(column.type):
                carries = column.combine_chunks().fill_null(False).to_numpy(zero_copy_only=False).astype(np.bool_) & (codes == 0)
                marks = times
            else:
                marks, found = check_times(column, self._settings.domain)
                carries = found == 0
                wrong = (found > 1) & (codes == 0)
                codes[wrong if mine is None else wrong & mine] = BAD_MARK
                if (beyond := self._beyond(marks, at, known)) is not None:
                    future, compared = beyond
                    future &= carries if mine is None else carries & mine
                    aside = future & (codes == 0)
                    codes[aside] = FUTURE_MARK
                    self._future.add(compared, at, names, aside)
                    carries &= ~future
            carries &= (at >= 0) & (codes < FUTURE)
            result.append((marks, carries if mine is None else carries & mine))
        return result

    def _beyond(self, times: pa.Array, at: _Ints, known: list[_Partition]) -> tuple[_Mask, _Ints] | None:
        """Return which times are too far ahead of the clock, and what was compared, or ``None`` if none is."""
        return self._future.beyond(times, at, lambda: [p.need for p in known]) if known else None

    def _moving(self, names: list[str], at: _Ints, codes: npt.NDArray[np.int8]) -> list[str]:
        """Return the partitions that have a row which is not too far ahead of the clock."""
        moving = codes < FUTURE
        if moving.all():
            return names
        return [names[i] for i in np.unique(at[moving & (at >= 0)]).tolist()]

    def _silent(self, table: pa.Table, at: _Ints, known: list[_Partition]) -> tuple[_Mask, _Mask]:
        """Return the rows that are not written, and those of them that are counted nevertheless."""
        silent = np.zeros(table.num_rows, dtype=np.bool_)
        counted = np.zeros(table.num_rows, dtype=np.bool_)
        for i, need in enumerate(self._needs):
            if need.silent is None:
                continue
            flags = table.column(need.silent).combine_chunks().fill_null(False).to_numpy(zero_copy_only=False).astype(np.bool_)
            mine = self._rows_needing(at, known, i)
            flags = flags if mine is None else flags & mine
            silent |= flags
            if need.silent_counts:
                counted |= flags
        return silent, counted

    def _count(self, column: pa.Array, times: pa.Array, at: _Ints, known: list[_Partition], mask: _Mask) -> None:
        for by_time, stats in self._stats.items() if known else ():
            mine = mask
            if len(self._stats) > 1:
                mine = mask & np.array([self._needs[p.need].times == by_time for p in known], dtype=np.bool_)[at]
            stats.add(column, times, mine)

    def _under(self, times: pa.Array, at: _Ints, known: list[_Partition]) -> _Ints | None:
        """Return, for each row, which capability of its partition allows it (``None`` in a total order: the least one does)."""
        domain = self._settings.domain
        if domain.is_total:
            return None
        under = np.full(len(times), -1, dtype=np.int64)
        held = list(dict.fromkeys(time for p in known for time in p.holds))
        for i, time in enumerate(held):
            has = np.array([time in p.holds for p in known], dtype=np.bool_)[at]
            under[(under < 0) & has & ~behind(times, Antichain(domain, [time]))] = i
        return under

    def _keep(self, table: pa.Table, times: pa.Array, at: _Ints, known: list[_Partition], keep: _Mask) -> None:
        settings = self._settings
        channel_times = settings.to_channel_times(times)
        rows = table.set_column(
            table.schema.get_field_index(settings.time), settings.channel_schema.field(settings.time), channel_times
        )
        if settings.late_columns:
            rows = rows.drop_columns(list(settings.late_columns))
        ahead = self._parking.too_far(times)
        if ahead is not None and (ahead & keep).any():
            self._parking.write(rows, times, ahead & keep, self._under(times, at, known))
            keep = keep & ~ahead
        if keep.all():
            self._rows.write(rows)
        elif keep.any():
            self._rows.write(rows.filter(pa.array(keep)))

    def _set_aside(
        self, table: pa.Table, column: pa.Array, at: _Ints, known: list[_Partition], codes: npt.NDArray[np.int8], aside: _Mask
    ) -> None:
        settings = self._settings
        if settings.on_late == "fail":
            raise self._refused(table, column, at, known, codes, int(aside.argmax()))
        rows = table.filter(pa.array(aside))
        who, why = column.filter(pa.array(aside)), codes[aside]
        reasons = pa.array(REASONS).take(pa.array(why.astype(np.int64)))
        groups = pa.table([who, reasons, np.arange(rows.num_rows)], names=["p", "r", "i"]).group_by(["p", "r"])
        for entry in groups.aggregate([([], "count_all"), ("i", "min")]).to_pylist():
            key = (entry["p"], entry["r"])
            self._aside[key] = self._aside.get(key, 0) + entry["count_all"]
            if key not in self._examples:
                self._examples[key] = shown_value(rows.column(settings.time)[entry["i_min"]])[:_SHOWN_CHARS]
        held = [p.holds for p in known]
        lengths = np.cumsum([0, *(len(times) for times in held), 0])
        flat = without_least(array_of([time for times in held for time in times], settings.domain), settings.domain)
        lists = pa.ListArray.from_arrays(pa.array(lengths, pa.int32()), flat)
        places = np.where(at[aside] < 0, len(held), at[aside])
        count = rows.num_rows
        more = [
            reasons,
            who,
            lists.take(pa.array(places)),
            pa.array(np.full(count, self._arrival, dtype=np.int64)).cast(pa.timestamp("us", "UTC")),
            pa.array(np.full(count, self._batch, dtype=np.int64)),
            pa.array([self._query] * count, pa.string()),
        ]
        columns = [value.cast(field.type) for value, field in zip([*rows.columns, *more], settings.late_schema, strict=True)]
        self._late.write(pa.Table.from_arrays(columns, schema=settings.late_schema))

    def _refused(
        self, table: pa.Table, column: pa.Array, at: _Ints, known: list[_Partition], codes: npt.NDArray[np.int8], row: int
    ) -> IngestError:
        domain, name = self._settings.domain, column[row].as_py()
        if codes[row] >= FUTURE:
            value = shown_value(table.column(self._settings.time)[row])
            return self._future.refused(name, value, REASONS[codes[row]])
        if codes[row] != LATE:
            value = shown_value(table.column(self._settings.time)[row])
            return errors.row_invalid(name, self._settings.time, value, REASONS[codes[row]])
        time = times_of(check_times(table.column(self._settings.time).slice(row, 1), domain)[0], domain)[0]
        held = known[at[row]].holds
        return errors.row_late(name, self._settings.time, domain.format(time), Antichain(domain, held).format())

    def __enter__(self) -> IngestTask:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.abort()


def _texts_of(names: pa.StringArray) -> list[str | None]:
    """Return texts, and ``None`` for one whose bytes are no UTF-8: Spark does not check what is cast from binary."""
    try:
        return list(names.to_pylist())
    except UnicodeDecodeError:
        return [_text_of(name) for name in names]


def _text_of(name: pa.StringScalar) -> str | None:
    try:
        text: str = name.as_py()
    except UnicodeDecodeError:
        return None
    return text
