"""What a run ends with: a table on the terminal, and a report as JSON, a picture and a page."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flights import model
from flights.data import AIRPORTS, DAY, FIRST_DAY, HOUR, Pause, clock, expected
from flights.model import Outcome, percentiles

__all__ = ["Result", "conclude", "introduce"]


@dataclass(frozen=True)
class Result:
    """The results of a run. ``spark`` has them by guessed delay. ``dropped`` is Spark's own count of dropped rows."""

    flights: pd.DataFrame
    arrivals: pd.DataFrame
    unpaused: pd.DataFrame
    pause: Pause | None
    ours: Outcome
    spark: dict[int, Outcome]
    dropped: int | None
    problems: list[str]
    seconds: float
    live: bool

    @cached_property
    def rows(self) -> int:
        """Departures: the rows that went in."""
        return int((~self.arrivals["cancelled"]).sum())

    @cached_property
    def by_minute(self) -> Outcome:
        """The manifest, with the events applied minute by minute."""
        return model.exact(self.unpaused, batch=1)

    @cached_property
    def in_order(self) -> Outcome:
        """The manifest as one scalar watermark, minute by minute: the same knowledge in a total order."""
        return model.exact_in_order(self.unpaused, batch=1)

    @cached_property
    def paused(self) -> dict[int, Outcome]:
        """The result of each delay when Spark gets the pause as well."""
        return {delay: model.watermark(self.arrivals, delay) for delay in self.spark} if self.pause else {}

    def summary(self) -> dict[str, Any]:
        """The figures, for ``result.json`` and the page."""
        return {
            "flights": len(self.flights),
            "rows": self.rows,
            "cancelled": int(self.arrivals["cancelled"].sum()),
            "hours": len(self.ours.hours),
            "pause": str(self.pause) if self.pause else None,
            "seconds": round(self.seconds, 1),
            "exact": not self.problems,
            "problems": self.problems,
            "strandline": _figures(self.ours),
            "withWatermark": {
                str(delay): {
                    **_figures(found),
                    "source": "run" if self.live else "model",
                    "rows_lost_with_the_pause": self.paused[delay].rows_lost if self.pause else None,
                }
                for delay, found in self.spark.items()
            },
            "dropped_by_spark_s_count": self.dropped,
            "minute_by_minute": {"partial order": _figures(self.by_minute), "total order": _figures(self.in_order)},
        }


def _figures(found: Outcome) -> dict[str, Any]:
    median, high = percentiles(found.minutes)
    batches = percentiles(found.right["batches"])
    return {
        "rows_counted": int(found.hours["counted"].sum()),
        "rows_lost": found.rows_lost,
        "hours_wrong": found.hours_wrong,
        "minutes_median": median,
        "minutes_p99": round(high, 2),
        "batches_median": batches[0],
        "batches_p99": round(batches[1], 2),
    }


def introduce(console: Console, flights: pd.DataFrame, arrivals: pd.DataFrame, pause: Pause | None, out: Path) -> None:
    """Print what the run will do."""
    # Five hours on, as New York's days go.
    first, last = (clock(hour - FIRST_DAY % DAY) for hour in (flights["hour"].min(), flights["hour"].max()))
    console.print(
        f"[bold]{len(flights):,} flights[/bold] of {', '.join(AIRPORTS)}, {first:%d %b} to {last:%d %b %Y}: "
        f"{int((~arrivals['cancelled']).sum()):,} left, up to {flights['delay'].max() // HOUR:.0f} hours late, "
        f"{int(arrivals['cancelled'].sum()):,} were cancelled.",
        highlight=False,
    )
    if pause is not None:
        console.print(
            f"{pause.airport} is silent from {clock(pause.begins):%d %b} to {clock(pause.ends):%d %b}, so its hours stay open. "
            "Spark's input does not have this pause, because its watermark does not wait.",
            highlight=False,
        )
    console.print(f"[dim]Tables, logs and the report go to {out}[/dim]\n", highlight=False, soft_wrap=True)


def conclude(console: Console, result: Result, out: Path) -> None:
    """Print the table and the verdict; write ``result.json``, ``frontier.png`` and ``report.html`` into ``out``."""
    from flights.page import write_page
    from flights.picture import write_picture

    (out / "result.json").write_text(json.dumps(result.summary(), indent=2) + "\n")
    write_picture(result, out / "frontier.png")
    write_page(result, out / "report.html")
    console.print(table(result))
    for note in notes(result):
        console.print(f"[dim]•[/dim] {note}", highlight=False)
    console.print()
    if result.problems:
        for problem in result.problems:
            console.print(f"[red bold]✘[/red bold] {problem}", highlight=False)
    else:
        hours, days = len(result.ours.hours), len(_days(result.flights))
        console.print(
            f"[green bold]✔[/green bold] Every one of {hours:,} hours and {days:,} days equals the count by pandas over the "
            "same file, and was emitted exactly once.",
            highlight=False,
        )
    console.print(f"  {out / 'report.html'}\n  {out / 'frontier.png'}", highlight=False, soft_wrap=True)


def table(result: Result) -> Table:
    """Rows in, counted and lost, and how long a result takes, for ours and for each delay."""
    title = f"Flights by hour and airport, a model hour a batch ({result.seconds:.0f} s)"
    found = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    found.add_column("progress by", no_wrap=True)
    for name in ("rows in", "counted", "lost", "hours\nwrong", "batches\nmed / p99", "minutes\nmed / p99"):
        found.add_column(name, justify="right", no_wrap=True)
    found.add_row("[bold]Strandline[/bold]", *_cells(result, result.ours), style="green")
    for delay, outcome in result.spark.items():
        name = f"withWatermark {delay} min" + ("" if result.live else " (model)")
        found.add_row(name, *_cells(result, outcome))
    return found


def _cells(result: Result, outcome: Outcome) -> list[Text | str]:
    minutes, batches = percentiles(outcome.minutes), percentiles(outcome.right["batches"])
    counted = int(outcome.hours["counted"].sum())

    def loss(n: int) -> Text:
        return Text(f"{n:,}", "bold red" if n else "")

    return [
        f"{result.rows:,}",
        f"{counted:,}",
        loss(outcome.rows_lost),
        loss(outcome.hours_wrong),
        f"{batches[0]:.0f} / {batches[1]:.0f}",
        f"{minutes[0]:.0f} / {minutes[1]:.0f}",
    ]


def notes(result: Result) -> list[str]:
    """Return notes that explain the table."""
    count = "Batches and minutes count from an hour's last departure to its right result."
    found = [f"{count} Strandline emits it in the batch that closes the hour; its minutes are those until that batch ends."]
    one, total = percentiles(result.by_minute.minutes), percentiles(result.in_order.minutes)
    found.append(
        f"With events minute by minute it would be {one[0]:.0f} / {one[1]:.0f} minutes. The same knowledge as one scalar "
        f"watermark gives {total[0]:.0f} / {total[1]:.0f}, because in a total order the latest flight of any airport holds all "
        "later hours open."
    )
    if result.dropped is not None:
        lost = sum(o.rows_lost for o in result.spark.values())
        found.append(f"Spark's own numRowsDroppedByWatermark shows {result.dropped:,} of the {lost:,} rows it lost.")
        waiting = ", ".join(f"{result.rows - int(o.hours['counted'].sum()) - o.rows_lost:,}" for o in result.spark.values())
        found.append(
            f"Rows neither counted nor lost ({waiting}) are in hours that Spark never emits, because no later row moves its "
            "watermark."
        )
    if result.pause:
        shown = ", ".join(f"{o.rows_lost:,} at {d} minutes" for d, o in result.paused.items())
        found.append(
            f"With the pause of {result.pause.airport}, as in Strandline's input, Spark would lose {shown} (exact model)."
        )
    return found


def _days(flights: pd.DataFrame) -> pd.Index:
    hours = expected(flights).reset_index()
    return pd.MultiIndex.from_arrays([(hours["hour"] - FIRST_DAY) // DAY, hours["airport"]]).unique()
