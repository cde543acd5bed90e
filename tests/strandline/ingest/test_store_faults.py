"""The store fails once, at each of its calls in turn: what was done counts once, what was not can be done again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ingest_stories.faults import Fault, Faults
from ingest_stories.spec import Row, Rules
from ingest_stories.world import World
from strandline.errors import StrandlineError

NEVER = 1 << 30
RULES = Rules(("idle", ("bounded", 3), 10_000), ahead=3)


@pytest.fixture
def faults() -> Iterator[Faults]:
    with Faults().installed() as faults:
        yield faults


def begun(folder: Path, faults: Faults) -> World:
    """A channel with corrections and rows of two ingests, one of them late and one parked."""
    world = World(folder, faults, corrections=True)
    world.start("q0", RULES)
    world.start("q1", Rules(("ordered",)))
    world.run("q0", [Row(5, "a", 1), Row(6, "b", 2)], wait=1)
    world.run("q1", [Row(7, "x", 3)], wait=1)
    world.run("q0", [Row(1, "a", 4), Row(6, "a", 5), Row(30, "b", 6), Row(9, None, 7)], wait=1)
    return world


def found(world: World, fault: Fault) -> None:
    world.start("q2", RULES)
    world.run_disturbed("q2", [Row(5, "z", 100)], fault)
    world.run("q2")


def take_in(world: World, fault: Fault) -> None:
    others = [Row(8, "x", 101), Row(3, "x", 102)]
    done = world.run_disturbed(
        "q0", [Row(2, "a", 103), Row(12, "a", 104), Row(41, "b", 105)], fault, lambda: world.run("q1", others) and None
    )
    if not done and world.stale:
        world.abort(world.stale.pop())
    world.run("q0")


def drop(world: World, fault: Fault) -> None:
    attempt(world, fault, lambda: world.drop("a"))


def readmit(world: World, fault: Fault) -> None:
    attempt(world, fault, world.readmit)


def attempt(world: World, fault: Fault, act: Callable[[], None]) -> None:
    with world.faults.armed(fault, lambda: world.run("q1", [Row(8, "x", 106), Row(3, "x", 107)]) and None):
        try:
            act()
        except (StrandlineError, OSError):
            assert world.faults.struck is not None
    world.sync()
    act()


ACTS = {"found": found, "take in": take_in, "drop": drop, "readmit": readmit}


@pytest.mark.drawn
@pytest.mark.parametrize("kind", ["error", "lost"])
@pytest.mark.parametrize("act", ACTS)
def test_one_call_of_five_fails(act: str, kind: str, tmp_path: Path, faults: Faults) -> None:
    every_call_fails(act, kind, tmp_path, faults, first=(list(ACTS).index(act) + len(kind)) % 5, step=5)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["error", "lost"])
@pytest.mark.parametrize("act", ACTS)
def test_any_call_fails(act: str, kind: str, tmp_path: Path, faults: Faults) -> None:
    every_call_fails(act, kind, tmp_path, faults, first=0, step=1)


def every_call_fails(act: str, kind: str, folder: Path, faults: Faults, first: int, step: int) -> None:
    at, struck = first, True
    while struck:
        struck = tell(act, Fault(at, kind, "any"), folder / str(at), faults)
        at += step
    assert at > 5


@pytest.mark.drawn
@pytest.mark.parametrize("kind", ["denied", "slow", "slow answer"])
@pytest.mark.parametrize("act", ACTS)
def test_any_commit_is_denied_or_slow(act: str, kind: str, tmp_path: Path, faults: Faults) -> None:
    at, struck = 0, True
    while struck:
        struck = tell(act, Fault(at, kind, "commit"), tmp_path / str(at), faults)
        at += 1
    assert at > 1


def tell(act: str, fault: Fault, folder: Path, faults: Faults) -> bool:
    """One story; whether the fault struck."""
    world = World(folder, faults) if act == "found" else begun(folder, faults)
    faults.last = None
    ACTS[act](world, fault)
    struck = faults.last is not None
    for query in world.queries:
        world.restart(query)
        world.run(query, [Row(50, name, 200) for name, known in world.spec.partitions.items() if known.owner == query])
        world.run(query)
    world.judge.check(published=True)
    world.drop(*world.spec.partitions)
    world.seal()
    for query in world.queries:
        world.run(query)
    assert not world.judge.parked_files()
    assert not world.spec.frontier
    return struck


def test_an_empty_batch_that_comes_again_with_rows_is_told_of(tmp_path: Path, faults: Faults) -> None:
    world = World(tmp_path, faults)
    world.start("q0", Rules(("idle", ("ordered",), 10_000)))
    world.run("q0", wait=1)
    query = world.queries["q0"]
    world.restart("q0")
    query.batch, query.waiting = 0, [Row(5, "a", 1)]
    with pytest.raises(Exception, match="STRANDLINE_REPLAY_DIFFERS"):
        world.commit(world.plan("q0", ()))
