"""Change batches against ``collections.Counter``."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from strandline.time.change_batch import ChangeBatch

updates = st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3)))


@given(updates, updates)
def test_a_batch_holds_the_net_counts(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    net: Counter[int] = Counter()
    for item, delta in first + second:
        net[item] += delta
    expected = {item: count for item, count in net.items() if count}
    left, right = ChangeBatch(first), ChangeBatch(second)
    left.drain_into(right)
    assert left.is_empty()
    assert dict(right) == expected
    assert len(right) == len(expected)
    assert all(right.count_for(item) == expected.get(item, 0) for item in range(6))
    assert dict(right.copy().drain()) == expected


def test_updates_that_cancel_leave_nothing() -> None:
    batch = ChangeBatch([(17, 1), (17, -1)])
    assert batch.is_empty()
    assert batch == ChangeBatch()


def test_memory_is_what_is_outstanding_not_what_has_been() -> None:
    batch: ChangeBatch[int] = ChangeBatch()
    for time in range(10_000):
        batch.update(time, 1)
        batch.update(time, -1)
    assert len(batch) == 0
