"""Hydroflow's strata and ticks: the statements of its design, and the recorded results of its own tests."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import networkx as nx
import pytest

from program_spec import graph
from random_programs import LAST, draw, mended
from strandline.dataflow.builder import Cluster
from strandline.errors import CapabilityError, ProgramError
from strandline.program import Program, Rows, col
from strandline.program.local.run import dataflow, run
from strandline.program.plan import Read
from strandline.program.schema import parse_ddl


def difference() -> Program:
    """c := a minus b."""
    p = Program("difference")
    a, b, c = p.input("a", "x long"), p.input("b", "x long"), p.relation("c", "x long")
    p.rule(c, a.subtract(b))
    return p


def reachability() -> Program:
    p = Program("reachability")
    edge, reach = p.input("edge", "x long, y long"), p.relation("reach", "x long, y long")
    p.rule(reach, edge)
    p.rule(reach, reach.meet(edge.select(y="x", z="y"), on="y").select("x", y="z"))
    return p


def rows(*values: Any) -> set[tuple[Any, ...]]:
    return {(value,) for value in values}


def test_a_difference_is_complete_for_every_order_and_retracts_nothing() -> None:
    records = [("a", (1,)), ("a", (2,)), ("a", (3,)), ("b", (2,))]
    for order in itertools.permutations(records):
        cluster = Cluster()
        handle, captured, _ = dataflow(difference().plan(), cluster)
        handle.advance_to((0, 0, 0))
        for record in order:
            handle.send(record)
            for _ in range(5):
                cluster.step()
            assert not captured[2]  # nothing before b is complete
        handle.close()
        cluster.run()
        assert sorted(captured[2]) == [((0, 1, 0), ("c", (1,))), ((0, 1, 0), ("c", (3,)))]  # each once, and none is taken back
    for seed in range(20):
        assert difference().run({"a": {0: [(1,), (2,), (3,)]}, "b": {0: [(2,)]}}, seed=seed) == {"c": {0: rows(1, 3)}}


def test_handoffs_are_empty_at_the_next_tick() -> None:
    found = difference().run({"a": {0: [(1,), (2,), (3,)], 1: [(2,)]}, "b": {0: [(2,)], 1: []}})
    assert found == {"c": {0: rows(1, 3), 1: rows(2)}}


@pytest.mark.parametrize("seed", [None, *range(10)])
def test_a_stratum_begins_after_the_fixed_point_of_the_one_before_and_a_tick_after_all_strata(seed: int | None) -> None:
    """Also where strata and ticks have nothing to do with each other. A function sees in which order rows are read."""
    log: list[tuple[int, int]] = []

    def seen(stratum: int) -> Any:
        def function(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
            log.append((row["tick"], stratum))
            yield row

        return function

    p = Program("order")
    schema = "tick long, n long"
    start = p.input("start", schema)
    counts = [p.relation(f"count{i}", schema) for i in range(3)]
    gates = [start, *(p.relation(f"gate{i}", schema) for i in (1, 2))]
    for i in (1, 2):
        p.rule(gates[i], start.subtract(gates[i - 1].where(col("n") > 100)))
    for i, count in enumerate(counts):  # five rounds in each stratum
        p.rule(count, gates[i].map(seen(i), schema))
        p.rule(count, count.where(col("n") < 5).select("tick", n=col("n") + 1).map(seen(i), schema))
    assert p.strata == [["start", "count0"], ["count1", "gate1"], ["count2", "gate2"]]
    p.run({"start": {tick: [(tick, 0)] for tick in (0, 1, 5)}}, seed=seed)
    assert log == sorted(log)
    assert len(log) == 3 * 3 * 6


def test_a_monotone_loop_moves_neither_tick_nor_stratum() -> None:
    cluster = Cluster()
    handle, [_, reach], _ = dataflow(reachability().plan(), cluster)
    handle.advance_to((7, 0, 0))
    handle.send(*(("edge", (n, n + 1)) for n in range(4)))
    handle.close()
    cluster.run()
    assert {time[:2] for time, _ in reach} == {(7, 0)}
    assert {y - x: time[2] for time, (_, (x, y)) in reach} == {1: 0, 2: 1, 3: 2, 4: 3}


def with_far() -> Program:
    """Reachability, and the number of nodes that each one reaches."""
    p = reachability()
    far = p.relation("far", "x long, n long")

    @p.rule(far)
    def number(reach: Any) -> Any:
        return reach.group_by("x").agg(n=("count", None))

    return p


def test_a_handoff_gathers_all_rounds_and_is_taken_as_one_batch() -> None:
    cluster = Cluster(seed=3)
    handle, [_, reach, far], _ = dataflow(with_far().plan(), cluster)
    handle.advance_to((0, 0, 0))
    for n in range(4):
        handle.send(("edge", (n, n + 1)))
    handle.close()
    cluster.step_while(lambda: not far)
    assert {time[2] for time, _ in reach} == {0, 1, 2, 3}
    assert sorted(far) == [((0, 1, 0), ("far", (n, 4 - n))) for n in range(4)]  # no count of an unfinished round


@pytest.mark.parametrize("seed", range(15))
def test_the_order_in_which_the_scheduler_works_changes_nothing(seed: int) -> None:
    drawn, _ = mended(draw(seed))
    program = drawn.build()
    assert program.run(drawn.facts, last=LAST, seed=seed) == program.run(drawn.facts, last=LAST)


@pytest.mark.parametrize("seed", range(10))
def test_events_enter_any_stratum_by_any_policy(seed: int) -> None:
    """For latency each row is worked on before the next one comes, for throughput a whole tick, or all ticks, come at once."""
    p = with_far()
    limit, few = p.input("limit", "x long"), p.relation("few", "x long, n long")

    @p.rule(few)
    def near(far: Any) -> Any:
        return far.meet(limit.select(n="x"), on="n", how="left_anti")

    assert p.strata == [["edge", "reach", "limit"], ["far", "few"]]
    numbers = random.Random(seed)
    records = [(tick, "edge", (numbers.randrange(5), numbers.randrange(5))) for tick in range(3) for _ in range(4)]
    records += [(tick, "limit", (numbers.randrange(5),)) for tick in range(3)]
    records.sort(key=lambda record: record[0])
    results = []
    for steps in ("row", "tick", "never"):
        cluster = Cluster()
        handle, captured, _ = dataflow(p.plan(), cluster)
        for tick, of_tick in itertools.groupby(records, lambda record: record[0]):
            handle.advance_to((tick, 0, 0))
            for _, name, row in of_tick:
                handle.send((name, row))
                for _ in range(10 if steps == "row" else 0):
                    cluster.step()
            for _ in range(30 if steps == "tick" else 0):
                cluster.step()
        handle.close()
        cluster.run()
        results.append([{(time[0], *record) for time, record in stream} for stream in captured])
    assert results[0] == results[1] == results[2]


def test_a_row_that_was_carried_and_follows_again_comes_once() -> None:
    p = Program("again")
    i, out = p.input("i", "x long"), p.relation("out", "x long")
    p.rule(out, i)
    p.rule(out, i, next_tick=True)
    cluster = Cluster()
    handle, [entering, out_rows], _ = dataflow(p.plan(), cluster)
    for tick in (0, 1):
        handle.advance_to((tick, 0, 0))
        handle.send(("i", (7,)))
    handle.close()
    cluster.run()
    assert [time for time, (name, _) in [*entering, *out_rows] if name == "out"] == [(1, 0, 0), (2, 0, 0), (0, 0, 0)]


def test_an_event_of_a_tick_that_has_run_cannot_come() -> None:
    handle, *_ = dataflow(difference().plan(), Cluster())
    handle.advance_to((3, 0, 0))
    with pytest.raises(CapabilityError):
        handle.advance_to((2, 0, 0))


def test_an_idle_program_makes_no_tick() -> None:
    p = difference()
    p.rule(p.relation("seen", "x long"), Rows(p, Read("a", parse_ddl("x long"))), next_tick=True)
    assert p.run({}) == p.run({"a": {0: []}}) == {"c": {}, "seen": {}}
    assert p.run({"a": {0: [(1,)], 1000: [(2,)]}})["seen"] == {1: rows(1), 1001: rows(2)}


def test_all_inputs_of_a_non_monotone_operator_come_from_earlier_strata() -> None:
    """a, b -> c -> d: c stays beside a and b, and d comes after."""
    p = Program("cut")
    start, a, b = p.input("start", "x long"), p.relation("a", "x long"), p.relation("b", "x long")
    c, d = p.relation("c", "x long"), p.relation("d", "n long")
    p.rule(a, start.union(b))
    p.rule(b, a)
    p.rule(c, a.union(b))
    p.rule(d, c.group_by().agg(n=("count", None)))
    assert p.strata == [["start", "a", "b", "c"], ["d"]]
    p.rule(a, d.select(x="n"))  # no cut is left
    with pytest.raises(ProgramError) as refused:
        p.plan()
    assert "The rule for 'd' needs all of 'c' (aggregate), which needs 'd' in the same tick: d -> aggregate c -> a -> d." in str(
        refused.value
    )


@pytest.mark.parametrize("loops", [(True, True), (True, False), (False, True), (False, False)])
def test_loops_through_negation_are_accepted_if_each_advances_the_tick(loops: tuple[bool, bool]) -> None:
    p = Program("loops")
    start = p.input("start", "x long")
    for name, next_tick in zip("ab", loops, strict=True):
        mine, other = p.relation(name, "x long"), p.relation(f"{name}_other", "x long")
        p.rule(mine, start.subtract(other))
        p.rule(other, mine, next_tick=next_tick)
    if all(loops):
        assert p.run({"start": {tick: [(1,)] for tick in range(4)}})["a"] == {0: rows(1), 2: rows(1)}
        return
    with pytest.raises(ProgramError, match="a -> not a_other -> a" if not loops[0] else "b -> not b_other -> b"):
        p.plan()


@pytest.mark.parametrize("seed", range(15))
def test_more_strata_than_needed_change_nothing(seed: int) -> None:
    """Each component of the relations a stratum of its own."""
    drawn, _ = mended(draw(seed))
    plan = drawn.build().plan()
    edges = graph(drawn.plain_rules)
    edges.add_nodes_from(plan.relations)
    components = nx.condensation(edges)
    at = {name: n for n, number in enumerate(nx.topological_sort(components)) for name in components.nodes[number]["members"]}
    end = len(at)
    finer = replace(
        plan,
        relations={name: replace(relation, stratum=at[name]) for name, relation in plan.relations.items()},
        rules=tuple(replace(rule, stratum=end if rule.next_tick else at[rule.head]) for rule in plan.rules),
    )
    assert run(finer, drawn.facts, last=LAST) == run(plan, drawn.facts, last=LAST)


# The cases of dfir_rs/tests/surface_stratum.rs: the rows of each tick.


def test_difference_a() -> None:
    found = difference().run({"a": {0: [(1,), (2,), (3,), (4,)]}, "b": {0: [(1,), (3,), (5,), (7,)]}})
    assert found == {"c": {0: rows(2, 4)}}


def test_difference_b() -> None:
    """Each tick's items without the previous tick's."""
    p = Program("difference_b")
    inp, out, before = p.input("inp", "x string"), p.relation("out", "x string"), p.relation("before", "x string")
    p.rule(out, inp.subtract(before))
    p.rule(before, out, next_tick=True)
    ticks = [["01", "02", "03"], ["02", "11", "12"], ["02", "11", "12"]]
    found = p.run({"inp": {tick: [(item,) for item in items] for tick, items in enumerate(ticks)}})
    assert found["out"] == {0: rows("01", "02", "03"), 1: rows("11", "12"), 2: rows("02")}


@pytest.mark.parametrize(
    ("deferred", "expected"),
    [
        (1, {0: (1, 3), 1: (2, 6), 2: (4, 12), 3: (8, 24)}),
        (2, {0: (1, 3), 2: (2, 6), 4: (4, 12)}),
        (3, {0: (1, 3), 3: (2, 6)}),
    ],
)
def test_tick_loops(deferred: int, expected: dict[int, tuple[int, int]]) -> None:
    """A loop with one, two or three ticks on the way. A tick without rows is there, or has nothing."""
    p = Program("tick_loop")
    start, a = p.input("start", "x long"), p.relation("a", "x long")
    p.rule(a, start)
    at = a
    for number in range(1, deferred):
        later = p.relation(f"later{number}", "x long")
        p.rule(later, at, next_tick=True)
        at = later
    p.rule(a, at.select(x=col("x") * 2), next_tick=True)
    found = p.run({"start": {0: [(1,), (3,)]}}, last=4 if deferred == 3 else max(expected))
    assert found["a"] == {tick: rows(*values) for tick, values in expected.items()}


def test_graph_unreachability() -> None:
    """The nodes that 0 does not reach, as the edges come: one tick, and then all edges that are known."""
    p = Program("unreachability")
    root, edge = p.input("root", "x long", keep="always"), p.input("edge", "x long, y long", keep="always")
    reached, unreached = p.relation("reached", "x long", keep="always"), p.relation("unreached", "x long")
    p.rule(reached, root)
    p.rule(reached, reached.meet(edge, on="x").select(x="y"))
    p.rule(unreached, edge.select("x").union(edge.select(x="y")).subtract(reached))
    found = p.run({"root": {0: [(0,)]}, "edge": {0: [(0, 1), (2, 4), (3, 5), (1, 2)], 1: [(0, 3)]}})
    assert found == {"reached": {0: rows(0, 1, 2, 4), 1: rows(3, 5)}, "unreached": {0: rows(3, 5)}}


def test_subgraph_stratum_consolidation() -> None:
    """Nothing needs the whole of anything, so all is one stratum."""
    p = Program("triangles")
    zero, one = p.input("zero", "x long"), p.input("one", "x long")
    at = zero.union(one)
    for name in "abcd":
        relation = p.relation(name, "x long")
        p.rule(relation, at)
        p.rule(relation, at)
        at = relation.union(relation)
    assert len(p.strata) == 1
    assert p.run({"zero": {0: [(0,)]}, "one": {0: [(1,)]}})["d"] == {0: rows(0, 1)}
