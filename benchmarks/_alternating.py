"""Shared parts of the benchmarks: alternating runs of two functions in one process, medians, and the final JSON line."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def alternately(ours: Callable[[int], float], other: Callable[[int], float], rounds: int) -> tuple[list[float], list[float]]:
    """Run both once to warm up, then ``rounds`` times each, and take turns in which goes first. Returns their results."""
    ours(0), other(0)
    results: tuple[list[float], list[float]] = ([], [])
    for turn in range(1, rounds + 1):
        for which in (0, 1) if turn % 2 else (1, 0):
            results[which].append((ours, other)[which](turn))
        print(f"round {turn}: ours {results[0][-1]:.3f}, other {results[1][-1]:.3f}", flush=True)
    return results


def seconds(run: Callable[[], Any]) -> float:
    """Return the seconds that ``run`` takes."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def report(name: str, ours: list[float], other: list[float], unit: str, goal: float) -> None:
    """Print the final line: medians, their ratio, and whether it is at most ``goal``."""
    a, b = statistics.median(ours), statistics.median(other)
    line = {"name": name, "ours": round(a, 4), "other": round(b, 4), "unit": unit, "ratio": round(a / b, 3), "goal": goal}
    print(json.dumps({**line, "holds": a / b <= goal}))


def spark_session(scratch: Path, snapshot_partitions: int | None = None, jars: str = "") -> Any:
    """Return a session on two cores with strandline and Delta.

    Delta has its default settings, or with ``snapshot_partitions`` fewer tasks for a table's snapshot than its 50. ``jars`` are
    additional jars, joined by commas.
    """
    from pyspark.sql import SparkSession

    from pyspark_strandline import configure

    sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))
    import build_shim

    build_shim.check()
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "6g")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    )
    if snapshot_partitions is not None:
        builder = builder.config("spark.databricks.delta.snapshotPartitions", str(snapshot_partitions))
    if jars:
        builder = builder.config("spark.jars", jars)
    session = configure(builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
