"""The errors of programs on Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strandline.errors import ProgramError, StrandlineError
from strandline.time.domain import TimeDomain


def column_reserved_by_program(relation: str, name: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_COLUMN_RESERVED",
        f"Relation {relation} has a column {name}. The channels of a program have the tick of a row in a column time, and names "
        "that begin with _program_ or _strandline are the plan's own.",
        "Give it another name.",
    )


def column_reserved_by_program_channel(relation: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_COLUMN_RESERVED",
        f"The relation {relation} has a name that begins with _, as the program's own channels have.",
        "Give it another name.",
    )


def option_invalid_buffering(buffering: object) -> StrandlineError:
    return StrandlineError("STRANDLINE_OPTION_INVALID", f"buffering is {buffering!r}.", 'Use "none", "stratum" or "tick".')


def program_differs(folder: str, what: str, had: object, now: object) -> ProgramError:
    return ProgramError(
        "STRANDLINE_PROGRAM_DIFFERS",
        f"The channels in {folder} are of a program with another {what}: {had!r:.300} instead of {now!r:.300}.",
        "Run the same program with its checkpoint. For another one, use another folder and a new checkpoint.",
    )


def _rows_invalid(what: str, remedy: str) -> ProgramError:
    return ProgramError("STRANDLINE_PROGRAM_ROWS_INVALID", what, remedy)


def program_rows_invalid_channel_columns(name: str, path: str, wrong: Mapping[str, tuple[object, object | None]]) -> ProgramError:
    found = ", ".join(f"{column}: {want} instead of {have or 'none'}" for column, (want, have) in wrong.items())
    return _rows_invalid(
        f"Input {name} does not have the columns of its channel {path} ({found}).",
        "Declare the input with the channel's types, or copy the channel by a query that casts.",
    )


def program_rows_invalid_channel_missing(name: str) -> ProgramError:
    return _rows_invalid(
        f"Input {name} has no channel.", f'Pass its path: evaluate(spark, program, {{"{name}": "/lake/{name}"}}, …).'
    )


def program_rows_invalid_channel_ticks(name: str, path: str, have: TimeDomain, want: str) -> ProgramError:
    return _rows_invalid(
        f"The channel {path} of input {name} has times of {have}, but the program's ticks are of {want}.",
        f'Make the program with Program(…, tick="{have}"), or project the channel first.',
    )


def program_rows_invalid_channel_twice(name: str, other: str, path: str) -> ProgramError:
    return _rows_invalid(
        f"The inputs {name} and {other} have one channel, {path}.",
        "Name one input, and let the rules read it twice. A relation may hold its rows under another name.",
    )


def program_rows_invalid_no_rules(name: str) -> ProgramError:
    return _rows_invalid(f"The program {name} has no rules, so there is nothing to compute.", "Add one: p.rule(head, rows).")


def program_rows_invalid_channel_unknown(unknown: Sequence[str], known: Sequence[str]) -> ProgramError:
    return _rows_invalid(
        f"The program has no input {', '.join(unknown)}. Its inputs are {', '.join(known)}.", "Use one of these names."
    )


def program_session_invalid() -> ProgramError:
    return ProgramError(
        "STRANDLINE_PROGRAM_SESSION_INVALID",
        "spark.sql.ansi.enabled is false in this session, so an integer that exceeds 64 bits would wrap around.",
        'Set it: spark.conf.set("spark.sql.ansi.enabled", "true").',
    )
