"""A reference model of Triceps' loops (seed 5): plain Python, one record at a time, nothing clever.

``run`` plays a graph of nodes. Each node takes the record with the lowest stamp that may still come to it. A seed decides which
node steps next, and how many records the timestamper lets in before the loop comes round, as micro-batches do.

>>> def b(record, state):
...     return [("D", record.payload)]
>>> def d(record, state):
...     return [("loop", record.payload - 1)] if record.payload else [("out", "done")]
>>> result = run([(1000, 2)], {"B": b, "C": drop, "D": d}, Link(100, "fixed"))
>>> [(entry.original.instant, entry.new.instant, entry.payload) for entry in result.log]
[(1000, 1100, 1), (1100, 1200, 0)]
>>> result.outputs
(Output(stamp=Stamp(instant=1200, node=0, n=1), node='D', payload='done'),)
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from triceps_graph import END, FIGURE, Graph, Link, Node, Output, Queues, Record, Stamp, drop, earliest_instant
from triceps_log import Diverged, Divergence, Entry, OnDivergence, chained, verify
from triceps_machine import Machine, Result

__all__ = [
    "END",
    "FIGURE",
    "Diverged",
    "Divergence",
    "Entry",
    "Graph",
    "Link",
    "Machine",
    "Node",
    "Output",
    "Queues",
    "Record",
    "Result",
    "Stamp",
    "Stuck",
    "chained",
    "drop",
    "earliest_instant",
    "run",
    "verify",
]


class Stuck(Exception):  # noqa: N818  # what happened
    """No node can step, and records wait."""


def run(
    records: Sequence[tuple[int, Any]],
    program: Mapping[str, Node],
    link: Link | Sequence[Link],
    schedule_seed: int = 0,
    *,
    graph: Graph = FIGURE,
    queues: Queues | None = None,
    replay: Sequence[Entry] | None = None,
    on_divergence: OnDivergence = "abort",
    kills: float = 0.0,
    limit: int = 100_000,
) -> Result:
    """Run records, as pairs of instant and payload in the order of instants, through a program.

    Args:
        records: What comes from outside.
        program: A function for each node. A node without one sends what it takes to all nodes after it.
        link: The looping links.
        schedule_seed: Decides who steps next, and how often.
        graph: The nodes and ordinary links.
        queues: How much ordinary links hold; without it, any number.
        replay: A log to replay.
        on_divergence: ``abort`` raises :class:`Diverged`; ``report`` plays the log to its end; ``restamp`` goes on by case 2.
        kills: How likely a step is a crash, after which the run goes on from its last checkpoint.
        limit: The most steps, for programs that never end.
    """
    links = [link] if isinstance(link, Link) else list(link)
    machine = Machine(records, program, links, graph, queues, replay, on_divergence)
    rng = random.Random(schedule_seed)
    eager = {name: rng.choice([0.1, 1, 1, 10]) for name in [graph.input, *graph.nodes(), *(each.name for each in links)]}
    longest = rng.choice([1, 3, 10, 50])
    saved, idle = machine.fork(), 0
    for step in range(limit):
        machine.tick(step)
        if rng.random() < kills:
            machine = saved.fork()
            machine.tick(step)
        if rng.random() < 0.2:
            saved = machine.fork()
        actions = list(machine.actions()) or [action for action in [machine.rescue()] if action]
        if not actions:
            if machine.done and not machine.resolve():
                return machine.result()
            if any(each.clock and machine.link[each.name].expected is None for each in machine.links.values()) and idle < 10_000:
                idle += 1  # only the receiving clock can go on
            elif not machine.done and not machine.resolve():
                raise Stuck(machine.key())
            continue
        idle = 0
        action = rng.choices(actions, [eager[name] for _, name in actions])[0]
        for _ in range(rng.randint(1, longest)):
            machine.do(action)
            if action not in machine.actions():
                break  # a rescue is never repeated
    raise Stuck(f"The program has not ended after {limit} steps.")
