"""Checks the times of outside rows one by one, so that a row with a bad time is set aside and the others continue."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.ingest import errors
from strandline.ingest.columns.text_columns import integers_of_text, moments_of_text
from strandline.time.arrow import arrow_type
from strandline.time.domain import Scalar, TimeDomain, parse_domain, timestamp
from strandline.time.text.calendar import DAY, format_micros
from strandline.time.text.grammar import Wrong

__all__ = ["BEYOND", "EPOCH", "NULL", "OK", "UNPARSABLE", "check_times", "default_domain", "shown_value"]

OK, NULL, UNPARSABLE, BEYOND, EPOCH = 0, 1, int(Wrong.UNPARSABLE), int(Wrong.BEYOND), int(Wrong.EPOCH)
"""The result of checking a row's time. In order: it is a time of the domain; it or one of its coordinates is null; it is a text
that is not a time; it is outside the domain; it is a number in text, where a moment is wanted."""

_Array: TypeAlias = Any
_Codes: TypeAlias = npt.NDArray[np.int8]
_MOST_SHOWN = 200
_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Microseconds of a unit of timestamps."""


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
        raise errors.time_column_invalid_zone(field.name)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return timestamp
    if pa.types.is_signed_integer(kind):
        return parse_domain(str(kind))
    if pa.types.is_struct(kind):
        raise errors.time_column_invalid_struct(field.name)
    raise errors.time_column_invalid_type(field.name, kind)


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
            raise errors.time_column_invalid_scalar(field.name, kind, domain, arrow_type(domain))
        return
    names = [name for name, _ in domain.coordinates]
    if not pa.types.is_struct(kind) or sorted(f.name for f in kind) != sorted(names):
        raise errors.time_column_invalid_coordinates(field.name, kind, domain, names)
    for name, part in domain.coordinates:
        check_type(kind.field(name).with_name(f"{field.name}.{name}"), part)


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
    if _is_text(array.type):
        is_moment = domain.name == "timestamp"
        array = moments_of_text(array, codes) if is_moment else integers_of_text(array, domain, want, codes)
    elif array.type != want:
        array = _cast(array, want, domain, codes)
    if array.null_count:
        array = array.fill_null(pa.scalar(0, pa.int64()).cast(want))
    return array


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _cast(array: pa.Array, want: pa.DataType, domain: Scalar, codes: _Codes) -> pa.Array:
    """Convert integers, dates and timestamps. A value that the domain does not have becomes null, and its code says so."""
    kind = array.type
    numbers = array.cast(pa.int32()) if pa.types.is_date32(kind) else array
    values = (numbers if pa.types.is_integer(numbers.type) else numbers.cast(pa.int64())).fill_null(0)
    whole = values.to_numpy(zero_copy_only=False)
    if pa.types.is_integer(kind):
        fits = _within(whole, domain.minimum, domain.maximum)
    else:
        if pa.types.is_timestamp(kind) and kind.unit == "ns":  # whole microseconds only
            micros, fits = whole // 1000, whole % 1000 == 0
        else:
            unit = DAY if pa.types.is_date32(kind) else 1_000 if pa.types.is_date64(kind) else _UNITS[kind.unit]
            whole = whole.astype(np.int64)
            fits = _within(whole, -((1 << 63) // unit), ((1 << 63) - 1) // unit)
            micros = np.where(fits, whole, 0) * unit
        whole = micros
    codes[~fits & (codes == OK)] = BEYOND
    kept = np.where(fits, whole, whole.dtype.type(0))
    return pa.array(kept, mask=codes != OK).cast(want)


def _within(values: npt.NDArray[np.integer], low: int, high: int) -> npt.NDArray[np.bool_]:
    """Return which integers are from ``low`` to ``high``, of which the values' type may have neither."""
    info = np.iinfo(values.dtype)
    return (values >= max(low, int(info.min))) & (values <= min(high, int(info.max)))


def shown_value(value: pa.Scalar) -> str:
    """Return a value of a time column for a message. Python has no dates of all years that Arrow has.

    >>> shown_value(pa.scalar(5_000_000, pa.date32())), shown_value(pa.scalar("soon")), shown_value(pa.scalar(None, pa.int64()))
    ('+15659-07-15', "'soon'", 'None')
    """
    kind = value.type
    if value.is_valid and pa.types.is_date(kind):
        return format_micros(value.value * (DAY if pa.types.is_date32(kind) else 1_000)).partition("T")[0]
    if value.is_valid and pa.types.is_timestamp(kind):
        return format_micros(value.value // 1_000 if kind.unit == "ns" else value.value * _UNITS[kind.unit])
    if value.is_valid and pa.types.is_struct(kind):
        return "{" + ", ".join(f"{name}: {shown_value(each)}" for name, each in value.items()) + "}"
    is_text = value.is_valid and (pa.types.is_string(kind) or pa.types.is_large_string(kind))
    shown = repr(value.as_buffer().to_pybytes().decode(errors="backslashreplace") if is_text else value.as_py())
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}… ({len(shown)} characters)"
