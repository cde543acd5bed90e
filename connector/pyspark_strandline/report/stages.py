"""From the shim's facts on a batch to a progress report: sources, stages and the driver as transforms, and the operators."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pyspark_strandline.report.unread import Work
from strandline.errors import StrandlineError
from strandline.report.progress import Level, ProgressReport, State, TransformProgress, tentative_frontier
from strandline.time.antichain import Antichain
from strandline.time.domain import parse_domain

__all__ = ["DRIVER", "batch_report", "source_name", "source_output"]

DRIVER = "driver"
"""The transform for what the query's driver does for a batch: it plans, logs offsets and commits."""

_ROWS = "rows"
_OF = "rows of "

Facts = Mapping[str, Any]

_ONE_FOR_ONE = (
    "Project",
    "Union",
    "Guard",
    "TimeTransform",
    "Sort",
    "EventTimeWatermark",
    "ColumnarToRow",
    "WriteToDataSourceV2",
)
"""Operators that give one row for each row. Spark does not count in most of them, and need not."""

_STATE = ("numTotalStateRows", "numUpdatedStateRows", "numRemovedStateRows", "numOpenTimes")


def source_name(number: int, of: int) -> str:
    """Return the name of a source's transform.

    >>> source_name(0, 1), source_name(1, 2)
    ('source', 'source 2')
    """
    return "source" if of == 1 else f"source {number + 1}"


def source_output(channel: str) -> str:
    """Return the name of a source's output with the rows of one of its channels; of a source of one channel, its only output.

    >>> source_output("left"), source_output("")
    ('rows of left', 'rows')
    """
    return f"{_OF}{channel}" if channel else _ROWS


def batch_report(
    facts: Facts,
    name: str,
    level: Level,
    duration_ms: float | None = None,
    taken: Sequence[Work] = (),
    frontiers: Mapping[str, Antichain] = MappingProxyType({}),
    *,
    operators: bool = True,
) -> ProgressReport:
    """Return the report of one batch.

    Args:
        facts: What the shim says of the batch.
        name: The query's name.
        level: How much is reported. More than the shim knows is not.
        duration_ms: How long the whole batch took, if it has ended and Spark has said it.
        taken: What the batch takes from each source, by the logs. It is needed for a running batch, and for one whose sink may
            read the rows several times (`foreachBatch`).
        frontiers: The frontier of each output, if the plan does not say it: an ingest's.
        operators: Whether the operators are in the report too. It costs less without them.
    """
    made = _Batch(facts, level if facts["detailed"] else min(level, Level.MINIMAL, key=list(Level).index), taken, frontiers)
    transforms = {**made.sources(), **made.stages()}
    if made.ended:
        transforms = {**transforms, DRIVER: made.driver(duration_ms)}
    state = State.COMMITTED if made.ended else State.RUNNING
    return ProgressReport(
        facts["query"],
        facts["run"],
        name,
        facts["batch"],
        state,
        made.level,
        facts["at"],
        transforms,
        made.operators() if operators else {},
    )


class _Batch:
    """One batch's facts, with the rows of each operator filled in where they follow."""

    def __init__(self, facts: Facts, level: Level, taken: Sequence[Work], published: Mapping[str, Antichain]) -> None:
        self.level, self.ended, self._taken = level, facts["state"] == "ended", taken
        self._operators: list[Facts] = facts["operators"]
        self._fragments: list[Facts | None] = facts["fragments"]
        self._source_facts: list[Facts] = facts["sources"]
        self._output: Facts | None = facts["output"]
        self._rows = [self._rows_of(at) for at in range(len(self._operators))]
        self._known_frontiers = published
        self._others: list[Facts] = facts["others"]
        self._repeats = bool(facts["sink"].get("v1"))
        every = [*self._fragments, *self._others]
        walls = [(each["first"], each["last"]) for each in every if each is not None and each["first"] is not None]
        self._busy, self._overlap = _busy(walls)

    def _rows_of(self, at: int) -> int | None:
        """Return how many rows an operator has given: counted by Spark, or those of its input if it gives one for one."""
        operator = self._operators[at]
        metrics = operator["metrics"]
        for counted in (operator.get("rows"), metrics.get("pythonNumRowsReceived")):
            if counted is not None and not (operator["name"].startswith("WriteToDataSourceV2") and not counted):
                return int(counted)
        if operator["name"].strip().startswith(_ONE_FOR_ONE):
            rows = [self._rows_of(child) for child in operator["children"]]
            return None if None in rows or not rows else sum(count for count in rows if count is not None)
        return int(operator["rows"]) if "rows" in operator else None

    # ---- transforms ------------------------------------------------------------------------------------------------------

    def _source_of(self, number: int) -> str:
        return source_name(number, len(self._source_facts))

    def sources(self) -> dict[str, TransformProgress]:
        """Return a transform for each source: the log, whose rows the stages take in. Its time is in those stages."""
        found = {}
        for number, source in enumerate(self._source_facts):
            scans = [at for at, each in enumerate(self._operators) if each.get("source") == number]
            given = {output: self._given(number, output) for output in self._outputs(number, scans)}
            unseen = not scans and not source["channels"] and source["start"] != source["end"]
            if unseen or None in given.values():
                found[self._source_of(number)] = TransformProgress(
                    unreported="it is not known how many rows the batch takes", detail=_source_detail(source)
                )
                continue
            frontier = self._frontier(scans[0], in_flight=not self.ended) if scans else None
            spent = 0.0 if self.level is Level.ADVANCED else None
            found[self._source_of(number)] = TransformProgress(
                output_elements_produced={output: count or 0 for output, count in given.items()},
                total_time_spent=spent,
                frontiers={} if frontier is None else dict.fromkeys(given, frontier),
                detail=_source_detail(source),
            )
        return found

    def _outputs(self, number: int, scans: Sequence[int]) -> list[str]:
        """Return the outputs of a source: its rows, or the rows of each channel, where a scan reads the files of one."""
        read = {self._output_of(at): None for at in scans}
        if not read or list(read) == [_ROWS]:
            return [_ROWS]
        return list({source_output(name): None for name in _channels(self._source_facts[number])} | read)

    def _output_of(self, scan: int) -> str:
        """Return the output of its source that a scan reads."""
        return source_output(self._operators[scan].get("channel", ""))

    def _given(self, number: int, output: str) -> int | None:
        """Return how many rows a source gives in the batch: counted in its end, and known from the log before."""
        if not self.ended:
            return self._from_log(number, output)
        scans = [at for at, each in enumerate(self._operators) if each.get("source") == number and self._output_of(at) == output]
        counts = [self._rows[at] for at in scans]
        if None in counts:
            return None
        given = max((count for count in counts if count is not None), default=0)
        if not self._repeats or not given:
            return given
        known = self._from_log(number, output)  # each action on the batch's rows has counted them again
        return None if known is None else min(given, known)

    def _from_log(self, number: int, output: str) -> int | None:
        """Return how many rows the batch takes of a source by the channels' logs."""
        work = self._taken[number] if number < len(self._taken) else None
        if work is None or work.rows is None:
            return None
        return work.rows if output == _ROWS else work.channels.get(output.removeprefix(_OF), 0)

    def _passes(self, fragment: int) -> float:
        """Return how often a stage was run over its input: once for each action on the batch's rows."""
        if not self._repeats:
            return 1.0
        ratios = [read / all_ for _, read, all_ in self._inputs(fragment).values() if read and all_]
        return max([1.0, *ratios])

    def _stage_name(self, fragment: int) -> str:
        return f"stage {len(self._fragments) - fragment}"

    def stages(self) -> dict[str, TransformProgress]:
        """Return a transform for each part of the plan between exchanges: a stage, whose operators are fused."""
        made: dict[str, TransformProgress] = {}
        for fragment in reversed(range(len(self._fragments))):
            made[self._stage_name(fragment)] = self._stage(fragment)
        return made

    def _members(self, fragment: int) -> list[int]:
        return [at for at, each in enumerate(self._operators) if each["fragment"] == fragment]

    def _root(self, fragment: int) -> int:
        return self._members(fragment)[-1]  # operators are listed from the leaves to the root

    def _inputs(self, fragment: int) -> dict[str, tuple[tuple[str, str], int | None, int | None]]:
        """Return by input its parent, the rows that finished tasks took, and all rows that the parent has given."""
        found: dict[str, tuple[tuple[str, str], int | None, int | None]] = {}
        for at in self._members(fragment):
            operator = self._operators[at]
            if "source" in operator:
                number, output = operator["source"], self._output_of(at)
                parent = (self._source_of(number), output)
                found[f"{operator['name'].strip()} {at}"] = parent, self._rows[at], self._given(number, output)
            for child in operator["children"]:
                other = self._operators[child]
                if other["fragment"] != fragment:
                    read = other["metrics"].get("recordsRead", self._rows[child])
                    found[self._stage_name(other["fragment"])] = (
                        (self._stage_name(other["fragment"]), _ROWS),
                        read,
                        self._rows[child],
                    )
        return found

    def _stage(self, fragment: int) -> TransformProgress:
        members, root = self._members(fragment), self._root(fragment)
        detail = " → ".join(self._operators[at]["name"].strip() for at in members)
        inputs = self._inputs(fragment)
        parents = {tag: parent for tag, (parent, _, _) in inputs.items()}
        figures, given = self._fragments[fragment], self._rows[root]
        if given is None:
            return TransformProgress(inputs=parents, unreported="Spark does not count the rows that it gives", detail=detail)
        if self.ended:
            consumed = {tag: total or 0 for tag, (_, _, total) in inputs.items()}
            active, active_given = 0, 0
            given = round(given / self._passes(fragment))
        else:
            consumed = {tag: taken or 0 for tag, (_, taken, _) in inputs.items()}
            active, active_given = self._active(figures, sum(consumed.values()), [total for _, _, total in inputs.values()])
        spent, workers = None, 1.0
        if self.level is Level.ADVANCED and figures is not None:
            runs = [figures, *(self._others if fragment == 0 else ())]
            spent = float(sum(each["ms"] + each["activeMs"] for each in runs))
            wall = sum(each["last"] - each["first"] for each in runs if each["first"] is not None) * self._overlap
            workers = spent / wall if spent > 0 and wall > 0 else 1.0
        in_flight = not self.ended and not _is_done(figures)
        frontier = self._frontier(root, in_flight=in_flight)
        frontiers = {} if frontier is None else {_ROWS: frontier}
        if fragment == 0:  # its output is the query's, whose frontier the sink commits
            frontiers = self._published(in_flight=in_flight) or frontiers
        return TransformProgress(
            inputs=parents,
            input_elements_consumed=consumed,
            output_elements_produced={_ROWS: given},
            active_input_elements=active,
            active_output_elements_produced={_ROWS: active_given} if active else {},
            total_time_spent=spent,
            frontiers=frontiers,
            workers=workers,
            detail=detail,
        )

    def _active(self, figures: Facts | None, consumed: int, totals: Sequence[int | None]) -> tuple[int, int]:
        """Return how many rows the running tasks have begun, and how many they have given.

        Rows that no finished task took are those of running and of waiting tasks. Running tasks have their share of them by
        their number: Spark does not say how many rows a task will take. What they have given is what executors said last.
        """
        if figures is None or not figures["active"]:
            return 0, 0
        known = [total for total in totals if total is not None]
        if len(known) < len(totals):
            return int(figures["activeIn"]), int(figures["activeOut"])
        left = max(0, sum(known) - consumed)
        begun = figures["active"] / max(1, figures["tasks"] - figures["done"])
        return max(round(left * min(1.0, begun)), int(figures["activeIn"])), int(figures["activeOut"])

    def driver(self, duration_ms: float | None) -> TransformProgress:
        """Return what is done once for each batch: all the time in which no stage ran."""
        detail = "planning, offsets, waiting for tasks, commit"
        if duration_ms is None:
            return TransformProgress(unreported="Spark has not said yet how long the batch took", detail=detail)
        spent = max(0.0, duration_ms - self._busy) if self.level is Level.ADVANCED else None
        return TransformProgress(output_elements_produced={"batches": 1}, total_time_spent=spent, detail=detail)

    # ---- operators -------------------------------------------------------------------------------------------------------

    def operators(self) -> dict[str, TransformProgress]:
        """Return the plan's operators. Spark measures no time of each alone, so none is reported."""
        names = [f"{at} {each['name'].strip()}" for at, each in enumerate(self._operators)]
        found = {}
        for at, operator in enumerate(self._operators):
            inputs = {f"in {n}": (names[child], _ROWS) for n, child in enumerate(operator["children"])}
            rows = self._rows[at]
            metrics = operator["metrics"]
            detail = ", ".join(f"{key} {metrics[key]}" for key in _STATE if metrics.get(key))
            if rows is None:
                found[names[at]] = TransformProgress(
                    inputs=inputs, unreported="Spark does not count the rows of this operator", detail=detail
                )
                continue
            figures = self._fragments[operator["fragment"]]
            frontier = self._frontier(at, in_flight=not self.ended and not _is_done(figures))
            consumed = {f"in {n}": self._rows[child] or 0 for n, child in enumerate(operator["children"])}
            found[names[at]] = TransformProgress(
                inputs=inputs,
                input_elements_consumed=consumed,
                output_elements_produced={_ROWS: rows},
                frontiers={} if frontier is None else {_ROWS: frontier},
                detail=detail,
            )
        return found

    def _frontier(self, at: int, *, in_flight: bool) -> Antichain | None:
        """Return the tentative frontier of an operator's output; ``None`` if its times are not known.

        While tasks are in flight, they may give any time that was open before the batch.
        """
        return _tentative(self._operators[at], in_flight=in_flight)

    def _published(self, *, in_flight: bool) -> dict[str, Antichain]:
        """Return the tentative frontier of the query's output, or of each of its outputs by name."""
        if self._known_frontiers:
            return dict(self._known_frontiers)
        output = self._output or {}
        each = {name: _tentative(one, in_flight=in_flight) for name, one in (output.get("outputs") or {_ROWS: output}).items()}
        return {name: frontier for name, frontier in each.items() if frontier is not None}


def _source_detail(source: Facts) -> str:
    names = _channels(source)
    return f"channels {', '.join(names)}" if names else str(source["name"])


def _channels(source: Facts) -> dict[str, str]:
    """Return the paths of a source's channels by name; none for a source of one channel."""
    text = source["options"].get("channels")
    return {} if text is None else dict(json.loads(text))


def _tentative(stated: Facts, *, in_flight: bool) -> Antichain | None:
    """Return the frontier of an output whose frontiers before and after the batch are stated; ``None`` if they are not."""
    if "end" not in stated:
        return None
    try:
        domain = parse_domain(stated["domain"])
        start, end = (Antichain.from_json(domain, stated[key]) for key in ("start", "end"))
    except StrandlineError:
        return None
    return tentative_frontier(end, [start] if in_flight else [])


def _is_done(figures: Facts | None) -> bool:
    return figures is not None and figures["done"] >= figures["tasks"]


def _busy(walls: Sequence[tuple[int, int]]) -> tuple[int, float]:
    """Return for how long any stage ran, and that by the sum of their lengths: less than 1 if some ran side by side.

    >>> _busy([(0, 10), (5, 15), (20, 25)])
    (20, 0.8)
    """
    total, until = 0, 0
    for first, last in sorted(walls):
        total += max(0, last - max(first, until))
        until = max(until, last)
    length = sum(last - first for first, last in walls)
    return total, total / length if length else 1.0
