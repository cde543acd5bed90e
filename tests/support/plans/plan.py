"""A plan: a tree of operators over channels, the channels' histories, and how it is run; all drawn from one seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from plans.completion import Hold, Notified, OnComplete
from plans.environment import PARTITIONS, PROVIDER, ROCKS, Environment
from plans.foreign import Foreign
from plans.history import EMPTY, KINDS, MUTE, History, Row, random_history
from plans.joins import IntervalJoin, Join
from plans.moving import Moved
from plans.stream import Operator, Stream
from plans.times import DOMAINS, TIMESTAMP, Domain
from plans.unary import Deduplicate, DeduplicateWithin, Filter, InArrow, Limit, StaticJoin, Sum, SumInMode
from plans.windows import Session, Window, WindowOfWindow

OPERATORS: tuple[type[Operator], ...] = (
    *(Sum, Sum, SumInMode, SumInMode, SumInMode, Deduplicate, DeduplicateWithin, DeduplicateWithin, Limit),
    *(Window, Window, WindowOfWindow, Session, Session, Join, Join, IntervalJoin, IntervalJoin),
    *(Hold, OnComplete, Notified),
)
"""The stateful ones; one that is named twice is drawn twice as often."""
STATELESS: tuple[type[Operator], ...] = (Filter, StaticJoin, InArrow, Moved, Moved, Moved)


@dataclass(frozen=True)
class Source:
    """A union of channels, each by its place."""

    channels: tuple[int, ...]

    def __str__(self) -> str:
        return f"channels {'+'.join(map(str, self.channels))}"


@dataclass(frozen=True)
class Node:
    """An operator over its inputs. ``alike``: both are the same stream, which is read once."""

    operator: Operator
    inputs: tuple[Node | Source, ...]
    alike: bool = False

    def __str__(self) -> str:
        inputs = " , ".join(map(str, self.inputs)) + (" (read once)" if self.alike else "")
        return f"{inputs}\n    -> {self.operator}" if len(self.inputs) == 1 else f"[ {inputs} ]\n    -> {self.operator}"


Tree = Node | Source


@dataclass(frozen=True)
class Plan:
    """All that a run depends on."""

    seed: int
    domain: Domain
    tree: Node
    histories: tuple[History, ...]
    files: tuple[int | None, ...]
    """``maxFilesPerTrigger`` of each channel."""
    sink: str
    environments: tuple[Environment, ...]
    """One for each start of the query."""
    replay: bool
    """Whether each restart finds its last batch without a commit, as after a kill, and runs it again."""

    @property
    def phases(self) -> int:
        """How often the query is started."""
        return len(self.histories[0].phases)

    @property
    def closes(self) -> bool:
        """Whether times are ever closed: not beside a source that states no frontier."""
        return not any(isinstance(operator, Foreign) for operator in operators_of(self.tree))

    @property
    def chooses(self) -> bool:
        """Whether Spark may choose among rows."""
        return any(operator.chooses for operator in operators_of(self.tree))

    def mode(self, phase: int) -> str:
        """The output mode of a start of the query."""
        return self.tree.operator.mode_in(phase)

    def replays(self, phase: int, before: int) -> bool:
        """Whether a start runs the newest batch again, which start ``before`` ran: not in another mode, where it gives others."""
        return self.replay and self.mode(phase) == self.mode(before)

    def refusals(self, phase: int) -> frozenset[str]:
        """The conditions by which a start may be refused."""
        environment = self.environments[phase]
        nodes = nodes_of(self.tree)
        found = (node.operator.refusals(environment, domain_of(node.inputs[0], self.domain)) for node in nodes)
        return frozenset().union(*found)

    def __str__(self) -> str:
        sources = "; ".join(
            f"{i}: {h.kind}, {len(h.producers)} producers, {len(h.commits)} commits, files a trigger {n}"
            for i, (h, n) in enumerate(zip(self.histories, self.files, strict=True))
        )
        runs = f"{self.phases} runs{' with replays' if self.replay else ''}"
        begin = self.domain.said(self.histories[0].start)
        modes = [self.mode(phase) for phase in range(self.phases)]
        how = f"{' then '.join(m for i, m in enumerate(modes) if not i or m != modes[i - 1])} into {self.sink}, {runs}"
        settings = "".join(f"\n  run {i}: {environment}" for i, environment in enumerate(self.environments))
        return f"plan {self.seed} over {self.domain.text} from {begin}: {how}{settings}\n  {sources}\n  {self.tree}"


def channels_of(tree: Tree) -> list[int]:
    """The channels that a tree reads; the others are not in the query."""
    if isinstance(tree, Source):
        return list(tree.channels)
    return sorted({c for each in tree.inputs for c in channels_of(each)})


def nodes_of(tree: Tree) -> list[Node]:
    """From the last to the first; a join's left side before its right one."""
    return [] if isinstance(tree, Source) else [tree, *(node for each in tree.inputs for node in nodes_of(each))]


def operators_of(tree: Tree) -> list[Operator]:
    """All operators of a tree, from the last to the first."""
    return [node.operator for node in nodes_of(tree)]


def domain_of(tree: Tree, domain: Domain) -> Domain:
    """The domain of the times that a tree gives."""
    return domain if isinstance(tree, Source) else tree.operator.output(domain_of(tree.inputs[0], domain))


def bare_plan(seed: int) -> Plan:
    """The plan of a seed under nearly Spark's defaults, and in its operators' plainest forms."""
    r = Random(seed)
    domain = r.choice((TIMESTAMP, TIMESTAMP, TIMESTAMP, *DOMAINS))
    count = r.choice((1, 1, 2, 2, 3))
    tree = _tree(r, domain, count, r.choice((1, 2, 2, 3)))
    used = channels_of(tree)
    tree = renumbered(tree, {old: new for new, old in enumerate(used)})
    phases = r.choice((1, 1, 1, 2))
    kinds = [r.choice(KINDS) for _ in used]
    if all(kind in (EMPTY, MUTE) for kind in kinds):
        kinds[0] = KINDS[0]
    ends = r.random() < 0.85
    histories = tuple(random_history(r, domain, phases, kind, ends=ends, commits=r.choice((2, 3, 4))) for kind in kinds)
    last = tree.operator
    files = tuple(r.choice((1, 1, 1, 2, 3, None)) for _ in used)
    sink = "foreachBatch" if last.last or r.random() < 0.7 else "channel"
    environment = Environment().with_setting(PARTITIONS, r.choice(("1", "1", "2")))
    if r.random() < 0.25:
        environment = environment.with_setting(PROVIDER, ROCKS)
    if r.random() >= 0.75:
        environment = environment.with_setting("nativeScan", "off")
    return Plan(seed, domain, tree, histories, files, sink, (environment,) * phases, replay=r.random() < 0.5)


def _tree(r: Random, domain: Domain, stateful: int, channels: int) -> Node:
    def source() -> Source:
        return Source(tuple(sorted(r.sample(range(channels), r.choice((1, 1, min(2, channels), channels))))))

    tree: Tree = source()
    for left in reversed(range(stateful)):
        if r.random() < 0.4:
            tree = _over(r.choice(STATELESS), r, tree, domain)
        now = domain_of(tree, domain)
        joined = _joins(tree)
        kinds = [
            kind
            for kind in OPERATORS
            if now in kind.domains and not (kind.modes != ("append",) and stateful > 1) and not (joined and kind.inputs > 1)
        ]
        while True:
            operator = r.choice(kinds).draw(r, now)
            if not (operator.last and left):
                break
        if operator.inputs == 1:
            tree = Node(operator, (tree,))
        else:
            how = r.choice(("other", "other", "other", "again", "once"))
            other = tree if how != "other" else _replaced(tree, source())
            tree = Node(operator, (tree, other), alike=how == "once")
    if not isinstance(tree, Node):
        raise AssertionError
    if not tree.operator.last and r.random() < 0.2:
        tree = _over(r.choice(STATELESS), r, tree, domain)
    return tree


def _over(kind: type[Operator], r: Random, tree: Tree, domain: Domain) -> Node:
    return Node(kind.draw(r, domain_of(tree, domain)), (tree,))


def _joins(tree: Tree) -> bool:
    return isinstance(tree, Node) and (len(tree.inputs) > 1 or any(map(_joins, tree.inputs)))


def _replaced(tree: Tree, source: Source) -> Tree:
    """The same operators over another source, so that times have come the same way on both sides of a join."""
    if isinstance(tree, Source):
        return source
    return Node(tree.operator, tuple(_replaced(t, source) for t in tree.inputs), tree.alike)


def renumbered(tree: Any, places: dict[int, int]) -> Any:
    """The same tree over channels at other places."""
    if isinstance(tree, Source):
        return Source(tuple(places[c] for c in tree.channels))
    return Node(tree.operator, tuple(renumbered(t, places) for t in tree.inputs), tree.alike)


def frame_of(tree: Tree, sources: Sequence[Any]) -> Any:
    """The tree in Spark."""
    if isinstance(tree, Source):
        first, *others = (sources[c] for c in tree.channels)
        for other in others:
            first = first.union(other)
        return first
    inputs = [frame_of(tree.inputs[0], sources)]
    if len(tree.inputs) > 1:
        inputs.append(inputs[0] if tree.alike else frame_of(tree.inputs[1], sources))
    return tree.operator.frame(*inputs)


Position = tuple[int, int]
"""A commit that a source is before, and how many of its files it has taken."""


class Model:
    """What the plan must give, from where each batch ended in each channel, and which start of the query ran it."""

    def __init__(self, plan: Plan, batches: Sequence[Sequence[Position]], phases: Sequence[int]) -> None:
        self.plan = plan
        self.batches = batches
        self.phases = tuple(phases)
        histories = plan.histories
        self.frontiers = [
            plan.domain.minimal(t for h, (v, _) in zip(histories, ends, strict=True) for t in h.frontier_until(v))
            for ends in batches
        ]

    def _source(self, source: Source) -> Stream:
        rows: list[tuple[Row, int]] = []
        for c in source.channels:
            taken = 0
            for batch, ends in enumerate(self.batches):
                until = self.plan.histories[c].rows_until(*ends[c])
                rows += [(row, batch) for row in until[taken:]]
                taken = len(until)
        return Stream(self.plan.domain, len(self.batches), (), self._closed, self.phases).with_rows(rows)

    def _closed(self, batch: int, time: Any) -> bool:
        return self.plan.closes and not self.plan.domain.open(self.frontiers[batch], time)

    def stream(self, tree: Tree) -> Stream:
        """The rows of a tree, and when its times are closed."""
        if isinstance(tree, Source):
            return self._source(tree)
        return tree.operator.stream(*map(self.stream, tree.inputs))

    def check(self, got: list[Counter[Row]]) -> None:
        """Hold what each batch gave to the plan's definition."""
        self.plan.tree.operator.check(got, *map(self.stream, self.plan.tree.inputs))
