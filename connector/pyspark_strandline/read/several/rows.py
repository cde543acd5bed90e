"""What tasks of a source of several channels do: read the rows of one channel, check their times, and widen them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pyspark_strandline.options import CHANNEL, ReadOptions
from pyspark_strandline.read import errors, input_partition
from pyspark_strandline.read.several.cut import Cut
from pyspark_strandline.read.several.inputs import TIME_OF_CHANNEL
from pyspark_strandline.schema import arrow_schema
from strandline.delta.storage import open_store
from strandline.time.antichain import Antichain
from strandline.time.arrow import arrow_type, first_behind
from strandline.time.domain import parse_domain
from strandline.time.path.entry import Entry

__all__ = ["SeveralRows"]


@dataclass(frozen=True)
class _Input:
    """What a task needs to read one channel."""

    options: ReadOptions
    schema: pa.Schema
    time_column: str
    entry: Entry


class SeveralRows:
    """Reads rows of several channels as rows of their source: the channel's name, and a struct, null for the other channels.

    Args:
        each: The options of each channel, by name.
        schema: The source's schema (:meth:`Inputs.schema`).
    """

    def __init__(self, each: Mapping[str, ReadOptions], schema: StructType) -> None:
        self._schema: pa.Schema = arrow_schema(schema)
        self._inputs: dict[str, _Input] = {}
        for name in schema.names:
            if name == CHANNEL:
                continue
            columns = schema[name].dataType
            assert isinstance(columns, StructType)  # noqa: S101 - Inputs.schema made it
            time = next(f for f in columns.fields if TIME_OF_CHANNEL in (f.metadata or {}))
            entry = Entry(*map(parse_domain, json.loads(time.metadata[TIME_OF_CHANNEL])))
            whole = arrow_schema(columns)
            at = whole.get_field_index(time.name)
            own = whole.set(at, pa.field(time.name, arrow_type(entry.outer)))
            self._inputs[name] = _Input(each[name], own, time.name, entry)

    @property
    def wanted(self) -> dict[str, pa.Schema]:
        """The columns of each channel, as its files have them."""
        return {name: each.schema for name, each in self._inputs.items()}

    def beside(self, name: str, begin: Cut) -> dict[str, object]:
        """Return what each partition of a channel has beside its files, in a batch that begins at a cut."""
        entry = self._inputs[name].entry
        return {
            "channel": name,
            "outer": str(entry.outer),
            "start": begin.positions[name].frontier.to_json(),
            "inner": str(entry.inner),
            "entered": begin.frontier.to_json(),
        }

    def own_columns(self, name: str, filtered: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
        """Return those of the source's columns that are columns of a channel, as the channel has them."""
        return [path[1:] for path in filtered if path[0] == name and len(path) > 1]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition's files, as record batches.

        Raises :class:`StrandlineError` ``STRANDLINE_ROW_BEHIND_FRONTIER`` for a row that its channel had closed before the batch.
        """
        value = json.loads(partition.value)
        name = value.get("channel")
        if name is None:
            return
        of = self._inputs[name]
        start = Antichain.from_json(of.entry.outer, value["start"])
        entered = Antichain.from_json(of.entry.inner, value["entered"])
        store = open_store(of.options.path, of.options.storage)
        for batch in input_partition.read(store, partition, of.schema, of.options.fail_on_data_loss):
            at = batch.schema.get_field_index(of.time_column)
            _check_open(name, of, batch.column(at), start, value["paths"], is_own=True)
            columns = list(batch.columns)
            columns[at] = of.entry.column(batch.column(at))
            _check_open(name, of, columns[at], entered, value["paths"], is_own=False)
            yield self._widened(name, pa.RecordBatch.from_arrays(columns, names=batch.schema.names))

    def _widened(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a channel as rows of the source."""
        arrays: list[pa.Array] = []
        for field in self._schema:
            if field.name == CHANNEL:
                arrays.append(pa.array([name], pa.string()).take(pa.array([0] * batch.num_rows, pa.int64())))
            elif field.name == name:
                arrays.append(pa.StructArray.from_arrays(batch.columns, fields=list(field.type)))
            else:
                arrays.append(pa.nulls(batch.num_rows, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _check_open(name: str, of: _Input, times: pa.Array, frontier: Antichain, paths: list[str], *, is_own: bool) -> None:
    """Raise if a row has a time that a frontier, the channel's own or that of all channels, had closed before the batch."""
    behind = first_behind(times, frontier, of.time_column)
    if behind is not None:
        if is_own:
            raise errors.row_behind_frontier_own(name, behind, frontier, of.options.path, paths)
        raise errors.row_behind_frontier_together(name, behind, frontier, paths)
