"""What a batch's commit states: what the partitions hold after it and remember, who is idle, which parked rows may join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strandline.antichain import Antichain
from strandline.channel import Channel, Owner
from strandline.channel.moves import Moves
from strandline.channel.statement import REGISTRAR
from strandline.ingest import after_columns
from strandline.ingest.brought import Brought
from strandline.ingest.idle import Clock, Moment
from strandline.ingest.parking import near, parked_from_json, parked_to_json, released
from strandline.ingest.policy import Policy, Seen
from strandline.ingest.report import Parked, TaskReport
from strandline.ingest.settings import OWN_PREFIX, Settings
from strandline.ingest.standing import CORRECTIONS, PARKED, Standing, both

__all__ = ["After"]

_NEVER = -(1 << 62)


class After:
    """Decides, on the channel's newest version, what the commit of a batch states. Times are the channel's.

    A partition's state has ``at`` (when it last brought anything, in ms), ``aside`` (how many rows of it were set aside), ``own``
    (the policy's), ``heard`` (the reading of the listening clock at ``at``) and, while nobody waits for it, ``idle``. While a
    source is in its first snapshot nobody's capability moves: what is promised meanwhile waits in ``soon``, and counts from its
    end on.

    ``holds`` and ``states`` say it of partitions one by one, ``moves`` of very many others at once
    (:mod:`~strandline.ingest.after_columns`).
    """

    def __init__(self, channel: Channel, settings: Settings, policy: Policy, query: str, moment: Moment) -> None:
        self._channel, self._settings, self._policy, self._moment = channel, settings, policy, moment
        self._domain = settings.channel_domain
        self._standing = Standing.of(channel, settings)
        registrar = channel.progress.get(REGISTRAR)
        self._all_common: dict[str, Any] = dict((registrar.state if registrar else None) or {})
        self._mine: dict[str, Any] = dict(self._all_common.get(query, {}))
        self._query = query
        self._clock = Clock.from_json(self._mine.get("clock")).at(moment)
        self._has_idle = any(p.idle_after_ms is not None for _, p in policy.by_pattern())
        self.holds: dict[str, Antichain] = {}
        self.moves: Moves | None = None
        self.states: dict[str, Any] = {}
        self.donors: set[str] = set()
        self.released: list[Parked] = []
        self.aside: dict[tuple[str | None, str], int] = {}

    @property
    def common(self) -> dict[str, Any]:
        """What all ingests of the channel keep in common, by query: the registrar's state."""
        mine = {**self._mine, "policy": str(self._policy), "late": self._settings.late_path}
        if self._has_idle:
            mine["clock"] = {**self._clock.to_json(), "certain": self._moment.to_end}
        mine.pop("snapshot", None)
        if self._moment.in_snapshot:
            mine["snapshot"] = True
        nobodys = sum(n for (partition, _), n in self.aside.items() if partition is None)
        if nobodys:
            mine["aside"] = mine.get("aside", 0) + nobodys
        return {**self._all_common, self._query: mine}

    def judge(self, seen: Brought, reports: Sequence[TaskReport]) -> None:
        """Take up what the tasks of the batch saw."""
        for report in reports:
            for key, n in report.aside.items():
                self.aside[key] = self.aside.get(key, 0) + n
        aside: dict[str, int] = {}
        for (partition, _), n in self.aside.items():
            if partition is not None:
                aside[partition] = aside.get(partition, 0) + n
        for name, news in self._spoke_at_once(seen, aside).items():
            self._spoke(name, news, aside.get(name, 0))
        for name in self._policy.changed():
            if name not in seen and name in self._standing.partitions and name not in self._standing.idle:
                self._promise(name, Seen(name, 0, None, None), dict(self._standing.partitions[name].state or {}))
        if self._mine.get("snapshot") and not self._moment.in_snapshot:
            self._end_snapshot(seen)
        if self._has_idle and not self._moment.in_snapshot:
            self._judge_silence(seen)
        if self._settings.corrections:
            self._open_corrections()
        self._release(reports)
        moved = set(self.moves.names) if self.moves is not None and self.donors else ()
        for donor in self.donors:
            if (
                donor not in self.holds and donor not in moved
            ):  # what it holds is stated although it did not change: others are given clones of that
                self.holds[donor] = self._standing.partitions[donor].holds

    # ------------------------------------------------------------------------------------------------------- promises

    def _spoke_at_once(self, seen: Brought, aside: dict[str, int]) -> Brought:
        """Take up those that can be taken up all at once; the others are left."""
        table = self._channel.progress.table
        if table is None or self._moment.in_snapshot or self._mine.get("snapshot"):
            return seen
        now = {"at": self._moment.now_ms} | ({"heard": self._clock.listened} if self._has_idle else {})
        left, self.moves = after_columns.moved(seen, table, self._policy, now, aside)
        return left

    def _spoke(self, name: str, news: Seen, aside: int) -> None:
        known = self._standing.partitions.get(name)
        memory = dict(known.state or {}) if known is not None else {}
        if memory.pop("idle", None) is not None:
            self.donors |= self._standing.donors(name)
        memory["at"] = self._moment.now_ms
        if aside:
            memory["aside"] = memory.get("aside", 0) + aside
        if self._policy.for_partition(name).idle_after_ms is not None:
            memory["heard"] = self._clock.listened
        self._promise(name, news, memory)

    def _promise(self, name: str, news: Seen, memory: dict[str, Any]) -> None:
        promised, own = self._policy.for_partition(name).promise(news, memory.get("own"))
        held = self._standing.held(name) if name in self._standing.partitions else self._joining()
        soon = memory.pop("soon", None)
        to_come = held if soon is None else both(self._domain, held, [self._domain.from_json(time) for time in soon])
        if promised is not None:
            to_come = both(self._domain, to_come, [self._settings.lift(time) for time in promised])
        if not self._moment.in_snapshot:
            held = to_come
        elif to_come != held:
            memory["soon"] = to_come.to_json()
        if own is not None:
            memory["own"] = own
        self.holds[name], self.states[name] = held, memory

    def _end_snapshot(self, seen: Brought) -> None:
        """The first snapshot is in: what partitions promised in the course of it counts."""
        for name, state in self._standing.partitions.items():
            if (
                name not in seen
                and name not in self.holds
                and self._is_mine(state.owner)
                and state.state
                and "soon" in state.state
            ):
                self._promise(name, Seen(name, 0, None, None), dict(state.state))

    def _is_mine(self, owner: Owner | None) -> bool:
        """Whether a partition is this ingest's, and not that of another one in the same channel, by who had it last."""
        return self._settings.take_over or owner is None or owner.id == self._query

    def _joining(self) -> Antichain:
        """Where a new partition joins."""
        settings = self._settings
        return Antichain(self._domain, [settings.lift(time) for time in settings.lower(self._channel.registrar)])

    # ------------------------------------------------------------------------------------------------------- silence

    def _judge_silence(self, seen: Brought) -> None:
        """Stop waiting for those that have been silent for long, all of them at once."""
        silent, active = self._silent(seen)
        if active or any(self.holds[name] for name in self._channel.progress.unknown(seen)):
            for name in silent:
                if self._held(name):
                    self._fall_idle(name, [])
            return
        self._all_silent(silent)

    def _silent(self, seen: Brought) -> tuple[list[str], bool]:
        """The silent ones of the known partitions, and whether another one holds anything."""
        table, after = self._channel.progress.table, self._policy.idle_after_ms
        if table is not None and after is not None:
            before = self._clock.listened - after + 1 if self._moment.to_end else _NEVER
            return after_columns.silent(table, self._standing, seen, self.holds, self._is_mine, self._is_silent, before)
        silent: list[str] = []
        active = False
        for name, state in self._standing.partitions.items():
            if not self._is_mine(state.owner):
                continue
            holds = self.holds.get(name, state.holds)
            if name not in seen and (name in self._standing.idle or self._is_silent(name, state.state)):
                silent.append(name)
            elif holds:
                active = True
        return silent, active

    def _is_silent(self, name: str, state: Any) -> bool:
        after = self._policy.for_partition(name).idle_after_ms
        if after is None:
            return False
        return self._moment.to_end and self._clock.listened - (state or {}).get("heard", 0) >= after

    def _held(self, name: str) -> Antichain:
        return self.holds.get(name, self._standing.partitions[name].holds)

    def _was(self, name: str) -> list[Any]:
        """What a silent partition has promised."""
        idle = self._standing.idle.get(name)
        if idle is not None:
            return [self._domain.from_json(time) for time in idle["was"]]
        return list(self._held(name))

    def _fall_idle(self, name: str, holds: Sequence[Any]) -> None:
        memory = dict(self.states.get(name, self._standing.partitions[name].state or {}))
        if "idle" not in memory:
            was = [self._domain.to_json(time) for time in self._held(name)]
            memory["idle"] = {"was": was, "since": self._moment.now_ms, "listened": self._clock.listened}
        self.holds[name], self.states[name] = Antichain(self._domain, holds), memory

    def _all_silent(self, silent: Sequence[str]) -> None:
        """Nobody speaks: the frontier goes to the greatest of what they have promised, and one of them holds it there."""
        promised = [was for name in silent if (was := self._was(name))]
        if not promised:
            return
        furthest = promised[0]
        for was in [[max(promised)[0]]] if self._domain.is_total else promised:
            furthest = list(both(self._domain, furthest, was))
        holders = [name for name in silent if self._held(name)]
        if holders:
            stand_in = max(holders, key=self._furthest)
            for name in holders:
                self._fall_idle(name, furthest if name == stand_in else [])
            return
        # Those that nobody waited for are all that is left: what the last others held goes to one of them.
        before = {n: s.holds for n, s in self._standing.partitions.items() if self._is_mine(s.owner) and s.holds}
        if before:
            given = Antichain(self._domain, [time for holds in before.values() for time in holds])
            self.donors |= before.keys()
            stand_in = max((name for name in silent if self._was(name)), key=self._furthest)
            self._fall_idle(stand_in, list(both(self._domain, given, furthest)))

    def _furthest(self, name: str) -> Any:
        return [self._domain.sort_key(time) for time in self._was(name)], name

    # ------------------------------------------------------------------------------------------------------- the ingest's own

    def _open_corrections(self) -> None:
        known = self._channel.producers.get(CORRECTIONS)
        least = self._settings.domain.minimum
        if known is not None and known.seq == 0:
            self.holds[CORRECTIONS] = Antichain(self._domain, [(least, 1)])

    def _release(self, reports: Sequence[TaskReport]) -> None:
        """Let those parked rows join that are near the frontier after this batch, and hold the others' times."""
        known = self._channel.producers.get(PARKED)
        waiting = parked_from_json(known.state if known is not None else None, self._domain)
        parcels = [*waiting, *(parcel for report in reports for parcel in report.parked)]
        ahead = self._settings.max_ahead
        if not parcels and (known is None or not known.holds):
            return
        others = {**self.holds}
        others |= {name: Antichain(self._domain) for name in self._channel.producers if name.startswith(OWN_PREFIX)}
        frontier = self._channel.progress.least_with(others, self.moves)
        self.released, stay = (parcels, []) if ahead is None else released(parcels, frontier, ahead)
        holds = []
        if stay and ahead is not None:
            # No row that is parked from now on is before this, and it is beyond the frontier: it holds nobody back.
            minimum = self._domain.minimum
            beyond = near(self._domain, frontier, ahead) + 1
            holds = [beyond if not self._domain.coordinates else _with_first(minimum, beyond)]
        if not (known is not None and known.holds):
            for report in reports:
                if report.parked:
                    self.donors |= {s.partition for s in report.seen}
                    self.donors.update(report.columns.names if report.columns is not None else ())
        held = known.holds if known is not None else None
        self.holds[PARKED] = both(self._domain, held, holds) if held else Antichain(self._domain, holds)
        self.states[PARKED] = {"rows": sum(p.rows for p in stay), "parked": parked_to_json(stay, self._domain)}


def _with_first(time: Any, value: int) -> Any:
    return (value if isinstance(time[0], int) else _with_first(time[0], value), *time[1:])
