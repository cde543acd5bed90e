"""A batch at its commit: its tasks' reports, its time, and what is known about the outside. It is the same in each attempt."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from strandline.channel import DataFile, WriterSession
from strandline.ingest.clocks.moment import Moment
from strandline.ingest.late.lateness import MOVES_NOTHING, REASONS
from strandline.ingest.parked.lists import ParkedLists
from strandline.ingest.policies.policy import Observation
from strandline.ingest.settings import Settings
from strandline.ingest.task.observations import Observations
from strandline.ingest.task.row_digest import RowDigest
from strandline.ingest.task.task_report import TaskReport
from strandline.time.domain import Time, TimeDomain

__all__ = ["Batch"]


@dataclass(frozen=True)
class Batch:
    """Everything that the decision on a batch's commit needs in addition to the channel's progress.

    ``named`` are the partitions that were given to the ingest. ``announced`` are the partitions of its manifest. ``changed``
    are the partitions whose promise may have changed because of outside changes (``None``: any). ``late_newest`` is the newest
    batch of the query that is published in the late table. ``late_begins`` is the newest batch that was published there without
    the batch before it. ``entered`` says whether this run of the query has committed before. ``schema`` has the channel's
    columns, if the rows may have others. ``rows_before`` counts the channel's rows by partition and time. ``parked_lists`` are
    the channel's lists of parked rows.
    """

    transaction: tuple[str, int]
    owner: WriterSession
    moment: Moment
    reports: Sequence[TaskReport]
    seen: Observations
    named: Sequence[str] = ()
    announced: Sequence[str] = ()
    changed: Collection[str] | None = ()
    late_newest: int = -1
    late_begins: int = -1
    entered: bool = False
    schema: pa.Schema | None = None
    rows_before: Callable[[], Mapping[str, Mapping[Time, int]]] = dict
    parked_lists: ParkedLists | None = None

    @property
    def start_version(self) -> int | None:
        """The channel's version on which the tasks based their judgement."""
        return min((report.start_version for report in self.reports), default=None)

    @property
    def late_files(self) -> list[DataFile]:
        """The files of the rows that were set aside."""
        return [file for report in self.reports for file in report.late_files]

    @cached_property
    def aside(self) -> dict[tuple[str | None, str], int]:
        """How many rows were set aside, by partition and reason."""
        aside: dict[tuple[str | None, str], int] = {}
        for report in self.reports:
            for key, n in report.aside.items():
                aside[key] = aside.get(key, 0) + n
        return aside

    @property
    def examples(self) -> dict[tuple[str | None, str], str]:
        """For each entry of :attr:`aside`, the time of one of its rows as it came."""
        return {key: text for report in self.reports for key, text in report.examples.items()}

    @cached_property
    def aside_by_reason(self) -> dict[str, int]:
        """How many rows were set aside, by reason."""
        found: dict[str, int] = {}
        for (_, reason), rows in self.aside.items():
            found[reason] = found.get(reason, 0) + rows
        return found

    @cached_property
    def unheard(self) -> frozenset[str]:
        """The partitions that delivered nothing that is in time: nothing new is known by it, so it ends no silence."""
        found = {name for report in self.reports for name in report.unheard}
        for report in self.reports:
            if found:
                found -= report.heard_of(found)
        return frozenset(found)

    @cached_property
    def main_reason(self) -> dict[str, int]:
        """For each partition that had rows set aside, why most of them were: the reason's place in ``REASONS``."""
        most: dict[str, tuple[int, int]] = {}
        for (partition, reason), rows in self.aside.items():
            if partition is not None:
                most[partition] = max(most.get(partition, (0, 0)), (rows, -REASONS.index(reason)))
        return {name: -reason for name, (_, reason) in most.items()}

    @cached_property
    def aside_by_partition(self) -> dict[str, int]:
        """How many rows were set aside, by partition."""
        return self._by_partition(lambda reason: True)

    @cached_property
    def future(self) -> dict[str, int]:
        """How many of them were too far ahead of the clock, by partition."""
        return self._by_partition(MOVES_NOTHING.__contains__)

    def _by_partition(self, counts: Callable[[str], bool]) -> dict[str, int]:
        found: dict[str, int] = {}
        for (partition, reason), n in self.aside.items():
            if partition is not None and counts(reason):
                found[partition] = found.get(partition, 0) + n
        return found

    @cached_property
    def read(self) -> tuple[int, int, int]:
        """How many rows there were, and their digests (:class:`RowDigest`)."""
        return RowDigest.together(report.read for report in self.reports)

    def times(self, domain: TimeDomain) -> list[tuple[Time, int]]:
        """Return the message times of the channel's files."""
        times: dict[Time, int] = {}
        for report in self.reports:
            for at, rows in report.times:
                times[at] = times.get(at, 0) + rows
        return sorted(times.items(), key=lambda entry: domain.sort_key(entry[0]))

    def with_rows_before(self, observation: Observation, settings: Settings) -> Observation:
        """Return what a partition delivered in this batch and all earlier batches, as if they were one batch."""
        before = self.rows_before().get(observation.partition)
        if not before:
            return observation
        domain, times = settings.domain, dict(observation.times or {})
        for time, n in before.items():
            times[time] = times.get(time, 0) + n
        least = greatest = next(iter(times))
        for time in times:
            least, greatest = domain.meet(least, time), domain.join(greatest, time)
        return observation._replace(rows=sum(times.values()), least=least, greatest=greatest, times=times)
