"""Rows that are set aside are in no result. The log says so, once a batch."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.channel import WriterSession
from strandline.ingest import Ingest, IngestTask, Settings, bounded
from strandline.time.domain import timestamp

SCHEMA = pa.schema([("at", pa.string()), ("p", pa.string())])


def ingest(folder: Path, batch: int, rows: list[tuple[str, str]], tasks: int = 1) -> None:
    settings = Settings.of(str(folder / "c"), SCHEMA, time="at", partition=("p",), policy=bounded("10 minutes"), domain=timestamp)
    of = Ingest(settings)
    start, reports = of.start(), []
    for number in range(tasks):
        with IngestTask(settings.for_tasks(), start, name=f"part-{number}", query="q", batch=batch, arrival=0) as task:
            share = rows[number::tasks]
            task.write(pa.table({"at": [at for at, _ in share], "p": [p for _, p in share]}, schema=SCHEMA))
            reports.append(task.finish())
    of.commit(("q", batch), reports, WriterSession.here("q"))


def test_a_batch_with_rows_set_aside_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "strandline")
    ingest(tmp_path, 0, [("2026-03-01T09:00Z", "a"), ("2026-03-01T09:05Z", "b")])
    assert not caplog.records
    ingest(tmp_path, 1, [("01.03.2026 09:00", "b"), ("2026-03-01T09:30Z", "a"), ("01.03.2026 09:10", "b")], tasks=2)
    (record,) = caplog.records
    text = record.getMessage()
    assert f"2 of 3 rows were set aside in {tmp_path / 'c'}_late, and are in no result" in text
    assert "2 of partition b: unparsable time, such as '01.03.2026 09:" in text
    assert "Repair what sends them" in text
    caplog.clear()
    ingest(tmp_path, 2, [("2026-03-01T07:00Z", "a"), ("2026-03-01T09:40Z", "a")])
    (record,) = caplog.records
    assert "1 of partition a: late, such as '2026-03-01T07:00Z'. Give the policy a longer delay" in record.getMessage()
