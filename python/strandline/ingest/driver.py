"""The driver's part of an ingest: where a batch starts, and the one commit in which its rows and promises take effect."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress

import numpy as np

from strandline.channel import CapabilityError, Channel, Owner, ProducerState, Span
from strandline.channel.files import DataFile
from strandline.channel.fitting import different_columns, was_replaced
from strandline.channel.statement import REGISTRAR
from strandline.channel.store import open_store
from strandline.ingest.after import After
from strandline.ingest.brought import Brought
from strandline.ingest.errors import IngestError
from strandline.ingest.idle import Moment
from strandline.ingest.late import LateTable
from strandline.ingest.parking import near, with_stats
from strandline.ingest.policy import Policy
from strandline.ingest.report import TaskReport
from strandline.ingest.settings import Settings
from strandline.ingest.standing import CORRECTIONS, OWN, PARKED, Standing
from strandline.ingest.start import HoldColumns, Start
from strandline.order import Time

__all__ = ["Ingest"]

_MOST = (1 << 63) - 1


class Ingest:
    """An ingest's driver side, kept from batch to batch. It needs no Spark: whoever calls it in this order may be anything.

    ``start()``; then, for each share of the rows, an :class:`~strandline.ingest.intake.Intake` made of that, anywhere; then
    ``commit``.
    """

    def __init__(self, settings: Settings) -> None:
        if settings.policy is None:
            raise ValueError("these settings are for tasks")
        self.settings = settings
        self.policy: Policy = settings.policy
        self.policy.open(settings)
        self._channel: Channel | None = None
        self._late: LateTable | None = None
        self._settled = False
        self._lowered: dict[str, tuple[ProducerState, tuple[Time, ...]]] = {}  # so that only what changed is computed anew

    # ------------------------------------------------------------------------------------------------------- planning

    def start(self) -> Start:
        """What the partitions hold now: the start of the next batch."""
        now = time.time_ns() // 1_000_000
        channel = self._open()
        settings = self.settings
        self.policy.refresh()
        named, admitted = self._named()
        if channel is None:
            least = (settings.domain.minimum,)
            limit = self._limit(Standing.of_nothing(settings, named))
            return Start(dict.fromkeys(named, least), least, admitted, limit, planned_ms=now)
        channel.refresh()
        standing = Standing.of(channel, settings)
        joining = settings.lower(channel.registrar)
        holds = self._holds(standing, named, admitted, joining)
        return Start(holds, joining, () if channel.sealed else admitted, self._limit(standing), channel.version, now)

    def _holds(
        self, standing: Standing, named: Sequence[str], admitted: tuple[str, ...] | None, joining: tuple[Time, ...]
    ) -> Mapping[str, tuple[Time, ...]]:
        """What each partition that may bring rows holds, in outside times."""
        lower, probe, wanted = self.settings.lower, Start(admitted=admitted), set(named)
        apart = {name: joining for name in named if name not in standing.partitions}
        table = standing.table
        if table is None:
            apart |= {name: lower(standing.held(name)) for name in standing.idle if name in wanted or probe.admits(name)}
            held = {}
            for name, state in standing.partitions.items():
                known = self._lowered.get(name)
                if known is None or known[0] is not state:
                    known = self._lowered[name] = (state, lower(state.holds))
                if admitted is None or name in wanted or probe.admits(name):
                    held[name] = known[1]
            return held | apart
        mine = np.ones(len(table.names), dtype=np.bool_)
        if admitted is not None:
            mine &= np.array([name in wanted or probe.admits(name) for name in table.names], dtype=np.bool_)
        mine[[row for row in table.find((REGISTRAR, *OWN)).tolist() if row >= 0]] = False
        times, there = standing.held_by_row(table)
        return HoldColumns(list(compress(table.names, mine.tolist())), times[mine], there[mine], apart)

    def _named(self) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
        """The partitions known beforehand, and the patterns of those that may join."""
        if self.settings.partitions is None and (known := self.policy.partitions()) is not None:
            return tuple(known), ()
        return self.settings.named_partitions, self.settings.admitted

    def _limit(self, standing: Standing) -> int | None:
        """The greatest time, in the first coordinate, that goes into the channel in this batch."""
        if self.settings.max_ahead is None or not standing.least:
            return None
        limit = near(standing.least.domain, standing.least, self.settings.max_ahead)
        return None if limit >= _MOST else limit

    # ------------------------------------------------------------------------------------------------------- committing

    def commit(
        self, transaction: tuple[str, int], reports: Sequence[TaskReport], owner: Owner, moment: Moment | None = None
    ) -> int | None:
        """Make a batch part of the late table and of the channel; the channel's version, ``None`` for a replay or no news.

        Raises, having written nothing: :class:`~strandline.channel.ProducerError` when a partition belongs to another live
        ingest, :class:`IngestError` when somebody moved a partition's capability while the batch ran.
        """
        moment = moment or Moment(time.time_ns() // 1_000_000)
        planned = [r.planned_ms for r in reports if r.planned_ms is not None]
        if moment.planned_ms is None and planned:
            moment = replace(moment, planned_ms=min(planned))
        channel = self._found()
        channel.refresh()
        if self._has(channel, transaction):
            self.discard(reports, late=True)  # second copies
            return None
        seen = Brought.of(reports, self.settings.domain)
        self._check_start(channel, min((r.start_version for r in reports), default=channel.version), seen)
        channel.refuse_live(seen, owner, take_over=self.settings.take_over)
        self.policy.refresh()
        after = After(channel, self.settings, self.policy, transaction[0], moment)
        after.judge(seen, reports)
        if after.aside:
            self._join(channel, seen)
        files = [file for report in reports for file in report.late_files]
        if self._late_table().append(files, transaction, after.aside) is None:
            self._delete(self.settings.late_path, files)
        return self._append(channel, transaction, reports, after, owner)

    def _append(
        self, channel: Channel, transaction: tuple[str, int], reports: Sequence[TaskReport], after: After, owner: Owner
    ) -> int | None:
        times: dict[Time, int] = {}
        for report in reports:
            for at, rows in report.times:
                times[at] = times.get(at, 0) + rows
        key = self.settings.channel_domain.sort_key
        spans = [span for report in reports for span in report.spans]
        return channel.append(
            [*(file for report in reports for file in report.files), *with_stats(self.settings, after.released)],
            statements=after.holds,
            moves=after.moves,
            times=sorted(times.items(), key=lambda entry: key(entry[0])),
            spans=[*spans, *(Span(parcel.least, parcel.greatest, parcel.rows) for parcel in after.released)],
            states={**after.states, REGISTRAR: after.common},
            transaction=transaction,
            owner=owner,
            take_over=self.settings.take_over,
            follow=True,
            apart=OWN,
            donors=after.donors,
        )

    def _check_start(self, channel: Channel, version: int, seen: Brought) -> None:
        """Raise unless the partitions hold what they held at the start of the batch."""
        for at in range(max(version, 0) + 1, channel.version + 1):
            said = channel.log.require(at).statement
            moved = [] if said is None else [name for name in said.statements if name in seen]
            if moved:
                raise self._overtaken(moved[0], at)
        joining = channel.registrar
        for name in channel.progress.unknown(seen) if joining else ():
            least = seen[name].least
            if least is not None and not joining.less_equal(self.settings.lift(least)):
                raise self._overtaken(name, channel.version)

    def _overtaken(self, name: str, version: int) -> IngestError:
        return IngestError(
            "STRANDLINE_INGEST_OVERTAKEN",
            f"While a batch ran, commit {version} of {self.settings.path} changed what partition {name!r} may write. "
            "Nothing of the batch was written.",
            "Start the query again: it plans the batch anew.",
        )

    def _join(self, channel: Channel, seen: Brought) -> None:
        """Let new partitions join before anything of them is set aside, so that a replay finds them where they were."""
        new = channel.progress.unknown(seen)
        if not new:
            return
        try:
            channel.register(new, exist_ok=True)
        except CapabilityError:
            raise self._overtaken(new[0], channel.version) from None

    # ------------------------------------------------------------------------------------------------------- the tables

    def _open(self) -> Channel | None:
        settings = self.settings
        if self._channel is not None and not was_replaced(self._channel):
            return self._channel
        self._channel, self._late, self._settled = None, None, False
        if Channel.exists(settings.path, settings.storage):
            self._channel = Channel.open(settings.path, settings.storage)
            self._check(self._channel)
        return self._channel

    def _found(self) -> Channel:
        """The channel and the late table, made when there are none."""
        settings = self.settings
        channel = self._open()
        named, admitted = self._named()
        if channel is None:
            more = [CORRECTIONS] * settings.corrections + [PARKED] * (settings.max_ahead is not None)
            channel = self._channel = Channel.create(
                settings.path,
                settings.channel_schema,
                time=settings.time,
                producers=[*named, *more],
                sealed=admitted == (),
                storage_options=settings.storage,
                exist_ok=True,
            )
            self._check(channel)
        if not self._settled:
            missing = channel.progress.unknown(named)
            if missing:
                channel.register(missing, exist_ok=True)
            self._late_table()
            self._settled = True
        return channel

    def _late_table(self) -> LateTable:
        settings = self.settings
        if self._late is None:
            self._late = LateTable.open_or_create(settings.late_path, settings.late_schema, settings.storage)
        return self._late

    def _check(self, channel: Channel) -> None:
        settings = self.settings
        if (channel.time_column, channel.domain) != (settings.time, settings.channel_domain):
            raise IngestError(
                "STRANDLINE_SCHEMA_MISMATCH",
                f"The ingest's time column is {settings.time!r} of {settings.channel_domain}, "
                f"but that of {channel.path} is {channel.time_column!r} of {channel.domain}.",
                "Rename the column, or write into another channel.",
            )
        different = different_columns(channel.schema, settings.channel_schema)
        if different is not None:
            raise IngestError(
                "STRANDLINE_SCHEMA_MISMATCH",
                f"The rows and {channel.path} differ in the columns {different}.",
                "Select and cast the rows to the channel's columns.",
            )

    def _has(self, channel: Channel, transaction: tuple[str, int]) -> bool:
        version = channel.transaction_version(transaction[0])
        return version is not None and version >= transaction[1]

    # ------------------------------------------------------------------------------------------------------- leftovers

    def abort(self, transaction: tuple[str, int] | None, reports: Sequence[TaskReport]) -> None:
        """Remove what the tasks of a failed batch wrote, unless it took effect after all."""
        late = False
        if transaction is not None and Channel.exists(self.settings.path, self.settings.storage):
            if self._has(Channel.open(self.settings.path, self.settings.storage), transaction):
                return
            late = self._late_table().committed(transaction[0]) >= transaction[1]
        self.discard(reports, late=not late)

    def discard(self, reports: Sequence[TaskReport], *, late: bool) -> None:
        """Remove the files of ``reports``, with those for the late table or without."""
        self._delete(self.settings.path, [file for report in reports for file in report.written])
        if late:
            self._delete(self.settings.late_path, [file for report in reports for file in report.late_files])

    def _delete(self, path: str, files: Sequence[DataFile]) -> None:
        if files:
            store = open_store(path, self.settings.storage)
            for file in files:
                store.delete(file.path)
