"""Parking: rows too far ahead of the frontier are written beside the channel, and join it when the frontier comes near."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.channel import DataFile, FileWriter, ProducerState
from strandline.delta.file_stats import delta_stats
from strandline.delta.storage import open_store
from strandline.errors import IngestError
from strandline.ingest.names import PARKED_FOLDER
from strandline.ingest.recorded import parked_state
from strandline.ingest.settings import Settings
from strandline.ingest.task.batch_start import BatchStart
from strandline.ingest.task.partition_stats import PartitionStats
from strandline.ingest.task.task_report import Parked
from strandline.time.antichain import Antichain, join_antichains
from strandline.time.arrow import find_time_field, leaf_columns
from strandline.time.domain import Scalar, Time, TimeDomain

__all__ = ["AheadWriter", "near", "parked_beyond", "parked_from_json", "release", "with_stats"]

_MOST_FILES = 16

_Mask: TypeAlias = npt.NDArray[np.bool_]


class AheadWriter:
    """Writes a task's rows beyond ``maxAhead`` to files that each span at most that much (files of the farthest rows: more)."""

    def __init__(self, settings: Settings, start: BatchStart, name: str) -> None:
        self._settings, self._limit, self._name = settings, start.limit, name
        self._writers: dict[tuple[int | None, int], tuple[FileWriter, PartitionStats]] = {}

    def too_far(self, times: pa.Array) -> _Mask | None:
        """Return which rows are beyond the limit of the batch, or ``None`` when there are no such rows."""
        if self._limit is None:
            return None
        far: _Mask = leaf_columns(times)[0] > self._limit
        return far if far.any() else None

    def write(self, rows: pa.Table, times: pa.Array, mask: _Mask, under: npt.NDArray[np.int64] | None) -> None:
        """Park the rows of ``mask``. Only rows ``under`` the same capability share a file, because it also allows their meet."""
        ahead = leaf_columns(times)[0]
        buckets = ahead // max(1, self._settings.max_ahead or 1)
        under = np.zeros(len(mask), dtype=np.int64) if under is None else under
        for bucket, held in np.unique(np.stack([buckets[mask], under[mask]]), axis=1).T.tolist():
            mine = mask & (buckets == bucket) & (under == held)
            key = (bucket if (bucket, held) in self._writers or len(self._writers) < _MOST_FILES else None, held)
            if key not in self._writers:
                s = self._settings
                writer = FileWriter(s.path, s.channel_schema, None, None, s.storage, self._name, PARKED_FOLDER)
                self._writers[key] = (writer, PartitionStats(s.channel_domain))
            writer, stats = self._writers[key]
            chosen = rows.filter(pa.array(mine))
            writer.write(chosen)
            column = chosen.column(self._settings.time).combine_chunks()
            array = column if not isinstance(column, pa.ChunkedArray) else pa.concat_arrays(column.chunks)
            stats.add(pa.array([""] * chosen.num_rows), array)

    def finish(self) -> list[Parked]:
        """Close the files, and return what is in them."""
        parked = []
        for writer, stats in self._writers.values():
            files, _ = writer.finish()
            ((rows, least, greatest),) = stats.bounds().values()
            parked.append(Parked(tuple(files), least, greatest, rows))
        return parked

    def abort(self) -> None:
        """Remove the files."""
        for writer, _ in self._writers.values():
            writer.abort()


def near(domain: TimeDomain, frontier: Iterable[Time], ahead: int) -> int:
    """Return the greatest first coordinate that rows may have when the frontier is at ``frontier``."""
    least: int = min(time if isinstance(domain, Scalar) else _first(time) for time in frontier)
    return least + ahead


def parked_beyond(name: str, known: ProducerState | None, domain: TimeDomain) -> int:
    """Return the least first coordinate of a row that may be parked with the rows that already wait.

    What is held for the waiting rows also covers such a row. A smaller ``maxAhead`` takes full effect only when no rows wait that
    were parked under a greater one.
    """
    if known is None or not known.holds:
        return -(1 << 63)
    beyond = parked_state(name, known).get("beyond")
    firsts = (time if isinstance(domain, Scalar) else _first(time) for time in known.holds)
    return max(firsts) if beyond is None else beyond


def _first(time: Time) -> int:
    while isinstance(time, tuple):
        time = time[0]
    return int(time)


def release(
    parcels: Iterable[Parked],
    frontier: Antichain,
    ahead: int | None,
    held: Antichain,
    beyond: int,
    held_after: Callable[[], Antichain],
) -> tuple[list[Parked], Antichain, dict[str, Any]]:
    """Decide which parked rows join the channel when the frontier is at ``frontier``.

    Args:
        parcels: The parked rows.
        frontier: The frontier.
        ahead: How far ahead of the frontier rows may be in the channel, or ``None`` for no limit.
        held: What may be held at all.
        beyond: What :func:`parked_beyond` returns for the rows that already wait.
        held_after: Returns what the partitions hold whose rows may have to wait in the future.

    Returns:
        The parcels that join, what is held for the others, and the state that says where the others are.
    """
    domain = frontier.domain
    joining, stay = (list(parcels), []) if ahead is None else _released(parcels, frontier, ahead)
    state: dict[str, Any] = {"rows": sum(p.rows for p in stay), "parked": _to_json(stay, domain)}
    if not stay or ahead is None:
        return joining, Antichain(domain), state
    # No row that is parked from now on is before this time. The time is beyond the frontier, so it holds nothing back.
    beyond = max(near(domain, frontier, ahead) + 1, beyond)
    limit = [beyond if not domain.coordinates else _with_first(domain.minimum, beyond)]
    holds = join_antichains(domain, held, limit)
    if not domain.is_total:
        # Waiting rows may not be in advance of what their partitions hold by now. Rows that arrive later will be.
        holds = Antichain(domain, [*(parcel.least for parcel in stay), *join_antichains(domain, held_after(), limit)])
    return joining, holds, {**state, "beyond": beyond, "ahead": ahead}


def _with_first(time: Any, value: int) -> Any:
    return (value if isinstance(time[0], int) else _with_first(time[0], value), *time[1:])


def _released(parked: Iterable[Parked], frontier: Antichain, ahead: int) -> tuple[list[Parked], list[Parked]]:
    """Return the parcels that may join the channel at this frontier, and those that stay. All may join when nothing is held."""
    if not len(frontier):
        return list(parked), []
    limit = near(frontier.domain, frontier, ahead)
    joining: list[Parked] = []
    stay: list[Parked] = []
    for parcel in parked:
        (joining if _first(parcel.least) <= limit else stay).append(parcel)
    return joining, stay


def with_stats(path: str, schema: pa.Schema, storage: Mapping[str, str] | None, parcels: Iterable[Parked]) -> list[DataFile]:
    """Return the parcels' files with Delta's statistics, which were not kept while the files were parked."""
    store = open_store(path, storage)
    time, _ = find_time_field(schema)
    files = []
    for parcel in parcels:
        for file in parcel.files:
            try:
                size = store.size(file.path)
                with store.open_input(file.path) as source:
                    metadata = pq.read_metadata(source)
            except pa.ArrowException as error:
                raise _differs(path, file, parcel) from error
            except FileNotFoundError as error:
                raise IngestError(
                    "STRANDLINE_PARKED_FILE_MISSING",
                    f"The file {file.path!r} with {file.rows} rows that are parked beyond maxAhead does not exist in {path}.",
                    "Restore the file from a backup. Or stop the query, and call release_parked(path, take_over=True, "
                    "forget_missing=True), which gives these rows up.",
                ) from error
            if size != file.size or not _has_columns(metadata, schema, time):
                raise _differs(path, file, parcel)
            _check_parked(path, file, parcel, metadata, time)
            stats = delta_stats(metadata, metadata.schema.to_arrow_schema())  # columns of the channel may have come later
            files.append(DataFile(file.path, file.size, file.rows, json.dumps(stats, separators=(",", ":"))))
    return files


def _check_parked(path: str, file: DataFile, parcel: Parked, metadata: pq.FileMetaData, time: str) -> None:
    """Raise :class:`IngestError` unless the file has as many rows as stated, at times between those that are stated."""
    inside = metadata.num_rows == file.rows
    columns = [i for i in range(metadata.num_columns) if f"{metadata.schema.column(i).path}.".startswith(f"{time}.")]
    bounds = list(zip(columns, _leaves(parcel.least), _leaves(parcel.greatest), strict=True))
    for group in range(metadata.num_row_groups):
        for column, least, greatest in bounds:
            stats = metadata.row_group(group).column(column).statistics
            if stats is None or not stats.has_min_max:
                inside = False
                continue
            ends = (stats.min_raw, stats.max_raw) if isinstance(stats.min, datetime) else (stats.min, stats.max)
            inside &= least <= ends[0] and ends[1] <= greatest and not stats.null_count
    if not inside:
        raise _differs(path, file, parcel)


def _has_columns(metadata: pq.FileMetaData, schema: pa.Schema, time: str) -> bool:
    """Whether a file has the time column, and no column that the channel does not have in this form.

    It may lack a column that the channel got later.
    """
    empty = pa.BufferOutputStream()
    pq.ParquetWriter(empty, schema.remove_metadata(), store_schema=False).close()
    expected = _columns(pq.read_metadata(pa.BufferReader(empty.getvalue())))
    found = _columns(metadata)
    whole = {path for path in expected if f"{path}.".startswith(f"{time}.")}
    return whole <= found.keys() and found.items() <= expected.items()


def _columns(metadata: pq.FileMetaData) -> dict[str, tuple[str, str, int, int]]:
    """Return the form of each Parquet column by its path."""
    columns = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    return {c.path: (c.physical_type, str(c.logical_type), c.max_definition_level, c.max_repetition_level) for c in columns}


def _differs(path: str, file: DataFile, parcel: Parked) -> IngestError:
    return IngestError(
        "STRANDLINE_PARKED_FILE_DIFFERS",
        f"The file {file.path!r} of {path} does not have the {file.rows} rows from {parcel.least} to {parcel.greatest} that "
        "the log states for it, in the channel's columns. Nothing was written.",
        "The file or the log was changed: restore them from a backup.",
    )


def _leaves(time: Time) -> list[int]:
    """Return the coordinates of a time, from left to right."""
    return [leaf for part in time for leaf in _leaves(part)] if isinstance(time, tuple) else [int(time)]


def _to_json(parked: Iterable[Parked], domain: TimeDomain) -> list[Any]:
    """Return the form that a statement carries. It is as short as possible, because every commit that changes it repeats it."""
    return [
        [[[f.path, f.size, f.rows] for f in p.files], domain.to_json(p.least), domain.to_json(p.greatest), p.rows] for p in parked
    ]


def parked_from_json(state: Mapping[str, Any], domain: TimeDomain) -> list[Parked]:
    """Return the parcels that a state from :func:`release` names."""
    return [
        Parked(
            tuple(DataFile(path, size, rows) for path, size, rows in files),
            domain.from_json(least),
            domain.from_json(greatest),
            count,
        )
        for files, least, greatest, count in state.get("parked", ())
    ]
