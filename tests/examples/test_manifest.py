"""The manifest's capabilities say exactly which hours are complete, whatever the order of events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flights.manifest import DOMAIN, Manifest, box, describe, point, time_array
from strandline.time.antichain import Antichain
from strandline.time.arrow import times_of

HOURS = st.integers(0, 8).map(lambda h: h * 60)


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    """Hours of flights, and the same in the order in which they arrive, cut into model hours."""
    flights = draw(st.lists(HOURS, min_size=1, max_size=25))
    order = draw(st.permutations(flights))
    cuts = sorted(draw(st.lists(st.integers(0, len(order)), max_size=8)))
    return flights, [order[a:b] for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True)]


@given(stories(), st.lists(st.integers(0, 700), min_size=9, max_size=9))
def test_an_hour_is_closed_exactly_when_its_last_flight_was_told_of(
    expected_progress: tuple[list[int], list[list[int]]], clocks: list[int]
) -> None:
    flights, parts = expected_progress
    manifest = Manifest("JFK", {hour: flights.count(hour) for hour in flights})
    left = list(flights)
    before = Antichain.least(DOMAIN)
    for now, part in zip(sorted(clocks), parts, strict=False):
        for hour in part:
            assert before.less_equal(point(hour, "JFK")), "a row is in advance of what was held before it"
            left.remove(hour)
        manifest.settle(part, now)
        holds = manifest.holds()
        assert before.dominates(holds), "capabilities only move on"
        for hour in set(flights):
            assert holds.closed(point(hour, "JFK")) == (hour not in left)
            assert holds.closed(point(hour, "EWR"))
        before = holds


def test_a_flight_too_many_is_refused() -> None:
    manifest = Manifest("LGA", {60: 1})
    manifest.settle([60], 60)
    with pytest.raises(ValueError, match="no flight left"):
        manifest.settle([60], 60)


@given(HOURS, HOURS, HOURS, HOURS)
def test_a_box_is_less_or_equal_another_when_it_contains_it(a: int, b: int, c: int, d: int) -> None:
    outer, inner = (min(a, b), max(a, b)), (min(c, d), max(c, d))
    contains = outer[0] <= inner[0] and inner[1] <= outer[1]
    assert DOMAIN.less_equal(box(*outer, "EWR"), box(*inner, "EWR")) == contains
    assert not DOMAIN.less_equal(box(*outer, "EWR"), box(*inner, "JFK"))
    assert describe(box(*outer, "EWR")) == ("EWR", *outer)


def test_a_columns_times_are_the_points_of_its_hours() -> None:
    import numpy as np

    assert times_of(time_array(np.array([0, 120]), "LGA"), DOMAIN) == [point(0, "LGA"), point(120, "LGA")]
