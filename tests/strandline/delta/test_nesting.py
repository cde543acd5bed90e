"""Commits that are nested so deep that deltalake's parser would end the process: an error with a name instead."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers import make_channel, say
from strandline.channel import Channel, LogError
from strandline.delta import log as delta_log
from strandline.delta.log import MAX_COMMIT_BYTES, DeltaCommit, check_nesting
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


@pytest.mark.drawn
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


@pytest.mark.drawn
def test_several_values_in_a_line_and_values_over_several_lines_end_no_process(tmp_path: Path) -> None:
    """deltalake's parser reads both. Neither is a commit by Delta's protocol."""
    add = json.dumps({"path": "x", "size": 9, "partitionValues": {}, "modificationTime": 1, "dataChange": True, "stats": LISTS})
    info = '{"commitInfo":{"timestamp":1}}'
    lines = {
        "two": f'{{"add":{add}}} {info}',
        "none between": f'{info}{{"add":{add}}}',
        "broken": f'{{"add":\n{add}}}',
        "in a string": f'{{"add":{add}}}'.replace(LISTS, LISTS + "\n"),
        "unfinished": f'{{"add":{add}}}'[:-1],
        "far": "\n" * (5 << 20) + f'{{"add":{add}}}',
        "twice": f'{{"add":{add[:-1]},"stats":"1"}}}}',
    }
    for name, line in lines.items():
        channel = make_channel(tmp_path / name, producers=("a",))
        (tmp_path / name / "_delta_log" / f"{channel.version + 1:020d}.json").write_text(line + "\n")
    script = f"""
from strandline.channel import Channel, LogError
for name in {list(lines)!r}:
    try:
        print(Channel.open(f"{tmp_path}/{{name}}").version)
    except LogError as error:
        print(error.condition)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, ["STRANDLINE_COMMIT_INVALID"] * len(lines)), done.stderr


def test_a_commit_that_is_too_large_is_refused_before_deltalake_reads_it(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    with (tmp_path / "in" / "_delta_log" / f"{channel.version + 1:020d}.json").open("wb") as file:
        file.truncate(MAX_COMMIT_BYTES + 1)
    with pytest.raises(LogError, match="is larger than"):
        channel.log.check_nesting()


def refused_by_characters(text: str, most: int) -> bool:
    """The specification: each line has at most one object, and nothing is nested deeper than ``most``.

    Which bracket closes which is left to the parser: it stops there.
    """
    for line in text.split("\n"):
        depth, values, in_string, escaped = 0, 0, False, False
        for character in line:
            if escaped:
                escaped = False
                if character in '\\"':
                    continue
            if character == "\\":
                escaped = True
                if not in_string and depth == 0:
                    return True
            elif character == '"':
                if depth == 0:
                    return True
                in_string = not in_string
            elif not in_string:
                if character in "[{":
                    values += depth == 0
                    depth += 1
                elif character in "]}":
                    depth -= 1
                    if depth == 0 and character == "]":
                        return True
                elif depth == 0 and character not in " \n":
                    return True
                if depth < 0 or depth > most or values > 1:
                    return True
        if depth or in_string:
            return True
    return False


@given(
    st.text('{}[]"\\ \na', max_size=30)
    | st.lists(st.sampled_from(['{"a":[]}', "\n", '{"\\\\":{', "}}", '"', "{[{}]}"])).map("".join)
)
@example('\\"')
def test_lines_are_scanned_as_by_characters(text: str) -> None:
    if refused_by_characters(text, 1 << 30):
        with pytest.raises(LogError):
            delta_log._depth_of_lines(1, text.encode())
    else:
        depth = delta_log._depth_of_lines(1, text.encode())
        assert not refused_by_characters(text, depth)
        assert depth == 0 or refused_by_characters(text, depth - 1)


@pytest.mark.parametrize(
    ("lines", "condition"),
    [(b"\n", "COMMIT_TORN.*no action"), (b" \r\n", "COMMIT_TORN"), (b'{"a":{}}\n', "COMMIT_INVALID.*lines")],
)
def test_very_many_lines_take_no_time_and_no_memory(tmp_path: Path, lines: bytes, condition: str) -> None:
    data = lines * ((48 << 20) // len(lines))
    tracemalloc.start()
    with pytest.raises(LogError, match=f"STRANDLINE_{condition}"):
        DeltaCommit(4, data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * len(data)


def test_blank_lines_between_actions_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    actions = [b'{"remove":{"path":"a"}}', b' {"remove":{"path":"b"}}', b'{"commitInfo":{}}']
    plain = DeltaCommit(4, b"\n".join(actions))
    monkeypatch.setattr(delta_log, "_MOST_LINES", 4)
    blank = DeltaCommit(4, b" \n\n \t\n" + b"\n\r\n  \n".join(actions) + b"\n\n\n")
    assert (blank.removed, blank.actions, blank.digest) == (plain.removed, 3, plain.digest)
