"""The driver's part of a source, of one channel or several: where a batch ends, and what its tasks read."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pyspark_strandline.options import ONE_CHANNEL, ReadOptions
from pyspark_strandline.read import errors, input_partition
from pyspark_strandline.read.admission_limits import AdmissionLimits
from pyspark_strandline.read.batch_planner import BatchPlanner, ChannelBatch
from pyspark_strandline.read.log_cursor import LogCursor
from pyspark_strandline.read.native_scan import Decision, NativeScan
from pyspark_strandline.read.offset import Offset
from pyspark_strandline.read.replay.pace import Pace
from pyspark_strandline.read.several.cut import Cut
from pyspark_strandline.read.several.inputs import Inputs
from pyspark_strandline.read.several.loop import LoopPlanner
from pyspark_strandline.read.several.loop_logs import LoopLogs
from pyspark_strandline.read.several.offset import SeveralOffsets
from pyspark_strandline.resume.source import Resumption
from pyspark_strandline.workers import sleep_while_asked
from strandline.channel import Channel
from strandline.time.antichain import Antichain

__all__ = ["Driver", "Rows"]

MOST_SLEEP_S = 60.0
"""A longer pause has several parts."""

_PYTHON = "the session has no extension of Strandline that asked for the files"


class Rows(Protocol):
    """What tasks of a source do."""

    @property
    def wanted(self) -> Mapping[str, pa.Schema]:
        """The columns of each channel, as its files have them."""

    def beside(self, name: str, begin: Cut) -> Mapping[str, object]:
        """Return what each partition of a channel has beside its files; nothing for a source of one."""

    def own_columns(self, name: str, filtered: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
        """Return those of the source's columns that are columns of a channel, as the channel has them."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""


class _Offsets(Protocol):
    """The form of a source's offsets."""

    def frontier(self, positions: Mapping[str, Offset]) -> Antichain: ...
    def to_json(self, cut: Cut) -> dict[str, object]: ...
    def from_json(self, value: object) -> Cut: ...


class _OneOffset:
    """The form of the offsets of a source of one channel: the position in it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def frontier(self, positions: Mapping[str, Offset]) -> Antichain:
        (position,) = positions.values()
        return position.frontier

    def to_json(self, cut: Cut) -> dict[str, object]:
        (position,) = cut.positions.values()
        return position.to_json()

    def from_json(self, value: object) -> Cut:
        position = Offset.from_json(value, self._channel.table_id, self._channel.domain, self._channel.path)
        return Cut({ONE_CHANNEL: position}, position.frontier)


class Driver:
    """The parts of a source on the driver. One channel is several of which there is one.

    It has a cursor and a planner for each channel, so that a poll costs a lookup of the next commits. A batch ends at one
    position in each. In a loop, :class:`LoopPlanner` adds what may still come round. The driver has no state that
    the offset does not determine: after a restart everything is recreated from the logs.

    Args:
        options: The source's options.
        rows: What its tasks do.
    """

    def __init__(self, options: ReadOptions, rows: Rows) -> None:
        self._options, self._rows = options, rows
        self._each = options.each()
        inputs = None if options.channels is None else Inputs(options)
        names = [ONE_CHANNEL] if inputs is None else list(inputs.channels)
        self._pace = None if options.replay in (None, math.inf) else Pace(options.replay)
        cursors = {name: LogCursor(self._each[name], self._pace) for name in names}
        self._planners = {
            name: BatchPlanner(self._each[name], cursor, None if inputs is None else inputs.entries[name])
            for name, cursor in cursors.items()
        }
        self._native = {name: NativeScan(self._each[name], rows.wanted[name]) for name in names}
        self._offsets: _Offsets = (
            _OneOffset(self._planners[ONE_CHANNEL].cursor.channel) if inputs is None else SeveralOffsets(inputs)
        )
        self._rounds_come_by: Container[str] = () if inputs is None else inputs.rounds_come_by
        self._loop: LoopPlanner | None = None
        if inputs is not None and inputs.graph is not None:
            logs = LoopLogs(inputs, self._each) if inputs.has_others else None
            self._loop = LoopPlanner(inputs, self._planners, logs, options, self._each)
        self._resumption = Resumption(options)
        self._looks = 0
        self._looked_for_pace: tuple[Mapping[str, Offset], list[int]] | None = None
        self._ends = False  # whether the query ends when there is nothing more
        self._last_read: tuple[object, Cut] | None = None  # a poll gives the same offset again and again

    def _read(self, value: Mapping[str, object]) -> Cut:
        if self._last_read is None or self._last_read[0] != value:
            self._last_read = value, self._offsets.from_json(value)
        return self._last_read[1]

    def initial(self) -> dict[str, object]:
        """Return the start of a new query, in every channel."""
        self._resumption.asked_for_initial()
        positions = {name: planner.initial() for name, planner in self._planners.items()}
        if self._options.replay is not None and all(each.is_over(positions[name]) for name, each in self._planners.items()):
            paths = {name: planner.cursor.channel.path for name, planner in self._planners.items()}
            raise errors.recording_empty(
                {paths[name]: at.commit for name, at in positions.items()},
                {paths[name]: planner.last_of(positions[name]) for name, planner in self._planners.items()},
            )
        cut = self._cut(positions)
        if self._loop is not None:
            cut = replace(cut, loop=self._loop.beginning(cut.frontier))
        return self._offsets.to_json(cut)

    def stop_at_newest(self) -> None:
        """Take no commit from outside that comes after this call. A loop runs until it is at rest."""
        self._ends = True
        for name, planner in self._planners.items():
            if name not in self._rounds_come_by:
                planner.cursor.stop_at_newest()

    def newest(self) -> dict[str, dict[str, object]]:
        """Return the position after the newest commit of each channel."""
        each = {name: planner.cursor for name, planner in self._planners.items()}
        return {name: {"channel": c.channel.table_id, "commit": c.newest_seen() + 1, "file": 0} for name, c in each.items()}

    def end_of_batch(self, start: dict[str, object], limits: AdmissionLimits) -> dict[str, object]:
        """Return the end of the next batch. This is ``start`` itself when no row and no move of a frontier has come since.

        Limits are shared fairly: each batch begins with the next channel, and gives it its share of what is left.
        """
        begin = self._read(start)
        end = self._first_end(begin) if self._resumption.is_due else self._due_end(begin, limits)
        self._resumption.begin()
        return start if end is None else self._offsets.to_json(end)

    def _first_end(self, begin: Cut) -> Cut | None:
        """Return the end of the first batch of a query that goes on with an output."""
        channels = {name: planner.cursor.channel for name, planner in self._planners.items()}
        reads = self._resumption.positions({channel.table_id: channel.path for channel in channels.values()})
        ends = {name: each.end_at(begin.positions[name], reads[channels[name].table_id]) for name, each in self._planners.items()}
        return None if ends == begin.positions else self._cut(ends, begin.first)

    def _due_end(self, begin: Cut, limits: AdmissionLimits) -> Cut | None:
        """Return the end of the next batch. A replay that would end without a commit waits for the next one to be due.

        A query that goes on asks again soon. It has other sources, which need not wait.
        """
        if self._pace is not None and not self._pace.has_begun:
            self._begin_pace(self._pace, begin)
        while (end := self._next_end(begin, limits)) is None and self._ends:
            waits = [planner.cursor.wait_s for planner in self._planners.values() if planner.cursor.wait_s]
            if not waits:
                break
            sleep_while_asked(min(*waits, MOST_SLEEP_S))
        return end

    def _begin_pace(self, pace: Pace, begin: Cut) -> None:
        """Begin with the first commit that has something, if there is one that was not looked at before."""
        at = begin.positions, [planner.cursor.newest() for planner in self._planners.values()]
        if at != self._looked_for_pace:
            made = [planner.first_made_ms(begin.positions[name]) for name, planner in self._planners.items()]
            self._looked_for_pace = at
            if known := [each for each in made if each is not None]:
                pace.begin(min(known))

    def _next_end(self, begin: Cut, limits: AdmissionLimits) -> Cut | None:
        if self._loop is not None:
            self._loop.check_beginning(begin)
        at_rest = begin.positions if self._loop is None else self._loop.at_rest_in(begin)
        names = list(self._planners)
        batches: dict[str, ChannelBatch] = {}
        for served in range(len(names)):
            at = (begin.first + served) % len(names)
            room = limits.share(len(names) - served)
            batches[names[at]] = self._planners[names[at]].next_batch(at_rest[names[at]], room, checks_newest=self._checks(at))
        self._looks += 1
        batches = {name: batches[name] for name in names}  # in the order of the channels, whoever was served first
        first = begin.first if limits.is_unlimited else (begin.first + 1) % len(names)
        if self._loop is not None:
            return self._loop.end_of_batch(begin, batches, first)
        ends = {name: batch.end for name, batch in batches.items()}
        if ends == begin.positions:
            return None
        for name, batch in batches.items():
            if batch.files is not None:
                self._native[name].look_ahead(batch.files)
        return self._cut(ends, first)

    def _checks(self, at: int) -> bool:
        """Whether a look at a channel where nothing has come checks the newest commit: at first all channels', then one a look.

        That check is most of a look, and finds a table that was replaced. The table's next commit would show that too. A loop is
        at rest where nothing comes, so there each look has to be sure of that.
        """
        return self._loop is not None or self._looks == 0 or at == self._looks % len(self._planners)

    def _cut(self, positions: Mapping[str, Offset], first: int = 0) -> Cut:
        """Return the cut at positions from which nothing has been taken into a loop."""
        return Cut(positions, self._offsets.frontier(positions), first)

    def partitions(self, start: Mapping[str, object], end: Mapping[str, object]) -> list[InputPartition]:
        """Return the data files between two offsets, packed into partitions of one channel each.

        When the shim calls this, it adds to ``end`` the columns that the query filters by. It gets one partition a channel, with
        the log's statistics of these columns, and whether the JVM may read the files by itself.
        """
        self._resumption.begin()
        filtered: Any = end.get("statistics")
        begin, stop = self._read(start), self._read({key: value for key, value in end.items() if key != "statistics"})
        for name, planner in self._planners.items():  # a batch that is repeated was planned by an earlier run
            planner.check_kept(stop.positions[name])
        positions = {name: each.begin_of(begin.positions[name], stop.positions[name]) for name, each in self._planners.items()}
        if positions != begin.positions:
            begin = replace(begin, positions=positions, frontier=self._offsets.frontier(positions))
        result: list[InputPartition] = []
        for name, planner in self._planners.items():
            files = planner.files(positions[name], stop.positions[name], stats=bool(filtered))
            beside = self._rows.beside(name, begin)
            if filtered is not None or not beside:
                own = self._rows.own_columns(name, filtered or ())
                decision = self._native[name].decide(files, planner.cursor.channel.schema, own)
            else:
                decision = Decision(files, reason=_PYTHON)
            if filtered is not None:
                result += input_partition.hand_over(decision, beside)
            elif len(files) or not beside:
                result += self._packed(decision, beside)
        return result or self._packed(Decision([], reason=_PYTHON), {})

    def _packed(self, decision: Decision, beside: Mapping[str, object]) -> list[InputPartition]:
        return input_partition.plan(decision, self._options.max_partition_bytes, self._options.min_partitions, beside)
