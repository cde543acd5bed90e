"""A commit is read whole or not at all: what a power cut may leave of one is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import make_channel, say
from strandline.channel import Channel, ChannelError, Log
from strandline.channel.progress.unreturned import Unreturned
from strandline.channel.statements.log import Commit
from strandline.delta.storage import commit_name
from strandline.report import verify

REFUSED = "STRANDLINE_(COMMIT_TORN|COMMIT_INVALID|STATEMENT_MISSING|STATEMENT_CONTRADICTION|NOT_A_CHANNEL|TABLE_UNREADABLE)"


@pytest.fixture
def whole(make: Any, tmp_path: Path) -> Channel:
    """A channel whose newest commit has rows in two files, a transaction and a statement."""
    channel = Channel.create(tmp_path / "whole", make.schema(), producers=["a"])
    for n in range(2):
        files = []
        for i in range(2):
            with channel.file_writer() as writer:
                writer.write(make.rows([10 * n + i, 10 * n + i]))
                files += writer.finish()[0]
        times = [(10 * n, 2), (10 * n + 1, 2)]
        channel.append(files, statements={"a": [10 * n + 10]}, times=times, transaction=("query", n))
    return channel


TORN: dict[str, Callable[[list[bytes]], bytes]] = {
    "0 bytes": lambda lines: b"",
    "line ends alone": lambda lines: b"\n\n\n",
    "zeros": lambda lines: b"\0" * 4096,
    "no files": lambda lines: b"\n".join(line for line in lines if not line.startswith(b'{"add"')),
    "one file less": lambda lines: b"\n".join(lines[:-1]),
    "one file twice": lambda lines: b"\n".join([*lines, lines[-1]]),
    "no transaction": lambda lines: b"\n".join(line for line in lines if not line.startswith(b'{"txn"')),
    "no statement": lambda lines: b"\n".join(lines[1:]),
    "half a line": lambda lines: b"\n".join(lines)[:-40],
    "other rows": lambda lines: b"\n".join(lines).replace(b'{\\"numRecords\\":2', b'{\\"numRecords\\":3', 1),
}


@pytest.mark.parametrize("how", TORN)
@pytest.mark.parametrize("newest", [True, False])
def test_a_torn_commit_is_refused(whole: Channel, tmp_path: Path, how: str, newest: bool) -> None:
    version = whole.version - (not newest)
    reader = Channel.open(whole.path)
    behind = Channel.open(whole.path)
    behind._snapshot.progress = behind.progress_at(version - 1)  # it had read as far as that
    behind._snapshot.unreturned = Unreturned(version - 1)
    path = tmp_path / "whole" / commit_name(version)
    path.write_bytes(TORN[how]([line for line in path.read_bytes().split(b"\n") if line]))
    with pytest.raises(ChannelError, match=REFUSED):
        behind.refresh()
    with pytest.raises(ChannelError, match=REFUSED):
        for commit in Log(whole.path).tail(0):
            commit.check()
    if how not in ("other rows", "no statement"):  # whoever opens a channel looks at statements, not at files
        with pytest.raises(ChannelError, match=REFUSED):
            Channel.open(whole.path).progress_at(version)
    assert reader.frontier == whole.frontier


def test_without_the_torn_commits_the_channel_goes_on_as_before_them(whole: Channel, tmp_path: Path) -> None:
    newest = tmp_path / "whole" / commit_name(whole.version)
    newest.write_bytes(b"")
    with pytest.raises(ChannelError, match="STRANDLINE_COMMIT_TORN"):
        Channel.open(whole.path)
    newest.unlink()
    found = Channel.open(whole.path)
    assert found.frontier == whole.progress_at(whole.version - 1).frontier
    assert found.append([], statements={"a": [15]}, take_over=True) == whole.version
    assert Channel.open(whole.path).read().num_rows == 4


def test_a_commit_cut_anywhere_is_refused(whole: Channel) -> None:
    data = (Path(whole.path) / commit_name(whole.version)).read_bytes().rstrip(b"\n")
    Commit(1, data).check()

    @given(st.integers(0, len(data) - 1))
    def cut(length: int) -> None:
        with pytest.raises(ChannelError, match=REFUSED):
            Commit(1, data[:length]).check()

    cut()


def test_a_commit_of_an_earlier_release_is_read(whole: Channel, tmp_path: Path) -> None:
    """It does not say how many actions it has."""
    shutil.copytree(whole.path, tmp_path / "before")
    for path in (tmp_path / "before" / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            if text := action.get("commitInfo", {}).get("userMetadata"):
                body = json.loads(text)
                body["strandline"].pop("actions", None)
                action["commitInfo"]["userMetadata"] = json.dumps(body)
        path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    found = Channel.open(tmp_path / "before")
    assert found.frontier == whole.frontier
    for commit in found.log.tail(0):
        commit.check()


def test_a_checkpoint_that_has_a_file_twice_is_refused(whole: Channel, tmp_path: Path) -> None:
    version = whole.checkpoint()
    file = tmp_path / "whole" / "_delta_log" / f"{version:020d}.checkpoint.parquet"
    actions = pq.read_table(file)
    adds = actions.filter(pc.is_valid(actions.column("add")))
    pq.write_table(pa.concat_tables([actions, adds.slice(1, 1)]), file)
    path = adds.column("add")[1].as_py()["path"]
    for read in (lambda channel: channel.read(), lambda channel: channel.snapshot_files(stats=True)):
        with pytest.raises(ChannelError, match=rf"STRANDLINE_TABLE_UNREADABLE.*Version {version} .*{path}' more than once"):
            read(Channel.open(whole.path))
    assert len(list(Channel.open(whole.path).log.tail(0))) == version + 1  # a stream of all commits does not need it


def test_the_remedy_of_a_torn_commit_works_beside_a_later_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "in"
    channel = make_channel(path, producers=("a", "b"))
    for n in range(6):
        say(channel, "a", (n, n), then=[n + 1])
        if n in (1, 4):
            channel.checkpoint()
    log = path / "_delta_log"
    torn = channel.version - 5
    assert [int(file.name[:20]) > torn for file in sorted(log.glob("*.checkpoint.parquet"))] == [False, True]
    (log / f"{torn:020d}.json").write_text("")
    with pytest.raises(ChannelError, match=f"remove from _delta_log _last_checkpoint and each file whose name has .* {torn} on"):
        list(channel.log.tail(torn))
    for file in log.iterdir():
        if file.name == "_last_checkpoint" or (file.name[:20].isdecimal() and int(file.name[:20]) >= torn):
            file.unlink()
    restored = Channel.open(path)
    assert restored.version == torn - 1
    say(restored, "b", (50, 50))
    assert 50 in Channel.open(path).read()["n"].to_pylist()
    assert verify(path).violation is None
