"""What a task reports to the driver about a batch. It is small, whatever the number of rows."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from strandline.channel import DataFile, Span
from strandline.ingest.bounds.future import FutureRows
from strandline.ingest.clocks.tick import Tick
from strandline.ingest.parked.parcel import Parked
from strandline.ingest.policies.policy import Observation, ObservationColumns
from strandline.time.domain import Time

__all__ = ["TaskReport"]


@dataclass(frozen=True)
class TaskReport:
    """A task's part of a batch.

    ``times`` and ``spans`` are the files' message times, in the channel's domain. ``seen`` and ``columns`` are what policies
    judge, by partition. No partition is in both. ``aside`` counts the rows that were set aside, by partition (``None``: no valid
    partition) and reason.
    """

    start_version: int
    planned_ms: int | None = None
    files: list[DataFile] = field(default_factory=list)
    times: list[tuple[Time, int]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    late_files: list[DataFile] = field(default_factory=list)
    parked: list[Parked] = field(default_factory=list)
    seen: list[Observation] = field(default_factory=list)
    aside: dict[tuple[str | None, str], int] = field(default_factory=dict)
    columns: ObservationColumns | None = None
    read: tuple[int, int, int] = (0, 0, 0)
    """How many rows the task received, and digests of them that do not depend on their order. See :class:`RowDigest`."""
    replayed: bool = False
    """Whether there were rows that were not processed, because the channel already had the batch."""
    tick: Tick | None = None
    """What the driver's monotonic clocks showed at ``planned_ms``."""
    examples: dict[tuple[str | None, str], str] = field(default_factory=dict)
    """For each entry of ``aside``, the time of one of its rows as it came, for messages."""
    future: FutureRows | None = None
    """The rows that were set aside because they are too far ahead of the clock."""
    unheard: frozenset[str] = frozenset()
    """The partitions that delivered nothing in time: only rows that were set aside, and heartbeats and punctuations that are
    behind their promise."""

    def heard_of(self, names: Set[str]) -> set[str]:
        """Return those of these partitions of which the task has anything else than what :attr:`unheard` says."""
        asked = names - self.unheard
        found = {seen.partition for seen in self.seen} & asked
        return found if self.columns is None else found | (asked & set(self.columns.names))

    @property
    def written(self) -> list[DataFile]:
        """Every file in the channel's folder that the task wrote."""
        return [*self.files, *(file for parked in self.parked for file in parked.files)]
