"""What user code returns: each value is taken exactly, or refused by name. Without Spark."""

from __future__ import annotations

import math
import struct
from array import array as python_array
from collections import namedtuple
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row

from pyspark_strandline.operators.results.casts import cast_array
from pyspark_strandline.operators.results.columns import array_of_values
from pyspark_strandline.operators.results.conversion import Expected, conform
from pyspark_strandline.operators.results.pandas_form import to_pandas
from pyspark_strandline.operators.results.rules import MisfitError, rule, same
from strandline import StrandlineError, int64, product, timestamp

UTC = timezone.utc
INSTANT, LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
LEAVES = [
    *INTEGERS,
    *(pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.binary(), pa.date32(), INSTANT, LOCAL, pa.duration("us")),
    *(pa.decimal128(10, 2), pa.decimal128(38, 0), pa.decimal128(3, 3), pa.time64("us")),
]


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    fields = st.tuples(inner, st.booleans())
    structs = st.lists(fields, min_size=1, max_size=3).map(
        lambda of: pa.struct([pa.field(f"f{i}", t, nullable=n) for i, (t, n) in enumerate(of)])
    )
    lists = fields.map(lambda of: pa.list_(pa.field("element", of[0], nullable=of[1])))
    maps = inner.map(lambda of: pa.map_(pa.string(), of))
    return st.one_of(structs, lists, maps)


types = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=4)

whole = st.one_of(
    st.integers(-200, 200), st.sampled_from([2**k + d for k in (7, 15, 24, 31, 53, 63, 64, 200) for d in (-1, 0, 1)])
)
oddities: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    whole,
    whole.map(lambda n: -n),
    st.floats(),
    st.sampled_from([-0.0, 1.0, 1.5, 1e300, 3.4028235e38, 3.5e38, math.nan, math.inf]),
    st.text(max_size=3),
    st.sampled_from(["\ud800", "12", "true", b"ab", bytearray(b"x"), memoryview(b"m")]),
    st.decimals(places=2, allow_nan=True),
    st.sampled_from([Decimal("1.234"), Decimal("1E+9"), Decimal("1E-400"), Decimal("-0.00"), Decimal("NaN"), Decimal(10) ** 38]),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.sampled_from([UTC, ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=-11))])),
    st.timedeltas(),
    st.times(),
    st.sampled_from([time(1, tzinfo=UTC), object(), {1, 2}, 1j, (), pd.NaT, pd.NA, np.array(1.0)]),
    st.sampled_from(
        [np.int8(3), np.int64(2**40), np.uint64(2**63), np.float32(0.1), np.float64(2), np.bool_(True), np.str_("s")]
    ),
    st.sampled_from([np.datetime64("2020-01-01"), np.datetime64("2020-01-01T00:00:00.000000001"), np.timedelta64(5, "ns")]),
    st.sampled_from([pd.Timestamp("2020-01-01 00:00:00.000000001"), pd.Timestamp("2020-01-01", tz="UTC"), pd.Timedelta(7)]),
    st.sampled_from([pa.scalar(5), pa.scalar(1.5), pa.scalar("x"), pa.scalar(None, pa.int64())]),
)


def fitting(type_: pa.DataType) -> st.SearchStrategy[Any]:
    """Values that are mostly those of the type."""
    t = pa.types
    if t.is_struct(type_):
        return st.fixed_dictionaries({f.name: values_of(f.type) for f in type_})
    if t.is_map(type_):
        return st.dictionaries(st.text(max_size=2), values_of(type_.item_type), max_size=3)
    if t.is_list(type_):
        return st.lists(values_of(type_.value_type), max_size=3).flatmap(lambda v: st.sampled_from([v, tuple(v)]))
    if t.is_integer(type_):
        return st.integers(-(2 ** (type_.bit_width - 1)), 2 ** (type_.bit_width - 1) - 1)
    if t.is_floating(type_):
        return st.floats(width=type_.bit_width)
    if t.is_decimal(type_):
        return st.decimals(min_value=0, max_value=Decimal("0.99"), places=min(2, type_.scale))
    if t.is_timestamp(type_):
        return st.datetimes(timezones=st.just(UTC)) if type_.tz else st.datetimes()
    if t.is_duration(type_):
        return st.timedeltas(timedelta(days=-(10**5)), timedelta(days=10**5))
    leaf: dict[Any, st.SearchStrategy[Any]] = {
        pa.bool_(): st.booleans(),
        pa.string(): st.text(max_size=3),
        pa.binary(): st.binary(max_size=3),
        pa.date32(): st.dates(),
        pa.time64("us"): st.times(),
    }
    return leaf[type_]


def values_of(type_: pa.DataType) -> st.SearchStrategy[Any]:
    return st.one_of(fitting(type_), fitting(type_), fitting(type_), st.none(), oddities)


def plain(value: Any, type_: pa.DataType) -> Any:
    """A value of Arrow as a rule returns it: a map is a dict."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {field.name: plain(value[field.name], field.type) for field in type_}
    if pa.types.is_map(type_):
        return {key: plain(each, type_.item_type) for key, each in value}
    return [plain(each, type_.value_type) for each in value] if pa.types.is_list(type_) else value


def values_in(array: pa.Array) -> list[Any]:
    return [plain(value, array.type) for value in array.to_pylist()]


@pytest.mark.drawn
@settings(max_examples=120)
@given(types.flatmap(lambda t: st.tuples(st.just(t), st.booleans(), st.lists(values_of(t), max_size=4))))
def test_values_go_through_arrow_exactly_or_are_refused(case: tuple[pa.DataType, bool, list[Any]]) -> None:
    """Many values at once are what each one by itself is, and what Arrow gives back is what the rule has promised."""
    type_, nullable, values = case
    field = pa.field("v", type_, nullable=nullable)
    check = rule(field)
    expected, refused = [], False
    for value in values:
        try:
            expected.append(check(value))
        except MisfitError:  # noqa: PERF203
            refused = True
    try:
        made = array_of_values(values, field)
    except MisfitError:
        assert refused, values
        return
    assert not refused, values
    assert made.type == type_
    made.validate(full=True)
    assert all(map(same, values_in(made), expected)), (values, made)
    assert all(same(check(value), value) for value in expected)  # what is stored is stored again as it is


@settings(max_examples=300)
@given(st.sampled_from(LEAVES), oddities)
def test_a_value_that_is_taken_is_the_value_that_was_given(type_: pa.DataType, value: Any) -> None:
    try:
        taken = rule(pa.field("v", type_))(value)
    except MisfitError:
        return
    given_ = value.as_py() if isinstance(value, pa.Scalar) else int(value) if isinstance(value, np.integer) else value
    if taken is None:
        assert given_ is None or given_ is pd.NaT or given_ is pd.NA
    elif isinstance(taken, float) and taken != taken:
        assert given_ != given_
    elif pa.types.is_float32(type_) and isinstance(given_, float):
        assert taken == given_ or math.isclose(taken, given_, rel_tol=2**-23) or abs(given_) < 1e-37
        assert math.isinf(taken) == math.isinf(given_)
    elif isinstance(given_, np.datetime64):
        assert np.datetime64(taken) == given_
    else:
        assert taken == given_
        assert isinstance(taken, bool) == isinstance(given_, (bool, np.bool_))
        assert isinstance(taken, str) == isinstance(given_, str)


class Colour(IntEnum):
    RED = 3


class Size(str, Enum):
    BIG = "big"


@pytest.mark.parametrize(
    ("type_", "value", "taken"),
    [
        (pa.int64(), np.int32(7), 7),
        (pa.int32(), Colour.RED, 3),
        (pa.string(), Size.BIG, "big"),
        (pa.float64(), 2**60, float(2**60)),
        (pa.float32(), 0.1, struct.unpack("f", struct.pack("f", 0.1))[0]),
        (pa.decimal128(10, 2), 5, Decimal("5.00")),
        (pa.decimal128(10, 2), Decimal("1.5000"), Decimal("1.50")),
        (pa.list_(pa.float64()), np.array([1.5, 2]), [1.5, 2.0]),
        (pa.list_(pa.int64()), python_array("i", [1, 2]), [1, 2]),
        (pa.struct([("a", pa.int64())]), Row(a=1), {"a": 1}),
        (pa.struct([("a", pa.int64())]), namedtuple("N", "a")(1), {"a": 1}),
        (pa.map_(pa.string(), pa.int64()), [("a", 1)], {"a": 1}),
        (INSTANT, pd.Timestamp("2020-01-01 12:00", tz="UTC"), datetime(2020, 1, 1, 12, tzinfo=UTC)),
        (LOCAL, np.datetime64("2020-01-01T12:00"), datetime(2020, 1, 1, 12)),
        (pa.int64(), pd.NA, None),
        (INSTANT, pd.NaT, None),
        (pa.int64(), pa.scalar(3, pa.int8()), 3),
        (pa.date32(), np.datetime64("2020-01-01"), date(2020, 1, 1)),
    ],
)
def test_values_of_other_libraries_are_taken_if_they_are_exact(type_: pa.DataType, value: Any, taken: Any) -> None:
    assert rule(pa.field("v", type_))(value) == taken
    assert values_in(array_of_values([value], pa.field("v", type_))) == [taken]


@pytest.mark.parametrize(
    ("type_", "value", "why"),
    [
        (pa.int64(), 1.5, r"is 1.5 \(float\), not a value of bigint"),
        (pa.int64(), 1.0, r"is 1.0 \(float\), not a value of bigint"),
        (pa.int64(), True, r"is True \(bool\), not a value of bigint"),
        (pa.int64(), math.nan, r"is nan \(float\)"),
        (pa.int64(), "12", r"is '12' \(str\)"),
        (pa.int64(), 2**63, r"is 9223372036854775808, which is outside bigint \(-9223372036854775808 to 9223372036854775807\)"),
        (pa.int64(), Decimal(1), r"Decimal"),
        pytest.param(pa.int64(), 10**5000, r"outside bigint", id="huge"),
        (pa.int8(), 128, r"is 128, which is outside tinyint \(-128 to 127\)"),
        (pa.float64(), 2**53 + 1, r"does not have it exactly"),
        (pa.float64(), Decimal("0.5"), r"not a value of double"),
        (pa.float32(), 1e300, r"outside float"),
        (pa.bool_(), 1, r"not a value of boolean"),
        (pa.string(), b"x", r"not a value of string"),
        (pa.string(), "\ud800", r"surrogate"),
        (pa.binary(), "x", r"not a value of binary"),
        (pa.decimal128(10, 2), 1.5, r"not a value of decimal\(10,2\)"),
        (pa.decimal128(10, 2), Decimal("1.234"), r"has 2 digits after the point"),
        (pa.decimal128(10, 2), Decimal("NaN"), r"not a value of decimal"),
        (pa.decimal128(4, 2), Decimal(100), r"outside decimal\(4,2\)"),
        (pa.date32(), datetime(2020, 1, 1), r"not a value of date"),
        (INSTANT, datetime(2020, 1, 1), r"it has no time zone"),
        (LOCAL, datetime(2020, 1, 1, tzinfo=UTC), r"it has a time zone"),
        (INSTANT, 5, r"not a value of timestamp"),
        (INSTANT, date(2020, 1, 1), r"not a value of timestamp"),
        (INSTANT, pd.Timestamp(1, tz="UTC"), r"which has microseconds"),
        (INSTANT, datetime.min.replace(tzinfo=timezone(timedelta(hours=2))), r"outside timestamp"),
        (pa.duration("us"), timedelta.max, r"outside interval day to second"),
        (pa.list_(pa.int64()), "ab", r"not a value of array<bigint>"),
        (pa.list_(pa.int64()), {1}, r"not a value of array<bigint>"),
        (pa.list_(pa.int64()), [1, 2, 1.5], r"^\[2\] is 1.5"),
        (pa.struct([("a", pa.int64())]), {"b": 1}, r"has the fields \['b'\].* and lacks the fields \['a'\]"),
        (pa.struct([("a", pa.int64())]), {}, r"lacks the fields \['a'\]"),
        (pa.struct([("a", pa.list_(pa.struct([("b", pa.int8())])))]), {"a": [{"b": 1}, {"b": 300}]}, r"^a\[1\].b is 300"),
        (pa.struct([pa.field("a", pa.int64(), nullable=False)]), {"a": None}, r"^a is None, but it may not be null"),
        (pa.map_(pa.string(), pa.int64()), {"k": "x"}, r"^\['k'\] is 'x'"),
        (pa.map_(pa.string(), pa.int64()), {1: 1}, r"^\[1\] is 1 \(int\), not a value of string"),
        (pa.map_(pa.string(), pa.int64()), [("k", 1), ("k", 2)], r"has a key twice"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(type_: pa.DataType, value: Any, why: str) -> None:
    field = pa.field("v", type_)
    with pytest.raises(MisfitError, match=why):
        rule(field)(value)
    with pytest.raises(MisfitError, match=rf"^\[1\].*{why.removeprefix('^')}"):
        array_of_values([None, value], field)


SCHEMA = Expected(pa.schema([("n", pa.int64()), pa.field("s", pa.string(), nullable=False)]))


def conformed(result: Any, expected: Expected = SCHEMA) -> list[dict[str, Any]]:
    return [row for batch in conform(result, expected, lambda: "It") for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "result",
    [
        [{"n": 1, "s": "a"}],
        ({"s": "a", "n": 1},),
        [Row(n=1, s="a")],
        pa.table({"s": ["a"], "n": [1]}),
        pa.record_batch({"n": pa.array([1], pa.int8()), "s": pa.array(["a"]).dictionary_encode()}),
        pa.table({"n": [1.0], "s": pa.array(["a"], pa.large_string())}),
        pd.DataFrame({"n": [1], "s": ["a"]}),
        pd.DataFrame({"n": [1.0], "s": pd.Categorical(["a"])}),
        pd.DataFrame({"n": pd.array([1], dtype="Int64"), "s": pd.array(["a"], dtype="string")}),
        [pa.table({"s": ["a"], "n": [1]}), None, []],
        iter([[{"n": 1, "s": "a"}]]),
    ],
)
def test_each_form_of_a_result_is_taken(result: Any) -> None:
    assert conformed(result) == [{"n": 1, "s": "a"}]


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ([{"n": 1}], r"row 0 lacks the fields \['s'\]"),
        ([{"n": 1, "s": "a"}, {"n": 1, "s": "a", "q": 1}], r"row 1 has the fields \['q'\], which the schema does not have"),
        ([{"n": 1, "s": "a"}, {"n": 1.5, "s": "a"}], r"row 1, n is 1.5 \(float\)"),
        ([{"n": 1, "s": None}], r"row 0, s is None, but it may not be null"),
        (pa.table({"n": [1]}), r"lacks the columns \['s'\]"),
        (pa.table({"n": [1], "s": ["a"], "q": [1]}), r"has the columns \['q'\], which the schema does not have"),
        (pa.table([[1], ["a"], [2]], ["n", "s", "n"]), r"has the columns \['n'\] several times"),
        (pa.table({"n": [1, 1], "s": ["a", None]}), r"row 1, s is null"),
        (pa.table({"n": ["1"], "s": ["a"]}), r"n has the type string, not bigint"),
        (pa.table({"n": pa.array([], pa.string()), "s": pa.array([], pa.string())}), r"n has the type string"),
        (pa.table({"n": [True], "s": ["a"]}), r"n has the type boolean"),
        (pa.table({"n": [1.0, 2.0, 2.5], "s": ["a"] * 3}), r"row 2, n is 2.5"),
        (pa.table({"n": [float(2**60)], "s": ["a"]}), r"row 0, n is 1.15\d*e\+18"),
        (pa.table({"n": [math.nan], "s": ["a"]}), r"row 0, n is nan"),
        (pa.table({"n": pa.array([2**63], pa.uint64()), "s": ["a"]}), r"row 0, n is 9223372036854775808"),
        (pd.DataFrame({"n": [1, 2.5], "s": ["a", "b"]}), r"row 1, n is 2.5"),
        (pd.DataFrame({"n": [1, "x"], "s": ["a", "b"]}), r"row 1, n is 'x'"),
        (pd.DataFrame([[1, "a", 1]], columns=["n", "s", "s"]), r"has the columns \['s'\] several times"),
        (pd.DataFrame({"n": [1], "s": [np.nan]}), r"s (is None|is null)"),
        (5, r"has the type int, which is not supported"),
        ("text", r"has the type str, which is not supported"),
        ({"n": 1, "s": "a"}, r"has the type dict, which is not supported"),
        ([1, 2], r"has the type int, which is not supported"),
        ([[1]], r"has the type int, which is not supported"),
    ],
)
def test_a_result_that_does_not_fit_is_refused_by_name(result: Any, why: str) -> None:
    with pytest.raises(StrandlineError, match=rf"^\[STRANDLINE_RESULT_INVALID\] It .*{why}"):
        conformed(result)


KEYS = {
    "text": (pa.string(), ["a", "b"], ["a", "a"]),
    "doubles": (pa.float64(), [0.0, math.nan], [math.nan, math.nan]),
    "zeros": (pa.float32(), [0.0, 1.0], [0.0, -0.0]),
    "lists": (pa.list_(pa.float64()), [[0.0], [1.0]], [[0.0, math.nan], [-0.0, math.nan]]),
}


@pytest.mark.parametrize("form", ["rows", "arrow"])
@pytest.mark.parametrize("case", KEYS)
def test_a_map_has_no_key_twice(case: str, form: str) -> None:
    """Keys are compared as Spark does: each NaN is the same, and -0.0 is 0.0. Two rows may have one key each."""
    kind, once, twice = KEYS[case]
    expected = Expected(pa.schema([("m", pa.map_(kind, pa.int64()))]))

    def result(*rows: list[Any]) -> Any:
        maps = [[(key, i) for i, key in enumerate(keys)] for keys in rows]
        return pa.table({"m": pa.array(maps, expected.schema.field("m").type)}) if form == "arrow" else [{"m": m} for m in maps]

    assert len(conformed(result(once, once[:1], []), expected)) == 3
    with pytest.raises(StrandlineError, match=r"^\[STRANDLINE_RESULT_INVALID\] It .*row 1, m .*which has a key twice"):
        conformed(result(once, twice), expected)


@pytest.mark.parametrize("kind", ["period", "bool8"])
def test_a_type_whose_storage_is_another_value_is_refused(kind: str) -> None:
    values = pd.Series(pd.period_range("2020-01", periods=1, freq="M")) if kind == "period" else pa.array([1], pa.int8())
    column = pa.array(values) if kind == "period" else pa.ExtensionArray.from_storage(pa.bool8(), values)
    with pytest.raises(StrandlineError, match=rf"^\[STRANDLINE_RESULT_INVALID\] It .*n has the type .*{kind}.*, which Spark"):
        conformed(pa.table({"n": column, "s": ["a"]}))


def test_columns_that_the_function_got_may_be_left_out() -> None:
    wider = Expected(SCHEMA.schema, spare=("k",))
    assert conformed(pa.table({"n": [1], "s": ["a"], "k": [0]}), wider) == [{"n": 1, "s": "a"}]
    assert conformed([{"n": 1, "s": "a", "k": 0}, {"n": 2, "s": "b"}], wider) == [{"n": 1, "s": "a"}, {"n": 2, "s": "b"}]
    with pytest.raises(StrandlineError, match=r"has the fields \['q'\]"):
        conformed([{"n": 1, "s": "a", "k": 0, "q": 1}], wider)


def test_a_time_of_a_dict_is_a_time_of_its_domain() -> None:
    moment = Expected(pa.schema([("t", INSTANT)]), {"t": timestamp})
    noon = datetime(2020, 1, 1, 12, tzinfo=UTC)
    assert conformed([{"t": 1_577_880_000_000_000}, {"t": noon}, {"t": None}], moment) == [{"t": noon}, {"t": noon}, {"t": None}]
    with pytest.raises(StrandlineError, match=r"row 1, t is 1.5 \(float\), not a time of timestamp"):
        conformed([{"t": 0}, {"t": 1.5}], moment)
    grid = product(a=int64, b=int64)
    pair = Expected(pa.schema([("t", pa.struct([("a", pa.int64()), ("b", pa.int64())]))]), {"t": grid})
    assert conformed([{"t": (1, 2)}, {"t": {"a": 1, "b": 2}}], pair) == [{"t": {"a": 1, "b": 2}}] * 2


@pytest.mark.drawn
@settings(max_examples=120)
@given(
    types.flatmap(lambda t: st.tuples(st.just(t), st.lists(fitting(t), max_size=4))), st.sampled_from(LEAVES), st.integers(0, 2)
)
def test_an_array_is_cast_without_a_change_or_not_at_all(
    case: tuple[pa.DataType, list[Any]], wanted: pa.DataType, cut: int
) -> None:
    type_, values = case
    try:
        source = array_of_values(values, pa.field("v", type_))
    except MisfitError:
        return
    source = source.slice(cut % (len(source) + 1))
    if pa.types.is_nested(type_):
        wanted = type_
    try:
        made = cast_array(source, pa.field("v", wanted))
    except MisfitError:
        # What the type itself demands of inner values aside, an array of its own type is always taken.
        assert type_ != wanted or pa.types.is_nested(type_)
        return
    made.validate(full=True)
    assert made.type == wanted
    for before, after in zip(values_in(source), values_in(made), strict=True):
        if pa.types.is_float32(wanted) and isinstance(before, float) and math.isfinite(before):
            assert after == np.float32(before)
        else:
            assert same(before, after) or before == after


def test_lists_and_maps_are_cast_from_other_layouts() -> None:
    wanted = pa.field("v", pa.list_(pa.int64()))
    for layout in (pa.large_list(pa.int32()), pa.list_(pa.int8()), pa.list_view(pa.int16()), pa.list_(pa.float64())):
        made = cast_array(pa.array([[9], [1, 2], None, [], [None]], layout).slice(1), wanted)
        assert made.to_pylist() == [[1, 2], None, [], [None]]
    assert cast_array(pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), wanted).to_pylist() == [[1, 2], None]
    maps = pa.array([[("z", 0)], [("a", 1)], None, []], pa.map_(pa.string(), pa.int8())).slice(1)
    assert cast_array(maps, pa.field("v", pa.map_(pa.string(), pa.int64()))).to_pylist() == [[("a", 1)], None, []]
    with pytest.raises(MisfitError, match=r"\[…\] is 1.5 \(float\), not a value of bigint"):
        cast_array(pa.array([[1.0, 1.5]]), wanted)


def test_integers_stay_what_they_are_in_pandas() -> None:
    far, near = [2**53 + 1, None], [5, None]
    frame = to_pandas(pa.table({"far": far, "near": near, "lists": pa.array([[2**53 + 1, None], None])}))
    assert frame["near"].dtype == np.float64
    back = Expected(pa.schema([("far", pa.int64()), ("near", pa.int64()), ("lists", pa.list_(pa.int64()))]))
    assert conformed(frame, back) == [
        {"far": 2**53 + 1, "near": 5, "lists": [2**53 + 1, None]},
        {"far": None, "near": None, "lists": None},
    ]
