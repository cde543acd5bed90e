"""The frontiers, or the holds, of all channels that are tables of a schema of Spark's catalog."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from pyspark_strandline.options.parsers import one_of
from pyspark_strandline.read import errors
from pyspark_strandline.schema import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["show_schema"]

_LOCAL = re.compile(r"\Afile:/+")
_OTHER_CATALOG = "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE"


def show_schema(spark: SparkSession, schema: str, show: str = "frontiers", **options: Any) -> DataFrame:
    """Return the frontiers, or the holds, of all channels that are tables of a schema (docs/tables.md has the columns).

    These are the tables ``USING strandline``, as of this call. Their logs are read whenever the DataFrame is. A channel that
    cannot be read has a row with the error. Make a view of the DataFrame for SQL.

    Args:
        spark: The session.
        schema: The name of the schema, also with its catalog, as in ``spark_catalog.lake``.
        show: ``frontiers`` or ``holds``.
        options: Options of the object store, such as ``**{"storage.AWS_REGION": "eu-west-1"}``. Those of the tables are hidden
            from sessions, so they are not used.

    Raises:
        StrandlineError: ``STRANDLINE_CHANNELS_MISSING``: no table of the schema is a channel. ``STRANDLINE_OPTION_INVALID``.

    ``show_schema(spark, "lake").createOrReplaceTempView("frontiers")``
    """
    one_of("frontiers", "holds")("show", show)
    place = ".".join(quoted(part) for part in schema.split("."))
    channels = dict(_channels(spark, place))
    if not channels:
        raise errors.channels_missing_schema(schema)
    reader = spark.read.format("strandline").option("show", show).option("channels", json.dumps(channels))
    return reader.options(**options).load()


def _channels(spark: SparkSession, place: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the location of each table of a schema that is a channel."""
    for table in spark.sql(f"SHOW TABLES IN {place}").collect():
        if table["isTemporary"]:
            continue
        try:
            [text] = spark.sql(f"DESCRIBE EXTENDED {place}.{quoted(table['tableName'])} AS JSON").first() or [None]
        except AnalysisException as error:
            if error.getCondition() != _OTHER_CATALOG:  # such as a table of Delta's catalog
                raise
            continue
        told = json.loads(text or "{}")
        if told.get("provider") == "strandline":
            yield table["tableName"], _LOCAL.sub("/", told["location"], count=1)
