"""Converts the results of a user's function to record batches of its declared schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from strandline.errors import StrandlineError

__all__ = ["conform"]


def conform(result: Any, schema: pa.Schema, what: str) -> Iterator[pa.RecordBatch]:
    """Convert ``result`` to record batches of ``schema``.

    ``result`` is a table, a record batch, a pandas DataFrame, a list of dicts, several of them, or ``None``. Columns are found by
    name and cast without loss. Raises a :class:`StrandlineError` that names the columns that do not fit.

    >>> schema = pa.schema([("n", pa.int64()), ("k", pa.string())])
    >>> [batch.to_pylist() for batch in conform([{"k": "a", "n": 1}], schema, "The result")]
    [[{'n': 1, 'k': 'a'}]]
    >>> list(conform(pa.table({"k": ["a"]}), schema, "The result"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    strandline.errors.StrandlineError: [STRANDLINE_RESULT_INVALID] The result lacks the columns ['n'] ...
    """
    if result is None:
        return
    if isinstance(result, (pa.Table, pa.RecordBatch)):
        yield from _cast(pa.Table.from_batches([result]) if isinstance(result, pa.RecordBatch) else result, schema, what)
    elif hasattr(result, "to_dict") and hasattr(result, "columns"):  # pandas; a task need not import it
        yield from _cast(pa.Table.from_pandas(result, preserve_index=False), schema, what)
    elif isinstance(result, list) and all(isinstance(row, Mapping) for row in result):
        if result:
            missing = [name for name in schema.names if any(name not in row for row in result)]
            _refuse(missing, sorted(result[0]), what)
            yield from _cast(pa.Table.from_pylist(result, schema), schema, what)
    elif isinstance(result, Iterable) and not isinstance(result, (str, bytes, Mapping)):
        for part in result:
            yield from conform(part, schema, what)
    else:
        raise StrandlineError(
            "STRANDLINE_RESULT_INVALID",
            f"{what} has the type {type(result).__name__}, which is not supported.",
            "Give a pyarrow Table or RecordBatch, a pandas DataFrame, a list of dicts, an iterable of these, or None.",
        )


def _refuse(missing: list[str], existing: list[str], what: str) -> None:
    if missing:
        raise StrandlineError(
            "STRANDLINE_RESULT_INVALID",
            f"{what} lacks the columns {missing} of the schema. It has the columns {existing}.",
            "Give all columns.",
        )


def _cast(table: pa.Table, schema: pa.Schema, what: str) -> Iterator[pa.RecordBatch]:
    _refuse([name for name in schema.names if name not in table.column_names], table.column_names, what)
    try:
        cast = table.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise StrandlineError(
            "STRANDLINE_RESULT_INVALID", f"{what} does not fit the schema: {error}.", "Give columns of the schema's types."
        ) from error
    yield from (batch for batch in cast.to_batches() if batch.num_rows)
