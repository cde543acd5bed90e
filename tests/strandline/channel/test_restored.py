"""A log that was restored to an earlier state and written on is another log: whoever has read the lost commits notices."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from helpers import make_channel, say
from strandline.channel import Channel, Commit
from strandline.delta.storage import LocalStore, commit_name
from strandline.delta.table import Table
from strandline.errors import LogError

REPLACED = "STRANDLINE_CHANNEL_REPLACED.*is not the one that was read before"


class Folder:
    """A channel's folder, a backup of it, and what happens after the backup."""

    def __init__(self, path: Path) -> None:
        self.path, self._backup = path, path.with_name("backup")
        make_channel(path, producers=("a",))
        say(self.open(), "a", (0, 0))
        shutil.copytree(path, self._backup)

    def open(self) -> Channel:
        return Channel.open(self.path)

    def restore(self) -> None:
        shutil.rmtree(self.path)
        shutil.copytree(self._backup, self.path)

    def write(self, *numbers: int) -> None:
        for n in numbers:
            say(self.open(), "a", (0, n))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "in")


@pytest.mark.parametrize("more", [0, 1], ids=["to the same version", "to a later version"])
def test_a_reader_does_not_go_on_in_another_log(folder: Folder, more: int) -> None:
    folder.write(1, 2)
    reader = folder.open()
    folder.restore()
    folder.write(101, 102, *range(more))
    assert reader.was_replaced()
    for _ in range(2):
        with pytest.raises(LogError, match=f"{REPLACED}.*restored to an earlier state"):
            reader.refresh()
    assert not folder.open().was_replaced()
    assert sorted(folder.open().read()["n"].to_pylist()) == [0, *range(more), 101, 102]


def test_a_writer_does_not_write_after_another_log(folder: Folder) -> None:
    """It knows its own last commit without having read it."""
    writer = folder.open()
    session = writer.producer("a", owner="one")
    session.send(pa.table({"time": [0], "key": ["k"], "n": [1]}))
    session.commit()
    folder.restore()
    folder.write(*range(101, 104))
    version = folder.open().version
    session.send(pa.table({"time": [0], "key": ["k"], "n": [2]}))
    with pytest.raises(LogError, match=REPLACED):
        session.commit()
    assert folder.open().version == version


OTHERS: dict[str, Callable[[Path, Channel], object]] = {
    "OPTIMIZE": lambda path, channel: DeltaTable(str(path)).optimize.compact(),
    "a statement without an id": lambda path, channel: without_id(path, channel.version),
}


def without_id(path: Path, version: int) -> None:
    """As another writer may write the commit."""
    file = path / commit_name(version)
    text = file.read_text()
    identity = Commit(version, text.encode()).identity
    file.write_text(text.replace(f',\\"id\\":\\"{identity}\\"', ""))


@pytest.mark.parametrize("kind", OTHERS)
def test_a_commit_without_an_id_is_known_by_its_text(folder: Folder, kind: str) -> None:
    folder.write(1, 2)
    OTHERS[kind](folder.path, folder.open())
    reader = folder.open()
    assert Commit(reader.version, (folder.path / commit_name(reader.version)).read_bytes()).identity == reader.progress.identity
    assert reader.refresh() == []
    newest = folder.path / commit_name(reader.version)
    before = newest.read_bytes()
    newest.write_bytes(before.replace(b'"timestamp":', b'"timestamp":9', 1))
    with pytest.raises(LogError, match=REPLACED):
        reader.refresh()
    newest.write_bytes(before)
    folder.write(3)
    assert [len(commit.files) for commit in reader.refresh() if commit.files] == [1]


def test_a_reader_goes_on_where_the_log_was_cleaned_up(folder: Folder) -> None:
    folder.write(1)
    reader = folder.open()
    at = reader.version
    folder.write(2)
    newest = folder.open().version
    (folder.path / commit_name(at)).unlink()
    assert [commit.version for commit in reader.refresh()] == list(range(at + 1, newest + 1))


def test_a_stalled_writer_does_not_commit_into_a_gap_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it stands still before its commit, others write the version, and the log is cleaned up beyond it."""
    path = tmp_path / "in"
    channel = make_channel(path)
    session = channel.producer("a")
    session.send(pa.table({"time": [0], "key": ["k"], "n": [42]}))
    commit, stalled = Table.commit, []

    def stall(table: Table, version: int, *others: Any) -> bool:
        if not stalled:
            stalled.append(version)
            for n in range(3):
                say(Channel.open(path), "b", (0, n))
            for _ in range(2):
                Channel.open(path).clean_log(timedelta(0))
            assert not (path / commit_name(version)).exists()
        return commit(table, version, *others)

    monkeypatch.setattr(Table, "commit", stall)
    monkeypatch.setattr(channel.log.store, "turn", lambda _: nullcontext())  # the others waited in vain, and went on without
    with pytest.raises(LogError, match="STRANDLINE_LOG_TRUNCATED.*A writer .* looks whether its rows are there"):
        session.commit()
    assert not (path / commit_name(stalled[0])).exists()
    assert sorted(Channel.open(path).read()["n"].to_pylist()) == [0, 1, 2]


def others_go_on(path: Path) -> None:
    for n in range(2):
        say(Channel.open(path), "b", (0, n))
        Channel.open(path).clean_log(timedelta(0))


def test_a_commit_that_others_have_read_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its writer waits for the disk after the commit got its name. Meanwhile the log before it is cleaned up."""
    path = tmp_path / "in"
    channel = make_channel(path)
    session = channel.producer("a")
    session.send(pa.table({"time": [0], "key": ["k"], "n": [42]}))
    version = channel.version + 1
    sync = LocalStore.sync_commit

    def slow(store: LocalStore, name: str, *, content: bool = True) -> None:
        if name == commit_name(version) and not channel.log.exists(version + 1):
            say(Channel.open(path), "b", (0, 1))
            monkeypatch.setattr(LocalStore, "sync_commit", sync)
            log = Channel.open(path)
            log.checkpoint()
            for old in range(version):
                log.log.store.delete(commit_name(old))  # as clean_log, with this commit still too young
        sync(store, name, content=content)

    monkeypatch.setattr(LocalStore, "sync_commit", slow)
    monkeypatch.setattr(channel.log.store, "turn", lambda _: nullcontext())
    session.commit()
    assert channel.log.exists(version)
    assert sorted(Channel.open(path).read()["n"].to_pylist()) == [1, 42]


def test_a_writer_that_stood_still_while_its_commit_got_its_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "in"
    channel = make_channel(path)
    session = channel.producer("a")
    session.send(pa.table({"time": [0], "key": ["k"], "n": [42]}))
    version, link = channel.version + 1, os.link

    def stall(source: str, name: str) -> None:
        monkeypatch.setattr(os, "link", link)
        others_go_on(path)
        assert not channel.log.exists(version)
        link(source, name)

    monkeypatch.setattr(os, "link", stall)
    monkeypatch.setattr(channel.log.store, "turn", lambda _: nullcontext())
    with pytest.raises(LogError, match="STRANDLINE_LOG_TRUNCATED.*A writer .* looks whether its rows are there"):
        session.commit()
    assert sorted(Channel.open(path).read()["n"].to_pylist()) == [0, 1]
