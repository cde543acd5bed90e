"""Names of partitions: one for each key of Spark's groupBy, patterns that are told from names, columns that are no names."""

from __future__ import annotations

import struct
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest_bench import Bench
from strandline.ingest import IngestError, IngestTask, Settings, composed, manifest, ordered, punctuated
from strandline.ingest.names import only_name, partition_names

NANS = [struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in (0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001)]


def names(values: list[Any], kind: pa.DataType) -> list[str | None]:
    column = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return partition_names(pa.table({"p": column}), ["p"]).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_zeros_are_one_partition_and_so_is_what_is_no_number(kind: pa.DataType) -> None:
    values = [0.0, -0.0, *NANS, 1.5, None, float("-inf")]
    assert names(values, kind) == ["0", "0", "nan", "nan", "nan", "1.5", None, "-inf"]


@given(st.lists(st.floats() | st.floats(width=32), max_size=8), st.sampled_from([pa.float64(), pa.float32()]))
def test_floats_have_one_name_exactly_if_they_are_one_key(values: list[float], kind: pa.DataType) -> None:
    column = pa.array(values, pa.float64()).cast(kind, safe=False)
    keys = [None if value != value else value + 0.0 for value in column.to_pylist()]
    found = names(column, kind)
    for i, one in enumerate(keys):
        assert [name == found[i] for name in found] == [key == one for key in keys]


micros = (
    st.integers(-(1 << 63), (1 << 63) - 1)
    | st.integers(-3, 3)
    | st.sampled_from([62_135_596_800_000_000, 253_402_300_800_000_000])
)


@given(st.lists(st.none() | micros, max_size=6))
def test_timestamps_of_all_years_have_names_of_their_own(values: list[int | None]) -> None:
    column = pa.array(values, pa.int64()).cast(pa.timestamp("us", "UTC"))
    found = names(column, column.type)
    assert [name is None for name in found] == [value is None for value in values]
    assert len(set(found)) == len(set(values))


@given(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=6))
def test_dates_of_all_years_have_names_of_their_own(values: list[int]) -> None:
    assert len(set(names(pa.array(values, pa.int32()).cast(pa.date32()), pa.date32()))) == len(set(values))


def test_the_year_67248_is_not_1712() -> None:
    column = pa.array([2_060_000_000_000_000_000, -8_116_883_200_000_000], pa.int64()).cast(pa.timestamp("us", "UTC"))
    assert names(column, column.type) == ["+67248-10-19T14:13:20Z", "1712-10-14 14:13:20.000000Z"]


entries = st.text("a[]!*?-", max_size=5)


@given(entries, st.text("a[]!*?-b", max_size=5))
def test_an_entry_that_stands_for_a_name_matches_only_that_name(entry: str, other: str) -> None:
    name = only_name(entry)
    if name is not None:
        assert fnmatchcase(name, entry)
        assert fnmatchcase(other, entry) == (other == name)


@given(st.text(max_size=6))
def test_any_name_can_be_written(name: str) -> None:
    assert only_name(escape(name)) == name


FLOATS = pa.schema([("t", pa.int64()), ("p", pa.float64()), ("n", pa.int64())])


def test_rows_of_both_zeros_are_of_one_partition(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), FLOATS)
    bench.run((1, 0.0, 0), (2, -0.0, 1), (3, NANS[0], 2), (4, NANS[1], 3))
    assert bench.holds() == {"0": [2], "nan": [4]}
    bench.run((1, -0.0, 4))
    assert bench.late("n", "_partition") == [(4, "0")]


def test_a_manifest_counts_rows_of_both_zeros_together(tmp_path: Path) -> None:
    rows = pa.table({"t": [1, 2], "p": [-0.0, 0.0], "expected": [1, 1]})
    policy = manifest(rows)
    policy.save(str(tmp_path / "m"), Settings.of(str(tmp_path / "channel"), FLOATS, time="t", partition="p", policy=ordered()))
    bench = Bench(tmp_path, policy, FLOATS)
    bench.run((1, 0.0, 0))
    assert bench.holds() == {"0": [2]}
    bench.run((2, -0.0, 1))
    assert bench.frontier() == []


RACKS = pa.schema([("t", pa.int64()), ("p", pa.string()), ("n", pa.int64())])


def test_a_partition_with_brackets_is_named_with_an_escape(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), RACKS, partitions=["rack[[]1]", "rack2"])
    bench.run((5, "rack[1]", 0))
    assert bench.frontier() == [-(1 << 63)]  # rack2 is waited for
    bench.run((4, "rack2", 1))
    assert bench.holds() == {"rack[1]": [5], "rack2": [4]}
    with pytest.raises(IngestError, match="STRANDLINE_PARTITION_UNKNOWN.*'rack1'"):
        bench.run((6, "rack1", 2))


@pytest.mark.parametrize("name", ["rack[1]", "rack[12]"])
def test_a_pattern_that_looks_like_the_partitions_name_says_how_to_write_it(name: str, tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), RACKS, partitions=[name])
    with pytest.raises(IngestError, match="STRANDLINE_PARTITION_UNKNOWN.*of partitions is a pattern") as refused:
        bench.run((5, name, 0))
    assert f"write {escape(name)!r} in partitions" in str(refused.value)
    Bench(tmp_path, ordered(), RACKS, partitions=[escape(name)]).run((5, name, 0))


def test_a_pattern_of_a_policy_that_looks_like_the_partitions_name_says_how_to_write_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, composed({"rack[1]": ordered(), "*": ordered()}), RACKS)
    with pytest.raises(IngestError, match=r"STRANDLINE_POLICY_MISSING.*pattern 'rack\[1\]'.*'rack\[\[\]1\]'"):
        bench.run((5, "rack[1]", 0))
    Bench(tmp_path, composed({"rack[[]1]": ordered(), "*": ordered()}), RACKS).run((5, "rack[1]", 0))


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.struct([("a", pa.int64())]), pa.list_(pa.int64()), pa.null(), pa.month_day_nano_interval()]
)
def test_a_column_that_cannot_be_a_name_is_refused(kind: pa.DataType, tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.int64()), ("p", kind)])
    with pytest.raises(IngestError, match="STRANDLINE_PARTITION_COLUMN_INVALID.*'p'"):
        Settings.of(str(tmp_path), schema, time="t", partition="p", policy=ordered())


NESTED = pa.schema(
    [
        ("t", pa.int64()),
        ("at", pa.int64()),
        ("payload", pa.struct([("at", pa.int64()), ("dev", pa.string()), ("in", pa.struct([("a b", pa.int64())]))])),
    ]
)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"time": "payload.at"}, r'df = df.selectExpr\("\*", "payload.at AS payload_at"\). Then give time="payload_at"'),
        ({"partition": "payload.dev"}, r'df = df.selectExpr\("\*", "payload.dev AS dev"\). Then give partition="dev"'),
        ({"partition": ["t", "payload.in.a b"]}, r'"payload.in.`a b` AS `a b`"\). Then give partition="a b"'),
        ({"policy": punctuated("payload.at")}, r'"payload.at AS payload_at"\). Then give the column payload_at in the policy'),
        ({"time": "payload.when"}, r"'payload.when', but 'payload' has \['at', 'dev', 'in'\]"),
        ({"time": "payload.at.x"}, "'payload.at.x', but 'payload.at' has no fields"),
        ({"time": "other.at"}, "column 'other.at', which occurs 0 times"),
    ],
)
def test_a_field_of_a_struct_is_selected_first(arguments: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(IngestError, match=f"STRANDLINE_COLUMN_UNKNOWN.*{says}"):
        Settings.of(str(tmp_path), NESTED, **{"time": "t", "policy": ordered(), **arguments})


def test_a_column_with_a_dot_in_its_name_is_a_column(tmp_path: Path) -> None:
    schema = pa.schema([("payload.at", pa.int64()), ("payload", pa.struct([("at", pa.int64())]))])
    assert Settings.of(str(tmp_path), schema, time="payload.at", policy=ordered()).time == "payload.at"


def test_a_name_whose_bytes_are_no_text_is_set_aside(tmp_path: Path) -> None:
    """Spark does not check what is cast from binary, such as Kafka's keys."""
    bench = Bench(tmp_path, ordered())
    broken = pa.Array.from_buffers(pa.string(), 1, [None, *pa.array([b"\xff\xfe"]).buffers()[1:]])
    good = bench.table([(1, "a", 0)])
    rows = pa.concat_tables([good, good.set_column(good.schema.get_field_index("p"), good.schema.field("p"), broken)])
    start = bench.ingest.start()
    with IngestTask(bench.settings.for_tasks(), start, name="part-0", query=bench.query, batch=0, arrival=1) as intake:
        intake.write(rows)
        bench.commit([intake.finish()])
    assert bench.rows() == [(1, "a", 0)]
    assert bench.late("_reason") == [("invalid partition name",)]
