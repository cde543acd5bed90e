"""The specification of path summaries against enumeration, its recorded cases, and what the core's summaries say of the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as combinations
from random import Random
from typing import Any

import path_summaries
import record_path_summaries as recorded
from strandline.errors import SummaryError
from strandline.time.antichain import Antichain
from strandline.time.domain import Lex, Product, Scalar, Time, TimeDomain, parse_domain
from strandline.time.path.summary import PathSummary, advance

HEAD, *CASES = map(json.loads, recorded.read())


@dataclass(frozen=True)
class Tiny(Scalar):
    """Eight times of an int8."""

    @property
    def minimum(self) -> Time:
        return -3

    @property
    def maximum(self) -> Time:
        return 4


def tiny(domain: TimeDomain) -> TimeDomain:
    if not isinstance(domain, (Product, Lex)):
        return Tiny("int8")
    return type(domain)(tuple((name, tiny(part)) for name, part in domain.parts))


SHAPES = [
    tiny(parse_domain(text))
    for text in (
        "int8",
        "product(a int8, b int8)",
        "lex(a int8, b int8, c int8)",
        "product(a int8, l lex(b int8, c int8))",
        "lex(p product(a int8, b int8), c int8)",
        "lex(a int8, p product(b int8, c int8))",
        "lex(a int8, l lex(b int8, c int8))",
    )
]


def every(domain: TimeDomain) -> Iterator[Time]:
    if isinstance(domain, Scalar):
        yield from range(domain.minimum, domain.maximum + 1)
    else:
        yield from combinations(*(every(part) for _, part in domain.coordinates))


def step(r: Random, domain: TimeDomain) -> dict[str, Any]:
    """A step of a size that a tiny domain feels."""
    if isinstance(domain, (Product, Lex)) and r.random() < 0.2:
        return recorded.project(r, domain)
    if r.random() < 0.2:
        return recorded.entry(r, domain)
    if isinstance(domain, Scalar) and r.random() < 0.4:
        if r.random() < 0.2:
            return {"window": r.choice(("end", "time")), "session": True}
        bound, width, slide = r.choice(("start", "end", "time")), r.randint(1, 9), r.randint(1, 6)
        return {"window": bound, "width": width, "slide": slide, "offset": r.randint(-4, 4)}
    path, _ = recorded.leaf(r, domain)
    at = {"coordinate": ".".join(path)} if path else {}
    if r.random() < 0.5:
        return {"shift": r.randint(-9, 9), **at}
    return {"truncate": r.randint(1, 9), "offset": r.randint(-4, 4), **at}


def test_a_frontiers_image_is_the_least_of_what_is_made_of_the_open_times() -> None:
    """The specification's boxes against every time of small domains, whole."""
    r, kinds = Random(7), Counter[str]()
    for domain in SHAPES:
        times = list(every(domain))
        for _ in range(2000 if isinstance(domain, Scalar) else 60):
            one = step(r, domain)
            frontier = Antichain(domain, r.choices(times, k=r.randint(0, 3)))
            opened = [time for time in times if frontier.less_equal(time)]
            target = path_summaries.target(one, domain)
            expected = Antichain(target, [image for time in opened for image in path_summaries.images(one, domain, time)])
            assert path_summaries.results([one], frontier) == expected, (str(domain), one, frontier)
            kinds[next(iter(one))] += 1
    assert min(kinds[kind] for kind in ("shift", "truncate", "window", "coordinate", "coordinates", "enter")) > 20


def test_int8s_recorded_results_are_those_of_all_its_times() -> None:
    """The recorded cases themselves, where a domain can be enumerated: 256 times, step by step."""
    some = [case for case in CASES if case["domain"] == "int8" and "frontier" in case]
    some = [case for case in some if not any("enter" in one for one in case["steps"])]
    for case in some:
        for steps in steps_without_least(case["steps"]):
            frontier = Antichain(parse_domain("int8"), case["frontier"])
            for one in steps:
                opened = filter(frontier.less_equal, every(frontier.domain))
                frontier = Antichain(frontier.domain, [i for t in opened for i in path_summaries.images(one, frontier.domain, t)])
            assert frontier == path_summaries.results(steps, Antichain(frontier.domain, case["frontier"]))
            assert steps != case["steps"] or frontier.to_json() == case["result"]
    assert len(some) > 100


def steps_without_least(steps: list[Any]) -> list[list[Any]]:
    """Each way through the paths that meet."""
    choices = [list(one["least"]) if "least" in one else [[one]] for one in steps]
    return [[one for path in way for one in path] for way in combinations(*choices)]


def test_the_recorded_cases_are_those_that_their_seed_makes() -> None:
    assert [HEAD["seed"], HEAD["cases"]] == [recorded.SEED, len(CASES)]
    assert recorded.read() == list(recorded.lines(HEAD["seed"]))


def test_the_recorded_cases_reach_every_kind_of_step_and_both_ends() -> None:
    kinds = Counter(kind for case in CASES for one in case["steps"] for kind in one)
    assert min(kinds[kind] for kind in ("shift", "truncate", "window", "session", "coordinates", "least", "enter")) > 80
    lost = [case for case in CASES if case.get("frontier") and not case["result"]]
    assert 100 < len(lost) < len(CASES) / 3
    assert 100 < sum(case.get("moved") == "overflow" for case in CASES) < recorded.ROWS / 2
    assert sum(len(case.get("result", ())) > 1 for case in CASES) > 100


def test_the_cores_advance_moves_a_row_as_recorded_and_a_frontier_no_further() -> None:
    """``advance`` is the tracker's shift. Where a lexicographic coordinate overflows it carries, which is a lower bound."""
    kinds = Counter[str]()
    for case in CASES:
        domain = parse_domain(case["domain"])
        # A shift of 0 resets what comes after it in a lex time, and the identity does not; what is too wide is refused.
        if not all("shift" in one and 0 < one["shift"] <= widest(domain, one) for one in case["steps"]):
            continue
        summaries = [advance(domain, one.get("coordinate"), one["shift"]) for one in case["steps"]]
        if "time" in case:
            if case["moved"] != "overflow":
                assert after(summaries, [domain.from_json(case["time"])]) == [domain.from_json(case["moved"])]
                kinds["row"] += 1
            continue
        try:
            frontier = Antichain(domain, after(summaries, list(Antichain.from_json(domain, case["frontier"]))))
        except SummaryError:
            kinds["refused"] += 1  # there is no one next time to carry into, and the core says so
            continue
        expected = Antichain.from_json(domain, case["result"])
        assert frontier.dominates(expected), case
        kinds["frontier" if frontier == expected else "carried"] += 1
    assert kinds["row"] > 50
    assert kinds["frontier"] > 200
    assert kinds["carried"] > 5


def after(summaries: list[PathSummary], times: list[Time]) -> list[Time]:
    for summary in summaries:
        times = [moved for time in times if (moved := summary.results_in(time)) is not None]
    return times


def widest(domain: TimeDomain, one: dict[str, Any]) -> int:
    for name in one.get("coordinate", "").split(".") if "coordinate" in one else ():
        domain = dict(domain.coordinates)[name]
    return domain.maximum - domain.minimum
