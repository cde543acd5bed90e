"""The errors of commands."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.errors import ProducerError, TimeDomainError, TimeError
from strandline.shell_words import command
from strandline.time.domain import TimeDomain


def producer_exists(path: str, wanted: str, held: str) -> ProducerError:
    return ProducerError(
        "STRANDLINE_PRODUCER_EXISTS",
        f"{path} already has the producer {wanted!r}. It holds {held}.",
        "Choose another name with --as, or leave --as out.",
    )


def producer_name_invalid(wanted: str, problem: str) -> ProducerError:
    return ProducerError("STRANDLINE_PRODUCER_NAME_INVALID", f"The producer name {wanted!r} {problem}.", "Choose another name.")


def producer_unknown(path: str, name: str, known: Sequence[str]) -> ProducerError:
    shown = ", ".join(known[:10]) + (f" and {len(known) - 10} more" if len(known) > 10 else "")
    return ProducerError(
        "STRANDLINE_PRODUCER_UNKNOWN",
        f"{path} has no producer {name!r} that can be dropped. It has: {shown or 'none'}.",
        f"Name one of these. To release parked rows, type {command('release-parked', path)}. To end corrections, type "
        f"{command('end-corrections', path)}.",
    )


def time_invalid(text: str) -> TimeError:
    return TimeError(
        "STRANDLINE_TIME_INVALID", f"--before: {text!r:.200} is before the year 1 or after 9999.", "Give a moment between."
    )


def timeline_coordinate(path: str, domain: TimeDomain, coordinate: str | None, names: Sequence[str]) -> TimeDomainError:
    problem = "none of their coordinates is chosen" if coordinate is None else f"no line can be drawn of {coordinate!r}"
    return TimeDomainError(
        "STRANDLINE_TIMELINE_COORDINATE",
        f"The times of {path} are of {domain}: {problem}.",
        f"Choose one with --coordinate: {', '.join(names) or 'none for these times, so leave it out'}.",
    )
