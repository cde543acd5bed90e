"""``compare``: whether two channels have the same rows at all times that both have closed, and where they part."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from strandline.channel import Channel
from strandline.replay import errors
from strandline.replay.digests import TimeDigest, closed_rows, digests, rows_at
from strandline.replay.originals import Compared, Originals
from strandline.replay.rows import ChangedRow, row_difference
from strandline.replay.values import comparable, values_of
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain
from strandline.time.time_text import asked_time

__all__ = ["ChangedRow", "Comparison", "TimeDifference", "assert_same", "compare"]

_SHOWN_ROWS = 5
_NONE = "They are equal: neither has rows at these times."
_NOTHING = "Nothing was compared: neither has rows at these times. Say up to which frontier both must have closed them (until)."


@dataclass(frozen=True)
class TimeDifference:
    """What differs at one time.

    Attributes:
        time: The time.
        rows_a: How many rows the first channel has there.
        rows_b: How many the second.
        only_a: The rows that only the first has, without those that changed. A row counts as often as it occurs.
        only_b: Those of the second.
        changed: The rows that both have by their key, with other values.
        key: The columns of that key; none if there is none.
        bounded: Whether there are more rows that differ than these. Only a comparison by Spark has such a bound.
    """

    time: Time
    rows_a: int
    rows_b: int
    only_a: pa.Table
    only_b: pa.Table
    changed: tuple[ChangedRow, ...]
    key: tuple[str, ...]
    bounded: bool = False


@dataclass(frozen=True)
class Comparison:
    """How two channels compare.

    Attributes:
        a: The path and the version of the first channel.
        b: Those of the second.
        closed: The frontiers up to which they were compared: a time counts if all of them have closed it.
        times: How many times have rows, in one of them at least.
        rows_a: How many rows of the first were compared.
        rows_b: How many of the second.
        parted: The times at which they differ, each with the number of rows of the first and of the second, in an order that
            extends the domain's. A comparison by Spark has the first of them only.
        differences: What differs at the first of these times.
        times_parted: At how many times they differ.
        since: The times that this frontier has closed were left out; ``None`` if none were.
        asked: Whether it was said up to which frontier to compare.
    """

    a: tuple[str, int]
    b: tuple[str, int]
    closed: tuple[Antichain, ...]
    times: int
    rows_a: int
    rows_b: int
    parted: tuple[tuple[Time, int, int], ...]
    differences: tuple[TimeDifference, ...]
    times_parted: int = 0
    since: Antichain | None = None
    asked: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing was compared: neither has rows at these times, and it was not asked that they be closed."""
        whole = self.since is None and not any(list(frontier) for frontier in self.closed)
        return not self.times and not self.asked and not whole

    @property
    def equal(self) -> bool:
        """Whether they have the same rows at each closed time."""
        return not self.parted

    @property
    def first(self) -> Time | None:
        """The first closed time at which they part; ``None`` if they are equal. No lesser time differs."""
        return self.parted[0][0] if self.parted else None

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values. Values that JSON does not have are text."""
        domain = self.closed[0].domain
        return {
            "equal": self.equal,
            "a": {"path": self.a[0], "version": self.a[1], "rows": self.rows_a},
            "b": {"path": self.b[0], "version": self.b[1], "rows": self.rows_b},
            "closed": [frontier.format() for frontier in self.closed],
            "since": None if self.since is None else self.since.format(),
            "times": self.times,
            "timesParted": self.times_parted,
            "first": None if self.first is None else domain.format(self.first),
            "parted": [{"time": domain.format(time), "a": a, "b": b} for time, a, b in self.parted],
            "differences": [
                {
                    "time": domain.format(each.time),
                    "key": list(each.key),
                    "bounded": each.bounded,
                    "onlyA": _plain(values_of(each.only_a)),
                    "onlyB": _plain(values_of(each.only_b)),
                    "changed": [{"key": _plain(row.key), "a": _plain(row.a), "b": _plain(row.b)} for row in each.changed],
                }
                for each in self.differences
            ],
        }

    def to_text(self) -> str:
        """Return a few lines for people."""
        domain = self.closed[0].domain
        since = "" if self.since is None else f", from {self.since.format()} on"
        lines = [
            f"a: {self.a[0]}, version {self.a[1]}, {self.rows_a} rows",
            f"b: {self.b[0]}, version {self.b[1]}, {self.rows_b} rows",
            f"compared: {self.times} times, all that are closed by {' and '.join(f.format() for f in self.closed)}{since}",
        ]
        if self.first is None:
            return "\n".join([*lines, _NOTHING if self.is_empty else "They are equal." if self.times else _NONE])
        lines.append(f"They differ at {self.times_parted} of these times, first at {domain.format(self.first)}.")
        for each in self.differences:
            lines.append(f"{domain.format(each.time)}: {each.rows_a} rows in a, {each.rows_b} in b")
            lines += _some("only in a", values_of(each.only_a))
            lines += _some("only in b", values_of(each.only_b))
            lines += _some("changed", [f"{row.key}: {row.a} -> {row.b}" for row in each.changed])
            lines += ["  and more: not all rows that differ were read"] if each.bounded else []
        return "\n".join(lines)


def compare(
    a: Compared | str | os.PathLike[str],
    b: Compared | str | os.PathLike[str],
    *,
    until: Any = None,
    since: Any = None,
    key: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    most: int = 3,
    storage_options: Mapping[str, str] | None = None,
) -> Comparison:
    """Compare the rows of two channels at all times that both have closed. Their order, files and batches do not count.

    Memory holds one data file, three numbers for each time, and the rows of the first ``most`` times that differ. Whether a time
    differs is decided by the number of its rows and sums of a hash of 64 bits of each. Two rows with the same hash, some 2⁻⁶⁴ of
    all pairs, are taken for the same. Values count, not their form: -0.0 is 0.0, every NaN is one, and 5 is the same as ``int32``
    and as ``int64``; a column that is null is as one that is not there.

    Args:
        a: A channel or its path; or a recorded link by its original times.
        b: Another one.
        until: Compare the times that this frontier closes: a time, or several, each also as text. Both channels must have closed
            all of these. By default all times are compared that both have closed.
        since: Leave out the times that this frontier closes: a time, or several. By default none.
        key: The columns that tell rows of one time apart, to show which rows changed. By default they are looked for.
        columns: The columns to compare, beside the times. By default all.
        most: At how many times the rows that differ are shown.
        storage_options: Options of the object store, if ``a`` or ``b`` is a path.

    Raises:
        StrandlineError: ``STRANDLINE_COMPARE_DOMAINS`` if the times have different domains; ``STRANDLINE_COMPARE_OPEN`` if a
            channel has not closed all times before ``until``; ``STRANDLINE_COMPARE_TYPES`` if a column has another type in
            each, beside integers and floats of other widths; ``STRANDLINE_COLUMN_UNKNOWN``.

    >>> import tempfile
    >>> from strandline.time.arrow import time_field
    >>> from strandline.time.domain import int64
    >>> schema, folder = pa.schema([time_field("t", int64), ("k", pa.string()), ("n", pa.int64())]), tempfile.mkdtemp()
    >>> for name, last in (("a", 20), ("b", 21)):
    ...     with Channel.create(f"{folder}/{name}", schema, producers=["p"], at=0).producer("p") as producer:
    ...         producer.send(pa.table({"t": [1, 2], "k": ["x", "x"], "n": [10, last]}))
    ...         producer.delay([])
    >>> found = compare(f"{folder}/a", f"{folder}/b")
    >>> found.equal, found.first, found.differences[0].changed
    (False, 2, (ChangedRow(key={'k': 'x'}, a={'n': 20}, b={'n': 21}),))
    >>> compare(f"{folder}/a", f"{folder}/b", until=2).equal
    True
    """
    left, right = (each if isinstance(each, Channel | Originals) else Channel.open(each, storage_options) for each in (a, b))
    closed = closed_frontiers(left, right, until)
    begin = None if since is None else asked_frontier(left.domain, since)
    key = without_times(key, left, right)
    names = compared_columns(left, right, columns, key)
    versions = left.version, right.version
    tables = [
        closed_rows(channel, version, names, closed, begin) for channel, version in zip((left, right), versions, strict=True)
    ]
    in_a, in_b = digests(left, tables[0]), digests(right, tables[1])
    parted = sorted(time for time in in_a.keys() | in_b.keys() if in_a.get(time) != in_b.get(time))
    shown = parted[:most]
    rows = [
        rows_at(channel, closed_rows(channel, version, names, closed, begin), shown) if shown else {}
        for channel, version in zip((left, right), versions, strict=True)
    ]
    none = TimeDigest()
    return Comparison(
        (left.path, versions[0]),
        (right.path, versions[1]),
        closed,
        len(in_a.keys() | in_b.keys()),
        sum(each.rows for each in in_a.values()),
        sum(each.rows for each in in_b.values()),
        tuple((time, in_a.get(time, none).rows, in_b.get(time, none).rows) for time in parted),
        tuple(_difference(time, rows[0].get(time), rows[1].get(time), key) for time in shown),
        len(parted),
        begin,
        until is not None,
    )


def assert_same(a: Compared | str | os.PathLike[str], b: Compared | str | os.PathLike[str], **options: Any) -> None:
    """Assert that two channels have the same rows at all times that both have closed (:func:`compare`).

    Raises:
        AssertionError: They differ, or nothing was compared: neither has rows at times that both have closed. Its text says
            where they differ, and how. Give ``until``, which both must have closed, where no rows are right.
        StrandlineError: As :func:`compare`.
    """
    found = compare(a, b, **options)
    if not found.equal or found.is_empty:
        raise AssertionError(found.to_text())


def closed_frontiers(a: Compared, b: Compared, until: Any) -> tuple[Antichain, ...]:
    """Return the frontiers that must all have closed a time that is compared."""
    if a.domain != b.domain:
        raise errors.compare_domains(a.path, a.domain, b.path, b.domain)
    if until is None:
        return tuple(dict.fromkeys((a.frontier, b.frontier)))
    wanted = asked_frontier(a.domain, until)
    for channel in (a, b):
        if not wanted.dominates(channel.frontier):
            raise errors.compare_open(channel.path, channel.frontier, wanted)
    return (wanted,)


def without_times(key: Sequence[str] | None, *channels: Compared) -> list[str] | None:
    """Return a key without the times: it tells rows of one time apart."""
    return None if key is None else [name for name in key if all(name != channel.time_column for channel in channels)]


def asked_frontier(domain: TimeDomain, times: Any) -> Antichain:
    """Return a frontier that is a time, or a list of several, each also as text.

    >>> from strandline.time.domain import int64
    >>> asked_frontier(int64, "7").to_json(), asked_frontier(int64, ["7", 9]).to_json()
    ([7], [7])
    """
    several = times if isinstance(times, list | set | frozenset) else list(times) if isinstance(times, Antichain) else [times]
    return Antichain(domain, [asked_time(domain, each) for each in several])


def compared_columns(a: Compared, b: Compared, columns: Sequence[str] | None, key: Sequence[str] | None) -> list[str] | None:
    """Return the columns to compare beside the time; ``None`` for all.

    Raises for one that a channel does not have, and for one whose values in the two channels do not compare.
    """
    for channel in (a, b):
        for name in (*(columns or ()), *(key or ())):
            if name not in channel.schema.names:
                raise errors.column_unknown(channel.path, name, channel.schema.names)
    wanted = None if columns is None else {*columns, *(key or ())}
    for field in a.schema:
        if field.name in b.schema.names and (wanted is None or field.name in wanted):
            other = b.schema.field(field.name).type
            if {a.time_column, b.time_column}.isdisjoint([field.name]) and not comparable(field.type, other):
                raise errors.compare_types(field.name, a.path, field.type, b.path, other)
    return None if columns is None else [*dict.fromkeys([*columns, *(key or ())])]


def _difference(time: Time, a: pa.Table | None, b: pa.Table | None, key: Sequence[str] | None) -> TimeDifference:
    some = a if a is not None else b
    assert some is not None  # noqa: S101 - a time that differs has rows
    a, b = (some.slice(0, 0) if each is None else each for each in (a, b))
    found = row_difference(a, b, key)
    return TimeDifference(time, a.num_rows, b.num_rows, found.only_a, found.only_b, found.changed, found.key)


def _some(what: str, rows: Sequence[object]) -> list[str]:
    more = [f"  {what}: and {len(rows) - _SHOWN_ROWS} more"] if len(rows) > _SHOWN_ROWS else []
    return [*(f"  {what}: {row}" for row in rows[:_SHOWN_ROWS]), *more]


def _plain(value: Any) -> Any:
    """Return a value with JSON's types only."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return str(value)
