"""Decodes Parquet's own description of a file: its footer and page indexes, in Thrift's compact protocol.

Arrow's C++ code ends the whole process on some damaged footers, when it is asked for the statistics of a column. Here a damaged
one is a ``ValueError``.

Sources: Thrift's specification of the compact protocol, and ``parquet.thrift`` of Apache Parquet for the numbers of fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["Chunk", "Footer", "PageIndex", "decoded", "footer_of", "page_index_of"]

_DEEPEST = 20
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)


class Chunk(NamedTuple):
    """What the footer says of one column of a row group.

    Attributes:
        kind: The physical type, by its number in ``parquet.thrift``.
        path: The names that lead to the column.
        values: The number of values, nulls included.
        nulls: The number of nulls; ``None`` if it is not said.
        bounds: Least and greatest values as they are stored, each ``None`` if it is not said.
        old_bounds: The same in the fields that ``parquet.thrift`` calls deprecated. They count only for signed types.
        offset_index: Offset and length of the column's offset index; ``None`` if there is none.
        column_index: The same of its column index.
        bloom: Whether there is a Bloom filter.
    """

    kind: int
    path: tuple[str, ...]
    values: int
    nulls: int | None
    bounds: tuple[bytes | None, bytes | None]
    old_bounds: tuple[bytes | None, bytes | None]
    offset_index: tuple[int, int] | None
    column_index: tuple[int, int] | None
    bloom: bool


class Footer(NamedTuple):
    """The row groups of a file, each with its number of rows and its columns; and the path and physical type of each column."""

    rows: int
    leaves: list[tuple[tuple[str, ...], int]]
    groups: list[tuple[int, list[Chunk]]]


class PageIndex(NamedTuple):
    """For each page of a column: its first row in the row group, whether it has nulls only, its bounds, and how many nulls."""

    first_rows: list[int]
    only_nulls: list[bool]
    lows: list[bytes]
    highs: list[bytes]
    nulls: list[int] | None


def footer_of(data: bytes) -> Footer:
    """Decode a footer, without its length and the magic number. Raises ``ValueError`` if it is not one."""
    body = decoded(data)
    leaves = list(_leaves(iter(_typed(body.get(2), list))))
    groups = [
        (_typed(group.get(3), int), [_chunk(column) for column in _typed(group.get(1), list)])
        for group in _typed(body.get(4, []), list)
    ]
    return Footer(_typed(body.get(3), int), leaves, groups)


def page_index_of(offsets: bytes, columns: bytes) -> PageIndex:
    """Decode the offset index and the column index of a column chunk. Raises ``ValueError`` if they are not ones."""
    places, bounds = decoded(offsets), decoded(columns)
    first = [_typed(place.get(3), int) for place in _typed(places.get(1), list)]
    flags, lows, highs = (_typed(bounds.get(field), list) for field in (1, 2, 3))
    nulls = None if bounds.get(5) is None else _typed(bounds[5], list)
    index = PageIndex(first, flags, lows, highs, nulls)
    if not all(type(bound) is bytes for bound in (*lows, *highs)):
        raise ValueError("a bound is no text of bytes")
    if len({len(each) for each in index if each is not None}) != 1:
        raise ValueError("the page indexes are about different numbers of pages")
    return index


def _leaves(elements: Iterator[Any]) -> Iterator[tuple[tuple[str, ...], int]]:
    root: dict[int, Any] = next(elements, {})
    yield from _below(elements, _typed(root.get(5), int), (), 0)


def _below(elements: Iterator[Any], children: int, path: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], int]]:
    if depth > _DEEPEST:
        raise ValueError("the columns are nested too deeply")
    for _ in range(children):
        element = next(elements, None)
        if element is None:
            raise ValueError("columns are missing")
        here = (*path, _typed(element.get(4), bytes).decode())
        if element.get(5):
            yield from _below(elements, element[5], here, depth + 1)
        else:
            yield here, _typed(element.get(1), int)


def _chunk(column: dict[int, Any]) -> Chunk:
    body = _typed(column.get(3), dict)
    stats = _typed(body.get(12, {}), dict)
    least, greatest, old_least, old_greatest = (None if stats.get(n) is None else _typed(stats[n], bytes) for n in (6, 5, 2, 1))
    offsets, columns = (
        (_typed(column[at], int), _typed(column[at + 1], int)) if at in column and at + 1 in column else None for at in (4, 6)
    )
    return Chunk(
        _typed(body.get(1), int),
        tuple(_typed(name, bytes).decode() for name in _typed(body.get(3), list)),
        _typed(body.get(5), int),
        None if stats.get(3) is None else _typed(stats[3], int),
        (least, greatest),
        (old_least, old_greatest),
        offsets,
        columns,
        14 in body,
    )


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"there is {type(value).__name__} in the place of {kind.__name__}")
    return value


def decoded(data: bytes) -> dict[int, Any]:
    """Return a struct of Thrift's compact protocol by the numbers of its fields. Raises ``ValueError`` if it is not one.

    >>> decoded(bytes([0x15, 0x06, 0x18, 0x01, 0x61, 0x00]))
    {1: 3, 2: b'a'}
    """
    return _Reader(data).struct(0)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if count < 0 or len(taken) < count:
            raise ValueError("it ends too early")
        self._at += count
        return taken

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            [byte] = self._take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a number is too long")

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def struct(self, depth: int) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while (head := self._take(1)[0]) != 0:
            number = number + (head >> 4) if head >> 4 else self._number()
            kind = head & 0x0F
            fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return self._take(1)[0] == _TRUE
        if kind == _BYTE:
            return struct.unpack("b", self._take(1))[0]
        if kind in (_I16, _I32, _I64):
            return self._number()
        if kind == _DOUBLE:
            return struct.unpack("<d", self._take(8))[0]
        if kind == _BINARY:
            return self._take(self._varint())
        if kind in (_LIST, _SET):
            [head] = self._take(1)
            count = self._varint() if head >> 4 == 15 else head >> 4
            if count > len(self._data):
                raise ValueError("a list is longer than the data")
            return [self._value(head & 0x0F, depth + 1) for _ in range(count)]
        if kind == _MAP:
            count = self._varint()
            kinds = self._take(1)[0] if count else 0
            if count > len(self._data):
                raise ValueError("a map is longer than the data")
            return [(self._value(kinds >> 4, depth + 1), self._value(kinds & 0x0F, depth + 1)) for _ in range(count)]
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise ValueError(f"there is no type {kind}")
