"""What a producer was told is on the disk: synced before the commit that names it, and the commit before its producer is told."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from helpers import make_channel, rows
from strandline.channel import Channel, ChannelError
from strandline.delta.storage import open_store
from strandline.time.domain import int64

Observation = list[tuple[str, str]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Observation:
    """What is synced and linked, in this order, by path."""
    found: Observation = []
    fsync, link = os.fsync, os.link

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        found.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))

    def linked(source: str, target: str) -> None:
        link(source, target)
        found.append(("link", target))

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    return found


def kinds(seen: Observation, root: Path) -> list[str]:
    """The events in short, each name by what it is."""

    def kind(path: str) -> str:
        name = Path(path).relative_to(root.parent).as_posix().replace(root.name, "T", 1)
        if name.endswith(".parquet") and "/_delta_log/" not in name:
            return "rows"
        return "draft" if "/.strandline-" in name else name

    return [f"{what} {kind(path)}" for what, path in seen]


def test_rows_then_the_commit_then_its_name_are_synced(tmp_path: Path, seen: Observation) -> None:
    root = tmp_path / "in"
    with make_channel(root, producers=("a",)).producer("a") as producer:
        seen.clear()
        producer.send(rows(int64, (1, 1)))
        producer.delay([2])
        producer.commit()
        committed = kinds(seen, root)
        version = Channel.open(root).version
    name = f"T/_delta_log/{version:020d}.json"
    assert committed == ["sync rows", "sync T", "sync draft", f"link {name}", "sync T/_delta_log"]


def test_a_commit_is_synced_where_the_file_system_has_no_links(
    tmp_path: Path, seen: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    root = tmp_path / "in"
    with make_channel(root, producers=("a",)).producer("a") as producer:
        seen.clear()
        producer.send(rows(int64, (1, 1)))
        producer.commit()
        name = f"T/_delta_log/{Channel.open(root).version:020d}.json"
        assert kinds(seen, root) == ["sync rows", "sync T", "sync draft", f"sync {name}", "sync T/_delta_log", "sync T"]


def test_a_new_channel_and_a_checkpoint_are_synced(tmp_path: Path, seen: Observation) -> None:
    root = tmp_path / "in"
    channel = make_channel(root, producers=("a",))
    made = kinds([event for event in seen if Path(event[1]) != tmp_path], root)
    assert made[:3] == [f"sync T/_delta_log/{0:020d}.json", "sync T/_delta_log", "sync T"]
    assert ("sync", str(tmp_path)) in seen
    seen.clear()
    channel.checkpoint()
    name = f"sync T/_delta_log/{channel.version:020d}.checkpoint.parquet"
    assert kinds(seen, root)[-4:] == [name, "sync T/_delta_log/_last_checkpoint", "sync T/_delta_log", "sync T"]


def test_nothing_is_synced_where_that_is_not_asked_for(tmp_path: Path, seen: Observation) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    seen.clear()
    quick = Channel.open(channel.path, {"durable": "false"})
    with quick.producer("a") as producer:
        producer.send(rows(int64, (1, 1)))
        producer.commit()
    assert [what for what, _ in seen if what == "sync"] == []
    assert Channel.open(channel.path).read().num_rows == 1


def test_an_option_that_is_neither_true_nor_false_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ChannelError, match=r"STRANDLINE_STORAGE_OPTION_INVALID.*'yes'"):
        open_store(tmp_path, {"DURABLE": "yes"})
