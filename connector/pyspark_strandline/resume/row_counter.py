"""Counts the rows of a first batch that are not written, because the output has them."""

from __future__ import annotations

from types import TracebackType

import pyarrow as pa

from strandline.channel.statements.message_times import TimeCounts
from strandline.channel.statements.statement import Span
from strandline.channel.write.file_writer import conform
from strandline.delta.data_file import DataFile
from strandline.time.domain import Time, TimeDomain

__all__ = ["RowCounter"]


class RowCounter:
    """Counts rows by time. It is used as a :class:`~strandline.channel.write.file_writer.FileWriter` is, and writes nothing.

    >>> from strandline.time.arrow import time_field
    >>> from strandline.time.domain import int64
    >>> counter = RowCounter(pa.schema([time_field("time", int64)]), "time", int64)
    >>> counter.write(pa.table({"time": [3, 4, 3]}))
    >>> counter.finish()
    ([], [(3, 2), (4, 1)])
    """

    def __init__(self, schema: pa.Schema, time_column: str, domain: TimeDomain) -> None:
        self._schema, self._time_column = schema, time_column
        self._times = TimeCounts(domain, time_column)
        self.spans: list[Span] = []

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Count rows. Raises if they have another schema, or a time is null."""
        self._times.add(conform(rows, self._schema).column(self._time_column))

    def finish(self) -> tuple[list[DataFile], list[tuple[Time, int]]]:
        """Return no files, and the rows by time."""
        times, self.spans = self._times.result()
        return [], times

    def __enter__(self) -> RowCounter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass
