"""A device whose clock was ahead: its right rows are late, and everything that tells of them says how it comes back."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ingest_bench import Bench
from page_channels import look
from strandline.cli.__main__ import main
from strandline.ingest import bounded, drop_partitions, idle, ordered, status
from strandline.ingest.status import only_aside_of
from strandline.report import explain
from typed import typed


def ahead(tmp_path: Path) -> Bench:
    """Partition b had a clock that was far ahead, and has been repaired."""
    bench = Bench(tmp_path, bounded(2))
    bench.run((10, "a", 0), (10, "b", 0))
    bench.run((12, "a", 1), (900, "b", 1))
    bench.run((14, "a", 2), (14, "b", 2))
    return bench


def inspected(bench: Bench, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["inspect", bench.settings.path]) == 0
    return capsys.readouterr().out


def test_the_way_back_is_printed_everywhere_and_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "strandline")
    bench = ahead(tmp_path)
    path = bench.settings.path
    command = f"strandline rejoin {path} b"
    log = caplog.records[-1].getMessage()
    assert f"let it join where the others are: {command}." in log
    assert "longer delay" not in log
    assert command in inspected(bench, capsys)
    assert command in str(explain(path, 12)), "although it holds a later time"
    assert command in str(explain(path, 900))
    [view] = look(path).channels
    assert view.late is not None
    assert command in view.late.newest[0].remedy
    assert typed(log, "rejoin") == 0
    assert (only_aside_of(bench.channel.progress, "q"), only_aside_of(bench.channel.progress, "other")) == (1, 0)
    bench.restart()
    bench.run((15, "b", 3))
    assert only_aside_of(bench.channel.progress, "q") == 0
    assert (15, "b", 3) in bench.rows()
    assert command not in str(status(path))
    assert command not in str(explain(path, 900))


def test_a_partition_that_is_alone_has_no_way_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(tmp_path, bounded(2))
    bench.run((900, "b", 1))
    bench.run((14, "b", 2))
    assert "rejoin" not in caplog.text + str(status(bench.settings.path)) + str(explain(bench.settings.path, 900))


def test_rows_of_a_dropped_partition(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((3, "a", 0), (3, "b", 0))
    drop_partitions(bench.settings.path, ["b"])
    bench.run((4, "a", 1), (4, "b", 1))
    assert typed(caplog.records[-1].getMessage(), "rejoin") == 0


def test_rows_of_a_partition_that_was_given_up_as_silent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(tmp_path, idle(ordered(), "1 second"))
    bench.run((3, "a", 0), (3, "b", 0), now=1, run="r", to_end=True)
    bench.run((50, "a", 1), now=9000, run="r", to_end=True)
    bench.run((60, "a", 2), (4, "b", 2), now=9500, run="r", to_end=True)
    text = caplog.records[-1].getMessage()
    assert "The ingest had stopped waiting for b: give idle(…) a longer time" in text
    assert "longer delay" not in text


def test_very_many_partitions_are_counted_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    names = [f"p{number}" for number in range(300)]
    bench.run(*((9, name, 0) for name in names))
    bench.run(*((3, name, 0) for name in names[:150]), *((10, name, 0) for name in names[100:]))
    assert only_aside_of(bench.channel.progress, "q") == 100
