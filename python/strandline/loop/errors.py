"""The errors of loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from strandline.errors import CycleError, ScopeError, StrandlineError, SummaryError
from strandline.time.domain import Time, TimeDomain


def graph_cycle(names: Sequence[str]) -> CycleError:
    return CycleError(
        "STRANDLINE_GRAPH_CYCLE",
        f"The cycle {' → '.join(names)} does not advance times.",
        'Let a channel on it advance them, such as {"iter": 1}. Otherwise no time in the loop would ever be complete.',
    )


def loop_times_unknown(domain: TimeDomain, low: Time, high: Time) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_TIMES_UNKNOWN",
        f"A commit of the loop states its times only as the range from {domain.format(low)} to "
        f"{domain.format(high)}, because it has too many different times. A way around the loop "
        "leads from the first one to a time within the range.",
        "Write fewer times into one commit, or truncate them. If the commit is there already, copy the "
        "channel by a query with truncate, and let the loop read the copy.",
    )


def scope_channel_unknown(name: str, channel: str, known: Iterable[str]) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_CHANNEL_UNKNOWN",
        f"Query {name!r} names the channel {channel!r}, but the loop's channels are {', '.join(known)}.",
        "Give the channel, or use one of these names.",
    )


def scope_query_invalid(name: str, reads: Sequence[str]) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_QUERY_INVALID",
        f"Query {name!r} reads the channels {list(reads)}.",
        "Name at least one, and each once.",
    )


def scope_two_writers(other: str, name: str, channel: str) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_TWO_WRITERS",
        f"The queries {other} and {name} write channel {channel}, which is part of a loop.",
        "Let one query write it, and unite the rows in that query. Or let each write a channel of its own.",
    )


def summary_invalid(outer: TimeDomain, by: Mapping[str, object]) -> SummaryError:
    return SummaryError(
        "STRANDLINE_SUMMARY_INVALID",
        f"The feedback advances times of {outer} by {dict(by)}, which changes no time.",
        'Advance at least one coordinate, such as {"iter": 1}. Otherwise no time in the loop would ever be complete.',
    )
