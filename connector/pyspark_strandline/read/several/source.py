"""The streaming source of several channels: every offset is one consistent cut of all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pyspark_strandline.loop_remedies import loop_remedies
from pyspark_strandline.options import CHANNEL, ReadOptions
from pyspark_strandline.read import input_partition
from pyspark_strandline.read.batch_planner import BatchPlanner
from pyspark_strandline.read.log_cursor import LogCursor
from pyspark_strandline.read.native_scan import Decision, NativeScan
from pyspark_strandline.read.offset import Offset
from pyspark_strandline.read.several.inputs import TIME_OF_CHANNEL, Inputs
from pyspark_strandline.read.several.loop import LoopPlanner
from pyspark_strandline.read.several.loop_logs import LoopLogs
from pyspark_strandline.read.several.offset import SeveralOffset
from pyspark_strandline.read.source import default_limit, limits_of
from pyspark_strandline.resume.source import Resumption
from pyspark_strandline.schema import arrow_schema
from pyspark_strandline.workers import without_stack
from strandline.delta.storage import open_store
from strandline.errors import StrandlineError
from strandline.loop import Rounds
from strandline.time.antichain import Antichain
from strandline.time.arrow import arrow_type, first_behind
from strandline.time.domain import parse_domain
from strandline.time.path.entry import Entry

__all__ = ["SeveralReader"]

_PYTHON = "the session has no extension of Strandline that asked for the files"


@dataclass(frozen=True)
class _Input:
    """What a task needs to read one channel."""

    options: ReadOptions
    schema: pa.Schema
    time_column: str
    entry: Entry


class SeveralReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Several channels as one stream.

    The driver has a cursor and a planner for each channel, as the source of one channel has. A batch ends at one position in
    each, and its offset has the frontier of all of them together. In a loop, :class:`LoopPlanner` adds what may still come round.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema: pa.Schema = arrow_schema(schema)
        self._inputs: dict[str, _Input] = {}
        self._each = {
            name: replace(options, path=path, channels=None, feedback={}, queries={}, query=None, domain=None)
            for name, path in (options.channels or {}).items()
        }
        for name in schema.names:
            if name == CHANNEL:
                continue
            columns = schema[name].dataType
            assert isinstance(columns, StructType)  # noqa: S101 - Inputs.schema made it
            time = next(f for f in columns.fields if TIME_OF_CHANNEL in (f.metadata or {}))
            entry = Entry(*map(parse_domain, json.loads(time.metadata[TIME_OF_CHANNEL])))
            whole = arrow_schema(columns)
            at = whole.get_field_index(time.name)
            self._inputs[name] = _Input(
                self._each[name], whole.set(at, pa.field(time.name, arrow_type(entry.outer))), time.name, entry
            )
        self._state: _Driver | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a pickled copy. They need no planner.
        return {**self.__dict__, "_state": None}

    @property
    def _driver(self) -> _Driver:
        if self._state is None:
            self._state = _Driver(self._options, self._each, self._inputs)
        return self._state

    @property
    def _planners(self) -> dict[str, BatchPlanner]:
        return self._driver.planners

    def _offset(self, value: dict[str, Any]) -> SeveralOffset:
        driver = self._driver
        if driver.last_read is None or driver.last_read[0] != value:
            driver.last_read = value, SeveralOffset.from_json(value, driver.inputs)
        return driver.last_read[1]

    @without_stack
    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query, in every channel."""
        with loop_remedies(self._options.is_loop):
            self._driver.resumption.asked_for_initial()
            return self._driver.beginning().to_json(self._driver.inputs)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit for ``maxFilesPerTrigger`` and ``maxBytesPerTrigger``, which hold for all channels together."""
        return default_limit(self._options)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is in the channels now, and nothing that comes later from outside. A loop runs until it is at rest."""
        driver = self._driver
        for name, planner in driver.planners.items():
            if name not in driver.inputs.rounds_come_by:
                planner.cursor.stop_at_newest()

    @without_stack
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch. This is ``start`` itself when no row and no move of a frontier has come since.

        Limits are shared fairly: each batch begins with the next channel, and gives it its share of what is left.
        """
        with loop_remedies(self._options.is_loop):
            return self._end_of_batch(start, limit)

    def _end_of_batch(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        driver = self._driver
        begin = self._offset(start)
        if driver.resumption.is_due:
            end = driver.first_end(begin)
            driver.resumption.begin()
            return end.to_json(driver.inputs)
        if driver.loop is not None:
            driver.loop.check_beginning(begin)
        limits = limits_of(self._options, limit)
        names = list(driver.planners)
        ends = dict(begin.positions) if driver.loop is None else driver.loop.at_rest_in(begin)
        if driver.loop is None:  # a loop is at rest where nothing comes, so there each look has to be sure of that
            driver.check_one_in_turn()
        for served in range(len(names)):
            name = names[(begin.first + served) % len(names)]
            ends[name] = driver.planners[name].end_of_batch(ends[name], limits.share(len(names) - served))
        first = begin.first if limits.is_unlimited else (begin.first + 1) % len(names)
        if driver.loop is not None:
            round_end = driver.loop.end_of_batch(begin, ends, first)
            return start if round_end is None else round_end.to_json(driver.inputs)
        if ends == begin.positions:
            return start
        return SeveralOffset(ends, driver.rounds_at(ends), first, by_input=begin.by_input).to_json(driver.inputs)

    @without_stack
    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the newest commit of each channel, for progress reports."""
        each = {name: planner.cursor for name, planner in self._planners.items()}
        newest = {n: {"channel": c.channel.table_id, "commit": c.newest_seen() + 1, "file": 0} for n, c in each.items()}
        return {"channels": newest}

    @without_stack
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the data files between two offsets, packed into partitions of one channel each.

        When the shim calls this, it adds to ``end`` the columns that the query filters by, and gets one partition a channel.
        """
        with loop_remedies(self._options.is_loop):
            return self._partitions(start, end)

    def _partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._driver.resumption.begin()
        filtered: list[list[str]] | None = end.get("statistics")  # then the shim asks
        begin, stop = self._offset(start), self._offset({key: value for key, value in end.items() if key != "statistics"})
        begin = self._driver.begin_of(begin, stop)
        result = []
        for name, planner in self._planners.items():
            entry = self._inputs[name].entry
            about = {
                "channel": name,
                "outer": str(entry.outer),
                "start": begin.positions[name].frontier.to_json(),
                "inner": str(entry.inner),
                "entered": begin.rounds.frontier.to_json(),
            }
            files = planner.files(begin.positions[name], stop.positions[name], stats=bool(filtered))
            if filtered is not None:
                own = [path[1:] for path in filtered if path[0] == name and len(path) > 1]
                decision = self._driver.native[name].decide(files, planner.cursor.channel.schema, own)
                result += input_partition.hand_over(decision, about)
            elif len(files):
                most, least = self._options.max_partition_bytes, self._options.min_partitions
                result += input_partition.plan(Decision(files, reason=_PYTHON), most, least, about)
        return result or input_partition.plan(Decision([], reason=_PYTHON), self._options.max_partition_bytes, None)

    def read(self, partition_: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: yield the rows of a partition's files, as record batches.

        Raises :class:`StrandlineError` ``STRANDLINE_ROW_BEHIND_FRONTIER`` for a row that its channel had closed before the batch.
        """
        with loop_remedies(self._options.is_loop):
            yield from self._rows(partition_)

    def _rows(self, partition_: InputPartition) -> Iterator[pa.RecordBatch]:
        value = json.loads(partition_.value)
        name = value.get("channel")
        if name is None:
            return
        of = self._inputs[name]
        start = Antichain.from_json(of.entry.outer, value["start"])
        entered = Antichain.from_json(of.entry.inner, value["entered"])
        store = open_store(of.options.path, of.options.storage)
        for batch in input_partition.read(store, partition_, of.schema, self._options.fail_on_data_loss):
            at = batch.schema.get_field_index(of.time_column)
            for frontier in (start, entered):
                behind = first_behind(batch.column(at), frontier, of.time_column)
                if behind is not None:
                    whose = of.options.path if frontier is start else "all channels together"
                    raise StrandlineError(
                        "STRANDLINE_ROW_BEHIND_FRONTIER",
                        f"A row of channel {name} has the time {frontier.domain.format(behind)}, but the frontier "
                        f"{frontier.format()} of {whose} had closed it before this batch. It is in one of the files "
                        f"{value['paths'][:8]}.",
                        "A writer other than Strandline wrote the row. Remove it, and start with a new checkpoint, in a loop "
                        "with new channels for its feedback and its results."
                        if frontier is start
                        else "In a loop, an operator may only emit rows at times of rows that it has taken in (docs/loops.md).",
                    )
                if frontier is start:
                    columns = list(batch.columns)
                    columns[at] = of.entry.column(batch.column(at))
                    batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
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


class _Driver:
    """The parts of the source on the driver."""

    def __init__(self, options: ReadOptions, each: dict[str, ReadOptions], of: dict[str, _Input]) -> None:
        self.inputs = Inputs(options)
        self.planners = {name: BatchPlanner(each[name], LogCursor(each[name])) for name in self.inputs.channels}
        self.native = {name: NativeScan(each[name], of[name].schema) for name in self.planners}
        logs = LoopLogs(self.inputs, each) if self.inputs.has_others else None
        self.resumption = Resumption(options)
        self.loop = None if self.inputs.graph is None else LoopPlanner(self.inputs, self.planners, logs, options, each)
        self._looks = 0
        self.last_read: tuple[dict[str, Any], SeveralOffset] | None = None
        """The offset that Spark gave last, as it was and read. A poll gives the same one again and again."""

    def check_one_in_turn(self) -> None:
        """Choose whose newest commit is checked where nothing has come: at first all channels', then one's after the other.

        That check is most of a look, and finds a table that was replaced. The table's next commit would show that too.
        """
        for at, planner in enumerate(self.planners.values()):
            planner.cursor.checks_newest = self._looks == 0 or at == self._looks % len(self.planners)
        self._looks += 1

    def beginning(self) -> SeveralOffset:
        """Return the start of a new query, in every channel."""
        positions = {name: planner.initial() for name, planner in self.planners.items()}
        consumed = dict.fromkeys(self.inputs.rounds_come_by, 0)
        return SeveralOffset(positions, self.rounds_at(positions), consumed=consumed, has_begun=False)

    def begin_of(self, begin: SeveralOffset, end: SeveralOffset) -> SeveralOffset:
        """Return where a batch begins that was planned before (:meth:`BatchPlanner.begin_of`)."""
        positions = {
            name: planner.begin_of(begin.positions[name], end.positions[name]) for name, planner in self.planners.items()
        }
        return begin if positions == begin.positions else replace(begin, positions=positions, rounds=self.rounds_at(positions))

    def first_end(self, begin: SeveralOffset) -> SeveralOffset:
        """Return the end of the first batch of a query that goes on with an output."""
        reads = self.resumption.positions({channel.table_id: channel.path for channel in self.inputs.channels.values()})
        ends = {
            name: planner.end_at(begin.positions[name], reads[planner.cursor.channel.table_id])
            for name, planner in self.planners.items()
        }
        by_input = all(read.input is not None for read in reads.values())  # as the output's query did
        return SeveralOffset(ends, self.rounds_at(ends), begin.first, by_input=by_input)

    def rounds_at(self, positions: Mapping[str, Offset]) -> Rounds:
        """Return the frontier of all channels together, at positions from which nothing has been taken into a loop."""
        if self.inputs.graph is not None:
            return Rounds(Antichain.least(self.inputs.domain))
        return Rounds(self.inputs.frontier({name: position.frontier for name, position in positions.items()}))
