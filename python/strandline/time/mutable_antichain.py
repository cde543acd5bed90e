"""Mutable antichains: counts of times, and the frontier of the times with a positive count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from strandline.time.antichain import Antichain, least_times
from strandline.time.domain import Time, TimeDomain

__all__ = ["FrontierChange", "MutableAntichain"]

_MANY = 64
FrontierChange = tuple[Time, int]
"""A time that entered (+1) or left (-1) a frontier."""


class MutableAntichain:
    """The counts of times, and the frontier: the least times with a positive count (timely's ``MutableAntichain``).

    A count may be negative for a while: the receipt of a message can arrive before its sending. Such a time is remembered, but
    it is not in the frontier. Every update returns the changes of the frontier, and the sum of these changes is the frontier.
    Memory is linear in the times with a nonzero count.

    This class is the plain implementation and the specification. :class:`~strandline.ColumnarAntichain` takes large batches as
    columns.

    >>> from strandline.time.domain import uint64
    >>> stamps = MutableAntichain(uint64, [(1, 1)])
    >>> stamps.update_iter([(1, -1), (2, 7)])
    [(1, -1), (2, 1)]
    >>> stamps.frontier, stamps.count_for(2)
    (Antichain(uint64, [2]), 7)
    """

    __slots__ = ("_counts", "_elements", "_heap", "_less_equal", "domain")

    def __init__(self, domain: TimeDomain, updates: Iterable[tuple[Time, int]] = ()) -> None:
        self.domain = domain
        self._counts: dict[Time, int] = {}
        self._elements: list[Time] = []
        self._less_equal = domain.comparison
        # In a total order: a heap that holds every time with a positive count at least once (stale entries are skipped).
        self._heap: list[tuple[Time, Time]] | None = [] if domain.is_total else None
        self.update_iter(updates)

    @property
    def frontier(self) -> Antichain:
        """The least times with a positive count, as a separate antichain."""
        return Antichain.of_incomparable(self.domain, self._elements)

    @property
    def elements(self) -> Sequence[Time]:
        """The frontier's elements in no particular order, not copied: read them before the next update."""
        return self._elements

    def is_empty(self) -> bool:
        """Whether the frontier is empty."""
        return not self._elements

    def less_equal(self, time: Time) -> bool:
        """Whether some frontier element is ≤ ``time``."""
        less_equal = self._less_equal
        return any(less_equal(e, time) for e in self._elements)

    def less_than(self, time: Time) -> bool:
        """Whether some frontier element is < ``time``."""
        less_equal = self._less_equal
        return any(e != time and less_equal(e, time) for e in self._elements)

    def count_for(self, time: Time) -> int:
        """The count of ``time``; 0 for an unknown time."""
        return self._counts.get(time, 0)

    def updates(self) -> Iterator[tuple[Time, int]]:
        """Every time with a nonzero count, and that count."""
        return iter(list(self._counts.items()))

    def __len__(self) -> int:
        """The number of times with a nonzero count. Memory is linear in this number."""
        return len(self._counts)

    def update(self, time: Time, delta: int) -> Sequence[FrontierChange]:
        """Add ``delta`` to the count of ``time``.

        Args:
            time: The time.
            delta: The change of its count.

        Returns:
            The frontier's changes, in no particular order.

        >>> from strandline.time.domain import product
        >>> stamps = MutableAntichain(product(epoch="int64", iter="int64"), [((1, 1), 1), ((1, 4), 1)])
        >>> sorted(stamps.update((1, 1), -1))
        [((1, 1), -1), ((1, 4), 1)]
        """
        counts = self._counts
        old = counts.get(time, 0)
        new = old + delta
        if new:
            counts[time] = new
        elif delta:
            del counts[time]
        if (old > 0) == (new > 0):
            return ()
        if new > 0:
            if self._heap is not None:
                self._push(time)
            if not self._elements:
                self._elements.append(time)
                return ((time, 1),)
            return self._appeared(time)
        if time not in self._elements:
            return ()
        if not counts:
            self._elements.clear()
            if self._heap:
                self._heap.clear()
            return ((time, -1),)
        return self._vanished(time)

    def update_iter(self, updates: Iterable[tuple[Time, int]]) -> list[FrontierChange]:
        """Apply a batch atomically. Returns the net changes of the frontier in ``sort_key`` order.

        >>> from strandline.time.domain import uint64
        >>> MutableAntichain(uint64).update_iter([(3, 1), (2, -1), (2, 1)])
        [(3, 1)]
        """
        counts = self._counts
        crossed: dict[Time, bool] = {}  # times whose count crossed zero -> whether it was positive before
        for time, delta in updates:
            old = counts.get(time, 0)
            new = old + delta
            if new:
                counts[time] = new
            elif delta:
                del counts[time]
            if (old > 0) != (new > 0) and time not in crossed:
                crossed[time] = old > 0
        if not crossed:
            return []
        before = set(self._elements)
        appeared = [t for t, was in crossed.items() if not was and counts.get(t, 0) > 0]
        if self._heap is not None:
            for time in appeared:
                self._push(time)
        if any(was and counts.get(t, 0) <= 0 for t, was in crossed.items() if t in before):
            self._elements = self._least()
        elif len(appeared) >= _MANY:
            self._elements = least_times(self.domain, [*self._elements, *appeared])
        else:
            for time in appeared:
                if not self.less_equal(time):
                    self._elements = [e for e in self._elements if not self._less_equal(time, e)]
                    self._elements.append(time)
        now = set(self._elements)
        changes = [(t, -1) for t in before - now] + [(t, 1) for t in now - before]
        key = self.domain.sort_key
        changes.sort(key=lambda change: key(change[0]))
        return changes

    def clear(self) -> None:
        """Forget all counts."""
        self._counts.clear()
        self._elements.clear()
        if self._heap is not None:
            self._heap.clear()

    def _appeared(self, time: Time) -> Sequence[FrontierChange]:
        less_equal, elements = self._less_equal, self._elements
        for e in elements:
            if less_equal(e, time):
                return ()
        displaced = [e for e in elements if less_equal(time, e)]
        if displaced:
            self._elements = [e for e in elements if e not in displaced]
        self._elements.append(time)
        return ((time, 1), *((e, -1) for e in displaced))

    def _vanished(self, time: Time) -> Sequence[FrontierChange]:
        less_equal, counts = self._less_equal, self._counts
        if self._heap is not None:
            self._elements = self._least()
            return ((time, -1), *((e, 1) for e in self._elements))
        rest = [e for e in self._elements if e != time]
        self._elements = rest
        # Only a time that ``time`` alone kept out of the frontier can replace it.
        freed = [t for t, count in counts.items() if count > 0 and less_equal(time, t) and t not in rest]
        freed.sort(key=self.domain.sort_key)
        changes: list[FrontierChange] = [(time, -1)]
        for t in freed:
            if not any(less_equal(e, t) for e in rest):
                rest.append(t)
                changes.append((t, 1))
        return changes

    def _least(self) -> list[Time]:
        counts = self._counts
        heap = self._heap
        if heap is not None:
            while heap and counts.get(heap[0][1], 0) <= 0:
                heappop(heap)
            return [heap[0][1]] if heap else []
        return least_times(self.domain, (t for t, count in counts.items() if count > 0))

    def _push(self, time: Time) -> None:
        heap, key = self._heap, self.domain.sort_key
        assert heap is not None  # noqa: S101  # only called for total orders
        if len(heap) > 2 * len(self._counts) + 64:
            heap[:] = [(key(t), t) for t, count in self._counts.items() if count > 0]
            heapify(heap)
        else:
            heappush(heap, (key(time), time))

    def __repr__(self) -> str:
        return f"MutableAntichain({self.domain}, {sorted(self._counts.items(), key=lambda c: self.domain.sort_key(c[0]))!r})"
