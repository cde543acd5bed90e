"""The errors of policies and manifests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strandline.errors import IngestError, PolicyError


def delay_invalid_idle(after: object) -> PolicyError:
    return PolicyError(
        "STRANDLINE_DELAY_INVALID",
        f"The duration of idle() is {after}, which is not a time span of more than 0.",
        "Give a duration, such as '10 minutes'.",
    )


def manifest_contended(path: str, attempts: int) -> PolicyError:
    return PolicyError(
        "STRANDLINE_MANIFEST_CONTENDED",
        f"Others wrote to the manifest {path} each time that it was to be written, {attempts} times.",
        "Repeat the call when they have ended.",
    )


def _manifest_contradiction(path: str, time: str, name: str, what: str, remedy: str) -> IngestError:
    return IngestError("STRANDLINE_MANIFEST_CONTRADICTION", f"In the manifest {path}, {time} of {name!r} is {what}.", remedy)


def manifest_contradiction_announced(path: str, rows: int, name: str, complete: int) -> IngestError:
    return IngestError(
        "STRANDLINE_MANIFEST_CONTRADICTION",
        f"The manifest {path} announces {rows} rows of {name!r} for complete times, but these times were "
        f"complete with {complete} rows.",
        "A complete time stays complete. Remove the additional rows, and announce them for a later time.",
    )


def manifest_contradiction_cancelled(path: str, time: str, name: str, rows: int, cancelled: int) -> IngestError:
    what = f"announced with {rows} rows, {cancelled} of them cancelled"
    return _manifest_contradiction(path, time, name, what, "Correct the counts.")


def manifest_contradiction_expected(path: str, rows: int, name: str, complete: int) -> IngestError:
    return IngestError(
        "STRANDLINE_MANIFEST_CONTRADICTION",
        f"The manifest {path} expects {rows} rows of {name!r} for complete times, but these times were "
        f"complete with {complete} rows.",
        "A complete time stays complete. Cancel these rows (in a manifest that is a channel, add the negative count), "
        "and announce them for a later time.",
    )


def manifest_contradiction_negative(path: str, time: str, name: str, rows: int) -> IngestError:
    what = f"announced with {rows} rows in all"
    return _manifest_contradiction(path, time, name, what, "Cancel no more rows than were announced.")


def manifest_contradiction_twice(path: str, time: str, name: str, first: int, second: int) -> IngestError:
    what = f"announced twice, with {first} and with {second} rows"
    return _manifest_contradiction(path, time, name, what, "Announce each time once.")


def _manifest_invalid(path: str, what: str, remedy: str) -> PolicyError:
    return PolicyError("STRANDLINE_MANIFEST_INVALID", f"The manifest {path} {what}.", remedy)


def manifest_invalid_columns(path: str, missing: Sequence[str], columns: Sequence[str], wanted: Sequence[str]) -> PolicyError:
    return _manifest_invalid(
        path,
        f"lacks the column(s) {missing}; it has {columns}",
        f"Give it the columns {wanted}, expected and, if rows are cancelled, cancelled.",
    )


def manifest_invalid_counts(path: str, column: str, error: Exception) -> PolicyError:
    return _manifest_invalid(path, f"has values in {column} that are not whole numbers ({error})", "Give whole numbers.")


def manifest_invalid_mapping(columns: Iterable[str]) -> PolicyError:
    return PolicyError(
        "STRANDLINE_MANIFEST_INVALID",
        f"A mapping cannot name the partition columns {list(columns)}, because it has one key for them.",
        "Give a table.",
    )


def manifest_invalid_name(path: str, rows: int, name: str, problem: str) -> PolicyError:
    return _manifest_invalid(
        path,
        f"announces {rows} rows of the partition {name!r}, which {problem}",
        "The ingest sets such rows aside. Cancel them (in a manifest that is a channel, add the negative count).",
    )


def manifest_invalid_null(path: str, column: str) -> PolicyError:
    return _manifest_invalid(path, f"has a null in the column {column}", "Give every row a value.")


def manifest_invalid_partition(path: str, error: Exception) -> PolicyError:
    return _manifest_invalid(path, f"has a partition that is not text ({error})", "Cast the partition columns to strings.")


def manifest_invalid_text() -> PolicyError:
    return PolicyError(
        "STRANDLINE_MANIFEST_INVALID",
        "A manifest that was given as rows has no text form until it is written.",
        "Give a path instead.",
    )


def manifest_invalid_type(expected: object) -> PolicyError:
    return PolicyError(
        "STRANDLINE_MANIFEST_INVALID",
        f"The manifest is of the type {type(expected).__name__}, which is not supported.",
        "Give the path of a Delta table or channel, a mapping, a DataFrame or an Arrow table.",
    )


def manifest_invalid_unwritten() -> PolicyError:
    return PolicyError(
        "STRANDLINE_MANIFEST_INVALID", "The manifest was given as rows and was not written.", "Call save(path, …) first."
    )


def manifest_shrinks(path: str, was: int, time: str, name: str, now: int) -> IngestError:
    return IngestError(
        "STRANDLINE_MANIFEST_SHRINKS",
        f"The manifest {path} announced {was} rows for {time} of {name!r}, but now announces {now}.",
        "Announced rows cannot be withdrawn. Count the rows that will not arrive in the column cancelled.",
    )


def manifest_shrinks_in_total(path: str, total: int, name: str, done: int, was_total: int, was_done: int) -> IngestError:
    return IngestError(
        "STRANDLINE_MANIFEST_SHRINKS",
        f"The manifest {path} announces {total} rows of {name!r} ({done} for complete times), but it announced "
        f"{was_total} ({was_done} for complete times) before.",
        "Announced rows cannot be withdrawn. Restore them, and count the rows that will not arrive as cancelled.",
    )


def manifest_unreadable(path: str, error: Exception) -> PolicyError:
    return PolicyError(
        "STRANDLINE_MANIFEST_UNREADABLE",
        f"The manifest {path} cannot be opened: {str(error).splitlines()[0]}.",
        "Give the path of a Delta table or channel.",
    )


def policy_failed_to_make(text: str, name: str, error: Exception) -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_FAILED",
        f"The policy {text[:300]!r} cannot be made, because {name} raised {type(error).__name__}: {str(error)[:300]}",
        "Correct the class, so that it accepts what its arguments method returns, or has returned before.",
    )


def _policy_invalid(text: str, what: str) -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_INVALID",
        f"The policy {text!r} {what}.",
        "Write it like bounded(60 minutes), ordered() or composed(kafka-*: bounded(5 minutes), *: ordered()).",
    )


def policy_invalid_argument(argument: str) -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_INVALID",
        f"composed() has the argument {argument!r}, which is not of the form pattern: policy.",
        "Write it like *: ordered().",
    )


def policy_invalid_arguments(name: str, error: Exception) -> PolicyError:
    return PolicyError("STRANDLINE_POLICY_INVALID", f"The arguments of {name} are invalid: {error}.", "See its documentation.")


def policy_invalid_class(text: str, name: str) -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_INVALID",
        f"The policy {text!r} names {name!r}, which is not a class of policies.",
        "Derive it from strandline.ingest.Policy.",
    )


def _policy_invalid_composed(inner: str) -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_INVALID",
        f"composed() contains {inner}.",
        "Write all patterns in one composed(), and leave none of them empty.",
    )


def policy_invalid_composed_empty() -> PolicyError:
    return PolicyError("STRANDLINE_POLICY_INVALID", "composed() has no policy.", "Add one, such as *: ordered().")


def policy_invalid_composed_nested(policy: object, pattern: str) -> PolicyError:
    return _policy_invalid_composed(f"{policy} for the pattern {pattern!r}")


def policy_invalid_composed_pattern() -> PolicyError:
    return _policy_invalid_composed("an empty pattern")


def policy_invalid_composed_twice(pattern: str) -> PolicyError:
    return PolicyError("STRANDLINE_POLICY_INVALID", f"composed() has the pattern {pattern!r} twice.", "Remove one of the two.")


def policy_invalid_coordinate(what: str, name: str, domain: object, names: Sequence[str]) -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_INVALID",
        f"{what} names the coordinate {name!r}, which {domain} does not have.",
        f"Name one of {names}.",
    )


def policy_invalid_coordinate_kind(what: str, name: str, domain: object) -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_INVALID",
        f"{what} applies to the coordinate {name!r} of {domain}, which is not a scalar.",
        "Name a scalar coordinate.",
    )


def policy_invalid_coordinates(what: str, name: str, domain: object) -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_INVALID",
        f"{what} names the coordinate {name!r}, but times of {domain} have no coordinates.",
        "Leave the coordinate out.",
    )


def policy_invalid_empty_argument(text: str) -> PolicyError:
    return _policy_invalid(text, "has an empty argument")


def policy_invalid_form(text: str) -> PolicyError:
    return _policy_invalid(text, "is not of the form name(arguments)")


def policy_invalid_heartbeat(column: str, policy: object) -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_INVALID",
        f"heartbeat({column}) cannot contain {policy}, which has columns or partitions of its own.",
        "Give it ordered() or bounded(…). Combine other policies in composed(a-*: heartbeat(…), *: punctuated(…)).",
    )


def policy_invalid_idle_clock(domain: object) -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_INVALID",
        f"idle() has all_silent=advance, which moves the frontier by the wall clock, but the times are of {domain}.",
        "Use a time column of timestamps, or remove all_silent.",
    )


def policy_invalid_idle_listening() -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_INVALID",
        "idle() has all_silent=advance, which moves the frontier by the clock, but silence counts by listening time.",
        "Add counts=wall, or remove all_silent.",
    )


def policy_invalid_idle_twice(policy: object) -> PolicyError:
    return PolicyError("STRANDLINE_POLICY_INVALID", f"idle() contains {policy}, which is idle() already.", "Remove one.")


def policy_invalid_idle_value(name: str, value: str, known: Sequence[str]) -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_INVALID", f"idle() has {name}={value!r}.", f"The values of {name} are {' and '.join(known)}."
    )


def policy_invalid_import(text: str, name: str, error: Exception) -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_INVALID",
        f"The policy {text!r} names {name!r}, which cannot be imported ({error}).",
        "Install its module where the Spark driver runs.",
    )


def policy_invalid_parenthesis(text: str) -> PolicyError:
    return _policy_invalid(text, "lacks a closing parenthesis")


def policy_invalid_quote(text: str) -> PolicyError:
    return _policy_invalid(text, "lacks a closing quote")


def policy_invalid_size(text: str, longest: int, deepest: int) -> PolicyError:
    return _policy_invalid(text[:60] + "…", f"is longer than {longest} characters or nests deeper than {deepest}")


def policy_invalid_unknown(text: str, name: str, hint: str, known: Iterable[str]) -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_INVALID",
        f"The policy {text!r} names {name!r}, which does not exist.",
        f"{hint}The policies are {', '.join(known)}, and package.module:Class for a policy of your own.",
    )


def policy_invalid_unloaded(text: str, name: str) -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_INVALID",
        f"The policy {text!r} of a log names {name!r}, which is not loaded.",
        "Import its module where the Spark driver runs, before the query starts.",
    )


def policy_invalid_unopened(text: str) -> PolicyError:
    return _policy_invalid(text, "has a closing parenthesis without an opening one")


def policy_missing(partition: str, patterns: Iterable[str]) -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_MISSING",
        f"No pattern of the policy matches partition {partition!r}. Its patterns: {list(patterns)}.",
        "Add a pattern at the end, such as *: ordered().",
    )


def time_domain_mismatch_manifest(path: str, domain: object, own: object) -> PolicyError:
    return PolicyError(
        "STRANDLINE_TIME_DOMAIN_MISMATCH",
        f"The manifest {path} has times of {domain}, but the ingest's times are of {own}.",
        "Convert them to one domain.",
    )
