"""Where an ingest's partitions stand in its channel: what each holds, which are idle, and where those would go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from strandline.antichain import Antichain
from strandline.channel import Channel, Owner
from strandline.channel.numbers import Ints, Mask, is_number
from strandline.channel.state_table import StateTable
from strandline.channel.statement import REGISTRAR, ProducerState
from strandline.channel.statement_columns import Distinct
from strandline.ingest.settings import OWN_PREFIX, Settings
from strandline.order import Time, TimeDomain

__all__ = ["CORRECTIONS", "OWN", "PARKED", "Standing", "both"]

CORRECTIONS = f"{OWN_PREFIX}corrections"
"""The producer that holds the right to add corrections."""
PARKED = f"{OWN_PREFIX}parked"
"""The producer that holds the capabilities of parked rows, and keeps in its state where they are."""
OWN = (CORRECTIONS, PARKED)


def both(domain: TimeDomain, held: Sequence[Time] | Antichain, promised: Sequence[Time]) -> Antichain:
    """The times in advance of a capability held and of a promise: what a promise leaves of what was held.

    >>> from strandline.order import int64
    >>> both(int64, Antichain(int64, [3]), [1]), both(int64, Antichain(int64, [3]), [])
    (Antichain(int64, [3]), Antichain(int64, []))
    """
    if isinstance(held, Antichain) and len(held) == 1 and len(promised) == 1 and promised[0] in held:
        return held
    return Antichain(domain, [domain.join(a, b) for a in held for b in promised])


@dataclass
class Standing:
    """The partitions of a channel as of its newest version; times are the channel's."""

    settings: Settings
    partitions: Mapping[str, ProducerState]
    least: Antichain
    """The least that any partition holds."""
    idle: dict[str, Any] = field(default_factory=dict)
    """The partitions that nobody waits for, with what their state says of it."""
    table: StateTable | None = None
    """All of them, and the channel's other producers, as columns."""
    _by_owner: dict[str | None, Antichain] = field(default_factory=dict)

    @classmethod
    def of(cls, channel: Channel, settings: Settings) -> Standing:
        """Read it off the channel's statements. It is a view of them: for use before the next commit is taken up."""
        progress = channel.progress
        partitions = progress.producers_but(*OWN)
        apart = {name: Antichain(channel.domain) for name in OWN if name in progress.producers}
        least = progress.least_with(apart) if partitions else channel.registrar
        return cls(settings, partitions, least, dict(progress.remembering("idle")), progress.table)

    @classmethod
    def of_nothing(cls, settings: Settings, named: Sequence[str]) -> Standing:
        """Before there is a channel."""
        return cls(settings, {}, Antichain.least(settings.channel_domain))

    def held(self, name: str) -> Antichain:
        """What a known partition holds as the next batch starts: an idle one goes on at the least that the others hold."""
        state = self.partitions[name]
        idle = self.idle.get(name)
        if idle is None or state.holds:
            return state.holds
        domain = self.settings.channel_domain
        return both(domain, self._least_of(state.owner), [domain.from_json(time) for time in idle["was"]])

    def held_by_row(self, table: StateTable) -> tuple[Ints, Mask]:
        """As :meth:`held`, of each row of the channel's table: the time, and whether there is one."""
        times, held = table.times[: len(table.names)].copy(), table.held[: len(table.names)].copy()
        if not self.idle:
            return times, held
        rows = table.find(self.idle)
        was = [idle["was"] for idle in self.idle.values()]
        sessions = Distinct.of(table.owner[rows])
        least = [self._least_of(owner) for owner in sessions.owners]
        going_on = ~held[rows] & np.array([len(times) == 1 and is_number(times[0]) for times in was], dtype=np.bool_)
        going_on &= np.array([len(holds) > 0 for holds in least], dtype=np.bool_)[sessions.which]
        for i in np.flatnonzero(~going_on & ~held[rows]).tolist():
            holds = list(self.held(table.names[rows[i]]))
            times[rows[i]], held[rows[i]] = holds[0] if holds else 0, bool(holds)
        rows, which = rows[going_on], sessions.which[going_on]
        promised = np.array([times[0] for times, goes in zip(was, going_on.tolist(), strict=True) if goes], dtype=np.int64)
        times[rows] = np.maximum(np.array([next(iter(holds), 0) for holds in least], dtype=np.int64)[which], promised)
        held[rows] = True
        return times, held

    def _least_of(self, owner: Owner | None) -> Antichain:
        """The least that partitions of the same ingest hold: clones of that can be given to one of them."""
        who = owner.id if owner is not None else None
        found = self._by_owner.get(who)
        if found is None:
            if self.table is not None:
                holds = {int(time) for time in self.table.times[self._rows_holding(who)]}
            else:
                states = self.partitions.values()
                holds = {t for state in states if (state.owner.id if state.owner else None) == who for t in state.holds}
            # Of an ingest that was taken over there may be no other partition left.
            found = self._by_owner[who] = Antichain(self.settings.channel_domain, holds) if holds else self.least
        return found

    def _rows_holding(self, who: str | None, *, anybodys: bool = False) -> Ints:
        """The rows of the partitions of one ingest, or of ``anybodys``, that hold something."""
        table = self.table
        assert table is not None  # noqa: S101 - the caller has looked
        held = table.held[: len(table.names)].copy()
        apart = table.find((REGISTRAR, *OWN))
        held[apart[apart >= 0]] = False
        if not anybodys:
            sessions = Distinct.of(table.owner[: len(held)])
            wanted = [(owner.id if owner is not None else None) == who for owner in sessions.owners]
            held &= np.array(wanted, dtype=np.bool_)[sessions.which]
        return np.flatnonzero(held)

    def donors(self, name: str) -> set[str]:
        """Partitions of the same ingest that hold, between them, what an idle one goes on at."""
        owner = self.partitions[name].owner
        left = set(self._least_of(owner))
        found: set[str] = set()
        if self.table is not None:
            anybodys = self._least_of(owner) is self.least
            rows = self._rows_holding(None if owner is None else owner.id, anybodys=anybodys)
            at = rows[np.isin(self.table.times[rows], list(left))]
            return {self.table.names[at[0]]} if len(at) else found
        for other, state in self.partitions.items():
            if not left:
                break
            mine = left.intersection(state.holds)
            if mine and (self._least_of(owner) is self.least or (state.owner and state.owner.id) == (owner and owner.id)):
                found.add(other)
                left -= mine
        return found
