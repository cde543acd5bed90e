"""Opens the page of a channel of 10 000 commits by 1000 producers, looks again, and measures what looking costs who is watched.

    python benchmarks/page.py [--commits 10000] [--producers 1000] [--seconds 1] [--rounds 60] [--query-rounds 20]

The goals hold when the first answer takes at most 3 s, an answer after a commit at most 0.5 s, and a query's batch at most 1.02
of its time while ``strandline serve`` is asked each second, and while ``strandline watch`` looks each second. The query is
stateless, and its batches are small. A batch of a producer that does nothing but commit is measured too.
Runs are short and many, because the machine may do other things too. Where it does, look at the processor's time of a batch, and
at the share of a processor that a look each second takes.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from _alternating import OURS, Measure, alternately, order, seconds, spark_session, summary
from strandline.channel import Channel
from strandline.time.antichain import Antichain
from strandline.time.arrow import array_of, time_field
from strandline.time.domain import int64
from why import DOMAIN, SCHEMA, build

FIRST, AGAIN, SLOWER = 3.0, 0.5, 1.02
BROWSER = """
import sys, time, urllib.request
while True:
    with urllib.request.urlopen(sys.argv[1] + "main", timeout=60) as answer:
        assert b"<main" in answer.read()
    print("looked", flush=True)
    time.sleep(1)
"""
COMMAND = (sys.executable, "-m", "strandline.cli")


@contextmanager
def served(*paths: Path) -> Iterator[tuple[str, int]]:
    """Serve the page of channels in another process. Yields its address, and the process."""
    command = [*COMMAND, "serve", *map(str, paths), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"], process.pid
        finally:
            process.terminate()


def ask(url: str) -> None:
    """Ask as the page does."""
    with urllib.request.urlopen(f"{url}main", timeout=60) as answer:  # noqa: S310 - of this machine
        assert b"<main" in answer.read()


class Looking:
    """A command in a process of its own, which looks each second. It runs only within ``with`` blocks."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()  # it has looked
        self._drain = threading.Thread(target=self.process.stdout.read)
        self._drain.start()
        self.process.send_signal(signal.SIGSTOP)

    def __enter__(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        self._drain.join()


class Busy:
    """A producer that writes some batches a second, in a thread, within ``with`` blocks."""

    def __init__(self, path: Path) -> None:
        self._path, self._ended = path, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            batch_time(self._path, "producer-0003", 0.0001)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def share(pid: int, length: float) -> float:
    """Return the share of a processor that a process takes for so many seconds."""
    process = psutil.Process(pid)
    before = process.cpu_times()
    time.sleep(length)
    after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / length


def batch_time(path: Path, name: str, length: float) -> tuple[float, float]:
    """Commit batches of a producer for so many seconds, at least one. Returns the mean seconds of one, and the processor's."""
    channel = Channel.open(path)
    held = next(iter(channel.producers[name].holds))[0]
    count, started, used = 0, time.perf_counter(), time.thread_time()
    while (took := time.perf_counter() - started) < length or not count:
        held += 1
        with channel.file_writer() as writer:
            times = array_of([(held, n) for n in range(100)], DOMAIN)
            writer.write(pa.Table.from_arrays([times, pa.array(range(100))], schema=SCHEMA))
            files, counted = writer.finish()
        channel.append(files, statements={name: Antichain(DOMAIN, [(held, 0)])}, times=counted, owner="benchmark")
        count += 1
    return took / count, (time.thread_time() - used) / count


def answers(path: Path) -> tuple[list[float], list[float]]:
    """Return the seconds of first answers, each of a new server, and of answers after a commit."""
    first, again = [], []
    for _ in range(3):
        with served(path) as (url, _):
            first.append(seconds(lambda url=url: ask(url)))  # type: ignore[misc]
    with served(path) as (url, _):
        ask(url)
        for _ in range(10):
            batch_time(path, "producer-0001", 0.0001)
            time.sleep(2.5)  # so that it looks anew, whatever its last look took
            again.append(seconds(lambda: ask(url)))
    return first, again


def of_a_query(scratch: Path, rounds: int, commits: int = 20) -> list[Measure]:
    """Measure the batches of a query: alone, with the page of its two channels, and with ``watch`` of the one that it writes."""
    schema = pa.schema([time_field("time", int64), ("value", pa.int64())])
    given, result = scratch / "given", scratch / "result"
    producer = Channel.create(given, schema, producers=["p"], at=0).producer("p")
    spark = spark_session(scratch)

    def batches(turn: int) -> list[float]:
        for time_ in range(turn * commits, (turn + 1) * commits):
            producer.send(pa.table({"time": [time_] * 100, "value": range(100)}))
            producer.delay([time_ + 1])
            producer.commit()
        frame = spark.readStream.format("strandline").option("maxFilesPerTrigger", 1).load(str(given))
        writer = frame.writeStream.format("strandline").option("checkpointLocation", str(scratch / "checkpoint"))
        query: Any = writer.trigger(availableNow=True).start(str(result))
        query.awaitTermination()
        return [p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]][1:]

    batches(0)
    with served(given, result) as (url, _):
        browser, watcher = Looking(sys.executable, "-c", BROWSER, url), Looking(*COMMAND, "watch", str(result), "--json")
        around = {"alone": nullcontext(), "page": browser, "watch": watcher}
        times: dict[str, list[float]] = {which: [] for which in around}
        turns = iter(range(1, 3 * rounds + 1))
        for turn in range(rounds):
            for which in order(list(around), turn):
                with around[which]:
                    times[which] += batches(next(turns))
            shown = ", ".join(f"{which} {statistics.median(each):.0f} ms" for which, each in times.items())
            print(f"round {turn + 1}: {shown}", flush=True)
        browser.end()
        watcher.end()
    producer.close()
    spark.stop()
    return [
        Measure.beside(f"a batch of a query with {which}", {OURS: times[which], "alone": times["alone"]}, "ms", at_most=SLOWER)
        for which in ("page", "watch")
    ]


def main() -> None:
    """Measure, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--producers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--query-rounds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        long = Path(folder, "long")
        took = seconds(lambda: build(long, options.commits, options.producers))
        print(f"built {options.commits} commits by {options.producers} producers in {took:.1f} s")
        first, again = answers(long)
        measures = [
            Measure.alone("page: first answer", statistics.median(first), "s", FIRST, more={"worst of 3": round(max(first), 3)}),
            Measure.alone(
                "page: answer after a commit", statistics.median(again), "s", AGAIN, more={"worst of 10": round(max(again), 3)}
            ),
        ]
        with served(long) as (url, pid):
            browser, watcher = Looking(sys.executable, "-c", BROWSER, url), Looking(*COMMAND, "watch", str(long), "--json")
            used: dict[str, list[float]] = {"alone": [], "page": [], "watch": []}

            def run(which: str, around: Callable[[], AbstractContextManager[None]]) -> Callable[[int], float]:
                def one(turn: int) -> float:
                    with around():
                        took, processor = batch_time(long, "producer-0002", options.seconds)
                    used[which] += [processor] if turn else []
                    return took

                return one

            around = {"alone": nullcontext, "page": lambda: browser, "watch": lambda: watcher}
            results = alternately({which: run(which, each) for which, each in around.items()}, options.rounds)
            with browser, Busy(long):
                page_share = share(pid, 20)
            with watcher, Busy(long):
                watch_share = share(watcher.process.pid, 20)
            browser.end()
            watcher.end()
        for which in ("page", "watch"):
            beside = {OURS: results[which], "alone": results["alone"]}
            load = {"load average": round(os.getloadavg()[1], 1)}
            measures.append(Measure.beside(f"a batch of a producer with {which}", beside, "s", more=load))
            beside = {OURS: used[which], "alone": used["alone"]}
            measures.append(Measure.beside(f"the processor's time of a batch with {which}", beside, "s"))
        measures += [
            Measure.alone("page: share of a processor while a producer writes", page_share, "", more={"seconds": 20}),
            Measure.alone("watch: share of a processor while a producer writes", watch_share, "", more={"seconds": 20}),
        ]
        summary("page", measures + of_a_query(Path(folder), options.query_rounds))


if __name__ == "__main__":
    main()
