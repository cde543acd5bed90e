"""A parcel: files of rows that wait beyond ``maxAhead`` and join the channel together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from strandline.channel import DataFile
from strandline.time.domain import Time, TimeDomain

__all__ = ["Parked", "first_coordinate", "parcels_from_json", "parcels_to_json"]


@dataclass(frozen=True)
class Parked:
    """Files of rows that are too far ahead. They are not part of the channel until the frontier comes near (``maxAhead``).

    Times are the channel's. No row is before ``least``, and no row is after ``greatest``.
    """

    files: tuple[DataFile, ...]
    least: Time
    greatest: Time
    rows: int


def first_coordinate(time: Time) -> int:
    """Return the coordinate by which ``maxAhead`` measures: the first one, however deep.

    >>> first_coordinate(5), first_coordinate(((7, 2), 0))
    (5, 7)
    """
    while isinstance(time, tuple):
        time = time[0]
    return int(time)


def parcels_to_json(parcels: Iterable[Parked], domain: TimeDomain) -> list[Any]:
    """Return the form that a statement, or a list of parked rows, has."""
    return [
        [[[f.path, f.size, f.rows] for f in p.files], domain.to_json(p.least), domain.to_json(p.greatest), p.rows]
        for p in parcels
    ]


def parcels_from_json(value: Iterable[Any], domain: TimeDomain) -> list[Parked]:
    """Return the parcels of :func:`parcels_to_json`. Raises :class:`TimeError` for a time that is not of the domain."""
    return [
        Parked(
            tuple(DataFile(path, size, rows) for path, size, rows in files),
            domain.from_json(least),
            domain.from_json(greatest),
            count,
        )
        for files, least, greatest, count in value
    ]
