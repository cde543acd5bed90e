"""Bounds from the log: every value of a file lies between them, and what cannot be trusted says nothing."""

from __future__ import annotations

import json
import tempfile
from datetime import date, datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_strandline.statistics import bounded_columns, of_files
from strandline.arrow import time_field
from strandline.channel import Channel, DataFile
from strandline.order import int64

UTC = timezone.utc
COLUMNS: dict[str, tuple[pa.DataType, Any]] = {
    "n": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "d": (pa.date32(), st.dates()),
    "at": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "ntz": (pa.timestamp("us"), st.datetimes()),
    "s": (pa.string(), st.text(st.characters(codec="utf-8"), max_size=70)),
}
SCHEMA = pa.schema(
    [
        time_field("time", int64),
        *((name, kind) for name, (kind, _) in COLUMNS.items()),
        ("in", pa.struct([("n", pa.int32()), ("x", pa.float64())])),
    ]
)
ROW = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()})


def number(value: Any) -> Any:
    """A value as bounds write it."""
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value


@settings(max_examples=30)
@given(st.lists(st.lists(ROW, min_size=1, max_size=4), min_size=1, max_size=3))
def test_every_value_lies_between_the_bounds_of_its_file(written: list[list[dict[str, Any]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        channel = Channel.create(f"{folder}/c", SCHEMA, producers=["a"])
        for i, rows in enumerate(written):
            with channel.producer("a") as session:
                session.send(pa.Table.from_pylist([{"time": i, "in": {"n": i, "x": 0.5}} | row for row in rows], schema=SCHEMA))
                session.commit()
        commits = [file for v in range(1, channel.version + 1) for file in channel.log.require(v).files]
        snapshot = channel.snapshot_files(stats=True)
        for files in (commits, sorted(snapshot, key=lambda file: [c.path for c in commits].index(file.path))):
            told = of_files(files, SCHEMA, list(bounded_columns(SCHEMA)))
            assert told is not None
            assert told["rows"] == [len(rows) for rows in written]
            columns = {tuple(column["path"]): column for column in told["columns"]}
            assert set(columns) == {("time",), ("in", "n"), *((name,) for name in COLUMNS)}
            assert columns["time",]["low"] == columns["time",]["high"] == columns["in", "n"]["low"] == list(range(len(written)))
            for name in COLUMNS:
                column = columns[name,]
                for i, rows in enumerate(written):
                    values = [number(row[name]) for row in rows if row[name] is not None]
                    low, high, nulls = column["low"][i], column["high"][i], column["nulls"][i]
                    assert nulls is None or nulls == len(rows) - len(values)
                    assert all((low is None or low <= v) and (high is None or v <= high) for v in values)


AT = pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64()), ("s", pa.string()), ("d", pa.date32())])


def told_of(name: str, low: Any, high: Any, nulls: Any = 0) -> tuple[Any, Any, Any]:
    stats = json.dumps({"numRecords": 2, "minValues": {name: low}, "maxValues": {name: high}, "nullCount": {name: nulls}})
    told = of_files([DataFile("a", 1, 2, stats)], AT, [[name]])
    assert told is not None
    (column,) = told["columns"]
    return column["low"][0], column["high"][0], column["nulls"][0]


def test_timestamps_are_taken_a_millisecond_wider_unless_they_are_exact() -> None:
    assert told_of("at", "1970-01-01T00:00:00.005Z", "1970-01-01T01:00:00.005+01:00") == (4001, 5999, 0)
    assert told_of("at", "1970-01-01T00:00:00.000005Z", "1970-01-01T00:00:00.000006Z") == (5, 6, 0)


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("at", "yesterday"),
        ("at", 5),
        ("at", "+10000-01-01T00:00:00Z"),
        ("n", 1.5),
        ("n", True),
        ("n", 1 << 63),
        ("d", "x"),
        ("s", 1),
    ],
)
def test_bounds_that_cannot_be_read_are_none(name: str, bound: Any) -> None:
    assert told_of(name, bound, bound, -1) == (None, None, None)


def test_strings_that_may_have_been_cut_bound_nothing_above() -> None:
    assert told_of("s", "a" * 32, "b" * 32) == ("a" * 32, None, 0)
    assert told_of("s", "a", "b" * 31) == ("a", "b" * 31, 0)
    assert told_of("s", "\ud800", "\ud800") == (None, None, 0)


def test_files_without_statistics_or_with_damaged_ones_are_unknown() -> None:
    assert of_files([DataFile("a", 1, 2)], AT, [["n"]]) is None
    assert of_files([DataFile("a", 1, 2, "{}")], AT, [["unknown"]]) is None
    good = '{"minValues":{"n":1},"maxValues":{"n":2},"nullCount":{"n":0}}'
    files = [DataFile(str(i), 1, 2, text) for i, text in enumerate([good, "{", "[]", '{"minValues":3}', "1],[2"])]
    told = of_files(files, AT, [["n"]])
    assert told is not None
    assert told["columns"] == [{"path": ["n"], "low": [1] + [None] * 4, "high": [2] + [None] * 4, "nulls": [0] + [None] * 4}]
