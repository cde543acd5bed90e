"""Frontiers and holds of all channels of a folder or scope."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest_bench import Bench
from page_channels import look
from strandline.channel import Channel
from strandline.errors import ChannelError
from strandline.ingest import ordered
from strandline.report.overview import frontiers, holds
from strandline.scope import Scope
from strandline.time.arrow import time_field
from strandline.time.domain import TimeDomain, int64, timestamp


def _make(path: Path, domain: TimeDomain = int64, at: int | None = 0, names: tuple[str, ...] = ("a", "b")) -> Channel:
    return Channel.create(str(path), pa.schema([time_field("time", domain)]), producers=names, at=at)


def test_a_folder_has_all_channels_below_and_nothing_else(tmp_path: Path) -> None:
    channel = _make(tmp_path / "hours" / "sums")
    with channel.producer("a", owner="a") as a:
        a.delay([7])
    with channel.producer("b", owner="b") as b:
        b.delay([5])
    done = _make(tmp_path / "done", names=("a",))
    with done.producer("a") as a:
        a.drop()
    _make(tmp_path / "clock", timestamp, at=0)
    _make(tmp_path / "least", timestamp, at=None)
    write_deltalake(str(tmp_path / "other"), pa.table({"n": [1]}))
    _make(tmp_path / "_hidden")
    found = {row["channel"]: row for row in frontiers(tmp_path).to_pylist()}
    assert sorted(found) == ["clock", "done", "hours/sums", "least"]
    sums = found["hours/sums"]
    assert (sums["time"], sums["timeInt64"], sums["closed"], sums["sealed"]) == ("5", 5, False, True)
    assert (sums["sinceVersion"], sums["sinceExact"], sums["lagSeconds"], sums["error"]) == (4, True, None, None)
    assert (found["done"]["closed"], found["done"]["time"], found["done"]["lagSeconds"]) == (True, None, 0.0)
    assert found["clock"]["timeTimestamp"].year == 1970
    assert found["clock"]["lagSeconds"] > 1e9
    assert (found["least"]["timeTimestamp"], found["least"]["lagSeconds"]) == (None, None)
    held = {(row["channel"], row["producer"]): row for row in holds(tmp_path).to_pylist()}
    assert held["hours/sums", "a"]["timeInt64"] == 7
    assert not held["hours/sums", "a"]["holdsFrontierBack"]
    assert held["hours/sums", "b"]["holdsFrontierBack"]
    assert held["hours/sums", "b"]["kind"] == "producer"
    assert held["done", "a"]["time"] is None


def test_a_channel_that_cannot_be_read_has_a_row_with_the_error(tmp_path: Path) -> None:
    _make(tmp_path / "good")
    channel = _make(tmp_path / "bad")
    with channel.producer("a") as a:
        a.delay([1])
    (tmp_path / "bad" / "_delta_log" / f"{1:020}.json").write_text(json.dumps({"commitInfo": "x"})[:-3])
    rows = frontiers(tmp_path).to_pylist()
    assert [row["channel"] for row in rows if row["error"]] == ["bad"]
    assert [row["channel"] for row in holds(tmp_path).to_pylist() if row["error"]] == ["bad"]


def test_partitions_of_an_ingest_say_how_many_rows_were_set_aside(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((3, "a", 0), (3, "b", 0))
    bench.run((1, "a", 1), (2, "a", 2), (4, "b", 1))
    found = {row["producer"]: (row["kind"], row["setAside"]) for row in holds(bench.settings.path).to_pylist()}
    assert found == {"$registrar": ("registrar", None), "a": ("partition", 2), "b": ("partition", 0)}


def test_a_scope_has_its_channels_by_their_names(tmp_path: Path) -> None:
    _make(tmp_path / "x")
    _make(tmp_path / "y")
    scope = Scope.create(tmp_path / "scope", int64)
    scope.add_channel("orders", tmp_path / "x")
    scope.add_channel("sums", tmp_path / "y")
    shutil.rmtree(tmp_path / "y")
    _make(tmp_path / "y")  # another table
    orders, sums = frontiers(tmp_path / "scope").to_pylist()
    assert (orders["channel"], orders["timeInt64"]) == ("orders", 0)
    assert "STRANDLINE_SCOPE_CHANNEL_REPLACED" in sums["error"]


@pytest.mark.parametrize(
    ("path", "condition"),
    [("s3://elsewhere/sums", "STRANDLINE_SCOPE_STORAGE_DIFFERS"), ("../sums", "STRANDLINE_PATH_OUTSIDE_TABLE")],
)
def test_where_a_scopes_file_may_not_lead_no_channel_is_opened(tmp_path: Path, path: str, condition: str) -> None:
    """Others write the file, and the channel would be opened with the reader's credentials."""
    _make(tmp_path / "sums")
    scope = Scope.create(tmp_path / "scope", int64)
    scope.add_channel("sums", tmp_path / "sums")
    file = max((tmp_path / "scope" / "_strandline_scope").iterdir())
    file.write_text(file.read_text().replace(f"{tmp_path}/sums", path))
    [row] = frontiers(scope.path).to_pylist()
    assert condition in row["error"]
    [view] = look(scope.path).channels
    assert view.problem is not None
    assert view.problem.condition == condition


def test_a_path_without_channels_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ChannelError, match="STRANDLINE_CHANNELS_MISSING"):
        frontiers(tmp_path / "misspelt")
    write_deltalake(str(tmp_path / "other"), pa.table({"n": [1]}))
    [row] = frontiers(tmp_path / "other").to_pylist()  # it was named
    assert "STRANDLINE_TIME_DOMAIN_MISSING" in row["error"] or "STRANDLINE_NOT_A_CHANNEL" in row["error"]
