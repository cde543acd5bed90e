"""Rows far ahead of the frontier are parked: never lost, in order, and never more of them in the channel than was asked for."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ingest_bench import Bench
from strandline.channel import WriterSession
from strandline.ingest import bounded, drop_partitions, heartbeat, ordered, punctuated, release_parked, status
from strandline.ingest.names import PARKED
from strandline.report import verify

LEAST = -(1 << 63)


def test_a_fast_partition_waits_for_the_slow_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), max_ahead=10)
    bench.run((1, "a", 0), (2, "b", 0), (11, "b", 1), (12, "b", 2), (55, "b", 3))
    assert bench.rows() == [(1, "a", 0), (2, "b", 0), (11, "b", 1)]
    assert bench.frontier() == [1]
    assert status(bench.settings.path).parked_rows == 2
    assert len(list((tmp_path / "channel" / "_ahead").iterdir())) >= 1
    bench.restart()
    bench.run((2, "a", 5))
    assert (12, "b", 2) in bench.rows()
    bench.run((60, "a", 6))
    assert bench.rows()[-1] == (60, "a", 6)
    assert len(bench.rows()) == 7
    assert status(bench.settings.path).parked_rows == 0
    assert bench.frontier() == [55]


def test_delta_reads_rows_that_were_parked_and_vacuum_leaves_those_that_are(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), max_ahead=10)
    bench.run((1, "a", 0), (30, "b", 1), (60, "b", 2))
    bench.run((25, "a", 3))
    table = DeltaTable(str(tmp_path / "channel"))
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert sorted(pa.table(table.to_pyarrow_table())["t"].to_pylist()) == [1, 25, 30]
    assert all(file.stats and "numRecords" in file.stats for file in bench.channel.log.require(2).files)
    bench.run((70, "a", 4), (61, "b", 5))
    assert [t for t, *_ in bench.rows()] == [1, 25, 30, 60, 61, 70]


def test_parked_rows_join_when_everybody_else_is_done(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), max_ahead=10)
    bench.run((1, "a", 0), (60, "b", 2))
    drop_partitions(bench.settings.path, ["a"])
    bench.run((61, "b", 3))
    assert len(bench.rows()) == 3


def test_a_composite_time_is_aligned_by_its_first_coordinate(tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.struct([("a", pa.int64()), ("b", pa.int64())])), ("p", pa.string()), ("n", pa.int64())])

    def at(a: int, b: int) -> dict[str, int]:
        return {"a": a, "b": b}

    bench = Bench(tmp_path, ordered(), schema, domain="product(a int64, b int64)", max_ahead=10)
    bench.run((at(1, 5), "x", 0), (at(2, 3), "y", 0), (at(40, 0), "z", 1))
    assert [t for t, *_ in bench.rows()] == [(1, 5), (2, 3)]
    bench.run((at(30, 9), "x", 0), (at(31, 9), "y", 0))
    assert [t for t, *_ in bench.rows()] == [(1, 5), (2, 3), (30, 9), (31, 9), (40, 0)]


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(5))
def test_traces(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path)


def run(seed: int, path: Path) -> None:
    random_ = random.Random(seed)
    ahead, delay = random_.choice((0, 1, 5, 20)), random_.choice((0, 3))
    names = [f"p{i}" for i in range(random_.randint(2, 4))]
    named = names if random_.random() < 0.5 else None
    bench = Bench(path, bounded(delay), max_ahead=ahead, **({"partitions": named} if named else {}))
    plain = Bench(path / "plain", bounded(delay), **({"partitions": named} if named else {}))
    clock = dict.fromkeys(names, 0)
    speed = {name: random_.choice((0, 1, 5, 40)) for name in names}
    n = 0
    for _ in range(random_.randint(3, 10)):
        rows = []
        for name in names:
            for _ in range(random_.choice((0, 1, 4))):
                n += 1
                clock[name] += random_.randint(0, speed[name])
                rows.append((clock[name] - random_.randint(0, 4), name, n))
        before = bench.frontier() if bench.batch else [LEAST]
        if random_.random() < 0.3:
            bench.take(rows)  # a batch that was killed: its files are nobody's
            bench.restart()
        bench.run(*rows)
        plain.run(*rows)
        channel = bench.channel
        held = {name: list(state.holds) for name, state in channel.producers.items() if name != PARKED}
        assert held == plain.holds()
        limit = min((h[0] for h in held.values() if h), default=LEAST) + ahead
        # A parked file spans up to maxAhead and joins as a whole when its first row may.
        assert all(time < limit + max(1, ahead) for time, *_ in bench.rows())
        parked = status(bench.settings.path).parked_rows
        assert len(bench.rows()) + parked == len(plain.rows())
        assert bench.frontier() == plain.frontier()
        assert before <= bench.frontier()
    assert bench.late() == plain.late()
    joined = [name for name in names if name in bench.holds()]
    drop_partitions(bench.settings.path, joined)  # nobody holds anything: whatever is parked joins
    bench.run()
    assert Counter(bench.rows()) == Counter(plain.rows())
    assert not bench.frontier() or not named


def test_rows_are_parked_again_after_all_joined(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), corrections=True, max_ahead=10)
    bench.run((1, "a", 0), (2, "b", 0))
    bench.run((3, "a", 0), (4, "b", 0))
    bench.run((4, "a", 1), (50, "b", 1))
    assert status(bench.settings.path).parked_rows == 1
    bench.run((50, "a", 2))
    assert status(bench.settings.path).parked_rows == 0
    bench.run((99, "b", 3))
    assert status(bench.settings.path).parked_rows == 1
    bench.run((99, "a", 4))
    assert [t[0] for t, *_ in bench.rows()] == [1, 2, 3, 4, 4, 50, 50, 99, 99]


def test_parked_rows_of_a_partial_order_join_whatever_their_partitions_hold(tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.struct([("a", pa.int64()), ("b", pa.int64())])), ("p", pa.string()), ("n", pa.int64())])

    def at(a: int, b: int) -> dict[str, int]:
        return {"a": a, "b": b}

    for i, options in enumerate(({}, {"partitions": ["x", "y", "z"]})):
        bench = Bench(tmp_path / str(i), ordered(), schema, domain="product(a int64, b int64)", max_ahead=10, **options)
        bench.run((at(1, 5), "x", 0), (at(2, 3), "y", 0), (at(1, 1), "z", 0))
        bench.run((at(40, 9), "x", 1), (at(41, 4), "y", 1), tasks=1)
        bench.run((at(43, 5), "y", 2), (at(2, 7), "z", 2))
        assert status(bench.settings.path).parked_rows == 3
        assert bench.frontier() == [(2, 7), (41, 4)]  # the row of y at (41, 4) came, and waits
        bench.run((at(35, 8), "z", 3))
        bench.run((at(60, 9), "x", 4), (at(60, 9), "y", 4), (at(60, 9), "z", 4))
        assert status(bench.settings.path).parked_rows == 0
        assert [t[0] for t, *_ in bench.rows()] == [1, 1, 2, 2, 35, 40, 41, 43, 60, 60, 60]
        assert bench.frontier() == [(60, 9)]


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_partition_that_holds_more_than_is_parked_may_park(tasks: int, tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.int64()), ("p", pa.string()), ("n", pa.int64()), ("hb", pa.bool_())])
    bench = Bench(tmp_path, heartbeat("hb", ordered()), schema, partitions=["a", "b"], max_ahead=10)
    bench.run((1, "a", 0, False), (1, "b", 0, False))
    bench.run((50, "b", 0, True))
    bench.run((60, "b", 1, False), (2, "a", 1, False), tasks=tasks)
    assert bench.frontier() == [2]
    bench.run((61, "a", 2, False))
    assert [t for t, *_ in bench.rows()] == [1, 1, 2, 60, 61]


def test_max_ahead_is_switched_on_and_off_in_a_sealed_channel(tmp_path: Path) -> None:
    plain = Bench(tmp_path, ordered(), partitions=["a", "b"])
    plain.run((1, "a", 0), (50, "b", 0))
    ahead = Bench(tmp_path, ordered(), partitions=["a", "b"], max_ahead=10)
    ahead.batch = plain.batch
    ahead.run((60, "b", 1))
    ahead.run((70, "b", 2))
    assert status(ahead.settings.path).parked_rows == 2
    plain.batch = ahead.batch
    plain.restart()
    plain.run((2, "a", 3))
    assert status(ahead.settings.path).parked_rows == 0
    assert [t for t, *_ in plain.rows()] == [1, 2, 50, 60, 70]
    assert plain.frontier() == [2]


def test_rows_are_measured_from_where_partitions_join_when_all_others_are_done(tmp_path: Path) -> None:
    path = str(tmp_path / "channel")
    done = Bench(tmp_path, ordered(), query="done", partitions=["x", "*"])
    done.run()
    drop_partitions(path, ["x"])
    bench = Bench(tmp_path, ordered(), partitions=["a", "b"], max_ahead=3)
    bench.run((4, "a", 0))
    assert bench.rows() == []
    assert status(path).parked_rows == 1
    bench.run((2, "b", 1))
    assert bench.rows() == [(2, "b", 1), (4, "a", 0)]


@pytest.mark.parametrize("pair", [False, True])
def test_what_the_first_batch_of_a_sealed_channel_parks_is_held(pair: bool, tmp_path: Path) -> None:
    kind = pa.struct([("a", pa.int64()), ("b", pa.int64())]) if pair else pa.int64()
    schema = pa.schema([("t", kind), ("p", pa.string()), ("n", pa.int64())])

    def at(a: int, b: int) -> Any:
        return {"a": a, "b": b} if pair else a

    options: dict[str, Any] = {"domain": "product(a int64, b int64)"} if pair else {}
    bench = Bench(tmp_path, ordered(), schema, partitions=["a", "b"], max_ahead=3, **options)
    bench.run((at(1, 2), "a", 0), (at(9, 0), "b", 1))
    parked = bench.channel.producers[PARKED].holds
    assert parked.less_equal((9, 0) if pair else 9)
    assert bench.channel.frontier.less_equal((9, 0) if pair else 9)
    drop_partitions(bench.settings.path, ["a", "b"])  # nobody is left to wait for
    assert len(bench.rows()) == 2
    assert bench.frontier() == []
    assert bench.run() is None


def test_a_parked_row_stays_open_though_its_partition_has_moved_on_beside_it(tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.struct([("a", pa.int64()), ("b", pa.int64())])), ("p", pa.string()), ("n", pa.int64())])

    def at(a: int, b: int) -> dict[str, int]:
        return {"a": a, "b": b}

    for i, options in enumerate(({}, {"partitions": ["x"]})):
        bench = Bench(tmp_path / str(i), punctuated("m"), pa.schema([*schema, ("m", schema.field("t").type)]), max_ahead=3,
                      domain="product(a int64, b int64)", **options)  # fmt: skip
        bench.run((at(0, 0), "x", 0, None))
        bench.run((at(1, 1), "x", 1, None), (at(9, 0), "x", 2, None), (at(1, 2), "x", 3, at(0, 2)))
        assert bench.holds()["x"] == [(0, 2)]
        assert bench.channel.frontier.less_equal((9, 0))
        assert not bench.channel.frontier.less_equal((8, 0))
        bench.run((at(12, 3), "x", 4, None))
        assert not bench.channel.frontier.less_equal((8, 0))
        bench.run((at(7, 3), "x", 5, at(7, 3)))
        assert bench.frontier() == [(7, 3)] or not options
        assert [t for t, *_ in bench.rows()][-1] == (9, 0)
        bench.run((at(12, 3), "x", 6, at(12, 3)))
        assert status(bench.settings.path).parked_rows == 0
        assert not bench.late()


def test_a_smaller_limit_waits_for_those_that_were_parked_under_a_greater_one(tmp_path: Path) -> None:
    other = Bench(tmp_path, ordered(), query="other")
    bench = Bench(tmp_path, ordered(), query="q", max_ahead=3)
    bench.run((0, "x", 0), (0, "z", 0))
    other.run((0, "y", 0))
    bench.run((50, "x", 1))
    smaller = Bench(tmp_path, ordered(), query="q", max_ahead=1)
    smaller.batch = bench.batch
    smaller.run((3, "z", 2))
    smaller.run((60, "z", 3))
    other.run((100, "y", 4))
    assert status(smaller.settings.path).parked_rows == 2
    smaller.run((61, "z", 5))
    assert sorted(row[0] for row in smaller.rows()) == [0, 0, 0, 3, 50, 100]
    smaller.run((200, "x", 6), (200, "z", 7))
    smaller.run((201, "x", 8))
    assert {row[0] for row in smaller.rows()} >= {60, 61}


def test_a_smaller_limit_moves_nothing_back_in_a_partial_order(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), max_ahead=3, corrections=True)
    bench.run((0, "x", 0), (0, "y", 0))
    bench.run((50, "x", 1))
    smaller = Bench(tmp_path, ordered(), max_ahead=1, corrections=True)
    smaller.batch = bench.batch
    smaller.run((0, "y", 2))
    smaller.run((49, "y", 3))
    smaller.run((60, "x", 4), (60, "y", 5))
    smaller.run((61, "x", 6))
    assert status(smaller.settings.path).parked_rows == 0


def test_a_drop_holds_for_rows_that_partitions_of_all_sessions_may_park(tmp_path: Path) -> None:
    """A partition that has not moved since its query was started again is stated by the session before."""
    schema = pa.schema([("t", pa.struct([("a", pa.int64()), ("b", pa.int64())])), ("p", pa.string()), ("n", pa.int64())])

    def at(a: int, b: int) -> dict[str, int]:
        return {"a": a, "b": b}

    bench = Bench(tmp_path, ordered(), schema, domain="product(a int64, b int64)", max_ahead=3, partitions=["x", "y", "z"])
    bench.run((at(0, 9), "x", 0), (at(0, 0), "y", 0), (at(0, 0), "z", 0))
    bench.owner = WriterSession("q", bench.owner.host, bench.owner.pid, bench.owner.start - 1000)
    bench.run((at(50, 9), "x", 1))
    drop_partitions(bench.settings.path, ["y"])
    bench.run((at(60, 0), "z", 2))
    bench.run((at(70, 9), "x", 3))
    bench.run((at(80, 0), "z", 4))
    assert sorted(row[2] for row in bench.rows())[:4] == [0, 0, 0, 1]


def test_rows_of_a_lex_time_join_whose_later_coordinates_go_back(tmp_path: Path) -> None:
    """(10, 5) and (11, 1) are in order, and 5 is more than 1. The first such batch stopped the ingest for good."""
    schema = pa.schema([("t", pa.struct([("a", pa.int64()), ("b", pa.int64())])), ("p", pa.string()), ("n", pa.int64())])

    def at(a: int, b: int) -> dict[str, int]:
        return {"a": a, "b": b}

    bench = Bench(tmp_path, ordered(), schema, domain="lex(a int64, b int64)", max_ahead=3, partitions=["slow", "fast"])
    bench.run((at(0, 0), "slow", 1), (at(0, 0), "fast", 2))
    bench.run((at(10, 5), "fast", 3), (at(11, 1), "fast", 4), tasks=1)
    bench.run((at(9, 0), "slow", 5))
    assert sorted(n for *_, n in bench.rows()) == [1, 2, 3, 4, 5]
    assert bench.frontier() == [(9, 0)]
    assert verify(bench.settings.path).sound


@pytest.mark.parametrize("how", ["off", "release", "drop", "batch"])
def test_a_row_of_a_year_beyond_9999_joins(how: str, tmp_path: Path) -> None:
    """A device's milliseconds that were taken for seconds. No datetime has its year, and nothing let the ingest go on."""
    schema = pa.schema([("t", pa.timestamp("us", "UTC")), ("p", pa.string()), ("n", pa.int64())])
    now, options = 1_785_000_000_000_000, {"partitions": ["good", "wrong"], "max_future": "off"}
    bench = Bench(tmp_path, bounded("1 minute"), schema, max_ahead="1 day", **options)
    bench.run((now, "good", 1), (now * 1000, "wrong", 2))
    path = bench.settings.path
    assert status(path).parked_rows == 1
    if how == "off":
        plain = Bench(tmp_path, bounded("1 minute"), schema, **options)
        plain.batch = 1
        plain.run((now + 1, "good", 3))
    elif how == "release":
        release_parked(path, take_over=True)
    elif how == "drop":
        drop_partitions(path, ["good"])
    else:
        bench.run((now * 1000 + 1, "good", 3))
    assert status(path).parked_rows == 0
    assert 2 in bench.channel.read(columns=["n"])["n"].to_pylist()
    assert verify(path).sound
