"""Random plans, replayed at other settings: the output is that of the live run at all closed times."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from plans.plan import Plan
from plans.replayed import check_replayed, not_replayed
from plans.variations import random_plan

pytestmark = pytest.mark.spark
PLANS = 200
"""How many plans with a comparison a soak runs. Those that cannot be compared are skipped, and counted by name."""
FEW = 8


def replayable(first: int, count: int, skipped: Counter[str]) -> list[Plan]:
    """The first plans from a seed on that are to be compared."""
    found: list[Plan] = []
    while len(found) < count:
        plan = random_plan(first)
        first += 1
        if reason := not_replayed(plan):
            skipped[reason] += 1
        else:
            found.append(plan)
    return found


@pytest.mark.drawn
def test_plans_are_replayed(spark: Any, tmp_path: Path) -> None:
    first = int(os.environ.get("STRANDLINE_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"STRANDLINE_SEED={first}")
    for plan in replayable(first, FEW, Counter()):
        print(plan)
        print(check_replayed(plan, spark, tmp_path / str(plan.seed)), flush=True)


@pytest.mark.soak
def test_two_hundred_replayed_plans(spark: Any) -> None:
    """Set STRANDLINE_SEED to begin at another seed, STRANDLINE_SOAK_DIR to go on with a run that was interrupted."""
    first = int(os.environ.get("STRANDLINE_SEED") or random.SystemRandom().randrange(1_000_000))
    root = Path(os.environ.get("STRANDLINE_SOAK_DIR") or f".build/soak/replayed-plans-{first}").resolve()
    root.mkdir(parents=True, exist_ok=True)
    first = int(_remembered(root / "first", str(first)))
    done = dict(line.split(" ", 1) for line in _remembered(root / "done", "").splitlines())
    skipped: Counter[str] = Counter()
    plans = replayable(first, PLANS, skipped)
    print(f"from seed {first}, {len(done)} of {PLANS} done, in {root}; skipped: {dict(skipped)}", flush=True)
    failed: dict[int, Exception] = {}
    for plan in plans:
        if str(plan.seed) in done:
            continue
        shutil.rmtree(root / str(plan.seed), ignore_errors=True)  # it was interrupted
        try:
            found = check_replayed(plan, spark, root / str(plan.seed))
        except Exception as error:  # the others go on; all are shown at the end
            failed[plan.seed] = error
            print(f"seed {plan.seed} failed: {error}\n{plan}", flush=True)
            continue
        done[str(plan.seed)] = found
        shutil.rmtree(root / str(plan.seed))
        with (root / "done").open("a") as file:
            file.write(f"{plan.seed} {found}\n")
        print(f"seed {plan.seed}: {found}", flush=True)
    print(dict(Counter(done.values())), flush=True)
    assert not failed, f"seeds {sorted(failed)}; STRANDLINE_SEED begins with one of them"


def _remembered(file: Path, otherwise: str) -> str:
    if not file.exists():
        file.write_text(otherwise)
    return file.read_text()
