"""What ``Channel.refresh`` returns: each commit of others once, whatever fails in between, and whatever else the object does."""

from __future__ import annotations

import errno
import os
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import make_channel, rows, say
from strandline.channel import Channel, ChannelError, LogError, StorageError
from strandline.delta.storage import LocalStore, commit_name, storage_errors
from strandline.time.domain import int64


def numbers(channel: Channel) -> list[int]:
    """The rows of the commits that a refresh returns."""
    return [n for commit in channel.refresh() for n in channel.read_files(commit.files).column("n").to_pylist()]


def four_commits(path: Path) -> tuple[Channel, Channel]:
    """A reader, and a writer that has made four commits of a row since the reader has opened."""
    writer = make_channel(path, producers=("a", "b"))
    reader = Channel.open(path)
    for n in range(4):
        say(writer, "a", (0, n))
    return reader, writer


def test_commits_before_one_that_could_not_be_read_are_returned_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = four_commits(tmp_path / "in")
    real, fails = LocalStore.read, [commit_name(writer.version)]

    def read(self: LocalStore, path: str, limit: int) -> bytes | None:
        if path in fails:
            fails.remove(path)
            with storage_errors("read", path):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(self, path, limit)

    monkeypatch.setattr(LocalStore, "read", read)
    with pytest.raises(StorageError, match="Input/output error"):
        reader.refresh()
    assert numbers(reader) == [0, 1, 2, 3]
    assert numbers(reader) == []


def test_commits_before_a_torn_one_are_returned_when_it_is_restored(tmp_path: Path) -> None:
    reader, writer = four_commits(tmp_path / "in")
    newest = tmp_path / "in" / commit_name(writer.version)
    good = newest.read_text()
    newest.write_text("")
    for _ in range(2):
        with pytest.raises(LogError, match="STRANDLINE_COMMIT_TORN"):
            reader.refresh()
    newest.write_text(good)
    assert numbers(reader) == [0, 1, 2, 3]


def test_a_commit_that_breaks_the_contract_is_named_once_and_the_others_are_returned(tmp_path: Path) -> None:
    reader, writer = four_commits(tmp_path / "in")
    strange = pa.table({"time": pa.array([0], pa.int64()), "key": ["k"], "n": pa.array([99], pa.int64())})
    write_deltalake(writer.path, strange, mode="append")
    say(Channel.open(tmp_path / "in"), "b", (0, 5))
    with pytest.raises(LogError, match="STRANDLINE_STATEMENT_MISSING"):
        reader.refresh()
    assert numbers(reader) == [0, 1, 2, 3, 5]


def test_an_object_that_also_writes_is_told_of_the_others_commits_in_order(tmp_path: Path) -> None:
    reader, writer = four_commits(tmp_path / "in")
    with reader.producer("b") as own:
        own.send(rows(int64, (0, 70)))
        own.commit()
        say(writer, "a", (0, 4))
        own.send(rows(int64, (0, 71)))
        own.commit()
    assert numbers(reader) == [0, 1, 2, 3, 4]
    say(writer, "a", (0, 5))
    assert numbers(reader) == [5]


def test_commits_that_were_cleaned_up_before_they_were_returned_are_an_error(tmp_path: Path) -> None:
    reader, writer = four_commits(tmp_path / "in")
    reader.producer("b").close()  # this applies the four
    writer.clean_log(timedelta(0))
    with pytest.raises(ChannelError, match="STRANDLINE_LOG_TRUNCATED"):
        reader.refresh()
    other = Channel.open(tmp_path / "in")
    other.producer("b").close()
    other.clean_log(timedelta(0))
    assert other.refresh() == []  # its own commits are no news


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(["others", "own", "refresh", "look"]), max_size=12))
def test_every_commit_of_others_is_returned_once(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    path = tmp_path_factory.mktemp("any") / "in"
    channel = make_channel(path, producers=("a", "b"))
    other = Channel.open(path)
    made, found = [], []
    for step in [*steps, "refresh"]:
        if step == "others":
            made.append(other.append([], statements={"a": [0]}, always=True))
        elif step == "own":
            channel.append([], statements={"b": [0]}, always=True)
        elif step == "look":
            channel.transaction_version("nobody")
        else:
            found += [commit.version for commit in channel.refresh()]
    assert found == made
