"""Checks the times of outside rows one by one, so that a row with a bad time is set aside and the others continue."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import IngestError
from strandline.time.arrow import arrow_type
from strandline.time.domain import Scalar, TimeDomain, parse_domain, timestamp

__all__ = ["BEYOND", "NULL", "OK", "UNPARSABLE", "check_times", "default_domain"]

OK, NULL, UNPARSABLE, BEYOND = 0, 1, 2, 3
"""The result of checking a row's time. In order: it is a time of the domain; it or one of its coordinates is null; it is a text
that is not a time; it is outside the domain."""

_Array: TypeAlias = Any
_Codes: TypeAlias = npt.NDArray[np.int8]
_UTC = pa.timestamp("us", "UTC")


def default_domain(field: pa.Field) -> TimeDomain:
    """Return the domain of an outside time column by its type.

    A timestamp, date or text column has the domain ``timestamp``. An integer column has the domain of its own type. Raises
    :class:`IngestError`, with a remedy, for a type that is not a time.

    >>> str(default_domain(pa.field("at", pa.int32())))
    'int32'
    """
    kind = field.type
    metadata = (field.metadata or {}).get(b"strandline.time")
    if metadata is not None:
        return parse_domain(metadata.decode("utf-8", "replace"))
    if pa.types.is_timestamp(kind) and kind.tz is None:
        raise _no_time(field, "has no time zone", "Cast it to TIMESTAMP: df.withColumn(…, F.col(…).cast('timestamp')).")
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return timestamp
    if pa.types.is_signed_integer(kind):
        return parse_domain(str(kind))
    if pa.types.is_struct(kind):
        raise _no_time(field, "is a struct without a domain", "Give its domain, such as 'product(a timestamp, b int64)'.")
    raise _no_time(
        field,
        f"has the type {kind}, which no domain has",
        "Name a timestamp, date, integer or text column, or a struct with a domain.",
    )


def check_type(field: pa.Field, domain: TimeDomain) -> None:
    """Raise :class:`IngestError` unless values of the column's type can be times of ``domain``."""
    kind = field.type
    if isinstance(domain, Scalar):
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if domain.name == "timestamp":
            fits = text or pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None)
        else:
            fits = text or pa.types.is_integer(kind)
        if not fits:
            raise _no_time(field, f"has the type {kind}, but times are of {domain}", f"Cast it to {arrow_type(domain)} or text.")
        return
    names = [name for name, _ in domain.coordinates]
    if not pa.types.is_struct(kind) or sorted(f.name for f in kind) != sorted(names):
        raise _no_time(field, f"has the type {kind}, but times are of {domain}", f"Give a struct of {names}.")
    for name, part in domain.coordinates:
        check_type(kind.field(name).with_name(f"{field.name}.{name}"), part)


def _no_time(field: pa.Field, what: str, remedy: str) -> IngestError:
    return IngestError("STRANDLINE_TIME_COLUMN_INVALID", f"The time column {field.name!r} {what}.", remedy)


def check_times(column: _Array, domain: TimeDomain) -> tuple[pa.Array, _Codes]:
    """Return the column in the domain's Arrow type, and a code for each row. A row that is not OK has an arbitrary valid value.

    >>> from strandline.time.domain import int64
    >>> values, codes = check_times(pa.array(["5", None, "soon"]), int64)
    >>> values[0].as_py(), codes.tolist()
    (5, [0, 1, 2])
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    codes = np.zeros(len(array), dtype=np.int8)
    if array.null_count:
        codes[array.is_null().to_numpy(zero_copy_only=False)] = NULL
    if isinstance(domain, Scalar):
        return _scalar(array, domain, codes), codes
    children = dict(zip([f.name for f in array.type], array.flatten(), strict=True))
    parts = []
    for name, part in domain.coordinates:
        values, worse = check_times(children[name], part)
        codes = np.where(codes == OK, worse, codes).astype(np.int8)
        parts.append(values)
    return pa.StructArray.from_arrays(parts, fields=list(arrow_type(domain))), codes


def _scalar(array: pa.Array, domain: Scalar, codes: _Codes) -> pa.Array:
    want = arrow_type(domain)
    if array.type != want:
        array = _cast(array, want, domain, codes)
    if array.null_count:
        array = array.fill_null(pa.scalar(0, pa.int64()).cast(want))
    return array


def _cast(array: pa.Array, want: pa.DataType, domain: Scalar, codes: _Codes) -> pa.Array:
    """Convert the values. A value that does not fit becomes null, and its code says why."""
    try:
        if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
            return _from_text(array, want)
        return array.cast(want)
    except pa.ArrowInvalid:
        pass
    # Some value does not fit: convert the distinct values one by one.
    encoded = array.dictionary_encode()
    values, bad = [], []
    text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    for value in encoded.dictionary:
        converted, code = _one(value, want, text)
        values.append(converted)
        bad.append(code)
    indices = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    found = np.array(bad, dtype=np.int8)[indices] if bad else np.zeros(len(array), dtype=np.int8)
    codes[:] = np.where(codes == OK, found, codes)
    whole = pa.array(values, pa.int64() if not pa.types.is_timestamp(want) else _UTC).cast(want)
    return whole.take(encoded.indices)


def _from_text(array: pa.Array, want: pa.DataType) -> pa.Array:
    trimmed = pc.utf8_trim_whitespace(array)
    if not pa.types.is_timestamp(want):
        return trimmed.cast(want)
    # Arrow parses text with a zone only to types with a zone, and text without one only to types without. Here both are UTC.
    zoned = pc.match_substring_regex(trimmed, r"(Z|[+-]\d{2}(:?\d{2})?)$")
    dated = pc.match_substring_regex(trimmed, r"^\d{4}-\d{2}-\d{2}$")
    has_zone = pc.and_(zoned, pc.invert(dated)).fill_null(False)
    with_zone = pc.if_else(has_zone, trimmed, pa.scalar(None, trimmed.type)).cast(_UTC)
    without = pc.if_else(has_zone, pa.scalar(None, trimmed.type), trimmed).cast(pa.timestamp("us")).cast(pa.int64())
    return pc.coalesce(with_zone.cast(pa.int64()), without).cast(_UTC)


def _one(value: pa.Scalar, want: pa.DataType, text: bool) -> tuple[Any, int]:
    """Convert one value. Return ``None`` when it does not fit, with a code that says why."""
    try:
        if not text:
            return value.cast(want).as_py(), OK
        raw = value.as_py().strip()
        if pa.types.is_timestamp(want):
            moment = datetime.fromisoformat(raw.replace("Z", "+00:00"))
            return (moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment), OK
        number = int(raw)
    except (ValueError, pa.ArrowInvalid):
        return None, UNPARSABLE if text else BEYOND
    try:
        pa.scalar(number, want)
    except (OverflowError, pa.ArrowInvalid):
        return None, BEYOND
    return number, OK
