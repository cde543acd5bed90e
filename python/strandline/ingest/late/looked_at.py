"""The batches whose late rows ``readmit`` has looked at, remembered by query and batch, whatever table has the rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strandline.channel import Channel
from strandline.ingest.state.corrections_state import CorrectionsState, Ranges
from strandline.ingest.state.registrar_state import RegistrarState

__all__ = ["LookedAt"]


@dataclass(frozen=True)
class LookedAt:
    """For each query, the batches that were looked at, as ranges ``[first, newest]``, and the batches at which ranges begin.

    A range begins when late rows go to a table that lacks the rows of the batch before: another table has those rows. A call of
    ``readmit`` reads one table. It has then looked at a range, from its beginning through the newest of its batches in that
    table. It does not matter which table that was: it may have been copied, moved or recreated.

    >>> looked_at = LookedAt({"q": [5]}, {"q": [(0, 2)]})
    >>> [batch for batch in range(8) if looked_at.covers("q", batch)]
    [0, 1, 2]
    >>> looked_at.through("q", [1, 3, 6, 7]).to_json()
    {'q': [[0, 3], [5, 7]]}
    """

    begin: Mapping[str, Sequence[int]]
    done: Mapping[str, Sequence[tuple[int, int]]]

    @classmethod
    def of(cls, channel: Channel, key: str) -> LookedAt:
        """Read what the channel states under a key of the corrections' state, ``done`` or ``late``."""
        entries, state = RegistrarState.of(channel.progress).entries, CorrectionsState.of(channel.progress)
        done = (state.late if key == "late" else state.done) or {}
        return cls(
            {query: entry.moved or () for query, entry in entries.items()},
            {query: [(first, newest) for first, newest in spans] for query, spans in done.items()},
        )

    def or_in(self, other: LookedAt) -> LookedAt:
        """Return the batches that were looked at here or there."""
        queries = {*self.done, *other.done}
        return LookedAt(self.begin, {q: sorted({*self.done.get(q, ()), *other.done.get(q, ())}) for q in queries})

    def covers(self, query: str, batch: int) -> bool:
        """Return whether a batch's late rows have been looked at."""
        return any(first <= batch <= newest for first, newest in self.done.get(query, ()))

    def any_new(self, query: str, low: int, high: int) -> bool:
        """Return whether any batch from ``low`` to ``high`` has not been looked at.

        >>> looked_at = LookedAt({}, {"q": [(0, 2), (5, 7)]})
        >>> looked_at.any_new("q", 1, 2), looked_at.any_new("q", 2, 5), looked_at.any_new("q", 6, 8)
        (False, True, True)
        """
        for first, newest in sorted(self.done.get(query, ())):
            if first <= low <= newest:
                low = newest + 1
        return low <= high

    def new(self, query: str, batches: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which of these batches of a query have not been looked at."""
        found = np.ones(len(batches), dtype=np.bool_)
        for first, newest in self.done.get(query, ()):
            found &= (batches < first) | (batches > newest)
        return found

    def beginning(self, query: str, batch: int) -> LookedAt:
        """Return a copy that knows that a range begins with this batch as well."""
        return LookedAt({**self.begin, query: sorted({*self.begin.get(query, ()), batch})}, self.done)

    def through(self, query: str, batches: Iterable[int]) -> LookedAt:
        """Return a copy in which these batches too have been looked at."""
        newest = dict(self.done.get(query, ()))
        begin = [0, *self.begin.get(query, ())]
        for batch in batches:
            first = begin[bisect_right(begin, batch) - 1]
            newest[first] = max(batch, newest.get(first, -1))
        return LookedAt(self.begin, {**self.done, query: sorted(newest.items())})

    def to_json(self) -> Ranges:
        """Return the form that the corrections' state carries."""
        return {query: [[first, newest] for first, newest in done] for query, done in self.done.items()}
