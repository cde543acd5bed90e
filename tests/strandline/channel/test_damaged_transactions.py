"""Transactions in the log: damaged ones, those of a log that was cleaned up, and checkpoints on a full disk."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from helpers import make_channel, rows, say
from strandline.channel import Channel, ChannelError, StorageError
from strandline.report import verify
from strandline.time.domain import int64


@pytest.mark.parametrize("version", ["9223372036854775808", '"x"', "1.5", "null", "{}"])
def test_a_damaged_transaction_has_errors_with_names(tmp_path: Path, version: str) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (0, 1))
    newest = tmp_path / "in" / "_delta_log" / f"{channel.version:020d}.json"
    lines = newest.read_text().splitlines()
    info = json.loads(lines[0])
    statement = json.loads(info["commitInfo"]["userMetadata"])
    statement["strandline"]["actions"] += 1
    info["commitInfo"]["userMetadata"] = json.dumps(statement)
    damaged = '{"txn":{"appId":"q","version":@,"lastUpdated":1}}'.replace("@", version)
    newest.write_text("\n".join([json.dumps(info), *lines[1:], damaged]) + "\n")
    uses: list[Callable[[], object]] = [
        lambda: Channel.open(tmp_path / "in").committed("q"),
        lambda: Channel.open(tmp_path / "in").transaction_version("other"),
        lambda: Channel.open(tmp_path / "in").append([], statements={"a": [0]}, transaction=("q", 1), always=True),
        lambda: Channel.open(tmp_path / "in").checkpoint(),
    ]
    for use in uses:
        with suppress(ChannelError):  # any other error fails the test
            use()
    assert verify(tmp_path / "in").violation is not None
    with pytest.raises(ChannelError, match=r"STRANDLINE_COMMIT_INVALID.*txn action"):
        channel.log.require(channel.version).transactions  # noqa: B018


@pytest.mark.parametrize("by_itself", [False, True])
def test_a_channel_that_was_open_while_its_log_was_cleaned_up_knows_its_transactions(tmp_path: Path, by_itself: bool) -> None:
    writer = make_channel(tmp_path / "in", producers=("a",))
    with writer.file_writer() as file:
        file.write(rows(int64, (1, 1)))
        files, times = file.finish()
    writer.append(files, statements={"a": [1]}, times=times, transaction=("q", 7), owner="writer")
    opened = Channel.open(tmp_path / "in")
    assert (opened if by_itself else writer).clean_log(timedelta(0)) == 1
    for version in (5, 7):
        assert opened.append([], statements={"a": [4]}, transaction=("q", version), owner="writer") is None
    assert opened.append([], statements={"a": [5]}, transaction=("q", 8), owner="writer") == 2
    assert opened.append([], statements={"a": [6]}, transaction=("new", 0), owner="writer") == 3


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(disk)], capture_output=True).returncode:
        pytest.skip("this user cannot mount a disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_checkpoint_on_a_full_disk_is_named(small_disk: Path) -> None:
    channel = make_channel(small_disk / "in", producers=("a",))
    say(channel, "a", (0, 1))
    free = os.statvfs(small_disk)
    (small_disk / "fill").write_bytes(bytes(free.f_bavail * free.f_frsize - 8192))
    with pytest.raises(StorageError, match=r"STRANDLINE_STORAGE_FAILED.*No space left on device.*Free space"):
        channel.checkpoint()
    (small_disk / "fill").unlink()
    channel.checkpoint()
    assert Channel.open(small_disk / "in").read().num_rows == 1
