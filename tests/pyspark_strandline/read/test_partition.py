"""Partitions of the Python read: every row once, however files are packed and shared."""

from __future__ import annotations

import dataclasses
import json

import pyarrow as pa
import pytest

from native_scans import add_file
from pyspark_strandline.read import input_partition as partition
from pyspark_strandline.read.native_scan import Decision
from strandline.channel import Channel
from strandline.delta.storage import open_store
from strandline.time.arrow import time_field
from strandline.time.domain import int64

SCHEMA = pa.schema([time_field("time", int64), ("n", pa.int64())])


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Channel:
    """Files of one to fifty row groups."""
    made = Channel.create(tmp_path_factory.mktemp("channel") / "in", SCHEMA, producers=["a"])
    for i, rows in enumerate((100, 5000, 700, 2300)):
        numbers = range(10_000 * i, 10_000 * i + rows)
        add_file(made, f"{i}.parquet", pa.table({"time": numbers, "n": numbers}), row_group_size=100)
    return made


@pytest.mark.parametrize(("max_bytes", "at_least"), [(128 << 20, 1), (20_000, 1), (7_000, 5), (1 << 30, 3)])
def test_every_row_is_in_one_partition(channel: Channel, max_bytes: int, at_least: int) -> None:
    files = channel.snapshot_files()
    planned = partition.plan(Decision(files, reason="a test"), max_bytes, at_least)
    assert [json.loads(p.value).get("scan") for p in planned] == [{"native": False, "reason": "a test"}] + [None] * (
        len(planned) - 1
    )
    store = open_store(channel.path)
    read = [batch for p in planned for batch in partition.read(store, p, pa.schema([("n", pa.int64())]), True)]
    got = [n for batch in read for n in batch.column("n").to_pylist()]
    assert sorted(got) == sorted(n for n in channel.read().column("n").to_pylist())
    shared = [json.loads(p.value).get("shared", []) for p in planned]
    assert any(shared) == (max_bytes < max(file.size for file in files))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("size", [10**14, 2**62, 2**63 - 1])
def test_a_false_size_does_not_make_partitions_without_end(channel: Channel, size: int) -> None:
    files = [dataclasses.replace(file, size=size) for file in channel.snapshot_files()]
    assert len(partition.plan(Decision(files, reason="a test"), 128 << 20, None)) < 25_000


def test_what_is_handed_over_has_every_file_once(channel: Channel) -> None:
    files = channel.snapshot_files()
    (handed,) = partition.hand_over(Decision(files, root="/t"))
    value = json.loads(handed.value)
    assert value["scan"] == {"native": True, "root": "/t", "ignoreMissingFiles": False, "required": False}
    assert (value["paths"], value["sizes"]) == ([f.path for f in files], [f.size for f in files])
    assert "shared" not in value
