"""What would release a partition's time depends on its policy: what does not help is not named."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest_bench import Bench
from strandline.ingest import bounded, heartbeat, idle, ordered, punctuated
from strandline.report import explain
from why_channels import the_culprit

RUN: dict[str, Any] = {"run": "r", "to_end": True}
LATER = time.time_ns() // 1_000_000 + 86_400_000
"""A batch then is after what was committed before it."""


def test_idle_that_has_no_effect_is_not_offered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(tmp_path, idle(bounded(2), "3 seconds"), partitions=["a", "b"])
    for number in range(4):
        bench.run((10 + number, "a", number), *([(10, "b", 0)] if not number else []), now=number * 9000, run="r", to_end=False)
    culprit = the_culprit(explain(bench.settings.path, 9))
    assert "idle() has no effect: a batch may leave rows of the source unread" in culprit.what
    assert "once it has been silent" not in culprit.release
    assert "without an option that limits its batches, such as maxFilesPerTrigger" in culprit.release
    assert sum("idle() has no effect" in each.getMessage() for each in caplog.records) == 1


@pytest.mark.parametrize("clock", [True, False])
def test_where_all_are_silent_a_drop_does_not_help_and_the_clock_does(tmp_path: Path, clock: bool) -> None:
    kind = pa.timestamp("us", "UTC") if clock else pa.int64()
    schema = pa.schema([("t", kind), ("p", pa.string()), ("n", pa.int64())])
    bench = Bench(tmp_path, idle(ordered(), "3 seconds"), schema=schema, partitions=["a", "b"])
    bench.run((3, "a", 0), (5, "b", 0), now=1, **RUN)
    bench.run(now=9000, **RUN)
    culprit = the_culprit(explain(bench.settings.path, bench.frontier()[0]))
    assert "all partitions of the ingest are silent, and this one stands for all of them" in culprit.what
    assert ("heartbeat=True, and the policy idle(…, counts='wall', all_silent='advance')" in culprit.release) is clock
    assert "rows of any of them" in culprit.release
    assert "strandline drop" not in culprit.release


HEARTBEATS = pa.schema([("t", pa.int64()), ("p", pa.string()), ("n", pa.int64()), ("mark", pa.bool_())])


@pytest.mark.parametrize(
    ("policy", "what", "release"),
    [
        (heartbeat("mark"), "no heartbeat has moved it on since 2", "a row in which mark is true"),
        (idle(heartbeat("mark"), "1 hour"), "no heartbeat has moved it on since 2", "heartbeat('mark', bounded(…))"),
        (punctuated("mark"), "no punctuation has moved it on since 2", "with a punctuation in mark"),
    ],
)
def test_rows_come_but_nothing_that_moves_the_partition(tmp_path: Path, policy: Any, what: str, release: str) -> None:
    bench = Bench(tmp_path, policy, schema=HEARTBEATS, partitions=["a", "b"])
    bench.run((3, "a", 0, True), (3, "b", 0, True), now=1, **RUN)
    bench.run((9, "a", 1, True), (8, "b", 1, False), now=LATER, **RUN)
    culprit = the_culprit(explain(bench.settings.path, 3))
    assert culprit.name == "b"
    assert f"its rows come, but {what}" in culprit.what
    assert release in culprit.release
    assert "strandline drop" not in culprit.release


def test_a_silent_partition_with_heartbeats_is_silent(tmp_path: Path) -> None:
    bench = Bench(tmp_path, heartbeat("mark"), schema=HEARTBEATS, partitions=["a", "b"])
    bench.run((3, "a", 0, True), (3, "b", 0, True), now=1, **RUN)
    bench.run((9, "a", 1, True), now=LATER, **RUN)
    culprit = the_culprit(explain(bench.settings.path, 3))
    assert "its rows come" not in culprit.what
    assert "strandline drop" in culprit.release
