"""The state of an ingest's partitions in its channel: what each holds, which are idle, and at which times those would resume."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from strandline.channel import Progress, WriterSession
from strandline.channel.progress.producer_state_columns import ProducerStateColumns
from strandline.channel.statements.nullable_int64 import Ints, Mask, is_number
from strandline.channel.statements.statement import REGISTRAR, ProducerState
from strandline.channel.statements.statement_columns import Distinct
from strandline.ingest.settings import Settings
from strandline.ingest.state.partition_state import IdleState, idle_states
from strandline.ingest.state.registrar_state import own_names
from strandline.time.antichain import Antichain, join_antichains
from strandline.time.domain import Time

__all__ = ["PartitionStates"]


@dataclass
class PartitionStates:
    """The partitions of a channel as of its newest version. Times are the channel's."""

    settings: Settings
    partitions: Mapping[str, ProducerState]
    least: Antichain
    """The least times that any partition holds."""
    idle: dict[str, IdleState] = field(default_factory=dict)
    """The partitions that are not waited for, with what their state says about that."""
    columns: ProducerStateColumns | None = None
    """All partitions, and the channel's other producers, as columns."""
    registrar: Antichain | None = None
    """What the registrar holds."""
    own: Sequence[str] = ()
    """The producers that are not partitions."""
    holding: Sequence[str] = ()
    """Where there are no columns, the partitions that hold anything. A channel may have very many more that are dead."""
    _by_owner: dict[str | None, Antichain] = field(default_factory=dict)
    _donors: dict[frozenset[str | None], dict[Time, str | None]] = field(default_factory=dict)
    """The donors that were found so far. Very many partitions may resume at the same time."""

    @classmethod
    def of(cls, progress: Progress, settings: Settings) -> PartitionStates:
        """Read the states from the channel's statements. The result is a view: use it before the next commit is applied."""
        own = own_names(progress)
        partitions = progress.producers_but(*own)
        apart = {name: Antichain(progress.domain) for name in own}
        least = progress.least_with(apart) if partitions else progress.registrar
        idle = idle_states(progress)
        holding = [] if progress.columns is not None else [name for name in progress.holding() if name in partitions]
        return cls(settings, partitions, least, idle, progress.columns, progress.registrar, own, holding)

    @classmethod
    def of_nothing(cls, settings: Settings, named: Sequence[str]) -> PartitionStates:
        """Return the states before there is a channel."""
        return cls(settings, {}, Antichain.least(settings.channel_domain))

    def held(self, name: str) -> Antichain:
        """Return what a known partition holds when the next batch starts.

        An idle partition resumes at the least that the others hold.
        """
        state = self.partitions[name]
        idle = self.idle.get(name)
        if idle is None or state.holds:
            return state.holds
        domain = self.settings.channel_domain
        return join_antichains(domain, self._least_of(state.owner), idle.promised(domain))

    def held_by_row(self, table: ProducerStateColumns) -> tuple[Ints, Mask]:
        """Return :meth:`held` for each row of the channel's table: the time, and whether there is one."""
        times, held = table.times[: len(table.names)].copy(), table.held[: len(table.names)].copy()
        if not self.idle:
            return times, held
        rows = table.find(self.idle)
        was = [idle.was for idle in self.idle.values()]
        sessions = Distinct.of(table.owner[rows])
        least = [self._least_of(owner) for owner in sessions.owners]
        resuming = ~held[rows] & np.array([len(times) == 1 and is_number(times[0]) for times in was], dtype=np.bool_)
        resuming &= np.array([len(holds) > 0 for holds in least], dtype=np.bool_)[sessions.which]
        for i in np.flatnonzero(~resuming & ~held[rows]).tolist():
            holds = list(self.held(table.names[rows[i]]))
            times[rows[i]], held[rows[i]] = holds[0] if holds else 0, bool(holds)
        rows, which = rows[resuming], sessions.which[resuming]
        promised = np.array([times[0] for times, goes in zip(was, resuming.tolist(), strict=True) if goes], dtype=np.int64)
        times[rows] = np.maximum(np.array([next(iter(holds), 0) for holds in least], dtype=np.int64)[which], promised)
        held[rows] = True
        return times, held

    def _least_of(self, owner: WriterSession | None) -> Antichain:
        """Return the least that partitions of the same ingest hold. Clones of that can be given to one of them.

        They may hold nothing, when an operator lets all of them rejoin. Then return what the registrar holds.
        """
        return (
            self.held_by([owner.id if owner is not None else None]) or self.registrar or Antichain(self.settings.channel_domain)
        )

    def held_by(self, owners: Iterable[str | None]) -> Antichain:
        """Return what the partitions of some sessions hold together."""
        parts = [self._held_by_owner(owner_id) for owner_id in owners]
        return parts[0] if len(parts) == 1 else Antichain(self.settings.channel_domain, [time for part in parts for time in part])

    def _held_by_owner(self, owner_id: str | None) -> Antichain:
        found = self._by_owner.get(owner_id)
        if found is None:
            if self.columns is not None:
                holds = {int(time) for time in self.columns.times[self._rows_holding(self.columns, owner_id)]}
            else:
                states = (self.partitions[name] for name in self.holding)
                holds = {t for state in states if (state.owner.id if state.owner else None) == owner_id for t in state.holds}
            found = self._by_owner[owner_id] = Antichain(self.settings.channel_domain, holds)
        return found

    def _rows_holding(self, table: ProducerStateColumns, owner_id: str | None) -> Ints:
        """Return the table rows of one ingest's partitions that hold something."""
        held = table.held[: len(table.names)].copy()
        apart = table.find((REGISTRAR, *self.own))
        held[apart[apart >= 0]] = False
        sessions = Distinct.of(table.owner[: len(held)])
        wanted = [(owner.id if owner is not None else None) == owner_id for owner in sessions.owners]
        held &= np.array(wanted, dtype=np.bool_)[sessions.which]
        return np.flatnonzero(held)

    def donors(self, owners: Collection[str | None], times: Iterable[Time]) -> set[str]:
        """Return partitions of some sessions that together hold these times: for each time, the one with the least name.

        So the choice depends on nothing else than what the channel's log says: not on the order in which it was read.
        """
        wanted, known = set(times), self._donors.setdefault(frozenset(owners), {})
        if left := wanted - known.keys():
            known |= dict.fromkeys(left) | self._least_holders(owners, left)
        return {name for time in wanted if (name := known[time]) is not None}

    def _least_holders(self, owners: Collection[str | None], times: set[Time]) -> dict[Time, str]:
        """Return which of the partitions that hold a time has the least name, for each time that is held."""
        found: dict[Time, str] = {}
        if self.columns is not None:
            names = self.columns.names
            parts = [self._rows_holding(self.columns, owner_id) for owner_id in {*owners}]
            rows = np.concatenate([np.empty(0, dtype=np.int64), *parts])
            for time in times:
                at = rows[self.columns.times[rows] == time].tolist()
                if at:
                    found[time] = min(names[row] for row in at)
            return found
        for name in self.holding:
            state = self.partitions[name]
            if (state.owner.id if state.owner else None) in owners:
                for time in times.intersection(state.holds):
                    found[time] = min(name, found.get(time, name))
        return found
