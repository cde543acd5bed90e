"""A failing plan made small: a change is kept when the plan still fails after it.

A change is a line of text that is applied to a plan as the changes before it left it, so that a seed and its changes say
exactly which plan is meant: ``--plan-seed 17 --plan-changes "join runs 0; default 0 spark.sql.ansi.enabled; without 2"``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from plans.environment import BY_NAME, Environment, consistent
from plans.history import History
from plans.plan import Node, Plan, Source, Tree, channels_of, domain_of, nodes_of, renumbered


def candidates(plan: Plan) -> Iterator[str]:
    """The changes that may make a plan smaller, what takes most away first."""
    for i in range(plan.phases - 1):
        yield f"join runs {i}"
        yield f"join runs in the later {i}"
    if plan.replay:
        yield "no replay"
    yield from (f"defaults {i}" for i, environment in enumerate(plan.environments) if environment.changed)
    yield from (f"without {place}" for place, _ in enumerate(nodes_of(plan.tree)))
    yield from (f"channel {c}" for c in range(len(plan.histories)))
    yield from (f"default {i} {name}" for i, environment in enumerate(plan.environments) for name, _ in environment.changed)
    for c, history in enumerate(plan.histories):
        yield from (f"commits {c} {a} {b}" for a, b in _halves(len(history.commits)))
    yield from (f"all files {c}" for c, files in enumerate(plan.files) if files is not None)
    if plan.sink != "foreachBatch":
        yield "foreachBatch"
    for c, history in enumerate(plan.histories):
        yield from (f"rows {c} {a} {b}" for a, b in _halves(len(_rows(history))))


def changed(plan: Plan, change: str) -> Plan | None:
    """The plan after a change; ``None`` where there is nothing to change, or no plan would be left."""
    what = max((name for name in _CHANGES if f"{change} ".startswith(f"{name} ")), key=len)
    words, make = _CHANGES[what]
    return make(plan, *change[len(what) :].split(maxsplit=words - 1) if words else ())


def with_changes(plan: Plan, changes: Sequence[str]) -> Plan:
    """The plan after all of them, one after the other."""
    for change in changes:
        after = changed(plan, change)
        if after is None:
            raise ValueError(f"nothing to do for {change!r} in {plan}")
        plan = after
    return plan


@dataclass(frozen=True)
class Shrunk:
    """The smallest plan that was found to fail, and how it came from the first."""

    plan: Plan
    changes: tuple[str, ...]
    tries: int

    def __str__(self) -> str:
        changes = "; ".join(self.changes)
        return f"{self.plan}\nafter {self.tries} tries: --plan-seed {self.plan.seed} --plan-changes {changes!r}"


def shrink(plan: Plan, fails: Callable[[Plan], bool], tries: int) -> Shrunk:
    """The smallest that still ``fails``, greedily, within so many tries. ``plan`` itself is known to fail."""
    kept: list[str] = []
    tried = at = since = 0
    while tried < tries:
        choices = list(candidates(plan))
        if since >= len(choices):
            break
        change = choices[at % len(choices)]
        smaller = changed(plan, change)
        if smaller is None:
            at, since = at + 1, since + 1
            continue
        tried += 1
        if fails(smaller):
            plan, since = smaller, 0
            kept.append(change)
        else:
            at, since = at + 1, since + 1
    return Shrunk(plan, tuple(kept), tried)


def _halves(count: int) -> Iterator[tuple[int, int]]:
    """All of a sequence, its halves, the halves of those, down to its elements."""
    size = count
    while size:
        yield from ((a, min(a + size, count)) for a in range(0, count, size))
        size = size // 2 if size > 1 else 0


def _joined(plan: Plan, place: str, later: int = 0) -> Plan | None:
    """One restart less: a run goes on with what the next one has, under the settings of itself or of the ``later``."""
    i = int(place)
    if i + 1 >= plan.phases:
        return None

    def joined(history: History) -> History:
        phases = history.phases
        return replace(history, phases=(*phases[:i], phases[i] + phases[i + 1], *phases[i + 2 :]))

    environments = consistent([e for k, e in enumerate(plan.environments) if k != i + 1 - later])
    return replace(plan, histories=tuple(map(joined, plan.histories)), environments=environments)


def _in_environment(plan: Plan, place: str, change: Callable[[Environment], Environment]) -> Plan | None:
    environments = consistent([change(e) if k == int(place) else e for k, e in enumerate(plan.environments)])
    return None if environments == plan.environments else replace(plan, environments=environments)


def _default(plan: Plan, place: str, name: str) -> Plan | None:
    return _in_environment(plan, place, lambda environment: environment.with_setting(name, BY_NAME[name].default))


def _without(plan: Plan, place: str) -> Plan | None:
    """One operator less, where the ones above it can do with its input's times."""
    nodes = nodes_of(plan.tree)
    if int(place) >= len(nodes):
        return None
    gone = nodes[int(place)]

    def less(tree: Tree) -> Tree:
        if isinstance(tree, Source):
            return tree
        if tree is gone:
            return tree.inputs[0]
        return replace(tree, inputs=tuple(map(less, tree.inputs)))

    tree = less(plan.tree)
    if isinstance(tree, Source) or not _fits(tree, plan):
        return None
    return _over_used(plan, tree)


def _fits(tree: Node, plan: Plan) -> bool:
    """Whether every operator takes the times that it is given, and both sides of a join give the same."""
    for node in nodes_of(tree):
        domains = {domain_of(each, plan.domain) for each in node.inputs if isinstance(each, Source) or _fits(each, plan)}
        if len(domains) != 1 or not domains <= set(node.operator.domains):
            return False
    return True


def _over_used(plan: Plan, tree: Node) -> Plan:
    """Only the channels that the tree reads."""
    used = channels_of(tree)
    return replace(
        plan,
        tree=renumbered(tree, {old: new for new, old in enumerate(used)}),
        histories=tuple(plan.histories[c] for c in used),
        files=tuple(plan.files[c] for c in used),
        sink="foreachBatch" if tree.operator.last else plan.sink,
    )


def _without_channel(plan: Plan, channel: str) -> Plan | None:
    """No union reads it any more; a source that is nothing else reads another in its place."""
    gone = int(channel)
    left = [c for c in range(len(plan.histories)) if c != gone]
    if not left:
        return None

    def less(tree: Tree) -> Tree:
        if isinstance(tree, Source):
            return Source(tuple(c for c in tree.channels if c != gone) or (left[0],))
        return replace(tree, inputs=tuple(map(less, tree.inputs)))

    tree = less(plan.tree)
    return _over_used(plan, tree) if isinstance(tree, Node) else None


def _with_history(plan: Plan, channel: str, change: Callable[[History], History]) -> Plan | None:
    c = int(channel)
    if c >= len(plan.histories):
        return None
    histories = tuple(change(h) if i == c else h for i, h in enumerate(plan.histories))
    return None if histories == plan.histories else replace(plan, histories=histories)


def _without_commits(plan: Plan, channel: str, first: str, end: str) -> Plan | None:
    gone = range(int(first), int(end))

    def less(history: History) -> History:
        places = iter(range(len(history.commits)))
        phases = tuple(tuple(commit for commit in phase if next(places) not in gone) for phase in history.phases)
        return _said(replace(history, phases=phases))

    return _with_history(plan, channel, less)


def _rows(history: History) -> list[tuple[int, int, int]]:
    return [
        (c, f, r) for c, commit in enumerate(history.commits) for f, part in enumerate(commit.files) for r in range(len(part))
    ]


def _without_rows(plan: Plan, channel: str, first: str, end: str) -> Plan | None:
    def less(history: History) -> History:
        gone = set(_rows(history)[int(first) : int(end)])
        phases, place = [], 0
        for phase in history.phases:
            commits = []
            for commit in phase:
                parts = [
                    tuple(row for r, row in enumerate(part) if (place, f, r) not in gone) for f, part in enumerate(commit.files)
                ]
                commits.append(replace(commit, files=tuple(part for part in parts if part)))
                place += 1
            phases.append(tuple(commits))
        return _said(replace(history, phases=tuple(phases)))

    return _with_history(plan, channel, less)


def _said(history: History) -> History:
    """Without the commits that say nothing: no rows, and what their producer held already."""
    held = dict.fromkeys(history.producers, (history.start,))
    phases = []
    for phase in history.phases:
        commits = []
        for commit in phase:
            if commit.files or commit.holds != held[commit.producer]:
                commits.append(commit)
                held[commit.producer] = commit.holds
        phases.append(tuple(commits))
    return replace(history, phases=tuple(phases))


def _all_files(plan: Plan, channel: str) -> Plan | None:
    c = int(channel)
    if c >= len(plan.files) or plan.files[c] is None:
        return None
    return replace(plan, files=tuple(None if i == c else n for i, n in enumerate(plan.files)))


_CHANGES: dict[str, tuple[int, Callable[..., Plan | None]]] = {
    "join runs": (1, _joined),
    "join runs in the later": (1, lambda plan, place: _joined(plan, place, later=1)),
    "no replay": (0, lambda plan: replace(plan, replay=False) if plan.replay else None),
    "defaults": (1, lambda plan, place: _in_environment(plan, place, lambda _: Environment())),
    "default": (2, _default),
    "without": (1, _without),
    "channel": (1, _without_channel),
    "commits": (3, _without_commits),
    "rows": (3, _without_rows),
    "all files": (1, _all_files),
    "foreachBatch": (0, lambda plan: replace(plan, sink="foreachBatch") if plan.sink != "foreachBatch" else None),
}
"""What a change is called, how many words it has after that, and what it does."""
