"""Many processes, each with its own producer, commit one row at a time to one channel; beside delta-rs's append with retries.

    python benchmarks/producers.py [--producers 50] [--seconds 10] [--rounds 3]

Both write to local tables, in turns. Our commits are synced to the disk, delta-rs's are not. The goals hold when there are at
least 100 commits a second, and when 99 of 100 commits return within one second.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from _alternating import OURS, Measure, order, summary
from strandline.channel import Channel
from strandline.time.arrow import time_field
from strandline.time.domain import int64

SCHEMA = pa.schema([time_field("time", int64), ("n", pa.int64())])
COMMITS_GOAL, P99_GOAL = 100, 1.0
DELTA = "delta-rs"


def repeatedly(commit: Callable[[int], Any], start: Barrier, seconds: float) -> list[float]:
    """Commit once, and then again and again from the moment when all have; returns the seconds of each commit but the first."""
    commit(0)
    start.wait(300)
    took: list[float] = []
    now = time.perf_counter()
    end = now + seconds
    while now < end:
        commit(len(took) + 1)
        began, now = now, time.perf_counter()
        took.append(now - began)
    return took


def ours(path: str, number: int, start: Barrier, seconds: float) -> list[float]:
    """Send a row and commit it with its producer's progress."""
    with Channel.open(path).producer(f"p{number}") as producer:

        def commit(step: int) -> None:
            producer.send(pa.table({"time": [step], "n": [number]}))
            producer.delay(step + 1)
            producer.commit()

        return repeatedly(commit, start, seconds)


def delta_rs(path: str, number: int, start: Barrier, seconds: float) -> list[float]:
    """Append a row, again whenever others have committed first too often."""
    table = DeltaTable(path)
    retries = CommitProperties(max_commit_retries=100)

    def commit(step: int) -> None:
        rows = pa.table({"time": [step], "n": [number]})
        while not appended(rows):
            table.update_incremental()

    def appended(rows: pa.Table) -> bool:
        try:
            write_deltalake(table, rows, mode="append", commit_properties=retries)
        except CommitFailedError:
            return False
        return True

    return repeatedly(commit, start, seconds)


def work(way: str, path: str, number: int, start: Barrier, seconds: float, results: Any) -> None:
    """Run one process."""
    results.put((ours if way == OURS else delta_rs)(path, number, start, seconds))


def run(way: str, path: Path, producers: int, seconds: float) -> tuple[float, float]:
    """Return how many commits a second all make, and within how many seconds 99 of 100 commits return."""
    Channel.create(path, SCHEMA, producers=[f"p{n}" for n in range(producers)], at=0)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["deltalake", "pandas", "strandline.channel"])
    start, results = context.Barrier(producers), context.Queue()
    processes = [
        context.Process(target=work, args=(way, str(path), number, start, seconds, results), daemon=True)
        for number in range(producers)
    ]
    for process in processes:
        process.start()
    took = [one for _ in processes for one in results.get(timeout=600)]
    for process in processes:
        process.join()
    rows = DeltaTable(str(path)).to_pyarrow_table(columns=["n"]).num_rows
    committed = len(took) + producers
    assert rows == committed, f"{committed} rows were committed, and the table has {rows}"
    return len(took) / seconds, statistics.quantiles(took, n=100)[98]


def main() -> None:
    """Run both ways alternately."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--producers", type=int, default=50, help="processes (default: 50)")
    parser.add_argument("--seconds", type=float, default=10, help="how long each commits in each run (default: 10)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each way (default: 3)")
    options = parser.parse_args()
    results: dict[str, list[tuple[float, float]]] = {OURS: [], DELTA: []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(options.rounds):
            for way in order(list(results), turn):
                results[way].append(run(way, Path(folder, f"{way}-{turn}"), options.producers, options.seconds))
            said = (f"{way} {each[-1][0]:.0f} commits/s, p99 {each[-1][1]:.2f} s" for way, each in results.items())
            print(f"round {turn + 1}: {'; '.join(said)}", flush=True)
    rate, p99 = ({way: statistics.median(one[i] for one in each) for way, each in results.items()} for i in (0, 1))
    summary(
        "producers",
        [
            Measure.alone(
                f"one of the commits of {options.producers} producers",
                1000 / rate[OURS],
                "ms",
                at_most=1000 / COMMITS_GOAL,
                others={DELTA: 1000 / rate[DELTA]},
            ),
            Measure.alone("99 of 100 commits", p99[OURS], "s", at_most=P99_GOAL, others={DELTA: p99[DELTA]}),
        ],
    )


if __name__ == "__main__":
    main()
