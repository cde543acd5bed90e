"""What a query has not read of a channel: counted from any position, each commit read once, and nothing guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.channel import Log
from strandline.channel.statements.inputs import Input
from strandline.delta.storage import commit_name
from strandline.report.unread import UnreadRows
from why_channels import make, send


def test_each_position_has_the_rows_of_the_files_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = make(tmp_path / "c", producers=["p"])
    for n in range(1, 6):
        send(channel, "p", list(range(n, 2 * n)), [n])
    files = {version: [file.rows for file in channel.log.require(version).files] for version in range(channel.version + 1)}
    read: list[int] = []
    monkeypatch.setattr(channel.log, "read", lambda version: (read.append(version), Log.read(channel.log, version))[1])
    unread = UnreadRows(channel)
    for commit in range(channel.version + 1):
        for file in range(len(files[commit]) + 1):
            found = unread.after(Input(channel.table_id, commit, file))
            rows = sum(sum(counts[file if version == commit else 0 :]) for version, counts in files.items() if version >= commit)
            assert found is not None
            assert (found.commits, found.rows, found.exact) == (channel.version + 1 - commit, rows, True)
    assert len(read) <= sum(len(counts) + 1 for counts in files.values())
    assert unread.after(Input(channel.table_id, channel.version + 1, 0)) is None


def test_a_commit_that_cannot_be_read_leaves_the_rows_unknown(tmp_path: Path) -> None:
    channel = make(tmp_path / "c", producers=["p"])
    for n in range(1, 4):
        send(channel, "p", [n], [n])
    (tmp_path / "c" / commit_name(2)).write_bytes(b"")
    unread = UnreadRows(channel)
    before, after = (unread.after(Input(channel.table_id, commit, 0)) for commit in (1, 3))
    assert before is not None
    assert after is not None
    assert (before.commits, before.rows, after.rows) == (3, None, 1)
    assert unread.problem is not None
    assert "has no action" in unread.problem
