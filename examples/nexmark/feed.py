"""The events as they arrive: files of several partitions, each out of order by a bounded delay, one of them silent for a while.

A partition writes a file each second, also if it has no rows, so that a batch of one file of each partition is a second. A row
arrives after a random delay of at most its partition's bound; most delays are short. While a partition is silent its files are
empty, and the file after that has all that was held back. The modification time of a file is the second at which it lands.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nexmark.events import BASE_TIME

__all__ = ["BOUNDS", "Feed", "Silence", "partitions"]

BOUNDS = (1, 2, 4, 8)
"""The longest delay of each partition, in seconds."""


def partitions(bounds: tuple[int, ...] = BOUNDS) -> list[str]:
    """Return the names of the partitions.

    >>> partitions()
    ['p0', 'p1', 'p2', 'p3']
    """
    return [f"p{i}" for i in range(len(bounds))]


@dataclass(frozen=True)
class Silence:
    """A partition that delivers nothing from one second of the feed to another, and then all at once.

    >>> Silence.parse("3:20:40")
    Silence(partition=3, begins=20, ends=40)
    """

    partition: int
    begins: int
    ends: int

    @classmethod
    def parse(cls, text: str) -> Silence:
        """``PARTITION:BEGINS:ENDS``. Raises ``ValueError``."""
        try:
            partition, begins, ends = map(int, text.split(":"))
        except ValueError:
            raise ValueError(f"{text!r} is not a silence; write PARTITION:BEGINS:ENDS in seconds, such as 3:20:40") from None
        return cls(partition, begins, ends)


@dataclass(frozen=True)
class Feed:
    """How events are spread over partitions, and over the seconds in which they arrive."""

    bounds: tuple[int, ...] = BOUNDS
    silence: Silence | None = None
    seed: int = 0

    def write(self, folder: Path, tables: Mapping[str, pa.Table]) -> int:
        """Write the files of ``tables`` below ``folder/<name of the table>``. Return how many seconds the feed lasts."""
        random = np.random.default_rng(self.seed)
        arrived = {name: self.arrivals(table, random) for name, table in tables.items()}
        seconds = 1 + max(int(table["second"].to_numpy().max()) for table in arrived.values())
        for name, table in arrived.items():
            (folder / name).mkdir(parents=True)
            place = table["second"].to_numpy() * len(self.bounds) + table["number"].to_numpy()
            ends = np.searchsorted(place, np.arange(seconds * len(self.bounds)), side="right")
            rows = table.drop_columns(["second", "number"])
            for i, (start, end) in enumerate(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)):
                second, number = divmod(i, len(self.bounds))
                path = folder / name / f"{second:05d}-{number}.parquet"
                pq.write_table(rows.slice(start, end - start), path)
                lands = BASE_TIME // 1000 + second + 1
                os.utime(path, (lands, lands))
        return seconds

    def arrivals(self, table: pa.Table, random: np.random.Generator) -> pa.Table:
        """Return the rows in the order of their arrival, by second and partition.

        ``partition`` is the partition's name and ``number`` its number; ``second`` is the second of the feed in which the row's
        file is written.
        """
        times = table["dateTime"].cast(pa.int64()).to_numpy() // 1000 - BASE_TIME
        number = random.integers(0, len(self.bounds), table.num_rows)
        bounds = np.array(self.bounds)[number] * 1000
        arrives = times + (bounds * random.random(table.num_rows) ** 3).astype(np.int64)
        second = arrives // 1000
        if self.silence is not None:
            silent = (number == self.silence.partition) & (second >= self.silence.begins) & (second < self.silence.ends)
            second = np.where(silent, self.silence.ends, second)
        order = np.lexsort((arrives, number, second))
        names = pa.array(partitions(self.bounds)).take(pa.array(number))
        table = table.append_column("partition", names).append_column("number", pa.array(number))
        return table.append_column("second", pa.array(second)).take(pa.array(order))
