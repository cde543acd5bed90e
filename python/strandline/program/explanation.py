"""How a program is evaluated, as text and as a graph: its strata, and which relation reads which, and why it waits."""

from __future__ import annotations

from strandline.program.plan import ProgramPlan
from strandline.program.strata import edges

__all__ = ["as_dot", "as_text", "strata"]


def strata(plan: ProgramPlan) -> list[list[str]]:
    """Return the names of the relations of each stratum. The last one may have none, only rules for the next tick."""
    known = [relation.stratum for relation in plan.relations.values()] + [rule.stratum for rule in plan.rules]
    count = 1 + max(known, default=0)
    return [[relation.name for relation in plan.relations.values() if relation.stratum == each] for each in range(count)]


def as_text(plan: ProgramPlan) -> str:
    """Return the strata with their rules: what each reads, where it is written, and what it waits for."""
    lines = [f"program {plan.name}: ticks of {plan.tick}, step {plan.step}"]
    for stratum, names in enumerate(strata(plan)):
        lines.append(f"stratum {stratum}")
        for name in names:
            relation = plan.relations[name]
            columns = ", ".join(f"{field.name} {field.type}" for field in relation.schema)
            lines.append(f"  {'input' if relation.is_input else 'relation'} {name}({columns}), kept {_kept(relation.keep)}")
        for rule in (rule for rule in plan.rules if rule.stratum == stratum):
            found = [(edge.word, edge.relation) for edge in edges([rule])]
            what = ", ".join(f"{word} {relation}".strip() for word, relation in found) or "nothing"
            whole = sorted({relation for word, relation in found if word})
            waits = f"; needs all of {', '.join(whole)}, of earlier strata" if whole else ""
            later = f" at the next tick (+{plan.step})" if rule.next_tick else ""
            lines.append(f"  {rule.head}{later} reads {what} ({rule.place}){waits}")
    return "\n".join(lines)


def as_dot(plan: ProgramPlan) -> str:
    """Return the graph for graphviz: a box for each stratum; an edge from what is read to what reads it, with its word.

    Edges to the next tick are dashed.
    """
    lines = [f'digraph "{plan.name}" {{', "  rankdir=LR;"]
    for stratum, names in enumerate(strata(plan)):
        shapes = [f'"{name}" [shape={"box" if plan.relations[name].is_input else "ellipse"}];' for name in names]
        lines.append(f'  subgraph cluster_{stratum} {{ label="stratum {stratum}"; {" ".join(shapes)} }}')
    drawn = dict.fromkeys((edge.relation, edge.head, edge.word, edge.rule.next_tick) for edge in edges(plan.rules))
    for relation, head, word, later in drawn:
        label = ", ".join(filter(None, (word, f"+{plan.step}" if later else "")))
        style = ", style=dashed" if later else ""
        lines.append(f'  "{relation}" -> "{head}" [label="{label}"{style}];')
    return "\n".join([*lines, "}"])


def _kept(keep: str) -> str:
    return "always" if keep == "always" else "for the tick"
