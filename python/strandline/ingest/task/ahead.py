"""Parking: rows too far ahead of the frontier are written beside the channel, and join it when the frontier comes near."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.channel import FileWriter
from strandline.ingest.names import PARKED_FOLDER
from strandline.ingest.parked.parcel import Parked
from strandline.ingest.settings import Settings
from strandline.ingest.task.batch_start import BatchStart
from strandline.ingest.task.partition_stats import PartitionStats
from strandline.time.arrow import leaf_columns

__all__ = ["AheadWriter"]

_MOST_FILES = 16

_Mask: TypeAlias = npt.NDArray[np.bool_]
_Ints: TypeAlias = npt.NDArray[np.int64]


class AheadWriter:
    """Writes a task's rows beyond ``maxAhead`` to files that each span at most that much (files of the farthest rows: more)."""

    def __init__(self, settings: Settings, start: BatchStart, name: str) -> None:
        self._settings, self._limit, self._name = settings, start.limit, name
        self._writers: dict[tuple[int | None, int], tuple[FileWriter, PartitionStats]] = {}

    def too_far(self, times: pa.Array) -> _Mask | None:
        """Return which rows are beyond the limit of the batch, or ``None`` when there are no such rows."""
        if self._limit is None:
            return None
        far: _Mask = _first(times) > self._limit
        return far if far.any() else None

    def write(self, rows: pa.Table, times: pa.Array, mask: _Mask, under: _Ints | None) -> None:
        """Park the rows of ``mask``. Only rows ``under`` the same capability share a file, because it also allows their meet."""
        buckets = _first(times) // max(1, self._settings.max_ahead or 1)
        under = np.zeros(len(mask), dtype=np.int64) if under is None else under
        places, whose = np.unique(np.stack([buckets[mask], under[mask]]), axis=1, return_inverse=True)
        keys: list[tuple[int | None, int]] = []
        known = set(self._writers)
        for bucket, held in places.T.tolist():
            keys.append((bucket, held) if (bucket, held) in known or len(known) < _MOST_FILES else (None, held))
            known.add(keys[-1])
        chosen_by = np.full(len(mask), -1)
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        chosen_by[mask] = np.array([numbers[key] for key in keys])[whose.ravel()]
        for key, number in numbers.items():
            mine = chosen_by == number
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


def _first(times: pa.Array) -> _Ints:
    """Return each row's first coordinate, in 64 bits: a smaller type does not have every limit."""
    return leaf_columns(times)[0].astype(np.int64, copy=False)
