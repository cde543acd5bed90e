"""Programs as answer sets: the text of a plan for clingo, which finds what the relations of one tick hold.

null is ``#inf``, which clingo orders before all numbers.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import clingo

from strandline.program.expression import Binary, Call, Column, Expression, IsNull, Literal, Not
from strandline.program.plan import (
    Aggregate,
    Distinct,
    Except,
    Fold,
    Map,
    Meet,
    Node,
    ProgramPlan,
    Read,
    Select,
    Top,
    Union,
    Where,
)

Row = tuple[Any, ...]
Vars = dict[str, str]
Case = tuple[list[str], str]
"""Conditions, and the term that is the value where they hold."""

NULL = "#inf"
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def evaluate(plan: ProgramPlan, facts: dict[str, dict[int, list[Row]]], last: int) -> dict[str, dict[int, set[Row]]]:
    """What each relation holds at each active tick until the last; of relations kept always what is new there."""
    text = Text(plan).lines
    kept: dict[str, set[Row]] = {name: set() for name, relation in plan.relations.items() if relation.keep == "always"}
    results: dict[str, dict[int, set[Row]]] = {name: {} for name, relation in plan.relations.items() if not relation.is_input}
    come: dict[int, dict[str, set[Row]]] = defaultdict(lambda: defaultdict(set))
    for name, ticks in facts.items():
        for tick, rows in ticks.items():
            come[tick][name] |= set(rows)
    for tick in range(min(come, default=0), last + 1):
        if not any(come[tick].values()):
            continue
        base = {name: come[tick][name] | kept.get(name, set()) for name in plan.relations}
        now, later = solve([*text, *(f"r_{name}{atom(map(term, row))}." for name, rows in base.items() for row in rows)])
        for name in results:
            new = now[name] - kept.get(name, set())
            if new:
                results[name][tick] = new
        for name in kept:
            kept[name] = now[name]
        for name, rows in later.items():
            come[tick + plan.step][name] |= rows
    return results


def solve(lines: list[str]) -> tuple[dict[str, set[Row]], dict[str, set[Row]]]:
    """The one answer set: rows of relations, and those for the next tick."""
    control = clingo.Control(["--warn=none", "--models=2"])
    control.add("base", [], "\n".join(lines))
    control.ground([("base", [])])
    models: list[list[clingo.Symbol]] = []
    control.solve(on_model=lambda model: models.append(model.symbols(shown=True)))
    assert len(models) == 1, f"{len(models)} answer sets"
    now: dict[str, set[Row]] = defaultdict(set)
    later: dict[str, set[Row]] = defaultdict(set)
    for symbol in models[0]:
        row = tuple(None if a.type == clingo.SymbolType.Infimum else a.number for a in symbol.arguments)
        (later if symbol.name.startswith("next_") else now)[symbol.name.partition("_")[2]].add(row)
    return now, later


def term(value: Any) -> str:
    return NULL if value is None else str(value)


def atom(terms: Iterable[str]) -> str:
    inner = ",".join(terms)
    return f"({inner})" if inner else ""


class Text:
    """The rules of a plan as text: a predicate for each node."""

    def __init__(self, plan: ProgramPlan) -> None:
        self.lines: list[str] = ["#show."]
        self._numbers = itertools.count()
        for name, relation in plan.relations.items():  # so that clingo knows each predicate
            columns = variables(relation.schema.names)
            for predicate in (f"r_{name}", f"next_{name}"):
                self.lines.append(f"#show {predicate}/{len(columns)}.")
                self.add(predicate, columns.values(), [f"never{atom(columns.values())}"])
        for rule in plan.rules:
            columns = variables(rule.body.schema.names)
            body = self.node(rule.body)
            self.add(f"{'next' if rule.next_tick else 'r'}_{rule.head}", columns.values(), [f"{body}{atom(columns.values())}"])

    def add(self, name: str, terms: Iterable[str], body: Iterable[str]) -> None:
        self.lines.append(f"{name}{atom(terms)} :- {', '.join(body)}.")

    def node(self, node: Node) -> str:
        """Add the rules of a node, and return its predicate."""
        below = [self.node(child) for child in node.children]
        name = f"n{next(self._numbers)}"
        names = variables(node.schema.names)
        mine = list(names.values())
        atoms = [f"{p}{atom(variables(c.schema.names).values())}" for p, c in zip(below, node.children, strict=True)]
        match node:
            case Read():
                self.add(name, mine, [f"r_{node.relation}{atom(mine)}"])
            case Select():
                inner = variables(node.child.schema.names)
                for chosen in itertools.product(*(cases(e, inner) for _, e in node.columns)):
                    self.add(name, [t for _, t in chosen], [atoms[0], *(c for conditions, _ in chosen for c in conditions)])
            case Where():
                for conditions in holds(node.condition, names, True):
                    self.add(name, mine, [atoms[0], *conditions])
            case Union() | Distinct():
                for each in below:
                    self.add(name, mine, [f"{each}{atom(mine)}"])
            case Except():
                self.add(name, mine, [atoms[0], f"not {below[1]}{atom(mine)}"])
            case Meet():
                self.meet(node, name, *below)
            case Aggregate():
                self.aggregate(node, name, below[0])
            case Top():
                self.top(node, name, below[0])
            case Map():
                self.lines += node.function.asp(name, below[0])  # type: ignore[attr-defined]
            case Fold():
                [(column, function)] = node.function.asp.items()  # type: ignore[attr-defined]
                result = node.state.names[0]
                self.aggregate(Aggregate(node.child, node.by, ((result, function, column),)), name, below[0])
        return name

    def meet(self, node: Meet, name: str, left: str, right: str) -> None:
        mine, theirs = variables(node.left.schema.names), variables(node.right.schema.names, "W")
        keys = [(mine[a], theirs[b]) for a, b in node.on]
        there = [f"{v} != {NULL}" for v, _ in keys]
        if node.how == "inner":
            same = [f"{v} = {w}" for v, w in keys]
            added = [v for n, v in theirs.items() if n not in {b for _, b in node.on}]
            self.add(
                name, [*mine.values(), *added], [f"{left}{atom(mine.values())}", f"{right}{atom(theirs.values())}", *same, *there]
            )
            return
        self.add(f"k_{name}", [w for _, w in keys], [f"{right}{atom(theirs.values())}", *(f"{w} != {NULL}" for _, w in keys)])
        known = f"k_{name}{atom(v for v, _ in keys)}"
        self.add(name, mine.values(), [f"{left}{atom(mine.values())}", known if node.how == "left_semi" else f"not {known}"])

    def aggregate(self, node: Aggregate, name: str, child: str) -> None:
        columns = variables(node.child.schema.names)
        by = [columns[n] for n in node.by]
        row = [*columns.values()]
        self.add(f"g_{name}", by, [f"{child}{atom(row)}"])
        group = f"g_{name}{atom(by)}"
        results = []
        for number, (_, function, column) in enumerate(node.aggregates):
            own = f"a{number}_{name}"
            weight = columns[column] if column else "1"
            there = [] if column is None else [f"{weight} != {NULL}"]
            inner = {v: v if v in by else f"X{v}" for v in row}  # the group's columns are bound outside
            elements = ",".join(inner.get(v, v) for v in [weight, *row])
            condition = ", ".join([f"{child}{atom(inner.values())}", *(f"{inner.get(weight, weight)} != {NULL}" for _ in there)])
            self.add(f"h_{own}", by, [f"{child}{atom(row)}", *there])
            some = f"h_{own}{atom(by)}"
            self.add(own, [*by, "A"], [group, some, f"A = #{function} {{ {elements} : {condition} }}"])
            self.add(own, [*by, "0" if function == "count" else NULL], [group, f"not {some}"])
            results.append((own, f"A{number}"))
        self.add(name, [*by, *(a for _, a in results)], [group, *(f"{own}{atom([*by, a])}" for own, a in results)])

    def top(self, node: Top, name: str, child: str) -> None:
        mine, other = variables(node.schema.names), variables(node.schema.names, "W")
        ranks = [*node.order, *((n, "asc") for n in node.schema.names if n not in dict(node.order))]
        both = [f"{child}{atom(other.values())}", f"{child}{atom(mine.values())}", *(f"{mine[n]} = {other[n]}" for n in node.by)]
        for at, (column, way) in enumerate(ranks):
            same = [f"{mine[n]} = {other[n]}" for n, _ in ranks[:at]]
            first = f"{other[column]} {'<' if way == 'asc' else '>'} {mine[column]}"
            self.add(f"b_{name}", [*other.values(), *mine.values()], [*both, *same, first])
        before = f"b_{name}{atom([*other.values(), *mine.values()])}"
        self.add(
            name,
            mine.values(),
            [f"{child}{atom(mine.values())}", f"#count {{ {','.join(other.values())} : {before} }} < {node.k}"],
        )


def variables(names: Iterable[str], letter: str = "V") -> Vars:
    return {name: f"{letter}{number}" for number, name in enumerate(names)}


def cases(expression: Expression, names: Vars) -> list[Case]:
    """The cases of a value, of which one holds for each row."""
    match expression:
        case Column():
            return [([], names[expression.name])]
        case Literal():
            return [([], term(expression.value))]
        case Call(function="abs"):
            parts = [numeric(conditions, [a]) for conditions, a in cases(expression.args[0], names)]
            return [
                c
                for (_, a), (some, none) in zip(cases(expression.args[0], names), parts, strict=True)
                for c in ((some, f"|{a}|"), *((n, NULL) for n in none))
            ]
        case Call():
            a, b = (cases(arg, names) for arg in expression.args)
            return [
                case for (ca, ta), (cb, tb) in itertools.product(a, b) for case in choose(expression.function, [*ca, *cb], ta, tb)
            ]
        case Binary():
            a, b = cases(expression.left, names), cases(expression.right, names)
            found: list[Case] = []
            for (ca, ta), (cb, tb) in itertools.product(a, b):
                some, none = numeric([*ca, *cb], [ta, tb])
                found += [(some, f"({ta} {expression.op} {tb})"), *((n, NULL) for n in none)]
            return found
    raise TypeError(expression)


def numeric(conditions: list[str], terms: list[str]) -> tuple[list[str], list[list[str]]]:
    """The conditions under which no term is null, and those under which one is: the first, or the first that is."""
    none = []
    for at, each in enumerate(terms):
        none.append([*conditions, *(f"{before} != {NULL}" for before in terms[:at]), f"{each} = {NULL}"])
    return [*conditions, *(f"{each} != {NULL}" for each in terms)], none


def choose(function: str, conditions: list[str], a: str, b: str) -> list[Case]:
    no_a, no_b, both = [f"{a} = {NULL}"], [f"{a} != {NULL}", f"{b} = {NULL}"], [f"{a} != {NULL}", f"{b} != {NULL}"]
    found: list[Case] = [([*conditions, *no_a], b), ([*conditions, *no_b], a)]
    if function == "coalesce":
        return [*found, ([*conditions, *both], a)]
    op, other = ("<=", ">") if function == "least" else (">=", "<")
    return [*found, ([*conditions, *both, f"{a} {op} {b}"], a), ([*conditions, *both, f"{a} {other} {b}"], b)]


def holds(condition: Expression, names: Vars, truth: bool) -> list[list[str]]:
    """Alternatives, each a list of conditions, under which a condition is true, or false."""
    match condition:
        case Not():
            return holds(condition.operand, names, not truth)
        case IsNull():
            return [[*c, f"{t} {'=' if truth else '!='} {NULL}"] for c, t in cases(condition.operand, names)]
        case Binary(op="and" | "or"):
            left, right = holds(condition.left, names, truth), holds(condition.right, names, truth)
            if (condition.op == "or") == truth:
                return left + right
            return [a + b for a, b in itertools.product(left, right)]
        case Binary():
            op = condition.op if truth else OPPOSITE[condition.op]
            found = []
            for (ca, ta), (cb, tb) in itertools.product(cases(condition.left, names), cases(condition.right, names)):
                found.append([*ca, *cb, f"{ta} != {NULL}", f"{tb} != {NULL}", f"{ta} {'=' if op == '==' else op} {tb}"])
            return found
    raise TypeError(condition)
