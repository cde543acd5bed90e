"""The errors of comparisons."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.errors import ChannelError, StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.domain import TimeDomain


def column_unknown(path: str, name: str, columns: Sequence[str]) -> ChannelError:
    return ChannelError(
        "STRANDLINE_COLUMN_UNKNOWN",
        f"{path} has no column {name!r}. Its columns are {', '.join(columns)}.",
        "Name columns that both channels have.",
    )


def compare_domains(a: str, domain_a: TimeDomain, b: str, domain_b: TimeDomain) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_COMPARE_DOMAINS",
        f"{a} has times of {domain_a}, but {b} has times of {domain_b}.",
        "Compare channels whose times have the same domain.",
    )


def compare_open(path: str, frontier: Antichain, until: Antichain) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_COMPARE_OPEN",
        f"{path} has not closed all times before {until.format()}: its frontier is {frontier.format()}.",
        "Wait until it has, or compare up to an earlier frontier.",
    )
