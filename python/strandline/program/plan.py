"""The plan of a program: trees of nodes over relations, rules, and relations with their strata.

A node is made with checked arguments: a wrong one raises :class:`~strandline.errors.ProgramError`, with the place of the call.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from strandline.program import errors
from strandline.program.expression import Expression
from strandline.program.place import caller
from strandline.program.schema import BOOL, FLOAT, INT, checked_schema, row_of

__all__ = [
    "AGGREGATES",
    "Aggregate",
    "Distinct",
    "Except",
    "Fold",
    "How",
    "Keep",
    "Map",
    "Meet",
    "Node",
    "ProgramPlan",
    "Read",
    "RelationPlan",
    "RulePlan",
    "Select",
    "Top",
    "Union",
    "Where",
    "reads",
]

Keep = Literal["tick", "always"]
How = Literal["inner", "left_semi", "left_anti"]
AGGREGATES = ("count", "sum", "min", "max")


class Node(ABC):
    """A set of rows, as a function of other sets.

    Attributes:
        schema: The columns.
        children: The nodes that it reads.
        waits: For each child, empty where the node is monotone in it. Otherwise a word for what the node does: ``not`` or
            ``top``, for example. Such a node must see the whole child, so all below must come from earlier strata.
    """

    schema: pa.Schema
    children: tuple[Node, ...]

    @property
    def waits(self) -> tuple[str, ...]:
        return ("",) * len(self.children)

    def _set_schema(self, schema: pa.Schema) -> None:
        object.__setattr__(self, "schema", checked_schema(schema))


class _OfOne(Node):
    """A node with one child."""

    child: Node

    @property
    def children(self) -> tuple[Node, ...]:  # type: ignore[override]
        return (self.child,)


class _OfTwo(Node):
    """A node with two children."""

    left: Node
    right: Node

    @property
    def children(self) -> tuple[Node, ...]:  # type: ignore[override]
        return self.left, self.right


@dataclass(frozen=True, eq=False)
class Read(Node):
    """What a relation or an input holds."""

    relation: str
    schema: pa.Schema = field(repr=False)
    children: tuple[Node, ...] = field(default=(), init=False, repr=False)


@dataclass(frozen=True, eq=False)
class Select(_OfOne):
    """A value for each column, of each row."""

    child: Node
    columns: tuple[tuple[str, Expression], ...]
    schema: pa.Schema = field(init=False, repr=False)

    def __post_init__(self) -> None:
        schema = self.child.schema
        _once([name for name, _ in self.columns])
        self._set_schema(pa.schema([(name, value.type_in(schema)) for name, value in self.columns]))


@dataclass(frozen=True, eq=False)
class Where(_OfOne):
    """The rows for which a condition is true, not false or null."""

    child: Node
    condition: Expression
    schema: pa.Schema = field(init=False, repr=False)

    def __post_init__(self) -> None:
        kind = self.condition.type_in(self.child.schema)
        if kind != BOOL:
            raise errors.program_expression_invalid_condition(caller(), self.condition, kind)
        self._set_schema(self.child.schema)


@dataclass(frozen=True, eq=False)
class Union(Node):
    """The rows of any of several nodes with the same columns."""

    children: tuple[Node, ...]
    schema: pa.Schema = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for other in self.children[1:]:
            _same_columns(self.children[0], other, "union")
        self._set_schema(self.children[0].schema)


@dataclass(frozen=True, eq=False)
class Distinct(_OfOne):
    """Each row once. All nodes are sets, so this says it only."""

    child: Node
    schema: pa.Schema = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._set_schema(self.child.schema)


@dataclass(frozen=True, eq=False)
class Map(_OfOne):
    """The rows that a function returns for each row: ``function(row_dict)`` gives dicts. It depends on its argument only."""

    child: Node
    function: Callable[[dict[str, Any]], Iterable[Mapping[str, Any]]] = field(repr=False)
    schema: pa.Schema = field(repr=False)

    def __post_init__(self) -> None:
        _callable(self.function)
        self._set_schema(self.schema)


@dataclass(frozen=True, eq=False)
class Meet(_OfTwo):
    """The pairs of rows that agree in columns, or the left rows that have such a row on the right (semi), or none (anti).

    null agrees with nothing. An inner meet has the columns of the left side, then those of the right side without the columns
    that it was joined by.
    """

    left: Node
    right: Node
    on: tuple[tuple[str, str], ...]
    how: How
    schema: pa.Schema = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.how not in ("inner", "left_semi", "left_anti"):
            raise errors.program_invalid_how(caller(), self.how)
        left, right = self.left.schema, self.right.schema
        for mine, theirs in self.on:
            kinds = _type(left, mine), _type(right, theirs)
            if kinds[0] != kinds[1]:
                raise errors.program_invalid_keys(caller(), mine, kinds[0], theirs, kinds[1])
        keys = {theirs for _, theirs in self.on}
        added = [f for f in right if f.name not in keys] if self.how == "inner" else []
        _once([*left.names, *(f.name for f in added)])
        self._set_schema(pa.schema([*left, *added]))

    @property
    def waits(self) -> tuple[str, ...]:
        return "", "not" if self.how == "left_anti" else ""


@dataclass(frozen=True, eq=False)
class Except(_OfTwo):
    """The left rows that the right side lacks. Here null equals null."""

    left: Node
    right: Node
    schema: pa.Schema = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _same_columns(self.left, self.right, "subtract")
        self._set_schema(self.left.schema)

    @property
    def waits(self) -> tuple[str, ...]:
        return "", "not"


@dataclass(frozen=True, eq=False)
class Aggregate(_OfOne):
    """One row for each group: its columns, and (name, function, column) for each aggregate. No rows, no group.

    ``count`` without a column counts rows, with one the values that are not null. ``sum``, ``min`` and ``max`` are over the
    values that are not null, and null without any.
    """

    child: Node
    by: tuple[str, ...]
    aggregates: tuple[tuple[str, str, str | None], ...]
    schema: pa.Schema = field(init=False, repr=False)

    def __post_init__(self) -> None:
        schema = self.child.schema
        _once([*self.by, *(name for name, _, _ in self.aggregates)])
        fields = [(name, _type(schema, name)) for name in self.by]
        self._set_schema(pa.schema(fields + [(name, _result(schema, f, column)) for name, f, column in self.aggregates]))

    @property
    def waits(self) -> tuple[str, ...]:
        return ("aggregate",)


@dataclass(frozen=True, eq=False)
class Top(_OfOne):
    """The first ``k`` rows of each group. Of equal rows, those come first whose other columns are least, in their order.

    null comes before all other values, and with ``desc`` after them, as in Spark.
    """

    child: Node
    by: tuple[str, ...]
    order: tuple[tuple[str, Literal["asc", "desc"]], ...]
    k: int
    schema: pa.Schema = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in (*self.by, *(name for name, _ in self.order)):
            _type(self.child.schema, name)
        _once(list(self.by))
        _once([name for name, _ in self.order])
        for name, way in self.order:
            if way not in ("asc", "desc"):
                raise errors.program_invalid_order(caller(), name, way)
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise errors.program_invalid_k(caller(), self.k)
        self._set_schema(self.child.schema)

    @property
    def waits(self) -> tuple[str, ...]:
        return ("top",)


@dataclass(frozen=True, eq=False)
class Fold(_OfOne):
    """One row for each group: its columns, and the state after ``function(state_dict, row_dict)`` for each row of the group.

    The rows come in the order of all their columns, null first. The function depends on nothing but its arguments.
    """

    child: Node
    by: tuple[str, ...]
    function: Callable[[dict[str, Any], dict[str, Any]], Mapping[str, Any]] = field(repr=False)
    initial: Mapping[str, Any]
    state: pa.Schema = field(repr=False)
    """The columns of the state."""
    schema: pa.Schema = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _callable(self.function)
        state, place = checked_schema(self.state), caller()
        row = row_of(self.initial, state, lambda what: errors.program_invalid_initial(place, what))
        object.__setattr__(self, "state", state)
        object.__setattr__(self, "initial", dict(zip(state.names, row, strict=True)))
        _once([*self.by, *state.names])
        self._set_schema(pa.schema([*((name, _type(self.child.schema, name)) for name in self.by), *state]))

    @property
    def waits(self) -> tuple[str, ...]:
        return ("fold",)


@dataclass(frozen=True)
class RelationPlan:
    """An input or a relation of a program, and its stratum. ``path`` is that of the input's channel, or ``None``."""

    name: str
    schema: pa.Schema
    keep: Keep
    is_input: bool
    path: str | None
    stratum: int


@dataclass(frozen=True)
class RulePlan:
    """A rule, and the stratum in which it is evaluated. ``place`` is where it was written, like ``file.py:12``."""

    head: str
    body: Node
    next_tick: bool
    stratum: int
    place: str


@dataclass(frozen=True)
class ProgramPlan:
    """A checked program.

    Attributes:
        name: The name of the program.
        tick: The domain of its ticks, as text.
        step: By how much ``next_tick`` advances a tick; microseconds for timestamps.
        relations: All inputs and relations, in the order in which they were named.
        rules: All rules, in the order in which they were written.
    """

    name: str
    tick: str
    step: int
    relations: dict[str, RelationPlan]
    rules: tuple[RulePlan, ...]


def reads(node: Node, waits: str = "") -> Iterator[tuple[str, str]]:
    """Yield each relation that a node reads, and the word for what must see the whole of it, empty where nothing must.

    >>> a = Read("a", pa.schema([("x", pa.int64())]))
    >>> list(reads(Except(a, Aggregate(a, ("x",), ()))))
    [('a', ''), ('a', 'not')]
    """
    if isinstance(node, Read):
        yield node.relation, waits
    for child, word in zip(node.children, node.waits, strict=True):
        yield from reads(child, waits or word)


def _type(schema: pa.Schema, name: str) -> pa.DataType:
    if name not in schema.names:
        raise errors.program_unknown_column(caller(), name, schema.names)
    return schema.field(name).type


def _result(schema: pa.Schema, function: str, column: str | None) -> pa.DataType:
    """Return the type of an aggregate."""
    if function not in AGGREGATES or (column is None and function != "count"):
        raise errors.program_invalid_aggregate(caller(), function, column)
    kind = INT if column is None else _type(schema, column)
    if function == "sum" and kind not in (INT, FLOAT):
        raise errors.program_invalid_sum(caller(), column, kind)
    return INT if function == "count" else kind


def _once(names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise errors.program_columns_twice(caller(), twice)


def _same_columns(left: Node, right: Node, call: str) -> None:
    if left.schema != right.schema:
        raise errors.program_columns_differ(caller(), call, left.schema, right.schema)


def _callable(function: object) -> None:
    if not callable(function):
        raise errors.program_invalid_function(caller(), function)
