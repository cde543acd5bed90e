"""A hash of each row, over all its columns: the same in every process, and however the rows are divided into tables."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["FloatSums", "row_hashes"]

_Hashes: TypeAlias = npt.NDArray[np.uint64]
_Ints: TypeAlias = npt.NDArray[np.int64]
_Floats: TypeAlias = npt.NDArray[np.float64]
_Path: TypeAlias = tuple[str, ...]

_NULL = np.uint64(0x9AE16A3B2F90404F)
_INFINITY = np.float64("inf").view(np.uint64)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(8)] + [(1 << 64) - 1], dtype=np.uint64)
_ROWS, _BYTES = 1 << 17, 16 << 20
"""How many rows, and about how many bytes, are hashed at once: enough that calls cost little, and few enough for a cache."""
_LONG = 1 << 10
_COARSE = 1000.0
_LEFT = 1000.0 * 2.0**-64
_MANTISSA, _WEIGHT = np.uint64(12), np.float64(2.0**-65).view(np.uint64)
"""The weights are from 2⁻⁶⁵ to 2⁻⁶⁴: no sum is beyond the greatest number, in whatever order the values come."""
_FOLD = np.uint64(29)
_BEGIN = np.uint64(0x9E6C63D0876A9A47)
_INTEGERS = {
    kind.id: f"<{'u' if pa.types.is_unsigned_integer(kind) else 'i'}{kind.bit_width // 8}"
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("us"), pa.duration("us")),
    )
}
"""How numpy reads the types whose values are integers of a fixed width, by their numbers in Arrow."""
_FLOATS = {kind.id: f"<f{kind.bit_width // 8}" for kind in (pa.float16(), pa.float32(), pa.float64())}
_STRUCT, _DICTIONARY = pa.struct([]).id, pa.dictionary(pa.int8(), pa.int8()).id
_PLAIN = {pa.bool_().id, *_INTEGERS, *_FLOATS}
"""The types whose own bits are a number."""


@dataclass
class FloatSums:
    """Sums of the floating-point values of each column, so that two batches can be compared up to rounding.

    Each finite value counts with a weight from 2⁻⁶⁵ to 2⁻⁶⁴ that follows from the rest of its row. So two rows that exchange
    their values change the sum. In a list, it also follows from the rest of the element and from the rank of the value among
    those of the row.

    Attributes:
        sums: For each column, by its path (``a.b`` for a field of a struct): the sum; and the norm of the magnitudes, the root of
            the sum of their squares, by which one tells roundings, which are independent, from a difference. The magnitude of a
            value is its absolute value and 1000 more, because what is left of a sum whose terms cancel is nothing but their
            roundings; all this with the weights of the values. Of a value of fewer than 64 bits, it is 1000 times as much.
    """

    sums: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, path: str, values: _Floats, weights: _Floats, *, coarse: bool = False) -> None:
        """Add finite values, each with its weight. ``coarse``: they have fewer than 64 bits."""
        if len(values):
            known, norm = self.sums.get(path, (0.0, 0.0))
            weighted = values * weights  # not a product of vectors, for which BLAS would wake threads
            with np.errstate(over="ignore", invalid="ignore"):
                known += float(weighted.sum())
            np.abs(weighted, out=weighted)
            weighted += _LEFT
            norm = math.hypot(norm, _norm(weighted) * (_COARSE if coarse else 1.0))
            self.sums[path] = known, norm


def _norm(values: _Floats) -> float:
    with np.errstate(over="ignore"):
        squares = float(np.square(values).sum())
    if math.isfinite(squares):
        return math.sqrt(squares)
    largest = float(values.max())
    return largest * math.sqrt(float(np.square(values / largest).sum()))


@dataclass
class _Values:
    """Finite floating-point values of a column that are compared up to rounding.

    Attributes:
        path: The column.
        values: The values.
        coarse: Whether they have fewer than 64 bits.
        at: Which entry of the array around them each value is in: of the elements of a list while this is read, of the rows at
            the end (``None``: each has one, in their order).
        rest: For values within lists and maps: a hash of what is beside each value.
        collected: Whether they are within lists or maps.
    """

    path: _Path
    values: _Floats
    coarse: bool
    at: _Ints | None
    rest: _Hashes | None = None
    collected: bool = False

    def has_beside(self, hashes: _Hashes) -> None:
        """Add hashes of the entries that the values are in."""
        beside = hashes.copy() if self.at is None else hashes[self.at]
        self.rest = beside if self.rest is None else _mixed(self.rest + beside)

    def leave(self, lists: _Ints, valid: npt.NDArray[np.bool_] | None) -> None:
        """Say which list each entry belongs to. Values of a list that is null do not count."""
        self.collected = True
        self.at = lists if self.at is None else lists[self.at]
        if valid is not None and not (kept := valid[self.at]).all():
            self.values, self.at = self.values[kept], self.at[kept]
            self.rest = None if self.rest is None else self.rest[kept]

    def weights(self, rows: _Hashes) -> _Floats:
        """Return the weight of each value, from the hashes of the rows."""
        hashes = rows if self.at is None else rows[self.at]
        if self.collected:
            hashes = _mixed(hashes ^ self._ranked())
        weights: _Floats = ((hashes >> _MANTISSA) | _WEIGHT).view(np.float64)
        return weights

    def _ranked(self) -> _Hashes:
        """Return hashes that do not depend on the order of the entries: the rank of a value stands for its place."""
        rest = np.zeros(len(self.values), dtype=np.uint64) if self.rest is None else self.rest
        at = np.arange(len(self.values)) if self.at is None else self.at
        order = np.lexsort((self.values, rest, at))
        begins = np.ones(len(order), dtype=bool)
        begins[1:] = (np.diff(at[order]) != 0) | (rest[order][1:] != rest[order][:-1])
        places = np.arange(len(order))
        ranks = np.empty(len(order), dtype=np.uint64)
        ranks[order] = (places - np.maximum.accumulate(np.where(begins, places, 0))).view(np.uint64)
        return _mixed(rest + ranks * _ODD)


_Loose: TypeAlias = list[_Values]
"""What is compared up to rounding."""


def row_hashes(rows: pa.Table, floats: FloatSums | None = None) -> _Hashes:
    """Return a hash of 64 bits for each row.

    Values count, not their form: -0.0 is 0.0, every NaN is one, and so are 5 as ``int32`` and as ``int64``. A map is the same
    in any order. Columns and fields of structs count by their names, and where they are null they add nothing. So a column that
    came later changes no hash of the rows before.

    Args:
        rows: The rows. Columns may have any type of Arrow.
        floats: If given, the hash has of a floating-point number only whether it is finite, NaN or an infinity, and elements of
            a list count in any order. The values are added to ``floats``. Spark promises neither the order of additions nor the
            order in which ``collect_list`` gathers rows.

    Returns:
        An array of the hashes, in the order of the rows.

    >>> one = row_hashes(pa.table({"a": [1, 2], "b": ["x", None]}))
    >>> other = row_hashes(pa.table({"b": pa.array([None, "x"]), "a": pa.array([2, 1], pa.int16())}))
    >>> one.tolist() == other.tolist()[::-1], len(set(one.tolist()))
    (True, 2)
    >>> sums = FloatSums()
    >>> one, other = row_hashes(pa.table({"a": [0.1 + 0.2]}), sums), row_hashes(pa.table({"a": [0.3]}), sums)
    >>> one.tolist() == other.tolist(), len(sums.sums["a"])
    (True, 2)
    """
    whole = rows.num_rows <= _ROWS and rows.get_total_buffer_size() <= _BYTES
    at_once = None if whole else _at_once(rows)
    parts = [_of_batch(batch, floats) for batch in rows.to_batches(max_chunksize=at_once)]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype=np.uint64), *parts])


def _at_once(rows: pa.Table) -> int:
    """Return how many rows are hashed at once."""
    if _PLAIN.issuperset(kind.id for kind in rows.schema.types):
        return _ROWS
    return max(1, min(_ROWS, _BYTES * int(rows.num_rows) // (int(rows.nbytes) + 1)))


def _of_batch(batch: pa.RecordBatch, floats: FloatSums | None) -> _Hashes:
    chain = _Chain(batch.num_rows)
    loose: _Loose | None = None if floats is None else []
    for name, array in sorted(zip(batch.schema.names, batch.columns, strict=True), key=itemgetter(0)):
        _add(chain, (name,), array, loose)
    hashes = chain.result()
    if loose and floats is not None:
        for each in loose:
            floats.add(_shown(each.path), each.values, each.weights(hashes), coarse=each.coarse)
    return hashes


class _Chain:
    """The hash of each row, to which its columns are added one after the other.

    After each, the bits are mixed: a product has no bit of its factors further down, so the first bits of two columns, or the
    last ones of numbers whose last bits are there, would only meet each other.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._found: _Hashes | None = None
        self._folded = np.empty(rows, dtype=np.uint64)

    def add(self, values: _Hashes, odd: np.uint64, nulls: npt.NDArray[np.bool_] | None) -> None:
        """Add a column. Its nulls change nothing."""
        before = None if nulls is None else self._begun()[nulls]
        if self._found is None:
            self._found = values + _BEGIN
        else:
            self._found += values
        self._found *= odd
        self._found ^= np.right_shift(self._found, _FOLD, out=self._folded)
        self._found *= _SECOND
        if before is not None:
            self._found[nulls] = before

    def add_number(self, number: int, nulls: npt.NDArray[np.bool_] | None) -> None:
        """Add a number to each row that is not null there."""
        if nulls is None:
            self._begun()[:] += np.uint64(number)
        else:
            self._begun()[~nulls] += np.uint64(number)

    def _begun(self) -> _Hashes:
        if self._found is None:
            self._found = np.full(self._rows, _BEGIN)
        return self._found

    def result(self) -> _Hashes:
        """Return the hashes, of which each bit depends on all bits of the row: sums of them are compared."""
        return _mixed(self._begun())


def _add(chain: _Chain, path: _Path, array: pa.Array, loose: _Loose | None) -> None:
    """Add a column to the chain; of a struct, its fields. In ``loose``, only which numbers are not finite is added."""
    kind = array.type
    if array.null_count == len(array):
        return
    if isinstance(kind, pa.BaseExtensionType):
        _add(chain, path, array.storage, loose)
        return
    if kind.id == _DICTIONARY:
        _add(chain, path, array.dictionary_decode(), loose)
        return
    seed, odd = _seed(path)
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if kind.id == _STRUCT:
        chain.add_number(seed, nulls)
        names = [child.name for child in kind]
        for name, each in sorted(zip(names, array.flatten(), strict=True), key=itemgetter(0)):
            _add(chain, (*path, name), each, loose)
        return
    values = _of_values(array, path, loose)
    if loose is not None and kind.id in _FLOATS:
        chain.add_number(seed, nulls)
        if values is not None:
            is_finite = values == 0
            nulls = is_finite if nulls is None else is_finite | nulls
    if values is not None:
        chain.add(values, odd, nulls)


@lru_cache(maxsize=10_000)
def _seed(path: _Path) -> tuple[int, np.uint64]:
    """Return two numbers for a column; the second one is odd, so that a product loses no bit."""
    text = "\0".join(path).encode("utf-8", "surrogatepass")
    digest = blake2b(text, digest_size=16).digest()
    return int.from_bytes(digest[:8], "big"), np.uint64(int.from_bytes(digest[8:], "big") | 1)


def _shown(path: _Path) -> str:
    """Return the path as text. No two are the same.

    >>> _shown(("a", "b")), _shown(("a.b",))
    ('a.b', '`a.b`')
    """
    return ".".join(f"`{name.replace('`', '``')}`" if "." in name or "`" in name else name for name in path)


def _hashes(array: pa.Array, path: _Path, loose: _Loose | None) -> _Hashes:
    """Return a hash of each element of a list or a map."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _hashes(array.storage, path, loose)
    if kind.id == _DICTIONARY:
        return _hashes(array.dictionary_decode(), path, loose)
    if kind.id == _STRUCT and len(array):
        found = np.full(len(array), _ODD, dtype=np.uint64)
        known = 0 if loose is None else len(loose)
        for child, values in zip(kind, array.flatten(), strict=True):
            seed, odd = _seed((child.name,))
            hashes = _hashes(values, (*path, child.name), loose)
            hashes *= odd
            hashes += np.uint64(seed)
            if values.null_count:
                hashes[values.is_null().to_numpy(zero_copy_only=False)] = 0
            found += hashes
        found = _mixed(found)
        for each in (loose or [])[known:]:
            each.has_beside(found)
    else:
        own = _of_values(array, path, loose)
        found = np.zeros(len(array), dtype=np.uint64) if own is None else _mixed(own.copy() if kind.id in _PLAIN else own)
    if array.null_count:
        found[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return found


def _collected(array: pa.Array, offsets: _Ints, found: _Hashes, values: _Loose) -> None:
    """Leave lists or maps with the values in them. ``found``: a hash of each list."""
    lists = np.repeat(np.arange(len(array)), np.diff(offsets))
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    for each in values:
        each.leave(lists, valid)
        each.has_beside(found)


def _of_values(array: pa.Array, path: _Path, loose: _Loose | None) -> _Hashes | None:
    """Return numbers that tell values apart. Their bits are not mixed. Where a value is null, it is arbitrary.

    Those of a fixed width up to 64 bits may be in the memory of the column, which must not be changed.

    ``None``: all of them are finite numbers, which ``loose`` has.
    """
    kind, is_ = array.type, pa.types
    if kind.id in _INTEGERS:
        return _of_integers(array)
    if kind.id in _FLOATS:
        return _of_floats(array, path, loose)
    if not len(array) or is_.is_null(kind):
        return np.full(len(array), _NULL, dtype=np.uint64)
    known = 0 if loose is None else len(loose)
    if is_.is_map(kind):
        offsets, first, count = _offsets(array, np.int32)
        keys = _hashes(array.keys.slice(first, count), (*path, "key"), loose)
        entries = _mixed(keys * _ODD + _hashes(array.items.slice(first, count), (*path, "value"), loose))
        found = _of_sequences(entries, np.zeros(count, dtype=np.int64), offsets)
        for each in (loose or [])[known:]:
            each.has_beside(entries)
        _collected(array, offsets, found, (loose or [])[known:])
        return found
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        if is_.is_fixed_size_list(kind):
            size = kind.list_size
            offsets = np.arange(len(array) + 1) * size
            elements = array.values.slice(array.offset * size, len(array) * size)
        else:
            offsets, first, count = _offsets(array, np.int64 if is_.is_large_list(kind) else np.int32)
            elements = array.values.slice(first, count)
        hashes = _hashes(elements, (*path, "element"), loose)
        places = _places(offsets) if loose is None else np.zeros(len(hashes), dtype=np.int64)
        found = _of_sequences(hashes, places, offsets)
        _collected(array, offsets, found, (loose or [])[known:])
        return found
    if is_.is_boolean(kind):
        return _of_integers(array.cast(pa.uint8()))
    if is_.is_string(kind) or is_.is_binary(kind):
        return _of_bytes(array, np.int32)
    if is_.is_large_string(kind) or is_.is_large_binary(kind):
        return _of_bytes(array, np.int64)
    if is_.is_fixed_size_binary(kind):
        return _of_bytes(array.cast(pa.binary()), np.int32)
    if is_.is_primitive(kind) or is_.is_decimal(kind):
        return _of_words(array)
    digests = (blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=8).digest() for value in array.to_pylist())
    return np.array([int.from_bytes(digest, "big") for digest in digests], dtype=np.uint64)


def _of_floats(array: pa.Array, path: _Path, loose: _Loose | None) -> _Hashes | None:
    width = array.type.bit_width // 8
    numbers = np.frombuffer(array.buffers()[1], _FLOATS[array.type.id], len(array), array.offset * width)
    numbers = numbers.astype(np.float64, copy=False)
    if loose is None:
        bits = numbers.view(np.uint64)
        if len(bits) and np.maximum.reduce(bits) <= _INFINITY:  # neither negative nor NaN
            return bits
        if len(numbers) and math.isnan(np.maximum.reduce(numbers)):
            numbers = np.where(np.isnan(numbers), np.nan, numbers)
        return (numbers + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    counted = np.isfinite(numbers)
    all_finite = bool(counted.all())
    if array.null_count:
        counted = counted & array.is_valid().to_numpy(zero_copy_only=False)
    if all_finite and not array.null_count:
        loose.append(_Values(path, numbers, width < 8, None))
        return None
    rows = np.flatnonzero(counted)
    loose.append(_Values(path, numbers[rows], width < 8, rows))
    if all_finite:
        return None
    with np.errstate(all="ignore"):
        classes = np.where(np.isnan(numbers), np.nan, np.where(np.isfinite(numbers), 0.0, numbers))
    return classes.view(np.uint64)


def _of_integers(array: pa.Array) -> _Hashes:
    """Return integers, dates and times as they are."""
    form = _INTEGERS[array.type.id]
    found = np.frombuffer(array.buffers()[1], form, len(array), array.offset * int(form[2]))
    return found.astype(f"<{form[1]}8", copy=False).view(np.uint64)


def _of_words(array: pa.Array) -> _Hashes:
    """Hash values of a fixed width, eight bytes of each at a time: decimals, and intervals of several parts."""
    width = array.type.bit_width // 8
    rows, size = len(array), -(-width // 8)
    raw = np.frombuffer(array.buffers()[1], np.uint8, rows * width, array.offset * width).reshape(rows, width)
    if width % 8:
        raw = np.pad(raw, ((0, 0), (0, 8 * size - width)))
    words = raw.view("<u8")
    found = np.full(rows, _ODD, dtype=np.uint64)
    for i in range(size):
        found = _mixed(found ^ words[:, i])
    return found


def _of_bytes(array: pa.Array, offset: type[np.signedinteger]) -> _Hashes:
    """Hash texts, eight bytes of each at a time, and long ones one by one."""
    offsets, first, size = _offsets(array, offset)
    data = np.zeros(size + 8, dtype=np.uint8)
    if size:
        data[:size] = np.frombuffer(array.buffers()[2], np.uint8, size, first)
    from_each_byte = np.ndarray((size + 1,), "<u8", data, strides=(1,))
    at, lengths = offsets[:-1], np.diff(offsets)
    found = from_each_byte[at]
    found &= _MASKS[np.minimum(lengths, 8)]  # what comes after belongs to the next text
    found *= _FIRST
    found ^= lengths.view(np.uint64) * _ODD
    rows = np.flatnonzero(lengths > 8)
    if len(rows):
        found[rows] = _of_longer(found[rows], from_each_byte, at[rows], lengths[rows])
        for row in rows[lengths[rows] > _LONG].tolist():
            text = data[offsets[row] : offsets[row + 1]]
            found[row] = int.from_bytes(blake2b(text.tobytes(), digest_size=8).digest(), "little")
    return found


def _of_longer(found: _Hashes, from_each_byte: _Hashes, at: _Ints, lengths: _Ints) -> _Hashes:
    """Hash the rest of texts of more than eight bytes. Their first eight bytes are in ``found``."""
    left = np.where(lengths > _LONG, 0, lengths)
    at = at.copy()
    while True:
        at += 8
        left -= 8
        rows = np.flatnonzero(left > 0)
        if not len(rows):
            return found
        words = from_each_byte[at[rows]] & _MASKS[np.minimum(left[rows], 8)]
        found[rows] = _followed(found[rows], words)


def _followed(hashes: _Hashes, words: _Hashes) -> _Hashes:
    hashes ^= hashes >> _SHIFT
    hashes *= _SECOND
    hashes ^= words
    hashes *= _FIRST
    return hashes


def _offsets(array: pa.Array, kind: type[np.signedinteger]) -> tuple[_Ints, int, int]:
    """Return where each value begins and ends among those of this array, where these begin, and how many there are."""
    found = np.frombuffer(array.buffers()[1], kind, len(array) + 1, array.offset * np.dtype(kind).itemsize).astype(np.int64)
    first = int(found[0])
    if first:
        found -= first
    return found, first, int(found[-1])


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
    shifted = np.right_shift(values, _SHIFT)
    values ^= shifted
    values *= _FIRST
    values ^= np.right_shift(values, _SHIFT, out=shifted)
    values *= _SECOND
    values ^= np.right_shift(values, _SHIFT, out=shifted)
    return values
