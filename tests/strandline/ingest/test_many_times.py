"""Raw timestamps: a batch has nearly as many times as rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from ingest_bench import Bench
from strandline.channel.statements.commit_statement import MAX_MESSAGE_TIMES
from strandline.channel.statements.message_times import MAX_EXACT, TimeCounts
from strandline.ingest import bounded
from strandline.report import verify
from strandline.time.domain import int64, product


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


def test_a_long_task_counts_repeated_times_exactly_and_returns_few_spans() -> None:
    """It looks at what it has counted many times before the end: neither the spans nor their width may grow with the rows."""
    few, many = (TimeCounts(int64, most_exact=MAX_MESSAGE_TIMES) for _ in range(2))
    rows = np.random.default_rng(1).integers(0, 3000, 1_000_000)
    for part in np.split(rows, 20):
        few.add(pa.array(part))
        many.add(pa.array(part * MAX_EXACT + np.arange(len(part))))
    times, spans = few.result()
    assert not times
    assert (len(spans), sum(span.rows for span in spans)) == (1000, len(rows))
    assert max(span.high - span.low for span in spans) == 2
    times, spans = many.result()
    assert not times
    assert (len(spans) <= MAX_MESSAGE_TIMES, sum(span.rows for span in spans)) == (True, len(rows))


def test_a_long_task_returns_few_spans_of_chains_of_a_product() -> None:
    """Channels with corrections have times of two coordinates: rows of one correction are a chain."""
    rng = np.random.default_rng(2)
    counts = TimeCounts(product(at="int64", correction="int64"), most_exact=MAX_MESSAGE_TIMES)
    rows = [(rng.integers(0, 1 << 40, 60_000), np.full(60_000, part % 3)) for part in range(20)]
    for at, correction in rows:
        counts.add(pa.StructArray.from_arrays([pa.array(at), pa.array(correction)], ["at", "correction"]))
    times, spans = counts.result()
    assert not times
    assert len(spans) <= MAX_MESSAGE_TIMES + 3
    assert sum(span.rows for span in spans) == 1_200_000
    actual = {pair for at, correction in rows for pair in zip(at.tolist(), correction.tolist(), strict=True)}
    by_chain: dict[int, list[tuple[int, int]]] = {}
    for span in spans:
        assert {span.low, span.high} <= actual
        assert span.low[1] == span.high[1]
        by_chain.setdefault(span.low[1], []).append((span.low[0], span.high[0]))
    for chain, bounds in by_chain.items():
        lows, highs = (np.array(ends) for ends in zip(*sorted(bounds), strict=True))
        at = np.array([time for time, correction in actual if correction == chain])
        first = np.searchsorted(lows, at, side="right") - 1
        assert (first >= 0).all()
        assert (at <= np.maximum.accumulate(highs)[first]).all()
