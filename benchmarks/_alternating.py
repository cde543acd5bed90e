"""Shared parts of the benchmarks: runs that take turns in one process, Delta in two ways, measures, and the last JSON line."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

OURS = "ours"

LOAD = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
"""How many processes wanted a core in the minute before the benchmark."""
QUIET = 1.0
"""Beside a greater load no goal is judged: who is behind on a quiet machine may be ahead on a busy one."""
DELTAS = ("Delta as it comes", "Delta tuned")
ONLY = os.environ.get("STRANDLINE_BENCHMARK_ONLY")
"""The only way that runs, for a profile of it. Then there is nothing to compare, so there are no ratios and no goals."""

TUNED: dict[str, str] = {
    # A snapshot of the log has 50 tasks by default. Delta's own tests run with 2, and so do these benchmarks' two cores.
    "spark.databricks.delta.snapshotPartitions": "2",
    # The number of tasks that list folders. Delta's own tests run with 5.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "5",
}
"""The settings of Delta on a small machine.

They change no promise of Delta. So settings that leave out statistics, checksums or validations are not here, and neither are
those that make the newest commits invisible for a while (``stalenessLimit``). Delta's guide names other settings for tables that
grow: compaction, optimized writes, checkpoints in parts. These make more work while a stream writes, not less.
"""


@dataclass(frozen=True)
class Measure:
    """One measured value, the same value of others, and whether its goal holds."""

    name: str
    ours: float
    unit: str
    goal: str = "none"
    holds: bool = True
    others: Mapping[str, float] = field(default_factory=dict)
    ratio: float | None = None
    """Our value divided by the best of the others."""
    more: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def alone(name: str, ours: float, unit: str, at_most: float | None = None, **fields: Any) -> Measure:
        """Return a measure whose goal is a limit of its value. It prints itself. The ratio is to the least of ``others``."""
        others = fields.get("others", {})
        goal, holds = ("none", True) if at_most is None else (f"<= {at_most:g} {unit}".strip(), ours <= at_most)
        ratio = ours / min(others.values()) if others else None
        return Measure(name, ours, unit, goal, holds, ratio=ratio, **fields)._printed()

    @staticmethod
    def beside(
        name: str,
        results: Mapping[str, Sequence[float]],
        unit: str,
        at_most: float | None = None,
        at_least: float | None = None,
        **fields: Any,
    ) -> Measure:
        """Return a measure whose goal is a limit of the ratio of medians: ours to the best of the others. It prints itself.

        The best is the least, except with ``at_least``: then more is better.
        """
        medians = {which: statistics.median(each) for which, each in results.items() if each}
        ours = medians.pop(OURS, 0.0)
        if not medians or not ours:
            return Measure(name, ours, unit, others=medians, **fields)._printed()
        ratio = ours / (min if at_least is None else max)(medians.values())
        goal, holds = "none", True
        if at_most is not None:
            goal, holds = f"ratio <= {at_most:g}", ratio <= at_most
        elif at_least is not None:
            goal, holds = f"ratio >= {at_least:g}", ratio >= at_least
        return Measure(name, ours, unit, goal, holds, medians, ratio, **fields)._printed()

    def _printed(self) -> Measure:
        others = "".join(f", {which} {short(value)}" for which, value in self.others.items())
        ratio = "" if self.ratio is None else f", ratio {self.ratio:.3f}"
        judged = f"not judged, the load was {LOAD:.1f}" if LOAD > QUIET else "holds" if self.holds else "MISSED"
        goal = "no goal" if self.goal == "none" else f"goal {self.goal}: {judged}"
        ours = f"{short(self.ours)} {self.unit}".strip()
        print(f"{self.name}: {ours}{others}{ratio}; {goal}", flush=True)
        return self

    def as_json(self) -> dict[str, Any]:
        """Return the measure as an object of the last line."""
        numbers = {"ours": round(self.ours, 5), "others": {which: round(value, 5) for which, value in self.others.items()}}
        ratio = None if self.ratio is None else round(self.ratio, 3)
        said = {"unit": self.unit, "ratio": ratio, "goal": self.goal, "holds": self.holds}
        return {"name": self.name, **numbers, **said, **self.more}


def short(value: float) -> str:
    """Return a figure as people read it: without fractions from a thousand on."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def summary(name: str, measures: Sequence[Measure]) -> None:
    """Print the last line. It holds if every measure holds on a quiet machine, and it names those that do not hold."""
    missed = [measure.name for measure in measures if not measure.holds]
    said = {"name": name, "load": round(LOAD, 2), "holds": not missed and LOAD <= QUIET, "missed": missed}
    line = {**said, "measures": [measure.as_json() for measure in measures]}
    print(json.dumps(line, ensure_ascii=False))


def order(names: Sequence[str], turn: int) -> list[str]:
    """Return in which order the runs of a turn go. Each goes first, and after each other, about as often as any."""
    turned = list(names)[turn % len(names) :] + list(names)[: turn % len(names)]
    return turned[::-1] if turn // len(names) % 2 else turned


def alternately(runs: Mapping[str, Callable[[int], float]], rounds: int) -> dict[str, list[float]]:
    """Run each once to warm up, then ``rounds`` times each, in turns. Returns the results of each.

    Runs get the number of their turn, which is 0 when they warm up. If :data:`ONLY` names one, the others have no results.
    """
    results: dict[str, list[float]] = {name: [] for name in runs}
    runs = {name: run for name, run in runs.items() if ONLY in (None, name)}
    for run in runs.values():
        run(0)
    for turn in range(1, rounds + 1):
        for name in order(list(runs), turn):
            results[name].append(runs[name](turn))
        print(f"round {turn}: {', '.join(f'{name} {each[-1]:.3f}' for name, each in results.items() if each)}", flush=True)
    return results


def seconds(run: Callable[[], Any]) -> float:
    """Return the seconds that ``run`` takes."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def deltas(spark: Any, run: Callable[[str, int], T]) -> dict[str, Callable[[int], T]]:
    """Return the runs of Delta as it comes and of Delta tuned. ``run`` gets a word for the way, for its paths, and the turn."""

    def with_tuning(turn: int) -> T:
        with with_settings(spark, TUNED):
            return run("tuned", turn)

    as_it_comes, tuned = DELTAS
    return {as_it_comes: lambda turn: run("delta", turn), tuned: with_tuning}


@contextmanager
def with_settings(spark: Any, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session. A query that starts meanwhile keeps them, because it copies its session."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)


def through(table: Path, way: str) -> str:
    """Return another path of the same table, of one way to read it.

    Delta keeps a table's snapshot by its path. So no way uses the snapshot that another has computed.
    """
    link = table.with_name(f"{table.name}-{way}")
    if not link.is_symlink():
        link.symlink_to(table)
    return str(link)


def spark_session(scratch: Path, jars: str = "") -> Any:
    """Return a session on two cores with strandline and Delta. ``jars`` are additional jars, joined by commas."""
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
        # scan.py asks for the stages of old jobs, and Delta as it comes has thousands.
        .config("spark.ui.retainedJobs", "1000000")
        .config("spark.ui.retainedStages", "1000000")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    )
    if jars:
        builder = builder.config("spark.jars", jars)
    session = configure(builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
