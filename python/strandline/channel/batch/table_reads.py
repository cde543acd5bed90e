"""What a commit says of the tables that a query's batch has read beside its streams."""

from __future__ import annotations

from typing import Any, NamedTuple

from strandline.json_value import JsonObject

__all__ = ["TableRead", "table_reads_from_json"]

_MOST = 10_000
"""The number of tables. Writers and readers share it."""


class TableRead(NamedTuple):
    """A Delta table, or a channel, that a batch of a query has read as a table, at one version.

    Attributes:
        table: The id of the Delta table.
        version: The version that the batch has read.
        path: Where the query finds the table; ``None`` where its writer does not know it.

    >>> TableRead("7c1f", 5, "/lake/devices").to_json()
    {'table': '7c1f', 'version': 5, 'path': '/lake/devices'}
    """

    table: str
    version: int
    path: str | None = None

    def to_json(self) -> JsonObject:
        """Return the JSON object of a statement."""
        body: JsonObject = {"table": self.table, "version": self.version}
        return body if self.path is None else body | {"path": self.path}


def table_reads_from_json(value: Any) -> tuple[TableRead, ...]:
    """Read the field ``tables`` of a statement. Raises ``ValueError`` for anything that no writer of ours makes.

    >>> table_reads_from_json([{"table": "7c1f", "version": 5}])
    (TableRead(table='7c1f', version=5, path=None),)
    """
    if not isinstance(value, list) or len(value) > _MOST:
        raise ValueError(f"tables is not a list of at most {_MOST} tables")
    return tuple(_table(each) for each in value)


def _table(value: Any) -> TableRead:
    if not isinstance(value, dict):
        raise ValueError("an entry of tables is not an object")
    table, version, path = value.get("table"), value.get("version"), value.get("path")
    if not isinstance(table, str) or type(version) is not int or version < 0 or not isinstance(path, str | None):
        raise ValueError("an entry of tables has a wrong table, version or path")
    return TableRead(table, version, path)
