"""Readmission: rows that were set aside come back as corrections, at a later coordinate of time, exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from strandline.channel import Channel, ProducerState, WriterSession
from strandline.channel.write.append import Append
from strandline.delta.log import DeltaLog
from strandline.delta.read_file import open_parquet
from strandline.delta.storage import location_of, open_store
from strandline.delta.store_errors import native
from strandline.delta.table import open_delta
from strandline.ingest.columns.time_column import check_times, shown_value
from strandline.ingest.late import errors
from strandline.ingest.late.late_table import (
    assignment_of,
    begins_with,
    pending,
    publish,
    with_all_columns,
)
from strandline.ingest.late.looked_at import LookedAt
from strandline.ingest.names import CORRECTIONS, late_path_beside
from strandline.ingest.state.corrections_state import CorrectionsState, Ranges
from strandline.ingest.state.query_entry import QueryEntry
from strandline.ingest.state.registrar_state import RegistrarState
from strandline.time.antichain import Antichain
from strandline.time.arrow import arrow_type

__all__ = ["Readmitted", "readmit"]

_NEEDED = ("_reason", "_partition", "_batch", "_query")


@dataclass(frozen=True)
class Readmitted:
    """The result of one :func:`readmit` call: the correction's number, how many rows it has and left behind, and the commit."""

    correction: int | None
    rows: int
    left: int
    version: int | None


def readmit(
    path: str,
    late_path: str | None = None,
    *,
    where: Callable[[pa.Table], pa.Table] | None = None,
    storage: Mapping[str, str] | None = None,
) -> Readmitted:
    """Add the rows that were set aside since the last call, as the channel's next correction.

    The channel is one that was ingested with ``corrections``, so its times are ``product(event, correction)``. Rows in time have
    correction 0. A row that was late joins as ``(its time, k)`` in the k-th call that found any rows. Correction k is complete
    with its commit, so a query that groups by time emits each correction of an hour once.

    The commit of the rows remembers the batches that were looked at (:class:`LookedAt`). So a crash at any point loses no rows
    and duplicates none. The same is true when a late table was copied, moved or recreated. When two calls run at once, the second
    fails. A table that was rewritten meanwhile (OPTIMIZE, DELETE, UPDATE) is read as it is.

    Raises :class:`IngestError` when the channel accepts no corrections, the table is not a late table of the channel, or a file
    of the table is gone. Raises it also for rows without a valid time, and for rows that lack a column.

    Args:
        where: Receives the new rows of the late table, with ``_reason`` and the others among their columns. It returns the rows
            to readmit, corrected if necessary. Once it has returned some rows, it does not receive the others again. By default,
            rows that were late are readmitted. The others, such as those without a valid time, stay for a later call with
            ``where``. Rows that only cancel an announced row, and rows that only advance time, are never readmitted.

    ``readmit("/lake/flights")``
    """
    channel = Channel.open(path, storage)
    correction = _next_correction(channel)
    late_path = location_of(late_path or late_path_beside(path))
    for where_to, publication in pending(channel):
        if where_to == late_path:
            publish(late_path, publication, storage)
    found, looked_at = _found(channel, late_path, late_only=where is None)
    rows = found.filter(_real(found, RegistrarState.of(channel.progress).entries))
    chosen = rows.filter(_was_late(rows)) if where is None else where(rows)
    if not chosen.num_rows:
        return Readmitted(None, 0, found.num_rows, None)
    table = _corrected(chosen, channel, correction)
    for entry in found.group_by("_query").aggregate([("_batch", "distinct")]).to_pylist():
        looked_at = looked_at.through(entry["_query"], entry["_batch_distinct"])
    version = _commit(channel, table, correction, {"late" if where is None else "done": looked_at.to_json()})
    return Readmitted(correction, table.num_rows, found.num_rows - table.num_rows, version)


def _next_correction(channel: Channel) -> int:
    """Return the number of the next correction."""
    correction = min((time[1] for time in _corrections(channel).holds), default=0)
    if correction < 1:
        raise errors.corrections_unsupported_yet(channel.path)
    return int(correction)


def _found(channel: Channel, late_path: str, *, late_only: bool) -> tuple[pa.Table, LookedAt]:
    """Return the rows of the late table that were not looked at, and the batches of which rows were looked at.

    ``late_only``: only rows that were late are wanted, so the batches are those of which these rows were looked at.
    """
    late, queries = _late_table(late_path, channel), list(RegistrarState.of(channel.progress).entries)
    done, late_done = LookedAt.of(channel, "done"), LookedAt.of(channel, "late")
    for query in queries:
        begins = _transaction(late, begins_with(query, channel.table_id), channel)
        if begins is not None:
            done, late_done = done.beginning(query, begins), late_done.beginning(query, begins)
    if late_only:
        return _new_rows(late, late_path, channel, done.or_in(late_done)), late_done
    found = _new_rows(late, late_path, channel, done)
    again = ~_is_new(found, late_done, queries, channel)
    return found.filter(pa.array(~(again & _was_late(found).to_numpy()))), done


def _was_late(rows: pa.Table) -> pa.ChunkedArray:
    return pc.fill_null(pc.equal(rows.column("_reason"), "late"), False)


def _commit(channel: Channel, table: pa.Table, correction: int, looked_at: Mapping[str, Ranges]) -> int:
    """Commit the rows as a correction, with which rows were looked at. Raises if another call was faster."""
    least = channel.domain.coordinates[0][1].minimum
    # From here on, a commit may name the files although its answer is lost. They stay in any case, and are left to VACUUM.
    with channel.file_writer("correction") as writer:
        writer.write(table)
        files, times = writer.finish()

    def decide() -> Append:
        _corrections(channel)  # raises if there are none any more
        return Append(
            session=WriterSession.here(),
            files=files,
            holds={CORRECTIONS: Antichain(channel.domain, [(least, correction + 1)])},
            times=times,
            spans=writer.spans,
            states={CORRECTIONS: CorrectionsState.of(channel.progress).changed(**looked_at).to_json()},
            take_over=True,
        )

    version = channel.append_decided(decide, (CORRECTIONS, correction)).committed
    if version is None:
        if channel.second_copies((CORRECTIONS, correction), [file.path for file in files]):
            writer.abort()
        raise errors.readmit_overtaken(correction, channel.path)
    return version


def _corrections(channel: Channel) -> ProducerState:
    """Return the producer of the corrections. Raises :class:`IngestError` when there is none, or none any more."""
    known = channel.producers.get(CORRECTIONS)
    if [name for name, _ in channel.domain.coordinates] != ["event", "correction"] or known is None:
        raise errors.corrections_unsupported(channel.path, channel.domain)
    if known.seq and not known.holds:
        raise errors.corrections_unsupported_any_more(channel.path)
    return known


def _real(rows: pa.Table, entries: Mapping[str, QueryEntry]) -> pa.Array:
    """Return which rows are rows of the stream, not rows that only state that an announced row will not arrive."""
    real = np.ones(rows.num_rows, dtype=np.bool_)
    whose = list(zip(*(rows.column(name).to_pylist() for name in ("_query", "_batch", "_partition")), strict=True))
    since = {query: (entries.get(query) or QueryEntry()).cancelled or () for query in {query for query, _, _ in whose}}
    columns = {one: _column_of(since[one[0]], *one[1:]) for one in set(whose)}
    for column in {column for column in columns.values() if column in rows.column_names}:
        mine = np.array([columns[one] == column for one in whose], dtype=np.bool_)
        flags = rows.column(column).combine_chunks().fill_null(False).to_numpy(zero_copy_only=False).astype(np.bool_)
        real &= ~(mine & flags)
    return pa.array(real)


def _column_of(since: Sequence[Any], batch: int, partition: str | None) -> str | None:
    """Return the column that is true in cancelled rows of a partition in a batch, if there is one."""
    policies = [columns for first, columns in since if first <= batch]
    return next((column for pattern, column in (policies or [()])[-1] if fnmatchcase(partition or "", pattern)), None)


def _late_table(path: str, channel: Channel) -> DeltaTable:
    late = open_delta(DeltaLog(path, channel.storage_options), channel.storage_options)
    lacking = {*channel.schema.names, *_NEEDED}.difference(pa.schema(late.schema()).names)
    if lacking:
        raise errors.schema_mismatch_no_late_table(path, channel.path, sorted(lacking))
    return late


def _new_rows(late: DeltaTable, path: str, channel: Channel, looked_at: LookedAt) -> pa.Table:
    """Return the late rows of the channel's own queries, from batches that the channel has and that were not looked at yet.

    Only files that may have some are opened, and of these only the ones that have some are read whole. It does not matter how
    often the table was rewritten.
    """
    queries = [query for query in RegistrarState.of(channel.progress).entries if _is_own(late, query, channel)]
    # The rows are filtered here. Statistics leave out the bound of a long string. deltalake takes that bound for null, and then
    # its filters are wrong.
    parts = []
    try:
        with native(path, channel.storage_options):
            wanted = _files_to_read(pa.table(late.get_add_actions(flatten=False)), looked_at, queries)
            protocol = late.protocol()
            plain = protocol.min_reader_version == 1 and not late.metadata().partition_columns
        if not plain:  # a rewritten table may have a form in which its files are not its rows
            _check_files(wanted, path, channel)
            with native(path, channel.storage_options):
                rows = late.to_pyarrow_dataset().to_table() if wanted else pa.schema(late.schema()).empty_table()
            return rows.filter(pa.array(_is_new(rows, looked_at, queries, channel)))
        store, schema = open_store(path, channel.storage_options), pa.schema(late.schema())
        for name, size in wanted.items():
            with open_parquet(store, name, size) as file:
                new = _is_new(file.read(columns=["_query", "_batch"]), looked_at, queries, channel)
                if new.any():
                    parts.append(with_all_columns(file.read().filter(pa.array(new)), schema))
    except FileNotFoundError as error:
        raise errors.late_file_missing_in_table(path, error) from error
    return pa.concat_tables(parts) if parts else pa.schema(late.schema()).empty_table()


def _files_to_read(actions: pa.Table, looked_at: LookedAt, queries: Sequence[str]) -> dict[str, int]:
    """Return the files, with their bytes, that may have rows of these queries from batches that were not looked at yet.

    This goes by the bounds of ``_batch``: a file without them may have some. Bounds of ``_query`` may be cut, and are not used.
    """
    paths, sizes = (actions.column(name).to_pylist() for name in ("path", "size_bytes"))
    bounds: list[list[int | None]] = []
    for name in ("min", "max"):
        known = name in actions.column_names and pa.types.is_struct(kind := actions.schema.field(name).type)
        known = known and kind.get_field_index("_batch") >= 0
        bounds.append(pc.struct_field(actions.column(name), "_batch").to_pylist() if known else [None] * len(paths))
    return {
        unquote(path): size
        for path, size, low, high in zip(paths, sizes, *bounds, strict=True)
        if low is None or high is None or any(looked_at.any_new(query, low, high) for query in queries)
    }


def _check_files(files: Mapping[str, int], path: str, channel: Channel) -> None:
    """Raise unless each of these files is below the table, and is the one that the log names.

    pyarrow's datasets follow links, and have errors of their own for other files. Raises ``FileNotFoundError`` if one is gone.
    """
    store = open_store(path, channel.storage_options)
    for name, size in files.items():
        with open_parquet(store, name, size):
            pass


def _is_own(late: DeltaTable, query: str, channel: Channel) -> bool:
    """Return whether the rows of a query belong to this channel, not to another channel's query with the same id."""
    application, version = assignment_of(query, channel.table_id)
    return _transaction(late, application, channel) in (None, version)


def _transaction(late: DeltaTable, application: str, channel: Channel) -> int | None:
    """Return the version of an application's newest transaction in the late table."""
    with native(late.table_uri, channel.storage_options):
        version: int | None = late.transaction_version(application)
    return version


def _is_new(rows: pa.Table, looked_at: LookedAt, queries: Sequence[str], channel: Channel) -> npt.NDArray[np.bool_]:
    """Return which rows are of these queries, from batches that the channel has and that were not looked at yet."""
    new = np.zeros(rows.num_rows, dtype=np.bool_)
    batches = pc.fill_null(rows.column("_batch"), -1).to_numpy()
    whose = rows.column("_query")
    for query in set(pc.unique(whose).to_pylist()).intersection(queries):
        mine = pc.fill_null(pc.equal(whose, query), False).to_numpy()
        new |= mine & looked_at.new(query, batches) & (batches <= channel.committed(query))
    return new


def _corrected(rows: pa.Table, channel: Channel, correction: int) -> pa.Table:
    """Return the rows with the channel's columns, and their times in the correction."""
    name, event = channel.time_column, channel.domain.coordinates[0][1]
    lacking = set(channel.schema.names).difference(rows.schema.names)
    if lacking:
        raise errors.schema_mismatch_where(sorted(lacking))
    times, codes = check_times(rows.column(name), event)
    if codes.any():
        at = int(np.argmax(codes != 0))
        raise errors.row_invalid_readmitted(name, shown_value(rows.column(name)[at]), event)
    count = pa.array(np.full(rows.num_rows, correction, dtype=np.int64))
    time = pa.StructArray.from_arrays([times, count], fields=list(arrow_type(channel.domain)))
    columns = [time if field.name == name else _cast(rows.column(field.name), field) for field in channel.schema]
    return pa.table(columns, schema=channel.schema)


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise errors.schema_mismatch_where_type(field.name, column.type, field.type, error) from error
