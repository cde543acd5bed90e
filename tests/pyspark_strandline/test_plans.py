"""Random plans over channels, under random settings: every result once, in the batch whose end frontier closes it, and as a
batch evaluation has it; or the query is refused by a name, where that is documented.

``--plan-seed N`` or STRANDLINE_PLAN_SEED=N runs the plan of one seed alone, ``--plan-changes`` what it was shrunk to.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from plans.plan import Plan, bare_plan
from plans.run import Outcome, check_and_shrink
from plans.seeds import BARE, VARIED
from plans.shrink import with_changes
from plans.variations import random_plan

pytestmark = pytest.mark.spark
AT_ONCE = 2
"""Most of a small batch is waiting for files and processes, so plans run beside each other."""
TRIES = 30
"""How many smaller plans are tried when one fails; some seconds each."""
PLANS = 2000
"""How many a soak runs."""
MOST_REFUSED = 1 / 3
"""The fuzzer must not pass by plans that are refused."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "plan" in metafunc.fixturenames:
        one = metafunc.config.getoption("--plan-seed") or os.environ.get("STRANDLINE_PLAN_SEED")
        changes = [change.strip() for change in metafunc.config.getoption("--plan-changes").split(";") if change.strip()]
        found = [with_changes(random_plan(int(one)), changes)] if one else [*map(random_plan, VARIED), *map(bare_plan, BARE)]
        metafunc.parametrize("plan", found, ids=lambda plan: str(plan.seed))


@pytest.fixture(scope="module")
def outcomes(spark: Any, tmp_path_factory: Any, request: pytest.FixtureRequest) -> Iterator[dict[int, Future[Outcome]]]:
    """All plans of this run, under way."""
    plans = [item.callspec.params["plan"] for item in request.session.items if "plan" in getattr(item, "fixturenames", ())]
    folder = tmp_path_factory.mktemp("plans")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {plan.seed: pool.submit(check_and_shrink, plan, spark, folder / str(plan.seed), TRIES) for plan in plans}
        pool.shutdown(cancel_futures=True)


@pytest.mark.drawn
def test_a_plan_gives_what_its_definition_says(outcomes: dict[int, Future[Outcome]], plan: Plan) -> None:
    print(plan)
    outcome = outcomes[plan.seed].result()
    assert outcome.batches > 0 or outcome.refused


def test_few_plans_are_refused(outcomes: dict[int, Future[Outcome]]) -> None:
    refused = Counter(done.result().refused for done in outcomes.values() if done.exception() is None)
    print(refusals(refused))
    if len(outcomes) < len(VARIED):
        pytest.skip("too few plans run to say it of")  # drawn, or of one seed
    del refused[None]
    assert refused.total() <= max(1, MOST_REFUSED * len(outcomes))


def refusals(counts: Counter[str | None]) -> str:
    """How many plans were refused, by condition."""
    return f"{counts[None]} exact" + "".join(f", {n} refused with {condition}" for condition, n in counts.items() if condition)


@pytest.mark.soak
def test_two_thousand_plans(spark: Any) -> None:
    """Set STRANDLINE_SEED to begin at another seed, STRANDLINE_SOAK_DIR to go on with a run that was interrupted."""
    first = int(os.environ.get("STRANDLINE_SEED") or random.SystemRandom().randrange(1_000_000))
    root = Path(os.environ.get("STRANDLINE_SOAK_DIR") or f".build/soak/plans-{first}").resolve()
    root.mkdir(parents=True, exist_ok=True)
    first = int(_remembered(root / "first", str(first)))
    done = {int(line) for line in _remembered(root / "done", "").split()}
    print(f"seeds {first} to {first + PLANS - 1}, {len(done)} done, in {root}", flush=True)
    failed: dict[int, BaseException] = {}
    counts: Counter[str | None] = Counter()

    def one(seed: int) -> None:
        try:
            outcome = check_and_shrink(random_plan(seed), spark, root / str(seed), TRIES)
        except BaseException as error:  # the others go on; all are shown at the end
            failed[seed] = error
            print(f"seed {seed} failed: {error}\n{random_plan(seed)}", flush=True)
        else:
            counts[outcome.refused] += 1
            shutil.rmtree(root / str(seed))
            with (root / "done").open("a") as file:
                file.write(f"{seed}\n")
            print(f"seed {seed}: {outcome}", flush=True)

    for seed in range(first, first + PLANS):
        if seed not in done and (root / str(seed)).exists():
            shutil.rmtree(root / str(seed))  # it was interrupted
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, (seed for seed in range(first, first + PLANS) if seed not in done)))
    print(refusals(counts), flush=True)
    assert not failed, f"seeds {sorted(failed)}; run one alone with --plan-seed"


def _remembered(file: Path, otherwise: str) -> str:
    if not file.exists():
        file.write_text(otherwise)
    return file.read_text()
