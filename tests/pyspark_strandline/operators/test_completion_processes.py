"""Our own operators in a process of its own: killed while rows wait and notifications are pending."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from completion_query import fill
from forked_runners import forking_python
from helpers import ROOT
from strandline.channel import Channel

pytestmark = pytest.mark.spark


def finish(folder: Path, store: str, seed: int, kills: int, log: Path) -> int:
    """Run the query, killing it ``kills`` times, until it ends by itself; how often it was killed."""
    r, done = random.Random(seed), 0
    environment = {**os.environ, "PYSPARK_PYTHON": forking_python()}
    while True:
        cores = str(1 + done % 2)  # Spark keeps the number of the state's partitions; the cores may change
        command = [sys.executable, str(ROOT / "tests" / "support" / "completion_query.py"), str(folder), store, cores]
        with log.open("ab") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
            committed = folder / "checkpoint" / "commits"
            begun = len(list(committed.glob("[0-9]*"))) if committed.exists() else 0
            after = begun + r.randrange(1, 5)
            while process.poll() is None and done < kills:
                if committed.exists() and len(list(committed.glob("[0-9]*"))) >= after:
                    time.sleep(r.random() * 0.5)  # the moment is random, what is waited for is not
                    os.killpg(process.pid, signal.SIGKILL)
                    done += 1
                    break
                time.sleep(0.01)
            code = process.wait()
        if code == 0:
            return done
        assert code == -signal.SIGKILL, log.read_text()[-4000:]


def check(folder: Path, store: str, seed: int, commits: int, kills: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    expected = fill(folder / "in", seed, commits)
    assert finish(folder, store, seed, kills, folder / "log") > 0
    out = Channel.open(folder / "out")
    assert sorted((row["time"], row["k"], row["n"]) for row in out.read().to_pylist()) == expected
    assert list(out.frontier) == []


@pytest.mark.drawn("processes")
def test_a_kill_changes_nothing(tmp_path: Path) -> None:
    check(tmp_path / "run", "rocksdb", seed=7, commits=4, kills=1)


@pytest.mark.soak
@pytest.mark.parametrize("store", ["hdfs", "rocksdb"])
def test_twenty_kills_change_nothing(tmp_path: Path, store: str) -> None:
    """Set STRANDLINE_SEED to repeat a run."""
    seed = int(os.environ.get("STRANDLINE_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"seed {seed}")
    check(tmp_path / "run", store, seed, commits=60, kills=10)
