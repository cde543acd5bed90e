"""Random plans over channels: every result once, in the batch whose end frontier closes it, and as a batch evaluation has it.

``--plan-seed N`` or STRANDLINE_PLAN_SEED=N runs the plan of one seed alone.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from plans.plan import random_plan
from plans.run import check_plan

pytestmark = pytest.mark.spark
SEEDS = (*range(2036, 2076), 500061, 500130, 500141)
"""Forty in which every operator, domain, sink, mode and store comes, and some that failed once; `make soak` runs more."""
AT_ONCE = 2
"""Most of a small batch is waiting for files and processes, so plans run beside each other."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        one = metafunc.config.getoption("--plan-seed") or os.environ.get("STRANDLINE_PLAN_SEED")
        metafunc.parametrize("seed", [int(one)] if one else SEEDS)


@pytest.fixture(scope="module")
def plans(spark: Any, tmp_path_factory: Any, request: pytest.FixtureRequest) -> Iterator[dict[int, Future[int]]]:
    """All plans of this run, under way."""
    seeds = [item.callspec.params["seed"] for item in request.session.items if "plans" in getattr(item, "fixturenames", ())]
    folder = tmp_path_factory.mktemp("plans")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {seed: pool.submit(check_plan, random_plan(seed), spark, folder / str(seed)) for seed in seeds}
        pool.shutdown(cancel_futures=True)


def test_a_plan_gives_what_its_definition_says(plans: dict[int, Future[int]], seed: int) -> None:
    print(random_plan(seed))
    assert plans[seed].result() > 0


@pytest.mark.soak
def test_five_hundred_plans(spark: Any) -> None:
    """Set STRANDLINE_SEED to begin at another seed, STRANDLINE_SOAK_DIR to go on with a run that was interrupted."""
    first = int(os.environ.get("STRANDLINE_SEED") or random.SystemRandom().randrange(1_000_000))
    root = Path(os.environ.get("STRANDLINE_SOAK_DIR") or f".build/soak/plans-{first}").resolve()
    root.mkdir(parents=True, exist_ok=True)
    first = int(_remembered(root / "first", str(first)))
    done = {int(line) for line in _remembered(root / "done", "").split()}
    print(f"seeds {first} to {first + 499}, {len(done)} done, in {root}", flush=True)
    failed: dict[int, BaseException] = {}

    def one(seed: int) -> None:
        try:
            batches = check_plan(random_plan(seed), spark, root / str(seed))
        except BaseException as error:  # the others go on; all are shown at the end
            failed[seed] = error
            print(f"seed {seed} failed: {error}\n{random_plan(seed)}", flush=True)
        else:
            shutil.rmtree(root / str(seed))
            with (root / "done").open("a") as file:
                file.write(f"{seed}\n")
            print(f"seed {seed}: {batches} batches", flush=True)

    for seed in range(first, first + 500):
        if seed not in done and (root / str(seed)).exists():
            shutil.rmtree(root / str(seed))  # it was interrupted
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, (seed for seed in range(first, first + 500) if seed not in done)))
    assert not failed, f"seeds {sorted(failed)}; run one alone with --plan-seed"


def _remembered(file: Path, otherwise: str) -> str:
    if not file.exists():
        file.write_text(otherwise)
    return file.read_text()
