"""What the tasks of a batch saw of each partition, together: one by one, or as columns for very many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from strandline.channel.numbers import Ints, Mask
from strandline.ingest.policy import Seen
from strandline.order import Time, TimeDomain

if TYPE_CHECKING:
    from strandline.ingest.report import TaskReport

__all__ = ["Brought", "SeenColumns"]


class SeenColumns(NamedTuple):
    """What partitions brought whose times are integers and of whom no more is asked: a :class:`Seen` for each, as columns.

    >>> seen = SeenColumns(["a", "b"], np.array([2, 1]), np.array([3, 9]), np.array([7, 9]))
    >>> seen.at(0)
    Seen(partition='a', rows=2, least=3, greatest=7, times=None, mark=None, held=None)
    """

    names: list[str]
    rows: Ints
    least: Ints
    greatest: Ints

    def at(self, i: int) -> Seen:
        """What the partition at a position brought."""
        return Seen(self.names[i], int(self.rows[i]), int(self.least[i]), int(self.greatest[i]))

    def where(self, chosen: Mask) -> SeenColumns:
        """Those of some positions."""
        if chosen.all():
            return self
        names = list(compress(self.names, chosen.tolist()))
        return SeenColumns(names, self.rows[chosen], self.least[chosen], self.greatest[chosen])

    @classmethod
    def together(cls, parts: Sequence[SeenColumns]) -> SeenColumns:
        """What several tasks saw, each partition once."""
        if len(parts) < 2:
            nothing = np.zeros(0, dtype=np.int64)
            return parts[0] if parts else cls([], nothing, nothing, nothing)
        columns = [pa.array([name for part in parts for name in part.names], pa.string())]
        columns += [pa.array(np.concatenate([part[i] for part in parts]), pa.int64()) for i in (1, 2, 3)]
        whole = pa.table(columns, names=["p", "n", "low", "high"])
        merged = whole.group_by("p", use_threads=False).aggregate([("n", "sum"), ("low", "min"), ("high", "max")])
        numbers = (merged.column(name).to_numpy() for name in ("n_sum", "low_min", "high_max"))
        return cls(merged.column("p").to_pylist(), *numbers)


class Brought(Mapping[str, Seen]):
    """By partition what a batch brought. ``columns`` has some of them, ``single`` the others."""

    def __init__(self, single: Mapping[str, Seen], columns: SeenColumns) -> None:
        self.single, self.columns = single, columns

    @classmethod
    def of(cls, reports: Sequence[TaskReport], domain: TimeDomain) -> Brought:
        """What tasks reported.

        >>> from strandline.ingest.report import TaskReport
        >>> from strandline.order import int64
        >>> reports = [TaskReport(0, seen=[Seen("a", 2, least, greatest)]) for least, greatest in ((3, 7), (1, 5))]
        >>> Brought.of(reports, int64)["a"]
        Seen(partition='a', rows=4, least=1, greatest=7, times=None, mark=None, held=None)
        """
        single: dict[str, Seen] = {}
        for report in reports:
            for seen in report.seen:
                other = single.get(seen.partition)
                single[seen.partition] = seen if other is None else _both(other, seen, domain)
        columns = SeenColumns.together([report.columns for report in reports if report.columns is not None])
        if single and columns.names:
            twice = np.array([name in single for name in columns.names], dtype=np.bool_)
            for i in np.flatnonzero(twice).tolist():
                single[columns.names[i]] = _both(single[columns.names[i]], columns.at(i), domain)
            columns = columns.where(~twice)
        return cls(single, columns)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.columns.names)}

    def __getitem__(self, name: str) -> Seen:
        found = self.single.get(name)
        return self.columns.at(self._places[name]) if found is None else found

    def __contains__(self, name: object) -> bool:
        return name in self.single or name in self._places

    def __iter__(self) -> Iterator[str]:
        yield from self.single
        yield from self.columns.names

    def __len__(self) -> int:
        return len(self.single) + len(self.columns.names)


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
