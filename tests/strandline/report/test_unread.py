"""What a query has not read of a channel: counted from any position, each commit read once, and nothing guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.channel import Channel, Log, WriterSession
from strandline.channel.statements.inputs import Input
from strandline.delta.storage import commit_name
from strandline.page import Looker
from strandline.page.render import report_html
from strandline.report import explain
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
            assert (found.commits, found.rows, found.exact, found.at_most) == (channel.version + 1 - commit, rows, False, True)
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


def checkpoint(path: Path, query: str, batch: int, *offsets: dict[str, Any] | str, version: str = "v1") -> Path:
    """A checkpoint as Spark writes it, with one committed batch."""
    for folder in ("offsets", "commits"):
        (path / folder).mkdir(parents=True, exist_ok=True)
    (path / "metadata").write_text(json.dumps({"id": query}))
    lines = [each if isinstance(each, str) else json.dumps(each) for each in offsets]
    if version == "v2":
        lines = [f"{number}:{line}" for number, line in enumerate(lines)]
    (path / "offsets" / str(batch)).write_text("\n".join([version, json.dumps({"batchTimestampMs": 1}), *lines]))
    (path / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return path


def silent(tmp_path: Path, place: str | None = None) -> tuple[Channel, Channel]:
    """A query that has read two rows, and stated where its checkpoint is. Then four rows come, of which it makes no result."""
    source, output = make(tmp_path / "in", producers=["p"]), make(tmp_path / "out", producers=["query-1"])
    send(source, "p", [0], [2])
    state = {"strandline:batch": "0:00", "strandline:checkpoint": place or str(tmp_path / "c")}
    output.append(
        [],
        statements={"query-1": [2]},
        states={"query-1": state},
        times=[],
        owner=WriterSession.here("1"),
        reads=(Input(source.table_id, source.version + 1, 0, source.path, ()),),
    )
    for n in (3, 4):
        send(source, "p", [n, n], [n])
    return source, output


def offset(source: Channel, commit: int, **more: Any) -> dict[str, Any]:
    return {"strandline": 1, "channel": source.table_id, "commit": commit, "file": 0, **more}


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_query_without_results_has_read_what_its_checkpoint_says(tmp_path: Path, version: str) -> None:
    """A batch that has no result makes no commit. It was said that its rows are not read, and shown as a problem."""
    source, output = silent(tmp_path)
    [culprit] = explain(output.path, 3).culprits
    assert [str(each) for each in culprit.behind] == [f"at most 2 commits (4 rows) of {source.path}"]
    assert culprit.to_json()["behind"] == [
        {"channel": source.path, "commits": 2, "rows": 4, "exact": False, "atMost": True},
    ]
    assert "read all but at most 2 commits (4 rows)" in culprit.what
    looker = Looker([source.path, output.path], interval=0.0)
    assert [(each.rows, each.exact, each.at_most) for each in looker.look().channels[0].unread] == [(4, False, True)]
    html = report_html(looker.look())
    assert "at most 4 rows waiting" in html
    assert 'class="unread"' not in html

    checkpoint(tmp_path / "c", "1", 5, offset(source, source.version), version=version)
    [culprit] = explain(output.path, 3).culprits
    assert [each.to_json() for each in culprit.behind] == [
        {"channel": source.path, "commits": 1, "rows": 2, "exact": True, "atMost": False},
    ]
    assert 'class="unread"' in report_html(looker.look())
    checkpoint(tmp_path / "c", "1", 10, offset(source, source.version + 1), version=version)
    [culprit] = explain(output.path, 3).culprits
    assert culprit.behind == ()
    assert looker.look().channels[0].unread == ()
    send(source, "p", [9], [9])
    assert [(each.commits, each.rows, each.exact) for each in explain(output.path, 3).culprits[0].behind] == [(1, 1, True)]


@pytest.mark.parametrize(
    "case", ["another query", "a snapshot", "no offset", "another form", "torn", "another channel", "another storage", "absent"]
)
def test_a_checkpoint_that_does_not_say_it_leaves_it_at_most(tmp_path: Path, case: str) -> None:
    source, output = silent(tmp_path, "s3://lake/c" if case == "another storage" else None)
    here = offset(source, source.version + 1)
    offsets: dict[str, Any] = {
        "a snapshot": [{**here, "snapshot": 1}],
        "no offset": [here, "-"],
        "torn": ['{"strandline": 1, "cha'],
        "another channel": [{**here, "channel": "another"}],
    }
    if case != "absent":
        query, version = "2" if case == "another query" else "1", "v9" if case == "another form" else "v1"
        checkpoint(tmp_path / "c", query, 3, *offsets.get(case, [here]), version=version)
    [behind] = explain(output.path, 3).culprits[0].behind
    assert (behind.commits, behind.rows, behind.exact, behind.at_most) == (2, 4, False, True)


def test_of_two_sources_of_one_channel_the_one_behind_counts(tmp_path: Path) -> None:
    source, output = silent(tmp_path)
    both = {"channels": {"a": offset(source, source.version), "b": offset(source, source.version + 1)}}
    checkpoint(tmp_path / "c", "1", 3, {"strandline": 1, **both})
    [behind] = explain(output.path, 3).culprits[0].behind
    assert (behind.commits, behind.rows, behind.exact) == (1, 2, True)
