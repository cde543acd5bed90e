"""Statistics of a batch's rows, by partition: counts, least and greatest times. They are gathered whole columns at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.channel.progress.producer_state_columns import fits_table
from strandline.channel.statements.message_times import is_plain_product
from strandline.ingest.policies.policy import ObservationColumns
from strandline.time.arrow import leaf_columns, times_from_leaves
from strandline.time.domain import Time, TimeDomain

__all__ = ["PartitionStats"]

_MERGE_AT = 1 << 17


class PartitionStats:
    """Counts rows and bounds their times, by partition.

    >>> from strandline.time.domain import int64
    >>> stats = PartitionStats(int64)
    >>> stats.add(pa.array(["a", "b", "a"]), pa.array([3, 9, 1]))
    >>> stats.bounds()
    {'a': (2, 1, 3), 'b': (1, 9, 9)}
    """

    def __init__(self, domain: TimeDomain, *, by_time: bool = False) -> None:
        self._domain = domain
        # The bounds of product times are the bounds of their coordinates. For other domains, distinct times are kept and folded.
        self._exact = by_time or not is_plain_product(domain)
        self._names = [str(i) for i in range(len(domain.leaves()))]
        self._parts: list[pa.Table] = []
        self._pending = 0

    def add(self, partitions: pa.Array, times: pa.Array, mask: npt.NDArray[np.bool_] | None = None) -> None:
        """Add rows. With ``mask``, add only the rows that it selects."""
        columns: list[Any] = [partitions, *(pa.array(leaf) for leaf in leaf_columns(times))]
        rows = pa.table(columns, names=["p", *self._names])
        if mask is not None:
            if not mask.any():
                return
            if not mask.all():
                rows = rows.filter(pa.array(mask))
        if not rows.num_rows:
            return
        if self._exact:
            part = rows.group_by(["p", *self._names]).aggregate([([], "count_all")])
            part = part.select(["p", *self._names, "count_all"]).rename_columns(["p", *self._names, "n"])
        else:
            part = rows.group_by(["p"]).aggregate(
                [([], "count_all"), *((n, "min") for n in self._names), *((n, "max") for n in self._names)]
            )
            mins, maxs = [f"{n}_min" for n in self._names], [f"{n}_max" for n in self._names]
            part = part.select(["p", "count_all", *mins, *maxs]).rename_columns(["p", "n", *mins, *maxs])
        self._parts.append(part)
        self._pending += part.num_rows
        if self._pending > _MERGE_AT:
            self._merge()

    def _merge(self) -> pa.Table | None:
        if len(self._parts) > 1:
            whole = pa.concat_tables(self._parts)
            keys = ["p", *self._names] if self._exact else ["p"]
            wanted = [("n", "sum")]
            if not self._exact:
                wanted += [(f"{n}_min", "min") for n in self._names] + [(f"{n}_max", "max") for n in self._names]
            merged = whole.group_by(keys).aggregate(wanted)
            merged = merged.select([*keys, *(f"{column}_{how}" for column, how in wanted)])
            self._parts = [merged.rename_columns([*keys, *(column for column, _ in wanted)])]
        self._pending = sum(part.num_rows for part in self._parts)
        return self._parts[0] if self._parts else None

    def bounds(self) -> dict[str, tuple[int, Time, Time]]:
        """Return the number of rows, and the least and greatest time (meet and join), by partition."""
        table = self._merge()
        if table is None:
            return {}
        names, counts = table.column("p").to_pylist(), table.column("n").to_pylist()
        if not self._exact:
            least, greatest = (
                times_from_leaves([table.column(f"{n}_{how}").to_pylist() for n in self._names], self._domain)
                for how in ("min", "max")
            )
            return dict(zip(names, zip(counts, least, greatest, strict=True), strict=True))
        result: dict[str, tuple[int, Time, Time]] = {}
        for name, time, count in zip(names, self._times(table), counts, strict=True):
            seen = result.get(name)
            if seen is None:
                result[name] = (count, time, time)
            else:
                rows, low, high = seen
                result[name] = (rows + count, self._domain.meet(low, time), self._domain.join(high, time))
        return result

    def columns(self) -> ObservationColumns | None:
        """Return :meth:`bounds` as columns, or ``None`` when times are more than one integer.

        >>> from strandline.time.domain import int64
        >>> stats = PartitionStats(int64)
        >>> stats.add(pa.array(["a", "b", "a"]), pa.array([3, 9, 1]))
        >>> stats.columns().greatest.tolist()
        [3, 9]
        """
        if not fits_table(self._domain) or self._exact:
            return None
        table = self._merge()
        if table is None:
            return ObservationColumns.together([])
        rows, least, greatest = (table.column(name).to_numpy().astype(np.int64) for name in ("n", "0_min", "0_max"))
        return ObservationColumns(table.column("p").to_pylist(), rows, least, greatest)

    def counts(self) -> dict[str, dict[Time, int]]:
        """Return the number of rows by partition and time. Only for statistics with ``by_time``."""
        table = self._merge()
        result: dict[str, dict[Time, int]] = {}
        if table is not None:
            names, counts = table.column("p").to_pylist(), table.column("n").to_pylist()
            for name, time, count in zip(names, self._times(table), counts, strict=True):
                result.setdefault(name, {})[time] = count
        return result

    def _times(self, table: pa.Table) -> list[Time]:
        return times_from_leaves([table.column(n).to_pylist() for n in self._names], self._domain)
