"""Columns of text are read as the grammar says, row by row: neighbours and the division into tasks make no difference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingest_bench import Bench
from strandline.ingest import ordered
from strandline.ingest.columns.time_column import check_times
from strandline.time.domain import Scalar, int64, timestamp, uint64
from strandline.time.text.grammar import Wrong, read_integer, read_moment

DOMAINS = [timestamp, int64, uint64, Scalar("int8"), Scalar("int32")]

blanks = st.text(" \t\n\r\f\v", max_size=2)
two = st.integers(0, 62).map("{:02d}".format)
years = st.integers(0, 9999).map("{:04d}".format) | st.integers(-300_000, 300_000).map("{:+05d}".format)
dates = st.builds("{}-{}-{}".format, years, st.integers(0, 13).map("{:02d}".format), st.integers(0, 32).map("{:02d}".format))
leap_days = st.builds("{:04d}-02-29".format, st.integers(0, 9999))
fractions = st.just("") | st.text("0123456789", max_size=12).map(".{}".format)
clocks = st.builds("{}{}:{}".format, st.sampled_from("Tt "), st.integers(0, 25).map("{:02d}".format), two)
seconds = st.just("") | st.builds(":{}{}".format, two, fractions)
zones = st.sampled_from(["", "Z", "z", "+00", "-18:00", "+18:01", "+0530", " Z", "UTC"]) | st.builds("+{}:{}".format, two, two)
moments = st.builds("".join, st.tuples(blanks, dates | leap_days, clocks, seconds, zones, blanks))
numbers = st.integers(-(1 << 65), 1 << 65).map(str) | st.integers(-300, 300).map("{:+04d}".format) | st.floats().map(str)
limits = st.sampled_from([limit for d in DOMAINS for limit in (d.minimum, d.maximum)]).flatmap(
    lambda limit: st.integers(limit - 1, limit + 1).map(str)
)
texts = moments | dates | numbers | limits | st.builds("".join, st.tuples(blanks, numbers, blanks)) | st.text(max_size=8)


def read(domain: Scalar, text: str) -> int | Wrong:
    if domain == timestamp:
        return read_moment(text)
    return read_integer(text, domain.minimum, domain.maximum)


def column(domain: Scalar, rows: list[str | None], kind: pa.DataType) -> list[tuple[int, int | None]]:
    """The code of each row, and the number of those that are times."""
    values, codes = check_times(pa.array(rows, kind), domain)
    assert not values.null_count
    numbers = (values.cast(pa.int64()) if domain == timestamp else values).to_pylist()
    return [(code, number if code == 0 else None) for code, number in zip(codes.tolist(), numbers, strict=True)]


@given(
    st.lists(st.none() | texts, max_size=12),
    st.sampled_from(DOMAINS),
    st.sampled_from([pa.string(), pa.large_string()]),
    st.integers(0, 12),
)
@example(["0x1F", "junk"], int64, pa.string(), 1)
@example(["0000-06-01", "junk"], timestamp, pa.string(), 1)
@example(["18446744073709551615", "junk"], uint64, pa.string(), 1)
@example(["2024-02-29T10:00:00.123456789Z", "2023-02-29"], timestamp, pa.string(), 1)
def test_a_column_is_its_rows(rows: list[str | None], domain: Scalar, kind: pa.DataType, cut: int) -> None:
    wanted = []
    for row in rows:
        result = Wrong.UNPARSABLE if row is None else read(domain, row)
        wanted.append((1, None) if row is None else (int(result), None) if isinstance(result, Wrong) else (0, result))
    assert column(domain, rows, kind) == wanted
    assert column(domain, rows[:cut], kind) + column(domain, rows[cut:], kind) == wanted
    assert [column(domain, [row], kind)[0] for row in rows] == wanted


@given(st.lists(st.none() | texts, max_size=8), st.sampled_from(DOMAINS), st.integers(0, 8), st.integers(0, 8))
def test_a_slice_is_its_rows(rows: list[str | None], domain: Scalar, start: int, length: int) -> None:
    values, codes = check_times(pa.array(rows, pa.string()).slice(start, length), domain)
    alone, wanted = check_times(pa.array(rows[start : start + length], pa.string()), domain)
    assert values.equals(alone)
    assert codes.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("kind", "raw", "codes"),
    [
        (pa.date32(), [0, 106_751_991, 106_751_992, -106_751_991, -106_751_992, 2_000_000_000], [0, 0, 3, 0, 3, 3]),
        (pa.date64(), [0, 86_400_000, 9_223_372_022_400_000, 9_223_372_108_800_000], [0, 0, 0, 3]),
        (pa.timestamp("s", "UTC"), [0, 9_223_372_036_854, 9_223_372_036_855, -9_223_372_036_855], [0, 0, 3, 3]),
        (pa.timestamp("ms", "UTC"), [0, 9_223_372_036_854_775, 9_223_372_036_854_776], [0, 0, 3]),
        (pa.timestamp("ns", "UTC"), [0, 1_000, 1_001, -(1 << 63)], [0, 0, 3, 3]),
    ],
)
def test_a_date_beyond_the_domain_leaves_its_neighbours_alone(kind: pa.DataType, raw: list[int], codes: list[int]) -> None:
    width = pa.int32() if kind == pa.date32() else pa.int64()
    column = pa.array(raw, width).view(kind)
    values, found = check_times(pa.concat_arrays([column, pa.array([None], kind)]), timestamp)
    assert found.tolist() == [*codes, 1]
    for i, code in enumerate(codes):
        if code == 0:
            assert (
                values[i].value
                == pa.scalar(raw[i], width)
                .cast(kind)
                .cast(pa.timestamp("us", kind.tz if pa.types.is_timestamp(kind) else None))
                .value
            )


@given(st.lists(st.none() | st.integers(-(1 << 63), (1 << 63) - 1), max_size=8), st.sampled_from(DOMAINS[1:]))
def test_integers_of_another_width(numbers: list[int | None], domain: Scalar) -> None:
    values, codes = check_times(pa.array(numbers, pa.int64()), domain)
    for number, value, code in zip(numbers, values.to_pylist(), codes.tolist(), strict=True):
        assert code == (1 if number is None else 0 if domain.has(number) else 3)
        assert code or value == number


SCHEMA = pa.schema([("t", pa.string()), ("p", pa.string()), ("n", pa.int64())])


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_epoch_numbers_are_set_aside_as_such(tmp_path: Path, tasks: int) -> None:
    bench = Bench(tmp_path, ordered(), SCHEMA)
    rows: list[Any] = [("1795010112345", "a", 0), ("1712013012.5", "a", 1), ("2026-01-01", "a", 2), ("soon", "a", 3)]
    bench.run(*rows, tasks=tasks)
    assert bench.late("n", "_reason") == [(0, "epoch number in text"), (1, "epoch number in text"), (3, "unparsable time")]
    assert [n for *_, n in bench.rows()] == [2]
    bench.batch -= 1
    assert bench.run(*rows, tasks=3) is None  # the same batch, divided otherwise


def test_promises_of_nothing_can_be_collected(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), SCHEMA)
    bench.run(("soon", "a", 0), ("2026-01-01", "a", 1), ("2026-01-01", None, 2))
    bench.run(("soon", "a", 3))
    first, second, third = (each for _, each in bench.late("n", "_frontier"))
    assert (first, second) == ([None], [])  # a partition that has promised nothing; no partition
    assert [moment.isoformat() for moment in third] == ["2026-01-01T00:00:00+00:00"]
