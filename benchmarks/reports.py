"""What progress reports cost, and how well they foresee: the level advanced beside none, and backlogs of the flights example.

    python benchmarks/reports.py [--commits 800] [--days 60] [--parts cost foresight]

Cost: a query counts small commits, one per batch. It runs all the time, and every few seconds it goes on without reports, or
with reports of another level, in turns. With reports, a thread asks for all figures every second, as a scrape does. The goal
holds when the median batch at level advanced takes at most 1.03 of the median batch without reports.

Foresight: the channel of the flights example is full of real flights with their manifests, and the example's query counts them by
hour and airport, some files per batch. After each batch, the time until the query has caught up is estimated from its report, and
compared with what then happened. The goal holds when the median error is at most 30 %.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from _alternating import OURS, Measure, order, spark_session, summary
from overhead import commit_some
from pyspark_strandline.report import ProgressReports
from strandline.channel import Channel
from strandline.report.progress import catch_up_seconds
from strandline.time.arrow import time_field
from strandline.time.domain import int64

sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))

from flights.data import AIRPORTS, events, load
from flights.producer import Replay
from flights.queries import by_hour
from flights.trace import SCHEMA, write_trace

NOTHING = "without reports"
MINIMAL = "minimal"
WARM_UP = 50
"""The first batches of a query, which are not counted: the JVM is still slow."""


@contextmanager
def asked(reports: ProgressReports | None) -> Iterator[None]:
    """Make reports, and ask for their figures every second."""
    if reports is None:
        yield
        return
    with reports:
        done = threading.Event()

        def scrape() -> None:
            while not done.wait(1.0):
                reports.figures()

        thread = threading.Thread(target=scrape)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    """Return what the driver's Python and its JVM have used, which other programs on the machine change little."""
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))


def cost(spark: Any, scratch: Path, commits: int, seconds: float) -> list[Measure]:
    """Return the measures of what reports cost a batch. One query runs all the time, and reports are switched on and off."""
    schema = pa.schema([time_field("time", int64), ("value", pa.int64())])
    channel = Channel.create(scratch / "in", schema, producers=["p"], at=0, storage_options={"durable": "false"})
    with channel.producer("p") as producer:
        commit_some(producer, 0, commits, 100)
    ways: dict[str, ProgressReports | None] = {
        NOTHING: None,
        MINIMAL: ProgressReports(spark, "minimal"),
        OURS: ProgressReports(spark, "advanced"),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(2 * commits))
    frame = spark.readStream.format("strandline").option("maxFilesPerTrigger", 1).load(str(scratch / "in"))
    writer = frame.groupBy("time").count().writeStream.format("strandline")
    query = (
        writer.option("checkpointLocation", str(scratch / "checkpoint")).trigger(availableNow=True).start(str(scratch / "out"))
    )
    parts: list[tuple[str, float, float]] = []
    processes = [psutil.Process(), psutil.Process(int(spark._jvm.java.lang.ProcessHandle.current().pid()))]
    used: dict[str, float] = dict.fromkeys(ways, 0.0)
    turn = 0
    while query.isActive:
        for name in order(list(ways), turn):
            with asked(ways[name]):
                begun, before = time.time(), cpu_seconds(processes)
                query.awaitTermination(seconds)
                parts.append((name, begun, time.time()))
                used[name] += (cpu_seconds(processes) - before) * bool(turn)  # the first turn warms up
        turn += 1
    counted = [part for number, part in enumerate(parts) if number >= len(ways)]
    done: dict[str, float] = dict.fromkeys(ways, 0.0)
    for progress in query.recentProgress[WARM_UP:]:
        begun = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
        took = progress["durationMs"]["triggerExecution"]
        for name, first, last in parts:
            if progress["numInputRows"] and first <= begun and begun + took / 1000 <= last:
                times[name].append(took)
    for progress in query.recentProgress:
        begun = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
        took = progress["durationMs"]["triggerExecution"] / 1000
        for name, first, last in counted:
            done[name] += max(0.0, min(last, begun + took) - max(first, begun)) / took if took else 0.0
    cpu = {name: [1000 * used[name] / done[name]] for name in ways if done[name]}
    print(", ".join(f"{name}: {len(each)} batches, {statistics.median(each):.1f} ms" for name, each in times.items()), flush=True)
    unit = "ms a batch"
    minimal = {OURS: times.pop(MINIMAL), NOTHING: times[NOTHING]}
    return [
        Measure.beside("level advanced", times, unit, at_most=1.03),
        Measure.beside("level minimal", minimal, unit, at_most=1.03),
        Measure.beside("level advanced, CPU of both processes", {OURS: cpu[OURS], NOTHING: cpu[NOTHING]}, "ms a batch"),
    ]


def fill(folder: Path, days: int) -> Channel:
    """Return a channel with all departures of the first days, by three airports with manifests, a commit for each model hour."""
    flights = load(days)
    write_trace(folder / "trace", flights, events(flights))
    channel = Channel.create(folder / "flights", SCHEMA, producers=AIRPORTS, storage_options={"durable": "false"})
    replays = {airport: (Replay(folder / "trace", airport), channel.producer(airport)) for airport in AIRPORTS}
    steps = {}
    for airport, (replay, producer) in replays.items():
        replay.resume(producer)
        steps[airport] = list(replay)
    for _, airport in sorted((step, airport) for airport, each in steps.items() for step in each):
        replay, producer = replays[airport]
        rows = replay.next_rows()
        if rows.num_rows:
            producer.send(rows)
        producer.delay(list(replay.manifest.holds()))
        producer.commit()
    for _, producer in replays.values():
        producer.close()
    return channel


def foresight(spark: Any, scratch: Path, days: int, files: int) -> list[Measure]:
    """Return the measure of how well backlogs are foreseen."""
    channel = fill(scratch, days)
    print(f"{channel.version + 1} commits of flights", flush=True)
    estimates: list[tuple[float, float]] = []
    with ProgressReports(spark) as reports:

        def note(report: Any) -> None:
            of_query = reports.of_query(report.query)
            seconds = None if of_query is None else catch_up_seconds(of_query.transforms)
            if seconds is not None:
                estimates.append((report.at / 1000, seconds))

        reports.on_batch.append(note)
        frame = spark.readStream.format("strandline").option("maxFilesPerTrigger", files).load(channel.path)
        writer = by_hour(frame).writeStream.format("strandline").option("checkpointLocation", str(scratch / "hourly-checkpoint"))
        query = writer.trigger(availableNow=True).start(str(scratch / "hourly"))
        query.awaitTermination()
        until = time.monotonic() + 30
        while (newest := reports.committed(query)) is None or newest.batch < query.lastProgress["batchId"]:
            assert time.monotonic() < until, "the last batch was not reported"
            time.sleep(0.1)
    end = estimates[-1][0]
    errors = []
    print("foreseen and what then happened, in seconds:", flush=True)
    for number, (at, seconds) in enumerate(estimates[:-1]):
        happened = end - at
        errors.append(abs(seconds - happened) / happened)
        if number % max(1, len(estimates) // 12) == 0:
            print(f"  after batch {number}: {seconds:.1f}, {happened:.1f}", flush=True)
    worst = float(np.percentile(errors, 90))
    more = {
        "batches": len(estimates),
        "p90": round(worst, 3),
        "foreseen": [round(each, 2) for _, each in estimates[:: len(estimates) // 12 or 1]],
    }
    return [Measure.alone("error of the backlog, median", statistics.median(errors), "of what happened", at_most=0.3, more=more)]


def main() -> None:
    """Run both parts, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=800)
    parser.add_argument("--seconds", type=float, default=3, help="how long reports are on or off at a time")
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--parts", nargs="+", choices=["cost", "foresight"], default=["cost", "foresight"])
    parser.add_argument("--files", type=int, default=30, help="files per batch of the flights")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        spark = spark_session(scratch)
        measures = []
        if "foresight" in arguments.parts:
            measures += foresight(spark, scratch / "year", arguments.days, arguments.files)
        if "cost" in arguments.parts:
            measures += cost(spark, scratch / "cost", arguments.commits, arguments.seconds)
        spark.stop()
        summary("reports", measures)


if __name__ == "__main__":
    main()
