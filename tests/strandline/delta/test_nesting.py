"""Commits that are nested so deep that deltalake's parser would end the process: an error with a name instead."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import make_channel, say
from strandline.channel import Channel, LogError
from strandline.delta.log import check_nesting
from strandline.report import verify

DEPTH = 30_000
LISTS, OBJECTS = "[" * DEPTH + "]" * DEPTH, '{"x":' * DEPTH + "1" + "}" * DEPTH
ESCAPED = "\\u005b" * DEPTH + "\\u005d" * DEPTH


def deep_commit(path: Path, where: str) -> None:
    """Put a deep value into a field of the newest commit."""
    channel = make_channel(path, producers=("a",))
    say(channel, "a", (0, 1))
    newest = path / "_delta_log" / f"{channel.version - 1:020d}.json"  # the one with the row
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    for action in actions:
        if "add" in action and where != "operationParameters":
            action["add"]["stats" if "stats" in where else "tags"] = "@"
        elif where == "operationParameters":
            action.get("commitInfo", {})["operationParameters"] = "@"
    value = {"stats": json.dumps(LISTS), "escaped stats": f'"{ESCAPED}"', "tags": LISTS, "operationParameters": OBJECTS}[where]
    newest.write_text("".join(json.dumps(action) + "\n" for action in actions).replace('"@"', value))


@pytest.mark.parametrize("where", ["tags", "operationParameters", "stats", "escaped stats"])
def test_a_deep_commit_is_named_and_ends_no_process(tmp_path: Path, where: str) -> None:
    deep_commit(tmp_path / "in", where)
    # In a process of its own: without the check it ends by a signal.
    opened = f"from strandline.channel import Channel; Channel.open({str(tmp_path / 'in')!r})"
    done = subprocess.run([sys.executable, "-c", opened], capture_output=True, text=True)
    assert done.returncode == 1
    assert "[STRANDLINE_COMMIT_INVALID] Commit 2 has an action that is nested deeper than 4000" in done.stderr
    with pytest.raises(LogError, match="STRANDLINE_COMMIT_INVALID"):
        Channel.open(tmp_path / "in")
    assert verify(tmp_path / "in").violation is not None


def test_many_brackets_are_not_deep() -> None:
    names = json.dumps({f"[{{{i}": {"holds": [[i, [i]]]} for i in range(5000)})
    for body in (
        {"commitInfo": {"userMetadata": names}},
        {"add": {"path": "x", "stats": names, "tags": {"[" * 9000: "{" * 9000}}},
    ):
        check_nesting(1, json.dumps(body).encode())
    deep = json.dumps({"add": {"path": "x", "stats": "[" * 4001}}).encode()
    with pytest.raises(LogError):
        check_nesting(1, deep + b" " * 9000)


def test_a_deep_commit_before_a_checkpoint_is_not_looked_at(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (0, 1))
    channel.checkpoint()
    first = tmp_path / "in" / "_delta_log" / f"{1:020d}.json"
    first.write_text(first.read_text() + '{"x":' + LISTS + "}\n")
    assert Channel.open(tmp_path / "in").version == channel.version
    with pytest.raises(LogError):
        channel.log.check_nesting(1)
    (tmp_path / "in" / "_delta_log" / "_last_checkpoint").write_text("damaged")
    with pytest.raises(LogError):
        channel.log.check_nesting()
