"""Notificators: never early, in an order that respects the partial order; timely's recorded case and bytewax' reclocking."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from core_strategies import PAIR, domains, times
from strandline.time.antichain import Antichain
from strandline.time.change_batch import ChangeBatch
from strandline.time.domain import Time, TimeDomain
from strandline.tracker.capability import Capability
from strandline.tracker.notificator import Notificator


def test_recorded_case_of_timelys_notificator() -> None:
    changes: ChangeBatch[Time] = ChangeBatch()
    root = Capability(PAIR, (0, 0), changes)
    pending = [(3, 5), (5, 4), (1, 2), (1, 1), (1, 1), (5, 4), (6, 0), (6, 2), (5, 8)]
    notificator = Notificator(PAIR, [root.delayed(time) for time in pending])
    assert notificator.next([Antichain(PAIR, [(0, 0)])]) is None

    frontier = [Antichain(PAIR, [(5, 7), (6, 1)])]
    delivered = [(capability.time, count) for capability, count in notificator.ready(frontier)]
    assert delivered == [((1, 1), 2), ((1, 2), 1), ((3, 5), 1), ((5, 4), 2), ((6, 0), 1)]

    frontier = [Antichain(PAIR, [(6, 10)])]
    first = notificator.next(frontier)
    assert first is not None
    assert first[0].time == (5, 8)
    notificator.notify_at(root.delayed((5, 9)))
    assert [capability.time for capability, _ in notificator.ready(frontier)] == [(5, 9), (6, 2)]
    assert notificator.pending() == []
    first[0].drop()
    assert list(changes) == [((0, 0), 1)]  # what was delivered has been dropped


cases = domains().flatmap(
    lambda d: st.tuples(
        st.just(d), st.lists(times(d), max_size=8), st.lists(st.lists(times(d), max_size=3), max_size=4), st.data()
    )
)


@given(cases)
@settings(max_examples=40)
def test_never_early_always_once_and_in_an_order_that_respects_the_partial_one(
    case: tuple[TimeDomain, list[Time], list[list[Time]], st.DataObject],
) -> None:
    d, requested, frontiers, data = case
    changes: ChangeBatch[Time] = ChangeBatch()
    notificator = Notificator(d, [Capability(d, time, changes) for time in requested])
    delivered: list[tuple[Time, int]] = []
    for elements in [*frontiers, []]:
        frontier = Antichain(d, elements)
        session: list[Time] = []
        for capability, count in notificator.ready([frontier]):
            assert frontier.closed(capability.time)
            assert not any(d.less_than(capability.time, before) for before in session)
            session.append(capability.time)
            delivered.append((capability.time, count))
            if len(requested) < 12 and data.draw(st.booleans()):  # ask again, for later, while being notified
                time = d.join(capability.time, data.draw(times(d)))
                requested.append(time)
                notificator.notify_at(capability.delayed(time))
        assert all(not frontier.closed(time) for time, _ in notificator.pending())
    assert sum(count for _, count in delivered) == len(requested)
    assert {time for time, _ in delivered} == set(requested)
    assert changes.is_empty()


def test_two_inputs_hold_each_other_back() -> None:
    notificator = Notificator(PAIR, [Capability(PAIR, (1, 1), ChangeBatch())])
    ahead, behind = Antichain(PAIR, [(5, 5)]), Antichain(PAIR, [(0, 1)])
    assert notificator.next([ahead, behind]) is None
    assert notificator.next([ahead, ahead]) is not None
