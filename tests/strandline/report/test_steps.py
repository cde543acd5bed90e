"""The least image of a time by recorded steps equals what the specification of path summaries says of a frontier."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import path_summaries
from strandline.report.steps import least_image
from strandline.time.antichain import Antichain
from strandline.time.domain import TimeDomain, int64, product, timestamp

PAIR = product(epoch="int64", at="timestamp")
SMALL = st.integers(-50, 50)


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


@given(st.lists(scalar_steps, max_size=2), SMALL)
def test_of_scalar_times(steps: list[dict[str, Any]], time: int) -> None:
    [expected] = path_summaries.results(steps, Antichain(timestamp, [time]))
    assert least_image(steps, timestamp, timestamp, time) == expected


@given(SMALL, st.tuples(SMALL, SMALL), st.sampled_from(["epoch", "at"]))
def test_of_products(by: int, time: tuple[int, int], name: str) -> None:
    for steps, output in (
        ([{"coordinate": name}], dict(PAIR.coordinates)[name]),
        ([{"shift": by, "coordinate": name}], PAIR),
        ([{"coordinates": ["at"]}], product(at="timestamp")),
    ):
        [expected] = path_summaries.results(steps, Antichain(PAIR, [time]))
        assert least_image(steps, PAIR, output, time) == expected


@pytest.mark.parametrize(
    ("steps", "domain"),
    [
        ([{"least": [[], []]}], int64),
        ([{"window": "end", "width": 5, "slide": 5, "offset": 0, "session": True}], timestamp),
        ([{"shift": 1, "coordinate": "nobody"}], PAIR),
        ([{"shift": "1"}], int64),
        (["odd"], int64),
        ([{"shift": 1 << 63}], int64),
        ([{"coordinate": "epoch"}], PAIR),  # of another domain than the output's
    ],
)
def test_what_is_not_known_is_not_guessed(steps: list[Any], domain: TimeDomain) -> None:
    assert least_image(steps, domain, domain, domain.minimum if domain is PAIR else 5) is None


STRANGE = st.recursive(st.none() | st.integers() | st.text(max_size=5) | st.booleans(), lambda inner: st.lists(inner, max_size=2))


@settings(max_examples=60)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["coordinate", "coordinates", "shift", "window", "width", "slide", "offset", "truncate", "least"]),
            st.sampled_from(["epoch", "at", "start", 5, {}]) | STRANGE,
        )
        | STRANGE,
        max_size=3,
    ),
    st.sampled_from([(int64, 7), (PAIR, (1, 2))]),
)
def test_whatever_a_log_has_as_steps_is_an_image_or_unknown(steps: list[Any], place: tuple[TimeDomain, Any]) -> None:
    domain, time = place
    image = least_image(steps, domain, domain, time)
    assert image is None or domain.time(image) == image
