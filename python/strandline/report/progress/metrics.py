"""The figures of progress reports, for monitoring systems: their names, units and meanings, and their values from a report."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from strandline.report.progress.backlog import backlog_seconds, catch_up_seconds
from strandline.report.progress.frontiers import frontier_lag
from strandline.report.progress.progress_report import Level, ProgressReport
from strandline.time.antichain import Antichain

__all__ = ["METRICS", "Figure", "FrontierClock", "Metric", "figures", "metric_table", "output_frontiers"]

PREFIX = "strandline_"


@dataclass(frozen=True)
class Metric:
    """A gauge. Its name has its unit at the end.

    Attributes:
        name: The name, as Prometheus has it.
        unit: The unit, as OpenTelemetry writes it.
        help: What it says.
        per_transform: Whether there is a value for each transform, and not one for the query.
    """

    name: str
    unit: str
    help: str
    per_transform: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of its labels."""
        return ("query", "transform") if self.per_transform else ("query",)


METRICS: tuple[Metric, ...] = tuple(
    Metric(f"{PREFIX}{name}", unit, text, per_transform)
    for name, unit, text, per_transform in (
        ("frontier_lag_seconds", "s", "How far the query's output frontier is behind. The one figure to alert on.", False),
        ("frontier_unmoved_seconds", "s", "How long ago the output frontier last moved; 0 if it is empty.", False),
        ("frontier_elements", "{element}", "How many elements the output frontier has; 0: everything is closed.", False),
        ("waiting_rows", "{row}", "How many rows of the input channels the query has not taken.", False),
        ("backlog_seconds", "s", "The time that one worker needs for all known work.", False),
        ("catch_up_seconds", "s", "The time until all known work is done.", False),
        ("batch", "{batch}", "The number of the newest batch.", False),
        ("report_level", "1", "How much is reported: 0 none, 1 minimal, 2 advanced.", False),
        ("report_age_seconds", "s", "How old the report is from which these figures come.", False),
        ("unreported_transforms", "{transform}", "How many transforms are not reported.", False),
        ("transform_seconds", "s", "The time that a transform spent in the newest batch, over all of its tasks.", True),
        ("transform_input_rows", "{row}", "How many elements a transform processed in the newest batch.", True),
        ("transform_output_rows", "{row}", "How many elements a transform gave in the newest batch.", True),
        ("transform_active_rows", "{row}", "How many elements a transform is processing.", True),
    )
)
"""Every figure that is exported."""


@dataclass(frozen=True)
class Figure:
    """A value of a metric. Without a transform it is the query's."""

    name: str
    value: float
    transform: str | None = None


def output_frontiers(report: ProgressReport) -> list[Antichain]:
    """Return the frontiers of the outputs that no other transform takes in; if none of them is reported, those of the sources."""
    taken = {parent for each in report.transforms.values() for parent in each.inputs.values()}
    first, last = [], []
    for name, each in report.transforms.items():
        for output, frontier in each.frontiers.items():
            if (name, output) not in taken:
                last.append(frontier)
            elif not each.inputs:
                first.append(frontier)
    return last or first


class FrontierClock:
    """Remembers when the frontiers of queries last moved.

    >>> from strandline.report.progress.transform import TransformProgress
    >>> from strandline.report.progress.progress_report import State
    >>> from strandline.time.domain import int64
    >>> clock = FrontierClock()
    >>> def report(time):
    ...     sink = TransformProgress(frontiers={"out": Antichain(int64, [time])})
    ...     return ProgressReport("q", "r", "", 1, State.COMMITTED, Level.MINIMAL, 0, {"sink": sink})
    >>> clock.moved(report(4), 100.0), clock.moved(report(4), 103.0), clock.moved(report(5), 104.0)
    (100.0, 100.0, 104.0)
    """

    def __init__(self) -> None:
        self._moved: dict[str, tuple[list[Antichain], float]] = {}

    def moved(self, report: ProgressReport, now: float) -> float:
        """Return when the output frontiers of a report's query last moved, in seconds since 1970: now, if they just did."""
        frontiers = output_frontiers(report)
        before = self._moved.get(report.query)
        if before is None or before[0] != frontiers:
            self._moved[report.query] = (frontiers, now)
        return self._moved[report.query][1]

    def forget(self, query: str) -> None:
        """Forget a query that has ended."""
        self._moved.pop(query, None)


def figures(report: ProgressReport, of_query: ProgressReport, *, now: float, moved: float) -> Iterator[Figure]:
    """Yield the values of all metrics. One that is not known is left out.

    Args:
        report: The report of the newest batch.
        of_query: The report of the query, with what waits for it (:meth:`ProgressReport.with_waiting`).
        now: The present, in seconds since 1970.
        moved: When the output frontier last moved (:class:`FrontierClock`).

    >>> nothing = ProgressReport.nothing("q", "the level is none")
    >>> [figure.name for figure in figures(nothing, nothing, now=0.0, moved=0.0)]
    ['strandline_report_level', 'strandline_unreported_transforms']
    """
    levels = (Level.NONE, Level.MINIMAL, Level.ADVANCED)
    known: dict[str, float | None] = {
        "report_level": levels.index(report.level),
        "unreported_transforms": sum(not each.is_reported for each in report.transforms.values()),
    }
    frontiers = output_frontiers(report)
    if frontiers:
        closed = not any(map(len, frontiers))
        known["frontier_lag_seconds"] = max(frontier_lag(frontier, now, moved) for frontier in frontiers)
        known["frontier_unmoved_seconds"] = 0.0 if closed else now - moved
        known["frontier_elements"] = sum(map(len, frontiers))
    if report.level is not Level.NONE:
        known["batch"] = report.batch
        known["report_age_seconds"] = max(0.0, now - report.at / 1000)
        known["waiting_rows"] = _waiting(of_query)
        known["backlog_seconds"] = backlog_seconds(of_query.transforms)
        known["catch_up_seconds"] = catch_up_seconds(of_query.transforms)
    for metric in METRICS:
        value = known.get(metric.name.removeprefix(PREFIX))
        if value is not None:
            yield Figure(metric.name, float(value))
    for name, each in report.transforms.items():
        if not each.is_reported:
            continue
        if each.total_time_spent is not None:
            yield Figure(f"{PREFIX}transform_seconds", each.total_time_spent / 1000, name)
        yield Figure(f"{PREFIX}transform_input_rows", float(each.consumed()), name)
        yield Figure(f"{PREFIX}transform_output_rows", float(sum(map(each.output_so_far, each.outputs))), name)
        yield Figure(f"{PREFIX}transform_active_rows", float(each.active_input_elements), name)


def _waiting(of_query: ProgressReport) -> float:
    counts = [
        count
        for each in of_query.transforms.values()
        if not each.inputs
        for output, count in each.active_output_elements_remaining.items()
        if output != "batches"
    ]
    return math.inf if any(count < 0 for count in counts) else sum(counts)


def metric_table() -> str:
    """Return the reference of all metrics as a table in Markdown. ``docs/progress.md`` has it."""
    lines = ["| metric | unit | labels | |", "|---|---|---|---|"]
    for each in METRICS:
        cells = (f"`{each.name}`", f"`{each.unit}`", ", ".join(f"`{label}`" for label in each.labels), each.help)
        lines += [f"| {' | '.join(cells)} |"]
    return "\n".join(lines)
