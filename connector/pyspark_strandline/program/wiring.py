"""Which relation is read in which stratum, and by which channel of the loop its rows come there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta

import pyarrow as pa

from pyspark_strandline.operators.summary_steps import By
from strandline.program.plan import Except, Meet, Node, ProgramPlan, Read, RelationPlan, RulePlan, reads
from strandline.time.domain import Lex, TimeDomain, timestamp

__all__ = ["NEXT", "ROUND", "TICKS", "Wiring"]

TICKS = "_ticks"
"""A relation without columns: it has a row in each tick that has any."""
NEXT = "_next"
"""The channel of what is carried to the next tick."""
ROUND = "_round"
"""The channel of what comes round to its own stratum."""
_LATER = "_later_"


class Wiring:
    """The channels between the rules of a program.

    A relation's rows go round by ``_round`` to the rules of its own stratum, and by ``_later_2`` to those of the stratum two
    later, at whose beginning all of them are there. What a rule carries to the next tick goes by ``_next``. There it comes from
    outside, as an input does, and a rule of its own gives it to the relation.

    Args:
        plan: The program.
        at_once: Whether the first stratum reads what comes from outside as it comes. Otherwise it goes round first.

    >>> from strandline.program import Program
    >>> p = Program("example")
    >>> edge, node, end = p.input("edge", "x long, y long"), p.input("node", "x long"), p.relation("end", "x long")
    >>> p.rule(end, node.subtract(edge.select("x")))
    >>> wiring = Wiring(p.plan(), at_once=True)
    >>> wiring.way("edge", 1), wiring.targets()
    ('_later_1', {'edge': ['_later_1'], 'node': ['_later_1'], 'end': ['end']})
    """

    def __init__(self, plan: ProgramPlan, *, at_once: bool) -> None:
        self._at_once, self._step = at_once, plan.step
        self.relations = dict(plan.relations)
        self.rules = list(plan.rules)
        self.carried: dict[str, str] = {}
        """For each relation of what was carried into a tick, the tag of its rows on the way there."""
        for rule in plan.rules:
            name = f"_next_{rule.head}"
            if rule.next_tick and name not in self.relations:
                head = plan.relations[rule.head]
                self.relations[name] = RelationPlan(name, head.schema, "tick", True, None, 0)
                self.rules.append(RulePlan(head.name, Read(name, head.schema), False, head.stratum, rule.place))
                self.carried[name] = f"_to{name}"
        self.relations[TICKS] = RelationPlan(TICKS, pa.schema([]), "tick", True, None, 0)
        self._readers: dict[str, set[int]] = {name: set() for name in self.relations}
        for rule in self.rules:
            read = {name for name, _ in reads(rule.body)}
            for name in read | ({TICKS} if any(self.relations[name].keep == "always" for name in read) else set()):
                self._readers[name].add(rule.stratum)
        self._results = [relation.name for relation in plan.relations.values() if not relation.is_input]

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """The columns of each relation."""
        return {name: relation.schema for name, relation in self.relations.items()}

    def is_outside(self, name: str) -> bool:
        """Whether a relation's rows come into a tick from outside."""
        return self.relations[name].is_input

    def is_read_at_once(self, name: str, stratum: int) -> bool:
        """Whether a stratum reads what comes from outside as it comes, before it has gone round."""
        return self._at_once and stratum == 0 and self.is_outside(name) and name != TICKS

    def ways(self, name: str) -> list[str]:
        """Return the channels by which a relation's rows go to the strata that read it."""
        return [self.way(name, stratum) for stratum in sorted(self._readers[name]) if not self.is_read_at_once(name, stratum)]

    def way(self, name: str, stratum: int) -> str:
        """Return the channel by which a relation's rows come to a stratum."""
        later = stratum - self.relations[name].stratum
        return f"{_LATER}{later}" if later else ROUND

    def tag(self, rule: RulePlan) -> str:
        """Return the tag of a rule's rows: the relation that has them, in this tick or carried to the next."""
        return self.carried[f"_next_{rule.head}"] if rule.next_tick else rule.head

    def targets(self) -> dict[str, list[str]]:
        """Return the names of the channels that get the rows of each tag."""
        found = {name: [*self.ways(name), *([name] if name in self._results else [])] for name in self.relations}
        return {tag: names for tag, names in found.items() if names} | {tag: [NEXT] for tag in self.carried.values()}

    def passing(self) -> list[str]:
        """Return the channels whose rows no operator keeps to emit something later.

        What must see a whole set keeps what it reads, and so does the left side of a difference. What is kept for good waits
        until its time is complete.
        """
        kept: set[str] = set()
        for name, relation in self.relations.items():
            if self.is_outside(name) and (not self._at_once or relation.keep == "always"):
                kept.add(NEXT if name in self.carried else name)  # before it goes round
        for rule in self.rules:
            is_kept = not rule.next_tick and self.relations[rule.head].keep == "always"
            waiting = {name for name, waits in _keeps(rule.body) if is_kept or waits}
            if any(self.relations[name].keep == "always" for name in waiting):
                waiting.add(TICKS)  # with which what is kept for good is there anew in each tick
            for name in waiting:
                at_once = self.is_read_at_once(name, rule.stratum)
                kept.add((NEXT if name in self.carried else name) if at_once else self.way(name, rule.stratum))
        channels = {way for name in self.relations for way in self.ways(name)} | {ROUND}
        channels |= {NEXT} if self.carried else set()
        channels |= {name for name in self.relations if self.is_outside(name) and name not in self.carried and name != TICKS}
        return sorted(channels - kept)

    def feedback(self, domain: Lex) -> dict[str, tuple[TimeDomain, Mapping[str, By]]]:
        """Return the channels of the loop, each with the domain of its times, and by how much these advance.

        Args:
            domain: The times inside: ``lex(tick, stratum, iter)``.
        """
        found: dict[str, tuple[TimeDomain, Mapping[str, By]]] = {}
        for name in sorted({way for relation in self.relations for way in self.ways(relation)} | {ROUND}):
            later = name.removeprefix(_LATER)
            found[name] = (domain, {"iter": 1}) if name == ROUND else (Lex(domain.coordinates[:2]), {"stratum": int(later)})
        tick = domain.coordinates[0][1]
        step: By = timedelta(microseconds=self._step) if tick == timestamp else self._step
        return found | ({NEXT: (tick, {"": step})} if self.carried else {})


def _keeps(node: Node, waits: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield each relation that a body reads, and whether an operator of the body keeps its rows to emit something later."""
    if isinstance(node, Read):
        yield node.relation, waits
    is_difference = isinstance(node, Except) or (isinstance(node, Meet) and node.how == "left_anti")
    for child, word in zip(node.children, node.waits, strict=True):
        yield from _keeps(child, waits or is_difference or bool(word))
