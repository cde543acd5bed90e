"""Everything that programs refuse: by name, with the place where it was written."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from strandline.channel import Channel
from strandline.errors import ChannelError, ProgramError
from strandline.program import Program, Rows, col, lit
from strandline.program.plan import Read
from strandline.time.arrow import time_field
from strandline.time.domain import int64, timestamp


def known() -> Program:
    """Two inputs and two relations; ``all`` is kept always."""
    p = Program("known")
    for name in ("in", "other"):
        p.input(name, "x long, y long, s string")
    p.relation("out", "x long")
    p.relation("all", "x long", keep="always")
    return p


def rows(p: Program, name: str) -> Rows:
    return Rows(p, Read(name, p.plan().relations[name].schema))


def rule(head: str, made: Callable[[Program, Rows], Any], **options: Any) -> Callable[[Program, Rows], Any]:
    return lambda p, i: p.rule(head, made(p, i), **options)


def tick_rows(p: Program, i: Rows) -> Rows:
    return rows(p, "out")


Refused = tuple[str, str, Callable[[Program, Rows], Any]]
"""The condition, a part of the text, and what is refused, given a program and the rows of its input."""

REFUSED: list[Refused] = [
    ("NAME_TWICE", "'in' is taken by 'in'", lambda p, i: p.input("in", "x long")),
    ("NAME_TWICE", "'IN' is taken by 'in'", lambda p, i: p.relation("IN", "x long")),
    ("INVALID", "'1x' is not a name", lambda p, i: p.input("1x", "x long")),
    ("INVALID", "3 is not a name", lambda p, i: p.relation(3, "x long")),  # type: ignore[arg-type]
    ("INVALID", "'a b' is not a name", lambda p, i: Program("a b")),
    ("INVALID", "'forever' to keep", lambda p, i: p.input("new", "x long", keep="forever")),  # type: ignore[arg-type]
    ("INVALID", "'float' is no domain of ticks", lambda p, i: Program("p", tick="float")),
    ("INVALID", "'lex(a, b)' is no domain of ticks", lambda p, i: Program("p", tick="lex(a, b)")),
    ("INVALID", "step 0 does not", lambda p, i: Program("p", step=0)),
    ("INVALID", "step True does not", lambda p, i: Program("p", step=True)),
    ("INVALID", "step '1 hour' does not", lambda p, i: Program("p", step="1 hour")),
    ("INVALID", "step '5 tides' does not", lambda p, i: Program("p", tick="timestamp", step="5 tides")),
    ("SCHEMA_INVALID", "'b long long' in 'a long", lambda p, i: p.relation("new", "a long, b long long")),
    ("SCHEMA_INVALID", "'b long long' in", lambda p, i: p.input("new", "a long, b long long")),
    ("SCHEMA_INVALID", "'a' has the type int.", lambda p, i: p.input("new", "a int")),
    ("SCHEMA_INVALID", "'a' has the type int32", lambda p, i: p.input("new", pa.schema([("a", pa.int32())]))),
    ("SCHEMA_INVALID", "timestamp[us]", lambda p, i: p.input("new", pa.schema([("a", pa.timestamp("us"))]))),
    ("SCHEMA_INVALID", "no column", lambda p, i: p.input("new", pa.schema([]))),
    ("SCHEMA_INVALID", "'a' and 'A'", lambda p, i: p.input("new", "a long, A long")),
    ("SCHEMA_INVALID", "not nullable", lambda p, i: p.input("new", pa.schema([pa.field("a", pa.int64(), nullable=False)]))),
    ("SCHEMA_INVALID", "['a'] is not a schema", lambda p, i: p.relation("new", ["a"])),  # type: ignore[arg-type]
    ("UNKNOWN_RELATION", "no relation 'nobody'", rule("nobody", lambda p, i: i)),
    ("UNKNOWN_RELATION", "no relation 'nobody'", lambda p, i: p.rule("out")(lambda nobody: nobody)),
    ("HEAD_IS_INPUT", "'in', which is an input", rule("in", lambda p, i: i)),
    ("HEAD_IS_INPUT", "'in', which is an input", lambda p, i: p.rule(i, i)),
    ("INVALID", "not a relation but what follows", lambda p, i: p.rule(i.select("x"), i.select("x"))),
    ("INVALID", "is not a plain one", lambda p, i: p.rule("out")(lambda *all: all[0])),
    ("INVALID", "None is not a set of rows", lambda p, i: p.rule("out")(lambda other: None)),
    ("COLUMNS_DIFFER", "'out' has the columns (x int64), but the rule gives (y int64)", rule("out", lambda p, i: i.select("y"))),
    ("COLUMNS_DIFFER", "but the rule gives (x string)", rule("out", lambda p, i: i.select(x="s"))),
    ("COLUMNS_DIFFER", "but the rule gives (x int64, y int64)", rule("out", lambda p, i: i.select("x", "y"))),
    ("COLUMNS_DIFFER", "union of rows", lambda p, i: i.union(i.select("y"))),
    ("COLUMNS_DIFFER", "subtract of rows", lambda p, i: i.select("x", "y").subtract(i.select("y", "x"))),
    ("COLUMNS_TWICE", "two columns x", lambda p, i: i.select("x", x="y")),
    ("COLUMNS_TWICE", "two columns s, y", lambda p, i: i.meet(rows(p, "other"), on="x")),
    ("COLUMNS_TWICE", "two columns x", lambda p, i: i.group_by("x").agg(x=("count", None))),
    ("COLUMNS_TWICE", "two columns x", lambda p, i: i.group_by("x", "x").agg()),
    ("COLUMNS_TWICE", "two columns x", lambda p, i: i.top(1, ["x", "x"])),
    ("COLUMNS_TWICE", "two columns x", lambda p, i: i.group_by("x").fold(dict, {"x": 0}, "x long")),
    ("UNKNOWN_COLUMN", "no column 'z'. The columns are x, y, s.", lambda p, i: i.select("z")),
    ("UNKNOWN_COLUMN", "'z'", lambda p, i: i.select(x=col("x") + col("z"))),
    ("UNKNOWN_COLUMN", "'z'", lambda p, i: i.where(col("z").is_null())),
    ("UNKNOWN_COLUMN", "'z'", lambda p, i: i.meet(i, on={"x": "z"})),
    ("UNKNOWN_COLUMN", "'z'", lambda p, i: i.meet(i, on={"z": "x"})),
    ("UNKNOWN_COLUMN", "'z'", lambda p, i: i.group_by("z").agg(n=("count", None))),
    ("UNKNOWN_COLUMN", "'z'", lambda p, i: i.group_by("x").agg(n=("sum", "z"))),
    ("UNKNOWN_COLUMN", "'z'", lambda p, i: i.group_by("z").fold(dict, {"n": 0}, "n long")),
    ("UNKNOWN_COLUMN", "'z'", lambda p, i: i.top(1, "x", {"z": "asc"})),
    ("FOREIGN_RELATION", "another program 'known' are used in 'p'", lambda p, i: Program("p").relation("r", "x long").union(i)),
    ("FOREIGN_RELATION", "'known'", lambda p, i: p.rule("out", known().relation("r", "x long"))),
    ("FOREIGN_RELATION", "'known'", lambda p, i: p.rule(known().relation("r", "x long"), i.select("x"))),
    ("INVALID", "3 is not a set of rows", lambda p, i: i.union(3)),
    ("EXPRESSION_INVALID", "not defined over string, int64", lambda p, i: i.select(x=col("s") + 1)),
    ("EXPRESSION_INVALID", "(s == 1) is not defined over string, int64", lambda p, i: i.where(col("s") == 1)),
    ("EXPRESSION_INVALID", "(x and y) is not defined over int64, int64", lambda p, i: i.where(col("x") & col("y"))),
    ("EXPRESSION_INVALID", "not x is not defined over int64", lambda p, i: i.where(~col("x"))),
    ("EXPRESSION_INVALID", "abs(s) is not defined over string", lambda p, i: i.select(x=col("s").abs())),
    ("EXPRESSION_INVALID", "The condition x is of int64", lambda p, i: i.where(col("x"))),
    ("EXPRESSION_INVALID", "no truth value", lambda p, i: i.where(col("x") == 1 and col("y") == 2)),
    ("EXPRESSION_INVALID", "3 is not an expression", lambda p, i: i.select(x=3)),  # type: ignore[arg-type]
    ("EXPRESSION_INVALID", "'x > 3' is not an expression", lambda p, i: i.where("x > 3")),  # type: ignore[arg-type]
    ("EXPRESSION_INVALID", "None is no value of a column", lambda p, i: i.select(x=lit(None))),
    ("EXPRESSION_INVALID", "is no value of a column", lambda p, i: i.select(x=lit(1 << 63))),
    ("EXPRESSION_INVALID", "is no value of a column", lambda p, i: i.select(x=lit(datetime(2026, 1, 1)))),
    ("EXPRESSION_INVALID", "is no value of a column", lambda p, i: i.where(col("s") == "\ud800")),
    ("INVALID", "no aggregate 'avg'", lambda p, i: i.group_by("x").agg(n=("avg", "y"))),
    ("INVALID", "no aggregate 'sum' of None", lambda p, i: i.group_by("x").agg(n=("sum", None))),
    ("INVALID", "no aggregate 'n' of 'count'", lambda p, i: i.group_by("x").agg(n="count")),  # type: ignore[arg-type]
    ("INVALID", "'s' is of string, which has no sum", lambda p, i: i.group_by("x").agg(n=("sum", "s"))),
    ("INVALID", "no way 'outer' to meet", lambda p, i: i.meet(i, on="x", how="outer")),  # type: ignore[arg-type]
    ("INVALID", "'x' is of int64, but 's' of string", lambda p, i: i.meet(i, on={"x": "s"})),
    ("INVALID", "top takes 0 rows", lambda p, i: i.top(0)),
    ("INVALID", "'x' cannot be in the order 'up'", lambda p, i: i.top(1, "x", {"x": "up"})),  # type: ignore[dict-item]
    ("INVALID", "3 is not a function", lambda p, i: i.map(3, "x long")),  # type: ignore[arg-type]
    ("INVALID", "The first state of a fold is wrong", lambda p, i: i.group_by("x").fold(dict, {}, "n long")),
    ("INVALID", "explanation in the form 'svg'", lambda p, i: p.explain("svg")),  # type: ignore[arg-type]
    ("ALWAYS_INVALID", "needs all of 'in' (not)", rule("all", lambda p, i: i.subtract(i).select("x"))),
    ("ALWAYS_INVALID", "needs all of 'in' (aggregate)", rule("all", lambda p, i: i.group_by("x").agg())),
    ("ALWAYS_INVALID", "needs all of 'in' (top)", rule("all", lambda p, i: i.select("x").top(1))),
    ("ALWAYS_INVALID", "(fold)", rule("all", lambda p, i: i.group_by("x").fold(dict, {"n": 0}, "n long").select("x"))),
    ("ALWAYS_INVALID", "reads 'out', which is kept for the tick", rule("all", tick_rows)),
    ("ALWAYS_INVALID", "at the next tick", rule("all", lambda p, i: i.select("x"), next_tick=True)),
]


@pytest.mark.parametrize(("condition", "text", "call"), REFUSED, ids=[f"{c} {t}" for c, t, _ in REFUSED])
def test_a_refusal_says_what_and_where(condition: str, text: str, call: Callable[[Program, Rows], Any]) -> None:
    p = known()
    with pytest.raises(ProgramError) as refused:
        call(p, rows(p, "in"))
    assert refused.value.condition == f"STRANDLINE_PROGRAM_{condition}"
    assert text in str(refused.value)
    assert refused.value.remedy
    line = re.match(r"test_refusals\.py:(\d+): ", refused.value.what)
    assert line
    written = Path(__file__).read_text().splitlines()[int(line.group(1)) - 1]
    assert re.search(r"\b[pi]\.|Program\(|col\(|made\(", written)


def test_a_program_is_as_it_was_after_a_refusal() -> None:
    p = known()
    before = p.explain()
    for _, _, call in REFUSED:
        with pytest.raises(ProgramError):
            call(p, rows(p, "in"))
    assert p.explain() == before


def test_no_strata() -> None:
    p = known()
    out, other = rows(p, "out"), p.relation("b", "x long")
    p.rule(out, rows(p, "in").select("x").subtract(other))
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    p.rule(other, out.where(col("x") > 1))
    with pytest.raises(ProgramError) as refused:
        p.strata  # noqa: B018
    error = refused.value
    assert error.condition == "STRANDLINE_PROGRAM_UNSTRATIFIABLE"
    assert error.loop == (("out", "not", "b"), ("b", "", "out"))
    assert f"test_refusals.py:{line}: The rule for 'out' needs all of 'b' (not)" in error.what
    assert "out -> not b -> out" in error.what
    assert "give this rule for 'out' next_tick=True" in error.remedy


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"out": {0: [(1,)]}}, "'out' is not an input of the program. Give rows of in, other."),
        ({"in": {0: [(1, 2)]}}, "(1, 2) has 2 values, but there are the columns x, y, s"),
        ({"in": {0: [{"x": 1, "y": 2}]}}, "has other columns than x, y, s"),
        ({"in": {0: [7]}}, "7 is neither a mapping nor a tuple"),
        ({"in": {0: [(1, "2", "3")]}}, "column 'y' has the value '2', but its type is int64"),
        ({"in": {0: [(1, True, "3")]}}, "column 'y' has the value True"),
        ({"in": {0: [(1, 1 << 63, "3")]}}, "column 'y' has the value 9223372036854775808"),
        ({"in": {0: pa.table({"x": [1.5], "y": [1], "s": [""]})}}, "column 'x' has the value 1.5"),
    ],
)
def test_rows_that_do_not_fit(facts: Any, text: str) -> None:
    with pytest.raises(ProgramError) as refused:
        known().run(facts)
    assert refused.value.condition == "STRANDLINE_PROGRAM_ROWS_INVALID"
    assert text in str(refused.value)


@pytest.mark.parametrize("result", [{"n": 1}, {"n": "x", "x": 1.5}, 5, {"x": 1, "n": 1.5}])
def test_results_of_functions_that_do_not_fit(result: Any) -> None:
    for made in (
        lambda i: i.map(lambda row: [result], "x long, n string").select("x"),
        lambda i: i.group_by().fold(lambda state, row: result, {"x": 0, "n": ""}, "x long, n string").select("x"),
    ):
        p = known()
        p.rule("out", made(rows(p, "in")))
        with pytest.raises(ProgramError, match="STRANDLINE_PROGRAM_ROWS_INVALID.*test_refusals.py"):
            p.run({"in": {0: [(1, 2, "3")]}})


def test_beyond_64_bits() -> None:
    most = (1 << 63) - 1
    for value in (col("x") + 1, lit(-2) - col("x"), col("x") * 2, lit(-1) - col("x"), (lit(-1) - col("x")).abs()):
        p = known()
        p.rule("out", rows(p, "in").select(x=value))
        if value is not None and repr(value) == "(-1 - x)":
            assert p.run({"in": {0: [(most, 0, "")]}})["out"] == {0: {(-most - 1,)}}
            continue
        with pytest.raises(ProgramError, match="STRANDLINE_PROGRAM_OVERFLOW.*exceeds 64 bits"):
            p.run({"in": {0: [(most, 0, "")]}})
    p = known()
    p.rule("out", rows(p, "in").group_by().agg(x=("sum", "x")))
    assert p.run({"in": {0: [(most, 0, ""), (1, 0, ""), (-1, 1, "")]}})["out"] == {0: {(most,)}}
    with pytest.raises(ProgramError, match="STRANDLINE_PROGRAM_OVERFLOW.*The sum x exceeds 64 bits"):
        p.run({"in": {0: [(most, 0, ""), (1, 0, "")]}})


def test_no_tick_comes_after_the_last_one() -> None:
    p = Program("end", tick="int8")
    i, out = p.input("in", "x long"), p.relation("out", "x long")
    p.rule(out, i.union(out), next_tick=True)
    assert p.run({"in": {120: [(1,)]}}, last=122)["out"] == {121: {(1,)}, 122: {(1,)}}
    with pytest.raises(ProgramError, match="STRANDLINE_PROGRAM_OVERFLOW.*No tick comes 1 after 127"):
        p.run({"in": {120: [(1,)]}})


def test_channels_of_other_times_and_types(tmp_path: Path) -> None:
    schema = pa.schema([time_field("day", int64), ("n", pa.int64())])
    Channel.create(tmp_path / "days", schema, producers=["a"], at=0)
    Channel.create(tmp_path / "moments", pa.schema([time_field("at", timestamp), ("n", pa.int32())]), producers=["a"], at=0)
    p = Program("channels")
    assert p.input("days", str(tmp_path / "days")).columns == ["n"]
    assert p.plan().relations["days"].path == str(tmp_path / "days")
    assert p.input("same", tmp_path / "days").columns == ["n"]
    with pytest.raises(ProgramError, match="are of timestamp, but the program's ticks are of int64"):
        p.input("moments", str(tmp_path / "moments"))
    with pytest.raises(ProgramError, match="Column 'n' has the type int32"):
        Program("moments", tick="timestamp", step="1 hour").input("moments", str(tmp_path / "moments"))
    with pytest.raises(ChannelError):
        p.input("nothing", str(tmp_path / "nothing"))
