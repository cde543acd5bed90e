"""Ownership of partitions: an ingest judges and moves only its own, and takes over another ingest as a whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from strandline.channel import Progress, WriterSession
from strandline.channel.statements.statement import ProducerState
from strandline.channel.statements.statement_columns import Distinct
from strandline.channel.write.admission import refuse_live
from strandline.errors import ProducerError
from strandline.ingest import errors
from strandline.ingest.decide.batch import Batch
from strandline.ingest.names import CORRECTIONS
from strandline.ingest.settings import Settings
from strandline.ingest.state.registrar_state import RegistrarState, held_names

__all__ = ["Ownership"]


class Ownership:
    """Which producers belong to an ingest in the commit of a batch, and which become its own with this commit.

    A partition belongs to the ingest whose query stated it last. The ingest *claims* partitions without an owner when they are
    named, announced or observed. It can take over an observed partition of another query only together with everything that
    belongs to that query. This requires ``take_over``, also if the other query has ended: the rows may be those that it has
    written. The other query is then *fenced*: the registrar's state says so, and its commits are refused until it takes over in
    turn.
    """

    def __init__(self, progress: Progress, batch: Batch, settings: Settings, registrar: RegistrarState) -> None:
        self._progress, self._batch, self._settings = progress, batch, settings
        self._query = batch.transaction[0]
        self._entry = registrar.entry(self._query)
        self._anew = None if self._query in registrar.entries else settings.from_beginning
        self.claimed: list[str] = []
        """Partitions without an owner that become the ingest's, and were named or announced."""
        named = [*dict.fromkeys([*batch.named, *batch.announced])]
        if not progress.registrar:  # the channel is sealed: announced rows of other partitions are refused when they arrive
            not_in_channel = set(progress.unknown(batch.announced)).difference(batch.named)
            named = [name for name in named if name not in not_in_channel]
        self.joined: list[str] = progress.unknown(dict.fromkeys([*named, *batch.seen]))
        """Partitions that the channel did not know."""
        groups = self._by_owner(named)
        free = {*groups.pop(None, ()), *self.joined}
        self.claimed = [name for name in named if name in free]
        observed = self._by_owner(batch.seen)
        self.claimed += [name for name in observed.pop(None, ()) if name not in free]
        if settings.take_over:
            observed = {**groups, **observed}
        self.donors: dict[str, WriterSession] = {
            owner.id: owner for owner in observed if owner is not None and owner.id != self._query
        }
        """The other queries whose partitions become the ingest's."""
        self._example = {owner.id: names[0] for owner, names in observed.items() if owner is not None}
        self.taken: dict[str, list[str]] = self._all_of(self.donors) if self.donors else {}
        """The producers of each donor."""

    def check(self) -> None:
        """Raise :class:`IngestError` for a fenced ingest and for an ended donor, :class:`ProducerError` for a live one."""
        by = self._entry.fenced_by
        if by is not None and (self._batch.entered or not self._settings.take_over):
            raise errors.ingest_fenced(self._query, self._settings.path, by)
        for name in held_names(self._progress):
            if name in self._batch.seen or name in self._batch.named or name in self._batch.announced:
                raise errors.partition_is_hold(name, self._settings.path)
        for donor in self.donors:
            # A restarted query states only the producers that it moves. The others still have the dead session.
            for name in [self._example[donor], *self._live(donor)]:
                state = self._progress.get(name)
                if state is not None:
                    self._refuse_live(name, state)
            if not self._settings.take_over:
                path = self._settings.path
                raise errors.partition_of_another_query(self._example[donor], path, donor, self._query, self._anew)
            if self._anew is not None:
                raise errors.take_over_reads_again(self._settings.path, donor, self._anew)

    def _refuse_live(self, name: str, state: ProducerState) -> None:
        """Raise if another query may run. Its process may have ended it, as a notebook does, so say what a restart must keep."""
        try:
            refuse_live(self._settings.path, name, state, self._batch.owner, self._settings.take_over)
        except ProducerError as error:
            raise errors.producer_live_to_ingest(error, self._anew) from None

    def _live(self, query: str) -> list[str]:
        """Return one producer for each session of a query that is not known to be dead."""
        owners = self._by_owner(self._progress.producers)
        return [names[0] for owner, names in owners.items() if owner is not None and owner.id == query and not owner.is_dead()]

    def owns(self, owner: WriterSession | None) -> bool:
        """Return whether the producers that a session stated last belong to the ingest from this commit on."""
        return owner is not None and (owner.id == self._query or owner.id in self.donors)

    def _by_owner(self, names: Iterable[str]) -> dict[WriterSession | None, list[str]]:
        """Group producers by the session that stated them last. Producers that the channel does not know are left out."""
        table, found = self._progress.columns, dict[WriterSession | None, list[str]]()
        if table is None:
            for name in names:
                state = self._progress.get(name)
                if state is not None:
                    found.setdefault(state.owner, []).append(name)
            return found
        wanted = list(names)
        rows = table.find(wanted)
        known = np.flatnonzero(rows >= 0)
        sessions = Distinct.of(table.owner[rows[known]])
        for i, owner in enumerate(sessions.owners):
            if owner is not None and owner.id == self._query:
                continue  # these are not needed
            places = known[sessions.which == i].tolist()
            found.setdefault(owner, []).extend(wanted[place] for place in places)
        return found

    def _all_of(self, donors: Collection[str]) -> dict[str, list[str]]:
        """Return all producers of some queries. The right to add corrections belongs to every query."""
        taken: dict[str, list[str]] = {donor: [] for donor in donors}
        producers = [name for name in self._progress.producers if name != CORRECTIONS]
        for owner, names in self._by_owner(producers).items():
            if owner is not None and owner.id in taken:
                taken[owner.id] += names
        return taken
