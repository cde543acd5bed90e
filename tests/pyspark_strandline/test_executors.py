"""Executors that are lost amid a stateful batch, speculative tasks, state that moves to another executor: the same answers."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from forked_runners import forking_python
from helpers import ROOT
from strandline.channel import Channel
from strandline.time.arrow import time_field
from strandline.time.domain import int64

pytestmark = pytest.mark.spark

COMMITS = 4


def fill(path: Path, seed: int) -> list[list[Any]]:
    """A channel of random rows, a commit after another; returns what must come out, batch by batch."""
    choice = random.Random(seed)
    channel = Channel.create(path, pa.schema([time_field("time", int64), ("key", pa.string())]), producers=["p"], at=0)
    counts: Counter[tuple[int, str]] = Counter()
    expected = []
    frontier = 0
    for n in range(COMMITS):
        rows = [(frontier + choice.randrange(4), choice.choice("abcdefgh")) for _ in range(choice.randrange(5, 40))]
        counts.update(rows)
        frontier += choice.randrange(3)
        with channel.producer("p") as producer:
            producer.send(pa.table({"time": [t for t, _ in rows], "key": [k for _, k in rows]}))
            producer.delay([frontier] if n < COMMITS - 1 else [])
            producer.commit()
        closed = sorted(group for group in counts if group[0] < frontier or n == COMMITS - 1)
        expected.append([[*group, counts.pop(group)] for group in closed])
    return expected


def check(folder: Path, store: str, seed: int, losses: float) -> None:
    """Run the query of ``executor_queries.py`` and compare."""
    expected = fill(folder / "in", seed)
    environment = {k: v for k, v in os.environ.items() if k not in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT")}
    environment |= {"SPARK_LOCAL_DIRS": str(folder / "local"), "PYSPARK_PYTHON": forking_python()}
    command = [
        sys.executable,
        str(ROOT / "tests" / "support" / "executor_queries.py"),
        str(folder),
        store,
        str(seed),
        str(losses),
    ]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=560)
    results = [json.loads(line.removeprefix("RESULT ")) for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, f"seed {seed}: {done.stdout[-2000:]}{done.stderr[-6000:]}"
    assert [batch for batch in results[0] if batch] == [batch for batch in expected if batch], f"seed {seed}"


@pytest.mark.drawn("processes")
@pytest.mark.parametrize("store", ["HDFSBacked", pytest.param("RocksDB", marks=pytest.mark.soak)])
def test_the_loss_of_executors_changes_no_answer(store: str, tmp_path: Path) -> None:
    check(tmp_path, store, seed=1, losses=0.5)


@pytest.mark.soak
@pytest.mark.parametrize("n", range(20))
def test_the_loss_of_executors_at_random(n: int, tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    check(tmp_path, ["HDFSBacked", "RocksDB"][n % 2], seed, losses=0.7)
