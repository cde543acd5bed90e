"""A progress report of one query: the progress of each of its transforms, while a batch runs and after it committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

from strandline.report import errors
from strandline.report.progress.transform import TransformProgress

__all__ = ["Level", "ProgressReport", "State"]

_VERSION = 1


class Level(str, Enum):
    """How much is reported. Source: seed 3, "Options"."""

    NONE = "none"
    """Nothing. Every output's frontier counts as +infinity."""
    MINIMAL = "minimal"
    """Counts of elements and frontiers."""
    ADVANCED = "advanced"
    """Also the time spent in each transform, so that a backlog in seconds follows."""


class State(str, Enum):
    """What a report is of."""

    RUNNING = "running"
    """A batch that runs. Its frontiers are tentative."""
    COMMITTED = "committed"
    """A batch that has committed: nothing of it is active or remains."""
    QUERY = "query"
    """The query between two batches, with what waits in the logs of its inputs as remaining work."""


@dataclass(frozen=True)
class ProgressReport:
    """The progress of one query.

    Attributes:
        query: The query's id.
        run: The id of this run of the query.
        name: The query's name; empty if it has none.
        batch: The number of the batch, or of the newest of several; -1 before the first.
        state: What the report is of.
        level: How much is reported.
        at: When the report was made, in milliseconds since 1970.
        transforms: The parts that together do all the work, by name: sources, the driver, and the plan's stages. Backlogs are
            computed from these.
        operators: The operators of the plan, by name, in the same form. Several of them are fused to one stage, so not all of
            them have a time of their own.
        reason: Why nothing is reported, with the level none.
        batches: How many batches the counts are of.
        set_aside: For an ingest, how many rows it has set aside since its first batch, by reason. ``None``: it is no ingest, or
            that is not known.
        only_aside: For an ingest, of how many partitions all rows are set aside since some batch. ``None``: as for ``set_aside``.

    Raises:
        StrandlineError: ``STRANDLINE_REPORT_INVALID`` if an input comes from a transform or an output that there is not, if the
            transforms have a cycle, if a committed batch has active elements, or if the level none reports something.
    """

    query: str
    run: str
    name: str
    batch: int
    state: State
    level: Level
    at: int
    transforms: Mapping[str, TransformProgress] = field(default_factory=dict)
    operators: Mapping[str, TransformProgress] = field(default_factory=dict)
    reason: str | None = None
    batches: int = 1
    set_aside: Mapping[str, int] | None = None
    only_aside: int | None = None

    def __post_init__(self) -> None:
        for graph in (self.transforms, self.operators):
            self._check(graph)
        if self.level is Level.NONE and any(each.is_reported for each in self.transforms.values()):
            raise errors.report_invalid("the level is none, but a transform is reported")
        if self.level is Level.NONE and self.reason is None:
            raise errors.report_invalid("the level is none, but it does not say why")

    def _check(self, graph: Mapping[str, TransformProgress]) -> None:
        for name, each in graph.items():
            for tag, (parent, output) in each.inputs.items():
                if parent not in graph:
                    raise errors.report_invalid(
                        f"the input {tag!r} of {name!r} comes from {parent!r}, which is not in the report"
                    )
                if graph[parent].is_reported and output not in graph[parent].outputs:
                    raise errors.report_invalid(
                        f"the input {tag!r} of {name!r} comes from the output {output!r}, which {parent!r} lacks"
                    )
            if self.state is State.COMMITTED and (
                each.active_input_elements or any(each.active_output_elements_remaining.values())
            ):
                raise errors.report_invalid(f"the batch has committed, but {name!r} has active elements")
        try:
            TopologicalSorter({name: {parent for parent, _ in each.inputs.values()} for name, each in graph.items()}).prepare()
        except CycleError as error:
            raise errors.report_invalid(f"the transforms {', '.join(map(str, error.args[1]))} go round in a cycle") from None

    @cached_property
    def unreported(self) -> tuple[str, ...]:
        """The names of transforms and operators of which nothing is reported."""
        return tuple(name for graph in (self.transforms, self.operators) for name, each in graph.items() if not each.is_reported)

    @classmethod
    def nothing(cls, query: str, reason: str, *, run: str = "", name: str = "", batch: int = -1, at: int = 0) -> ProgressReport:
        """Return the report of the level none: it says that nothing is reported, and why.

        >>> ProgressReport.nothing("q", "the session has no extension").to_json()["level"]
        'none'
        """
        return cls(query, run, name, batch, State.QUERY, Level.NONE, at, reason=reason, batches=0)

    def with_waiting(self, waiting: Mapping[str, Mapping[str, int]]) -> ProgressReport:
        """Return the report of the query: what waits is the remaining output of its first transforms.

        A first transform is then one element that is active: an input channel, from which it has taken so many rows and will take
        so many more. These are known, not estimated. Source: seed 3's notes on unbounded sources: "known" backlog is what is
        available now.

        Args:
            waiting: By first transform and output, how many elements wait. A negative number: infinitely many.

        >>> done = TransformProgress(output_elements_produced={"rows": 10}, total_time_spent=500.0)
        >>> report = ProgressReport("q", "r", "", 3, State.COMMITTED, Level.ADVANCED, 0, {"read": done})
        >>> from strandline.report.progress.backlog import backlog_seconds
        >>> backlog_seconds(report.transforms), backlog_seconds(report.with_waiting({"read": {"rows": 40}}).transforms)
        (0.0, 2.0)
        """
        transforms = dict(self.transforms)
        for name, counts in waiting.items():
            if name not in transforms or transforms[name].inputs:
                raise errors.report_invalid(f"elements wait for {name!r}, which is not a first transform")
            each = transforms[name]
            if each.is_reported and any(counts.values()):
                transforms[name] = replace(
                    each,
                    output_elements_produced=dict.fromkeys(each.output_elements_produced, 0),
                    active_input_elements=1,
                    active_output_elements_produced={output: each.output_so_far(output) for output in each.outputs},
                    active_output_elements_remaining=dict(counts),
                )
        return replace(self, state=State.QUERY, transforms=transforms)

    @classmethod
    def together(cls, reports: Iterable[ProgressReport]) -> ProgressReport:
        """Return the report of several committed batches of one plan as one, so that averages are over all of them.

        Frontiers, and the rest, are the newest batch's. A batch whose plan has other transforms than the newest is left out.

        Args:
            reports: The batches' reports, the newest last. At least one.
        """
        every = list(reports)
        newest = every[-1]
        same = [each for each in every if _shape(each.transforms) == _shape(newest.transforms)]
        transforms = {name: _sum([each.transforms[name] for each in same]) for name in newest.transforms}
        alike = [each for each in same if _shape(each.operators) == _shape(newest.operators)]
        operators = {name: _sum([each.operators[name] for each in alike]) for name in newest.operators}
        return replace(newest, transforms=transforms, operators=operators, batches=sum(each.batches for each in same))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that ``docs/schemas/progress-report.schema.json`` describes."""
        return {
            "strandlineProgress": _VERSION,
            "query": self.query,
            "run": self.run,
            "name": self.name,
            "batch": self.batch,
            "batches": self.batches,
            "state": self.state.value,
            "level": self.level.value,
            "at": self.at,
            "reason": self.reason,
            "setAside": None if self.set_aside is None else dict(self.set_aside),
            "onlyAside": self.only_aside,
            "transforms": {name: each.to_json() for name, each in self.transforms.items()},
            "operators": {name: each.to_json() for name, each in self.operators.items()},
        }

    @classmethod
    def from_json(cls, value: Any) -> ProgressReport:
        """Read what :meth:`to_json` gave.

        Raises:
            StrandlineError: ``STRANDLINE_REPORT_INVALID``.

        >>> report = ProgressReport.nothing("q", "the level is none")
        >>> ProgressReport.from_json(report.to_json()) == report
        True
        """
        if not isinstance(value, dict) or value.get("strandlineProgress") != _VERSION:
            raise errors.report_invalid(f"it does not have version {_VERSION} of strandlineProgress")
        for name in ("query", "run", "name"):
            if not isinstance(value.get(name), str):
                raise errors.report_invalid(f"{name} is {value.get(name)!r}, not a text")
        for name in ("batch", "batches", "at"):
            if type(value.get(name)) is not int:
                raise errors.report_invalid(f"{name} is {value.get(name)!r}, not a whole number")
        try:
            state, level = State(value.get("state")), Level(value.get("level"))
        except ValueError as error:
            raise errors.report_invalid(str(error)) from None
        graphs = []
        for name in ("transforms", "operators"):
            graph = value.get(name)
            if not isinstance(graph, dict):
                raise errors.report_invalid(f"{name} is {str(graph)[:100]!r}, not an object")
            graphs.append({key: TransformProgress.from_json(each) for key, each in graph.items()})
        set_aside = value.get("setAside")
        if set_aside is not None and not _is_counts(set_aside):
            raise errors.report_invalid(f"setAside is {str(set_aside)[:100]!r}, not numbers of rows by reason")
        only_aside = value.get("onlyAside")
        if only_aside is not None and (type(only_aside) is not int or only_aside < 0):
            raise errors.report_invalid(f"onlyAside is {str(only_aside)[:100]!r}, not a number of partitions")
        return cls(
            value["query"],
            value["run"],
            value["name"],
            value["batch"],
            state,
            level,
            value["at"],
            graphs[0],
            graphs[1],
            reason=value.get("reason"),
            batches=value["batches"],
            set_aside=set_aside,
            only_aside=only_aside,
        )


def _is_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(type(each) is int and each >= 0 for each in value.values())


def _shape(graph: Mapping[str, TransformProgress]) -> dict[str, tuple[Any, ...]]:
    return {name: (tuple(sorted(each.inputs.items())), each.is_reported) for name, each in graph.items()}


def _sum(each: list[TransformProgress]) -> TransformProgress:
    newest = each[-1]
    times = [one.total_time_spent for one in each]
    known = [time for time in times if time is not None]
    total = sum(known) if len(known) == len(times) else None
    # Workers are a mean over time: the time of all of them, by the time that passed.
    passed = sum(time / one.workers for time, one in zip(known, each, strict=False)) if total is not None else 0.0
    return replace(
        newest,
        input_elements_consumed={tag: sum(one.input_elements_consumed.get(tag, 0) for one in each) for tag in newest.inputs},
        output_elements_produced={
            output: sum(one.output_elements_produced.get(output, 0) for one in each) for output in newest.output_elements_produced
        },
        total_time_spent=total,
        workers=total / passed if total and passed else newest.workers,
    )
