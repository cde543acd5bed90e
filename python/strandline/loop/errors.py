"""The errors of loops."""

from __future__ import annotations

from collections.abc import Mapping

from strandline.errors import StrandlineError, SummaryError
from strandline.time.domain import Time, TimeDomain


def loop_times_unknown(domain: TimeDomain, low: Time, high: Time) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_TIMES_UNKNOWN",
        f"A commit of the loop states its times only as the range from {domain.format(low)} to "
        f"{domain.format(high)}, because it has too many different times. A way around the loop "
        "leads from the first one to a time within the range.",
        "Write fewer times into one commit, or truncate them. If the commit is there already, copy the "
        "channel by a query with truncate, and let the loop read the copy.",
    )


def summary_invalid(outer: TimeDomain, by: Mapping[str, object]) -> SummaryError:
    return SummaryError(
        "STRANDLINE_SUMMARY_INVALID",
        f"The feedback advances times of {outer} by {dict(by)}, which changes no time.",
        'Advance at least one coordinate, such as {"iter": 1}. Otherwise no time in the loop would ever be complete.',
    )
