"""Whether rows fit a table's columns, and whether an opened channel is still the one at its path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from strandline.channel.channel import Channel

__all__ = ["different_columns", "was_replaced"]


def different_columns(have: pa.Schema, want: pa.Schema) -> str | None:
    """The columns in which rows of ``want`` differ from a table of ``have``, each with both types; ``None`` when they fit.

    >>> different_columns(pa.schema([("a", pa.int64()), ("b", pa.string())]), pa.schema([("b", pa.string()), ("a", pa.int32())]))
    'a (int32 for int64)'
    """
    there, rows = ({f.name: f.type for f in schema} for schema in (have, want))
    names = sorted(name for name in there.keys() | rows.keys() if there.get(name) != rows.get(name))
    return ", ".join(f"{name} ({rows.get(name, 'missing')} for {there.get(name, 'none')})" for name in names) or None


def was_replaced(channel: Channel) -> bool:
    """Whether another table, or none, is where the channel was: a process may outlive it."""
    newest = channel.log.read(channel.version)
    first = channel.log.read(0)
    return newest is None or (first is not None and (first.metadata or {}).get("id") != channel.table_id)
