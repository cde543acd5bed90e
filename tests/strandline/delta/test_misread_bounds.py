"""Which checkpoints may have bounds of timestamps or dates that deltalake misreads, and that none of ours is made from them."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, PostCommitHookProperties, write_deltalake

from strandline.channel import Channel
from strandline.cli.__main__ import main
from strandline.delta.checks.misread_bounds import misread_bounds, would_write_misread
from strandline.delta.storage import open_store
from strandline.errors import ChannelError
from strandline.report import verify
from strandline.time.arrow import time_field
from strandline.time.domain import int64

MOMENT = datetime(9999, 12, 31, tzinfo=timezone.utc)


def written(path: Path, version: int, add: dict[str, Any], *, name: str = "", sidecar: bool = False, **options: Any) -> None:
    """A file with the name of a checkpoint, which has one file with these statistics."""
    entry = {"path": "x.parquet"} if sidecar else None
    rows = pa.table({"add": [{"path": "a", **add}], "sidecar": pa.array([entry], pa.struct([("path", pa.string())]))})
    pq.write_table(rows, path / "_delta_log" / f"{version:020d}.checkpoint.{name}parquet", **options)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for n in range(5):
        write_deltalake(tmp_path, pa.table({"at": [MOMENT], "n": [n]}), mode="append")
    return tmp_path


@pytest.mark.parametrize(
    ("add", "options", "misread"),
    [
        ({"stats": "{}"}, {}, False),
        ({"stats_parsed": {"maxValues": {"n": 3}}}, {}, False),
        ({"stats_parsed": {"maxValues": {"at": MOMENT}}}, {"use_deprecated_int96_timestamps": True}, True),
        ({"stats_parsed": {"maxValues": {"at": MOMENT}}}, {"coerce_timestamps": "us"}, True),
        ({"stats_parsed": {"maxValues": {"n": 3}}}, {"sidecar": True}, True),
        ({"stats_parsed": {"maxValues": {"n": 3}}}, {"name": "80a083e8-7026-4e79-81be-64bd76c43a11."}, True),
    ],
)
def test_only_timestamps_in_columns_are_misread(table: Path, add: dict[str, Any], options: dict[str, Any], misread: bool) -> None:
    written(table, 3, add, **options)
    store = open_store(str(table), None)
    assert [misread_bounds(store, version).timestamps for version in (2, 3, 4)] == [False, misread, misread]


def test_a_checkpoint_that_cannot_be_read_may_have_any(table: Path) -> None:
    (table / "_delta_log" / f"{3:020d}.checkpoint.parquet").write_bytes(b"no Parquet")
    assert misread_bounds(open_store(str(table), None), 3) == (True, True)


def test_a_checkpoint_of_deltalake_has_none(table: Path) -> None:
    DeltaTable(table).create_checkpoint()
    assert misread_bounds(open_store(str(table), None), 4) == (False, False)


def spark_like(path: Path, *, texts: bool) -> None:
    """Change the newest checkpoint to what Delta Spark would have written: timestamps as INT96, and perhaps no JSON."""
    newest = max((path / "_delta_log").glob("*.checkpoint.parquet"))
    rows = pq.read_table(newest)
    if not texts:
        add = rows.column("add").combine_chunks()
        fields = list(add.type)
        arrays = [pa.nulls(len(add), f.type) if f.name == "stats" else add.field(f.name) for f in fields]
        at = rows.schema.get_field_index("add")
        rows = rows.set_column(at, "add", pa.StructArray.from_arrays(arrays, fields=fields, mask=add.is_null()))
    pq.write_table(rows, newest, use_deprecated_int96_timestamps=True)


def channel_with(path: Path, moment: datetime, *, texts: bool) -> Channel:
    """A channel with a checkpoint as Delta Spark writes it."""
    schema = pa.schema([time_field("time", int64), ("in", pa.struct([("at", pa.timestamp("us", "UTC"))]))])
    channel = Channel.create(path, schema, producers=["a"], at=0)
    with channel.producer("a") as producer:
        producer.send(pa.table({"time": [0], "in": [{"at": moment}]}, schema=schema))
        producer.commit()
    ask(path, columns=True, texts=True)
    DeltaTable(path).create_checkpoint()
    spark_like(path, texts=texts)
    return channel


def ask(path: Path, *, columns: bool, texts: bool) -> None:
    properties = {
        "delta.checkpoint.writeStatsAsStruct": str(columns).lower(),
        "delta.checkpoint.writeStatsAsJson": str(texts).lower(),
    }
    DeltaTable(path).alter.set_table_properties(properties, raise_if_not_exists=False)


def written_bounds(path: Path) -> list[Any]:
    """The greatest moments that the newest checkpoint states, as JSON and in columns."""
    newest = max((path / "_delta_log").glob("*.checkpoint.parquet"))
    add = next(row for row in pq.read_table(newest, columns=["add"]).column("add").to_pylist() if row)
    found = [json.loads(add["stats"])] if add.get("stats") else []
    return [each["maxValues"]["in"]["at"] for each in [*found, *filter(None, [add.get("stats_parsed")])]]


@pytest.mark.parametrize("asked", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("texts", [True, False])
def test_no_checkpoint_hands_on_misread_bounds(tmp_path: Path, texts: bool, asked: tuple[bool, bool]) -> None:
    channel_with(tmp_path, MOMENT, texts=texts)
    ask(tmp_path, columns=asked[0], texts=asked[1])
    channel = Channel.open(tmp_path)
    if asked[0] or (asked[1] and not texts):
        with pytest.raises(ChannelError, match="STRANDLINE_CHECKPOINT_MISREAD"):
            channel.checkpoint()
        with pytest.raises(ChannelError, match="STRANDLINE_CHECKPOINT_MISREAD"):
            channel.clean_log(timedelta(0))
        return
    channel.checkpoint()
    assert written_bounds(tmp_path) == ["9999-12-31T00:00:00.000Z"] * asked[1]


@pytest.mark.parametrize("asked", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("texts", [True, False])
def test_bounds_that_deltalake_reads_are_handed_on(tmp_path: Path, texts: bool, asked: tuple[bool, bool]) -> None:
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    channel_with(tmp_path, moment, texts=texts)
    ask(tmp_path, columns=asked[0], texts=asked[1])
    for _ in range(2):  # the second one from the first one's columns
        Channel.open(tmp_path).checkpoint()
        assert written_bounds(tmp_path) == ["2026-01-01T00:00:00.000Z"] * asked[1] + [moment] * asked[0]


def test_commits_of_deltalake_write_no_such_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    channel_with(tmp_path, MOMENT, texts=False)
    every = {"delta.checkpointInterval": "1"}
    hooks = PostCommitHookProperties(create_checkpoint=False)
    DeltaTable(tmp_path).alter.set_table_properties(every, raise_if_not_exists=False, post_commithook_properties=hooks)
    channel = Channel.open(tmp_path)
    with channel.producer("a", take_over=True) as producer:
        producer.send(channel.read())
        producer.commit()
    before = sorted((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    assert channel.add_columns([pa.field("n", pa.int64())])
    assert main(["compact", str(tmp_path)]) != 0
    assert "STRANDLINE_CHECKPOINT_MISREAD" in capsys.readouterr().err
    assert sorted((tmp_path / "_delta_log").glob("*.checkpoint.parquet")) == before


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_the_second_kind_names_files_that_have_the_bounds(tmp_path: Path, kind: str) -> None:
    channel_with(tmp_path, MOMENT, texts=False)
    store, version = open_store(str(tmp_path), None), DeltaTable(tmp_path).version()
    log = tmp_path / "_delta_log"
    first = max(log.glob("*.checkpoint.parquet"))
    (log / "_sidecars").mkdir()
    first.rename(log / "_sidecars" / "x.parquet")
    (log / "_last_checkpoint").unlink()
    name = first.name.replace("parquet", f"80a083e8-7026-4e79-81be-64bd76c43a11.{kind}")
    entry = {"path": "x.parquet", "sizeInBytes": 1, "modificationTime": 1}
    if kind == "json":
        (log / name).write_text(json.dumps({"checkpointMetadata": {"version": 4}}) + "\n" + json.dumps({"sidecar": entry}) + "\n")
    else:
        pq.write_table(pa.table({"sidecar": [None, entry]}), log / name)
    for columns, texts, base in ((True, False, version), (False, True, version), (False, False, None)):
        assert would_write_misread(store, version, (), columns=columns, texts=texts) == base


def test_deltalake_may_have_begun_at_an_older_checkpoint(table: Path) -> None:
    """A writer wrote a checkpoint with JSON only after deltalake had opened the version."""
    written(table, 3, {"stats_parsed": {"maxValues": {"at": MOMENT}}}, use_deprecated_int96_timestamps=True)
    store = open_store(str(table), None)
    before = store.list("_delta_log")
    written(table, 4, {"stats": "{}"})
    assert [misread_bounds(store, 4).timestamps, misread_bounds(store, 4, before).timestamps] == [False, True]


def test_a_damaged_checkpoint_is_not_handed_on(table: Path) -> None:
    (table / "_delta_log" / f"{3:020d}.checkpoint.parquet").write_bytes(b"no Parquet")
    assert would_write_misread(open_store(str(table), None), 4, (), columns=False, texts=True) == 3


def rebased_like(path: Path, days: int) -> None:
    """Change the newest checkpoint to one of Spark with datetimeRebaseModeInWrite = LEGACY: dates of 1500 are some days later."""
    newest = max((path / "_delta_log").glob("*.checkpoint.parquet"))
    rows = pq.read_table(newest)
    add, at = rows.column("add").to_pylist(), rows.schema.get_field_index("add")
    for row in filter(None, add):
        row["stats"] = None
        for bounds in (row["stats_parsed"]["minValues"], row["stats_parsed"]["maxValues"]):
            bounds["day"] += timedelta(days)
    rows = rows.set_column(at, "add", pa.chunked_array([pa.array(add, rows.schema.field("add").type)]))
    with pq.ParquetWriter(newest, rows.schema, store_schema=False) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({"org.apache.spark.legacyDateTime": ""})


@pytest.mark.parametrize(("day", "late", "is_right"), [(date(1500, 6, 1), 10, False), (date(1600, 6, 1), 0, True)])
def test_dates_in_sparks_old_calendar_are_no_bounds(tmp_path: Path, day: date, late: int, is_right: bool) -> None:
    schema = pa.schema([time_field("time", int64), ("day", pa.date32())])
    channel = Channel.create(tmp_path, schema, producers=["a"], at=0)
    with channel.producer("a") as producer:
        producer.send(pa.table({"time": [0], "day": [day]}, schema=schema))
        producer.commit()
    ask(tmp_path, columns=True, texts=True)
    DeltaTable(tmp_path).create_checkpoint()
    rebased_like(tmp_path, late)
    channel = Channel.open(tmp_path)
    (file,) = channel.snapshot_files(stats=True)
    assert file.stats is not None
    assert json.loads(file.stats)["minValues"] == {"time": 0}
    store, version = open_store(str(tmp_path), None), channel.version
    base = would_write_misread(store, version, (), columns=False, texts=True)
    assert (base is None) == is_right
    assert verify(tmp_path).sound
    rebased_like(tmp_path, 1)  # a day later than Spark would have written it
    assert "stats_parsed" in str(verify(tmp_path))
