"""The errors of times, their domains, path summaries and durations."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence

from strandline.errors import DurationError, StrandlineError, SummaryError, TimeDomainError, TimeError
from strandline.time.text.calendar import format_micros
from strandline.time.text.grammar import Wrong


def _meant(text: str) -> str:
    """Return the moment that a number of milliseconds or seconds since 1970 most likely means."""
    digits = text.strip(" \t\n\r\f\v+")
    if not re.fullmatch("[0-9]{9,16}", digits):
        return "2026-03-01T12:00Z"
    micros = int(digits) * (1_000_000 if len(digits) < 12 else 1_000 if len(digits) < 15 else 1)
    return re.sub(r"0+Z\Z|\.0+Z\Z", "Z", format_micros(micros)) if micros % 1_000_000 else format_micros(micros)


def _summary_invalid(domain: object, what: str, remedy: str) -> SummaryError:
    return SummaryError("STRANDLINE_SUMMARY_INVALID", f"A path summary of {domain} {what}.", remedy)


def _time_domain_invalid(text: str, what: str) -> TimeDomainError:
    return TimeDomainError(
        "STRANDLINE_TIME_DOMAIN_INVALID",
        f"The time domain {text!r} {what}.",
        "Write it like timestamp, int64, product(epoch int64, iter int64) or lex(tick, stratum, iter).",
    )


def _time_invalid(field: str, what: str, remedy: str) -> TimeError:
    return TimeError("STRANDLINE_TIME_INVALID", f"{field} {what}.", remedy)


def columns_invalid_lengths(domain: object, columns: int, lengths: list[int], deltas: int, expected: int) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_COLUMNS_INVALID",
        f"A batch of {domain} cannot consist of {columns} columns of lengths {lengths} and {deltas} deltas.",
        f"Give {expected} columns, each as long as the deltas.",
    )


def columns_invalid_type(have: object, dtype: object, domain: object, dtypes: Iterable[object]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_COLUMNS_INVALID",
        f"A column of {have} cannot be converted to {dtype}.",
        f"Use the leaf types of {domain}, {', '.join(map(str, dtypes))}, and int64 for the deltas.",
    )


def delay_invalid(what: str, value: object, units: Iterable[str]) -> DurationError:
    return DurationError(
        "STRANDLINE_DELAY_INVALID",
        f"{what} is {value!r:.200}, which is neither a duration nor a count.",
        f"Write it like '60 minutes' ({', '.join(units)}), or as a number for integer times.",
    )


def delay_invalid_kind(what: str, duration: object, have: str, domain: object, want: str) -> DurationError:
    return DurationError("STRANDLINE_DELAY_INVALID", f"{what} is {duration}, {have}, but times are of {domain}.", f"Give {want}.")


def delay_invalid_range(what: str, value: object, problem: str) -> DurationError:
    return DurationError("STRANDLINE_DELAY_INVALID", f"{what} is {value!s}, which is {problem}.", "Give 0 or more.")


def summary_invalid_backwards(domain: object, by: int) -> SummaryError:
    return _summary_invalid(domain, f"advances by {by}, which moves times backwards", "Give an integer of 0 or more.")


def summary_invalid_bare(domain: object, names: Iterable[str]) -> SummaryError:
    return _summary_invalid(domain, f"keeps {', '.join(names)}, but a scalar time has no coordinates", "Do not project it.")


def summary_invalid_composite(domain: object, path: str, prefix: str, names: Iterable[str]) -> SummaryError:
    return _summary_invalid(
        domain,
        f"moves the composite coordinate {path}" if path else "names no coordinate to move",
        f"Name one of {', '.join(prefix + name for name in names)}.",
    )


def summary_invalid_coordinate(domain: object, name: str, remedy: str) -> SummaryError:
    return _summary_invalid(domain, f"names the unknown coordinate {name!r}", remedy)


def summary_invalid_distance(domain: object, by: object) -> SummaryError:
    return _summary_invalid(domain, f"advances by {by!r} ({type(by).__name__})", "Give an integer of 0 or more.")


def summary_invalid_entry(outer: object, inner: object) -> SummaryError:
    return SummaryError(
        "STRANDLINE_SUMMARY_INVALID",
        f"Times of {outer} do not enter {inner}.",
        "The outer domain must be the loop's domain or its first coordinates. The coordinates after it must be integers.",
    )


def summary_invalid_kept(domain: object, what: str, have: Iterable[str]) -> SummaryError:
    return _summary_invalid(domain, what, f"Name some of {', '.join(have)}, each once.")


def summary_invalid_lex(domain: object, field: str, value: object) -> SummaryError:
    return _summary_invalid(
        domain,
        f"cannot be read from {field} = {value!r}",
        'Give {} or {"advance": coordinate, "by": summary, "then": [values]}.',
    )


def summary_invalid_of_row(domain: object, step: object) -> SummaryError:
    return _summary_invalid(domain, f"has the step {step}, which does not apply to a row's time", "Leave it out.")


def summary_invalid_order(domain: object, names: Sequence[str], have: Sequence[str]) -> SummaryError:
    return _summary_invalid(
        domain,
        f"keeps {', '.join(names)}, which may move back when a coordinate before it advances",
        f"Keep the first coordinates: {', '.join(have[: len(names)])}.",
    )


def summary_invalid_paths(domain: object, domains: int) -> SummaryError:
    return _summary_invalid(domain, f"has paths to times of {domains} domains", "Let all paths lead to one.")


def summary_invalid_product(domain: object, field: str, value: object, coordinates: int) -> SummaryError:
    return _summary_invalid(domain, f"cannot be read from {field} = {value!r}", f"Give a list of {coordinates} summaries.")


def summary_invalid_scalar(domain: object, coordinate: str) -> SummaryError:
    return _summary_invalid(domain, f"names the coordinate {coordinate!r}, but a scalar has none", "Leave the coordinate out.")


def summary_invalid_step(value: object) -> SummaryError:
    return SummaryError(
        "STRANDLINE_SUMMARY_INVALID",
        f"A path summary has the unknown step {reprlib.repr(value):.200}.",
        "Use one release of strandline.",
    )


def summary_invalid_tail(domain: object, field: str, value: object, coordinates: int) -> SummaryError:
    return _summary_invalid(
        domain,
        f"cannot be read from {field} = {value!r}",
        f"Advance by 1 or more, and set the {coordinates} coordinates after it.",
    )


def summary_invalid_unknown(domain: object, name: str, names: Iterable[str]) -> SummaryError:
    return _summary_invalid(domain, f"names the unknown coordinate {name!r}", f"Use one of {', '.join(names)}.")


def time_column_missing(name: str, names: list[str]) -> TimeDomainError:
    return TimeDomainError(
        "STRANDLINE_TIME_COLUMN_MISSING",
        f"The schema does not have exactly one column {name!r}. Its columns are {names}.",
        "Name one of them as the time column.",
    )


def time_domain_invalid_character(text: str, character: str) -> TimeDomainError:
    return _time_domain_invalid(text, f"has an unexpected character at {character!r}")


def time_domain_invalid_coordinate(text: str, name: str) -> TimeDomainError:
    return _time_domain_invalid(text, f"lacks a coordinate name before {name!r}" if name else "ends within its coordinates")


def time_domain_invalid_deep(text: str, most: int) -> TimeDomainError:
    return _time_domain_invalid(text, f"nests deeper than {most}")


def time_domain_invalid_empty(kind: str) -> TimeDomainError:
    return TimeDomainError("STRANDLINE_TIME_DOMAIN_INVALID", f"{kind}() has no coordinate.", "Name at least one.")


def time_domain_invalid_long(text: str, most: int) -> TimeDomainError:
    return _time_domain_invalid(text[:40] + "…", f"is longer than {most} characters")


def time_domain_invalid_name(name: str) -> TimeDomainError:
    return TimeDomainError(
        "STRANDLINE_TIME_DOMAIN_INVALID",
        f"{name!r} is not a coordinate name.",
        "Use letters, digits and underscores, and do not begin with a digit.",
    )


def time_domain_invalid_open(text: str) -> TimeDomainError:
    return _time_domain_invalid(text, "lacks a closing parenthesis")


def time_domain_invalid_part(text: str, word: str) -> TimeDomainError:
    return _time_domain_invalid(text, f"lacks a domain before {word!r}" if word else "is empty or ends too early")


def time_domain_invalid_rest(text: str, rest: str) -> TimeDomainError:
    return _time_domain_invalid(text, f"continues after its end with {rest!r}")


def time_domain_invalid_scalar(name: str, known: Iterable[str]) -> TimeDomainError:
    return TimeDomainError(
        "STRANDLINE_TIME_DOMAIN_INVALID",
        f"{name!r} is not a scalar time domain.",
        f"Use one of {', '.join(sorted(known))}.",
    )


def time_domain_invalid_summary(domain: object) -> TimeDomainError:
    return TimeDomainError(
        "STRANDLINE_TIME_DOMAIN_INVALID", f"{domain!r} has no path summaries.", "Use a scalar, product or lex."
    )


def time_domain_invalid_twice(domain: object) -> TimeDomainError:
    return TimeDomainError(
        "STRANDLINE_TIME_DOMAIN_INVALID",
        f"{domain} has two coordinates with one name.",
        "Give each its own name; case does not matter.",
    )


def time_domain_mismatch_of_column(name: str, kind: object, domain: object, stored: object) -> TimeDomainError:
    return TimeDomainError(
        "STRANDLINE_TIME_DOMAIN_MISMATCH",
        f"Column {name!r} has the type {kind}, but its domain {domain} is stored as {stored}.",
        "Change the domain or the type so that they agree.",
    )


def time_domain_mismatch_of_frontiers(domain: object, other: object) -> TimeDomainError:
    return TimeDomainError(
        "STRANDLINE_TIME_DOMAIN_MISMATCH",
        f"Frontiers of {domain} and of {other} cannot be compared.",
        "Convert both frontiers to one domain first.",
    )


def time_domain_missing(name: str, kind: object, key: str) -> TimeDomainError:
    return TimeDomainError(
        "STRANDLINE_TIME_DOMAIN_MISSING",
        f"Column {name!r} ({kind}) has no time domain: its metadata lacks {key!r}.",
        "Make the field with strandline.time.arrow.time_field(name, domain).",
    )


def time_invalid_beyond(field: str, number: int, domain: object, low: int, high: int) -> TimeError:
    return _time_invalid(field, f"is {number}, outside {domain} ({low} to {high})", f"Use a time from {low} to {high}.")


def time_invalid_cast(field: str, domain: object, error: Exception) -> TimeError:
    return _time_invalid(field, f"has a value that {domain} cannot hold: {error}", "Remove such rows, or use a wider domain.")


def time_invalid_coordinates(field: str, text: str, names: Iterable[str], example: str) -> TimeError:
    return _time_invalid(field, f"{text!r} is not a list of the coordinates {', '.join(names)}", f"Write it like {example}.")


def time_invalid_count(field: str, count: int, domain: object, coordinates: int) -> TimeError:
    return _time_invalid(field, f"has {count} coordinates, but {domain} has {coordinates}", "Give one value for each.")


def time_invalid_integer(field: str, text: str, domain: str) -> TimeError:
    return _time_invalid(field, f"{text!r:.200} is not an integer, but times are of {domain}", "Write it like 7.")


def time_invalid_json(field: str, value: object, domain: object) -> TimeError:
    return _time_invalid(field, f"is {value!r}, which is not the JSON form of a time of {domain}", "Write an integer or a list.")


def time_invalid_kind(field: str, value: object, domain: object, kinds: str) -> TimeError:
    return _time_invalid(field, f"is {value!r} ({type(value).__name__}), not a time of {domain}", f"Give {kinds}.")


def time_invalid_length(field: str, length: int, most: int) -> TimeError:
    return _time_invalid(field, f"has {length} characters, but at most {most} are allowed", "Write a time.")


def time_invalid_list(field: str, value: object, domain: object) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_TIME_INVALID", f"{field} is {value!r}, not a list of times of {domain}.", "Give a list of times."
    )


def time_invalid_local(field: str, kind: object, domain: object) -> TimeError:
    return _time_invalid(
        field,
        f"has the type {kind} without a time zone, but {domain} is in UTC",
        "Cast it to timestamp[us, UTC] first.",
    )


def time_invalid_moment(field: str, text: str, why: Wrong) -> TimeError:
    what, remedy = wrong_moment(text, why)
    return _time_invalid(
        field, what, f"{remedy} Microseconds since 1970 need their unit: '5 µs'." if why is Wrong.EPOCH else remedy
    )


def time_invalid_names(field: str, given: Iterable[object], domain: object, names: list[str]) -> TimeError:
    return _time_invalid(field, f"has the coordinates {sorted(map(str, given))}, but {domain} has {names}", "Give exactly these.")


def time_invalid_null(field: str, domain: object) -> TimeError:
    return _time_invalid(
        field, f"is null, but a time of {domain} is never null", "Give every row a time, or set such rows aside."
    )


def time_invalid_nulls(field: str, row: int, nulls: int, domain: object) -> TimeError:
    return _time_invalid(
        field,
        f"is null in row {row} ({nulls} nulls in all), but a time of {domain} is never null",
        "Give every row a time.",
    )


def time_invalid_order(field: str, text: str, name: str, domain: str, expected: str) -> TimeError:
    return _time_invalid(field, f"{text!r} has {name!r} where {domain} has {expected!r}", "Write the coordinates in order.")


def time_invalid_outside(field: str, text: str, domain: str, low: int, high: int) -> TimeError:
    return _time_invalid(field, f"is {text:.200}, outside {domain} ({low} to {high})", f"Use a time from {low} to {high}.")


def time_invalid_scalar(field: str, value: object, domain: object) -> TimeError:
    return _time_invalid(field, f"is {value!r} ({type(value).__name__}), not a time of {domain}", "Give its coordinates.")


def time_invalid_stored(field: str, kind: object, domain: object, stored: object) -> TimeError:
    return _time_invalid(field, f"has the type {kind}, but times of {domain} are stored as {stored}", "Cast it first.")


def time_invalid_struct(field: str, have: list[str], domain: object, want: list[str]) -> TimeError:
    return _time_invalid(
        field, f"is a struct of {have}, but times of {domain} have the coordinates {want}", "Give exactly these."
    )


def time_invalid_type(field: str, kind: object, domain: object, want: object, hint: str) -> TimeError:
    return _time_invalid(field, f"has the type {kind}, but times of {domain} are stored as {want}{hint}", "Cast it first.")


def time_invalid_without_zone(field: str, value: object) -> TimeError:
    return _time_invalid(field, f"is the datetime {value} without a time zone", "Give it a time zone, such as UTC.")


def time_invalid_zone(field: str, text: str) -> TimeError:
    utc = f"{text}Z" if ":" in text else f"{text}T00:00Z"
    return _time_invalid(
        field, f"{text!r} has no zone", f"Write {utc} for UTC, or its distance from UTC, such as {utc[:-1]}+01:00."
    )


def time_overflow_advance(domain: object, by: Mapping[str, int]) -> SummaryError:
    return SummaryError("STRANDLINE_TIME_OVERFLOW", f"No time of {domain} can advance by {dict(by)}.", "Advance by less.")


def time_overflow_partial(domain: object) -> SummaryError:
    return SummaryError(
        "STRANDLINE_TIME_OVERFLOW",
        f"A coordinate overflows after one of {domain}, which is not a total order, so there is no single next time to carry "
        "into.",
        "Use a wider type for the coordinate, or put it in a product.",
    )


def wrong_moment(text: str, why: Wrong) -> tuple[str, str]:
    """Return what is wrong with a text that is no moment, and the remedy.

    >>> wrong_moment("1795010112345", Wrong.EPOCH)[1]
    'Write the moment, such as 2026-11-18T13:55:12.345Z. SQL converts: timestamp_millis(…) or timestamp_seconds(…).'
    """
    if why is Wrong.BEYOND:
        return f"{text!r:.200} is outside the range of timestamps", "Use a time from -290308-12-22 to +294247-01-09."
    if why is Wrong.UNPARSABLE:
        return f"{text!r:.200} is not a moment", "Write it like 2026-03-01T12:00Z."
    return (
        f"{text!r:.200} is a number, which does not say its unit or what it counts from",
        f"Write the moment, such as {_meant(text)}. SQL converts: timestamp_millis(…) or timestamp_seconds(…).",
    )
