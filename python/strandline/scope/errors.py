"""The errors of scopes, their files and cuts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strandline.errors import ScopeError
from strandline.time.domain import TimeDomain
from strandline.time.path.summary import PathSummary


def not_a_scope(path: str) -> ScopeError:
    return ScopeError(
        "STRANDLINE_NOT_A_SCOPE",
        f"There is no scope at {path}.",
        "Create it with Scope.create, or correct the path.",
    )


def scope_channel_exists(name: str, table: str, path: str, other: str, other_table: str, other_path: str) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_CHANNEL_EXISTS",
        f"The scope has the channel {name!r} with the table {table} at {path}, so {other!r} cannot "
        f"be the table {other_table} at {other_path}.",
        "A table has one name in a scope. Use that name, or remove the channel first.",
    )


def scope_channel_replaced(name: str, was: str, path: str, table: str) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_CHANNEL_REPLACED",
        f"Channel {name!r} of the scope was the table {was}, but {path} now holds the table {table}.",
        "Restore the former table. Or remove its queries and the channel from the scope, and add the new one.",
    )


def _scope_channel_unknown(who: str, name: str, channels: Iterable[str]) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_CHANNEL_UNKNOWN",
        f"{who} channel {name!r}, which is not in the scope. Its channels are: {', '.join(channels) or 'none'}.",
        "Add the channel with add_channel first, or use one of these names.",
    )


def scope_channel_unknown(name: str, channels: Iterable[str]) -> ScopeError:
    return _scope_channel_unknown("The caller names", name, channels)


def scope_channel_unknown_to_cut(name: str) -> ScopeError:
    return ScopeError("STRANDLINE_SCOPE_CHANNEL_UNKNOWN", f"The cut has no version of channel {name!r}.", "Make a new cut.")


def scope_channel_unknown_to_query(query: str, kind: str, name: str, channels: Iterable[str]) -> ScopeError:
    """The query reads it or writes it."""
    return _scope_channel_unknown(f"Query {query} {kind}", name, channels)


def scope_channel_used(name: str, queries: Iterable[str]) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_CHANNEL_USED",
        f"Channel {name!r} is read or written by {', '.join(queries)}.",
        "Remove these queries from the scope first.",
    )


def scope_domain_differs(channel: str, times: TimeDomain, domain: TimeDomain) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_DOMAIN_DIFFERS",
        f"The channel {channel} has times of {times}, which do not enter the scope's times of {domain}.",
        "Use a scope of that domain, or a channel whose times are the first coordinates of the scope's.",
    )


def scope_domain_differs_at_output(query: str, channel: str, times: TimeDomain, domain: TimeDomain) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_DOMAIN_DIFFERS",
        f"Query {query} writes channel {channel}, which has times of {times}, but the scope has times of {domain}.",
        "Results that leave the scope go to a channel outside it.",
    )


def scope_exists(domain: TimeDomain, path: str) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_EXISTS",
        f"There is a scope with times of {domain} at {path}.",
        "Open it with Scope.open, or choose another path.",
    )


def _scope_invalid(file: str, what: str) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_INVALID",
        f"The scope's file {file} {what}.",
        "Restore the file from a backup. The file with the next smaller number is the scope before its last change.",
    )


def scope_invalid_content(file: str, error: Exception) -> ScopeError:
    return _scope_invalid(file, f"is damaged: {error}")


def scope_invalid_json(file: str, error: Exception) -> ScopeError:
    return _scope_invalid(file, f"is not JSON ({error})")


def scope_invalid_size(file: str, most: int) -> ScopeError:
    return ScopeError("STRANDLINE_SCOPE_INVALID", f"The scope's file {file} has more than {most} bytes.", "Restore the file.")


def scope_invalid_version(file: str) -> ScopeError:
    return _scope_invalid(file, "is not a scope's file: it has no version")


def scope_name_invalid(name: object, kind: str) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_NAME_INVALID",
        f"{name!r} is not a name of a {kind}.",
        "Use letters, digits, '_', '-' and '.', with a letter or '_' first, and at most 255 of them.",
    )


def scope_newer(file: str, version: int, newest: int) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_NEWER",
        f"The scope's file {file} has version {version}, but this release reads versions up to {newest} only.",
        "Upgrade Strandline to the release that wrote the file.",
    )


def scope_query_differs(name: str, known: object, now: object) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_QUERY_DIFFERS",
        f"The scope has recorded query {name!r} as {known}, but it is now {now}.",
        "Run the query as it is recorded. Or stop it, remove it with remove_query, and add it again.",
    )


def scope_query_invalid_advances(query: str, channel: str, paths: Iterable[PathSummary]) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_QUERY_INVALID",
        f"Query {query} takes its inputs to channel {channel} by {', '.join(map(str, paths)) or 'no path'}, and not "
        "all by one advance.",
        'Record it with writes={"labels": {"iter": 1}}, which takes every input there by the same advance.',
    )


def scope_query_invalid_both(query: str) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_QUERY_INVALID",
        f"Query {query} has path summaries, and advances of the channels that it writes.",
        "Give one of them.",
    )


def scope_query_invalid_domain(query: str, read: str, write: str, domain: TimeDomain) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_QUERY_INVALID",
        f"A path summary of query {query} from {read} to {write} is not of the scope's domain {domain}.",
        "Make it with strandline.advance or strandline.identity of that domain.",
    )


def scope_query_invalid_ends(query: str, read: str, write: str, reads: Iterable[str], writes: Iterable[str]) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_QUERY_INVALID",
        f"Query {query} has a path summary from {read} to {write}, but it reads {', '.join(reads)} and "
        f"writes {', '.join(writes)}.",
        "Give summaries from channels that it reads to channels that it writes.",
    )


def scope_query_invalid_number(query: str, reads: Sequence[str], writes: Sequence[str]) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_QUERY_INVALID",
        f"Query {query} reads {len(reads)} and writes {len(writes)} channels.",
        "Name at least one channel that it reads, and one that it writes.",
    )


def scope_query_invalid_twice(query: str, kind: str, channel: str) -> ScopeError:
    return ScopeError("STRANDLINE_SCOPE_QUERY_INVALID", f"Query {query} {kind} channel {channel} twice.", "Name it once.")


def scope_replaced(path: str, now: str, was: str) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_REPLACED",
        f"The scope at {path} was made anew: its id is {now}, and was {was}.",
        "Open the new scope with Scope.open.",
    )


def scope_storage_differs(channel: str, scope: str) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_STORAGE_DIFFERS",
        f"The channel {channel[:300]} is on another storage than the scope {scope}, so the scope's storage "
        "options are not sent there.",
        "Put the scope beside its channels.",
    )


def scope_storage_unsupported(path: str) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_STORAGE_UNSUPPORTED",
        f"The file system of {path} has no hard links, so a file cannot be created as a whole.",
        "Put the scope on another file system or on an object store.",
    )


def scope_two_writers(queries: Iterable[str], channel: str) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_TWO_WRITERS",
        f"The queries {' and '.join(queries)} write channel {channel}, which is part of a cycle.",
        "Let one query write it, and unite the rows in that query.",
    )
