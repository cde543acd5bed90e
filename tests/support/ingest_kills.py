"""``kill -9`` of Spark and of Kafka while a topic becomes a channel, and an independent model of what must come out.

The readings are a function of the seed, so is the plan of kills, and what was done is written down: a run that was interrupted
goes on where it was. Which rows are late depends on where batches were cut. Spark's own offset log says that, and the model
reads it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from broker import Broker
from forked_runners import forking_python
from helpers import ROOT
from strandline.channel import Channel

__all__ = ["run"]

_MINUTE = 60_000_000
_START = 1_767_225_600_000_000  # 2026-01-01 UTC
_DELAY = 30
_PARTITIONS = 3
_CHUNK = 40
_STUCK_SECONDS = 300.0


def readings(seed: int, partition: int, rows: int) -> pd.DataFrame:
    """A partition's readings, as they are sent: about one a minute, most a few minutes out of order, some hours late."""
    draw = np.random.default_rng([seed, partition])
    late = np.where(draw.random(rows) < 0.08, draw.integers(20, 400, rows), draw.integers(0, 12, rows))
    minutes = np.arange(rows) * (1 + partition) - late
    ids = np.arange(rows) * _PARTITIONS + partition
    return pd.DataFrame({"id": ids, "time": _START + (minutes + 1000) * _MINUTE, "partition": f"readings-{partition}"})


class Run:
    """One run: a broker, a feeder and the query, in a folder."""

    def __init__(self, root: Path, seed: int, rows: int) -> None:
        self.root = root
        self.told = [readings(seed, p, rows) for p in range(_PARTITIONS)]
        self.broker = Broker(root / "kafka")
        self.fed = threading.Event()
        self._rows = rows
        self._stop = threading.Event()
        self._feeder: threading.Thread | None = None
        self._trouble: list[BaseException] = []
        self._process: subprocess.Popen[bytes] | None = None
        self.restarts = 0

    def __enter__(self) -> Run:
        self.broker.start()
        if not (self.root / "topic").exists():
            self.broker.create("readings", _PARTITIONS)
            (self.root / "topic").touch()
        self.start_query()
        self._feeder = threading.Thread(target=self._feed)
        self._feeder.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._feeder is not None:
            self._feeder.join()
        self.kill_query()
        self.broker.kill()

    def _feed(self) -> None:
        """Send what is not there yet, a chunk a partition at a time, at the pace at which the query takes it."""
        try:
            ends = self.broker.ends("readings")
            while not self._stop.is_set():
                chunk = []
                for p, frame in enumerate(self.told):
                    part = frame.iloc[ends[p] : ends[p] + _CHUNK]
                    ends[p] += len(part)
                    times = pd.to_datetime(part["time"], unit="us", utc=True)
                    chunk += [
                        (p, json.dumps({"time": t.strftime("%Y-%m-%dT%H:%M:%SZ"), "id": i}))
                        for t, i in zip(times, part["id"].tolist(), strict=True)
                    ]
                if not chunk:
                    break
                self.broker.send("readings", chunk)
                batch = self.batch()
                while self.batch() == batch and not self._stop.wait(0.02) and self.running:
                    pass
            else:
                return
            self.fed.set()
        except BaseException as error:
            self._trouble.append(error)

    def start_query(self) -> None:
        """Start Spark with the query, as a process group."""
        query = str(ROOT / "tests" / "support" / "ingest_query.py")
        command = [sys.executable, query, str(self.root), self.broker.bootstrap, "readings", f"bounded({_DELAY} minutes)"]
        path = os.pathsep.join([str(ROOT / "tests" / "support"), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": forking_python()}
        with open(self.root / "query.log", "ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.root, start_new_session=True, env=environment
            )

    def kill_query(self) -> None:
        """``kill -9`` of Python, the JVM and all workers."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    @property
    def running(self) -> bool:
        """Whether the query's process lives."""
        return self._process is not None and self._process.poll() is None

    def batch(self) -> int:
        """The newest batch that was planned, -1 before the first."""
        return max((int(p.name) for p in (self.root / "checkpoint" / "offsets").glob("[0-9]*")), default=-1)

    def committed(self) -> int:
        """The newest batch that was committed, -1 before the first."""
        return max((int(p.name) for p in (self.root / "checkpoint" / "commits").glob("[0-9]*")), default=-1)

    def until(self, reached: Callable[[], bool], what: str) -> None:
        """Wait; a query that gave up on a dead broker is started again, as whoever runs it would."""
        moved, at = time.monotonic(), (-1, -1)
        while not reached():
            if self._trouble:
                raise self._trouble[0]
            self.broker.check_alive()
            if not self.running:
                self.restarts += 1
                if self.restarts > 20:
                    raise RuntimeError(f"the query keeps failing:\n{(self.root / 'query.log').read_text()[-4000:]}")
                self.start_query()
            now = (self.batch(), self.committed())
            if now != at:
                moved, at = time.monotonic(), now
            if time.monotonic() - moved > _STUCK_SECONDS:
                raise TimeoutError(f"waiting for {what}, no batch for {_STUCK_SECONDS:.0f} s; see {self.root / 'query.log'}")
            time.sleep(0.01)

    def done(self) -> bool:
        """Whether everything that was sent is in a committed batch."""
        batch = self.batch()
        return self.fed.is_set() and batch == self.committed() and sum(self.taken(batch)) == self._rows * _PARTITIONS

    def taken(self, batch: int) -> list[int]:
        """How many readings of each partition are in the batches up to this one, as Spark's offset log says."""
        if batch < 0:
            return [0] * _PARTITIONS
        offsets = json.loads((self.root / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()[-1])["readings"]
        return [offsets.get(str(p), 0) for p in range(_PARTITIONS)]


def run(root: Path, spark: int, kafka: int, seed: int, rows: int) -> list[str]:
    """Kill so many times, let the run end, and say what differs from the model: nothing, one hopes.

    A run that was interrupted goes on where it was when it is started again.
    """
    plan = ["spark"] * spark + ["kafka"] * kafka
    random.Random(seed).shuffle(plan)
    root.mkdir(parents=True, exist_ok=True)
    record = root / "kills.json"
    done: list[dict[str, object]] = json.loads(record.read_text())["done"] if record.exists() else []
    with Run(root, seed, rows) as running:
        for at in range(len(done), len(plan)):
            draw = random.Random(seed * 1000 + at)
            batch = running.batch()
            running.until(lambda batch=batch: running.batch() > batch or running.done(), "a batch")  # type: ignore[misc]
            time.sleep(draw.uniform(0.0, 1.0))  # the random moment
            if plan[at] == "spark":
                running.kill_query()
                running.start_query()
            else:
                running.broker.kill()
                running.broker.start()
            done.append({"killed": plan[at], "batch": running.batch(), "rows": running.taken(running.batch())})
            record.write_text(json.dumps({"seed": seed, "done": done}))
            print(f"kill {at + 1}/{len(plan)}: {done[-1]}", flush=True)
        running.until(running.done, "the end")
        last = running.committed()
        cuts = [running.taken(batch) for batch in range(last + 1)]
    return compare(root, expected(running.told, cuts))


def expected(told: list[pd.DataFrame], cuts: list[list[int]]) -> pd.DataFrame:
    """All readings, with what their partition had promised before their batch (NaN: nothing), and whether they are ``late``."""
    judged = []
    for p, frame in enumerate(told):
        promise, before = np.nan, 0
        for cut in cuts:
            part = frame.iloc[before : cut[p]].assign(promise=promise)
            part["late"] = part["time"] < promise
            in_time = part.loc[~part["late"], "time"]
            if len(in_time):
                promise = np.nanmax([promise, in_time.max() - _DELAY * _MINUTE])
            judged.append(part)
            before = cut[p]
    return pd.concat(judged).sort_values("id").reset_index(drop=True)


def compare(root: Path, model: pd.DataFrame) -> list[str]:
    """What is wrong with the channel and the late table."""
    late = model[model["late"]]
    if late.empty:
        return ["no reading was late: the run shows nothing"]
    kept = Channel.open(root / "channel").read()
    names = pc.binary_join_element_wise(kept["topic"], kept["partition"].cast(pa.string()), "-")
    aside = DeltaTable(str(root / "channel_late")).to_pyarrow_table()
    promised = pc.list_element(aside["_frontier"], 0)
    have = {
        "channel": zip(kept["id"].to_pylist(), _micros(kept["time"]), names.to_pylist(), strict=True),
        "late table": zip(
            aside["id"].to_pylist(), _micros(aside["time"]), aside["_partition"].to_pylist(), _micros(promised), strict=True
        ),
    }
    want = {
        "channel": model.loc[~model["late"], ["id", "time", "partition"]].itertuples(index=False, name=None),
        "late table": late[["id", "time", "partition", "promise"]].itertuples(index=False, name=None),
    }
    problems = []
    for what in have:
        is_, must = sorted(have[what]), sorted(want[what])
        if is_ != must:
            missing, more = sorted(set(must) - set(is_))[:5], sorted(set(is_) - set(must))[:5]
            problems.append(f"the {what} has {len(is_)} rows and must have {len(must)}: without {missing}, with {more}")
    return problems


def _micros(times: pa.ChunkedArray) -> list[int]:
    return times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
