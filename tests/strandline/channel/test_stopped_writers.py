"""Writers of one channel, some of which are killed or stopped at random moments: each told row is there, and none twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from helpers import make_channel
from strandline.channel import Channel

SUPPORT = Path(__file__).parents[2] / "support"
MOST_STOPPED_SECONDS = 1.5
"""Longer than others wait for a stopped writer's turn."""


class Writer:
    """A producer's process, started again when it was killed."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name, self.told = folder, name, folder / f"told-{name}"
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path])}
        command = [sys.executable, str(SUPPORT / "telling_producer.py"), str(self.folder / "in"), str(self.told), self.name]
        with (self.folder / f"log-{self.name}").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def known(self) -> int:
        """How many rows it was told are committed, in all its lives."""
        lines = self.told.read_text(encoding="utf-8").split() if self.told.exists() else []
        return int(lines[-1]) if lines else 0


def disturb(folder: Path, writers: int, events: int, seed: int) -> None:
    choice, names = random.Random(seed), [f"p{n}" for n in range(writers)]
    make_channel(folder / "in", producers=tuple(names))
    running = {name: Writer(folder, name) for name in names}
    try:
        for event in range(events):
            progress = {name: writer.known() for name, writer in running.items()}
            time.sleep(choice.uniform(0, 0.3))
            writer = running[choice.choice(names)]
            if choice.random() < 0.5:
                writer.kill()
                writer.start()
            else:
                os.kill(writer.process.pid, signal.SIGSTOP)
                time.sleep(choice.uniform(0, MOST_STOPPED_SECONDS))
                os.kill(writer.process.pid, signal.SIGCONT)
            if event % 5 == 4:  # nobody stays behind for good
                until = time.monotonic() + 120
                for name, each in running.items():
                    while each.known() <= progress[name]:
                        assert each.process.poll() is None, (folder / f"log-{name}").read_text()[-3000:]
                        assert time.monotonic() < until, f"seed {seed}: {name} commits nothing more after event {event}"
                        time.sleep(0.02)
    finally:
        for writer in running.values():
            writer.kill()
    found = Counter((row["key"], row["n"]) for row in Channel.open(folder / "in").read().to_pylist())
    assert set(found.values()) == {1}, f"seed {seed}: a row is there twice"
    for name, writer in running.items():
        there = sorted(n for key, n in found if key == name)
        assert there == list(range(len(there))), f"seed {seed}: {name} lacks rows"
        assert writer.known() <= len(there), f"seed {seed}: {name} was told more than is there"


@pytest.mark.drawn("core")
def test_kills_and_stops_lose_nothing_and_nobody_stays_behind(tmp_path: Path) -> None:
    disturb(tmp_path, writers=3, events=5, seed=1)


@pytest.mark.soak
def test_two_hundred_kills_and_stops(tmp_path: Path) -> None:
    """Set STRANDLINE_SEED to repeat a run."""
    seed = int(os.environ.get("STRANDLINE_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"seed {seed}", flush=True)
    disturb(tmp_path, writers=8, events=200, seed=seed)
