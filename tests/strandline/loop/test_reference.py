"""The random loops that Spark runs, in the core's dataflow: it gives the rows that their plain evaluation gives.

Spark's answers are compared with the plain evaluation (``tests/pyspark_strandline/loops/test_loops.py``), and so with the
dataflow.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest

from loop_plans import LoopPlan, Row
from strandline.dataflow.builder import Cluster, Scope, Stream
from strandline.dataflow.operators import InputPort, OutputPort
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, uint64
from strandline.tracker.notificator import Notificator

Seen = list[tuple[Time, int, int, int]]


def body(stream: Stream, plan: LoopPlan, seen: Seen) -> Stream:
    """Make one row of the rows with one number at one time, when the time is complete."""
    waiting: dict[Time, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))

    def group(rows: InputPort, output: OutputPort, notificator: Notificator) -> None:
        for token, records in rows:
            for n, left in records:
                waiting[token.time][n].append(left)
            notificator.notify_at(token.retain())
        for capability, _ in notificator.ready([rows]):
            for n, lefts in waiting.pop(capability.time, {}).items():
                many = len(set(lefts)) if plan.operator == "distinct" else len(lefts)
                seen.append((capability.time, n, max(lefts), many))
                output.send(capability, [(n, max(lefts))])

    return stream.unary_notify("group", group)


def onward(stream: Stream, plan: LoopPlan, name: str) -> Stream:
    """Return the rows that a feedback takes on."""
    return stream.map(lambda row: plan.onward(name, *row)).filter(lambda row: row is not None)


def loops(scope: Scope, stream: Stream, plan: LoopPlan, seen: Seen) -> None:
    """Build the loops of a plan's shape."""
    with scope.nested("first") as first:
        if plan.shape == "nested":
            from_outer, outer = first.feedback()
            begun = stream.enter(first).concat(outer)
            with first.nested("second") as second:
                from_inner, inner = second.feedback()
                rows = body(begun.enter(second).concat(inner), plan, seen)
                from_inner.connect(onward(rows, plan, "inner"))
                left = onward(rows, plan, "outer").leave()
            from_outer.connect(left)
            return
        everything, ends = stream.enter(first), {}
        for name in plan.ways:
            ends[name], came = first.feedback(first.refinement.feedback(2 if name == "far" else 1))
            everything = everything.concat(came)
        rows = body(everything, plan, seen)
        for name, end in ends.items():
            end.connect(onward(rows, plan, name))


def run(plan: LoopPlan) -> Seen:
    """Return every row of the body."""
    cluster, seen = Cluster(1, plan.seed), []
    handles: list[Any] = []
    for scope in cluster.scopes(uint64):
        handle, stream = scope.input("in")
        handles.append(handle)
        loops(scope, stream, plan, seen)
    at, draw = 0, random.Random(plan.seed)
    for epoch, rows in (commit for phase in plan.phases for commit in phase):
        send: list[Row] = list(rows)
        handles[0].send(*send)
        if epoch > at:
            handles[0].advance_to(at := epoch)
        for _ in range(draw.randint(0, 5)):
            cluster.step()
    handles[0].close()
    cluster.run()
    return sorted(seen)


PLANS = [plan for seed in range(400) if (plan := LoopPlan.of(seed)).shape in ("one", "two", "nested")]


@pytest.mark.drawn
@pytest.mark.parametrize("shape", ["one", "two", "nested"])
def test_the_dataflow_gives_the_rows_of_the_plain_evaluation(shape: str) -> None:
    plans = [plan for plan in PLANS if plan.shape == shape][:60]
    assert len(plans) == 60
    for plan in plans:
        assert run(plan) == plan.seen(Antichain(plan.domain)), plan
