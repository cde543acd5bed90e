"""Runs a benchmark with Java's flight recorder, and shows where its JVM spends the time.

    python benchmarks/profile_jvm.py [--only ours] [--from CLASS] [--lines 25] [--into FOLDER] BENCHMARK.py [ARGUMENTS ...]

It starts the benchmark with a recording of its JVM, which samples the threads that run Java code every 10 ms, and writes two
files: ``recording.jfr``, for JDK Mission Control, and ``stacks.txt``, one line for each stack with the number of its samples
("collapsed stacks"), from which flamegraph.pl, speedscope and IntelliJ draw a flame graph. Then it prints three tables: shares of
the parts of Spark and of Strandline, where a sample counts once, for the innermost of them; the methods that ran (self); and the
methods with those that they called (total).

Only our own runs of the benchmark take place, or those that ``--only`` names. ``--from`` counts only stacks that contain a class
or method of that name, such as ``ShuffleMapTask`` for the tasks of a stage before a shuffle. Python processes are not sampled:
``benchmarks/sink.py`` and ``overhead.py`` measure their parts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from rich import box
from rich.console import Console
from rich.table import Table

from _alternating import OURS

FOLDER = Path(__file__).resolve().parent

PARTS = {
    "guard": ("strandline.spark.batch.", "strandline.spark.time.TimeCheck", "strandline.spark.time.Antichain"),
    "times of the shim": ("strandline.spark.time.",),
    "state by time": ("strandline.spark.state.", "sql.execution.streaming.state.strandline."),
    "rows kept in memory": ("spark.unsafe.map.strandline.",),
    "scan and planning of ours": ("strandline.spark.scan.", "strandline.spark.plan.", "strandline.spark.planner."),
    "other nodes of ours": ("strandline.",),
    "state store of Spark": ("sql.execution.streaming.state.", "org.rocksdb."),
    "Parquet": ("org.apache.parquet.", "execution.datasources.parquet."),
    "shuffle": ("org.apache.spark.shuffle.", "org.apache.spark.util.collection.unsafe.sort."),
    "hash aggregate": ("execution.UnsafeFixedWidthAggregationMap", "execution.aggregate.", "unsafe.map.BytesToBytesMap"),
    "hash and sort join": ("execution.joins.",),
    "Python transfer": ("execution.python.", "org.apache.arrow.", "spark.api.python."),
    "generated code": ("catalyst.expressions.GeneratedClass",),
    "compiling of generated code": ("org.codehaus.janino.", "catalyst.expressions.codegen."),
    "analysis and optimizer": ("sql.catalyst.", "execution.QueryExecution", "execution.SparkPlan"),
    "checkpoint files": ("execution.streaming.checkpointing.", "org.apache.hadoop."),
    "scheduler": ("org.apache.spark.scheduler.",),
}
"""Parts, and what the name of one of their methods contains. The first part that a frame belongs to counts."""


def recorded(command: list[str], only: str, into: Path) -> Path:
    """Run a benchmark, and record the JVMs that it starts. Returns the largest recording: Spark starts a small JVM first."""
    with tempfile.TemporaryDirectory() as folder:
        # Java makes a name of its own in a folder, for each JVM.
        options = f"-XX:StartFlightRecording=filename={folder},settings=profile,dumponexit=true,maxsize=1g -Xlog:disable"
        said = {"JDK_JAVA_OPTIONS": f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {options}", "STRANDLINE_BENCHMARK_ONLY": only}
        subprocess.run([sys.executable, *command], cwd=FOLDER, env={**os.environ, **said}, check=True)
        # A JVM may write its recording after the end of the Python process.
        psutil.wait_procs([process for process in psutil.process_iter() if _has(process, folder)])
        largest = max(Path(folder).glob("*.jfr"), key=lambda path: path.stat().st_size)
        return Path(shutil.move(largest, into / "recording.jfr"))


def _has(process: psutil.Process, folder: str) -> bool:
    with suppress(psutil.Error):
        return folder in process.environ().get("JDK_JAVA_OPTIONS", "")
    return False


def stacks(recording: Path, within: str) -> Iterator[tuple[str, ...]]:
    """Yield the stack of each sample, the outermost method first."""
    command = ["jfr", "print", "--json", "--stack-depth", "64", "--events", "jdk.ExecutionSample", str(recording)]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for event in said["recording"]["events"]:
        trace: dict[str, Any] = event["values"]["stackTrace"] or {"frames": []}
        frames = tuple(_name(frame["method"]) for frame in reversed(trace["frames"]))
        if frames and (not within or any(within in frame for frame in frames)):
            yield frames


def _name(method: dict[str, Any]) -> str:
    return f"{method['type']['name'].replace('/', '.')}.{method['name']}".replace(";", ",").replace(" ", "_")


def part_of(stack: tuple[str, ...]) -> str:
    """Return the part that a sample counts for: the innermost frame that belongs to one."""
    for frame in reversed(stack):
        for part, names in PARTS.items():
            if any(name in frame for name in names):
                return part
    return "other"


def shown(title: str, counted: Counter[str], whole: int, most: int) -> Table:
    """Return a table of the largest shares."""
    made = Table("share", title, box=box.SIMPLE)
    for name, count in counted.most_common(most):
        made.add_row(f"{count / whole:.1%}", name)
    return made


def tables(found: Iterable[tuple[str, ...]], most: int) -> list[Table]:
    """Return the shares of parts, of methods alone, and of methods with what they call."""
    parts, alone, total, whole = Counter[str](), Counter[str](), Counter[str](), 0
    for stack in found:
        whole += 1
        parts[part_of(stack)] += 1
        alone[stack[-1]] += 1
        total.update(set(stack))
    named = {"part": parts, "method (self)": alone, "method (total)": total}
    return [shown(f"{title}, {whole} samples", counted, max(whole, 1), most) for title, counted in named.items()]


def main() -> None:
    """Record, write the stacks, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=FOLDER.parent / ".build" / "profile")
    parser.add_argument("--lines", type=int, default=25, help="how many lines a table has at most")
    parser.add_argument("--only", default=OURS)
    parser.add_argument("--from", dest="within", default="", metavar="CLASS")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="BENCHMARK.py ...")
    options = parser.parse_args()
    if not options.command:
        parser.error("Name a benchmark, such as throughput.py.")
    options.into.mkdir(parents=True, exist_ok=True)
    recording = recorded(options.command, options.only, options.into)
    found = list(stacks(recording, options.within))
    lines = (f"{';'.join(stack)} {count}" for stack, count in Counter(found).items())
    (options.into / "stacks.txt").write_text("\n".join(lines) + "\n")
    for table in tables(found, options.lines):
        Console(width=160).print(table)
    print(f"{recording} and {options.into / 'stacks.txt'} have all of it.")


if __name__ == "__main__":
    main()
