"""A process that is killed again and again, at commits that are drawn."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from forked_runners import forking_python

__all__ = ["run_killed"]


def run_killed(
    command: Sequence[str],
    log: Path,
    commits: Callable[[], int],
    draw: random.Random,
    *,
    kills: int,
    most: int,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Run a command to its end. Before, it is killed so many times, each after some commits more and a moment.

    Args:
        command: The command.
        log: A file for what the killed runs say.
        commits: Returns how many commits there are.
        draw: Decides when it is killed.
        kills: How many times.
        most: After how many commits at most.
        check: Called after each kill.
    """
    environment = {**os.environ, "PYSPARK_PYTHON": forking_python()}
    for _ in range(kills):
        until = commits() + draw.randint(1, most)
        with log.open("wb") as out:
            query = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
        while query.poll() is None and commits() < until:
            time.sleep(0.005)
        time.sleep(draw.random() * 0.2)
        if query.poll() is not None:
            assert query.returncode == 0, log.read_text()[-4000:]
            break
        os.killpg(query.pid, signal.SIGKILL)
        query.wait()
        check()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
