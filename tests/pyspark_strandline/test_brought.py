"""What users bring: random queries with odd keys, functions and a table that changes, through crashes between any two commits.

Each either gives the rows of a run without a crash, on the table as of the versions that it pinned, or is refused by name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from brought_pipelines import CRASHES, LoopStory, Plan, Story

pytestmark = pytest.mark.spark


def live(story: Story | LoopStory, crashes: Sequence[str], batches: int = 2) -> str | None:
    """Live through a story. Return the condition with which the query was refused, if it was.

    ``batches``: how many new ones come before each crash.
    """
    story.change_table()
    for crash in crashes:
        for _ in range(batches):
            story.send()
        if (refusal := story.try_to_run()) is not None:
            return refusal
        story.crash(crash)
        story.change_table()
    story.end()
    return story.try_to_run()


def check(spark: Any, folder: Path, seed: int, crashes: Sequence[str] | None = None) -> None:
    plan = Plan.draw(seed)
    print(plan)
    story = Story(spark, folder / str(seed), plan)
    refusal = live(story, plan.crashes) if crashes is None else live(story, crashes, batches=1)
    if may_refuse(refusal, plan.table):
        return
    joined = story.joined()
    assert story.found() == story.expected(joined)
    if plan.outputs == 2:
        assert story.found("raw") == story.raw(joined)


def check_loop(spark: Any, folder: Path, seed: int) -> None:
    story = LoopStory(spark, folder / f"loop-{seed}", seed)
    print(seed, story.table, story.crashes)
    if not may_refuse(live(story, story.crashes), story.table):
        story.check()


def may_refuse(refusal: str | None, table: str) -> bool:
    """Return whether the query was refused. Files of Parquet have no version, so a repeated batch may see other rows."""
    assert refusal is None or (table, refusal) == ("parquet", "STRANDLINE_REPLAY_DIFFERS")
    return refusal is not None


@pytest.mark.parametrize("seed", range(12))
def test_a_random_query_is_exact_or_refused(spark: Any, tmp_path: Path, seed: int) -> None:
    """With one crash each. Each operator has two kinds of crashes."""
    check(spark, tmp_path, seed, [CRASHES[1 + (seed + seed // 6) % 3]])


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(3))
def test_a_random_loop_is_exact_or_refused(spark: Any, tmp_path: Path, seed: int) -> None:
    check_loop(spark, tmp_path, seed)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_random_queries_are_exact_or_refused(spark: Any, tmp_path: Path) -> None:
    """Set STRANDLINE_SEED to begin with another seed."""
    first = int(os.environ.get("STRANDLINE_SEED") or 1000)
    for seed in range(first, first + 300):
        if seed % 5:
            check(spark, tmp_path, seed)
        else:
            check_loop(spark, tmp_path, seed)
