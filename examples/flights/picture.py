"""The picture of a run: how far behind the clock the frontier and the watermarks are, and the rows that fall behind them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import pandas as pd

from flights.data import AIRPORTS, HOUR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from flights.report import Result

__all__ = ["COLOURS", "frontiers", "write_picture"]

COLOURS = {"EWR": "#0f766e", "JFK": "#1d4ed8", "LGA": "#a16207"}
_LOST, _INK, _FAINT, _LINE = "#dc2626", "#1f2937", "#9ca3af", "#475569"


def frontiers(told: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """For each airport the end of its oldest open hour at the end of each of the model's hours (columns ``minute``, ``oldest``).

    Where no hour is open the oldest is the clock's own.
    """
    steps = np.arange(int(told["step"].min()), int(told["step"].max()) + 1)
    found = {}
    for airport in AIRPORTS:
        done = told[told["airport"] == airport].groupby("hour")["step"].max()
        begin = done.index.to_numpy() // HOUR
        oldest = (steps + 1) * HOUR
        # An hour is open in the steps from its beginning until the one that brings its last news.
        for hour, first, last in sorted(zip(done.index.to_numpy(), begin, done.to_numpy(), strict=True), reverse=True):
            if first < last:
                oldest[first - steps[0] : last - steps[0]] = hour + HOUR
        found[airport] = pd.DataFrame({"minute": (steps + 1) * HOUR, "oldest": np.minimum(oldest, (steps + 1) * HOUR)})
    return found


def write_picture(result: Result, path: Path) -> None:
    """Write the PNG."""
    mpl.use("Agg")
    figure = draw(result)
    figure.savefig(path, dpi=150)


def draw(result: Result) -> Figure:
    """One panel for Strandline, one for each of Spark's delays, over one time axis."""
    from matplotlib.figure import Figure

    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": _FAINT, "font.family": "DejaVu Sans"}
    with mpl.rc_context(style):
        figure = Figure(figsize=(13, 11), layout="constrained", facecolor="white")
        panels = figure.subplots(1 + len(result.spark), 1, sharex=True, height_ratios=[1.5] + [1] * len(result.spark))
        figure.suptitle("  When is an hour of flights complete?", x=0, ha="left", fontsize=15, fontweight="bold", color=_INK)
        _ours(panels[0], result)
        deepest = max(_behind(result.unpaused).max(), 4)
        for panel, delay in zip(panels[1:], result.spark, strict=True):
            _spark(panel, result, delay, float(deepest))
        _axis(panels[-1])
        figure.supylabel("hours behind the clock: of an hour's end, of the frontier, of the watermark", fontsize=9, color=_LINE)
    return figure


def _ours(panel: Axes, result: Result) -> None:
    left = result.told[~result.told["cancelled"]]
    for airport, moves in frontiers(result.told).items():
        mine = left[left["airport"] == airport]
        _dots(panel, mine["arrives"], _behind(mine), COLOURS[airport], alpha=0.25)
        lag = (moves["minute"] - moves["oldest"]) / HOUR
        panel.step(_dates(moves["minute"]), lag, where="post", color=COLOURS[airport], lw=1.2, label=f"{airport}: its oldest open hour")
    if result.pause is not None:
        begin, end = _dates([result.pause.begins, result.pause.ends])
        panel.axvspan(begin, end, color=COLOURS[result.pause.airport], alpha=0.06, lw=0)
        panel.annotate(
            f"{result.pause.airport} is silent:\nits hours stay open,\nthe others go on", (end, 0.97), xycoords=("data", "axes fraction"), xytext=(6, 0),
            textcoords="offset points", va="top", color=COLOURS[result.pause.airport], fontsize=9,
        )  # fmt: skip
    deepest = max(((m["minute"] - m["oldest"]) / HOUR).max() for m in frontiers(result.told).values())
    _frame(panel, max(float(deepest), 4.0))
    panel.legend(loc="lower left", ncols=3, frameon=False)
    _title(panel, "Strandline", f"{result.ours.rows_lost:,} rows lost, {result.ours.hours_wrong:,} hours wrong", "#15803d" if not result.problems else _LOST)


def _spark(panel: Axes, result: Result, delay: int, deepest: float) -> None:
    outcome = result.spark[delay]
    kept = result.unpaused[~result.unpaused["cancelled"]].drop(outcome.lost.index)
    _dots(panel, kept["arrives"], _behind(kept), _FAINT, alpha=0.25)
    minute, lag = outcome.moves["minute"], (outcome.moves["minute"] - outcome.moves["watermark"]) / HOUR
    panel.step(_dates(minute), lag, where="post", color=_LINE, lw=0.9, label="watermark")
    _dots(panel, outcome.lost["arrives"], _behind(outcome.lost), _LOST, size=7, alpha=0.8, label="a row that is lost")
    _frame(panel, deepest)
    panel.legend(loc="lower left", ncols=2, frameon=False)
    _title(panel, f"Spark, withWatermark {delay} minutes", f"{outcome.rows_lost:,} rows lost, {outcome.hours_wrong:,} hours wrong", _LOST)


def _behind(rows: pd.DataFrame) -> pd.Series:
    """Hours from the end of a row's hour to its arrival."""
    return (rows["arrives"] - rows["hour"] - HOUR) / HOUR


def _dots(panel: Axes, x: pd.Series, y: pd.Series, colour: str, size: float = 3, **options: Any) -> None:
    panel.scatter(_dates(x), y, s=size, color=colour, lw=0, rasterized=True, **options)


def _dates(minutes: Any) -> npt.NDArray[Any]:
    return np.asarray(minutes, dtype="datetime64[m]")


def _frame(panel: Axes, deepest: float) -> None:
    # Most rows are within an hour and a few are most of a day away: linear near the clock, logarithmic beyond.
    panel.set_yscale("symlog", linthresh=2, linscale=1.0)
    panel.set_ylim(deepest * 1.25, -1.3)
    ticks = [tick for tick in (0, 1, 2, 4, 8, 16, 24, 48, 96) if tick <= deepest * 1.25]
    panel.set_yticks(ticks, [f"{tick} h" for tick in ticks])
    panel.minorticks_off()
    panel.axhline(0, color=_FAINT, lw=0.6, zorder=0)
    panel.grid(axis="y", color="#e5e7eb", lw=0.5)
    panel.set_axisbelow(True)


def _axis(panel: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=4, maxticks=12)
    panel.xaxis.set_major_locator(locator)
    panel.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    panel.margins(x=0.005)


def _title(panel: Axes, name: str, verdict: str, colour: str) -> None:
    panel.set_title(name, loc="left", fontsize=11, fontweight="bold", color=_INK)
    panel.set_title(verdict, loc="right", fontsize=11, fontweight="bold", color=colour)


