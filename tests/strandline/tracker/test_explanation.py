"""Explanations and records: an explanation is empty exactly when a time is closed, and a record replays to the same tracker."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_spec import closure
from core_strategies import PAIR, SCOPE, TRIPLE, graphs, times
from strandline.dataflow.builder import Cluster
from strandline.errors import GraphError
from strandline.time.domain import Time, uint64
from strandline.time.path.summary import advance, identity
from strandline.tracker.explanation import explain
from strandline.tracker.graph import Graph, Location, source, target
from strandline.tracker.progress_log import ProgressLog, replay_log
from strandline.tracker.reachability import Tracker


@st.composite
def held(draw: st.DrawFn) -> tuple[Graph, list[tuple[Location, Time, int]], Location, Time]:
    domain = draw(st.sampled_from([uint64, PAIR, TRIPLE, SCOPE]))
    graph = draw(graphs(domain))
    locations = graph.locations()
    stamps = st.tuples(st.sampled_from(locations), times(domain, 3), st.integers(-1, 2))
    return graph, draw(st.lists(stamps, max_size=6)), draw(st.sampled_from(locations)), draw(times(domain, 5))


@given(held())
@settings(max_examples=40)
def test_an_explanation_names_exactly_the_pointstamps_that_keep_a_time_open(case: tuple) -> None:
    graph, stamps, location, time = case
    tracker = Tracker(graph)
    counts: Counter[tuple[Location, Time]] = Counter()
    for at, t, delta in stamps:
        tracker.update(at, t, delta)
        counts[at, t] += delta
    tracker.propagate_all()
    holds = explain(tracker, location, time)
    assert bool(holds) == (not tracker.frontier(location).closed(time))
    paths = closure(graph)
    expected = {
        (at, t, summary)
        for (at, t), count in counts.items()
        if count > 0
        for summary in paths.get((at, location), ())
        if (result := summary.results_in(t)) is not None and graph.domain.less_equal(result, time)
    }
    assert {(hold.location, hold.time, hold.summary) for hold in holds} == expected
    for hold in holds:
        assert hold.count == counts[hold.location, hold.time]
        assert hold.path[0] == hold.location
        assert hold.path[-1] == location
        assert walk(graph, hold.path) >= {hold.summary}
        assert hold.summary.results_in(hold.time) == hold.arrives
        assert graph.name(hold.location) in hold.describe(graph)
    if holds:  # taking all of them away closes the time
        for hold in {(hold.location, hold.time): hold for hold in holds}.values():
            tracker.update(hold.location, hold.time, -hold.count)
        tracker.propagate_all()
        assert tracker.frontier(location).closed(time)


def walk(graph: Graph, path: tuple[Location, ...]) -> set:
    """The summaries of going along exactly these locations."""
    found = {identity(graph.domain)}
    for here, there in pairwise(path):
        if here.is_source:
            assert there in graph.nodes[here.node].edges[here.port]
        else:
            assert here.node == there.node
            steps = graph.nodes[here.node].summaries[here.port][there.port]
            found = {both for s in found for step in steps if (both := s.followed_by(step)) is not None}
    return found


def test_an_explanation_reads_well() -> None:
    graph = Graph(PAIR)
    graph.add_node(0, 0, name="outside")
    graph.add_node(0, 1, name="orders")
    graph.add_node(2, 1, name="concat")
    graph.add_node(1, 1, [{0: [advance(PAIR, "iter")]}], name="feedback")
    for edge in [(1, 0, 2, 0), (2, 0, 3, 0), (3, 0, 2, 1)]:
        graph.add_edge(*edge)
    tracker = Tracker(graph)
    tracker.update_source(1, 0, (4, 0), 2)
    tracker.update_target(3, 0, (3, 1), 5)
    tracker.propagate_all()
    round_again, through = "feedback.in0 → feedback.out0 → concat.in1", "orders.out0 → concat.in0 → concat.out0"
    assert [hold.describe(graph) for hold in tracker.explain(target(2, 1), (4, 2))] == [
        f"5 messages waiting at feedback.in0, (epoch=3, iter=1), may arrive as (epoch=3, iter=2) along {round_again}",
        f"2 capabilities held at orders.out0, (epoch=4, iter=0), may arrive as (epoch=4, iter=1) along {through} → {round_again}",
    ]
    assert tracker.explain(target(2, 1), (3, 1)) == []
    with pytest.raises(GraphError, match="STRANDLINE_GRAPH_UNKNOWN_PORT"):
        tracker.explain(source(9, 0), (0, 0))


def test_a_record_has_every_change_and_replays_to_any_moment() -> None:
    graph = Graph(PAIR)
    for _ in range(2):
        graph.add_node(1, 1)
    graph.add_edge(0, 0, 1, 0)
    log = ProgressLog(PAIR)
    tracker = Tracker(graph, log)
    frontiers = []
    for epoch in range(5):
        tracker.update_source(0, 0, (epoch, 0), 1)
        tracker.update_target(1, 0, (epoch, 3), 1)
        if epoch:
            tracker.update_source(0, 0, (epoch - 1, 0), -1)
        tracker.propagate_all()
        frontiers.append(tracker.frontier(target(1, 0)))
    table = log.table()
    assert table.schema.field("time").type == pa.struct([("epoch", pa.uint64()), ("iter", pa.uint64())])
    assert table.schema.field("time").metadata[b"strandline.time"] == b"product(epoch uint64, iter uint64)"
    assert table.num_rows == 14
    assert set(table.column("batch").to_pylist()) == {1, 2, 3, 4, 5}
    for number, frontier in enumerate(frontiers, 1):
        assert replay_log(table, graph, until=number).frontier(target(1, 0)) == frontier
    assert replay_log(table, graph).held() == tracker.held()


@given(held())
@settings(max_examples=25)
def test_a_record_of_any_history_replays_to_the_same_tracker(case: tuple) -> None:
    graph, stamps, _, _ = case
    log = ProgressLog(graph.domain)
    tracker = Tracker(graph, log)
    for at, t, delta in stamps:
        tracker.update(at, t, delta)
        tracker.propagate_all()
    replayed = replay_log(log.table(), graph)
    assert replayed.held() == tracker.held()
    assert all(replayed.frontier(at) == tracker.frontier(at) for at in graph.locations())


def test_a_long_record_is_written_in_pieces_and_not_kept() -> None:
    graph = Graph(uint64)
    graph.add_node(0, 1)
    written: list[pa.RecordBatch] = []
    log = ProgressLog(uint64, written.append)
    tracker = Tracker(graph, log)
    for time in range(10_000):
        tracker.update_source(0, 0, time, 1)
        tracker.propagate_all()
    assert sum(batch.num_rows for batch in written) == 8192
    assert log.table().num_rows == 0
    assert sum(batch.num_rows for batch in written) == 10_000


def test_a_write_that_fails_loses_nothing_of_the_record_and_applies_nothing_twice() -> None:
    graph = Graph(uint64)
    graph.add_node(0, 1)
    written: list[pa.RecordBatch] = []
    full = True

    def write(batch: pa.RecordBatch) -> None:
        if full:
            raise OSError("no space left")
        written.append(batch)

    log = ProgressLog(uint64, write)
    tracker = Tracker(graph, log)
    failures = 0
    for time in range(9000):
        tracker.update_source(0, 0, time, 1)
        try:
            tracker.propagate_all()
        except OSError:
            failures += 1
            full = False
            tracker.propagate_all()
    log.flush()
    assert failures == 1
    assert tracker.held() == [(source(0, 0), time, 1) for time in range(9000)]
    assert replay_log(pa.Table.from_batches(written), graph).held() == tracker.held()


def test_across_scopes_an_explanation_names_what_holds_outside_and_inside() -> None:
    with Cluster() as cluster:
        with cluster.dataflow(uint64) as scope:
            slow, stream = scope.input("slow")
            with scope.nested("loop") as loop:
                again, going_round = loop.feedback()
                kept: list = []

                def keep(records_in, output) -> None:
                    for token, _ in records_in:
                        kept.append(token.retain())

                stash = stream.enter(loop).concat(going_round).unary("stash", keep)
                again.connect(stash)
                result = stash.leave()
            probe = result.probe()
        slow.advance_to(3)
        slow.send("x")
        slow.advance_to(9)
        for _ in range(20):
            cluster.step()
        assert list(probe.frontier) == [3]
        inside = cluster.explain(probe, 5)
        assert [line for line in inside if "stash.out0" in line and "(outer=3, iter=0)" in line and "loop" in line]
        outside = cluster.explain(probe, 10)
        assert any("slow.out0" in line and "9" in line for line in outside)
        kept[0].drop()
        slow.close()
        cluster.run()
        assert cluster.explain(probe, 10) == []


@pytest.mark.parametrize("nested", [False, True])
def test_among_several_workers_an_explanation_names_the_one_that_holds(nested: bool) -> None:
    cluster = Cluster(3)
    handles, probes, kept = [], [], []

    def keep(records_in, output) -> None:
        for token, _ in records_in:
            kept.append(token.retain())

    for scope in cluster.scopes(uint64):
        numbers, stream = scope.input("numbers")
        handles.append(numbers)
        routed = stream.exchange(lambda n: n)
        with scope.region("inside") as region:
            inside = (routed.enter(region) if nested else routed).unary("stash", keep)
            result = inside.leave() if nested else inside
        probes.append(result.probe())
    handles[0].send(1)  # goes to worker 1
    handles[0].close()
    handles[1].advance_to(5)
    handles[2].advance_to(5)
    for _ in range(20):
        cluster.step()
    [stashed] = cluster.explain(probes[0], 4)
    assert "1 capabilities held at stash.out0, 0" in stashed
    assert f"(in {'inside' if nested else 'dataflow'} on worker 1)" in stashed
    assert any("numbers.out0" in line and "(in dataflow on workers 1, 2)" in line for line in cluster.explain(probes[2], 5))
    kept.pop().drop()
    for handle in handles:
        handle.close()
    cluster.run()


def test_a_probes_explanation_is_that_of_its_own_worker() -> None:
    """Empty exactly when the time is closed at the probe: another worker may not have heard of that yet, or have heard before."""
    apart = 0
    for seed in range(20):
        cluster = Cluster(2, seed)
        handles, probes = [], []
        for scope in cluster.scopes(uint64):
            numbers, stream = scope.input("numbers")
            handles.append(numbers)
            probes.append(stream.probe())
        for handle in handles:
            handle.close()
        for _ in range(12):
            cluster.step()
            for probe in probes:
                assert bool(cluster.explain(probe, 0)) == probe.less_equal(0)
            apart += probes[0].less_equal(0) != probes[1].less_equal(0)
    assert apart > 0
