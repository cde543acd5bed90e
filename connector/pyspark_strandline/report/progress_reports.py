"""Progress reports of the streaming queries of a session: of running batches, of committed ones, and of queries."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.java_gateway import JavaClass

from pyspark_strandline.report import errors
from pyspark_strandline.report.output_logs import OutputLogs
from pyspark_strandline.report.query_progress import QueryProgress, nothing
from pyspark_strandline.report.stages import batch_report
from pyspark_strandline.report.unread import UnreadWork
from strandline.report.progress import (
    FrontierClock,
    Level,
    ProgressReport,
    backlog_seconds,
    catch_up_seconds,
    figures,
)
from strandline.report.progress.metrics import PREFIX, Figure

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
            raise errors.option_invalid_window(window)
        self._window = window
        self._shim = _shim(spark)
        self._lock = threading.Lock()
        self._queries: dict[str, QueryProgress] = {}
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
        began = [self._learn(each)[0] for each in json.loads(self._shim.started(self._spark._jsparkSession))]
        for known in self._queries.values():
            known.is_running = known in began
        self._stopped.clear()
        self._thread = threading.Thread(target=self._run, name="strandline-progress", daemon=True)
        self._thread.start()
        return self

    @property
    def is_started(self) -> bool:
        """Whether it collects."""
        return self._thread is not None

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
            return nothing(query.id, name)
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
        found = self.running(query) or self.committed(query) or self.of_query(query)
        return found or ProgressReport.nothing(query.id, "no batch of this query has been seen yet", name=query.name or "")

    def of_query(self, query: StreamingQuery | str) -> ProgressReport | None:
        """Return the report of a query: its newest batches together, and what waits for it in its channels' logs. No operators.

        :func:`strandline.report.progress.backlog_seconds` and ``catch_up_seconds`` of its transforms are the query's. Before the
        first batch of a driver it has what the output channel and the checkpoint say, and no times. ``None``: nothing is known.
        """
        known = self._known(query)
        return None if known is None else known.with_waiting()

    def is_running(self, query: StreamingQuery | str) -> bool:
        """Return whether a query runs, by its name or id. One that has ended, and one that is not known, does not."""
        known = self._find(query)
        return known is not None and known.is_running

    def error(self, query: StreamingQuery | str) -> str | None:
        """Return why a query has ended, by its name or id; ``None`` if it runs, or was stopped without an error."""
        known = self._find(query)
        return None if known is None else known.error

    def labels(self) -> list[str]:
        """Return the queries that have reports: by their labels (:attr:`QueryProgress.label`)."""
        self._ask()
        with self._lock:
            return sorted(each.label for each in self._queries.values() if each.current is not None or each.is_opening)

    def figures(self) -> dict[str, list[Figure]]:
        """Return the values of all metrics now, by query (:data:`strandline.report.progress.METRICS`).

        A query has them from its start, also while it has no batch, and until it is forgotten.
        """
        self._ask()
        with self._lock:
            every = list(self._queries.values())
        now = time.time()
        return {known.label: self._figures_of(known, now) for known in every}

    def _figures_of(self, known: QueryProgress, now: float) -> list[Figure]:
        try:
            return self._all_figures_of(known, now)
        except Exception:  # one query must not take the figures of all others away
            self._failed(known, "its figures")
            return [Figure(f"{PREFIX}{name}", value) for name, value in _states(known).items()]

    def _all_figures_of(self, known: QueryProgress, now: float) -> list[Figure]:
        current, states = known.current, _states(known)
        if current is None:
            current = ProgressReport.nothing(known.id, "the query is making its sources", name=known.name)
            if self.level_of(known.id, known.name) is not Level.NONE:
                states["frontier_lag_seconds"] = max(0.0, now - known.began)
        moved = self._clock.moved(current, now)
        return list(figures(current, known.with_waiting() or current, now=now, moved=moved, more=states))

    # ---- news of the shim ------------------------------------------------------------------------------------------------

    def _known(self, query: StreamingQuery | str) -> QueryProgress | None:
        self._ask()
        return self._find(query)

    def _find(self, query: StreamingQuery | str) -> QueryProgress | None:
        key = query if isinstance(query, str) else query.id
        with self._lock:
            return self._queries.get(key) or next((each for each in self._queries.values() if each.label == key), None)

    def _query(self, query: str, name: str, began: float = 0.0) -> QueryProgress:
        """Return what is known of a query."""
        with self._lock:
            known = self._queries.get(query)
            if known is not None:
                return known
            known = QueryProgress(query, name, self._window, self._storage, began)
            self._call(known, known.label)
            self._queries[query] = known
            return known

    def _call_by_producer(self, known: QueryProgress, sink: Mapping[str, Any]) -> None:
        """Call a query without a name as ``why`` and the page do. Its producer is known once its sources are made."""
        outputs = known.outputs(sink)
        if outputs.producer is not None and known.label == known.id:
            with self._lock:
                self._call(known, outputs.producer, outputs)

    def _call(self, known: QueryProgress, label: str, outputs: OutputLogs | None = None) -> None:
        """Give a query a label. One that has ended is forgotten when another one takes its name.

        ``outputs``: Only if it had the same ones, because the queries of several channels may have the same producer.
        """
        known.label = label
        for other in [each for each in self._queries.values() if each is not known and each.label == label]:
            if other.is_running or (outputs is not None and other.paths != outputs.paths):
                known.label = f"{label} {known.id}"
            else:
                del self._queries[other.id]
                self._clock.forget(other.id)

    def forget(self, query: StreamingQuery | str) -> None:
        """Forget the reports of a query. Monitoring systems then have no figures of it."""
        key = query if isinstance(query, str) else query.id
        with self._lock:
            for id_ in [id_ for id_, each in self._queries.items() if key in (id_, each.label)]:
                del self._queries[id_]
                self._clock.forget(id_)

    def _run(self) -> None:
        while not self._stopped.wait(self._interval) and not self._spark._jsc.sc().isStopped():
            self._try_ask()

    def _try_ask(self) -> None:
        try:
            self._ask()
        except Exception:  # the thread is that of all queries
            _LOG.exception("progress reports could not ask for news")

    def _ask(self) -> None:
        """Take what is new. If another thread does so, nothing waits for it."""
        if not self._asking.acquire(blocking=False):
            return
        try:
            answer = json.loads(self._shim.news(self._spark._jsparkSession, self._next))
            self._next = answer["next"]
            made = [self._learn(each) for each in answer["news"]]
            with self._lock:
                opening = [each for each in self._queries.values() if each.is_opening]
            for known in opening:
                self._open(known)
        finally:
            self._asking.release()
        for known, report in made:
            if report is not None:
                self._tell(known, report)
            elif not known.is_running:
                for end in self.on_end:
                    _guarded(end, known.label)

    def _learn(self, news: Mapping[str, Any]) -> tuple[QueryProgress, ProgressReport | None]:
        """Take one piece of news. What cannot be understood is logged and counted, and takes nothing else with it."""
        if "started" in news:
            known = self._query(news["started"], news["name"] or "", news["at"] / 1000)
            known.begin(news["run"], news["at"] / 1000)
            return known, None
        if "terminated" in news:
            known = self._query(news["terminated"], "")
            if known.is_opening and news["opened"] is not None:
                self._open(known, news["opened"])
            known.end(news["error"])
            if known.error is not None:
                _LOG.error("query %s has ended with an error: %s", known.label, known.error.strip().split("\n")[0])
            return known, None
        facts, name = news["facts"], news["name"] or ""
        known = self._query(facts["query"], name)
        if known.is_opening:
            self._open(known)
        try:
            self._call_by_producer(known, facts["sink"])
            return known, known.add(facts, news["ms"], self.level_of(known.id, name))
        except Exception:
            self._failed(known, f"its batch {facts.get('batch')}")
            return known, None

    def _open(self, known: QueryProgress, facts: Mapping[str, Any] | None = None) -> None:
        """Learn what logs and checkpoint say of a query that has no batch yet, if it is known by now."""
        try:
            if facts is None:
                text = self._shim.opened(self._spark._jsparkSession, known.id)
                if text is None:
                    return
                facts = json.loads(text)
            self._call_by_producer(known, facts["sink"])
            for output, (frontier, moved) in known.open(facts, self.level_of(known.id, known.name)).items():
                self._clock.begin(known.id, output, frontier, moved)
        except Exception:
            known.is_opening = False
            self._failed(known, "its start")

    def _failed(self, known: QueryProgress, what: str) -> None:
        known.failures += 1
        _LOG.exception("no progress report of query %s: %s", known.label, what)

    def _tell(self, known: QueryProgress, report: ProgressReport) -> None:
        if report.level is Level.NONE:
            return
        try:
            self._log(known, report)
        except Exception:
            self._failed(known, f"the line of its batch {report.batch} in the log")
        for each in self.on_batch:
            _guarded(each, report)

    def _log(self, known: QueryProgress, report: ProgressReport) -> None:
        moved = self._clock.moved(report, report.at / 1000)
        if _LOG.isEnabledFor(logging.INFO):
            _LOG.info("%s", _line(known, report, moved))


def _states(known: QueryProgress) -> dict[str, float]:
    """Return the figures of a query that no report has."""
    return {
        "query_running": float(known.is_running),
        "query_failed": float(known.error is not None),
        "failed_reports_total": float(known.failures),
    }


def _guarded(function: Callable[[T], None], value: T) -> None:
    """Call a user's function. If it raises, that is logged, and reports go on."""
    try:
        function(value)
    except Exception:
        _LOG.exception("%r raised on a progress report", function)


def _level(value: Level | str) -> Level:
    try:
        return Level(value)
    except ValueError:
        raise errors.option_invalid_level(value, Level) from None


def _shim(spark: Any) -> Any:
    shim = spark._jvm.strandline.spark.progress.Progress
    if not isinstance(shim, JavaClass):  # a name that the JVM does not know is a package
        raise errors.extension_missing_for_reports()
    return shim


def _line(known: QueryProgress, report: ProgressReport, moved: Mapping[str, float]) -> str:
    """Return what is logged of a batch."""
    now = known.with_waiting() or report
    shown = {each.name.removeprefix("strandline_"): each.value for each in figures(report, now, now=time.time(), moved=moved)}
    values = [
        ("waiting rows", shown.get("waiting_rows")),
        ("backlog s", backlog_seconds(now.transforms)),
        ("catch-up s", catch_up_seconds(now.transforms)),
        ("frontier lag s", shown.get("frontier_lag_seconds")),
    ]
    said = ", ".join(f"{name} {'unknown' if value is None else f'{value:.3g}'}" for name, value in values)
    return f"query {known.label}, batch {report.batch}: {said}"
