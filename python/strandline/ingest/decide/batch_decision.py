"""The content of a batch's commit: what partitions hold and remember from then on, which are idle, which parked rows join."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from strandline.channel import ProducerError, ProducerState, Progress, Span
from strandline.channel.progress.capability_updates import CapabilityUpdates
from strandline.channel.statements.statement import REGISTRAR
from strandline.channel.write.append import Append
from strandline.delta.data_file import DataFile
from strandline.delta.storage import location_of
from strandline.errors import IngestError, StrandlineError
from strandline.ingest.clocks.moment import Clock
from strandline.ingest.decide import clock_readings, decision_columns
from strandline.ingest.decide.batch import Batch
from strandline.ingest.decide.ownership import Ownership
from strandline.ingest.decide.partition_states import PartitionStates
from strandline.ingest.decide.silence import stand_in
from strandline.ingest.late.late_table import Publication
from strandline.ingest.late.looked_at import MOVED, NEWEST
from strandline.ingest.names import BY_KEYS, CORRECTIONS, NAMES_KEY, OWN_PREFIX, PARKED, late_path_beside
from strandline.ingest.parked.files import with_stats
from strandline.ingest.parked.lists import ParkedLists
from strandline.ingest.parked.parcel import Parked
from strandline.ingest.parked.release import parked_beyond, release
from strandline.ingest.policies.parser import recorded_policy
from strandline.ingest.policies.policy import Observation, Policy
from strandline.ingest.policy_calls import promise_of
from strandline.ingest.recorded import entries_of, memory_of, parked_state, registrar_state
from strandline.ingest.rejoin import REJOINS
from strandline.ingest.settings import Settings
from strandline.ingest.task.observations import Observations
from strandline.time.antichain import Antichain, join_antichains
from strandline.time.domain import Time

__all__ = ["BatchDecision"]


class BatchDecision:
    """Decides the content of a batch's commit, on the newest progress of a channel. Times are the channel's.

    It is recreated for each attempt to commit, so no other commit lies between the progress that it read and its decision. It
    judges and moves only the ingest's own partitions (:class:`~strandline.ingest.decide.ownership.Ownership`).

    A partition's state has ``at`` (when it last delivered anything, in ms), ``aside`` (how many of its rows were set aside),
    ``future`` (how many of these were too far ahead of the clock),
    ``own`` (the policy's state), ``heard`` or ``heardWall`` (the reading, at ``at``, of the clock by which its silence counts)
    and, while the ingest does not wait for it, ``idle``. While a source is in its first snapshot, no partition's capability
    moves. Promises made meanwhile wait in ``soon``, and count from the end of the snapshot on.

    ``holds`` and ``states`` have the decision for partitions one by one. ``moves`` has it for very many others at once
    (:mod:`~strandline.ingest.decide.decision_columns`).
    """

    def __init__(self, progress: Progress, settings: Settings, policy: Policy, batch: Batch) -> None:
        self._progress, self._settings, self._policy, self._batch = progress, settings, policy, batch
        self._domain, self._moment, self._query = settings.channel_domain, batch.moment, batch.transaction[0]
        self._partition_states = PartitionStates.of(progress, settings)
        self._entries: dict[str, Any] = dict(registrar_state(progress))
        self._entry: dict[str, Any] = dict(entries_of(progress).get(self._query, {}))
        self._ownership = Ownership(progress, batch, settings, self._partition_states.own)
        self._clock = Clock.from_json(self._entry.get("clock")).at(batch.moment)
        self._has_idle = any(p.idle_after_ms is not None for _, p in policy.by_pattern())
        self._same_policy = self._entry.get("policy", str(policy)) == str(policy)
        self._silent_since: int = self._entry.get("since", 0) if self._same_policy else self._clock.listened
        self._wall_ms = self._clock.wall_ms or 0
        self._has_wall = any(p.counts_wall for _, p in policy.by_pattern())
        self._wall_since: int = self._entry.get("sinceWall", self._wall_ms) if self._same_policy else self._wall_ms
        self.fell_silent: dict[str, int] = {}
        """The partitions that this batch stops waiting for, and for how many ms they have been silent."""
        self._counts = {"aside": batch.aside_by_partition, "future": batch.future}
        self._unplaced: dict[str, int] = {}
        """How many rows of these were of partitions that have not joined, or belong to another query."""
        self._memories: dict[str, dict[str, Any]] = {}
        """The states of partitions that belong to the ingest, or are under its policy, from now on."""
        self._rejoined: list[str] = []
        """The partitions that delivered nothing, and rejoin with this batch."""
        self._uncounted: set[str] = set()
        """The partitions whose rows from before this batch the policy has not counted."""
        self.holds: dict[str, Antichain] = {}
        self.moves: CapabilityUpdates | None = None
        self.states: dict[str, Any] = {}
        self.donors: set[str] = set()
        self.released: list[Parked] = []

    def decide(self) -> Append:
        """Decide the commit. Raises :class:`IngestError` and :class:`ProducerError` when the batch must not be committed."""
        self._check_snapshot()
        self._ownership.check()
        self._adopt()
        self._apply_observations()
        for donor in self._unstated_donors():
            # What the donor holds is stated although it did not change, because others are given clones of it.
            self.holds[donor] = self._partition_states.partitions[donor].holds
        batch, settings = self._batch, self._settings
        parcels = self.released
        schema = settings.channel_schema if batch.schema is None else batch.schema
        files: list[DataFile] = [file for report in batch.reports for file in report.files]
        spans = [span for report in batch.reports for span in report.spans]
        return Append(
            session=batch.owner,
            files=[*files, *with_stats(settings.path, schema, settings.storage, parcels)],
            holds=self.holds,
            moves=self.moves,
            states={**self.states, REGISTRAR: self._registrar_state()},
            times=batch.times(settings.channel_domain),
            spans=[*spans, *(Span(parcel.least, parcel.greatest, parcel.rows) for parcel in parcels)],
            transaction=batch.transaction,
            take_over=True,  # which producers may be taken over is already decided
            follow=True,
            seal=self._seals(),
            apart=[name for name in {*self._partition_states.own, *self.holds} if name.startswith(OWN_PREFIX)],
            donors=self.donors,
        )

    def _check_snapshot(self) -> None:
        """Raise if the first snapshot has begun, and may have ended with this batch: it would decide which rows are late."""
        if self._entry.get("snapshot") and self._moment.in_snapshot is None:
            batch = self._batch.transaction[1]
            raise IngestError(
                "STRANDLINE_SNAPSHOT_END_UNKNOWN",
                f"The source of query {self._query} is in its first snapshot. Whether batch {batch} is still in it could not "
                f"be read from the file offsets/{batch} of the query's checkpoint. The rows of a snapshot are in no order, and "
                "those to come would be taken for late ones. Nothing of the batch was written.",
                "Check that the checkpoint's storage answers, then start the query again: it repeats the batch. Until the "
                "snapshot has ended, checkpointLocation and storage.* must stay options of the query.",
            )

    def _unstated_donors(self) -> list[str]:
        moved = set(self.moves.names) if self.moves is not None and self.donors else ()
        return [name for name in self.donors if name not in self.holds and name not in moved]

    def _registrar_state(self) -> dict[str, Any]:
        """Return what all ingests of the channel share, by query: the registrar's state."""
        batch, entries = self._batch, dict(self._entries)
        entry = {**self._entry, "policy": str(self._policy)}
        late_path = location_of(entry.get("late") or late_path_beside(self._settings.path))
        for key in ("snapshot", "fenced", "since", "sinceWall", "late"):
            entry.pop(key, None)
        if self._has_idle:
            certain = all(self._is_certain(p) for _, p in self._policy.by_pattern() if p.idle_after_ms is not None)
            entry["clock"] = {**self._clock.to_json(), "certain": certain}
        if self._silent_since:
            entry["since"] = self._silent_since
        if self._has_wall:
            entry["sinceWall"] = self._wall_since
        if self._moment.in_snapshot:
            entry["snapshot"] = True
        columns = [[pattern, need.silent] for pattern, need in self._settings.needs]
        known = entry.get("cancelled", ())
        if (known or any(column for _, column in columns)) and (not known or known[-1][1] != columns):
            entry["cancelled"] = [*known, [batch.transaction[1], columns]]
        without_partition = sum(n for (partition, _), n in batch.aside.items() if partition is None)
        for key, n in {**self._unplaced, "aside": self._unplaced.get("aside", 0) + without_partition}.items():
            if n:
                entry[key] = entry.get(key, 0) + n
        if batch.read[0] or "batch" not in entry:  # a batch without rows is not a change by itself
            number, (rows, digest, content) = batch.transaction[1], batch.read
            entry["batch"] = [number, rows, digest]
            entry.pop("values", None)
            entry["values"] = [number, content]
        if self._settings.late_path != late_path_beside(self._settings.path):
            entry["late"] = self._settings.late_path
        newest: int = entry.setdefault(NEWEST, -1)
        if batch.late_files:
            begins = [batch.transaction[1]] * (batch.late_newest != newest) + [batch.late_begins] * (batch.late_begins > 0)
            if begins:
                entry[MOVED] = sorted({*entry.get(MOVED, ()), *begins})
            entry[NEWEST] = batch.transaction[1]
        if batch.read[0] or late_path != self._settings.late_path:
            entry.pop("pending", None)  # published before this batch, at the path of that time
        if batch.late_files:
            publication = Publication(*batch.transaction, tuple(batch.late_files), before=newest)
            entry["pending"] = publication.to_json()
        for donor in self._ownership.donors:
            if donor in entries:
                entries[donor] = {**entries[donor], "fenced": batch.owner.to_json()}
        if NAMES_KEY not in entries and (not self._entries or len(self._settings.partition) > 1):
            entries[NAMES_KEY] = BY_KEYS
        return {**entries, self._query: entry}

    def _seals(self) -> bool:
        """Return whether no partition can join any more, because the manifest of the channel's only ingest has ended."""
        if not self._progress.registrar or not self._policy.ends() or self._settings.admitted:
            return False
        others = [c for query, c in self._entries.items() if isinstance(c, dict) and query != self._query]
        return all("fenced" in entry for entry in others) and all(
            self._is_own(name, state) or not state.holds for name, state in self._partition_states.partitions.items()
        )

    # ------------------------------------------------------------------------------------------------------- ownership

    def _adopt(self) -> None:
        """Adopt partitions that belong to the ingest from now on, or that are under another policy from now on."""
        groups: dict[str | None, list[str]] = {}
        if not self._same_policy:
            owned = [n for n, s in self._partition_states.partitions.items() if s.owner is not None and s.owner.id == self._query]
            groups[self._entry["policy"]] = owned  # not those taken over or claimed now: that policy did not judge them
        for donor, names in self._ownership.taken.items():
            donor_policy = self._entries.get(donor, {}).get("policy")
            groups.setdefault(donor_policy, []).extend(names)
            if donor_policy == str(self._policy):  # nothing to judge again, but the readings of their clock mean nothing here
                for name in names:
                    self._restate(name)
                    if not name.startswith(OWN_PREFIX) and name not in self._batch.seen and self._may_have_changed(name):
                        self._apply_outside_changes(name, self._memories[name])
        claimed = self._ownership.claimed
        groups.setdefault(None, []).extend(name for name in claimed if self._progress.get(name) is not None)
        for text, names in groups.items():
            if text != str(self._policy):
                self._change_policy(_parsed(text), names)
        for name in claimed:
            if name not in self.holds and name not in self._batch.seen:
                memory = self._with_reading(name, self._memories.pop(name, {}))
                self._set_promise(name, Observation(name, 0, None, None), memory)

    def _may_have_changed(self, name: str) -> bool:
        changed = self._batch.changed
        return changed is None or name in changed

    def _apply_outside_changes(self, name: str, memory: dict[str, Any]) -> None:
        """Apply outside changes for a partition that has delivered nothing."""
        if name in self._partition_states.idle:
            self._set_idle_promise(name, memory)
        elif self._policy_of(self._policy, name) is not None:
            self._set_promise(name, Observation(name, 0, None, None), memory)

    def _restate(self, name: str) -> None:
        state = self._progress.get(name)
        assert state is not None  # noqa: S101 - it was taken over
        memory = dict(memory_of(name, state.state))
        if not name.startswith(OWN_PREFIX):
            memory = self._with_reading(name, memory)
            memory.pop("soon", None)  # from a snapshot that did not end
        self._memories[name] = memory
        if name not in self._batch.seen:
            self.holds[name], self.states[name] = state.holds, memory or state.state

    def _change_policy(self, before: Policy | None, names: Iterable[str]) -> None:
        """Put partitions under the policy. Another policy, or none, has judged them so far."""
        for name in names:
            if name.startswith(OWN_PREFIX):
                self._restate(name)
                continue
            state = self._partition_states.partitions[name]
            policy, memory, interrupted = self._policy_of(self._policy, name), dict(memory_of(name, state.state)), False
            if state.owner is None or state.owner.id != self._query:
                memory = self._with_reading(name, memory)
                interrupted = memory.pop("soon", None) is not None
            was = None if before is None else self._policy_of(before, name)
            if policy is not None and (was is None or str(was.core) != str(policy.core)):
                own = memory.pop("own", None)
                continued = None if was is None or interrupted else policy.core.continued(was.core, own)
                if continued is not None:
                    memory["own"] = continued
                elif policy.needs_times and (state.owner is not None or state.seq):
                    self._uncounted.add(name)
            held = None
            if policy is not None and "idle" in memory and (policy.idle_after_ms is None or REJOINS in memory["idle"]):
                held = self._resume(name, memory)  # the ingest did not wait for it, and now waits for it again
            self._memories[name] = memory
            if name in self._batch.seen:
                continue
            if policy is None:
                self._restate(name)
            elif "idle" in memory:
                self._set_idle_promise(name, memory)
            else:
                self._set_promise(name, Observation(name, 0, None, None), memory, held)

    def _policy_of(self, policy: Policy, name: str) -> Policy | None:
        with suppress(StrandlineError):  # no pattern matches: it delivers nothing more, or the tasks refuse it
            return policy.for_partition(name)
        return None

    def _with_reading(self, name: str, memory: dict[str, Any]) -> dict[str, Any]:
        """Return a partition's state with what its clock shows now, and without any earlier reading."""
        if not self._has_idle:
            return memory
        return self._with_reading_by(self._policy_of(self._policy, name), memory)

    def _with_reading_by(self, policy: Policy | None, memory: dict[str, Any]) -> dict[str, Any]:
        wall = policy is not None and policy.counts_wall
        kept = {key: value for key, value in memory.items() if key not in clock_readings.KEYS}
        return {**kept, clock_readings.key_of(wall=wall): self._reading(policy)}

    def _reading(self, policy: Policy | None) -> int:
        """Return what the clock shows by which a policy counts silence."""
        return self._wall_ms if policy is not None and policy.counts_wall else self._clock.listened

    def _is_certain(self, policy: Policy) -> bool:
        """Return whether no row of a partition that delivered none can have been waiting at the moment of the judgement."""
        return self._moment.to_end and (self._moment.read_ms is not None or not policy.counts_wall)

    def _is_own(self, name: str, state: ProducerState) -> bool:
        return self._ownership.owns(state.owner) or name in self._ownership.claimed

    # ------------------------------------------------------------------------------------------------------- promises

    def _apply_observations(self) -> None:
        """Apply the observations of the batch's tasks, and outside changes."""
        batch, seen = self._batch, self._batch.seen
        for name, observation in self._apply_columns(seen).items():
            self._apply_observation(name, observation)
        self._rejoin(seen)
        partitions = self._partition_states.partitions
        for name in partitions if batch.changed is None else batch.changed:
            if name not in seen and name not in self.holds and name in partitions and self._is_own(name, partitions[name]):
                self._apply_outside_changes(name, dict(memory_of(name, partitions[name].state)))
        if self._entry.get("snapshot") and not self._moment.in_snapshot:
            self._end_snapshot(seen)
        self._count_unseen(seen)
        if self._has_idle and not self._moment.in_snapshot:
            self._update_idle(seen)
        if self._settings.corrections:
            self._open_corrections()
        self._release()

    def _apply_columns(self, seen: Observations) -> Observations:
        """Apply the observations that can be applied all at once, and return the others."""
        table = self._progress.columns
        if table is None or self._moment.in_snapshot or self._entry.get("snapshot") or self._memories or self._ownership.claimed:
            return seen
        now = {"at": self._moment.now_ms}
        if self._has_idle:
            now = self._with_reading_by(self._policy, now)
        domain = self._settings.domain
        left, self.moves = decision_columns.capability_updates(seen, table, self._policy, domain, now, self._counts)
        return left

    def _rejoin(self, seen: Observations) -> None:
        """Let partitions hold something again that an operator lets rejoin, also those that delivered nothing."""
        for name, idle in self._partition_states.idle.items():
            if REJOINS not in idle or name in seen or not self._is_own(name, self._partition_states.partitions[name]):
                continue
            memory = dict(self._memory(name))
            if "idle" in memory and self._policy_of(self._policy, name) is not None:
                held = self._resume(name, memory)
                self._set_promise(name, Observation(name, 0, None, None), self._with_reading(name, memory), held)
                self._rejoined.append(name)

    def _count_unseen(self, seen: Observations) -> None:
        """Count the rows of partitions that delivered nothing else than rows which are set aside and move nothing."""
        for name in self._batch.future:
            if name in seen:
                continue
            known = self._partition_states.partitions.get(name)
            if name in self.states or (known is not None and self._is_own(name, known)):
                self.states[name] = self._counted(name, self._memory(name))
                if known is not None:
                    self.holds.setdefault(name, known.holds)
            else:  # it has not joined, or belongs to another query
                self._unplaced = {key: self._unplaced.get(key, 0) + by[name] for key, by in self._counts.items()}

    def _counted(self, name: str, memory: Mapping[str, Any]) -> dict[str, Any]:
        """Return a partition's state with the rows of this batch that were set aside counted."""
        more = {key: by[name] for key, by in self._counts.items() if name in by}
        return {**memory, **{key: memory.get(key, 0) + n for key, n in more.items()}}

    def _apply_observation(self, name: str, observation: Observation) -> None:
        known = self._partition_states.partitions.get(name)
        memory = self._memories.get(name)
        if memory is None:
            memory = dict(memory_of(name, known.state)) if known is not None else {}
        held = self._resume(name, memory) if name in self._partition_states.idle else None
        memory = self._counted(name, {**memory, "at": self._moment.now_ms})
        policy = self._policy.for_partition(name)
        if policy.idle_after_ms is not None:
            memory = self._with_reading_by(policy, memory)
        self._set_promise(name, observation, memory, held)

    def _resume(self, name: str, memory: dict[str, Any]) -> Antichain:
        """End the idleness of a partition, and return the times at which it resumes."""
        if REJOINS in memory.pop("idle", ()):
            policy = self._policy_of(self._policy, name)
            if policy is not None and policy.needs_times:
                self._uncounted.add(name)
        state, held = self._partition_states.partitions[name], self._partition_states.held(name)
        if not state.holds and held:
            owner = state.owner.id if state.owner is not None else None
            # With its own name among the donors it may hold what the registrar holds, if no other partition holds that any more.
            self.donors |= self._partition_states.donors([owner], self._partition_states.held_by([owner])) or {name}
        return held

    def _set_promise(self, name: str, observation: Observation, memory: dict[str, Any], held: Antichain | None = None) -> None:
        if held is None:
            held = self._partition_states.held(name) if name in self._partition_states.partitions else self._joining(name)
        to_come = self._promised_times(name, observation, memory, held)
        if not self._moment.in_snapshot:
            held = to_come
        elif to_come != held:
            memory["soon"] = to_come.to_json()
        self.holds[name], self.states[name] = held, memory or None

    def _promised_times(self, name: str, observation: Observation, memory: dict[str, Any], held: Antichain) -> Antichain:
        """Return what a partition may still deliver, by what it holds, by its earlier promises, and by its policy now."""
        settings = self._settings
        if name in self._uncounted:
            self._uncounted.remove(name)
            observation = self._batch.with_rows_before(observation, settings)
        deferred = memory.pop("soon", None)
        to_come = (
            held if deferred is None else join_antichains(self._domain, held, [self._domain.from_json(time) for time in deferred])
        )
        policy = self._policy.for_partition(name)
        known = observation._replace(held=settings.from_channel_times(to_come))
        promised, own = promise_of(policy, known, memory.get("own"), settings.domain)
        if promised is not None:
            to_come = join_antichains(self._domain, to_come, [settings.to_channel_time(time) for time in promised])
        if own is not None:
            memory["own"] = own
        return to_come

    def _set_idle_promise(self, name: str, memory: dict[str, Any]) -> None:
        """Apply outside changes for an idle partition. It may have nothing more to deliver."""
        was = Antichain(self._domain, self._was(name))
        promised = self._promised_times(name, Observation(name, 0, None, None), memory, was)
        held = self._partition_states.partitions[name].holds
        if self._moment.in_snapshot:
            if promised != was:
                memory["soon"] = promised.to_json()
        elif promised:
            memory["idle"] = {**memory["idle"], "was": promised.to_json()}
        else:
            memory.pop("idle")
            held = Antichain(self._domain)
        self.holds[name], self.states[name] = held, memory

    def _end_snapshot(self, seen: Observations) -> None:
        """End the first snapshot: from now on, what partitions promised during it counts."""
        for name, state in self._partition_states.partitions.items():
            if (
                name not in seen
                and name not in self.holds
                and self._ownership.owns(state.owner)
                and "soon" in (memory := memory_of(name, state.state))
            ):
                self._apply_outside_changes(name, dict(memory))

    def _joining(self, name: str) -> Antichain:
        """Return the times at which a new partition joins."""
        settings, registrar = self._settings, self._progress.registrar
        if not registrar:
            raise ProducerError(
                "STRANDLINE_CHANNEL_SEALED",
                f"Partition {name!r} cannot join, because the channel {settings.path} is sealed. Nothing of the batch was "
                "written.",
                "Ingest this partition into another channel. Name every partition, or a pattern, when you create a channel. If "
                "it was forgotten (forget_partitions), remove its name from partitions.",
            )
        return Antichain(self._domain, [settings.to_channel_time(time) for time in settings.from_channel_times(registrar)])

    # ------------------------------------------------------------------------------------------------------- silence

    def _update_idle(self, seen: Observations) -> None:
        """Stop waiting for the partitions that have been silent for long, all of them at once."""
        silent, active = self._silent(seen)
        if active or any(self.holds[name] for name in self._ownership.joined):
            for name in silent:
                if self._held(name):
                    self._make_idle(name, [])
        elif silent:
            self._all_silent(silent)

    def _silent(self, seen: Observations) -> tuple[list[str], bool]:
        """Return the ingest's silent partitions, and whether another of its partitions holds anything."""
        table, after, ownership = self._progress.columns, self._policy.idle_after_ms, self._ownership
        if table is not None and after is not None and not self._memories and not ownership.claimed:
            wall = self._policy.counts_wall
            before: int | None = self._reading(self._policy) - after + 1
            if not self._is_certain(self._policy) or (self._wall_since if wall else self._silent_since) >= (before or 0):
                before = None
            return decision_columns.silent_partitions(
                table,
                self._partition_states,
                [*seen, *self._rejoined] if self._rejoined else seen,
                self.holds,
                ownership.owns,
                self._is_silent,
                before,
                wall=wall,
            )
        silent: list[str] = []
        active = False
        for name, known in self._alive():
            if not self._is_own(name, known):
                continue
            holds, state = self.holds.get(name, known.holds), self._memory(name)
            if name not in seen and ("idle" in state or (holds and self._is_silent(name, state))):
                silent.append(name)
            elif holds:
                active = True
        return silent, active

    def _alive(self) -> Iterator[tuple[str, ProducerState]]:
        """Yield the partitions that held anything before this batch or do now, and the idle ones. The others are dead."""
        states = self._partition_states
        names = (
            states.partitions if states.columns is not None else {**dict.fromkeys(states.holding), **states.idle, **self.holds}
        )
        for name in names:
            if (known := states.partitions.get(name)) is not None:
                yield name, known

    def _is_silent(self, name: str, state: Any) -> bool:
        policy = self._policy_of(self._policy, name)
        if policy is None or policy.idle_after_ms is None or not self._is_certain(policy):
            return False
        return self._silence_of(name, policy, memory_of(name, state)) >= policy.idle_after_ms

    def _silence_of(self, name: str, policy: Policy, memory: dict[str, Any]) -> int:
        """Return for how many ms a partition has been silent, by the clock that its policy counts."""
        heard = clock_readings.reading_of(memory, wall=policy.counts_wall)
        if policy.counts_wall:
            return self._wall_ms - max(heard, self._wall_since)
        return self._clock.listened - max(heard, self._silent_since)

    def _held(self, name: str) -> Antichain:
        return self.holds.get(name, self._partition_states.partitions[name].holds)

    def _was(self, name: str) -> list[Time]:
        """Return what a silent partition has promised."""
        idle = self._memory(name).get("idle")
        return list(self._held(name)) if idle is None else [self._domain.from_json(time) for time in idle["was"]]

    def _make_idle(self, name: str, holds: Sequence[Time] | Antichain) -> None:
        memory = dict(self._memory(name))
        if "idle" not in memory:
            was = [self._domain.to_json(time) for time in self._held(name)]
            memory["idle"] = {"was": was, "since": self._moment.now_ms, "listened": self._clock.listened}
            policy = self._policy_of(self._policy, name)
            silence = 0 if policy is None else max(0, self._silence_of(name, policy, memory))
            if policy is not None and policy.counts_wall:
                memory["idle"]["silent"] = silence
            self.fell_silent[name] = silence
        given = holds if isinstance(holds, Antichain) else Antichain(self._domain, holds)
        self.holds[name], self.states[name] = given, memory

    def _all_silent(self, silent: Sequence[str]) -> None:
        """Decide what is held when all partitions are silent.

        The frontier advances to the greatest of their promises, or by the clock if all their policies say so. One of them holds
        it there.
        """
        promised = {name: was for name in silent if (was := self._was(name))}
        if not promised:
            return
        held = self._held_before() or self._progress.registrar
        if (clock := self._clock_promise(promised)) is not None:
            held = join_antichains(self._domain, held, [clock])
        holders = [name for name in promised if self._held(name)]
        chosen, holds = stand_in(self._domain, promised, held, holders)
        given_up = [name for name in promised if self._has_nothing_at(name, Antichain(self._domain, holds))]
        if given_up:
            for name in given_up:
                self._complete(name)
            self._all_silent([name for name in silent if name not in given_up])
            return
        if not holders:
            # Only partitions that were already idle are left: what the last others held goes to one of them.
            self.donors |= {chosen, *self._holders(held)}
        for name in {*holders, chosen}:
            self._make_idle(name, holds if name == chosen else [])

    def _clock_promise(self, silent: Iterable[str]) -> Time | None:
        """Return the time to which the clock alone lets the frontier advance while these partitions are all silent."""
        policies = [self._policy_of(self._policy, name) for name in silent]
        afters = [p.idle_after_ms for p in policies if p is not None and p.advances_when_silent and self._is_certain(p)]
        known = [after for after in afters if after is not None]
        if len(known) < len(policies) or not known:
            return None
        return self._settings.to_channel_time(max(self._settings.domain.minimum, (self._clock.trusted_ms - max(known)) * 1000))

    def _has_nothing_at(self, name: str, holds: Antichain) -> bool:
        """Return whether all announced rows of a partition are at times that the ingest has passed, so they would be late."""
        policy = self._policy_of(self._policy, name)
        if policy is None or not policy.needs_times:
            return False
        return not self._promised_times(name, Observation(name, 0, None, None), dict(self._memory(name)), holds)

    def _complete(self, name: str) -> None:
        memory = {key: value for key, value in self._memory(name).items() if key != "idle"}
        self.holds[name], self.states[name] = Antichain(self._domain), memory

    def _memory(self, name: str) -> dict[str, Any]:
        return memory_of(name, self.states[name] if name in self.states else self._partition_states.partitions[name].state)

    # ------------------------------------------------------------------------------------------------------- the ingest's own

    def _open_corrections(self) -> None:
        known = self._progress.get(CORRECTIONS)
        least = self._settings.domain.minimum
        if known is not None and known.seq == 0:
            self.holds[CORRECTIONS] = Antichain(self._domain, [(least, 1)])

    def _release(self) -> None:
        """Let the parked rows that are near the frontier after this batch join, and hold the times of the others."""
        new = [parcel for report in self._batch.reports for parcel in report.parked]
        names = [name for name in self._partition_states.own if name.startswith(PARKED) and self._may_release(name)]
        if new and not names:
            names = [PARKED if self._progress.get(PARKED) is None else f"{PARKED}:{self._query}"]
        if not names:
            return
        own = {name: Antichain(self._domain) for name in (*self._partition_states.own, *names)}
        frontier = self._progress.least_with({**self.holds, **own}, self.moves)
        for name in names:
            self._release_of(name, new, frontier)
            new = []

    def _may_release(self, name: str) -> bool:
        """Return whether a producer of parked rows belongs to the ingest. Any ingest may give up one without parked rows."""
        known = self._progress.get(name)
        return known is not None and (self._ownership.owns(known.owner) or (known.owner is None and not known.state))

    def _release_of(self, name: str, new: Sequence[Parked], frontier: Antichain) -> None:
        known, ahead = self._progress.get(name), self._settings.max_ahead
        lists = self._batch.parked_lists or ParkedLists(self._settings.path, self._settings.storage)
        waiting = lists.waiting(parked_state(name, known), self._domain)
        waiting = replace(waiting, stated=[*waiting.stated, *new])
        if not waiting and (known is None or (not known.holds and name not in self.holds)):
            return
        held = known.holds if known is not None and known.holds else self._given_to_parked(name)
        decided = release(waiting, lists, frontier, ahead, held, parked_beyond(name, known), lambda: self._held_after(frontier))
        self.holds[name], self.states[name] = decided.holds, decided.state
        self.released += decided.joining

    def _given_to_parked(self, name: str) -> Antichain:
        """Return what parked rows are given while nothing is held for them: the least times that a row of the ingest may have."""
        held, registrar = self._held_before(), self._progress.registrar
        self.donors |= {name, *self._holders(time for time in held if not registrar.less_equal(time))}
        return Antichain(self._domain, [*held, *registrar])

    def _held_before(self) -> Antichain:
        """Return what the partitions that belong to the ingest from this commit on held together before it."""
        partitions, registrar = self._partition_states.partitions, self._progress.registrar
        owned = self._partition_states.held_by([self._query, *self._ownership.donors])
        claimed = [partitions[name].holds if name in partitions else registrar for name in self._ownership.claimed]
        return Antichain(self._domain, [time for times in (owned, *claimed) for time in times])

    def _held_after(self, frontier: Antichain) -> Antichain:
        """Return what the ingest's partitions, and any that may join, hold together after this commit."""
        registrar = self._progress.registrar
        own = [name for name, state in self._alive() if self._is_own(name, state) or name in self._batch.seen]
        held = [self._held(name) for name in own] + [self.holds[name] for name in self._ownership.joined if name in self.holds]
        joining = join_antichains(self._domain, registrar, list(frontier)) if frontier else registrar
        return Antichain(self._domain, [time for times in (*held, joining) for time in times])

    def _holders(self, times: Iterable[Time]) -> set[str]:
        """Return partitions that together held these times before, and belong to the ingest from this commit on."""
        partitions, left = self._partition_states.partitions, set(times)
        found = self._partition_states.donors([self._query, *self._ownership.donors], left)
        return found | {
            name for name in self._ownership.claimed if name in partitions and left.intersection(partitions[name].holds)
        }


def _parsed(text: str | None) -> Policy | None:
    """Parse a policy's text from a channel. Return ``None`` when the policy can no longer be determined."""
    return None if text is None else recorded_policy(text)
