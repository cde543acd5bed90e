"""Cleaning a log: what a reader needs to begin again stays, and the log does not grow by being cleaned."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql.streaming.datasource import ReadAllAvailable

from helpers import make_channel, rows, say
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.source import StreamReader
from pyspark_strandline.schema import spark_schema
from strandline.channel import Channel, ChannelError, cleaning
from strandline.delta.storage import commit_name
from strandline.report import verify
from strandline.time.antichain import Antichain
from strandline.time.domain import int64


def source_of(path: Path, **options: str) -> StreamReader:
    channel = Channel.open(path)
    options["path"] = str(path)
    return StreamReader(ReadOptions.parse(options), spark_schema(channel.schema, channel.time_column, channel.domain))


def clean(path: Path) -> int:
    return Channel.open(path).clean_log(timedelta(0))


def optimize(path: Path) -> None:
    DeltaTable(str(path)).optimize.compact()


def repeat(path: Path) -> None:
    Channel.open(path).checkpoint()


def versions(path: Path) -> list[int]:
    return sorted(Channel.open(path).log.versions())


NIGHTS: dict[str, list[Callable[[Path], object]]] = {
    "clean": [clean],
    "clean twice": [clean, clean],
    "optimize": [optimize, clean],
    "copy": [repeat, clean],
    "a week": [optimize, clean, repeat] * 7,
}


@pytest.mark.drawn
@pytest.mark.parametrize("night", NIGHTS)
@pytest.mark.parametrize("producers", [1, 40])
def test_a_reader_that_has_read_everything_starts_again_after_maintenance(tmp_path: Path, night: str, producers: int) -> None:
    path = tmp_path / "in"
    channel = make_channel(path, producers=("a", *(f"p{n}" for n in range(1, producers))))
    for n in range(3):
        say(channel, "a", (n, n), then=[n + 1])
    reader = source_of(path)
    at = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    for step in NIGHTS[night]:
        step(path)
        assert reader.latestOffset(at, ReadAllAvailable()) == at  # the running query has nothing to do
    assert source_of(path).latestOffset(at, ReadAllAvailable()) == at
    say(Channel.open(path), "a", (9, 9), then=[10])
    running, again = reader.latestOffset(at, ReadAllAvailable()), source_of(path).latestOffset(at, ReadAllAvailable())
    assert running == again != at
    assert verify(path).sound


def test_a_log_is_not_kept_longer_than_readers_need_it_and_does_not_grow_by_being_cleaned(tmp_path: Path) -> None:
    path = tmp_path / "in"
    channel = make_channel(path, producers=("a", "b"))
    for n in range(3):
        say(channel, "a", (n, n), then=[n + 1])
        say(channel, "b", then=[n + 1])
    newest = max(commit.version for commit in channel.log.tail(0) if commit.files)
    optimize(path)
    assert clean(path) == newest
    left = versions(path)
    assert left[0] == newest
    for _ in range(3):
        optimize(path)
        assert clean(path) == 0
    assert versions(path) == left
    for version in versions(path):
        assert DeltaTable(str(path), version=version).to_pyarrow_table().num_rows == 3  # the first one has a checkpoint
    say(Channel.open(path), "a", (7, 7), then=[8])
    assert clean(path) > 3
    assert Channel.open(path).read().num_rows == 4
    assert verify(path).sound


def test_a_channel_that_only_moves_is_cleaned_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query of a loop may not have taken the moves. So they stay, but not very many of them."""
    path = tmp_path / "in"
    channel = make_channel(path, producers=("a",))
    say(channel, "a", (0, 0), then=[1])
    for n in range(2, 20):
        channel.append([], statements={"a": Antichain(int64, [n])}, owner="q")
    assert clean(path) == 2  # the newest rows stay
    monkeypatch.setattr(cleaning, "_MOST_WITHOUT_ROWS", 10)
    quiet = [channel.append([], statements={"a": Antichain(int64, [19])}, owner="q", always=True) for _ in range(3)]
    clean(path)
    assert versions(path) == [channel.version - len(quiet), *quiet]


def test_the_files_of_other_engines_go_with_their_commits(tmp_path: Path) -> None:
    path = tmp_path / "in"
    channel = make_channel(path, producers=("a",))
    say(channel, "a", (0, 0), then=[1])
    crc = [path / commit_name(version).replace(".json", ".crc") for version in range(channel.version + 1)]
    for file in crc:
        file.write_text("{}")
    assert 0 < clean(path) == sum(not file.exists() for file in crc) < len(crc)


@pytest.mark.drawn
@pytest.mark.parametrize("producers", [3, 40])
def test_every_reader_within_the_retention_starts_again(tmp_path: Path, producers: int) -> None:
    """With more than 32 producers only some commits repeat all statements, and a reader needs one at or before its place."""
    path = tmp_path / "in"
    channel = make_channel(path, producers=tuple(f"p{n}" for n in range(producers)))
    young = 0
    for n in range(60):
        if n == 45:
            time.sleep(0.05)
            young, cutoff = channel.version + 1, time.time()
            time.sleep(0.05)
        holds = {"p0": Antichain(int64, [n])} | {f"p{k}": Antichain(int64, [n]) for k in range(producers) if n % 10 == 0}
        with channel.file_writer() as writer:
            writer.write(rows(int64, (n, n)))
            files = writer.finish()[0]
        channel.append(files, statements=holds, times=[(n, 1)], owner="q")
    reader = source_of(path, maxFilesPerTrigger="1")
    offsets = [reader.initialOffset()]
    while (end := reader.latestOffset(offsets[-1], reader.getDefaultReadLimit())) != offsets[-1]:
        offsets.append(end)
    removed = channel.clean_log(timedelta(seconds=time.time() - cutoff))
    assert 0 < removed <= young
    assert versions(path) == list(range(removed, channel.version + 1))
    for version in range(removed, channel.version + 1):
        Channel.open(path).frontier_at(version)
        DeltaTable(str(path), version=version)
    within = [offset for offset in offsets if offset["commit"] >= young]
    assert len(within) > 10
    for offset in within:
        again = source_of(path)
        assert again.latestOffset(offset, ReadAllAvailable()) == offsets[-1]
    assert verify(path).sound


def test_commits_of_another_engine_alone_are_cleaned_too(tmp_path: Path) -> None:
    """It repeats no statements. So cleaning makes a copy, at most one for a hundred commits."""
    path = tmp_path / "in"
    channel = make_channel(path, producers=("a",))
    say(channel, "a", (0, 0), then=[1])
    first = channel.version
    for version in range(first + 1, first + 105):
        text = json.dumps({"commitInfo": {"timestamp": 1, "operation": "OPTIMIZE"}})
        (path / commit_name(version)).write_text(text + "\n")
    for _ in range(3):
        clean(path)
    assert Channel.open(path).version == first + 105
    say(Channel.open(path), "a", (1, 1), then=[2])
    clean(path)
    assert len(versions(path)) <= 3


@pytest.mark.parametrize("newest", [True, False])
def test_a_read_without_a_file_offers_a_newer_version_only_where_that_helps(newest: bool, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "c", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    say(channel, "a", (2, 1), then=[3])
    before = channel.version
    gone = channel.snapshot_files()[0].path
    if not newest:
        DeltaTable(channel.path).optimize.compact()
    (tmp_path / "c" / gone).unlink()
    with pytest.raises(ChannelError, match="STRANDLINE_FILE_MISSING") as caught:
        channel.read(before)
    assert ("Read a newer version" in caught.value.remedy) is not newest
