"""A deterministic simulator of the distributed protocol: random workers, delays, duplicates and crashes, checked at every step.

``python -m strandline.testing.simulation --seed 7 --steps 1000`` runs one simulation and prints what happened. A
failure is printed with the seed and the shrunken sequence of steps that still fails.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from strandline.errors import GraphError, StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain, lex, product, uint64
from strandline.time.path.summary import PathSummary, advance, identity
from strandline.tracker.explanation import least_paths
from strandline.tracker.graph import Graph, Location, source
from strandline.tracker.protocol import Batch, Change, View

__all__ = ["Report", "Run", "Simulation", "Violation", "atomic", "main", "random_graph", "shrink", "simulate"]

Step = tuple[int, int, int, int, int]
"""The first number selects an event. The others select its arguments, each modulo the number of choices."""

DOMAINS: tuple[TimeDomain, ...] = (
    uint64,
    product(epoch="uint64", iter="uint64"),
    product(a="uint64", b="uint64", c="uint64"),
    lex(tick="uint64", stratum="uint64", iter="uint64"),
)


_REMEDY = "Repeat the run with its seed, and correct the protocol."


class Violation(StrandlineError):  # noqa: N818  # the name in the literature
    """A run in which the protocol is not safe or not live. ``run`` reproduces it."""

    run: Run | None = None


@dataclass(frozen=True)
class Run:
    """Everything that determines a run: the same run gives the same events on every machine."""

    seed: int
    """Decides the graph and the domain."""
    workers: int
    durable: bool
    """Whether messages leave with the batch that reports them. If so, workers may crash. Else messages may overtake batches."""
    steps: tuple[Step, ...]

    @classmethod
    def random(cls, seed: int, steps: int) -> Run:
        """Return the run of a seed.

        >>> Run.random(7, 100) == Run.random(7, 100)
        True
        """
        rng = random.Random(seed)  # noqa: S311  # reproducible, not secret
        workers, durable = rng.randint(1, 4), rng.random() < 0.5
        made = tuple(tuple(rng.randrange(1 << 16) for _ in range(5)) for _ in range(steps))
        return cls(seed, workers, durable, made)  # type: ignore[arg-type]  # five numbers each


@dataclass
class Report:
    """What happened in a run."""

    steps: int = 0
    """How many of the run's steps could happen. The others found nothing to do."""
    events: Counter[str] = field(default_factory=Counter)
    checks: int = 0
    negative: int = 0
    """How many checks found a view with a negative count somewhere."""


def atomic(changes: list[Change]) -> list[list[Change]]:
    """Publish as the protocol does: all changes of a worker go into one batch."""
    return [changes]


class _Worker:
    """One worker: its capabilities, its waiting messages, and its unpublished changes."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.capabilities: list[tuple[Location, Time]] = []
        self.inbox: list[tuple[Location, Time]] = []
        self.pending: Counter[tuple[Location, Time]] = Counter()
        self.outbox: list[tuple[int, Location, Time]] = []
        self.log: list[Batch] = []
        # A crash goes back to this state, if messages leave with their batch.
        self.saved: list[tuple[Location, Time]] = []
        self.consumed: list[tuple[Location, Time]] = []


class Simulation:
    """Plays a :class:`Run`, and after every step checks in every worker's view the properties that the literature proves.

    *Safety* (invariant 6): for every capability and message that really exists and every path from it, each view's frontier at
    the path's end is not beyond the result. The truth is computed from least paths, not by a tracker. *Monotony* (12): no view's
    frontier moves backwards, except for a worker that restarts. *Liveness* (13): when everything is dropped, consumed and
    delivered, every view is empty. *Agreement* (10): then all views are equal.

    ``publish`` and ``view`` are the parts under test. The tests replace them with broken ones, to check that these are found.
    """

    def __init__(
        self,
        run: Run,
        publish: Callable[[list[Change]], list[list[Change]]] = atomic,
        view: type[View] = View,
    ) -> None:
        self.run, self.report = run, Report()
        self._publish, self._view_type = publish, view
        rng = random.Random(run.seed)  # noqa: S311
        self.domain = rng.choice(DOMAINS)
        self.graph = random_graph(self.domain, rng)
        locations = self.graph.locations()
        paths = {to: least_paths(self.graph, to) for to in locations}
        self._results: dict[Location, list[tuple[Location, PathSummary]]] = {at: [] for at in locations}
        for to, found in paths.items():
            for at, summaries in found.items():
                self._results[at] += [(to, summary) for summary in summaries]
        start = self.domain.minimum
        sources = [location for location in locations if location.is_source]
        self._first = [(location, start, run.workers) for location in sources]
        self.workers = [_Worker(view(self.graph, run.workers, self._first)) for _ in range(run.workers)]
        for worker in self.workers:
            worker.capabilities = [(location, start) for location in sources]
            worker.saved = list(worker.capabilities)
        self._before: dict[tuple[int, Location], Antichain] = {}

    def play(self) -> Report:
        """Play all steps, then bring everything to an end. Raises :class:`Violation`."""
        try:
            self._check()
            for step in self.run.steps:
                if self._step(step):
                    self.report.steps += 1
                    self._check()
            self._wind_up()
        except Violation as violation:
            violation.run = self.run
            raise
        return self.report

    # The events. Each returns whether it could happen.

    def _step(self, step: Step) -> bool:
        kind, who, a, b, c = step
        worker_id = who % len(self.workers)
        worker = self.workers[worker_id]
        events: list[tuple[str, Callable[[], bool]]] = [
            ("delay", lambda: self._delay(worker, a, b, c)),
            ("send", lambda: self._send(worker, a, b, c)),
            ("consume", lambda: self._consume(worker, a, b, c)),
            ("publish", lambda: self._publish_pending(worker_id)),
            ("deliver", lambda: self._deliver(worker, a)),
            ("deliver", lambda: self._deliver(worker, a)),
            ("repeat", lambda: self._repeat(worker, a, b)),
            ("crash", lambda: self._crash(worker_id, a, b) if kind // 8 % 4 == 0 else False),
        ]
        name, event = events[kind % len(events)]
        happened = event()
        self.report.events[name] += happened
        return happened

    def _delay(self, worker: _Worker, a: int, b: int, c: int) -> bool:
        if not worker.capabilities:
            return False
        location, time = worker.capabilities.pop(a % len(worker.capabilities))
        worker.pending[location, time] -= 1
        if b % 32:
            self._hold(worker, location, self._later(time, b, c))
        return True

    def _send(self, worker: _Worker, a: int, b: int, c: int) -> bool:
        if not worker.capabilities:
            return False
        location, held = worker.capabilities[a % len(worker.capabilities)]
        time = self._later(held, b, c)
        for i, to in enumerate(self.graph.nodes[location.node].edges[location.port]):
            if to.node != 0:  # a message that leaves the scope no longer belongs to this computation
                worker.pending[to, time] += 1
                worker.outbox.append(((b + i) % len(self.workers), to, time))
        if not self.run.durable:
            self._release(worker)
        return True

    def _consume(self, worker: _Worker, a: int, b: int, c: int) -> bool:
        if not worker.inbox:
            return False
        location, time = worker.inbox.pop(a % len(worker.inbox))
        worker.consumed.append((location, time))
        worker.pending[location, time] -= 1
        for output, summaries in self.graph.nodes[location.node].summaries[location.port].items():
            for result in summaries.results_in(time):
                if (b >> output) & 1:
                    self._hold(worker, source(location.node, output), self._later(result, c, b))
        return True

    def _hold(self, worker: _Worker, location: Location, time: Time) -> None:
        worker.capabilities.append((location, time))
        worker.pending[location, time] += 1

    def _publish_pending(self, worker_id: int) -> bool:
        worker = self.workers[worker_id]
        changes = [(location, time, delta) for (location, time), delta in worker.pending.items() if delta]
        if not changes and not worker.outbox and not worker.consumed:
            return False
        for part in self._publish(changes):
            worker.log.append(Batch(worker_id, len(worker.log) + 1, tuple(part)))
        worker.pending.clear()
        worker.saved, worker.consumed = list(worker.capabilities), []
        self._release(worker)
        return True

    def _release(self, worker: _Worker) -> None:
        for to, location, time in worker.outbox:
            self.workers[to].inbox.append((location, time))
        worker.outbox = []

    def _deliver(self, worker: _Worker, a: int) -> bool:
        behind = [s for s, sender in enumerate(self.workers) if worker.view.positions[s] < len(sender.log)]
        if not behind:
            return False
        sender = behind[a % len(behind)]
        if not worker.view.receive(self.workers[sender].log[worker.view.positions[sender]]):
            raise Violation("STRANDLINE_PROTOCOL_VIOLATION", "A view treated a new batch as a duplicate.", _REMEDY)
        return True

    def _repeat(self, worker: _Worker, a: int, b: int) -> bool:
        received = [s for s, position in enumerate(worker.view.positions) if position > 0]
        if not received:
            return False
        sender = received[a % len(received)]
        worker.view.receive(self.workers[sender].log[b % worker.view.positions[sender]])
        return True

    def _crash(self, worker_id: int, a: int, b: int) -> bool:
        if not self.run.durable:
            return False
        worker = self.workers[worker_id]
        # Everything unpublished is undone. Messages consumed since the last publication wait again.
        worker.capabilities, worker.pending, worker.outbox = list(worker.saved), Counter(), []
        worker.inbox += worker.consumed
        worker.consumed = []
        if b % 2:  # restart from some worker's snapshot, or else from the logs
            worker.view = self._view_type.restore(self.graph, self.workers[a % len(self.workers)].view.snapshot())
        else:
            worker.view = self._view_type(self.graph, len(self.workers), self._first)
        self._before = {key: frontier for key, frontier in self._before.items() if key[0] != worker_id}
        return True

    def _later(self, time: Time, a: int, b: int) -> Time:
        names = [name for name, _ in self.domain.coordinates]
        summary = advance(self.domain, names[a % len(names)] if names else None, b % 3)
        result = summary.results_in(time)
        return time if result is None else result

    # The checks.

    def _reality(self) -> Counter[tuple[Location, Time]]:
        """Return everything that exists: current capabilities, those that a crash would restore, waiting and leaving messages."""
        real: Counter[tuple[Location, Time]] = Counter()
        for worker in self.workers:
            real.update(worker.capabilities)
            real.update(worker.inbox)
            real.update((location, time) for _, location, time in worker.outbox)
            if self.run.durable:
                real.update(worker.saved)
                real.update(worker.consumed)
        return real

    def _check(self) -> None:
        truth: dict[Location, Antichain] = {}
        for at, time in self._reality():
            for to, summary in self._results[at]:
                result = summary.results_in(time)
                if result is not None:
                    if to not in truth:
                        truth[to] = Antichain(self.domain)
                    truth[to].insert(result)
        for number, worker in enumerate(self.workers):
            tracker = worker.view.tracker
            self.report.negative += any(count < 0 for _, _, count in tracker.held())
            for location in self._results:
                self.report.checks += 1
                implied = tracker.implications(location)
                for time in truth.get(location, ()):
                    if not implied.less_equal(time):
                        raise Violation(
                            "STRANDLINE_PROTOCOL_UNSAFE",
                            f"Worker {number} treats the open time {self.domain.format(time)} as closed at {location}, where "
                            f"its frontier is {implied.frontier.format()}, after {self.report.steps} steps of seed "
                            f"{self.run.seed}.",
                            _REMEDY,
                        )
                now = implied.frontier
                before = self._before.get((number, location))
                if before is not None and not before.dominates(now):
                    raise Violation(
                        "STRANDLINE_PROTOCOL_BACKWARDS",
                        f"Worker {number}'s frontier at {location} moved back from {before.format()} to {now.format()}, "
                        f"after {self.report.steps} steps of seed {self.run.seed}.",
                        _REMEDY,
                    )
                self._before[number, location] = now

    def _wind_up(self) -> None:
        """Drop, consume, publish and deliver everything. Then nothing may be left, and all views must be equal."""
        for number, worker in enumerate(self.workers):
            self._publish_pending(number)
            while worker.capabilities:
                self._delay(worker, 0, 0, 0)
        for worker in self.workers:
            while worker.inbox:
                self._consume(worker, 0, 0, 0)
        for number in range(len(self.workers)):
            self._publish_pending(number)
        self._check()
        for worker in self.workers:
            while self._deliver(worker, 0):
                pass
        for number, worker in enumerate(self.workers):
            tracker = worker.view.tracker
            if tracker.tracking_anything() or tracker.held() or any(len(tracker.frontier(at)) for at in self._results):
                raise Violation(
                    "STRANDLINE_PROTOCOL_NOT_LIVE",
                    f"Worker {number} still holds {tracker.held()} after everything was dropped and delivered, seed "
                    f"{self.run.seed}.",
                    _REMEDY,
                )


def random_graph(domain: TimeDomain, rng: random.Random) -> Graph:
    """Return a graph of a few operators with random paths and loops. Every cycle in it advances times."""
    shape = [(1, rng.randint(1, 2))] + [(rng.randint(1, 2), rng.randint(1, 2)) for _ in range(rng.randint(1, 4))]
    names: list[str | None] = [name for name, _ in domain.coordinates]
    names = names or [None]

    def path() -> PathSummary:
        return identity(domain) if rng.random() < 0.6 else advance(domain, rng.choice(names), rng.randint(1, 2))

    rows: list[list[dict[int, list[PathSummary]]]] = [[{}]]
    rows += [
        [{o: [path() for _ in range(rng.randint(1, 2))] for o in range(outputs) if rng.random() < 0.8} for _ in range(inputs)]
        for inputs, outputs in shape[1:]
    ]
    outputs_of = [(n, o) for n, (_, outputs) in enumerate(shape) for o in range(outputs)]
    inputs_of = [(n, i) for n, (inputs, _) in enumerate(shape) for i in range(inputs)]
    pairs = [(start, end) for start in outputs_of for end in inputs_of]
    rng.shuffle(pairs)
    kept: list[tuple[tuple[int, int], tuple[int, int]]] = []

    def build() -> Graph:
        graph = Graph(domain)
        for (inputs, outputs), row in zip(shape, rows, strict=True):
            graph.add_node(inputs, outputs, row)
        for (n, o), (m, i) in kept:
            graph.add_edge(n, o, m, i)
        graph.validate()
        return graph

    for pair in pairs[: 2 * len(shape)]:
        kept.append(pair)
        try:
            build()
        except GraphError:
            kept.pop()
    return build()


def simulate(seed: int, steps: int) -> Report:
    """Play the run of a seed. Raises :class:`Violation`, which names the seed and contains the run.

    >>> report = simulate(7, 200)
    >>> report.steps > 100, report.events["deliver"] > 10
    (True, True)
    """
    return Simulation(Run.random(seed, steps)).play()


def shrink(run: Run, fails: Callable[[Run], bool], attempts: int = 5000) -> Run:
    """Return a run with fewer steps and smaller numbers that still ``fails`` (delta debugging).

    >>> run = Run.random(7, 64)
    >>> shorter = shrink(run, lambda r: sum(step[0] % 2 for step in r.steps) >= 2)
    >>> shorter.steps
    ((1, 0, 0, 0, 0), (1, 0, 0, 0, 0))
    """
    tried = 0

    def still(candidate: Run) -> bool:
        nonlocal tried
        tried += 1
        return tried <= attempts and fails(candidate)

    size = max(1, len(run.steps) // 2)
    while size:
        at = 0
        while at < len(run.steps):
            shorter = replace(run, steps=run.steps[:at] + run.steps[at + size :])
            if still(shorter):
                run = shorter
            else:
                at += size
        size //= 2
    for at, position in [(at, position) for at in range(len(run.steps)) for position in range(5)]:
        for smaller in _smaller(run.steps[at][position]):
            numbers = list(run.steps[at])
            numbers[position] = smaller
            step: Step = (numbers[0], numbers[1], numbers[2], numbers[3], numbers[4])
            candidate = replace(run, steps=(*run.steps[:at], step, *run.steps[at + 1 :]))
            if still(candidate):
                run = candidate
                break
    return run


def _smaller(number: int) -> Iterator[int]:
    yield from (n for n in range(min(number, 8)))
    yield from (number % (1 << bits) for bits in range(4, 16) if number % (1 << bits) < number)


def fails(run: Run) -> bool:
    """Whether a run violates the protocol. :func:`shrink` keeps this true."""
    try:
        Simulation(run).play()
    except Violation:
        return True
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Play runs from the command line. The exit status is 1 when a run fails."""
    parser = argparse.ArgumentParser(
        prog="python -m strandline.testing.simulation", description="Simulate the distributed protocol."
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--runs", type=int, default=1, help="how many seeds, one after the other")
    parser.add_argument("--steps", type=int, default=1000, help="steps of each run")
    chosen = parser.parse_args(arguments)
    total = Report()
    for seed in range(chosen.seed, chosen.seed + chosen.runs):
        try:
            report = simulate(seed, chosen.steps)
        except Violation as violation:
            print(violation)
            shortest = shrink(Run.random(seed, chosen.steps), fails)
            print(f"shrunk to {len(shortest.steps)} steps: {shortest}")
            return 1
        total.steps += report.steps
        total.checks += report.checks
        total.negative += report.negative
        total.events += report.events
    events = ", ".join(f"{name} {count}" for name, count in sorted(total.events.items()))
    print(
        f"{chosen.runs} runs, {total.steps} steps, {total.checks} checks, {total.negative} views with negative counts: {events}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
