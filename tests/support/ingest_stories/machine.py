"""A machine that tells stories of ingests: what comes, who acts, what fails, in any order. Every story ends well, or it fails."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ingest_stories.faults import KINDS, Fault, Faults
from ingest_stories.spec import Row, Rules
from ingest_stories.times import beyond, both, first
from ingest_stories.world import PAIR, SCALAR, World
from strandline.errors import StrandlineError

__all__ = ["AXES", "In", "Stories"]

AXES = frozenset(
    [
        "ahead",
        "changes",
        "corrections",
        "disturbed",
        "drop",
        "fail",
        "idle",
        "invalid",
        "manifest",
        "others",
        "pair",
        "plan",
        "rejoin",
        "replay",
        "seal",
        "several",
        "snapshot",
        "stale",
        "take_over",
        "upkeep",
    ]
)
"""What a story may have in it; a machine's ``axes`` may leave some out."""
NAMES = (("a", "b", "c"), ("x", "y", "a"), ("z", "b", "x"))
"""The partitions that each query's source has, the last one seldom; some of them two queries have."""


class In(NamedTuple):
    """A row that comes in: of which partition, how far from its newest time, whether it is a heartbeat; its punctuation."""

    whose: int
    step: int | None = 1
    flag: bool = False
    mark: int | None = None


steps = st.integers(-2, 6)
coming = st.builds(
    In, st.sampled_from([0, 0, 0, 1, 1, 1, 2, -1]), steps | steps | steps | st.none(), st.booleans(), st.none() | steps
)
brought = st.lists(coming, max_size=5)
announced = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 9), st.sampled_from([1, 1, 2, 3, -1])), max_size=5
)
"""Whose partition of which query, how far from the newest time, how many rows; a negative number cancels."""
simple = st.sampled_from([("ordered",), ("bounded", 3), ("punctuated",), ("heartbeat", None), ("heartbeat", ("ordered",))])
patterned = st.tuples(simple, simple).map(lambda two: ("composed", (("a", two[0]), ("[bx]", two[1]), ("*", ("ordered",)))))
manifests = st.builds(lambda kind: ("manifest", kind), st.sampled_from(["plain", "grows"]))
some_announced = st.tuples(manifests, simple).map(lambda two: ("composed", (("[ax]", two[0]), ("*", two[1]))))
plain_policies = simple | simple | patterned | manifests | some_announced
policies = plain_policies.map(lambda policy: ("idle", policy, 10_000)) | plain_policies
partitions = st.sampled_from([None, None, (0, "*"), (0, 1), (0, 1, 2)])
rules_ = st.builds(
    Rules,
    policies,
    partitions,
    st.sampled_from([None, None, 3]),
    st.sampled_from(["setAside"] * 4 + ["fail"]),
    st.sampled_from([False, False, False, True]),
    st.just(False),
)
faults = st.builds(Fault, st.integers(0, 3), st.sampled_from(KINDS), st.just("commit")) | st.builds(
    Fault, st.integers(0, 40), st.sampled_from(KINDS), st.just("any")
)
waits = st.sampled_from([1, 4_000, 11_000])
which = st.integers(0, 2)
hows = st.sampled_from(["", "", "", "limited", "snapshot"])
"""Whether a source may leave rows waiting, or is in its first snapshot."""
FAR = 1000


def has(*axes: str) -> Callable[[Any], bool]:
    """A precondition: stories have these axes, and a query has begun."""
    return lambda self: bool(self.axes.issuperset(axes) and self.world.queries)


class Stories(RuleBasedStateMachine):
    """One channel, up to three ingests with sources of their own, an operator, another producer, a store that fails."""

    axes = AXES

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.faults = self.stack.enter_context(Faults().installed())
        self.folder = Path(tempfile.mkdtemp(prefix="stories-"))
        self.world = World(self.folder, self.faults)
        self.newest: dict[str, int] = {}
        self.numbers = 0
        self.over: set[str] = set()
        """The queries whose first snapshot is over."""

    def teardown(self) -> None:
        try:
            if self.world.queries and sys.exc_info()[0] is None:
                self.finish()
        finally:
            self.stack.close()
            shutil.rmtree(self.folder)

    @initialize(
        pair=st.booleans(),
        corrections=st.sampled_from([False, False, True]),
        rules=st.lists(rules_, min_size=1, max_size=3),
        announced=announced,
    )
    def begin(
        self,
        rules: Sequence[Rules],
        pair: bool = False,
        corrections: bool = False,
        announced: Sequence[tuple[int, int, int, int]] = (),
    ) -> None:
        """The channel's kind, the first queries, what was announced before they began."""
        domain = PAIR if pair and "pair" in self.axes else SCALAR
        self.world = World(self.folder, self.faults, domain, corrections and "corrections" in self.axes)
        for kind in ("plain", "grows"):
            if "manifest" in self.axes and any(one.has(f"'{kind}'") for one in rules):
                self.world.announce(kind, self.entries(kind, announced, first=True))
        for which, one in enumerate(rules if "several" in self.axes else rules[:1]):
            self.world.start(f"q{which}", self.within_axes(which, one))

    # ------------------------------------------------------------------------------------------------------- queries

    @precondition(has("changes"))
    @rule(which=which, rules=rules_)
    def change(self, which: int, rules: Rules) -> None:
        """A query starts again with other settings."""
        query = self.query(which)
        self.world.start(query, self.within_axes(int(query[1:]), rules))

    @precondition(has("changes", "several", "take_over"))
    @rule(turns=st.lists(st.tuples(st.booleans(), manifests | policies, brought), min_size=3, max_size=5), rows=st.integers(1, 4))
    def turns(self, turns: Sequence[tuple[bool, tuple[Any, ...], Sequence[In]]], rows: int = 3) -> None:
        """Two queries take a partition over from each other, each time under another policy; all manifests announce it."""
        for kind in self.world.announced:
            self.announce(kind, [(0, 0, 3, rows)])
        for other, policy, brought in turns:
            self.change(int(other), Rules(policy, take_over=True))
            self.run(int(other), [[In(2 if other else 0), *brought]])

    @precondition(has())
    @rule(which=which, batches=st.lists(brought, min_size=1, max_size=3), tasks=st.integers(1, 2), wait=waits, how=hows)
    def run(self, which: int, batches: Sequence[Sequence[In]] = ((),), tasks: int = 1, wait: int = 1, how: str = "") -> None:
        """Some batches, undisturbed."""
        query = self.query(which)
        for rows in batches:
            refused = self.world.run(query, self.rows(query, rows), tasks=tasks, wait=wait, **self.how(query, how))
            self.world.mend(query, refused)

    @precondition(has())
    @rule(batches=st.lists(brought, min_size=2, max_size=6), wait=waits)
    def rounds(self, batches: Sequence[Sequence[In]], wait: int = 1) -> None:
        """Each query in turn takes in a batch."""
        for which, rows in enumerate(batches):
            self.run(which, [rows], wait=wait)

    @precondition(has("plan"))
    @rule(which=which, brought=brought, tasks=st.integers(1, 2), wait=waits)
    def plan(self, which: int, brought: Sequence[In] = (), tasks: int = 1, wait: int = 1) -> None:
        """A batch is planned and taken in, and not committed yet."""
        query = self.query(which)
        try:
            self.world.plan(query, self.rows(query, brought), tasks=tasks, wait=wait)
        except StrandlineError:
            self.world.mend(query, self.world.run(query))  # there is a reason, or this fails

    @precondition(lambda self: any(q.under_way for q in self.world.queries.values()))
    @rule(which=which, aborts=st.booleans())
    def commit(self, which: int, aborts: bool = True) -> None:
        """A batch that was planned is committed, whatever happened since."""
        under_way = [q.under_way for q in self.world.queries.values() if q.under_way]
        if not under_way:
            return
        attempt = under_way[which % len(under_way)]
        try:
            self.world.commit(attempt)
        except StrandlineError as error:
            if "changed what partition" in str(error):
                self.world.check_overtaken(attempt)
            if aborts:
                self.world.abort(attempt)
            self.world.restart(attempt.query)
            self.world.mend(attempt.query, self.world.run(attempt.query))
        self.world.judge.check()

    @precondition(has())
    @rule(which=which, keep=st.booleans())
    def restart(self, which: int, keep: bool = False) -> None:
        """A query's process dies, or is believed to be dead."""
        self.world.restart(self.query(which), keep=keep and "stale" in self.axes)

    @precondition(lambda self: self.world.stale)
    @rule(which=which, aborts=st.booleans())
    def stale(self, which: int, aborts: bool = False) -> None:
        """A process that was believed to be dead commits, or removes what its tasks wrote."""
        if not self.world.stale:
            return
        attempt = self.world.stale.pop(which % len(self.world.stale))
        try:
            if aborts:
                self.world.abort(attempt)
            else:
                self.world.commit(attempt)
        except StrandlineError:
            pass
        self.world.sync(attempt)
        self.world.judge.check()

    @precondition(has("disturbed"))
    @rule(
        which=which,
        brought=brought,
        fault=faults,
        others=st.sampled_from(["nothing", "a batch", "drop", "register"]),
        aborts=st.booleans(),
    )
    def disturbed(
        self, which: int, fault: Fault, brought: Sequence[In] = (), others: str = "nothing", aborts: bool = False
    ) -> None:
        """A batch while the store fails, with somebody else acting in a slow moment; then the batch again."""
        world, query = self.world, self.query(which)
        other = next((name for name in world.queries if name != query), query)
        acts: dict[str, Callable[[], Any]] = {
            "nothing": lambda: None,
            "a batch": lambda: None if other == query else world.run(other, self.rows(other, [In(0), In(1, mark=1, flag=True)])),
            "drop": lambda: self.drop(0) if "drop" in self.axes else None,
            "register": self.register,
        }
        done = world.run_disturbed(query, self.rows(query, brought), fault, acts[others], wait=1)
        if not done and aborts and world.stale:
            world.abort(world.stale.pop())
        if "stale" not in self.axes:
            world.stale.clear()
        if not done:
            world.mend(query, world.run(query))
        world.judge.check()

    @precondition(has("replay"))
    @rule(which=which, same=st.booleans(), brought=brought)
    def replay(self, which: int, same: bool = True, brought: Sequence[In] = ()) -> None:
        """Spark never heard that the last batch was committed, and runs it again; its source may give other rows."""
        query = self.query(which)
        self.world.replay(query, None if same else self.rows(query, brought))
        self.world.judge.check()

    # ------------------------------------------------------------------------------------------------------- others

    @precondition(has("rejoin"))
    @rule(which=st.integers(0, 5))
    def rejoin(self, which: int) -> None:
        """An operator lets a partition join again that has run ahead."""
        names = sorted(self.world.spec.partitions)
        if names:
            self.world.rejoin(names[which % len(names)])
            self.world.judge.check()

    @precondition(has("drop"))
    @rule(which=st.integers(0, 5), chance=st.integers(0, 1))
    def drop(self, which: int, chance: int = 0) -> None:
        """An operator gives up a partition."""
        names = sorted(self.world.spec.partitions)
        if names and not chance:
            self.world.drop(names[which % len(names)])
            self.world.judge.check()

    @precondition(lambda self: self.world.corrections and self.world.spec.late)
    @rule()
    def readmit(self) -> None:
        """An operator brings late rows back."""
        self.world.readmit()
        self.world.judge.check()

    @precondition(has("manifest"))
    @rule(kind=st.sampled_from(["plain", "grows"]), announced=announced, then=st.none() | st.integers(0, 6))
    def announce(self, kind: str, announced: Sequence[tuple[int, int, int, int]] = (), then: int | None = None) -> None:
        """More is announced, or cancelled; of a manifest that grows, nothing before ``then`` from now on (6: nothing at all)."""
        if kind not in self.world.announced:
            return
        still = None
        if kind == "grows" and then is not None:
            now = self.world.announced[kind].still
            at = self.time(
                max(map(first, now), default=0) + then if self.world.total else 3 * max(map(first, now), default=0) + then
            )
            still = both(now, [at]) if then < 6 else frozenset()
        self.world.announce(kind, self.entries(kind, announced), still)

    @precondition(has("seal"))
    @rule(chance=st.integers(0, 3))
    def seal(self, chance: int = 0) -> None:
        """Nobody may join any more."""
        if not chance and self.world.judge.version >= 0:
            self.world.seal()

    @precondition(has("others"))
    @rule(which=which, time=st.none() | st.integers(0, 12))
    def move(self, which: int, time: int | None = None) -> None:
        """A producer that is no ingest's joins, moves, goes."""
        if self.world.judge.version >= 0:
            self.world.move(f"w{which}", self.time(time))

    @precondition(lambda self: has("upkeep")(self) and self.world.judge.version >= 0 and not self.world.stale)
    @rule(what=st.sampled_from(["vacuum", "compact", "clean"]))
    def upkeep(self, what: str) -> None:
        """The tables are kept in order while no batch is under way."""
        if not any(query.under_way for query in self.world.queries.values()) and self.world.late.exists():
            self.world.upkeep(what)

    def register(self) -> None:
        """Somebody registers a producer of another kind, which gives up at once what it holds."""
        self.numbers += 1
        self.world.move(f"w{self.numbers}", None)

    def look(self) -> None:
        """An operator looks."""
        if self.world.judge.version >= 0:
            said = self.world.status()
            said.explain()
            assert said.aside == len(self.world.spec.late), f"status counts {said.aside} rows set aside, there are more or less"

    # ------------------------------------------------------------------------------------------------------- helpers

    def query(self, which: int) -> str:
        return f"q{which % len(self.world.queries)}"

    def rows(self, query: str, brought: Sequence[In]) -> list[Row]:
        """The rows that a source brings."""
        rows = []
        for whose, step, flag, mark in brought:
            self.numbers += 1
            name = NAMES[int(query[1:])][whose]
            newest = self.newest.get(name, 4)
            at = None if step is None else newest + step
            time = self.time(at)
            if at is not None and step:
                self.newest[name] = max(newest, at)
                times = sorted(self.world.expected(query, name))
                time = times[step % len(times)] if times and step % 2 else time
            who: str | None = name
            if "invalid" in self.axes and step is None and flag:
                who = (None, "", "$a", "strandline:a")[self.numbers % 4]
            rows.append(Row(time, who, self.numbers, self.time(None if mark is None else newest + mark), flag))
        return rows

    def entries(
        self, kind: str, wanted: Sequence[tuple[int, int, int, int]], *, first: bool = False
    ) -> list[tuple[str, Any, int]]:
        """What may be announced: nothing for a time that is complete, in a channel nothing before what it still holds."""
        spec, known = self.world.spec, self.world.announced.get(kind)
        left = {name: dict(times) for name, times in known.rows.items()} if known is not None else {}
        entries = []
        for whose, which, step, n in wanted:
            name = NAMES[which][whose]
            time = self.time(self.newest.get(name, 4) + step - 2)
            if name in spec.partitions:
                partition = spec.partitions[name]
                possible = beyond(partition.promised, time) and beyond(spec.held(name), time) and partition.soon is None
            else:
                possible = first or (bool(spec.registrar) and kind == "grows")
            still = known.still if known is not None and known.grows else ()
            if not possible or (still and not beyond(still, time)) or (known is not None and known.grows and not still):
                continue
            there = left.setdefault(name, {})
            if there.get(time, 0) + n >= 0:
                there[time] = there.get(time, 0) + n
                entries.append((name, time, n))
        return entries

    def how(self, query: str, how: str) -> dict[str, bool]:
        """How a source is read; once its first snapshot is over, it is over."""
        if how != "snapshot" or "snapshot" not in self.axes:
            self.over.add(query)
        return {"to_end": how != "limited", "snapshot": query not in self.over}

    def time(self, at: int | None) -> Any:
        if at is None or self.world.total:
            return at
        return (at // 3, at % 3)

    def within_axes(self, which: int, rules: Rules) -> Rules:
        """The settings without what the axes leave out, the partitions by name."""
        policy = rules.policy[1] if rules.policy[0] == "idle" and "idle" not in self.axes else rules.policy
        on_late = rules.on_late if "fail" in self.axes else "setAside"
        names = None
        if rules.partitions is not None:
            names = tuple(name if isinstance(name, str) else NAMES[which][name] for name in rules.partitions)
        if "manifest" in repr(policy) and "manifest" not in self.axes:
            policy = ("ordered",)
        return Rules(
            policy,
            names,
            rules.ahead if "ahead" in self.axes else None,
            on_late,
            rules.take_over and "take_over" in self.axes,
        )

    def finish(self) -> None:
        """All processes that were given up are gone, the store is well. Then all that was promised comes, and all is closed."""
        world = self.world
        world.stale.clear()
        for name in world.queries:
            world.restart(name)
            self.go_on(name)
        if world.judge.version < 0:
            return
        live = [name for name in world.queries if name not in world.spec.fenced]
        for name in list(world.spec.others):
            world.move(name, None)
        for kind, said in world.announced.items():
            if said.grows:
                world.announce(kind, [], frozenset())
        self.drop_all(lambda name, known: known.owner not in live or not self.brings(known.owner, name))
        for name in live:
            self.go_on(name)
            mine = [p for p, known in world.spec.partitions.items() if known.owner == name and not known.dropped]
            self.go_on(name, [row for partition in mine for row in self.last_rows(name, partition)])
        for name in live:
            self.go_on(name)
        for time in world.spec.least_held:
            assert first(time) >= FAR - 3, f"all came, and {time} is open: {world.spec.partitions}"
        self.drop_all(lambda name, known: True)
        world.seal()
        for name in live:
            self.go_on(name)
        world.judge.check(published=True)
        assert not world.spec.frontier, f"all is closed, but {set(world.spec.frontier)} is not"
        self.look()

    def go_on(self, name: str, rows: Sequence[Row] = ()) -> None:
        """The query runs until its batches are in, its settings and rows being mended as they must."""
        while self.world.queries[name].waiting is not None:
            refused = self.world.run(name)
            self.world.mend(name, refused)
            if refused == "STRANDLINE_INGEST_FENCED":
                return
        self.world.mend(name, self.world.run(name, rows))

    def brings(self, query: str | None, name: str) -> bool:
        """Whether a partition may still bring something by this query."""
        return query is not None and self.world._rules(self.world.queries[query].rules).admits(name)

    def last_rows(self, query: str, name: str) -> list[Row]:
        """All that a partition has still to bring, and something far in the future."""
        rules = self.world.queries[query].rules
        expected = self.world.expected(query, name)
        times = list(expected.elements())
        far = [FAR if self.world.total else (FAR, FAR)] if rules.of(name)[1][0] != "manifest" else []
        self.numbers += 1 + len(times)
        rows = [Row(time, name, self.numbers + i) for i, time in enumerate(times)]
        return rows + [Row(time, name, self.numbers + FAR, time, flag) for time in far for flag in (False, True)]

    def drop_all(self, which: Callable[[str, Any], bool]) -> None:
        """An operator gives up all partitions that fit."""
        names = [name for name, known in self.world.spec.partitions.items() if which(name, known) and not known.dropped]
        if names:
            self.world.drop(*names)
