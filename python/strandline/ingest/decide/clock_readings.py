"""When a partition was last heard of, by the clock that its policy counts: each clock has a key of its own in the state."""

from __future__ import annotations

from typing import Any

import numpy as np

from strandline.channel.progress.producer_state_columns import ProducerStateColumns
from strandline.channel.statements.nullable_int64 import Ints, NullableInt64
from strandline.errors import IngestError

__all__ = ["KEYS", "key_of", "reading_of", "readings_of"]

_LISTENED, _WALL = "heard", "heardWall"
KEYS = frozenset({_LISTENED, _WALL})
_OLDEST_WALL_MS = 1_577_836_800_000
"""The year 2020. An earlier release wrote readings of the wall clock under the other key too. No listening clock gets there."""


def key_of(*, wall: bool) -> str:
    """Return the key of a clock in a partition's state.

    >>> key_of(wall=False), key_of(wall=True)
    ('heard', 'heardWall')
    """
    return _WALL if wall else _LISTENED


def reading_of(name: str, memory: dict[str, Any], listened: int, *, wall: bool) -> int:
    """Return when a partition was last heard of, or 0 if this clock does not say it.

    Args:
        name: The partition.
        memory: Its state.
        listened: The reading of the listening clock now.
        wall: Whether to return the reading of the wall clock.

    Raises:
        IngestError: ``STRANDLINE_INGEST_STATE_INVALID`` for a reading of an earlier release that can be of neither clock.

    >>> reading_of("a", {"heard": 1_790_000_000_000}, 5_000, wall=True)
    1790000000000
    >>> reading_of("a", {"heard": 4_000}, 5_000, wall=True), reading_of("a", {"heard": 4_000}, 5_000, wall=False)
    (0, 4000)
    """
    if wall and _WALL in memory:
        return int(memory[_WALL])
    heard: int = memory.get(_LISTENED, 0)
    if heard <= listened:
        return 0 if wall else heard
    if heard < _OLDEST_WALL_MS:
        raise IngestError(
            "STRANDLINE_INGEST_STATE_INVALID",
            f"The state of {name!r} has {heard} for 'heard'. The listening clock has {listened}, so this is no reading of it. It "
            "is before 2020, so it is none of the wall clock either. It is not known since when the partition is silent. "
            "Nothing was written.",
            "The clock of the machine that wrote it was wrong, or the log is damaged. Restore the log from a backup, or drop the "
            "partition: it joins again with its next rows.",
        )
    return heard if wall else 0


def readings_of(table: ProducerStateColumns, judged: np.ndarray, listened: int, *, wall: bool) -> Ints:
    """Return the same for all partitions at once. Only those of ``judged`` count."""
    count = len(table.names)

    def column(key: str) -> NullableInt64:
        return table.state[key].where(np.arange(count)) if key in table.state else NullableInt64.none(count)

    heard, walls = column(_LISTENED), column(_WALL)
    asked = judged & heard.valid & ~(walls.valid & wall)
    for row in np.flatnonzero(asked & (heard.values > listened) & (heard.values < _OLDEST_WALL_MS))[:1].tolist():
        reading_of(table.names[row], {_LISTENED: int(heard.values[row])}, listened, wall=wall)  # raises
    is_wall = heard.valid & (heard.values > listened)
    known = np.where(heard.valid & (is_wall == wall), heard.values, 0)
    return np.where(walls.valid, walls.values, known) if wall else known
