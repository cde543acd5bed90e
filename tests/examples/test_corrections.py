"""The example of corrections: too late for its hour, and counted once all the same."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from forked_runners import forking_python
from helpers import ROOT


@pytest.mark.drawn("processes")
@pytest.mark.spark
def test_every_hour_is_right_in_the_end() -> None:
    command = [sys.executable, str(ROOT / "examples" / "corrections" / "run.py"), "--days", "1"]
    environment = {**os.environ, "PYSPARK_PYTHON": forking_python()}
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert "hours with a wrong count now: 0" in lines
    assert not any(line.startswith("set aside as late: 0") for line in lines)
