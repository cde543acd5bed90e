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


def compare_types(column: str, a: str, type_a: object, b: str, type_b: object) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_COMPARE_TYPES",
        f"The column {column!r} is {type_a} in {a}, but {type_b} in {b}. Their values do not compare.",
        "Cast it in one of the two, or name the columns to compare without it.",
    )


def clock_domain(path: str, domain: TimeDomain, clock: TimeDomain) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_CLOCK_DOMAIN",
        f"{path} has times of {domain}, but a timestamper gives times of {clock}.",
        "Create the channel with the domain strandline.replay.CLOCK.",
    )


def node_unknown(path: str, name: str, why: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_NODE_UNKNOWN",
        f"The producer {name!r} of {path} {why}.",
        "Let a new name join with add_node, and let nobody but its timestamper write as it.",
    )


def node_kind(path: str, name: str, *, is_scheduler: bool) -> ChannelError:
    known, asked = ("a scheduler", "an input") if is_scheduler else ("an input", "a scheduler")
    return ChannelError(
        "STRANDLINE_NODE_KIND",
        f"The node {name!r} of {path} is {known}, and was asked for as {asked}.",
        "Use another name: the order of nodes never changes.",
    )


def columns_stamped(column: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_COLUMNS_STAMPED",
        f"The rows have a column {column!r}, which the timestamper gives.",
        "Leave it out, or give the rows' own time another name.",
    )


def instant_invalid(name: str, instant: object) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_INSTANT_INVALID",
        f"The clock of {name!r} returned {instant!r}, which is no whole number of microseconds since 1970.",
        "Give a clock such as lambda: time.time_ns() // 1000.",
    )


def column_reserved(column: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_COLUMN_RESERVED",
        f"The rows have a column {column!r}, in which a recorded link keeps the times from before its rows came round.",
        "Give the column another name.",
    )


def stamp_tasks(task: int, most: int) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_STAMP_TASKS",
        f"A batch stamps rows in its task {task}, and the numbers of a link are for fewer than {most} tasks.",
        f"Use coalesce, or set spark.sql.shuffle.partitions below {most}.",
    )


def stamp_numbers(first: int, count: int) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_STAMP_NUMBERS",
        f"{count} rows are to be numbered from {first} on, and the numbers of a node end.",
        "Let another node go on: record as a new one, or begin the loop again in new channels.",
    )


def time_overflow_link(last: int) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_TIME_OVERFLOW",
        f"A row comes round after the instant {last}, which is the last one.",
        "Look for a row from outside with a time that is far ahead.",
    )


def event_time(column: str, why: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_EVENT_TIME",
        f"The column {column!r}, which has the instant of an event, {why}.",
        "Give each row that asks for an event a timestamp there.",
    )


def column_missing_original(path: str, column: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_COLUMN_MISSING",
        f"{path} is no recorded link: it has no column {column!r}, or its times are not those of a clock.",
        "Give the feedback channel of a loop with record=True or record='earliest'.",
    )
