"""The live view of a run: which airport holds which hours, how far the queries are, and which airport holds the frontier back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from flights.data import AIRPORTS, HOUR, clock
from flights.manifest import DOMAIN, describe
from flights.pipeline import Pipeline
from flights.results import open_hours
from strandline.channel.statements.log import Log
from strandline.time.antichain import Antichain

__all__ = ["Output", "View", "watch"]

_PLAIN_SECONDS = 5.0


@dataclass
class Output:
    """A query's channel, followed in its log."""

    log: Log
    version: int = -1
    rows: int = 0
    closed: bool = False

    @classmethod
    def of(cls, path: Path) -> Output:
        """The channel at ``path``, which need not exist yet."""
        return cls(Log(str(path)))

    def refresh(self) -> None:
        """Read the new commits: rows, and whether the query holds nothing any more."""
        for commit in self.log.tail(self.version + 1) if self.log.exists(self.version + 1) else ():
            self.version = commit.version
            self.rows += sum(file.rows for file in commit.files)
            if commit.statement is not None and commit.version > 0:
                self.closed = not any(s.holds for name, s in commit.statement.statements.items() if not name.startswith("$"))


@dataclass
class View:
    """The live view: a screen that redraws itself on a terminal, a line every few seconds elsewhere."""

    pipeline: Pipeline
    console: Console
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.hours = Output.of(self.pipeline.folder.hourly)
        self.days = Output.of(self.pipeline.folder.daily)
        self._live = Live(console=self.console, refresh_per_second=5, transient=True) if self.console.is_terminal else None
        self._printed = -_PLAIN_SECONDS

    def __enter__(self) -> View:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def refresh(self) -> None:
        """Read the new commits, and draw."""
        for output in (self.hours, self.days):
            output.refresh()
        if self._live is not None:
            self._live.update(self._screen())
        elif time.monotonic() - self._printed >= _PLAIN_SECONDS:
            self._printed = time.monotonic()
            self.console.print(self._line(), highlight=False, soft_wrap=True)

    # ---- drawing ---------------------------------------------------------------------------------------------------------

    def _now(self) -> int:
        return (self.pipeline.step + 1) * HOUR

    def _frontier(self) -> Antichain | None:
        """Return the frontier of the airports' channel; ``None`` while one of them has not stated its schedule."""
        holds = self.pipeline.airports.holds
        held = [holds[airport] for airport in AIRPORTS]
        if any(h is None or h == (DOMAIN.minimum,) for h in held):
            return None
        return Antichain(DOMAIN, [time for h in held for time in h or ()])

    def _line(self) -> str:
        p = self.pipeline
        frontier = self._frontier()
        least = "–" if frontier is None else self._holder(frontier)
        return (
            f"{time.monotonic() - self.started:5.0f} s  {clock(self._now()):%d %b %H:%M}  "
            f"{sum(p.airports.rows.values()):>7,} rows in  "
            f"{self.hours.rows:>6,} hours and {self.days.rows:>4,} days complete  {least}"
            + (f"  withWatermark: {p.watermark_batches} of {len(p.feed_steps)} batches" if p.delays else "")
        )

    @staticmethod
    def _holder(frontier: Antichain) -> str:
        """Return which airport holds the frontier back, and at which hour."""
        if not len(frontier):
            return "everything is closed"
        airport, first, last = describe(min(frontier))
        what = "" if first == last else " and all after it"
        return f"held back by {airport}: {clock(first):%d %b %H:00}{what}"

    def _screen(self) -> RenderableType:
        p = self.pipeline
        share = p.steps_done / len(p.expected_progress.steps)
        head = Table.grid(expand=True, padding=(0, 2))
        head.add_column(ratio=1)
        head.add_column(justify="right", width=12)
        head.add_row(ProgressBar(total=1.0, completed=share, complete_style="cyan"), f"{time.monotonic() - self.started:.0f} s")
        title = f"[bold]{clock(self._now()):%a %d %b %Y, %H:%M} UTC[/bold]  on the model's clock"
        return Panel(
            Group(head, Text(), self._airports(), Text(), self._queries()), title=title, border_style="cyan", padding=(1, 2)
        )

    def _airports(self) -> Table:
        p = self.pipeline
        frontier = self._frontier()
        least = describe(min(frontier))[0] if frontier is not None and len(frontier) else None
        table = Table(box=None, expand=True, header_style="dim")
        for name, justify in (
            ("airport", "left"),
            ("rows", "right"),
            ("open hours", "right"),
            ("the oldest", "left"),
            ("", "left"),
        ):
            table.add_column(name, justify=justify)  # type: ignore[arg-type]
        for airport in AIRPORTS:
            holds = p.airports.holds[airport]
            hours = open_hours(holds)
            oldest = f"{clock(hours[0]):%d %b %H:00}" if hours else "–"
            paused = p.pause is not None and p.pause.airport == airport and p.pause.begins <= self._now() - HOUR < p.pause.ends
            note = Text("silent: all its hours stay open", "yellow") if paused else Text("holds the frontier back", "magenta")
            note = note if paused or airport == least else Text("complete", "green") if holds == () else Text()
            row = [
                f"[bold]{airport}[/bold]",
                f"{p.airports.rows[airport]:,}",
                f"{len(hours)} {'▪' * min(len(hours), 30)}",
                oldest,
            ]
            table.add_row(*row, note)
        size = (
            "–" if frontier is None else f"{len(frontier)} incomparable times" if len(frontier) else "empty: everything is closed"
        )
        table.add_row("[dim]frontier[/dim]", f"{sum(p.airports.rows.values()):,}", "", size, "")
        return table

    def _queries(self) -> Table:
        p = self.pipeline
        table = Table(box=None, expand=True, header_style="dim")
        for name, justify in (("query", "left"), ("batches", "right"), ("complete", "right"), ("", "left")):
            table.add_column(name, justify=justify)  # type: ignore[arg-type]
        for name, output, what in (("hourly", self.hours, "hours"), ("daily", self.days, "days")):
            batch, _ = p.last_offset(name)
            done = Text("done", "green") if output.closed else Text("starting" if batch < 0 else "")
            table.add_row(f"[bold]{name}[/bold]", str(batch + 1), f"{output.rows:,} {what}", done)
        if p.delays:
            batches = p.watermark_batches
            note = Text("done", "green") if not p.running("watermarks") else Text("starting" if not batches else "")
            guesses = ", ".join(map(str, p.delays))
            table.add_row(f"withWatermark, {guesses} minutes", f"{batches:,}", f"of {len(p.feed_steps):,}", note)
        return table


def watch(view: View, until: Callable[[], bool], seconds: float = 0.04) -> None:
    """Advance the clock and redraw until ``until`` is true. Raises the errors of :meth:`Pipeline.check_alive`."""
    drawn = 0.0
    while not until():
        view.pipeline.advance()
        view.pipeline.check_alive()
        if time.monotonic() - drawn > 0.2:
            drawn = time.monotonic()
            view.refresh()
        time.sleep(seconds)
    view.refresh()
