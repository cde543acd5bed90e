"""The distributed protocol in simulation (invariants 6, 7, 10, 12, 13); the simulator finds protocols that are broken."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_strategies import PAIR, graphs
from strandline.errors import ProtocolError
from strandline.testing.simulation import Report, Run, Simulation, Violation, main, shrink, simulate
from strandline.time.domain import uint64
from strandline.tracker.graph import Graph, source, target
from strandline.tracker.protocol import Batch, Change, Snapshot, View
from strandline.tracker.reachability import Tracker


def play(seeds: range, steps: int) -> Report:
    total = Report()
    for seed in seeds:
        report = simulate(seed, steps)  # a violation names its seed
        total.steps += report.steps
        total.negative += report.negative
        total.events += report.events
    print(f"seeds {seeds.start} to {seeds.stop - 1}: {total}")
    return total


@pytest.mark.drawn
def test_a_few_thousand_steps_are_safe_and_live() -> None:
    total = play(range(30), 250)
    assert total.steps > 3000
    assert all(total.events[kind] > 50 for kind in ("delay", "send", "consume", "publish", "deliver", "repeat", "crash"))
    assert total.negative > 100  # receipts do overtake sendings in these runs


@pytest.mark.soak
def test_a_hundred_thousand_steps_are_safe_and_live() -> None:
    steps, seed = 0, 1000
    while steps < 100_000:
        steps += play(range(seed, seed + 50), 1000).steps
        seed += 50


def test_a_seed_reproduces_its_run() -> None:
    assert Run.random(11, 300) == Run.random(11, 300)
    first, second = simulate(11, 300), simulate(11, 300)
    assert first == second
    assert simulate(12, 300) != first


def retired_first(changes: list[Change]) -> list[list[Change]]:
    """Broken: what was retired is told before what came of it."""
    return [part for part in ([c for c in changes if c[2] < 0], [c for c in changes if c[2] > 0]) if part]


def forgetful(changes: list[Change]) -> list[list[Change]]:
    """Broken: of what was retired, the last is never told."""
    retired = [c for c in changes if c[2] < 0]
    return [[c for c in changes if c not in retired[-1:]]]


class Credulous(View):
    """Broken: takes duplicates in."""

    def receive(self, batch: Batch) -> bool:
        if batch.seq <= self.positions[batch.sender]:
            self._apply(batch.changes)
            return False
        return super().receive(batch)


class Boastful(View):
    """Broken: begins again with counts from before its positions, skipping a batch."""

    @classmethod
    def restore(cls, graph: Graph, snapshot: Snapshot) -> View:
        view = super().restore(graph, snapshot)
        view.positions = [max(0, position - 1) for position in view.positions]
        return view


BROKEN = [
    ({"publish": retired_first}, {"STRANDLINE_PROTOCOL_UNSAFE", "STRANDLINE_PROTOCOL_BACKWARDS"}),
    ({"publish": forgetful}, {"STRANDLINE_PROTOCOL_NOT_LIVE"}),
    ({"view": Credulous}, {"STRANDLINE_PROTOCOL_UNSAFE", "STRANDLINE_PROTOCOL_NOT_LIVE", "STRANDLINE_PROTOCOL_BACKWARDS"}),
    ({"view": Boastful}, {"STRANDLINE_PROTOCOL_UNSAFE", "STRANDLINE_PROTOCOL_NOT_LIVE", "STRANDLINE_PROTOCOL_BACKWARDS"}),
]


@pytest.mark.parametrize(("parts", "conditions"), BROKEN, ids=["split batches", "lost changes", "duplicates", "false positions"])
def test_a_broken_protocol_is_found_and_its_run_shrunk(parts: dict[str, object], conditions: set[str]) -> None:
    def violation(run: Run) -> Violation | None:
        try:
            Simulation(run, **parts).play()  # type: ignore[arg-type]
        except Violation as found:
            return found
        return None

    run = next(run for run in (Run.random(seed, 200) for seed in range(100)) if violation(run))
    shortest = shrink(run, lambda candidate: violation(candidate) is not None, attempts=1500)
    found = violation(shortest)
    assert found is not None
    assert found.condition in conditions
    assert found.run == shortest
    assert len(shortest.steps) <= 8 < len(run.steps)
    assert f"seed {run.seed}" in str(found)


def test_the_program_plays_seeds_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--runs", "2", "--steps", "50"]) == 0
    assert capsys.readouterr().out.startswith("2 runs, ")


# Views by themselves.


def line() -> Graph:
    graph = Graph(uint64)
    graph.add_node(0, 1)
    graph.add_node(1, 1)
    graph.add_edge(0, 0, 1, 0)
    return graph


FIRST = [(source(0, 0), 0, 2)]


def test_duplicates_change_nothing_gaps_and_strangers_are_refused() -> None:
    view = View(line(), 2, FIRST)
    batch = Batch(0, 1, ((source(0, 0), 0, -1), (source(0, 0), 3, 1)))
    assert view.receive(batch)
    before = view.snapshot()
    assert not view.receive(batch)
    assert view.snapshot() == before
    with pytest.raises(ProtocolError, match="STRANDLINE_PROTOCOL_GAP"):
        view.receive(Batch(1, 2, ()))
    with pytest.raises(ProtocolError, match="STRANDLINE_PROTOCOL_UNKNOWN_SENDER"):
        view.receive(Batch(2, 1, ()))


def test_a_senders_order_is_needed_any_subset_of_batches_is_not_safe() -> None:
    """A sends a message at 0 and reports that, then drops its capability and reports that. The second report alone closes 0.

    Frank McSherry's post on progress tracking says that any subset of atomic batches is safe. It is when each worker's batches
    are taken in their order.
    """
    first, second = Batch(0, 1, ((target(1, 0), 0, 1),)), Batch(0, 2, ((source(0, 0), 0, -1),))
    start = [(source(0, 0), 0, 1)]
    tracker = Tracker(line())
    for location, time, delta in [*start, *second.changes]:
        tracker.update(location, time, delta)
    tracker.propagate_all()
    assert tracker.frontier(target(1, 0)).closed(0)  # and the message waits there

    view = View(line(), 1, start)
    with pytest.raises(ProtocolError, match=r"STRANDLINE_PROTOCOL_GAP.*Deliver the batches of each worker in order"):
        view.receive(second)
    assert not view.tracker.frontier(target(1, 0)).closed(0)
    for batch in (first, second):
        view.receive(batch)
        assert not view.tracker.frontier(target(1, 0)).closed(0)


def test_a_receipt_that_overtakes_its_sending_closes_nothing() -> None:
    view = View(line(), 2, FIRST)
    view.receive(Batch(1, 1, ((target(1, 0), 5, -1), (source(0, 0), 0, -1))))
    assert view.tracker.pointstamps(target(1, 0)).count_for(5) == -1
    assert list(view.tracker.frontier(target(1, 0))) == [0]
    view.receive(Batch(0, 1, ((target(1, 0), 5, 1), (source(0, 0), 0, -1))))
    assert not view.tracker.tracking_anything()


@given(
    graphs(PAIR).flatmap(
        lambda g: st.tuples(
            st.just(g),
            st.lists(
                st.tuples(
                    st.integers(0, 2),
                    st.lists(
                        st.tuples(
                            st.sampled_from(g.locations()), st.tuples(st.integers(0, 2), st.integers(0, 2)), st.integers(-2, 2)
                        ),
                        max_size=4,
                    ),
                ),
                max_size=8,
            ),
            st.randoms(use_true_random=False),
            st.integers(0, 8),
        )
    )
)
def test_any_interleaving_and_any_restart_end_in_the_same_view(
    case: tuple[Graph, list[tuple[int, list[Change]]], object, int],
) -> None:
    graph, said, rng, crash_at = case
    logs: list[list[Batch]] = [[], [], []]
    for sender, changes in said:
        logs[sender].append(Batch(sender, len(logs[sender]) + 1, tuple(changes)))
    in_turn = View(graph, 3)
    for log in logs:
        for batch in log:
            in_turn.receive(batch)
    mixed = View(graph, 3)
    order = [sender for sender, log in enumerate(logs) for _ in log]
    rng.shuffle(order)  # type: ignore[attr-defined]
    for i, sender in enumerate(order):
        if i == crash_at:
            mixed = View.restore(graph, mixed.snapshot())
        mixed.receive(logs[sender][mixed.positions[sender]])
    assert mixed.snapshot() == in_turn.snapshot()
    for location in graph.locations():
        assert mixed.tracker.frontier(location) == in_turn.tracker.frontier(location)
    assert Counter(mixed.tracker.held()) == Counter(in_turn.tracker.held())


def test_nothing_but_the_seed_decides_a_run(tmp_path: Path) -> None:
    """Events of a run do not depend on hash randomisation, which other processes have otherwise."""
    import subprocess
    import sys

    def events(hash_seed: str) -> str:
        program = "from strandline.testing.simulation import simulate; print(simulate(5, 200))"
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": hash_seed},
            cwd=tmp_path,
        )
        return done.stdout

    assert events("1") == events("2") != ""
