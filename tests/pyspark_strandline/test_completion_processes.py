"""Our own operators in a process of its own: killed while rows wait and notifications are pending, and through Spark Connect."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from strandline import int64
from strandline.arrow import time_field
from strandline.channel import Channel
from support import ROOT

pytestmark = pytest.mark.spark


def fill(path: Path, seed: int, commits: int) -> list[tuple[int, str, int]]:
    """A channel of random rows, some twice, and the results that a query over it must give."""
    r = random.Random(seed)
    schema = pa.schema([time_field("time", int64), ("k", pa.string()), ("n", pa.int64())])
    channel = Channel.create(path, schema, producers=["p"], at=0)
    rows: set[tuple[int, str, int]] = set()
    with channel.producer("p") as producer:
        for at in range(commits):
            new = [(min(at + r.randrange(4), commits - 1), r.choice("abc"), r.randrange(1000)) for _ in range(r.randrange(1, 6))]
            rows |= set(new)
            times, keys, numbers = zip(*new, *new[:1], strict=True)
            producer.send(pa.table({"time": times, "k": keys, "n": numbers}))
            producer.delay([at + 1] if at + 1 < commits else [])
            producer.commit()
    # Each batch closes one time. A key is told, when the next one closes, of all that it has had up to that.
    return sorted({(t + 1, k, sum(n for u, j, n in rows if j == k and u <= t + 1)) for t, k, _ in rows})


def finish(folder: Path, store: str, seed: int, kills: int, log: Path) -> int:
    """Run the query, killing it ``kills`` times, until it ends by itself; how often it was killed."""
    r, done = random.Random(seed), 0
    while True:
        cores = str(1 + done % 2)  # Spark keeps the number of the state's partitions; the cores may change
        command = [sys.executable, str(ROOT / "tests" / "completion_query.py"), str(folder), store, cores]
        with log.open("ab") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
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


def test_a_kill_changes_nothing(tmp_path: Path) -> None:
    check(tmp_path / "run", "rocksdb", seed=7, commits=9, kills=1)


def test_all_of_it_runs_in_spark_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    expected = fill(tmp_path / "in", seed=3, commits=3)
    command = [sys.executable, str(ROOT / "tests" / "completion_query.py"), str(tmp_path), "hdfs", "connect"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert "ended pyspark.sql.connect" in done.stdout, done.stderr[-4000:]
    assert sorted((row["time"], row["k"], row["n"]) for row in Channel.open(tmp_path / "out").read().to_pylist()) == expected


@pytest.mark.soak
@pytest.mark.parametrize("store", ["hdfs", "rocksdb"])
def test_twenty_kills_change_nothing(tmp_path: Path, store: str) -> None:
    """Set STRANDLINE_SEED to repeat a run."""
    seed = int(os.environ.get("STRANDLINE_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"seed {seed}")
    check(tmp_path / "run", store, seed, commits=60, kills=10)
