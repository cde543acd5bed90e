"""A loop is recorded by processes that are killed. Replays at other settings, which are killed too, are the recorded run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import recorded_loop
from forked_runners import forking_python
from helpers import ROOT, contents, settings
from recorded_loop import Settings, Shape, check_recording, check_stamps_of_outside, create, put
from strandline.replay import assert_same

pytestmark = pytest.mark.spark


def run(what: str, folder: Path, seed: int, how: Settings, until: Callable[[], bool] | None = None) -> bool:
    """Run a part in a process of its own; kill it when ``until`` says so. Return whether it was killed."""
    command = [sys.executable, str(ROOT / "tests" / "support" / "recorded_loop.py"), what, str(folder), str(seed), how.to_json()]
    environment = {**os.environ, "PYSPARK_PYTHON": forking_python()}
    log = folder / f"log-{what}"
    with log.open("wb") as out:
        part = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
    try:
        while part.poll() is None and not (until is not None and until()):
            time.sleep(0.005)
        killed = part.poll() is None
    finally:
        if part.poll() is None:
            os.killpg(part.pid, signal.SIGKILL)
        part.wait()
    assert killed or part.returncode == 0, f"{what} {how}: {log.read_text()[-4000:]}"
    return killed


def commits(*channels: Path) -> int:
    return sum(len(list((path / "_delta_log").glob("*.json"))) for path in channels)


def after(draw: random.Random, most: int, *channels: Path) -> Callable[[], bool]:
    """Say when so many more commits are there, as are drawn, and a moment has gone by since."""
    wanted, moment = commits(*channels) + draw.randint(1, most), draw.random() * 0.15
    reached: list[float] = []

    def until() -> bool:
        if not reached and commits(*channels) >= wanted:
            reached.append(time.monotonic())
        return bool(reached) and time.monotonic() >= reached[0] + moment

    return until


def record_killed(folder: Path, seed: int, files: int, kills: int) -> None:
    """Record files that come meanwhile, in processes that are killed. What is not taken in then is left for the next one."""
    draw, shape, put_files = random.Random(seed), Shape.of(seed), 0
    create(folder, shape)
    channels = [folder / name for name in ("in", "out", *shape.lags)]
    for number in range(kills):
        share = files * (number + 1) // (kills + 1)
        at_once = draw.randint(1, 3)
        while put_files < share and at_once:
            put(folder, put_files, draw)
            put_files, at_once = put_files + 1, at_once - 1
        reached, had = after(draw, min(files, 12), *channels), commits(*channels)

        def until(share: int = share, reached: Callable[[], bool] = reached) -> bool:
            nonlocal put_files, had
            if put_files < share and commits(*channels) > had + draw.randint(0, 3):
                put(folder, put_files, draw)
                put_files, had = put_files + 1, commits(*channels)
            return reached()

        run("record", folder, seed, Settings.draw(draw), until)
    while put_files < files:
        put(folder, put_files, draw)
        put_files += 1


def check(spark: Any, folder: Path, seed: int, how: Settings, kills: int) -> None:
    """Replay, with a process that is killed so often, and compare with the recording."""
    draw, shape = random.Random(f"{seed} {how}"), Shape.of(seed)
    replayed = folder / how.into / "replayed"
    for _ in range(kills):
        until = after(draw, 6, *(replayed / name for name in ("out", *shape.lags)))
        if not run("replay", folder, seed, how, until):
            break
    with settings(spark, {"spark.sql.shuffle.partitions": str(how.partitions)}):
        found = recorded_loop.replay_all(spark, folder, shape, how)
    assert found.equal, found.to_text()
    out = Path(found.outputs["out"])
    assert_same(folder / "out", out, until=[])
    assert contents(folder / "out") == contents(out)


def check_seed(spark: Any, folder: Path, seed: int, files: int, kills: int, replays: int) -> None:
    """Record and replay. Every second replay is killed."""
    draw, shape = random.Random(-seed), Shape.of(seed)
    record_killed(folder, seed, files, kills)
    how = Settings.draw(draw)
    with settings(spark, {"spark.sql.shuffle.partitions": str(how.partitions)}):
        recorded_loop.record_all(spark, folder, shape, Settings(how.files, ends=True))
    rows, round_rows = check_stamps_of_outside(folder), check_recording(folder, shape)
    print(f"seed {seed}, {shape}: {rows} rows from outside, {round_rows} came round", flush=True)
    assert round_rows > 0
    for number in range(replays):
        check(spark, folder, seed, Settings.draw(draw, f"again-{number}"), kills=(number + 1) % 2)


@pytest.mark.drawn
def test_a_killed_recording_is_replayed_by_killed_replays(spark: Any, tmp_path: Path) -> None:
    check_seed(spark, tmp_path, random.SystemRandom().randrange(1000), files=4, kills=1, replays=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(18))  # each shape once
def test_ten_replays_of_recordings_of_each_shape(spark: Any, tmp_path: Path, seed: int) -> None:
    check_seed(spark, tmp_path, seed, files=16, kills=4, replays=10)


def check_fixed(spark: Any, folder: Path, seed: int, count: int, runs: int, most_kills: int) -> None:
    """Without a recording there is one result: that of plain Python, at any settings, in processes that are killed."""
    draw, shape = random.Random(-seed), Shape.fixed(seed)
    recorded_loop.outside(folder, seed, count)
    expected, killed = recorded_loop.fixed_result(folder, shape), 0
    for number in range(runs):
        how = Settings.draw(draw, f"run-{number}")
        into = folder / how.into
        create(into, shape)
        for _ in range(draw.randint(1, most_kills)):
            if not run("fixed", folder, seed, how, after(draw, 8, *(into / name for name in ("out", *shape.lags)))):
                break
            killed += 1
        with settings(spark, {"spark.sql.shuffle.partitions": str(how.partitions)}):
            writer = recorded_loop.record_loop(spark, folder, shape, how)
            writer.trigger(availableNow=True).start().awaitTermination()
        found = sorted((row["time"], row["key"], row["hops"], row["value"]) for row in recorded_loop.rows_of(into / "out"))
        assert found == expected, f"seed {seed}, {shape}, {how}"
        print(f"seed {seed}, {shape}: {len(found)} rows at {how}, {killed} kills so far", flush=True)
    assert killed > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(9))  # each shape once; a third of them with events
def test_ten_killed_runs_without_a_recording_have_one_result(spark: Any, tmp_path: Path, seed: int) -> None:
    check_fixed(spark, tmp_path, seed, count=16, runs=10, most_kills=1)
