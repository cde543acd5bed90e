"""What a partition's state says of the newest rows of it that were set aside."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

from strandline.ingest.late.lateness import LATE, REASONS
from strandline.ingest.state.partition_state import PartitionState

__all__ = ["NewestAside", "shown_ms"]


@dataclass(frozen=True)
class NewestAside:
    """The newest batch that set rows of a partition aside.

    Attributes:
        rows: How many rows of the partition it set aside.
        reason: Why most of them were: the late table's ``_reason``.
        at_ms: When, in ms since 1970.
        only_since_ms: Since when all rows that the partition delivers are set aside, in ms since 1970; ``None`` if its newest
            rows were not.
        rejoin: The command that lets a partition join again whose rows are all late, because it has promised too much: the
            others of its ingest are behind it, or it was dropped. Empty if there is none.
    """

    rows: int
    reason: str
    at_ms: int
    only_since_ms: int | None = None
    rejoin: str = ""

    @classmethod
    def of(cls, state: PartitionState) -> NewestAside | None:
        """Return what a state says; ``None`` if no row was set aside, or an older version of Strandline wrote the state.

        >>> NewestAside.of(PartitionState().changed(aside=9, aside_rows=3, aside_why=2, aside_at=0))
        NewestAside(rows=3, reason='unparsable time', at_ms=0, only_since_ms=None, rejoin='')
        """
        if state.aside_rows is None or state.aside_at is None:
            return None
        why = state.aside_why or 0
        reason = REASONS[why] if 0 < why < len(REASONS) else f"reason {why}, which this version does not know"
        return cls(state.aside_rows, reason, state.aside_at, state.only_aside)

    @property
    def only_late(self) -> bool:
        """Whether all rows that the partition delivers are late."""
        return self.late and self.only_since_ms is not None

    @property
    def late(self) -> bool:
        """Whether most of the rows were late."""
        return self.reason == REASONS[LATE]

    @property
    def remedy(self) -> str:
        """What to do about it, in words."""
        if self.rejoin:
            return (
                "its rows are behind what it has promised, because its clock was ahead, or it was dropped. If its rows are right "
                f"now, let it join where the other partitions are: {self.rejoin}"
            )
        if self.late:
            return "it sends rows before what it has promised, so see its clock"
        return f"repair what sends its rows ({self.reason})"

    def __str__(self) -> str:
        """Say it in words.

        >>> str(NewestAside(3, "unparsable time", 60_000, only_since_ms=0))
        'all its rows since 1970-01-01T00:00:00Z were set aside, the newest 3 at 1970-01-01T00:01:00Z: unparsable time'
        >>> str(NewestAside(1, "late", 60_000))
        '1 row of it was set aside at 1970-01-01T00:01:00Z: late'
        """
        at = shown_ms(self.at_ms)
        if self.only_since_ms is not None:
            return (
                f"all its rows since {shown_ms(self.only_since_ms)} were set aside, the newest {self.rows} at {at}: {self.reason}"
            )
        one = self.rows == 1
        return f"{self.rows} row{'' if one else 's'} of it {'was' if one else 'were'} set aside at {at}: {self.reason}"


def shown_ms(ms: int) -> str:
    """Return a moment, in ms since 1970, as text."""
    return datetime.fromtimestamp(ms / 1000, timezone.utc).isoformat().replace("+00:00", "Z")
