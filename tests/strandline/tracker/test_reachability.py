"""The tracker against brute force (invariants 5, 8, 10, 11), over legal histories (12, 13), and timely's recorded cases."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from core_spec import closure, frontier, implied, minimal, scope_outputs
from core_strategies import DOMAINS, PAIR, SCOPE, TRIPLE, graphs, times
from strandline.errors import CycleError, GraphError, TimeError
from strandline.time.domain import Time, TimeDomain, uint64
from strandline.time.path.summary import Summaries, advance, identity
from strandline.tracker.graph import Graph, Location, source, target
from strandline.tracker.reachability import Tracker

TRACKED = [uint64, PAIR, TRIPLE, SCOPE, DOMAINS[6]]
Update = tuple[Location, Time, int]


@st.composite
def histories(draw: st.DrawFn) -> tuple[Graph, list[list[Update]]]:
    """A graph and batches of arbitrary changes: counts may be negative, at any time, anywhere."""
    domain = draw(st.sampled_from(TRACKED))
    graph = draw(graphs(domain))
    locations = graph.locations()
    update = st.tuples(st.sampled_from(locations), times(domain, 3), st.integers(-2, 2))
    return graph, draw(st.lists(st.lists(update, max_size=5), min_size=1, max_size=5))


def apply(tracker: Tracker, batch: list[Update]) -> None:
    for location, time, delta in batch:
        tracker.update(location, time, delta)


@given(histories())
@settings(max_examples=30)
def test_implied_frontiers_are_the_least_results_over_all_paths(case: tuple[Graph, list[list[Update]]]) -> None:
    graph, batches = case
    paths = closure(graph)
    inside = scope_outputs(graph, paths)
    tracker = Tracker(graph)
    counts: Counter[tuple[Location, Time]] = Counter()
    pushed: Counter[tuple[Location, Time]] = Counter()
    outputs: list[Counter[Time]] = [Counter() for _ in range(graph.nodes[0].inputs)]
    for batch in batches:
        apply(tracker, batch)
        tracker.propagate_all()
        for location, time, delta in batch:
            counts[location, time] += delta
        for location, time, delta in tracker.pushed():
            pushed[location, time] += delta
        for port, changes in enumerate(tracker.pushed_outputs()):
            for time, delta in changes:
                outputs[port][time] += delta

        expected = implied(graph, paths, counts)
        for location in graph.locations():
            assert set(tracker.frontier(location)) == expected[location]
            assert {t for (at, t), n in pushed.items() if at == location and n} == expected[location]
        assert set(pushed.values()) <= {0, 1}
        assert tracker.tracking_anything() == any(n > 0 for n in counts.values())
        assert {(at, t): n for at, t, n in tracker.held()} == {key: n for key, n in counts.items() if n}
        for port in range(graph.nodes[0].inputs):
            arrived = [
                result
                for (at, t), n in counts.items()
                if n > 0 and at.node != 0
                for s in inside.get(at, {}).get(port, ())
                if (result := s.results_in(t)) is not None
            ]
            assert set(frontier(graph.domain, outputs[port])) == minimal(graph.domain, arrived)
            assert min(outputs[port].values(), default=0) >= 0


@given(histories())
@settings(max_examples=25)
def test_implications_count_held_frontiers_and_those_of_predecessors(case: tuple[Graph, list[list[Update]]]) -> None:
    graph, batches = case
    tracker = Tracker(graph)
    for batch in batches:
        apply(tracker, batch)
        tracker.propagate_all()
        into: Counter[tuple[Location, Time]] = Counter()
        for location in graph.locations():
            for time in tracker.pointstamps(location).elements:
                into[location, time] += 1
            node = graph.nodes[location.node]
            for time in tracker.implications(location).elements:
                if location.is_source:
                    for to in node.edges[location.port]:
                        into[to, time] += 1
                else:
                    for output, summaries in node.summaries[location.port].items():
                        for result in summaries.results_in(time):
                            into[source(location.node, output), result] += 1
        for location in graph.locations():
            counts = dict(tracker.implications(location).updates())
            assert counts == {time: n for (at, time), n in into.items() if at == location}
            assert all(n > 0 for n in counts.values())


@given(histories(), st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_once_at_the_end_or_after_each_batch_and_in_any_order_is_the_same(
    case: tuple[Graph, list[list[Update]]], rng: object
) -> None:
    graph, batches = case
    shuffled = list(batches)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    stepwise, reordered, once = Tracker(graph), Tracker(graph), Tracker(graph)
    for tracker, order in ((stepwise, batches), (reordered, shuffled)):
        for batch in order:
            apply(tracker, batch)
            tracker.propagate_all()
    for batch in batches:
        apply(once, batch)
    once.propagate_all()
    pushed = stepwise.pushed()
    for tracker in (reordered, once):
        assert tracker.pushed() == pushed
        assert tracker.held() == stepwise.held()
        for location in graph.locations():
            assert dict(tracker.implications(location).updates()) == dict(stepwise.implications(location).updates())


@given(histories(), st.data())
@settings(max_examples=25)
def test_messages_earlier_and_drops_later_close_nothing_sooner(
    case: tuple[Graph, list[list[Update]]], data: st.DataObject
) -> None:
    """Invariant 15: a replay may hear of what appears earlier, and of what goes later, than it happened."""
    graph, batches = case
    updates = [update for batch in batches for update in batch]
    moved = []
    for at, (location, time, delta) in enumerate(updates):
        to = data.draw(st.integers(0, at) if delta > 0 else st.integers(at, len(updates)))
        moved.append((to, (location, time, delta)))
    truth, replay = Tracker(graph), Tracker(graph)
    for now, update in enumerate(updates):
        apply(truth, [update])
        apply(replay, [change for to, change in moved if to == now])
        truth.propagate_all()
        replay.propagate_all()
        for location in graph.locations():
            assert replay.frontier(location).dominates(truth.frontier(location))


@given(histories())
@settings(max_examples=30)
def test_taking_everything_back_leaves_nothing_tracked(case: tuple[Graph, list[list[Update]]]) -> None:
    graph, batches = case
    tracker = Tracker(graph)
    for batch in batches:
        apply(tracker, batch)
        tracker.propagate_all()
    for location, time, count in tracker.held():
        tracker.update(location, time, -count)
    assert tracker.tracking_anything() == bool(tracker.held())
    tracker.propagate_all()
    assert not tracker.tracking_anything()
    assert tracker.held() == []
    assert all(len(tracker.frontier(location)) == 0 for location in graph.locations())
    assert tracker.pushed() == []
    assert all(changes == [] for changes in tracker.pushed_outputs())


class LegalHistory(RuleBasedStateMachine):
    """Moves that operators may make: capabilities from held ones or from messages taken in, messages under a capability."""

    domain: TimeDomain = PAIR

    @initialize(data=st.data())
    def build(self, data: st.DataObject) -> None:
        self.graph = data.draw(graphs(self.domain, max_nodes=4))
        self.paths = closure(self.graph)
        self.tracker = Tracker(self.graph)
        self.capabilities: Counter[tuple[Location, Time]] = Counter()
        self.messages: Counter[tuple[Location, Time]] = Counter()
        for location in self.graph.locations():
            if location.is_source:
                self.capabilities[location, self.domain.minimum] += 1
                self.tracker.update(location, self.domain.minimum, 1)
        self.tracker.propagate_all()
        self.before = {location: self.tracker.frontier(location) for location in self.graph.locations()}

    def some(self, data: st.DataObject, counts: Counter[tuple[Location, Time]]) -> tuple[Location, Time]:
        return data.draw(st.sampled_from(sorted(key for key, n in counts.items() if n > 0)))

    def later(self, data: st.DataObject, time: Time) -> Time:
        return self.domain.join(time, data.draw(times(self.domain, 3)))

    @rule()
    def settle(self) -> None:
        self.tracker.propagate_all()

    def hold(self, location: Location, time: Time, delta: int) -> None:
        self.capabilities[location, time] += delta
        self.tracker.update(location, time, delta)

    @precondition(lambda self: any(n > 0 for n in self.capabilities.values()))
    @rule(data=st.data(), drop=st.booleans())
    def delay_or_drop_a_capability(self, data: st.DataObject, drop: bool) -> None:
        location, time = self.some(data, self.capabilities)
        self.hold(location, time, -1)
        if not drop:
            self.hold(location, self.later(data, time), 1)
        self.settle()

    @precondition(lambda self: any(n > 0 for n in self.capabilities.values()))
    @rule(data=st.data())
    def send_a_message(self, data: st.DataObject) -> None:
        location, held = self.some(data, self.capabilities)
        time = self.later(data, held)
        for to in self.graph.nodes[location.node].edges[location.port]:
            if to.node != 0:  # what has left the scope is the outside's to count
                self.messages[to, time] += 1
                self.tracker.update(to, time, 1)
        self.settle()

    @precondition(lambda self: any(n > 0 for n in self.messages.values()))
    @rule(data=st.data(), keep=st.booleans())
    def take_a_message_in_and_perhaps_keep_capabilities(self, data: st.DataObject, keep: bool) -> None:
        at, time = self.some(data, self.messages)
        self.messages[at, time] -= 1
        self.tracker.update(at, time, -1)
        if keep:
            for output, summaries in self.graph.nodes[at.node].summaries[at.port].items():
                for result in summaries.results_in(time):
                    self.hold(source(at.node, output), self.later(data, result), 1)
        self.settle()

    @invariant()
    def frontiers_never_move_backwards_and_match_brute_force(self) -> None:
        if not hasattr(self, "before"):
            return
        expected = implied(self.graph, self.paths, self.capabilities + self.messages)
        for location, before in self.before.items():
            now = self.tracker.frontier(location)
            assert set(now) == expected[location]
            assert before.dominates(now)
            self.before[location] = now

    def teardown(self) -> None:
        if not hasattr(self, "before"):
            return
        for counts in (self.capabilities, self.messages):
            for (location, time), n in counts.items():
                self.tracker.update(location, time, -n)
        self.tracker.propagate_all()
        assert not self.tracker.tracking_anything()
        assert all(len(self.tracker.frontier(location)) == 0 for location in self.graph.locations())


def machine(domain: TimeDomain) -> type:
    case = type("LegalHistoryOf", (LegalHistory,), {"domain": domain}).TestCase
    case.settings = settings(max_examples=30, stateful_step_count=25)
    return case


TestLegalHistoryOfIntegers = machine(uint64)
TestLegalHistoryOfPairs = machine(PAIR)
TestLegalHistoryOfTriples = machine(TRIPLE)
TestLegalHistoryOfLexicographicScopes = machine(SCOPE)


def ring(last: int) -> Graph:
    graph = Graph(uint64)
    for by in (0, 0, last):
        graph.add_node(1, 1, [{0: [advance(uint64, by=by)]}])
    for node in range(3):
        graph.add_edge(node, 0, (node + 1) % 3, 0)
    return graph


def test_recorded_ring_of_timelys_reachability() -> None:
    tracker = Tracker(ring(1))
    for delta in (1, -1):
        tracker.update_source(0, 0, 17, delta)
        tracker.propagate_all()
        targets = [(location, time, d) for location, time, d in tracker.pushed() if not location.is_source]
        assert targets == [(target(0, 0), 18, delta), (target(1, 0), 17, delta), (target(2, 0), 17, delta)]
    assert not tracker.tracking_anything()


def test_a_ring_that_advances_nothing_is_an_error_that_shows_the_cycle() -> None:
    with pytest.raises(CycleError, match=r"\[STRANDLINE_GRAPH_CYCLE\]") as caught:
        Tracker(ring(0))
    shown = " → ".join(f"node {n}.{end}" for n in (0, 1, 2) for end in ("in0", "out0"))
    assert shown + " → node 0.in0" in str(caught.value)
    assert caught.value.cycle == tuple(end(n, 0) for n in (0, 1, 2) for end in (target, source))


def test_a_cycle_that_advances_at_one_place_only_is_allowed() -> None:
    graph = Graph(uint64)
    graph.add_node(2, 2, [{0: [identity(uint64)]}, {1: [advance(uint64)]}])
    graph.add_edge(0, 0, 0, 1)
    graph.add_edge(0, 1, 0, 0)
    graph.validate()


def test_a_cycle_with_one_path_that_advances_and_one_that_does_not_is_refused() -> None:
    graph = Graph(PAIR)
    graph.add_node(0, 0)
    graph.add_node(1, 1, [{0: [advance(PAIR, "iter")]}], name="feedback")
    graph.add_node(1, 1, name="body")
    graph.add_edge(1, 0, 2, 0)
    graph.add_edge(2, 0, 1, 0)
    graph.validate()
    graph.add_node(1, 1, [{0: [advance(PAIR, "iter"), identity(PAIR)]}], name="shortcut")
    graph.add_edge(2, 0, 3, 0)
    graph.add_edge(3, 0, 2, 0)
    with pytest.raises(CycleError, match=r"body\.in0 → body\.out0 → shortcut\.in0 → shortcut\.out0 → body\.in0"):
        graph.validate()


@pytest.mark.parametrize(
    ("build", "condition"),
    [
        (lambda g: g.add_edge(0, 0, 9, 0), "STRANDLINE_GRAPH_UNKNOWN_PORT"),
        (lambda g: g.add_edge(0, 1, 1, 0), "STRANDLINE_GRAPH_UNKNOWN_PORT"),
        (lambda g: g.add_edge(0, 0, 1, -1), "STRANDLINE_GRAPH_UNKNOWN_PORT"),
        (lambda g: (g.add_edge(0, 0, 1, 0), g.add_edge(0, 0, 1, 0)), "STRANDLINE_GRAPH_DOUBLE_EDGE"),
        (lambda g: g.add_node(1, 1, [{1: [identity(uint64)]}]), "STRANDLINE_GRAPH_UNKNOWN_PORT"),
        (lambda g: g.add_node(2, 1, [{}]), "STRANDLINE_GRAPH_INVALID"),
        (lambda g: g.add_node(-1, 1), "STRANDLINE_GRAPH_INVALID"),
        (lambda g: g.add_node(1, 1, [{0: [identity(PAIR)]}]), "STRANDLINE_GRAPH_INVALID"),
        (lambda g: Tracker(g).update_target(1, 3, 0, 1), "STRANDLINE_GRAPH_UNKNOWN_PORT"),
        (lambda g: Tracker(g).frontier(source(7, 0)), "STRANDLINE_GRAPH_UNKNOWN_PORT"),
    ],
)
def test_ports_that_do_not_exist_and_double_edges_are_refused(build: object, condition: str) -> None:
    graph = Graph(uint64)
    graph.add_node(0, 1)
    graph.add_node(1, 1)
    with pytest.raises(GraphError) as caught:
        build(graph)  # type: ignore[operator]
    assert caught.value.condition == condition


@pytest.mark.parametrize("time", [(0, 0), -1, 2**64, None, 1.5, "1", [1]])
def test_what_is_no_time_of_the_domain_is_refused(time: object) -> None:
    with pytest.raises(TimeError, match="STRANDLINE_TIME_INVALID"):
        Tracker(ring(1)).update_source(0, 0, time, 1)


def test_a_scope_keeps_every_incomparable_path_from_its_input_to_its_output() -> None:
    graph = Graph(PAIR)
    graph.add_node(1, 1, [{}])
    graph.add_node(1, 1, [{0: [advance(PAIR, "iter"), advance(PAIR, "epoch"), advance(PAIR, "epoch", 2)]}])
    graph.add_edge(0, 0, 1, 0)
    graph.add_edge(1, 0, 0, 0)
    assert Tracker(graph).scope_summary == [{0: Summaries([advance(PAIR, "iter"), advance(PAIR, "epoch")])}]


def test_what_the_outside_does_with_an_output_is_not_the_scopes_to_report_but_to_wait_for() -> None:
    graph = Graph(uint64)
    graph.add_node(2, 1, [{0: [advance(uint64)]}, {}], name="outside")  # what leaves at output 0 comes back, advanced
    graph.add_node(0, 1, name="first")
    graph.add_node(1, 1, name="second")
    graph.add_edge(1, 0, 0, 0)
    graph.add_edge(0, 0, 2, 0)
    graph.add_edge(2, 0, 0, 1)
    tracker = Tracker(graph)
    tracker.update_source(1, 0, 5, 1)
    tracker.propagate_all()
    assert tracker.pushed_outputs() == [[(5, 1)], []]
    assert list(tracker.frontier(target(2, 0))) == [6]


def test_a_pointstamp_is_global_when_by_vanishing_it_would_move_the_frontier() -> None:
    """Timely's ``is_global``: no frontier element is less, and nobody else implies the time."""
    graph = Graph(PAIR)
    graph.add_node(0, 1)
    graph.add_node(1, 0)
    graph.add_edge(0, 0, 1, 0)
    tracker = Tracker(graph)
    at = target(1, 0)
    tracker.update_target(1, 0, (2, 0), 1)
    tracker.update_target(1, 0, (0, 2), 3)  # a count at one place is one reason
    tracker.update_target(1, 0, (3, 1), 1)
    tracker.propagate_all()
    assert [tracker.is_global(at, time) for time in [(2, 0), (0, 2), (3, 1)]] == [True, True, False]
    tracker.update_source(0, 0, (2, 0), 1)  # a second place implies the time
    tracker.propagate_all()
    assert [tracker.is_global(at, time) for time in [(2, 0), (0, 2), (3, 1)]] == [False, True, False]
    assert tracker.is_global(source(0, 0), (2, 0))
    assert tracker.is_global(at, (1, 1))  # nothing is less: what is not there yet would be news
    assert not tracker.is_global(at, (1, 3))


@pytest.mark.parametrize("scale", [1, 10, 100, 1000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_recorded_shapes_of_many_ports_are_built_and_propagate(scale: int) -> None:
    """``shape_scaling.rs``: one operator of many ports, each input reaching its own output, and the same as a scope."""
    graph = Graph(uint64)
    graph.add_node(scale, scale, [{}] * scale)
    graph.add_node(scale, scale, [{port: [identity(uint64)]} for port in range(scale)])
    for port in range(scale):
        graph.add_edge(0, port, 1, port)
        graph.add_edge(1, port, 0, port)
    tracker = Tracker(graph)
    assert tracker.scope_summary == [{port: Summaries([identity(uint64)])} for port in range(scale)]
    for port in (0, scale // 2, scale - 1):
        tracker.update_source(1, port, port, 1)
    tracker.propagate_all()
    assert list(tracker.frontier(target(0, scale - 1))) == [0 if scale == 1 else scale - 1]
    assert [changes for changes in tracker.pushed_outputs() if changes][-1][0][0] == scale - 1 if scale > 1 else True


def test_memory_stays_flat_over_many_batches() -> None:
    tracker = Tracker(ring(1))
    tracker.update_source(0, 0, 0, 1)
    for time in range(3000):
        tracker.update_source(0, 0, time, -1)
        tracker.update_source(0, 0, time + 1, 1)
        tracker.propagate_all()  # nobody takes what was pushed: it must cancel by itself
    assert len(tracker.pushed()) == 6
    assert len(tracker._work) == len(tracker._times) == 0
    assert sum(len(tracker.implications(location)) for location in tracker.graph.locations()) == 7
