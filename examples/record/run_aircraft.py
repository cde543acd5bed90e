"""Records a day of flights, lets late planes make their next legs late, and asks what a longer turnaround would have done.

    python examples/record/run_aircraft.py [--days 1] [--ways 10] [--turnaround 60] [--out FOLDER]

The recording is then run again in several ways: with batches and partitions of other sizes. The exit status is 0 if each of these
runs is the recorded one, if plain Python computes the same departures, and if it agrees where the longer turnaround shows first;
otherwise 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from flights.data import clock
from flights.session import session
from pyspark_strandline import read_loop
from pyspark_strandline.replay import LoopReplay, replay_loop
from record import aircraft
from record.aircraft import EVENTS, FEEDBACK, LEAST_TURNAROUND, LEGS, MINUTE, READY, TURNAROUND, Departure, body, legs, simulate
from record.checks import exit_status
from strandline.channel import Channel
from strandline.replay import CLOCK, Timestamper, compare
from strandline.time.arrow import times_of

__all__ = ["main", "run"]

cloudpickle.register_pickle_by_value(aircraft)  # Spark's workers do not have this folder
_PARTITIONS = "spark.sql.shuffle.partitions"


def record(path: Path, flights: pd.DataFrame) -> None:
    """Record the legs from outside: each at its scheduled minute, with a commit for each hour."""
    shown = [0]
    channel = Channel.create(path, LEGS)
    with Timestamper(channel, "schedule", clock=lambda: shown[0]) as node:
        channel.seal()
        for _, hour in flights.groupby(flights["scheduled"] // 60):
            for minute, mine in hour.groupby("scheduled"):
                shown[0] = int(minute) * MINUTE
                node.send(pa.Table.from_pandas(mine[LEGS.names[1:]], schema=LEGS.remove(0), preserve_index=False))
            node.commit()
        node.drop()


@contextmanager
def shuffled(spark: SparkSession, partitions: int) -> Iterator[None]:
    """Let queries have so many partitions for a while."""
    before = spark.conf.get(_PARTITIONS)
    spark.conf.set(_PARTITIONS, str(partitions))
    try:
        yield
    finally:
        spark.conf.set(_PARTITIONS, before)


def live(spark: SparkSession, folder: Path, channels: dict[str, str]) -> None:
    """Run the loop over what is recorded, into the channel ``departures``."""
    Channel.create(channels["ready"], READY, producers=["loop"])
    loop = read_loop(spark, channels, feedback=FEEDBACK, domain=CLOCK, events=EVENTS, maxFilesPerTrigger=4)
    made = body()(loop)
    writer = loop.write({"ready": made["ready"], "departures": (made["departures"], folder / "departures")})
    with shuffled(spark, 1):
        writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()


def again(spark: SparkSession, channels: dict[str, str], into: Path, turnaround: int, files: int, partitions: int) -> LoopReplay:
    """Run the recorded loop again."""
    with shuffled(spark, partitions):
        return replay_loop(
            spark,
            channels,
            body(turnaround),
            into,
            feedback=FEEDBACK,
            record=False,
            events=EVENTS,
            on_divergence="report",
            maxFilesPerTrigger=files,
        )


def departures(path: Path | str) -> list[Departure]:
    """Return what a loop has written, without the minute at which a plane is ready again."""
    rows = Channel.open(path).read()
    begins = [time[0] // MINUTE for time in times_of(rows.column("time"), CLOCK)]
    minutes = {
        name: [value // MINUTE for value in rows.column(name).cast(pa.int64()).to_pylist()] for name in ("scheduled", "departed")
    }
    names = (rows.column(name).to_pylist() for name in ("tailnum", "flight"))
    found = zip(begins, *names, minutes["scheduled"], minutes["departed"], strict=True)
    return sorted(Departure(*each, ready=0) for each in found)


def first_that_differs(one: list[Departure], other: list[Departure]) -> tuple[Departure, Departure] | None:
    """Return the leg that differs first, as it is in either run; ``None`` if no plane leaves at another time."""
    legs_of = [{(each.tailnum, each.scheduled, each.flight): each for each in run} for run in (one, other)]
    pairs = [(each, legs_of[1][leg]) for leg, each in legs_of[0].items() if each.begins != legs_of[1][leg].begins]
    return min(pairs, key=lambda pair: min(pair[0].begins, pair[1].begins), default=None)


def explain(a: Departure, b: Departure, turnaround: int) -> str:
    """Say in a sentence what differs for a leg."""
    return (
        f"first leg that leaves at another time: {a.tailnum}, flight {a.flight}, scheduled {clock(a.scheduled):%d %b %H:%M UTC}\n"
        f"  expected at {clock(a.begins):%H:%M}, got at {clock(b.begins):%H:%M}: with {turnaround} minutes on the ground the leg"
        f" waits {b.begins - b.scheduled} minutes for its plane, instead of {a.begins - a.scheduled}."
    )


def run(spark: SparkSession, folder: Path, flights: pd.DataFrame, *, ways: int = 10, turnaround: int = 60) -> int:
    """Run everything in ``folder``, with the legs of :func:`record.aircraft.legs`. Return the exit status."""
    channels = {"legs": str(folder / "legs"), "ready": str(folder / "ready")}
    record(folder / "legs", flights)
    live(spark, folder, channels)
    lived, plain, other = departures(folder / "departures"), simulate(flights), simulate(flights, turnaround)
    late = [each for each in lived if each.begins > each.scheduled]
    minutes = sum(each.begins - each.scheduled for each in late)
    print(
        f"{len(lived)} legs of {flights['tailnum'].nunique()} planes; {len(late)} wait for their plane, {minutes} minutes in all"
    )

    rounded = Channel.open(channels["ready"]).progress.producers["loop"].state["rounded"]
    found = {
        "the departures are those of plain Python": lived == [each._replace(ready=0) for each in plain],
        "no event was rounded": rounded == 0,
        "some legs wait": bool(late),
    }
    equal = True
    for way in range(ways):
        files, partitions = (2, 5, 10, 1000)[way % 4], 1 + way % 3
        replayed = again(spark, channels, folder / f"way-{way}", TURNAROUND, files, partitions)
        same = replayed.equal and compare(folder / "departures", replayed.outputs["departures"]).equal
        print(f"run again with {files} files a batch and {partitions} partitions: {'equal' if same else 'NOT EQUAL'}")
        equal = equal and same

    found[f"all {ways} runs are the recorded one"] = equal
    changed = again(spark, channels, folder / "changed", turnaround, 1000, 1)
    found |= _changed(changed, lived, plain, other, turnaround)
    return exit_status(found)


def _changed(
    changed: LoopReplay, lived: list[Departure], plain: list[Departure], other: list[Departure], turnaround: int
) -> dict[str, bool]:
    """Print where a run with another turnaround differs first, and return whether plain Python says so too."""
    if changed.first is None:
        return {"another turnaround makes a difference": False}
    _, time = changed.first
    apart, more = abs(turnaround - TURNAROUND), "longer" if turnaround > TURNAROUND else "less"
    seen: Any = changed.links["ready"].differences[0]
    print(f"with {turnaround} minutes instead of {TURNAROUND} the events differ first at {CLOCK.format(time)}")
    print(f"  expected {_planes(seen.only_a)}, got {_planes(seen.only_b)}: it stands {apart} minutes {more} at either end.")
    ready = [{(each.ready, each.tailnum) for each in each_run} for each_run in (plain, other)]
    first = min(ready[0] ^ ready[1])[0]
    pair = first_that_differs(lived, departures(changed.outputs["departures"]))
    simulated = first_that_differs([each._replace(ready=0) for each in plain], [each._replace(ready=0) for each in other])
    print(explain(*pair, turnaround) if pair else "no leg leaves at another time")
    return {
        "the first event that differs is that of plain Python": time[0] == first * MINUTE,
        "the first leg that differs is that of plain Python": pair == simulated,
    }


def _planes(rows: pa.Table) -> str:
    return ", ".join(f"{tail} ready" for tail in rows.column("tailnum").to_pylist()) or "nothing"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python examples/record/run_aircraft.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--ways", type=int, default=10, help="how often the recording is run again")
    parser.add_argument("--turnaround", type=int, default=60, help=f"the other minutes on the ground, instead of {TURNAROUND}")
    parser.add_argument("--out", type=Path, help="the folder for all results; new or empty (default: none are kept)")
    options = parser.parse_args()
    if options.turnaround < LEAST_TURNAROUND:
        parser.error(f"with a turnaround of less than {LEAST_TURNAROUND} minutes, planes come back sooner than the loop allows")
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.out or Path(scratch)).resolve()
        if folder.exists() and any(folder.iterdir()):
            parser.error(f"{folder} is not empty")
        folder.mkdir(parents=True, exist_ok=True)
        spark = session("record")
        return run(spark, folder, legs(options.days), ways=options.ways, turnaround=options.turnaround)


if __name__ == "__main__":
    sys.exit(main())
