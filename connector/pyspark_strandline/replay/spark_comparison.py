"""``compare`` by Spark: the comparison of :func:`strandline.replay.compare` for channels that one process reads too slowly."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pyspark_strandline.replay import errors
from pyspark_strandline.schema import quoted
from strandline.channel import Channel
from strandline.replay import Comparison, TimeDifference
from strandline.replay.comparison import asked_frontier, closed_frontiers, compared_columns, without_times
from strandline.replay.rows import row_difference
from strandline.time.antichain import Antichain
from strandline.time.arrow import times_of
from strandline.time.domain import Lex, Time, TimeDomain, timestamp

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession

__all__ = ["compare"]

_MOST_ROWS = 1000
_MOST_TIMES = 10_000
_LOW = (1 << 32) - 1


def compare(
    spark: SparkSession,
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    until: Any = None,
    since: Any = None,
    key: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    most: int = 3,
    most_rows: int = _MOST_ROWS,
    storage_options: Mapping[str, str] | None = None,
) -> Comparison:
    """Compare the rows of two channels by Spark, as :func:`strandline.replay.compare` does in one process.

    Spark's tasks count and hash. The driver gets at most 10 000 times that differ, and at most ``most_rows`` rows that only one
    channel has at each of the first ``most`` of them. Paths may be of an object store.

    Args:
        spark: The session.
        a: The path of a channel.
        b: That of another.
        until: As for :func:`strandline.replay.compare`, like all that follow.
        since: Leave out the times that this frontier closes.
        key: The columns that tell rows of one time apart.
        columns: The columns to compare.
        most: At how many times the rows that differ are shown.
        most_rows: How many rows of each channel are read there at most.
        storage_options: Options of the object store.

    Returns:
        The comparison. ``bounded`` of a :class:`~strandline.replay.TimeDifference` says whether more rows differ there.

    Raises:
        StrandlineError: As :func:`strandline.replay.compare`.

    ``compare(spark, "s3a://lake/sums", "/tmp/whatif/channels/sums", until="2013-01-08T05:00Z").equal``
    """
    channels = left, right = Channel.open(a, storage_options), Channel.open(b, storage_options)
    domain = left.domain
    closed = closed_frontiers(left, right, until)
    begin = None if since is None else asked_frontier(domain, since)
    names = compared_columns(left, right, columns, key)
    _check_columns(left, right, names)
    key = without_times(key, left, right)
    versions = left.version, right.version
    in_a, in_b = (
        _closed_rows(_reader(spark, version, storage_options).load(os.fspath(path)), channel, names, closed, begin)
        for path, channel, version in zip((a, b), channels, versions, strict=True)
    )
    times, rows_a, rows_b, count, parted = _parted(in_a, in_b, domain)
    differences = tuple(_difference(in_a, in_b, domain, each, key, most_rows) for each in parted[:most])
    return Comparison(
        (left.path, versions[0]),
        (right.path, versions[1]),
        closed,
        times,
        rows_a,
        rows_b,
        tuple(parted),
        differences,
        count,
        begin,
        until is not None,
    )


def _check_columns(a: Channel, b: Channel, names: Sequence[str] | None) -> None:
    """Raise for columns that Spark would compare in another way than :func:`strandline.replay.compare`.

    Spark does not tell names by their case, and casts fields of structs by their place. Some names are those of its own columns.
    """
    wanted: dict[str, str] = {}
    for channel in (a, b):
        for name in channel.schema.names:
            if name == channel.time_column or (names is not None and name not in names):
                continue
            if name.lower() in _RESERVED or wanted.setdefault(name.lower(), name) != name:
                raise errors.compare_by_spark(name, f"its name is taken by {wanted.get(name.lower(), 'the comparison')!r}")
            if name in a.schema.names and name in b.schema.names:
                one, other = (str(each.schema.field(name).type) for each in (a, b))
                if one != other and "struct" in one + other:
                    raise errors.compare_by_spark(name, f"it is {one} in one channel and {other} in the other")


_RESERVED = {"_strandline_time", "_strandline_hash", "_more", "col"}


def _reader(spark: SparkSession, version: int, storage: Mapping[str, str] | None) -> DataFrameReader:
    reader = spark.read.format("strandline").option("asOfVersion", str(version))
    return reader.options(**{f"storage.{name.removeprefix('storage.')}": value for name, value in (storage or {}).items()})


def _closed_rows(
    rows: DataFrame,
    channel: Channel,
    names: Sequence[str] | None,
    closed: Sequence[Antichain],
    since: Antichain | None,
) -> DataFrame:
    """Return the rows to compare, with the times in a column of their own name."""
    time = F.col(quoted(channel.time_column))
    for frontier in closed:
        rows = rows.where(~_in_advance(time, frontier))
    if since is not None:
        rows = rows.where(_in_advance(time, since))
    wanted = [name for name in rows.columns if name != channel.time_column and (names is None or name in names)]
    return rows.select(time.alias(_TIME, metadata={}), *(F.col(quoted(name)) for name in wanted))


_TIME = "_strandline_time"


def _in_advance(time: Column, frontier: Antichain) -> Column:
    """Whether a time is at or after an element of a frontier."""
    return reduce(lambda one, other: one | other, (_at_least(time, frontier.domain, each) for each in frontier), F.lit(False))


def _at_least(time: Column, domain: TimeDomain, least: Time) -> Column:
    if not domain.coordinates:
        return time >= _literal(domain, least)
    parts = [(time.getField(name), each, value) for (name, each), value in zip(domain.coordinates, least, strict=True)]
    if not isinstance(domain, Lex):
        return reduce(lambda one, other: one & other, (_at_least(*part) for part in parts))
    *front, last = parts
    result = _at_least(*last)
    for column, each, value in reversed(front):
        result = (_at_least(column, each, value) & ~_equal(column, each, value)) | (_equal(column, each, value) & result)
    return result


def _equal(time: Column, domain: TimeDomain, value: Time) -> Column:
    if not domain.coordinates:
        return time == _literal(domain, value)
    parts = zip(domain.coordinates, value, strict=True)
    return reduce(lambda one, other: one & other, (_equal(time.getField(name), each, part) for (name, each), part in parts))


def _literal(domain: TimeDomain, value: Time) -> Column:
    return F.timestamp_micros(F.lit(value)) if domain == timestamp else F.lit(value)


def _parted(a: DataFrame, b: DataFrame, domain: TimeDomain) -> tuple[int, int, int, int, list[tuple[Time, int, int]]]:
    """Return how many times there are, the rows of each, at how many times they differ, and the first of these."""
    kinds = _common_types(a, b)
    sides = [_hashed(frame, kinds).select("*", F.lit(sign).alias("sign")) for frame, sign in ((a, 1), (b, -1))]
    sums = [F.sum(F.col(name) * F.col("sign")).alias(name) for name in _SUMS]
    by_time = (
        sides[0]
        .unionByName(sides[1])
        .groupBy(_TIME)
        .agg(F.count_if(F.col("sign") > 0).alias("a"), F.count_if(F.col("sign") < 0).alias("b"), *sums)
        .select(
            _TIME, "a", "b", (reduce(lambda x, y: x | y, (F.col(n) != 0 for n in _SUMS)) | (F.col("a") != F.col("b"))).alias("d")
        )
    ).persist()
    try:
        counted = by_time.agg(F.count("*"), F.coalesce(F.sum("a"), F.lit(0)), F.coalesce(F.sum("b"), F.lit(0)), F.count_if("d"))
        (times, rows_a, rows_b, count), *_ = counted.collect()
        first = by_time.where("d").orderBy(_TIME).limit(_MOST_TIMES).select(_TIME, "a", "b").toArrow()
    finally:
        by_time.unpersist()
    found = zip(times_of(first.column(0), domain), first.column(1).to_pylist(), first.column(2).to_pylist(), strict=True)
    return times, rows_a, rows_b, count, sorted(found)


_SUMS = ("low", "high", "low2", "high2")


def _hashed(frame: DataFrame, kinds: Mapping[str, DataType]) -> DataFrame:
    """Return for each row the halves of two hashes, whose sums do not overflow."""
    columns = [F.col(quoted(n)).cast(k) if n in frame.columns else F.lit(None).cast(k) for n, k in sorted(kinds.items())]
    parts = [
        part for column, kind in zip(columns, (kinds[n] for n in sorted(kinds)), strict=True) for part in _hashable(column, kind)
    ]
    hashed = frame.select(_TIME, F.xxhash64(*(parts or [F.lit(0)])).alias("h"))
    again = hashed.select(_TIME, "h", F.xxhash64(F.col("h"), F.lit(1)).alias("h2"))
    low, high = ({name: half(name) for name in ("h", "h2")} for half in (_low, _high))
    return again.select(_TIME, low["h"].alias("low"), high["h"].alias("high"), low["h2"].alias("low2"), high["h2"].alias("high2"))


def _low(name: str) -> Column:
    return F.col(name).bitwiseAND(F.lit(_LOW))


def _high(name: str) -> Column:
    return F.shiftrightunsigned(F.col(name), 32)


def _hashable(column: Column, kind: DataType) -> list[Column]:
    """Return columns whose hash tells the values apart. Spark's hash passes over a null, so it is told beside the value."""
    if isinstance(kind, StructType | ArrayType | MapType):
        return [_hash(column, kind)]
    return [column, column.isNull()]


def _hash(column: Column, kind: DataType) -> Column:
    """Return a hash of a value that is never null."""
    match kind:
        case StructType():
            parts = [part for f in kind.fields for part in _hashable(column.getField(f.name), f.dataType)]
            return F.xxhash64(column.isNull(), *parts)
        case ArrayType():
            return F.xxhash64(F.size(column), F.transform(column, lambda each: _hash(each, kind.elementType)))
        case MapType():
            entries = F.map_entries(column)
            one = lambda e: F.xxhash64(_hash(e["key"], kind.keyType), _hash(e["value"], kind.valueType))  # noqa: E731
            return F.xxhash64(F.coalesce(F.size(entries), F.lit(-1)), F.array_sort(F.transform(entries, one)))
    return F.xxhash64(column, column.isNull())


def _common_types(a: DataFrame, b: DataFrame) -> dict[str, DataType]:
    """Return the columns of both, each with a type that has the values of both."""
    united = a.limit(0).unionByName(b.limit(0), allowMissingColumns=True)
    return {field.name: field.dataType for field in united.schema.fields if field.name != _TIME}


def _difference(
    a: DataFrame, b: DataFrame, domain: TimeDomain, at: tuple[Time, int, int], key: Sequence[str] | None, most_rows: int
) -> TimeDifference:
    time, rows_a, rows_b = at
    kinds = _common_types(a, b)
    names = sorted(kinds, key=[*a.columns, *b.columns].index)
    here = [
        frame.where(_equal(F.col(_TIME), domain, time)).select(
            *((F.col(quoted(n)).cast(kinds[n]) if n in frame.columns else F.lit(None).cast(kinds[n])).alias(n) for n in names),
            F.xxhash64(
                *(
                    [
                        p
                        for n in sorted(kinds)
                        for p in _hashable(
                            F.col(quoted(n)).cast(kinds[n]) if n in frame.columns else F.lit(None).cast(kinds[n]), kinds[n]
                        )
                    ]
                    or [F.lit(0)]
                )
            ).alias(_HASH),
        )
        for frame in (a, b)
    ]
    counts = [frame.groupBy(_HASH).agg(F.count("*").alias(name)) for frame, name in zip(here, ("in_a", "in_b"), strict=True)]
    both = counts[0].join(counts[1], _HASH, "full_outer").na.fill(0).where("in_a != in_b")
    only = []
    for frame, more in zip(here, ("in_a - in_b", "in_b - in_a"), strict=True):
        wanted = both.select(_HASH, F.expr(more).alias("_more")).where("_more > 0")
        one_each = frame.join(wanted, _HASH).dropDuplicates([_HASH])
        many = one_each.select(F.explode(F.sequence(F.lit(1), F.col("_more"))), *map(quoted, names)).drop("col")
        only.append(many.limit(most_rows + 1).toArrow() if names else pa.table({}))
    bounded = any(each.num_rows > most_rows for each in only)
    found = row_difference(only[0].slice(0, most_rows), only[1].slice(0, most_rows), key)
    return TimeDifference(time, rows_a, rows_b, found.only_a, found.only_b, found.changed, found.key, bounded)


_HASH = "_strandline_hash"
