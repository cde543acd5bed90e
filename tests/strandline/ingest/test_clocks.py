"""Silence goes by monotonic clocks: no step of the wall clock makes a live partition silent, or keeps a dead one alive."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest_bench import SCHEMA, Bench
from strandline.ingest import Moment, bounded, idle, status
from strandline.ingest.clocks.moment import Clock
from strandline.ingest.clocks.tick import Tick
from strandline.ingest.state.query_entry import ClockState

HOUR, YEAR = 3_600_000, 365 * 24 * 3_600_000
NOW = 1_770_000_000_000


@dataclass
class Machine:
    """A machine with its clocks: true time passes, and the wall clock is set by someone. In ms."""

    true: int = NOW
    step: int = 0
    slept: int = 0
    boot: str = "boot"
    booted: int = NOW - HOUR
    run: int = 0
    silent: dict[str, int] = field(default_factory=dict)

    @property
    def wall(self) -> int:
        return self.true + self.step

    def tick(self) -> Tick:
        up = self.true - self.booted
        return Tick(self.boot, up - self.slept, up)

    def moment(self) -> Moment:
        return Moment(self.wall, self.wall, f"run-{self.run}", True, False, self.wall, self.tick())

    def restart(self) -> None:
        self.run += 1

    def reboot(self) -> None:
        self.run, self.boot, self.booted, self.slept = self.run + 1, self.boot + "'", self.true, 0


def take(bench: Bench, machine: Machine, *rows: tuple[Any, ...]) -> set[str]:
    """Run a batch, and return who is idle then."""
    reports = bench.take(rows, tasks=1)
    bench.ingest.commit((bench.query, bench.batch), reports, bench.owner, machine.moment())
    bench.batch += 1
    return {p.name for p in status(bench.settings.path).partitions if p.idle_since is not None}


@pytest.mark.parametrize("counts", ["listening", "wall"])
class TestSteps:
    """The steps of the wall clock that were found, one by one."""

    def bench(self, tmp_path: Path, counts: str) -> tuple[Bench, Machine]:
        return Bench(tmp_path, idle(bounded(5), "1 hour", counts=counts), partitions=["a", "b"]), Machine()

    def test_a_step_forward_is_no_silence(self, tmp_path: Path, counts: str) -> None:
        bench, machine = self.bench(tmp_path, counts)
        take(bench, machine, (100, "a", 1), (100, "b", 1))
        machine.true, machine.step = machine.true + 1000, 2 * HOUR
        assert take(bench, machine, (101, "a", 1)) == set()
        machine.true += 1000
        assert take(bench, machine, (120, "a", 1)) == set()
        take(bench, machine, (102, "b", 1), (103, "b", 1))
        assert bench.late() == []

    def test_a_year_ahead_for_one_batch(self, tmp_path: Path, counts: str) -> None:
        bench, machine = self.bench(tmp_path, counts)
        take(bench, machine, (100, "a", 1))
        machine.step, machine.true = YEAR, machine.true + 1000
        take(bench, machine, (100, "a", 1), (100, "b", 1))
        machine.step, machine.true = 0, machine.true + 1000
        take(bench, machine, (110, "a", 1))
        machine.true += HOUR - 2000
        assert take(bench, machine, (120, "a", 1)) == set()
        machine.true += HOUR
        assert take(bench, machine, (130, "a", 1)) == {"b"}, "after an hour of true time"

    def test_a_machine_that_sleeps_does_not_listen(self, tmp_path: Path, counts: str) -> None:
        bench, machine = self.bench(tmp_path, counts)
        take(bench, machine, (100, "a", 1), (100, "b", 1))
        machine.true, machine.slept = machine.true + 2 * HOUR, 2 * HOUR
        assert take(bench, machine, (101, "a", 1)) == (set() if counts == "listening" else {"b"})

    def test_between_runs(self, tmp_path: Path, counts: str) -> None:
        """Wall time counts between runs, also on a machine that was started again, but not a step on the same one."""
        bench, machine = self.bench(tmp_path, counts)
        take(bench, machine, (100, "a", 1), (100, "b", 1))
        machine.restart()
        machine.step = 2 * HOUR
        assert take(bench, machine, (101, "a", 1)) == set()
        machine.reboot()
        machine.true += 2 * HOUR
        assert take(bench, machine, (102, "a", 1)) == (set() if counts == "listening" else {"b"})

    def test_set_back_between_runs_on_another_machine(self, tmp_path: Path, counts: str) -> None:
        bench, machine = self.bench(tmp_path, counts)
        machine.step = YEAR
        take(bench, machine, (100, "a", 1), (100, "b", 1))
        machine.reboot()
        machine.step = 0
        assert take(bench, machine, (101, "a", 1)) == set(), "it is not known how long it was"
        machine.true += 2 * HOUR
        assert take(bench, machine, (102, "a", 1)) == {"b"}, "but from now on it is"


def test_a_repeated_batch_judges_as_of_its_first_attempt(tmp_path: Path) -> None:
    bench, machine = Bench(tmp_path, idle(bounded(5), "1 hour", counts="wall"), partitions=["a", "b"]), Machine()
    take(bench, machine, (100, "a", 1), (100, "b", 1))
    machine.true += 1000
    read = machine.wall
    machine.true += 3 * HOUR
    machine.restart()
    moment = machine.moment()
    bench.ingest.commit(("q", 1), bench.take([(101, "a", 1)]), bench.owner, Moment(**{**moment.__dict__, "read_ms": read}))
    bench.batch = 2
    assert not any(p.idle_since for p in status(bench.settings.path).partitions), "what came since is not in the batch"
    machine.true += 1000
    assert take(bench, machine, (102, "a", 1)) == {"b"}


def test_a_promise_by_the_clock_waits_until_the_clock_is_believed() -> None:
    machine, clock = Machine(), Clock()
    for _ in range(3):
        machine.true += 1000
        clock = clock.at(machine.moment())
    assert clock.trusted_ms == machine.true
    machine.step = YEAR
    for _ in range(10):
        machine.true += 60_000
        clock = clock.at(machine.moment())
        assert clock.trusted_ms == machine.true, "a year ahead for ten minutes"
    machine.true += HOUR
    assert clock.at(machine.moment()).trusted_ms == machine.wall, "it has been so for an hour"
    machine.step = -YEAR
    assert clock.at(machine.moment()).trusted_ms == machine.wall, "an earlier time closes nothing: it is believed at once"


def test_ticks_of_two_processes_are_compared() -> None:
    asked = "from strandline.ingest.clocks.tick import Tick; print(*Tick.now())"
    before = Tick.now()
    boot, awake, uptime = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    there = Tick(boot, int(awake), int(uptime))
    passed, whole = there.since(before), Tick.now().since(before)
    assert passed is not None
    assert whole is not None
    assert 0 <= passed.awake <= whole.awake
    assert there.since(Tick("another boot", 0, 0)) is None


_step = st.integers(-3 * YEAR, 3 * YEAR) | st.sampled_from([0, HOUR, -HOUR, 2 * HOUR, YEAR, -YEAR])
_event = st.tuples(st.just("step"), _step) | st.tuples(st.sampled_from(["pass", "restart"]), st.integers(1, 50 * 60_000))


@pytest.mark.drawn
@settings(max_examples=300, deadline=None)
@given(st.lists(_event, max_size=40), st.sampled_from(["listening", "wall"]))
@example([("step", 2 * HOUR), ("pass", 1000)], "listening")
@example([("step", YEAR), ("pass", 1000), ("step", 0), ("pass", HOUR), ("pass", HOUR)], "wall")
def test_clocks_count_true_time(events: list[tuple[str, int]], counts: str) -> None:
    """However the wall clock is set, the clocks count the true time: all of it by wall, that within runs by listening."""
    machine, clock, listened = Machine(), Clock(), 0
    clock = clock.at(machine.moment())
    start = clock.wall_ms or 0
    for what, amount in events:
        if what == "step":
            machine.step = amount if NOW + amount > 0 else 0
            continue
        machine.true += amount
        if what == "restart":
            machine.restart()
        else:
            listened += amount
        clock = ClockState.of(clock, certain=True).clock.at(machine.moment())
        assert clock.listened == listened
        assert abs((clock.wall_ms or 0) - start - (machine.true - NOW)) <= 10 * len(events)  # a step so small is none


@pytest.mark.drawn
@settings(max_examples=8, deadline=None)
@given(st.lists(_step, min_size=3, max_size=12), st.sampled_from(["listening", "wall"]))
def test_a_live_partition_is_never_silent_and_a_dead_one_is(steps: list[int], counts: str) -> None:
    """a and b deliver in every batch or in the next one; c is dead. Between batches are 20 minutes and a step of the clock."""
    with TemporaryDirectory() as folder:
        bench, machine = Bench(Path(folder), idle(bounded(5), "1 hour", counts=counts), partitions=["a", "b", "c"]), Machine()
        take(bench, machine, (0, "a", 0), (0, "b", 0), (0, "c", 0))
        for batch, step in enumerate(steps, 1):
            machine.true, machine.step = machine.true + 20 * 60_000, step if NOW + step > 0 else 0
            live = ["a", "b"][batch % 2]
            found = take(bench, machine, (batch, live, batch))
            assert found == ({"c"} if batch >= 3 else set())
        assert bench.late() == []


def test_the_task_hands_the_tick_over(tmp_path: Path) -> None:
    """The driver reads the monotonic clocks when it plans a batch, in another process than the one that commits."""
    bench = Bench(tmp_path, idle(bounded(5), "1 hour"), SCHEMA)
    (report, *_) = bench.take([(1, "a", 1)])
    assert report.tick is not None
    bench.ingest.commit(("q", 0), [report], bench.owner, Moment(NOW, run="r"))
    entry = bench.channel.progress.get("$registrar").state["q"]  # type: ignore[union-attr]
    assert entry["clock"]["tick"] == list(report.tick)
