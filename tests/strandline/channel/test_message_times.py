"""Message times: exact while that is short, and when it is not, spans that hold back at least what the exact times would."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_strategies import domains, times
from strandline.channel import Span
from strandline.channel.statements import message_times as module
from strandline.channel.statements.message_times import TimeCounts, message_times
from strandline.time.antichain import Antichain
from strandline.time.arrow import array_of
from strandline.time.domain import TimeDomain, product, timestamp

PAIR = product(epoch="int64", iter="int64")


def covered(domain: TimeDomain, span: Span, time: object) -> bool:
    return domain.less_equal(span.low, time) and domain.less_equal(time, span.high)


@given(st.data())
def test_they_are_exact_or_spans_that_cover_them_and_stay_allowed(data: st.DataObject) -> None:
    domain = data.draw(domains())
    holds = Antichain(domain, data.draw(st.lists(times(domain, 2), min_size=1, max_size=3)))
    time = times(domain, 6).filter(holds.less_equal)
    counts = data.draw(st.dictionaries(time, st.integers(1, 9), max_size=12))
    ends = data.draw(st.lists(st.tuples(time, time, st.integers(1, 9)), max_size=4))
    given_spans = [Span(domain.meet(a, b), domain.join(a, b), n) for a, b, n in ends if holds.less_equal(domain.meet(a, b))]
    limit = data.draw(st.integers(1, 8))
    exact, spans = message_times(counts.items(), holds, limit, given_spans)
    assert sum(n for _, n in exact) + sum(s.rows for s in spans) == sum(counts.values()) + sum(s.rows for s in given_spans)
    if len(counts) + len(given_spans) <= limit:
        assert dict(exact) == counts
        assert list(spans) == given_spans
        return
    assert exact == ()
    assert len(spans) <= max(limit, 2 * len(holds))
    for one in [*(Span(t, t, 1) for t in counts), *given_spans]:
        assert any(covered(domain, s, one.low) and covered(domain, s, one.high) for s in spans)
    assert all(holds.less_equal(s.low) for s in spans)  # no span is behind what its producer held


@settings(max_examples=30)
@given(st.data())
def test_counting_whole_columns_in_bounded_memory_covers_every_row(data: st.DataObject) -> None:
    domain = data.draw(domains())
    a_run = st.tuples(times(domain, 9), st.integers(1, 4))
    runs = data.draw(st.lists(st.lists(a_run, max_size=6), max_size=5))
    batches = [[time for time, rows in batch for _ in range(rows)] for batch in runs]
    random = np.random.default_rng(len(batches))
    hashes = [random.integers(0, 1 << 64, len(batch), dtype=np.uint64) for batch in batches] if data.draw(st.booleans()) else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST_PENDING", data.draw(st.integers(1, 12)))
        patch.setattr(module, "MAX_MESSAGE_TIMES", data.draw(st.integers(1, 5)))
        counts = TimeCounts(domain, most_exact=data.draw(st.integers(1, 6)))
        for i, batch in enumerate(batches):
            counts.add(array_of(batch, domain), None if hashes is None else hashes[i])
        exact, spans = counts.result()
    rows = Counter(time for batch in batches for time in batch)
    assert sum(n for _, n in exact) + sum(s.rows for s in spans) == sum(rows.values())
    named = dict(exact)
    assert len(named) == len(exact)
    assert [time for time, _ in exact] == sorted(named, key=domain.sort_key)
    for time, count in rows.items():
        assert named.get(time) == count or any(covered(domain, s, time) for s in spans)
    # The ends are rows' own times, so a capability that allowed every row is ≤ every low end, whichever it is.
    assert {s.low for s in spans} | {s.high for s in spans} <= set(rows)
    if not spans:
        assert named == dict(rows)
        if hashes is not None:
            sums: Counter[object] = Counter()
            for batch, each in zip(batches, hashes, strict=True):
                for time, hashed in zip(batch, each.tolist(), strict=True):
                    sums[time] += hashed
            assert counts.hashes == [sums[time] % (1 << 64) for time, _ in exact]


@pytest.mark.parametrize("domain", [timestamp, PAIR], ids=str)
def test_very_many_distinct_times_take_few_spans(domain: TimeDomain) -> None:
    counts = TimeCounts(domain)
    for batch in range(10):
        ticks = range(batch, 200_000, 10)
        counts.add(array_of(ticks if domain is timestamp else [(t, t % 3) for t in ticks], domain))
    exact, spans = counts.result()
    assert sum(n for _, n in exact) + sum(s.rows for s in spans) == 200_000
    assert len(spans) < 10_000
    assert len(exact) <= 1 << 16


def test_a_span_may_be_forgotten_once_its_high_is_closed() -> None:
    _, (span,) = message_times([((0, i), 1) for i in range(9)], Antichain(PAIR, [(0, 0)]), 1)
    frontier = Antichain(PAIR, [(0, 9)])
    assert frontier.closed(span.high)
    assert all(frontier.closed((0, i)) for i in range(9))
    assert not Antichain(PAIR, [(0, 5)]).closed(span.high)
