"""Weeks of real flights, counted exactly while they happen, beside the results of Spark's own watermark.

    python examples/flights/run.py [--days N | --year] [--out DIR] [--pause JFK:8:3]

The exit status is 0 when every hour and every day equals the count by pandas over the same file, otherwise 1.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pandas as pd
from rich.console import Console

from flights import model, report
from flights.data import Pause, events, load
from flights.pipeline import Folder, Pipeline, ProcessFailedError
from flights.results import check_days, hourly_outcome
from flights.view import View, watch
from flights.watermark import BATCHES, RESULTS, outcome

DELAYS = (10, 60, 120)
_MARK = ".strandline-flights"


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--days", type=int, default=30, help="how many days of 2013 to replay (default: %(default)s)")
    length.add_argument("--year", action="store_const", const=365, dest="days", help="the whole year; takes an hour or so")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).resolve().parent / "out",
        help="the folder for all results (default: %(default)s)",
    )
    parser.add_argument(
        "--pause",
        type=str,
        default="JFK:8:3",
        metavar="AIRPORT:DAY:DAYS",
        help="an airport that is silent for some days, or none (%(default)s)",
    )
    parser.add_argument("--no-spark-watermark", action="store_true", help="compare with the exact model only; much quicker")
    parser.add_argument("--free", action="store_true", help="let the airports run as fast as they can, not a model hour a batch")
    args = parser.parse_args(argv)
    if not 1 <= args.days <= 365:
        parser.error(f"--days is {args.days}; give 1 to 365")
    try:
        args.pause = Pause.parse(args.pause)
    except ValueError as error:
        parser.error(str(error))
    if args.pause is not None and args.pause.day + args.pause.days > args.days:
        args.pause = None  # a pause that would never end within the run
    return args


def fresh(root: Path) -> Folder:
    """Return an empty folder for a run. A folder is emptied only if an earlier run made it."""
    if root.exists() and any(root.iterdir()):
        if not (root / _MARK).exists():
            raise SystemExit(f"error: {root} is not empty and was not made by this program; give another --out")
        shutil.rmtree(root)
    root.mkdir(parents=True, exist_ok=True)
    (root / _MARK).touch()
    return Folder(root)


def main(argv: list[str] | None = None) -> int:
    """Run everything, and return the exit status."""
    args = arguments(argv)
    console = Console()
    folder = fresh(args.out.resolve())
    flights = load(args.days)
    arrivals, unpaused = events(flights, args.pause), events(flights)
    pipeline = Pipeline(folder, flights, arrivals, args.pause)
    pipeline.prepare()
    report.introduce(console, flights, arrivals, args.pause, folder.root)
    try:
        with View(pipeline, console) as view:
            pipeline.start_queries()
            for airport in pipeline.airports.rows:
                pipeline.start_producer(airport)
            if not args.no_spark_watermark:
                pipeline.start_watermarks(DELAYS, unpaused)
            if args.free:
                pipeline.free_clock()
            watch(view, lambda: view.days.closed and not any(map(pipeline.running, pipeline.processes)))
            seconds = time.monotonic() - view.started
    except ProcessFailedError as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    finally:
        pipeline.stop()

    pipeline.airports.refresh()
    ours, problems = hourly_outcome(flights, arrivals, pipeline.airports, folder.hourly, folder.checkpoints / "hourly")
    problems += check_days(flights, folder.daily)
    spark = {delay: model.watermark(unpaused, delay) for delay in DELAYS}
    dropped = None
    if not args.no_spark_watermark:
        lines, results = json.loads((folder.spark / BATCHES).read_text()), pd.read_parquet(folder.spark / RESULTS)
        dropped = sum(line["dropped"] for line in lines)
    for delay, exact in spark.items():
        if args.no_spark_watermark:
            break
        live = outcome(unpaused, pipeline.feed_steps, results, lines, delay)
        spark[delay] = model.Outcome(live.hours, exact.lost, live.moves)
        if live.rows_lost != exact.rows_lost or not live.hours.equals(exact.hours.astype(live.hours.dtypes)):
            problems.append(
                f"Spark's run at {delay} minutes differs from its exact model: {live.rows_lost} and {exact.rows_lost} rows lost"
            )
    result = report.Result(
        flights, arrivals, unpaused, args.pause, ours, spark, dropped, problems, seconds, live=not args.no_spark_watermark
    )
    report.conclude(console, result, folder.root)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
