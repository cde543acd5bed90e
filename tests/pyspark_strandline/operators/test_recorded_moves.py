"""The connector's moves of times against the recorded cases of path summaries: the steps that it writes, and their definition."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import path_summaries
import record_path_summaries as recorded
from moving_model import moved
from pyspark_strandline.operators.summary_steps import advancing, entering, projecting, truncating
from strandline.errors import StrandlineError
from strandline.time.domain import TimeDomain, parse_domain
from strandline.time.path.steps import Steps

CASES = [json.loads(line) for line in recorded.read()[1:]]


def move(domain: TimeDomain, step: dict[str, Any]) -> Steps:
    """The move that a user asks for by such a step."""
    path = step.get("coordinate")
    if "shift" in step:
        return advancing(domain, step["shift"], path)
    if "truncate" in step:
        return truncating(domain, step["truncate"], path, step["offset"])
    if "enter" in step:
        return entering(domain, parse_domain(step["enter"]))
    return projecting(domain, step.get("coordinates", [path]))


def is_a_move(step: dict[str, Any]) -> bool:
    """Windows and ways that meet come of plans. One coordinate alone is always bare in a move."""
    return "least" not in step and "window" not in step and len(step.get("coordinates", ("", ""))) > 1


def test_moves_are_written_as_the_steps_that_were_recorded_and_lead_to_their_domains() -> None:
    kinds = Counter[str]()
    for case in CASES:
        domain = parse_domain(case["domain"])
        for step in case["steps"]:
            target = path_summaries.target(step, domain)
            if is_a_move(step):
                kind = next(iter(step))
                try:
                    made = move(domain, step)
                except StrandlineError:  # backwards, from an offset before the origin, or farther than the domain is wide
                    assert kind in ("shift", "truncate")
                    kind = "refused"
                else:
                    assert made.target(domain) == target
                    if made.steps:  # else it changes nothing
                        least = {"offset": step["offset"] % step["truncate"]} if kind == "truncate" else {}
                        assert made.to_json() == [{**step, **least}]
                kinds[kind] += 1
            domain = target
    assert min(kinds[kind] for kind in ("shift", "truncate", "coordinate", "coordinates", "enter")) > 90


def test_rows_move_as_recorded() -> None:
    """The model that Spark's own rows are compared with. Steps back are in no move, and it has no overflow."""
    compared = 0
    for case in CASES:
        domain = parse_domain(case["domain"])
        if case.get("moved", "overflow") == "overflow" or any(step.get("shift", 1) <= 0 for step in case["steps"]):
            continue
        if not all(map(is_a_move, case["steps"])):
            continue
        made = domain.from_json(case["time"])
        target = domain
        for step in case["steps"]:
            made = moved(made, target, Steps.from_json([step]))
            target = path_summaries.target(step, target)
        assert made == target.from_json(case["moved"]), case
        compared += 1
    assert compared > 300
