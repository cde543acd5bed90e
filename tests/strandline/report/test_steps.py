"""The least image of a time by recorded steps equals what the specification of path summaries says of a frontier."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import path_summaries
from strandline.errors import StrandlineError
from strandline.report import steps as recorded
from strandline.time.antichain import Antichain
from strandline.time.domain import TimeDomain, int64, lex, parse_domain, product, timestamp
from strandline.time.path.entry import Entry
from strandline.time.path.steps import Steps

PAIR = product(epoch="int64", at="timestamp")
SMALL = st.integers(-50, 50)


def least_images(steps: list[Any], domain: TimeDomain, output: TimeDomain, time: Any, inner: str | None = None) -> Any:
    """The least images by steps as a log has them; none is known if they cannot be read."""
    try:
        return recorded.least_images(Steps.from_json(steps), domain, output, time, inner)
    except StrandlineError:
        return None


def windows(bound: str) -> st.SearchStrategy[dict[str, Any]]:
    sizes = st.tuples(st.integers(1, 12), st.integers(1, 12)).map(sorted)
    return st.tuples(sizes, st.integers(0, 11)).map(
        lambda made: {"window": bound, "width": made[0][1], "slide": made[0][0], "offset": made[1]}
    )


scalar_steps = st.one_of(
    SMALL.map(lambda n: {"shift": n}),
    st.tuples(st.integers(1, 9), st.integers(0, 8)).map(lambda made: {"truncate": made[0], "offset": made[1]}),
    *(windows(bound) for bound in ("start", "end", "time")),
)


sessions = st.sampled_from(["end", "time"]).map(lambda bound: {"window": bound, "session": True})
PLACES = {  # the paths to coordinates of these domains
    timestamp: [""],
    PAIR: ["epoch", "at"],
    lex(tick="int64", stratum="int64", n="int64"): ["tick", "stratum", "n"],
    product(a="int64", b=lex(c="int64", d="int64")): ["a", "b.c", "b.d"],
    lex(a=product(c="int64", d="int64"), b="int64"): ["a.c", "a.d", "b"],
}


@st.composite
def ways(draw: st.DrawFn, domain: TimeDomain, nested: int = 2) -> list[dict[str, Any]]:
    """Steps from a domain to itself, also such of which only the least way counts."""
    places = st.sampled_from(PLACES[domain])
    steps = draw(st.lists(st.tuples(scalar_steps | sessions, places), max_size=2))
    made = [{**step, **({"coordinate": place} if place else {})} for step, place in steps]
    if nested and draw(st.booleans()):
        made.append({"least": [draw(ways(domain, nested - 1)), draw(ways(domain, nested - 1))]})
    return made


def times(domain: TimeDomain) -> st.SearchStrategy[Any]:
    parts = [times(part) for _, part in domain.coordinates]
    return st.tuples(*parts) if parts else SMALL


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_of_all_kinds_of_domains(data: st.DataObject) -> None:
    domain = data.draw(st.sampled_from(list(PLACES)))
    steps, time = data.draw(ways(domain)), data.draw(times(domain))
    found = least_images(steps, domain, domain, time)
    assert found is not None
    assert Antichain(domain, found) == path_summaries.results(steps, Antichain(domain, [time]))


@given(st.tuples(SMALL, SMALL), st.sampled_from(["epoch", "at"]))
def test_of_chosen_coordinates(time: tuple[int, int], name: str) -> None:
    first = lex(epoch="int64", at="timestamp")
    for steps, domain, output in (
        ([{"coordinate": name}], PAIR, dict(PAIR.coordinates)[name]),
        ([{"coordinates": ["at"]}], PAIR, product(at="timestamp")),
        ([{"coordinate": "epoch"}], first, int64),
        ([{"coordinates": ["epoch"]}], first, lex(epoch="int64")),
    ):
        [expected] = path_summaries.results(steps, Antichain(domain, [time]))
        assert least_images(steps, domain, output, time) == [expected]


@given(SMALL, st.sampled_from(["epoch", "iter"]), st.booleans())
def test_of_times_that_enter(time: int, name: str, recorded: bool) -> None:
    """As `read_channels(domain=…)`, `read_loop` and `iterate` have it. Without a record the output's domain is tried."""
    loop = product(epoch="int64", iter="int64")
    steps = [{"shift": 1, "coordinate": name}]
    begin = Antichain(loop, [Entry(int64, loop).time(time)])
    inner = str(loop) if recorded else None
    assert least_images(steps, int64, loop, time, inner) == list(path_summaries.results(steps, begin))
    leave = [*steps, {"coordinate": name}]
    expected = list(path_summaries.results(leave, begin)) if recorded else None
    assert least_images(leave, int64, int64, time, inner) == expected


@given(SMALL, st.sampled_from(["product", "lex"]))
def test_of_times_that_a_query_lets_enter(time: int, kind: str) -> None:
    inner = parse_domain(f"{kind}(at timestamp, tick int64)")
    steps = [{"shift": 3}, {"enter": str(inner)}, {"shift": 2, "coordinate": "tick"}]
    expected = list(path_summaries.results(steps, Antichain(timestamp, [time])))
    assert least_images(steps, timestamp, inner, time) == expected == [(time + 3, 2)]
    assert least_images([*steps, {"enter": "int64"}], timestamp, int64, time) is None
    assert least_images([{"enter": "product(at"}], timestamp, inner, time) is None


def test_a_time_without_an_image_causes_nothing() -> None:
    assert least_images([{"shift": 1 << 63}], int64, int64, 5) == []
    assert least_images([{"shift": 1 << 63, "coordinate": "epoch"}], PAIR, PAIR, (5, 5)) == []


def test_where_a_time_has_no_image_but_a_later_one_has() -> None:
    domain = lex(a="int64", b="int64")
    assert least_images([{"shift": 1 << 63, "coordinate": "b"}], domain, domain, (5, 5)) == [(6, 0)]


@pytest.mark.parametrize(
    ("steps", "domain"),
    [
        ([{"window": "end", "width": 5, "slide": 5, "offset": 0, "session": True}], timestamp),
        ([{"shift": 1, "coordinate": "nobody"}], PAIR),
        ([{"shift": "1"}], int64),
        (["odd"], int64),
        ([{"least": []}], int64),
        ([{"coordinate": "epoch"}], PAIR),  # of another domain than the output's
    ],
)
def test_what_is_not_known_is_not_guessed(steps: list[Any], domain: TimeDomain) -> None:
    assert least_images(steps, domain, domain, 5 if domain.coordinates == () else (5, 5)) is None


STRANGE = st.recursive(st.none() | st.integers() | st.text(max_size=5) | st.booleans(), lambda inner: st.lists(inner, max_size=2))


@settings(max_examples=30)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(
                ["coordinate", "coordinates", "shift", "window", "width", "slide", "offset", "truncate", "least", "enter"]
            ),
            st.sampled_from(["epoch", "at", "start", "lex(a int64, b)", 5, {}]) | STRANGE,
        )
        | STRANGE,
        max_size=3,
    ),
    st.sampled_from([(int64, 7), (PAIR, (1, 2))]),
)
def test_whatever_a_log_has_as_steps_is_an_image_or_unknown(steps: list[Any], place: tuple[TimeDomain, Any]) -> None:
    domain, time = place
    images = least_images(steps, domain, domain, time)
    assert images is None or [domain.time(image) for image in images] == images
