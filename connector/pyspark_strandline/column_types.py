"""Which types of Spark the columns of a channel can have, and which of them reach a user's function through Arrow."""

from __future__ import annotations

from collections.abc import Iterator

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

from pyspark_strandline.schema import quoted
from strandline.errors import StrandlineError

__all__ = ["check_exchanged_types", "check_stored_types"]

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
            why = _not_stored(kind)
            if why is None and in_map and not outside and isinstance(kind, TimestampNTZType):
                why = "which deltalake cannot store inside a map"
            if why is not None:
                raise _refused(what, path, kind, why, _remedy(field.name, field.dataType, path))


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
                remedy = _remedy(field.name, field.dataType, path)
                raise _refused(what, path, kind, "which Arrow in Python does not have", remedy)


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


def _not_stored(kind: DataType) -> str | None:
    """Return why a channel does not have a type; ``None`` if it has."""
    if isinstance(kind, StringType) and type(kind) is StringType:
        return None if kind == StringType() else "whose collation a channel does not keep: it would come back as plain text"
    if isinstance(kind, StructType):
        return "a struct without fields, which Parquet cannot store"
    if isinstance(kind, UserDefinedType):
        return "a user-defined type, which a channel does not keep"
    return None if type(kind) in _PLAIN else "which Delta tables as channels are do not have"


def _refused(what: str, path: str, kind: DataType, why: str, remedy: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_COLUMN_TYPE_UNSUPPORTED", f"{what} have {path} of type {kind.simpleString()}, {why}.", remedy
    )


def _remedy(name: str, kind: DataType, path: str) -> str:
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
        return f"Leave {path} out, or make it one of the types that a channel has (docs/channel.md)."
    of_null = (
        " The type INT stands for the one that the values are to have."
        if any(_is_void(k) for _, k, _ in _leaves("", kind))
        else ""
    )
    return f"Convert the column: df.withColumn({name!r}, F.expr({made!r})).{of_null}"


def _is_void(kind: DataType) -> bool:
    return isinstance(kind, NullType)


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
