"""Random programs over small integers, with facts: relations of one or two columns, and rules with every node of a plan.

A draft need not have strata. :func:`mended` gives the rules that stand in the way ``next_tick``, as the errors say.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from program_spec import is_stratifiable, reads
from strandline.errors import ProgramError
from strandline.program import Program, Rows, col
from strandline.program.expression import Expression, coalesce, expression, greatest, least
from strandline.program.plan import How, Keep, Node, Read
from strandline.program.schema import parse_ddl

Row = tuple[Any, ...]
COLUMNS = ("a", "b")
MOST = 4
"""Values are 0 to this, or null."""
LAST = 6
"""The last tick."""


@dataclass(frozen=True)
class Relation:
    name: str
    width: int
    keep: Keep
    is_input: bool

    @property
    def schema(self) -> str:
        return ", ".join(f"{name} long" for name in COLUMNS[: self.width])


@dataclass(frozen=True)
class Rule:
    head: str
    body: Node
    next_tick: bool


@dataclass(frozen=True)
class Draft:
    """A program that may have no strata, and facts for it."""

    step: int
    relations: tuple[Relation, ...]
    rules: tuple[Rule, ...]
    facts: Mapping[str, Mapping[int, list[Row]]]

    def build(self) -> Program:
        program = Program("drawn", step=self.step)
        named(program, self.relations)
        for rule in self.rules:
            program.rule(rule.head, Rows(program, rule.body), next_tick=rule.next_tick)
        return program

    @property
    def plain_rules(self) -> list[tuple[str, Node, bool]]:
        return [(rule.head, rule.body, rule.next_tick) for rule in self.rules]


def named(program: Program, relations: Iterable[Relation]) -> dict[str, Rows]:
    return {
        each.name: (program.input if each.is_input else program.relation)(each.name, each.schema, each.keep) for each in relations
    }


def mended(draft: Draft) -> tuple[Draft, list[ProgramError]]:
    """A draft with strata, and the errors on the way. Each error's loop is checked against the rules."""
    found: list[ProgramError] = []
    while (error := refusal(draft)) is not None:
        assert not is_stratifiable(draft.plain_rules), error
        check_loop(draft, error)
        found.append(error)
        head, _, relation = error.loop[0]
        at = next(
            at
            for at, rule in enumerate(draft.rules)
            if not rule.next_tick and rule.head == head and (relation, True) in set(reads(rule.body))
        )
        draft = replace(draft, rules=(*draft.rules[:at], replace(draft.rules[at], next_tick=True), *draft.rules[at + 1 :]))
    assert is_stratifiable(draft.plain_rules)
    return draft, found


def refusal(draft: Draft) -> ProgramError | None:
    """Why a draft has no strata."""
    program = draft.build()
    try:
        program.plan()
    except ProgramError as error:
        return error
    return None


def check_loop(draft: Draft, error: ProgramError) -> None:
    """The loop is closed, each edge is one of a rule of the same tick, and the first needs the whole of what it reads."""
    edges = {(rule.head, *edge) for rule in draft.rules if not rule.next_tick for edge in reads(rule.body)}
    assert error.condition == "STRANDLINE_PROGRAM_UNSTRATIFIABLE"
    assert error.loop[0][1]
    for (head, word, relation), (following, _, _) in zip(error.loop, (*error.loop[1:], error.loop[0]), strict=True):
        assert (head, relation, bool(word)) in edges, error
        assert relation == following
    drawn = " -> ".join([error.loop[0][0], *(f"{word} {relation}".strip() for _, word, relation in error.loop)])
    assert f": {drawn}. " in str(error)


class Swap:
    """A function of rows that answer sets know too: each row as it is, and turned round."""

    def __call__(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        return [row, {"a": row["b"], "b": row["a"]}]

    def asp(self, name: str, child: str) -> list[str]:
        return [f"{name}(V0,V1) :- {child}(V0,V1).", f"{name}(V1,V0) :- {child}(V0,V1)."]


class Counted:
    """A fold that counts."""

    asp: Mapping[str | None, str] = {None: "count"}

    def __call__(self, state: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        return {"b": state["b"] + 1}


class Largest:
    """A fold that keeps the largest value of ``b``."""

    asp: Mapping[str | None, str] = {"b": "max"}

    def __call__(self, state: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        return {"b": row["b"] if state["b"] is None or (row["b"] or 0) > state["b"] else state["b"]}


def draw(seed: int) -> Draft:
    """The draft of a seed."""
    numbers = random.Random(seed)
    inputs = [
        Relation(f"in{i}", numbers.choice((1, 2, 2)), numbers.choice(("tick", "tick", "always")), True)
        for i in range(numbers.randint(1, 3))
    ]
    relations = [
        Relation(f"r{i}", numbers.choice((1, 2, 2)), numbers.choice(("tick", "tick", "always")), False)
        for i in range(numbers.randint(1, 6))
    ]
    program = Program("drawn")
    named(program, [*inputs, *relations])
    rules = []
    for _ in range(numbers.randint(1, 8)):
        head = numbers.choice(relations)
        always = head.keep == "always"
        sources = [*inputs, *(r for r in relations if not always or r.keep == "always")]
        bodies = Bodies(numbers, program, sources, monotone=always)
        body = bodies.rows(COLUMNS[: head.width], numbers.randint(0, 3))
        rules.append(Rule(head.name, body.node, not always and numbers.random() < 0.2))
    facts = {
        each.name: {
            tick: [row(numbers, each.width) for _ in range(numbers.randint(0, 4))] for tick in range(4) if numbers.random() < 0.6
        }
        for each in inputs
    }
    return Draft(numbers.choice((1, 1, 2)), (*inputs, *relations), tuple(rules), facts)


def row(numbers: random.Random, width: int) -> Row:
    return tuple(None if numbers.random() < 0.1 else numbers.randint(0, MOST) for _ in range(width))


class Bodies:
    """Draws bodies of rules."""

    def __init__(self, numbers: random.Random, program: Program, sources: list[Relation], *, monotone: bool) -> None:
        self.numbers, self.program, self.sources = numbers, program, sources
        self.kinds = [self.where, self.union, self.distinct, self.map, self.inner, self.inner, self.semi]
        if not monotone:
            self.kinds += [self.anti, self.subtract, self.aggregate, self.top, self.fold]

    def rows(self, names: tuple[str, ...], depth: int) -> Rows:
        """Rows with these columns."""
        if depth == 0:
            return self.read(names)
        return self.numbers.choice(self.kinds)(names, depth - 1)

    def read(self, names: tuple[str, ...]) -> Rows:
        source = self.numbers.choice(self.sources)
        rows = Rows(self.program, Read(source.name, parse_ddl(source.schema)))
        if names == COLUMNS[: source.width] and self.numbers.random() < 0.5:
            return rows
        return rows.select(**{name: self.value(rows.columns) for name in names})

    def where(self, names: tuple[str, ...], depth: int) -> Rows:
        return self.rows(names, depth).where(self.condition(names, 2))

    def union(self, names: tuple[str, ...], depth: int) -> Rows:
        return self.rows(names, depth).union(self.rows(names, depth))

    def distinct(self, names: tuple[str, ...], depth: int) -> Rows:
        return self.rows(names, depth).distinct()

    def map(self, names: tuple[str, ...], depth: int) -> Rows:
        return self.narrowed(self.rows(COLUMNS, depth).map(Swap(), "a long, b long"), names)

    def inner(self, names: tuple[str, ...], depth: int) -> Rows:
        left = self.rows(COLUMNS, depth)
        right = self.rows(COLUMNS, min(depth, 1)).select(c="a", d="b")
        on = self.numbers.choice(({"b": "c"}, {"a": "c"}, {"a": "c", "b": "d"}, {"b": "c"}, {}))
        return self.narrowed(left.meet(right, on=on), names)

    def semi(self, names: tuple[str, ...], depth: int, how: How = "left_semi") -> Rows:
        left, right = self.rows(names, depth), self.rows(COLUMNS, depth)
        on = self.numbers.choice(({"a": "a"}, {"a": "b"}, {names[-1]: "b"}, {}))
        return left.meet(right, on=on, how=how)

    def anti(self, names: tuple[str, ...], depth: int) -> Rows:
        return self.semi(names, depth, "left_anti")

    def subtract(self, names: tuple[str, ...], depth: int) -> Rows:
        return self.rows(names, depth).subtract(self.rows(names, depth))

    def aggregate(self, names: tuple[str, ...], depth: int) -> Rows:
        groups = self.rows(COLUMNS, depth).group_by(*self.numbers.choice((("a",), ("a",), ("a", "b"), ())))
        functions = [(f, c) for f in ("count", "sum", "min", "max") for c in COLUMNS] + [("count", None)]
        drawn = groups.agg(c=self.numbers.choice(functions), d=self.numbers.choice(functions))  # type: ignore[arg-type]
        return drawn.select(**{name: least(col(self.numbers.choice(drawn.columns)), 3 * MOST) for name in names})

    def top(self, names: tuple[str, ...], depth: int) -> Rows:
        order = {name: self.numbers.choice(("asc", "desc")) for name in names if self.numbers.random() < 0.6}
        by = [name for name in names if self.numbers.random() < 0.3]
        return self.rows(names, depth).top(self.numbers.randint(1, 3), by, order)  # type: ignore[arg-type]

    def fold(self, names: tuple[str, ...], depth: int) -> Rows:
        groups = self.rows(COLUMNS, depth).group_by("a")
        if self.numbers.random() < 0.5:
            return self.narrowed(groups.fold(Counted(), {"b": 0}, "b long"), names)
        return self.narrowed(groups.fold(Largest(), {"b": None}, "b long"), names)

    def narrowed(self, rows: Rows, names: tuple[str, ...]) -> Rows:
        return rows.select(**{name: self.numbers.choice(rows.columns) for name in names})

    def value(self, names: Iterable[str]) -> Expression:
        """An expression that stays within the small values, most often a column."""
        value: Expression = col(self.numbers.choice(list(names)))
        return self.numbers.choice(
            (
                lambda: value,
                lambda: value,
                lambda: value,
                lambda: expression(self.numbers.randint(0, MOST)),
                lambda: least(value + 1, MOST),
                lambda: greatest(value - 1, 0),
                lambda: least(value * 2, MOST),
                lambda: (value - self.numbers.randint(0, MOST)).abs(),
                lambda: coalesce(value, self.numbers.randint(0, MOST)),
            )
        )()

    def condition(self, names: tuple[str, ...], depth: int) -> Expression:
        kind = self.numbers.random()
        if depth and kind < 0.15:
            return ~self.condition(names, depth - 1)
        if depth and kind < 0.35:
            return self.condition(names, depth - 1) & self.condition(names, depth - 1)
        if depth and kind < 0.5:
            return self.condition(names, depth - 1) | self.condition(names, depth - 1)
        left = self.value(names)
        if kind > 0.9:
            return left.is_null()
        right = self.value(names) if kind > 0.7 else expression(self.numbers.randint(0, MOST))
        return self.numbers.choice((left == right, left != right, left < right, left <= right, left > right, left >= right))
