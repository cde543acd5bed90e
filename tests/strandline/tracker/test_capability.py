"""Capabilities (invariant 9): minted only at or after a held one, counted until dropped."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core_strategies import PAIR, domains, summaries, times
from strandline.errors import CapabilityError
from strandline.time.change_batch import ChangeBatch
from strandline.time.domain import Time, TimeDomain, uint64
from strandline.time.path.summary import PathSummary, Summaries, advance
from strandline.tracker.capability import Capability, InputCapability


@given(domains().flatmap(lambda d: st.tuples(st.just(d), times(d), times(d))))
def test_a_capability_is_delayed_exactly_to_times_at_or_after_its_own(case: tuple[TimeDomain, Time, Time]) -> None:
    d, held, wanted = case
    changes: ChangeBatch[Time] = ChangeBatch()
    capability = Capability(d, held, changes)
    later = capability.try_delayed(wanted)
    assert (later is not None) == d.less_equal(held, wanted)
    if later is None:
        with pytest.raises(CapabilityError) as caught:
            capability.delayed(wanted)
        assert d.format(held) in str(caught.value)
        assert d.format(wanted) in str(caught.value)
        with pytest.raises(CapabilityError):
            capability.downgrade(wanted)
        assert list(changes) == [(held, 1)]  # a refused delay changes nothing
    else:
        later.drop()
        capability.downgrade(wanted)
        assert capability.time == wanted
        assert list(changes) == [(wanted, 1)]
    capability.drop()
    capability.drop()
    assert changes.is_empty()


@given(domains().flatmap(lambda d: st.tuples(st.just(d), times(d), times(d), st.lists(summaries(d), max_size=2))))
@settings(max_examples=40)
def test_a_message_gives_capabilities_at_or_after_what_its_paths_make_of_it(
    case: tuple[TimeDomain, Time, Time, list[PathSummary]],
) -> None:
    d, time, wanted, paths = case
    changes: list[ChangeBatch[Time]] = [ChangeBatch(), ChangeBatch()]
    token = InputCapability(d, time, {1: Summaries(paths)}, changes)
    minted = token.try_delayed(wanted, 1)
    results = [s.results_in(time) for s in paths]
    assert (minted is not None) == any(r is not None and d.less_equal(r, wanted) for r in results)
    assert token.try_delayed(wanted, 0) is None  # no path leads there
    if minted is not None:
        assert list(changes[1]) == [(wanted, 1)]
        minted.drop()
    assert all(batch.is_empty() for batch in changes)


class Holding(RuleBasedStateMachine):
    """Whatever is cloned, delayed, downgraded and dropped: the changes count what is held, at times a root capability allowed."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: ChangeBatch[Time] = ChangeBatch()
        self.held = [Capability(PAIR, (0, 0), self.changes)]
        self.frontier_has_passed: list[Time] = []

    def pick(self, data: st.DataObject) -> Capability:
        return data.draw(st.sampled_from(self.held))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def clone(self, data: st.DataObject) -> None:
        self.held.append(self.pick(data).clone())

    @precondition(lambda self: self.held)
    @rule(data=st.data(), time=times(PAIR))
    def delay(self, data: st.DataObject, time: Time) -> None:
        later = self.pick(data).try_delayed(time)
        if later is not None:
            self.held.append(later)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), time=times(PAIR))
    def downgrade(self, data: st.DataObject, time: Time) -> None:
        capability = self.pick(data)
        capability.downgrade(PAIR.join(capability.time, time))

    @precondition(lambda self: len(self.held) > 1)
    @rule(data=st.data(), forget=st.booleans())
    def drop(self, data: st.DataObject, forget: bool) -> None:
        capability = self.pick(data)
        self.held = [other for other in self.held if other is not capability]
        if forget:
            del capability  # no longer referred to: it drops itself
            gc.collect()
        else:
            capability.drop()

    @invariant()
    def changes_count_what_is_held(self) -> None:
        counts: dict[Time, int] = {}
        for capability in self.held:
            counts[capability.time] = counts.get(capability.time, 0) + 1
        assert dict(self.changes) == counts


TestHolding = Holding.TestCase
TestHolding.settings = settings(max_examples=20, stateful_step_count=20)


def test_a_dropped_capability_and_a_spent_token_are_good_for_nothing() -> None:
    capability = Capability(uint64, 3, ChangeBatch())
    capability.drop()
    for act in (capability.clone, lambda: capability.delayed(4), lambda: capability.downgrade(4)):
        with pytest.raises(CapabilityError, match="STRANDLINE_CAPABILITY_DROPPED"):
            act()
    token = InputCapability(uint64, 3, {0: Summaries([advance(uint64, by=0)])}, [ChangeBatch()])
    token.spend()
    with pytest.raises(CapabilityError, match="STRANDLINE_CAPABILITY_DROPPED"):
        token.retain()


def test_a_message_that_goes_round_gives_no_capability_at_its_own_time() -> None:
    token = InputCapability(uint64, 3, {0: Summaries([advance(uint64)])}, [ChangeBatch()])
    with pytest.raises(CapabilityError, match=r"A message at 3 allows no capability at 3 for output 0, .*\+1"):
        token.retain()
    assert token.delayed(4).time == 4


def test_a_with_block_drops() -> None:
    changes: ChangeBatch[int] = ChangeBatch()
    with pytest.raises(RuntimeError), Capability(uint64, 3, changes):
        raise RuntimeError
    assert changes.is_empty()
