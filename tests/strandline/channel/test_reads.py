"""A commit records what its query has read, and its own checksum. Readers of progress look at neither."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.channel import Channel, CommitStatement, StatementError
from strandline.channel.statements.beginning import Beginning
from strandline.channel.statements.checksum import checked
from strandline.channel.statements.inputs import Input

READ = Input("7c1f", 5, 1, "/lake/flights", ({"shift": 1},), began=Beginning(commit=2, removed=4))


def test_a_commit_has_what_its_query_has_read(create: Callable[..., Channel]) -> None:
    channel = create()
    version = channel.append([], statements={"a": [5]}, reads=[READ])
    commit = channel.log.require(version or 0)
    assert commit.statement is not None
    assert commit.statement.reads == (READ,)
    assert channel.append([], statements={"a": [5]}, reads=[READ._replace(commit=6)]) is None  # it is no reason for a commit
    assert Channel.open(channel.path).progress == channel.progress


@pytest.mark.parametrize(
    "reads",
    [
        None,
        {},
        [1],
        [{}],
        [{"table": 1, "commit": 1, "file": 0}],
        [{"table": "x", "commit": -1, "file": 0}],
        [READ.to_json()] * 10_001,
        [READ.to_json() | {"path": 5}],
        [READ.to_json() | {"summary": {}}],
        [READ.to_json() | {"commit": True}],
        [READ.to_json() | {"began": 2}],
        [READ.to_json() | {"began": {}}],
    ],
)
def test_a_malformed_record_is_refused(reads: Any) -> None:
    text = json.dumps({"strandline": {"version": 1, "statements": {}, "reads": reads}})
    with pytest.raises(StatementError, match="STRANDLINE_STATEMENT_INVALID"):
        CommitStatement.from_user_metadata(text, 3)


def test_every_commit_of_the_library_has_a_checksum(create: Callable[..., Channel], make: Any) -> None:
    channel = create()
    with channel.producer("a") as a:
        a.send(make.rows([1, 2]))
        a.delay([3])
    channel.checkpoint()
    for commit in list(channel.log.tail(1)):
        files = [(file.path, file.size, file.stats) for file in commit.files]
        found = checked(commit.info["userMetadata"], files, commit.transactions)
        assert found is not None
        assert found.stated == found.found
        other = checked(commit.info["userMetadata"], [("x", 1, None)], commit.transactions)
        assert other is not None
        assert other.stated != other.found
    assert b'\\"sum\\":' in Path(channel.path, "_delta_log", f"{0:020d}.json").read_bytes()
