"""Random programs in this process, against naive evaluation and against the answer sets of clingo.

STRANDLINE_PROGRAM_SEED=N plays the program of one seed alone.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

import program_asp
import program_spec
from drawn import SEED
from random_programs import LAST, draw, mended
from strandline.program.plan import reads

BLOCK, BLOCKS = 500, 200
"""Programs of a block, and blocks of a soak."""
ALONE = "STRANDLINE_PROGRAM_SEED"


def play(seed: int, *, answer_sets: bool) -> int:
    """Compare one program. Returns how often it was refused before it had strata; each refusal is checked on the way."""
    draft, refused = mended(draw(seed))
    program = draft.build()
    plan = program.plan()
    found = program.run(draft.facts, last=LAST)
    assert found == program_spec.evaluate(plan, draft.facts, LAST), f"{ALONE}={seed}"
    if answer_sets:
        assert found == program_asp.evaluate(plan, draft.facts, LAST), f"{ALONE}={seed}, with clingo"
    strata = {name: relation.stratum for name, relation in plan.relations.items()}
    assert strata == program_spec.depths(draft.plain_rules, plan.relations), f"{ALONE}={seed}: other strata"
    for rule in plan.rules:
        assert all(strata[relation] + bool(word) <= rule.stratum for relation, word in reads(rule.body)), f"{ALONE}={seed}"
    return len(refused)


@pytest.mark.parametrize("block", range(4))
def test_random_programs(block: int) -> None:
    """Each run plays others. One of twenty goes to clingo, too, which takes five times as long as all the rest."""
    if ALONE in os.environ:
        play(int(os.environ[ALONE]), answer_sets=True)
        return
    first = 1000 * int(os.environ[SEED]) + 250 * block
    refused = sum(play(seed, answer_sets=seed % 20 == 0) > 0 for seed in range(first, first + 250))
    assert 30 < refused < 150  # programs without strata are drawn often enough


@pytest.mark.soak
def test_a_hundred_thousand_programs() -> None:
    """Set STRANDLINE_SEED to begin at another seed, STRANDLINE_SOAK_DIR to go on with a run that was interrupted."""
    first = int(os.environ.get("STRANDLINE_SEED") or random.SystemRandom().randrange(1_000_000_000))
    root = Path(os.environ.get("STRANDLINE_SOAK_DIR") or f".build/soak/programs-{first}").resolve()
    root.mkdir(parents=True, exist_ok=True)
    if not (root / "first").exists():
        (root / "first").write_text(str(first))
    first = int((root / "first").read_text())
    done = {int(line) for line in (root / "done").read_text().split()} if (root / "done").exists() else set()
    print(f"seeds {first} to {first + BLOCK * BLOCKS - 1}, {len(done)} of {BLOCKS} blocks done, in {root}", flush=True)
    failed: dict[int, AssertionError] = {}
    for block in range(first, first + BLOCK * BLOCKS, BLOCK):
        if block in done:
            continue
        started, refused, before = time.monotonic(), 0, len(failed)
        for seed in range(block, block + BLOCK):
            try:
                refused += play(seed, answer_sets=True) > 0
            except AssertionError as error:  # noqa: PERF203 - the others go on; all are shown at the end
                failed[seed] = error
                print(f"seed {seed} failed: {error}", flush=True)
        if len(failed) == before:
            with (root / "done").open("a") as file:
                file.write(f"{block}\n")
        print(f"seeds from {block}: {refused} refused first, {time.monotonic() - started:.0f} s", flush=True)
    assert not failed, f"seeds {sorted(failed)}; play one alone with {ALONE}"
