"""Stories that the machine found, made small. One that does not end well yet says why, and fails here once it is mended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest_stories.faults import Faults
from ingest_stories.spec import Row, Rules
from ingest_stories.world import PAIR, World


@pytest.fixture
def faults() -> Iterator[Faults]:
    with Faults().installed() as faults:
        yield faults


def test_a_partition_joins_with_rows_that_are_not_comparable(tmp_path: Path, faults: Faults) -> None:
    world = World(tmp_path, faults, PAIR)
    world.announce("plain", [("a", (0, 2), 1), ("a", (2, 0), 1)])
    world.start("q0", Rules(("manifest", "plain"), ("a", "*")))
    world.run("q0")
    world.run("q0", [Row((0, 2), "b", 1), Row((2, 0), "b", 2)])


def test_a_drop_lets_parked_rows_join_and_moves_what_is_held_for_the_others(tmp_path: Path, faults: Faults) -> None:
    world = World(tmp_path, faults)
    world.start("q0", Rules(("ordered",), ("a", "b"), ahead=3))
    world.run("q0", [Row(5, "a", 1)])
    world.run("q0", [Row(50, "a", 2)])
    world.drop("b")
    assert min(time for said in world.judge.said.values() for time in said.holds) == 50


def test_an_announced_time_that_its_ingest_has_passed_is_given_up(tmp_path: Path, faults: Faults) -> None:
    world = World(tmp_path, faults)
    world.announce("plain", [("a", 5, 1), ("b", 4, 1), ("b", 7, 1)])
    world.start("q0", Rules(("idle", ("manifest", "plain"), 10_000), ("a", "b")))
    world.run("q0", [Row(4, "b", 1)])
    for _ in range(3):
        world.run("q0", wait=6_000)
    assert world.spec.frontier
    world.run("q0", [Row(7, "b", 2)])  # a is silent still, and its row at 5 would be late now
    assert not world.spec.frontier
    world.judge.check(published=True)


@pytest.mark.parametrize("policy", [("ordered",), ("idle", ("bounded", 3), 10_000)])
def test_a_partition_that_ran_ahead_rejoins(tmp_path: Path, faults: Faults, policy: tuple[object, ...]) -> None:
    world = World(tmp_path, faults)
    world.start("q0", Rules(policy, ("a", "b", "c")))
    world.run("q0", [Row(5, "a", 1), Row(500, "b", 2), Row(9, "c", 3)])
    world.rejoin("b")
    assert world.spec.partitions["b"].rejoins
    world.drop("a")  # then it joins where the last other one is
    world.run("q0", [Row(12, "c", 4)])
    world.run("q0", [Row(4, "b", 5), Row(11, "b", 6)])
    world.judge.check(published=True)
    assert Row(11, "b", 6) in world.spec.in_time


def test_a_partition_rejoins_under_a_manifest_and_in_a_partial_order(tmp_path: Path, faults: Faults) -> None:
    world = World(tmp_path, faults, PAIR)
    world.start("q0", Rules(("ordered",), ("a", "b")))
    world.run("q0", [Row((1, 1), "a", 1), Row((1, 1), "b", 2), Row((7, 7), "b", 3)])
    world.rejoin("b")
    world.announce("plain", [("a", (1, 1), 1), ("b", (1, 1), 2), ("b", (7, 7), 1)])
    world.start("q0", Rules(("manifest", "plain"), ("a", "b")))
    world.run("q0", [Row((1, 1), "b", 4)])
    world.judge.check(published=True)


def test_the_only_partition_gave_up_and_rejoins_as_a_new_one_would(tmp_path: Path, faults: Faults) -> None:
    world = World(tmp_path, faults)
    world.start("q0", Rules(("ordered",)))
    world.run("q0", [Row(5, "a", 1)])
    world.drop("a")
    frontier = world.spec.frontier
    world.rejoin("a")
    assert world.spec.frontier == frontier == {5}
    world.run("q0", [Row(4, "a", 2), Row(7, "a", 3)])
    assert [late.row.number for late in world.spec.late] == [2]
    world.judge.check()


@pytest.mark.parametrize("policy", [("manifest", "plain"), ("idle", ("manifest", "plain"), 10_000)])
def test_a_complete_partition_rejoins_alone_and_its_rows_complete_it_at_once(
    tmp_path: Path, faults: Faults, policy: tuple[object, ...]
) -> None:
    world = World(tmp_path, faults)
    world.announce("plain", [])
    world.start("q0", Rules(policy, ("a", "*")))
    world.run("q0")
    world.rejoin("a")
    world.run("q0", [Row(7, "a", 1)])  # the manifest announces nothing of it, so it joins and has nothing to come
    assert Row(7, "a", 1) in world.spec.in_time
    world.judge.check()


def test_one_that_rejoins_alone_does_not_hold_back_the_registrar(tmp_path: Path, faults: Faults) -> None:
    world = World(tmp_path, faults)
    world.start("q0", Rules(("idle", ("ordered",), 10_000), ("a", "*")))
    world.start("q1", Rules(("ordered",), ("x", "y", "*")))
    world.run("q1", [Row(2, "x", 1), Row(2, "y", 1)])
    assert world.run("q0", [Row(9, "a", 2)]) is None
    world.rejoin("a")  # it was the only one of its ingest, so it joins at what the registrar holds with its next batch
    world.run("q1", [Row(6, "x", 3), Row(5, "y", 3)])
    assert world.spec.frontier == {5}
    world.run("q0", [Row(4, "a", 4), Row(5, "a", 5)])
    assert [late.row.number for late in world.spec.late] == [4]
    world.judge.check()


def test_one_that_rejoins_alone_cannot_join_what_is_sealed_before(tmp_path: Path, faults: Faults) -> None:
    world = World(tmp_path, faults)
    world.start("q0", Rules(("idle", ("ordered",), 10_000), ("a", "*")))
    world.run("q0", [Row(9, "a", 1)])
    world.drop("a")
    world.rejoin("a")
    world.seal()
    assert not world.spec.frontier
    world.run("q0", [Row(9, "a", 2)])
    assert [late.row.number for late in world.spec.late] == [2]
    world.judge.check()


@pytest.mark.parametrize("then", ["drop", "seal", "go on"])
def test_a_silent_partition_keeps_its_place_when_the_last_other_one_rejoins(tmp_path: Path, faults: Faults, then: str) -> None:
    world = World(tmp_path, faults)
    world.start("q0", Rules(("idle", ("ordered",), 10_000), ("a", "b")))
    world.start("q1", Rules(("ordered",), ("x", "*")))
    world.run("q1", [Row(3, "x", 1)])
    world.run("q0", [Row(3, "b", 2), Row(500, "a", 2)])
    for time in (501, 502):
        world.run("q0", [Row(time, "a", 3)], wait=6_000)
    world.rejoin("a")
    if then == "drop":
        world.drop("a")
    elif then == "seal":
        world.seal()
    world.run("q1", [Row(20, "x", 4)])
    world.run("q0", [Row(10, "b", 5)])
    assert Row(10, "b", 5) in world.spec.in_time
    world.judge.check()


def test_one_that_rejoined_and_was_dropped_rejoins_again(tmp_path: Path, faults: Faults) -> None:
    world = World(tmp_path, faults)
    world.start("q0", Rules(("ordered",), ("a", "b")))
    world.run("q0", [Row(5, "a", 1), Row(500, "b", 2)])
    world.rejoin("b")
    world.drop("b")
    world.rejoin("b")
    world.run("q0", [Row(6, "b", 3)])
    assert Row(6, "b", 3) in world.spec.in_time
    world.judge.check()
