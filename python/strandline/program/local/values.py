"""Values of expressions and aggregates over rows, and the order of values, as in Spark's SQL in ANSI mode."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from strandline.program import errors
from strandline.program.expression import ARITHMETIC, LOGIC, OPERATORS, Binary, Call, Column, Expression, IsNull, Literal, Not
from strandline.program.schema import FLOAT, INT, INT_RANGE, Row, canonical_float, value_of

__all__ = ["aggregate", "order_key", "row_key", "values_of"]

Value = Callable[[Row], Any]


def order_key(value: Any) -> tuple[Any, ...]:
    """Return a key for sorting: null is before all values, and NaN after them.

    >>> sorted([2.0, float("nan"), None, 1.0], key=order_key)
    [None, 1.0, 2.0, nan]
    """
    if value is None:
        return (0,)
    return (2,) if value != value else (1, value)


def row_key(row: Row) -> tuple[Any, ...]:
    """Return a key for sorting rows by all their columns."""
    return tuple(map(order_key, row))


def values_of(expression: Expression, schema: pa.Schema, place: str) -> Value:
    """Return the function that computes an expression for a row.

    Args:
        expression: The expression.
        schema: The columns of the rows.
        place: The place of the rule, for errors.

    Raises:
        ProgramError: Later, from the function: an integer exceeds 64 bits (``STRANDLINE_PROGRAM_OVERFLOW``).

    >>> from strandline.program.expression import col, lit
    >>> value = values_of((col("x") + 1) * 2, pa.schema([("x", pa.int64())]), "example.py:1")
    >>> value((3,)), value((None,))
    (8, None)
    """
    if isinstance(expression, Column):
        return operator.itemgetter(schema.names.index(expression.name))
    if isinstance(expression, Literal):
        constant = value_of(expression.value, expression.type_in(schema), lambda value, _: ValueError(value))
        return lambda row: constant
    if isinstance(expression, Not):
        operand = values_of(expression.operand, schema, place)
        return lambda row: None if (value := operand(row)) is None else not value
    if isinstance(expression, IsNull):
        operand = values_of(expression.operand, schema, place)
        return lambda row: operand(row) is None
    if isinstance(expression, Call):
        return _call(expression, [values_of(arg, schema, place) for arg in expression.args], place)
    if isinstance(expression, Binary):
        left, right = (values_of(side, schema, place) for side in (expression.left, expression.right))
        if expression.op in LOGIC:
            return _logic(left, right, decides=expression.op == "or")
        kinds = [side.type_in(schema) for side in (expression.left, expression.right)]
        if FLOAT in kinds:
            left, right = _as_float(left), _as_float(right)
        if expression.op not in ARITHMETIC:
            return _comparison(OPERATORS[expression.op], left, right)
        return _arithmetic(expression, left, right, place)
    raise TypeError(expression)


def _logic(left: Value, right: Value, *, decides: bool) -> Value:
    """Return ``and`` or ``or``: one side that ``decides`` is enough. The right side is not computed when the left one decides."""

    def value(row: Row) -> bool | None:
        first = left(row)
        second = None if first is decides else right(row)
        if decides in (first, second):
            return decides
        return None if first is None or second is None else not decides

    return value


def _as_float(side: Value) -> Value:
    return lambda row: None if (value := side(row)) is None else float(value)


def _comparison(op: Callable[[Any, Any], bool], left: Value, right: Value) -> Value:
    def value(row: Row) -> bool | None:
        first, second = left(row), right(row)
        return None if first is None or second is None else bool(op(order_key(first), order_key(second)))

    return value


def _arithmetic(expression: Binary, left: Value, right: Value, place: str) -> Value:
    op = OPERATORS[expression.op]

    def value(row: Row) -> Any:
        first, second = left(row), right(row)
        return None if first is None or second is None else _fitting(op(first, second), expression, place)

    return value


def _fitting(value: Any, what: object, place: str) -> Any:
    if isinstance(value, float):
        return canonical_float(value)
    if not INT_RANGE[0] <= value <= INT_RANGE[1]:
        raise errors.program_overflow(place, what)
    return value


def _call(call: Call, args: Sequence[Value], place: str) -> Value:
    if call.function == "abs":
        return lambda row: None if (value := args[0](row)) is None else _fitting(abs(value), call, place)
    if call.function == "coalesce":
        return lambda row: next((value for arg in args if (value := arg(row)) is not None), None)
    choose = min if call.function == "least" else max
    return lambda row: choose((value for arg in args if (value := arg(row)) is not None), key=order_key, default=None)


def aggregate(function: str, kind: pa.DataType, values: Iterable[Any], what: str, place: str) -> Any:
    """Return the aggregate of the values of a group.

    A sum of float64 is rounded once, so it does not depend on an order.

    Args:
        function: ``count``, ``sum``, ``min`` or ``max``.
        kind: The type of the result.
        values: The values of the column, or anything that is not null for each row.
        what: The name of the aggregate, for errors.
        place: The place of the rule, for errors.

    >>> [aggregate(function, INT, [3, None, 4], "n", "example.py:1") for function in ("count", "sum", "min", "max")]
    [2, 7, 3, 4]
    """
    present = [value for value in values if value is not None]
    if function == "count":
        return len(present)
    if not present:
        return None
    if function == "sum":
        return _fitting(sum(present) if kind == INT else _float_sum(present), f"The sum {what}", place)
    return (min if function == "min" else max)(present, key=order_key)


def _float_sum(values: list[float]) -> float:
    if all(map(math.isfinite, values)):
        try:
            return math.fsum(values)
        except OverflowError:
            pass  # beyond the greatest float, or on the way to it
    return sum(sorted(values, key=order_key))
