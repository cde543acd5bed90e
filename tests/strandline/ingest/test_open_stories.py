"""Stories that the machine found and that do not end well yet, each with what is wrong. One that is mended fails here."""

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


@pytest.mark.xfail(strict=True, reason="a batch without rows leaves no digest, so its replay with rows is passed over in silence")
def test_an_empty_batch_that_comes_again_with_rows_is_told_of(tmp_path: Path, faults: Faults) -> None:
    world = World(tmp_path, faults)
    world.start("q0", Rules(("idle", ("ordered",), 10_000)))
    world.run("q0", wait=1)
    query = world.queries["q0"]
    world.restart("q0")
    query.batch, query.waiting = 0, [Row(5, "a", 1)]
    with pytest.raises(Exception, match="STRANDLINE_REPLAY_DIFFERS"):
        world.commit(world.plan("q0", ()))


@pytest.mark.xfail(strict=True, reason="the least of rows that are not comparable is compared with where the partition joins")
def test_a_partition_joins_with_rows_that_are_not_comparable(tmp_path: Path, faults: Faults) -> None:
    world = World(tmp_path, faults, PAIR)
    world.announce("plain", [("a", (0, 2), 1), ("a", (2, 0), 1)])
    world.start("q0", Rules(("manifest", "plain"), ("a", "*")))
    world.run("q0")
    world.run("q0", [Row((0, 2), "b", 1), Row((2, 0), "b", 2)])


@pytest.mark.xfail(strict=True, reason="what is parked holds back, until the next batch, what a drop has let go")
def test_a_drop_moves_what_is_held_for_parked_rows(tmp_path: Path, faults: Faults) -> None:
    world = World(tmp_path, faults)
    world.start("q0", Rules(("ordered",), ("a", "b"), ahead=3))
    world.run("q0", [Row(5, "a", 1)])
    world.run("q0", [Row(50, "a", 2)])
    world.drop("b")
    assert min(time for said in world.said.values() for time in said.holds) == 50


@pytest.mark.xfail(strict=True, reason="what is parked keeps the second coordinate of what was held when it was parked first")
def test_parked_rows_hold_nothing_back_in_a_partial_order(tmp_path: Path, faults: Faults) -> None:
    world = World(tmp_path, faults, PAIR)
    world.start("q0", Rules(("ordered",), ("a", "b"), ahead=3))
    world.run("q0", [Row((1, 0), "a", 1), Row((1, 0), "b", 2)])
    world.run("q0", [Row((9, 0), "b", 3)])
    world.run("q0", [Row((2, 5), "a", 4), Row((9, 5), "b", 5)])
    (parked,) = (said.holds for name, said in world.said.items() if name.startswith("strandline:parked"))
    assert all(first >= 2 and second >= 5 for first, second in parked)
