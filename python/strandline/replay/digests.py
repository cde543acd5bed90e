"""What a channel has at each closed time, as a number: two channels have the same rows where their numbers are equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.channel.batch.row_hashes import row_hashes
from strandline.replay.originals import Compared
from strandline.time.antichain import Antichain
from strandline.time.arrow import behind, leaf_columns, time_column, times_from_leaves
from strandline.time.domain import Time

__all__ = ["TimeDigest", "closed_rows", "digests", "rows_at"]

_Hashes: TypeAlias = npt.NDArray[np.uint64]
_MIX = np.uint64(0xD6E8FEB86659FD93)
_SHIFT = np.uint64(32)
_ALL = (1 << 64) - 1


class TimeDigest(NamedTuple):
    """The rows at one time: how many, and modulo 2⁶⁴ the sum of a hash of each, and that of the hash mixed once more.

    Sets of rows with other hashes have the same sums with a probability of some 2⁻¹²⁸; rows with the same hash have the same.
    """

    rows: int = 0
    first: int = 0
    second: int = 0

    def __add__(self, other: object) -> TimeDigest:
        """Return the digest of both rows together.

        >>> TimeDigest(1, 2, 3) + TimeDigest(1, (1 << 64) - 1, 1)
        TimeDigest(rows=2, first=1, second=4)
        """
        if not isinstance(other, TimeDigest):
            return NotImplemented
        return TimeDigest(self.rows + other.rows, (self.first + other.first) & _ALL, (self.second + other.second) & _ALL)


def closed_rows(
    channel: Compared,
    version: int,
    columns: Sequence[str] | None,
    closed: Iterable[Antichain],
    since: Antichain | None = None,
) -> Iterator[pa.Table]:
    """Yield the rows at times that all the frontiers have closed, file by file: memory holds one file at a time.

    With ``since``, without the rows at times that this frontier has closed.
    """
    wanted = None if columns is None else [*dict.fromkeys([channel.time_column, *columns])]
    frontiers = list(closed)
    for file in channel.snapshot_files(version):
        rows = channel.read_files([file], wanted)
        is_closed = np.logical_and.reduce([behind(rows.column(channel.time_column), frontier) for frontier in frontiers])
        if since is not None:
            is_closed &= ~behind(rows.column(channel.time_column), since)
        yield rows if is_closed.all() else rows.filter(pa.array(is_closed))


def digests(channel: Compared, tables: Iterable[pa.Table]) -> dict[Time, TimeDigest]:
    """Return for each time of some rows of a channel what they are."""
    found: dict[Time, TimeDigest] = {}
    for rows in tables:
        if not rows.num_rows:
            continue
        for time, digest in _of_table(channel, rows):
            found[time] = found.get(time, TimeDigest()) + digest
    return found


def _of_table(channel: Compared, rows: pa.Table) -> Iterator[tuple[Time, TimeDigest]]:
    column = time_column(rows.column(channel.time_column), channel.domain)
    leaves = leaf_columns(column)
    hashes = row_hashes(_values(channel, rows))
    order = np.lexsort(leaves[::-1])
    ordered = [leaf[order] for leaf in leaves]
    is_first = np.zeros(len(order), dtype=np.bool_)
    is_first[0] = True
    for leaf in ordered:
        is_first[1:] |= leaf[1:] != leaf[:-1]
    starts = np.flatnonzero(is_first)
    counts = np.diff(np.append(starts, len(order)))
    sorted_hashes = hashes[order]
    with np.errstate(over="ignore"):
        firsts, seconds = np.add.reduceat(sorted_hashes, starts), np.add.reduceat(_second(sorted_hashes), starts)
    times = times_from_leaves([leaf[starts].tolist() for leaf in ordered], channel.domain)
    for time, count, first, second in zip(times, counts.tolist(), firsts.tolist(), seconds.tolist(), strict=True):
        yield time, TimeDigest(count, first, second)


def _values(channel: Compared, rows: pa.Table) -> pa.Table:
    """Return the rows without their times. A table keeps no rows without any column, so a column of nulls stands for none."""
    values = rows.drop_columns([channel.time_column])
    return values if values.num_columns else pa.table({"": pa.nulls(rows.num_rows)})


def _second(hashes: _Hashes) -> _Hashes:
    """Return another hash of each row, whose sum says something else than the sum of the first ones."""
    mixed: _Hashes = (hashes ^ (hashes >> _SHIFT)) * _MIX
    return mixed ^ (mixed >> _SHIFT)


def rows_at(channel: Compared, tables: Iterable[pa.Table], times: Iterable[Time]) -> dict[Time, pa.Table]:
    """Return the rows at some times, without the times, for those that have any. Memory holds these rows, and one file."""
    parts: dict[Time, list[pa.Table]] = {time: [] for time in times}
    for rows in tables:
        leaves = leaf_columns(time_column(rows.column(channel.time_column), channel.domain))
        for time, each in parts.items():
            at = np.logical_and.reduce([leaf == value for leaf, value in zip(leaves, _flat(time), strict=True)])
            if at.any():
                each.append(_values(channel, rows).filter(pa.array(at)))
    return {time: pa.concat_tables(each) for time, each in parts.items() if each}


def _flat(time: Time) -> list[int]:
    """Return the leaves of a time."""
    return [leaf for part in time for leaf in _flat(part)] if isinstance(time, tuple) else [time]
