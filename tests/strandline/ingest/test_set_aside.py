"""Rows that are set aside: they are counted by reason, end no silence, may stop the query, and are kept as they came."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from ingest_bench import Bench
from page_channels import look
from strandline.channel import Channel
from strandline.cli.app import app
from strandline.errors import IngestError, PolicyError, StrandlineError
from strandline.ingest import (
    Ingest,
    Settings,
    bounded,
    heartbeat,
    idle,
    ordered,
    publish_late_rows,
    punctuated,
    purge_late_rows,
    readmit,
    status,
)
from strandline.ingest.state.registrar_state import RegistrarState
from strandline.report.why import explain

TEXT = pa.schema([("t", pa.string()), ("p", pa.string()), ("n", pa.int64())])
RUN: dict[str, Any] = {"run": "r", "to_end": True}


def text_bench(path: Path, policy: Any, **options: Any) -> Bench:
    return Bench(path, policy, TEXT, domain="timestamp", max_future="off", **options)


def at(hour: int) -> str:
    return f"2026-03-01T{hour:02}:00:00Z"


def partition(bench: Bench, name: str) -> Any:
    return next(each for each in status(bench.settings.path).partitions if each.name == name)


def test_why_inspect_and_the_page_say_that_all_rows_of_a_partition_are_set_aside(tmp_path: Path) -> None:
    bench = text_bench(tmp_path, bounded("10 minutes"))
    bench.run((at(8), "a", 0), (at(8), "b", 0), now=1_000)
    bench.run((at(11), "a", 1), ("01.03.2026 09:00", "b", 1), ("01.03.2026 09:30", "b", 2), now=60_000)
    bench.run((at(12), "a", 2), ("01.03.2026 10:00", "b", 3), now=120_000)
    path = bench.settings.path
    [culprit] = [each for each in explain(path, at(9)).culprits if each.kind == "partition"]
    assert culprit.name == "b"
    assert (
        "all its rows since 1970-01-01T00:01:00Z were set aside, the newest 1 at 1970-01-01T00:02:00Z: unparsable time"
        in culprit.what
    )
    assert culprit.release.startswith("see first whether query q runs: if it has stopped, start it again")
    assert "If it runs: repair what sends its rows (unparsable time)" in culprit.release
    shown = CliRunner().invoke(app, ["inspect", path]).stdout
    assert "3 rows set aside (3 unparsable time): 3 of b" in shown
    body = json.loads(CliRunner().invoke(app, ["inspect", path, "--json"]).stdout)
    assert body["ingest"]["setAsideByReason"] == {"unparsable time": 3}
    aside = {each["name"]: each["setAside"] for each in body["producers"]}
    assert (aside["a"], aside["b"]["rows"], aside["b"]["onlySince"]) == (None, 3, "1970-01-01T00:01:00Z")
    [view] = look(path).channels
    assert view.late is not None
    assert view.late.reasons == (("unparsable time", 3),)
    assert [(each.partition, each.rows, each.only_since_ms) for each in view.late.newest] == [("b", 1, 60_000)]
    report = tmp_path / "report.html"
    assert CliRunner().invoke(app, ["report", path, "-o", str(report)]).exit_code in (0, 1)
    assert "every row of partition" in report.read_text()
    bench.run((at(13), "b", 4), ("soon", "b", 5), now=180_000)  # repaired, but for one row
    newest = partition(bench, "b").newest_aside
    assert (newest.rows, newest.reason, newest.at_ms, newest.only_since_ms) == (1, "unparsable time", 180_000, None)
    assert RegistrarState.of(Channel.open(path).progress).entry("q").aside_by == {"unparsable time": 4}


@pytest.mark.parametrize("bad", ["01.03.2026 09:00", at(7), None])
def test_rows_that_are_all_set_aside_end_no_silence(tmp_path: Path, bad: str | None) -> None:
    bench = text_bench(tmp_path, idle(bounded("10 minutes"), "5 seconds"))
    bench.run((at(8), "a", 0), (at(8), "b", 0), now=1_000, **RUN)
    for now in (3_000, 6_000):
        bench.run((at(11), "a", now), (bad, "b", now), now=now, **RUN)
    assert partition(bench, "b").idle_since == 6_000
    bench.run((at(12), "a", 1), (bad, "b", 1), now=8_000, **RUN)  # and they do not wake it either
    assert partition(bench, "b").idle_since == 6_000
    assert (partition(bench, "b").aside, status(bench.settings.path).aside) == (3, 3)
    bench.run((at(12), "a", 2), (at(13), "b", 2), now=9_000, **RUN)
    woken = partition(bench, "b")
    assert (woken.idle_since, woken.newest_aside.only_since_ms) == (None, None)


def test_a_partition_that_joins_with_bad_rows_is_waited_for_as_long_as_any(tmp_path: Path) -> None:
    bench = text_bench(tmp_path, idle(ordered(), "5 seconds"))
    bench.run((at(8), "a", 0), now=100_000, **RUN)
    bench.run((at(9), "a", 1), ("soon", "b", 1), now=101_000, **RUN)
    bench.run((at(10), "a", 2), ("soon", "b", 1), now=105_000, **RUN)
    assert partition(bench, "b").idle_since is None
    bench.run((at(10), "a", 2), ("soon", "b", 1), now=106_000, **RUN)
    assert partition(bench, "b").idle_since == 106_000


def test_a_punctuation_ends_a_silence_although_its_row_is_set_aside(tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.int64()), ("p", pa.string()), ("n", pa.int64()), ("mark", pa.int64())])
    bench = Bench(tmp_path, idle(punctuated("mark"), "5 seconds"), schema)
    bench.run((3, "a", 0, 3), (3, "b", 0, 3), now=1_000, **RUN)
    bench.run((9, "a", 1, 9), (1, "b", 1, 5), now=6_000, **RUN)  # late, and says that 5 is next
    assert partition(bench, "b").idle_since is None
    assert bench.holds()["b"] == [5]


@pytest.mark.parametrize("policy", [punctuated("mark"), heartbeat("beat")], ids=str)
def test_punctuations_and_heartbeats_behind_the_promise_end_no_silence(tmp_path: Path, policy: Any) -> None:
    schema = pa.schema([("t", pa.int64()), ("p", pa.string()), ("mark", pa.int64()), ("beat", pa.bool_())])
    bench = Bench(tmp_path, idle(policy, "5 seconds"), schema)
    bench.run((30, "a", 30, True), (30, "b", 30, True), now=1_000, **RUN)
    for now in range(2_000, 7_000, 1_000):
        bench.run((now, "a", now, True), (7, "b", 7, True), now=now, **RUN)
    assert partition(bench, "b").idle_since == 6_000
    bench.run((8_000, "a", 8_000, True), (9_000, "b", 9_000, True), now=8_000, **RUN)
    assert partition(bench, "b").idle_since is None


def test_more_rows_set_aside_than_allowed_stop_the_query(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = text_bench(tmp_path, ordered(), max_set_aside="10%")
    bench.run((at(8), "a", 0), (at(8), "b", 0), now=1)
    rows = [(at(9), "a", n) for n in range(18)] + [("soon", "b", 0), ("later", "b", 1)]
    bench.run(*rows, now=2)  # a tenth
    before, files = bench.channel.version, sorted(Path(bench.settings.path).rglob("*.parquet"))
    reports = bench.take([*rows[:-3], ("soon", "b", 3), ("soon", "b", 4), (at(8), "a", 5)])
    with pytest.raises(
        IngestError, match=r"Of the 20 rows of batch 2 .* 3 would be set aside, and maxSetAside is 10%. 2 of partit"
    ):
        bench.commit(reports, 3)
    bench.ingest.abort(("q", 2), reports)
    assert (bench.channel.version, sorted(Path(bench.settings.path).rglob("*.parquet"))) == (before, files)
    assert DeltaTable(bench.settings.late_path).to_pyarrow_table().num_rows == 2
    again = text_bench(tmp_path, ordered(), max_set_aside=3)
    again.batch = 2
    with caplog.at_level(logging.WARNING):
        again.run(*rows[:-3], ("soon", "b", 3), ("soon", "b", 4), (at(8), "a", 5), now=3)
    assert "3 of 20 rows were set aside" in caplog.text


@pytest.mark.parametrize("value", ["101%", "-1", "some", "", True, "1.5 rows", "% 1"])
def test_a_limit_that_is_none(tmp_path: Path, value: Any) -> None:
    with pytest.raises(IngestError, match="STRANDLINE_OPTION_INVALID"):
        text_bench(tmp_path, ordered(), max_set_aside=value)


RAW = pa.schema([*TEXT, pa.field("value", pa.binary()), pa.field("offset", pa.int64())])


def raw(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(*row, f"{row}".encode(), n) for n, row in enumerate(rows)]


def test_the_late_table_alone_has_the_record_as_it_came(tmp_path: Path) -> None:
    options: dict[str, Any] = {"domain": "timestamp", "max_future": "off", "corrections": True}
    bench = Bench(tmp_path, ordered(), RAW, late_columns=["value", "offset"], max_ahead="1 hour", **options)
    bench.run(*raw([(at(8), "a", 0), (at(9), "a", 1)]), now=1)
    bench.run(*raw([(at(20), "a", 2), (at(7), "a", 3), ("soon", "a", 4)]), now=2)
    assert bench.channel.schema.names == ["t", "p", "n"]
    late = DeltaTable(bench.settings.late_path).to_pyarrow_table().to_pylist()
    assert {(row["n"], row["value"], row["offset"], row["_reason"]) for row in late} == {
        (3, f"{(at(7), 'a', 3)}".encode(), 1, "late"),
        (4, b"('soon', 'a', 4)", 2, "unparsable time"),
    }
    assert readmit(bench.settings.path).rows == 1
    # A batch that comes again may have other such columns.
    again = Bench(tmp_path, ordered(), RAW, late_columns=["value", "offset"], **options)
    again.batch = 1
    changed = [(*row[:3], b"other", 99) for row in raw([(at(20), "a", 2), (at(7), "a", 3), ("soon", "a", 4)])]
    assert again.run(*changed, now=3) is None


def test_files_that_a_batch_is_to_publish_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = text_bench(tmp_path, ordered())
    bench.run((at(8), "a", 0), now=1)
    monkeypatch.setattr(Ingest, "_publish", lambda *_: None)
    bench.run((at(7), "a", 1), now=2)
    path = bench.settings.path
    purge_late_rows(path, "30 days", now=datetime.now(timezone.utc) + timedelta(days=99))
    assert publish_late_rows(path) == 1


@pytest.mark.parametrize("name", ["t", "p", "mark", "none"])
def test_a_column_that_the_late_table_cannot_have_alone(tmp_path: Path, name: str) -> None:
    schema = pa.schema([("t", pa.int64()), ("p", pa.string()), ("mark", pa.int64())])
    with pytest.raises(IngestError, match="STRANDLINE_LATE_COLUMN_INVALID"):
        Settings.of(str(tmp_path), schema, time="t", partition="p", policy=punctuated("mark"), late_columns=name)


def test_late_rows_are_deleted_when_they_are_old(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = text_bench(tmp_path, ordered())
    bench.run((at(8), "a", 0), now=1)
    bench.run((at(7), "a", 1), ("soon", "a", 2), now=2)  # the bench's tasks take rows in at 1 µs after 1970
    path = bench.settings.path
    arrived = datetime(1970, 1, 1, tzinfo=timezone.utc)
    assert purge_late_rows(path, "30 days", now=arrived + timedelta(days=29)) == 0
    assert purge_late_rows(path, timedelta(days=30), now=arrived + timedelta(days=31)) == 2
    assert DeltaTable(bench.settings.late_path).to_pyarrow_table().num_rows == 0
    assert status(path).aside == 2
    staged = Path(bench.settings.late_path) / "_staged"
    assert len(list(staged.iterdir())) > 0  # others may still read an older version
    purge_late_rows(path, "30 days", now=datetime.now(timezone.utc) + timedelta(days=36))
    assert len(list(staged.iterdir())) > 0
    purge_late_rows(path, "30 days", now=datetime.now(timezone.utc) + timedelta(days=38))
    assert not list(staged.iterdir())
    kept = text_bench(tmp_path, ordered(), late_retention="1 hour")
    kept.batch = 2
    kept.run((at(7), "a", 3), now=3)
    assert DeltaTable(bench.settings.late_path).to_pyarrow_table().num_rows == 0
    kept.run((at(9), "a", 4), now=4)
    with pytest.raises(PolicyError, match="late"):
        text_bench(tmp_path, ordered(), late_retention="5")
    with pytest.raises(StrandlineError, match="STRANDLINE_NOT_A_TABLE"):
        purge_late_rows(str(tmp_path / "none"), "1 hour")


def test_a_new_partition_of_a_sealed_channel_is_told_so(tmp_path: Path) -> None:
    for partitions in (None, ["a", "*"]):
        bench = text_bench(tmp_path / str(partitions), ordered(), partitions=partitions)
        bench.run((at(8), "a", 0))
        bench.channel.seal()
        with pytest.raises(IngestError, match=r"'new' cannot join, because the channel is sealed.*with a filter"):
            bench.take([(at(8), "new", 0)])
