"""The world of a story: sources, queries and operators around one channel. The product acts, the specification is told what took
effect, and the judge compares."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from ingest_stories.faults import Fault, Faults
from ingest_stories.judge import CORRECTIONS, Judge
from ingest_stories.spec import Announcement, Moment, Partition, Planned, Row, Rules, Spec
from ingest_stories.table_log import REGISTRAR, Entry
from ingest_stories.times import LEAST, Holds, Time, beyond
from strandline.channel import Channel, WriterSession
from strandline.errors import IngestError, StrandlineError
from strandline.ingest import (
    Ingest,
    IngestTask,
    Policy,
    Settings,
    TaskReport,
    accept_replay,
    bounded,
    composed,
    drop_partitions,
    heartbeat,
    idle,
    manifest,
    ordered,
    punctuated,
    readmit,
    rejoin_partitions,
    status,
)
from strandline.ingest import Moment as ProductMoment
from strandline.time.arrow import time_field
from strandline.time.domain import parse_domain

__all__ = ["Attempt", "Query", "World"]

SCALAR, PAIR = "int64", "product(a int64, b int64)"


@dataclass
class Attempt:
    """One try to bring a batch in: planned, taken in by tasks, not committed yet."""

    query: str
    rules: Rules
    batch: int
    rows: Sequence[Row]
    ingest: Ingest
    planned: Planned
    moment: Moment
    reports: list[TaskReport]
    version: int


@dataclass
class Query:
    """A streaming query: its settings, and the batch that its source is to give next, the same as long as it is not in."""

    name: str
    rules: Rules
    ingest: Ingest | None = None
    batch: int = 0
    waiting: Sequence[Row] | None = None
    runs: int = 0
    committed: bool = False
    """Whether this process of it has."""
    under_way: Attempt | None = None
    last: Sequence[Row] = ()
    """The rows of the newest batch that is in."""
    accepted: int = -1
    """The batch that may come again with other rows."""


@dataclass
class World:
    """One channel and everybody around it."""

    folder: Path
    faults: Faults
    domain: str = SCALAR
    corrections: bool = False
    now: int = 1
    queries: dict[str, Query] = field(default_factory=dict)
    stale: list[Attempt] = field(default_factory=list)
    """Attempts of processes that were given up, and may still commit."""
    announced: dict[str, Announcement] = field(default_factory=dict)
    numbers: int = 0

    def __post_init__(self) -> None:
        self.total = self.domain == SCALAR
        self.minimum: Time = LEAST if self.total else (LEAST, LEAST)
        self.spec = Spec(self.minimum, total=self.total)
        kind: Any = pa.int64() if self.total else pa.struct([("a", pa.int64()), ("b", pa.int64())])
        self.schema = pa.schema([("t", kind), ("p", pa.string()), ("n", pa.int64()), ("mark", kind), ("flag", pa.bool_())])
        self.channel, self.late = self.folder / "channel", self.folder / "channel_late"
        self.judge = Judge(self.channel, self.late, self.spec, self.minimum, corrections=self.corrections)
        self._full: dict[str, dict[str, Counter[Time]]] = {}
        self._gone: dict[str, dict[str, Counter[Time]]] = {}

    # ------------------------------------------------------------------------------------------------------- queries

    def start(self, name: str, rules: Rules) -> None:
        """A query starts, or starts again with other settings."""
        query = self.queries.setdefault(name, Query(name, rules))
        query.rules, query.ingest, query.under_way = rules, None, None

    def restart(self, name: str, *, keep: bool = False) -> None:
        """A query's process is given up; with ``keep`` it does not know that, and may still commit what it has under way."""
        query = self.queries[name]
        if keep and query.under_way is not None:
            self.stale.append(query.under_way)
        query.ingest, query.under_way = None, None

    def _ingest(self, query: Query) -> Ingest:
        if query.ingest is None:
            rules = query.rules
            settings = Settings.of(
                str(self.channel),
                self.schema,
                time="t",
                partition="p",
                policy=self._policy(rules.policy),
                partitions=rules.partitions,
                on_late=rules.on_late,
                max_ahead=rules.ahead,
                domain=self.domain,
                corrections=self.corrections,
                take_over=rules.take_over,
            )
            query.ingest = Ingest(settings)
            query.runs += 1
            query.committed = False
        return query.ingest

    def _policy(self, policy: tuple[Any, ...]) -> Policy:
        kind, *more = policy
        if kind == "idle":
            return idle(self._policy(more[0]), f"{more[1]} milliseconds")
        if kind == "composed":
            return composed({pattern: self._policy(inner) for pattern, inner in more[0]})
        if kind == "heartbeat":
            return heartbeat("flag", self._policy(more[0]) if more[0] else None)
        if kind == "manifest":
            return manifest(str(self._manifest(more[0])), cancelled="flag")
        return {"ordered": ordered, "bounded": bounded, "punctuated": lambda: punctuated("mark")}[kind](*more)

    def plan(
        self, name: str, rows: Sequence[Row], *, tasks: int = 1, wait: int = 0, to_end: bool = True, snapshot: bool = False
    ) -> Attempt:
        """Plan the query's next batch and run its tasks; a batch that is not in yet has the rows that it had."""
        query = self.queries[name]
        self.now += wait
        if query.waiting is None:
            query.waiting = list(rows)
        ingest = self._ingest(query)
        moment = Moment(self.now, f"{name}-{query.runs}", to_end, snapshot)
        self.sync()
        planned = self.spec.plan(self._rules(query.rules))
        settings, start = pickle.loads(pickle.dumps((ingest.settings.for_tasks(), ingest.start())))  # noqa: S301
        attempt = Attempt(name, query.rules, query.batch, query.waiting, ingest, planned, moment, [], self.judge.version)
        for task in range(tasks):
            intake = IngestTask(settings, start, name=f"part-{task}", query=name, batch=query.batch, arrival=1)
            with intake:
                intake.write(self._table(query.waiting[task::tasks]))
                attempt.reports.append(pickle.loads(pickle.dumps(intake.finish())))  # noqa: S301
        query.under_way = attempt
        return attempt

    def commit(self, attempt: Attempt) -> int | None:
        """The end of a batch."""
        planned, run, to_end, snapshot = attempt.moment
        # Planned by the story's clock, not by the machine's.
        reports = [_with(report, planned_ms=planned) for report in attempt.reports]
        moment = ProductMoment(planned, planned, run, to_end, snapshot)
        owner = WriterSession.here(attempt.query)
        before = self.spec.done.get(attempt.query, -1)
        version = attempt.ingest.commit((attempt.query, attempt.batch), reports, owner, moment)
        self.sync(attempt)
        if self.spec.done.get(attempt.query, -1) < attempt.batch:
            self._no_commit(attempt)
        elif before >= attempt.batch:
            assert version is None, f"batch {attempt.batch} of {attempt.query} is in, and was committed again"
        query = self.queries[attempt.query]
        query.committed |= query.ingest is attempt.ingest and before < attempt.batch
        if query.batch == attempt.batch:
            query.last = attempt.rows
            query.batch, query.waiting, query.under_way = attempt.batch + 1, None, None
        return version

    def check_overtaken(self, attempt: Attempt) -> None:
        """A batch was refused because somebody changed what its partitions may write: then somebody did."""
        channel = Channel.open(self.channel)
        was, now = (channel.progress_at(version) for version in (max(attempt.version, 0), channel.version))
        names = {*now.producers, *was.producers}
        own = {n for n in names for s in (was.get(n), now.get(n)) if s and s.owner and s.owner.id == attempt.query}
        own |= {row.partition for row in attempt.rows if row.partition in names}
        changed = was.registrar != now.registrar or any(was.get(name) != now.get(name) for name in own)
        assert changed, f"batch {attempt.batch} of {attempt.query} was overtaken by nobody"

    def _no_commit(self, attempt: Attempt) -> None:
        """A batch ended without a commit: then nothing is new."""
        assert not attempt.rows, f"batch {attempt.batch} of {attempt.query} brought rows, and was not committed"
        after = deepcopy(self.spec)
        self._tell(attempt, after)
        moved = {
            name for name in after.partitions if name not in self.spec.partitions or after.held(name) != self.spec.held(name)
        }
        moved |= {REGISTRAR} if self.spec.registrar != after.registrar else set()
        assert not moved, f"batch {attempt.batch} of {attempt.query} was not committed, but {moved} should have moved"

    def _tell(self, attempt: Attempt, spec: Spec | None = None) -> None:
        (spec or self.spec).commit(
            attempt.query,
            attempt.batch,
            self._rules(attempt.rules),
            attempt.rows,
            attempt.planned,
            attempt.moment,
            self._announcement(attempt.rules),
        )

    def abort(self, attempt: Attempt) -> None:
        """Spark tells a query that its batch failed."""
        attempt.ingest.abort((attempt.query, attempt.batch), attempt.reports)

    def _refusals(self, name: str, rows: Sequence[Row]) -> set[str]:
        """The conditions by which the query's next batch must be refused, if nobody acts meanwhile."""
        self.sync()
        query = self.queries[name]
        rows, rules = query.waiting if query.waiting is not None else rows, self._rules(query.rules)
        fresh = query.ingest is None or not query.committed
        return self.spec.refusals(name, rules, rows, self.spec.plan(rules), fresh=fresh)

    def run(self, name: str, rows: Sequence[Row] = (), **how: Any) -> str | None:
        """A batch from beginning to end, undisturbed; the condition by which it was refused, where it must be."""
        refusals = self._refusals(name, rows)
        try:
            self.commit(self.plan(name, rows, **how))
        except StrandlineError as error:
            self.restart(name)
            self.sync()
            if error.condition not in refusals:
                raise AssertionError(f"{name} is refused, and must not be ({refusals}): {error}") from error
            return error.condition
        assert not refusals, f"{name} must be refused with {refusals}, and was not"
        self.judge.check(published=True)
        return None

    def mend(self, name: str, condition: str | None) -> None:
        """What an operator does about a refusal: settings or the source's rows are put right. A fenced query stays stopped."""
        query = self.queries[name]
        waiting = query.waiting or ()
        partitions = self.spec.partitions
        if condition in ("STRANDLINE_ROW_LATE", "STRANDLINE_ROW_INVALID"):
            self.start(name, query.rules._replace(on_late="setAside"))
        elif condition == "STRANDLINE_PRODUCER_LIVE":
            others = {p for p, known in partitions.items() if known.owner not in (None, name)}
            query.waiting = [row for row in waiting if row.partition not in others]
        elif condition is not None and condition != "STRANDLINE_INGEST_FENCED":
            rules = self._rules(query.rules)
            known = {row.partition for row in waiting if row.partition in partitions and rules.admits(row.partition or "")}
            if not known or any(p not in partitions for p in self.spec.known_beforehand(rules, self._announcement(rules))):
                self.start(name, Rules(("ordered",), take_over=query.rules.take_over))
            query.waiting = [row for row in waiting if row.partition in known]

    def run_disturbed(
        self, name: str, rows: Sequence[Row], fault: Fault, others: Callable[[], None] | None = None, **how: Any
    ) -> bool:
        """A batch while the store fails; whether it was committed and its query knows."""
        attempt: list[Attempt] = []
        refusals = self._refusals(name, rows)

        def meanwhile() -> None:
            self.sync(attempt[0] if attempt else None)
            if others is not None and attempt:
                others()

        with self.faults.armed(fault, meanwhile):
            try:
                attempt.append(self.plan(name, rows, **how))
                self.commit(attempt[0])
                done = True
            except (StrandlineError, OSError) as error:
                known = isinstance(error, StrandlineError) and error.condition in refusals
                if self.faults.struck is None and not known:
                    raise AssertionError(f"{name} failed without a fault, and must not ({refusals}): {error}") from error
                done = False
        self.sync(attempt[0] if attempt else None)
        if not done:
            self.restart(name, keep=True)
        return done

    def replay(self, name: str, other: Sequence[Row] | None = None) -> None:
        """The newest batch of a query comes again, though it is in; with ``other`` rows, if its source does not repeat."""
        query = self.queries[name]
        self.sync()
        if query.waiting is not None or not query.batch or query.batch - 1 != self.spec.done.get(name):
            return
        self.restart(name)
        query.batch, query.waiting = query.batch - 1, list(query.last if other is None else other)
        same = Counter(query.waiting) == Counter(query.last) or query.batch == query.accepted
        version = self.judge.version
        try:
            assert self.commit(self.plan(name, ())) is None
            refused = None
        except StrandlineError as error:
            refused = error.condition
            query.batch, query.waiting = query.batch + 1, None
            self.restart(name)
        assert self.judge.version == version, f"the replay of a batch of {name} was committed"
        if same:
            assert refused in (None, "STRANDLINE_INGEST_FENCED")
            return
        assert refused is not None, f"a batch of {name} came again with other rows, and nobody was told"
        if refused == "STRANDLINE_REPLAY_DIFFERS":
            query.accepted = query.batch - 1
            accept_replay(str(self.channel), name)
            self.sync()
            query.batch, query.waiting = query.batch - 1, list(other or ())
            assert self.commit(self.plan(name, ())) is None

    # ------------------------------------------------------------------------------------------------------- the log

    def sync(self, acting: Attempt | None = None) -> None:
        """Tell the specification what took effect since the last time; ``acting`` is who has committed."""
        for entry in self.judge.news():
            self._take_up(entry, acting)

    def _take_up(self, entry: Entry, acting: Attempt | None) -> None:
        spec = self.spec
        was = spec.frontier if self.judge.version else frozenset([self.minimum])
        ingests = [name for name in entry.transactions if name in self.queries]
        if self.judge.version == 0:
            spec.registrar = self.judge.outside(entry.statements[REGISTRAR].holds)
        for name in ingests:
            assert acting is not None, f"commit {entry.version} is of {name}, which was not running"
            assert (acting.query, acting.batch) == (name, entry.transactions[name]), f"commit {entry.version} is of {name}"
            self._tell(acting)
        if CORRECTIONS in entry.transactions:
            done = entry.statements[CORRECTIONS].state["late"]
            spec.readmit({query: max(newest for _, newest in ranges) for query, ranges in done.items()})
        for name, said in entry.statements.items():
            if name == REGISTRAR or name.startswith("strandline:") or ingests:
                continue
            if name.startswith("w"):
                spec.others[name] = self.judge.outside(said.holds)
            elif name not in spec.partitions:
                founded = frozenset([self.minimum])
                spec.partitions[name] = Partition(None, spec.registrar if entry.version else founded)
            elif ((said.state or {}).get("idle") or {}).get("rejoins") and not spec.partitions[name].rejoins:
                spec.rejoin(name, was_holding=bool(entry.held_before[name]))
            elif (said.state or {}).get("dropped") and not said.holds and not spec.partitions[name].dropped:
                spec.drop(name)
        if not ingests:
            dropped = any(p.dropped for name, p in spec.partitions.items() if name in entry.statements)
            if REGISTRAR in entry.statements and not entry.statements[REGISTRAR].holds:
                spec.registrar = frozenset()
            spec.settle(follow=dropped)
        spec.check_moved(was)
        if ingests and acting is not None:
            self.judge.compare()
            self.judge.check_parking(acting.query, acting.rules.ahead, acting.planned.limit, [time for time, _ in entry.times])

    # ------------------------------------------------------------------------------------------------------- rows and manifests

    def _table(self, rows: Sequence[Row]) -> pa.Table:
        def at(time: Time | None) -> Any:
            return time if time is None or self.total else {"a": time[0], "b": time[1]}

        plain_rows = [(at(row.time), row.partition, row.number, at(row.mark), row.flag) for row in rows]
        return pa.table([pa.array([row[i] for row in plain_rows], f.type) for i, f in enumerate(self.schema)], schema=self.schema)

    def _manifest(self, kind: str) -> Path:
        path = self.folder / f"manifest-{kind}"
        if kind not in self.announced:
            self.announced[kind] = Announcement(
                {}, frozenset([self.minimum]) if kind == "grows" else frozenset(), kind == "grows"
            )
            if kind == "plain":
                self.announce(kind, [])
            else:
                schema = pa.schema([time_field("t", parse_domain(self.domain)), ("p", pa.string()), ("expected", pa.int64())])
                Channel.create(path, schema, time="t", producers=["planner"])
        return path

    def announce(self, kind: str, rows: Sequence[tuple[str, Time, int]], then: Holds | None = None) -> None:
        """Somebody adds to a manifest, or cancels (a negative number); ``then``: what one that grows may still announce."""
        path, known = self._manifest(kind), self.announced[kind]
        full, gone = self._full.setdefault(kind, {}), self._gone.setdefault(kind, {})
        for name, time, n in rows:
            full.setdefault(name, Counter())[time] += max(n, 0)
            gone.setdefault(name, Counter())[time] -= min(n, 0)

        def at(time: Time) -> Any:
            return time if self.total else {"a": time[0], "b": time[1]}

        flat = [(name, time, n, 0) for name, time, n in rows]
        if kind == "plain":
            flat = [(name, time, n, gone[name][time]) for name, times in full.items() for time, n in times.items()]
        columns = {
            "t": pa.array([at(time) for _, time, *_ in flat], self.schema.field("t").type),
            "p": pa.array([name for name, *_ in flat], pa.string()),
            "expected": pa.array([n for _, _, n, _ in flat], pa.int64()),
        }
        if kind == "grows":
            with Channel.open(path).producer("planner") as planner:
                if flat:
                    planner.send(pa.table(columns))
                if then is not None:
                    planner.delay(sorted(then))
        else:
            table = pa.table({**columns, "cancelled": pa.array([n for *_, n in flat], pa.int64())})
            write_deltalake(str(path), table, mode="overwrite")
        left = {name: {time: n - gone[name][time] for time, n in times.items()} for name, times in full.items()}
        self.announced[kind] = Announcement(left, known.still if then is None else then, known.grows)

    def _announcement(self, rules: Rules) -> Announcement | None:
        for kind in ("plain", "grows"):
            if repr(("manifest", kind))[:-1] in repr(rules.policy):
                self._manifest(kind)
                return self.announced[kind]
        return None

    def _rules(self, rules: Rules) -> Rules:
        """A manifest that says all names its partitions, where they are not named otherwise."""
        found = self._announcement(rules)
        if found is not None and not found.grows and rules.partitions is None and not rules.has("composed"):
            return rules._replace(partitions=tuple(found.rows), implied=True)
        return rules

    def expected(self, query: str, name: str) -> Counter[Time]:
        """The rows that are announced for a partition of a query, and have not come."""
        rules = self.queries[query].rules
        said, known = self._announcement(rules), self.spec.partitions.get(name)
        if said is None or rules.of(name)[1][0] != "manifest":
            return Counter()
        left = Counter(
            {time: n for time, n in said.rows.get(name, {}).items() if known is None or beyond(self.spec.held(name), time)}
        )
        return left - (known.came if known is not None and known.came is not None else Counter())

    # ------------------------------------------------------------------------------------------------------- operators

    def drop(self, *names: str) -> None:
        """An operator gives partitions up."""
        drop_partitions(str(self.channel), names)
        self.sync()

    def rejoin(self, name: str) -> None:
        """An operator lets a partition join again."""
        try:
            rejoin_partitions(str(self.channel), [name])
        except IngestError as error:
            if error.condition not in ("STRANDLINE_REJOIN_IMPOSSIBLE", "STRANDLINE_PARTITION_NOT_AHEAD"):
                raise
        self.sync()

    def seal(self) -> None:
        """Nobody may join any more."""
        Channel.open(self.channel).seal()
        self.sync()

    def move(self, name: str, time: Time | None) -> None:
        """A producer that is no ingest's moves on, or (``None``) gives up what it holds."""
        channel = Channel.open(self.channel)
        if name not in self.spec.others and channel.sealed:
            return
        with channel.producer(name) as session:
            if time is None:
                session.drop()
            elif session.holds.less_equal(self.judge.to_channel_time(time)):
                session.delay(self.judge.to_channel_time(time))
        self.sync()

    def upkeep(self, what: str) -> None:
        """What is done to tables in the night."""
        self.sync()
        self.judge.check()
        for path in (self.channel, self.late):
            table = DeltaTable(str(path))
            if what == "vacuum":
                table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
            elif what == "compact":
                table.optimize.compact()
        if what == "clean":
            Channel.open(self.channel).clean_log(timedelta(0))
        self.sync()

    def readmit(self) -> None:
        """An operator brings late rows back."""
        before = len(self.spec.corrections)
        done = readmit(str(self.channel))
        self.sync()
        rows = sum(map(len, self.spec.corrections[before:]))
        assert done.rows == rows, f"readmit says {done.rows} rows, and brought {rows}"
        left = self.spec.to_readmit
        assert not left or self.faults.fault, f"readmit has left {left}"

    def status(self) -> Any:
        """What an operator is told."""
        return status(str(self.channel))


def _with(report: TaskReport, **changes: Any) -> TaskReport:
    return replace(report, **changes)
