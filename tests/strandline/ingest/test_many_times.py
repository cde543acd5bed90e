"""Raw timestamps: a batch has nearly as many times as rows."""

from __future__ import annotations

from pathlib import Path

from ingest_bench import Bench
from strandline.channel.statements.commit_statement import MAX_MESSAGE_TIMES
from strandline.ingest import bounded
from strandline.report import verify


def test_a_task_sends_no_more_times_to_the_driver_than_a_commit_states(tmp_path: Path) -> None:
    bench = Bench(tmp_path, bounded(5))
    rows = [(time, "ab"[time % 2], 0) for time in range(5 * MAX_MESSAGE_TIMES)]
    few, *many = bench.take(rows[:100], tasks=1) + bench.take(rows[100:])
    assert few.times == [(time, 1) for time in range(100)]
    for report in many:
        assert not report.times
        assert len(report.spans) <= MAX_MESSAGE_TIMES
        assert sum(span.rows for span in report.spans) == sum(file.rows for file in report.files)
    bench.commit([few, *many])
    assert bench.rows() == sorted(rows)
    assert bench.frontier() == [5 * MAX_MESSAGE_TIMES - 7]
    assert verify(bench.settings.path).sound
