"""Which types of Spark the columns of a channel can have, and which of them reach a user's function through Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CalendarIntervalType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    UserDefinedType,
    VariantType,
    YearMonthIntervalType,
)

from pyspark_strandline import errors
from pyspark_strandline.schema import quoted
from strandline.errors import StrandlineError

__all__ = ["check_exchanged_types", "check_stored_types"]

Refusal = Callable[[str, str, DataType, errors.Cast | None], StrandlineError]

_PLAIN = (
    *(BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType),
    *(BinaryType, DateType, TimestampType, TimestampNTZType),
)
_AS_TEXT = (StringType, DayTimeIntervalType, YearMonthIntervalType, CalendarIntervalType, TimeType, VariantType)
"""What has a value for each of its values as a text. So have ``CHAR`` and ``VARCHAR``, which are no such classes."""


def check_stored_types(schema: StructType, what: str) -> None:
    """Raise :class:`StrandlineError` for a column that a channel would not give back as it was, at any depth.

    Args:
        schema: The columns.
        what: What has them, for the message.

    >>> from pyspark.sql.types import StructField
    >>> tags = StructField("tags", ArrayType(NullType()))
    >>> check_stored_types(StructType([StructField("n", LongType())]), "The rows to write")
    >>> check_stored_types(StructType([tags]), "The rows to write")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    strandline.errors.StrandlineError: [STRANDLINE_COLUMN_TYPE_UNSUPPORTED] The rows to write have tags.element of type void...
    """
    outside = any(
        isinstance(kind, TimestampNTZType) and not in_map for f in schema for _, kind, in_map in _leaves("", f.dataType)
    )
    for field in schema.fields:
        for path, kind, in_map in _leaves(field.name, field.dataType):
            refused = _not_stored(kind)
            if refused is None and in_map and not outside and isinstance(kind, TimestampNTZType):
                refused = errors.column_type_unsupported_in_map
            if refused is not None:
                raise refused(what, path, kind, _cast(field.name, field.dataType))


def check_exchanged_types(schema: StructType, what: str) -> None:
    """Raise :class:`StrandlineError` for a column that has no type in Arrow, at any depth. A user's function gets no such column.

    >>> from pyspark.sql.types import StructField
    >>> check_exchanged_types(StructType([StructField("it", YearMonthIntervalType())]), "The rows")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    strandline.errors.StrandlineError: [STRANDLINE_COLUMN_TYPE_UNSUPPORTED] The rows have it of type interval year to month...
    """
    for field in schema.fields:
        for path, kind, _ in _leaves(field.name, field.dataType):
            if not _in_arrow(kind):
                raise errors.column_type_unsupported_by_arrow(what, path, kind, _cast(field.name, field.dataType))


def _in_arrow(kind: DataType) -> bool:
    try:
        return isinstance(kind, StructType) or to_arrow_type(kind, timezone="UTC") is not None
    except PySparkException:
        return False


def _leaves(path: str, kind: DataType, in_map: bool = False) -> Iterator[tuple[str, DataType, bool]]:
    """Yield what is nested in a type and has no parts: its path, its type, and whether it lies inside a map."""
    parts: list[tuple[str, DataType]] = []
    if isinstance(kind, StructType):
        parts = [(field.name, field.dataType) for field in kind.fields]
    elif isinstance(kind, ArrayType):
        parts = [("element", kind.elementType)]
    elif isinstance(kind, MapType):
        parts, in_map = [("key", kind.keyType), ("value", kind.valueType)], True
    if not parts:
        yield path, kind, in_map
    for name, part in parts:
        yield from _leaves(f"{path}.{name}", part, in_map)


def _not_stored(kind: DataType) -> Refusal | None:
    """Return the error for a type that a channel does not have; ``None`` if it has it."""
    if isinstance(kind, StringType) and type(kind) is StringType:
        return None if kind == StringType() else errors.column_type_unsupported_collation
    if isinstance(kind, StructType):
        return errors.column_type_unsupported_struct
    if isinstance(kind, UserDefinedType):
        return errors.column_type_unsupported_of_user
    return None if type(kind) in _PLAIN else errors.column_type_unsupported


def _cast(name: str, kind: DataType) -> errors.Cast | None:
    """Return how a column of this type becomes one that a channel has; ``None`` if that is not known."""
    column = quoted(name)
    if isinstance(kind, StringType) and kind != StringType():
        made = f"collate({column}, 'UTF8_BINARY')"
    elif isinstance(kind, MapType) and isinstance(kind.keyType, NullType):
        made = "map_from_arrays(CAST(array() AS ARRAY<STRING>), CAST(array() AS ARRAY<INT>))"
    elif type(kind).__name__ in ("GeometryType", "GeographyType"):
        made = f"st_asbinary({column})"
    elif (cast := _stored_form(kind)) is not None:
        made = f"CAST({column} AS {cast})"
    else:
        return None
    return errors.Cast(name, made, of_null=any(isinstance(leaf, NullType) for _, leaf, _ in _leaves("", kind)))


def _stored_form(kind: DataType, in_map: bool = False) -> str | None:
    """Return a type to which Spark casts, as SQL writes it; ``None`` if there is none."""
    if isinstance(kind, StructType):
        fields = [(field.name, _stored_form(field.dataType, in_map)) for field in kind.fields]
        if not fields or any(form is None for _, form in fields):
            return None
        return f"STRUCT<{', '.join(f'{quoted(name)}: {form}' for name, form in fields)}>"
    if isinstance(kind, ArrayType):
        element = _stored_form(kind.elementType, in_map)
        return None if element is None else f"ARRAY<{element}>"
    if isinstance(kind, MapType):
        key, value = _stored_form(kind.keyType, True), _stored_form(kind.valueType, True)
        return None if key is None or value is None or isinstance(kind.keyType, NullType) else f"MAP<{key}, {value}>"
    if isinstance(kind, NullType):
        return "INT"
    if isinstance(kind, _AS_TEXT) or kind.typeName() in ("char", "varchar") or (in_map and isinstance(kind, TimestampNTZType)):
        return "STRING"
    return kind.simpleString().upper() if type(kind) in _PLAIN else None
