"""The input of a producer: its airport's events and schedule as two small Parquet files, and the model's clock as a third."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from flights.data import AIRPORTS
from flights.manifest import DOMAIN, schedule
from strandline.time.arrow import time_field

__all__ = ["SCHEMA", "Clock", "read_events", "read_schedule", "write_trace"]

SCHEMA = pa.schema(
    [
        time_field("time", DOMAIN),
        ("airport", pa.string()),
        ("scheduled", pa.timestamp("us", tz="UTC")),
        ("departed", pa.timestamp("us", tz="UTC")),
        ("delay", pa.int32()),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("tailnum", pa.string()),
        ("dest", pa.string()),
    ]
)
"""The channel's rows: a flight that left, ``delay`` in minutes."""

_EVENTS = ["hour", "scheduled", "departed", "delay", "carrier", "flight", "tailnum", "dest", "cancelled", "step"]


def write_trace(folder: Path, flights: pd.DataFrame, arrivals: pd.DataFrame) -> None:
    """Write every airport's part of ``told`` (see :func:`flights.data.events`) and of the schedule into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for airport in AIRPORTS:
        mine = arrivals.loc[arrivals["airport"] == airport, _EVENTS]
        pq.write_table(pa.Table.from_pandas(mine, preserve_index=False), folder / f"{airport}.events.parquet")
        hours = schedule(flights, airport)
        pq.write_table(pa.table({"hour": list(hours), "flights": list(hours.values())}), folder / f"{airport}.schedule.parquet")


def read_events(folder: Path, airport: str) -> pa.Table:
    """An airport's events, in its own order."""
    return pq.read_table(folder / f"{airport}.events.parquet")


def read_schedule(folder: Path, airport: str) -> dict[int, int]:
    """An airport's schedule: flights by hour."""
    table = pq.read_table(folder / f"{airport}.schedule.parquet")
    return dict(zip(table["hour"].to_pylist(), table["flights"].to_pylist(), strict=True))


class Clock:
    """The model's clock, a file: the step (hours since 1970) that producers may go up to and including.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clock = Clock(Path(folder) / "clock")
    ...     clock.set(376944)
    ...     Clock(Path(folder) / "clock").get()
    376944
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def set(self, step: int) -> None:
        """Move it on; a reader sees the old value or the new one."""
        draft = self.path.with_suffix(".tmp")
        draft.write_text(str(step))
        os.replace(draft, self.path)

    def get(self) -> int:
        """The step, -1 before it was set."""
        try:
            return int(self.path.read_text())
        except FileNotFoundError:
            return -1
