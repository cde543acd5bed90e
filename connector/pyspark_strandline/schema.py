"""Schemas between Spark and Arrow: types, and the time column's domain in the field metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from pyspark_strandline import errors
from strandline.channel.write.create import nullable_field
from strandline.time.arrow import TIME_KEY, arrow_type
from strandline.time.domain import TimeDomain, parse_domain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "TIME_METADATA",
    "arrow_schema",
    "channel_schema",
    "domain_metadata",
    "quoted",
    "schema_above",
    "spark_schema",
    "time_field_of",
    "time_fields",
]

TIME_METADATA = TIME_KEY.decode()
# Spark's checker allows an append aggregation only over a column with this key. The shim removes every use of it. A session
# without the shim passes the checker too, and is then refused by name when the stream starts.
_SPARK_WATERMARK = "spark.watermarkDelayMs"


def domain_metadata(domain: TimeDomain | str) -> dict[str, Any]:
    """Return the metadata that makes a Spark column a time column, for ``column.alias(name, metadata=…)``.

    Use it where a function hides the column's origin from Spark, as in the schema of ``mapInArrow``.

    >>> domain_metadata("timestamp")
    {'strandline.time': 'timestamp', 'spark.watermarkDelayMs': 0}
    """
    text = str(parse_domain(domain) if isinstance(domain, str) else domain)
    return {TIME_METADATA: text, _SPARK_WATERMARK: 0}


def spark_schema(schema: pa.Schema, time_column: str, domain: TimeDomain, columns: Sequence[str] | None = None) -> StructType:
    """Return the Spark schema of a channel, or of the named columns and the time column. Raises for an unknown column.

    All columns are nullable: Spark trusts ``NOT NULL`` without a check, and wrong rows would be the result.
    """
    if columns is not None:
        unknown = [name for name in columns if name not in schema.names]
        if unknown:
            raise errors.option_invalid_columns(unknown, schema.names)
        schema = pa.schema([field for field in schema if field.name in columns or field.name == time_column])
    converted = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return StructType(
        [
            StructField(f.name, f.dataType, True, domain_metadata(domain) if f.name == time_column else {})
            for f in converted.fields
        ]
    )


def quoted(name: str) -> str:
    """Return a column's name as Spark's expressions quote it.

    >>> quoted("a.b`c")
    '`a.b``c`'
    """
    return "`" + name.replace("`", "``") + "`"


def schema_above(df: DataFrame) -> StructType:
    """Return the schema of a DataFrame as an operator above it sees it.

    The extension puts what a join does to times above the join, when something stands there. In the schema of a DataFrame that
    is a join itself, the times are still those of its inputs.
    """
    return df.select("*").schema


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark exchanges rows of ``schema``, with timestamps in UTC."""
    return to_arrow_schema(schema, timezone="UTC")


def time_fields(schema: StructType) -> list[tuple[str, TimeDomain]]:
    """Return the name and the domain of each time column."""
    fields = []
    for field in schema.fields:
        if TIME_METADATA in (field.metadata or {}):
            domain = parse_domain(str(field.metadata[TIME_METADATA]))
            # Outside a stream a window() column inherits the tag of its time column, but is a struct of two bounds, not a time.
            if arrow_schema(StructType([field])).field(0).type.equals(arrow_type(domain)):
                fields.append((field.name, domain))
    return fields


def time_field_of(schema: StructType) -> tuple[str, TimeDomain]:
    """Return the name and the domain of the one time column that a query writes.

    Raises :class:`StrandlineError` when there is not exactly one.
    """
    fitting = time_fields(schema)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise errors.time_column_ambiguous([name for name, _ in fitting])
    tagged = any(TIME_METADATA in (f.metadata or {}) for f in schema.fields)
    raise errors.time_column_missing(schema.names, has_window=tagged)


def channel_schema(schema: StructType, time_column: str, domain: TimeDomain) -> pa.Schema:
    """Return the Arrow schema of a channel that holds rows of ``schema``."""
    arrow = arrow_schema(schema)
    fields = []
    for field in arrow:
        metadata = {TIME_KEY: str(domain).encode()} if field.name == time_column else None
        fields.append(nullable_field(field).with_metadata(metadata))
    return pa.schema(fields)
