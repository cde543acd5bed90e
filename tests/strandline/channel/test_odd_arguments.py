"""Arguments that no channel has: errors with names. And what a query reads does not hide that a channel was replaced."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from helpers import make_channel, say
from strandline.channel import Channel, LogError, Span
from strandline.channel.statements.inputs import Input
from strandline.delta.data_file import DataFile
from strandline.errors import StrandlineError, TimeError
from strandline.report import verify
from strandline.time.arrow import time_field
from strandline.time.domain import int64, product

FILE = DataFile("part.parquet", 9, 1, '{"numRecords":1}')
SCHEMA = pa.schema([time_field("time", int64)])
CALLS: dict[str, tuple[Callable[[Channel], Any], str]] = {
    "a version before the first": (lambda c: c.read(-1), "VERSION_UNKNOWN"),
    "a version of 100 bits": (lambda c: c.read(10**30), "VERSION_UNKNOWN"),
    "files of a version of 64 bits": (lambda c: c.snapshot_files(1 << 63), "VERSION_UNKNOWN"),
    "a version of text": (lambda c: c.read("x"), "VERSION_UNKNOWN"),  # type: ignore[arg-type]
    "an unknown column": (lambda c: c.read(columns=["n", "nope"]), "COLUMN_UNKNOWN"),
    "a path with NUL": (lambda c: Channel.create(f"{c.path}/a\0b", SCHEMA), "STORAGE_URL_INVALID"),
    "an opened path with NUL": (lambda c: Channel.open(f"{c.path}/a\0b"), "STORAGE_URL_INVALID"),
    "a verified path with NUL": (lambda c: verify(f"{c.path}/a\0b"), "STORAGE_URL_INVALID"),
    "a path below a file": (lambda c: Channel.create(f"{c.path}/_delta_log/{0:020d}.json/x", SCHEMA), "STORAGE_FAILED"),
    "half of a character": (lambda c: c.append([], statements={}, transaction=("\ud800", 1), always=True), "COMMIT_REFUSED"),
    "a time of text": (lambda c: c.append([FILE], statements={"a": [0]}, times=[("x", 1)]), "TIME_"),
    "no time": (lambda c: c.append([FILE], statements={"a": [0]}, times=[(None, 1)]), "TIME_"),
    "a span of text": (lambda c: c.append([FILE], statements={"a": [0]}, spans=[Span("a", "b", 1)]), "TIME_"),
    "no capabilities": (lambda c: c.append([], statements={"a": None}), "TIME_"),  # type: ignore[dict-item]
    "a capability that is no list": (lambda c: c.append([], statements={"a": 3}), "TIME_"),  # type: ignore[dict-item]
    "a span back": (lambda c: c.append([FILE], statements={"a": [0]}, spans=[Span(5, 3, 1)]), "COMMIT_REFUSED"),
    "rows of 70 bits": (lambda c: many_rows(c, 1 << 70), "COMMIT_REFUSED"),
    "negative rows": (lambda c: many_rows(c, -3), "COMMIT_REFUSED"),
    "statistics with a key twice": (lambda c: twice(c, '{"numRecords":1,"numRecords":2}'), "COMMIT_REFUSED"),
    "bounds with a key twice": (lambda c: twice(c, '{"numRecords":1,"minValues":{"n":1,"n":2}}'), "COMMIT_REFUSED"),
    "a transaction of text": (lambda c: c.append([], statements={}, transaction="query"), "COMMIT_REFUSED"),  # type: ignore[arg-type]
    "a transaction of three": (lambda c: c.append([], statements={}, transaction=("q", 1, 2)), "COMMIT_REFUSED"),  # type: ignore[arg-type]
    "nothing read": (lambda c: c.append([], statements={"a": [1]}, reads=[None]), "COMMIT_REFUSED"),  # type: ignore[list-item]
    "a property of half a character": (lambda c: create(c, {"x": "\ud800"}), "TABLE_PROPERTY_INVALID"),
    "a property's name of half a character": (lambda c: create(c, {"\ud800": "x"}), "TABLE_PROPERTY_INVALID"),
    "a property that is a number": (lambda c: create(c, {"x": 5}), "TABLE_PROPERTY_INVALID"),
    "a property of bytes": (lambda c: create(c, {"x.y": b"a"}), "TABLE_PROPERTY_INVALID"),
    "properties that are no mapping": (lambda c: create(c, True), "TABLE_PROPERTY_INVALID"),  # type: ignore[arg-type]
    "a time column of half a character": (lambda c: Channel.create(f"{c.path}/b", SCHEMA, time="\ud800"), "COLUMN_NAME_INVALID"),
    "a time column of bytes": (lambda c: Channel.create(f"{c.path}/b", SCHEMA, time=b"a"), "COLUMN_NAME_INVALID"),  # type: ignore[arg-type]
    "no schema": (lambda c: Channel.create(f"{c.path}/b", None), "SCHEMA_MISMATCH"),
    "a schema of texts": (lambda c: Channel.create(f"{c.path}/b", ["a"]), "SCHEMA_MISMATCH"),
    "a domain that is none": (lambda c: Channel.create(f"{c.path}/b", SCHEMA, domain=5), "TIME_DOMAIN_INVALID"),  # type: ignore[arg-type]
    "no producers": (lambda c: Channel.create(f"{c.path}/b", SCHEMA, producers=None), "PRODUCER_NAME_INVALID"),  # type: ignore[arg-type]
    "a producer that is a list": (lambda c: c.producer([]), "PRODUCER_NAME_INVALID"),  # type: ignore[arg-type]
    "columns of texts": (lambda c: c.add_columns("a"), "SCHEMA_MISMATCH"),
    "columns that are no list": (lambda c: c.add_columns(5), "SCHEMA_MISMATCH"),
    "a column that is nothing": (lambda c: c.add_columns([None]), "SCHEMA_MISMATCH"),
    "an age of days": (lambda c: c.clean_log(5), "RETENTION_INVALID"),  # type: ignore[arg-type]
    "no statements": (lambda c: c.append([], statements=None), "COMMIT_REFUSED.*statements are None"),  # type: ignore[arg-type]
    "states that are a list": (lambda c: c.append([], statements={"a": [0]}, states=[1]), "COMMIT_REFUSED.*states are"),  # type: ignore[arg-type]
    "a move": (lambda c: c.append([], statements={"a": [0]}, moves=1), "COMMIT_REFUSED.*moves are 1"),  # type: ignore[arg-type]
    "no files": (lambda c: c.append(None, statements={"a": [0]}), "COMMIT_REFUSED.*files are None"),  # type: ignore[arg-type]
    "no times": (lambda c: c.append([FILE], statements={"a": [0]}, times=None), "COMMIT_REFUSED.*times are None"),  # type: ignore[arg-type]
    "no donors": (lambda c: c.append([], statements={"a": [0]}, donors=True), "COMMIT_REFUSED.*donors are True"),  # type: ignore[arg-type]
    "columns that are true": (lambda c: c.read(columns=True), "COLUMN_UNKNOWN"),  # type: ignore[arg-type]
    "progress at a text": (lambda c: c.progress_at("x"), "VERSION_UNKNOWN"),  # type: ignore[arg-type]
    "a frontier at nothing": (lambda c: c.frontier_at(None), "VERSION_UNKNOWN"),  # type: ignore[arg-type]
}


def many_rows(channel: Channel, rows: int) -> Any:
    return channel.append([DataFile("part.parquet", 9, rows)], statements={"a": [0]}, times=[(0, rows)])


def twice(channel: Channel, stats: str) -> Any:
    return channel.append([DataFile("part.parquet", 9, 1, stats)], statements={"a": [0]}, times=[(0, 1)])


def create(channel: Channel, properties: dict[str, Any]) -> Any:
    return Channel.create(f"{channel.path}/below", SCHEMA, configuration=properties)


@pytest.mark.parametrize("call", CALLS)
def test_odd_arguments_have_errors_with_names(tmp_path: Path, call: str) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    do, condition = CALLS[call]
    with pytest.raises(StrandlineError, match=f"STRANDLINE_{condition}"):
        do(channel)
    assert Channel.open(tmp_path / "in").version == channel.version == 0


def test_a_time_that_is_too_short_has_an_error_with_a_name(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", domain=product(epoch="int64", iter="int64"), producers=("a",))
    with pytest.raises(TimeError, match="STRANDLINE_TIME_"):
        channel.append([FILE], statements={"a": [(0, 0)]}, times=[((0,), 1)])


def test_files_may_be_any_iterable_and_nobody_has_a_transaction_of_half_a_character(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    assert channel.append((file for file in [FILE]), statements={"a": [0]}, times=[(0, 1)]) == channel.version
    assert channel.transaction_version("\ud800") is None
    assert channel.committed("\ud800") == -1
    assert channel.committed([]) == -1  # type: ignore[arg-type]


@pytest.mark.parametrize("days", [999_999, 999_999_999])
def test_a_log_has_nothing_that_is_older_than_the_calendar(tmp_path: Path, days: int) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", then=[1])
    assert channel.clean_log(timedelta(days=days)) == 0
    assert channel.log.exists(0)


def test_what_a_query_reads_does_not_hide_that_another_table_took_the_place(tmp_path: Path) -> None:
    path = tmp_path / "in"
    old = make_channel(path, producers=("a",))
    say(old, "a", then=[1])
    reader = Channel.open(path)
    path.rename(tmp_path / "moved")
    new = make_channel(path, producers=("a",))
    for _ in range(reader.version):
        new.append([], statements={"a": [0]}, always=True, reads=[Input(reader.table_id, 3, 0, str(tmp_path / "moved"), ())])
    with pytest.raises(LogError, match="STRANDLINE_CHANNEL_REPLACED"):
        reader.refresh()
    shutil.rmtree(path)
