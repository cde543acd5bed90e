"""The processes of a run and the model's clock: three airports, one Spark with two queries, one Spark with watermarks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from flights.data import AIRPORTS, Pause
from flights.results import AirportProgress, ExpectedProgress, offset_of
from flights.trace import SCHEMA, Clock, write_trace
from flights.watermark import batches_done, write_feed
from strandline.channel import Channel

__all__ = ["Folder", "Pipeline", "ProcessFailedError"]

_EXAMPLES = Path(__file__).resolve().parent.parent


class ProcessFailedError(RuntimeError):
    """A process of the run ended with an error."""


@dataclass(frozen=True)
class Folder:
    """The folders and files of a run."""

    root: Path

    @property
    def trace(self) -> Path:
        """The producers' events and schedules."""
        return self.root / "trace"

    @property
    def flights(self) -> Path:
        """The channel that the airports write."""
        return self.root / "flights"

    @property
    def hourly(self) -> Path:
        """The channel that the first query writes."""
        return self.root / "hourly"

    @property
    def daily(self) -> Path:
        """The channel that the second query writes."""
        return self.root / "daily"

    @property
    def checkpoints(self) -> Path:
        """The queries' checkpoints."""
        return self.root / "checkpoints"

    @property
    def spark(self) -> Path:
        """The input and the results of Spark's own watermark."""
        return self.root / "watermark"

    @property
    def logs(self) -> Path:
        """The output of the processes."""
        return self.root / "logs"


@dataclass
class Pipeline:
    """One run over ``flights``, with the events ``arrivals``. Its processes can be killed and started again at any moment."""

    folder: Folder
    flights: pd.DataFrame
    arrivals: pd.DataFrame
    pause: Pause | None = None
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.expected_progress = ExpectedProgress(self.flights, self.arrivals)
        self.clock = Clock(self.folder.root / "clock")
        self.airports = AirportProgress(self.folder.flights, self.expected_progress)
        self.delays: tuple[int, ...] = ()
        self.feed_steps: list[int] = []
        self._at = -1
        self._offsets: dict[str, tuple[int, int]] = {}

    # ---- set-up and processes --------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Write the trace, and create the airports' channel. It is sealed: no other producer can write to it."""
        self.folder.logs.mkdir(parents=True, exist_ok=True)
        write_trace(self.folder.trace, self.flights, self.arrivals)
        Channel.create(self.folder.flights, SCHEMA, producers=AIRPORTS)

    def start_producer(self, airport: str) -> None:
        """Start, or start again, an airport."""
        where = ["--channel", self.folder.flights, "--trace", self.folder.trace, "--clock", self.clock.path]
        self._start(airport, "flights.producer", ["--airport", airport, *where])

    def start_queries(self) -> None:
        """Start, or start again, the Spark process with our two queries."""
        names = ("flights", "hourly", "daily", "checkpoints")
        self._start("queries", "flights.queries", [part for name in names for part in (f"--{name}", getattr(self.folder, name))])

    def start_watermarks(self, delays: Sequence[int], arrivals: pd.DataFrame) -> None:
        """Start the Spark process with watermarks ``delays`` minutes behind, over ``told``."""
        self.delays = tuple(delays)
        self.feed_steps = write_feed(self.folder.spark / "feed", arrivals)
        here = self.folder.spark
        where = ["--feed", here / "feed", "--checkpoints", here / "checkpoints", "--out", here]
        self._start("watermarks", "flights.watermark", [*where, "--delays", *delays])

    def _start(self, name: str, module: str, arguments: Sequence[Any]) -> None:
        path = os.pathsep.join([str(_EXAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-m", module, *map(str, arguments)]
        with open(self.folder.logs / f"{name}.log", "ab") as log:
            # A session of its own, so that a kill reaches the JVM and the Python workers below it as well.
            self.processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": path}, start_new_session=True
            )

    def kill(self, name: str) -> None:
        """``kill -9`` a process and everything below it."""
        process = self.processes[name]
        if process.poll() is not None:
            return  # another process may have its id now
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """Kill what still runs."""
        for name, process in self.processes.items():
            if process.poll() is None:
                self.kill(name)

    def check_alive(self) -> None:
        """Raise :class:`ProcessFailedError` with the end of its log when a process died."""
        for name, process in self.processes.items():
            if process.poll() not in (None, 0):
                log = (self.folder.logs / f"{name}.log").read_text(errors="replace")
                raise ProcessFailedError(
                    f"the process {name!r} ended with status {process.returncode}; the end of its log:\n{log[-3000:]}"
                )

    def running(self, name: str) -> bool:
        """Whether a process was started and has not ended."""
        return name in self.processes and self.processes[name].poll() is None

    # ---- the clock -------------------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The model hour up to which the airports may send now."""
        return self.expected_progress.steps[max(self._at, 0)]

    @property
    def steps_done(self) -> int:
        """How many of the model hours the airports have sent."""
        return max(self._at, 0) + int(self.at_end)

    @property
    def at_end(self) -> bool:
        """Whether the clock has reached the last model hour."""
        return self._at >= len(self.expected_progress.steps) - 1

    def free_clock(self) -> None:
        """Let the airports send as fast as they can."""
        self._at = len(self.expected_progress.steps) - 1
        self.clock.set(self.step)

    def advance(self) -> None:
        """Advance the clock by a model hour if all airports have sent the last one and the first query has a batch with it.

        So every batch has a model hour, as in a live stream. The next hour is written while that batch runs.
        """
        self.airports.refresh()
        if self.at_end:
            return
        ready = (
            self.airports.has_reported(self.step) and self.taken > self.airports.version
            if self._at >= 0
            else self.airports.has_begun
        )
        if ready:
            self._at += 1
            self.clock.set(self.step)

    @property
    def taken(self) -> int:
        """The first commit of the airports' channel that no batch of the first query has read yet."""
        return self.last_offset("hourly")[1]

    def last_offset(self, query: str) -> tuple[int, int]:
        """A query's newest batch, and the first commit that is not in it; ``(-1, 0)`` before the first."""
        log = self.folder.checkpoints / query / "offsets"
        batch, commit = self._offsets.get(query, (-1, 0))
        while (path := log / str(batch + 1)).exists() and (offset := offset_of(path)) is not None:
            batch, commit = batch + 1, offset
        self._offsets[query] = (batch, commit)
        return batch, commit

    @property
    def watermark_batches(self) -> int:
        """Batches that the comparison has done."""
        return batches_done(self.folder.spark / "checkpoints")
