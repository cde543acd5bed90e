"""Mutable antichains, plain and columnar, against counting and taking minima (invariant 4), in batches and step by step."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_spec import frontier
from core_strategies import PAIR, TRIPLE, domains, times
from strandline.errors import StrandlineError
from strandline.time.columnar_antichain import ColumnarAntichain
from strandline.time.domain import Time, TimeDomain, int64, product, uint64
from strandline.time.mutable_antichain import MutableAntichain

Batches = list[list[tuple[Time, int]]]
cases = domains().flatmap(
    lambda d: st.tuples(
        st.just(d), st.lists(st.lists(st.tuples(times(d, 3), st.integers(-2, 2)), max_size=6), min_size=1, max_size=6)
    )
)


@given(cases)
@settings(max_examples=100)
@pytest.mark.parametrize("kind", [MutableAntichain, ColumnarAntichain])
def test_the_frontier_is_the_least_positive_times_and_its_changes_sum_to_it(
    kind: type[MutableAntichain] | type[ColumnarAntichain], case: tuple[TimeDomain, Batches]
) -> None:
    d, batches = case
    stamps = kind(d)
    counts: Counter[Time] = Counter()
    summed: Counter[Time] = Counter()
    for batch in batches:
        changes = stamps.update_iter(batch)
        for time, delta in batch:
            counts[time] += delta
        for time, delta in changes:
            summed[time] += delta
        expected = frontier(d, counts)
        assert set(stamps.frontier) == expected
        assert set(stamps.elements) == expected
        assert {time: count for time, count in summed.items() if count} == dict.fromkeys(expected, 1)
        assert changes == sorted(changes, key=lambda change: d.sort_key(change[0]))
        assert stamps.is_empty() == (not expected)
        assert dict(stamps.updates()) == {time: count for time, count in counts.items() if count}
        assert len(stamps) == sum(1 for count in counts.values() if count)
        for time in counts:
            assert stamps.count_for(time) == counts[time]
            assert stamps.less_equal(time) == any(d.less_equal(e, time) for e in expected)
            assert stamps.less_than(time) == any(d.less_than(e, time) for e in expected)


@given(cases)
@settings(max_examples=100)
def test_single_updates_change_the_frontier_as_a_batch_would(case: tuple[TimeDomain, Batches]) -> None:
    d, batches = case
    stamps, whole = MutableAntichain(d), MutableAntichain(d)
    counts: Counter[Time] = Counter()
    for time, delta in (update for batch in batches for update in batch):
        before = frontier(d, counts)
        changes = stamps.update(time, delta)
        assert sorted(changes) == sorted(whole.update_iter([(time, delta)]))
        counts[time] += delta
        after = frontier(d, counts)
        assert set(stamps.elements) == after
        assert dict(changes) == dict.fromkeys(after - before, 1) | dict.fromkeys(before - after, -1)


def test_recorded_case_of_timelys_frontier() -> None:
    stamps = MutableAntichain(uint64, [(1, 1)])
    assert stamps.update_iter([(1, -1), (2, 7)]) == [(1, -1), (2, 1)]
    assert list(stamps.frontier) == [2]


@pytest.mark.parametrize("domain", [uint64, int64, PAIR, TRIPLE, product(a="int64", b="int8", c="uint64", d="int64")], ids=str)
@pytest.mark.parametrize("spread", [3, 50, 2**40])
def test_columns_of_many_producers_move_as_the_plain_path_says(domain: TimeDomain, spread: int) -> None:
    rng = np.random.default_rng(20240117)
    dtypes = [np.uint64 if leaf.name == "uint64" else np.int64 for _, leaf in domain.leaves()]
    limits = [min(spread, 100 if leaf.name == "int8" else spread) for _, leaf in domain.leaves()]
    at = [rng.integers(0, limit, 500).astype(dtype) for limit, dtype in zip(limits, dtypes, strict=True)]
    plain, columns = MutableAntichain(domain), ColumnarAntichain(domain)

    def both(cols: list[np.ndarray], deltas: np.ndarray) -> None:
        rows = list(zip(*(c.tolist() for c in cols), strict=True)) if domain.coordinates else cols[0].tolist()
        expected = plain.update_iter(zip(rows, deltas.tolist(), strict=True))
        assert columns.update_columns(cols, deltas) == expected
        assert dict(columns.updates()) == dict(plain.updates())

    both(at, np.ones(500, np.int64))
    for _ in range(10):
        moved = [
            np.minimum(column + rng.integers(0, 3, 500).astype(column.dtype), 120 + 2**41 * (limit > 100))
            for column, limit in zip(at, limits, strict=True)
        ]
        moved = [column.astype(dtype) for column, dtype in zip(moved, dtypes, strict=True)]
        both([np.concatenate(pair) for pair in zip(at, moved, strict=True)], np.repeat(np.array([-1, 1]), 500))
        at = moved
    both(at, np.full(500, -1))
    assert columns.is_empty()
    assert len(columns) == 0


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 2**63, 2**64 - 1]), st.sampled_from([-(2**63), -1, 0, 2**63 - 1]), st.integers(-1, 2))
    )
)
def test_columns_hold_the_extremes_of_their_types(rows: list[tuple[int, int, int]]) -> None:
    d = product(a="uint64", b="int64")
    updates = [((a, b), delta) for a, b, delta in rows]
    plain, columns = MutableAntichain(d), ColumnarAntichain(d)
    assert columns.update_iter(updates) == plain.update_iter(updates)
    assert dict(columns.updates()) == dict(plain.updates())


@pytest.mark.parametrize(
    ("columns", "deltas", "says"),
    [
        ([np.array([1])], np.array([1]), "1 columns of lengths"),
        ([np.array([1]), np.array([1, 2])], np.array([1]), "as long as the deltas"),
        ([np.array([1.5]), np.array([1])], np.array([1]), "column of float64 cannot be converted to uint64"),
        ([np.array([-1]), np.array([1])], np.array([1]), "column of int64 cannot be converted to uint64"),
        ([np.array([1]), np.array([1])], np.array([0.5]), "column of float64 cannot be converted to int64"),
    ],
)
def test_malformed_columns_are_refused(columns: list[np.ndarray], deltas: np.ndarray, says: str) -> None:
    with pytest.raises(StrandlineError, match=says):
        ColumnarAntichain(PAIR).update_columns(columns, deltas)


@pytest.mark.parametrize("domain", [uint64, PAIR], ids=str)
def test_memory_is_linear_in_what_is_outstanding_whatever_has_been(domain: TimeDomain) -> None:
    stamps = MutableAntichain(domain)
    for i in range(20_000):
        time, later = (i, i + 1) if domain is uint64 else ((i, 0), (i + 1, 0))
        if i == 0:
            stamps.update(time, 1)
        stamps.update(later, 1)
        stamps.update(time, -1)
    assert len(stamps) == 1
    assert stamps._heap is None or len(stamps._heap) <= 2 * len(stamps) + 65
