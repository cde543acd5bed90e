"""`verify` of long logs, of logs that are cleaned up meanwhile, and of times that Python's own dates do not have."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from helpers import make_channel, say
from strandline.channel import Channel
from strandline.delta.storage import LocalStore, commit_name
from strandline.report import verify
from strandline.report.soundness import verify as module
from strandline.time.arrow import time_field
from strandline.time.domain import int64


def test_a_log_that_is_cleaned_up_while_it_is_read_is_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    for n in range(4):
        say(channel, "a", (n, n), then=[n])
    real, left = LocalStore.read, [2]

    def read(self: LocalStore, path: str, limit: int) -> bytes | None:
        if path == commit_name(2) and limit > 1 and left:
            left.pop()
            Channel.open(tmp_path / "in").clean_log(timedelta(0))
        return real(self, path, limit)

    monkeypatch.setattr(LocalStore, "read", read)
    found = verify(tmp_path / "in")
    assert (found.violation, left) == (None, [])
    (tmp_path / "in" / commit_name(found.version)).write_text("")
    assert verify(tmp_path / "in").violation is not None


def test_statistics_of_a_file_are_parsed_once_however_many_checkpoints_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    for n in range(6):
        say(channel, "a", (n, n))
        channel.checkpoint()
    parsed: list[Any] = []
    real = module._statistics
    monkeypatch.setattr(module, "_statistics", lambda text: (parsed.append(text), real(text))[1])
    assert verify(tmp_path / "in").violation is None
    assert len(parsed) == len(set(parsed)) <= 12  # the log's text, and the checkpoint's


def test_each_checkpoint_is_compared_with_the_files_of_its_own_version(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    versions = []
    for n in range(3):
        say(channel, "a", (n, n))
        versions.append(channel.checkpoint())
    DeltaTable(channel.path).optimize.compact()
    channel = Channel.open(channel.path)
    versions.append(channel.checkpoint())
    assert verify(channel.path).violation is None
    log = tmp_path / "in" / "_delta_log"
    for earlier, later in pairwise(versions):
        file = log / f"{earlier:020d}.checkpoint.parquet"
        good = file.read_bytes()
        file.write_bytes((log / f"{later:020d}.checkpoint.parquet").read_bytes())
        violation = verify(channel.path).violation
        assert violation is not None
        assert (violation.version, violation.field) == (earlier, f"_delta_log/{file.name}, add")
        file.write_bytes(good)


def test_times_beyond_the_year_9999_are_compared_after_optimize(tmp_path: Path) -> None:
    far = pa.array([1 << 62, -(1 << 62)], pa.int64()).cast(pa.timestamp("us", "UTC"))
    kinds = {
        "at": far,
        "within": pa.array([{"at": None}, None], pa.struct([("at", far.type)])),
        "some": pa.array([[], None], pa.list_(far.type)),
    }
    schema = pa.schema([time_field("time", int64), *((name, array.type) for name, array in kinds.items())])
    channel = Channel.create(tmp_path / "in", schema, producers=["a"], at=0)
    with channel.producer("a") as a:
        for _ in range(2):
            a.send(pa.table({"time": [0, 0], **kinds}).cast(channel.schema))
            a.commit()
    DeltaTable(channel.path).optimize.compact()
    assert verify(channel.path).violation is None
    newest = tmp_path / "in" / commit_name(Channel.open(channel.path).version)
    assert json.loads(newest.read_text().splitlines()[0])  # OPTIMIZE made it
