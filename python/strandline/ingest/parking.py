"""Parking: rows that are too far ahead of the frontier are written beside the channel, and join it when the frontier is near."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.channel import FileWriter
from strandline.ingest.report import Parked
from strandline.ingest.settings import Settings
from strandline.ingest.start import Start

__all__ = ["Parking"]

_Mask: TypeAlias = npt.NDArray[np.bool_]


class Parking:
    """A task's rows beyond ``maxAhead``."""

    def __init__(self, settings: Settings, start: Start, name: str) -> None:
        self._settings, self._start, self._name = settings, start, name
        self._writers: dict[int, FileWriter] = {}

    def too_far(self, times: pa.Array) -> _Mask | None:
        """Which rows are beyond the limit of the batch; ``None`` when there is none."""
        return None

    def write(self, rows: pa.Table, times: pa.Array, column: pa.Array | None, mask: _Mask) -> None:
        """Park rows."""
        raise NotImplementedError

    def finish(self) -> list[Parked]:
        """Close the files."""
        return []

    def abort(self) -> None:
        """Remove the files."""
        for writer in self._writers.values():
            writer.abort()
