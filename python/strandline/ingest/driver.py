"""The driver's part of an ingest: the start of a batch, and the single commit in which its rows and promises take effect."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import compress
from types import MappingProxyType

import numpy as np

from strandline.channel import Channel, DataFile, ProducerState, Progress, WriterSession
from strandline.channel.commit.outcome import Outcome, Replay
from strandline.channel.statements.statement import REGISTRAR
from strandline.channel.write.append import Append
from strandline.channel.write.create import new_columns
from strandline.delta.storage import open_store
from strandline.delta.table import different_columns
from strandline.errors import StrandlineError, printable
from strandline.ingest import errors
from strandline.ingest.bounds.future import FutureRows, future_warning
from strandline.ingest.clocks.moment import Moment
from strandline.ingest.clocks.tick import Tick
from strandline.ingest.decide.batch import Batch
from strandline.ingest.decide.decision import Decision, decide
from strandline.ingest.decide.partition_states import PartitionStates
from strandline.ingest.late.aside_warning import aside_warning, rows_by_reason
from strandline.ingest.late.late_table import LateTable, check_storage, missing, pending, publish
from strandline.ingest.late.lateness import LATE, MOVES_NOTHING, REASONS
from strandline.ingest.late.retention import purge_late_rows
from strandline.ingest.names import CORRECTIONS, PARKED, partition_name_problem
from strandline.ingest.parked.lists import ParkedLists
from strandline.ingest.parked.release import near, parked_beyond
from strandline.ingest.policies.policy import Policy
from strandline.ingest.policy_calls import calling, names_of
from strandline.ingest.rejoin import ways_back
from strandline.ingest.settings import Settings
from strandline.ingest.state.query_entry import QueryEntry
from strandline.ingest.state.registrar_state import RegistrarState
from strandline.ingest.status import idle_problem
from strandline.ingest.task.batch_start import BatchStart, HoldColumns
from strandline.ingest.task.observations import Observations
from strandline.ingest.task.row_digest import RowDigest
from strandline.ingest.task.rows_before import rows_in_channel
from strandline.ingest.task.task_report import TaskReport
from strandline.time.antichain import Antichain
from strandline.time.domain import Time

__all__ = ["Ingest"]

_log = logging.getLogger(__name__)
_MOST = (1 << 63) - 1
_PURGE_SECONDS = 3600.0


class Ingest:
    """The driver side of an ingest, kept from batch to batch. It does not need Spark: any program may call it in this order.

    First call ``start()``. Then create an :class:`IngestTask` from the result, anywhere, for each share of the rows. Then call
    ``commit``.
    """

    def __init__(self, settings: Settings) -> None:
        if settings.policy is None:
            raise ValueError("these settings have no policy: they are for tasks")
        self.settings = settings
        self.policy: Policy = settings.policy
        with calling(self.policy, "open"):
            self.policy.open(self.settings)
        self._channel: Channel | None = None
        self._parked_lists = ParkedLists(settings.path, settings.storage)
        self._late: LateTable | None = None
        self._entered: str | None = None  # the run of the query in which this object has committed
        self._refused: tuple[str, int] | None = None  # a batch that was refused before anything of its commit was written
        self._changed: set[str] | None = set()  # by outside changes that no commit has applied yet; None: any
        self._published: dict[str, int] = {}
        self._told_idle = False
        self._purge_at = 0.0  # by the monotonic clock
        self._possible: set[str] = set()  # names from the policy that were checked
        self._outside: dict[str, tuple[ProducerState, tuple[Time, ...]]] = {}  # so that only changes are computed again

    @property
    def channel(self) -> Channel | None:
        """The channel, as it was read last; ``None`` if there is none. One that was replaced meanwhile is opened again."""
        return self._open()

    # ------------------------------------------------------------------------------------------------------- planning

    def start(self, clock_ms: int | None = None) -> BatchStart:
        """Return what the partitions hold now: the start of the next batch.

        Args:
            clock_ms: The time with which rows' times are compared (``maxFuture``), in ms since 1970: that at which it was
                decided what the batch reads, the same in each attempt (default: now).
        """
        now, tick = time.time_ns() // 1_000_000, Tick.now()
        clock_ms = now if clock_ms is None else clock_ms
        channel = self._open()
        settings = self.settings
        with calling(self.policy, "refresh"):
            self.policy.refresh()
        named, admitted = self._named()
        if channel is None:
            least = (settings.domain.minimum,)
            limit = self._limit(PartitionStates.of_nothing(settings, named), named)
            return BatchStart(dict.fromkeys(named, least), least, admitted, limit, planned_ms=now, clock_ms=clock_ms, tick=tick)
        channel.refresh()
        self._publish(channel)
        states = PartitionStates.of(channel.progress, settings)
        joining = settings.from_channel_times(channel.registrar)
        holds = self._holds(states, named, admitted, joining)
        committed = {query: channel.committed(query) for query in RegistrarState.of(channel.progress).entries}
        admitted = () if channel.sealed else admitted
        limit = self._limit(states, named, {name: channel.progress.get(name) for name in states.own if name.startswith(PARKED)})
        columns = tuple(channel.schema.names) if settings.merge_schema else None
        return BatchStart(
            holds,
            joining,
            admitted,
            limit,
            channel.version,
            now,
            committed,
            columns=columns,
            clock_ms=clock_ms,
            tick=tick,
            sealed=channel.sealed,
        )

    def _holds(
        self, states: PartitionStates, named: Sequence[str], admitted: tuple[str, ...] | None, joining: tuple[Time, ...]
    ) -> Mapping[str, tuple[Time, ...]]:
        """Return what each partition that may deliver rows holds, in outside times."""
        outside, probe, wanted = self.settings.from_channel_times, BatchStart(admitted=admitted), set(named)
        apart = {name: joining for name in named if name not in states.partitions}
        table = states.columns
        if table is None:
            apart |= {name: outside(states.held(name)) for name in states.idle if name in wanted or probe.admits(name)}
            if admitted is None:
                held = dict.fromkeys(states.partitions, ())  # most may be dead
            else:
                held = {name: () for name in states.partitions if name in wanted or probe.admits(name)}
            self._outside = {name: known for name in states.holding if (known := self._outside.get(name)) is not None}
            for name in states.holding:
                state = states.partitions[name]
                known = self._outside.get(name)
                if known is None or known[0] is not state:
                    known = self._outside[name] = (state, outside(state.holds))
                if name in held:
                    held[name] = known[1]
            return held | apart
        mine = np.ones(len(table.names), dtype=np.bool_)
        if admitted is not None:
            mine &= np.array([name in wanted or probe.admits(name) for name in table.names], dtype=np.bool_)
        mine[[row for row in table.find((REGISTRAR, *states.own)).tolist() if row >= 0]] = False
        times, valid = states.held_by_row(table)
        return HoldColumns(list(compress(table.names, mine.tolist())), times[mine], valid[mine], apart)

    def _named(self) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
        """Return the partitions known in advance, and the patterns of those that may join."""
        if self.settings.partitions is None:
            with calling(self.policy, "partitions"):
                known = names_of(self.policy, "partitions", self.policy.partitions())
            if known is not None:
                return tuple(self._checked(known)), ()
        return self.settings.named_partitions, self.settings.admitted

    def _checked(self, names: Iterable[str]) -> list[str]:
        """Return the names that the policy gives. Raises :class:`PolicyError` for a name that no partition can have."""
        given = list(names)
        for name in given:
            if name not in self._possible:
                problem = partition_name_problem(name)
                if problem is not None:
                    raise errors.partition_name_invalid_in_policy(self.policy, name, problem)
                self._possible.add(name)
        return given

    def _limit(
        self, states: PartitionStates, named: Sequence[str], parked: Mapping[str, ProducerState | None] = MappingProxyType({})
    ) -> int | None:
        """Return the greatest time, in the first coordinate, that may enter the channel in this batch."""
        least = [*states.least]
        if not least or any(name not in states.partitions for name in named):
            least += states.registrar or ()  # partitions that join with this batch join there
        if self.settings.max_ahead is None or not least:
            return None
        limit = near(least, self.settings.max_ahead)
        limit = max([limit, *(parked_beyond(name, known) - 1 for name, known in parked.items())])
        return None if limit >= _MOST else limit

    # ------------------------------------------------------------------------------------------------------- committing

    def commit(
        self, transaction: tuple[str, int], reports: Sequence[TaskReport], owner: WriterSession, moment: Moment | None = None
    ) -> int | None:
        """Commit a batch to the channel, and publish its late rows in the late table.

        The channel's commit decides everything, based on the newest progress. The rows that it names as late are published
        after it.

        Args:
            transaction: The query's id and the batch's number.
            reports: The reports of the batch's tasks.
            owner: The session that the partitions belong to.
            moment: The time of the batch (default: now).

        Returns:
            The channel's version, or ``None`` for a replay and when nothing changes.

        Raises:
            ProducerError: A partition belongs to another live ingest. Nothing was written.
            IngestError: Another writer moved a partition's capability while the batch ran, another ingest has taken over this
                one, or a replay delivers different rows. Nothing was written.
        """
        moment = moment or Moment(time.time_ns() // 1_000_000)
        planned = [(r.planned_ms, r.tick) for r in reports if r.planned_ms is not None]
        if moment.planned_ms is None and planned:
            planned_ms, tick = min(planned, key=lambda each: each[0])
            moment = replace(moment, planned_ms=planned_ms, tick=tick)
        channel = self._found()
        channel.refresh()
        self._publish(channel, transaction[0])
        if channel.committed(transaction[0]) >= transaction[1]:
            self._check_replay(channel, transaction, reports)
            channel.settle()
            self.discard(reports, transaction)
            return None
        if self._entered is None or self._entered != moment.run:
            self._late_table(look=True).check_not_beyond(transaction[0], channel)
        if any(report.replayed for report in reports):
            raise errors.ingest_overtaken_by_restore(self.settings.path)
        self._merge_columns(channel)
        outcome = self._append(transaction, reports, owner, moment)
        if outcome.committed is None:
            self.discard(reports, transaction)
        if isinstance(outcome, Replay):  # another writer was faster, and may have known other outside changes
            self._check_replay(channel, transaction, reports)
            channel.settle()
        else:
            self._entered, self._changed = moment.run, set()
        self._publish(channel, transaction[0], {file.path: file for file in _late_files(reports)})
        self._purge()
        return outcome.committed

    def _append(
        self, transaction: tuple[str, int], reports: Sequence[TaskReport], owner: WriterSession, moment: Moment
    ) -> Outcome:
        """Commit to the channel. The commit is decided again whenever another commit comes in between."""
        channel, settings, self._refused = self._found(), self.settings, None
        seen = Observations.of(reports, settings.domain)
        assigned = self._assign_query(channel, transaction, _late_files(reports))
        batch: Batch | None = None
        decision: Decision | None = None

        def decided() -> Append | None:
            nonlocal decision, batch
            try:
                # What is outside is read as of this version, or later: a commit in between may go by what has changed there.
                batch = Batch(
                    transaction,
                    owner,
                    moment,
                    reports,
                    seen,
                    settings.named_partitions,
                    *self._read_outside(),
                    *assigned,
                    self._entered == moment.run,
                    # Rows are counted as of this version: others may have been committed since an earlier attempt.
                    schema=channel.schema if settings.merge_schema else None,
                    rows_before=lru_cache(maxsize=1)(lambda: rows_in_channel(channel, settings)),
                    parked_lists=self._parked_lists,
                )
                self._check_set_aside(batch)
                self._check_start(channel, batch)
                decision = decide(channel.progress, settings, self.policy, batch)
                return decision.append
            except StrandlineError:
                self._refused = transaction  # whatever was tried before is known to have failed
                raise

        outcome = channel.append_decided(decided, transaction)
        if outcome.committed is not None and decision is not None and decision.fell_silent:
            _log_silent(settings.path, decision.fell_silent)
        if outcome.committed is not None and batch is not None:
            self._log_future(batch)
            self._log_aside(channel, batch)
            self._log_idle(channel, transaction[0])
        return outcome

    def _check_set_aside(self, batch: Batch) -> None:
        """Raise if more rows of a batch are set aside than the settings allow."""
        rows, read, limit = sum(batch.aside.values()), batch.read[0], self.settings.max_set_aside
        if limit is not None and not limit.allows(rows, read):
            which = rows_by_reason(batch.aside, batch.examples)
            raise errors.set_aside_limit_exceeded(self.settings.path, batch.transaction[1], rows, read, limit, which)

    def _read_outside(self) -> tuple[list[str], set[str] | None]:
        """Let the policy read what is outside. Return the announced partitions, and those whose promises may have changed."""
        with calling(self.policy, "refresh"):
            self.policy.refresh()
        with calling(self.policy, "changed"):
            changed = names_of(self.policy, "changed", self.policy.changed())
        with calling(self.policy, "announced"):
            to_come = names_of(self.policy, "announced", self.policy.announced()) or []
        self._changed = None if changed is None or self._changed is None else self._changed | set(changed)
        probe, named = BatchStart(admitted=self.settings.admitted), self.settings.named_partitions
        return [name for name in self._checked(to_come) if probe.admits(name) or name in named], self._changed

    def _log_future(self, batch: Batch) -> None:
        """Log, once a batch, that rows were set aside because they are too far ahead of the clock."""
        found, bound = FutureRows.together([r.future for r in batch.reports if r.future is not None]), self.settings.future
        if found is not None and bound is not None:
            _log.warning(
                "%s",
                future_warning(self.settings.path, self.settings.late_path, bound, found, batch.future, batch.read[0]),
            )

    def _log_idle(self, channel: Channel, query: str) -> None:
        """Log, once a start, that the policy's ``idle()`` has no effect."""
        if self._told_idle:
            return
        clock = RegistrarState.of(channel.progress).entry(query).clock
        if clock is not None and clock.certain is False:
            self._told_idle = True
            wall = any(policy.counts_wall for _, policy in self.policy.by_pattern())
            _log.warning("%s: %s", self.settings.path, idle_problem(wall=wall))

    def _log_aside(self, channel: Channel, batch: Batch) -> None:
        """Log, once a batch, that rows were set aside, but for those that :meth:`_log_future` has told of."""
        told = {key: rows for key, rows in batch.aside.items() if key[1] not in MOVES_NOTHING or self.settings.future is None}
        if told:
            settings = self.settings
            late = [name for name, reason in told if reason == REASONS[LATE] and name is not None]
            rejoin, idle = ways_back(channel.progress, settings.path, late)
            text = aside_warning(settings.path, settings.late_path, told, batch.examples, batch.read[0], rejoin, idle)
            _log.warning("%s", text)

    def _assign_query(self, channel: Channel, transaction: tuple[str, int], files: Sequence[DataFile]) -> tuple[int, int]:
        """Call :meth:`LateTable.assign_query` for a batch with late rows. Raises also when one of their files is missing."""
        if not files:
            return -1, -1
        table = self._late_table(look=True)
        for file in missing(open_store(self.settings.late_path, self.settings.storage), files):
            raise errors.late_file_missing_in_batch(file.path, file.rows, self.settings.late_path, transaction[1])
        return table.assign_query(transaction[0], channel)

    def _check_replay(self, channel: Channel, transaction: tuple[str, int], reports: Sequence[TaskReport]) -> None:
        """Raise unless a replayed batch delivers the rows that were committed, as far as that is known."""
        query, batch = transaction
        entry = RegistrarState.of(channel.progress).entry(query)
        if (stated := entry.batch) is None or not reports:
            return
        read = RowDigest.together(report.read for report in reports)
        newest = channel.committed(query)
        if batch < newest:  # Spark repeats the newest batch only. So its checkpoint was restored, or begun anew
            commit = channel.commit_of(transaction)
            entry = QueryEntry() if commit is None else RegistrarState.in_commit(commit).entry(query)
        elif stated[0] > batch:
            return
        if entry.has_rows_of(batch, read):
            return
        known = entry.batch or [-1, 0]
        rows = known[1] if known[0] == batch else 0
        raise errors.replay_differs(batch, query, self.settings.path, rows, read[0], newest)

    def _check_start(self, channel: Channel, batch: Batch) -> None:
        """Raise unless the partitions hold what they held at the start of the batch."""
        seen, start, joining_moved = batch.seen, batch.start_version, False
        if start is not None and channel.version > max(start, 0):
            progress = channel.progress
            idle = [state.owner for name, _ in progress.remembering("idle") if name in seen and (state := progress.get(name))]
            owner_ids = {owner.id for owner in idle if owner is not None}
            for at in range(max(start, 0) + 1, channel.version + 1):
                statement = channel.log.require(at).statement
                if statement is None:
                    continue
                joining_moved |= REGISTRAR in statement.statements
                moved = [name for name in (*statement.removed, *statement.statements) if name in seen]
                if owner_ids:  # an idle one resumes where others of its ingest are
                    stated = ((name, progress.get(name)) for name in statement.statements if name != REGISTRAR)
                    moved += [name for name, state in stated if state and state.owner and state.owner.id in owner_ids]
                if moved and (changed := _changed_since(channel, max(start, 0), moved)):
                    raise errors.ingest_overtaken(at, self.settings.path, changed[0] if changed[0] in seen else next(iter(seen)))
        if joining_moved and start is not None:
            self._check_joining(channel, batch, max(start, 0))

    def _check_joining(self, channel: Channel, batch: Batch, start: int) -> None:
        """Raise unless partitions join where they would have joined at the start, or their rows are in advance of where they do.

        In a partial order, all rows may be in advance of several times without all being in advance of one of them. Then this
        refuses too much. The next attempt begins where partitions join then.
        """
        seen, joins = batch.seen, self._joins(channel.progress, batch.seen)
        least = {name: seen[name].least for name in joins}
        behind = [
            name
            for name, time in least.items()
            if time is not None and not joins[name].less_equal(self.settings.to_channel_time(time))
        ]
        before = self._joins(channel.progress_at(start), seen) if behind else {}
        moved = next((name for name in behind if joins[name] != before.get(name)), None)
        if moved is not None:
            raise errors.ingest_overtaken(channel.version, self.settings.path, moved)

    def _joins(self, progress: Progress, seen: Collection[str]) -> dict[str, Antichain]:
        """Return where those of these partitions join that are new, or hold nothing and are to go on."""
        registrar = progress.registrar
        joins = dict.fromkeys(progress.unknown(seen) if registrar else (), registrar)
        again = [name for name, _ in progress.remembering("idle") if name in seen and not progress.producers[name].holds]
        if again:
            states = PartitionStates.of(progress, self.settings)
            joins |= {name: states.held(name) for name in again}
        return joins

    def _publish(
        self, channel: Channel, query: str | None = None, written: Mapping[str, DataFile] = MappingProxyType({})
    ) -> None:
        """Publish in the late table the rows that commits have named as late.

        These are this query's rows, and the rows of any query whose publication was interrupted. ``written`` are the files as the
        tasks reported them, with their statistics.
        """
        for path, publication in pending(channel):
            mine = path == self.settings.late_path
            if (mine or publication.query == query) and self._published.get(publication.query, -1) < publication.batch:
                files = tuple(written.get(file.path, file) for file in publication.files)
                publication = replace(publication, files=files)
                if mine:
                    self._late_table(look=True).publish(publication)
                else:
                    where = check_storage(path, self.settings.path, self.settings.late_path)
                    publish(where, publication, self.settings.storage)
                self._published[publication.query] = publication.batch

    def _purge(self) -> None:
        """Delete late rows that are older than they are kept. What fails is tried again later: no row depends on it."""
        settings, now = self.settings, time.monotonic()
        if settings.late_retention is None or now < self._purge_at:
            return
        self._purge_at = now + _PURGE_SECONDS
        try:
            purge_late_rows(settings.path, settings.late_retention, settings.storage, late_path=settings.late_path)
        except StrandlineError as error:
            _log.warning("old rows of %s were not deleted: %s", settings.late_path, error)

    # ------------------------------------------------------------------------------------------------------- the tables

    def in_first_snapshot(self, query: str) -> bool | None:
        """Return whether a query was in its source's first snapshot after its newest batch. ``None``: it has no batch yet."""
        channel = self._open()
        entry = None if channel is None else RegistrarState.of(channel.progress).entries.get(query)
        return None if entry is None else bool(entry.snapshot)

    def has_late_rows_after(self, query: str, batch: int) -> bool:
        """Return whether the late table has rows that the query set aside after a batch."""
        channel = self._open()
        return channel is not None and self._late_table(look=True).newest_of(query, channel) > batch

    def _open(self) -> Channel | None:
        settings = self.settings
        if self._channel is not None and not self._channel.was_replaced():
            return self._channel
        self._channel, self._late, self._published = None, None, {}
        if Channel.exists(settings.path, settings.storage):
            self._channel = Channel.open(settings.path, settings.storage)
            self._check(self._channel)
        return self._channel

    def _found(self) -> Channel:
        """Return the channel. Create the channel and the late table when they do not exist."""
        settings = self.settings
        channel = self._open()
        named, admitted = self._named()
        if channel is None:
            channel = self._channel = Channel.create(
                settings.path,
                settings.channel_schema,
                time=settings.time,
                producers=[*named, *[CORRECTIONS] * settings.corrections],
                sealed=admitted == (),
                storage_options=settings.storage,
                exist_ok=True,
            )
            self._check(channel)
        self._late_table()
        return channel

    def _late_table(self, *, look: bool = False) -> LateTable:
        """Return the late table, created when there is none. With ``look``, it may have been recreated since the last time."""
        settings = self.settings
        if self._late is None or (look and self._late.was_replaced()):
            self._late = LateTable.open_or_create(
                settings.late_path, settings.late_schema, settings.storage, merges=settings.merge_schema
            )
        return self._late

    def _merge_columns(self, channel: Channel) -> None:
        """Add the rows' columns that the channel and the late table lack, before the first commit that may need them.

        If the batch fails then, the columns stay, and are null.
        """
        if not self.settings.merge_schema:
            return
        if not set(channel.schema.names).issuperset(self.settings.channel_schema.names):
            channel.add_columns([field for field in self.settings.channel_schema if field.name not in channel.schema.names])
        self._late_table().add_columns(self.settings.late_schema)

    def _check(self, channel: Channel) -> None:
        settings = self.settings
        if (channel.time_column, channel.domain) != (settings.time, settings.channel_domain):
            raise errors.schema_mismatch_time(
                settings.time, settings.channel_domain, channel.path, channel.time_column, channel.domain
            )
        if settings.merge_schema:
            new_columns(channel.path, channel.schema, settings.channel_schema)
            return
        different = different_columns(channel.schema, settings.channel_schema)
        if different is not None:
            raise errors.schema_mismatch(channel.path, different)

    # ------------------------------------------------------------------------------------------------------- leftovers

    def abort(self, transaction: tuple[str, int], reports: Sequence[TaskReport], *, all_reported: bool = True) -> None:
        """Remove what the tasks of a failed batch wrote, unless it took effect after all, or may still take effect.

        With ``all_reported`` the commit may have been tried, and its outcome may not be known yet. Then files that are not known
        to be second copies stay, and are left to VACUUM. A commit that this object refused was not tried.

        Args:
            transaction: The query's id and the batch's number.
            reports: The reports of the batch's tasks.
            all_reported: Whether every task has reported, so that the commit may have been tried.
        """
        if all_reported and self._refused != transaction:
            self.discard(reports, transaction)
        else:
            self._remove([file.path for r in reports for file in r.written], [file.path for file in _late_files(reports)])

    def discard(self, reports: Sequence[TaskReport], transaction: tuple[str, int]) -> None:
        """Remove the files of ``reports`` that are not part of the channel or its late table, and will not become so."""
        written, late = [file.path for report in reports for file in report.written], [f.path for f in _late_files(reports)]
        channel = self._open() if written or late else None
        copies = set() if channel is None else set(channel.second_copies(transaction, [*written, *late]))
        self._remove([name for name in written if name in copies], [name for name in late if name in copies])

    def _remove(self, written: Sequence[str], late: Sequence[str]) -> None:
        settings = self.settings
        for path, names in ((settings.path, written), (settings.late_path, late)):
            if names:
                store = open_store(path, settings.storage)
                for name in names:
                    store.delete(name)


def _changed_since(channel: Channel, version: int, names: Iterable[str]) -> list[str]:
    """Return those of ``names`` whose statement is another one since. A hold repeats a statement, which changes nothing."""
    now, before = channel.progress, channel.progress_at(version)
    states = ((name, before.get(name), now.get(name)) for name in names)
    return [name for name, was, known in states if was is None or known is None or was._replace(seq=known.seq) != known]


def _log_silent(path: str, silent: Mapping[str, int]) -> None:
    """Log a guess: from now on the ingest waits no longer for these partitions, and their rows may be late."""
    shown = ", ".join(f"{name} (silent for {ms / 1000:.0f} s)" for name, ms in sorted(silent.items())[:10])
    more = f" and {len(silent) - 10} more" if len(silent) > 10 else ""
    _log.warning("%s: idle() guesses that these partitions deliver nothing for now: %s%s", path, printable(shown), more)


def _late_files(reports: Sequence[TaskReport]) -> list[DataFile]:
    return [file for report in reports for file in report.late_files]
