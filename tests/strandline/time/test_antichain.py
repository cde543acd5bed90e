"""Antichains against the definition of minimal elements (invariant 3)."""

from __future__ import annotations

import random
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_spec import minimal
from core_strategies import domains, times
from strandline.errors import TimeDomainError
from strandline.time import antichain as antichain_module
from strandline.time import mutable_antichain as mutable_antichain_module
from strandline.time.antichain import Antichain, least_times
from strandline.time.domain import Time, TimeDomain, int64, product, uint64
from strandline.time.mutable_antichain import MutableAntichain

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


@settings(max_examples=20)
@given(cases, st.randoms(use_true_random=False))
def test_many_times_are_compared_as_columns_with_the_same_result(case: Case, rng: random.Random) -> None:
    d, left, right, _ = case
    assert len(least_times(d, left)) == len(minimal(d, left))
    assert set(least_times(d, left)) == minimal(d, left)
    changed = Antichain(d, right).extend(left)
    plain = Antichain(d, right)
    dominated = plain.dominates(Antichain(d, left))
    counts = [(time, rng.choice([-1, 1, 2])) for time in [*left, *right]]
    frontier = MutableAntichain(d, counts).frontier
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(antichain_module, "_MANY", 1)
        patch.setattr(mutable_antichain_module, "_MANY", 1)
        columns = Antichain(d, right)
        assert columns.dominates(Antichain(d, left)) == dominated
        assert columns.extend(left) == changed
        assert set(columns) == minimal(d, [*left, *right])
        assert MutableAntichain(d, counts).frontier == frontier


@pytest.mark.parametrize("coordinates", [2, 3])
def test_thousands_of_capabilities_take_no_quadratic_time(coordinates: int) -> None:
    d = product(**dict.fromkeys("abc"[:coordinates], "int64"))
    many = [(i, 4096 - i, 0)[:coordinates] for i in range(4096)]
    started = process_time()
    antichain = Antichain(d, many)
    held = MutableAntichain(d, [(each, 1) for each in many])
    assert antichain.dominates(held.frontier)
    assert len(held.frontier) == 4096
    assert process_time() - started < 4  # comparing each pair takes more than a minute
