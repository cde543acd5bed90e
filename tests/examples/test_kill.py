"""``kill -9`` of Spark and of airports at random moments: the tables come out as pandas has them, every result exactly once."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from flights import kill

pytestmark = pytest.mark.spark


@pytest.mark.soak  # `make test` kills queries of the same kinds in test_completion_processes.py and ingest_sources/test_kill.py
def test_a_few_kills_and_an_interruption_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kill, "_finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            kill.run(tmp_path, days=1, spark=0, producers=1, seed=3)
    # The run goes on where it was, with a kill of Spark and one more of an airport.
    assert kill.run(tmp_path, days=1, spark=1, producers=2, seed=3) == []


@pytest.mark.soak
def test_twenty_kills_of_spark_and_twenty_of_airports() -> None:
    """Set STRANDLINE_SEED to repeat a run, STRANDLINE_SOAK_DIR to go on with one that was interrupted."""
    seed = int(os.environ.get("STRANDLINE_SEED") or random.SystemRandom().randrange(1_000_000))
    root = Path(os.environ.get("STRANDLINE_SOAK_DIR") or f".build/soak/kill-{seed}").resolve()
    root.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}, in {root}")
    assert kill.run(root, days=30, spark=20, producers=20, seed=seed) == []
