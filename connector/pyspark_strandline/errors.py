"""The errors of sessions, schemas, and the data source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from strandline.errors import StrandlineError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


class Cast(NamedTuple):
    """What a user may do with a column whose type is not supported."""

    column: str
    expression: str
    """In SQL."""
    of_null: bool
    """Whether it has the type INT where the column has none."""


def batch_write_unsupported() -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_BATCH_WRITE_UNSUPPORTED",
        "df.write cannot write a channel, because a batch does not state which times it completes.",
        "Use strandline.channel.Channel.producer(…).send(…), or df.writeStream.",
    )


def column_type_unsupported(what: str, path: str, kind: DataType, cast: Cast | None) -> StrandlineError:
    return _column_type_unsupported(what, path, kind, "which Delta tables as channels are do not have", cast)


def _column_type_unsupported(what: str, path: str, kind: DataType, why: str, cast: Cast | None) -> StrandlineError:
    if cast is None:
        remedy = f"Leave {path} out, or make it one of the types that a channel has (docs/channel.md)."
    else:
        remedy = f"Convert the column: df.withColumn({cast.column!r}, F.expr({cast.expression!r}))."
        remedy += " The type INT stands for the one that the values are to have." if cast.of_null else ""
    return StrandlineError(
        "STRANDLINE_COLUMN_TYPE_UNSUPPORTED", f"{what} have {path} of type {kind.simpleString()}, {why}.", remedy
    )


def column_type_unsupported_by_arrow(what: str, path: str, kind: DataType, cast: Cast | None) -> StrandlineError:
    return _column_type_unsupported(what, path, kind, "which Arrow in Python does not have", cast)


def column_type_unsupported_collation(what: str, path: str, kind: DataType, cast: Cast | None) -> StrandlineError:
    why = "whose collation a channel does not keep: it would come back as plain text"
    return _column_type_unsupported(what, path, kind, why, cast)


def column_type_unsupported_in_map(what: str, path: str, kind: DataType, cast: Cast | None) -> StrandlineError:
    return _column_type_unsupported(what, path, kind, "which deltalake cannot store inside a map", cast)


def column_type_unsupported_of_user(what: str, path: str, kind: DataType, cast: Cast | None) -> StrandlineError:
    return _column_type_unsupported(what, path, kind, "a user-defined type, which a channel does not keep", cast)


def column_type_unsupported_struct(what: str, path: str, kind: DataType, cast: Cast | None) -> StrandlineError:
    return _column_type_unsupported(what, path, kind, "a struct without fields, which Parquet cannot store", cast)


def delta_missing(line: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_DELTA_MISSING",
        f"There is no Delta for Spark {line} yet, which SQL and DataFrames over late tables, and USING delta, need.",
        "Leave Delta out with delta=False (--no-delta): the source and the sink do not need it. When delta-spark is there for "
        "this line, name its jars with delta_jars or STRANDLINE_DELTA_JARS.",
    )


def _extension_missing(so: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_EXTENSION_MISSING",
        f"The Spark session does not have the strandline extension, so {so}.",
        "Build the session with pyspark_strandline.configure(builder), or pass the shim's jar with --jars "
        '"$(python -m pyspark_strandline jar)".',
    )


def extension_missing_for_frontier() -> StrandlineError:
    return _extension_missing("the query's output frontier is unknown")


def extension_missing_for_operators() -> StrandlineError:
    return _extension_missing("its operators cannot read the frontier")


def extension_missing_for_times() -> StrandlineError:
    return _extension_missing("it cannot move times")


def extension_version(extension: str, python: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_EXTENSION_VERSION",
        f"The session has the extension of strandline {extension}, but Python has strandline {python}.",
        'Start it with the jar of this release, "$(python -m pyspark_strandline jar)", and remove the other one.',
    )


def hadoop_settings_unreachable(scheme: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_HADOOP_SETTINGS_UNREACHABLE",
        f"The Hadoop settings for {scheme or 'a local path'} cannot be read from this session.",
        "Give the options storage.NAME yourself. This knows the settings for s3a, s3, abfss and abfs, without Spark Connect.",
    )


def option_invalid_blank(option: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"The option {option!r} has a blank, where a shell takes $(…) apart.",
        "Install Strandline, and keep Delta's jars, in folders without blanks; or give Spark's program the options of "
        "pyspark_strandline.session.submit_options(), each as an argument of its own.",
    )


def option_invalid_delta_jar(jar: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"Delta's jar {jar!r} does not exist.",
        "Name existing files in STRANDLINE_DELTA_JARS, or in delta_jars of configure.",
    )


def option_invalid_since(frontier: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"Option startingFrontier is {frontier[:300]!r}, but this query's plan does not leave out the rows before.",
        "Read the channel by its path, with spark.readStream.format('strandline').load(path).",
    )


def option_invalid_columns(unknown: list[str], columns: list[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"Option columns names {unknown}, which the channel does not have. Its columns are {columns}.",
        "Name columns of the channel.",
    )


def output_mode_unsupported() -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OUTPUT_MODE_UNSUPPORTED",
        "The strandline sink does not support output mode complete, which replaces earlier rows.",
        "Use output mode append. It emits every result once, when its time is closed.",
    )


def schema_mismatch(given: StructType, own: StructType) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_SCHEMA_MISMATCH",
        f"The given schema {given.simpleString()} differs from the channel's schema {own.simpleString()}.",
        "Leave .schema(…) out, and choose columns with the option columns or with select.",
    )


def session_running() -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_SESSION_RUNNING",
        "A Spark session without the strandline extension is already running. Spark loads extensions only when a session starts.",
        "Call configure() before the first getOrCreate(), stop the running session, or start the shell with "
        '--jars "$(python -m pyspark_strandline jar)".',
    )


def shim_missing(line: str, folder: Path) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_SHIM_MISSING",
        f"This installation of strandline has no shim for Spark {line} in {folder}.",
        "Install a wheel of strandline, or run `make setup` in a source checkout.",
    )


def spark_version_mismatch(version: str, lines: Sequence[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_SPARK_VERSION_MISMATCH",
        f"pyspark {version} is installed, but the shims of this strandline release are built for Spark {' and '.join(lines)}.",
        f"Install pyspark {lines[-1]}.*, or the strandline release for your Spark line.",
    )


def time_column_ambiguous(columns: Sequence[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_TIME_COLUMN_AMBIGUOUS",
        f"The rows to write have {len(columns)} time columns, {columns}, but a channel has one.",
        "Drop the others, or remove their metadata with col.alias(name, metadata={}).",
    )


def time_column_missing(columns: Sequence[str], *, has_window: bool) -> StrandlineError:
    hint = " (a window is not a time: select window.start or window.end)" if has_window else ""
    return StrandlineError(
        "STRANDLINE_TIME_COLUMN_MISSING",
        f"None of the columns to write, {columns}, is a time column of a strandline source{hint}.",
        "Keep the source's time column in the query, or move it with advance, truncate (instead of date_trunc), project "
        "or enter. A column from other expressions or functions has no known frontier. Write a stream of another source "
        "with pyspark_strandline.ingest.",
    )
