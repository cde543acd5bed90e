"""Bounds from the log: every value of a file lies between them, and what cannot be trusted says nothing."""

from __future__ import annotations

import json
import tempfile
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_strandline.read import statistics
from pyspark_strandline.read.statistics import bounded_columns, of_files
from strandline.channel import Channel, DataFile
from strandline.delta.data_file_columns import DataFiles
from strandline.time.arrow import time_field
from strandline.time.domain import int64

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


@pytest.mark.drawn("core")
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


# ---- very many files at once -----------------------------------------------------------------------------------------------

BOUND = {
    "at": st.datetimes().map(lambda at: at.isoformat(timespec="milliseconds") + "Z")
    | st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-8))])).map(
        lambda at: at.isoformat(timespec="milliseconds")
    )
    | st.sampled_from(["1970-01-01T00:00:00.000005Z", "2020-02-30T00:00:00.000Z", "yesterday", 5]),
    "ntz": st.datetimes().map(lambda at: at.isoformat(timespec="milliseconds")) | st.just("1970-01-01T00:00:00.000Z"),
    "d": st.dates().map(str) | st.sampled_from(["2020-02-30", "", 3]),
    "n": st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from([1 << 63, 1.5, True, "7"]),
    "s": st.text(max_size=40) | st.sampled_from(["a" * 31, "a" * 32, "\ud800", 5]),
}
LAWFUL = pa.schema([*AT, ("ntz", pa.timestamp("us")), ("in", pa.struct([("n", pa.int32()), ("s", pa.string())]))])
INNER = st.none() | st.fixed_dictionaries({}, optional={"n": BOUND["n"], "s": BOUND["s"], "x": st.floats(allow_nan=False)})
TREE = st.fixed_dictionaries({}, optional={**{name: st.none() | bound for name, bound in BOUND.items()}, "in": INNER})
COUNTS = st.fixed_dictionaries({}, optional=dict.fromkeys(BOUND, st.sampled_from([None, 0, 7, -1])))
STATS = st.fixed_dictionaries(
    {"numRecords": st.sampled_from([0, 3, -2])},
    optional={"minValues": st.none() | TREE, "maxValues": TREE, "nullCount": COUNTS, "tightBounds": st.booleans()},
)
TEXTS = (
    st.none()
    | STATS.map(json.dumps)
    | st.sampled_from(["", " ", "{}", "{", "[]", "{}\n{}", '{"minValues":3}', '{"numRecords":2}{}'])
)


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_statistics_read_at_once_are_those_read_one_by_one(texts: list[str | None]) -> None:
    files = DataFiles([str(i) for i in range(len(texts))], [1] * len(texts), texts)
    wanted = list(bounded_columns(LAWFUL))
    told = []
    for many in (1, 1000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(statistics, "_MANY", many)
            told.append(of_files(files, LAWFUL, wanted))
    assert told[0] == told[1]


def test_one_file_is_never_given_the_statistics_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two damaged texts, of which one has an object too many and the other one too few."""
    monkeypatch.setattr(statistics, "_MANY", 1)
    good = '{"minValues":{"n":1}}'
    for texts in (
        [" ", good + good],
        [good + "{}", ""],
        ['{"a":', "}" + good],
        ['{"a":"', '"}' + good],
        [good + '}{"of":{}', good],
    ):
        files = DataFiles(["a", "b"], [1, 1], list(texts))
        told = of_files(files, AT, [["n"]])
        monkeypatch.setattr(statistics, "_MANY", 1000)
        assert told == of_files(files, AT, [["n"]])
        monkeypatch.setattr(statistics, "_MANY", 1)


def test_ordinary_statistics_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_one_by_one", lambda *_: pytest.fail("one by one"))
    at, to = "1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.002Z"
    stats = {"numRecords": 3, "minValues": {"at": at, "in": {"n": 1}, "x": 0.5}, "maxValues": {"at": to}, "nullCount": {"at": 0}}
    told = of_files(DataFiles(["a"] * 100, [1] * 100, [json.dumps(stats), "{}"] * 50), LAWFUL, [["at"], ["in", "n"]])
    assert told is not None
    assert told["rows"] == [3, -1] * 50
    at_column, n_column = told["columns"]
    assert (at_column["low"], at_column["high"], at_column["nulls"]) == ([1, None] * 50, [2999, None] * 50, [0, None] * 50)
    assert (n_column["low"], n_column["high"]) == ([1, None] * 50, [None] * 100)
