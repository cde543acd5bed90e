"""Silence: judged where asked for, by listening time alone, undone when a partition speaks, no further than the data allows."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest_bench import SCHEMA, Bench
from strandline.ingest import Settings, composed, idle, manifest, ordered, status
from strandline.ingest.clocks.moment import Clock, Moment
from strandline.ingest.state.query_entry import ClockState

RUN: dict[str, Any] = {"run": "r", "to_end": True}


def test_a_silent_partition_holds_its_times_and_the_status_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 0), (7, "b", 1), now=1_000, **RUN)
    for hour in range(1, 5):
        bench.run((10 * hour, "a", 2), now=1_000 + hour * 3_600_000, **RUN)
    assert bench.frontier() == [7]
    said = status(bench.settings.path)
    assert said.explain() == "7 is open: b holds 7, last rows at 1970-01-01T00:00:01Z"
    assert said.explain(30).splitlines() == ["30 is open: b holds 7, last rows at 1970-01-01T00:00:01Z"]
    assert said.explain(6) == "6 is closed"
    assert [p.name for p in said.partitions if p.holds_back] == ["b"]
    assert "2 partitions by ordered()" in str(said)


# Flink's StatusWatermarkValveTest as recorded: what each input has promised, which fall silent in turn, the frontier after each.
FLINK = [
    ({"a": 25, "b": 10, "c": 17}, [["b"], ["c"]], [17, 25]),
    ({"a": 25, "b": 10, "c": 17}, [["b", "c"]], [25]),
    ({"a": 25, "b": 18, "c": 42}, [["b"]], [25]),
    ({"a": 0, "b": 0, "c": 0}, [["a"]], [0]),
]


@pytest.mark.parametrize(("promised", "turns", "frontiers"), FLINK)
def test_flinks_recorded_cases(promised: dict[str, int], turns: list[list[str]], frontiers: list[int], tmp_path: Path) -> None:
    bench = Bench(tmp_path, idle(ordered(), "10 seconds"))
    bench.run(*((time, name, 0) for name, time in promised.items()), now=0, planned_ms=1, **RUN)
    speaking, now = dict(promised), 1
    for turn, expected in zip(turns, frontiers, strict=True):
        for name in turn:
            del speaking[name]
        for _ in range(3):  # the others go on, at the same time
            now += 4_000
            bench.run(*((time, name, 1) for name, time in speaking.items()), now=now, **RUN)
        assert bench.frontier() == [expected]
    assert not bench.late()


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_the_order_of_falling_silent_makes_no_difference(order: tuple[str, ...], tmp_path: Path) -> None:
    promised = {"a": 25, "b": 10, "c": 17}
    bench = Bench(tmp_path, idle(ordered(), "10 seconds"))
    bench.run(*((time, name, 0) for name, time in promised.items()), now=1, **RUN)
    speaking, now = dict(promised), 1
    for name in order:
        del speaking[name]
        now += 11_000
        bench.run(*((time, other, 1) for other, time in speaking.items()), now=now, **RUN)
    # All are silent: the frontier is at the greatest promise, whoever made it and whenever it fell silent; and no further.
    assert bench.frontier() == [25]
    for _ in range(3):
        now += 60_000
        bench.run(now=now, **RUN)
    assert bench.frontier() == [25]


def test_many_orders_and_moments_end_alike(tmp_path: Path) -> None:
    for seed in range(5):
        random_ = random.Random(seed)
        promised = {name: random_.randint(0, 50) for name in "abcde"}
        ends = set()
        for attempt in range(2):
            bench = Bench(tmp_path / f"{seed}-{attempt}", idle(ordered(), "10 seconds"))
            bench.run(*((time, name, 0) for name, time in promised.items()), now=1, **RUN)
            now, speaking = 1, dict(promised)
            while speaking:
                for name in random_.sample(sorted(speaking), random_.randint(1, len(speaking))):
                    del speaking[name]
                now += random_.randint(2_000, 12_000)
                bench.run(*((time, name, 1) for name, time in speaking.items()), now=now, **RUN)
            bench.run(now=now + 11_000, **RUN)
            ends.add(tuple(bench.frontier()))
        assert ends == {(max(promised.values()),)}


def test_a_partition_that_speaks_again_goes_on_where_the_others_are(tmp_path: Path) -> None:
    bench = Bench(tmp_path, idle(ordered(), "10 seconds"))
    bench.run((5, "a", 0), (3, "b", 1), now=1, **RUN)
    bench.run((9, "a", 2), now=10_001, **RUN)
    assert bench.holds() == {"a": [9], "b": []}
    assert status(bench.settings.path).partitions[1].idle_since == 10_001
    bench.restart()
    bench.run((4, "b", 3), (9, "b", 4), (12, "b", 5), (15, "a", 6), now=11_000, **RUN)
    assert bench.late("t", "_reason", "_frontier") == [(4, "late", [9])]
    assert bench.holds() == {"a": [15], "b": [12]}
    assert status(bench.settings.path).partitions[1].idle_since is None
    assert bench.rows() == [(3, "b", 1), (5, "a", 0), (9, "a", 2), (9, "b", 4), (12, "b", 5), (15, "a", 6)]


def test_a_partition_ahead_of_the_others_keeps_its_promise_while_silent(tmp_path: Path) -> None:
    bench = Bench(tmp_path, idle(ordered(), "10 seconds"))
    bench.run((5, "a", 0), (30, "b", 1), now=1, **RUN)
    bench.run((9, "a", 2), now=10_001, **RUN)
    assert bench.holds() == {"a": [9], "b": []}
    bench.run((20, "b", 3), (31, "b", 4), now=11_000, **RUN)
    assert bench.late("t", "_frontier") == [(20, [30])]
    assert bench.holds() == {"a": [9], "b": [31]}


def test_time_in_which_the_query_did_not_run_is_no_silence(tmp_path: Path) -> None:
    bench = Bench(tmp_path, idle(ordered(), "10 seconds"))
    bench.run((5, "a", 0), (3, "b", 1), now=1, **RUN)
    for i, run in enumerate("stuvw"):
        bench.restart()
        bench.run((9 + i, "a", 2), now=3_600_000 * (i + 1), run=run, to_end=True)
    assert bench.frontier() == [3]
    bench.run((20, "a", 2), now=3_600_000 * 5 + 10_000, run="w", to_end=True)
    assert bench.frontier() == [20]


def test_a_source_that_is_limited_is_not_silent(tmp_path: Path) -> None:
    limited = {"run": "r", "to_end": False}
    bench = Bench(tmp_path, idle(ordered(), "10 seconds"))
    bench.run((5, "a", 0), (3, "b", 1), now=1, **limited)
    now = 1
    for i in range(20):  # rows of b may be waiting behind those of a, for however long
        now += 3_600_000
        bench.run((9 + i, "a", 2), now=now, **limited)
    assert bench.frontier() == [3]
    assert "idle() has no effect: a batch may leave rows of the source unread" in str(status(bench.settings.path))
    bench.run((4, "b", 7), now=now + 1_000, **limited)
    assert not bench.late()


def test_only_the_partitions_that_are_named_are_judged(tmp_path: Path) -> None:
    bench = Bench(tmp_path, composed({"device-*": idle(ordered(), "10 seconds"), "*": ordered()}))
    bench.run((5, "a", 0), (3, "device-1", 1), (4, "b", 1), now=1, **RUN)
    bench.run((9, "a", 2), now=20_000, **RUN)
    assert bench.holds() == {"a": [9], "b": [4], "device-1": []}


def test_a_named_partition_that_never_spoke_falls_silent_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path, idle(ordered(), "10 seconds"), partitions=["a", "b"])
    bench.run((5, "a", 0), now=1, **RUN)
    bench.run((6, "a", 0), now=9_000, **RUN)
    assert bench.frontier() == [-(1 << 63)]
    bench.run((9, "a", 0), now=10_001, **RUN)
    assert bench.frontier() == [9]
    bench.run((8, "b", 1), (9, "b", 2), now=10_002, **RUN)
    assert bench.late("t", "_frontier") == [(8, [9])]


def test_the_decision_is_in_the_log(tmp_path: Path) -> None:
    bench = Bench(tmp_path, idle(ordered(), "10 seconds"))
    bench.run((5, "a", 0), (3, "b", 1), now=1, **RUN)
    version = bench.run((9, "a", 2), now=10_001, **RUN)
    assert version is not None
    said = bench.channel.log.require(version).statement
    assert said is not None
    assert said.statements["b"].holds == ()
    assert said.statements["b"].state["idle"] == {"was": [3], "since": 10_001, "listened": 10_000}


def test_a_silent_partition_costs_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, idle(ordered(), "10 seconds"))
    bench.run(*((3, f"p{i}", 1) for i in range(200)), now=1, **RUN)
    bench.run((9, "p0", 2), now=10_001, **RUN)
    version = bench.run((11, "p0", 2), now=20_001, **RUN)
    said = bench.channel.log.require(version or 0).statement
    assert said is not None
    assert set(said.statements) == {"p0", "$registrar"}


def test_ingests_that_share_a_channel_judge_their_own_partitions(tmp_path: Path) -> None:
    one = Bench(tmp_path, idle(ordered(), "10 seconds"), query="one")
    two = Bench(tmp_path, ordered(), query="two")
    two.run((2, "x", 0), now=1)
    one.run((5, "a", 0), (3, "b", 1), now=1, **RUN)
    one.run((9, "a", 2), now=10_001, **RUN)
    assert one.holds() == {"a": [9], "b": [], "x": [2]}
    one.run((4, "b", 3), (10, "b", 4), now=10_002, **RUN)
    assert one.late("n", "_frontier") == [(3, [9])]
    assert one.frontier() == [2]


def test_when_the_last_that_spoke_is_done_announced_rows_behind_it_are_given_up(tmp_path: Path) -> None:
    policy = idle(manifest({("a", 1): 1, ("a", 9): 1, ("b", 3): 1, ("b", 5): 1}), "10 seconds")
    policy.save(str(tmp_path / "m"), Settings.of(str(tmp_path / "channel"), SCHEMA, time="t", partition="p", policy=policy))
    bench = Bench(tmp_path, policy)
    bench.run((1, "a", 0), now=1, **RUN)
    bench.run((2, "a", 1), now=10_001, **RUN)
    assert bench.holds() == {"a": [9], "b": []}
    bench.restart()  # the manifest is read anew, and b is still not waited for
    bench.run(now=10_002, **RUN)
    assert bench.holds() == {"a": [9], "b": []}
    bench.run((9, "a", 3), now=10_003, **RUN)
    assert bench.holds() == {"a": [], "b": []}  # b has not brought all, but none of it could be in time
    bench.run((3, "b", 4), now=10_004, **RUN)
    assert bench.late("t") == [(2,), (3,)]


def test_an_ingest_that_takes_over_knows_who_is_idle(tmp_path: Path) -> None:
    one = Bench(tmp_path, idle(ordered(), "10 seconds"), query="one")
    one.run((5, "a", 0), (3, "b", 1), (2, "c", 1), now=1, **RUN)
    one.run((9, "a", 2), now=10_001, **RUN)
    two = Bench(tmp_path, idle(ordered(), "10 seconds"), query="two", take_over=True)
    two.run((11, "a", 3), now=10_002, **RUN)
    two.run((10, "b", 4), (12, "b", 5), now=10_003, **RUN)
    assert two.late("n", "_frontier") == [(4, [11])]
    assert two.holds() == {"a": [11], "b": [12], "c": []}


def test_the_clock_never_runs_backwards() -> None:
    clock = Clock()
    for planned in (1_000, 2_000, 500, 700, 5_000):
        clock = clock.at(Moment(planned + 10, planned, "r"))
    assert clock.listened == 1_000 + 0 + 0 + 3_000
    assert ClockState.of(clock, certain=True).clock.at(Moment(6_010, 6_000, "r")).listened == 5_000


@pytest.mark.parametrize(("planned", "frontier"), [(10_000, [5]), (10_001, [9])])
def test_silence_is_judged_to_the_millisecond(planned: int, frontier: list[int], tmp_path: Path) -> None:
    bench = Bench(tmp_path, idle(ordered(), "10 seconds"))
    bench.run((5, "a", 0), (8, "b", 1), now=1, planned_ms=1, **RUN)
    bench.run((9, "b", 2), now=planned, planned_ms=planned, **RUN)
    assert bench.frontier() == frontier


def test_silence_counts_from_a_take_over_though_the_manifest_has_news(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "m"), pa.table({"t": [2, 2], "p": ["a", "b"], "expected": [1, 1]}))
    policy = idle(manifest(str(tmp_path / "m")), "10 seconds")
    first = Bench(tmp_path, policy, query="first")
    first.run(now=1, run="r", to_end=True)
    second = Bench(tmp_path, policy, query="second", take_over=True)
    second.run(now=2, run="s", to_end=True)
    first.settings = replace(first.settings, take_over=True)
    first.restart()
    first.run(now=20_000, run="r", to_end=True)
    assert first.holds() == {"a": [2], "b": [2]}


def test_a_partition_that_was_taken_over_is_not_heard_of_by_the_other_ingests_clock(tmp_path: Path) -> None:
    """The first ingest has listened for a month. The second one judges no silence at first."""
    day = 86_400_000
    first = Bench(tmp_path, idle(ordered(), "5 seconds"))
    for n in range(31):
        first.run((1 + n, "a", n), (1 + n, "c", n), now=10_000 + n * day, run="q", to_end=True)
    now = 10_000 + 31 * day
    second = Bench(tmp_path, ordered(), query="r", take_over=True)
    second.run((40, "a", 0), (40, "c", 0), now=now, run="r", to_end=True)
    third = Bench(tmp_path, idle(ordered(), "5 seconds"), query="r")
    third.batch = 1
    for n in range(1, 4):
        third.run((40 + n, "a", n), now=now + n * 3_600_000, run="r2", to_end=True)
    assert third.frontier() == [43]
