"""Sets of rows, with the methods of Spark's DataFrame that programs know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import pyarrow as pa

from strandline.program import errors
from strandline.program.expression import Column, Expression
from strandline.program.place import caller
from strandline.program.plan import Aggregate, Distinct, Except, Fold, How, Map, Meet, Node, Select, Top, Union, Where
from strandline.program.schema import parse_ddl

__all__ = ["Groups", "Owner", "Rows"]


class Owner(Protocol):
    """The program of rows."""

    @property
    def name(self) -> str:
        """The name of the program."""


class Rows:
    """A set of rows of a program: what an input or a relation holds, or what follows from such sets.

    >>> from strandline.program import Program, col
    >>> p = Program("example")
    >>> edge = p.input("edge", "x long, y long")
    >>> edge.where(col("x") < col("y")).select("y", sum=col("x") + col("y")).columns
    ['y', 'sum']
    """

    def __init__(self, program: Owner, node: Node) -> None:
        self.program, self.node = program, node

    @property
    def schema(self) -> pa.Schema:
        """The columns with their types."""
        return self.node.schema

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.node.schema.names)

    def select(self, *names: str | Expression, **columns: str | Expression) -> Rows:
        """Return rows with other columns.

        Args:
            names: Columns that stay.
            columns: New columns: an expression, or the name of a column.

        Raises:
            ProgramError: A column is unknown or is named twice, or an expression's types do not fit.
        """
        kept = [(name.name, name) if isinstance(name, Column) else (name, _column(name)) for name in names]
        return self._rows(Select(self.node, (*kept, *((name, _column(value)) for name, value in columns.items()))))  # type: ignore[arg-type]

    def where(self, condition: Expression) -> Rows:
        """Return the rows for which a condition is true."""
        if not isinstance(condition, Expression):
            raise errors.program_expression_invalid_argument(caller(), condition)
        return self._rows(Where(self.node, condition))

    def union(self, other: Rows) -> Rows:
        """Return the rows of both. Their columns are the same, in the same order."""
        return self._rows(Union((self.node, self._theirs(other))))

    def distinct(self) -> Rows:
        """Return each row once. Rows are sets already, so nothing changes."""
        return self._rows(Distinct(self.node))

    def map(self, function: Callable[[dict[str, Any]], Iterable[Mapping[str, Any]]], schema: pa.Schema | str) -> Rows:
        """Return the rows that a function returns for each row.

        Args:
            function: Called with a row as a dict. Returns dicts of the columns of ``schema``, any number. It depends on nothing
                but its argument.
            schema: The columns of its results.
        """
        return self._rows(Map(self.node, function, _schema(schema)))

    def meet(self, other: Rows, on: str | Sequence[str] | Mapping[str, str] = (), how: How = "inner") -> Rows:
        """Join two sets of rows.

        Args:
            other: The right side.
            on: A column of both sides, several, or a mapping of columns of this side to columns of the other. Without any, each
                pair of rows agrees.
            how: ``inner`` gives the columns of both; ``left_semi`` the rows of this side that agree with a row of the other one;
                ``left_anti`` those that agree with none.

        Raises:
            ProgramError: A column is unknown, types differ, or both sides have another column of the same name.

        >>> from strandline.program import Program
        >>> p = Program("example")
        >>> edge, name = p.input("edge", "x long, y long"), p.input("name", "id long, text string")
        >>> edge.meet(name, on={"y": "id"}).columns
        ['x', 'y', 'text']
        """
        pairs = tuple(on.items()) if isinstance(on, Mapping) else tuple((name, name) for name in _names(on))
        return self._rows(Meet(self.node, self._theirs(other), pairs, how))

    def subtract(self, other: Rows) -> Rows:
        """Return the rows that the other set lacks. Its columns are the same, in the same order."""
        return self._rows(Except(self.node, self._theirs(other)))

    def group_by(self, *names: str) -> Groups:
        """Group the rows by columns, or all into one group."""
        return Groups(self, names)

    def top(self, k: int, by: str | Sequence[str] = (), order: Mapping[str, Literal["asc", "desc"]] | None = None) -> Rows:
        """Return the first ``k`` rows of each group. Of equal rows, those whose other columns are least come first.

        Args:
            k: How many, 1 or more.
            by: The columns of a group.
            order: Columns with ``asc`` or ``desc``.
        """
        return self._rows(Top(self.node, tuple(_names(by)), tuple((order or {}).items()), k))

    def _rows(self, node: Node) -> Rows:
        return Rows(self.program, node)

    def _theirs(self, other: Rows) -> Node:
        if not isinstance(other, Rows):
            raise errors.program_invalid_rows(caller(), other)
        if other.program is not self.program:
            raise errors.program_foreign_relation(caller(), other.program.name, self.program.name)
        return other.node

    def __repr__(self) -> str:
        return f"Rows({', '.join(f'{f.name} {f.type}' for f in self.schema)})"


class Groups:
    """Rows in groups."""

    def __init__(self, rows: Rows, by: tuple[str, ...]) -> None:
        self._rows, self._by = rows, by

    def agg(self, **aggregates: tuple[str, str | None]) -> Rows:
        """Return one row for each group.

        Args:
            aggregates: For each new column, a function and its column: ``count`` (also of ``None``, the rows), ``sum``, ``min``
                or ``max``.

        Raises:
            ProgramError: A function or column is unknown, or a type does not fit.

        >>> from strandline.program import Program
        >>> p = Program("example")
        >>> sale = p.input("sale", "shop string, amount long")
        >>> sale.group_by("shop").agg(n=("count", None), total=("sum", "amount")).columns
        ['shop', 'n', 'total']
        """
        for name, value in aggregates.items():
            if not isinstance(value, tuple) or len(value) != 2:
                raise errors.program_invalid_aggregate(caller(), name, value)
        found = tuple((name, function, column) for name, (function, column) in aggregates.items())
        return Rows(self._rows.program, Aggregate(self._rows.node, self._by, found))

    def fold(
        self,
        function: Callable[[dict[str, Any], dict[str, Any]], Mapping[str, Any]],
        initial: Mapping[str, Any],
        schema: pa.Schema | str,
    ) -> Rows:
        """Return one row for each group: its columns and a state, after all rows of the group in the order of their columns.

        Args:
            function: Called with the state and a row, both dicts. Returns the next state. It depends on nothing but its
                arguments.
            initial: The first state.
            schema: The columns of the state.
        """
        return Rows(self._rows.program, Fold(self._rows.node, self._by, function, initial, _schema(schema)))


def _schema(schema: pa.Schema | str) -> pa.Schema:
    return parse_ddl(schema) if isinstance(schema, str) else schema


def _names(names: str | Sequence[str]) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def _column(value: object) -> Expression:
    if isinstance(value, str):
        return Column(value)
    if not isinstance(value, Expression):
        raise errors.program_expression_invalid_argument(caller(), value)
    return value
