"""The driver's part of an ingest: where a batch starts, and the one commit in which its rows and promises take effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strandline.antichain import Antichain
from strandline.channel import CapabilityError, Channel, Owner
from strandline.channel.files import DataFile
from strandline.channel.store import open_store
from strandline.ingest.errors import IngestError
from strandline.ingest.late import LateTable
from strandline.ingest.policy import Policy, Seen
from strandline.ingest.report import TaskReport, merge_seen
from strandline.ingest.settings import Settings
from strandline.ingest.start import Start
from strandline.order import Time, TimeDomain

__all__ = ["CORRECTIONS", "Ingest"]

CORRECTIONS = "corrections"
"""The producer that holds the right to add corrections."""


@dataclass
class _After:
    """What a commit is to state."""

    holds: dict[str, Antichain]
    states: dict[str, Any]


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
        self._channel: Channel | None = None
        self._late: LateTable | None = None
        self._settled = False

    # ------------------------------------------------------------------------------------------------------- planning

    def start(self) -> Start:
        """What the partitions hold now: the start of the next batch."""
        channel = self._open()
        settings = self.settings
        if channel is None:
            least = (settings.domain.minimum,)
            return Start(dict.fromkeys(settings.named_partitions, least), least, settings.admitted)
        channel.refresh()
        named, admitted = settings.named_partitions, settings.admitted
        joining = settings.lower(channel.registrar)
        lower = settings.lower
        known = {name: lower(state.holds) for name, state in channel.producers.items()}
        if settings.corrections:
            known.pop(CORRECTIONS, None)
        holds = dict(known)
        if admitted is not None:
            holds = {name: known.get(name, joining) for name in named}
            probe = Start(admitted=admitted)
            holds |= {name: times for name, times in known.items() if name not in holds and probe.admits(name)}
        return Start(holds, joining, () if channel.sealed else admitted, version=channel.version)

    # ------------------------------------------------------------------------------------------------------- committing

    def commit(self, transaction: tuple[str, int], reports: Sequence[TaskReport], owner: Owner, now_ms: int) -> int | None:
        """Make a batch part of the late table and of the channel; the channel's version, ``None`` for a replay or no news.

        Raises, having written nothing: :class:`~strandline.channel.ProducerError` when a partition belongs to another live
        ingest, :class:`IngestError` when somebody moved a partition's capability while the batch ran.
        """
        channel = self._found()
        channel.refresh()
        if self._has(channel, transaction):
            self.discard(reports, late=True)  # second copies
            return None
        seen = merge_seen(reports, self.settings.domain)
        self._check_start(channel, min((r.start_version for r in reports), default=-1), seen)
        channel.refuse_live(seen, owner, take_over=self.settings.take_over)
        after = self._after(channel, seen, reports, now_ms)
        aside = _sum(reports)
        if aside:
            self._join(channel, seen)
            late = self._late_table()
            files = [file for report in reports for file in report.late_files]
            if late.append(files, transaction, aside) is None:
                self._delete(self.settings.late_path, files)
        return self._append(channel, transaction, reports, after, owner)

    def _append(
        self, channel: Channel, transaction: tuple[str, int], reports: Sequence[TaskReport], after: _After, owner: Owner
    ) -> int | None:
        times: dict[Time, int] = {}
        for report in reports:
            for time, rows in report.times:
                times[time] = times.get(time, 0) + rows
        key = self.settings.channel_domain.sort_key
        return channel.append(
            [file for report in reports for file in report.files],
            statements=after.holds,
            times=sorted(times.items(), key=lambda entry: key(entry[0])),
            spans=[span for report in reports for span in report.spans],
            states=after.states,
            transaction=transaction,
            owner=owner,
            take_over=self.settings.take_over,
            follow=True,
        )

    def _after(self, channel: Channel, seen: Mapping[str, Seen], reports: Sequence[TaskReport], now_ms: int) -> _After:
        """What the partitions hold after the batch, and what they remember."""
        settings, domain = self.settings, self.settings.channel_domain
        after = _After({}, {})
        aside = _sum(reports)
        for name, news in seen.items():
            known = channel.producers.get(name)
            held = channel.registrar if known is None else known.holds
            memory = dict(known.state or {}) if known is not None else {}
            promised, own = self.policy.for_partition(name).promise(news, memory.get("own"))
            lifted = None if promised is None else [settings.lift(time) for time in promised]
            after.holds[name] = held if lifted is None else both(domain, held, lifted)
            memory["at"] = now_ms
            if own is not None:
                memory["own"] = own
            late = sum(n for (partition, _), n in aside.items() if partition == name)
            if late:
                memory["aside"] = memory.get("aside", 0) + late
            after.states[name] = memory
        if settings.corrections:
            least = [(settings.domain.minimum, 1)]
            known = channel.producers.get(CORRECTIONS)
            if known is not None and known.owner is None and (settings.domain.minimum, 0) in known.holds:
                after.holds[CORRECTIONS] = Antichain(domain, least)
        return after

    def _check_start(self, channel: Channel, version: int, seen: Mapping[str, Seen]) -> None:
        """Raise unless the partitions hold what they held at the start of the batch."""
        least = {name: s.least for name, s in seen.items()}
        for at in range(version + 1, channel.version + 1):
            said = channel.log.require(at).statement
            moved = [] if said is None else [name for name in said.statements if name in seen]
            if moved and at > 0:
                raise self._overtaken(moved[0], at)
        joining = channel.registrar
        for name in seen:
            low = least[name]
            if name not in channel.producers and low is not None and not joining.less_equal(self.settings.lift(low)):
                raise self._overtaken(name, channel.version)

    def _overtaken(self, name: str, version: int) -> IngestError:
        return IngestError(
            "STRANDLINE_INGEST_OVERTAKEN",
            f"While a batch ran, commit {version} of {self.settings.path} changed what partition {name!r} may write. "
            "Nothing of the batch was written.",
            "Start the query again: it plans the batch anew.",
        )

    def _join(self, channel: Channel, seen: Mapping[str, Seen]) -> None:
        """Let new partitions join before anything of them is set aside, so that a replay finds them where they were."""
        new = [name for name in seen if name not in channel.producers]
        if not new:
            return
        try:
            channel.register(new, exist_ok=True)
        except CapabilityError:
            raise self._overtaken(new[0], channel.version) from None

    # ------------------------------------------------------------------------------------------------------- the tables

    def _open(self) -> Channel | None:
        settings = self.settings
        if self._channel is not None and not _was_replaced(self._channel):
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
        if channel is None:
            more = [CORRECTIONS] if settings.corrections else []
            channel = self._channel = Channel.create(
                settings.path,
                settings.channel_schema,
                time=settings.time,
                producers=[*settings.named_partitions, *more],
                sealed=settings.admitted == (),
                storage_options=settings.storage,
                exist_ok=True,
            )
            self._check(channel)
        if not self._settled:
            missing = [name for name in settings.named_partitions if name not in channel.producers]
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
        have = {f.name: f.type for f in channel.schema}
        want = {f.name: f.type for f in settings.channel_schema}
        if have != want:
            different = sorted(name for name in have.keys() | want.keys() if have.get(name) != want.get(name))
            raise IngestError(
                "STRANDLINE_SCHEMA_MISMATCH",
                f"The rows and {channel.path} differ in the columns "
                + ", ".join(f"{name} ({want.get(name, 'missing')} for {have.get(name, 'none')})" for name in different)
                + ".",
                "Select and cast the rows to the channel's columns.",
            )

    def _has(self, channel: Channel, transaction: tuple[str, int]) -> bool:
        version = channel.transaction_version(transaction[0])
        return version is not None and version >= transaction[1]

    # ------------------------------------------------------------------------------------------------------- leftovers

    def abort(self, transaction: tuple[str, int] | None, reports: Sequence[TaskReport]) -> None:
        """Remove what the tasks of a failed batch wrote, unless it took effect after all."""
        if transaction is not None and Channel.exists(self.settings.path, self.settings.storage):
            channel = Channel.open(self.settings.path, self.settings.storage)
            if self._has(channel, transaction):
                return
            late = self._late_table().committed(transaction[0]) >= transaction[1]
            self.discard(reports, late=not late)
            return
        self.discard(reports, late=True)

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


def both(domain: TimeDomain, held: Antichain, promised: Sequence[Time]) -> Antichain:
    """The times that are in advance of a capability held and of a promise: what a promise leaves of what was held.

    >>> from strandline.order import int64
    >>> both(int64, Antichain(int64, [3]), [1]), both(int64, Antichain(int64, [3]), [])
    (Antichain(int64, [3]), Antichain(int64, []))
    """
    return Antichain(domain, [domain.join(a, b) for a in held for b in promised])


def _sum(reports: Sequence[TaskReport]) -> dict[tuple[str | None, str], int]:
    total: dict[tuple[str | None, str], int] = {}
    for report in reports:
        for key, n in report.aside.items():
            total[key] = total.get(key, 0) + n
    return total


def _was_replaced(channel: Channel) -> bool:
    """Whether another table, or none, is where the channel was: the process may outlive it."""
    newest = channel.log.read(channel.version)
    first = channel.log.read(0)
    return newest is None or (first is not None and (first.metadata or {}).get("id") != channel.table_id)
