"""Shrinking plans that fail, on failures that are made up: no Spark runs here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plans.environment import SETTINGS, TIME_ZONE, Environment
from plans.plan import Plan, bare_plan, operators_of
from plans.shrink import candidates, changed, shrink, with_changes
from plans.variations import random_plan

SEEDS = range(600)


def has(plan: Plan, operator: str) -> bool:
    return any(type(found).__name__ == operator for found in operators_of(plan.tree))


def rows(plan: Plan) -> int:
    return sum(len(part) for history in plan.histories for commit in history.commits for part in commit.files)


def zoned_join(plan: Plan) -> bool:
    """A failure that needs an operator, a setting and a row."""
    return has(plan, "IntervalJoin") and any(e[TIME_ZONE] == "America/New_York" for e in plan.environments) and rows(plan) > 0


def test_what_does_not_matter_goes_and_what_matters_stays() -> None:
    failing = [plan for plan in map(random_plan, SEEDS) if zoned_join(plan)]
    assert len(failing) > 3
    for plan in failing:
        small = shrink(plan, zoned_join, 10_000).plan
        assert [type(operator).__name__ for operator in operators_of(small.tree)] == ["IntervalJoin"]
        assert small.environments == (Environment(((TIME_ZONE, "America/New_York"),)),)
        assert (rows(small), len(small.histories), small.phases, small.replay) == (1, 1, 1, False)
        assert all(len(history.commits) <= 1 for history in small.histories)


def test_a_restart_that_matters_stays() -> None:
    def changes_zone(plan: Plan) -> bool:
        return len({environment[TIME_ZONE] for environment in plan.environments}) > 1

    plan = next(plan for plan in map(random_plan, SEEDS) if changes_zone(plan) and plan.phases == 3)
    small = shrink(plan, changes_zone, 10_000).plan
    assert small.phases == 2
    assert sorted(len(environment.changed) for environment in small.environments) == [0, 1]


def test_a_seed_and_its_changes_are_the_shrunk_plan() -> None:
    plan = next(plan for plan in map(random_plan, SEEDS) if zoned_join(plan))
    found = shrink(plan, zoned_join, 10_000)
    assert found.changes
    assert with_changes(random_plan(plan.seed), found.changes) == found.plan
    assert f"--plan-seed {plan.seed} --plan-changes" in str(found)


def test_shrinking_ends_with_its_tries() -> None:
    tried: list[Plan] = []

    def fails(plan: Plan) -> bool:
        tried.append(plan)
        return True

    assert shrink(random_plan(1), fails, 7).tries == len(tried) == 7


def test_what_fails_always_becomes_a_plan_of_one_operator_and_nothing_else() -> None:
    small = shrink(random_plan(1), lambda _: True, 10_000).plan
    assert (len(operators_of(small.tree)), rows(small), small.phases) == (1, 0, 1)
    assert not any(history.commits for history in small.histories)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(40))
def test_every_change_leaves_a_legal_plan(seed: int) -> None:
    plan = random_plan(seed)
    for change in candidates(plan):
        smaller = changed(plan, change)
        if smaller is None:
            continue
        assert smaller != plan, change
        assert len(smaller.environments) == smaller.phases == len(smaller.histories[-1].phases)
        for history in smaller.histories:
            held = dict.fromkeys(history.producers, (history.start,))
            for commit in history.commits:
                times = [time for part in commit.files for time, _, _ in part] + list(commit.holds)
                assert all(history.domain.open(held[commit.producer], time) for time in times), change
                held[commit.producer] = commit.holds


def test_a_bare_plan_is_what_it_was_whatever_varies_around_it() -> None:
    for seed in range(40):
        bare, plan = bare_plan(seed), random_plan(seed)
        assert (plan.seed, plan.domain, plan.replay) == (bare.seed, bare.domain, bare.replay)
        assert len(plan.environments) == plan.phases >= bare.phases


def test_checkpoint_ids_are_drawn_for_all_runs_or_none_and_with_rocksdb_only() -> None:
    name = next(setting.name for setting in SETTINGS if setting.name.endswith("checkpointFormatVersion"))
    for plan in map(random_plan, SEEDS):
        values = {environment[name] for environment in plan.environments}
        assert len(values) == 1
        assert values == {"1"} or plan.environments[0].rocks
        assert replace(plan, environments=plan.environments) == plan
