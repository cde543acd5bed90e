"""What is known of one query: its newest batches, what waits for it, and before its first batch what logs and checkpoint say."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pyspark_strandline.report.output_logs import Moved, OutputLogs
from pyspark_strandline.report.stages import DRIVER, batch_report, source_name, source_output
from pyspark_strandline.report.unread import UnreadWork, Work
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.report.progress import Level, ProgressReport, State, TransformProgress
from strandline.time.antichain import Antichain
from strandline.time.domain import parse_domain, timestamp

__all__ = ["QueryProgress", "nothing"]

_OPENED = "query"
"""The transform for all that a query does, before a batch has shown its stages."""

_NOT_READ = "not read yet"
"""The transform of which nothing is known: what takes in a source that no batch has read."""

Facts = Mapping[str, Any]


class QueryProgress:
    """What is known of one query.

    Attributes:
        id: The query's id.
        name: Its name; empty if it has none.
        label: How monitoring systems call it: by its name, or by that of a producer that a user has chosen, or by its id.
        run: The id of its newest run.
        began: When the run began, in seconds since 1970.
        is_running: Whether it runs.
        error: Why it has ended, if it has ended with an error.
        is_opening: Whether it is not known yet what logs and checkpoint say.
        failures: How many reports could not be made.
        newest: The report of the newest batch, without its operators.
        opened: What is known of a query that has had no batch yet.
    """

    def __init__(self, query: str, name: str, window: int, storage: Mapping[str, str] | None, began: float = 0.0) -> None:
        self.id, self.name = query, name
        self.label = name or query
        self.run, self.began = "", began
        self.is_running, self.is_opening, self.failures = True, False, 0
        self.error: str | None = None
        self.newest: ProgressReport | None = None
        self.opened: ProgressReport | None = None
        self._full: Callable[[], ProgressReport] | ProgressReport | None = None
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._kept: dict[frozenset[str], deque[ProgressReport]] = {}
        """The newest batches that have read the same sources, those with the newest batch last."""
        self._first: ProgressReport | None = None
        self._window, self._storage = window, storage
        self._sources: Sequence[Facts] = []
        self._unread, self._taken = UnreadWork(storage), UnreadWork(storage)
        self._outputs: OutputLogs | None = None
        self._earlier: ProgressReport | None = None

    @property
    def current(self) -> ProgressReport | None:
        """The report of the newest batch, or what is known of a query without one."""
        return self.newest or self.opened

    @property
    def paths(self) -> Mapping[str, str]:
        """The path of each output, if they are known; otherwise nothing."""
        return {} if self._outputs is None else self._outputs.paths

    # ---- what happens ----------------------------------------------------------------------------------------------------

    def begin(self, run: str, began: float) -> None:
        """A run of the query has begun."""
        if run != self.run:
            self.run, self.began = run, began
            self.is_opening = self.newest is None
            self._outputs = None
        self.is_running, self.error = True, None

    def end(self, error: str | None) -> None:
        """The run has ended."""
        self.is_running, self.is_opening, self.error = False, False, error

    def open(self, facts: Facts, level: Level) -> dict[str, Moved]:
        """Learn what a query's checkpoint and output channels say. Returns the frontier of each output, and when it moved."""
        self.is_opening = False
        if level is Level.NONE:
            self.opened = nothing(self.id, self.name)
            return {}
        moved = self.outputs(facts["sink"]).moved()
        if not moved and facts["batch"] < 0 and (least := self._least(facts)) is not None:
            moved = {"rows": Moved(least, self.began)}  # nothing is closed, and nothing has moved since the query began
        transforms = {}
        for number, source in enumerate(facts["sources"]):
            frontier = _stated(source)
            transforms[source_name(number, len(facts["sources"]))] = TransformProgress(
                output_elements_produced={"rows": 0}, frontiers={} if frontier is None else {"rows": frontier}
            )
        transforms[_OPENED] = TransformProgress(
            inputs={name: (name, "rows") for name in transforms},
            output_elements_produced={"rows": 0},
            frontiers={output: each.frontier for output, each in moved.items()},
            detail="no batch has ended since the query was started",
        )
        at, outputs = int(self.began * 1000), self.outputs(facts["sink"])
        with self._lock:
            self.opened = ProgressReport(
                self.id,
                self.run,
                self.name,
                facts["batch"],
                State.COMMITTED,
                level,
                at,
                transforms,
                batches=0,
                set_aside=outputs.set_aside(),
                only_aside=outputs.only_aside(),
            )
            if self.newest is None:
                self._sources = facts["sources"]
        return moved

    def add(self, facts: dict[str, Any], duration_ms: float, level: Level) -> ProgressReport:
        """Make the report of a batch that has committed."""
        if level is Level.NONE:
            self.newest = self._full = nothing(self.id, self.name)
            return self.newest
        taken = [self._taken.within(source) for source in facts["sources"]] if facts["sink"].get("v1") else []
        outputs = self.outputs(facts["sink"])
        frontiers = outputs.frontiers() if outputs.is_ingest else {}
        set_aside, only_aside = outputs.set_aside(), outputs.only_aside()

        def made(*, operators: bool) -> ProgressReport:
            report = batch_report(facts, self.name, level, duration_ms, taken, frontiers, operators=operators)
            return replace(report, set_aside=set_aside, only_aside=only_aside)

        report = made(operators=False)
        read = frozenset(parent for each in report.transforms.values() for parent, _ in each.inputs.values())
        with self._lock:
            kept = self._kept.pop(read, None) or deque(maxlen=self._window)
            if kept and (kept[-1].run != report.run or kept[-1] is self._first):
                kept.clear()  # the first batch of a run is no measure, as soon as there is another
            if self.newest is None or self.newest.run != report.run:
                self._first = report
            kept.append(report)
            self._kept[read] = kept
            self.newest, self._sources = report, facts["sources"]
            self._full = lambda: made(operators=True)
        return report

    # ---- what is asked ---------------------------------------------------------------------------------------------------

    def full(self) -> ProgressReport | None:
        """Return the report of the newest batch with its operators. It is made when somebody asks for it first."""
        with self._lock:
            if callable(self._full):
                self._full = self._full()
            return self._full

    def with_waiting(self) -> ProgressReport | None:
        """Return the newest batches together, with what waits. An earlier answer if another thread is reading the logs.

        If there is none, what waits is not known. ``None``: nothing is known of the query.
        """
        if not self._reading.acquire(blocking=False):
            current = self._earlier or self.current
            if current is None or current.state is State.QUERY:
                return current
            return _with_waiting(current, {name: Work(None, 0) for name in current.transforms if name.startswith("source")})
        try:
            with self._lock:
                newest, sources, kept = self.current, self._sources, [list(each) for each in self._kept.values()]
            if newest is None or newest.level is Level.NONE:
                return newest
            waiting = {source_name(n, len(sources)): self._unread.after(source) for n, source in enumerate(sources)}
            self._earlier = _with_waiting(_measure(newest, kept, waiting), waiting)
            return self._earlier
        finally:
            self._reading.release()

    # ---- the logs --------------------------------------------------------------------------------------------------------

    def outputs(self, sink: Facts) -> OutputLogs:
        """Return the channels into which the run writes.

        Args:
            sink: What the shim says of the query's sink.
        """
        if self._outputs is None:
            self._outputs = OutputLogs(self.id, sink, self._storage)
        return self._outputs

    def _least(self, facts: Facts) -> Antichain | None:
        """Return the frontier of a query that has done nothing: that of its input, or of an ingest. ``None``: it has no times."""
        for source in facts["sources"]:
            options = {key.lower(): value for key, value in source["options"].items()}
            several = list(json.loads(options.get("channels", "{}")).values())
            for path in [options.get("path"), *several]:
                with suppress(StrandlineError, OSError):
                    if path is not None and source["channels"]:
                        return Antichain.least(Channel.open(path, self._storage).domain)
        return Antichain.least(timestamp) if self.outputs(facts["sink"]).is_ingest else None


def nothing(query: str, name: str) -> ProgressReport:
    """Return the report of a query of which nothing is to be reported."""
    return ProgressReport.nothing(query, "the level of this query is none", name=name)


def _stated(source: Facts) -> Antichain | None:
    """Return the frontier in a source's offset."""
    if not source["channels"] or source["end"] is None:
        return None
    try:
        offset = json.loads(source["end"])
        return Antichain.from_json(parse_domain(offset["domain"]), offset["frontier"])
    except (StrandlineError, ValueError, KeyError, TypeError):
        return None


def _measure(newest: ProgressReport, kept: Sequence[list[ProgressReport]], waiting: Mapping[str, Work]) -> ProgressReport:
    """Return the batches from which averages are taken, as one: the newest ones that have read all sources in which rows wait.

    Spark takes a source without new rows out of a batch's plan. So such a batch does not show what takes the source in. If no
    batch shows it, that is a part of the query of which nothing is known.
    """
    wanted = {name for name, work in waiting.items() if work.rows != 0}
    for batches in reversed(kept):
        report = ProgressReport.together(batches)
        if wanted <= _read(report):
            timed = _with_times_of(report, ProgressReport.together(kept[-1]))
            return replace(report, transforms=timed, batch=newest.batch, at=newest.at)
    report = ProgressReport.together(kept[-1]) if kept else newest
    unseen = {name: each for name, each in report.transforms.items() if name in wanted - _read(report)}
    if not unseen:
        return report
    inputs = {name: (name, output) for name, each in unseen.items() for output in each.outputs}
    inputs |= {name: (name, source_output("")) for name, each in unseen.items() if not each.outputs}
    missing = TransformProgress(inputs=inputs, unreported="no batch has read its input yet")
    return replace(report, transforms={**report.transforms, _NOT_READ: missing})


def _with_times_of(report: ProgressReport, newest: ProgressReport) -> dict[str, TransformProgress]:
    """Return the transforms of a report with the times that the newest batches took for as much, where they did the same work.

    So what only an old batch shows, which may be a run's slow first one, is measured by it, and nothing else is.
    """
    found = dict(report.transforms)
    for name, each in report.transforms.items():
        other = newest.transforms.get(name)
        if other is None or set(other.inputs.values()) != set(each.inputs.values()) or other.total_time_spent is None:
            continue
        amounts = [one.consumed() if one.inputs else sum(map(one.output_so_far, one.outputs)) for one in (each, other)]
        if all(amounts):
            spent = other.total_time_spent * amounts[0] / amounts[1]
            found[name] = replace(each, total_time_spent=spent, workers=other.workers)
    return found


def _read(report: ProgressReport) -> set[str]:
    return {parent for each in report.transforms.values() for parent, _ in each.inputs.values()}


def _with_waiting(report: ProgressReport, waiting: Mapping[str, Work]) -> ProgressReport:
    """Return the report with what waits. A source of which that is not known is unreported, and so no backlog is known."""
    counts: dict[str, dict[str, int]] = {}
    transforms, batches = dict(report.transforms), 0
    for name, work in waiting.items():
        each = transforms.get(name)
        if each is None:
            continue
        if work.rows is None:
            why = "what waits in it is not known: it is no channel, its log cannot be read, or nobody has counted yet"
            transforms[name] = TransformProgress(inputs=each.inputs, unreported=why, detail=each.detail)
        else:
            by_output = {source_output(channel): rows for channel, rows in work.channels.items()}
            counts[name] = {output: by_output.get(output, work.rows) for output in each.outputs}
            batches = max(batches, work.batches)
    if DRIVER in transforms:
        counts[DRIVER] = {"batches": batches}
    return replace(report, transforms=transforms).with_waiting(counts)
