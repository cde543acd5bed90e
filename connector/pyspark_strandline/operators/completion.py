"""``hold`` passes rows on, and ``on_complete`` calls a function, when the time of the rows is closed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pyspark_strandline.column_types import check_exchanged_types
from pyspark_strandline.operators import errors
from pyspark_strandline.operators.calls.group_runs import key_values, runs
from pyspark_strandline.operators.calls.map_batches import map_batches
from pyspark_strandline.operators.calls.user_calls import name_of, noted, python_key
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
from pyspark_strandline.operators.results.conversion import Expected, conform
from pyspark_strandline.operators.results.pandas_form import to_pandas
from pyspark_strandline.schema import arrow_schema, quoted
from strandline.time.arrow import times_of
from strandline.time.domain import Time, TimeDomain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["hold", "on_complete"]

Form = Literal["arrow", "batches", "pandas"]
_FORMS = ("arrow", "batches", "pandas")


def hold(df: DataFrame, by: str | Sequence[str] = ()) -> DataFrame:
    """Hold rows back until their time is closed, so that later operators see only complete times, in order.

    Rows of any type wait in Spark's state store. Each row comes out once, in the batch whose frontier closes its time. Within a
    partition of the result, rows are sorted by time, in an order that extends the partial order, and then in order of arrival.
    The sort spills to disk. The state is as large as the waiting rows. In a batch DataFrame every time is complete.

    Args:
        df: The DataFrame.
        by: Columns. Rows with equal values in them are in one partition, and rows are sorted by them after the time. Without
            ``by``, rows are distributed by time.

    Returns:
        The same rows, each once, in the batch whose frontier closes its time.

    Raises:
        StrandlineError: ``df`` has no time column, or ``by`` names an unknown column.

    ``hold(spark.readStream.format("strandline").load(path), by="device")``
    """
    time, _ = input_time(df)
    return _held(df, time.name, checked_key(df, by, time.name), spread=True)


def on_complete(
    df: DataFrame,
    function: Callable[..., Any],
    schema: StructType | str,
    key: str | Sequence[str] = (),
    rows: Form = "arrow",
) -> DataFrame:
    """Call ``function`` once for each closed time, or time and key, with all its rows. This is notification as in timely.

    The times come one after another, in an order that respects the partial order. With a key, each key has its own order, and
    keys are processed in parallel. Without a key, all times come in one task. Rows wait in the state store, are sorted on disk,
    and may be of any type.

    Args:
        df: The DataFrame.
        function: Called as ``function(time, rows)``, or as ``function(time, key, rows)`` with the tuple of the key's values, in
            the batch whose frontier closes the time. ``time`` is a value of :mod:`strandline.time.domain`: an integer (for a
            timestamp, microseconds since 1970) or a tuple of coordinates. It returns one of the forms of ``rows``, several of
            them, or ``None``, with the columns of ``schema``.
        schema: The columns of the results. A column with the time column's name is a time again.
        key: The key's columns.
        rows: The form of the rows: ``arrow`` (a ``pyarrow.Table``), ``batches`` (an iterator of record batches, which needs no
            memory for all rows) or ``pandas``.

    Raises:
        StrandlineError: When ``df`` has no time column or an argument is invalid.

    ``on_complete(df, lambda time, key, rows: rows.sort_by("n").slice(0, 10), df.schema, key="device")``
    """
    if rows not in _FORMS:
        raise errors.option_invalid_rows(rows, _FORMS)
    time, domain = input_time(df)
    names = checked_key(df, key, time.name)
    check_exchanged_types(df.schema, "The rows for the function")
    result = checked_times(result_schema(schema, time), time.name)
    check_exchanged_types(result, "The results")
    held = _held(df, time.name, names, spread=False)
    called = map_batches(held, _Calls(function, time.name, domain, names, rows, arrow_schema(result)), result)
    columns = (without_mark(field) if field.name == time.name else F.col(quoted(field.name)) for field in result.fields)
    return called.select(*columns)


def _held(df: DataFrame, time: str, by: list[str], spread: bool) -> DataFrame:
    if not df.isStreaming:
        at, *keys = (F.col(quoted(name)) for name in (time, *by))
        parts = df.repartition(*keys) if by else df.repartition(at) if spread else df.repartition(1)
        return parts.sortWithinPartitions(at, *keys)
    mark = F.lit(0).cast("bigint").alias(MARK, metadata=mark_metadata("hold", spread=spread))
    return df.select("*", mark).dropDuplicates([time, MARK, *by]).drop(MARK)


class _Calls:
    """The code that runs in a task: it cuts the sorted rows of a partition into the groups of one time and key."""

    def __init__(
        self, function: Callable[..., Any], time: str, domain: TimeDomain, key: list[str], form: Form, result: pa.Schema
    ) -> None:
        self._function, self._time, self._domain, self._key, self._form, self._result = function, time, domain, key, form, result

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        in_loop = LoopTimes.here() is not None and self._time in self._result.names
        times = {self._time: self._domain} if self._time in self._result.names else {}
        for _, group in itertools.groupby(runs(batches, [self._time, *self._key]), key=itemgetter(0)):
            rest = map(itemgetter(1), group)
            first = next(rest)
            names = self._names(first)
            expected = Expected(self._result, times, first.schema.names)
            called = partial(self._called, names)
            with noted(called):
                result = self._function(*names, self._formed(itertools.chain([first], rest)))
                # The code of a generator runs here.
                for batch in conform(result, expected, partial(self._called, names, "The result of the")):
                    yield self._checked(names[0], batch) if in_loop else batch

    def _called(self, names: list[Any], what: str = "In the") -> str:
        """Return which call it is, for a message."""
        key = f" for the key {names[1]}" if self._key else ""
        return f"{what} function {name_of(self._function)}, called at the time {self._domain.format(names[0])}{key},"

    def _checked(self, now: Time, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a result. Raises for a time other than that of the call."""
        for time in times_of(batch.column(self._time), self._domain):
            if time != now:
                raise errors.loop_unsupported_result(self._domain, time, now)
        return batch

    def _names(self, part: pa.RecordBatch) -> list[Any]:
        (time,) = times_of(part.column(self._time).slice(0, 1), self._domain)
        return [time, python_key(key_values(part, self._key), self._key)] if self._key else [time]

    def _formed(self, parts: Iterator[pa.RecordBatch]) -> Any:
        if self._form == "batches":
            return parts
        table = pa.Table.from_batches(parts)
        return to_pandas(table) if self._form == "pandas" else table
