"""The evidence of ``docs/semi-blocking-queue.md``: what the seed's semi-blocking queue needs, and that micro-batches lack it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semi_blocking import LAG, PROGRAMS, batches, cost, evenly, in_the_core, order_at_b, results_of_batches, search
from strandline.dataflow.builder import Cluster
from strandline.dataflow.operators import InputPort, OutputPort
from strandline.errors import CapabilityError
from strandline.time.domain import int64
from strandline.time.path.summary import advance
from triceps import Link, Queues, Stuck, run
from triceps_programs import mixing, records_of, round_trip

seeds = st.integers(0, 1 << 32)
WAITS = ["all", "written"]


@pytest.mark.parametrize("waits", WAITS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_it_is_predictable_if_nothing_else_can_happen(program: str, waits: str) -> None:
    """Exhaustive: all schedules of each small input end with one result, also where loops share nodes."""
    found = search(program, "whole", waits, "above")  # type: ignore[arg-type]
    assert (found.inputs, found.differing, found.stuck) == (15, 0, 0)
    assert found.moved >= 2  # in some inputs the queue did move records


@given(seeds, seeds, st.sampled_from(WAITS), st.integers(1, 3), st.booleans())
def test_it_is_predictable_in_larger_runs(seed: int, schedule: int, waits: str, depth: int, has_two: bool) -> None:
    records, queues = records_of(seed, 12, 20, hops=2, least=1), Queues(depth, waits)  # type: ignore[arg-type]
    links = [Link(LAG, "semi-blocking", depth=depth)]
    if has_two:
        links.append(Link(LAG // 2, "semi-blocking", "two", target="A", depth=depth))
    program = mixing(("loop", "two")[: len(links)])

    def outcome(seed: int) -> object:
        try:
            result = run(records, program, links, seed, queues=queues)
        except Stuck as stuck:  # of two loops about two in a thousand: see the page
            assert has_two
            return stuck.args
        return result.outputs, result.log, result.taken

    assert outcome(0) == outcome(schedule)


def test_a_graph_stands_still_though_no_loop_is_full() -> None:
    """D waits for what B may still move to just before an instant, and B for D. So fullness is no complete sign."""
    records = [(60, (1, 72)), (117, (2, 30)), (118, (0, 4)), (178, (3, 41)), (179, (2, 88)), (233, (2, 5)), (234, (0, 5))]
    links = [Link(LAG, "semi-blocking", depth=2), Link(30, "semi-blocking", "two", target="A", depth=3)]
    with pytest.raises(Stuck):
        run(records, mixing(("loop", "two")), links, queues=Queues(1, "written"))


def test_without_it_a_bounded_loop_is_deadlocked() -> None:
    with pytest.raises(Stuck):
        run(evenly(12, 10), round_trip(), Link(LAG, "fixed", depth=2), queues=Queues(2))
    run(evenly(12, 10), round_trip(), Link(LAG, "semi-blocking", depth=2), queues=Queues(2))


@pytest.mark.parametrize(
    ("program", "full", "waits", "looks"),
    [
        ("one loop", "every", "written", "above"),  # all queues are full, but D can take a record that does not go round
        ("a longer loop", "top", "all", "above"),  # the seed says it: the queues at the top node are not enough
        ("A filters", "every", "all", "above"),  # the next record from outside is one that A does not send on
        ("two loops to B", "stuck", "written", "above"),  # the other loop may still let D go on
        ("loops to B and A", "every", "all", "above"),
    ],
)
def test_weaker_signs_of_a_deadlock_give_several_results(program: str, full: str, waits: str, looks: str) -> None:
    found = search(program, full, waits, looks)  # type: ignore[arg-type]
    assert found.differing
    assert found.example is not None
    first, second, *_ = found.example[1]
    assert first.taken != second.taken


def test_a_loop_that_waits_for_its_own_next_record_stays_deadlocked() -> None:
    """A waits for room before C, so what A sends to B next is not known there: only the whole graph tells."""
    assert search("C has work", "stuck", "all", "own").stuck


def test_in_micro_batches_its_order_depends_on_the_batches() -> None:
    assert len(results_of_batches("semi-blocking")) > 10
    assert len(results_of_batches("counted")) == 1
    assert len(results_of_batches("fixed")) == 1


def test_in_micro_batches_its_order_depends_on_the_tasks() -> None:
    link = Link(LAG, "semi-blocking", depth=4)
    one, two = (order_at_b(batches(evenly(12, 10), round_trip(), link, 0, 5, tasks)[0]) for tasks in (1, 2))
    assert one != two


def test_in_the_core_its_order_depends_on_the_network() -> None:
    records = evenly(12, 10)
    assert len({tuple(in_the_core(records, seed, LAG, 4)[0]) for seed in range(20)}) > 1
    model = order_at_b(run(records, round_trip(), Link(LAG)))
    assert {" ".join(in_the_core(records, seed, LAG)[0]) for seed in range(20)} == {model}


def test_a_feedback_that_may_release_at_once_has_one_record_in_its_loop() -> None:
    """A frontier promises the least that may come. So without L, B waits for the loop before each record from outside."""
    assert max(in_the_core(evenly(12, 10), seed, 1)[1] for seed in range(20)) == 1
    assert max(in_the_core(evenly(12, 10), seed, LAG)[1] for seed in range(20)) > 4


def test_a_feedback_that_advances_by_l_cannot_release_earlier() -> None:
    with Cluster() as cluster:
        with cluster.dataflow(int64) as scope:
            handle, stream = scope.input("outside")
            loop, around = scope.feedback(advance(int64, None, LAG))
            loop.connect(stream)

            def b(source: InputPort, output: OutputPort) -> None:
                for token, records in source:
                    right = token.retain()
                    with pytest.raises(CapabilityError, match="STRANDLINE_CAPABILITY_BACKWARDS"):
                        output.send(right, records, token.time - 1)
                    right.drop()
                    refused.extend(records)

            refused: list[str] = []
            around.unary("B", b)
        handle.send("x")
        handle.close()
    assert refused == ["x"]


@given(seeds, seeds, st.integers(1, 6))
def test_a_depth_that_is_counted_in_records_gives_one_result(seed: int, schedule: int, depth: int) -> None:
    records, link = records_of(seed, 14, 60), Link(LAG, "counted", depth=depth)
    first, second = run(records, mixing(), link, 0), run(records, mixing(), link, schedule, kills=0.05)
    assert (first.outputs, first.log, first.taken) == (second.outputs, second.log, second.taken)


@pytest.mark.parametrize("depth", [1, 3, 9])
def test_of_evenly_spaced_records_it_is_case_3_with_a_smaller_l(depth: int) -> None:
    log = run(evenly(20, 10), round_trip(), Link(LAG, "counted", depth=depth)).log
    assert [entry.new.instant - entry.original.instant for entry in log] == [10 * depth] * (20 - depth) + [LAG] * depth


def test_what_counting_costs_and_bounds() -> None:
    assert cost(Link(LAG)) == (5, LAG)
    assert cost(Link(LAG, "counted", depth=4)) == (116, 4)
    burst = batches([(0, (1, f"a{i}")) for i in range(40)], round_trip(), Link(LAG, "counted", depth=4), 0, 40)[0]
    assert burst.most["loop"] > 20  # between records of one instant there is no stamp to go to
