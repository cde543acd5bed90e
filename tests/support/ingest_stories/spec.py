"""What ingests into one channel must do, commit by commit: a specification in brute force that uses nothing of the product.

Each ingest has partitions of its own. A partition has *promised* that its later rows are in advance of certain times. Its
ingest *waits* for it, or, once it was silent for long, does not. What an ingest holds open is what the waited ones have
promised; when it waits for nobody, the greatest promise that any of its partitions made, and never less than it held open
before. Where the last one that holds anything rejoins, it is the greatest promise of the silent ones that are left; where none is
left, the ingest holds nothing open until its next batch. The channel's frontier is the least of what the ingests, the other
producers and the registrar hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from ingest_stories.times import LEAST, Holds, Time, before, beyond, both, first, least

__all__ = ["Announcement", "Late", "Moment", "Partition", "Planned", "Row", "Rules", "Spec"]

SEALED = {"STRANDLINE_CHANNEL_SEALED", "STRANDLINE_PARTITION_UNKNOWN", "STRANDLINE_PRODUCER_UNKNOWN"}
"""How a partition is refused that may not join."""
BAD_NAMES = ("", "$a", "strandline:a")


class Row(NamedTuple):
    """A row from outside: ``mark`` is a punctuation, ``flag`` says heartbeat, or that an announced row was cancelled."""

    time: Time | None
    partition: str | None
    number: int
    mark: Time | None = None
    flag: bool = False


class Late(NamedTuple):
    """A row of the late table."""

    row: Row
    reason: str
    partition: str | None
    frontier: Holds
    query: str
    batch: int
    cancelled: bool = False


class Rules(NamedTuple):
    """How an ingest was set. ``policy`` is ``(kind, arguments…)``, nested as the product's."""

    policy: tuple[Any, ...]
    partitions: tuple[str, ...] | None = None
    ahead: int | None = None
    on_late: str = "setAside"
    take_over: bool = False
    implied: bool = False
    """Whether the partitions are those of a manifest that says all."""

    def of(self, partition: str) -> tuple[int | None, tuple[Any, ...]]:
        """After how much silence a partition is not waited for, and its policy apart from that."""
        after, policy = None, self.policy
        while policy[0] in ("idle", "composed"):
            if policy[0] == "idle":
                after, policy = policy[2], policy[1]
            else:
                policy = next(inner for pattern, inner in policy[1] if fnmatchcase(partition, pattern))
        return after, policy

    def has(self, kind: str) -> bool:
        """Whether a kind of policy is anywhere in it."""
        return kind in repr(self.policy)

    def admits(self, partition: str) -> bool:
        """Whether a partition may be of this ingest."""
        return self.partitions is None or any(fnmatchcase(partition, pattern) for pattern in self.partitions)

    @property
    def named(self) -> tuple[str, ...]:
        """The partitions known beforehand."""
        return tuple(name for name in self.partitions or () if "*" not in name)


class Moment(NamedTuple):
    """When a batch was planned and how it was read."""

    planned: int
    run: str
    to_end: bool = True
    snapshot: bool = False


class Announcement(NamedTuple):
    """What a manifest says: rows by partition and time, cancelled ones apart, and where more may be announced."""

    rows: Mapping[str, Mapping[Time, int]]
    still: Holds = frozenset()
    grows: bool = False


@dataclass
class Partition:
    """What is known of one partition; ``owner`` is its ingest, ``None`` while it is nobody's."""

    owner: str | None
    promised: Holds
    waited: bool = True
    heard: int = 0
    """The reading of the ingest's clock from which its silence counts."""
    came: Counter[Time] | None = None
    """Rows by time, while they are counted."""
    soon: Holds | None = None
    dropped: bool = False
    rejoins: bool = False


@dataclass
class Clock:
    """Listening time: from planning to planning within a run."""

    listened: int = 0
    run: str = ""
    planned: int = 0

    def tick(self, moment: Moment) -> None:
        if moment.run == self.run:
            self.listened += max(0, moment.planned - self.planned)
            self.planned = max(moment.planned, self.planned)
        else:
            self.run, self.planned = moment.run, moment.planned


class Planned(NamedTuple):
    """Where a batch starts."""

    holds: Mapping[str, Holds]
    joining: Holds
    limit: int | None


class Spec:
    """The channel, the late table and what is parked, as they must be after the commits told so far."""

    def __init__(self, minimum: Time, *, total: bool) -> None:
        self.minimum, self.total = minimum, total
        self.partitions: dict[str, Partition] = {}
        self.registrar: Holds = frozenset([minimum])
        self.others: dict[str, Holds] = {}
        """What producers hold that are no ingest's."""
        self.clocks: dict[str, Clock] = {}
        self.policies: dict[str, Any] = {}
        """The policy of each ingest in its newest batch."""
        self.fenced: set[str] = set()
        """The ingests that others have taken over."""
        self.in_snapshot: set[str] = set()
        self.open: dict[str | None, Holds] = {}
        """What each ingest held open after the commit before. It never goes back, but where its last holder rejoins."""
        self.in_time: Counter[Row] = Counter()
        """The rows that are in the channel or parked."""
        self.late: list[Late] = []
        self.readmitted: dict[str, int] = {}
        """The newest batch of each query that readmit has looked at."""
        self.corrections: list[list[Row]] = []
        self.done: dict[str, int] = {}
        """The newest batch of each query."""

    # ------------------------------------------------------------------------------------------------------- the law

    def held_open(self, query: str | None) -> Holds:
        """What an ingest holds open."""
        mine = [p for p in self.partitions.values() if p.owner == query and p.promised]
        waited = [p.promised for p in mine if p.waited]
        if waited:
            return least(time for promised in waited for time in promised)
        if not mine:
            return frozenset()
        greatest = mine[0].promised
        for partition in mine[1:]:
            greatest = both(greatest, partition.promised)
        return both(open_before, greatest) if (open_before := self.open.get(query)) else frozenset()

    def held(self, name: str) -> Holds:
        """What a partition may bring rows at."""
        partition = self.partitions[name]
        if partition.waited:
            return partition.promised
        return both(self.held_open(partition.owner) or self.registrar, partition.promised)

    @property
    def least_held(self) -> Holds:
        """What everybody but the registrar holds."""
        owners = {partition.owner for partition in self.partitions.values()}
        held = [self.held_open(owner) for owner in owners]
        return least(time for times in [*held, *self.others.values()] for time in times)

    @property
    def frontier(self) -> Holds:
        """The least that may still be written, corrections apart."""
        return least([*self.least_held, *self.registrar])

    # ------------------------------------------------------------------------------------------------------- a batch

    def plan(self, rules: Rules) -> Planned:
        """Where a batch of an ingest starts now."""
        known = {name: self.held(name) for name in self.partitions if rules.admits(name)}
        joining = {name: self.registrar for name in rules.named if name not in self.partitions and self.registrar}
        held = self.least_held or self.registrar
        limit = None if rules.ahead is None or not held else min(map(first, held)) + rules.ahead
        return Planned({**known, **joining}, self.registrar, limit)

    def refusals(self, query: str, rules: Rules, rows: Iterable[Row], planned: Planned, *, fresh: bool) -> set[str]:
        """The conditions by which a batch that starts and ends now must be refused, any one of them; empty: it must not.

        ``fresh``: its process has committed nothing yet.
        """
        found = set()
        if query in self.fenced and not (rules.take_over and fresh):
            found.add("STRANDLINE_INGEST_FENCED")
        if not self.registrar and not rules.implied and any(name not in self.partitions for name in rules.named):
            found |= SEALED
        for row in rows:
            name, reason = self._judge(row, rules, planned)
            if name is not None:
                partition = self.partitions.get(name)
                if partition is not None and partition.owner not in (None, query) and not rules.take_over:
                    found.add("STRANDLINE_PRODUCER_LIVE")
                if not self._may_bring(name, rules, planned):
                    found |= SEALED | ({"STRANDLINE_ROW_LATE"} if rules.on_late == "fail" and name in rules.named else set())
                    reason = "" if reason == "late" else reason
            if reason and rules.on_late == "fail":
                found.add("STRANDLINE_ROW_LATE" if reason == "late" else "STRANDLINE_ROW_INVALID")
        return found

    def _may_bring(self, name: str, rules: Rules, planned: Planned) -> bool:
        return name in planned.holds or (bool(planned.joining) and rules.admits(name))

    def _judge(self, row: Row, rules: Rules, planned: Planned) -> tuple[str | None, str]:
        """Whose a row is (``None``: nobody's), and why it is set aside (empty: it is not)."""
        if row.partition is None:
            return None, "null partition"
        if row.partition in BAD_NAMES:
            return None, "invalid partition name"
        if row.time is None:
            return row.partition, "null time"
        held = planned.holds.get(row.partition, planned.joining)
        if beyond(held, row.time) or (row.flag and rules.of(row.partition)[1][0] == "heartbeat"):
            return row.partition, ""
        return row.partition, "late"

    def commit(
        self,
        query: str,
        batch: int,
        rules: Rules,
        rows: Iterable[Row],
        planned: Planned,
        moment: Moment,
        announced: Announcement | None,
    ) -> None:
        """A batch took effect, that was planned at ``planned``."""
        assert batch > self.done.get(query, -1), f"batch {batch} of {query} took effect twice"
        self.done[query] = batch
        ends_snapshot = query in self.in_snapshot and not moment.snapshot
        (self.in_snapshot.add if moment.snapshot else self.in_snapshot.discard)(query)
        clock = self.clocks.setdefault(query, Clock())
        if rules.has("idle"):
            clock.tick(moment)
        news: dict[str, list[Row]] = {}
        for row in rows:
            name, reason = self._judge(row, rules, planned)
            if name is not None:
                news.setdefault(name, []).append(row)
            if reason:
                held = frozenset() if name is None else planned.holds.get(name, planned.joining)
                cancelled = row.flag and name is not None and rules.of(name)[1][0] == "manifest"
                self.late.append(Late(row, reason, name, held, query, batch, cancelled))
        # Whoever goes on does so where it may as of now, all at once.
        on = {name: self.held(name) for name in self.partitions}
        now = {name: on.get(name, self.registrar) for name in news}
        others = self.done.keys() - self.fenced - {query}
        self._claim(query, rules, news, announced, clock)
        mine = {name: partition for name, partition in self.partitions.items() if partition.owner == query}
        changed = self.policies.get(query, rules.policy) != rules.policy
        self.policies[query] = rules.policy
        heard = {name for name, brought in news.items() if self._is_heard(name, brought, rules, planned)}
        for name, partition in mine.items():
            after, kind = rules.of(name)
            if name in heard or (name in news and partition.waited):
                partition.promised, partition.waited = now[name], True
            elif not partition.waited and (after is None or partition.rejoins):
                partition.promised, partition.waited = on[name], True
            if name in heard or changed or partition.rejoins:
                partition.heard = clock.listened
            partition.rejoins = False
            if kind[0] != "manifest":
                partition.came = None
            elif partition.came is None:  # what the channel has already, cancelled rows apart
                held = partition.promised
                partition.came = Counter(r.time for r in self.in_time.elements() if r.partition == name and beyond(held, r.time))
        for name, brought in news.items():
            partition, kind = self.partitions[name], rules.of(name)[1]
            counted = [row for row in brought if not self._judge(row, rules, planned)[1]]
            for row in counted:
                if not (row.flag and kind[0] in ("heartbeat", "manifest")):  # which only moves time, or only counts
                    assert beyond(now[name], row.time), f"{row} was taken in, but {name} holds {set(now[name])}"
                    self.in_time[row] += 1
            if partition.came is not None:
                partition.came.update(row.time for row in counted)
            self._promise(partition, self._promised(kind, counted, brought), moment)
        for name, partition in mine.items():
            if ends_snapshot:
                self._promise(partition, None, moment)
            if partition.came is not None and not partition.dropped:
                self._promise(partition, self._incomplete(name, partition, announced), moment)
        if not moment.snapshot:
            self._stop_waiting(query, rules, heard, clock, moment)
            self._give_up(query, announced)
        if not others and not self._others_hold(query) and self._ends(rules, announced):
            self.registrar = frozenset()
        self.settle()

    def _is_heard(self, name: str, brought: list[Row], rules: Rules, planned: Planned) -> bool:
        """Whether a partition brought anything in time: what is set aside, or behind its promise, ends no silence."""
        kind = rules.of(name)[1]
        held = planned.holds.get(name, planned.joining)
        marks = _join_all([row.mark for row in brought if row.mark is not None]) if kind[0] == "punctuated" else None
        in_time = [row for row in brought if not self._judge(row, rules, planned)[1] and beyond(held, row.time)]
        return bool(in_time) or (marks is not None and both(held, marks) != held)

    def known_beforehand(self, rules: Rules, announced: Announcement | None) -> list[str]:
        """The partitions that an ingest has before they bring anything."""
        rows = announced.rows if announced is not None else ()
        return [*rules.named, *(name for name in rows if rules.admits(name) and rules.of(name)[1][0] == "manifest")]

    def _claim(self, query: str, rules: Rules, news: Mapping[str, Any], announced: Announcement | None, clock: Clock) -> None:
        """Partitions that are known beforehand, or bring something, become the ingest's, with all of an ingest that had one."""
        others: set[str] = set()
        held = list(self.open.get(query) or ())
        for name in [*self.known_beforehand(rules, announced), *news]:
            if name not in self.partitions and not self.registrar:
                continue  # announced, and cannot join any more: its rows are refused
            partition = self.partitions.setdefault(name, Partition(None, self.registrar))
            if partition.owner is None:
                partition.owner, partition.heard = query, clock.listened
                held += partition.promised
            elif partition.owner != query and rules.take_over:
                others.add(partition.owner)
        for other in others:
            held += self.open.get(other) or ()
            for partition in self.partitions.values():
                if partition.owner == other:  # what a snapshot promised that did not end is not believed
                    partition.came = None if partition.soon is not None else partition.came
                    partition.owner, partition.heard, partition.soon = query, clock.listened, None
            self.open.pop(other, None)
        self.fenced |= others
        self.fenced.discard(query)
        self.open[query] = least(held) or self.registrar

    def _others_hold(self, query: str) -> bool:
        """Whether anybody else may still write."""
        return any(self.others.values()) or any(p.promised for p in self.partitions.values() if p.owner != query)

    def _ends(self, rules: Rules, announced: Announcement | None) -> bool:
        """Whether nobody can join any more by these rules: the manifest, which says who there is, is closed."""
        open_list = rules.partitions is not None and rules.partitions != rules.named
        said_all = announced is not None and not announced.still and not rules.has("composed")
        return said_all and not open_list

    def _promised(self, kind: tuple[Any, ...], counted: list[Row], mine: list[Row]) -> Holds | None:
        """What a policy concludes from what a partition has brought; ``None``: nothing."""
        times = [row.time for row in counted if not (row.flag and kind[0] == "heartbeat")]
        if kind[0] == "ordered":
            return _join_all(times)
        if kind[0] == "bounded":
            return None if not times else frozenset(self._back(time, kind[1]) for time in _join_all(times) or ())
        if kind[0] == "punctuated":
            return _join_all([row.mark for row in mine if row.mark is not None])
        if kind[0] == "heartbeat":
            beats = _join_all([row.time for row in mine if row.flag and row.time is not None])
            inner = self._promised(kind[1], [row for row in counted if not row.flag], []) if kind[1] else None
            return both(beats, inner) if beats and inner else beats or inner
        return None

    def _incomplete(self, name: str, partition: Partition, announced: Announcement | None) -> Holds:
        """The least announced times of which rows are still to come, and those at which more may be announced."""
        assert announced is not None
        assert partition.came is not None
        missing = [time for time, n in announced.rows.get(name, {}).items() if partition.came[time] < n]
        to_come = partition.promised if partition.soon is None else both(partition.promised, partition.soon)
        return least([*(time for time in missing if beyond(to_come, time)), *announced.still])

    def _back(self, time: Time, delay: int) -> Time:
        if not isinstance(time, tuple):
            return max(time - delay, LEAST)
        return (self._back(time[0], delay), *self.minimum[1:])

    def _promise(self, partition: Partition, promised: Holds | None, moment: Moment) -> None:
        """Promises add up. In a source's first snapshot, whose rows come in no order, they wait for its end."""
        to_come = partition.promised if partition.soon is None else both(partition.promised, partition.soon)
        if promised is not None:
            to_come = both(to_come, promised)
        if moment.snapshot:
            partition.soon = to_come if to_come != partition.promised else partition.soon
        else:
            partition.promised, partition.soon = to_come, None

    def _stop_waiting(self, query: str, rules: Rules, heard: set[str], clock: Clock, moment: Moment) -> None:
        """Those that were silent for long are not waited for."""
        for name, partition in self.partitions.items():
            after = rules.of(name)[0]
            if partition.owner == query and name not in heard and partition.waited and after is not None and moment.to_end:
                partition.waited = clock.listened - partition.heard < after

    def _give_up(self, query: str, announced: Announcement | None) -> None:
        """Where nobody is waited for, announced times that the ingest has passed are: their rows would be late."""
        mine = {name: p for name, p in self.partitions.items() if p.owner == query and p.promised}
        passed = [p for name, p in mine.items() if p.came is not None and not self._left_at(name, p, announced, query)]
        if passed and not any(partition.waited for partition in mine.values()):
            for partition in passed:
                partition.promised = frozenset()
            self._give_up(query, announced)

    def _left_at(self, name: str, partition: Partition, announced: Announcement | None, query: str) -> Holds:
        assert announced is not None
        assert partition.came is not None
        hold = self.held_open(query)
        missing = [time for time, n in announced.rows.get(name, {}).items() if partition.came[time] < n]
        return least([*(time for time in missing if beyond(hold, time)), *announced.still])

    def settle(self, *, follow: bool = True) -> None:
        """After each commit: what the ingests hold open now. The registrar follows the least of all, in those of ingests."""
        for owner in {partition.owner for partition in self.partitions.values()}:
            self.open[owner] = self.held_open(owner)
        held = self.least_held
        if held and self.registrar and follow:
            self.registrar = both(self.registrar, held)

    # ------------------------------------------------------------------------------------------------------- operators, others

    def drop(self, name: str) -> None:
        """An operator gives a partition up for good."""
        partition = self.partitions[name]
        partition.promised, partition.soon, partition.waited, partition.dropped = frozenset(), None, True, True
        partition.rejoins = False
        self._left_to_silent_ones(name)

    def rejoin(self, name: str, *, was_holding: bool) -> None:
        """An operator lets a partition join again, with the next batch: where its ingest's others are then, or as a new one.

        ``was_holding``: it held something. Which of the silent ones holds for all of them is the product's choice.
        """
        partition = self.partitions[name]
        partition.promised, partition.soon, partition.came = frozenset([self.minimum]), None, None
        partition.waited, partition.dropped, partition.rejoins = False, False, True
        if was_holding and not any(p.waited and p.promised for p in self.partitions.values() if p.owner == partition.owner):
            self.open[partition.owner] = frozenset()
        self._left_to_silent_ones(name)

    def _left_to_silent_ones(self, name: str) -> None:
        """Where a partition gave up the last that its ingest held open, silent ones hold their promises, as from now on."""
        owner = self.partitions[name].owner
        others = [p for other, p in self.partitions.items() if p.owner == owner and p.promised and other != name]
        if others and not self.open.get(owner) and not any(p.waited for p in others):
            self.open[owner] = self.registrar

    @property
    def to_readmit(self) -> list[Late]:
        """The late rows that readmit has not looked at, but for those that only said that a row will not come."""
        looked_at = self.readmitted
        return [
            late
            for late in self.late
            if late.reason == "late" and not late.cancelled and late.batch > looked_at.get(late.query, -1)
        ]

    def readmit(self, looked_at: Mapping[str, int]) -> None:
        """Those up to these batches come in, as the next correction."""
        self.corrections.append([late.row for late in self.to_readmit if late.batch <= looked_at.get(late.query, -1)])
        self.readmitted = dict(looked_at)

    def check_moved(self, was: Holds) -> None:
        """The frontier never goes back."""
        assert before(was, self.frontier), f"the frontier went back from {set(was)} to {set(self.frontier)}"


def _join_all(times: list[Time]) -> Holds | None:
    if not times:
        return None
    found: Holds = frozenset(times[:1])
    for time in times[1:]:
        found = both(found, [time])
    return found
