"""How far queries have read their inputs, by their checkpoints. A batch without results is in the checkpoint, and in no log."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from strandline.channel import Channel, ProducerState
from strandline.channel.progress.query_producer_state import QueryProducerState
from strandline.delta.storage import Store, open_store, storage_of
from strandline.errors import StrandlineError
from strandline.spark_offsets import offset_lines

__all__ = ["Checkpoints", "Position"]

_LIMIT = 1 << 26
_NO_OFFSET = "-"
"""What Spark writes for a source that has no offset yet."""
_SHARE = 20
"""A checkpoint whose reading took so long is not read again for this many times as long."""

Position = tuple[int, int]
"""All commits before the first number were read, and so many files of that commit."""


class Checkpoints:
    """Reads the checkpoints of queries that state where theirs is. Only those on the storage of the query's output are read."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Known] = {}

    def position(self, output: Channel, state: ProducerState | None, table: str) -> Position | None:
        """Return how far a query has read a channel, with its newest batch that Spark has committed.

        Args:
            output: A channel that the query writes.
            state: The state of its producer there.
            table: The id of the table of the channel that it reads.

        Returns:
            ``None`` if it is not known: the query does not state where its checkpoint is, or that cannot be read from here.
        """
        own = QueryProducerState.from_json(None if state is None else state.state)
        if state is None or state.owner is None or not own.checkpoint:
            return None
        key = own.checkpoint, state.owner.id
        known = self._known.setdefault(key, _Known())
        if time.monotonic() >= known.again:
            began = time.monotonic()
            try:
                if storage_of(own.checkpoint) == storage_of(output.path):
                    known.read(open_store(own.checkpoint, output.storage_options), state.owner.id)
            except (StrandlineError, OSError, ValueError):
                known.positions = {}
            known.again = time.monotonic() + _SHARE * (time.monotonic() - began)
        return known.positions.get(table)


class _Known:
    """What is known of one checkpoint."""

    def __init__(self) -> None:
        self.again = 0.0
        self.positions: Mapping[str, Position] = {}
        self._batch = -1

    def read(self, store: Store, query: str) -> None:
        """Read the end of the newest committed batch, unless it is known."""
        newest = max((int(name) for name in store.list("commits") if name.isascii() and name.isdigit()), default=-1)
        if newest == self._batch and self.positions:
            return
        metadata = _object(store.read("metadata", _LIMIT))
        text = store.read(f"offsets/{newest}", _LIMIT) if newest >= 0 else None
        lines = offset_lines(text) if text is not None and metadata.get("id") == query else None
        self._batch, self.positions = newest, _positions(lines[1:]) if lines else {}


def _positions(lines: list[str]) -> dict[str, Position]:
    """Return the position in each channel that the offsets of a batch have: the earliest one, if several sources read it.

    One that a source reads as a snapshot has none yet.
    """
    found: dict[str, list[Position | None]] = {}
    for line in lines:
        if line == _NO_OFFSET:
            return {}  # it is not known which channel this source reads
        offset = _object(line)
        several = offset.get("channels")
        for each in several.values() if isinstance(several, dict) else [offset]:
            table = each.get("channel") if isinstance(each, dict) else None
            if isinstance(table, str):
                found.setdefault(table, []).append(_position(each))
    return {table: min(each for each in all_ if each) for table, all_ in found.items() if all(all_)}


def _position(offset: Mapping[str, Any]) -> Position | None:
    commit, file = offset.get("commit"), offset.get("file")
    if type(commit) is not int or type(file) is not int or min(commit, file) < 0 or offset.get("snapshot") is not None:
        return None
    return commit, file


def _object(text: bytes | str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
