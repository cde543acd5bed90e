"""The hash of a row: equal for equal rows, in any table, and different for others; for every type of column."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.channel.batch.row_hashes import row_hashes

_NOON = datetime(2026, 1, 1, 12)
_NESTED = pa.struct(
    [("n", pa.int64()), ("l", pa.list_(pa.struct([("s", pa.string()), ("m", pa.map_(pa.string(), pa.int32()))])))]
)
TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.null(), []),
    (pa.bool_(), [False, True]),
    *((kind(), [0, 1, 127]) for kind in (pa.int8, pa.uint8, pa.int16, pa.uint32)),
    (pa.int64(), [0, 1, -1, 1 << 62, -(1 << 63)]),
    (pa.uint64(), [0, 1, (1 << 64) - 1]),
    (pa.float16(), [np.float16(0), np.float16(1.5), np.float16("nan")]),
    *((kind(), [0.0, 1.5, -1.5, math.nan, math.inf, -math.inf]) for kind in (pa.float32, pa.float64)),
    (pa.decimal128(20, 2), [Decimal("0.00"), Decimal("1.50"), Decimal("-1.50"), Decimal("123456789012345678.00")]),
    (pa.decimal256(50, 0), [Decimal(0), Decimal(10**40), Decimal(-(10**40))]),
    (pa.date32(), [date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31)]),
    (pa.timestamp("us"), [_NOON, _NOON + timedelta(microseconds=1)]),
    (pa.timestamp("us", "UTC"), [_NOON.replace(tzinfo=timezone.utc), datetime(1900, 1, 1, tzinfo=timezone.utc)]),
    (pa.time64("us"), [time(0), time(12)]),
    (pa.duration("us"), [timedelta(0), timedelta(days=-1)]),
    (pa.month_day_nano_interval(), [pa.MonthDayNano([0, 0, 0]), pa.MonthDayNano([0, 1, 0]), pa.MonthDayNano([0, 0, 1])]),
    *((kind(), ["", "a", "a\0", "b", "12345678", "123456789", "ÿ" * 40, "x" * 5000]) for kind in (pa.string, pa.large_string)),
    (pa.string_view(), ["", "a", "longer than twelve bytes"]),
    (pa.binary(), [b"", b"\0", b"\0\0", b"\xff" * 8, b"\xff" * 16]),
    (pa.binary(3), [b"abc", b"abd"]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", "b", ""]),
    *((kind(pa.int32()), [[], [0], [None], [1, 2], [2, 1], [0, 0]]) for kind in (pa.list_, pa.large_list)),
    (pa.list_(pa.string()), [[], [""], ["ab", "c"], ["a", "bc"], ["abc"], [None, "a"], ["a", None]]),
    (pa.list_(pa.list_(pa.int8())), [[], [[]], [[], []], [[1], []], [[], [1]], [None]]),
    (pa.list_(pa.int64(), 2), [[0, 1], [1, 0], [None, 1]]),
    (pa.list_(pa.int64(), 0), [[]]),
    (
        pa.map_(pa.string(), pa.int64()),
        [[], [("a", 1)], [("a", 2)], [("b", 1)], [("a", None)], [("a", 1), ("b", 2)], [("a", 2), ("b", 1)]],
    ),
    (pa.struct([("a", pa.int64()), ("b", pa.int64())]), [{"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": 1}, {"b": 1}, {}]),
    (
        _NESTED,
        [{"n": 1, "l": []}, {"n": 1, "l": [{"s": "a", "m": [("k", 1)]}]}, {"n": 1, "l": [{"s": "a", "m": [("k", 2)]}]}, {"n": 1}],
    ),
]


@pytest.mark.parametrize(("kind", "values"), TYPES, ids=lambda value: str(value) if isinstance(value, pa.DataType) else "")
def test_different_values_of_each_type_have_different_hashes_wherever_they_are(kind: pa.DataType, values: list[Any]) -> None:
    column = pa.array([None, *values, *values[::-1], None] * 3, kind)
    hashes = row_hashes(pa.table({"c": column})).tolist()
    assert len(set(hashes)) == len(values) + 1
    once = [*range(len(values) + 1)]
    places = ([*once, *once[:0:-1], 0] if values else [0, 0]) * 3
    assert hashes == [hashes[place] for place in places]
    for start in range(1, len(column)):
        part = pa.table({"c": column.slice(start, 3)})
        assert row_hashes(part).tolist() == hashes[start : start + 3]
    assert row_hashes(pa.table({"c": pa.chunked_array([column, column.slice(2)])})).tolist() == [*hashes, *hashes[2:]]
    assert row_hashes(pa.table({"c": column.slice(0, 0)})).tolist() == []


def test_a_null_is_one_whatever_is_under_it() -> None:
    validity = pa.array([False, True]).buffers()[1]
    for raw in ([7, 1], [8, 1]):
        column = pa.Array.from_buffers(pa.int64(), 2, [validity, pa.array(raw, pa.int64()).buffers()[1]])
        struct = pa.StructArray.from_arrays([pa.array(raw)], ["x"], mask=pa.array([True, False]))
        lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(raw), mask=pa.array([True, False]))
        for array in (column, struct, lists):
            assert (
                row_hashes(pa.table({"c": array})).tolist()
                == row_hashes(pa.table({"c": pa.array(array.to_pylist(), array.type)})).tolist()
            )


def test_equal_numbers_are_equal_in_any_form() -> None:
    def hashes(*columns: pa.Array) -> list[list[int]]:
        return [row_hashes(pa.table({"c": column})).tolist() for column in columns]

    one, *others = hashes(*(pa.array([0, 5], kind) for kind in (pa.int8(), pa.uint16(), pa.int64(), pa.uint64())))
    assert others == [one] * 3
    negative_nan = np.array([0xFFF8000000000001], dtype=np.uint64).view(np.float64)
    one, *others = hashes(pa.array([0.0, math.nan]), pa.array([-0.0, negative_nan[0]]), pa.array([0.0, math.nan], pa.float32()))
    assert others == [one] * 2
    one, other = hashes(
        *(pa.array([pairs], pa.map_(pa.string(), pa.int64())) for pairs in ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)]))
    )
    assert one == other


def test_the_order_of_columns_and_columns_of_nulls_change_nothing() -> None:
    rows = pa.table({"a": [1, 2, None], "s": [{"x": 1, "y": None}, {"x": None, "y": "b"}, None]})
    more = rows.append_column("later", pa.nulls(3, pa.string())).select(["later", "s", "a"])
    assert row_hashes(more).tolist() == row_hashes(rows).tolist()
    assert row_hashes(rows.rename_columns(["b", "s"])).tolist()[:2] != row_hashes(rows).tolist()[:2]


def test_hashes_stay_what_they_are_in_later_releases() -> None:
    """A channel keeps their sums."""
    rows = pa.table(
        {"a": [1, -1], "b": ["", "more than eight"], "c": [[None, 1.5], []], "d": [Decimal("1.20"), None], "e": [0.1, -2.0]}
    )
    assert row_hashes(rows).tolist() == [10488517467657953437, 9585992450309570955]


_row = st.tuples(
    st.none() | st.sampled_from(["", "a", "\0", "abcdefgh", "abcdefg\0", "abcdefghi"]) | st.text(max_size=20),
    st.none() | st.lists(st.none() | st.sampled_from([0, 1, -1]), max_size=3),
)


@given(st.lists(_row, max_size=30))
def test_rows_have_the_same_hash_exactly_if_they_are_equal(rows: list[tuple[Any, ...]]) -> None:
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate((pa.string(), pa.list_(pa.int64())))]
    hashes = row_hashes(pa.table(columns, names=["a", "b"])).tolist()
    groups = {repr(row): hash_ for row, hash_ in zip(rows, hashes, strict=True)}
    assert [groups[repr(row)] for row in rows] == hashes
    assert len(set(hashes)) == len(groups)
