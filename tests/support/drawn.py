"""Which of the long tests a run takes: a part of them, drawn by a seed, so that many runs take all of them.

``pytest --draw 4`` takes one of four tests with the mark ``drawn``; the other tests always run. STRANDLINE_DRAW repeats a draw.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping

import pytest

__all__ = ["SEED", "drawn", "left_out"]

SEED = "STRANDLINE_DRAW"
"""The variable with the seed. The processes of a run have it from the first one, so they draw the same."""


def drawn(pools: Mapping[str, Iterable[str]], share: int, seed: str) -> set[str]:
    """Return the units that a run takes: every ``share``-th, after they were put in a random order, one pool after the other.

    So each unit is taken by one of ``share`` runs, and the units of a run come from as many pools as possible.

    >>> pools = {"loops": ["a", "b", "c", "d", "e"], "kills": ["f"]}
    >>> [len(drawn(pools, 3, seed)) for seed in "123"], drawn(pools, 1, "1") == {*"abcdef"}
    ([2, 2, 2], True)
    >>> drawn(pools, 3, "7") == drawn({"kills": ["f"], "loops": ["e", "d", "c", "b", "a"]}, 3, "7")
    True
    """
    numbers = random.Random(seed)
    order = sorted(pools)
    numbers.shuffle(order)
    units: list[str] = []
    for pool in order:
        each = sorted(pools[pool])
        numbers.shuffle(each)
        units += each
    return set(units[numbers.randrange(share) :: share])


def left_out(items: Iterable[pytest.Item], share: int) -> list[pytest.Item]:
    """Return the tests that this run leaves out.

    A mark without a name draws single tests. ``drawn("name")`` draws modules: all tests of a module with this name share what is
    costly, so they run together or not at all.
    """
    pools: defaultdict[str, set[str]] = defaultdict(set)
    unit_of: list[tuple[pytest.Item, str]] = []
    for item in items:
        if mark := item.get_closest_marker("drawn"):
            module = item.nodeid.partition("::")[0]
            pool, unit = (mark.args[0], f"{module} of {mark.args[0]}") if mark.args else (module, item.nodeid)
            pools[pool].add(unit)
            unit_of.append((item, unit))
    taken = drawn(pools, share, os.environ[SEED])
    return [item for item, unit in unit_of if unit not in taken]
