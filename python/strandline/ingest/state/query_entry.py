"""What the ingests of a channel share about each of their queries: an entry of the registrar's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from strandline.channel import WriterSession
from strandline.ingest.clocks.moment import Clock
from strandline.ingest.clocks.tick import Tick
from strandline.ingest.state.readers import (
    Reader,
    Unfit,
    anything,
    count,
    counts,
    flag,
    listed,
    moment,
    number,
    row,
    session,
    text,
    text_or_null,
)
from strandline.ingest.state.record import Key, Record

__all__ = ["ClockState", "PendingState", "QueryEntry"]


@dataclass(frozen=True)
class ClockState(Record):
    """A :class:`Clock` as of the newest batch. ``certain``: whether silence could be judged then."""

    KEYS: ClassVar[Mapping[str, Key]] = {
        "listened": Key("listened", count),
        "run": Key("run", text),
        "planned": Key("planned", moment),
        "wall": Key("wall", moment),
        "real": Key("real", moment),
        "tick": Key("tick", row(text, count, count)),
        "offset": Key("offset", number),
        "doubted": Key("doubted", moment),
        "certain": Key("certain", flag),
    }
    listened: int | None = None
    run: str | None = None
    planned: int | None = None
    wall: int | None = None
    real: int | None = None
    tick: Sequence[Any] | None = None
    offset: int | None = None
    doubted: int | None = None
    certain: bool | None = None

    @classmethod
    def of(cls, clock: Clock, *, certain: bool) -> ClockState:
        """Return the state of a clock."""
        return cls().changed(
            listened=clock.listened,
            run=clock.run,
            planned=clock.planned_ms,
            wall=clock.wall_ms,
            real=clock.real_ms or None,
            tick=None if clock.tick is None else list(clock.tick),
            offset=clock.offset or None,
            doubted=clock.doubted,
            certain=certain,
        )

    @property
    def clock(self) -> Clock:
        """The clock."""
        return Clock(
            self.listened or 0,
            self.run or "",
            self.planned or 0,
            self.wall,
            self.real or 0,
            None if self.tick is None else Tick(*self.tick),
            self.offset or 0,
            self.doubted,
        )


@dataclass(frozen=True)
class PendingState(Record):
    """The late files of the newest batch that had any.

    Attributes:
        batch: The batch.
        files: A path, the bytes and the rows of each file.
        before: The newest batch before it that had late rows, -1 for none.
    """

    KEYS: ClassVar[Mapping[str, Key]] = {
        "batch": Key("batch", number, required=True),
        "files": Key("files", listed(row(text, count, count)), required=True),
        "before": Key("before", number, required=True),
    }
    batch: int = 0
    files: Sequence[tuple[str, int, int]] = ()
    before: int = -1


def _ascending(value: Any) -> Sequence[int]:
    numbers: Sequence[int] = listed(number)(value)
    if list(numbers) != sorted(set(numbers)):
        raise Unfit
    return numbers


_columns: Reader = listed(row(text, text_or_null))


@dataclass(frozen=True)
class QueryEntry(Record):
    """What is known of a query that ingests.

    Attributes:
        policy: Its policy as text.
        clock: Its clocks, if its policy has ``idle``.
        since: What the listening clock showed when the policy last changed. Silence counts from then at the earliest.
        since_wall: The same by the wall clock, if that one counts.
        snapshot: Whether its source is in its first snapshot.
        fenced: The session that took it over, in JSON.
        late: The path of its late table, unless that is beside the channel.
        aside: How many rows were set aside that have no partition, or one that is not the query's.
        future: How many of all rows without a partition here were dated too far ahead of the clock.
        aside_by: How many rows of any partition were set aside, by reason.
        aside_forgotten: How many rows of forgotten partitions were set aside.
        batch: The newest batch with rows: its number, how many rows, and the digest of their partitions and times.
        values: The same batch's number, and the digest of all columns of its rows.
        newest: The newest batch that had late rows, -1 for none.
        moved: The batches at which late rows moved to another late table.
        cancelled: From which batch on which column is true in rows that only cancel an announced row, by partition pattern.
        pending: The late files of the newest batch that had any, until it is known that they are published.
        by: The columns by which its rows and a manifest's name their partitions, if its policy has a manifest.
        name: The name that the user gave the query.
    """

    KEYS: ClassVar[Mapping[str, Key]] = {
        "policy": Key("policy", text),
        "clock": Key("clock", ClockState.inner),
        "since": Key("since", count),
        "sinceWall": Key("since_wall", moment),
        "snapshot": Key("snapshot", flag),
        "fenced": Key("fenced", session),
        "late": Key("late", text),
        "aside": Key("aside", count),
        "future": Key("future", count),
        "asideBy": Key("aside_by", counts),
        "asideForgotten": Key("aside_forgotten", count),
        "batch": Key("batch", row(number, count, anything)),
        "values": Key("values", row(number, anything)),
        "newest": Key("newest", number),
        "moved": Key("moved", _ascending),
        "cancelled": Key("cancelled", listed(row(number, _columns))),
        "pending": Key("pending", PendingState.inner),
        "by": Key("by", listed(text)),
        "name": Key("name", text),
    }
    policy: str | None = None
    clock: ClockState | None = None
    since: int | None = None
    since_wall: int | None = None
    snapshot: bool | None = None
    fenced: Mapping[str, Any] | None = None
    late: str | None = None
    aside: int | None = None
    future: int | None = None
    aside_by: Mapping[str, int] | None = None
    aside_forgotten: int | None = None
    batch: Sequence[Any] | None = None
    values: Sequence[Any] | None = None
    newest: int | None = None
    moved: Sequence[int] | None = None
    cancelled: Sequence[Any] | None = None
    pending: PendingState | None = None
    by: Sequence[str] | None = None
    name: str | None = None

    @property
    def fenced_by(self) -> WriterSession | None:
        """The session that took the query over."""
        return None if self.fenced is None else WriterSession.from_json(self.fenced)

    def has_rows_of(self, batch: int, read: tuple[int, int, int]) -> bool:
        """Return whether a batch has the rows that are known of it.

        Args:
            batch: The batch's number. The entry is as of its commit or later.
            read: How many rows it has now, and their digests.

        >>> entry = QueryEntry.from_json({"batch": [7, 2, 55], "values": [7, 99]}, "the entry")
        >>> entry.has_rows_of(7, (2, 55, 99)), entry.has_rows_of(7, (2, 55, 98)), entry.has_rows_of(8, (0, 0, 0))
        (True, False, True)
        """
        newest, rows, digest = self.batch or (-1, 0, 0)
        if newest < batch:
            return not read[0]  # the batch had no rows
        return (rows, digest, (self.values or (newest, None))[1]) == read
