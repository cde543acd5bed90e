"""``Processor``: user code with state for each key, called with rows, and at the times for which it requested notifications."""

from __future__ import annotations

import copy
import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_strandline.column_types import check_exchanged_types
from pyspark_strandline.operators import errors
from pyspark_strandline.operators.calls.group_runs import key_values, runs
from pyspark_strandline.operators.calls.map_batches import map_batches
from pyspark_strandline.operators.calls.user_calls import noted, python_key
from pyspark_strandline.operators.loop_times import LoopTimes
from pyspark_strandline.operators.operator_marker import (
    MARK,
    checked_key,
    checked_times,
    input_time,
    mark_metadata,
    result_schema,
    without_mark,
)
from pyspark_strandline.operators.results.casts import cast_array
from pyspark_strandline.operators.results.conversion import Expected, conform
from pyspark_strandline.operators.results.rules import MisfitError, rule, same
from pyspark_strandline.schema import arrow_schema, quoted
from strandline.errors import StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.arrow import array_of, times_of
from strandline.time.domain import Time, TimeDomain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Processor", "process"]

_TEXT, _ROWS, _STATE, _OUT = f"{MARK}_text", f"{MARK}_rows", f"{MARK}_state", f"{MARK}_out"
# The kinds of rows (NotifyRows in the shim).
_FRONTIER, _IS_STATE, _IS_ROW, _NOTIFICATION, _OUTPUT = range(5)
_FLUSH_AT = 10_000


class Processor(ABC):
    """User code for :func:`process`. A task makes one copy and passes it key after key.

    ``schema`` lists the columns of the results, besides the key and the time. ``state_schema`` lists the fields of a key's state.
    Within the two methods, :attr:`key` is the tuple of the key's values. Keys are those of Spark's ``groupBy``: null is a key,
    ``0.0`` and ``-0.0`` are the key ``0.0``, and all NaN are one key. :attr:`state` is a dict, or ``None`` for a key without
    state. A value assigned to it is kept until the next assignment, and ``None`` deletes it. After each call the state is what
    ``state_schema`` makes of it, and the next call gets this, in the same batch or in a later one.

    Times are values of :mod:`strandline.time.domain`: integers (for a timestamp, microseconds since 1970) or tuples.

    The law is timely's (``notify_at``): a request for a notification at a time holds that time back. ``on_notify(time)`` is
    called exactly once, in the batch whose frontier closes the time, after all rows at times not in advance of it. If a batch
    closes several such times, the calls come in an order that extends the partial order. The state is one for all times of a key.
    Times that are neither before nor after each other share it: keep by time there what belongs to one.

    >>> class Count(Processor):
    ...     schema = "n bigint"
    ...     state_schema = "n bigint"
    ...
    ...     def on_rows(self, time, rows):
    ...         self.state = {"n": (self.state or {"n": 0})["n"] + rows.num_rows}
    ...         self.notify_at(time)
    ...
    ...     def on_notify(self, time):
    ...         self.emit(time, [{"n": self.state["n"]}])
    """

    schema: StructType | str
    state_schema: StructType | str | None = None

    state: dict[str, Any] | None

    @property
    def key(self) -> tuple[Any, ...]:
        """The key's values. Raises :class:`StrandlineError` for a value that Python does not have, as of the year 10000."""
        return self._calls.key

    @abstractmethod
    def on_rows(self, time: Time, rows: pa.Table) -> None:
        """Process the key's rows of one batch at ``time``.

        These calls come before notifications, in an order that extends the order of the times.

        Args:
            time: The time of the rows.
            rows: The rows, with all columns of the DataFrame.
        """

    def on_notify(self, time: Time) -> None:  # noqa: B027 - a processor may never request one
        """Handle the closing of ``time``, for which :meth:`notify_at` was called.

        No row at this time, or at any time before it, will come any more.
        """

    def notify_at(self, time: Time) -> None:
        """Request one call of :meth:`on_notify` at ``time``. Repeated requests give only one call.

        In a loop, ``time`` is the time of the current call, or the last time of the loop, from which nothing can come round: the
        time with the greatest value in the coordinate that the feedback advances.

        Raises :class:`StrandlineError` when ``time`` is no time of the domain, or is not at or in advance of the time of the
        current call.
        """
        self._calls.notify_at(time)

    def emit(self, time: Time, rows: Any) -> None:
        """Emit results at ``time``, which must be at or in advance of the time of the current call. This is checked.

        Args:
            time: The time of the results.
            rows: A ``pyarrow.Table`` or ``RecordBatch``, a pandas DataFrame, or a list of dicts, with exactly the columns of
                ``schema``. The rules for values are those of the results of :func:`on_complete` (docs/completion.md).

        Raises:
            StrandlineError: ``STRANDLINE_NOT_IN_ADVANCE`` for an earlier time; ``STRANDLINE_RESULT_INVALID`` if the rows do not
                fit the schema.
        """
        self._calls.emit(time, rows)

    def _name_of(self, call: str) -> str:
        """Return what messages call a method of this processor."""
        return f"{type(self).__name__}.{call}"

    _calls: _Partition


def process(df: DataFrame, processor: Processor, key: str | Sequence[str]) -> DataFrame:
    """Run ``processor`` over the stream, key by key.

    Spark's state store holds each key's state and pending notifications, and finds notifications by their time. So a batch only
    reads the keys that have rows or a closed notification.

    Args:
        df: The streaming DataFrame.
        processor: The processor. Each task uses a copy of it.
        key: The key's columns.

    Returns:
        The results, with the key's columns, the time column, and the columns of ``processor.schema``.

    Raises:
        StrandlineError: ``df`` is not a stream or has no time column, or an argument is invalid.

    ``process(spark.readStream.format("strandline").load(path), Count(), key="device")``
    """
    time, domain = input_time(df)
    if not df.isStreaming:
        raise errors.not_a_stream()
    names = checked_key(df, key, time.name)
    if not names:
        raise errors.key_invalid_empty()
    result = result_schema(processor.schema, time)
    clash = [name for name in result.names if name in (*names, time.name)]
    if clash:
        raise errors.key_invalid_result(clash)
    declared = processor.state_schema
    state = result_schema("_ boolean" if declared is None else declared, time)
    for columns, what in ((df.schema, "The rows for the processor"), (result, "The results"), (state, "The states")):
        check_exchanged_types(columns, what)
    tagged = checked_times(result_schema(StructType([StructField(time.name, time.dataType, True)]), time), time.name)
    mark = {"metadata": mark_metadata("notify")}
    out = StructType(
        [StructField(name, df.schema[name].dataType, True) for name in names]
        + [StructField(MARK, LongType(), True, mark["metadata"]), *tagged.fields]
        + [StructField(_OUT, result, True), StructField(_STATE, state, True)]
    )
    keys = [F.col(quoted(name)) for name in names]
    rows = df.select(
        *keys,
        F.lit(_IS_ROW).cast("bigint").alias(MARK),
        F.col(quoted(time.name)),
        F.lit(None).cast("string").alias(_TEXT),
        F.struct("*").alias(_ROWS),
        F.lit(None).cast(state).alias(_STATE),
    )
    calls = _Run(processor, names, time.name, domain, arrow_schema(out), declared is not None)
    kept = map_batches(rows, calls, out).dropDuplicates([time.name, MARK, *names])
    return kept.select(*keys, without_mark(tagged[time.name]), f"{_OUT}.*")


class _Run:
    """The code that runs in a task."""

    def __init__(
        self, processor: Processor, key: list[str], time: str, domain: TimeDomain, out: pa.Schema, has_state: bool
    ) -> None:
        self._processor, self._key, self._time, self._domain = processor, key, time, domain
        self._out, self._has_state = out, has_state

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition = _Partition(copy.copy(self._processor), self._domain, self._key, self._time, self._out, self._has_state)
        cut = runs(batches, self._key, [MARK, self._time])
        for (number, _), group in itertools.groupby(cut, key=itemgetter(0)):
            parts = [part for _, part in group]
            kind = parts[0].column(MARK)[0].as_py()
            if kind == _FRONTIER:
                times = [self._domain.from_json(t) for t in json.loads(parts[0].column(_TEXT)[0].as_py())]
                partition.begin(Antichain(self._domain, times), parts[0].schema)
                continue
            partition.turn_to(number, parts[0])
            if kind == _IS_STATE:
                partition.restore(parts[0].column(_STATE)[0].as_py())
            else:
                (time,) = times_of(parts[0].column(self._time).slice(0, 1), self._domain)
                if kind == _IS_ROW:
                    rows = [pa.RecordBatch.from_struct_array(part.column(_ROWS)) for part in parts]
                    partition.rows(time, pa.Table.from_batches(rows))
                else:
                    partition.pending.add(time)
            if partition.waiting >= _FLUSH_AT:
                yield from partition.flush()
        partition.finish_key()
        yield from partition.flush()


class _Partition:
    """One task's calls of the processor, and the rows that they produce."""

    frontier: Antichain

    def __init__(
        self, processor: Processor, domain: TimeDomain, key: list[str], time: str, out: pa.Schema, has_state: bool
    ) -> None:
        self._processor, self._domain, self._names, self._time = processor, domain, key, time
        self._out, self._has_state = out, has_state
        self._expected = Expected(pa.schema(list(out.field(_OUT).type)))
        self._now: Time | None = None
        self._call = "on_rows"
        self._before: dict[str, Any] | None = None
        self._open: int | None = None
        self._key: tuple[Any, ...] | None = None
        self._loop = LoopTimes.here()
        self.pending: set[Time] = set()
        # The keys of the rows made, an array for each column, and of each row the number of its key.
        self._keys: list[list[pa.Array]] = []
        self._made: list[tuple[int, int, Time | None, pa.RecordBatch | None, Any]] = []
        self.waiting = 0
        processor._calls = self

    def begin(self, frontier: Antichain, rows: pa.Schema) -> None:
        """Set the frontier of the batch. ``rows`` is the schema of what comes in."""
        self.frontier = frontier
        self._stored = rule(rows.field(_STATE))
        self._expected = replace(self._expected, spare=[each.name for each in rows.field(_ROWS).type])

    @property
    def key(self) -> tuple[Any, ...]:
        """The values of the key whose turn it is."""
        if self._key is None:
            self._key = python_key(self._keys[-1], self._names)
        return self._key

    def turn_to(self, number: int, part: pa.RecordBatch) -> None:
        """Switch to the key of a part, the ``number``-th. If it is a different key, first finish the previous key."""
        if number == self._open:
            return
        self.finish_key()
        self._open, self._key = number, None
        if not self._made:
            self._keys.clear()
        self._keys.append(key_values(part, self._names))
        self._processor.state, self._before = None, None

    def restore(self, state: dict[str, Any]) -> None:
        """Set the key's state to the stored one."""
        self._processor.state, self._before = (self._as_stored(state, "The stored state, taken") for _ in range(2))

    def rows(self, time: Time, table: pa.Table) -> None:
        """Pass rows to the processor."""
        self._now, self._call = time, "on_rows"
        with noted(self._called):
            self._processor.on_rows(time, table)
        self._check_state()

    def finish_key(self) -> None:
        """Deliver the key's due notifications, and keep its other notifications and its state."""
        if self._open is None:
            return
        while due := [time for time in self.pending if not self.frontier.less_equal(time)]:
            time = min(due, key=self._domain.sort_key)
            self.pending.discard(time)
            self._now, self._call = time, "on_notify"
            with noted(self._called):
                self._processor.on_notify(time)
            self._check_state()
        for time in sorted(self.pending, key=self._domain.sort_key):
            self._make(_NOTIFICATION, time, None, None)
        self.pending.clear()
        if not same(self._processor.state, self._before):
            self._make(_IS_STATE, None, None, self._processor.state)
        self._open = None

    def _check_state(self) -> None:
        """Make the state what the store would give back, so that the next call does not depend on where a batch ends."""
        processor = self._processor
        if processor.state is None:
            return
        if not self._has_state:
            raise errors.state_undeclared(processor, self._key_text())
        processor.state = self._as_stored(processor.state, "The state after")

    def _as_stored(self, state: Any, what: str) -> dict[str, Any]:
        try:
            checked: dict[str, Any] = self._stored(state)
        except MisfitError as misfit:
            raise errors.result_invalid_state(self._called(what), misfit) from None
        return checked

    def _called(self, what: str = "In") -> str:
        """Return which call it is, for a message."""
        at = "" if self._now is None else f" at the time {self._domain.format(self._now)}"
        return f"{what} {self._processor._name_of(self._call)}{at} for the key {self._key_text()},"

    def _key_text(self) -> str:
        try:
            return str(self.key)
        except StrandlineError:  # a value that only Arrow has
            return str([str(value[0]) for value in self._keys[-1]])

    def notify_at(self, time: Time) -> None:
        """See :meth:`Processor.notify_at`."""
        self.pending.add(self._in_advance(time, "notify_at"))

    def emit(self, time: Time, rows: Any) -> None:
        """See :meth:`Processor.emit`."""
        checked = self._in_advance(time, "emit")
        for batch in conform(rows, self._expected, partial(self._called, "What is emitted in")):
            self._make(_OUTPUT, checked, batch, None)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows produced so far."""
        made, self._made, self.waiting = self._made, [], 0
        if not made:
            return
        sizes = [1 if batch is None else batch.num_rows for _, _, _, batch, _ in made]

        def repeated(values: Iterable[Any]) -> list[Any]:
            return [value for value, size in zip(values, sizes, strict=True) for _ in range(size)]

        of = pa.array(repeated(number for number, *_ in made), pa.int64())
        # As arrays, because not each value goes to Python and back as what it was.
        columns = [
            cast_array(pa.concat_arrays(list(values)).take(of), self._out.field(name))
            for name, values in zip(self._names, zip(*self._keys, strict=True), strict=True)
        ]
        self._keys = self._keys[-1:]
        columns.append(pa.array(repeated(kind for _, kind, *_ in made), pa.int64()))
        columns.append(self._times(repeated(time for _, _, time, _, _ in made)))
        nothing = pa.nulls(1, self._out.field(_OUT).type)
        columns.append(
            pa.concat_arrays([nothing if b is None else b.to_struct_array().cast(nothing.type) for _, _, _, b, _ in made])
        )
        columns.append(pa.array(repeated(state for *_, state in made), self._out.field(_STATE).type))
        yield pa.RecordBatch.from_arrays(columns, schema=self._out)

    def _times(self, times: list[Time | None]) -> pa.Array:
        there = array_of([time for time in times if time is not None], self._domain)
        number = itertools.count()
        at = pa.array([None if time is None else next(number) for time in times], pa.int64())
        return there.take(at).cast(self._out.field(self._time).type)

    def _make(self, kind: int, time: Time | None, batch: pa.RecordBatch | None, state: Any) -> None:
        self._made.append((len(self._keys) - 1, kind, time, batch, state))
        self.waiting += 1 if batch is None else batch.num_rows

    def _in_advance(self, time: Time, what: str) -> Time:
        checked = time if self._domain.has(time) else self._domain.time(time, f"{self._called()} the time given to {what}")
        if self._now is not None and not self._domain.less_equal(self._now, checked):
            raise errors.not_in_advance(self._processor, what, self._domain, checked, self._now, self._key_text())
        if (
            self._loop is not None
            and self._now is not None
            and checked != self._now
            and not (what == "notify_at" and self._loop.is_last(self._domain, checked))
        ):
            raise errors.loop_unsupported_call(self._processor, what, self._domain, checked, self._now)
        return checked
