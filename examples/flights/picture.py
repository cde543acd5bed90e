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

__all__ = ["COLOURS", "frontiers", "sawtooth", "write_picture"]

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

    style: dict[Any, Any] = {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": _FAINT,
        "font.family": "DejaVu Sans",
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=(13, 11), layout="constrained", facecolor="white")
        panels = figure.subplots(1 + len(result.spark), 1, sharex=True, height_ratios=[1.5] + [1] * len(result.spark))
        figure.suptitle("  When is an hour of flights complete?", x=0, ha="left", fontsize=15, fontweight="bold", color=_INK)
        _ours(panels[0], result)
        deepest = max(_behind(result.unpaused).max(), 4)
        for panel, delay in zip(panels[1:], result.spark, strict=True):
            _spark(panel, result, delay, float(deepest))
        figure.legend(*panels[1].get_legend_handles_labels(), loc="upper right", ncols=2, frameon=False)
        _axis(panels[-1])
        figure.supylabel("hours behind the clock: of an hour's end, of the frontier, of the watermark", fontsize=9, color=_LINE)
    return figure


def _ours(panel: Axes, result: Result) -> None:
    left = result.told[~result.told["cancelled"]]
    _dots(panel, left["arrives"], _behind(left), _FAINT, alpha=0.25)
    deepest = 4.0
    for airport, moves in frontiers(result.told).items():
        x, lag = sawtooth(moves["minute"], moves["oldest"])
        lag[:-1][np.repeat(lag[:-1:2] <= 0, 2)] = 0  # no hour is open, or only the clock's own
        deepest = max(deepest, float(np.nanmax(lag)))
        label = f"{airport}: from now back to its oldest open hour"
        panel.fill_between(_dates(x), np.maximum(lag, 0), 0, color=COLOURS[airport], alpha=0.45, lw=0.4, label=label)
    _frame(panel, deepest)
    notes: dict[str, Any] = {"va": "center", "xytext": (8, 0), "textcoords": "offset points", "fontsize": 9}
    if result.pause is not None:
        begin, end = _dates([result.pause.begins, result.pause.ends])
        panel.axvspan(begin, end, color=COLOURS[result.pause.airport], alpha=0.06, lw=0)
        said = f"{result.pause.airport} is silent for {result.pause.days} days: its hours stay open, the others go on"
        panel.annotate(said, (end, deepest * 0.8), color=COLOURS[result.pause.airport], **notes)
    late = left[left["arrives"] == left["happened"]]
    latest = late.loc[_behind(late).idxmax()]
    said = f"one flight leaves {latest['delay'] / HOUR:.0f} h late: one hour waits for it"
    panel.annotate(said, (_dates(latest["arrives"]), _behind(latest) * 0.95), color=COLOURS[latest["airport"]], **notes)
    panel.legend(loc="lower right", framealpha=0.85, edgecolor="none")
    verdict = f"{result.ours.rows_lost:,} rows lost, {result.ours.hours_wrong:,} hours wrong"
    _title(panel, "Strandline", verdict, _LOST if result.problems else "#15803d")


def _spark(panel: Axes, result: Result, delay: int, deepest: float) -> None:
    outcome = result.spark[delay]
    kept = result.unpaused[~result.unpaused["cancelled"]].drop(outcome.lost.index)
    _dots(panel, kept["arrives"], _behind(kept), _FAINT, alpha=0.25)
    x, lag = sawtooth(outcome.moves["minute"], outcome.moves["watermark"])
    standing = np.repeat(lag[:-1:2], 2)  # how far behind it is right after each batch, and how far it falls back until the next
    panel.fill_between(_dates(x[:-1]), standing, lag[:-1], color=_LINE, alpha=0.35, lw=0)
    panel.plot(
        _dates(x[:-1]), standing, color=_LINE, lw=0.8, label="the watermark after a batch, and how it falls back until the next"
    )
    _dots(panel, outcome.lost["arrives"], _behind(outcome.lost), _LOST, size=7, alpha=0.8, label="a row that is lost")
    _frame(panel, deepest)
    _title(
        panel,
        f"Spark, withWatermark {delay} minutes",
        f"{outcome.rows_lost:,} rows lost, {outcome.hours_wrong:,} hours wrong",
        _LOST,
    )


def sawtooth(minutes: Any, values: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """How many hours the clock is ahead of a mark that moves to ``values`` at ``minutes`` and stands still in between.

    >>> x, lag = sawtooth([60, 120], [0, 120])
    >>> x.tolist(), lag.tolist()
    ([60, 120, 120], [1.0, 2.0, 0.0])
    """
    at, mark = np.asarray(minutes, dtype=np.int64), np.asarray(values, dtype=np.float64)
    x = np.column_stack([at[:-1], at[1:]]).ravel()
    lag = (x - np.column_stack([mark[:-1], mark[:-1]]).ravel()) / HOUR
    return np.append(x, at[-1]), np.append(lag, (at[-1] - mark[-1]) / HOUR)


def _behind(rows: Any) -> Any:
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

    locator = AutoDateLocator(minticks=4, maxticks=12)  # type: ignore[no-untyped-call]
    panel.xaxis.set_major_locator(locator)
    panel.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    panel.margins(x=0.005)


def _title(panel: Axes, name: str, verdict: str, colour: str) -> None:
    panel.set_title(name, loc="left", fontsize=11, fontweight="bold", color=_INK)
    panel.set_title(verdict, loc="right", fontsize=11, fontweight="bold", color=colour)
