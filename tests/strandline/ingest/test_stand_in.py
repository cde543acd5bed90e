"""When nobody speaks: the frontier goes as far as was promised, never back, and no partition ends that has more to bring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from column_forms import columns_for
from ingest_bench import SCHEMA, Bench
from strandline.ingest import IngestError, Policy, Settings, drop_partitions, idle, manifest, ordered, status

RUN: dict[str, Any] = {"run": "r", "to_end": True}
IDLE = idle(ordered(), "10 seconds")


@pytest.fixture(params=[False, True], ids=["one by one", "columns"], autouse=True)
def form(request: pytest.FixtureRequest) -> Any:
    with columns_for(all_=request.param):
        yield


def saved(folder: Path, policy: Policy) -> Policy:
    policy.save(str(folder / "m"), Settings.of(str(folder / "channel"), SCHEMA, time="t", partition="p", policy=policy))
    return policy


@pytest.mark.parametrize("options", [{}, {"partitions": ["a", "b"]}], ids=["open", "sealed"])
def test_dropping_the_last_that_speaks_does_not_end_those_that_are_idle(options: dict[str, Any], tmp_path: Path) -> None:
    bench = Bench(tmp_path, IDLE, **options)
    bench.run((5, "a", 0), (3, "b", 1), now=1, **RUN)
    bench.run((9, "a", 2), now=10_001, **RUN)
    drop_partitions(bench.settings.path, ["a"])
    assert bench.holds() == {"a": [], "b": [9]}
    assert bench.frontier() == [9]
    assert status(bench.settings.path).partitions[1].idle_since == 10_001
    bench.run((20, "b", 3), (8, "b", 4), now=10_002, **RUN)
    bench.run((30, "b", 5), now=10_003, **RUN)
    assert bench.late("t", "_frontier") == [(8, [9])]
    assert bench.holds() == {"a": [], "b": [30]}


def test_dropping_several_leaves_the_one_that_promised_most(tmp_path: Path) -> None:
    bench = Bench(tmp_path, IDLE)
    bench.run((5, "a", 0), (30, "b", 1), (7, "c", 1), (6, "d", 1), now=1, **RUN)
    bench.run((9, "a", 2), (6, "d", 2), now=10_001, **RUN)
    drop_partitions(bench.settings.path, ["a", "d"])
    assert bench.holds() == {"a": [], "b": [30], "c": [], "d": []}
    drop_partitions(bench.settings.path, ["b"])
    assert bench.holds() == {"a": [], "b": [], "c": [30], "d": []}
    drop_partitions(bench.settings.path, ["c"])
    assert not any(bench.holds().values())


def test_the_stand_in_does_not_go_back_when_who_promised_more_is_dropped(tmp_path: Path) -> None:
    bench = Bench(tmp_path, IDLE)
    bench.run((30, "a", 0), (10, "b", 0), (5, "c", 0), now=1, **RUN)
    bench.run((10, "b", 1), (5, "c", 1), now=10_001, **RUN)
    bench.run(now=30_000, **RUN)
    assert bench.frontier() == [30]
    drop_partitions(bench.settings.path, ["a"])
    for now in (40_000, 40_001, 90_000):
        bench.run(now=now, **RUN)
        assert bench.holds() == {"a": [], "b": [30], "c": []}
    bench.run((31, "c", 2), now=90_001, **RUN)
    assert bench.holds() == {"a": [], "b": [], "c": [31]}


def test_the_stand_in_does_not_go_back_when_who_promised_more_is_done(tmp_path: Path) -> None:
    policy = saved(tmp_path, idle(manifest({("a", 1): 1, ("a", 9): 1, ("b", 3): 1, ("b", 12): 1}), "10 seconds"))
    bench = Bench(tmp_path, policy)
    bench.run((1, "a", 0), now=1, **RUN)
    bench.run(now=10_001, **RUN)
    bench.run((9, "a", 3), now=10_003, **RUN)
    for now in (10_004, 10_005, 99_000):
        bench.run(now=now, **RUN)
        assert bench.holds() == {"a": [], "b": [9]}
    bench.run((3, "b", 4), now=99_001, **RUN)
    assert bench.late("t") == [(3,)]
    assert bench.holds() == {"a": [], "b": [9]}  # rows that are set aside end no silence
    bench.run((12, "b", 5), now=99_002, **RUN)
    assert bench.frontier() == []


def test_in_a_partial_order_as_well(tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.struct([("a", pa.int64()), ("b", pa.int64())])), ("p", pa.string()), ("n", pa.int64())])

    def at(a: int, b: int) -> dict[str, int]:
        return {"a": a, "b": b}

    bench = Bench(tmp_path, IDLE, schema, domain="product(a int64, b int64)")
    bench.run((at(3, 9), "x", 0), (at(9, 3), "y", 0), (at(1, 1), "z", 0), now=1, **RUN)
    bench.run(now=10_001, **RUN)
    assert bench.frontier() == [(9, 9)]
    stand_in = next(name for name, holds in bench.holds().items() if holds)
    drop_partitions(bench.settings.path, [stand_in])
    for now in (10_002, 10_003):
        bench.run(now=now, **RUN)
        assert bench.frontier() == [(9, 9)]
    drop_partitions(bench.settings.path, [name for name in "xyz" if bench.holds()[name]])
    bench.run(now=10_004, **RUN)
    assert bench.frontier() == [(9, 9)]


def test_an_idle_partition_goes_on_in_a_partial_order_while_another_ingest_commits(tmp_path: Path) -> None:
    """Its rows are in advance of what the others hold, but not all of one time of it. The other ingest moves nothing of that."""
    kind = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    schema = pa.schema([("t", kind), ("p", pa.string()), ("n", pa.int64())])

    def at(a: int, b: int) -> dict[str, int]:
        return {"a": a, "b": b}

    bench = Bench(tmp_path, IDLE, schema, domain="product(a int64, b int64)", partitions=["x", "y", "z"])
    other = Bench(tmp_path, ordered(), schema, "other", domain="product(a int64, b int64)", partitions=["w", "*"])
    other.run((at(0, 0), "w", 0))
    bench.run((at(1, 3), "x", 0), (at(3, 1), "y", 0), (at(0, 0), "z", 0), now=1, **RUN)
    bench.run((at(1, 3), "x", 1), (at(3, 1), "y", 1), now=10_001, **RUN)
    assert bench.holds()["z"] == []
    reports = bench.take([(at(1, 5), "z", 2), (at(5, 1), "z", 2)])
    other.run((at(0, 1), "w", 1))
    assert bench.commit(reports, 10_002, **RUN) is not None
    assert bench.late() == []


def test_a_batch_whose_idle_partition_would_go_on_elsewhere_by_now_is_taken_in_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, IDLE)
    bench.run((5, "a", 0), (9, "c", 0), (3, "b", 1), now=1, **RUN)
    bench.run((5, "a", 0), (9, "c", 2), now=10_001, **RUN)
    rows = [(4, "b", 1), (6, "b", 2), (9, "b", 3)]
    reports = bench.take(rows)
    drop_partitions(bench.settings.path, ["a"])
    with pytest.raises(IngestError, match="STRANDLINE_INGEST_OVERTAKEN.*'b'"):
        bench.commit(reports, 10_002, **RUN)
    bench.restart()
    bench.run(*rows, now=10_003, **RUN)
    assert bench.late("t", "_frontier") == [(4, [9]), (6, [9])]
    assert bench.holds() == {"a": [], "b": [9], "c": [9]}


def test_rows_of_an_idle_partition_that_are_cancelled_are_not_waited_for(tmp_path: Path) -> None:
    def put(*rows: tuple[int, str, int, int]) -> None:
        names = ("t", "p", "expected", "cancelled")
        table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})
        write_deltalake(str(tmp_path / "m"), table, mode="overwrite")

    put((1, "a", 1, 0), (9, "a", 1, 0), (3, "b", 1, 0), (4, "c", 1, 0), (11, "c", 1, 0))
    bench = Bench(tmp_path, idle(manifest(str(tmp_path / "m")), "10 seconds"))
    bench.run((1, "a", 0), now=1, **RUN)
    bench.run(now=10_001, **RUN)
    bench.run((9, "a", 1), now=20_001, **RUN)
    assert bench.frontier() == [9]
    put((1, "a", 1, 0), (9, "a", 1, 0), (3, "b", 1, 1), (4, "c", 1, 0), (11, "c", 1, 0))
    bench.run(now=20_002, **RUN)
    assert bench.holds() == {"a": [], "b": [], "c": [9]}
    put((1, "a", 1, 0), (9, "a", 1, 0), (3, "b", 1, 1), (4, "c", 1, 1), (11, "c", 1, 1))
    bench.run(now=20_003, **RUN)
    assert bench.frontier() == []
    bench.run(now=60_000, **RUN)
    assert bench.frontier() == []


def test_silence_counts_from_a_change_of_policy_and_ends_with_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path, IDLE)
    bench.run((1, "a", 0), (1, "c", 0), now=1, **RUN)
    bench.run((2, "a", 0), (2, "c", 0), now=100_000, **RUN)
    bench.run((2, "a", 0), now=105_000, **RUN)
    other = Bench(tmp_path, ordered())
    other.batch = bench.batch
    other.run((3, "a", 0), (3, "c", 0), now=200_000, run="s", to_end=True)
    again = Bench(tmp_path, IDLE)
    again.batch = other.batch
    again.run((4, "a", 0), now=300_000, run="t", to_end=True)
    again.run((5, "a", 0), now=306_000, run="t", to_end=True)
    assert again.holds() == {"a": [5], "c": [3]}
    again.run((6, "a", 0), now=310_000, run="t", to_end=True)
    assert again.holds() == {"a": [6], "c": []}
    last = Bench(tmp_path, ordered())  # nobody is not waited for any more
    last.batch = again.batch
    last.run((8, "a", 0), now=400_000)
    assert last.holds() == {"a": [8], "c": [6]}
    last.run((7, "c", 0), now=400_001)
    assert not last.late()
