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
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass

from pyspark_strandline.report.listener import BatchListener
from pyspark_strandline.report.stages import DRIVER, batch_report, source_name
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

_LOG = logging.getLogger("strandline.progress")

_MOST_PENDING = 100


class ProgressReports:
    """Progress reports of a session's streaming queries. Use it in a ``with`` block, or call :meth:`start` and :meth:`stop`.

    It listens to Spark's listener bus, on whose threads no batch waits. A report is made from what the shim has collected and
    from the channels' logs. If another thread is reading the logs for a query, its earlier answer is served.

    Each committed batch is logged by the logger ``strandline.progress`` (level INFO).

    Args:
        spark: The session. It has the extension (:func:`pyspark_strandline.configure`).
        level: How much is reported: ``none``, ``minimal`` (rows and frontiers) or ``advanced`` (also times, hence backlogs).
        levels: Other levels for single queries, by the query's name or id.
        window: Over how many of the newest batches a query's averages are taken. The first batch of a run is left out as soon as
            there is another: Spark starts workers and compiles code in it.
        storage: The options of the storage of the channels, as :meth:`strandline.channel.Channel.open` takes them.

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
        self._listener = BatchListener(self._committed, self._terminated)
        self.on_batch: list[Callable[[ProgressReport], None]] = []
        """Called with the report of each batch that has committed, on the listener's thread."""
        self.on_end: list[Callable[[str], None]] = []
        """Called with the label of a query that has ended."""

    def start(self) -> ProgressReports:
        """Begin to collect. Batches that have ended before are not reported."""
        if any(level is not Level.NONE for level in (self._level, *self._levels.values())):
            detailed = Level.ADVANCED in (self._level, *self._levels.values())
            self._shim.start(self._spark._jsparkSession, detailed)
        self._spark.streams.addListener(self._listener)
        return self

    def stop(self) -> None:
        """End collecting. The reports that were made remain."""
        with suppress(Exception):  # the session may have ended before
            self._spark.streams.removeListener(self._listener)
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
        return batch_report(facts, name, level, taken=[unread.within(source).rows for source in facts["sources"]])

    def committed(self, query: StreamingQuery | str) -> ProgressReport | None:
        """Return the report of a query's newest committed batch; ``None`` before the first."""
        known = self._known(query)
        return None if known is None else known.newest

    def report(self, query: StreamingQuery) -> ProgressReport:
        """Return the report of a query's running batch, or else of its newest committed one, or that nothing is reported."""
        found = self.running(query) or self.committed(query)
        return found or ProgressReport.nothing(query.id, "no batch of this query has been seen yet", name=query.name or "")

    def of_query(self, query: StreamingQuery | str) -> ProgressReport | None:
        """Return the report of a query: its newest batches together, and what waits for it in its channels' logs.

        :func:`strandline.report.progress.backlog_seconds` and ``catch_up_seconds`` of its transforms are the query's. ``None``
        before its first batch.
        """
        known = self._known(query)
        return None if known is None else known.with_waiting()

    def labels(self) -> list[str]:
        """Return the queries that have reports: by name, or by id if they have none."""
        with self._lock:
            return sorted(each.label for each in self._queries.values() if each.newest is not None)

    def figures(self) -> dict[str, list[Figure]]:
        """Return the values of all metrics now, by query (:data:`strandline.report.progress.METRICS`)."""
        with self._lock:
            every = list(self._queries.values())
        found = {}
        now = time.time()
        for known in every:
            if known.newest is not None:
                moved = self._clock.moved(known.newest, now)
                found[known.label] = list(figures(known.newest, known.with_waiting() or known.newest, now=now, moved=moved))
        return found

    # ---- what the listener says ------------------------------------------------------------------------------------------

    def _known(self, query: StreamingQuery | str) -> _Query | None:
        key = query if isinstance(query, str) else query.id
        with self._lock:
            known = self._queries.get(key) or next((each for each in self._queries.values() if each.label == key), None)
        if known is not None:
            self._collect(known)
        return known

    def _committed(self, progress: dict[str, Any]) -> None:
        with self._lock:
            known = self._queries.setdefault(
                progress["id"], _Query(progress["id"], progress["name"] or "", self._window, self._storage)
            )
        known.note(progress["batchId"], progress["durationMs"].get("triggerExecution"))
        self._collect(known)

    def _terminated(self, query: str) -> None:
        with self._lock:
            known = self._queries.get(query)
        if known is not None:
            self._collect(known)
            for each in self.on_end:
                each(known.label)
        self._clock.forget(query)

    def forget(self, query: StreamingQuery | str) -> None:
        """Forget the reports of a query. Monitoring systems then have no figures of it."""
        key = query if isinstance(query, str) else query.id
        with self._lock:
            for id_ in [id_ for id_, each in self._queries.items() if key in (id_, each.label)]:
                del self._queries[id_]

    def _collect(self, known: _Query) -> None:
        """Take the batches that the shim knows and Spark has spoken of."""
        level = self.level_of(known.id, known.name)
        if level is Level.NONE:
            known.newest = known.newest or _nothing(known.id, known.name)
            return
        for report in known.take(lambda after: json.loads(self._shim.ended(self._spark._jsparkSession, known.id, after)), level):
            self._clock.moved(report, report.at / 1000)
            if _LOG.isEnabledFor(logging.INFO):
                _LOG.info("%s", _line(known, report))
            for each in self.on_batch:
                each(report)


class _Query:
    """What is known of one query."""

    def __init__(self, query: str, name: str, window: int, storage: Mapping[str, str] | None) -> None:
        self.id, self.name = query, name
        self.label = name or query
        self.newest: ProgressReport | None = None
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._durations: dict[int, float | None] = {}
        self._batches: deque[ProgressReport] = deque(maxlen=window)
        self._run = ""
        self._warm = False
        self._sources: list[Mapping[str, Any]] = []
        self._unread = UnreadWork(storage)
        self._earlier: ProgressReport | None = None

    def note(self, batch: int, duration: float | None) -> None:
        """Remember that Spark has said that a batch is done."""
        with self._lock:
            self._durations[batch] = duration
            while len(self._durations) > _MOST_PENDING:
                del self._durations[min(self._durations)]

    def take(self, ended: Callable[[int], list[dict[str, Any]]], level: Level) -> list[ProgressReport]:
        """Make the reports of the batches that are done. The shim and Spark speak of them in either order."""
        made = []
        with self._lock:
            if not self._durations:
                return []
            for facts in ended(min(self._durations) - 1):
                if facts["batch"] in self._durations:
                    report = batch_report(facts, self.name, level, self._durations.pop(facts["batch"]))
                    if report.run != self._run:
                        self._run, self._warm = report.run, False
                        self._batches.clear()
                    elif not self._warm:
                        self._warm = True
                        self._batches.clear()
                    self._batches.append(report)
                    self.newest, self._sources = report, facts["sources"]
                    made.append(report)
        return made

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
                    waiting[source_name(number, len(sources))] = {"rows": work.rows}
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
