"""Refinements: entering, leaving and what a nested path looks like from outside."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_strategies import PAIR, SCOPE, domains, summaries, times
from strandline.errors import GraphError, SummaryError
from strandline.time.domain import TimeDomain, lex, product, uint64
from strandline.time.path.summary import summary_from_json
from strandline.tracker.graph import Graph
from strandline.tracker.refinement import Refinement

refinements = domains().flatmap(
    lambda d: st.sampled_from([Refinement.same(d), Refinement.nested(d, "own"), Refinement.nested(d, "own", order=lex)])
)
cases = refinements.flatmap(
    lambda r: st.tuples(
        st.just(r), times(r.outer), times(r.outer), times(r.inner), times(r.inner), summaries(r.inner, widest=False)
    )
)


@given(cases)
@settings(max_examples=50)
def test_entering_and_leaving_are_monotone_and_undo_each_other(case: tuple) -> None:
    r, a, b, x, y, _ = case
    assert r.to_outer(r.to_inner(a)) == a
    assert r.inner.less_equal(r.to_inner(r.to_outer(x)), x)
    assert r.outer.less_equal(a, b) == r.inner.less_equal(r.to_inner(a), r.to_inner(b))
    if r.inner.less_equal(x, y):
        assert r.outer.less_equal(r.to_outer(x), r.to_outer(y))
    assert r.inner.time(r.to_inner(a)) == r.to_inner(a)


@given(cases)
@settings(max_examples=50)
def test_a_summary_from_outside_is_what_entering_the_path_and_leaving_give(case: tuple) -> None:
    r, a, _, _, _, path = case
    assert r.summarize(path).results_in(a) == r.to_outer(path.results_in(r.to_inner(a)))


@given(cases)
def test_a_feedback_strictly_advances_inside_and_not_outside(case: tuple) -> None:
    r, a, *_ = case
    if r.coordinate is None:
        with pytest.raises(SummaryError, match="no coordinate of its own"):
            r.feedback()
        return
    round_again = r.feedback()
    assert r.inner.less_than(r.to_inner(a), round_again.results_in(r.to_inner(a)))
    assert r.summarize(round_again).is_identity


@pytest.mark.parametrize(
    ("outer", "order", "inner"),
    [
        (uint64, product, "product(outer uint64, own uint64)"),
        (uint64, lex, "lex(outer uint64, own uint64)"),
        (PAIR, product, "product(epoch uint64, iter uint64, own uint64)"),
        (PAIR, lex, "lex(outer product(epoch uint64, iter uint64), own uint64)"),
        (SCOPE, lex, "lex(tick uint64, stratum uint64, iter uint64, own uint64)"),
    ],
)
def test_nested_domains_are_flat_where_the_orders_agree(outer: TimeDomain, order: object, inner: str) -> None:
    assert str(Refinement.nested(outer, "own", order=order).inner) == inner  # type: ignore[arg-type]


rounds = refinements.flatmap(
    lambda r: st.tuples(
        st.just(r),
        summaries(r.outer, widest=False),
        summaries(r.inner, widest=False),
        summaries(r.inner, widest=False),
        st.lists(times(r.inner), min_size=1, max_size=5),
    )
)


@given(rounds)
@settings(max_examples=60)
def test_a_path_around_outside_is_leaving_the_path_and_entering_again(case: tuple) -> None:
    r, path, before, after, some = case
    around = r.around(path)
    both = before.followed_by(around).followed_by(after)
    for time in some:
        assert around.results_in(time) == r.to_inner(path.results_in(r.to_outer(time)))
        assert both.results_in(time) == after.results_in(around.results_in(before.results_in(time)))
    found = [before, after, around, both, r.around(r.summarize(before))]
    for one, other in [(one, other) for one in found for other in found]:
        assert one.less_equal(one)
        if one.less_equal(other):
            assert all(r.inner.less_equal(one.results_in(time), other.results_in(time)) for time in some)
    for summary in found:
        assert summary_from_json(r.inner, summary.to_json()) == summary
        goes_back = any(not r.inner.less_equal(time, summary.results_in(time)) for time in some)
        assert summary.resets or not goes_back
        if summary.resets:
            with pytest.raises(GraphError, match="STRANDLINE_GRAPH_INVALID.*move times backwards"):
                Graph(r.inner).add_node(1, 1, [{0: [summary]}])
