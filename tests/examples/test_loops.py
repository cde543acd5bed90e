"""The examples of loops: each answer of each day is that of networkx or plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from forked_runners import forking_python
from helpers import ROOT


@pytest.mark.drawn("processes")
@pytest.mark.spark
def test_every_answer_is_right() -> None:
    command = [sys.executable, str(ROOT / "examples" / "loops" / "run.py"), "--days", "2", "--people", "60"]
    command += ["organisation"]  # soak has all questions; test_loops.py compares components with networkx
    environment = {**os.environ, "PYSPARK_PYTHON": forking_python()}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.count(" 0 wrong answers") == 1


@pytest.mark.soak  # tests/strandline/loop/test_rounds.py has the same without Spark
@pytest.mark.spark
def test_later_epochs_go_round_while_earlier_ones_do(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "loops" / "overlap.py"), str(tmp_path / "loops.png")]
    environment = {**os.environ, "PYSPARK_PYTHON": forking_python()}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "batch 3: epoch 0 round 3, epoch 1 round 2, epoch 2 round 1, epoch 3 round 0" in done.stdout.splitlines()
    assert (tmp_path / "loops.png").stat().st_size > 10_000


@pytest.mark.soak
@pytest.mark.spark
def test_every_answer_of_more_days_is_right() -> None:
    command = [sys.executable, str(ROOT / "examples" / "loops" / "run.py"), "--days", "5", "--people", "100000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
