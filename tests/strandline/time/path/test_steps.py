"""The steps of path summaries against the recorded cases, and their JSON."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import record_path_summaries as recorded
from strandline.errors import StrandlineError, SummaryError
from strandline.time.antichain import Antichain
from strandline.time.domain import int64, lex, parse_domain, product
from strandline.time.path.steps import LeastStep, Steps

_, *CASES = map(json.loads, recorded.read())


def test_rows_and_frontiers_go_where_the_recorded_cases_say() -> None:
    kinds = Counter[str]()
    for case in CASES:
        domain, steps = parse_domain(case["domain"]), Steps.from_json(case["steps"])
        if "frontier" in case:
            found = steps.results(Antichain.from_json(domain, case["frontier"]))
            assert found.domain == steps.target(domain)
            assert found.to_json() == case["result"], case
        else:
            image = steps.image(domain, domain.from_json(case["time"]))
            assert case["moved"] == ("overflow" if image is None else steps.target(domain).to_json(image)), case
        kinds["frontier" if "frontier" in case else "row"] += 1
    assert min(kinds.values()) > 300


def test_steps_are_written_as_they_were_read() -> None:
    for case in CASES:
        assert json.dumps(Steps.from_json(case["steps"]).to_json()) == json.dumps(case["steps"])
    inputs = [{"least": [[{"input": "a"}], [{"input": "b"}, {"shift": 2}]], "together": [{"shift": 2}]}]
    assert json.dumps(Steps.from_json(inputs).to_json()) == json.dumps(inputs)


PATHS = st.recursive(
    st.lists(
        st.one_of(st.just({"input": "a"}), st.just({"input": "b"}), st.integers(0, 3).map(lambda n: {"shift": n})), max_size=3
    )
    # only the first step of a path names an input
    .map(lambda steps: [step for at, step in enumerate(steps) if at == 0 or "input" not in step]),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda paths: [{"least": paths}]),
    max_leaves=5,
)


@given(PATHS, st.integers(0, 9), st.integers(0, 9), st.integers(0, 3))
def test_the_paths_of_all_inputs_together_are_the_summary(path: list[Any], a: int, b: int, last: int) -> None:
    """Each input has its own frontier: the least of all paths from both is the specification's."""
    steps = Steps.from_json([*path, {"shift": last}])

    def least(path: list[Any], start: int | None) -> int:
        for at, step in enumerate(path):
            if "least" in step:
                start = min(least(each, start) for each in step["least"])
            elif "input" in step and at == 0:
                start = {"a": a, "b": b}[step["input"]]
            else:
                start = (min(a, b) if start is None else start) + step["shift"]
        return min(a, b) if start is None else start

    images = []
    for name, time in (("a", a), ("b", b)):
        reached = steps.from_input(name)
        if reached != Steps((LeastStep(()),)):
            images += reached.results(Antichain(int64, [time]))
    assert min(images) == least([*path, {"shift": last}], None)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"shift": 1},
        [1],
        [{}],
        [{"shift": 1, "input": "a"}],
        [{"shift": True}],
        [{"shift": 1, "coordinate": 2}],
        [{"truncate": 0, "offset": 0}],
        [{"coordinates": ["a", 1]}],
        [{"enter": "float"}],
        [{"window": "start", "session": True}],
        [{"window": "end", "session": True, "width": 1}],
        [{"window": "end", "width": 0, "slide": 1, "offset": 0}],
        [{"least": [[{"later": 1}]]}],
        [{"least": [[]], "together": [{"later": 1}]}],
    ],
)
def test_an_unknown_step_is_refused(value: Any) -> None:
    with pytest.raises(StrandlineError):
        Steps.from_json(value)


def test_paths_that_nest_without_end_are_refused() -> None:
    value: list[Any] = []
    for _ in range(1000):
        value = [{"least": [value]}]
    with pytest.raises(SummaryError, match="unknown step"):
        Steps.from_json(value)


@pytest.mark.parametrize(
    ("steps", "domain"),
    [
        ([{"coordinate": "epoch"}], int64),
        ([{"coordinates": []}], product(a="int64")),
        ([{"coordinate": "b"}], lex(a="int64", b="int64")),
        ([{"shift": 1}], product(a="int64")),
        ([{"shift": 1, "coordinate": "a"}], int64),
        ([{"enter": "int64"}], product(a="int64")),
        ([{"least": [[], [{"coordinate": "a"}]]}], product(a="int64")),
        ([{"least": []}], int64),
    ],
)
def test_steps_that_do_not_fit_a_domain_are_refused(steps: list[Any], domain: Any) -> None:
    with pytest.raises(SummaryError, match="STRANDLINE_SUMMARY_INVALID"):
        Steps.from_json(steps).results(Antichain.least(domain))


@pytest.mark.parametrize("step", [{"window": "end", "session": True}, {"least": [[]]}, {"input": "a"}])
def test_what_does_not_apply_to_a_row_is_refused_for_rows(step: dict[str, Any]) -> None:
    with pytest.raises(SummaryError, match="does not apply to a row"):
        Steps.from_json([step]).image(int64, 5)


def test_paths_may_nest_as_deep_as_plans_do_and_no_deeper() -> None:
    def nested(depth: int) -> list[Any]:
        value: list[Any] = []
        for _ in range(depth):
            value = [{"least": [value, [{"shift": 1}]]}, {"shift": 1}]
        return value

    steps = Steps.from_json(nested(149))
    assert steps.to_json() == nested(149)
    assert steps.results(Antichain(int64, [0])) == Antichain(int64, [2])
    assert steps.from_input(None).to_json() == nested(149)
    with pytest.raises(SummaryError, match="STRANDLINE_SUMMARY_INVALID"):
        Steps.from_json(nested(150))
