"""The streaming source of several channels: every offset is one consistent cut of all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_strandline.options import CHANNEL, ReadOptions
from pyspark_strandline.read import input_partition
from pyspark_strandline.read.batch_planner import BatchPlanner
from pyspark_strandline.read.log_cursor import LogCursor
from pyspark_strandline.read.native_scan import Decision
from pyspark_strandline.read.several.offset import SeveralOffset
from pyspark_strandline.read.source import default_limit, limits_of
from pyspark_strandline.schema import arrow_schema, spark_schema
from strandline.channel import Channel
from strandline.delta.storage import open_store
from strandline.errors import StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.arrow import first_behind
from strandline.time.domain import parse_domain

__all__ = ["TIME_OF_CHANNEL", "SeveralReader", "opened", "several_schema"]

TIME_OF_CHANNEL = "strandline.channelTime"
"""The metadata key of a struct field that is the time of its channel: the domain. It is not the key of a time column, because a
field of a struct has no frontier of its own. ``Streams.stream`` makes a time column of it."""

_PYTHON = "the option channels names several channels"


def opened(options: ReadOptions) -> dict[str, Channel]:
    """Return the channels of the option ``channels``.

    Raises :class:`StrandlineError` if two names are one channel, or the channels have times of different domains.
    """
    channels = {name: Channel.open(path, options.storage) for name, path in (options.channels or {}).items()}
    names: dict[str, str] = {}
    for name, channel in channels.items():
        other = names.setdefault(channel.table_id, name)
        if other != name:
            raise StrandlineError(
                "STRANDLINE_CHANNELS_INVALID",
                f"The channels {other} and {name} are both the table {channel.path}.",
                "Name each channel once. Its stream may be used several times.",
            )
    domains = {str(channel.domain): name for name, channel in channels.items()}
    if len(domains) > 1:
        raise StrandlineError(
            "STRANDLINE_TIME_DOMAIN_MISMATCH",
            f"The channels have times of different domains: {', '.join(f'{n} of {d}' for d, n in domains.items())}.",
            "Read channels of one domain together. Move the times of the others in a query of their own first.",
        )
    return channels


def several_schema(channels: Mapping[str, Channel]) -> StructType:
    """Return the source's schema: the channel's name, and for each channel a struct with its columns, null in others' rows."""
    fields = [StructField(CHANNEL, StringType())]
    for name, channel in channels.items():
        columns = []
        for each in spark_schema(channel.schema, channel.time_column, channel.domain).fields:
            marked = {TIME_OF_CHANNEL: str(channel.domain)} if each.name == channel.time_column else {}
            columns.append(StructField(each.name, each.dataType, True, marked))
        fields.append(StructField(name, StructType(columns)))
    return StructType(fields)


@dataclass(frozen=True)
class _Input:
    """What a task needs to read one channel."""

    options: ReadOptions
    schema: pa.Schema
    time_column: str
    domain: str


class SeveralReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Several channels as one stream.

    The driver has a cursor and a planner for each channel, as the source of one channel has. A batch ends at one position in
    each, and its offset has the frontier of all of them together.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema: pa.Schema = arrow_schema(schema)
        self._inputs: dict[str, _Input] = {}
        for name, path in (options.channels or {}).items():
            columns = schema[name].dataType
            assert isinstance(columns, StructType)  # noqa: S101 - several_schema made it
            time = next(f for f in columns.fields if TIME_OF_CHANNEL in (f.metadata or {}))
            own = replace(options, path=path, channels=None)
            self._inputs[name] = _Input(own, arrow_schema(columns), time.name, time.metadata[TIME_OF_CHANNEL])
        self._state: dict[str, BatchPlanner] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a pickled copy. They need no planner.
        return {**self.__dict__, "_state": None}

    @property
    def _planners(self) -> dict[str, BatchPlanner]:
        if self._state is None:
            self._state = {name: BatchPlanner(each.options, LogCursor(each.options)) for name, each in self._inputs.items()}
        return self._state

    def _offset(self, value: dict[str, Any]) -> SeveralOffset:
        return SeveralOffset.from_json(value, {name: planner.cursor.channel for name, planner in self._planners.items()})

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query, in every channel."""
        return SeveralOffset({name: planner.initial() for name, planner in self._planners.items()}).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit for ``maxFilesPerTrigger`` and ``maxBytesPerTrigger``, which hold for all channels together."""
        return default_limit(self._options)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is in the channels now, and nothing that comes later."""
        for planner in self._planners.values():
            planner.cursor.stop_at_newest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch. This is ``start`` itself when no row and no move of a frontier has come since.

        Limits are shared fairly: each batch begins with the next channel, and gives it its share of what is left.
        """
        begin = self._offset(start)
        limits = limits_of(self._options, limit)
        names = list(self._planners)
        ends = dict(begin.positions)
        for served in range(len(names)):
            name = names[(begin.first + served) % len(names)]
            ends[name] = self._planners[name].end_of_batch(begin.positions[name], limits.share(len(names) - served))
        if ends == begin.positions:
            return start
        first = begin.first if limits.is_unlimited else (begin.first + 1) % len(names)
        return SeveralOffset(ends, first).to_json()

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the newest commit of each channel, for progress reports."""
        each = {name: planner.cursor for name, planner in self._planners.items()}
        newest = {n: {"channel": c.channel.table_id, "commit": c.newest() + 1, "file": 0} for n, c in each.items()}
        return {"channels": newest}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the data files between two offsets, packed into partitions of one channel each."""
        if "statistics" in end:  # the shim asks whether it may read them
            return input_partition.hand_over(Decision([], reason=_PYTHON))
        begin, stop = self._offset(start), self._offset(end)
        result = []
        for name, planner in self._planners.items():
            files = planner.files(begin.positions[name], stop.positions[name])
            parts = input_partition.plan(
                Decision(files, reason=_PYTHON), self._options.max_partition_bytes, self._options.min_partitions
            )
            frontier = begin.positions[name].frontier.to_json()
            for part in parts if len(files) else []:
                value = {**json.loads(part.value), "channel": name, "start": frontier}
                result.append(InputPartition(json.dumps(value, separators=(",", ":"))))
        return result or input_partition.plan(Decision([], reason=_PYTHON), self._options.max_partition_bytes, None)

    def read(self, partition_: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: yield the rows of a partition's files, as record batches.

        Raises :class:`StrandlineError` ``STRANDLINE_ROW_BEHIND_FRONTIER`` for a row that its channel had closed before the batch.
        """
        value = json.loads(partition_.value)
        name = value.get("channel")
        if name is None:
            return
        of = self._inputs[name]
        domain = parse_domain(of.domain)
        start = Antichain.from_json(domain, value["start"])
        store = open_store(of.options.path, of.options.storage)
        for batch in input_partition.read(store, partition_, of.schema, self._options.fail_on_data_loss):
            behind = first_behind(batch.column(of.time_column), start, of.time_column)
            if behind is not None:
                raise StrandlineError(
                    "STRANDLINE_ROW_BEHIND_FRONTIER",
                    f"A row of channel {name} has the time {domain.format(behind)}, but the frontier {start.format()} of "
                    f"{of.options.path} had closed it before this batch. It is in one of the files {value['paths'][:8]}.",
                    "A writer other than Strandline wrote the row. Remove it, and start with a new checkpoint.",
                )
            yield self._widened(name, batch)

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

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the channels keep their files."""

    def stop(self) -> None:
        """Nothing to release."""
