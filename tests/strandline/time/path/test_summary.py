"""Laws of path summaries (invariant 2) and timely's recorded cases."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_strategies import PAIR, SCOPE, domains, is_lex, summaries, times
from strandline.errors import SummaryError
from strandline.time.domain import Time, TimeDomain, int64, lex, product, uint64
from strandline.time.path.summary import PathSummary, ScalarSummary, Summaries, advance, advances, identity, summary_from_json

cases = domains().flatmap(
    lambda d: st.tuples(st.just(d), times(d, edges=True), times(d), summaries(d), summaries(d), summaries(d))
)
Case = tuple[TimeDomain, Time, Time, PathSummary, PathSummary, PathSummary]


@given(cases)
@settings(max_examples=60)
def test_a_path_never_moves_a_time_backwards_and_only_the_identity_leaves_it(case: Case) -> None:
    d, t, _, s, _, _ = case
    assert identity(d).results_in(t) == t
    assert identity(d).is_identity
    result = s.results_in(t)
    if s.is_identity:
        assert result == t
    elif result is not None:
        assert d.less_than(t, result)
        assert d.time(result) == result


@given(domains().flatmap(lambda d: st.tuples(st.just(d), summaries(d, widest=False))))
@settings(max_examples=50)
def test_advances_are_those_that_make_the_summary(case: tuple[TimeDomain, PathSummary]) -> None:
    """A summary that sets a coordinate after the one that advances to more than the least time is not made by advances."""
    d, s = case
    found = advances(s)
    if found is None:
        assert is_lex(d)
        return
    made: PathSummary | None = identity(d)
    for coordinate, by in found.items():
        made = None if made is None else made.followed_by(advance(d, coordinate or None, by))
    assert made == s


def less_equal(d: TimeDomain, a: Time | None, b: Time | None) -> bool:
    """The order of results: no result is greater than every time."""
    return b is None or (a is not None and d.less_equal(a, b))


@given(cases)
@settings(max_examples=60)
def test_results_are_monotone_in_the_time_and_in_the_summary(case: Case) -> None:
    d, t, u, s, r, _ = case
    if d.less_equal(t, u):
        assert less_equal(d, s.results_in(t), s.results_in(u))
    if s.less_equal(r):
        assert less_equal(d, s.results_in(t), r.results_in(t))


@given(cases)
@settings(max_examples=60)
def test_following_is_applying_one_after_the_other_and_no_result_stays_so(case: Case) -> None:
    d, t, _, s, r, q = case
    middle = s.results_in(t)
    expected = None if middle is None else r.results_in(middle)
    both = s.followed_by(r)
    got = None if both is None else both.results_in(t)
    if is_lex(d):  # what overflows and is reset later carries only step by step: the composition may be less, never greater
        assert less_equal(d, got, expected)
    else:
        assert got == expected
        left = None if both is None else both.followed_by(q)
        rest = r.followed_by(q)
        assert left == (None if rest is None else s.followed_by(rest))
    assert s.followed_by(identity(d)) == s
    assert identity(d).followed_by(s) == s


@given(domains().flatmap(lambda d: st.tuples(times(d), *(summaries(d, widest=False) for _ in range(3)))))
@settings(max_examples=60)
def test_following_is_exact_and_associative_where_nothing_overflows(
    case: tuple[Time, PathSummary, PathSummary, PathSummary],
) -> None:
    t, s, r, q = case
    assert s.followed_by(r).results_in(t) == r.results_in(s.results_in(t))
    assert s.followed_by(r).followed_by(q) == s.followed_by(r.followed_by(q))


@given(cases)
@settings(max_examples=60)
def test_summaries_are_partially_ordered_and_survive_their_json(case: Case) -> None:
    d, _, _, s, r, q = case
    assert s.less_equal(s)
    assert not (s.less_equal(r) and r.less_equal(s)) or s == r
    assert not (s.less_equal(r) and r.less_equal(q)) or s.less_equal(q)
    assert identity(d).less_equal(s)
    assert not d.is_total or s.less_equal(r) or r.less_equal(s)
    assert summary_from_json(d, s.to_json()) == s


@given(cases)
def test_an_antichain_of_summaries_keeps_the_least_in_whatever_order_they_come(case: Case) -> None:
    _, t, _, s, r, q = case
    found = Summaries([s, r, q])
    assert found == Summaries([q, s, r])
    assert hash(found) == hash(Summaries([r, q, s]))
    assert all(a == b or not a.less_equal(b) for a in found for b in found)
    assert all(any(a.less_equal(b) for a in found) for b in (s, r, q))
    assert set(found.results_in(t)) <= {p.results_in(t) for p in (s, r, q)}


def test_recorded_cases_of_timelys_timestamps() -> None:
    top = 2**64 - 1
    assert ScalarSummary(uint64, 5).results_in(3) == 8
    assert ScalarSummary(uint64, top - 2).results_in(3) is None
    assert ScalarSummary(uint64, 5).followed_by(ScalarSummary(uint64, top - 3)) is None


def test_a_lexicographic_scope_enters_iterates_and_leaves() -> None:
    enter, feedback, leave = advance(SCOPE, "stratum"), advance(SCOPE, "iter"), advance(SCOPE, "stratum")
    tick = advance(SCOPE, "tick")
    assert enter.results_in((7, 1, 5)) == (7, 2, 0)
    assert enter.followed_by(feedback).followed_by(feedback).results_in((7, 1, 5)) == (7, 2, 2)
    assert enter.followed_by(feedback).followed_by(leave).results_in((7, 1, 5)) == (7, 3, 0)
    assert enter.followed_by(feedback).followed_by(tick) == tick
    assert str(enter.followed_by(feedback)) == "(stratum+1, iter=1)"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ScalarSummary(int64, -1), "moves times backwards"),
        (lambda: ScalarSummary(int64, True), "advances by True"),
        (lambda: ScalarSummary(int64, 1.0), "advances by 1.0"),
        (lambda: advance(PAIR, "round"), "Use one of epoch, iter"),
        (lambda: advance(uint64, "iter"), "a scalar has none"),
        (lambda: summary_from_json(PAIR, [1]), "list of 2 summaries"),
        (lambda: summary_from_json(PAIR, 1), "list of 2 summaries"),
        (lambda: summary_from_json(SCOPE, {"advance": "era", "by": 1, "then": []}), "advance"),
        (lambda: summary_from_json(SCOPE, {"advance": "tick", "by": 0, "then": [0, 0]}), "Advance by 1 or more"),
        (lambda: summary_from_json(SCOPE, {"advance": "tick", "by": 1, "then": [0]}), "the 2 coordinates"),
    ],
)
def test_what_is_no_summary_is_refused(make: object, says: str) -> None:
    with pytest.raises(SummaryError, match=says):
        make()  # type: ignore[operator]


def test_an_overflow_that_has_no_one_next_time_is_an_error_and_not_a_closed_time() -> None:
    d = lex(epoch="uint64", where=PAIR, iter="int8")
    assert advance(d, "iter").results_in((0, (1, 1), 5)) == (0, (1, 1), 6)
    with pytest.raises(SummaryError, match="STRANDLINE_TIME_OVERFLOW"):
        advance(d, "iter").results_in((0, (1, 1), 127))
    total = lex(epoch="uint64", where=lex(a="int8", b="int8"), iter="int8")
    assert advance(total, "iter").results_in((0, (1, 127), 127)) == (0, (2, -128), -128)


def test_nested_coordinates_are_named_with_dots() -> None:
    d = product(epoch="int64", loop=lex(outer="uint64", inner="uint64"))
    assert advance(d, "loop.inner", 2).results_in((1, (2, 5))) == (1, (2, 7))
