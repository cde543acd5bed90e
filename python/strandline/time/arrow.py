"""Times in Arrow: the column of a domain, its field metadata, and whole-column conversions and comparisons.

A scalar domain is stored as a plain column (``int64``, ``timestamp[us, UTC]``), a composite domain as a struct of its
coordinates. The field's metadata contains the domain under :data:`TIME_KEY`. No function here loops over rows: they process
columns as numpy leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import TimeDomainError
from strandline.time import errors
from strandline.time.antichain import Antichain
from strandline.time.domain import Lex, Scalar, Time, TimeDomain, leaf_values, parse_domain

__all__ = [
    "TIME_KEY",
    "array_of",
    "arrow_type",
    "behind",
    "between",
    "domain_of",
    "find_time_field",
    "first_behind",
    "leaf_columns",
    "time_column",
    "time_field",
    "times_from_leaves",
    "times_of",
]

TIME_KEY = b"strandline.time"
"""The field metadata key that holds the domain's text."""

_TIMESTAMP = pa.timestamp("us", "UTC")
_Column: TypeAlias = Any
"""A ``pyarrow.Array`` or ``ChunkedArray``. It is ``Any`` because pyarrow ships no types."""
_Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"


def arrow_type(domain: TimeDomain) -> pa.DataType:
    """The Arrow type of a column of times.

    >>> from strandline.time.domain import product
    >>> arrow_type(product(at="timestamp", iter="int32"))
    StructType(struct<at: timestamp[us, tz=UTC], iter: int32>)
    """
    if isinstance(domain, Scalar):
        return _TIMESTAMP if domain.name == "timestamp" else getattr(pa, domain.name)()
    return pa.struct([(name, arrow_type(part)) for name, part in domain.coordinates])


def time_field(name: str, domain: TimeDomain) -> pa.Field:
    """Make the field of a time column, with the domain in its metadata.

    The field is nullable, because Spark's native readers silently return wrong rows for a ``NOT NULL`` column. Null *times*
    are refused on every write.

    >>> from strandline.time.domain import timestamp
    >>> time_field("time", timestamp).metadata
    {b'strandline.time': b'timestamp'}
    """
    return pa.field(name, arrow_type(domain), metadata={TIME_KEY: str(domain).encode()})


def domain_of(field: pa.Field) -> TimeDomain:
    """Read the domain from a field's metadata and check it against the field's type. Raises :class:`TimeDomainError`."""
    text = (field.metadata or {}).get(TIME_KEY)
    if text is None:
        raise errors.time_domain_missing(field.name, field.type, TIME_KEY.decode())
    domain = parse_domain(text.decode("utf-8", "replace"))
    if not _same_shape(field.type, arrow_type(domain)):
        raise errors.time_domain_mismatch_of_column(field.name, field.type, domain, arrow_type(domain))
    return domain


def find_time_field(schema: pa.Schema, name: str | None = None) -> tuple[str, TimeDomain]:
    """Return the name and the domain of the schema's time column.

    This is the column ``name``, or without a name the only column whose metadata contains a domain.

    >>> from strandline.time.domain import int64
    >>> find_time_field(pa.schema([time_field("epoch", int64), ("n", pa.int64())]))
    ('epoch', Scalar(name='int64'))
    """
    if name is not None:
        if schema.get_field_index(name) < 0:
            raise errors.time_column_missing(name, schema.names)
        return name, domain_of(schema.field(name))
    found = [field for field in schema if TIME_KEY in (field.metadata or {})]
    if len(found) != 1:
        which = f"the columns {[f.name for f in found]} have" if found else f"none of the columns {schema.names} has"
        raise TimeDomainError(
            "STRANDLINE_TIME_DOMAIN_MISSING" if not found else "STRANDLINE_TIME_COLUMN_AMBIGUOUS",
            f"A channel has one time column, but {which} a time domain in the metadata.",
            "Make its field with strandline.time.arrow.time_field(name, domain). A plain Delta table is not a channel: create "
            "one with Channel.create, or take the table's rows in as a stream with pyspark_strandline.ingest."
            if not found
            else "Drop all but one, or remove the others' metadata.",
        )
    return found[0].name, domain_of(found[0])


def array_of(times: Iterable[Time], domain: TimeDomain) -> pa.Array:
    """Make a column of the times. :meth:`TimeDomain.time` checks each time.

    >>> from strandline.time.domain import product
    >>> array_of([(1, 2), (3, 4)], product(epoch="int64", iter="int64")).to_pylist()
    [{'epoch': 1, 'iter': 2}, {'epoch': 3, 'iter': 4}]
    """
    checked = [domain.time(t, f"times[{i}]") for i, t in enumerate(times)]
    return _build(checked, domain)


def _build(times: list[Any], domain: TimeDomain) -> pa.Array:
    if isinstance(domain, Scalar):
        if domain.name == "timestamp":
            return pa.array(np.array(times, dtype=np.int64)).cast(_TIMESTAMP)
        return pa.array(times, arrow_type(domain))
    fields = list(arrow_type(domain))
    columns = [_build([t[i] for t in times], part) for i, (_, part) in enumerate(domain.coordinates)]
    return pa.StructArray.from_arrays(columns, fields=fields)


def time_column(column: _Column, domain: TimeDomain, field: str = "time") -> pa.Array:
    """Convert the column to the domain's Arrow type.

    Only lossless casts are made (``int32`` to ``int64``, ``timestamp[ns]`` in whole microseconds). Struct coordinates are
    matched by name. A missing or an additional coordinate is refused, and so is a null at any level: this raises a
    :class:`TimeError` that names the field, the first bad row and its value.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # a chunked struct column may stay chunked
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    _refuse_nulls(array, domain, field)
    if isinstance(domain, Scalar):
        return _scalar_column(array, domain, field)
    if not pa.types.is_struct(array.type):
        raise errors.time_invalid_stored(field, array.type, domain, arrow_type(domain))
    have, want = [f.name for f in array.type], [name for name, _ in domain.coordinates]
    if sorted(have) != sorted(want):
        raise errors.time_invalid_struct(field, have, domain, want)
    # flatten(), unlike field(), honours the offset of a slice.
    children = dict(zip(have, array.flatten(), strict=True))
    columns = [time_column(children[name], part, f"{field}.{name}") for name, part in domain.coordinates]
    return pa.StructArray.from_arrays(columns, fields=list(arrow_type(domain)))


def _refuse_nulls(array: pa.Array, domain: TimeDomain, field: str) -> None:
    if array.null_count:
        row = pc.index(array.is_null(), True).as_py()
        raise errors.time_invalid_nulls(field, row, array.null_count, domain)


def _scalar_column(array: pa.Array, domain: Scalar, field: str) -> pa.Array:
    want = arrow_type(domain)
    if array.type == want:
        return array
    if domain.name == "timestamp" and pa.types.is_timestamp(array.type):
        if array.type.tz is None:
            raise errors.time_invalid_local(field, array.type, domain)
    elif domain.name == "timestamp" or not pa.types.is_integer(array.type):
        hint = " (NaN and fractions are not times)" if pa.types.is_floating(array.type) else ""
        raise errors.time_invalid_type(field, array.type, domain, want, hint)
    try:
        return array.cast(want)
    except pa.ArrowInvalid as error:
        raise errors.time_invalid_cast(field, domain, error) from None


def leaf_columns(array: pa.Array) -> list[np.ndarray[Any, Any]]:
    """Return the leaf coordinates of a result of :func:`time_column`, as integer columns in the domain's order."""
    if pa.types.is_struct(array.type):
        return [leaf for child in array.flatten() for leaf in leaf_columns(child)]
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    return [array.to_numpy(zero_copy_only=False)]


def times_of(column: _Column, domain: TimeDomain, field: str = "time") -> list[Time]:
    """Return the column's times as Python values, one per row.

    >>> from strandline.time.domain import timestamp
    >>> times_of(pa.array([0, 1], pa.timestamp("s", "UTC")), timestamp)
    [0, 1000000]
    """
    array = time_column(column, domain, field)
    return times_from_leaves([leaf.tolist() for leaf in leaf_columns(array)], domain)


def times_from_leaves(leaves: list[list[int]], domain: TimeDomain) -> list[Time]:
    """Build times from their leaf coordinates: one list per leaf, in the order of :func:`leaf_columns`."""
    if isinstance(domain, Scalar):
        return cast("list[Time]", leaves[0])
    columns, at = [], 0
    for _, part in domain.coordinates:
        width = len(part.leaves())
        columns.append(times_from_leaves(leaves[at : at + width], part))
        at += width
    return list(zip(*columns, strict=True))


def behind(column: _Column, frontier: Antichain, field: str = "time") -> _Mask:
    """Return one boolean per row: whether the frontier had closed the row's time (no element is ≤ it).

    >>> from strandline.time.domain import int64
    >>> behind(pa.array([4, 5, 6]), Antichain(int64, [5])).tolist()
    [True, False, False]
    """
    array = time_column(column, frontier.domain, field)
    leaves = leaf_columns(array)
    open_rows = np.zeros(len(array), dtype=np.bool_)
    for element in frontier:
        open_rows |= _at_least(leaves, frontier.domain, element)
    return ~open_rows


def first_behind(column: _Column, frontier: Antichain, field: str = "time") -> Time | None:
    """Return the time of the first row that the frontier had closed, or ``None`` when every row is in advance of it."""
    rows = behind(column, frontier, field)
    if not rows.any():
        return None
    at = int(rows.argmax())
    return times_of(column.slice(at, 1), frontier.domain, field)[0]


def between(column: _Column, domain: TimeDomain, low: Time, high: Time, field: str = "time") -> _Mask:
    """Return one boolean per row: whether ``low`` ≤ the row's time ≤ ``high``.

    >>> from strandline.time.domain import int64
    >>> between(pa.array([4, 5, 6]), int64, 5, 5).tolist()
    [False, True, False]
    """
    leaves = leaf_columns(time_column(column, domain, field))
    return _at_least(leaves, domain, low) & _at_least(leaves, domain, high, np.less_equal)


def _at_least(
    leaves: list[np.ndarray[Any, Any]], domain: TimeDomain, element: Time, order: Callable[..., Any] = np.greater_equal
) -> _Mask:
    """Whether ``element`` ≤ each row's time. With ``np.less_equal``, whether each row's time ≤ ``element``."""
    if isinstance(domain, Scalar):
        return cast("_Mask", order(leaves[0], element))
    at = 0
    parts: list[tuple[Any, TimeDomain, Time]] = []
    for i, (_, part) in enumerate(domain.coordinates):
        width = len(part.leaves())
        parts.append((leaves[at : at + width], part, element[i]))
        at += width
    if not isinstance(domain, Lex):
        return cast("_Mask", np.logical_and.reduce([_at_least(inner, part, value, order) for inner, part, value in parts]))
    # From the last coordinate to the first. A time is ≤ when this coordinate is less, or when it is equal and the rest is ≤.
    result = np.ones(len(leaves[0]), dtype=np.bool_)
    for inner, part, value in reversed(parts):
        same = _equal(inner, value)
        result = (_at_least(inner, part, value, order) & ~same) | (same & result)
    return result


def _equal(leaves: list[np.ndarray[Any, Any]], element: Time) -> _Mask:
    return cast("_Mask", np.logical_and.reduce([leaf == t for leaf, t in zip(leaves, leaf_values(element), strict=True)]))


def _same_shape(have: pa.DataType, want: pa.DataType) -> bool:
    if not pa.types.is_struct(want):
        return bool(have == want)
    return (
        pa.types.is_struct(have)
        and [f.name for f in have] == [f.name for f in want]
        and all(_same_shape(h.type, w.type) for h, w in zip(have, want, strict=True))
    )
