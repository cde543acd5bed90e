"""When a partition was last heard of, by the clock that its policy counts: each clock has a key of its own in the state."""

from __future__ import annotations

from typing import Any

import numpy as np

from strandline.channel.progress.producer_state_columns import ProducerStateColumns
from strandline.channel.statements.nullable_int64 import Ints

__all__ = ["KEYS", "key_of", "reading_of", "readings_of"]

_LISTENED, _WALL = "heard", "heardWall"
KEYS = frozenset({_LISTENED, _WALL})


def key_of(*, wall: bool) -> str:
    """Return the key of a clock in a partition's state.

    >>> key_of(wall=False), key_of(wall=True)
    ('heard', 'heardWall')
    """
    return _WALL if wall else _LISTENED


def reading_of(memory: dict[str, Any], *, wall: bool) -> int:
    """Return when a partition was last heard of, or 0 if this clock does not say it.

    >>> reading_of({"heard": 4_000}, wall=True), reading_of({"heard": 4_000}, wall=False)
    (0, 4000)
    """
    return int(memory.get(key_of(wall=wall), 0))


def readings_of(table: ProducerStateColumns, *, wall: bool) -> Ints:
    """Return the same for all producers at once."""
    count = len(table.names)
    column = table.state.get(key_of(wall=wall))
    if column is None:
        return np.zeros(count, dtype=np.int64)
    heard = column.where(np.arange(count))
    return np.where(heard.valid, heard.values, 0)
