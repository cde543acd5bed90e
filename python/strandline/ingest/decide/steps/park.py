"""The fifth step: parked rows that are near the frontier after the batch join, and the times of the others are held."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from strandline.ingest.decide.given import Changes, Given
from strandline.ingest.names import PARKED
from strandline.ingest.parked.lists import ParkedLists
from strandline.ingest.parked.release import Parking, Released, release_all
from strandline.time.antichain import Antichain
from strandline.time.domain import Time

__all__ = ["park"]


def park(given: Given, changes: Changes) -> tuple[Changes, Released]:
    """Return the changes with those of who gives capabilities for parked rows, and what becomes of parked rows."""
    progress, batch, settings = given.progress, given.batch, given.settings
    new = [parcel for report in batch.reports for parcel in report.parked]
    names = [name for name in given.states.own if name.startswith(PARKED) and _may_release(given, name)]
    if new and not names:
        names = [PARKED if progress.get(PARKED) is None else f"{PARKED}:{given.query}"]
    if not names:
        return changes, Released()
    parkings = [Parking(name, settings.max_ahead, lambda: _held_after(given, changes), lambda: _given(given)) for name in names]
    parkings[0] = replace(parkings[0], new=new)
    lists = batch.parked_lists or ParkedLists(settings.path, settings.storage)
    released = release_all(progress, parkings, lists, changes.holds, changes.moves)
    donors = frozenset(released.given)
    if released.given:
        registrar = progress.registrar
        donors |= given.holders(time for time in given.held_before() if not registrar.less_equal(time))
    return changes.then(Changes(donors=donors)), released


def _may_release(given: Given, name: str) -> bool:
    """Return whether a producer of parked rows belongs to the ingest. Any ingest may give up one without parked rows."""
    known = given.progress.get(name)
    return known is not None and (given.ownership.owns(known.owner) or (known.owner is None and not known.state))


def _given(given: Given) -> Antichain:
    """Return what parked rows are given while nothing is held for them: the least times that a row of the ingest may have."""
    return Antichain(given.domain, [*given.held_before(), *given.progress.registrar])


def _held_after(given: Given, changes: Changes) -> Iterable[Time]:
    """Return what the ingest's partitions hold together after this commit."""
    names = [name for name, known in given.alive(changes) if given.is_own(name, known) or name in given.seen]
    held = [given.holds_of(name, changes) for name in names]
    held += [changes.holds[name] for name in given.ownership.joined if name in changes.holds]
    return [time for times in held for time in times]
