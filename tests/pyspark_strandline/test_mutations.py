"""Whatever a stranger or a broken machine made of a channel, its users get what is right, or an error with a name, and soon.

STRANDLINE_SEED=N in a soak begins at another seed, STRANDLINE_SOAK_DIR goes on with one; each failure names its seed.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from channel_mutations import damaged, make_channels, use_ingest, versions
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.source import StreamReader
from pyspark_strandline.schema import spark_schema
from strandline.channel import Channel
from strandline.channel.progress.unreturned import Unreturned
from strandline.errors import StrandlineError
from strandline.ingest import status
from strandline.time.arrow import array_of

SECONDS = 5.0
MEGABYTES = 500
FEW, MANY = 100, 20_000


@pytest.fixture(scope="module")
def channels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("channels")
    make_channels(folder)
    return folder


class World:
    """One channel with one thing changed, and who used it before: ``used`` says how each use ended."""

    def __init__(self, channels: Path, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        name = self.random.choice(["few", "few", "pairs", "columns", "long", "ingested", "ingested"])
        self.path = folder / "channel"
        shutil.copytree(channels / name, self.path)
        if name == "ingested":
            shutil.copytree(channels / "ingested_late", folder / "channel_late")
        self.ingested = name == "ingested"
        there = versions(self.path)
        at = self.random.choice([there[-1], there[-1], there[0], self.random.choice(there)])
        self.running = Channel.open(self.path)
        self.running._snapshot.progress = self.running.progress_at(max(0, at - 1))  # so it has the commit before it
        self.running._snapshot.unreturned = Unreturned(max(0, at - 1))
        self.schema = spark_schema(self.running.schema, self.running.time_column, self.running.domain)
        self.told = f"seed {seed}, {name}, {damaged(self.path, self.random, at)}"
        self.used: dict[str, str] = {}

    def use(self) -> None:
        """Everything that somebody may do with a channel."""
        before = self.running.frontier
        found: dict[str, Any] = {}
        self._do("refresh", lambda: self.running.refresh())
        assert before.dominates(self.running.frontier), f"{self.told}: the frontier went back"
        self._do("open", lambda: found.update(channel=Channel.open(self.path)))
        self._do("status", lambda: str(status(str(self.path))))
        if "channel" not in found:
            return
        channel: Channel = found["channel"]
        if self.used["refresh"] == "right" and self.running.version == channel.version:
            assert self.running.frontier == channel.frontier, f"{self.told}: who was there and who comes see other frontiers"
        self._do("at", lambda: channel.frontier_at(self.random.randrange(channel.version + 1)))
        self._do("read", lambda: channel.read())
        self._do("stream", self._stream)
        if self.ingested:
            self._do("ingest", lambda: use_ingest(self.path))
        else:
            self._do("produce", self._produce)

    def _do(self, use: str, what: Callable[[], Any]) -> None:
        began = time.monotonic()
        try:
            with _at_most(4 * SECONDS):
                what()
            self.used[use] = "right"
        except StrandlineError as error:
            self.used[use] = error.condition
        except BaseException as error:
            raise AssertionError(f"{self.told}: {use} gives {type(error).__name__}: {str(error)[:500]}") from error
        took = time.monotonic() - began
        waits = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # for a processor that others use
        assert took <= SECONDS * waits, f"{self.told}: {use} takes {took:.1f} s"

    def _stream(self) -> None:
        """What a query does, batch after batch."""
        options = ReadOptions.parse({"path": str(self.path), "strandline.extension": "0"}).for_stream()
        reader = StreamReader(options, self.schema)
        offset = reader.initialOffset()
        while (end := reader.latestOffset(offset, ReadAllAvailable())) != offset:
            for part in reader.partitions(offset, end):
                for _ in reader.read(part):
                    pass
            offset = json.loads(json.dumps(end))

    def _produce(self) -> None:
        channel = Channel.open(self.path)
        with channel.producer("a", take_over=True) as producer:
            held = list(producer.holds)
            if held:
                rows = [array_of(held[:1], channel.domain), pa.array([1], pa.int64())]
                producer.send(pa.Table.from_arrays(rows, names=[channel.time_column, "n"]))


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"more than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run(channels: Path, scratch: Path, seeds: Iterable[int], failed: list[str]) -> Counter[str]:
    """Use what each seed makes of a channel; how the uses ended. What is wrong is added to ``failed``."""
    ends: Counter[str] = Counter()
    for seed in seeds:
        folder = scratch / str(seed)
        try:
            world = World(channels, folder, seed)
            world.use()
            ends.update(f"{use}: {end}" for use, end in world.used.items())
        except AssertionError as error:
            failed.append(str(error))
            print(error, flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return ends


@pytest.mark.drawn("core")
def test_what_is_damaged_is_right_or_refused(channels: Path, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    failed: list[str] = []
    ends = run(channels, tmp_path, range(FEW), failed)
    assert not failed, "\n".join(failed)
    print("\n".join(f"{n:6} {end}" for end, n in ends.most_common()))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before <= MEGABYTES << 10
    for use in ("open", "read", "stream", "produce", "ingest"):  # many changes come past the first check
        assert ends[f"{use}: right"] > FEW // (20 if use == "ingest" else 6), use
    assert len([end for end in ends if end.startswith("open: STRANDLINE")]) > 5


@pytest.mark.soak
def test_twenty_thousand_changes(channels: Path, tmp_path: Path) -> None:
    first = int(os.environ.get("STRANDLINE_SEED") or random.SystemRandom().randrange(1_000_000))
    root = Path(os.environ.get("STRANDLINE_SOAK_DIR") or f".build/soak/mutations-{first}").resolve()
    root.mkdir(parents=True, exist_ok=True)
    passed, wrong = root / "passed", []
    done = {int(line) for line in passed.read_text().split()} if passed.exists() else set()
    print(f"seeds {first} to {first + MANY - 1}, {len(done)} done, in {root}", flush=True)
    ends: Counter[str] = Counter()
    for seed in range(first, first + MANY):
        if seed not in done:
            failed: list[str] = []
            ends += run(channels, tmp_path, [seed], failed)
            wrong += failed
            if not failed:  # one that failed runs again
                with passed.open("a") as file:
                    file.write(f"{seed}\n")
    print("\n".join(f"{n:6} {end}" for end, n in ends.most_common()), flush=True)
    assert not wrong, "\n".join(wrong[:20])
