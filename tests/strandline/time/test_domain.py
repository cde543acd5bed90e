"""Laws of the orders (invariant 1), over every domain of the strategies, and differential's recorded lattice cases."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from core_strategies import DOMAINS, PAIR, domains, times
from strandline.time.domain import Time, TimeDomain, parse_domain

some_times = domains().flatmap(lambda d: st.tuples(st.just(d), *(times(d, 3, edges=True) for _ in range(3))))


@given(some_times)
def test_less_equal_is_a_partial_order(case: tuple[TimeDomain, Time, Time, Time]) -> None:
    d, a, b, c = case
    assert d.less_equal(a, a)
    assert not (d.less_equal(a, b) and d.less_equal(b, a)) or a == b
    assert not (d.less_equal(a, b) and d.less_equal(b, c)) or d.less_equal(a, c)
    assert d.comparison(a, b) == d.less_equal(a, b)
    assert d.less_than(a, b) == (d.less_equal(a, b) and a != b)
    assert d.less_equal(d.minimum, a)
    assert d.less_equal(a, d.maximum)
    assert not d.is_total or d.less_equal(a, b) or d.less_equal(b, a)


@given(some_times)
def test_the_sort_key_is_a_linear_extension(case: tuple[TimeDomain, Time, Time, Time]) -> None:
    d, a, b, _ = case
    if d.less_than(a, b):
        assert d.sort_key(a) < d.sort_key(b)
    if d.is_total:
        assert d.less_equal(a, b) == (d.sort_key(a) <= d.sort_key(b))


@given(some_times)
def test_join_and_meet_are_least_and_greatest_bounds(case: tuple[TimeDomain, Time, Time, Time]) -> None:
    d, a, b, c = case
    join, meet = d.join(a, b), d.meet(a, b)
    assert d.less_equal(a, join)
    assert d.less_equal(b, join)
    assert d.less_equal(meet, a)
    assert d.less_equal(meet, b)
    if d.less_equal(a, c) and d.less_equal(b, c):
        assert d.less_equal(join, c)
    if d.less_equal(c, a) and d.less_equal(c, b):
        assert d.less_equal(c, meet)
    assert d.time(join) == join
    assert d.time(meet) == meet


@given(some_times)
def test_times_and_domains_survive_their_json_and_text(case: tuple[TimeDomain, Time, Time, Time]) -> None:
    d, a, _, _ = case
    assert d.from_json(d.to_json(a)) == a
    assert parse_domain(str(d)) == d


def test_recorded_cases_of_differentials_lattice() -> None:
    assert PAIR.join((3, 7), (4, 6)) == (4, 7)
    assert PAIR.meet((3, 7), (4, 6)) == (3, 6)
    # (3, 7) advanced by {(4, 8), (5, 3)}: the meet over the frontier of the joins with its elements.
    joins = [PAIR.join((3, 7), f) for f in [(4, 8), (5, 3)]]
    assert PAIR.meet(*joins) == (4, 7)


def test_a_domain_that_has_compared_times_still_travels_to_other_processes() -> None:
    for d in DOMAINS:
        assert d.comparison(d.minimum, d.maximum)
        again = pickle.loads(pickle.dumps(d))  # noqa: S301
        assert again == d
        assert hash(again) == hash(d)
        assert again.comparison(d.minimum, d.maximum)
