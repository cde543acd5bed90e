"""``kill -9`` of Spark and of Kafka at random moments: the channel and the late table are those of the model, each row once."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import ingest_kills

pytestmark = pytest.mark.spark


@pytest.mark.drawn("processes")
def test_a_kill_of_each_changes_nothing(tmp_path: Path) -> None:
    assert ingest_kills.run(tmp_path, spark=1, kafka=1, seed=5, rows=240) == []


@pytest.mark.soak
def test_thirty_kills_of_spark_and_of_kafka() -> None:
    """Set STRANDLINE_SEED to repeat a run, STRANDLINE_SOAK_DIR to go on with one that was interrupted."""
    seed = int(os.environ.get("STRANDLINE_SEED") or random.SystemRandom().randrange(1_000_000))
    root = Path(os.environ.get("STRANDLINE_SOAK_DIR") or f".build/soak/ingest-kill-{seed}").resolve()
    print(f"seed {seed}, in {root}")
    assert ingest_kills.run(root, spark=20, kafka=10, seed=seed, rows=6000) == []
