"""The figures of progress reports, for monitoring systems: their names, units and meanings, and their values from a report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from strandline.report.progress.backlog import backlog_seconds, catch_up_seconds
from strandline.report.progress.frontiers import frontier_lag
from strandline.report.progress.progress_report import Level, ProgressReport, State
from strandline.time.antichain import Antichain

__all__ = ["METRICS", "Figure", "FrontierClock", "Metric", "figures", "metric_table", "output_frontiers"]

PREFIX = "strandline_"


@dataclass(frozen=True)
class Metric:
    """A gauge, or a counter. Its name has its unit at the end, or ``_total``.

    Attributes:
        name: The name, as Prometheus has it.
        unit: The unit, as OpenTelemetry writes it.
        help: What it says.
        part: Of what there is a value each: ``transform`` or ``reason``; ``None`` if there is one for the query.
    """

    name: str
    unit: str
    help: str
    part: str | None = None

    @property
    def is_counter(self) -> bool:
        """Whether it only grows."""
        return self.name.endswith("_total")

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of its labels."""
        return ("query",) if self.part is None else ("query", self.part)


METRICS: tuple[Metric, ...] = tuple(
    Metric(f"{PREFIX}{name}", unit, text, part)
    for name, unit, text, part in (
        (
            "frontier_lag_seconds",
            "s",
            "How far the query's output frontier is behind. Alert on it, and on strandline_frontier_unmoved_seconds.",
            None,
        ),
        (
            "frontier_unmoved_seconds",
            "s",
            "How long the output frontier has stood, by its log; 0 if it is empty.",
            None,
        ),
        ("frontier_elements", "{element}", "How many elements the output frontier has; 0: everything is closed.", None),
        ("waiting_rows", "{row}", "How many rows of the input channels the query has not taken.", None),
        ("backlog_seconds", "s", "The time that one worker needs for all known work.", None),
        ("catch_up_seconds", "s", "The time until all known work is done.", None),
        ("batch", "{batch}", "The number of the newest batch.", None),
        ("report_level", "1", "How much is reported: 0 none, 1 minimal, 2 advanced.", None),
        ("query_running", "1", "Whether the query runs: 1, or 0 when it has ended.", None),
        ("query_failed", "1", "Whether the query has ended with an error: 1 or 0.", None),
        ("failed_reports_total", "{report}", "How many reports of the query could not be made. The log says why.", None),
        ("report_age_seconds", "s", "How old the report is from which these figures come.", None),
        ("unreported_transforms", "{transform}", "How many transforms are not reported.", None),
        (
            "rows_set_aside_total",
            "{row}",
            "How many rows an ingest has set aside since its first batch: they are in the late table, and in no result.",
            "reason",
        ),
        (
            "partitions_only_set_aside",
            "{partition}",
            "Of how many partitions of an ingest all rows are set aside since some batch: nothing of them is in a result.",
            None,
        ),
        ("transform_seconds", "s", "The time that a transform spent in the newest batch, over all of its tasks.", "transform"),
        ("transform_input_rows", "{row}", "How many elements a transform processed in the newest batch.", "transform"),
        ("transform_output_rows", "{row}", "How many elements a transform gave in the newest batch.", "transform"),
        ("transform_active_rows", "{row}", "How many elements a transform is processing.", "transform"),
    )
)
"""Every figure that is exported."""


@dataclass(frozen=True)
class Figure:
    """A value of a metric. Without a part, which is a transform or a reason, it is the query's."""

    name: str
    value: float
    part: str | None = None


def output_frontiers(report: ProgressReport) -> dict[str, Antichain]:
    """Return the frontiers of the outputs that no other transform takes in; if none of them is reported, those of the sources.

    The key is the output's name. It is the same for each batch, whatever stages a batch has.
    """
    taken = {parent for each in report.transforms.values() for parent in each.inputs.values()}
    first: dict[str, Antichain] = {}
    last: dict[str, Antichain] = {}
    for name, each in report.transforms.items():
        for output, frontier in each.frontiers.items():
            if (name, output) not in taken:
                last[output if output not in last else f"{output} of {name}"] = frontier
            elif not each.inputs:
                first[f"{output} of {name}"] = frontier
    return last or first


class FrontierClock:
    """Remembers when the frontier of each output of a query last moved.

    >>> from strandline.report.progress.transform import TransformProgress
    >>> from strandline.report.progress.progress_report import State
    >>> from strandline.time.domain import int64
    >>> clock = FrontierClock()
    >>> def report(time):
    ...     sink = TransformProgress(frontiers={"out": Antichain(int64, [time])})
    ...     return ProgressReport("q", "r", "", 1, State.COMMITTED, Level.MINIMAL, 0, {"sink": sink})
    >>> clock.moved(report(4), 100.0), clock.moved(report(4), 103.0), clock.moved(report(5), 104.0)
    ({'out': 100.0}, {'out': 100.0}, {'out': 104.0})
    """

    def __init__(self) -> None:
        self._moved: dict[str, dict[str, tuple[Antichain, float]]] = {}

    def begin(self, query: str, output: str, frontier: Antichain, moved: float) -> None:
        """Say what is known of an output before the first report, and when it moved: a log says it.

        >>> from strandline.time.domain import int64
        >>> FrontierClock().begin("q", "out", Antichain.least(int64), 40.0)
        """
        self._moved.setdefault(query, {}).setdefault(output, (frontier, moved))

    def moved(self, report: ProgressReport, now: float) -> dict[str, float]:
        """Return when the frontier of each output last moved, in seconds since 1970: now, if it just did."""
        known = self._moved.setdefault(report.query, {})
        found = {}
        for output, frontier in output_frontiers(report).items():
            if output not in known or known[output][0] != frontier:
                known[output] = frontier, now
            found[output] = known[output][1]
        return found

    def forget(self, query: str) -> None:
        """Forget a query that has ended."""
        self._moved.pop(query, None)


def figures(
    report: ProgressReport,
    of_query: ProgressReport,
    *,
    now: float,
    moved: Mapping[str, float],
    more: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[Figure]:
    """Yield the values of all metrics. One that is not known is left out.

    Args:
        report: The report of the newest batch.
        of_query: The report of the query, with what waits for it (:meth:`ProgressReport.with_waiting`).
        now: The present, in seconds since 1970.
        moved: When the frontier of each output last moved (:class:`FrontierClock`). One that is missing has just moved.
        more: Values of metrics that no report has, by name without the prefix.

    >>> nothing = ProgressReport.nothing("q", "the level is none")
    >>> [figure.name for figure in figures(nothing, nothing, now=0.0, moved={})]
    ['strandline_report_level', 'strandline_unreported_transforms']
    """
    levels = (Level.NONE, Level.MINIMAL, Level.ADVANCED)
    known: dict[str, float | None] = {
        **more,
        "report_level": levels.index(report.level),
        "unreported_transforms": sum(not each.is_reported for each in report.transforms.values()),
    }
    frontiers = output_frontiers(report)
    if frontiers:
        since = {output: min(now, moved.get(output, now)) for output in frontiers}
        known["frontier_lag_seconds"] = max(frontier_lag(each, now, since[output]) for output, each in frontiers.items())
        known["frontier_unmoved_seconds"] = max(now - since[output] if len(each) else 0.0 for output, each in frontiers.items())
        known["frontier_elements"] = sum(map(len, frontiers.values()))
    if report.level is not Level.NONE:
        known["batch"] = report.batch if report.batch >= 0 else None
        known["report_age_seconds"] = max(0.0, now - report.at / 1000)
        known["waiting_rows"] = _waiting(of_query)
        known["backlog_seconds"] = backlog_seconds(of_query.transforms)
        known["catch_up_seconds"] = catch_up_seconds(of_query.transforms)
    known["partitions_only_set_aside"] = report.only_aside
    for metric in METRICS:
        value = known.get(metric.name.removeprefix(PREFIX))
        if value is not None:
            yield Figure(metric.name, float(value))
    for reason, rows in (report.set_aside or {}).items():
        yield Figure(f"{PREFIX}rows_set_aside_total", float(rows), reason)
    for name, each in report.transforms.items():
        if not each.is_reported:
            continue
        if each.total_time_spent is not None:
            yield Figure(f"{PREFIX}transform_seconds", each.total_time_spent / 1000, name)
        yield Figure(f"{PREFIX}transform_input_rows", float(each.consumed()), name)
        yield Figure(f"{PREFIX}transform_output_rows", float(sum(map(each.output_so_far, each.outputs))), name)
        yield Figure(f"{PREFIX}transform_active_rows", float(each.active_input_elements), name)


def _waiting(of_query: ProgressReport) -> float | None:
    """Return how many rows wait in the sources; ``None`` if nobody has counted, or not all of them are known."""
    if of_query.state is not State.QUERY:
        return None
    counts: list[int] = []
    for each in of_query.transforms.values():
        if each.inputs or "batches" in each.outputs:
            continue
        if not each.is_reported:
            return None
        counts += each.active_output_elements_remaining.values()
    return math.inf if any(count < 0 for count in counts) else sum(counts)


def metric_table() -> str:
    """Return the reference of all metrics as a table in Markdown. ``docs/progress.md`` has it."""
    lines = ["| metric | unit | labels | |", "|---|---|---|---|"]
    for each in METRICS:
        cells = (f"`{each.name}`", f"`{each.unit}`", ", ".join(f"`{label}`" for label in each.labels), each.help)
        lines += [f"| {' | '.join(cells)} |"]
    return "\n".join(lines)
