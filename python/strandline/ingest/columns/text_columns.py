"""Columns of text as times, by :mod:`strandline.time.text.grammar`: each row by itself, whatever the others are."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.time.domain import Scalar
from strandline.time.text.grammar import INTEGER, MOMENT, NUMBER, Wrong, read_moment

__all__ = ["integers_of_text", "moments_of_text"]

_Codes: TypeAlias = npt.NDArray[np.int8]
_Ints: TypeAlias = npt.NDArray[np.int64]
_Mask: TypeAlias = npt.NDArray[np.bool_]

_UTC = pa.timestamp("us", "UTC")
_BLANKS = " \t\n\r\f\v"
_LEAP_YEAR = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    r"(?:[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    rf"|{_LEAP_YEAR}-02-29)"
)
_CLOCK = r"[T ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?"
_ZONE = r"(?:Z|[+-](?:(?:0[0-9]|1[0-7])(?::?[0-5][0-9])?|18(?::?00)?))"
_ZONED = f"^{_DATE}{_CLOCK}{_ZONE}$"
_BARE = f"^{_DATE}(?:{_CLOCK})?$"
"""The plain forms of moments, with and without a zone: each match is a moment, and Arrow's cast reads it as the grammar does."""
_MAX_UINT64 = str((1 << 64) - 1)


def moments_of_text(texts: pa.Array, codes: _Codes) -> pa.Array:
    """Return the timestamps of a column of text.

    Args:
        texts: Text. Nulls stay null.
        codes: For each row, why it is no time (0: it is one). Receives the codes of :class:`~strandline.time.text.grammar.Wrong`.

    Returns:
        Timestamps; a row that is no moment is null.

    >>> codes = np.zeros(3, dtype=np.int8)
    >>> moments_of_text(pa.array(["1970-01-01 00:00", "1795010112345", "soon"]), codes).cast(pa.int64()).to_pylist()
    [0, None, None]
    >>> codes.tolist()
    [0, 8, 2]
    """
    micros, left = _plain(texts)
    if not left.any():
        return micros
    rest = texts.filter(pa.array(left))
    values, wrong = _odd(rest)
    codes[left] = wrong
    whole = micros.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).copy()
    whole[left] = values
    return pa.array(whole, mask=_nulls(texts) | (codes != 0)).cast(_UTC)


def _plain(texts: pa.Array) -> tuple[pa.Array, _Mask]:
    """Return the timestamps of the plain forms, null in other rows; and which rows have another text."""
    zoned = pc.match_substring_regex(texts, _ZONED)
    if pc.all(zoned).as_py():  # nulls are skipped
        return texts.cast(_UTC), np.zeros(len(texts), dtype=np.bool_)
    bare = pc.match_substring_regex(texts, _BARE)
    nothing = pa.scalar(None, texts.type)
    # Arrow reads a text with a zone only to a type with a zone, and one without only to a type without. Here both are UTC.
    with_zone = pc.if_else(zoned.fill_null(False), texts, nothing).cast(_UTC)
    without = pc.if_else(bare.fill_null(False), texts, nothing).cast(pa.timestamp("us")).cast(pa.int64()).cast(_UTC)
    return pc.coalesce(with_zone, without), _mask(pc.invert(pc.or_(zoned, bare)))


def _odd(texts: pa.Array) -> tuple[_Ints, _Codes]:
    """Return microseconds and codes of texts that are not in a plain form. None of them is null."""
    values, codes = np.zeros(len(texts), dtype=np.int64), np.full(len(texts), int(Wrong.UNPARSABLE), dtype=np.int8)
    formed = pc.match_substring_regex(texts, MOMENT)
    codes[_mask(pc.match_substring_regex(texts, NUMBER))] = Wrong.EPOCH
    moments = _mask(formed)
    if not moments.any():
        return values, codes
    # Letters are T and Z only. Then blanks around, and digits after the sixth, are all that keeps most of them from a plain form.
    plain = pc.ascii_upper(pc.ascii_trim(texts.filter(formed), _BLANKS))
    micros, left = _plain(pc.replace_substring_regex(plain, r"(\.[0-9]{6})[0-9]+", r"\1"))
    of, wrong = micros.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).copy(), np.zeros(len(plain), dtype=np.int8)
    if left.any():  # far years, and days, clocks and zones that there are not
        of[left], wrong[left] = _one_by_one(plain.filter(pa.array(left)))
    values[moments], codes[moments] = of, wrong
    return values, codes


def _one_by_one(texts: pa.Array) -> tuple[_Ints, _Codes]:
    encoded = texts.dictionary_encode()
    read = [read_moment(text) for text in encoded.dictionary.to_pylist()]
    values = np.array([0 if isinstance(each, Wrong) else each for each in read], dtype=np.int64)
    codes = np.array([int(each) if isinstance(each, Wrong) else 0 for each in read], dtype=np.int8)
    at = encoded.indices.to_numpy(zero_copy_only=False)
    return values[at], codes[at]


def integers_of_text(texts: pa.Array, domain: Scalar, want: pa.DataType, codes: _Codes) -> pa.Array:
    """Return the integers of a column of text, of the type ``want`` of a domain. It is else as :func:`moments_of_text`.

    >>> from strandline.time.domain import int64
    >>> codes = np.zeros(3, dtype=np.int8)
    >>> integers_of_text(pa.array(["+07", "0x1F", "9223372036854775808"]), int64, pa.int64(), codes).to_pylist(), codes.tolist()
    ([7, None, None], [0, 2, 3])
    """
    formed = _mask(pc.match_substring_regex(texts, INTEGER))
    codes[~formed & ~_nulls(texts)] = Wrong.UNPARSABLE
    trimmed = pc.ascii_trim(texts, _BLANKS)
    negative = _mask(pc.starts_with(trimmed, "-"))
    digits = pc.if_else(pa.array(formed), pc.ascii_ltrim(pc.ascii_ltrim(trimmed, "+-"), "0"), pa.scalar("", texts.type))
    length = pc.binary_length(digits)
    long = pc.or_(pc.greater(length, 20), pc.and_(pc.equal(length, 20), pc.greater(digits, pa.scalar(_MAX_UINT64, texts.type))))
    beyond = _mask(long)
    none = pc.or_(pc.equal(length, 0), long)
    magnitude = pc.if_else(none, pa.scalar("0", texts.type), digits).cast(pa.uint64()).fill_null(0).to_numpy(zero_copy_only=False)
    low, high = domain.minimum, domain.maximum
    beyond |= np.where(negative, magnitude > np.uint64(-low), magnitude > np.uint64(high))
    codes[formed & beyond] = Wrong.BEYOND
    kept = np.where(codes == 0, magnitude, np.uint64(0))
    signed = np.where(negative, np.uint64(0) - kept, kept)  # two's complement: what it becomes as int64
    values = pa.array(signed if low == 0 else signed.view(np.int64), mask=_nulls(texts) | (codes != 0))
    return values.cast(want)


def _mask(booleans: Any) -> _Mask:
    mask: _Mask = booleans.fill_null(False).to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask


def _nulls(array: pa.Array) -> _Mask:
    return _mask(array.is_null())
