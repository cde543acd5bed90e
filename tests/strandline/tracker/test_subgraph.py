"""Scopes as operators: a border loses nothing, the contract is kept, and width and depth cost no precision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_strategies import PAIR, TRIPLE, summaries, times
from strandline.dataflow.builder import Cluster, Stream
from strandline.errors import CycleError, StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.change_batch import ChangeBatch
from strandline.time.domain import Time, TimeDomain, lex, product, uint64
from strandline.time.mutable_antichain import MutableAntichain
from strandline.time.path.summary import Connectivity, Summaries, advance, identity
from strandline.tracker.graph import Graph, Location, source, target
from strandline.tracker.operate import Operate, SharedProgress, batches
from strandline.tracker.refinement import Refinement
from strandline.tracker.subgraph import Subgraph


class Scripted(Operate):
    """An operator that reports what the test tells it to, and remembers the frontiers that it is told."""

    def __init__(self, name: str, domain: TimeDomain, rows: Connectivity, outputs: int) -> None:
        self.name, self.domain, self.rows, self._outputs = name, domain, rows, outputs
        self.frontiers = [MutableAntichain(domain) for _ in rows]
        self.external: tuple[Connectivity, list[list[tuple[Time, int]]]] | None = None
        self.report = SharedProgress.of(len(rows), outputs)

    @property
    def inputs(self) -> int:
        return len(self.rows)

    @property
    def outputs(self) -> int:
        return self._outputs

    def get_internal_summary(self) -> tuple[Connectivity, list[ChangeBatch[Time]]]:
        return self.rows, [ChangeBatch([(self.domain.minimum, 1)]) for _ in range(self.outputs)]

    def push_external_progress(self, frontiers: Sequence[ChangeBatch[Time]]) -> None:
        for frontier, changes in zip(self.frontiers, frontiers, strict=True):
            frontier.update_iter(changes.drain())

    def pull_internal_progress(
        self,
        consumeds: Sequence[ChangeBatch[Time]],
        internals: Sequence[ChangeBatch[Time]],
        produceds: Sequence[ChangeBatch[Time]],
    ) -> bool:
        for mine, into in (
            (self.report.consumeds, consumeds),
            (self.report.internals, internals),
            (self.report.produceds, produceds),
        ):
            for batch, out in zip(mine, into, strict=True):
                batch.drain_into(out)
        return False


class Curious(Scripted):
    def set_external_summary(self, summaries: Connectivity, frontiers: Sequence[ChangeBatch[Time]]) -> None:
        self.external = (summaries, [list(batch) for batch in frontiers])


def settle(root: Subgraph, depth: int) -> None:
    for _ in range(3 * depth + 6):
        root.pull_internal_progress([], [], [])


Edge = tuple[Location, Location]
Shape = tuple[TimeDomain, list[tuple[Connectivity, int]], list[Edge], set[int], list[tuple[int, int, Time | None]]]


@st.composite
def grouped(draw: st.DrawFn, loops: bool = False) -> Shape:
    """Operators in a row with edges forwards, some of them to be grouped in a region, and moves of their capabilities.

    With ``loops`` edges go backwards too, where what they close strictly advances.
    """
    domain = draw(st.sampled_from([PAIR, TRIPLE]))
    paths = st.lists(summaries(domain, 2, widest=False), max_size=2)
    nodes = []
    for _ in range(draw(st.integers(2, 5))):
        inputs, outputs = draw(st.integers(0, 2)), draw(st.integers(1, 2))
        nodes.append(([{o: Summaries(draw(paths)) for o in range(outputs)} for _ in range(inputs)], outputs))
    ends = [
        (source(n, o), target(m, i))
        for n, (_, outputs) in enumerate(nodes, 1)
        for o in range(outputs)
        for m, (rows, _) in enumerate(nodes, 1)
        if m > n or loops
        for i in range(len(rows))
    ]
    edges = draw(st.lists(st.sampled_from(ends), unique=True, max_size=8)) if ends else []
    graph = Graph(domain)
    graph.add_node(0, 0)
    for rows, outputs in nodes:
        graph.add_node(len(rows), outputs, rows)
    kept = []
    for start, end in edges:
        graph.add_edge(start.node, start.port, end.node, end.port)
        try:
            graph.validate()
            kept.append((start, end))
        except CycleError:
            graph.nodes[start.node].edges[start.port].remove(end)
    edges = kept
    inside = draw(st.sets(st.integers(1, len(nodes)), min_size=1))
    move = st.integers(1, len(nodes)).flatmap(
        lambda n: st.tuples(st.just(n), st.integers(0, nodes[n - 1][1] - 1), times(domain) | st.none())
    )
    return domain, nodes, edges, inside, draw(st.lists(move, max_size=10))


def flat(domain: TimeDomain, operators: list[Scripted], edges: list[Edge]) -> Subgraph:
    return Subgraph("flat", Refinement.same(domain), operators, edges)


def with_region(domain: TimeDomain, operators: list[Scripted], edges: list[Edge], inside: set[int]) -> Subgraph:
    """The same, with the operators of ``inside`` in a scope: an edge that crosses its border becomes a port of it."""
    inner = {n: i for i, n in enumerate(sorted(inside), 1)}
    outer = {n: i for i, n in enumerate((n for n in range(1, len(operators) + 1) if n not in inside), 2)}
    inner_edges, outer_edges, inputs, outputs = [], [], 0, 0
    for start, end in edges:
        if start.node in inner and end.node in inner:
            inner_edges.append((source(inner[start.node], start.port), target(inner[end.node], end.port)))
        elif start.node in inner:
            inner_edges.append((source(inner[start.node], start.port), target(0, outputs)))
            outer_edges.append((source(1, outputs), target(outer[end.node], end.port)))
            outputs += 1
        elif end.node in inner:
            inner_edges.append((source(0, inputs), target(inner[end.node], end.port)))
            outer_edges.append((source(outer[start.node], start.port), target(1, inputs)))
            inputs += 1
        else:
            outer_edges.append((source(outer[start.node], start.port), target(outer[end.node], end.port)))
    region = Subgraph("region", Refinement.same(domain), [operators[n - 1] for n in sorted(inside)], inner_edges, inputs, outputs)
    rest = [operators[n - 1] for n in sorted(outer)]
    return Subgraph("around", Refinement.same(domain), [region, *rest], outer_edges)


@given(grouped())
@settings(max_examples=30)
def test_grouping_operators_in_a_scope_changes_no_frontier_of_theirs(case: Shape) -> None:
    domain, nodes, edges, inside, moves = case
    runs = []
    for build in (flat, lambda d, o, e: with_region(d, o, e, inside)):
        operators = [Scripted(f"op{i}", domain, rows, outputs) for i, (rows, outputs) in enumerate(nodes, 1)]
        root = build(domain, operators, edges)
        root.get_internal_summary()
        root.set_external_summary([], [])
        runs.append((root, operators))
    held = {(n, o): domain.minimum for n, (_, outputs) in enumerate(nodes, 1) for o in range(outputs)}
    for n, output, wanted in [*moves, *((n, o, None) for n, o in list(held))]:
        for root, _ in runs:
            settle(root, 2)
        told = [[[list(f.frontier) for f in op.frontiers] for op in operators] for _, operators in runs]
        assert told[0] == told[1]
        now = held.get((n, output))
        if now is None:
            continue
        later = None if wanted is None else domain.join(now, wanted)
        for _, operators in runs:
            operators[n - 1].report.internals[output].update(now, -1)
            if later is not None:
                operators[n - 1].report.internals[output].update(later, 1)
        if later is None:
            del held[n, output]
        else:
            held[n, output] = later
    for root, operators in runs:
        settle(root, 2)
        assert all(frontier.is_empty() for op in operators for frontier in op.frontiers)
        assert not root.pull_internal_progress([], [], [])


def test_an_operator_hears_what_its_surroundings_do_from_its_outputs_back_to_its_inputs() -> None:
    unchanged, around = Summaries([identity(PAIR)]), Summaries([advance(PAIR, "iter")])
    curious = Curious("curious", PAIR, [{0: unchanged, 1: unchanged}, {0: unchanged}], 2)
    feedback = Scripted("feedback", PAIR, [{0: around}], 1)
    edges = [(source(1, 1), target(2, 0)), (source(2, 0), target(1, 1))]
    root = Subgraph("loop", Refinement.same(PAIR), [curious, feedback], edges)
    root.get_internal_summary()
    root.set_external_summary([], [])
    assert curious.external is not None
    back, first = curious.external
    assert back == [{}, {1: around}]
    assert first == [[], [((0, 0), 1)]]  # the feedback's first capability reaches input 1


class World:
    """Scopes in one another, the innermost last: each has operators and, after them, the next scope as its last child."""

    def __init__(self) -> None:
        self.levels: list[tuple[Refinement, list[Scripted], list[Edge]]] = []

    def level(self, refinement: Refinement, operators: list[Scripted], edges: list[Edge]) -> World:
        self.levels.append((refinement, operators, edges))
        return self

    def build(self) -> Subgraph:
        scope: Subgraph | None = None
        for depth, (refinement, operators, edges) in reversed(list(enumerate(self.levels))):
            ends = {end for edge in edges for end in edge if end.node == 0}
            ports = [sum(end.is_source is kind for end in ends) for kind in (True, False)]
            children: list[Operate] = [*operators, *([scope] if scope else [])]
            scope = Subgraph(f"level {depth}", refinement, children, edges, *ports)
        assert scope is not None
        scope.get_internal_summary()
        scope.set_external_summary([], [])
        return scope

    def arrivals(self, depth: int, index: int, output: int, time: Time, bound: int = 12) -> dict[int, list[Time]]:
        """Every time at which what an operator sends may come back to its inputs, by sending it around; by brute force."""
        found: dict[int, list[Time]] = {}
        work = [(depth, source(index, output), time)]
        seen = set(work)
        while work:
            level, at, now = work.pop()
            refinement, operators, edges = self.levels[level]
            nested = len(operators) + 1
            after: list[tuple[int, Location, Time | None]]
            if at.is_source:
                after = [(level, end, now) for start, end in edges if start == at]
            elif at.node == 0:
                after = [(level - 1, source(len(self.levels[level - 1][1]) + 1, at.port), refinement.to_outer(now))]
            elif at.node == nested:
                after = [(level + 1, source(0, at.port), self.levels[level + 1][0].to_inner(now))]
            elif (level, at.node) == (depth, index):
                found.setdefault(at.port, []).append(now)
                continue
            else:
                row = operators[at.node - 1].rows[at.port]
                after = [(level, source(at.node, o), s.results_in(now)) for o, paths in row.items() for s in paths]
            for step in after:
                if step[2] is not None and max(leaves(step[2])) <= bound and step not in seen:
                    seen.add(step)  # type: ignore[arg-type]  # a time that is left
                    work.append(step)  # type: ignore[arg-type]
        return found


def leaves(time: Time) -> list[int]:
    return [leaf for part in time for leaf in leaves(part)] if isinstance(time, tuple) else [time]


def around(*domains: TimeDomain) -> World:
    """Loops in one another: outside an input, a feedback and a concat; then scopes with a feedback; in the last a curious one."""

    def quiet(name: str, domain: TimeDomain, rows: Connectivity, kind: type[Scripted] = Scripted) -> Scripted:
        operator = kind(name, domain, rows, 1)
        operator.get_internal_summary = lambda: (rows, batches(1))  # type: ignore[method-assign]
        return operator

    world, outermost = World(), domains[0]
    unchanged = {0: Summaries([identity(outermost)])}
    operators = [
        Scripted("input", outermost, [], 1),
        quiet("feedback", outermost, [{0: Summaries([advance(outermost)])}]),
        quiet("concat", outermost, [unchanged, unchanged]),
    ]
    edges = [((1, 0), (3, 0)), ((2, 0), (3, 1)), ((3, 0), (4, 0)), ((4, 0), (2, 0))]
    world.level(Refinement.same(outermost), operators, [(source(*start), target(*end)) for start, end in edges])
    for outer, inner in pairwise(domains):
        refinement = Refinement(outer, inner, inner.coordinates[-1][0], len(inner.coordinates) > 2)
        last = inner is domains[-1]
        operators = [quiet("again", inner, [{0: Summaries([refinement.feedback(2)])}])]
        if last:
            operators.append(quiet("curious", inner, [{0: Summaries([identity(inner)])}] * 2, Curious))
        edges = [((2, 0), (1, 0)), ((1, 0), (2, int(last))), ((2, 0), (0, 0)), ((0, 0), (2, 0))]
        world.level(refinement, operators, [(source(*start), target(*end)) for start, end in edges])
    return world


LOOPED = product(outer="uint64", iter="uint64")


@pytest.mark.parametrize(
    "domains",
    [
        (uint64, LOOPED),
        (uint64, LOOPED, product(outer="uint64", iter="uint64", round="uint64")),
        (uint64, lex(tick="uint64", iter="uint64")),
        (uint64, lex(tick="uint64", iter="uint64"), lex(tick="uint64", iter="uint64", round="uint64")),
        (uint64, lex(tick="uint64", iter="uint64"), Refinement.nested(lex(tick="uint64", iter="uint64"), "round").inner),
        (uint64, LOOPED, Refinement.nested(LOOPED, "round", order=lex).inner),
    ],
    ids=str,
)
def test_a_nested_operator_hears_of_the_paths_through_the_outside_world(domains: tuple[TimeDomain, ...]) -> None:
    """ "All of the math works out just fine, as long as the outside world summarises itself as an operator." """
    world = around(*domains)
    world.build()
    depth, inner = len(domains) - 1, domains[-1]
    curious = world.levels[depth][1][1]
    assert curious.external is not None
    back, first = curious.external
    assert first == [[(inner.minimum, 1)], [(world.levels[depth][0].feedback(2).results_in(inner.minimum), 1)]]
    for n in range(27):
        counts = iter((n % 3, n // 3 % 3, n // 9))
        time = at_counts(inner, counts)
        arrives = world.arrivals(depth, 2, 0, time)
        for port in (0, 1):
            results = [t for paths in [back[0].get(port, [])] for s in paths if (t := s.results_in(time)) is not None]
            assert Antichain(inner, results) == Antichain(inner, arrives.get(port, [])), (time, port, back)


def at_counts(domain: TimeDomain, counts: Iterator[int]) -> Time:
    return tuple(at_counts(part, counts) for _, part in domain.coordinates) if domain.coordinates else next(counts)


def test_the_outside_may_lead_back_without_an_advance_where_the_inside_does_not_lead_on() -> None:
    """The iteration begins again, which takes times back in the scope's own coordinate."""
    refinement = Refinement.nested(uint64, "iter", outer_name="epoch")
    curious = Curious("curious", refinement.inner, [{}], 1)  # what it hears and what it sends have nothing to do with each other
    inner = Subgraph("inner", refinement, [curious], [(source(0, 0), target(1, 0)), (source(1, 0), target(0, 0))], 1, 1)
    root = Subgraph("root", Refinement.same(uint64), [inner], [(source(1, 0), target(1, 0))])
    root.get_internal_summary()
    root.set_external_summary([], [])
    assert curious.external is not None
    [[(port, paths)]] = [list(row.items()) for row in curious.external[0]]
    assert port == 0
    assert [s.results_in((4, 7)) for s in paths] == [(4, 0)]
    assert [str(s) for s in paths] == ["(iter=0)"]
    assert curious.external[1] == [[((0, 0), 1)]]  # its own first capability, round the outside


@given(grouped(loops=True))
@settings(max_examples=30)
def test_grouping_operators_in_a_scope_changes_nothing_that_they_hear_of_their_surroundings(case: Shape) -> None:
    domain, nodes, edges, inside, _ = case
    heard = []
    for build in (flat, lambda d, o, e: with_region(d, o, e, inside)):
        operators = [Curious(f"op{i}", domain, rows, outputs) for i, (rows, outputs) in enumerate(nodes, 1)]
        root = build(domain, operators, edges)
        root.get_internal_summary()
        root.set_external_summary([], [])
        heard.append([operator.external for operator in operators])
    for (one, first), (two, other) in zip(*heard, strict=True):
        assert one == two
        # Counts are of frontier elements along least paths, and a border may merge some.
        assert [[time for time, _ in batch] for batch in first] == [[time for time, _ in batch] for batch in other]


def test_by_default_every_input_reaches_every_output_unchanged() -> None:
    class Plain(Scripted):
        get_internal_summary = Operate.get_internal_summary

    rows, first = Plain("plain", uint64, [{}, {}], 3).get_internal_summary()
    assert rows == [dict.fromkeys(range(3), Summaries([identity(uint64)]))] * 2
    assert all(batch.is_empty() for batch in first)


def test_a_scope_reports_what_crossed_its_border_and_what_it_may_still_send() -> None:
    refinement = Refinement.nested(uint64, "iter")
    inner = Scripted("inner", refinement.inner, [{0: Summaries([refinement.feedback()])}], 1)
    edges = [(source(0, 0), target(1, 0)), (source(1, 0), target(0, 0))]
    scope = Subgraph("scope", refinement, [inner], edges, 1, 1)
    rows, first = scope.get_internal_summary()
    assert rows == [{0: Summaries([identity(uint64)])}]  # the iteration is nobody's business outside
    assert list(first[0]) == [(0, 1)]
    scope.set_external_summary([{}], batches(1))
    progress = SharedProgress.of(1, 1)

    def work() -> dict[str, list[tuple[Time, int]]]:
        scope.push_external_progress(progress.frontiers)
        scope.pull_internal_progress(progress.consumeds, progress.internals, progress.produceds)
        return {
            "consumed": progress.consumeds[0].drain(),
            "internal": progress.internals[0].drain(),
            "produced": progress.produceds[0].drain(),
        }

    progress.frontiers[0].update(4, 1)
    scope.input_messages[0].update((4, 0), 3)  # three records enter at 4
    assert work() == {"consumed": [], "internal": [], "produced": []}
    assert work() == {"consumed": [(4, 3)], "internal": [], "produced": []}
    assert list(inner.frontiers[0].frontier) == [(4, 0)]
    # Their receipt, the capability kept for two of them and the one that is sent, at once: atomic.
    inner.report.consumeds[0].update((4, 0), 3)
    inner.report.internals[0].extend([((0, 0), -1), ((4, 1), 1)])
    inner.report.produceds[0].update((4, 1), 1)
    progress.frontiers[0].update(4, -1)
    assert work() == {"consumed": [], "internal": [], "produced": []}
    told = work()
    assert told["produced"] == [(4, 1)]
    assert sorted(told["internal"]) == [(0, -1), (4, 1)]
    assert inner.frontiers[0].is_empty()
    inner.report.internals[0].update((4, 1), -1)
    work()
    assert work()["internal"] == [(4, -1)]
    assert not scope.pull_internal_progress(progress.consumeds, progress.internals, progress.produceds)


@pytest.mark.parametrize("scale", [1, 10, 100, 1000, pytest.param(20_000, marks=pytest.mark.soak)])
def test_recorded_shapes_of_many_streams_through_a_scope(scale: int) -> None:
    """``shape_scaling.rs``: a stream in many parts, each entering a scope and leaving it."""
    with Cluster() as cluster:
        with cluster.dataflow(uint64) as scope:
            numbers, stream = scope.input("numbers")
            operator, parts = scope.operator("partition", [stream], scale)

            def partition() -> None:
                for token, records in operator.input_ports[0]:
                    for record in records:
                        with token.retain(record % scale) as capability:
                            operator.output_ports[record % scale].send(capability, [record])

            operator.logic = partition
            with scope.region() as region:
                left: list[Stream] = [part.enter(region).leave() for part in parts]
            outputs = [stream.capture() for stream in (left[0], left[scale // 2], left[-1])]
        numbers.send(0, scale // 2, scale - 1)
        numbers.close()
    assert [(0, 0) in outputs[0], (0, scale // 2) in outputs[1], (0, scale - 1) in outputs[2]] == [True, True, True]


def test_scopes_nest_to_any_depth() -> None:
    depth = 6
    with Cluster(seed=3) as cluster:
        with cluster.dataflow(uint64) as scope:
            numbers, stream = scope.input("numbers")

            def nest(outer: Any, incoming: Stream, levels: int) -> Stream:
                """Each level goes round twice, adding one at the innermost."""
                with outer.nested(f"level{levels}") as inner:
                    again, going_round = inner.feedback()
                    everything = incoming.enter(inner).concat(going_round)
                    worked = nest(inner, everything, levels - 1) if levels > 1 else everything.map(lambda n: n + 1)
                    again.connect(worked.filter(lambda n: n % (2 ** (depth + 1 - levels)) != 0))
                    return worked.filter(lambda n, m=2 ** (depth + 1 - levels): n % m == 0).leave()

            output = nest(scope, stream, depth).capture()
        numbers.send(0)
        numbers.close()
    assert output == [(0, 2**depth)]


def test_a_path_to_what_is_no_scope_is_refused() -> None:
    scripted = Scripted("plain", uint64, [{}], 0)
    root = Subgraph("root", Refinement.same(uint64), [scripted], [])
    with pytest.raises(StrandlineError, match="plain in root is not a scope"):
        root.explain([1], target(1, 0), 0)
