"""Symbolic links in a table's folder: those within it are followed, those out of it are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import make_channel, rows
from strandline.channel import Channel, ChannelError
from strandline.report import verify
from strandline.time.domain import int64


@pytest.mark.parametrize("what", ["file", "folder"])
@pytest.mark.parametrize("outside", [True, False])
def test_a_link_is_followed_only_within_the_table(tmp_path: Path, what: str, outside: bool) -> None:
    table = tmp_path / "table"
    channel = make_channel(table, producers=("a",))
    writer = channel.file_writer()
    writer.write(rows(int64, (0, 7)))
    (file,), times = writer.finish()
    there = (tmp_path if outside else table) / "elsewhere"
    there.mkdir()
    (table / file.path).rename(there / file.path)
    link, target = (table / "link", there) if what == "folder" else (table / file.path, there / file.path)
    link.symlink_to(target, target_is_directory=what == "folder")
    name = f"link/{file.path}" if what == "folder" else file.path
    channel.append([type(file)(name, file.size, file.rows, file.stats)], statements={"a": [0]}, times=times)
    reader = Channel.open(table)
    if outside:
        with pytest.raises(ChannelError, match=r"STRANDLINE_PATH_OUTSIDE_TABLE.*symbolic link"):
            reader.read()
        assert verify(table).violation is not None
    else:
        assert reader.read().column("n").to_pylist() == [7]


@pytest.mark.parametrize("what", ["commit", "checkpoint", "hint", "log"])
def test_a_link_in_the_log_is_followed_only_within_the_table(tmp_path: Path, what: str) -> None:
    """deltalake follows links of commits and checkpoints, so it is asked only if there are none."""
    table = tmp_path / "table"
    channel = make_channel(table, producers=("a",))
    channel.append([], statements={"a": [1]})
    channel.checkpoint()
    log = table / "_delta_log"
    secret = tmp_path / "secret"
    secret.write_text("password=hunter2")
    if what == "commit":
        (log / f"{channel.version + 1:020d}.json").symlink_to(secret)
    else:
        names = {"checkpoint": next(log.glob("*.checkpoint.parquet")), "hint": log / "_last_checkpoint", "log": log}
        names[what].rename(tmp_path / "outside")
        names[what].symlink_to(tmp_path / "outside")
    with pytest.raises(ChannelError, match=r"STRANDLINE_PATH_OUTSIDE_TABLE.*symbolic link") as raised:
        Channel.open(table)
    assert "hunter2" not in str(raised.value)
    if what == "checkpoint":
        inside = table / "elsewhere"
        (tmp_path / "outside").rename(inside)
        names[what].unlink()
        names[what].symlink_to(inside)
        assert Channel.open(table).version == channel.version


def test_the_folder_of_a_table_may_be_a_link(tmp_path: Path) -> None:
    make_channel(tmp_path / "table", producers=("a",))
    (tmp_path / "link").symlink_to(tmp_path / "table")
    channel = Channel.open(tmp_path / "link")
    with channel.producer("a") as producer:
        producer.send(rows(int64, (0, 7)))
    assert Channel.open(tmp_path / "link").read().num_rows == 1
