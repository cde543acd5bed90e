"""The digest of rows that Spark may compute again: what it must not tell apart, and what it must."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter
from itertools import combinations, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.channel.batch.batch_digest import BatchDigest, RowsDigest
from strandline.channel.batch.row_hashes import FloatSums, row_hashes
from strandline.channel.statements.message_times import TimeCounts
from strandline.time.domain import int64

_ITEM = pa.struct([("k", pa.int8()), ("x", pa.float64())])
_SCHEMA = pa.schema(
    [
        ("time", pa.int64()),
        ("text", pa.string()),
        ("x", pa.float64()),
        ("y", pa.float32()),
        ("list", pa.list_(pa.float64())),
        ("items", pa.list_(_ITEM)),
        ("map", pa.map_(pa.string(), pa.float64())),
        ("struct", pa.struct([("x", pa.float64()), ("n", pa.int64())])),
    ]
)


def digest_of(rows: pa.Table, *cuts: int) -> RowsDigest:
    """The digest of rows that come in parts."""
    digest = RowsDigest()
    for start, end in zip((0, *cuts), (*cuts, len(rows)), strict=True):
        part, floats = rows.slice(start, end - start), FloatSums()
        total = int(row_hashes(part, floats).sum(dtype=np.uint64)) & (1 << 63) - 1
        digest += RowsDigest(len(part), total, floats.sums)
    return digest


_number = st.sampled_from([0.0, -0.0, 1.5, -2.25, 1e6, math.nan, math.inf, -math.inf])
_maybe = st.none() | _number
_row = st.fixed_dictionaries(
    {
        "time": st.integers(0, 2),
        "text": st.none() | st.sampled_from(["", "a", "more than eight"]),
        "x": _maybe,
        "y": _maybe,
        "list": st.none() | st.lists(_maybe, max_size=3),
        "items": st.none() | st.lists(st.none() | st.fixed_dictionaries({"k": st.integers(0, 1), "x": _maybe}), max_size=3),
        "map": st.none() | st.dictionaries(st.sampled_from("ab"), _maybe, max_size=2).map(lambda found: list(found.items())),
        "struct": st.none() | st.fixed_dictionaries({"x": _maybe, "n": st.none() | st.integers(0, 1)}),
    }
)


def turned(row: dict[str, Any], order: random.Random) -> dict[str, Any]:
    """The same row, with its lists and maps in another order."""
    return {
        name: order.sample(value, len(value)) if name in ("list", "items", "map") and value is not None else value
        for name, value in row.items()
    }


@pytest.mark.drawn
@given(st.lists(_row, max_size=12), st.lists(st.integers(0, 12), max_size=4), st.randoms(use_true_random=False))
def test_neither_order_nor_division_nor_form_counts(rows: list[dict[str, Any]], cuts: list[int], order: random.Random) -> None:
    table = pa.Table.from_pylist(rows, _SCHEMA)
    other = pa.Table.from_pylist([turned(row, order) for row in order.sample(rows, len(rows))], _SCHEMA)
    padded = pa.concat_tables([pa.Table.from_pylist(rows[:1] * 2, _SCHEMA), other]).slice(len(rows[:1]) * 2)
    as_dictionary = padded.set_column(1, "text", padded["text"].dictionary_encode())
    large = padded.set_column(1, "text", padded["text"].cast(pa.large_string()))
    for again in (other, padded, as_dictionary, large, padded.append_column("later", pa.nulls(len(padded), pa.float64()))):
        assert digest_of(table).difference(digest_of(again, *sorted(min(cut, len(rows)) for cut in cuts))) is None


def as_classes(value: Any) -> Any:
    """A value as it is compared exactly: of a floating-point number only what it is, and lists without their order."""
    if isinstance(value, dict):
        return tuple((name, as_classes(each)) for name, each in value.items() if each is not None)
    if isinstance(value, (list, tuple)):
        return tuple(sorted(repr(as_classes(each)) for each in value))
    return ("finite" if math.isfinite(value) else str(value)) if isinstance(value, float) else value


@given(st.lists(_row, max_size=6), st.lists(_row, max_size=6))
def test_rows_that_differ_in_more_than_finite_numbers_are_told_apart(
    one: list[dict[str, Any]], other: list[dict[str, Any]]
) -> None:
    same = Counter(map(as_classes, one)) == Counter(map(as_classes, other))
    digests = [digest_of(pa.Table.from_pylist(rows, _SCHEMA)) for rows in (one, other)]
    assert same == ((digests[0].rows, digests[0].total) == (digests[1].rows, digests[1].total))


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=30), st.integers(0, 29), st.sampled_from([1e-7, 1e-4, 0.1, 1e3]))
def test_numbers_are_compared_up_to_rounding(values: list[float], at: int, by: float) -> None:
    def rows(numbers: list[float], kind: pa.DataType) -> RowsDigest:
        return digest_of(pa.table({"key": range(len(numbers)), "x": pa.array(numbers, kind)}))

    for kind, last_digit in ((pa.float64(), 2.0**-52), (pa.float32(), 2.0**-23)):
        rounded = [value * (1 + last_digit * (-1) ** i) for i, value in enumerate(values)]
        assert rows(values, kind).difference(rows(rounded, kind)) is None
    norm, at = math.sqrt(sum((abs(value) + 1000) ** 2 for value in values)), at % len(values)
    changed = [value + by * (i == at) * norm for i, value in enumerate(values)]
    for kind in (pa.float64(), pa.float32()) if by > 1e-5 else (pa.float64(),):
        assert rows(values, kind).difference(rows(changed, kind)) == "the values of the column 'x' are others"


def test_one_value_among_many_is_found() -> None:
    values = [1000.0] * 100_000
    for kind, by in ((pa.float64(), 0.1), (pa.float32(), 10.0)):
        one, other = (digest_of(pa.table({"x": pa.array([*values, last], kind)})) for last in (1000.0, 1000.0 + by))
        assert one.difference(other) is not None


def test_values_whose_sum_is_beyond_the_greatest_number_are_compared() -> None:
    one, other = (digest_of(pa.table({"x": [1.7e308] * times})) for times in (1, 4))
    assert one.difference(RowsDigest(1, one.total, other.floats)) is not None
    assert other.difference(other) is None
    rows = pa.table({"key": [1, 2, 3, 4], "x": [1.7e308, 1.7e308, -1.7e308, -1.7e308]})
    assert digest_of(rows).difference(digest_of(rows.take([0, 2, 1, 3]))) is None  # though one has a partial sum beyond it
    far = digest_of(pa.table({"key": [1, 2], "x": [1e308, 1.0]}))
    assert math.isfinite(far.floats["x"][1])
    assert far.difference(digest_of(pa.table({"key": [1, 2], "x": [1e308, 1e305]}))) is not None


MOVES = {
    "a map": (pa.map_(pa.string(), pa.float64()), [("cash", 0.0), ("card", 1.0)], [("cash", 1.0), ("card", 0.0)]),
    "a map of structs": (
        pa.map_(pa.string(), pa.struct([("v", pa.float64())])),
        [("cash", {"v": 0.0}), ("card", {"v": 1.0})],
        [("cash", {"v": 1.0}), ("card", {"v": 0.0})],
    ),
    "structs": (
        pa.list_(pa.struct([("k", pa.string()), ("v", pa.float64())])),
        [{"k": "cash", "v": 0.0}, {"k": "card", "v": 1.0}],
        [{"k": "cash", "v": 1.0}, {"k": "card", "v": 0.0}],
    ),
    "beside a value that is not finite": (
        pa.map_(pa.string(), pa.float64()),
        [("a", math.nan), ("cash", 0.0), ("card", 1.0)],
        [("a", math.nan), ("cash", 1.0), ("card", 0.0)],
    ),
    "lists of a map": (
        pa.map_(pa.string(), pa.list_(pa.float64())),
        [("a", [1.0, 2.0]), ("b", [300.0, 400.0])],
        [("a", [300.0, 400.0]), ("b", [1.0, 2.0])],
    ),
    "maps of a map": (
        pa.map_(pa.string(), pa.map_(pa.string(), pa.float64())),
        [("usd", [("cash", 1.0)]), ("eur", [("cash", 9e6)])],
        [("usd", [("cash", 9e6)]), ("eur", [("cash", 1.0)])],
    ),
    "keys of a map": (pa.map_(pa.float64(), pa.string()), [(1.0, "a"), (2.0, "b")], [(1.0, "b"), (2.0, "a")]),
    "lists of structs": (
        pa.list_(pa.struct([("id", pa.string()), ("v", pa.list_(pa.float32()))])),
        [{"id": "cat", "v": [1.0, 0.0]}, {"id": "dog", "v": [500.0, 900.0]}],
        [{"id": "cat", "v": [500.0, 900.0]}, {"id": "dog", "v": [1.0, 0.0]}],
    ),
    "structs in structs": (
        pa.list_(pa.struct([("id", pa.string()), ("days", pa.list_(pa.struct([("d", pa.int64()), ("v", pa.float64())])))])),
        [{"id": "x", "days": [{"d": 1, "v": 5.0}]}, {"id": "y", "days": [{"d": 1, "v": 700.0}]}],
        [{"id": "x", "days": [{"d": 1, "v": 700.0}]}, {"id": "y", "days": [{"d": 1, "v": 5.0}]}],
    ),
    "lists of other lengths": (pa.list_(pa.list_(pa.float64())), [[1.0, 2.0], [3.0]], [[1.0], [2.0, 3.0]]),
    "a list": (pa.list_(pa.float64()), [1.0, 0.0], [0.5, 0.5]),
    "a list of three": (pa.list_(pa.float64()), [1.0, 2.0, 9.0], [4.0, 4.0, 4.0]),
}


@pytest.mark.parametrize("case", MOVES)
def test_values_that_move_within_a_row_are_found(case: str) -> None:
    kind, one, other = MOVES[case]
    digests = [digest_of(pa.table({"key": [1, 2], "x": pa.array([each, one], kind)})) for each in (one, other, one[::-1])]
    assert digests[0].difference(digests[1]) == digests[1].difference(digests[0]) != None  # noqa: E711 - a chain
    assert digests[0].difference(digests[2]) is None


@given(st.lists(_row, max_size=6), st.lists(_row, max_size=6))
def test_without_rounding_rows_are_told_apart_exactly(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    def as_values(value: Any) -> Any:
        if isinstance(value, dict):
            return tuple((name, as_values(each)) for name, each in value.items() if each is not None)
        if isinstance(value, list) and value and isinstance(value[0], tuple):  # a map
            return tuple(sorted(repr(as_values(each)) for each in value))
        if isinstance(value, (list, tuple)):
            return tuple(as_values(each) for each in value)
        return repr(value + 0.0) if isinstance(value, float) else value

    tables = [pa.Table.from_pylist(rows, _SCHEMA) for rows in (one, other)]
    same = Counter(map(as_values, tables[0].to_pylist())) == Counter(map(as_values, tables[1].to_pylist()))
    totals = [(rows.num_rows, int(row_hashes(rows).sum(dtype=np.uint64))) for rows in tables]
    assert same == (totals[0] == totals[1])


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_numbers_that_change_rows_are_told_apart(kind: pa.DataType) -> None:
    one, other = (pa.table({"key": ["a", "b"], "x": pa.array(numbers, kind)}) for numbers in ([1.0, 9.0], [9.0, 1.0]))
    assert digest_of(one).difference(digest_of(other)) is not None


def test_what_is_left_of_numbers_that_cancel_is_no_difference() -> None:
    """A sum of amounts that are settled: the order of additions decides what is left of it, and it may be all that is there."""
    one, other, third = (digest_of(pa.table({"balance": [left]})) for left in (0.1 + 0.2 - 0.3, 0.0, 0.1 - 0.3 + 0.2))
    assert one.difference(other) is None is other.difference(third)
    assert one.difference(digest_of(pa.table({"balance": [1e-3]}))) is not None


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["rows", "times", "others", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(_json)
@example(10**400)
def test_damaged_json_is_a_value_error(value: Any) -> None:
    for kind in (RowsDigest, BatchDigest):
        for shaped in (
            value,
            [1, 2, {"x": [value, 1.0]}],
            {"rows": [1, 2], "times": value},
            {"rows": [1, 2], "others": {"": value}},
        ):
            try:
                read = kind.from_json(shaped)
            except ValueError:
                continue
            assert kind.from_json(read.to_json()) == read or "nan" in repr(read)


_timed = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2)), max_size=8)


@given(_timed, _timed)
def test_the_first_time_that_differs_is_found(had: list[tuple[int, int]], has: list[tuple[int, int]]) -> None:
    def stated(rows: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], BatchDigest]:
        counts = TimeCounts(int64)
        table = pa.table({"time": pa.array([t for t, _ in rows], pa.int64()), "n": pa.array([n for _, n in rows], pa.int64())})
        counts.add(table["time"], row_hashes(table, FloatSums()))
        times, _ = counts.result()
        return times, BatchDigest(RowsDigest(len(rows)), BatchDigest.of_times(counts.hashes))

    (times, one), (other_times, other) = stated(had), stated(has)
    differing = (Counter(had) - Counter(has)) + (Counter(has) - Counter(had))
    found = one.first_difference(times, other, other_times, int64)
    if not differing:
        assert found is None
    else:
        assert found is not None
        assert found.startswith(f"{min(t for t, _ in differing)}: ")


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.int64(), pa.int8(), pa.bool_()], ids=str)
def test_rows_that_differ_in_two_columns_are_told_apart(kind: pa.DataType) -> None:
    """Flags and counts as doubles: only a few bits differ, and these are the first ones."""
    few = np.array([False, True]) if pa.types.is_boolean(kind) else np.arange(5)
    first, second = pa.array(np.repeat(few, len(few))).cast(kind), pa.array(np.tile(few, len(few))).cast(kind)
    for one, other in combinations([f"c{i}" for i in range(60)], 2):
        hashes = row_hashes(pa.table({one: first, other: second}))
        assert len(set(hashes.tolist())) == len(few) ** 2, (one, other)


@pytest.mark.parametrize("values", [[-1.7976931348623157e308] * 6, [1.7976931348623157e308] * 6])
def test_sums_that_are_not_finite_are_no_difference_to_themselves(values: list[float]) -> None:
    digest = digest_of(pa.table({"x": values}))
    stated = RowsDigest.from_json(json.loads(json.dumps(digest.to_json(), allow_nan=False)))
    assert digest.difference(stated) is None
    assert stated.difference(digest) is None
    assert digest_of(pa.table({"x": [1.0] * len(values)})).difference(stated) is not None


@pytest.mark.parametrize("scale", [1.0, 2.0**-20, 2.0**40, 0.5])
def test_doubles_with_few_bits_are_told_apart(scale: float) -> None:
    numbers = np.arange(256) * scale
    rows = pa.table({"a": np.repeat(numbers, 256), "b": np.tile(numbers, 256)})
    assert len(set(row_hashes(rows).tolist())) == rows.num_rows
    flags = np.array(list(product([0.0, scale], repeat=16)))
    rows = pa.table({f"flag{i}": flags[:, i].copy() for i in range(16)})
    assert len(set(row_hashes(rows).tolist())) == rows.num_rows


@pytest.mark.parametrize("values", [[1, None, 3], [0.5, None, 2.0], ["a", None, "b"]], ids=["integers", "floats", "texts"])
def test_a_dictionary_counts_as_its_values(values: list[Any]) -> None:
    flat = pa.array(values)
    encoded_values = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), flat)  # with a null in the dictionary
    offsets = pa.array([0, 1, 3], pa.int32())
    plain = pa.table({"x": flat.slice(0, 2), "list": pa.ListArray.from_arrays(offsets, flat)})
    encoded = pa.table({"x": encoded_values.slice(0, 2), "list": pa.ListArray.from_arrays(offsets, encoded_values)})
    for sums in (None, FloatSums()):
        assert row_hashes(plain, sums).tolist() == row_hashes(encoded, sums).tolist()


def test_two_ways_to_compare_are_told_from_other_values() -> None:
    """A plan that is changed between a crash and the restart may compare in another way than the commit."""
    exact, rounded = RowsDigest(2, 7), RowsDigest(2, 9, {})
    assert (
        rounded.difference(exact)
        == "its 2 row(s) were recorded to be compared up to rounding, but by this plan they are compared to the last bit"
    )
    assert (
        exact.difference(rounded)
        == "its 2 row(s) were recorded to be compared to the last bit, but by this plan they are compared up to rounding"
    )
    assert exact.difference(RowsDigest(2, 7, {})) is None  # without such columns both are one
    assert exact.difference(RowsDigest(2, 8)) == "its 2 row(s) have other values"
    had, has = [(1, 2)], [(1, 2)]
    assert BatchDigest(exact, (4,)).first_difference(had, BatchDigest(rounded, (5,)), has, int64) is None
    assert [RowsDigest.from_json(each.to_json()) for each in (exact, rounded, RowsDigest() + rounded)] == [
        exact,
        rounded,
        rounded,
    ]


NAMES = [
    "x",
    "y",
    "a",
    "b",
    "value",
    "ratio",
    "discount",
    "subtotal",
    "first",
    "last",
    "lat",
    "lon",
    "begin",
    "end",
    "price",
    "score",
]


@pytest.mark.parametrize("plain", [0, 5, -1, 4599075939470750515], ids=["zero", "five", "minus one", "0.3"])
def test_a_change_of_the_same_one_or_two_bits_in_two_columns_is_found(plain: int) -> None:
    """A product has no bit of its factors further down: sums of products of the first bits cancel, whatever the factors."""
    ones = [0, *(1 << bit for bit in range(64))]
    flips = np.array(sorted({one | other for one in ones for other in ones}), dtype=np.uint64).view(np.int64)
    for names in itertools.combinations(NAMES[:9], 2):
        columns = dict.fromkeys(names, plain ^ flips)
        assert len(np.unique(row_hashes(pa.table(columns)))) == len(flips)
        rows = pa.table({"between": np.arange(len(flips)) % 2 * 0, **columns})
        assert len(np.unique(row_hashes(rows))) == len(flips)


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.int64()])
@pytest.mark.parametrize(
    ("one", "other"),
    [([0, 0], [2, -2]), ([-2, 0, 0], [2, 2, 2]), ([0, 6, 6], [2, 2, 8]), ([-2, -2, 1, 4], [-4, -1, 2, 2]), ([1, 1], [0, 2])],
)
def test_other_values_in_one_column_are_found(one: list[int], other: list[int], kind: pa.DataType) -> None:
    for name, fixed in itertools.product([*NAMES, "account", "zone"], range(20)):
        sums = []
        for values in (one, other):
            rows = pa.table({"account": [fixed] * len(values), "time": [7] * len(values), name: pa.array(values).cast(kind)})
            sums.append(int(row_hashes(rows).sum(dtype=np.uint64)))
        assert sums[0] != sums[1]


@pytest.mark.parametrize(
    "values",
    [[1.5, -1.5], [0, -(1 << 63)], [0, 1 << 48], [0, 1], [0.0, 1.0], ["ITEM0000", "ITEM0001"], [None, {"f": None}]],
    ids=str,
)
def test_differences_of_digests_have_all_bits(values: list[Any]) -> None:
    """Of a difference that ends in many zero bits, a few equal rows would make none."""
    other = pa.array(values).type
    for name in ("aa", "zz"):
        keys = np.arange(4000)
        hashes = [row_hashes(pa.table({"key": keys, "n": keys % 7, name: pa.array([value] * 4000, other)})) for value in values]
        differences = [hashes[0] - hashes[1], np.diff(hashes[0] - hashes[1])]  # of a row, and of two that exchange values
        for each in differences:
            assert np.median(each & (~each + np.uint64(1))) <= 4
            assert np.count_nonzero(each & np.uint64((1 << 24) - 1) == 0) <= 1


@pytest.mark.parametrize("rounding", [True, False])
@pytest.mark.parametrize("kind", [pa.float64(), pa.struct([("f", pa.int64())])], ids=str)
def test_other_patterns_of_nulls_are_found(kind: pa.DataType, rounding: bool) -> None:
    there = 0.0 if pa.types.is_floating(kind) else {"f": None}
    patterns = [
        ([there, None, there, None], [there, None, None, there]),
        ([there, None, there, None], [None, there, there, None]),
    ]
    for name in NAMES:
        digests = []
        for x, y in patterns:
            rows = pa.table({"key": [1, 1, 2, 2], name: pa.array(x, kind), "zz": pa.array(y, kind)})
            digests.append(int(row_hashes(rows, FloatSums() if rounding else None).sum(dtype=np.uint64)))
        assert digests[0] != digests[1]


VALUES = [[0, 1], [0, 1 << 32], [0, -(1 << 63)], [1.0, 2.0], [0.0, -1.0], [None, 0], ["", "a"], [b"", None]]


@pytest.mark.parametrize("values", VALUES, ids=str)
@pytest.mark.parametrize("width", [2, 3, 4])
def test_rows_that_exchange_values_are_found(values: list[Any], width: int) -> None:
    """Rows with an even number of second values, and those with an odd one: they have the same values in all columns but one."""
    rows = list(itertools.product([0, 1], repeat=width))
    for names in itertools.islice(itertools.combinations(NAMES, width), 40):
        sums = []
        for rest in (0, 1):
            columns = zip(*(row for row in rows if sum(row) % 2 == rest), strict=True)
            kind = pa.array(values).type
            table = pa.table({name: pa.array([values[i] for i in c], kind) for name, c in zip(names, columns, strict=True)})
            sums.append(int(row_hashes(table).sum(dtype=np.uint64)))
        assert sums[0] != sums[1]


@pytest.mark.parametrize("bits", [range(8), range(28, 36), range(56, 64)])
def test_random_changes_of_a_few_bits_are_found(bits: range) -> None:
    random_ = np.random.default_rng(bits.start)
    columns = random_.integers(0, 256, (5, 20_000)).astype(np.uint64) << np.uint64(bits.start)
    for kind in (np.float64, np.int64):
        plain = np.array([1.7], kind).view(np.uint64)
        rows = pa.table({name: (plain ^ column).view(kind) for name, column in zip(NAMES, columns, strict=False)})
        assert len(set(row_hashes(rows).tolist())) == len(np.unique(columns.T, axis=0))


def test_values_below_a_null_do_not_count() -> None:
    lists = pa.ListArray.from_arrays([0, 2, 3], [1.0, 2.0, 3.0], mask=pa.array([True, False]))
    maps = pa.MapArray.from_arrays([0, 1, 2], ["a", "b"], [1.0, 2.0], mask=pa.array([True, False]))
    for hidden in (lists, maps, lists.cast(pa.large_list(pa.float64()))):
        whole, plain = (digest_of(pa.table({"x": each})) for each in (hidden, pa.array(hidden.to_pylist(), hidden.type)))
        assert whole.difference(plain) is plain.difference(whole) is None
        assert whole.floats == plain.floats


def test_a_name_with_a_dot_is_another_column_than_a_field() -> None:
    sums = [digest_of(pa.table({name: column})).floats for name, column in (("a.b", [1.0]), ("a", [{"b": 1.0}]))]
    assert [list(each) for each in sums] == [["`a.b`"], ["a.b"]]
