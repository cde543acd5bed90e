"""``python -m strandline.conformance FILE…``: replay recorded answers of timely's tracker and compare every field of every step.

``tests/golden/README.md`` describes the format: one JSON object per line, plain or gzip. Each object has a graph, a sequence of
atomic batches and the answers of timely 0.29's tracker after each batch. Exit status: 0 all equal, 1 something differs, 2 a file
cannot be read.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strandline.errors import StrandlineError, TraceError
from strandline.testing import errors
from strandline.time.domain import TimeDomain, product
from strandline.time.path.summary import summary_from_json
from strandline.tracker.graph import Graph, Location, source, target
from strandline.tracker.reachability import Tracker

__all__ = ["Difference", "Report", "main", "replay"]

_CASE_FIELDS = frozenset({"shape", "summaries", "edges", "scope_summary", "steps"})
_STEP_FIELDS = frozenset({"updates", "pushed", "outputs", "is_global", "tracking_anything", "input_frontiers"})
_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class Difference:
    """A failed comparison: its position, the recorded value and the tracker's value. ``step`` is None for the graph itself."""

    case: int
    step: int | None
    field: str
    location: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        where = f"case {self.case}, {'graph' if self.step is None else f'step {self.step}'}, {self.field}, {self.location}"
        return f"{where}:\n  expected {_text(self.expected)}\n  got      {_text(self.got)}"


@dataclass
class Report:
    """The counts of a replay, and its first difference (the replay ends there)."""

    cases: int = 0
    steps: int = 0
    comparisons: int = 0
    difference: Difference | None = None


class _DifferenceFoundError(Exception):
    def __init__(self, difference: Difference) -> None:
        self.difference = difference
        super().__init__(str(difference))


def replay(path: str | Path) -> Report:
    """Replay one trace file. The report ends at the first difference. Raises :class:`TraceError` for an unreadable file.

    >>> replay("no-such-trace.jsonl")
    Traceback (most recent call last):
    strandline.errors.TraceError: [STRANDLINE_TRACE_UNREADABLE] The trace no-such-trace.jsonl cannot be read: ...
    """
    report = Report()
    for number, case in enumerate(_cases(Path(path)), 1):
        try:
            _Replay(number, case, report).run()
        except _DifferenceFoundError as found:
            report.difference = found.difference
            break
        except (StrandlineError, ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise errors.trace_unreadable_case(path, number, error) from error
        report.cases += 1
    if report.cases == 0 and report.difference is None:
        raise errors.trace_unreadable_empty(path)
    return report


class _Replay:
    """One case: a graph, and the replay of its batches on a tracker."""

    def __init__(self, number: int, case: dict[str, Any], report: Report) -> None:
        _fields(case, _CASE_FIELDS, "the case")
        self.number = number
        self.case = case
        self.report = report
        self.step: int | None = None
        self.domain = _domain(case)
        self.graph = Graph(self.domain)
        shape, summaries = case["shape"], case["summaries"]
        if len(shape) != len(summaries):
            raise ValueError(f"{len(shape)} nodes have a shape and {len(summaries)} have summaries")
        for (inputs, outputs), rows in zip(shape, summaries, strict=True):
            connectivity = []
            for row in rows:
                if len(row) > outputs:  # outputs that are left out at the end are not reached
                    raise ValueError(f"summaries to {len(row)} outputs where the node has {outputs}")
                connectivity.append({i: [summary_from_json(self.domain, s) for s in paths] for i, paths in enumerate(row)})
            if len(connectivity) != inputs:
                raise ValueError(f"summaries from {len(connectivity)} inputs where the node has {inputs}")
            self.graph.add_node(inputs, outputs, connectivity)
        for edge in case["edges"]:
            self.graph.add_edge(*edge)
        self.tracker = Tracker(self.graph)

    def run(self) -> None:
        scope = [
            sorted([output, sorted(s.to_json() for s in paths)] for output, paths in row.items())
            for row in self.tracker.scope_summary
        ]
        recorded = self.case["scope_summary"]
        self._count("scope_summary", "scope inputs", len(recorded), len(scope))
        for port, (expected, got) in enumerate(zip(recorded, scope, strict=True)):
            expected = sorted([output, sorted(paths)] for output, paths in expected)
            self._same("scope_summary", f"source/0/{port}", expected, got)
        for number, step in enumerate(self.case["steps"], 1):
            self.step = number
            _fields(step, _STEP_FIELDS, f"step {number}")
            self._step(step)
            self.report.steps += 1

    def _step(self, step: dict[str, Any]) -> None:
        tracker, domain = self.tracker, self.domain
        updates = [(_location(where), domain.from_json(time), _integer(delta)) for where, time, delta in step["updates"]]
        for location, time, delta in updates:
            tracker.update(location, time, delta)
        tracker.propagate_all()

        pushed = [[_port(location), domain.to_json(time), delta] for location, time, delta in tracker.pushed()]
        self._rows("pushed", step["pushed"], pushed)
        outputs = [[[domain.to_json(time), delta] for time, delta in changes] for changes in tracker.pushed_outputs()]
        self._count("outputs", "scope outputs", len(step["outputs"]), len(outputs))
        for port, (expected, got) in enumerate(zip(step["outputs"], outputs, strict=True)):
            self._same("outputs", f"target/0/{port}", expected, got)
        self._count("is_global", "updates", len(step["is_global"]), len(updates))
        for (location, time, _), expected in zip(updates, step["is_global"], strict=True):
            where = f"{_slashes(location)} at {domain.to_json(time)}"
            self._same("is_global", where, expected, tracker.is_global(location, time))
        self._same("tracking_anything", "whole scope", step["tracking_anything"], tracker.tracking_anything())
        frontiers = {
            _slashes(location): tracker.frontier(location).to_json()
            for location in self.graph.locations()
            if not location.is_source
        }
        self._same("input_frontiers", "names of locations", sorted(step["input_frontiers"]), sorted(frontiers))
        for name, frontier in sorted(frontiers.items()):
            self._same("input_frontiers", name, step["input_frontiers"][name], frontier)

    def _rows(self, field: str, expected: list[Any], got: list[Any]) -> None:
        for theirs, ours in zip(expected, got, strict=False):
            self._same(field, "/".join(map(str, theirs[0])), theirs, ours)
        shorter = min(len(expected), len(got))
        for theirs in expected[shorter:]:
            self._same(field, "/".join(map(str, theirs[0])), theirs, None)
        for ours in got[shorter:]:
            self._same(field, "/".join(map(str, ours[0])), None, ours)
        self._count(field, "changes", len(expected), len(got))

    def _count(self, field: str, of: str, expected: int, got: int) -> None:
        self._same(field, f"number of {of}", expected, got)

    def _same(self, field: str, location: str, expected: Any, got: Any) -> None:
        self.report.comparisons += 1
        # In JSON, true and 1.0 are different from 1. Python's == would hide this.
        if expected != got or repr(expected) != repr(got):
            raise _DifferenceFoundError(Difference(self.number, self.step, field, location, expected, got))


def _domain(case: dict[str, Any]) -> TimeDomain:
    """Return a product domain with as many coordinates as the trace's times."""
    times = [time for step in case["steps"] for _, time, _ in step["updates"]]
    times += [path for node in case["summaries"] for row in node for paths in row for path in paths]
    widths = {len(time) for time in times} or {3}
    if len(widths) != 1:
        raise ValueError(f"times have {sorted(widths)} coordinates")
    return product(**{f"t{i}": "uint64" for i in range(widths.pop())})


def _cases(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            magic = file.read(2)
        with gzip.open(path, "rt", encoding="utf-8") if magic == _MAGIC else path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                case = json.loads(line)
                if not isinstance(case, dict):
                    raise errors.trace_unreadable_line(path, number)
                yield case
    except OSError as error:
        raise errors.trace_unreadable_file(path, error) from error
    except (EOFError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise errors.trace_unreadable_content(path, error) from error
    except Exception as error:
        if type(error).__module__ != "zlib":  # zlib.error, a damaged gzip body
            raise
        raise errors.trace_unreadable_gzip(path, error) from error


def _fields(value: dict[str, Any], fields: frozenset[str], what: str) -> None:
    if set(value) != fields:
        raise ValueError(f"{what} has the fields {sorted(value)}, not {sorted(fields)}")


def _location(where: Sequence[Any]) -> Location:
    kind, node, port = where
    if kind not in ("source", "target"):
        raise ValueError(f"{kind!r} is neither source nor target")
    return source(node, port) if kind == "source" else target(node, port)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not an integer")
    return value


def _port(location: Location) -> list[Any]:
    return ["source" if location.is_source else "target", location.node, location.port]


def _slashes(location: Location) -> str:
    return "/".join(map(str, _port(location)))


def _text(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay the files named on the command line, print the results, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m strandline.conformance",
        description="Replay recorded traces of timely's tracker and compare every field of every step.",
        epilog="Exit status: 0 all equal, 1 something differs, 2 a file cannot be read.",
    )
    parser.add_argument("file", nargs="+", help="a trace, one JSON object a line, plain or gzip")
    status = 0
    total = Report()
    for file in parser.parse_args(arguments).file:
        try:
            report = replay(file)
        except TraceError as error:
            print(error, file=sys.stderr)
            status = 2
            continue
        total.cases += report.cases
        total.steps += report.steps
        total.comparisons += report.comparisons
        print(f"{file}: {_counts(report)}, {'all equal' if report.difference is None else 'DIFFERS'}")
        if report.difference is not None:
            print(report.difference)
            status = max(status, 1)
    print(f"total: {_counts(total)}")
    return status


def _counts(report: Report) -> str:
    return f"{report.cases} cases, {report.steps} steps, {report.comparisons} comparisons"


if __name__ == "__main__":
    sys.exit(main())
