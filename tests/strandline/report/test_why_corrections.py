"""The right to readmit late rows is not what somebody waits for, in the ingest's channel and downstream of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingest_bench import Bench
from page_channels import look
from strandline.channel import Channel
from strandline.cli.__main__ import main
from strandline.ingest import drop_partitions, ordered
from strandline.report.why import explain_least
from strandline.time.domain import TimeDomain, int64
from typed import typed
from why_channels import make, read, send


def downstream(tmp_path: Path, domain: TimeDomain | None = None, *steps: dict[str, Any]) -> tuple[Bench, Channel]:
    """An ingest with corrections of which b is silent at 5, and a channel that a query makes of it."""
    bench = Bench(tmp_path, ordered(), corrections=True)
    bench.run((5, "a", 0), (5, "b", 0))
    bench.run((20, "a", 1))
    events = bench.channel
    inputs = [read(events, *steps, domain=events.domain)]
    first = events.domain.minimum if domain is None else domain.minimum
    hours = make(tmp_path / "hours", domain or events.domain, producers=["query-h"], at=first)
    images = list(events.frontier) if domain is None else [first]
    send(hours, "query-h", [(5, 0) if domain is None else 5], images, inputs)
    return bench, hours


@pytest.mark.parametrize("drops", [False, True])
def test_downstream_the_silent_partition_is_named_and_not_the_corrections(
    tmp_path: Path, drops: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    event = Bench(tmp_path / "other", ordered(), corrections=True)
    event.run((1, "a", 0))
    [(name, _), _] = event.channel.domain.coordinates
    bench, hours = downstream(tmp_path, *((int64, {"coordinate": name}) if drops else ()))
    assert main(["why", hours.path]) == 0
    shown = capsys.readouterr().out
    assert "waits for partition b" in shown
    assert ("strandline:corrections" in shown) is drops, "without the coordinate, they hold everything"
    if drops:
        assert shown.index("partition b") < shown.index("strandline:corrections of")
        assert "end the corrections, which is for good: strandline end-corrections" in shown
    view = next(each for each in look(bench.settings.path, hours.path).channels if each.path == hours.path)
    assert view.culprits[0].name == "b"
    assert typed(shown, "drop") == 0
    assert not explain_least(hours).open or explain_least(hours).culprits[0].name != "b"


def test_corrections_are_named_where_nobody_else_is_left(tmp_path: Path) -> None:
    bench, hours = downstream(tmp_path)
    drop_partitions(bench.settings.path, ["a", "b"])
    bench.channel.seal()
    send(hours, "query-h", [], list(bench.channel.frontier), [read(bench.channel, domain=bench.channel.domain)])
    answer = explain_least(hours)
    assert answer is not None
    assert [each.name for each in answer.culprits] == ["strandline:corrections"]
