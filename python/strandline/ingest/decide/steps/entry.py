"""What the channel's ingests share after a batch: the registrar's state."""

from __future__ import annotations

from strandline.delta.storage import location_of
from strandline.ingest.decide.given import Changes, Given
from strandline.ingest.late.late_table import Publication
from strandline.ingest.names import BY_KEYS, NAMES_KEY, late_path_beside
from strandline.ingest.state.query_entry import QueryEntry
from strandline.ingest.state.registrar_state import RegistrarState

__all__ = ["registrar_after"]


def registrar_after(given: Given, changes: Changes) -> RegistrarState:
    """Return the registrar's state after the batch."""
    registrar, owner = given.registrar, given.batch.owner.to_json()
    entries = registrar.entries
    values = {donor: entries[donor].changed(fenced=owner) for donor in given.ownership.donors if donor in entries}
    entry = _with_late_rows(given, _with_rows(given, _with_clock(given), changes))
    if entry != given.entry:  # the name alone makes no commit
        entry = entry.changed(name=given.settings.query_name or None)
    named = {}
    if NAMES_KEY not in registrar.values and (not registrar.values or len(given.settings.partition) > 1):
        named = {NAMES_KEY: BY_KEYS}
    return registrar.changed({**values, **named, given.query: entry})


def _with_clock(given: Given) -> QueryEntry:
    """Return the query's entry with its policy, what a manifest is read by, and since when silence counts."""
    clock = given.clock
    entry = given.entry.changed(policy=str(given.policy))
    if any(need.times for _, need in given.settings.needs):
        entry = entry.changed(by=list(given.settings.partition))
    entry = entry.changed(snapshot=None, fenced=None, since=None, since_wall=None, late=None)
    if clock.judges:
        entry = entry.changed(clock=clock.state)
    entry = entry.changed(since=clock.since or None, since_wall=clock.since_wall if clock.has_wall else None)
    return entry.changed(snapshot=True) if given.batch.moment.in_snapshot else entry


def _with_rows(given: Given, entry: QueryEntry, changes: Changes) -> QueryEntry:
    """Return the entry with the rows of the batch, and how many of them were set aside without a partition."""
    number, (rows, digest, content) = given.batch.transaction[1], given.batch.read
    columns = [[pattern, need.silent] for pattern, need in given.settings.needs]
    known = entry.cancelled or ()
    if (known or any(column for _, column in columns)) and (not known or known[-1][1] != columns):
        entry = entry.changed(cancelled=[*known, [number, columns]])
    without_partition = sum(n for (partition, _), n in given.batch.aside.items() if partition is None)
    if aside := changes.unplaced + without_partition:
        entry = entry.changed(aside=(entry.aside or 0) + aside)
    if by := given.batch.aside_by_reason:
        before = entry.aside_by or {}
        entry = entry.changed(aside_by={**before, **{reason: before.get(reason, 0) + rows for reason, rows in by.items()}})
    if changes.unplaced_future:
        entry = entry.changed(future=(entry.future or 0) + changes.unplaced_future)
    if rows or entry.batch is None:  # a batch without rows is not a change by itself
        entry = entry.changed(batch=[number, rows, digest]).placed_last(values=[number, content])
    return entry


def _with_late_rows(given: Given, entry: QueryEntry) -> QueryEntry:
    """Return the entry with the late rows of the batch, and where they are published."""
    batch, settings = given.batch, given.settings
    number, beside = batch.transaction[1], late_path_beside(settings.path)
    if settings.late_path != beside:
        entry = entry.changed(late=settings.late_path)
    newest = -1 if entry.newest is None else entry.newest
    entry = entry.changed(newest=newest)
    if batch.late_files:
        begins = [number] if batch.late_newest != newest else []
        begins += [batch.late_begins] if batch.late_begins > 0 else []
        if begins:
            entry = entry.changed(moved=sorted({*(entry.moved or ()), *begins}))
        entry = entry.changed(newest=number)
    if batch.read[0] or location_of(given.entry.late or beside) != settings.late_path:
        entry = entry.changed(pending=None)  # published before this batch, at the path of that time
    if batch.late_files:
        publication = Publication(*batch.transaction, tuple(batch.late_files), newest)
        entry = entry.changed(pending=publication.state)
    return entry
