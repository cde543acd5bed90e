"""The errors of loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql.types import DataType

from pyspark_strandline.schema import quoted
from strandline.errors import StrandlineError
from strandline.time.domain import TimeDomain


def column_reserved_by_iterate(columns: list[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_COLUMN_RESERVED", f"The seed has the columns {columns}, whose names iterate uses itself.", "Rename them."
    )


def column_reserved_by_route(columns: list[str], prefix: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_COLUMN_RESERVED",
        f"The columns {columns} have names that begin with {prefix!r}, as those that route makes.",
        "Rename them.",
    )


def column_reserved_inputs(name: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_COLUMN_RESERVED", f"The inputs have the column {name!r}, a name that pregel uses itself.", "Rename it."
    )


def column_reserved_vertex(name: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_COLUMN_RESERVED", f"The vertex is named {name!r}, a name that pregel uses itself.", "Name it otherwise."
    )


def key_invalid_fields(of: str, fields: list[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_KEY_INVALID",
        f"The {of} have the fields {fields}, which are the names of the vertex, of the time, or of another field. "
        "Case does not matter.",
        "Rename them, or name the vertex with vertex=….",
    )


def key_invalid_inputs(columns: list[str], vertex: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_KEY_INVALID",
        f"The inputs have the columns {columns}, without {vertex!r}.",
        "Return a column with the vertex's id, or name it with vertex=….",
    )


def _loop_body_unsupported(what: str, remedy: str) -> StrandlineError:
    return StrandlineError("STRANDLINE_LOOP_BODY_UNSUPPORTED", f"{what}.", remedy)


def loop_body_unsupported_result(made: object) -> StrandlineError:
    return _loop_body_unsupported(
        f"The body returns {type(made).__name__}, which is no DataFrame", "Return the rows that follow from those it gets."
    )


def loop_body_unsupported_table(columns: Iterable[str]) -> StrandlineError:
    return _loop_body_unsupported(
        f"The body returns a table ({', '.join(columns)}), which does not follow from the loop's rows",
        "Begin with the rows that the body gets, and join tables to them.",
    )


def loop_body_unsupported_time(time: str) -> StrandlineError:
    return _loop_body_unsupported(
        f"The body returns a column {time} that is not the time of the loop's rows, or moves it",
        f"Select {time} as it is. iterate advances the coordinate that counts the rounds.",
    )


def loop_body_unsupported_value(body: object) -> StrandlineError:
    return _loop_body_unsupported(f"The body is {body!r}, which is no function", "Give a function of a DataFrame.")


def loop_open(feedback: Iterable[str], missing: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_OPEN",
        f"The loop reads the feedback channels {', '.join(feedback)}, but {', '.join(missing)} is not written.",
        "Write every feedback channel.",
    )


def loop_two_writers(producers: dict[str, list[str]]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_TWO_WRITERS",
        f"The feedback channels have the producers {producers}, but one query writes all of them, and nobody else.",
        "Create each with Channel.create(…, producers=[name]), with one name for all.",
    )


def loop_unsupported_message(vertex: object, messages: int) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_UNSUPPORTED",
        f"The result of vertex {vertex} sends {messages} message(s), but no superstep follows.",
        "Send messages in compute.",
    )


def loop_unsupported_order(domain: TimeDomain) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_UNSUPPORTED",
        f"The times of the graph's channels are of {domain}, where some times come neither before nor after each other. "
        "pregel keeps one state of a vertex over all outer times, so they must have an order.",
        "Give pregel a channel with one coordinate: write project(rows, coordinate) into it by a query of its own. Or let "
        "the producers write times of lex(…), which come one after the other.",
    )


def option_conflict_distinct(best: Mapping[str, str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_CONFLICT",
        f"best is {dict(best)}, so one row of each key goes round, but distinct=False lets equal rows go round.",
        "Leave one of them out.",
    )


def option_invalid_best(best: Mapping[str, str], columns: list[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"best is {dict(best)}, but the seed has the columns {columns}.",
        "Give min or max for some of these columns, without the time.",
    )


def option_invalid_best_type(name: str, kind: DataType) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"best has the column {name} of the type {kind.simpleString()}, whose values have no order.",
        "Decide by another column.",
    )


def option_invalid_feedback(unknown: Iterable[str], channels: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"The feedback names {', '.join(unknown) or 'nothing'}, but the loop's channels are {', '.join(channels)}.",
        "Name at least one channel of the loop as its feedback. Without one, use read_channels.",
    )


def option_invalid_query(query: str | None, queries: Iterable[str], feedback: Mapping[str, object] | None) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"The query is {query!r}, and the loop's queries are {', '.join(queries)}"
        + (f", but feedback is {dict(feedback)} too." if feedback is not None else "."),
        "Name with query=… which of them this one is, and leave feedback out.",
    )


def option_invalid_aggregator(name: str, text: object, functions: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"The aggregator {name} is {text!r}.",
        f'Give one of the functions {", ".join(functions)} and the type of its values, such as "sum double".',
    )


def result_invalid_aggregator(program: str, name: str, known: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESULT_INVALID",
        f"{program} gives a value to {name}, but its aggregators are {', '.join(known) or 'none'}.",
        f'Add it: aggregators = {{"{name}": "sum double"}}.',
    )


def option_invalid_streams(names: Sequence[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"streams names {', '.join(names)}, but the loop's own channels are seed and rounds.",
        "Give them other names.",
    )


def option_invalid_until(until: object) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID", f"until is {until!r}.", "Give a number of rounds of at least 1, or a condition."
    )


def option_invalid_until_condition(until: object, columns: list[str], error: Exception) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"until is {until!r}, which is no condition on a row of {columns}: {str(error).splitlines()[0]}",
        "Give a number of rounds, or a condition on the columns of one row.",
    )


def outputs_invalid(name: str, feedback: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OUTPUTS_INVALID",
        f"Output {name} has no path, and is no feedback channel. These are {', '.join(feedback)}.",
        "Give a path.",
    )


def schema_mismatch_body_columns(columns: Sequence[str], wanted: Sequence[str]) -> StrandlineError:
    differences = {
        "lacks": [name for name in wanted if name not in columns],
        "has besides": [name for name in columns if name not in wanted],
        "has twice": sorted({name for name in columns if columns.count(name) > 1}),
    }
    said = ", and ".join(f"{how} {', '.join(which)}" for how, which in differences.items() if which)
    return StrandlineError(
        "STRANDLINE_SCHEMA_MISMATCH",
        f"The body returns the columns {columns}, but the loop's rows have {wanted}. It {said}.",
        "Select exactly these columns, with the time as it is.",
    )


def schema_mismatch_body_types(columns: Sequence[tuple[str, str, str]]) -> StrandlineError:
    """Each column has a name, a type, and the type that it has in the seed."""
    each = "; ".join(f"{name} has the type {kind}, but in the seed it is {wanted}" for name, kind, wanted in columns)
    casts = "".join(f".withColumn({name!r}, F.col({quoted(name)!r}).cast({wanted!r}))" for name, _, wanted in columns)
    return StrandlineError(
        "STRANDLINE_SCHEMA_MISMATCH",
        f"The body returns columns of other types: {each}.",
        f"Append {casts} to what the body returns. Or give the seed's channel the wider type.",
    )


def schema_mismatch_seed(
    loop: str, columns: list[str], times: TimeDomain, seed: str, seed_columns: list[str], seed_times: TimeDomain
) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_SCHEMA_MISMATCH",
        f"The rows of the loop at {loop} have the columns {columns} and times of {times}, but the seed "
        f"{seed} has {seed_columns} and gives times of {seed_times}, or other types.",
        "Use the seed that the loop began with. Or begin a new loop, in another folder and with a new checkpoint.",
    )


def time_domain_mismatch(domains: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_TIME_DOMAIN_MISMATCH",
        f"The channels of the graph have times of {', '.join(domains) or 'no domain'}.",
        "Give at least one channel, and channels of one domain.",
    )


def column_reserved_by_link(column: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_COLUMN_RESERVED",
        f"The rows of a recorded link have a column {column!r}, in which it keeps the times from before they come round.",
        "Leave it out, or give it another name.",
    )


def option_invalid_record(record: object) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"The option record is {record!r}.",
        'Use True or "clock" for the receiving clock, "earliest", or False.',
    )


def option_invalid_events(unknown: Iterable[str], feedback: Iterable[str]) -> StrandlineError:
    what = f"events names {', '.join(unknown)}, which are no" if unknown else "record and events are for"
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"The option {what} feedback channels of one query. These are {', '.join(feedback)}.",
        "Give feedback, without queries, and name channels of it.",
    )


def option_invalid_lag(name: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"The feedback {name} does not advance the instant, and what comes round there gets the times of a clock.",
        'Give an advance such as {"instant": "1 second"}.',
    )
