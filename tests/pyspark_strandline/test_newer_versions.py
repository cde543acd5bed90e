"""What a newer release wrote is refused by name, each kind of it (docs/upgrades.md); what may be ignored is ignored."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from helpers import ROOT, make_channel, say
from loop_lake import make_lake
from loop_plans import FLAT
from pyspark_strandline.data_source import StrandlineDataSource
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read import offset
from pyspark_strandline.read.several import offset as several_offset
from pyspark_strandline.read.several.inputs import Inputs
from pyspark_strandline.read.source import StreamReader
from pyspark_strandline.schema import spark_schema
from pyspark_strandline.write.commit_record import CommitRecord
from strandline import __version__
from strandline.channel import Channel, CommitStatement
from strandline.channel.statements.commit_statement import PROTOCOL_VERSION
from strandline.errors import StrandlineError
from strandline.page.model import MODEL_VERSION
from strandline.report.progress import progress_report
from strandline.report.progress.progress_report import ProgressReport
from strandline.scope import Scope
from strandline.scope.definition import SCOPE_VERSION
from strandline.time.domain import int64

PAGE = ROOT / "docs" / "upgrades.md"


def refused(condition: str) -> Any:
    return pytest.raises(StrandlineError, match=condition)


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    made = make_channel(tmp_path / "in", producers=("a",))
    say(made, "a", (1, 1), then=[2])
    return Channel.open(tmp_path / "in")


def several(**channels: Any) -> StreamReader:
    given = {name: value if isinstance(value, str) else json.dumps(value) for name, value in channels.items()}
    options = ReadOptions.parse({**given, "strandline.extension": __version__}).for_stream()
    return StreamReader(options, Inputs(options).schema())


def test_a_statement() -> None:
    for version in (1, 2):
        text = json.dumps({"strandline": {"version": version, "statements": {}, "of a later release": 5}})
        assert CommitStatement.from_user_metadata(text, 7) is not None
    with refused("STRANDLINE_PROTOCOL_NEWER.*Upgrade"):
        CommitStatement.from_user_metadata('{"strandline":{"version":4,"statements":{}}}', 7)


def test_the_offset_of_a_channel(channel: Channel) -> None:
    options = ReadOptions.parse({"path": str(channel.path)})
    reader = StreamReader(options, spark_schema(channel.schema, channel.time_column, channel.domain))
    offset = reader.initialOffset()
    assert offset["strandline"] == 1
    assert reader.latestOffset({**offset, "of a later release": 5}, ReadAllAvailable())["commit"] > 0
    with refused("STRANDLINE_OFFSET_VERSION.*Use the strandline release that wrote the checkpoint"):
        reader.latestOffset({**offset, "strandline": 2}, ReadAllAvailable())


def test_the_offset_of_several_channels(channel: Channel, tmp_path: Path) -> None:
    other = make_channel(tmp_path / "other", producers=("a",))
    reader = several(channels={"x": str(channel.path), "y": str(other.path)})
    offset = reader.initialOffset()
    assert offset["strandline"] == 3
    for version in (1, 2, 4):
        with refused("STRANDLINE_OFFSET_VERSION"):
            reader.latestOffset({**offset, "strandline": version}, ReadAllAvailable())
    newer = json.loads(json.dumps(offset))
    newer["channels"]["y"]["strandline"] = 2
    with refused("STRANDLINE_OFFSET_VERSION"):
        reader.latestOffset(newer, ReadAllAvailable())


def test_the_offset_of_a_loop(tmp_path: Path) -> None:
    lake = make_lake(tmp_path)
    channels = {name: str(lake / name) for name in ("numbers", "back")}
    reader = several(channels=channels, feedback={"back": {"iter": 1}}, domain=str(FLAT))
    offset = reader.initialOffset()
    assert offset["strandline"] == 2
    for version in (1, 3):
        with refused("STRANDLINE_OFFSET_VERSION"):
            reader.latestOffset({**offset, "strandline": version}, ReadAllAvailable())


def test_a_scope(tmp_path: Path) -> None:
    scope = Scope.create(tmp_path / "scope", int64)
    newest = max((tmp_path / "scope" / "_strandline_scope").iterdir())
    body = json.loads(newest.read_text())
    assert body["strandlineScope"] == 1
    newest.write_text(json.dumps({**body, "strandlineScope": 2}))
    with refused("STRANDLINE_SCOPE_NEWER.*Upgrade"):
        Scope.open(scope.path)


def test_a_progress_report() -> None:
    with refused("STRANDLINE_REPORT_INVALID.*version 1 of strandlineProgress"):
        ProgressReport.from_json({"strandlineProgress": 2})


def test_the_record_in_a_checkpoint_is_not_needed(channel: Channel, tmp_path: Path) -> None:
    (tmp_path / "cp" / "strandline").mkdir(parents=True)
    newer = {"strandline": 2, "query": "q", "outputs": {"": {"batches": [[0, 1, "2"]], "of a later release": 5}}}
    (tmp_path / "cp" / "strandline" / "commits").write_text(json.dumps(newer))
    CommitRecord("q", str(tmp_path / "cp")).check("", 1, channel, str(channel.path))


@pytest.mark.parametrize("version", ["0.0.1", "9.0.0"])
def test_an_extension_of_another_release(version: str, channel: Channel) -> None:
    source = StrandlineDataSource({"path": str(channel.path), "strandline.extension": version})
    with refused(f"STRANDLINE_EXTENSION_VERSION.*strandline {version}, but Python has strandline {__version__}"):
        source.streamReader(source.schema()).initialOffset()
    ours = StrandlineDataSource({"path": str(channel.path), "strandline.extension": __version__})
    assert isinstance(ours.streamReader(ours.schema()), StreamReader)


def test_the_page_names_each_version_that_is_written(channel: Channel) -> None:
    """The page says which version of each kind this release writes. A changed version needs a changed page."""
    table = dict(re.findall(r"^\| ([^|]+?) \| [^|]*? \| ([\d, ]+) \|", PAGE.read_text(), re.MULTILINE))
    assert table == {
        "a commit's statement": ", ".join(map(str, range(1, PROTOCOL_VERSION + 1))),
        "the offset of a channel": str(offset._VERSION),
        "the offset of several channels": str(several_offset._VERSION),
        "the offset of a loop": str(several_offset._LOOP_VERSION),
        "a scope's file": str(SCOPE_VERSION),
        "a progress report": str(progress_report._VERSION),
        "the page's JSON": str(MODEL_VERSION),
        "the sink's record": "1",
    }
    conditions = set(re.findall(r"STRANDLINE_[A-Z_]+", PAGE.read_text()))
    known = set(re.findall(r"^## (STRANDLINE_[A-Z_]+)", (ROOT / "docs" / "errors.md").read_text(), re.MULTILINE))
    assert conditions - known == set()


def test_the_page_lists_the_samples() -> None:
    samples = {path.name for path in (ROOT / "tests" / "compat").glob("*.tar.gz")}
    assert samples == set(re.findall(r"`([\w.-]+\.tar\.gz)`", PAGE.read_text()))
