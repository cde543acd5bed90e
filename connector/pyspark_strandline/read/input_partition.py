"""Partitions of the source: which data files a task reads, and how it reads them.

A partition is a plain ``InputPartition`` with JSON, so that the JVM can read it too.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import InputPartition

from pyspark_strandline.read.native_scan import Decision, data_file_missing
from strandline.delta.data_file_columns import DataFiles
from strandline.delta.read_file import open_parquet
from strandline.delta.storage import Store

__all__ = ["hand_over", "plan", "read"]

_log = logging.getLogger(__name__)
_OPEN_COST_BYTES = 4 << 20
# About the largest number of parts that a batch's files are divided into: the log's sizes may be wrong by any factor.
_MOST_PARTS = 20_000
# Rows per record batch. For much smaller batches, the transfer to the JVM costs too much for their content.
_BATCH_ROWS = 1 << 17


@dataclass(frozen=True, slots=True)
class _Share:
    """The files that one partition reads.

    Attributes:
        paths: Their paths.
        sizes: Their sizes in bytes, as the log says them.
        shared: For each file of which it reads a part: the file's number, the part's number and the number of parts.
    """

    paths: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    shared: list[tuple[int, int, int]] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        return {"paths": self.paths, "sizes": self.sizes} | ({"shared": self.shared} if self.shared else {})


def plan(
    decision: Decision, max_bytes: int, min_partitions: int | None, beside: Mapping[str, object] = MappingProxyType({})
) -> list[InputPartition]:
    """Pack files into partitions, in order, as Spark's own file sources do: of about equal size, at most ``max_bytes``.

    Several partitions share a larger file, row group by row group. There are at most about 20 000 partitions, for any sizes
    in the log. ``min_partitions`` defaults to the cores of the driver's machine. There is always at least one partition, so that
    a batch without rows has a task. The first partition says whether the shim may read the files instead of the tasks of all
    partitions. Each has the fields of ``beside`` too.

    >>> from strandline.delta.data_file import DataFile
    >>> files = [DataFile("a", 10, 1), DataFile("b", 200 << 20, 1)]
    >>> for partition in plan(Decision(files, reason="nativeScan is off"), 128 << 20, 1):
    ...     value = json.loads(partition.value)
    ...     print(value["paths"], value["sizes"], value.get("shared"))
    ['a', 'b'] [10, 209715200] [[1, 0, 2]]
    ['b'] [209715200] [[0, 1, 2]]
    """
    files = DataFiles.of(decision.files)
    wanted = min_partitions or os.cpu_count() or 1
    total = sum(files.sizes) + _OPEN_COST_BYTES * len(files)
    max_bytes = max(max_bytes, -(-total // _MOST_PARTS))
    target = max(1, min(max_bytes, max(_OPEN_COST_BYTES, -(-total // wanted))))
    shares = [_Share()]
    filled = 0
    for path, bytes_ in zip(files.paths, files.sizes, strict=True):
        parts = max(1, -(-bytes_ // max_bytes))
        size = bytes_ // parts
        for part in range(parts):
            if filled and filled + size > target:
                shares.append(_Share())
                filled = 0
            current = shares[-1]
            if parts > 1:
                current.shared.append((len(current.paths), part, parts))
            current.paths.append(path)
            current.sizes.append(bytes_)
            filled += size + _OPEN_COST_BYTES
    first, *rest = (share.to_json() for share in shares)
    return [_partition({**value, **beside}) for value in ({**first, "scan": decision.to_json()}, *rest)]


def hand_over(decision: Decision, beside: Mapping[str, object] = MappingProxyType({})) -> list[InputPartition]:
    """Return the decision and the files for the shim, which requests them. Python's tasks do not read these files.

    The fields of ``beside`` are added.

    >>> [p.value for p in hand_over(Decision([], reason="nativeScan is off"))]
    ['{"scan":{"native":false,"reason":"nativeScan is off"}}']
    """
    scan = {"scan": decision.to_json(), **beside}
    files = DataFiles.of(decision.files)
    return [_partition(scan if decision.root is None else {"paths": files.paths, "sizes": files.sizes, **scan})]


def _partition(value: Mapping[str, object]) -> InputPartition:
    return InputPartition(json.dumps(value, separators=(",", ":")))


def read(store: Store, partition: InputPartition, schema: pa.Schema, fail_on_data_loss: bool) -> Iterator[pa.RecordBatch]:
    """Yield a partition's rows as record batches of exactly ``schema``. Columns that an older file lacks are null."""
    value = json.loads(partition.value)
    shared = {index: (part, parts) for index, part, parts in value.get("shared", ())}
    for index, (path, size) in enumerate(zip(value["paths"], value["sizes"], strict=True)):
        part, parts = shared.get(index, (0, 1))
        try:
            with open_parquet(store, path, size) as parquet:
                yield from _conform(parquet, part, parts, schema)
        except FileNotFoundError:
            if fail_on_data_loss:
                raise data_file_missing(store, path, store.options) from None
            _log.warning(
                "The data file %r of %s does not exist. Its rows are skipped (failOnDataLoss=false).", path, store.location
            )


def _conform(parquet: pq.ParquetFile, part: int, parts: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    have = set(parquet.schema_arrow.names)
    groups = [g for g in range(parquet.num_row_groups) if g % parts == part]
    columns = [name for name in schema.names if name in have]
    if not groups:
        return
    for batch in parquet.iter_batches(batch_size=_BATCH_ROWS, row_groups=groups, columns=columns):
        if batch.num_rows:
            yield _cast(batch, schema)


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    arrays: list[Any] = []
    for wanted in schema:
        at = batch.schema.get_field_index(wanted.name)
        if at < 0:
            arrays.append(pa.nulls(batch.num_rows, wanted.type))
        else:
            column = batch.column(at)
            arrays.append(column if column.type.equals(wanted.type) else column.cast(wanted.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
