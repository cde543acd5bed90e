"""Types of columns, schemas and their text, and the values of rows.

A row is a tuple of values in the order of its schema. Values are ``int``, ``float``, ``str``, ``bool``, ``datetime`` in UTC,
``date``, or ``None``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timezone
from typing import Any, TypeAlias

import pyarrow as pa

from strandline.program import errors
from strandline.program.place import caller

__all__ = [
    "BOOL",
    "DAY",
    "FLOAT",
    "INT",
    "INT_RANGE",
    "MOMENT",
    "TEXT",
    "Row",
    "canonical_float",
    "checked_schema",
    "is_ddl",
    "is_name",
    "parse_ddl",
    "row_of",
    "type_of",
    "value_of",
]

Row: TypeAlias = tuple[Any, ...]

INT, FLOAT, TEXT, BOOL = pa.int64(), pa.float64(), pa.string(), pa.bool_()
MOMENT, DAY = pa.timestamp("us", "UTC"), pa.date32()
INT_RANGE = -(1 << 63), (1 << 63) - 1

_NAMES = {
    **dict.fromkeys(("long", "bigint", "int64"), INT),
    **dict.fromkeys(("double", "float64"), FLOAT),
    "string": TEXT,
    **dict.fromkeys(("boolean", "bool"), BOOL),
    "timestamp": MOMENT,
    "date": DAY,
}
_TYPES = (INT, FLOAT, TEXT, BOOL, MOMENT, DAY)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COLUMN = re.compile(r"\s*(?:`([^`]+)`|([A-Za-z_][A-Za-z0-9_]*))(?:\s*:\s*|\s+)([A-Za-z0-9_]+)\s*")
_NAN = float("nan")
"""The one NaN of rows. Python finds it in sets, because the object is the same."""


def is_ddl(text: str) -> bool:
    """Return whether a text is a schema, not a path: it has no slash, and more than one word.

    >>> is_ddl("a long, b string"), is_ddl("lake/orders"), is_ddl("orders")
    (True, False, False)
    """
    return not re.search(r"[/\\]", text) and bool(re.search(r"[\s:,]", text.strip()))


def parse_ddl(text: str) -> pa.Schema:
    """Return the schema of a text such as ``"a long, b string"``, as Spark writes it.

    Raises :class:`ProgramError` (``STRANDLINE_PROGRAM_SCHEMA_INVALID``) for another form or type.

    >>> parse_ddl("a long, b string").names
    ['a', 'b']
    >>> parse_ddl("a int")
    Traceback (most recent call last):
    strandline.errors.ProgramError: [STRANDLINE_PROGRAM_SCHEMA_INVALID] ...: Column 'a' has the type int. ...
    """
    fields = []
    for part in text.split(","):
        found = _COLUMN.fullmatch(part)
        if found is None:
            raise errors.program_schema_invalid_text(caller(), text, part.strip())
        name, kind = found.group(1) or found.group(2), found.group(3)
        if kind.lower() not in _NAMES:
            raise errors.program_schema_invalid_type(caller(), name, kind)
        fields.append(pa.field(name, _NAMES[kind.lower()]))
    return checked_schema(pa.schema(fields))


def checked_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema without metadata.

    Raises :class:`ProgramError` (``STRANDLINE_PROGRAM_SCHEMA_INVALID``) for no column, a name twice, or another type.
    """
    if not isinstance(schema, pa.Schema):
        raise errors.program_schema_invalid_kind(caller(), schema)
    if not schema.names:
        raise errors.program_schema_invalid_empty(caller())
    seen: dict[str, str] = {}
    for field in schema:
        if field.name.lower() in seen:  # Spark ignores case when it looks for a column
            raise errors.program_schema_invalid_twice(caller(), seen[field.name.lower()], field.name)
        seen[field.name.lower()] = field.name
        if field.type not in _TYPES:
            raise errors.program_schema_invalid_type(caller(), field.name, field.type)
        if not field.nullable:
            raise errors.program_schema_invalid_not_null(caller(), field.name)
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def is_name(text: str) -> bool:
    """Return whether a text is a name of a relation: letters, digits and ``_``."""
    return bool(_NAME.fullmatch(text))


def type_of(value: object) -> pa.DataType | None:
    """Return the type of a column that holds a value. ``None`` when no type does.

    >>> type_of(3), type_of(True), type_of(1 << 63)
    (DataType(int64), DataType(bool), None)
    """
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return INT if INT_RANGE[0] <= value <= INT_RANGE[1] else None
    if isinstance(value, float):
        return FLOAT
    if isinstance(value, str):
        return TEXT if value.isascii() or _encodes(value) else None
    if isinstance(value, datetime):
        return MOMENT if value.tzinfo is not None else None
    return DAY if isinstance(value, date) else None


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def canonical_float(value: float) -> float:
    """Return a number as rows hold it: -0.0 is 0.0, and all NaN are one, as in the keys of Spark's groups and joins.

    >>> canonical_float(-0.0), canonical_float(float("inf") - float("inf")) is canonical_float(float("nan"))
    (0.0, True)
    """
    return _NAN if math.isnan(value) else value + 0.0


def value_of(value: Any, kind: pa.DataType, fail: Callable[[object, object], Exception]) -> Any:
    """Return a value as rows hold it.

    Args:
        value: The value.
        kind: The type of its column. A column of float64 takes integers that it holds exactly.
        fail: Returns the error for a value and the type that it should have.
    """
    if value is None:
        return None
    have = type_of(value)
    if have == FLOAT == kind:
        return canonical_float(value)
    if have == INT and kind == FLOAT and int(float(value)) == value:
        return float(value)
    if have != kind or have is None:
        raise fail(value, kind)
    return value.astimezone(timezone.utc) if kind == MOMENT else value


def row_of(row: object, schema: pa.Schema, fail: Callable[[str], Exception]) -> Row:
    """Return a row as a tuple of checked values.

    Args:
        row: A mapping with exactly the columns, or a sequence of values in their order.
        schema: The columns.
        fail: Returns the error for a text that says what is wrong.

    >>> row_of({"b": "x", "a": 1}, parse_ddl("a long, b string"), ValueError)
    (1, 'x')
    >>> row_of((1,), parse_ddl("a long, b string"), ValueError)
    Traceback (most recent call last):
    ValueError: (1,) has 1 values, but there are the columns a, b
    """
    names = schema.names
    if isinstance(row, Mapping):
        if set(row) != set(names):
            raise fail(f"{row!r:.200} has other columns than {', '.join(names)}")
        values: Iterable[Any] = (row[name] for name in names)
    elif isinstance(row, (tuple, list)):
        if len(row) != len(names):
            raise fail(f"{row!r:.200} has {len(row)} values, but there are the columns {', '.join(names)}")
        values = row
    else:
        raise fail(f"{row!r:.200} is neither a mapping nor a tuple")

    def wrong(name: str) -> Callable[[object, object], Exception]:
        return lambda value, kind: fail(f"column {name!r} has the value {value!r:.200}, but its type is {kind}")

    return tuple(value_of(value, field.type, wrong(field.name)) for value, field in zip(values, schema, strict=True))
