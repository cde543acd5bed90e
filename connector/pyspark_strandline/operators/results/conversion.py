"""Converts the results of a user's function to record batches of its declared schema."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as field_of
from operator import itemgetter
from typing import Any

import pyarrow as pa

from pyspark_strandline.operators import errors
from pyspark_strandline.operators.results.casts import cast_array
from pyspark_strandline.operators.results.columns import array_of_values
from pyspark_strandline.operators.results.rules import MisfitError, is_missing, other_fields, shown
from strandline.errors import StrandlineError
from strandline.time.arrow import array_of
from strandline.time.domain import Time, TimeDomain

__all__ = ["Expected", "conform"]


@dataclass(frozen=True)
class Expected:
    """What a result must have.

    Args:
        schema: Its columns.
        times: The domains of the time columns. A dict may have such a time in each form that the domain takes.
        spare: Columns that it may have too, and that are left out: those of the rows that the user's function got.
    """

    schema: pa.Schema
    times: Mapping[str, TimeDomain] = field_of(default_factory=dict)
    spare: Collection[str] = ()


def conform(result: Any, expected: Expected, what: Callable[[], str]) -> Iterator[pa.RecordBatch]:
    """Convert ``result`` to record batches of the expected schema.

    ``result`` is a table, a record batch, a pandas DataFrame, a list of dicts, several of them, or ``None``. Columns are found by
    name. A value is taken exactly or not at all. In dicts it has Python's type for the column, and in the columns of a table
    another type if no value changes by that. In pandas NaN and NaT stand for null.

    Args:
        result: The result.
        expected: What it must have.
        what: Returns what the result is, for messages.

    Raises:
        StrandlineError: ``STRANDLINE_RESULT_INVALID``, with the row, the field and the value that does not fit.

    >>> schema = Expected(pa.schema([("n", pa.int64()), ("k", pa.string())]))
    >>> [batch.to_pylist() for batch in conform([{"k": "a", "n": 1}], schema, lambda: "The result")]
    [[{'n': 1, 'k': 'a'}]]
    >>> list(conform(pa.table({"k": ["a"]}), schema, lambda: "The result"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    strandline.errors.StrandlineError: [STRANDLINE_RESULT_INVALID] The result lacks the columns ['n'] ...
    >>> list(conform([{"k": "a", "n": 1.5}], schema, lambda: "The result"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    strandline.errors.StrandlineError: [STRANDLINE_RESULT_INVALID] The result does not fit the schema: row 0, n is 1.5 ...
    """
    if result is None:
        return
    if isinstance(result, pa.Table):
        yield from _cast(result, expected, what)
    elif isinstance(result, pa.RecordBatch):
        yield from _cast(pa.Table.from_batches([result]), expected, what)
    elif hasattr(result, "to_dict") and hasattr(result, "columns"):  # pandas; a task need not import it
        yield from _from_pandas(result, expected, what)
    elif isinstance(result, (Mapping, str, bytes)) or not isinstance(result, Iterable):
        raise errors.result_invalid_form(what(), result)
    elif isinstance(result, (list, tuple)) and result and all(map(_is_row, result)):
        yield _from_rows(result, expected, what)
    else:
        for part in result:
            if not _is_form(part):
                raise errors.result_invalid_form(what(), part)
            yield from conform(part, expected, what)


def _is_row(value: Any) -> bool:
    # A row of Spark, or a named tuple.
    return isinstance(value, Mapping) or (isinstance(value, tuple) and (hasattr(value, "asDict") or hasattr(value, "_asdict")))


def _is_form(part: Any) -> bool:
    return part is None or isinstance(part, (pa.Table, pa.RecordBatch, list)) or hasattr(part, "columns")


def _from_rows(rows: Sequence[Any], expected: Expected, what: Callable[[], str]) -> pa.RecordBatch:
    schema, names = expected.schema, expected.schema.names
    if set(map(type, rows)) != {dict}:
        rows = [row if isinstance(row, Mapping) else row.asDict() if hasattr(row, "asDict") else row._asdict() for row in rows]
    try:
        values = [list(map(itemgetter(name), rows)) for name in names]
        fits = set(map(len, rows)) == {len(names)}
    except KeyError:
        fits = False
    if not fits:
        allowed = {*names, *expected.spare}
        for number, row in enumerate(rows):
            if not allowed.issuperset(row) or any(name not in row for name in names):
                others = {name: value for name, value in row.items() if name in names or name not in allowed}
                raise _misfit(MisfitError(other_fields(others, names), f"[{number}]"), what)
    return pa.RecordBatch.from_arrays(
        [_column(v, f, what, expected.times) for v, f in zip(values, schema, strict=True)], schema=schema
    )


def _column(values: list[Any], field: pa.Field, what: Callable[[], str], times: Mapping[str, TimeDomain]) -> pa.Array:
    try:
        if field.name in times:
            return _time_column(values, times[field.name]).cast(field.type)
        return array_of_values(values, field)
    except MisfitError as misfit:
        raise _misfit(_named(misfit, field.name, 0), what) from None
    except pa.ArrowException as error:
        raise errors.result_invalid_column(what(), field.name, error) from error


def _time_column(values: list[Any], domain: TimeDomain) -> pa.Array:
    """Return times in any form that the domain takes, such as the one that a function is called with."""
    known: list[Time] = []
    for number, value in enumerate(values):
        try:
            known.extend([] if value is None else [domain.time(value)])
        except StrandlineError as error:  # noqa: PERF203 - costs nothing where nothing is raised
            raise MisfitError(f"is {shown(value)}, not a time of {domain}", f"[{number}]") from error
    at = itertools.count()
    return array_of(known, domain).take(pa.array([None if value is None else next(at) for value in values], pa.int64()))


def _from_pandas(frame: Any, expected: Expected, what: Callable[[], str]) -> Iterator[pa.RecordBatch]:
    names = [str(name) for name in frame.columns]
    _check_names(names, expected, what)
    columns = []
    for field in expected.schema:
        series = frame.iloc[:, names.index(field.name)]
        if series.dtype == object:
            columns.append(_column([None if is_missing(value) else value for value in series], field, what, expected.times))
        else:
            columns.append(_cast_column(_arrow(series, field, what), field, what, 0))
    if len(frame):
        yield pa.RecordBatch.from_arrays(columns, schema=expected.schema)


def _arrow(series: Any, field: pa.Field, what: Callable[[], str]) -> pa.Array:
    try:
        made = pa.array(series, from_pandas=True)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise errors.result_invalid_column(what(), field.name, error) from error
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made


def _cast(table: pa.Table, expected: Expected, what: Callable[[], str]) -> Iterator[pa.RecordBatch]:
    _check_names(table.column_names, expected, what)
    first = 0
    # Even an empty table says what its columns are.
    schema = expected.schema
    chosen = table.select(schema.names)
    for batch in chosen.to_batches() or [pa.RecordBatch.from_arrays([pa.nulls(0, c.type) for c in chosen.columns], schema.names)]:
        columns = [_cast_column(column, field, what, first) for column, field in zip(batch.columns, schema, strict=True)]
        if batch.num_rows:
            yield pa.RecordBatch.from_arrays(columns, schema=expected.schema)
        first += batch.num_rows


def _cast_column(column: pa.Array, field: pa.Field, what: Callable[[], str], first: int) -> pa.Array:
    try:
        return cast_array(column, field)
    except MisfitError as misfit:
        raise _misfit(_named(misfit, field.name, first), what) from None
    except pa.ArrowException as error:
        raise errors.result_invalid_column(what(), field.name, error) from error


def _check_names(names: list[str], expected: Expected, what: Callable[[], str]) -> None:
    schema = expected.schema
    missing = [name for name in schema.names if name not in names]
    if missing:
        raise errors.result_invalid_columns_missing(what(), missing, names)
    others = [name for name in names if name not in schema.names and name not in expected.spare]
    if others:
        raise errors.result_invalid_columns_unknown(what(), others, schema.names)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise errors.result_invalid_columns_twice(what(), twice)


def _named(misfit: MisfitError, name: str, first: int) -> MisfitError:
    """Return a misfit in a column as one in rows, the first of which has the number ``first``."""
    row, inside = _row_and_rest(misfit.path)
    if row is None:
        return misfit.within(name)
    return MisfitError(misfit.what, inside).within(name).within(f"[{row + first}]")


def _misfit(misfit: MisfitError, what: Callable[[], str]) -> StrandlineError:
    """Return the error for a misfit in rows."""
    row, inside = _row_and_rest(misfit.path)
    where = inside if row is None else f"row {row}{', ' if inside else ''}{inside}"
    return errors.result_invalid_misfit(what(), where, misfit.what)


def _row_and_rest(path: str) -> tuple[int | None, str]:
    row, _, rest = path[1:].partition("]")
    return (int(row), rest.removeprefix(".")) if path.startswith("[") and row.isdigit() else (None, path)
