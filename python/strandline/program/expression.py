"""Expressions over the columns of a row, typed as Spark's SQL types them in ANSI mode."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from strandline.program import errors
from strandline.program.place import caller
from strandline.program.schema import BOOL, FLOAT, INT, type_of

__all__ = [
    "ARITHMETIC",
    "COMPARISONS",
    "LOGIC",
    "OPERATORS",
    "Binary",
    "Call",
    "Column",
    "Expression",
    "IsNull",
    "Literal",
    "Not",
    "coalesce",
    "col",
    "expression",
    "greatest",
    "least",
    "lit",
]

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""Arithmetic and comparisons, as Python has them. Spark's columns take the same operators."""
ARITHMETIC = ("+", "-", "*")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
LOGIC = ("and", "or")
_NUMBERS = (INT, FLOAT)


class Expression(ABC):
    """A function of a row. Python's operators make larger expressions: ``+ - * == != < <= > >= & | ~``.

    null is SQL's: an operator over null gives null, ``and`` and ``or`` have three values. Where integers exceed 64 bits, the run
    raises an error.

    >>> (col("x") + 1 > 3) & ~col("y").is_null()
    (((x + 1) > 3) and not (y is null))
    """

    @abstractmethod
    def type_in(self, schema: pa.Schema) -> pa.DataType:
        """Return the type of the value over rows of a schema.

        Raises :class:`ProgramError` for an unknown column (``STRANDLINE_PROGRAM_UNKNOWN_COLUMN``), and where types do not fit
        (``STRANDLINE_PROGRAM_EXPRESSION_INVALID``).
        """

    def is_null(self) -> Expression:
        """Return whether the value is null."""
        return IsNull(self)

    def abs(self) -> Expression:
        """Return the absolute value."""
        return Call("abs", (self,))

    def __add__(self, other: Any) -> Expression:
        return Binary("+", self, expression(other))

    def __radd__(self, other: Any) -> Expression:
        return Binary("+", expression(other), self)

    def __sub__(self, other: Any) -> Expression:
        return Binary("-", self, expression(other))

    def __rsub__(self, other: Any) -> Expression:
        return Binary("-", expression(other), self)

    def __mul__(self, other: Any) -> Expression:
        return Binary("*", self, expression(other))

    def __rmul__(self, other: Any) -> Expression:
        return Binary("*", expression(other), self)

    def __eq__(self, other: Any) -> Expression:  # type: ignore[override]
        return Binary("==", self, expression(other))

    def __ne__(self, other: Any) -> Expression:  # type: ignore[override]
        return Binary("!=", self, expression(other))

    def __lt__(self, other: Any) -> Expression:
        return Binary("<", self, expression(other))

    def __le__(self, other: Any) -> Expression:
        return Binary("<=", self, expression(other))

    def __gt__(self, other: Any) -> Expression:
        return Binary(">", self, expression(other))

    def __ge__(self, other: Any) -> Expression:
        return Binary(">=", self, expression(other))

    def __and__(self, other: Any) -> Expression:
        return Binary("and", self, expression(other))

    def __rand__(self, other: Any) -> Expression:
        return Binary("and", expression(other), self)

    def __or__(self, other: Any) -> Expression:
        return Binary("or", self, expression(other))

    def __ror__(self, other: Any) -> Expression:
        return Binary("or", expression(other), self)

    def __invert__(self) -> Expression:
        return Not(self)

    def __bool__(self) -> bool:
        raise errors.program_expression_invalid_bool(caller(), self)

    __hash__ = object.__hash__


@dataclass(frozen=True, eq=False, repr=False)
class Column(Expression):
    """The value of a column.

    >>> Column("x").type_in(pa.schema([("x", pa.string())]))
    DataType(string)
    """

    name: str

    def type_in(self, schema: pa.Schema) -> pa.DataType:
        if self.name not in schema.names:
            raise errors.program_unknown_column(caller(), self.name, schema.names)
        return schema.field(self.name).type

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False, repr=False)
class Literal(Expression):
    """A constant: ``int``, ``float``, ``str``, ``bool``, a ``datetime`` with a time zone, or a ``date``."""

    value: Any

    def type_in(self, schema: pa.Schema) -> pa.DataType:
        kind = type_of(self.value)
        if kind is None:
            raise errors.program_expression_invalid_literal(caller(), self.value)
        return kind

    def __repr__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, eq=False, repr=False)
class Binary(Expression):
    """An operator over two values: ``+ - *`` over numbers, comparisons over equal types, ``and`` and ``or``.

    Where one side is int64 and the other float64, the integer becomes a float64 first.
    """

    op: str
    left: Expression
    right: Expression

    def type_in(self, schema: pa.Schema) -> pa.DataType:
        left, right = self.left.type_in(schema), self.right.type_in(schema)
        numbers = left in _NUMBERS and right in _NUMBERS
        if self.op in ARITHMETIC and numbers:
            return INT if left == right == INT else FLOAT
        if (self.op in COMPARISONS and (left == right or numbers)) or (self.op in LOGIC and left == right == BOOL):
            return BOOL
        raise errors.program_expression_invalid_types(caller(), self, [left, right])

    def __repr__(self) -> str:
        return f"({self.left!r} {self.op} {self.right!r})"


@dataclass(frozen=True, eq=False, repr=False)
class Not(Expression):
    """The negation of a condition. The negation of null is null."""

    operand: Expression

    def type_in(self, schema: pa.Schema) -> pa.DataType:
        kind = self.operand.type_in(schema)
        if kind != BOOL:
            raise errors.program_expression_invalid_types(caller(), self, [kind])
        return BOOL

    def __repr__(self) -> str:
        return f"not {self.operand!r}"


@dataclass(frozen=True, eq=False, repr=False)
class IsNull(Expression):
    """Whether a value is null."""

    operand: Expression

    def type_in(self, schema: pa.Schema) -> pa.DataType:
        self.operand.type_in(schema)
        return BOOL

    def __repr__(self) -> str:
        return f"({self.operand!r} is null)"


@dataclass(frozen=True, eq=False, repr=False)
class Call(Expression):
    """A function: ``abs(x)`` of a number; ``least``, ``greatest`` (2 arguments or more, without the nulls) and ``coalesce``."""

    function: str
    args: tuple[Expression, ...]

    def type_in(self, schema: pa.Schema) -> pa.DataType:
        kinds = [arg.type_in(schema) for arg in self.args]
        if self.function == "abs" and len(kinds) == 1 and kinds[0] in _NUMBERS:
            return kinds[0]
        fewest = {"least": 2, "greatest": 2, "coalesce": 1}.get(self.function)
        if fewest is not None and len(kinds) >= fewest and all(kind == kinds[0] for kind in kinds):
            return kinds[0]
        raise errors.program_expression_invalid_types(caller(), self, kinds)

    def __repr__(self) -> str:
        return f"{self.function}({', '.join(map(repr, self.args))})"


def expression(value: Any) -> Expression:
    """Return an expression as it is, and any other value as a literal."""
    return value if isinstance(value, Expression) else Literal(value)


def col(name: str) -> Expression:
    """Return the expression of a column.

    >>> col("x") + col("y")
    (x + y)
    """
    return Column(name)


def lit(value: Any) -> Expression:
    """Return the expression of a constant.

    >>> lit(3).type_in(pa.schema([]))
    DataType(int64)
    """
    return Literal(value)


def least(*args: Any) -> Expression:
    """Return the least of the values that are not null.

    >>> least(col("x"), 3)
    least(x, 3)
    """
    return Call("least", tuple(map(expression, args)))


def greatest(*args: Any) -> Expression:
    """Return the greatest of the values that are not null.

    >>> greatest(col("x"), 3)
    greatest(x, 3)
    """
    return Call("greatest", tuple(map(expression, args)))


def coalesce(*args: Any) -> Expression:
    """Return the first value that is not null.

    >>> coalesce(col("x"), 0)
    coalesce(x, 0)
    """
    return Call("coalesce", tuple(map(expression, args)))
