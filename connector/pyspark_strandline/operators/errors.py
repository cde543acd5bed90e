"""The errors of operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql.types import DataType

from strandline.errors import StrandlineError
from strandline.time.domain import Time, TimeDomain

_REMEDY = "Give values of the schema's types, in all of its columns and no others. Or declare another schema."


def column_reserved(columns: list[str], prefix: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_COLUMN_RESERVED",
        f"The columns {columns} have names that begin with the reserved prefix {prefix!r}.",
        "Rename them.",
    )


def key_invalid_collation(name: str, collation: str) -> StrandlineError:
    return _key_invalid_type(
        name,
        f"has the collation {collation}, in which different texts are equal. A state finds its keys by their bytes",
        "Give a column of plain text, such as lower(collate(column, 'UTF8_BINARY')).",
    )


def key_invalid_columns(key: list[str], columns: list[str], time: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_KEY_INVALID",
        f"The key {key} must name columns of {columns}, each once, without the time column {time!r}.",
        "Name other columns. The time belongs to every key.",
    )


def key_invalid_empty() -> StrandlineError:
    return StrandlineError("STRANDLINE_KEY_INVALID", "A processor needs a key.", "Name at least one column.")


def key_invalid_map(name: str) -> StrandlineError:
    return _key_invalid_type(
        name,
        "has a map, which Spark does not group by",
        "Give a column with the map's entries, such as array_sort(map_entries(column)).",
    )


def key_invalid_result(columns: list[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_KEY_INVALID",
        f"The processor's schema has the columns {columns}, which the result has anyway.",
        "Leave them out.",
    )


def _key_invalid_type(name: str, why: str, remedy: str) -> StrandlineError:
    return StrandlineError("STRANDLINE_KEY_INVALID", f"The key's column {name} {why}.", remedy)


def key_invalid_type(name: str, kind: DataType) -> StrandlineError:
    return _key_invalid_type(
        name, f"has the type {kind.simpleString()}, whose values have no order", "Give a text or a number as the key."
    )


def key_invalid_value(name: str, kind: str, error: Exception) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_KEY_INVALID",
        f"The key's column {name} has a value that Python's {kind} does not have ({error}).",
        "Give a number as the key, such as unix_micros(column) or unix_date(column).",
    )


def _loop_unsupported(what: str, domain: TimeDomain, asked: Time, now: Time) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_UNSUPPORTED",
        f"{what} at {domain.format(asked)}, later than {domain.format(now)}. A loop counts only the times of rows that the "
        "query has taken in.",
        "In a loop, use the time of the current call. The feedback advances it.",
    )


def loop_unsupported_call(processor: object, call: str, domain: TimeDomain, asked: Time, now: Time) -> StrandlineError:
    return _loop_unsupported(f"The processor {type(processor).__name__} calls {call}", domain, asked, now)


def loop_unsupported_result(domain: TimeDomain, asked: Time, now: Time) -> StrandlineError:
    return _loop_unsupported("The function has a result", domain, asked, now)


def _meet_invalid(what: str, remedy: str) -> StrandlineError:
    return StrandlineError("STRANDLINE_MEET_INVALID", what, remedy)


def meet_invalid_columns(twice: Sequence[str]) -> StrandlineError:
    return _meet_invalid(
        f"Both sides of the meet have column {', '.join(twice)}, which {'is' if len(twice) == 1 else 'are'} not its key.",
        f'Rename it on one side first: df.withColumnRenamed("{twice[0]}", "…").',
    )


def meet_invalid_domains(left: TimeDomain, right: TimeDomain) -> StrandlineError:
    return _meet_invalid(
        f"The left side of the meet has times of {left}, and the right side times of {right}.",
        "Give both the same domain first, with enter, project or truncate.",
    )


def meet_invalid_semi(domain: TimeDomain, within: Sequence[str]) -> StrandlineError:
    where = f" within {', '.join(within)}" if within else ""
    return _meet_invalid(
        f"A left_semi meet over times of {domain}{where} has no least time at which a row meets its first partner.",
        'Use how="inner" and drop what you do not need, or within=… so that one coordinate is left.',
    )


def meet_invalid_types(left: str, of_left: DataType, right: str, of_right: DataType) -> StrandlineError:
    return _meet_invalid(
        f"The key of the meet compares {left}, a {of_left.simpleString()}, with {right}, a {of_right.simpleString()}.",
        f'Cast one of them first: df.withColumn("{right}", df["{right}"].cast("{of_left.simpleString()}")).',
    )


def meet_invalid_within(names: Sequence[str], domain: TimeDomain) -> StrandlineError:
    return _meet_invalid(
        f"within={list(names)} does not name the first coordinates of the times, which are of {domain}.",
        "Name its first coordinates, in their order."
        if domain.coordinates
        else "Times without coordinates have none: leave it out, or join equal times with Spark's own join.",
    )


def not_a_stream_to_meet() -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_NOT_A_STREAM",
        "A meet joins streaming DataFrames, and one of these is a batch.",
        "Read the channel with spark.readStream. A table that does not change is joined with Spark's own join.",
    )


def not_a_stream() -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_NOT_A_STREAM", "A processor needs a streaming DataFrame.", "Read the channel with spark.readStream."
    )


def not_in_advance(processor: object, call: str, domain: TimeDomain, time: Time, now: Time, key: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_NOT_IN_ADVANCE",
        f"The processor {type(processor).__name__} calls {call} at {domain.format(time)}, but the time of "
        f"its current call is {domain.format(now)}. The key is {key}.",
        "Use a time at or after the time of the current call.",
    )


def option_invalid_rows(rows: object, forms: Iterable[str]) -> StrandlineError:
    return StrandlineError("STRANDLINE_OPTION_INVALID", f"The argument rows is {rows!r}.", f"Give one of {', '.join(forms)}.")


def output_frontier_unknown(name: str, why: str) -> StrandlineError:
    """The extension says why."""
    return StrandlineError("STRANDLINE_OUTPUT_FRONTIER_UNKNOWN", f"{f'Output {name}: ' if name else ''}{why}")


def output_frontier_unknown_unpublished(name: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OUTPUT_FRONTIER_UNKNOWN",
        f"The extension has published no frontier for the output {name!r}.",
        "Write several outputs with pyspark_strandline.write_outputs or route, and use one release of strandline.",
    )


def _result_invalid(what: str, why: str, remedy: str = _REMEDY) -> StrandlineError:
    return StrandlineError("STRANDLINE_RESULT_INVALID", f"{what} {why}.", remedy)


def result_invalid_at_vertex(what: str, schema: str, misfit: Exception) -> StrandlineError:
    return _result_invalid(what, f"is not {schema}: {misfit}")


def result_invalid_columns_missing(what: str, missing: list[str], columns: list[str]) -> StrandlineError:
    return _result_invalid(what, f"lacks the columns {missing} of the schema. It has the columns {columns}", "Give all columns.")


def result_invalid_columns_twice(what: str, columns: list[str]) -> StrandlineError:
    return _result_invalid(what, f"has the columns {columns} several times", "Give each column once.")


def result_invalid_columns_unknown(what: str, unknown: list[str], columns: list[str]) -> StrandlineError:
    return _result_invalid(
        what,
        f"has the columns {unknown}, which the schema does not have. The schema has the columns {columns}",
        "Select the columns of the schema, or add these to the schema.",
    )


def result_invalid_form(what: str, result: object) -> StrandlineError:
    return _result_invalid(
        what,
        f"has the type {type(result).__name__}, which is not supported",
        "Give a pyarrow Table or RecordBatch, a pandas DataFrame, a list of dicts, an iterable of these, or None.",
    )


def result_invalid_column(what: str, column: str, error: Exception) -> StrandlineError:
    return _result_invalid(what, f"does not fit the schema: {column}: {error}")


def result_invalid_misfit(what: str, where: str, why: str) -> StrandlineError:
    return _result_invalid(what, f"does not fit the schema: {where} {why}")


def result_invalid_state(what: str, misfit: Exception) -> StrandlineError:
    return _result_invalid(what, f"does not fit state_schema: {misfit}")


def state_undeclared(processor: object, key: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_STATE_UNDECLARED",
        f"The processor {type(processor).__name__} has a state for the key {key}, but no state_schema.",
        "Declare state_schema in the class.",
    )


def _summary_invalid(domain: TimeDomain, what: str, remedy: str) -> StrandlineError:
    return StrandlineError("STRANDLINE_SUMMARY_INVALID", f"A path summary of {domain} {what}.", remedy)


def summary_invalid_coordinate(domain: TimeDomain, coordinate: str, by: Mapping[str, object]) -> StrandlineError:
    what = f"has the coordinate {coordinate!r} in addition to those of {dict(by)}"
    return _summary_invalid(domain, what, "Name each once, in the mapping.")


def summary_invalid_unit(domain: TimeDomain, of: str) -> StrandlineError:
    return _summary_invalid(domain, f"truncates{of} to a unit of 0", "Give a unit of more than 0.")


def time_column_ambiguous(columns: Sequence[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_TIME_COLUMN_AMBIGUOUS",
        f"There are {len(columns)} time columns, {', '.join(columns)}.",
        "Name the one to move with column=…, or drop the others.",
    )


def time_column_missing(column: str | None, columns: Iterable[str], *, has_window: bool) -> StrandlineError:
    subject = f"None of the columns {', '.join(columns)} is" if column is None else f"Column {column} is not"
    hint = " (a window is not a time: select window.start or window.end)" if has_window else ""
    return StrandlineError(
        "STRANDLINE_TIME_COLUMN_MISSING",
        f"{subject} a time column of a strandline source{hint}.",
        "Move the source's time column. A column from other expressions has no known frontier.",
    )


def time_column_missing_name(column: str, columns: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_TIME_COLUMN_MISSING", f"There is no column {column!r}.", f"Name one of {', '.join(columns)}."
    )


def time_domain_mismatch(published: str, domain: TimeDomain) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_TIME_DOMAIN_MISMATCH",
        f"The output frontier has times of {published}, but the time column has times of {domain}.",
        "Keep the source's time column in the query.",
    )


def time_type_mismatch(name: str, kind: DataType, time: DataType) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_TIME_TYPE_MISMATCH",
        f"The result's column {name} has the type {kind.simpleString()}, but the time column has the type {time.simpleString()}.",
        "Give the column the time's type, or another name.",
    )


def time_overflow(what: str, shift: int, leaf: TimeDomain, most: int) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_TIME_OVERFLOW",
        f"{what} is {shift}, which moves every time of {leaf} beyond the greatest time.",
        f"Advance by at most {most}.",
    )
