"""Since when a frontier stands: found with few reads, and the same as by looking at every commit."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from strandline.channel import Channel, WriterSession
from strandline.report.history import History
from strandline.time.domain import int64, product
from why_channels import make


def state(channel: Channel, name: str, *holds: object) -> None:
    channel.append([], statements={name: list(holds)}, times=[], owner=WriterSession.here(name))


@pytest.mark.parametrize("seed", range(8))
def test_it_is_found_as_by_looking_at_every_commit(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    domain = product(a="int64", b="int64") if seed % 2 else int64
    names = [f"p{number}" for number in range(4)]
    channel = make(tmp_path / "c", domain, names, at=(0, 0) if seed % 2 else 0)
    held = dict.fromkeys(names, (0, 0))
    for _ in range(chance.randrange(3, 30)):
        name = chance.choice(names[: chance.randrange(1, 5)])
        a, b = held[name]
        held[name] = a + chance.randrange(2), b + chance.randrange(1, 3)
        state(channel, name, held[name] if seed % 2 else sum(held[name]))
    first = next(v for v in range(channel.version + 1) if channel.frontier_at(v) == channel.frontier)
    found = History(channel).frontier_since()
    assert (found.version, found.exact) == (first, True)


def test_it_is_found_far_back_in_a_busy_channel(tmp_path: Path) -> None:
    """A driver that starts anew asks it once. It gave up too early, so the frontier seemed to have just moved."""
    names = [f"p{number}" for number in range(40)]
    channel = make(tmp_path / "c", producers=names)
    for number in range(300):
        name = names[number % 40]
        if name != "p39" or number == 39:
            state(channel, name, 8 if name == "p39" else number + 9)
    found = History(channel, limit=700).frontier_since()
    assert (channel.frontier.format(), found.version, found.exact) == ("{8}", 40, True)
