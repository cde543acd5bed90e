"""Arrow arrays cast to the types of a schema where each value stays what it is."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_strandline.operators.results.rules import MOST_EXACT, MisfitError, same_key, shown, type_name

__all__ = ["cast_array"]

t = pa.types


def cast_array(array: pa.Array, field: pa.Field) -> pa.Array:
    """Return ``array`` with the field's type and the same values. Raises :class:`MisfitError` if a value is none of that type.

    Integers, floats, decimals, and times of other units are cast if no value changes, and a ``double`` to the nearest ``float``.
    Text is no number, and a timestamp without a time zone is no timestamp with one.

    >>> cast_array(pa.array([1.0, None]), pa.field("n", pa.int64())).to_pylist()
    [1, None]
    >>> cast_array(pa.array([1.0, 1.5]), pa.field("n", pa.int64()))
    Traceback (most recent call last):
    pyspark_strandline.operators.results.rules.MisfitError: [1] is 1.5 (float), not a value of bigint
    """
    return _cast(_plain(array), field, 0)


def _plain(array: pa.Array) -> pa.Array:
    """Return an array without the ways of Arrow to store it otherwise."""
    if isinstance(array.type, pa.BaseExtensionType):
        if array.type.extension_name not in _STORED_AS_THEY_ARE:  # a period of pandas is stored as a number
            raise MisfitError(f"has the type {array.type}, which Spark does not have")
        return _plain(array.storage)
    if t.is_dictionary(array.type):
        return _plain(array.dictionary_decode())
    if t.is_run_end_encoded(array.type):
        return _plain(pc.run_end_decode(array))
    return array


def _cast(array: pa.Array, field: pa.Field, nulls_around: int) -> pa.Array:
    """``nulls_around``: how many of the nulls are those of a struct around the array."""
    wanted = field.type
    if not field.nullable and array.null_count > nulls_around:
        at = _first(array.is_null().to_pylist()) if not nulls_around else None
        raise MisfitError("is null, but it may not be null", "" if at is None else f"[{at}]")
    if t.is_null(array.type):
        return pa.nulls(len(array), wanted)
    if t.is_struct(wanted):
        return _struct(array, wanted)
    if t.is_map(wanted):
        return _map(array, wanted)
    if t.is_list(wanted) or t.is_large_list(wanted):
        return _list(array, wanted)
    if array.type.equals(wanted):
        return array
    if not any(of(array.type) and to(wanted) for of, to in _CASTS) or not _is_same_zone(array.type, wanted):
        raise MisfitError(f"has the type {type_name(array.type)}, not {type_name(wanted)}{_zones(array.type, wanted)}")
    made = _tried(array, wanted)
    if made is None:
        at = _first_misfit(array, wanted)
        raise MisfitError(f"is {shown(array[at].as_py())}, not a value of {type_name(wanted)}", f"[{at}]")
    return made


def _tried(array: pa.Array, wanted: pa.DataType) -> pa.Array | None:
    """Return the array with the other type; ``None`` if a value is none of it."""
    try:
        made = array.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if t.is_floating(array.type) and t.is_integer(wanted):
        # A float beyond may stand for several integers.
        far = pc.greater(pc.abs(array), float(MOST_EXACT))
        return None if pc.any(far).as_py() else made
    if t.is_floating(wanted) and t.is_floating(array.type):
        grown = pc.and_(pc.is_inf(made), pc.invert(pc.is_inf(array)))
        return None if pc.any(grown).as_py() else made
    if t.is_date64(array.type):
        return made if made.cast(array.type).equals(array) else None
    return made


def _first_misfit(array: pa.Array, wanted: pa.DataType) -> int:
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _tried(array.slice(low, middle - low), wanted) is None else (middle, high)
    return low


def _first(flags: list[bool]) -> int:
    return flags.index(True)


_STORED_AS_THEY_ARE = {"arrow.uuid", "arrow.json", "arrow.fixed_shape_tensor", "arrow.variable_shape_tensor", "pandas.interval"}
"""The extension types whose storage has the value itself."""
_NUMBER: Callable[[pa.DataType], bool] = lambda x: t.is_integer(x) or t.is_floating(x)  # noqa: E731
_TEXT: Callable[[pa.DataType], bool] = lambda x: t.is_string(x) or t.is_large_string(x) or t.is_string_view(x)  # noqa: E731
_BYTES: Callable[[pa.DataType], bool] = lambda x: (  # noqa: E731
    t.is_binary(x) or t.is_large_binary(x) or t.is_binary_view(x) or t.is_fixed_size_binary(x)
)
_CASTS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool]]] = [
    (_NUMBER, _NUMBER),
    (t.is_integer, t.is_decimal),
    (t.is_decimal, t.is_decimal),
    (_TEXT, _TEXT),
    (_BYTES, _BYTES),
    (t.is_date, t.is_date),
    (t.is_timestamp, t.is_timestamp),
    (t.is_duration, t.is_duration),
    (t.is_time, t.is_time),
]


def _is_same_zone(found: pa.DataType, wanted: pa.DataType) -> bool:
    return not t.is_timestamp(found) or (found.tz is None) == (wanted.tz is None)


def _zones(found: pa.DataType, wanted: pa.DataType) -> str:
    if t.is_timestamp(found) and t.is_timestamp(wanted):
        return ", which has a time zone" if wanted.tz else ", which has no time zone"
    return ""


def _other(array: pa.Array, wanted: pa.DataType) -> MisfitError:
    return MisfitError(f"has the type {type_name(array.type)}, not {type_name(wanted)}")


def _struct(array: pa.Array, wanted: pa.StructType) -> pa.Array:
    if not t.is_struct(array.type):
        raise _other(array, wanted)
    names, needed = [each.name for each in array.type], [each.name for each in wanted]
    if sorted(names) != sorted(needed):
        raise MisfitError(f"has the fields {names}, but the schema has {needed}")
    parts, made = dict(zip(names, array.flatten(), strict=True)), []
    for each in wanted:
        try:
            made.append(_cast(_plain(parts[each.name]), each, array.null_count))
        except MisfitError as misfit:  # noqa: PERF203
            raise misfit.within(each.name) from None
    return pa.StructArray.from_arrays(made, fields=list(wanted), mask=array.is_null() if array.null_count else None)


def _list(array: pa.Array, wanted: pa.ListType) -> pa.Array:
    if not (
        t.is_list(array.type)
        or t.is_large_list(array.type)
        or t.is_fixed_size_list(array.type)
        or t.is_list_view(array.type)
        or t.is_large_list_view(array.type)
    ):
        raise _other(array, wanted)
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    inner = _inner(_plain(pc.list_flatten(array)), wanted.value_field, "[…]")
    mask = array.is_null() if array.null_count else None
    kind = pa.LargeListArray if t.is_large_list(wanted) else pa.ListArray
    return kind.from_arrays(
        _offsets(lengths).cast(pa.int64() if t.is_large_list(wanted) else pa.int32()), inner, type=wanted, mask=mask
    )


def _map(array: pa.Array, wanted: pa.MapType) -> pa.Array:
    if not t.is_map(array.type):
        raise _other(array, wanted)
    first, last = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
    offsets = pc.subtract(array.offsets, first)
    keys = _inner(_plain(array.keys.slice(first, last - first)), wanted.key_field, "[a key]")
    items = _inner(_plain(array.items.slice(first, last - first)), wanted.item_field, "[…]")
    mask = array.is_null() if array.null_count else None
    made = pa.MapArray.from_arrays(offsets, keys, items, wanted, mask=mask)
    of_each = np.repeat(np.arange(len(array)), np.diff(offsets.to_numpy()))
    if (row := _row_with_a_key_twice(keys, of_each)) is not None:
        raise MisfitError(f"is {shown(made[row].as_py())}, which has a key twice", f"[{row}]")
    return made


def _row_with_a_key_twice(keys: pa.Array, rows: npt.NDArray[np.int64]) -> int | None:
    """Return the first row that has a key twice, as Spark compares keys. ``rows``: the row of each key."""
    if t.is_floating(keys.type):
        keys = pc.add(keys, pa.scalar(0.0, keys.type))  # -0.0 is 0.0
    if t.is_nested(keys.type):
        seen: set[Hashable] = set()
        for row, key in zip(rows.tolist(), keys.to_pylist(), strict=True):
            if (known := (row, same_key(key))) in seen:
                return int(row)
            seen.add(known)
        return None
    pairs = np.stack([rows, keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)], axis=1)
    order = np.lexsort(pairs.T[::-1])
    twice = np.flatnonzero((np.diff(pairs[order], axis=0) == 0).all(axis=1))
    return int(pairs[order][twice[0], 0]) if len(twice) else None


def _inner(array: pa.Array, field: pa.Field, step: str) -> pa.Array:
    """Cast what is in lists. Its place there is not known: the message names the value."""
    try:
        return _cast(array, field, 0)
    except MisfitError as misfit:
        path = misfit.path[misfit.path.index("]") + 1 :] if misfit.path.startswith("[") else misfit.path
        raise MisfitError(misfit.what, path.removeprefix(".")).within(step) from None


def _offsets(lengths: pa.Array) -> pa.Array:
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths).cast(pa.int64())])
