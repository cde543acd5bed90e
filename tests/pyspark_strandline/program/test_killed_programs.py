"""A program of three strata whose driver is killed again and again: no answer is lost, doubled or early."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

import program_query
from helpers import ROOT
from killed import run_killed
from strandline.channel import Channel

pytestmark = pytest.mark.spark
RESULTS = ("reach", "dark", "counted", "before")
Held = dict[int, set[tuple[Any, ...]]]


def held(folder: Path, name: str) -> Held:
    """What a relation's channel has closed."""
    path = folder / "out" / name
    if not Channel.exists(path):
        return {}
    channel, found = Channel.open(path), {}
    for row in channel.read().to_pylist():
        tick, values = row.pop("time"), tuple(row.values())
        if not channel.frontier.less_equal(tick):
            assert values not in found.setdefault(tick, set()), f"{name} has {values} twice at {tick}"
            found[tick].add(values)
    return found


def check_kills(folder: Path, seed: int, kills: int) -> None:
    draw, given = random.Random(seed), program_query.facts(seed)
    program_query.send(folder, given)
    want = program_query.program().run(given)
    command = [sys.executable, str(ROOT / "tests" / "support" / "program_query.py"), str(folder), str(seed)]

    def commits() -> int:
        return len(list((folder / "out").glob("*/_delta_log/*.json")))

    def check() -> None:
        for name in RESULTS:  # what is complete is complete: nothing came early
            for tick, rows in held(folder, name).items():
                assert rows == want[name].get(tick, set()), (name, tick)

    run_killed(command, folder / "log", commits, draw, kills=kills, most=12, check=check)
    for name in RESULTS:
        assert not Channel.open(folder / "out" / name).frontier
        assert held(folder, name) == want[name], name


@pytest.mark.drawn
@pytest.mark.parametrize("seed", [1])
def test_a_killed_program_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    check_kills(tmp_path, seed, kills=2)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_killed_programs(tmp_path: Path, seed: int) -> None:
    check_kills(tmp_path, seed, kills=4)
