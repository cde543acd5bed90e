"""Strata: each relation after those of which it needs the whole, and as few strata as there can be."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from strandline.program import errors
from strandline.program.plan import RelationPlan, RulePlan, reads

__all__ = ["Edge", "edges", "in_strata"]


class Edge(NamedTuple):
    """The head of a rule reads a relation. ``word`` says what must see the whole of it, and is empty where nothing must."""

    head: str
    word: str
    relation: str
    rule: RulePlan

    def __str__(self) -> str:
        return f"{self.head} -> {self.word} {self.relation}" if self.word else f"{self.head} -> {self.relation}"


def edges(rules: Iterable[RulePlan]) -> list[Edge]:
    """Return what the rules read, each once, in their order."""
    return [Edge(rule.head, word, relation, rule) for rule in rules for relation, word in dict.fromkeys(reads(rule.body))]


def in_strata(
    relations: Mapping[str, RelationPlan], rules: Sequence[RulePlan]
) -> tuple[dict[str, RelationPlan], tuple[RulePlan, ...]]:
    """Return relations and rules with their strata.

    A relation is in no earlier stratum than those that it reads, and in a later one than those of which it needs the whole. What
    a rule with ``next_tick`` gives belongs to another tick, so it binds nothing.

    Raises :class:`ProgramError` (``STRANDLINE_PROGRAM_UNSTRATIFIABLE``) with the loop, if a relation needs the whole of itself.
    """
    within = edges(rule for rule in rules if not rule.next_tick)
    for edge in within:
        if edge.word and (back := _path(within, edge.relation, edge.head)) is not None:
            raise _unstratifiable([edge, *back])
    # Every loop is monotone now, so a longest path passes each relation once, and this ends.
    strata = dict.fromkeys(relations, 0)
    moved = True
    while moved:
        moved = False
        for head, word, relation, _ in within:
            least = strata[relation] + bool(word)
            if strata[head] < least:
                strata[head], moved = least, True

    def of(rule: RulePlan) -> int:
        if not rule.next_tick:
            return strata[rule.head]
        return max((strata[relation] + bool(word) for relation, word in reads(rule.body)), default=0)

    return (
        {name: replace(relation, stratum=strata[name]) for name, relation in relations.items()},
        tuple(replace(rule, stratum=of(rule)) for rule in rules),
    )


def _path(within: Sequence[Edge], start: str, end: str) -> list[Edge] | None:
    """Return a shortest path of edges from one relation to those that it reads, or ``None``."""
    came: dict[str, list[Edge]] = {start: []}
    queue = deque([start])
    while queue:
        at = queue.popleft()
        if at == end:
            return came[at]
        for edge in within:
            if edge.head == at and edge.relation not in came:
                came[edge.relation] = [*came[at], edge]
                queue.append(edge.relation)
    return None


def _unstratifiable(loop: Sequence[Edge]) -> Exception:
    first = loop[0]
    drawn = " -> ".join([first.head, *(f"{edge.word} {edge.relation}".strip() for edge in loop)])
    error = errors.program_unstratifiable(first.rule.place, drawn, first.head, first.word, first.relation)
    error.loop = tuple((edge.head, edge.word, edge.relation) for edge in loop)
    return error
