"""The errors of programs: rules that are refused, with the place where they were written, and rows that do not fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strandline.errors import ProgramError

_STEP = "Give an integer of 1 or more, or a duration such as '1 hour' for timestamps."


def _columns(schema: Iterable[object]) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)  # type: ignore[attr-defined]


def _schema_invalid(place: str, what: str, remedy: str) -> ProgramError:
    return ProgramError("STRANDLINE_PROGRAM_SCHEMA_INVALID", f"{place}: {what}.", remedy)


def _expression_invalid(place: str, what: str, remedy: str) -> ProgramError:
    return ProgramError("STRANDLINE_PROGRAM_EXPRESSION_INVALID", f"{place}: {what}.", remedy)


def _invalid(place: str, what: str, remedy: str) -> ProgramError:
    return ProgramError("STRANDLINE_PROGRAM_INVALID", f"{place}: {what}.", remedy)


def _always_invalid(place: str, head: str, what: str, remedy: str) -> ProgramError:
    return ProgramError("STRANDLINE_PROGRAM_ALWAYS_INVALID", f"{place}: {head!r} is kept always, {what}.", remedy)


def _rows_invalid(what: str, remedy: str) -> ProgramError:
    return ProgramError("STRANDLINE_PROGRAM_ROWS_INVALID", f"{what}.", remedy)


def program_always_invalid_next_tick(place: str, head: str) -> ProgramError:
    return _always_invalid(
        place,
        head,
        "but a rule adds rows to it at the next tick",
        "Keep it for the tick, or leave next_tick out: what is kept always is there at the next tick too.",
    )


def program_always_invalid_rule(place: str, head: str, word: str, relation: str) -> ProgramError:
    return _always_invalid(
        place,
        head,
        f"but its rule needs all of {relation!r} ({word}), so what it gave may not hold later",
        f"Keep {head!r} for the tick.",
    )


def program_always_invalid_tick(place: str, head: str, relation: str) -> ProgramError:
    return _always_invalid(
        place,
        head,
        f"but its rule reads {relation!r}, which is kept for the tick",
        "Keep both in the same way, or read an input.",
    )


def program_columns_differ(place: str, call: str, left: Iterable[object], right: Iterable[object]) -> ProgramError:
    return ProgramError(
        "STRANDLINE_PROGRAM_COLUMNS_DIFFER",
        f"{place}: {call} of rows with the columns ({_columns(left)}) and ({_columns(right)}).",
        "Select the same columns on both sides, in the same order, with the same types.",
    )


def program_columns_differ_from_head(place: str, head: str, want: Iterable[object], have: Iterable[object]) -> ProgramError:
    return ProgramError(
        "STRANDLINE_PROGRAM_COLUMNS_DIFFER",
        f"{place}: {head!r} has the columns ({_columns(want)}), but the rule gives ({_columns(have)}).",
        f"Select the columns of {head!r}, in their order, with their types.",
    )


def program_columns_twice(place: str, names: Iterable[str]) -> ProgramError:
    return ProgramError(
        "STRANDLINE_PROGRAM_COLUMNS_TWICE",
        f"{place}: The result would have two columns {', '.join(names)}.",
        "Rename one with select, such as .select(other='x').",
    )


def program_expression_invalid_argument(place: str, value: object) -> ProgramError:
    return _expression_invalid(place, f"{value!r:.200} is not an expression", "Write lit(…) for a constant, col(…) for a column.")


def program_expression_invalid_bool(place: str, expression: object) -> ProgramError:
    return _expression_invalid(
        place,
        f"The expression {expression!r} has no truth value of its own",
        "Use & for and, | for or, ~ for not, in parentheses.",
    )


def program_expression_invalid_condition(place: str, expression: object, kind: object) -> ProgramError:
    return _expression_invalid(
        place, f"The condition {expression!r} is of {kind}", "Give a condition: compare it with something."
    )


def program_expression_invalid_literal(place: str, value: object) -> ProgramError:
    return _expression_invalid(
        place,
        f"{value!r:.200} is no value of a column",
        "Give an int of 64 bits, float, str, bool, date or a datetime with a time zone. For null, use is_null().",
    )


def program_expression_invalid_types(place: str, expression: object, kinds: Sequence[object]) -> ProgramError:
    return _expression_invalid(
        place,
        f"{expression!r} is not defined over {', '.join(map(str, kinds))}",
        "Arithmetic is over numbers, & | ~ over conditions, and comparisons are over values of one type.",
    )


def program_foreign_relation(place: str, theirs: str, own: str) -> ProgramError:
    return ProgramError(
        "STRANDLINE_PROGRAM_FOREIGN_RELATION",
        f"{place}: Rows of another program {theirs!r} are used in {own!r}.",
        "Give this program an input for them.",
    )


def program_head_is_input(place: str, name: str) -> ProgramError:
    return ProgramError(
        "STRANDLINE_PROGRAM_HEAD_IS_INPUT",
        f"{place}: The rule gives rows to {name!r}, which is an input.",
        f"Give them to a relation, with a second rule for the rows of {name!r}.",
    )


def program_invalid_aggregate(place: str, function: object, column: object) -> ProgramError:
    return _invalid(
        place,
        f"There is no aggregate {function!r} of {column!r}",
        "Write count, sum, min or max with a column, as in total=('sum', 'x'), or n=('count', None).",
    )


def program_invalid_channel(place: str, path: str, have: object, want: str) -> ProgramError:
    return _invalid(
        place,
        f"The times of the channel {path} are of {have}, but the program's ticks are of {want}",
        f"Make the program with tick={str(have)!r} if that is a scalar domain.",
    )


def program_invalid_form(place: str, form: object) -> ProgramError:
    return _invalid(place, f"There is no explanation in the form {form!r}", "Use text or dot.")


def program_invalid_function(place: str, function: object) -> ProgramError:
    return _invalid(place, f"{function!r:.200} is not a function", "Give a function.")


def program_invalid_head(place: str, node: object) -> ProgramError:
    return _invalid(place, f"{node!r:.200} is not a relation but what follows from relations", "Give a relation, or its name.")


def program_invalid_how(place: str, how: object) -> ProgramError:
    return _invalid(place, f"There is no way {how!r} to meet", "Use inner, left_semi or left_anti.")


def program_invalid_initial(place: str, what: str) -> ProgramError:
    return _invalid(place, f"The first state of a fold is wrong: {what}", "Give a dict of the state's columns.")


def program_invalid_k(place: str, k: object) -> ProgramError:
    return _invalid(place, f"top takes {k!r} rows", "Give an integer of 1 or more.")


def program_invalid_keep(place: str, keep: object) -> ProgramError:
    return _invalid(place, f"There is no way {keep!r} to keep", "Use tick or always.")


def program_invalid_keys(place: str, left: str, kind: object, right: str, other: object) -> ProgramError:
    return _invalid(place, f"{left!r} is of {kind}, but {right!r} of {other}", "Join columns of one type.")


def program_invalid_name(place: str, name: object) -> ProgramError:
    return _invalid(place, f"{name!r:.200} is not a name", "Use letters, digits and _, and begin with no digit.")


def program_invalid_order(place: str, column: str, way: object) -> ProgramError:
    return _invalid(place, f"{column!r} cannot be in the order {way!r}", "Use asc or desc.")


def program_invalid_parameters(place: str, parameter: str) -> ProgramError:
    return _invalid(place, f"The rule's parameter {parameter!r} is not a plain one", "Name relations by plain parameters.")


def program_invalid_rows(place: str, value: object) -> ProgramError:
    return _invalid(place, f"{value!r:.200} is not a set of rows", "Give what p.input, p.relation or their methods return.")


def program_invalid_step(place: str, step: object) -> ProgramError:
    return _invalid(place, f"The step {step!r} does not advance a tick", _STEP)


def program_invalid_sum(place: str, column: object, kind: object) -> ProgramError:
    return _invalid(place, f"{column!r} is of {kind}, which has no sum", "Sum int64 or float64.")


def program_invalid_tick(place: str, tick: object) -> ProgramError:
    return _invalid(place, f"{tick!r} is no domain of ticks", "Use int64 or another domain of integers, or timestamp.")


def program_name_twice(place: str, name: str, other: str) -> ProgramError:
    return ProgramError(
        "STRANDLINE_PROGRAM_NAME_TWICE",
        f"{place}: The name {name!r} is taken by {other!r}. Upper and lower case do not differ.",
        "Use another name.",
    )


def program_overflow(place: str, expression: object) -> ProgramError:
    return ProgramError(
        "STRANDLINE_PROGRAM_OVERFLOW",
        f"The rule at {place}: {expression} exceeds 64 bits.",
        "Filter such rows before, or compute in float64.",
    )


def program_overflow_tick(tick: str, step: int) -> ProgramError:
    return ProgramError(
        "STRANDLINE_PROGRAM_OVERFLOW",
        f"No tick comes {step} after {tick}.",
        "Let rules with next_tick end, or give a last tick.",
    )


def program_rows_invalid(name: str, tick: str, what: str) -> ProgramError:
    return _rows_invalid(
        f"A row of the input {name!r} at {tick}: {what}", "Give rows as tuples or dicts, with the input's types."
    )


def program_rows_invalid_function(place: str, kind: str, what: str) -> ProgramError:
    return _rows_invalid(
        f"The rule at {place}: A result of {kind}'s function: {what}", "Return dicts with exactly the columns, with their types."
    )


def program_rows_invalid_input(name: str, inputs: Iterable[str]) -> ProgramError:
    return _rows_invalid(f"{name!r} is not an input of the program", f"Give rows of {', '.join(inputs) or 'no input'}.")


def program_schema_invalid_empty(place: str) -> ProgramError:
    return _schema_invalid(place, "There is no column", "Name a column.")


def program_schema_invalid_kind(place: str, value: object) -> ProgramError:
    return _schema_invalid(
        place, f"{value!r:.200} is not a schema", "Give a pyarrow.Schema, or a text such as 'a long, b string'."
    )


def program_schema_invalid_not_null(place: str, name: str) -> ProgramError:
    return _schema_invalid(place, f"Column {name!r} is not nullable, which programs do not check", "Make the field nullable.")


def program_schema_invalid_text(place: str, text: str, part: str) -> ProgramError:
    return _schema_invalid(place, f"{part!r} in {text!r:.200} is no column with its type", "Write it like 'a long, b string'.")


def program_schema_invalid_twice(place: str, name: str, other: str) -> ProgramError:
    return _schema_invalid(
        place, f"There are columns {name!r} and {other!r}. Upper and lower case do not differ", "Rename one of them."
    )


def program_schema_invalid_type(place: str, name: str, kind: object) -> ProgramError:
    return _schema_invalid(
        place,
        f"Column {name!r} has the type {kind}",
        "Use long (int64), double (float64), string, boolean, timestamp (in microseconds, UTC) or date (date32).",
    )


def program_unknown_column(place: str, name: str, names: Iterable[str]) -> ProgramError:
    return ProgramError(
        "STRANDLINE_PROGRAM_UNKNOWN_COLUMN", f"{place}: There is no column {name!r}.", f"The columns are {', '.join(names)}."
    )


def program_unknown_relation(place: str, name: str, names: Iterable[str]) -> ProgramError:
    return ProgramError(
        "STRANDLINE_PROGRAM_UNKNOWN_RELATION",
        f"{place}: There is no relation {name!r}.",
        f"Name it first, with p.relation. So far there are {', '.join(names) or 'none'}.",
    )


def program_unstratifiable(place: str, loop: str, head: str, word: str, relation: str) -> ProgramError:
    return ProgramError(
        "STRANDLINE_PROGRAM_UNSTRATIFIABLE",
        f"{place}: The rule for {head!r} needs all of {relation!r} ({word}), which needs {head!r} in the same tick: {loop}.",
        f"Let the loop go through a tick: give this rule for {head!r} next_tick=True, or another rule of the loop.",
    )
