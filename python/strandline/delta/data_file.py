"""Data files of a Delta table, as its log names them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

__all__ = ["DataFile", "rows_in", "schema_mark"]

_ROWS_FIRST = re.compile(r'\{"numRecords":(\d{1,18})[,}]')


@dataclass(frozen=True)
class DataFile:
    """A Parquet file of a channel.

    ``path`` is relative to the table. It is decoded; in the log it is URL-encoded. ``size`` is in bytes. ``rows`` is
    -1 if the writer kept no statistics. ``stats`` is Delta's statistics as JSON, or ``None``.

    >>> file = DataFile("part-1.parquet", 900, 3, '{"numRecords":3}')
    >>> DataFile.from_json(file.to_json()) == file
    True
    """

    path: str
    size: int
    rows: int
    stats: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object for messages between processes."""
        return {"path": self.path, "size": self.size, "rows": self.rows, "stats": self.stats}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> DataFile:
        """Read what :meth:`to_json` wrote. Raises ``ValueError`` for anything else."""
        path, size, rows, stats = (value.get(name) for name in ("path", "size", "rows", "stats"))
        if not isinstance(path, str) or not path or not isinstance(size, int) or not isinstance(rows, int):
            raise ValueError(f"{str(value)[:200]!r} is not a data file")
        return cls(path, size, rows, stats if isinstance(stats, str) else None)

    @classmethod
    def from_add(cls, action: Mapping[str, Any]) -> DataFile:
        """Read an ``add`` action of a log. Raises ``ValueError`` if it is malformed."""
        path, size, stats = action.get("path"), action.get("size"), action.get("stats")
        if not isinstance(path, str) or not path:
            raise ValueError("the action has no path")
        if type(size) is not int or not 0 <= size < 1 << 63:
            raise ValueError(f"the size of {path!r} is {str(size)[:40]}")
        if not isinstance(stats, str | None):
            raise ValueError(f"the statistics of {path!r} are {str(stats)[:40]}, not a text")
        return cls(unquote(path) if "%" in path else path, size, -1 if stats is None else rows_in(stats), stats)


def rows_in(stats: str) -> int:
    """Return ``numRecords`` of Delta's statistics, or -1. Every writer in use puts it first, so most texts need not be parsed."""
    if first := _ROWS_FIRST.match(stats):
        return int(first.group(1))
    try:
        rows = json.loads(stats).get("numRecords")
    except (ValueError, AttributeError, RecursionError):
        return -1
    return rows if type(rows) is int else -1


def schema_mark(schema: pa.Schema) -> str:
    """Return a short mark of the columns' names and types. :class:`FileWriter` puts it into the names of its files.

    So a reader knows the columns in a file from Strandline without opening it. Differences that Parquet does not keep do not
    change the mark.

    >>> schema_mark(pa.schema([("n", pa.int64())])) == schema_mark(pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    True
    >>> len(schema_mark(pa.schema([("n", pa.int64())])))
    12
    """
    text = json.dumps([[field.name, _type_text(field.type)] for field in schema])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _type_text(kind: pa.DataType) -> Any:
    def inner(field: pa.Field) -> list[Any]:
        return [_type_text(field.type), field.nullable]

    if pa.types.is_struct(kind):
        return ["struct", [[field.name, *inner(field)] for field in kind]]
    if pa.types.is_map(kind):
        return ["map", _type_text(kind.key_type), *inner(kind.item_field)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return ["list", *inner(kind.value_field)]
    return str(kind).removeprefix("large_")
