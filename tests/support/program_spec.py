"""What a program means, computed naively: the specification with which runs of programs are compared.

It shares no code with the product but the plan's classes. Strata are the components of the graph of relations, by networkx.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import networkx as nx

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
    RulePlan,
    Select,
    Top,
    Union,
    Where,
)

Row = tuple[Any, ...]
Env = dict[str, set[Row]]


def reads(node: Node, whole: bool = False) -> Iterator[tuple[str, bool]]:
    """Each relation that a body reads, and whether something must see the whole of it."""
    if isinstance(node, Read):
        yield node.relation, whole
    elif isinstance(node, Union):
        for child in node.children:
            yield from reads(child, whole)
    elif isinstance(node, (Meet, Except)):
        yield from reads(node.left, whole)
        yield from reads(node.right, whole or isinstance(node, Except) or node.how == "left_anti")
    else:
        yield from reads(node.child, whole or isinstance(node, (Aggregate, Top, Fold)))  # type: ignore[attr-defined]


def graph(rules: Iterable[tuple[str, Node, bool]]) -> nx.MultiDiGraph:
    """Edges from what is read to the head, within a tick."""
    found = nx.MultiDiGraph()
    for head, body, next_tick in rules:
        for relation, whole in reads(body):
            if not next_tick:
                found.add_edge(relation, head, whole=whole)
    return found


def is_stratifiable(rules: Iterable[tuple[str, Node, bool]]) -> bool:
    """No edge that needs the whole of a relation is within a component."""
    edges = graph(rules)
    component = {name: number for number, names in enumerate(nx.strongly_connected_components(edges)) for name in names}
    return not any(whole and component[a] == component[b] for a, b, whole in edges.edges(data="whole"))


def depths(rules: Iterable[tuple[str, Node, bool]], names: Iterable[str]) -> dict[str, int]:
    """The most edges that need the whole of a relation on any path to each relation: its stratum, at least."""
    edges = graph(rules)
    edges.add_nodes_from(names)
    components = nx.condensation(edges)
    of: dict[int, int] = {}
    for number in nx.topological_sort(components):
        members = components.nodes[number]["members"]
        of[number] = max(
            (
                of[components.graph["mapping"][a]] + whole
                for b in members
                for a, _, whole in edges.in_edges(b, data="whole")
                if a not in members
            ),
            default=0,
        )
    return {name: of[number] for name, number in components.graph["mapping"].items()}


def evaluate(plan: ProgramPlan, facts: dict[str, dict[int, list[Row]]], last: int) -> dict[str, dict[int, set[Row]]]:
    """What each relation holds at each active tick until the last; of relations kept always what is new there."""
    carried: dict[int, Env] = defaultdict(lambda: defaultdict(set))
    kept: Env = {name: set() for name, relation in plan.relations.items() if relation.keep == "always"}
    results: dict[str, dict[int, set[Row]]] = {name: {} for name, relation in plan.relations.items() if not relation.is_input}
    come: dict[int, Env] = defaultdict(lambda: defaultdict(set))
    for name, ticks in facts.items():
        for tick, rows in ticks.items():
            come[tick][name] |= set(rows)
    for tick in itertools.count(min([tick for tick in come if any(come[tick].values())], default=0)):
        if tick > last:
            return results
        base = {name: come[tick][name] | carried[tick][name] for name in plan.relations}
        if not any(base.values()):
            continue
        env = {name: rows | kept.get(name, set()) for name, rows in base.items()}
        within_tick(plan, env)
        for name in results:
            new = env[name] - kept.get(name, set())
            if new:
                results[name][tick] = new
        for name in kept:
            kept[name] = env[name]
        for rule in plan.rules:
            if rule.next_tick:
                carried[tick + plan.step][rule.head] |= value(rule.body, env)
    raise AssertionError


def within_tick(plan: ProgramPlan, env: Env) -> None:
    """Component after component, each to its fixed point."""
    rules: dict[str, list[RulePlan]] = defaultdict(list)
    for rule in plan.rules:
        if not rule.next_tick:
            rules[rule.head].append(rule)
    edges = graph((rule.head, rule.body, rule.next_tick) for rule in plan.rules)
    components = nx.condensation(edges)
    for number in nx.topological_sort(components):
        members = components.nodes[number]["members"]
        before = None
        while before != (before := sum(len(env[name]) for name in members)):
            for name in members:
                for rule in rules[name]:
                    env[name] = env[name] | value(rule.body, env)


def value(node: Node, env: Env) -> set[Row]:
    names = {node: node.schema.names for node in node.children}
    below = [value(child, env) for child in node.children]
    match node:
        case Read():
            return env[node.relation]
        case Select():
            return {tuple(of(e, dict(zip(names[node.child], row, strict=True))) for _, e in node.columns) for row in below[0]}
        case Where():
            return {row for row in below[0] if of(node.condition, dict(zip(names[node.child], row, strict=True))) is True}
        case Union():
            return set().union(*below)
        case Distinct():
            return below[0]
        case Map():
            made = [node.function(dict(zip(names[node.child], row, strict=True))) for row in below[0]]
            return {tuple(new[name] for name in node.schema.names) for rows in made for new in rows}
        case Except():
            return below[0] - below[1]
        case Meet():
            return meet(node, *below)
        case Aggregate() | Top() | Fold():
            groups = defaultdict(list)
            for row in below[0]:
                groups[tuple(row[names[node.child].index(name)] for name in node.by)].append(row)
            return {new for key, group in groups.items() for new in of_group(node, key, group)}
    raise TypeError(node)


def meet(node: Meet, lefts: set[Row], rights: set[Row]) -> set[Row]:
    left, right = node.left.schema.names, node.right.schema.names
    found = set()
    for row in lefts:
        mine = dict(zip(left, row, strict=True))
        those = [dict(zip(right, other, strict=True)) for other in rights]
        those = [other for other in those if all(mine[a] is not None and mine[a] == other[b] for a, b in node.on)]
        if node.how == "inner":
            keys = {b for _, b in node.on}
            found |= {row + tuple(v for name, v in other.items() if name not in keys) for other in those}
        elif bool(those) == (node.how == "left_semi"):
            found.add(row)
    return found


def nulls_first(row: Iterable[Any]) -> list[tuple[bool, Any]]:
    return [(v is not None, v or 0) for v in row]


def of_group(node: Aggregate | Top | Fold, key: Row, group: list[Row]) -> list[Row]:
    names = node.child.schema.names
    group = sorted(group, key=nulls_first)
    if isinstance(node, Top):
        for name, way in reversed(node.order):
            group = sorted(group, key=lambda row: nulls_first([row[names.index(name)]]), reverse=way == "desc")
        return group[: node.k]
    if isinstance(node, Fold):
        state = dict(node.initial)
        for row in group:
            state = dict(node.function(state, dict(zip(names, row, strict=True))))
        return [key + tuple(state[name] for name in node.state.names)]
    found: list[Any] = []
    for _, function, column in node.aggregates:
        values = [1 if column is None else row[names.index(column)] for row in group]
        values = [v for v in values if v is not None]
        functions: dict[str, Any] = {"count": len, "sum": sum, "min": min, "max": max}
        found.append(functions[function](values) if values or function == "count" else None)
    return [key + tuple(found)]


def of(expression: Expression, row: dict[str, Any]) -> Any:
    match expression:
        case Column():
            return row[expression.name]
        case Literal():
            return expression.value
        case Not():
            return None if (inner := of(expression.operand, row)) is None else not inner
        case IsNull():
            return of(expression.operand, row) is None
        case Call():
            present = [v for v in (of(arg, row) for arg in expression.args) if v is not None]
            if not present:
                return None
            if expression.function == "coalesce":
                return present[0]
            return {"abs": lambda v: abs(v[0]), "least": min, "greatest": max}[expression.function](present)
        case Binary():
            a, b = of(expression.left, row), of(expression.right, row)
            if expression.op == "and":
                return False if a is False or b is False else None if a is None or b is None else True
            if expression.op == "or":
                return True if a is True or b is True else None if a is None or b is None else False
            if a is None or b is None:
                return None
            table = {"+": a + b, "-": a - b, "*": a * b, "==": a == b, "!=": a != b}
            return (table | {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b})[expression.op]
    raise TypeError(expression)
