"""Where people already look: Prometheus, OpenTelemetry and Spark's own metrics system have the figures of progress reports."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark_strandline.report import errors
from strandline.report.progress import METRICS

if TYPE_CHECKING:
    from pyspark_strandline.report.progress_reports import ProgressReports
    from strandline.report.progress.metrics import Figure

_COLLECTION_SECONDS = 0.5
"""For how long figures are those of one collection."""

_LOG = logging.getLogger("strandline.progress")

__all__ = ["SparkMetrics", "open_telemetry", "prometheus_collector", "serve_prometheus"]


def prometheus_collector(reports: ProgressReports) -> Any:
    """Return a collector for a registry of ``prometheus_client``. A scrape makes no batch wait. It needs the extra ``metrics``.

    Raises:
        StrandlineError: ``STRANDLINE_PACKAGE_MISSING``.
    """
    try:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    except ImportError:
        raise errors.package_missing("prometheus-client", "metrics") from None

    class Collector:
        def describe(self) -> Iterable[Any]:
            families = {True: CounterMetricFamily, False: GaugeMetricFamily}
            return [families[each.is_counter](each.name, each.help, labels=each.labels) for each in METRICS]

        def collect(self) -> Iterator[Any]:
            families = {metric.name: family for metric, family in zip(METRICS, self.describe(), strict=True)}
            for query, values in reports.figures().items():
                for figure in values:
                    labels = [query] if figure.part is None else [query, figure.part]
                    families[figure.name].add_metric(labels, figure.value)
            yield from families.values()

    return Collector()


def serve_prometheus(reports: ProgressReports, port: int = 9464, address: str = "127.0.0.1") -> Any:
    """Serve ``/metrics`` for Prometheus, in the driver. Returns the server and its thread; ``server.shutdown()`` ends it.

    Only this machine reaches it, unless ``address`` says otherwise: it has no password. It needs the extra ``metrics``.
    Reports that do not collect yet are started.

    Raises:
        StrandlineError: ``STRANDLINE_PACKAGE_MISSING``.
    """
    collector = prometheus_collector(reports)
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(collector)
    if not reports.is_started:
        reports.start()
    return start_http_server(port, address, registry)


def open_telemetry(reports: ProgressReports, meter: Any = None) -> list[Any]:
    """Make an observable gauge or counter of OpenTelemetry for each metric. It needs the extra ``otel``.

    Args:
        reports: The reports.
        meter: The meter; by default that of the global provider, named ``strandline``.

    Raises:
        StrandlineError: ``STRANDLINE_PACKAGE_MISSING``.
    """
    try:
        from opentelemetry import metrics
    except ImportError:
        raise errors.package_missing("opentelemetry-api", "otel") from None
    meter = meter or metrics.get_meter("strandline")
    lock = threading.Lock()
    newest: tuple[float, dict[str, list[Figure]]] = (-math.inf, {})

    def figures() -> dict[str, list[Figure]]:
        # A collection asks for each metric by itself. It gets one state of them all.
        nonlocal newest
        with lock:
            if time.monotonic() - newest[0] > _COLLECTION_SECONDS:
                newest = (time.monotonic(), reports.figures())
            return newest[1]

    def observe(name: str, part: str) -> Any:
        def callback(_: Any) -> Iterator[Any]:
            for query, values in figures().items():
                for figure in values:
                    if figure.name == name:
                        labels = {"query": query} | ({} if figure.part is None else {part: figure.part})
                        yield metrics.Observation(figure.value, labels)

        return callback

    made = {True: meter.create_observable_counter, False: meter.create_observable_gauge}
    return [
        made[each.is_counter](each.name, [observe(each.name, each.part or "")], unit=each.unit, description=each.help)
        for each in METRICS
    ]


_LIKE_HASHED = re.compile("_[0-9a-f]{6}$")


class SparkMetrics:
    """Gauges in Spark's metrics system, so that each of its sinks has them, as ``strandline.QUERY.METRIC``.

    A metric of a transform or a reason has it at its end: ``strandline.hourly.transform_seconds.stage_1``. What is not known, or
    not a number, is NaN. A query that was stopped has no gauges any more. One that ended with an error keeps them. Use it in a
    ``with`` block, or call :meth:`start` and :meth:`stop`.

    Args:
        reports: The reports.
        spark: The session.
        interval: Seconds between two updates. So the lag grows also while no batch commits.
    """

    def __init__(self, reports: ProgressReports, spark: Any, interval: float = 10.0) -> None:
        self._reports, self._interval = reports, interval
        self._shim = spark._jvm.strandline.spark.progress.Progress
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="strandline-metrics", daemon=True)
        self._known: set[str] = set()
        self._lock = threading.RLock()  # the reports may tell of an end while they are asked

    def start(self) -> SparkMetrics:
        """Begin to update."""
        self._reports.on_end.append(self._withdraw_ended)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Take the gauges out again."""
        self._stopped.set()
        self._thread.join()
        for query in list(self._known):
            self._withdraw(query)

    def __enter__(self) -> SparkMetrics:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def update(self) -> None:
        """Set the gauges to the present values."""
        every = self._reports.figures()
        for query, values in every.items():
            numbers: dict[str, Any] = {}
            parts = _parts({figure.part for figure in values if figure.part is not None})
            for figure in values:
                name = figure.name.removeprefix("strandline_")
                key = name if figure.part is None else f"{name}.{parts[figure.part]}"
                numbers[key] = "Infinity" if math.isinf(figure.value) else figure.value
            with self._lock:  # a query may end meanwhile
                if self._is_shown(query):
                    self._shim.figures(f"strandline.{_part(query, exact=True)}", json.dumps(numbers))
                    self._known.add(query)
        for query in list(self._known):
            if query in every:
                self._withdraw_ended(query)
            else:  # it is called otherwise now, or forgotten
                self._withdraw(query)

    def _is_shown(self, query: str) -> bool:
        return self._reports.is_running(query) or self._reports.error(query) is not None

    def _withdraw_ended(self, query: str) -> None:
        with self._lock:
            if not self._is_shown(query):
                self._withdraw(query)

    def _withdraw(self, query: str) -> None:
        self._known.discard(query)
        self._shim.withdraw(f"strandline.{_part(query, exact=True)}")

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            self._try_update()

    def _try_update(self) -> None:
        try:
            self.update()
        except Exception:  # or the gauges of all queries would stand still
            _LOG.exception("the gauges of Spark's metrics system could not be set")


def _part(name: str, *, exact: bool = False) -> str:
    """Return a name as one part of a metric's name: sinks take dots and spaces for something else.

    Args:
        name: The name.
        exact: Whether no other name may have the same part. Then a name that is changed, or ends as if it had been, has a hash
            at its end.

    >>> _part("stage 1.a"), _part("hourly", exact=True), _part("stage 1.a", exact=True)
    ('stage_1_a', 'hourly', 'stage_1_a_9cf08d')
    """
    part = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if not exact or (part == name and not _LIKE_HASHED.search(name)):
        return part
    return f"{part}_{hashlib.sha256(name.encode('utf-8', 'backslashreplace')).hexdigest()[:6]}"


def _parts(names: Iterable[str]) -> dict[str, str]:
    """Return each name as a part of a metric's name. Those that would have the same part are told apart.

    >>> _parts(["stage 1", "b"]), sorted(_parts(["a.b", "a_b"]))
    ({'stage 1': 'stage_1', 'b': 'b'}, ['a.b', 'a_b'])
    >>> len(set(_parts(["a.b", "a_b", _part("a.b", exact=True)]).values()))
    3
    """
    parts = {name: _part(name) for name in names}
    often = Counter(parts.values())
    alone = {part for part, count in often.items() if count == 1 and not _LIKE_HASHED.search(part)}
    return {name: part if part in alone else _part(name, exact=True) for name, part in parts.items()}
