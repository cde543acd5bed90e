"""Opens a channel of 10 000 commits by 1000 producers, compared with a replay of its log, and one of 100 000 producers.

    python benchmarks/open_channel.py [--commits 10000] [--producers 1000] [--many 100000]

The goals hold when opening takes at most 1 s, and taking up one new commit takes at most 10 ms. The benchmark fails if the
channel of many producers does not open and move.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from _alternating import Measure, seconds, summary
from strandline.channel import Channel, Progress
from strandline.time.antichain import Antichain
from strandline.time.arrow import array_of, time_field
from strandline.time.domain import product

DOMAIN = product(epoch="int64", iter="int64")
SCHEMA = pa.schema([time_field("time", DOMAIN), ("value", pa.int64())])
OPEN_GOAL, REFRESH_GOAL_MS = 1.0, 10.0

FRESH = """
import sys, time
from strandline.channel import Channel
started = time.perf_counter()
channel = Channel.open(sys.argv[1])
frontier = channel.frontier
print(time.perf_counter() - started)
"""


def build(path: Path, commits: int, producers: int) -> Channel:
    """Build a channel. Every commit brings a data file and moves one producer, and uses the public API."""
    names = [f"producer-{i:04d}" for i in range(producers)]
    channel = Channel.create(path, SCHEMA, producers=names, at=(0, 0))
    for commit in range(commits - 1):
        epoch = commit // producers
        with channel.file_writer() as writer:
            rows = [array_of([(epoch, 0), (epoch, 1)], DOMAIN), pa.array([commit, commit])]
            writer.write(pa.Table.from_arrays(rows, schema=SCHEMA))
            files, times = writer.finish()
        holds = Antichain(DOMAIN, [(epoch + 1, 0)])
        channel.append(files, statements={names[commit % producers]: holds}, times=times, owner="benchmark")
    return channel


def opened_fresh(path: Path) -> float:
    """Return the seconds to open in a separate process, without imports, so that nothing cached in this process helps."""
    run = subprocess.run([sys.executable, "-c", FRESH, str(path)], check=True, capture_output=True, text=True)
    return float(run.stdout)


def replay(channel: Channel) -> Progress:
    """Return every producer's state from every commit since the first. Opening must give the same state."""
    progress = Progress(channel.domain)
    for commit in channel.log.tail(0):
        progress.apply(commit)
    return progress


def main() -> None:
    """Measure, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--producers", type=int, default=1000)
    parser.add_argument("--many", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "long")
        started = time.perf_counter()
        channel = build(path, options.commits, options.producers)
        took = time.perf_counter() - started
        print(
            f"built {options.commits} commits, each with a file, in {took:.1f} s: {1000 * took / options.commits:.2f} ms a commit"
        )

        opening = statistics.median(opened_fresh(path) for _ in range(5))
        whole: list[Progress] = []
        replaying = statistics.median(seconds(lambda: whole.append(replay(channel))) for _ in range(3))
        fresh = Channel.open(path)
        assert fresh.progress == whole[0]
        assert fresh.frontier == whole[0].frontier
        measures = [Measure.alone("opening", opening, "s", OPEN_GOAL, others={"replaying the log": replaying})]

        refreshes, commits = [], []
        writer = channel.producer("producer-0003", owner="benchmark")
        epoch = writer.holds.copy()
        for step in range(50):
            (held,) = epoch
            epoch = Antichain(DOMAIN, [(held[0] + 1, step)])
            writer.send(pa.Table.from_arrays([array_of(list(epoch), DOMAIN), pa.array([step])], schema=SCHEMA))
            writer.delay(epoch)
            commits.append(seconds(writer.commit))
            refreshes.append(seconds(lambda: (fresh.refresh(), fresh.frontier)))
            assert fresh.version == channel.version
        for name, each, goal in (
            ("taking up one new commit", refreshes, REFRESH_GOAL_MS),
            ("a commit of a file and a statement", commits, None),
        ):
            worst = {"worst of 50": round(1000 * max(each), 2)}
            measures.append(Measure.alone(name, 1000 * statistics.median(each), "ms", goal, more=worst))

        many_path = Path(folder, "many")
        many = Channel.create(many_path, SCHEMA, at=(0, 0))
        names = [f"device-{i:06d}" for i in range(options.many)]
        registering = seconds(lambda: many.register(names))
        moving = seconds(
            lambda: many.append([], statements={n: Antichain(DOMAIN, [(1 + i % 7, 0)]) for i, n in enumerate(names)})
        )
        many.seal()
        opening_many = opened_fresh(many_path)
        with many.producer(names[7], take_over=True) as one:
            one.drop()
            one_of_many = seconds(one.commit)
        assert Channel.open(many_path).frontier == Antichain(DOMAIN, [(1, 0)])
        for name, took in (
            ("registering", registering),
            ("moving all of them", moving),
            ("opening", opening_many),
            ("a commit by one", one_of_many),
        ):
            measures.append(Measure.alone(f"{options.many} producers: {name}", took, "s"))
    summary("open_channel", measures)


if __name__ == "__main__":
    main()
