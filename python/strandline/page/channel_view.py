"""A channel as the page shows it, from a cursor in its log: who holds what, lag, closed times, rows set aside."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from strandline.channel import Channel, ProducerState
from strandline.channel.statements.statement import REGISTRAR
from strandline.delta.log import moment_of
from strandline.delta.store_errors import without_secrets
from strandline.errors import StrandlineError, printable
from strandline.ingest.late.newest_aside import NewestAside
from strandline.ingest.names import CORRECTIONS
from strandline.ingest.rejoin import with_way_back
from strandline.ingest.state.partition_state import PartitionState
from strandline.ingest.state.query_entry import QueryEntry
from strandline.ingest.state.registrar_state import RegistrarState
from strandline.ingest.status import aside_by_reason
from strandline.page.cursor import Cursor, texts
from strandline.page.model import Aside, ChannelView, Distance, Holding, Late, Problem, RowsByTime
from strandline.report.holders import kind_of

__all__ = ["ingests_of", "late_counts", "problem_of", "view_of"]

_BUCKETS = 60
_MOST_MOVES = 12
_MOST_HELD = 20
_MOST_ASIDE = 10


def view_of(cursor: Cursor, id: str, label: str, *, most: int, now_ms: int, stale_after: float) -> ChannelView:  # noqa: A002
    """Return the view of a channel, without what needs other channels: why, and what is unread.

    Args:
        cursor: The cursor in its log.
        id: The channel's identifier on the page.
        label: Its name on the page.
        most: How many producers are listed.
        now_ms: The page's moment, in ms since 1970.
        stale_after: After how many seconds a frontier that stands is marked.
    """
    channel, progress, lead = cursor.channel, cursor.progress, cursor.lead
    frontier = progress.frontier
    stands = cursor.stands_since()
    entries = ingests_of(cursor)
    corrections = progress.get(CORRECTIONS) if entries else None
    readmitted = () if corrections is None else corrections.holds  # late rows may come at any time, and nobody waits for them
    front = lead.least([time for time in frontier if time not in readmitted] or frontier)
    key = channel.domain.sort_key
    states = [(name, state) for name, state in cursor.states if state.holds]
    registrar = progress.get(REGISTRAR)
    if registrar is not None and registrar.holds:
        states.append((REGISTRAR, registrar))
    least = heapq.nsmallest(most, states, key=lambda entry: (min(map(key, entry[1].holds)), entry[0]))
    total = len(progress.producers)
    first = cursor.first_ms
    clock = None if front is None or not lead.is_clock else lead.distance(max(0, now_ms * 1000 - front))
    stood = None if stands.ms is None else (now_ms - stands.ms) / 1000
    return ChannelView(
        id=id,
        label=label,
        path=shown_path(channel),
        problem=None if cursor.refused is None else problem_of(label, cursor.refused, channel.storage_options),
        table=channel.table_id,
        version=cursor.version,
        changed_ms=cursor.changed_ms,
        domain=str(channel.domain),
        time_column=channel.time_column,
        columns=tuple((field.name, str(field.type)) for field in channel.schema),
        sealed=progress.sealed,
        frontier=texts(frontier),
        stands_since=stands,
        stale=bool(frontier) and stood is not None and stood >= stale_after,
        furthest=None if cursor.furthest is None else lead.format(cursor.furthest),
        behind=_behind(cursor, front),
        behind_clock=clock,
        producers=total,
        ended=total - len(states) + (not progress.sealed),
        holdings=tuple(_holding(cursor, name, state, entries, now_ms) for name, state in least),
        not_listed=len(states) - len(least),
        moves=tuple(reversed(list(cursor.moves)[-_MOST_MOVES:])),
        lag=cursor.lag(None, now_ms),
        window_ms=None if first is None else (min(first, now_ms), now_ms),
        rows=_rows(cursor, front, closed=not frontier),
    )


def ingests_of(cursor: Cursor) -> Mapping[str, QueryEntry]:
    """Return what ingests keep in the channel; nothing if it cannot be read (:func:`late_counts` says so)."""
    try:
        return RegistrarState.of(cursor.progress).entries
    except StrandlineError:
        return {}


def _holding(cursor: Cursor, name: str, state: ProducerState, ingests: Mapping[str, Any], now_ms: int) -> Holding:
    kind = kind_of(name, state, ingests)
    remembered = PartitionState()
    if kind == "partition":
        with suppress(StrandlineError):
            remembered = PartitionState.of(name, state.state)
    owner = state.owner
    return Holding(
        name=printable(name),
        kind=kind,
        holds=texts(state.holds, _MOST_HELD),
        holds_back=any(time in cursor.progress.frontier for time in state.holds),
        behind=_behind(cursor, cursor.lead.least(state.holds)),
        since=cursor.since(name),
        session=None if owner is None else str(owner),
        state="idle" if remembered.idle is not None else "closed" if owner is None else "gone" if owner.is_dead() else "open",
        last_rows_ms=moment_of(remembered.at or 0),
        aside=remembered.aside or 0,
        lag=cursor.lag(name, now_ms),
    )


def _behind(cursor: Cursor, number: int | None) -> Distance | None:
    if number is None or cursor.furthest is None:
        return None
    return cursor.lead.distance(max(0, cursor.furthest - number))


def _rows(cursor: Cursor, front: int | None, *, closed: bool) -> RowsByTime | None:
    if not cursor.rows:
        return None
    lead = cursor.lead
    low, high = min(cursor.rows), max(cursor.rows)
    if cursor.furthest is not None:
        high = max(high, min(cursor.furthest, high + (high - low) // 4))  # what was only stated takes little of the width
    width = max(high - low + 1, 1)
    count = min(_BUCKETS, width)
    buckets = [0] * count
    for number, rows in cursor.rows.items():
        buckets[(number - low) * count // width] += rows
    passed = count if closed else 0.0 if front is None else min(max((front - low) * count / width, 0.0), float(count))
    commits = cursor.version - cursor.first + 1
    return RowsByTime(lead.name, lead.format(low), lead.format(high), tuple(buckets), passed, commits)


def late_counts(cursor: Cursor) -> Late | None:
    """Return what ingests have set aside or parked, without the late tables; ``None`` for a channel of no ingest.

    Raises:
        IngestError: The states that ingests keep cannot be read.
    """
    progress = cursor.progress
    entries = RegistrarState.of(progress).entries
    if not entries:
        return None
    aside = sum((entry.aside or 0) + (entry.aside_forgotten or 0) for entry in entries.values())
    total, parked = aside, 0
    newest: list[tuple[str, NewestAside]] = []
    for name, state in cursor.states:
        memory = state.state
        if not isinstance(memory, dict):
            continue
        if (kind := kind_of(name, state, entries)) == "ingest":
            parked += _count(memory.get("rows"))
        elif kind == "partition":
            total += _count(memory.get("aside"))
            if "asideAt" in memory and (found := NewestAside.of(PartitionState.of(name, memory))) is not None:
                newest.append((name, found))
    policies = dict.fromkeys(printable(entry.policy) for entry in entries.values() if entry.policy is not None)
    reasons = sorted(aside_by_reason(entries.values()).items(), key=lambda entry: (-entry[1], entry[0]))
    last = heapq.nsmallest(_MOST_ASIDE, newest, key=lambda each: (each[1].only_since_ms is None, -each[1].at_ms, each[0]))
    shown = tuple((printable(reason), rows) for reason, rows in reasons[:_MOST_ASIDE])
    return Late(total, aside, parked, tuple(policies), (), shown, tuple(_aside(cursor, *each) for each in last))


def _aside(cursor: Cursor, name: str, newest: NewestAside) -> Aside:
    channel = cursor.channel
    found = with_way_back(newest, cursor.progress, channel.path, name)
    remedy = printable(without_secrets(found.remedy, channel.storage_options))
    return Aside(printable(name), found.rows, printable(found.reason), found.at_ms, found.only_since_ms, remedy)


def _count(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


def shown_path(channel: Channel) -> str:
    """Return a channel's path without secrets."""
    return printable(without_secrets(channel.path, channel.storage_options))


def problem_of(where: str, error: Exception, options: Mapping[str, str] | None = None) -> Problem:
    """Return a problem from an error, without secrets. An error without a condition is a defect, or the machine's.

    Args:
        where: What cannot be read.
        error: The error.
        options: Storage options, whose values are not shown.

    >>> problem_of("lake", StrandlineError("STRANDLINE_EXAMPLE", "The tide is out.", "Wait."), None).condition
    'STRANDLINE_EXAMPLE'
    """
    if isinstance(error, StrandlineError):
        parts = error.condition, error.what, error.remedy
    else:
        parts = type(error).__name__, str(error)[:400], "Look at the log of the command, and report it if it is a defect."
    condition, what, remedy = (printable(without_secrets(part, options)) for part in parts)
    return Problem(printable(without_secrets(where, options)), condition, what, remedy)
