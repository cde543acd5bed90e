"""Parquet keeps no bounds of text of more than 4 KB."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ingest_bench import Bench
from strandline.channel import Channel
from strandline.ingest import ordered
from strandline.report import verify
from strandline.time.arrow import time_field
from strandline.time.domain import int64

TEXT = pa.struct([("text", pa.string())])


@pytest.mark.parametrize("length", [100, 4096, 4097, 100_000])
def test_filters_find_rows_with_long_text_and_the_channel_is_sound(tmp_path: Path, length: int) -> None:
    schema = pa.schema([time_field("time", int64), ("text", pa.string()), ("large", pa.large_string()), ("inner", TEXT)])
    channel = Channel.create(tmp_path, schema, producers=["a"], at=0)
    texts = ["x" * length, "y" * length, None]
    with channel.producer("a") as producer:
        rows = {"time": [1, 2, 3], "text": texts, "large": texts, "inner": [{"text": text} for text in texts]}
        producer.send(pa.table(rows, schema=schema))
        producer.commit()
    table = DeltaTable(tmp_path)
    for name in ("text", "large"):
        for bound in ("x", "xx", "y"):
            found = table.to_pyarrow_table(filters=[(name, ">", bound)], columns=["time"])
            assert found.num_rows == sum(text is not None and text > bound for text in texts), (name, bound)
    assert verify(tmp_path).sound


def test_no_text_is_greater_than_its_bound(tmp_path: Path) -> None:
    """Text that begins as a shortened bound ends."""
    schema = pa.schema([time_field("time", int64), ("inner.text", pa.string()), ("text", pa.string()), ("inner", TEXT)])
    channel = Channel.create(tmp_path, schema, producers=["a"], at=0)
    greatest = "\U0010ffff" * 5000
    texts = [greatest, greatest + "a", "a", None]
    with channel.producer("a") as producer:
        inner = [{"text": text} for text in texts]
        rows = {"time": [1, 2, 3, 4], "inner.text": ["z" * 5000] * 4, "text": texts, "inner": inner}
        producer.send(pa.table(rows, schema=schema))
        producer.commit()
    for text in texts[:3]:
        assert DeltaTable(tmp_path).to_pyarrow_table(filters=[("text", "=", text)]).num_rows == 1
    lines = [json.loads(line) for log in (tmp_path / "_delta_log").glob("*.json") for line in log.read_text().splitlines()]
    (bounds,) = (json.loads(line["add"]["stats"]) for line in lines if "add" in line)
    assert bounds["maxValues"]["text"] == bounds["maxValues"]["inner"]["text"] == greatest + "a"
    assert bounds["minValues"]["inner"]["text"] == "a"
    assert bounds["minValues"]["inner.text"] == "z" * 32
    assert verify(tmp_path).sound


def test_a_column_without_any_text_has_no_bounds(tmp_path: Path) -> None:
    schema = pa.schema([time_field("time", int64), ("text", pa.string())])
    channel = Channel.create(tmp_path, schema, producers=["a"], at=0)
    with channel.producer("a") as producer:
        producer.send(pa.table({"time": [1], "text": [None]}, schema=schema))
        producer.commit()
    (file,) = channel.snapshot_files(channel.version, stats=True)
    assert '"text"' not in (file.stats or "").split("nullCount")[0]
    assert verify(tmp_path).sound


def test_filters_find_parked_rows_by_characters_beyond_16_bits(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), pa.schema([("t", pa.int64()), ("p", pa.string()), ("n", pa.string())]), max_ahead=5)
    text = "\U0010fffd"
    bench.run((1, "a", text), (50, "b", text))
    bench.run((60, "a", text))
    bench.run((60, "b", text))
    assert len(bench.rows()) == 4
    assert DeltaTable(bench.settings.path).to_pyarrow_table(filters=[("n", "=", text)]).num_rows == 4


def test_parked_and_late_rows_may_have_long_text(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), pa.schema([("t", pa.int64()), ("p", pa.string()), ("n", pa.string())]), max_ahead=5)
    long = "z" * 5000
    bench.run((1, "a", long), (50, "b", long))
    bench.run((60, "a", long), (0, "a", long))
    bench.run((60, "b", long))
    assert len(bench.rows()) == 4
    assert len(bench.late()) == 1
    found = DeltaTable(bench.settings.path).to_pyarrow_table(filters=[("n", ">", "a")])
    assert found.num_rows == 4
    assert DeltaTable(bench.settings.late_path).to_pyarrow_table(filters=[("n", ">", "a")]).num_rows == 1
    assert verify(bench.settings.path).sound
