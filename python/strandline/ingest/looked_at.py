"""Which batches' late rows have been looked at by ``readmit``: remembered by query and batch, whatever table has the rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from strandline.channel import Channel
from strandline.channel.statement import REGISTRAR
from strandline.ingest.names import CORRECTIONS

__all__ = ["MOVED", "NEWEST", "LookedAt"]

MOVED = "moved"
"""In a query's entry of the registrar's state: the batches with which its late rows went to another late table."""
NEWEST = "newest"
"""There as well: the newest batch that had late rows."""


@dataclass(frozen=True)
class LookedAt:
    """For each query ranges of batches, each with its late rows in one late table, and how far each of them was looked at.

    A range begins with late rows that go to a table without those of the batch before: there is another one that has them. A
    call of ``readmit`` reads one table, and has looked at a range through the newest of its batches there. Which table that was
    does not matter: it may have been copied, moved or made anew.

    >>> looked_at = LookedAt({"q": [0, 5]}, {"q": {0: 2}})
    >>> [batch for batch in range(8) if looked_at.covers("q", batch)]
    [0, 1, 2]
    >>> looked_at.through("q", [1, 6, 7]).to_json()
    {'q': [[0, 2], [5, 7]]}
    """

    ranges: Mapping[str, Sequence[int]]
    newest: Mapping[str, Mapping[int, int]]

    @classmethod
    def of(cls, channel: Channel) -> LookedAt:
        """What the channel says. An earlier release said the newest batch of a query."""
        registrar, corrections = channel.progress.get(REGISTRAR), channel.progress.get(CORRECTIONS)
        common: dict[str, Any] = (registrar.state if registrar else None) or {}
        done: dict[str, Any] = ((corrections.state if corrections else None) or {}).get("done", {})
        return cls(
            {query: [0, *entry.get(MOVED, ())] for query, entry in common.items() if isinstance(entry, dict)},
            {query: {0: known} if isinstance(known, int) else dict(known) for query, known in done.items()},
        )

    def covers(self, query: str, batch: int) -> bool:
        """Whether a batch's late rows have been looked at."""
        return bool(self._newest(query, [batch])[0] >= batch)

    def new(self, query: str, batches: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of these batches of a query have not been looked at."""
        found: npt.NDArray[np.bool_] = batches > self._newest(query, batches)
        return found

    def through(self, query: str, batches: Iterable[int]) -> LookedAt:
        """The same, when these batches too have been looked at."""
        newest = dict(self.newest.get(query, {}))
        for batch in batches:
            first = self._first(query, batch)
            newest[first] = max(batch, newest.get(first, -1))
        return LookedAt(self.ranges, {**self.newest, query: newest})

    def to_json(self) -> dict[str, list[list[int]]]:
        """The form that the corrections' state carries."""
        return {query: [[first, n] for first, n in sorted(newest.items())] for query, newest in self.newest.items()}

    def _first(self, query: str, batch: int) -> int:
        ranges = self.ranges.get(query, (0,))
        return ranges[max(bisect_right(ranges, batch) - 1, 0)]

    def _newest(self, query: str, batches: Any) -> npt.NDArray[np.int64]:
        ranges, newest = self.ranges.get(query, (0,)), self.newest.get(query, {})
        at = np.searchsorted(ranges, batches, side="right") - 1
        found: npt.NDArray[np.int64] = np.array([newest.get(first, -1) for first in ranges], dtype=np.int64)[np.maximum(at, 0)]
        return found
