"""Change batches: net counts of changes that take effect together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

__all__ = ["ChangeBatch"]

Item = TypeVar("Item", bound=Hashable)


class ChangeBatch(Generic[Item]):
    """A set of ``(item, ±count)`` changes (timely's ``ChangeBatch``).

    The counts of equal items add up. The set does not contain items with a net count of zero. An item is anything that is
    counted: a time, or a pointstamp ``(location, time)``. Memory is linear in the items with a nonzero net count, and does not
    depend on the number of updates. Iteration is in the order in which the items were first counted.

    >>> batch = ChangeBatch([(17, 1), (4, 2)])
    >>> batch.update(17, -1)
    >>> list(batch), len(batch)
    ([(4, 2)], 1)
    """

    __slots__ = ("_counts",)

    def __init__(self, updates: Iterable[tuple[Item, int]] = ()) -> None:
        self._counts: dict[Item, int] = {}
        self.extend(updates)

    def update(self, item: Item, delta: int) -> None:
        """Add ``delta`` to the count of ``item``."""
        counts = self._counts
        count = counts.get(item, 0) + delta
        if count:
            counts[item] = count
        elif delta:
            del counts[item]

    def extend(self, updates: Iterable[tuple[Item, int]]) -> None:
        """Add every ``(item, delta)``.

        >>> batch = ChangeBatch([(17, 1)])
        >>> batch.extend([(17, -1), (18, 3)])
        >>> list(batch)
        [(18, 3)]
        """
        update = self.update
        for item, delta in updates:
            update(item, delta)

    def count_for(self, item: Item) -> int:
        """The net count of ``item``; 0 when it has none."""
        return self._counts.get(item, 0)

    def drain(self) -> list[tuple[Item, int]]:
        """Remove and return all changes. The batch is empty afterwards.

        >>> batch = ChangeBatch([("a", 1)])
        >>> batch.drain(), batch.is_empty()
        ([('a', 1)], True)
        """
        changes = list(self._counts.items())
        self._counts.clear()
        return changes

    def drain_into(self, other: ChangeBatch[Item]) -> None:
        """Move all changes into ``other``."""
        if not other._counts:
            other._counts, self._counts = self._counts, other._counts
        else:
            other.extend(self.drain())

    def clear(self) -> None:
        """Forget all changes."""
        self._counts.clear()

    def is_empty(self) -> bool:
        """Whether no item has a net count."""
        return not self._counts

    def copy(self) -> ChangeBatch[Item]:
        """An independent batch with the same changes."""
        result: ChangeBatch[Item] = ChangeBatch()
        result._counts = dict(self._counts)
        return result

    def __iter__(self) -> Iterator[tuple[Item, int]]:
        return iter(list(self._counts.items()))

    def __len__(self) -> int:
        return len(self._counts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ChangeBatch):
            return NotImplemented
        return self._counts == other._counts

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"ChangeBatch({list(self._counts.items())!r})"
