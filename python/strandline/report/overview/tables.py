"""Frontiers and holds of all channels of a folder or scope, as tables: one row for each time."""

from __future__ import annotations

import os
import time as clock
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from strandline.channel import Channel
from strandline.channel.statements.statement import REGISTRAR
from strandline.errors import StrandlineError
from strandline.ingest.state.partition_state import PartitionState
from strandline.ingest.state.registrar_state import RegistrarState
from strandline.report.history import History, Since
from strandline.report.holders import kind_of
from strandline.report.overview.channels import Found, find_channels
from strandline.report.progress.frontiers import clock_lag
from strandline.scope.errors import scope_channel_replaced
from strandline.time.antichain import Antichain
from strandline.time.domain import Time

__all__ = ["FRONTIERS", "HOLDS", "frontiers", "holds", "rows_of"]

_INSTANT = pa.timestamp("us", "UTC")
_CHANNEL = [("channel", pa.string()), ("path", pa.string()), ("table", pa.string()), ("version", pa.int64())]
_TIME = [("time", pa.string()), ("timeInt64", pa.int64()), ("timeTimestamp", _INSTANT)]
_SINCE = [("sinceVersion", pa.int64()), ("since", _INSTANT), ("sinceExact", pa.bool_())]
FRONTIERS = pa.schema(
    [
        *_CHANNEL,
        ("domain", pa.string()),
        *_TIME,
        ("closed", pa.bool_()),
        ("sealed", pa.bool_()),
        *_SINCE,
        ("lagSeconds", pa.float64()),
        ("error", pa.string()),
    ]
)
"""The columns of :func:`frontiers`."""
HOLDS = pa.schema(
    [
        *_CHANNEL,
        ("producer", pa.string()),
        ("kind", pa.string()),
        *_TIME,
        ("holdsFrontierBack", pa.bool_()),
        *_SINCE,
        ("session", pa.string()),
        ("gone", pa.bool_()),
        ("setAside", pa.int64()),
        ("error", pa.string()),
    ]
)
"""The columns of :func:`holds`."""
_NO_CHANNEL = ("STRANDLINE_NOT_A_CHANNEL", "STRANDLINE_TIME_DOMAIN_MISSING")
_LATEST = 253_402_300_800_000_000
_EARLIEST = -62_135_596_800_000_000


def frontiers(path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> pa.Table:
    """Return the frontiers of all channels at or below a path, one row for each time of a frontier (docs/tables.md).

    Args:
        path: The path of a channel, a scope or a folder.
        storage_options: The options of its storage.

    Raises:
        ChannelError: ``STRANDLINE_CHANNELS_MISSING`` if there is no table.

    >>> import tempfile
    >>> from strandline.time.arrow import time_field
    >>> from strandline.time.domain import int64
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("a", "b"):
    ...         _ = Channel.create(f"{folder}/{name}", pa.schema([time_field("time", int64)]), producers=["p"], at=7)
    ...     frontiers(folder).select(["channel", "timeInt64", "closed"]).to_pylist()
    [{'channel': 'a', 'timeInt64': 7, 'closed': False}, {'channel': 'b', 'timeInt64': 7, 'closed': False}]
    """
    return _table("frontiers", FRONTIERS, path, storage_options)


def holds(path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> pa.Table:
    """Return what the producers of all channels at or below a path hold, one row for each time (docs/tables.md).

    Args and errors are those of :func:`frontiers`.
    """
    return _table("holds", HOLDS, path, storage_options)


def rows_of(show: str, found: Found, storage_options: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return the rows of one table: of its ``frontiers`` or its ``holds``. One that cannot be read has a row with the error."""
    begin: dict[str, Any] = {"channel": found.name, "path": found.path}
    if found.error is not None:
        return [begin | {"error": found.error}]
    try:
        channel = Channel.open(found.path, storage_options)
        if found.table is not None and channel.table_id != found.table:
            raise scope_channel_replaced(found.name, found.table, channel.path, channel.table_id)
        begin |= {"table": channel.table_id, "version": channel.version}
        rows = _frontiers(channel) if show == "frontiers" else _holds(channel)
        return [begin | row for row in rows]
    except StrandlineError as error:
        if not found.named and error.condition in _NO_CHANNEL:
            return []
        return [begin | {"error": str(error)}]


def _table(show: str, schema: pa.Schema, path: str | os.PathLike[str], storage_options: Mapping[str, str] | None) -> pa.Table:
    rows = [row for found in find_channels(path, storage_options) for row in rows_of(show, found, storage_options)]
    return pa.Table.from_pylist(rows, schema)


def _frontiers(channel: Channel) -> Iterator[dict[str, Any]]:
    frontier = channel.frontier
    row = {"domain": str(channel.domain), "closed": not len(frontier), "sealed": channel.sealed}
    row |= _since(History(channel).frontier_since()) | {"lagSeconds": clock_lag(frontier, clock.time())}
    for time in _times(frontier):
        yield row | _typed(channel, time)


def _holds(channel: Channel) -> Iterator[dict[str, Any]]:
    progress, history = channel.progress, History(channel)
    ingests = frozenset(RegistrarState.of(progress).entries)
    states = dict(progress.producers)
    registrar = progress.get(REGISTRAR)
    if registrar is not None and not progress.sealed:
        states[REGISTRAR] = registrar
    history.look_for(states)
    frontier = progress.frontier
    for name, state in sorted(states.items()):
        owner = state.owner
        kind = kind_of(name, state, ingests)
        row = {"producer": name, "kind": kind} | _since(history.since(name))
        row["session"] = None if owner is None else str(owner)
        row["gone"] = True if owner is not None and owner.is_dead() else None
        if kind == "partition":
            row["setAside"] = PartitionState.of(name, state.state).aside or 0
        for time in _times(state.holds):
            yield row | _typed(channel, time) | {"holdsFrontierBack": time is not None and time in frontier}


def _times(times: Antichain) -> list[Time | None]:
    return list(times) or [None]


def _typed(channel: Channel, time: Time | None) -> dict[str, Any]:
    if time is None:
        return {}
    name = str(channel.domain)
    return {
        "time": channel.domain.format(time),
        "timeInt64": time if name == "int64" else None,
        "timeTimestamp": time if name == "timestamp" and _EARLIEST <= time < _LATEST else None,
    }


def _since(since: Since | None) -> dict[str, Any]:
    if since is None:
        return {}
    return {"sinceVersion": since.version, "since": since.ms * 1000 if since.ms else None, "sinceExact": since.exact}
