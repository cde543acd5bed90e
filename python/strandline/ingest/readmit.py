"""Readmission: rows that were set aside come back as corrections, at a later coordinate of time, exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from strandline.antichain import Antichain
from strandline.arrow import arrow_type
from strandline.channel import Channel
from strandline.channel.statement import REGISTRAR
from strandline.errors import StrandlineError
from strandline.ingest.errors import IngestError
from strandline.ingest.late import LateTable, pending
from strandline.ingest.settings import policy_needs
from strandline.ingest.standing import CORRECTIONS
from strandline.ingest.text import parse_policy
from strandline.ingest.times import check_times

__all__ = ["Readmitted", "readmit"]


@dataclass(frozen=True)
class Readmitted:
    """What one call of :func:`readmit` did: the correction's number, its rows, how many it left behind, and the commit."""

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
    """Bring the rows that were set aside since the last call into the channel, as its next correction.

    The channel is one that was ingested with ``corrections``, so that its times are ``product(event, correction)``: rows came in
    with correction 0, and a row that was late joins as ``(its time, k)`` in the k-th call that found any. Correction k is
    complete with its commit, so what groups by time emits each correction of an hour once.

    The batches that were looked at are remembered in the commit of the rows: a crash anywhere loses and doubles nothing, and of
    two calls at once the second fails. ``where`` is given the new rows of the late table (``_reason`` and the others among their
    columns) and returns those that are to come in, mended if need be; the others are not asked about again once some came in. By
    default those that were late come in, and rows without a valid time do not. Rows that only cancel one that was announced
    never do. A table that was rewritten meanwhile (OPTIMIZE, DELETE, UPDATE) is read as it is.

    Raises :class:`IngestError` when the channel takes no corrections, or a row has no valid time.

    ``readmit("/lake/flights")``
    """
    channel = Channel.open(path, storage)
    known = channel.producers.get(CORRECTIONS)
    if [name for name, _ in channel.domain.coordinates] != ["event", "correction"] or known is None:
        raise IngestError(
            "STRANDLINE_CORRECTIONS_UNSUPPORTED",
            f"{path} takes no corrections: its times are of {channel.domain}.",
            "Ingest into a new channel with corrections=True.",
        )
    correction = min((time[1] for time in known.holds), default=0)
    if correction < 1:
        raise IngestError(
            "STRANDLINE_CORRECTIONS_UNSUPPORTED",
            f"{path} is not ready for corrections: no batch of its ingest has been committed yet.",
            "Start the ingest first.",
        )
    done: dict[str, int] = (known.state or {}).get("done", {})
    late_path = late_path or f"{path.rstrip('/')}_late"
    registrar = channel.progress.get(REGISTRAR)
    common: dict[str, Any] = (registrar.state if registrar else None) or {}
    for where_to, publication in pending(common):
        if where_to == late_path:
            LateTable(late_path, storage).publish(publication)
    found = _new_rows(late_path, done, storage)
    rows = found.filter(_real(found, common))
    chosen = rows.filter(pc.equal(rows.column("_reason"), "late")) if where is None else where(rows)
    if not chosen.num_rows:
        return Readmitted(None, 0, found.num_rows, None)
    table = _corrected(chosen, channel, correction)
    newest = found.group_by("_query").aggregate([("_batch", "max")]).to_pylist()
    seen = {**done, **{entry["_query"]: entry["_batch_max"] for entry in newest}}
    least = channel.domain.coordinates[0][1].minimum
    with channel.file_writer("correction") as writer:
        writer.write(table)
        files, times = writer.finish()
        version = channel.append(
            files,
            statements={CORRECTIONS: Antichain(channel.domain, [(least, correction + 1)])},
            times=times,
            spans=writer.spans,
            states={CORRECTIONS: {"done": seen}},
            transaction=(CORRECTIONS, correction),
            take_over=True,
        )
        if version is None:
            raise IngestError(
                "STRANDLINE_READMIT_OVERTAKEN",
                f"Another call has committed correction {correction} of {path} meanwhile; nothing of this one was written.",
                "Call again: it takes up what is left.",
            )
    return Readmitted(correction, table.num_rows, found.num_rows - table.num_rows, version)


def _real(rows: pa.Table, common: Mapping[str, Any]) -> pa.Array:
    """Which rows are rows of the stream: not those that only say that one of those announced will not come."""
    real = np.ones(rows.num_rows, dtype=np.bool_)
    queries, names = rows.column("_query").to_pylist(), rows.column("_partition").to_pylist()
    by_query = {query: _cancelled_columns(common.get(query)) for query in set(queries)}
    columns = {
        (query, name): next((column for pattern, column in by_query[query] if fnmatchcase(name or "", pattern)), None)
        for query, name in set(zip(queries, names, strict=True))
    }
    for column in {column for column in columns.values() if column in rows.column_names}:
        mine = np.array([columns[key] == column for key in zip(queries, names, strict=True)], dtype=np.bool_)
        flags = rows.column(column).combine_chunks().fill_null(False).to_numpy(zero_copy_only=False).astype(np.bool_)
        real &= ~(mine & flags)
    return pa.array(real)


def _cancelled_columns(entry: Any) -> list[tuple[str, str | None]]:
    """By partition pattern, the column that is true in cancelled rows of a query."""
    if not isinstance(entry, dict):
        return []
    if "cancelled" in entry:
        return [(pattern, column) for pattern, column in entry["cancelled"]]
    with suppress(StrandlineError, ImportError):  # a channel of an earlier release names the policy only
        needs = policy_needs(parse_policy(entry.get("policy", "")))
        return [(pattern, need.silent if need.silent_counts else None) for pattern, need in needs]
    return []


def _new_rows(path: str, done: Mapping[str, int], storage: Mapping[str, str] | None) -> pa.Table:
    """The rows of the late table that are of batches not looked at yet."""
    table = DeltaTable(path, storage_options=dict(storage) if storage else None)
    # Filtered here: deltalake takes the bound of a long string, which statistics leave out, for null, and its filters then err.
    parts = [pa.Table.from_batches([batch]).filter(_new(batch, done)) for batch in table.to_pyarrow_dataset().to_batches()]
    return pa.concat_tables(parts) if parts else pa.table(table.to_pyarrow_table())


def _new(batch: pa.RecordBatch, done: Mapping[str, int]) -> pa.Array:
    """Which rows are of batches not looked at yet."""
    queries, seen = batch.column("_query").dictionary_encode(), batch.column("_batch").to_numpy(zero_copy_only=False)
    last = np.array([done.get(query, -1) for query in queries.dictionary.to_pylist()], dtype=np.int64)
    return pa.array(seen > last[queries.indices.to_numpy(zero_copy_only=False)])


def _corrected(rows: pa.Table, channel: Channel, correction: int) -> pa.Table:
    """The rows as the channel's, their times in the correction."""
    name, event = channel.time_column, channel.domain.coordinates[0][1]
    times, codes = check_times(rows.column(name), event)
    if codes.any():
        at = int(np.argmax(codes != 0))
        raise IngestError(
            "STRANDLINE_ROW_INVALID",
            f"A row to readmit has {name} = {rows.column(name)[at].as_py()!r}, which is no time of {event}.",
            "Leave it out with where, or mend it there.",
        )
    count = pa.array(np.full(rows.num_rows, correction, dtype=np.int64))
    time = pa.StructArray.from_arrays([times, count], fields=list(arrow_type(channel.domain)))
    columns = [time if field.name == name else rows.column(field.name).cast(field.type) for field in channel.schema]
    return pa.table(columns, schema=channel.schema)
