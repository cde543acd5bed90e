"""``show`` = ``frontiers`` or ``holds``: of all channels at or below a path."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from pyspark_strandline.options import ReadOptions
from strandline.delta.storage import location_of
from strandline.report.overview import FRONTIERS, HOLDS, Found, find_channels, rows_of

__all__ = ["OverviewReader", "schema_of"]

_MOST_TASKS = 16
_SCHEMAS = {"frontiers": FRONTIERS, "holds": HOLDS}


def schema_of(show: str) -> StructType:
    """Return the schema of ``frontiers`` or ``holds``."""
    return from_arrow_schema(_SCHEMAS[show])


class OverviewReader(DataSourceReader):
    """Finds the channels when the query is planned. Tasks read their logs."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the channels that are named or found, dealt out to at most 16 tasks."""
        found = [asdict(each) for each in self._found()]
        beside = {"table": self._options.show, "version": 0}  # the shim asks for both, and then plans each execution anew
        parts = [found[at::_MOST_TASKS] for at in range(min(_MOST_TASKS, len(found)))]
        return [InputPartition(json.dumps(beside | {"found": part})) for part in parts]

    def _found(self) -> list[Found]:
        named = self._options.channels
        if named is None:
            return find_channels(self._options.path, self._options.storage)
        return [Found(name, location_of(path), True) for name, path in named.items()]

    def read(self, partition_: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: yield the rows of some channels."""
        show = self._options.show
        for each in json.loads(partition_.value)["found"]:
            rows = rows_of(show, Found(**each), self._options.storage)
            yield from pa.Table.from_pylist(rows, _SCHEMAS[show]).to_batches()
