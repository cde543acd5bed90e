"""Random stories of ingests, operators and a store that fails, told to the product and to its specification side by side.

A story that fails is shrunk and printed as calls of :class:`ingest_stories.machine.Stories`. STRANDLINE_STORY_SEED=N tells the
block of stories of one seed alone.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from ingest_stories.machine import Stories

BLOCK, FEW = 50, 18
"""Stories with one seed: in a soak, and without."""
BLOCKS = 400
"""How many a soak tells."""


def tell(first: int, stories: int) -> None:
    """So many stories; raises for the first that fails, when it is shrunk."""
    told = settings(
        max_examples=stories,
        stateful_step_count=8,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    run_state_machine_as_test(seed(first)(type("Stories", (Stories,), {})), settings=told)


@pytest.mark.drawn("core")
@pytest.mark.parametrize(
    "first", [int(os.environ["STRANDLINE_STORY_SEED"])] if "STRANDLINE_STORY_SEED" in os.environ else range(1)
)
def test_stories(first: int) -> None:
    tell(first, BLOCK if "STRANDLINE_STORY_SEED" in os.environ else FEW)


@pytest.mark.soak
def test_twenty_thousand_stories() -> None:
    """Set STRANDLINE_SEED to begin at another seed, STRANDLINE_SOAK_DIR to go on with a run that was interrupted."""
    first = int(os.environ.get("STRANDLINE_SEED") or random.SystemRandom().randrange(1_000_000))
    root = Path(os.environ.get("STRANDLINE_SOAK_DIR") or f".build/soak/stories-{first}").resolve()
    root.mkdir(parents=True, exist_ok=True)
    first = int(_remembered(root / "first", str(first)))
    done = {int(line) for line in _remembered(root / "done", "").split()}
    print(f"seeds {first} to {first + BLOCKS - 1}, {BLOCK} stories each, {len(done)} done, in {root}", flush=True)
    failed: dict[int, BaseException] = {}
    for one in range(first, first + BLOCKS):
        if one in done:
            continue
        started = time.monotonic()
        try:
            tell(one, BLOCK)
        except Exception as error:  # the others go on; all are shown at the end
            failed[one] = error
            print(f"seed {one} failed: {error}\n" + "\n".join(getattr(error, "__notes__", ())), flush=True)
        else:
            with (root / "done").open("a") as file:
                file.write(f"{one}\n")
            print(f"seed {one}: {BLOCK} stories in {time.monotonic() - started:.0f} s", flush=True)
    assert not failed, f"seeds {sorted(failed)}; tell one alone with STRANDLINE_STORY_SEED"


def _remembered(file: Path, otherwise: str) -> str:
    if not file.exists():
        file.write_text(otherwise)
    return file.read_text()
