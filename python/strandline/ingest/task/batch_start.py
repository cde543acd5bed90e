"""The start of a batch: what each partition holds then, as far as tasks need it to tell late rows from rows in time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from strandline.channel.statements.nullable_int64 import Ints, Mask
from strandline.ingest import errors
from strandline.ingest.clocks.tick import Tick
from strandline.ingest.names import matched
from strandline.time.domain import Time

__all__ = ["BatchStart", "HoldColumns"]


class HoldColumns(Mapping[str, tuple[Time, ...]]):
    """What very many partitions with integer times hold: one time each, or none. The few in ``apart`` may hold anything.

    >>> import numpy as np
    >>> holds = HoldColumns(["a", "b"], np.array([5, 0]), np.array([True, False]), {"c": (7,)})
    >>> holds["a"], holds["b"], holds["c"]
    ((5,), (), (7,))
    """

    def __init__(self, names: list[str], times: Ints, held: Mask, apart: Mapping[str, tuple[Time, ...]]) -> None:
        self._names, self._times, self._held, self._apart = names, times, held, dict(apart)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self._names) if name not in self._apart}

    def __getitem__(self, name: str) -> tuple[Time, ...]:
        apart = self._apart.get(name)
        if apart is not None:
            return apart
        i = self._places[name]
        return (int(self._times[i]),) if self._held[i] else ()

    def __iter__(self) -> Iterator[str]:
        yield from self._places
        yield from self._apart

    def __len__(self) -> int:
        return len(self._places) + len(self._apart)


@dataclass(frozen=True)
class BatchStart:
    """What partitions hold at the start of a batch. It is picklable and small.

    ``holds`` is by partition. A partition that is missing there joins at ``joining``, unless no pattern of ``admitted`` matches
    it (``None`` admits every name). ``limit`` is the greatest time, in one coordinate, that a batch may deliver (``maxAhead``).
    ``version`` is the channel's version at the start, or -1 before there is a channel. ``planned_ms`` is the time of the start,
    on the driver's clock, and ``tick`` on its monotonic clocks. ``clock_ms`` is the time with which rows' times are compared
    (``maxFuture``). ``columns`` are the channel's columns, if the rows may have others. ``committed`` is the newest batch of each
    query that the channel has.

    >>> start = BatchStart({"a": (5,)}, joining=(3,), admitted=("kafka-*",))
    >>> start.of("a"), start.of("kafka-7")
    ((5,), (3,))
    >>> start.of("b")
    Traceback (most recent call last):
    strandline.errors.IngestError: [STRANDLINE_PARTITION_UNKNOWN] Partition 'b' does not belong to this ingest. ...
    """

    holds: Mapping[str, tuple[Time, ...]] = field(default_factory=dict)
    joining: tuple[Time, ...] = ()
    admitted: tuple[str, ...] | None = None
    limit: int | None = None
    version: int = -1
    planned_ms: int | None = None
    committed: Mapping[str, int] = field(default_factory=dict)
    columns: tuple[str, ...] | None = None
    clock_ms: int | None = None
    tick: Tick | None = None
    sealed: bool = False
    """Whether the channel is sealed, so that no partition can join, whatever the ingest admits."""

    def replays(self, query: str, batch: int) -> bool:
        """Return whether the channel already has the batch.

        Args:
            query: The query's id.
            batch: The batch's number.

        >>> BatchStart(committed={"q": 3}).replays("q", 3), BatchStart(committed={"q": 3}).replays("q", 4)
        (True, False)
        """
        return batch <= self.committed.get(query, -1)

    def of(self, partition: str) -> tuple[Time, ...]:
        """Return what the partition holds. Raises :class:`IngestError`, which names the partition, when it may not join."""
        held = self.holds.get(partition)
        if held is not None:
            return held
        if self.admits(partition):
            return self.joining
        if self.sealed:
            raise errors.partition_unknown_in_sealed(partition, self.holds)
        if self.admitted and partition in self.admitted:
            raise errors.partition_unknown_pattern(partition)
        raise errors.partition_unknown_in_ingest(partition, self.holds)

    def admits(self, partition: str) -> bool:
        """Return whether a partition with that name may join."""
        return self.admitted is None or any(matched(pattern, partition) for pattern in self.admitted)
