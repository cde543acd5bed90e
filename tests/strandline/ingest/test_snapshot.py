"""A source's first snapshot, in any order and cut anywhere: no row of it is late, and what it promises counts from its end on."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest_bench import Bench
from strandline.ingest import IngestError, bounded, idle, manifest, ordered, status

ROWS = st.lists(st.tuples(st.integers(0, 50), st.sampled_from("abc"), st.integers(0, 99)), min_size=1, max_size=30)


@pytest.mark.drawn
@settings(max_examples=15)
@given(ROWS, st.lists(st.integers(0, 30), max_size=4), st.booleans())
def test_no_row_of_a_snapshot_is_late_and_its_promises_come_with_its_end(
    rows: list[tuple[int, str, int]], cuts: list[int], restarts: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), bounded(5))
        bounds = [0, *sorted(min(cut, len(rows) - 1) for cut in cuts)]
        for begin, end in itertools.pairwise(bounds):
            bench.run(*rows[begin:end], in_snapshot=True)
            if bench.channel.producers:
                assert bench.channel.frontier.less_equal(bench.settings.domain.minimum)
            if restarts:
                bench.restart()
        bench.run(*rows[bounds[-1] :], in_snapshot=False)
        assert bench.rows() == sorted(rows)
        assert not bench.late()
        greatest = {p: max(t for t, q, _ in rows if q == p) for _, p, _ in rows}
        assert bench.holds() == {p: [t - 5] for p, t in greatest.items()}
        # From then on they are promises like others.
        last = max(greatest.items())
        bench.run((last[1] - 6, last[0], 100))
        assert bench.late() == [(last[1] - 6, last[0], 100)]


def test_a_snapshot_ends_only_when_that_is_known(tmp_path: Path) -> None:
    """Otherwise one slow answer of the checkpoint's store would make the rest of the snapshot late for good."""
    bench = Bench(tmp_path, ordered())
    assert bench.ingest.in_first_snapshot("q") is None
    bench.run((5, "a", 1), (9, "a", 2), in_snapshot=True)
    files = sorted(tmp_path.rglob("*.parquet"))
    for _ in range(2):
        reports = bench.take([(3, "a", 3)])
        with pytest.raises(IngestError, match="STRANDLINE_SNAPSHOT_END_UNKNOWN.*batch 1 "):
            bench.commit(reports, in_snapshot=None)
        bench.ingest.abort(("q", 1), reports)
        assert sorted(tmp_path.rglob("*.parquet")) == files
        bench.restart()
        assert bench.ingest.in_first_snapshot("q") is True
    bench.run((3, "a", 3), in_snapshot=True)
    bench.run((2, "a", 4), in_snapshot=False)
    assert bench.ingest.in_first_snapshot("q") is False
    bench.run((10, "a", 5), (1, "a", 6), in_snapshot=None)  # an ingest whose checkpoint Python cannot read is in none
    assert [n for *_, n in bench.rows()] == [4, 3, 1, 2, 5]
    assert bench.late() == [(1, "a", 6)]


def test_nobody_falls_silent_in_a_snapshot(tmp_path: Path) -> None:
    bench = Bench(tmp_path, idle(bounded(0), "10 seconds"))
    bench.run((5, "a", 0), (3, "b", 0), now=1, run="r", to_end=True, in_snapshot=True)
    for second in range(1, 5):
        bench.run((5 + second, "a", 0), now=10_000 * second, run="r", to_end=True, in_snapshot=True)
    assert bench.frontier() == [bench.settings.domain.minimum]
    bench.run((9, "a", 0), (1, "b", 1), now=50_000, run="r", to_end=True)
    assert bench.holds() == {"a": [9], "b": [3]}
    assert not bench.late()


def test_a_snapshot_completes_no_partition_that_nobody_waits_for(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "m"), pa.table({"t": [2], "p": ["a"], "expected": [1]}))
    first = Bench(tmp_path, idle(ordered(), "10 seconds"), query="first")
    first.run((4, "a", 0), now=1, run="r", to_end=True)
    first.run(now=11_000, run="r", to_end=True)
    assert status(first.settings.path).partitions[0].idle_since is not None
    second = Bench(tmp_path, idle(manifest(str(tmp_path / "m")), "10 seconds"), query="second", take_over=True)
    second.run(now=12_000, in_snapshot=True)
    assert second.holds() == {"a": [4]}
    second.run(now=12_001)
    assert second.holds() == {"a": []}
