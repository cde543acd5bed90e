"""A random plan: a bare one with more restarts, other forms of its operators, settings, and times at which clocks change.

What is drawn here is drawn beside the bare plan, so that a seed's bare plan stays what it was.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from plans.environment import CLOCK_CHANGES, random_environments
from plans.foreign import Foreign
from plans.forms import FORMS, RARE_FORMS, NotInStreams
from plans.grouping import GroupingSets, LastOfWindow, SumInForm
from plans.joins import DISTANCE_FORMS, IntervalJoin, Join
from plans.joins import FORMS as FORMS_OF_JOIN
from plans.plan import Node, Plan, Source, Tree, bare_plan, channels_of, domain_of, operators_of, renumbered
from plans.stream import Operator
from plans.times import EPOCH, EVENT, SECOND, START, TIMESTAMP, Domain, Time
from plans.unary import Deduplicate, Distinct, Sum, SumInMode

BEFORE = 8 * SECOND
"""How long before a change of clocks a history begins."""
SLOW = 3 * 3600
"""How much slower some histories are: their rows are hours apart, as joins on days need them."""


def random_plan(seed: int) -> Plan:
    """The plan of a seed."""
    plan, r = bare_plan(seed), Random(f"variations of {seed}")
    tree = _other_last(r, plan)
    tree = _varied(r, tree, plan.domain, alone=not all(op.modes == ("append",) for op in operators_of(tree)))
    used = channels_of(tree)
    histories = tuple(plan.histories[c] for c in used)
    phases = max(plan.phases, r.choice((1, 1, 2, 2, 3)))
    histories = tuple(history.cut(phases, r) for history in histories)
    zone = None
    if plan.domain in (TIMESTAMP, EVENT):
        move, zone = _other_times(r)
        histories = tuple(history.at_times(lambda time: _moved(move, time)) for history in histories)
    tree = _with_modes(r, renumbered(tree, {old: new for new, old in enumerate(used)}), phases)
    return replace(
        plan,
        tree=tree,
        histories=histories,
        files=tuple(plan.files[c] for c in used),
        sink="foreachBatch" if tree.operator.last else plan.sink,
        environments=random_environments(r, plan.environments[0], phases, zone),
    )


def _other_times(r: Random) -> tuple[tuple[int, int], str | None]:
    """Where the histories begin, in microseconds, and how much slower they are; the zone whose clocks are then changed."""
    slow = SLOW if r.random() < 0.15 else 1
    if r.random() < 0.4:
        return (START, slow), None
    zone, change = r.choice(CLOCK_CHANGES)
    return ((change - EPOCH) // (EPOCH.resolution) - BEFORE * slow, slow), zone


def _moved(to: tuple[int, int], time: Time) -> Time:
    if isinstance(time, tuple):
        return (_moved(to, time[0]), *time[1:])
    start, slow = to
    return start + (time - START) * slow


def _other_last(r: Random, plan: Plan) -> Node:
    """Now and then another query altogether, over one of the sources: what cannot stand in a chain."""
    kinds = [kind for kind in (GroupingSets, LastOfWindow, SumInMode) if plan.domain in kind.domains]
    if r.random() >= 0.22:
        return plan.tree
    return Node(r.choice(kinds).draw(r, plan.domain), (_first_source(plan.tree),))


def _first_source(tree: Tree) -> Source:
    return tree if isinstance(tree, Source) else _first_source(tree.inputs[0])


def _varied(r: Random, tree: Any, domain: Domain, *, alone: bool) -> Any:
    """The tree with forms before and after its operators; ``alone``: with nothing more that has a state."""
    if isinstance(tree, Source):
        found: Tree = tree
    else:
        first = _varied(r, tree.inputs[0], domain, alone=alone)
        others = tuple(first if tree.alike else _varied(r, other, domain, alone=alone) for other in tree.inputs[1:])
        found = Node(_in_form(r, tree.operator, domain_of(tree.inputs[0], domain)), (first, *others), tree.alike)
        if tree.operator.last:
            return found
    now = domain_of(found, domain)
    while r.random() < 0.28:
        kind = _kind(r)
        if now in kind.domains:
            operator = kind.draw(r, now)
            if not (alone and isinstance(operator, Foreign) and operator.joins):
                found = Node(operator, (found,))
    return found


def _kind(r: Random) -> type[Operator]:
    chance = r.random()
    if chance < 0.06:
        return Foreign
    return r.choice(RARE_FORMS if chance < 0.13 else FORMS)


def _in_form(r: Random, operator: Operator, domain: Domain) -> Operator:
    if type(operator) is Sum and operator.by_key and r.random() < 0.7:
        return SumInForm.draw(r, domain)
    if isinstance(operator, Deduplicate) and r.random() < 0.5:
        return Distinct()
    if isinstance(operator, IntervalJoin) and r.random() < 0.7:
        forms = [form for form in DISTANCE_FORMS if operator.how == "inner" or form != "where"]
        return replace(operator, form=r.choice(forms if domain is TIMESTAMP else forms[:-1]))
    if isinstance(operator, Join) and r.random() < 0.5:
        return replace(operator, form=r.choice(FORMS_OF_JOIN))
    return operator


def _with_modes(r: Random, tree: Node, phases: int) -> Node:
    """A mode for each restart; only from an aggregation by time, and where Spark's analysis allows the query in each of them."""
    operator = tree.operator
    if type(operator) is not SumInMode or r.random() < 0.15:
        return tree
    modes = ("append", "update", "complete") if operator.timed else ("complete",)
    if any(isinstance(other, NotInStreams) for other in operators_of(tree)):
        modes = operator.modes
    later = tuple(r.choice(modes) for _ in range(phases - 1))
    first = r.choice(modes)
    return replace(tree, operator=replace(operator, mode=first, later=later))
