"""What a channel's log says about a producer that holds a time open: its kind, what it waits for, what would release it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, NamedTuple

from strandline.channel import Channel, ProducerState, WriterSession
from strandline.channel.progress.query_producer_state import is_query, named
from strandline.channel.statements.statement import REGISTRAR
from strandline.channel.write.registrar import hold_of
from strandline.errors import StrandlineError
from strandline.ingest import Policy, Status
from strandline.ingest.cancel import Manifests, outside_domain
from strandline.ingest.decide.given import policy_for
from strandline.ingest.late.newest_aside import NewestAside
from strandline.ingest.names import CORRECTIONS, PARKED
from strandline.ingest.policies.manifest_table import ManifestTable
from strandline.ingest.policies.parser import recorded_policy
from strandline.ingest.state.registrar_state import RegistrarState
from strandline.ingest.status import PartitionStatus, status_of
from strandline.report.ailments import called, moment
from strandline.report.awaited import awaited
from strandline.report.history import History
from strandline.shell_words import command, drop_command
from strandline.time.domain import Time, TimeDomain, timestamp

__all__ = ["Described", "Describer", "kind_of"]

_MOST_CANCELLED = 20
"""So many times are in one command."""


class Described(NamedTuple):
    """What is known of a holder: its kind, in words what it waits for and what would release the time, and how to drop it."""

    kind: str
    what: str
    release: str
    drop: str = ""


def kind_of(name: str, state: ProducerState, ingests: Collection[str]) -> str:
    """Return a producer's kind: ``producer``, ``partition`` (of an outside stream), ``query``, ``ingest`` or ``registrar``.

    Args:
        name: The producer's name.
        state: Its state.
        ingests: The queries that are ingests of the channel.

    >>> from strandline.time.antichain import Antichain
    >>> from strandline.time.domain import int64
    >>> state = ProducerState(0, Antichain(int64))
    >>> kind_of("a", state, ()), kind_of("strandline:parked", state, ()), kind_of("strandline:parked", state, ["q"])
    ('producer', 'producer', 'ingest')
    """
    if name == REGISTRAR:
        return "registrar"
    if ingests and name in {CORRECTIONS, PARKED, *(f"{PARKED}:{query}" for query in ingests)}:
        return "ingest"
    if state.owner is not None and state.owner.id in ingests:
        return "partition"
    return "query" if is_query(name, state) else "producer"


class Describer:
    """Describes the holders of one channel. What an ingest knows of its partitions comes from :mod:`strandline.ingest`.

    Args:
        channel: The channel.
        history: Looks back in the channel's log.
    """

    def __init__(self, channel: Channel, history: History | None = None) -> None:
        self._channel = channel
        self._history = History(channel) if history is None else history
        self._status: Status | None = None
        self._partitions: dict[str, PartitionStatus] = {}
        self._queries: frozenset[str] = frozenset()
        self._manifests: Manifests | None = None
        self._names: dict[str, str] = {}
        self.problem: str | None = None
        """Why the states of an ingest cannot be read."""
        try:
            entries = RegistrarState.of(channel.progress).entries
            self._queries = frozenset(entries)
            self._names = {query: entry.name for query, entry in entries.items() if entry.name}
            if self._queries:
                self._status = status_of(channel)
                self._partitions = {each.name: each for each in self._status.partitions}
        except StrandlineError as error:
            self.problem = error.what

    @property
    def path(self) -> str:
        """The channel's path."""
        return self._channel.path

    @property
    def ingests(self) -> frozenset[str]:
        """The queries that are ingests of the channel."""
        return self._queries

    @property
    def remedies(self) -> list[str]:
        """What to do about partitions whose rows are all late, whoever holds the time."""
        return [] if self._status is None else self._status.remedies

    def query_of(self, name: str, state: ProducerState) -> str | None:
        """Return the name that a user gave the query that writes as a producer, or for it; ``None`` if it has none."""
        return self._names.get(state.owner.id) if state.owner and state.owner.id in self._queries else named(name, state)

    def describe(self, name: str, state: ProducerState, opens: Callable[[Time], bool] = lambda _: True) -> Described:
        """Return what is known of a producer, or of the registrar under its own name.

        ``opens`` says which times of the channel keep the asked time open (default: all).
        """
        kind = kind_of(name, state, self._queries)
        if kind == "registrar":
            return self._registrar()
        if kind == "ingest":
            return self._own(name, state)
        partition = self._partitions.get(name)
        if partition is not None and (kind == "partition" or (state.owner is None and self._was_partition(name))):
            return self._partition(partition, state, opens)
        return self._producer(name, state)

    def _registrar(self) -> Described:
        seal = command("seal", self._channel.path)
        if not self._queries:
            what = "the channel is not sealed, so new producers may join at these times"
            return Described("registrar", what, f"seal the channel if no producer will join: {seal}")
        what = "the channel is not sealed, so new partitions may join at these times, and no partition holds them"
        release = (
            "rows of a new partition; or, if none will come, seal the channel (a row of a new partition then stops the ingest "
            f"for good): {seal}"
        )
        return Described("registrar", what, release)

    def _own(self, name: str, state: ProducerState) -> Described:
        if name == CORRECTIONS:
            return Described(
                "ingest",
                "late rows may still be readmitted",
                "if no late row will be readmitted any more, end the corrections, which is for good: "
                f"{command('end-corrections', self._channel.path)}",
            )
        parked = 0 if self._status is None else self._status.parked_rows
        what = f"{parked} rows are parked beyond maxAhead" if name.startswith(PARKED) else "the ingest itself holds it"
        if state.owner is not None and state.owner.is_dead():
            what = f"{what}; {_gone(state.owner)}"
        return Described(
            "ingest",
            what,
            f"the next batch of the ingest; or, if its query has ended: {command('release-parked', self._channel.path)}",
        )

    def _was_partition(self, name: str) -> bool:
        commit = self._history.newest(name).commit  # a state says nothing: a program keeps in it what it likes
        return commit is not None and not self._queries.isdisjoint(commit.transactions)

    def _partition(self, partition: PartitionStatus, state: ProducerState, opens: Callable[[Time], bool]) -> Described:
        path, status = self._channel.path, self._status
        assert status is not None  # noqa: S101 - it has the partition
        policy = " and ".join(status.policies)
        memory = state.state if isinstance(state.state, dict) else {}
        drop = f"if the partition is dead: {drop_command(path, partition.name)}"
        if state.owner is None:
            what = f"no query names this partition now ({partition.delivered})"
            return Described("partition", what, "name it again in partitions", drop)
        query_id = state.owner.id
        shown = called(self._names.get(query_id), query_id)
        if state.owner.is_dead():  # nothing takes the partition in, so nobody knows what it has delivered since
            what = f"query {shown} takes it in, and {_gone(state.owner)}; {partition.delivered}"
            return Described("partition", what, f"start query {shown} again: it takes in what the partition has delivered")
        query = f"query {shown} takes it in by {policy or 'its policy'}, {self._last_batch(state.owner)}"
        runs = (
            f"see first whether query {shown} runs: if it has stopped, start it again, so that it takes in what the "
            "partition has delivered. If it runs"
        )
        announced = _announced(memory.get("own"), outside_domain(self._channel))
        if announced is not None:
            what, release = self._lacking(partition.name, announced, opens)
            return Described("partition", f"{what}, {partition.delivered}; {query}", f"{runs}: {release}", drop)
        judging, since = self._policy_of(query_id, partition.name), self._history.since(partition.name)
        waits = awaited(partition, judging, status, since, clock_times=outside_domain(self._channel) == timestamp)
        what = f"{partition.delivered}{waits.what}; {query}"
        newest = partition.newest_aside
        if newest is not None and newest.only_since_ms is not None:
            return Described("partition", what, f"{runs}: {_repair(path, newest)}", drop)
        return Described("partition", what, f"{runs}: {waits.release}", drop if waits.drop_helps else "")

    def _policy_of(self, query: str, name: str) -> Policy | None:
        """Return the policy that judges a partition; ``None`` if it is of a class that is not loaded here."""
        with suppress(StrandlineError):
            policy = recorded_policy(RegistrarState.of(self._channel.progress).entry(query).policy)
            return None if policy is None else policy_for(policy, name)
        return None

    def _lacking(self, name: str, announced: str, opens: Callable[[Time], bool]) -> tuple[str, str]:
        """Return what a manifest still waits for, and what would release it: by the manifest as it is now, if it can be read."""
        path = self._channel.path
        try:
            self._manifests = self._manifests or Manifests(self._channel)
            lacking = self._manifests.lacking(name)
            found = self._manifests.judge_of(name)
        except StrandlineError as error:
            return f"{announced} (its manifest cannot be read now: {error.what.rstrip('.')})", "the missing rows"
        if lacking is None or found is None:
            return announced, "the missing rows; or count them as cancelled in the manifest, for the next batch"
        asked = [each for each in lacking if opens(each.at)]
        if not asked and (may := self._still_announced(found[1], opens)):
            return (
                f"its manifest, a channel, may still announce rows at {may} and later",
                f"the producers of that channel: {command('why', found[1].path)}",
            )
        if not asked:
            return (
                "its manifest was changed since its last batch, and waits for no row there any more",
                f"the next batch; or at once: {command('cancel', path)}",
            )
        missing = sum(each.rows for each in lacking)
        rows = f"{missing} row{'' if missing == 1 else 's'}"
        what = f"its manifest announces {rows} that never came, the first of them at {lacking[0].shown}"
        words = [word for each in asked[:_MOST_CANCELLED] for word in (name, each.shown, str(each.cancelled + each.rows))]
        return what, f"the missing rows; or, if they never come: {command('cancel', path, *words)}"

    def _still_announced(self, table: ManifestTable, opens: Callable[[Time], bool]) -> str:
        """Return the least times at which a growing manifest may announce rows, if they keep the asked time open."""
        outside = outside_domain(self._channel)
        apart = outside != self._channel.domain
        times = [time for time in table.still_to_announce() if opens((time, 0) if apart else time)]
        return ", ".join(map(outside.format, times))

    def _last_batch(self, owner: WriterSession) -> str:
        """Return when an ingest's query last committed, in words. Its process may live on without it, as that of a notebook."""
        last, process = self._history.last_batch(owner.id), str(owner).partition(" (session ")[0]
        runs = "it is not known whether it runs"
        if owner.is_alive():
            runs = f"its {process} runs, and it is not known whether the query runs in it"
        if last is None:
            return f"and it is not known when it last committed; {runs}"
        when = f"version {last.version}" + (f", {moment(last.ms)}" if last.ms else "")
        return f"and last committed {'at' if last.exact else 'before'} {when}; {runs}"

    def _producer(self, name: str, state: ProducerState) -> Described:
        path, hold = self._channel.path, hold_of(state.state)
        if hold is not None:
            what = f"held by `strandline hold`, by {hold.by}, since {moment(hold.at)}"
            return Described("producer", what, f"release it with: {drop_command(path, name)}")
        told = _notifications(state.state, self._channel.domain)
        owner, drop = state.owner, f"or, if it will never go on: {drop_command(path, name)}"
        if owner is None:
            what, release = "no session has it open", "open it again, and delay or drop its capability"
        elif owner.is_dead():
            what, release = _gone(owner), "start the process again, so that it goes on"
        else:
            what, release = f"it is open in {owner}", "its next commit, when that process delays or drops the capability"
            drop = "or, if it will never go on, end that process, and drop the producer then"
        if told:
            what = f"it waits for {told}; {what}"
        return Described("producer", what, release, drop)


def _repair(path: str, newest: NewestAside) -> str:
    """Return what lets a partition go on whose rows are all set aside."""
    if newest.rejoin:
        return newest.remedy
    if newest.late:
        return f"rows of the partition that are in time: {newest.remedy}"
    return (
        f"{newest.remedy}: its next rows that can be used go on. If the channel has corrections, "
        f"readmit({path!r}, where=…) adds those that were set aside, with their times corrected"
    )


def _gone(owner: WriterSession) -> str:
    return f"its process is gone ({owner})"


def _announced(own: Any, domain: TimeDomain) -> str | None:
    """Return what a manifest announced that has not come, in words; ``None`` if this is not the memory of a manifest."""
    if not isinstance(own, dict) or not {"held", "came", "total", "done"} <= own.keys():
        return None
    try:
        waiting = [domain.format(domain.from_json(time)) for time in own["held"]]
        came = sum(rows for _, rows in own["came"])
        missing = own["total"] - own["done"] - came
    except (StrandlineError, TypeError, ValueError):
        return None
    rows = f"its manifest announces {missing} row{'' if missing == 1 else 's'} that never came"
    return f"{rows}, the first of them at {', '.join(waiting[:3])}" if waiting else rows


def _notifications(state: Any, domain: TimeDomain) -> str:
    """Return the notifications that a producer says it waits for, in words (``notifications`` in its state)."""
    times = state.get("notifications") if isinstance(state, dict) else None
    if not isinstance(times, list) or not times:
        return ""
    try:
        shown = [domain.format(domain.from_json(time)) for time in times[:5]]
    except StrandlineError:
        return ""
    return f"a notification that it asked for, at {', '.join(shown)}{' …' if len(times) > 5 else ''}"
