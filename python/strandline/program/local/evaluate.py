"""The bodies of rules, evaluated in one tick: new rows of relations go in, and new rows of the body come out.

A node that must see the whole of a child gets it in the first call, because all below it comes from earlier strata.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import itemgetter
from typing import Any, TypeAlias

import pyarrow as pa

from strandline.program import errors
from strandline.program.local.values import aggregate, order_key, row_key, values_of
from strandline.program.plan import Aggregate, Distinct, Except, Fold, Map, Meet, Node, Read, Select, Top, Union, Where
from strandline.program.schema import Row, row_of

__all__ = ["Body", "Changes", "body", "rows_of"]

Changes: TypeAlias = Mapping[str, AbstractSet[Row]]
"""The new rows of relations."""

Body: TypeAlias = Callable[[Changes], AbstractSet[Row]]
"""Returns the new rows of a node. Rows that it has returned before may be among them."""

_NOTHING: AbstractSet[Row] = frozenset()


def body(node: Node, place: str) -> Body:
    """Return a new evaluation of a node, for one tick.

    Args:
        node: The body of a rule.
        place: The place of the rule, for errors.

    >>> from strandline.program.plan import Read
    >>> left, right = (Read(name, pa.schema([("x", pa.int64())])) for name in "ab")
    >>> both = body(Meet(left, right, (("x", "x"),), "inner"), "example.py:1")
    >>> both({"a": {(1,), (2,)}}), both({"b": {(2,)}})
    (set(), {(2,)})
    """
    if isinstance(node, Read):
        name = node.relation
        return lambda changes: changes.get(name, _NOTHING)
    below = [body(child, place) for child in node.children]
    if isinstance(node, Union):
        return lambda changes: set().union(*(each(changes) for each in below))
    if isinstance(node, (Meet, Except)):
        return _two_sided(node, *below)
    [child] = below
    if isinstance(node, Distinct):
        return child
    function = rows_of(node, place)
    return lambda changes: function(rows) if (rows := child(changes)) else _NOTHING


def rows_of(node: Node, place: str) -> Callable[[AbstractSet[Row]], set[Row]]:
    """Return what a node with one child makes of a set of the child's rows: of each row, or of the whole set.

    >>> from strandline.program.expression import col
    >>> from strandline.program.plan import Read
    >>> rows_of(Select(Read("a", pa.schema([("x", pa.int64())])), (("y", col("x") + 1),)), "example.py:1")({(1,), (2,)})
    {(2,), (3,)}
    """
    return _of_set(node, place) if isinstance(node, (Aggregate, Top, Fold)) else _of_rows(node, place)


def _of_rows(node: Node, place: str) -> Callable[[AbstractSet[Row]], set[Row]]:
    """Return what a node makes of rows, each for itself."""
    if isinstance(node, Select):
        values = [values_of(expression, node.child.schema, place) for _, expression in node.columns]
        return lambda rows: {tuple(value(row) for value in values) for row in rows}
    if isinstance(node, Where):
        condition = values_of(node.condition, node.child.schema, place)
        return lambda rows: {row for row in rows if condition(row) is True}
    if isinstance(node, Map):
        names, function, schema = node.child.schema.names, node.function, node.schema

        def fail(what: str) -> Exception:
            return errors.program_rows_invalid_function(place, "map", what)

        return lambda rows: {row_of(new, schema, fail) for row in rows for new in function(dict(zip(names, row, strict=True)))}
    raise TypeError(node)


def _of_set(node: Aggregate | Top | Fold, place: str) -> Callable[[AbstractSet[Row]], set[Row]]:
    """Return what a node makes of a whole set."""
    schema = node.child.schema
    of_group = {Aggregate: _aggregate, Top: _top, Fold: _fold}[type(node)](node, schema, place)  # type: ignore[operator]
    key = _columns(schema, node.by)

    def function(rows: AbstractSet[Row]) -> set[Row]:
        groups = defaultdict(list)
        for row in rows:
            groups[key(row)].append(row)
        return {new for values, group in groups.items() for new in of_group(values, group)}

    return function


OfGroup: TypeAlias = Callable[[Row, list[Row]], Iterable[Row]]


def _aggregate(node: Aggregate, schema: pa.Schema, place: str) -> OfGroup:
    parts = [(name, function, node.schema.field(name).type, _value(schema, column)) for name, function, column in node.aggregates]

    def of_group(values: Row, group: list[Row]) -> Iterator[Row]:
        yield values + tuple(aggregate(function, kind, map(get, group), name, place) for name, function, kind, get in parts)

    return of_group


def _value(schema: pa.Schema, column: str | None) -> Callable[[Row], Any]:
    """Return the function that gives the value that an aggregate is of: without a column, one that is never null."""
    return (lambda row: True) if column is None else itemgetter(schema.names.index(column))


def _top(node: Top, schema: pa.Schema, place: str) -> OfGroup:
    def of_group(values: Row, group: list[Row]) -> list[Row]:
        group.sort(key=row_key)
        for name, way in reversed(node.order):
            column = schema.names.index(name)
            group.sort(key=lambda row: order_key(row[column]), reverse=way == "desc")
        return group[: node.k]

    return of_group


def _fold(node: Fold, schema: pa.Schema, place: str) -> OfGroup:
    names, state_schema = schema.names, node.state

    def fail(what: str) -> Exception:
        return errors.program_rows_invalid_function(place, "fold", what)

    def of_group(values: Row, group: list[Row]) -> Iterator[Row]:
        state: Row = tuple(node.initial.values())
        for row in sorted(group, key=row_key):
            new = node.function(dict(zip(state_schema.names, state, strict=True)), dict(zip(names, row, strict=True)))
            state = row_of(new, state_schema, fail)
        yield values + state

    return of_group


def _two_sided(node: Meet | Except, left: Body, right: Body) -> Body:
    """Return a node of two sides. Each keeps what the other one may still meet."""
    if isinstance(node, Except):
        return _rest(left, right, lambda row: row, lambda row: row)
    mine = _key(_columns(node.left.schema, [name for name, _ in node.on]))
    theirs = _key(_columns(node.right.schema, [name for _, name in node.on]))
    if node.how == "left_anti":
        return _rest(left, right, mine, theirs)
    if node.how == "left_semi":
        return _semi(left, right, mine, theirs)
    keys = {name for _, name in node.on}
    return _inner(left, right, mine, theirs, _columns(node.right.schema, [n for n in node.right.schema.names if n not in keys]))


Key: TypeAlias = Callable[[Row], Row | None]


def _rest(left: Body, right: Body, mine: Key, theirs: Key) -> Body:
    there: set[Row | None] = set()

    def rest(changes: Changes) -> AbstractSet[Row]:
        there.update(key for row in right(changes) if (key := theirs(row)) is not None)
        return {row for row in left(changes) if mine(row) not in there}

    return rest


def _semi(left: Body, right: Body, mine: Key, theirs: Key) -> Body:
    there: set[Row | None] = set()
    waiting: defaultdict[Row | None, set[Row]] = defaultdict(set)

    def semi(changes: Changes) -> AbstractSet[Row]:
        found: set[Row] = set()
        for key in {theirs(row) for row in right(changes)} - {None}:
            there.add(key)
            found |= waiting.pop(key, set())
        for row in left(changes):
            if (key := mine(row)) in there:
                found.add(row)
            elif key is not None:
                waiting[key].add(row)
        return found

    return semi


def _inner(left: Body, right: Body, mine: Key, theirs: Key, added: Callable[[Row], Row]) -> Body:
    lefts: defaultdict[Row | None, set[Row]] = defaultdict(set)
    rights: defaultdict[Row | None, set[Row]] = defaultdict(set)

    def inner(changes: Changes) -> AbstractSet[Row]:
        found: set[Row] = set()
        for row in right(changes):
            if (key := theirs(row)) is not None:
                rest = added(row)
                rights[key].add(rest)
                found.update(other + rest for other in lefts.get(key, ()))
        for row in left(changes):
            if (key := mine(row)) is not None:
                lefts[key].add(row)
                found.update(row + other for other in rights.get(key, ()))
        return found

    return inner


def _columns(schema: pa.Schema, names: Sequence[str]) -> Callable[[Row], Row]:
    """Return the function that gives some columns of a row."""
    at = [schema.names.index(name) for name in names]
    if len(at) > 1:
        get: Callable[[Row], Any] = itemgetter(*at)
        return get
    return lambda row: tuple(row[column] for column in at)


def _key(columns: Callable[[Row], Row]) -> Key:
    """Return the key of a row in a join, ``None`` where a column is null: it agrees with nothing."""

    def key(row: Row) -> Row | None:
        values = columns(row)
        return None if None in values else values

    return key
