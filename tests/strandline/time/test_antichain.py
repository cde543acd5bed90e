"""Antichains against the definition of minimal elements (invariant 3)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_spec import minimal
from core_strategies import domains, times
from strandline.errors import TimeDomainError
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain, int64, uint64

cases = domains().flatmap(
    lambda d: st.tuples(st.just(d), st.lists(times(d), max_size=8), st.lists(times(d), max_size=4), times(d))
)
Case = tuple[TimeDomain, list[Time], list[Time], Time]


@given(cases, st.randoms(use_true_random=False))
def test_elements_are_the_minimal_ones_in_whatever_order_they_come(case: Case, rng: random.Random) -> None:
    d, inserted, _, _ = case
    antichain = Antichain(d, inserted)
    assert set(antichain) == minimal(d, inserted)
    shuffled = list(inserted)
    rng.shuffle(shuffled)
    one_by_one = Antichain(d)
    for time in shuffled:
        one_by_one.insert(time)
    assert one_by_one == antichain
    assert hash(one_by_one) == hash(antichain)
    assert list(one_by_one) == list(antichain)


@given(cases)
def test_insert_says_whether_the_antichain_changed(case: Case) -> None:
    d, inserted, _, time = case
    antichain = Antichain(d, inserted)
    before = antichain.copy()
    assert antichain.insert(time) == (antichain != before)


@given(cases)
def test_less_equal_less_than_and_closed_read_as_defined(case: Case) -> None:
    d, inserted, _, time = case
    antichain = Antichain(d, inserted)
    assert antichain.less_equal(time) == any(d.less_equal(t, time) for t in inserted)
    assert antichain.less_than(time) == any(d.less_than(t, time) for t in inserted)
    assert antichain.closed(time) == (not antichain.less_equal(time))


@given(cases)
def test_the_meet_closes_what_both_close(case: Case) -> None:
    d, left, right, time = case
    a, b = Antichain(d, left), Antichain(d, right)
    assert a.meet(b).closed(time) == (a.closed(time) and b.closed(time))
    assert a.meet(b).dominates(a)
    assert a.dominates(b) == (a.meet(b) == a)


@given(cases)
def test_an_antichain_survives_its_json(case: Case) -> None:
    d, inserted, _, _ = case
    antichain = Antichain(d, inserted)
    assert Antichain.from_json(d, antichain.to_json()) == antichain


def test_frontiers_of_different_domains_are_not_compared() -> None:
    with pytest.raises(TimeDomainError, match="STRANDLINE_TIME_DOMAIN_MISMATCH"):
        Antichain(int64).meet(Antichain(uint64))
    with pytest.raises(TimeDomainError, match="STRANDLINE_TIME_DOMAIN_MISMATCH"):
        Antichain(int64, [1]).dominates(Antichain(uint64, [2]))
