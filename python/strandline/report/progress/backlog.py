"""Backlogs from progress reports: the formulae of Beam's proposal, under their names. Everything here is a pure function.

Unknown is ``None``, and is never replaced by a number. Infinite known work is ``math.inf``. The mean over no elements is
``None``, and 0 / 0 as a fraction is 0. Source: seed 3, "Backlog Computation" and "Latex Equations".

A *graph* is a mapping from names to :class:`TransformProgress`, such as :attr:`ProgressReport.transforms`. The example of the
seed's figures 1 and 2, with 20 elements produced from active ones:

>>> graph = {
...     "read": TransformProgress(output_elements_produced={"out": 4}, total_time_spent=0),
...     "sdf": TransformProgress(
...         inputs={"in": ("read", "out")}, input_elements_consumed={"in": 2}, output_elements_produced={"out": 30},
...         active_input_elements=2, active_output_elements_produced={"out": 20},
...         active_output_elements_remaining={"out": 10}, total_time_spent=19_000),
...     "dofn": TransformProgress(
...         inputs={"in": ("sdf", "out")}, input_elements_consumed={"in": 40}, active_input_elements=1,
...         total_time_spent=1_200),
... }
>>> intermediate_unprocessed_elements(graph, "dofn"), total_input_elements_remaining(graph, "dofn")
(9, 19.0)
>>> round(backlog_seconds(graph), 3)
4.4
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from graphlib import TopologicalSorter

from strandline.report.progress.transform import TransformProgress

__all__ = [
    "active_elements_fraction_consumed",
    "active_output_remaining",
    "average_element_processing_time",
    "average_output_count_per_element",
    "backlog_seconds",
    "catch_up_seconds",
    "intermediate_unprocessed_elements",
    "total_input_elements_remaining",
    "total_output_elements_remaining",
]

Graph = Mapping[str, TransformProgress]

_MS = 1000


def active_output_remaining(transform: TransformProgress, output: str) -> float | None:
    """Return how many elements the active input will still give to an output.

    If it was not reported, it is estimated: active elements give on average what fully processed ones gave, and some of that they
    have given. If no element has been processed, it is not known (``None``). A negative report is infinite.

    >>> half = TransformProgress(
    ...     inputs={"in": ("a", "out")}, input_elements_consumed={"in": 2}, output_elements_produced={"out": 20},
    ...     active_input_elements=3, active_output_elements_produced={"out": 4})
    >>> active_output_remaining(half, "out")
    26.0
    """
    if not transform.is_reported:
        return None
    reported = transform.active_output_elements_remaining.get(output)
    if reported is not None:
        return math.inf if reported < 0 else reported
    if not transform.active_input_elements:
        return 0
    consumed = transform.consumed()
    if not consumed:
        return None
    expected = transform.active_input_elements * transform.output_elements_produced.get(output, 0) / consumed
    return max(0.0, expected - transform.active_output_elements_produced.get(output, 0))


def active_elements_fraction_consumed(transform: TransformProgress) -> float | None:
    """Return how much of the active input has been consumed, in elements: more than 1 if several are active.

    activeElements · Σ activeOutputProduced / Σ (activeOutputProduced + activeOutputRemaining), over the outputs. It assumes that
    elements give their output evenly. 0 / 0 is 0.

    >>> active_elements_fraction_consumed(TransformProgress(
    ...     active_input_elements=2, active_output_elements_produced={"out": 20},
    ...     active_output_elements_remaining={"out": 10}))
    1.3333333333333333
    """
    if not transform.is_reported:
        return None
    produced = sum(transform.active_output_elements_produced.values())
    if not transform.active_input_elements or not produced:
        return 0.0
    remaining = _sum(active_output_remaining(transform, output) for output in transform.outputs)
    return None if remaining is None else transform.active_input_elements * produced / (produced + remaining)


def average_element_processing_time(transform: TransformProgress) -> float | None:
    """Return the mean time to process an input element, in seconds: totalTimeSpent / (fractionConsumed + Σ consumed).

    The elements of all inputs count alike: the time is reported for all of them together.

    >>> average_element_processing_time(TransformProgress(
    ...     inputs={"a": ("x", "out"), "b": ("y", "out")}, input_elements_consumed={"a": 10, "b": 30}, total_time_spent=1200))
    0.03
    """
    fraction = active_elements_fraction_consumed(transform)
    if fraction is None or transform.total_time_spent is None:
        return None
    elements = fraction + transform.consumed()
    return transform.total_time_spent / _MS / elements if elements else None


def average_output_count_per_element(transform: TransformProgress, output: str) -> float | None:
    """Return how many elements of an output one input element gives on average.

    (produced + activeProduced + activeRemaining) / (activeElements + Σ consumed).

    >>> average_output_count_per_element(TransformProgress(
    ...     inputs={"in": ("read", "out")}, input_elements_consumed={"in": 2}, output_elements_produced={"out": 30},
    ...     active_input_elements=2, active_output_elements_produced={"out": 20},
    ...     active_output_elements_remaining={"out": 10}), "out")
    15.0
    """
    remaining = active_output_remaining(transform, output)
    elements = transform.active_input_elements + transform.consumed()
    if remaining is None or not elements:
        return None
    return (transform.output_so_far(output) + remaining) / elements


def intermediate_unprocessed_elements(graph: Graph, name: str) -> float | None:
    """Return how many elements the parents have produced that this transform has not begun.

    Σ over inputs (all output of the parent so far − consumed) − activeElements. Active elements are subtracted once, whatever the
    number of inputs. A running bundle's counts are not all of one instant, so a difference below 0 is 0.

    ``None``: this transform, or a parent, is not reported.
    """
    transform = graph[name]
    parents = [(tag, graph[parent], output) for tag, (parent, output) in transform.inputs.items()]
    if not transform.is_reported or not all(parent.is_reported for _, parent, _ in parents):
        return None
    begun = transform.consumed() + transform.active_input_elements
    return max(0, sum(parent.output_so_far(output) for _, parent, output in parents) - begun)


def total_input_elements_remaining(graph: Graph, name: str) -> float | None:
    """Return how many elements are still to come to a transform, or have come and were not begun.

    Σ over inputs totalOutputElementsRemaining(parent) + intermediateUnprocessedElements. ``None``: not known.
    """
    return _remaining(graph)[0][name]


def total_output_elements_remaining(graph: Graph, name: str, output: str) -> float | None:
    """Return how many elements a transform will still give to an output.

    totalInputElementsRemaining · averageOutputCountPerElement + activeOutputRemaining. ``None``: not known.
    """
    return _remaining(graph)[1](name, output)


def backlog_seconds(graph: Graph) -> float | None:
    """Return the time to process all known work that was not claimed, in seconds of one worker.

    Σ over transforms averageElementProcessingTime · (totalInputElementsRemaining + activeElements − fractionConsumed). The
    fraction counts elements already, so what remains of the active elements is a difference.

    ``None``: not known, because a transform that has work left is not reported or has no mean time yet. ``math.inf``: a transform
    has infinite known work. Then the frontier is what shows the progress.
    """
    return _seconds(graph, lambda _: 1.0)


def catch_up_seconds(graph: Graph) -> float | None:
    """Return the time until all known work is done, in seconds that pass: :func:`backlog_seconds` by the number of workers.

    The workers of a transform are those that were seen to run side by side so far. It assumes that transforms take turns, as the
    stages of a micro-batch and the driver do.
    """
    return _seconds(graph, lambda transform: transform.workers)


def _seconds(graph: Graph, workers: Callable[[TransformProgress], float]) -> float | None:
    if any(count < 0 for each in graph.values() for count in each.active_output_elements_remaining.values()):
        return math.inf
    incoming, _ = _remaining(graph)
    terms = []
    for name, each in graph.items():
        fraction = active_elements_fraction_consumed(each)
        left = _sum([incoming[name], None if fraction is None else max(0.0, each.active_input_elements - fraction)])
        seconds = _product(left, average_element_processing_time(each))
        terms.append(None if seconds is None else seconds / workers(each))
    return _sum(terms)


def _remaining(graph: Graph) -> tuple[dict[str, float | None], Callable[[str, str], float | None]]:
    """Return by transform what is still to come to it, and a function for what it will still give."""
    incoming: dict[str, float | None] = {}

    def outgoing(name: str, output: str) -> float | None:
        each = graph[name]
        given = _product(incoming[name], average_output_count_per_element(each, output))
        return _sum([given, active_output_remaining(each, output)])

    order = TopologicalSorter({name: [parent for parent, _ in each.inputs.values()] for name, each in graph.items()})
    for name in order.static_order():
        parents = graph[name].inputs.values()
        incoming[name] = _sum([*(outgoing(*parent) for parent in parents), intermediate_unprocessed_elements(graph, name)])
    return incoming, outgoing


def _sum(terms: Iterable[float | None]) -> float | None:
    """Return the sum. Infinite if a term is: an unknown term does not make it less. Otherwise unknown if a term is."""
    every = list(terms)
    if math.inf in every:
        return math.inf
    known = [term for term in every if term is not None]
    return sum(known) if len(known) == len(every) else None


def _product(count: float | None, each: float | None) -> float | None:
    """Return the product. Nothing times anything, be it unknown or infinite, is nothing."""
    if count == 0 or each == 0:
        return 0.0
    return None if count is None or each is None else count * each
