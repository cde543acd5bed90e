"""Power cuts while a query runs: its checkpoint, its state and its channels continue from what the disk has at that moment."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from completion_query import fill
from disk_images import can_mount, make_disk, mounted, run
from helpers import ROOT
from strandline.channel import Channel

pytestmark = pytest.mark.spark

COMMITS = 8


def command(folder: Path) -> list[str]:
    # RocksDB's files are not synced: Spark copies them by itself (docs/operations.md).
    return [sys.executable, str(ROOT / "tests" / "support" / "completion_query.py"), str(folder), "hdfs", "2"]


def cut(tmp_path: Path, moments: random.Random) -> int:
    """Take the disk as it is while a query runs, let the query go on from there, and compare; which batch it was cut in."""
    if not can_mount():
        pytest.skip("mounting an image takes root and loop devices")
    image, copy, log = tmp_path / "image", tmp_path / "copy", tmp_path / "log"
    make_disk(image)
    with mounted(image, tmp_path / "disk") as disk:
        expected = fill(disk / "in", moments.randrange(1000), COMMITS)
        run("sync", "-f", disk)
        committed = disk / "checkpoint" / "commits"
        wanted = moments.randrange(1, COMMITS)
        with log.open("wb") as out:
            query = subprocess.Popen(command(disk), stdout=out, stderr=out, start_new_session=True)
        try:
            while query.poll() is None and not (committed / str(wanted)).exists():
                time.sleep(0.005)
            time.sleep(moments.random() * 0.4)
            if query.poll() is None:
                os.killpg(query.pid, signal.SIGSTOP)
            run("cp", "--sparse=always", image, copy)
        finally:
            os.killpg(query.pid, signal.SIGKILL)
            query.wait()
    with mounted(copy, tmp_path / "disk after") as disk:
        done = subprocess.run(command(disk), capture_output=True, text=True, check=False, timeout=400)
        assert done.returncode == 0, done.stderr[-4000:]
        out = Channel.open(disk / "out")
        assert sorted((row["time"], row["k"], row["n"]) for row in out.read().to_pylist()) == expected
        assert list(out.frontier) == []
    return wanted


@pytest.mark.soak
def test_ten_power_cuts(tmp_path: Path) -> None:
    """Set STRANDLINE_SEED for other moments."""
    seed = int(os.environ.get("STRANDLINE_SEED") or random.SystemRandom().randrange(1_000_000))
    for n in range(10):
        folder = tmp_path / str(n)
        folder.mkdir()
        print(f"seed {seed}, cut {n}: after batch {cut(folder, random.Random(f'{seed} {n}'))}", flush=True)
        shutil.rmtree(folder)
