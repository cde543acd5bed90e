"""What a task tells the driver of a batch: small, whatever the number of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from strandline.channel import DataFile, Span
from strandline.ingest.policy import Seen
from strandline.order import Time, TimeDomain

__all__ = ["Parked", "TaskReport", "merge_seen"]


@dataclass(frozen=True)
class Parked:
    """Files of rows that are too far ahead: no part of the channel until the frontier comes near (``maxAhead``).

    Times are the channel's: no row is before ``least``, none after ``greatest``.
    """

    files: tuple[DataFile, ...]
    least: Time
    greatest: Time
    rows: int


@dataclass(frozen=True)
class TaskReport:
    """A task's part of a batch.

    ``times`` and ``spans`` are the files' message times, in the channel's domain; ``seen`` is what policies judge, by partition;
    ``aside`` counts what was set aside, by partition (``None``: it had no valid one) and reason.
    """

    start_version: int
    planned_ms: int | None = None
    files: list[DataFile] = field(default_factory=list)
    times: list[tuple[Time, int]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    late_files: list[DataFile] = field(default_factory=list)
    parked: list[Parked] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    aside: dict[tuple[str | None, str], int] = field(default_factory=dict)

    @property
    def written(self) -> list[DataFile]:
        """Every file of the channel's folder that the task made."""
        return [*self.files, *(file for parked in self.parked for file in parked.files)]


def merge_seen(reports: Iterable[TaskReport], domain: TimeDomain) -> dict[str, Seen]:
    """What the tasks saw of each partition, together."""
    result: dict[str, Seen] = {}
    for report in reports:
        for seen in report.seen:
            other = result.get(seen.partition)
            result[seen.partition] = seen if other is None else _both(other, seen, domain)
    return result


def _both(a: Seen, b: Seen, domain: TimeDomain) -> Seen:
    def either(x: Time | None, y: Time | None, *, least: bool) -> Time | None:
        if x is None or y is None:
            return y if x is None else x
        return domain.meet(x, y) if least else domain.join(x, y)

    times: Mapping[Time, int] | None = a.times or b.times
    if a.times and b.times:
        times = {time: a.times.get(time, 0) + b.times.get(time, 0) for time in a.times.keys() | b.times.keys()}
    return Seen(
        a.partition,
        a.rows + b.rows,
        either(a.least, b.least, least=True),
        either(a.greatest, b.greatest, least=False),
        times,
        either(a.mark, b.mark, least=False),
    )
