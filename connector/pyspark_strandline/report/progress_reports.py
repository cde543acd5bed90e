"""Progress reports of the streaming queries of a session: of running batches, of committed ones, and of queries."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.java_gateway import JavaClass

from pyspark_strandline.report.stages import DRIVER, batch_report, source_name, source_output
from pyspark_strandline.report.unread import UnreadWork
from strandline.errors import StrandlineError
from strandline.report.progress import (
    FrontierClock,
    Level,
    ProgressReport,
    State,
    TransformProgress,
    backlog_seconds,
    catch_up_seconds,
    figures,
)
from strandline.report.progress.metrics import Figure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["ProgressReports"]

T = TypeVar("T")

_LATER = 1 << 62
"""A number of news that is not reached."""

_LOG = logging.getLogger("strandline.progress")


class ProgressReports:
    """Progress reports of a session's streaming queries. Use it in a ``with`` block, or call :meth:`start` and :meth:`stop`.

    The shim listens to Spark's listener bus, on whose threads no batch waits. A thread asks it for news. A report is made from
    these and from the channels' logs. If another thread is reading the logs for a query, its earlier answer is served.

    Each committed batch is logged by the logger ``strandline.progress`` (level INFO).

    Args:
        spark: The session. It has the extension (:func:`pyspark_strandline.configure`).
        level: How much is reported: ``none``, ``minimal`` (rows and frontiers) or ``advanced`` (also times, hence backlogs).
        levels: Other levels for single queries, by the query's name or id.
        window: Over how many of the newest batches a query's averages are taken. The first batch of a run is left out as soon as
            there is another: Spark starts workers and compiles code in it.
        storage: The options of the storage of the channels, as :meth:`strandline.channel.Channel.open` takes them.
        interval: How often the thread asks for news, in seconds. Each call here asks too.

    Raises:
        StrandlineError: ``STRANDLINE_EXTENSION_MISSING``, or ``STRANDLINE_OPTION_INVALID`` for another level or window.
    """

    def __init__(
        self,
        spark: SparkSession,
        level: Level | str = Level.ADVANCED,
        *,
        levels: Mapping[str, Level | str] | None = None,
        window: int = 5,
        storage: Mapping[str, str] | None = None,
        interval: float = 1.0,
    ) -> None:
        self._spark: Any = spark
        self._level = _level(level)
        self._levels = {name: _level(each) for name, each in (levels or {}).items()}
        if type(window) is not int or window < 1:
            raise StrandlineError(
                "STRANDLINE_OPTION_INVALID", f"window is {window!r}, not a number of batches.", "Give 1 or more."
            )
        self._window = window
        self._shim = _shim(spark)
        self._lock = threading.Lock()
        self._queries: dict[str, _Query] = {}
        self._storage = storage
        self._clock = FrontierClock()
        self._collects = any(each is not Level.NONE for each in (self._level, *self._levels.values()))
        self._interval = interval
        self._asking = threading.Lock()
        self._next = 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.on_batch: list[Callable[[ProgressReport], None]] = []
        """Called with the report of each batch that has committed, without its operators, on the thread that asked first."""
        self.on_end: list[Callable[[str], None]] = []
        """Called with the label of a query that has ended."""

    def start(self) -> ProgressReports:
        """Begin to collect. Batches that have ended before are not reported. After :meth:`stop` it begins again."""
        if self._collects:
            detailed = Level.ADVANCED in (self._level, *self._levels.values())
            self._shim.start(self._spark._jsparkSession, detailed)
        self._next = json.loads(self._shim.news(self._spark._jsparkSession, _LATER))["next"]
        self._stopped.clear()
        self._thread = threading.Thread(target=self._run, name="strandline-progress", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End collecting. The reports that were made remain."""
        if self._thread is None:
            return
        self._stopped.set()
        self._thread.join()
        self._thread = None
        with suppress(Exception):  # the session may have ended before
            self._ask()
            if self._collects:
                self._shim.stop(self._spark._jsparkSession)

    def __enter__(self) -> ProgressReports:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    # ---- reports ---------------------------------------------------------------------------------------------------------

    def level_of(self, query: str, name: str = "") -> Level:
        """Return how much is reported of a query."""
        return self._levels.get(name, self._levels.get(query, self._level))

    def running(self, query: StreamingQuery) -> ProgressReport | None:
        """Return the report of the batch that a query runs now; ``None`` between batches. Its frontiers are tentative."""
        name = query.name or ""
        level = self.level_of(query.id, name)
        if level is Level.NONE:
            return _nothing(query.id, name)
        text = self._shim.running(self._spark._jsparkSession, query.id)
        if text is None:
            return None
        facts = json.loads(text)
        unread = UnreadWork(self._storage)
        return batch_report(facts, name, level, taken=[unread.within(source) for source in facts["sources"]])

    def committed(self, query: StreamingQuery | str) -> ProgressReport | None:
        """Return the report of a query's newest committed batch; ``None`` before the first."""
        known = self._known(query)
        return None if known is None else known.full()

    def report(self, query: StreamingQuery) -> ProgressReport:
        """Return the report of a query's running batch, or else of its newest committed one, or that nothing is reported."""
        found = self.running(query) or self.committed(query)
        return found or ProgressReport.nothing(query.id, "no batch of this query has been seen yet", name=query.name or "")

    def of_query(self, query: StreamingQuery | str) -> ProgressReport | None:
        """Return the report of a query: its newest batches together, and what waits for it in its channels' logs. No operators.

        :func:`strandline.report.progress.backlog_seconds` and ``catch_up_seconds`` of its transforms are the query's. ``None``
        before its first batch.
        """
        known = self._known(query)
        return None if known is None else known.with_waiting()

    def labels(self) -> list[str]:
        """Return the queries that have reports: by name, or by id if they have none."""
        self._ask()
        with self._lock:
            return sorted(each.label for each in self._queries.values() if each.newest is not None)

    def figures(self) -> dict[str, list[Figure]]:
        """Return the values of all metrics now, by query (:data:`strandline.report.progress.METRICS`)."""
        self._ask()
        with self._lock:
            every = list(self._queries.values())
        found = {}
        now = time.time()
        for known in every:
            if known.newest is not None:
                moved = self._clock.moved(known.newest, now)
                found[known.label] = list(figures(known.newest, known.with_waiting() or known.newest, now=now, moved=moved))
        return found

    # ---- news of the shim ------------------------------------------------------------------------------------------------

    def _known(self, query: StreamingQuery | str) -> _Query | None:
        key = query if isinstance(query, str) else query.id
        self._ask()
        with self._lock:
            return self._queries.get(key) or next((each for each in self._queries.values() if each.label == key), None)

    def forget(self, query: StreamingQuery | str) -> None:
        """Forget the reports of a query. Monitoring systems then have no figures of it."""
        key = query if isinstance(query, str) else query.id
        with self._lock:
            for id_ in [id_ for id_, each in self._queries.items() if key in (id_, each.label)]:
                del self._queries[id_]
                self._clock.forget(id_)

    def _run(self) -> None:
        while not self._stopped.wait(self._interval) and not self._spark._jsc.sc().isStopped():
            self._ask()

    def _ask(self) -> None:
        """Take what is new. If another thread does so, nothing waits for it."""
        if not self._asking.acquire(blocking=False):
            return
        try:
            answer = json.loads(self._shim.news(self._spark._jsparkSession, self._next))
            self._next = answer["next"]
            made: list[tuple[str, ProgressReport | None]] = []
            for each in answer["news"]:
                if "terminated" in each:
                    made.append((each["terminated"], None))
                else:
                    facts, name = each["facts"], each["name"] or ""
                    known = self._queries.get(facts["query"]) or _Query(facts["query"], name, self._window, self._storage)
                    made.append((known.id, known.add(facts, each["ms"], self.level_of(known.id, name))))
                    with self._lock:
                        self._queries[known.id] = known
        finally:
            self._asking.release()
        for query, report in made:
            if report is not None:
                self._tell(self._queries[query], report)
            elif query in self._queries:
                for end in self.on_end:
                    _guarded(end, self._queries[query].label)

    def _tell(self, known: _Query, report: ProgressReport) -> None:
        if report.level is Level.NONE:
            return
        self._clock.moved(report, report.at / 1000)
        if _LOG.isEnabledFor(logging.INFO):
            _LOG.info("%s", _line(known, report))
        for each in self.on_batch:
            _guarded(each, report)


class _Query:
    """What is known of one query."""

    def __init__(self, query: str, name: str, window: int, storage: Mapping[str, str] | None) -> None:
        self.id, self.name = query, name
        self.label = name or query
        self.newest: ProgressReport | None = None
        """The report of the newest batch, without its operators."""
        self._full: Callable[[], ProgressReport] | ProgressReport | None = None
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._batches: deque[ProgressReport] = deque(maxlen=window)
        self._run = ""
        self._warm = False
        self._sources: list[Mapping[str, Any]] = []
        self._unread = UnreadWork(storage)
        self._earlier: ProgressReport | None = None

    def add(self, facts: dict[str, Any], duration_ms: float, level: Level) -> ProgressReport:
        """Make the report of a batch that has committed."""
        if level is Level.NONE:
            self.newest = self._full = _nothing(self.id, self.name)
            return self.newest
        report = batch_report(facts, self.name, level, duration_ms, operators=False)
        with self._lock:
            if report.run != self._run:
                self._run, self._warm = report.run, False
                self._batches.clear()
            elif not self._warm:
                self._warm = True
                self._batches.clear()
            self._batches.append(report)
            self.newest, self._sources = report, facts["sources"]
            self._full = lambda: batch_report(facts, self.name, level, duration_ms)
        return report

    def full(self) -> ProgressReport | None:
        """Return the report of the newest batch with its operators. It is made when somebody asks for it first."""
        with self._lock:
            if callable(self._full):
                self._full = self._full()
            return self._full

    def with_waiting(self) -> ProgressReport | None:
        """Return the newest batches together, with what waits. An earlier answer if another thread is reading the logs."""
        if not self._reading.acquire(blocking=False):
            return self._earlier
        try:
            with self._lock:
                batches, sources = list(self._batches), self._sources
            if not batches:
                return self.newest
            report = ProgressReport.together(batches)
            waiting, rounds, known = {}, 0, True
            for number, source in enumerate(sources):
                work = self._unread.after(source)
                if work.rows is None:
                    known = False
                else:
                    name = source_name(number, len(sources))
                    by_output = {source_output(channel): rows for channel, rows in work.channels.items()}
                    outputs = report.transforms[name].outputs
                    waiting[name] = {output: by_output.get(output, work.rows) for output in outputs}
                    rounds = max(rounds, work.batches)
            self._earlier = _waiting(report, waiting, rounds) if known else _unknown(report)
            return self._earlier
        finally:
            self._reading.release()


def _waiting(report: ProgressReport, rows: dict[str, dict[str, int]], batches: int) -> ProgressReport:
    first = {name: counts for name, counts in rows.items() if name in report.transforms}
    if DRIVER in report.transforms:
        first[DRIVER] = {"batches": batches}
    return report.with_waiting(first)


def _unknown(report: ProgressReport) -> ProgressReport:
    """Return the report with its sources unreported: what waits in them is not known, so no backlog is."""
    why = "its log does not say how many rows wait, or cannot be read"
    transforms = {
        name: TransformProgress(inputs=each.inputs, unreported=why, detail=each.detail) if name.startswith("source") else each
        for name, each in report.transforms.items()
    }
    return replace(report, transforms=transforms, state=State.QUERY)


def _guarded(function: Callable[[T], None], value: T) -> None:
    """Call a user's function. If it raises, that is logged, and reports go on."""
    try:
        function(value)
    except Exception:
        _LOG.exception("%r raised on a progress report", function)


def _nothing(query: str, name: str) -> ProgressReport:
    return ProgressReport.nothing(query, "the level of this query is none", name=name)


def _level(value: Level | str) -> Level:
    try:
        return Level(value)
    except ValueError:
        raise StrandlineError(
            "STRANDLINE_OPTION_INVALID",
            f"The level is {str(value)[:100]!r}.",
            f"Give one of {', '.join(each.value for each in Level)}.",
        ) from None


def _shim(spark: Any) -> Any:
    shim = spark._jvm.strandline.spark.progress.Progress
    if not isinstance(shim, JavaClass):  # a name that the JVM does not know is a package
        raise StrandlineError(
            "STRANDLINE_EXTENSION_MISSING",
            "The Spark session does not have the strandline extension, so it makes no progress reports.",
            "Build the session with pyspark_strandline.configure(builder), or pass the shim's jar with --jars "
            '"$(python -m pyspark_strandline jar)".',
        )
    return shim


def _line(known: _Query, report: ProgressReport) -> str:
    """Return what is logged of a batch."""
    now = known.with_waiting() or report
    shown = {
        each.name.removeprefix("strandline_"): each.value
        for each in figures(report, now, now=time.time(), moved=report.at / 1000)
    }
    values = [
        ("waiting rows", shown.get("waiting_rows")),
        ("backlog s", backlog_seconds(now.transforms)),
        ("catch-up s", catch_up_seconds(now.transforms)),
        ("frontier lag s", shown.get("frontier_lag_seconds")),
    ]
    said = ", ".join(f"{name} {'unknown' if value is None else f'{value:.3g}'}" for name, value in values)
    return f"query {known.label}, batch {report.batch}: {said}"
