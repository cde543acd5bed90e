"""A sync that fails: the call raises, and the next one does not return before the commit was written anew and synced."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers import make_channel, rows
from ingest_bench import Bench
from strandline.channel import Channel, ChannelError, StorageError
from strandline.delta import storage
from strandline.delta.data_file import DataFile
from strandline.delta.storage import LOG_DIR
from strandline.ingest import ordered
from strandline.scope import Scope
from strandline.scope.definition_log import SCOPE_DIR
from strandline.time.domain import int64


class Disk:
    """Syncs of the log's folder fail so often; the value notes what was synced, and with which inode."""

    def __init__(self) -> None:
        self.fails = 0
        self.synced: list[str] = []
        self._real = storage._sync

    def sync(self, path: str) -> None:
        if os.path.basename(os.path.normpath(path)) == LOG_DIR and self.fails:
            self.fails -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._real(path)
        self.synced.append(os.path.normpath(path))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk()
    monkeypatch.setattr(storage, "_sync", made.sync)
    yield made
    storage._unsettled.clear()
    storage._unsynced_folders.clear()


def written(channel: Channel) -> dict[str, object]:
    writer = channel.file_writer()
    writer.write(rows(int64, (0, 1)))
    files, times = writer.finish()
    return {"files": files, "times": times, "statements": {"a": [3]}}


CALLS: dict[str, Callable[[Channel, dict[str, object]], int | None]] = {
    "seal": lambda c, _: c.seal(),
    "delay_registrar": lambda c, _: c.delay_registrar(5),
    "register": lambda c, _: c.register(["x"]),
    "append without files": lambda c, _: c.append([], statements={"a": [3]}),
    "append with a transaction": lambda c, a: c.append(**a, transaction=("q", 1)),  # type: ignore[arg-type]
    "append": lambda c, a: c.append(**a),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("fails", [1, 3])
def test_a_failed_sync_is_an_error_until_the_commit_was_written_anew(tmp_path: Path, disk: Disk, call: str, fails: int) -> None:
    path = tmp_path / "in"
    channel = make_channel(path, producers=())
    channel.producer("a").close()
    arguments = written(channel)
    before, disk.fails = channel.version, fails
    for _ in range(fails):
        with pytest.raises(StorageError, match="STRANDLINE_STORAGE_FAILED.*Input/output error"):
            CALLS[call](channel, arguments)
    newest = path / LOG_DIR / f"{before + 1:020d}.json"
    made, content = newest.stat().st_ino, newest.read_bytes()
    disk.synced.clear()
    CALLS[call](channel, arguments)
    # The system may have dropped the first one: it is another file now, and its name was synced.
    assert newest.stat().st_ino != made
    assert newest.read_bytes() == content
    assert str(path / LOG_DIR) in disk.synced
    assert Channel.open(path).version == before + 1
    assert not list(path.glob(f"{LOG_DIR}/.strandline-*"))


def test_another_object_writes_the_commit_anew(tmp_path: Path, disk: Disk) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    arguments = written(channel)
    disk.fails = 1
    with pytest.raises(StorageError):
        channel.append(**arguments, transaction=("q", 1))  # type: ignore[arg-type]
    disk.synced.clear()
    again = Channel.open(tmp_path / "in")
    assert again.append(**arguments, transaction=("q", 1)) is None  # type: ignore[arg-type]
    assert str(tmp_path / "in" / LOG_DIR) in disk.synced
    assert again.read().num_rows == 1


def test_a_replayed_transaction_is_synced_before_it_is_called_done(tmp_path: Path, disk: Disk) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    arguments = written(channel)
    channel.append(**arguments, transaction=("q", 1))  # type: ignore[arg-type]
    disk.synced.clear()
    assert Channel.open(tmp_path / "in").append(**arguments, transaction=("q", 1)) is None  # type: ignore[arg-type]
    assert str(tmp_path / "in" / LOG_DIR) in disk.synced


def test_a_new_channel_whose_sync_fails_is_an_error(tmp_path: Path, disk: Disk) -> None:
    disk.fails = 1
    with pytest.raises(StorageError, match="Input/output error"):
        make_channel(tmp_path / "in", producers=("a",))
    with pytest.raises(ChannelError, match="STRANDLINE_CHANNEL_EXISTS"):
        make_channel(tmp_path / "in", producers=("a",))
    channel = Channel.open(tmp_path / "in")
    disk.synced.clear()
    channel.append([], statements={"a": [1]})
    assert str(tmp_path / "in" / LOG_DIR / f"{0:020d}.json") in disk.synced


def test_a_commit_that_somebody_deleted_is_not_written_anew(tmp_path: Path, disk: Disk) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    disk.fails = 1
    with pytest.raises(StorageError):
        channel.append([], statements={"a": [1]})
    shutil.rmtree(tmp_path / "in")
    anew = make_channel(tmp_path / "in", producers=("b",))
    anew.append([], statements={"b": [1]})
    assert Channel.open(tmp_path / "in").producers.keys() == {"b"}


def test_all_folders_of_a_new_channel_are_synced(tmp_path: Path, disk: Disk) -> None:
    make_channel(tmp_path / "lake" / "2026" / "in", producers=("a",))
    assert {str(tmp_path), str(tmp_path / "lake"), str(tmp_path / "lake" / "2026")} <= set(disk.synced)


def test_a_channel_is_not_made_before_the_names_of_its_folders_are_synced(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not by a second call, which finds the folders that the first one has made."""

    def fails(path: str) -> None:
        if os.path.normpath(path) == str(tmp_path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        disk.sync(path)

    path = tmp_path / "lake" / "2026" / "in"
    with monkeypatch.context() as patch:
        patch.setattr(storage, "_sync", fails)
        for _ in range(2):
            with pytest.raises(StorageError, match="STRANDLINE_STORAGE_FAILED.*Input/output error"):
                make_channel(path, producers=("a",))
    assert not Channel.exists(path)
    disk.synced.clear()
    make_channel(path, producers=("a",))
    assert {str(tmp_path), str(tmp_path / "lake"), str(tmp_path / "lake" / "2026")} <= set(disk.synced)


def test_a_replayed_batch_of_an_ingest_is_synced_before_it_is_called_done(tmp_path: Path, disk: Disk) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((1, "a", 0))
    reports = bench.take([(2, "a", 1)])
    disk.fails = 1
    with pytest.raises(StorageError):
        bench.commit(reports)
    log = tmp_path / "channel" / LOG_DIR
    newest = max(log.glob("*.json"))
    made = newest.stat().st_ino
    disk.synced.clear()
    assert bench.commit(reports) is None  # as Spark does
    assert newest.stat().st_ino != made
    assert {str(newest), str(log)} <= set(disk.synced)
    disk.synced.clear()
    bench.restart()
    assert bench.commit(reports) is None  # a process that died between the commit and its sync
    assert {str(newest), str(log)} <= set(disk.synced)


def test_a_change_of_a_scope_is_synced_before_it_is_called_done(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    Scope.create(tmp_path / "scope", int64)
    make_channel(tmp_path / "in", producers=("a",))
    failing = [True]

    def fails(path: str) -> None:
        if path.endswith(SCOPE_DIR) and failing:
            failing.pop()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        disk.sync(path)

    monkeypatch.setattr(storage, "_sync", fails)
    scope = Scope.open(tmp_path / "scope")
    with pytest.raises(StorageError):
        scope.add_channel("in", tmp_path / "in")
    for again in (
        lambda: scope.add_channel("in", tmp_path / "in"),
        lambda: Scope.create(tmp_path / "scope", int64, exist_ok=True),
    ):
        disk.synced.clear()
        again()
        assert str(tmp_path / "scope" / SCOPE_DIR) in disk.synced


def test_a_repeated_append_is_recognised_whatever_came_in_between(tmp_path: Path, disk: Disk) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    first, between, third = (written(channel) | {"statements": {"a": [0]}} for _ in range(3))
    disk.fails = 1
    with pytest.raises(StorageError):
        channel.append(**first)  # type: ignore[arg-type]
    channel.append([], statements={"a": [0]}, always=True)
    channel.append(**between, transaction=("q", 1))  # type: ignore[arg-type]
    with pytest.raises(ChannelError, match="STRANDLINE_COMMIT_WAS_MADE"):
        channel.append(**third)  # type: ignore[arg-type]
    channel.append(**third)  # type: ignore[arg-type]
    mixed: list[DataFile] = [*first["files"], *written(channel)["files"]]  # type: ignore[misc]
    for _ in range(2):
        with pytest.raises(ChannelError, match="STRANDLINE_COMMIT_WAS_MADE"):
            channel.append(mixed, times=[(0, 2)], statements={"a": [0]})
    assert channel.append(**first) == 1  # type: ignore[arg-type]
    read = [n for commit in channel.log.tail(0) for n in channel.read_files(commit.files).column("n").to_pylist()]
    assert len(read) == 3
