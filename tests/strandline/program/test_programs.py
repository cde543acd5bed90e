"""What programs mean, case by case: expressions, nodes, the two ways of keeping, ticks, explanations."""

from __future__ import annotations

import math
import re
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from strandline.program import Program, Rows, col, lit
from strandline.program.expression import Expression, coalesce, greatest, least

NAN, INF = float("nan"), float("inf")
MORNING = datetime(2026, 3, 1, 6, tzinfo=timezone.utc)


def values(expression: Expression, schema: str, *rows: tuple[Any, ...]) -> list[Any]:
    """The value of an expression for each row."""
    numbered = [(n, *row) for n, row in enumerate(rows)]
    p = Program("values")
    i = p.input("i", f"n_ long, {schema}").select("n_", v=expression)
    p.rule(p.relation("o", i.schema), i)
    return [v for _, v in sorted(p.run({"i": {0: numbered}})["o"][0], key=lambda row: row[0])]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (col("a") & col("b"), [True, False, None, False, False, False, None, False, None]),
        (col("a") | col("b"), [True, True, True, True, False, None, True, None, None]),
        (~col("a"), [False, False, False, True, True, True, None, None, None]),
        (col("a") == col("b"), [True, False, None, False, True, None, None, None, None]),
        (col("a").is_null(), [False, False, False, False, False, False, True, True, True]),
        (coalesce(col("a"), col("b")), [True, True, True, False, False, False, True, False, None]),
    ],
)
def test_conditions_have_three_values(expression: Expression, expected: list[Any]) -> None:
    three = (True, False, None)
    assert values(expression, "a boolean, b boolean", *((a, b) for a in three for b in three)) == expected


def test_a_condition_that_is_decided_computes_no_more() -> None:
    most = (1 << 63) - 1
    found = values((col("x") > 0) | (col("x") - 2 > 0), "x long", (most,), (1,))
    assert found == [True, True]
    assert values((col("x") < 0) & (col("x") + 1 > 0), "x long", (most,)) == [False]


def test_numbers_of_two_kinds_meet_as_floats() -> None:
    most = (1 << 53) + 1  # no float64 has it
    assert values(col("i") == col("f"), "i long, f double", (most, float(most)), (3, 3.5), (3, None)) == [True, False, None]
    assert values(col("i") * 2 - col("f"), "i long, f double", (2, 0.5)) == [3.5]
    assert values(col("f") + 1, "f double", (INF,), (-0.0,)) == [INF, 1.0]


def test_nan_is_one_value_and_the_greatest() -> None:
    rows = [(a, b) for a in (1.0, NAN, -NAN) for b in (INF, float("nan"))]
    assert values(col("a") == col("b"), "a double, b double", *rows) == [False, False, False, True, False, True]
    assert values(col("a") > col("b"), "a double, b double", *rows) == [False, False, True, False, True, False]
    assert values(greatest(col("a"), col("b")), "a double, b double", (1.0, NAN), (None, 2.0), (None, None))[1:] == [2.0, None]
    assert values(least(col("a"), col("b")), "a double, b double", (1.0, NAN), (NAN, None))[0] == 1.0
    p = Program("nan")
    i = p.input("i", "x double")
    p.rule(p.relation("o", "x double"), i)
    p.rule(p.relation("n", "x double, n long"), i.group_by("x").agg(n=("count", None)))
    p.rule(p.relation("m", "x double"), i.meet(i.select(x=col("x") - col("x")), on="x"))
    found = p.run({"i": {0: [(NAN,), (-NAN,), (0.0,), (-0.0,), (INF,)]}})
    assert len(found["o"][0]) == 3
    assert sorted(str(row) for row in found["n"][0]) == ["(0.0, 1)", "(inf, 1)", "(nan, 1)"]
    assert sorted(str(row) for row in found["m"][0]) == ["(0.0,)", "(nan,)"]


def test_texts_moments_and_days() -> None:
    assert values(col("s") < "é", "s string", ("e",), ("\U0001f600",)) == [True, False]
    berlin = timezone(timedelta(hours=1))
    found = values(col("t"), "t timestamp", (MORNING.astimezone(berlin),))
    assert found == [MORNING]
    assert found[0].tzinfo is timezone.utc
    assert values(col("t") >= lit(MORNING), "t timestamp", (MORNING,), (MORNING - timedelta(microseconds=1),)) == [True, False]
    assert values(greatest(col("d"), lit(date(2026, 1, 1))), "d date", (date(2025, 1, 1),)) == [date(2026, 1, 1)]


def aggregates(schema: str, rows: list[tuple[Any, ...]], *by: str, **what: tuple[str, str | None]) -> set[tuple[Any, ...]]:
    p = Program("aggregates")
    found = p.input("i", schema).group_by(*by).agg(**what)
    p.rule(p.relation("o", found.schema), found)
    return p.run({"i": {0: rows, 1: []}})["o"].get(0, set())


def test_aggregates() -> None:
    rows = [(None, 1), (None, None), ("a", 2), ("a", 5), ("b", None)]
    what: dict[str, Any] = {"n": ("count", None), "m": ("count", "x"), "s": ("sum", "x"), "l": ("min", "x"), "g": ("max", "x")}
    expected = {(None, 2, 1, 1, 1, 1), ("a", 2, 2, 7, 2, 5), ("b", 1, 0, None, None, None)}
    assert aggregates("k string, x long", rows, "k", **what) == expected
    assert aggregates("k string, x long", rows, **what) == {(5, 3, 8, 1, 5)}
    assert aggregates("k string, x long", [], **what) == set()
    assert aggregates("k string, x long", rows, "k") == {(None,), ("a",), ("b",)}


def test_a_sum_of_floats_depends_on_no_order() -> None:
    rows = [(n, x) for n, x in enumerate((1e16, 1.0, -1e16, 1e-3))]
    assert aggregates("n long, x double", rows, s=("sum", "x")) == {(1.001,)}
    huge = [(n, x) for n, x in enumerate((1.7e308, 1.7e308))]
    assert aggregates("n long, x double", huge, s=("sum", "x")) == {(INF,)}
    [(sum_,)] = aggregates("n long, x double", [(0, INF), (1, -INF)], s=("sum", "x"))
    assert math.isnan(sum_)
    assert aggregates("n long, x double", [(0, NAN), (1, 2.0)], l=("min", "x")) == {(2.0,)}


def test_top_breaks_ties_by_the_other_columns() -> None:
    p = Program("top")
    i = p.input("i", "a long, b long, c string")
    for name, rows in {
        "first": i.top(1, by="a", order={"b": "desc"}),
        "two": i.top(2, order={"c": "asc"}),
        "least": i.top(1),
        "last": i.top(1, order={"c": "desc", "b": "asc"}),
    }.items():
        p.rule(p.relation(name, i.schema), rows)
    found = p.run({"i": {0: [(1, 5, "y"), (1, 5, "x"), (1, 4, "a"), (2, None, "z"), (2, 3, None)]}})
    assert found["first"][0] == {(1, 5, "x"), (2, 3, None)}
    assert found["two"][0] == {(2, 3, None), (1, 4, "a")}
    assert found["least"][0] == {(1, 4, "a")}
    assert found["last"][0] == {(2, None, "z")}


def test_a_fold_sees_the_rows_of_a_group_in_their_order() -> None:
    def joined(state: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        return {"text": state["text"] + str(row["x"]), "n": state["n"] + 1}

    p = Program("fold")
    folded = p.input("i", "k string, x long").group_by("k").fold(joined, {"text": "", "n": 0}, "text string, n long")
    p.rule(p.relation("o", folded.schema), folded)
    assert folded.columns == ["k", "text", "n"]
    assert p.run({"i": {0: [("a", 3), ("a", None), ("a", 1), ("b", 2)]}})["o"] == {0: {("a", "None13", 3), ("b", "2", 1)}}


def test_null_agrees_with_nothing_but_is_a_value_of_sets() -> None:
    p = Program("nulls")
    a, b = p.input("a", "x long"), p.input("b", "x long")
    for how in ("inner", "left_semi", "left_anti"):
        p.rule(p.relation(how, "x long"), a.meet(b, on="x", how=how))  # type: ignore[arg-type]
    p.rule(p.relation("rest", "x long"), a.subtract(b))
    p.rule(p.relation("some", "x long"), a.meet(b, how="left_semi"))
    p.rule(p.relation("none", "x long"), a.meet(b, how="left_anti"))
    found = p.run({"a": {0: [(None,), (1,), (2,)], 1: [(1,)]}, "b": {0: [(None,), (1,)]}})
    assert found == {
        "inner": {0: {(1,)}},
        "left_semi": {0: {(1,)}},
        "left_anti": {0: {(None,), (2,)}, 1: {(1,)}},
        "rest": {0: {(2,)}, 1: {(1,)}},
        "some": {0: {(None,), (1,), (2,)}},
        "none": {1: {(1,)}},
    }


def test_what_is_kept_always_is_there_at_each_later_tick_that_is_active() -> None:
    p = Program("always")
    edge, ask = p.input("edge", "x long, y long", keep="always"), p.input("ask", "x long")
    reach = p.relation("reach", "x long, y long", keep="always")
    asked = p.relation("asked", "x long", keep="always")
    answer, count = p.relation("answer", "y long"), p.relation("count", "n long")
    p.rule(reach, edge)
    p.rule(reach, reach.meet(edge.select(y="x", z="y"), on="y").select("x", y="z"))
    p.rule(asked, ask)
    p.rule(answer, reach.meet(ask, on="x").select("y"))
    p.rule(count, reach.group_by().agg(n=("count", None)))
    found = p.run({"edge": {0: [(1, 2)], 3: [(2, 3), (1, 2)]}, "ask": {1: [(1,)], 5: [(1,)]}})
    assert found == {
        "reach": {0: {(1, 2)}, 3: {(2, 3), (1, 3)}},  # each row at its least tick
        "asked": {1: {(1,)}},
        "answer": {1: {(2,)}, 5: {(2,), (3,)}},
        "count": {0: {(1,)}, 1: {(1,)}, 3: {(3,)}, 5: {(3,)}},
    }


def test_the_step_is_a_duration() -> None:
    p = Program("hours", tick="timestamp", step="1 hour")
    i, before = p.input("i", "x long"), p.relation("before", "x long")
    p.rule(before, i, next_tick=True)
    start = int(MORNING.timestamp()) * 1_000_000
    assert p.run({"i": {MORNING: [(1,)]}})["before"] == {start + 3_600_000_000: {(1,)}}
    assert Program("micros", tick="timestamp", step=5).step == 5


def test_a_run_ends_at_the_last_tick() -> None:
    p = Program("clock")
    i, n = p.input("i", "x long"), p.relation("n", "x long")
    p.rule(n, i.union(n.select(x=col("x") + 1)), next_tick=True)
    assert p.run({"i": {0: [(1,)], 9: [(100,)]}}, last=3)["n"] == {1: {(1,)}, 2: {(2,)}, 3: {(3,)}}


def test_facts_are_tuples_dicts_and_tables() -> None:
    p = Program("facts")
    i = p.input("i", "x long, s string")
    p.rule(p.relation("o", i.schema), i)
    given = [(1, "a")], [{"s": "a", "x": 1}], pa.table({"s": ["a"], "x": [1]}), ([1, "a"] for _ in range(2))
    assert [p.run({"i": {0: rows}})["o"] for rows in given] == [{0: {(1, "a")}}] * 4


def test_the_plan_says_where_rules_are_and_in_which_stratum() -> None:
    p = Program("plan", step=2)
    node, down = p.input("node", "x long"), p.input("down", "x long", keep="always")
    up, lost = p.relation("up", "x long"), p.relation("lost", "x long")
    p.rule(up, node.subtract(down))
    p.rule(lost, up, next_tick=True)
    p.rule(lost, node.subtract(up), next_tick=True)
    plan = p.plan()
    assert (plan.name, plan.tick, plan.step) == ("plan", "int64", 2)
    assert {name: (r.keep, r.is_input, r.path, r.stratum) for name, r in plan.relations.items()} == {
        "node": ("tick", True, None, 0),
        "down": ("always", True, None, 0),
        "up": ("tick", False, None, 1),
        "lost": ("tick", False, None, 0),
    }
    assert [(r.head, r.next_tick, r.stratum) for r in plan.rules] == [("up", False, 1), ("lost", True, 1), ("lost", True, 2)]
    assert all(re.fullmatch(r"test_programs\.py:\d+", rule.place) for rule in plan.rules)
    assert p.strata == [["node", "down", "lost"], ["up"], []]
    assert re.sub(r"\(test.*?\)", "(…)", p.explain()).splitlines() == [
        "program plan: ticks of int64, step 2",
        "stratum 0",
        "  input node(x int64), kept for the tick",
        "  input down(x int64), kept always",
        "  relation lost(x int64), kept for the tick",
        "stratum 1",
        "  relation up(x int64), kept for the tick",
        "  up reads node, not down (…); needs all of down, of earlier strata",
        "  lost at the next tick (+2) reads up (…)",
        "stratum 2",
        "  lost at the next tick (+2) reads node, not up (…); needs all of up, of earlier strata",
    ]
    assert p.explain("dot").splitlines() == [
        'digraph "plan" {',
        "  rankdir=LR;",
        '  subgraph cluster_0 { label="stratum 0"; "node" [shape=box]; "down" [shape=box]; "lost" [shape=ellipse]; }',
        '  subgraph cluster_1 { label="stratum 1"; "up" [shape=ellipse]; }',
        '  subgraph cluster_2 { label="stratum 2";  }',
        '  "node" -> "up" [label=""];',
        '  "down" -> "up" [label="not"];',
        '  "up" -> "lost" [label="+2", style=dashed];',
        '  "node" -> "lost" [label="+2", style=dashed];',
        '  "up" -> "lost" [label="not, +2", style=dashed];',
        "}",
    ]


def test_rules_are_functions_of_relations_by_name() -> None:
    p = Program("named")
    p.input("edge", "x long, y long")
    p.relation("twice", "x long, y long")

    @p.rule("twice")
    def two_steps(edge: Rows) -> Rows:
        return edge.meet(edge.select(y="x", z="y"), on="y").select("x", y="z")

    assert p.run({"edge": {0: [(1, 2), (2, 3)]}})["twice"] == {0: {(1, 3)}}
    assert two_steps(Rows(p, p.plan().rules[0].body)).columns == ["x", "y"]  # it is the function itself still
