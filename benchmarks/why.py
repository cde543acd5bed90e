"""Asks why a time is open in a channel of 10 000 commits by 1000 producers, of which one is silent since the beginning.

In another channel of the same size, 20 producers fell silent at different versions.

    python benchmarks/why.py [--commits 10000] [--producers 1000]

The goal holds when an answer, with the opening of the channel, takes at most 1 s. A query writes a second channel,
and its output is asked, so that the explanation goes upstream. Each answer is made in a process of its own, without its imports.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from _alternating import Measure, summary
from strandline.channel import Channel, WriterSession
from strandline.channel.statements.inputs import Input
from strandline.time.antichain import Antichain
from strandline.time.arrow import array_of, time_field
from strandline.time.domain import product

DOMAIN = product(epoch="int64", iter="int64")
SCHEMA = pa.schema([time_field("time", DOMAIN), ("value", pa.int64())])
GOAL = 1.0
SILENT = "producer-0500"
QUIET = 20

FRESH = """
import json, sys, time
from strandline.report import explain
started = time.perf_counter()
answer = explain(sys.argv[1], json.loads(sys.argv[2]))
text = str(answer)
took = time.perf_counter() - started
since = answer.culprits[0].since
print(json.dumps([took, answer.culprits[0].name, since.version, since.exact, len(answer.holders), answer.hidden]))
"""


def build(path: Path, commits: int, producers: int) -> Channel:
    """Build a channel by the public API. Every commit brings a data file and moves one producer; one of them never moves."""
    names = [f"producer-{i:04d}" for i in range(producers)]
    silent = names.index(SILENT) if SILENT in names else 0
    channel = Channel.create(path, SCHEMA, producers=names, at=(0, 0))
    for commit in range(commits - 1):
        epoch, which = commit // producers + 1, commit % producers
        with channel.file_writer() as writer:
            rows = [array_of([(epoch, 0), (epoch, 1)], DOMAIN), pa.array([commit, commit])]
            writer.write(pa.Table.from_arrays(rows, schema=SCHEMA))
            files, times = writer.finish()
        name = names[(silent + 1) % producers if which == silent and commit > which else which]
        channel.append(files, statements={name: Antichain(DOMAIN, [(epoch, 0)])}, times=times, owner="benchmark")
    return channel


def build_quiet(path: Path, commits: int, producers: int) -> None:
    """Build a channel in which some producers fell silent one after the other. They hold the times from 1 on."""
    names = [f"producer-{i:04d}" for i in range(producers)]
    quiet, busy = names[:QUIET], names[QUIET:]
    channel = Channel.create(path, SCHEMA, producers=names, at=(0, 0))
    last = {commits * (i + 1) // (QUIET + 2): name for i, name in enumerate(quiet)}
    for commit in range(commits - 1):
        name = last.get(commit, busy[commit % len(busy)])
        at = 1 if name in quiet else commits + commit
        channel.append([], statements={name: Antichain(DOMAIN, [(at, 0)])}, owner="benchmark")


def ask(path: Path, time_: list[int]) -> tuple[float, str, int, bool, int, int]:
    """Ask in a fresh process. Return the seconds, and what was found."""
    run = subprocess.run([sys.executable, "-c", FRESH, str(path), json.dumps(time_)], check=True, capture_output=True, text=True)
    found = json.loads(run.stdout)
    return found[0], found[1], found[2], found[3], found[4], found[5]


def main() -> None:
    """Measure, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--producers", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        long, output, quiet = Path(folder, "long"), Path(folder, "output"), Path(folder, "quiet")
        started = time.perf_counter()
        channel = build(long, options.commits, options.producers)
        print(f"built {options.commits} commits by {options.producers} producers in {time.perf_counter() - started:.1f} s")
        written = Channel.create(output, SCHEMA, producers=["query-1"], at=(0, 0))
        read = Input(channel.table_id, channel.version - 40, 0, channel.path, ())
        written.append([], statements={"query-1": [(1, 0)]}, owner=WriterSession.here("1"), reads=[read])
        build_quiet(quiet, options.commits, options.producers)
        last = options.commits // options.producers
        measures = []
        for what, path, asked in (
            ("one silent producer", long, [last - 2, 0]),
            ("everybody holds it", long, [1 << 40, 1 << 40]),
            ("from the output of a query, upstream", output, [last - 2, 0]),
            ("20 that fell silent at different versions", quiet, [1, 0]),
        ):
            answers = [ask(path, asked) for _ in range(5)]
            _, name, version, exact, listed, hidden = answers[0]
            print(f"{what}: {name} since version {version}{'' if exact else ' or earlier'}; {listed} listed, {hidden} more")
            took = [answer[0] for answer in answers]
            worst = {"worst of 5": round(max(took), 3)}
            measures.append(Measure.alone(f"why: {what}", statistics.median(took), "s", GOAL, more=worst))
        summary("why", measures)


if __name__ == "__main__":
    main()
