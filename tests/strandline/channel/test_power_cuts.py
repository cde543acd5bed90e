"""Power cuts: what a producer was told is in the channel, in a file system as the disk has it at that moment."""

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

from disk_images import can_mount, make_disk, mounted, run
from helpers import make_channel
from strandline.channel import Channel

SUPPORT = Path(__file__).parents[2] / "support"


def known_in(told: Path) -> int:
    """How many rows the producer was told are committed."""
    return told.read_text(encoding="utf-8").count("\n") if told.exists() else 0


def cut(tmp_path: Path, after: float) -> None:
    """Let a producer commit for ``after`` seconds, take the disk as it is, and look at what is on it."""
    if not can_mount():
        pytest.skip("mounting an image takes root and loop devices")
    image, copy, told = tmp_path / "image", tmp_path / "copy", tmp_path / "told"
    make_disk(image)
    with mounted(image, tmp_path / "disk") as disk:
        make_channel(disk / "in", producers=("a",))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path])}
        producer = subprocess.Popen([sys.executable, SUPPORT / "telling_producer.py", disk / "in", told], env=environment)
        try:
            begun = time.monotonic()
            while not known_in(told):
                assert producer.poll() is None
                assert time.monotonic() - begun < 120
                time.sleep(0.02)
            time.sleep(after)
            producer.send_signal(signal.SIGSTOP)
            known = known_in(told)
            # What the file system has handed to its disk is in the image; what it has kept in memory is not.
            run("cp", "--sparse=always", image, copy)
        finally:
            producer.kill()
            producer.wait()
    with mounted(copy, tmp_path / "disk after") as disk:
        channel = Channel.open(disk / "in")
        there = channel.read().column("n").to_pylist()
        assert sorted(there) == list(range(len(there)))
        assert len(there) >= known > 0
        with channel.producer("a", take_over=True) as producer_after:
            assert list(producer_after.holds) == [len(there)]


@pytest.mark.drawn
@pytest.mark.parametrize("n", range(2))
def test_what_a_producer_was_told_is_there_after_a_power_cut(tmp_path: Path, n: int) -> None:
    cut(tmp_path, random.Random(n).uniform(0.1, 1.5))


@pytest.mark.soak
def test_twenty_power_cuts(tmp_path: Path) -> None:
    """Set STRANDLINE_SEED for other moments."""
    seed = int(os.environ.get("STRANDLINE_SEED") or random.SystemRandom().randrange(1_000_000))
    moments = random.Random(seed)
    for n in range(20):
        folder = tmp_path / str(n)
        folder.mkdir()
        after = moments.uniform(0.1, 6)
        print(f"seed {seed}, cut {n}: after {after:.2f} s", flush=True)
        cut(folder, after)
        shutil.rmtree(folder)
