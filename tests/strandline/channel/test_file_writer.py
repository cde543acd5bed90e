"""Data files: what the writer makes is what was written, and its statistics hold for every row."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.channel import Channel, DataFile, FileWriter
from strandline.channel.write import file_writer as module
from strandline.delta.file_stats import delta_stats
from strandline.time.arrow import array_of, time_field
from strandline.time.domain import int64, product, timestamp

PAIR = product(epoch="int64", iter="int64")
SCHEMA = pa.schema([time_field("time", PAIR), ("n", pa.int64())])


def rows(times: list[tuple[int, int]]) -> pa.Table:
    return pa.Table.from_arrays([array_of(times, PAIR), pa.array(range(len(times)), pa.int64())], schema=SCHEMA)


def test_files_rows_and_times_are_reported(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path, SCHEMA, "time", PAIR, name_prefix="part-00007")
    writer.write(rows([(2, 0), (1, 5)]))
    writer.write(rows([(1, 5)]).to_batches()[0])
    (file,), times = writer.finish()
    assert times == [((1, 5), 2), ((2, 0), 1)]
    assert file.path.startswith("part-00007-")
    assert (file.rows, file.size) == (3, Path(tmp_path, file.path).stat().st_size)
    assert json.loads(file.stats or "") == {
        "numRecords": 3,
        "minValues": {"time": {"epoch": 1, "iter": 0}, "n": 0},
        "maxValues": {"time": {"epoch": 2, "iter": 5}, "n": 1},
        "nullCount": {"time": {"epoch": 0, "iter": 0}, "n": 0},
    }
    assert pq.read_table(Path(tmp_path, file.path)).num_rows == 3


def test_nothing_written_is_no_file(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path, SCHEMA, "time", PAIR)
    writer.write(rows([]))
    assert writer.finish() == ([], [])
    assert list(tmp_path.iterdir()) == []


def test_large_output_is_split_into_row_groups_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROW_GROUP_ROWS", 100)
    monkeypatch.setattr(module, "FILE_BYTES", 4000)
    writer = FileWriter(tmp_path, SCHEMA, "time", PAIR)
    for i in range(50):
        writer.write(rows([(i, j) for j in range(30)]))
    files, times = writer.finish()
    assert len(files) > 1
    assert sum(file.rows for file in files) == 1500
    assert len(times) == 1500
    read = [pq.ParquetFile(Path(tmp_path, file.path)) for file in files]
    assert [one.metadata.num_rows for one in read] == [file.rows for file in files]
    assert any(one.num_row_groups > 1 for one in read)


def test_aborting_or_failing_removes_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROW_GROUP_ROWS", 10)
    monkeypatch.setattr(module, "FILE_BYTES", 1)

    def fail() -> None:
        with FileWriter(tmp_path, SCHEMA, "time", PAIR) as writer:
            for _ in range(5):
                writer.write(rows([(1, j) for j in range(30)]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("prefix", ["", "a/b", "../a", ".a", "_a", "a b", "a%20"])
def test_prefixes_that_would_hide_or_move_the_file_are_refused(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(ValueError, match="name_prefix"):
        FileWriter(tmp_path, SCHEMA, "time", PAIR, name_prefix=prefix)


def test_data_files_travel_as_json_and_pickles() -> None:
    file = DataFile("a b.parquet", 3, 2, "{}")
    assert DataFile.from_json(json.loads(json.dumps(file.to_json()))) == file
    assert pickle.loads(pickle.dumps(file)) == file  # noqa: S301
    for bad in ({}, {"path": 1, "size": 1, "rows": 1}, {"path": "", "size": 1, "rows": 1}):
        with pytest.raises(ValueError, match="not a data file"):
            DataFile.from_json(bad)


COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i8": (pa.int8(), st.integers(-128, 127)),
    "i64": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "f64": (pa.float64(), st.floats()),
    "text": (pa.string(), st.text(max_size=40)),
    "flag": (pa.bool_(), st.booleans()),
    "blob": (pa.binary(), st.binary(max_size=4)),
    "day": (pa.date32(), st.dates()),
    "when": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.timezone.utc))),
    "naive": (pa.timestamp("us"), st.datetimes()),
    "money": (pa.decimal128(10, 2), st.decimals(-9999, 9999, places=2)),
    "list": (pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=2)),
    "map": (pa.map_(pa.string(), pa.int64()), st.lists(st.tuples(st.text(max_size=2), st.integers(0, 9)), max_size=2)),
    "deep": (pa.struct([("x", pa.struct([("y", pa.int64())])), ("z", pa.string())]), st.just({"x": {"y": 3}, "z": "z"})),
    "last": (pa.int64(), st.integers(0, 9)),
}


def value_of(stats: Any, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        return dt.datetime.fromisoformat(stats.replace("Z", "+00:00"))
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(stats)
    if pa.types.is_decimal(kind):
        return decimal.Decimal(str(stats))
    return stats


@settings(max_examples=25)
@given(st.data())
def test_statistics_hold_for_every_row(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    names = data.draw(st.permutations(sorted(COLUMNS)))
    schema = pa.schema([(name, COLUMNS[name][0]) for name in names])
    values = {n: data.draw(st.lists(st.none() | COLUMNS[n][1], min_size=count, max_size=count)) for n in names}
    table = pa.table(values, schema=schema)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=2)
    stats = json.loads(
        json.dumps(
            delta_stats(pq.read_metadata(pa.BufferReader(sink.getvalue())), schema, lambda: pa.BufferReader(sink.getvalue())),
            allow_nan=False,
        )
    )
    assert stats["numRecords"] == count
    for name, column in values.items():
        kind, present = COLUMNS[name][0], [v for v in column if v is not None]
        if not pa.types.is_nested(kind):
            assert stats["nullCount"][name] == count - len(present)
        for bounds, holds in (("minValues", lambda v, b: v >= b), ("maxValues", lambda v, b: v <= b)):
            if name in stats[bounds] and not pa.types.is_nested(kind):
                bound = value_of(stats[bounds][name], kind)
                assert all(holds(v, bound) or (isinstance(v, float) and math.isnan(v)) for v in present)
    if any(v is not None for v in values["last"]):
        numbers = [v for v in values["last"] if v is not None]
        assert (stats["minValues"]["last"], stats["maxValues"]["last"]) == (min(numbers), max(numbers))
    for odd in ("flag", "blob", "list", "map"):
        assert odd not in stats["minValues"]
    if any(v is not None for v in values["deep"]):
        assert stats["minValues"]["deep"] == {"x": {"y": 3}, "z": "z"}
    assert "f64" not in stats["maxValues"]  # Parquet passes over NaN, which Spark sorts above every number


def test_only_the_first_32_leaves_have_statistics() -> None:
    schema = pa.schema([(f"c{i}", pa.int64()) for i in range(40)])
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({f"c{i}": [i] for i in range(40)}), sink)
    stats = delta_stats(pq.read_metadata(pa.BufferReader(sink.getvalue())), schema, lambda: pa.BufferReader(sink.getvalue()))
    assert list(stats["minValues"]) == [f"c{i}" for i in range(32)]


def test_timestamps_are_widened_to_whole_milliseconds(tmp_path: Path) -> None:
    schema = pa.schema([time_field("time", timestamp)])
    writer = FileWriter(tmp_path, schema, "time", timestamp)
    writer.write(pa.table({"time": array_of([-1, 1_500], timestamp)}))
    (file,), times = writer.finish()
    stats = json.loads(file.stats or "")
    assert stats["minValues"]["time"] == "1969-12-31T23:59:59.999Z"
    assert stats["maxValues"]["time"] == "1970-01-01T00:00:00.002Z"
    assert times == [(-1, 1), (1_500, 1)]


@given(st.lists(st.lists(st.integers(0, 5), max_size=5), max_size=6))
def test_times_are_counted_across_batches(batches: list[list[int]]) -> None:
    import tempfile

    schema = pa.schema([time_field("time", int64)])
    with tempfile.TemporaryDirectory() as folder:
        writer = FileWriter(folder, schema, "time", int64)
        for batch in batches:
            writer.write(pa.table({"time": pa.array(batch, pa.int64())}))
        _, times = writer.finish()
    assert times == sorted(Counter(t for batch in batches for t in batch).items())


def test_deltas_filters_find_long_strings(tmp_path: Path) -> None:
    schema = pa.schema([time_field("time", int64), ("id", pa.string())])
    channel = Channel.create(tmp_path, schema, producers=["a"], at=0)
    long = "c1cff54c-ddb0-40fb-b474-fd82a76765b9"
    with channel.producer("a") as a:
        a.send(pa.table({"time": [1, 2], "id": [long, "\U0010ffff" * 40]}))
    found = DeltaTable(str(tmp_path)).to_pyarrow_dataset()
    assert found.to_table(filter=ds.field("id") == long).num_rows == 1
    assert found.to_table(filter=ds.field("id") != long).num_rows == 1
