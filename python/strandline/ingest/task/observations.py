"""The combined observations of a batch's tasks, by partition: one by one, or as columns for very many partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from strandline.ingest.policies.policy import Observation, ObservationColumns
from strandline.ingest.task.task_report import TaskReport
from strandline.time.domain import Time, TimeDomain

__all__ = ["Observations"]


class Observations(Mapping[str, Observation]):
    """What a batch delivered, by partition. ``columns`` has some of the partitions, ``single`` has the others."""

    def __init__(self, single: Mapping[str, Observation], columns: ObservationColumns) -> None:
        self.single, self.columns = single, columns

    @classmethod
    def of(cls, reports: Sequence[TaskReport], domain: TimeDomain) -> Observations:
        """Combine what the tasks reported.

        >>> from strandline.ingest.task.task_report import TaskReport
        >>> from strandline.time.domain import int64
        >>> reports = [TaskReport(0, seen=[Observation("a", 2, least, greatest)]) for least, greatest in ((3, 7), (1, 5))]
        >>> Observations.of(reports, int64)["a"]
        Observation(partition='a', rows=4, least=1, greatest=7, times=None, mark=None, held=None)
        """
        single: dict[str, Observation] = {}
        for report in reports:
            for seen in report.seen:
                other = single.get(seen.partition)
                single[seen.partition] = seen if other is None else _both(other, seen, domain)
        columns = ObservationColumns.together([report.columns for report in reports if report.columns is not None])
        if single and columns.names:
            twice = np.array([name in single for name in columns.names], dtype=np.bool_)
            for i in np.flatnonzero(twice).tolist():
                single[columns.names[i]] = _both(single[columns.names[i]], columns.at(i), domain)
            columns = columns.where(~twice)
        return cls(single, columns)

    def without(self, names: Collection[str]) -> Observations:
        """Return the observations of the other partitions."""
        left = np.array([name not in names for name in self.columns.names], dtype=np.bool_)
        return Observations({name: seen for name, seen in self.single.items() if name not in names}, self.columns.where(left))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.columns.names)}

    def __getitem__(self, name: str) -> Observation:
        found = self.single.get(name)
        return self.columns.at(self._places[name]) if found is None else found

    def __contains__(self, name: object) -> bool:
        return name in self.single or name in self._places

    def __iter__(self) -> Iterator[str]:
        yield from self.single
        yield from self.columns.names

    def __len__(self) -> int:
        return len(self.single) + len(self.columns.names)


def _both(a: Observation, b: Observation, domain: TimeDomain) -> Observation:
    def either(x: Time | None, y: Time | None, *, least: bool) -> Time | None:
        if x is None or y is None:
            return y if x is None else x
        return domain.meet(x, y) if least else domain.join(x, y)

    times: Mapping[Time, int] | None = a.times or b.times
    if a.times and b.times:
        times = {time: a.times.get(time, 0) + b.times.get(time, 0) for time in a.times.keys() | b.times.keys()}
    return Observation(
        a.partition,
        a.rows + b.rows,
        either(a.least, b.least, least=True),
        either(a.greatest, b.greatest, least=False),
        times,
        either(a.mark, b.mark, least=False),
    )
