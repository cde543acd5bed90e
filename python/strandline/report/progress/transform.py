"""What one transform has done so far, and what it still has to do: the seven fields of Beam's progress report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from strandline.report import errors
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, parse_domain

__all__ = ["Parent", "TransformProgress"]

Parent = tuple[str, str]
"""The transform that an input comes from, and the name of that transform's output."""

Counts = Mapping[str, int]


@dataclass(frozen=True)
class TransformProgress:
    """The progress of one transform within a bundle (in Spark: a micro-batch). An element is a row.

    Elements are either fully processed, or active: begun and not finished. "Produced" counts only what fully processed elements
    gave. What active ones have given so far is counted apart.

    Source: seed 3, "Progress Reporting" and ``message PTransform``.

    Attributes:
        inputs: By the name of an input, where it comes from.
        input_elements_consumed: By input, the number of fully processed elements.
        output_elements_produced: By output, the number of elements that fully processed input gave.
        active_input_elements: The number of elements that were begun and are not finished, of all inputs together.
        active_output_elements_produced: By output, the number of elements that active input has given so far.
        active_output_elements_remaining: By output, the number of elements that active input will still give. An output that is
            missing here was not reported. A negative number is infinite known work.
        total_time_spent: Milliseconds spent here so far, of all inputs together and without what transforms after this one take.
            ``None``: not reported.
        frontiers: By output, the tentative frontier of its times. An output that is missing here was not reported, and holds
            nothing: its frontier counts as the empty one, which is +infinity.
        workers: How many parts of this transform ran side by side on average. ``total_time_spent`` is the sum over them.
        unreported: Why nothing is reported of this transform; ``None`` if it is reported.
        detail: What the transform consists of, for people.

    Raises:
        StrandlineError: ``STRANDLINE_REPORT_INVALID`` if a count is impossible or names an output that there is not.

    >>> sdf = TransformProgress(
    ...     inputs={"in": ("read", "out")},
    ...     input_elements_consumed={"in": 2},
    ...     output_elements_produced={"out": 30},
    ...     active_input_elements=2,
    ...     active_output_elements_produced={"out": 20},
    ...     active_output_elements_remaining={"out": 10},
    ... )
    >>> sdf.output_so_far("out"), sdf.is_reported, sdf.holds("out")
    (50, True, ())
    """

    inputs: Mapping[str, Parent] = field(default_factory=dict)
    input_elements_consumed: Counts = field(default_factory=dict)
    output_elements_produced: Counts = field(default_factory=dict)
    active_input_elements: int = 0
    active_output_elements_produced: Counts = field(default_factory=dict)
    active_output_elements_remaining: Counts = field(default_factory=dict)
    total_time_spent: float | None = None
    frontiers: Mapping[str, Antichain] = field(default_factory=dict)
    workers: float = 1.0
    unreported: str | None = None
    detail: str = ""

    def __post_init__(self) -> None:
        for name in ("input_elements_consumed", "output_elements_produced", "active_output_elements_produced"):
            for tag, count in getattr(self, name).items():
                _check_count(f"{name}[{tag!r}]", count)
        _check_count("active_input_elements", self.active_input_elements)
        for tag, count in self.active_output_elements_remaining.items():
            if type(count) is not int:
                raise errors.report_invalid(f"active_output_elements_remaining[{tag!r}] is {count!r}, not a whole number")
        for tag in self.input_elements_consumed:
            if tag not in self.inputs:
                raise errors.report_invalid(f"it has consumed elements of an input {tag!r}, but there is no such input")
        time = self.total_time_spent
        if time is not None and not (math.isfinite(time) and time >= 0):
            raise errors.report_invalid(f"total_time_spent is {time!r}, not a number of milliseconds")
        if not (math.isfinite(self.workers) and self.workers > 0):
            raise errors.report_invalid(f"workers is {self.workers!r}, not a number above 0")

    @property
    def is_reported(self) -> bool:
        """Whether anything is reported of this transform."""
        return self.unreported is None

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of all outputs that any field has, sorted."""
        found = {*self.output_elements_produced, *self.active_output_elements_produced, *self.active_output_elements_remaining}
        return tuple(sorted(found | set(self.frontiers)))

    def consumed(self) -> int:
        """Return the number of fully processed elements of all inputs."""
        return sum(self.input_elements_consumed.values())

    def output_so_far(self, output: str) -> int:
        """Return how many elements an output has given so far, from fully processed and from active input together."""
        return self.output_elements_produced.get(output, 0) + self.active_output_elements_produced.get(output, 0)

    def holds(self, output: str) -> tuple[Time, ...]:
        """Return the elements of an output's tentative frontier. None: nothing is held, or nothing was reported."""
        return tuple(self.frontiers.get(output, ()))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object. Its names are those of Beam's message."""
        if self.unreported is not None:
            # A frontier that nobody reports counts as +infinity, and it is said that it is not known.
            return {"inputs": _parents(self.inputs), "unreported": self.unreported, "detail": self.detail, "frontiers": {}}
        return {
            "inputs": _parents(self.inputs),
            "inputElementsConsumedCounts": dict(self.input_elements_consumed),
            "outputElementsProducedCounts": dict(self.output_elements_produced),
            "activeInputElementsCount": self.active_input_elements,
            "activeOutputElementsProducedCounts": dict(self.active_output_elements_produced),
            "activeOutputElementsRemainingCounts": dict(self.active_output_elements_remaining),
            "totalTimeSpent": self.total_time_spent,
            "frontiers": {
                name: {"domain": str(each.domain), "frontier": each.to_json()} for name, each in sorted(self.frontiers.items())
            },
            "workers": self.workers,
            "detail": self.detail,
        }

    @classmethod
    def from_json(cls, value: Any) -> TransformProgress:
        """Read what :meth:`to_json` gave.

        Raises:
            StrandlineError: ``STRANDLINE_REPORT_INVALID``, or a frontier is not one of its domain.

        >>> TransformProgress.from_json(TransformProgress(total_time_spent=3.0).to_json())
        TransformProgress(..., total_time_spent=3.0, ...)
        >>> TransformProgress.from_json({"inputs": {}, "activeInputElementsCount": -1})
        Traceback (most recent call last):
        strandline.errors.StrandlineError: [STRANDLINE_REPORT_INVALID] ...
        """
        if not isinstance(value, dict):
            raise errors.report_invalid(f"a transform is {str(value)[:100]!r}, not an object")
        inputs = {}
        for tag, parent in _object(value, "inputs").items():
            if not (isinstance(parent, list) and len(parent) == 2 and all(isinstance(part, str) for part in parent)):
                raise errors.report_invalid(f"the input {tag!r} comes from {parent!r}, not from a transform and its output")
            inputs[tag] = (parent[0], parent[1])
        unreported, detail = value.get("unreported"), value.get("detail", "")
        if not isinstance(unreported, str | None) or not isinstance(detail, str):
            raise errors.report_invalid("unreported and detail are texts")
        frontiers = {}
        for name, each in _object(value, "frontiers").items():
            if not isinstance(each, dict) or not isinstance(each.get("domain"), str):
                raise errors.report_invalid(f"the frontier of {name!r} has no domain")
            frontiers[name] = Antichain.from_json(parse_domain(each["domain"]), each.get("frontier"))
        time, workers = value.get("totalTimeSpent"), value.get("workers", 1.0)
        for name, number in (("totalTimeSpent", 0.0 if time is None else time), ("workers", workers)):
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise errors.report_invalid(f"{name} is {number!r}, not a number")
        return cls(
            inputs=inputs,
            input_elements_consumed=_object(value, "inputElementsConsumedCounts"),
            output_elements_produced=_object(value, "outputElementsProducedCounts"),
            active_input_elements=value.get("activeInputElementsCount", 0),
            active_output_elements_produced=_object(value, "activeOutputElementsProducedCounts"),
            active_output_elements_remaining=_object(value, "activeOutputElementsRemainingCounts"),
            total_time_spent=time,
            frontiers=frontiers,
            workers=workers,
            unreported=unreported,
            detail=detail,
        )

    def __repr__(self) -> str:
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self))
        return f"TransformProgress({', '.join(shown)})"


def _check_count(name: str, count: Any) -> None:
    if type(count) is not int or count < 0:
        raise errors.report_invalid(f"{name} is {count!r}, not a count")


def _object(value: dict[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name, {})
    if not isinstance(found, dict):
        raise errors.report_invalid(f"{name} is {found!r}, not an object")
    return found


def _parents(inputs: Mapping[str, Parent]) -> dict[str, list[str]]:
    return {tag: list(parent) for tag, parent in inputs.items()}
