"""Runs the benchmarks one after the other and makes one table of all their measures, ``benchmarks/RESULTS.md``.

    python benchmarks/run_all.py [--only NAME ...] [--long] [--again] [--wait-minutes 10]

Before each benchmark it waits until the machine is quiet, for at most ``--wait-minutes``, because no benchmark judges a goal
beside other work. Each result is kept in ``.build/bench`` with the date, the commit and the machine. A run that was interrupted
goes on: what this commit has measured on a quiet machine is not measured again, except with ``--again``. ``--long`` adds the runs
that need an hour, or much disk. The table has every result that is kept, each with its commit, also where others are faster. The
exit code is 1 if a benchmark failed, or missed a goal.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from rich import box
from rich.console import Console
from rich.table import Table

from _alternating import QUIET, short

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "RESULTS.md"
KEPT = FOLDER.parent / ".build" / "bench"

RUNS = (
    "start.py",
    "throughput.py",
    "history.py",
    "operators.py",
    "nexmark_throughput.py",
    "scan.py",
    "overhead.py",
    "ingest.py",
    "page.py",
    "eviction.py --stores rocksdb --operators join",
    "eviction.py",
    "sink.py",
    "files.py",
    "loops.py",
    "strata.py",
    "producers.py",
    "open_channel.py",
    "resumes.py",
    "replay.py",
    "reports.py",
    "why.py",
    "tracker.py",
)
"""The commands, those first that a user feels first."""
LONG = (
    "eviction.py --stores rocksdb --closings 12",
    "throughput.py --rows 100000000 --files 320 --rounds 2",
)
"""Commands that need an hour, or some 10 GB of disk."""


def machine() -> str:
    """Return one line about the machine and the versions that decide."""
    model = re.search(r"^model name\s*:\s*(.+)$", _text(Path("/proc/cpuinfo")), re.MULTILINE)
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.partition("\n")[0]
    said = re.search(r'"(.+)"', java)
    parts = [
        f"{os.cpu_count()} cores ({model[1].strip() if model else platform.machine()})",
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB of memory",
        platform.system(),
        f"Python {platform.python_version()}",
        f"Java {said[1] if said else 'unknown'}",
        *(f"{package} {version(package)}" for package in ("pyspark", "delta-spark", "deltalake", "pyarrow")),
    ]
    return ", ".join(parts)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def commit() -> str:
    """Return the last commit that changed something that is measured, with a plus sign if it was changed since."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=FOLDER, capture_output=True, text=True, check=True).stdout.strip()

    measured = ("--", ".", "../python", "../connector", "../jvm-shim", "../pyproject.toml", f":!{RESULTS.name}")
    return git("log", "-1", "--format=%h", *measured) + ("+" if git("status", "--porcelain", *measured) else "")


def place(command: str) -> Path:
    """Return where the result of a command is kept."""
    return KEPT / f"{re.sub(r'[^a-z0-9_]+', '-', command.replace('.py', '')).strip('-')}.json"


def wait(minutes: float) -> None:
    """Wait until the machine is quiet, but not longer than ``minutes``."""
    until = time.monotonic() + 60 * minutes
    while os.getloadavg()[0] > QUIET and time.monotonic() < until:
        print(f"\rthe load is {os.getloadavg()[0]:.2f}, waiting until it is {QUIET:g}  ", end="", flush=True)
        time.sleep(5)
    print()


def measure(command: str) -> bool:
    """Run a benchmark, show what it prints, and keep its last line. Returns whether it ended without an error."""
    print(f"== {command}", flush=True)
    last, began = "", datetime.now(timezone.utc)
    with subprocess.Popen([sys.executable, *command.split()], cwd=FOLDER, stdout=subprocess.PIPE, text=True) as running:
        for line in running.stdout or ():
            print(line, end="", flush=True)
            last = line
    if running.returncode:
        print(f"{command} failed with exit code {running.returncode}", flush=True)
        return False
    about = {"command": command, "date": f"{began:%Y-%m-%d}", "commit": commit(), "machine": machine()}
    KEPT.mkdir(parents=True, exist_ok=True)
    place(command).write_text(json.dumps({**about, **json.loads(last)}, ensure_ascii=False))
    return True


def kept(commands: Iterable[str]) -> list[dict[str, Any]]:
    """Return the results that are kept of these commands."""
    return [json.loads(path.read_text()) for path in map(place, commands) if path.exists()]


def verdict(result: Mapping[str, Any], measured: Mapping[str, Any]) -> str:
    """Say whether a measure's goal holds."""
    if measured["goal"] == "none":
        return ""
    if result["load"] > QUIET:
        return f"not judged, load {result['load']:g}"
    return "holds" if measured["holds"] else "**missed**"


def table(results: Sequence[Mapping[str, Any]], form: box.Box) -> Table:
    """Return one table of all measures."""
    made = Table(box=form)
    for column in ("benchmark", "measure", "unit", "ours", "others", "ratio", "goal", "", "commit"):
        made.add_column(column, justify="right" if column in {"ours", "ratio"} else "left")
    for result in results:
        for measured in result["measures"]:
            others = ", ".join(f"{which} {short(value)}" for which, value in measured["others"].items())
            ratio = "" if measured["ratio"] is None else f"{measured['ratio']:.2f}"
            goal = "" if measured["goal"] == "none" else measured["goal"]
            made.add_row(
                result["command"],
                measured["name"],
                measured["unit"],
                short(measured["ours"]),
                others,
                ratio,
                goal,
                verdict(result, measured),
                f"{result['commit']}, {result['date']}",
            )
    return made


def page(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of RESULTS.md."""
    machines = sorted({result["machine"] for result in results})
    missed = [f"{result['command']}: {name}" for result in results if result["load"] <= QUIET for name in result["missed"]]
    console = Console(width=10_000, no_color=True, highlight=False)
    with console.capture() as written:
        console.print(table(results, box.MARKDOWN), markup=False)
    lines = [
        "# Results of the benchmarks",
        "",
        "`make bench` makes this page: do not edit it. The figures are medians of runs that took turns. A ratio is our figure",
        "divided by the best of the others; where the unit is something per second, more is better. A goal is judged only if",
        f"the load was at most {QUIET:g} when the benchmark began.",
        "",
        *(f"- Machine: {each}." for each in machines),
        f"- Goals that were missed: {'; '.join(missed) or 'none'}.",
        "",
        *(re.sub(r" {2,}", " ", line).strip() for line in written.get().strip().splitlines()),
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    """Measure what is missing, and make the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=[run.partition(".py")[0] for run in RUNS], metavar="NAME")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--wait-minutes", type=float, default=10)
    options = parser.parse_args()
    chosen = [run for run in RUNS if options.only is None or run.partition(".py")[0] in options.only]
    failed = []
    for command in chosen + (list(LONG) if options.long else []):
        known = kept([command])
        if known and known[0]["commit"] == commit() and known[0]["load"] <= QUIET and not options.again:
            print(f"== {command}: measured already", flush=True)
            continue
        wait(options.wait_minutes)
        if not measure(command):
            failed.append(command)
    results = kept(RUNS + LONG)
    RESULTS.write_text(page(results))
    Console().print(table(results, box.SIMPLE))
    missed = [result["command"] for result in results if result["missed"] and result["load"] <= QUIET]
    for said, commands in {"failed": failed, "missed a goal": missed}.items():
        if commands:
            print(f"{said}: {', '.join(commands)}")
    return 1 if failed or missed else 0


if __name__ == "__main__":
    sys.exit(main())
