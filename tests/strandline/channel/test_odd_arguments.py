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
from strandline.channel import Channel, ChannelError, LogError
from strandline.channel.statements.inputs import Input
from strandline.report import verify
from strandline.time.arrow import time_field
from strandline.time.domain import int64

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
}


@pytest.mark.parametrize("call", CALLS)
def test_odd_arguments_have_errors_with_names(tmp_path: Path, call: str) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    do, condition = CALLS[call]
    with pytest.raises(ChannelError, match=f"STRANDLINE_{condition}"):
        do(channel)


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
