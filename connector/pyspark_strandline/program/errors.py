"""The errors of programs on Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strandline.errors import ProgramError, StrandlineError
from strandline.time.domain import TimeDomain


def column_reserved_by_program(relation: str, name: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_COLUMN_RESERVED",
        f"Relation {relation} has a column {name}, but so the channels of a program name the tick of a row.",
        "Give it another name.",
    )


def option_invalid_buffering(buffering: object) -> StrandlineError:
    return StrandlineError("STRANDLINE_OPTION_INVALID", f"buffering is {buffering!r}.", 'Use "none", "stratum" or "tick".')


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
