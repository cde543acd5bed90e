"""A driver that lives long holds no more after thousands of batches than after hundreds, and takes no longer for one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pytest

from helpers import ROOT, contents, stream
from strandline.channel import Channel
from strandline.time.arrow import time_field
from strandline.time.domain import int64

pytestmark = pytest.mark.spark

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_KEPT = {
    f"spark.{what}": "100" for what in ("sql.ui.retainedExecutions", "ui.retainedJobs", "ui.retainedStages", "ui.retainedTasks")
}
"""What Spark's user interface keeps. With the defaults it fills for a thousand batches, and would hide a small leak."""


_IN_MEMORY = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
    # Spark leaves two threads behind each time that its maintenance finds no session, also without Strandline.
    "spark.sql.streaming.stateStore.maintenanceInterval": "10h",
}
_OFTEN = {"spark.sql.streaming.stateStore.maintenanceInterval": "1s"}
"""Spark unloads the stores of an ended query in its next round of maintenance."""


@pytest.mark.drawn("processes")
def test_a_time_that_opens_and_closes_in_a_batch_leaves_no_file_in_rocksdb(spark: Any, tmp_path: Path) -> None:
    from pyspark_strandline import hold

    schema = pa.schema([time_field("time", int64), ("key", pa.string())])
    channel = Channel.create(tmp_path / "in", schema, producers=["p"], at=0)
    with channel.producer("p") as producer:
        for time in range(16):
            producer.send(pa.table({"time": [time, time], "key": ["a", "b"]}))
            producer.delay([time + 1])
            producer.commit()
    was = spark.conf.get("spark.sql.streaming.stateStore.providerClass")
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
    try:
        held = hold(stream(spark, tmp_path / "in", maxFilesPerTrigger="1"), by="key")
        writer = held.writeStream.format("strandline").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        query.awaitTermination()
    finally:
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", was)
    kept = [p["stateOperators"][0]["customMetrics"]["rocksdbFilesReused"] for p in query.recentProgress if p["stateOperators"]]
    assert contents(tmp_path / "out") == [(time, key) for time in range(16) for key in "ab"]
    assert len(kept) >= 16
    assert kept[-1] == 0, kept


# ---------------------------------------------------------------------------------------------------------------- long lives


def live(kind: str, folder: Path, batches: int, every: int, **settings: str) -> list[dict[str, Any]]:
    """Run ``tests/support/long_life.py`` in a process of its own. Returns and prints its samples."""
    command = [sys.executable, str(ROOT / "tests" / "support" / "long_life.py"), kind, str(folder)]
    command += ["--batches", str(batches), "--every", str(every)]
    for name, value in {**_KEPT, **settings}.items():
        command += ["--set", f"{name}={value}"]
    path = os.pathsep.join([str(ROOT / "tests" / "support"), *filter(None, [os.environ.get("PYTHONPATH")])])
    samples = []
    with open(folder.parent / f"{kind}.log", "w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "PYTHONPATH": path})
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("SAMPLE "):
                samples.append(json.loads(line.removeprefix("SAMPLE ")))
                print(row(samples[-1]), flush=True)
        assert process.wait() == 0, (folder.parent / f"{kind}.log").read_text()[-4000:]
    return samples


SHOWN = (
    *("cpu", "live", "metaspace", "jvm.rss", "jvm.threads", "jvm.files", "jvm.sockets", "python.rss", "py4j", "objects"),
    *("source_daemon.rss", "daemon.count", "daemon.rss", "daemon.files", "log", "checkpoint.state"),
)


def row(sample: dict[str, Any]) -> str:
    batch = f"{sample['batch']} batches"
    took = f", median {median(sample['durations']):.0f} ms" if sample.get("durations") else ", stopped"
    return batch + took + "".join(f", {name} {sample['figures'].get(name, 0):.0f}" for name in SHOWN)


def middle(samples: list[dict[str, Any]], name: str) -> float:
    """A collection that could not run, or a process that ends, spoils one sample."""
    return float(median(sample["figures"].get(name, 0) for sample in samples))


def least(samples: list[dict[str, Any]], name: str) -> float:
    """deltalake's threads live for ten seconds after a Delta checkpoint. On a fast machine half of the samples have them."""
    return float(min(sample["figures"].get(name, 0) for sample in samples))


def per_batch(samples: list[dict[str, Any]], name: str) -> float:
    """How much a counter grows with a batch: the lower quartile over neighbours.

    Some threads read at intervals, so a batch that other processes slow down has more reads.
    """
    whole = [sample for sample in samples if name in sample["figures"]]
    pairs = [(a, b) for a, b in pairwise(whole) if b["batch"] > a["batch"]]
    rates = sorted((b["figures"][name] - a["figures"][name]) / (b["batch"] - a["batch"]) for a, b in pairs)
    return float(rates[len(rates) // 4])


def others(samples: list[dict[str, Any]]) -> float:
    """The share of the machine's processors that other processes took: the median over neighbours."""
    pairs = [(a, b) for a, b in pairwise(samples) if b["at"] > a["at"]]
    shares = [(b["figures"]["others"] - a["figures"]["others"]) / ((b["at"] - a["at"]) * 1000) for a, b in pairs]
    return float(median(shares)) / (os.cpu_count() or 1)


def quick(samples: list[dict[str, Any]]) -> float:
    """The lower quartile of the durations: what a batch takes while other processes leave the machine alone."""
    durations = sorted(d for sample in samples for d in sample["durations"])
    return float(durations[len(durations) // 4])


def check_flat(early: list[dict[str, Any]], late: list[dict[str, Any]], roles: tuple[str, ...], queries: int = 0) -> None:
    """Assert that nothing has grown between two parts of a life.

    Between them, ``queries`` were started. Spark keeps some objects and generated classes of each (docs/operations.md).
    """
    grown = []

    def at_most(name: str, share: float, more: float, *of: Callable[[list[dict[str, Any]], str], float]) -> None:
        found = [(measure(early, name), measure(late, name)) for measure in of or (middle,)]
        if all(after > before * share + more for before, after in found):
            grown.append(f"{name}: {found[0][0]:.1f} -> {found[0][1]:.1f}")

    at_most("live", 1.05, 1 + 0.35 * queries)  # from sample to sample it varies by a fifth
    at_most("metaspace", 1.02, 1 + 0.1 * queries)
    at_most("classes", 1.01, 50 + 10 * queries)
    at_most("py4j", 1, 2)
    at_most("objects", 1.01, 200)
    for role in roles:
        at_most(f"{role}.count", 1, 0.5)
        at_most(f"{role}.rss", 1.1, 10 + (queries if role == "jvm" else 0))
        at_most(f"{role}.threads", 1, 6, middle, least)  # one sample may have fewer, and half of them may have more
        at_most(f"{role}.files", 1.02, 6)
        at_most(f"{role}.sockets", 1, 4)
        if role in ("python", "source_daemon"):
            # Workers come and go, each with the reads of its imports. The JVM's reads grow (docs/operations.md).
            at_most(f"{role}.reads", 1.1, 2, per_batch)
    at_most("checkpoint.state", 1.5, 200)  # Spark removes old versions once a minute
    at_most("checkpoint.offsets", 1.05, 4)
    at_most("cpu", 1.25, 20, per_batch)  # milliseconds of the processor; other processes lengthen a batch, but hardly this
    before, after, shares = quick(early), quick(late), (others(early), others(late))
    print(f"a batch takes {before:.0f}, then {after:.0f} ms. Other processes took {shares[0]:.0%}, then {shares[1]:.0%}.")
    if after > before * 1.3 + 20 and max(shares) < 0.2:
        grown.append(f"durations: {before:.0f} -> {after:.0f} ms")
    assert not grown, "; ".join(grown)


def part(samples: list[dict[str, Any]], first: int, last: int) -> list[dict[str, Any]]:
    return [sample for sample in samples if first <= sample["batch"] <= last and "stopped" not in sample]


@pytest.mark.soak
def test_2000_batches_from_channel_to_channel(tmp_path: Path) -> None:
    samples = live("channel", tmp_path / "life", 2000, 50)
    check_flat(part(samples, 300, 800), part(samples, 1500, 2000), ("jvm", "python", "source_daemon", "daemon"))
    rows = contents(tmp_path / "life" / "out")
    assert len(rows) >= (2000 - 3) * 20
    assert rows == [(time, key, 2, n) for time in range(len(rows) // 20) for key, n in sums()], "an answer has changed"


def sums() -> list[tuple[str, int]]:
    """What a batch's rows of each key add up to (``long_life._rows``), by key."""
    return sorted((f"k{i}", i + (i + 20)) for i in range(20))


@pytest.mark.soak
def test_500_batches_of_an_ingest(tmp_path: Path) -> None:
    samples = live("ingest", tmp_path / "life", 500, 25)
    check_flat(part(samples, 100, 250), part(samples, 350, 500), ("jvm", "python", "daemon"))


@pytest.mark.soak
def test_100_queries_in_one_driver(tmp_path: Path) -> None:
    samples = live("restarts", tmp_path / "life", 100, 10, **_OFTEN)
    check_flat(part(samples, 30, 50), part(samples, 80, 100), ("jvm", "python", "daemon"), queries=50)


def check_sessions(samples: list[dict[str, Any]], sessions: int) -> None:
    """Assert that sessions leave no process, no file of theirs, and no thread, descriptor or socket for each of them.

    Spark itself leaves some: it keeps each ended context in memory (four after four sessions, also without Strandline), and its
    jars open, three descriptors for each session here. It closes RocksDB's files when it next looks, so the state is in memory
    here. Some caches fill at first.
    """
    assert [sample["figures"]["processes"] for sample in samples] == [0] * len(samples)
    half = len(samples) // 2
    grown = {}
    jars = 3 * sessions // 2 + 3
    spare = {"jvm.threads": 1, "jvm.files": jars, "jvm.sockets": 1, "python.threads": 1, "python.files": 2, "py4j": 4}
    for name, more in spare.items():
        early, late = least(samples[:half], name), least(samples[half:], name)
        if late > early + more:
            grown[name] = (early, late)
    for name in ("tmp", "local"):
        if samples[-1]["figures"][name] > samples[0]["figures"][name]:
            grown[name] = (samples[0]["figures"][name], samples[-1]["figures"][name])
    assert not grown, grown


@pytest.mark.drawn("processes")
def test_sessions_of_five_queries_leave_nothing(tmp_path: Path) -> None:
    check_sessions(live("sessions", tmp_path / "life", 6, 1, **_IN_MEMORY)[1:], 5)


@pytest.mark.soak
def test_100_sessions_of_five_queries_leave_nothing(tmp_path: Path) -> None:
    check_sessions(live("sessions", tmp_path / "life", 100, 5, **_IN_MEMORY)[1:], 95)
