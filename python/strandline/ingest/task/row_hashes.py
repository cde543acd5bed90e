"""A hash of each row, over all its columns: the same in every process, and however the rows are divided into tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["row_hashes"]

_Hashes: TypeAlias = npt.NDArray[np.uint64]
_Ints: TypeAlias = npt.NDArray[np.int64]

_NULL = np.uint64(0x9AE16A3B2F90404F)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(8)], dtype=np.uint64)
_ROWS, _BYTES = 1 << 14, 16 << 20
"""How many rows, and about how many bytes, are hashed at once: columns of numbers that stay in the processor's cache."""
_LONG = 1 << 10


def row_hashes(rows: pa.Table) -> _Hashes:
    """Return a hash of 64 bits for each row.

    Values count, not their form: -0.0 is 0.0, every NaN is one, and so are 5 as ``int32`` and as ``int64``. A map is the same
    in any order. Columns and fields of structs count by their names, and where they are null they add nothing. So a column that
    came later changes no hash of the rows before.

    Args:
        rows: The rows. Columns may have any type of Arrow.

    Returns:
        An array of the hashes, in the order of the rows.

    >>> one = row_hashes(pa.table({"a": [1, 2], "b": ["x", None]}))
    >>> other = row_hashes(pa.table({"b": pa.array([None, "x"]), "a": pa.array([2, 1], pa.int16())}))
    >>> one.tolist() == other.tolist()[::-1], len(set(one.tolist()))
    (True, 2)
    """
    at_once = max(1, min(_ROWS, _BYTES * rows.num_rows // (rows.nbytes + 1)))
    parts = [_fields(b.schema.names, b.columns, b.num_rows) for b in rows.to_batches(max_chunksize=at_once)]
    return np.concatenate([np.empty(0, dtype=np.uint64), *parts])


def _fields(names: Sequence[str], arrays: Sequence[pa.Array], rows: int) -> _Hashes:
    found = np.zeros(rows, dtype=np.uint64)
    for name, array in zip(names, arrays, strict=True):
        if array.null_count == rows:
            continue
        hashes = _mixed(_of_values(array) ^ _seed(name))
        if array.null_count:
            hashes[array.is_null().to_numpy(zero_copy_only=False)] = 0
        found += hashes
    return _mixed(found)


@lru_cache(maxsize=10_000)
def _seed(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big"))


def _hashes(array: pa.Array) -> _Hashes:
    found = _mixed(_of_values(array))
    if array.null_count:
        found[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return found


def _of_values(array: pa.Array) -> _Hashes:
    """Return a new array of numbers that tell values apart. Their bits are not mixed. Where a value is null, it is arbitrary."""
    kind, is_ = array.type, pa.types
    if not len(array) or is_.is_null(kind):
        return np.full(len(array), _NULL, dtype=np.uint64)
    if isinstance(kind, pa.BaseExtensionType):
        return _of_values(array.storage)
    if is_.is_dictionary(kind):
        return _of_values(array.dictionary_decode())
    if is_.is_struct(kind):
        return _fields([field.name for field in kind], array.flatten(), len(array))
    if is_.is_map(kind):
        offsets, first, count = _offsets(array, np.int32)
        keys, values = _hashes(array.keys.slice(first, count)), _hashes(array.items.slice(first, count))
        return _of_sequences(_mixed(keys * _ODD + values), np.zeros(count, dtype=np.int64), offsets)
    if is_.is_list(kind) or is_.is_large_list(kind):
        offsets, first, count = _offsets(array, np.int64 if is_.is_large_list(kind) else np.int32)
        return _of_sequences(_hashes(array.values.slice(first, count)), _places(offsets), offsets)
    if is_.is_fixed_size_list(kind):
        size = kind.list_size
        offsets = np.arange(0, (len(array) + 1) * size, max(1, size))[: len(array) + 1] if size else np.zeros(len(array) + 1, int)
        values = array.values.slice(array.offset * size, len(array) * size)
        return _of_sequences(_hashes(values), _places(offsets), offsets)
    if is_.is_boolean(kind):
        return _of_numbers(array.cast(pa.uint8()))
    if is_.is_string(kind) or is_.is_binary(kind):
        return _of_bytes(array, np.int32)
    if is_.is_large_string(kind) or is_.is_large_binary(kind):
        return _of_bytes(array, np.int64)
    if is_.is_fixed_size_binary(kind):
        return _of_bytes(array.cast(pa.binary()), np.int32)
    if is_.is_primitive(kind) or is_.is_decimal(kind):
        return _of_numbers(array)
    digests = (blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=8).digest() for value in array.to_pylist())
    return np.array([int.from_bytes(digest, "big") for digest in digests], dtype=np.uint64)


def _of_numbers(array: pa.Array) -> _Hashes:
    """Hash values of a fixed width: numbers, dates, times, decimals."""
    kind, width = array.type, array.type.bit_width // 8
    data, at, rows = array.buffers()[1], array.offset * width, len(array)
    if pa.types.is_floating(kind):
        with np.errstate(all="ignore"):
            numbers = np.frombuffer(data, f"<f{width}", rows, at).astype(np.float64) + 0.0  # -0.0 becomes 0.0
            numbers[np.isnan(numbers)] = np.nan
        return numbers.view(np.uint64) + _ODD
    if width <= 8:
        unsigned = pa.types.is_unsigned_integer(kind)
        raw = np.frombuffer(data, f"<{'u' if unsigned else 'i'}{width}", rows, at)
        return raw.astype(np.uint64 if unsigned else np.int64).view(np.uint64) + _ODD
    words = np.frombuffer(data, "<u8", rows * (width // 8), at).reshape(rows, width // 8)
    found = np.full(rows, _ODD, dtype=np.uint64)
    for i in range(width // 8):
        found = _mixed(found ^ words[:, i])
    return found


def _of_bytes(array: pa.Array, offset: type[np.signedinteger]) -> _Hashes:
    """Hash texts, eight bytes of each at a time, and long ones one by one."""
    offsets, first, size = _offsets(array, offset)
    data = np.zeros(size + 8, dtype=np.uint8)
    if size:
        data[:size] = np.frombuffer(array.buffers()[2], np.uint8, size, first)
    from_each_byte = np.ndarray((size + 1,), "<u8", data, strides=(1,))
    at, lengths = offsets[:-1].copy(), np.diff(offsets)
    long = lengths > _LONG
    words = np.where(long, 0, lengths >> 3)
    found = lengths.view(np.uint64) * _ODD
    for i in range(int(words.max())):
        rows = slice(None) if i < words.min() else np.flatnonzero(words > i)
        found[rows] = _followed(found[rows], from_each_byte[at[rows]])
        at[rows] += 8
    found = _followed(found, from_each_byte[at] & _MASKS[lengths & 7])  # what comes after belongs to the next text
    for row in np.flatnonzero(long).tolist():
        text = data[offsets[row] : offsets[row + 1]]
        found[row] = int.from_bytes(blake2b(text.tobytes(), digest_size=8).digest(), "little")
    return found


def _followed(hashes: _Hashes, words: _Hashes) -> _Hashes:
    words *= _FIRST
    words ^= words >> _SHIFT
    words *= _SECOND
    words ^= hashes
    words *= _ODD
    words ^= words >> _SHIFT
    return words


def _offsets(array: pa.Array, kind: type[np.signedinteger]) -> tuple[_Ints, int, int]:
    """Return where each value begins and ends among those of this array, where these begin, and how many there are."""
    found = np.frombuffer(array.buffers()[1], kind, len(array) + 1, array.offset * np.dtype(kind).itemsize).astype(np.int64)
    return found - found[0], int(found[0]), int(found[-1] - found[0])


def _places(offsets: _Ints) -> _Ints:
    """Return the place of each element in its sequence."""
    places: _Ints = np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))
    return places


def _of_sequences(elements: _Hashes, places: _Ints, offsets: _Ints) -> _Hashes:
    """Hash sequences of elements, each at its place."""
    sums = np.concatenate([[np.uint64(0)], np.cumsum(_mixed(elements ^ (places.view(np.uint64) * _ODD)), dtype=np.uint64)])
    found: _Hashes = sums[offsets[1:]] - sums[offsets[:-1]] + np.diff(offsets).view(np.uint64) * _ODD
    return found


def _mixed(values: _Hashes) -> _Hashes:
    """Spread each bit over all bits, in place: the end of MurmurHash3. No two values become the same."""
    values ^= values >> _SHIFT
    values *= _FIRST
    values ^= values >> _SHIFT
    values *= _SECOND
    values ^= values >> _SHIFT
    return values
