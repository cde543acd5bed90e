"""Manifests: a time closes when all that was announced came or was cancelled; contradictions and shrinking are refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ingest_bench import SCHEMA, Bench
from strandline.channel import Channel
from strandline.ingest import IngestError, PolicyError, Settings, cancel, manifest
from strandline.time.arrow import time_field
from strandline.time.domain import int64, product

FLAGGED = pa.schema([*SCHEMA, ("gone", pa.bool_())])


def bench_of(path: Path, expected: Any, schema: pa.Schema = SCHEMA, cancelled: str | None = None, **options: Any) -> Bench:
    policy = manifest(expected, cancelled)
    columns: dict[str, Any] = {"time": "t", "partition": "p", **options}
    policy.save(str(path / "manifest"), Settings.of(str(path / "channel"), schema, policy=policy, **columns))
    return Bench(path, policy, schema, **options)


def table(path: Path, *rows: tuple[str, int, int] | tuple[str, int, int, int]) -> str:
    """A manifest as a plain table: partition, time, expected, cancelled."""
    columns = {
        "p": [r[0] for r in rows],
        "t": pa.array([r[1] for r in rows], pa.int64()),
        "expected": pa.array([r[2] for r in rows], pa.int64()),
        "cancelled": pa.array([r[3] if len(r) > 3 else 0 for r in rows], pa.int64()),
    }
    write_deltalake(str(path), pa.table(columns), mode="overwrite")
    return str(path)


def test_a_time_closes_when_all_that_was_announced_came(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, {("a", 1): 2, ("a", 3): 1, ("b", 2): 1})
    assert bench.run((3, "a", 0)) is not None
    assert bench.holds() == {"a": [1], "b": [2]}
    bench.restart()
    bench.run((1, "a", 1), (2, "b", 2))
    assert bench.holds() == {"a": [1], "b": []}
    bench.run((1, "a", 3), (0, "b", 9))
    assert bench.frontier() == []
    assert bench.channel.sealed
    assert bench.late("n", "_reason", "_frontier") == [(9, "late", [])]


@pytest.mark.parametrize("form", ["mapping", "nested", "pandas", "arrow", "path"])
def test_a_manifest_is_given_in_any_form(form: str, tmp_path: Path) -> None:
    rows = [("a", 1, 2), ("b", 2, 1)]
    frame = pd.DataFrame({"p": ["a", "b"], "t": [1, 2], "expected": [2, 1]})
    expected: Any = {
        "mapping": {(p, t): n for p, t, n in rows},
        "nested": {"a": {1: 2}, "b": {2: 1}},
        "pandas": frame,
        "arrow": pa.Table.from_pandas(frame),
        "path": table(tmp_path / "given", *rows) if form == "path" else None,
    }[form]
    bench = bench_of(tmp_path, expected)
    bench.run((1, "a", 0), (2, "b", 1))
    assert bench.holds() == {"a": [1], "b": []}


def test_rows_without_a_count_announce_one_each(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "m"), pa.table({"p": ["a", "a"], "t": [1, 2]}))
    bench = bench_of(tmp_path, str(tmp_path / "m"))
    bench.run((1, "a", 0))
    assert bench.holds() == {"a": [2]}


def test_rows_that_were_cancelled_count_and_are_not_written(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, {("a", 1): 2, ("a", 2): 1}, FLAGGED, "gone")
    bench.run((1, "a", 0, False), (1, "a", 1, True), (2, "a", 2, None))
    assert bench.frontier() == []
    assert [n for _, _, n, _ in bench.rows()] == [0, 2]
    bench.run((1, "a", 3, True))  # told once more, when all is closed
    assert bench.late("n", "_reason") == [(3, "late")]


def test_cancelling_in_the_table_closes_a_time(tmp_path: Path) -> None:
    path = table(tmp_path / "m", ("a", 1, 2), ("b", 5, 1))
    bench = bench_of(tmp_path, path)
    bench.run((1, "a", 0))
    assert bench.holds() == {"a": [1], "b": [5]}
    table(tmp_path / "m", ("a", 1, 2, 1), ("b", 5, 1))
    bench.run()  # no row: the manifest has news
    assert bench.holds() == {"a": [], "b": [5]}


@pytest.mark.parametrize("restart", [False, True])
def test_a_manifest_that_shrinks_is_refused(restart: bool, tmp_path: Path) -> None:
    path = table(tmp_path / "m", ("a", 1, 2), ("a", 5, 3))
    bench = bench_of(tmp_path, path)
    bench.run((1, "a", 0))
    table(tmp_path / "m", ("a", 1, 2), ("a", 5, 2))
    if restart:
        bench.restart()
    version = bench.channel.version
    with pytest.raises(IngestError, match=r"STRANDLINE_MANIFEST_SHRINKS.*'a'.*cancelled"):
        bench.run((1, "a", 1))
    assert bench.channel.version == version
    table(tmp_path / "m", ("a", 1, 2), ("a", 5, 3, 1))
    bench.restart()
    bench.run((1, "a", 1), (5, "a", 2), (5, "a", 3))
    assert bench.frontier() == []


@pytest.mark.parametrize(
    ("given", "condition"),
    [
        ({("a", 1): 1, ("a", 3): 2, ("b", 1): 2}, "MANIFEST_SHRINKS"),
        ({("a", 1): 1, ("a", 3): 3}, "MANIFEST_SHRINKS"),
        ({("a", 1): 2, ("a", 3): 3, ("b", 1): 2}, "MANIFEST_CONTRADICTION"),
        ({("a", 0): 1, ("a", 1): 1, ("a", 3): 3, ("b", 1): 2}, "MANIFEST_CONTRADICTION"),
    ],
)
@pytest.mark.parametrize("corrections", [False, True])
def test_a_refused_start_writes_nothing(given: Any, condition: str, corrections: bool, tmp_path: Path) -> None:
    """So what was cancelled stays cancelled, and the start works with what was announced before, or more."""
    announced = {("a", 1): 1, ("a", 3): 3, ("b", 1): 2}
    bench = bench_of(tmp_path, announced, corrections=corrections)
    bench.run((1, "a", 0), (3, "a", 1))
    cancel(bench.settings.path, {("a", 3): 1, ("b", 1): 2})
    before = DeltaTable(tmp_path / "manifest").version()
    with pytest.raises(IngestError, match=condition):
        bench_of(tmp_path, given, corrections=corrections)
    assert DeltaTable(tmp_path / "manifest").version() == before
    again = bench_of(tmp_path, {**announced, ("a", 9): 1}, corrections=corrections)
    again.batch = bench.batch
    again.run((3, "a", 2))
    assert {name: held for name, held in again.holds().items() if held and name != "strandline:corrections"}.keys() == {"a"}


def test_a_manifest_of_a_channel_that_is_gone_is_written_anew(tmp_path: Path) -> None:
    bench_of(tmp_path, {("a", 1): 5}).run((1, "a", 0))
    shutil.rmtree(tmp_path / "channel")
    bench = bench_of(tmp_path, {("a", 1): 1})
    bench.run((1, "a", 0))
    assert bench.frontier() == []


def test_announcing_more_for_a_complete_time_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "m", ("a", 1, 1), ("a", 5, 3))
    bench = bench_of(tmp_path, path)
    bench.run((1, "a", 0))
    table(tmp_path / "m", ("a", 1, 2), ("a", 5, 3))
    bench.restart()
    with pytest.raises(IngestError, match="STRANDLINE_MANIFEST_CONTRADICTION.*announces 2 rows of 'a' for complete times"):
        bench.run((5, "a", 1))


def test_a_table_may_announce_more_for_times_that_are_open(tmp_path: Path) -> None:
    path = table(tmp_path / "m", ("a", 1, 1), ("a", 5, 1))
    bench = bench_of(tmp_path, path)
    bench.run((1, "a", 0))
    table(tmp_path / "m", ("a", 1, 1), ("a", 5, 2), ("a", 9, 1), ("b", 7, 1))
    bench.run((5, "a", 1))
    assert bench.holds()["a"] == [5]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", 1, 2), ("a", 1, 3)], "STRANDLINE_MANIFEST_CONTRADICTION.*announced twice, with 2 and with 3"),
        ([("a", 1, 2, 3)], "STRANDLINE_MANIFEST_CONTRADICTION.*2 rows, 3 of them cancelled"),
        ([("a", 1, -2)], "STRANDLINE_MANIFEST_CONTRADICTION"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(rows: list[Any], message: str, tmp_path: Path) -> None:
    path = table(tmp_path / "m", *rows)
    with pytest.raises(IngestError, match=message):
        bench_of(tmp_path, path)
    assert not Channel.exists(tmp_path / "channel")


def test_what_is_no_manifest_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="STRANDLINE_MANIFEST_UNREADABLE"):
        bench_of(tmp_path, str(tmp_path / "nowhere"))
    write_deltalake(str(tmp_path / "m"), pa.table({"airport": ["a"], "t": [1]}))
    with pytest.raises(PolicyError, match=r"STRANDLINE_MANIFEST_INVALID.*lacks the column\(s\) \['p'\]"):
        bench_of(tmp_path, str(tmp_path / "m"))
    write_deltalake(str(tmp_path / "n"), pa.table({"p": ["a"], "t": pa.array([None], pa.int64())}))
    with pytest.raises(PolicyError, match="null in the column t"):
        bench_of(tmp_path, str(tmp_path / "n"))
    with pytest.raises(PolicyError, match="of the type int"):
        bench_of(tmp_path, 5)


def test_a_manifest_that_is_a_channel_grows_until_it_says_that_it_will_not(tmp_path: Path) -> None:
    schema = pa.schema([time_field("t", int64), ("p", pa.string()), ("expected", pa.int64())])
    announced = Channel.create(tmp_path / "m", schema, time="t", producers=["planner"], at=0)

    def announce(*rows: tuple[int, str, int], then: list[int] | None = None) -> None:
        with announced.producer("planner") as planner:
            if rows:
                planner.send(pa.table({"t": [r[0] for r in rows], "p": [r[1] for r in rows], "expected": [r[2] for r in rows]}))
            if then is not None:
                planner.delay(then)

    announce((1, "a", 1), (5, "a", 2), (2, "b", 1), then=[4])
    bench = bench_of(tmp_path, str(tmp_path / "m"))
    bench.run((1, "a", 0), (2, "b", 1))
    assert bench.holds() == {"a": [4], "b": [4]}  # more may be announced for 4 and later
    announce((5, "a", -1), (7, "b", 1), then=[6])  # one of two is cancelled
    bench.run((5, "a", 2))
    assert bench.holds() == {"a": [6], "b": [6]}
    bench.restart()
    announce(then=[])
    bench.run()
    assert bench.holds() == {"a": [], "b": [7]}
    bench.run((7, "b", 3))
    assert {name: held for name, held in bench.holds().items() if held} == {}


def test_a_channel_that_cancels_more_than_it_announced_contradicts_itself(tmp_path: Path) -> None:
    schema = pa.schema([time_field("t", int64), ("p", pa.string()), ("expected", pa.int64())])
    announced = Channel.create(tmp_path / "m", schema, time="t", producers=["planner"], at=0)
    with announced.producer("planner") as planner:
        planner.send(pa.table({"t": [1, 1], "p": ["a", "a"], "expected": [1, -2]}))
    with pytest.raises(IngestError, match="STRANDLINE_MANIFEST_CONTRADICTION.*-1 rows in all"):
        bench_of(tmp_path, str(tmp_path / "m"))
    other = Channel.create(tmp_path / "other", pa.schema([time_field("t", product(a="int64")), ("p", pa.string())]), time="t")
    with pytest.raises(PolicyError, match="STRANDLINE_TIME_DOMAIN_MISMATCH"):
        bench_of(tmp_path, other.path)


def test_in_a_partial_order_a_late_time_holds_only_itself(tmp_path: Path) -> None:
    # (x, -x): no two are comparable, so each hour closes by itself.
    schema = pa.schema([("t", pa.struct([("a", pa.int64()), ("b", pa.int64())])), ("p", pa.string()), ("n", pa.int64())])

    def at(x: int) -> dict[str, int]:
        return {"a": x, "b": -x}

    rows = pa.table(
        {
            "p": ["x"] * 3,
            "t": pa.array([at(1), at(2), at(3)], schema.field("t").type),
            "expected": pa.array([1, 1, 2], pa.int64()),
        }
    )
    write_deltalake(str(tmp_path / "m"), rows)
    bench = bench_of(tmp_path, str(tmp_path / "m"), schema, domain="product(a int64, b int64)")
    bench.run((at(2), "x", 0), (at(3), "x", 1))
    assert bench.holds() == {"x": [(1, -1), (3, -3)]}
    bench.restart()
    bench.run((at(2), "x", 2), (at(3), "x", 3))
    assert bench.holds() == {"x": [(1, -1)]}
    assert bench.late("n", "_reason") == [(2, "late")]
    bench.run((at(1), "x", 4))
    assert bench.frontier() == []


@pytest.mark.parametrize(
    ("column", "values"),
    [("expected", [1.5]), ("expected", ["x"]), ("cancelled", ["no"]), ("p", [b"\xff"])],
)
def test_what_is_no_manifest_is_refused_by_name(column: str, values: list[Any], tmp_path: Path) -> None:
    rows = pa.table({"p": ["a"], "t": [1], "expected": [1], "cancelled": [0]} | {column: values})
    write_deltalake(str(tmp_path / "m"), rows)
    with pytest.raises(PolicyError, match="STRANDLINE_MANIFEST_INVALID"):
        Bench(tmp_path, manifest(str(tmp_path / "m")))


def test_news_of_a_manifest_are_kept_when_another_process_was_faster(tmp_path: Path) -> None:
    policy = manifest(table(tmp_path / "m", ("a", 1, 1), ("a", 5, 1), ("b", 9, 1)))
    bench = Bench(tmp_path, policy)
    bench.run((1, "a", 0))
    faster = Bench(tmp_path, manifest(str(tmp_path / "m")))  # another process of the query, which was not stopped
    faster.batch = bench.batch
    mine, theirs = bench.take([(9, "b", 1)]), faster.take([(9, "b", 1)])
    refresh = policy.refresh

    def meanwhile() -> None:
        faster.commit(theirs)
        table(tmp_path / "m", ("a", 1, 1), ("a", 5, 1, 1), ("b", 9, 1))
        refresh()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "refresh", meanwhile)
        assert bench.commit(mine) is None
    assert bench.holds() == {"a": [5], "b": []}
    bench.batch += 1
    bench.run((None, None, 2))
    assert bench.frontier() == []
