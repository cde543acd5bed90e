"""The flights under ``kill -9``: Spark and airports are killed at random moments and restarted, and the tables are the same.

    python examples/flights/kill.py --spark 20 --producers 20 [--seed N] [--days 30] [--out DIR]

The seed is printed. A run that was itself interrupted continues when it is started again with the same ``--out``.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from flights.data import AIRPORTS, Pause, events, load
from flights.pipeline import Folder, Pipeline
from flights.results import check_days, hourly_outcome
from flights.view import Output

__all__ = ["main", "run"]

_STUCK_SECONDS = 300.0


def run(root: Path, days: int, spark: int, producers: int, seed: int, pause: Pause | None = None) -> list[str]:
    """Kill Spark and airports so many times, let the run end, and return the problems of its results.

    Raises ``TimeoutError`` when nothing moves for five minutes.
    """
    plan = ["queries"] * spark + [AIRPORTS[i % len(AIRPORTS)] for i in range(producers)]
    random.Random(seed).shuffle(plan)
    record = root / "kills.json"
    done: list[dict[str, object]] = json.loads(record.read_text())["done"] if record.exists() else []
    flights = load(days)
    arrivals = events(flights, pause)
    pipeline = Pipeline(Folder(root), flights, arrivals, pause)
    if not record.exists():
        pipeline.prepare()
        record.write_text(json.dumps({"seed": seed, "done": done}))
    try:
        pipeline.start_queries()
        for airport in AIRPORTS:
            pipeline.start_producer(airport)
        for at in range(len(done), len(plan)):
            # Each wait is drawn for itself, so that a resumed run waits as the first would have.
            _go_on(pipeline, random.Random(seed * 1000 + at), plan[at])
            pipeline.airports.refresh()
            done.append(
                {"killed": plan[at], "rows": sum(pipeline.airports.rows.values()), "batch": pipeline.last_offset("hourly")[0]}
            )
            print(f"kill {at + 1}/{len(plan)}: {done[-1]}", flush=True)
            record.write_text(json.dumps({"seed": seed, "done": done}))
        pipeline.free_clock()
        _finish(pipeline)
    finally:
        pipeline.stop()
    pipeline.airports.refresh()
    folder = pipeline.folder
    _, problems = hourly_outcome(flights, arrivals, pipeline.airports, folder.hourly, folder.checkpoints / "hourly")
    return problems + check_days(flights, folder.daily)


def _go_on(pipeline: Pipeline, random_: random.Random, name: str) -> None:
    """Let the model continue for a random time, then kill and restart ``name``.

    Spark is killed at a random moment of a new batch. While it starts, a kill would test nothing.
    """
    batch = pipeline.last_offset("hourly")[0]
    _until(pipeline, lambda: pipeline.last_offset("hourly")[0] > batch or pipeline.at_end, "a batch")
    end = time.monotonic() + random_.uniform(0.0, 1.5)
    while time.monotonic() < end:
        pipeline.advance()
        time.sleep(0.005)
    pipeline.kill(name)
    if name == "queries":
        pipeline.start_queries()
    else:
        pipeline.start_producer(name)


def _finish(pipeline: Pipeline) -> None:
    daily = Output.of(pipeline.folder.daily)

    def ended() -> bool:
        daily.refresh()
        return daily.closed

    _until(pipeline, ended, "the end")


def _until(pipeline: Pipeline, reached: Callable[[], bool], what: str) -> None:
    moved = time.monotonic()
    at: tuple[int, ...] = ()
    while not reached():
        pipeline.advance()
        pipeline.check_alive()
        now: tuple[int, ...] = (pipeline.airports.version, *(pipeline.last_offset(query)[0] for query in ("hourly", "daily")))
        if now != at:
            moved, at = time.monotonic(), now
        if time.monotonic() - moved > _STUCK_SECONDS:
            raise TimeoutError(
                f"the run made no progress for {_STUCK_SECONDS:.0f} s while it waited for {what}; see {pipeline.folder.logs}"
            )
        time.sleep(0.01)


def main(argv: list[str] | None = None) -> int:
    """The command line; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spark", type=int, default=20, help="how often Spark is killed (%(default)s)")
    parser.add_argument("--producers", type=int, default=20, help="how often an airport is killed (%(default)s)")
    parser.add_argument("--days", type=int, default=30, help="how many days are replayed (%(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="decides what is killed when (default: a new seed each time)")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).resolve().parent / "out-kill", help="where everything goes (%(default)s)"
    )
    args = parser.parse_args(argv)
    record = args.out / "kills.json"
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1_000_000)
    if record.exists():
        before = json.loads(record.read_text())
        seed = before["seed"]
        print(f"continuing after {len(before['done'])} kills of an earlier run in {args.out}")
    elif args.out.exists() and any(args.out.iterdir()):
        parser.error(f"{args.out} is not empty and was not made by this program; give another --out")
    print(f"seed {seed}", flush=True)
    problems = run(args.out.resolve(), args.days, args.spark, args.producers, seed)
    for problem in problems:
        print(f"WRONG: {problem}")
    print("the tables differ from pandas" if problems else "the tables equal those of pandas, with every result exactly once")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
