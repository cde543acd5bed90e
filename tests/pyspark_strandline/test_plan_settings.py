"""The catalogue of settings: the page shows it, and the plans of `make test` have all of it."""

from __future__ import annotations

from helpers import ROOT
from plans.environment import SETTINGS, table
from plans.foreign import Foreign
from plans.forms import FORMS, RARE_FORMS
from plans.grouping import GroupingSets, LastOfWindow, SumInForm
from plans.joins import DISTANCE_FORMS, IntervalJoin, Join
from plans.joins import FORMS as FORMS_OF_JOIN
from plans.moving import Moved
from plans.plan import OPERATORS, STATELESS, operators_of
from plans.seeds import VARIED
from plans.unary import Distinct
from plans.variations import random_plan

PLANS = [random_plan(seed) for seed in VARIED]


def test_the_page_shows_the_catalogue() -> None:
    page = (ROOT / "docs" / "environments.md").read_text()
    assert table() in page, f"docs/environments.md is to have this table:\n{table()}"


def test_every_value_of_every_setting_occurs() -> None:
    for setting in SETTINGS:
        values = {environment[setting.name] for plan in PLANS for environment in plan.environments}
        assert values == set(setting.values), setting.name


def test_settings_change_at_restarts() -> None:
    for setting in SETTINGS:
        changes = any(len({environment[setting.name] for environment in plan.environments}) > 1 for plan in PLANS)
        assert changes == (setting.restart != "must not change"), setting.name


def test_every_operator_occurs() -> None:
    kinds = {type(operator) for plan in PLANS for operator in operators_of(plan.tree)}
    assert kinds >= {*OPERATORS, *STATELESS, *FORMS, *RARE_FORMS, Foreign, GroupingSets, LastOfWindow, SumInForm, Distinct}


def test_every_mode_store_sink_and_change_of_clocks_occurs() -> None:
    modes = {(plan.mode(i - 1), plan.mode(i)) for plan in PLANS for i in range(1, plan.phases)}
    assert len({pair for pair in modes if pair[0] != pair[1]}) >= 3
    assert {plan.mode(0) for plan in PLANS} == {"append", "update", "complete"}
    assert {plan.sink for plan in PLANS} == {"foreachBatch", "channel"}
    assert len({plan.histories[0].start for plan in PLANS}) > 8


def test_every_form_of_a_join_occurs() -> None:
    operators = [operator for plan in PLANS for operator in operators_of(plan.tree)]
    assert {operator.form for operator in operators if isinstance(operator, IntervalJoin)} == set(DISTANCE_FORMS)
    assert {operator.form for operator in operators if isinstance(operator, Join)} == set(FORMS_OF_JOIN)


def test_every_move_of_times_occurs() -> None:
    moves = {operator.how for plan in PLANS for operator in operators_of(plan.tree) if isinstance(operator, Moved)}
    assert moves == {"advance", "truncate", "project", "enter"}
