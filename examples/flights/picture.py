"""The picture of a run: how far behind the clock the frontier and the watermarks are, and the rows that are lost behind them."""

from __future__ import annotations

import io
from collections.abc import Sequence
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


def frontiers(arrivals: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """For each airport the end of its oldest open hour at the end of each of the model's hours (columns ``minute``, ``oldest``).

    Where no hour is open the oldest is the clock's own.
    """
    steps = np.arange(int(arrivals["step"].min()), int(arrivals["step"].max()) + 1)
    found = {}
    for airport in AIRPORTS:
        done = arrivals[arrivals["airport"] == airport].groupby("hour")["step"].max()
        begin = done.index.to_numpy() // HOUR
        oldest = (steps + 1) * HOUR
        # An hour is open in the steps from its beginning until the one with its last departure or cancellation.
        for hour, first, last in sorted(zip(done.index.to_numpy(), begin, done.to_numpy(), strict=True), reverse=True):
            if first < last:
                oldest[first - steps[0] : last - steps[0]] = hour + HOUR
        found[airport] = pd.DataFrame({"minute": (steps + 1) * HOUR, "oldest": np.minimum(oldest, (steps + 1) * HOUR)})
    return found


def write_picture(result: Result, path: Path) -> None:
    """Write the PNG. It has a palette, which makes it small enough for a README."""
    from PIL import Image

    mpl.use("Agg")
    png = io.BytesIO()
    draw(result).savefig(png, dpi=110, format="png")
    Image.open(png).convert("RGB").quantize(128, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)


def draw(result: Result) -> Figure:
    """One panel for Strandline, one for each of Spark's delays, over one time axis. The legend is below the panels."""
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": _FAINT,
        "font.family": "DejaVu Sans",
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=(9.5, 9.5), layout="constrained", facecolor="white")
        panels = figure.subplots(1 + len(result.spark), 1, sharex=True, height_ratios=[1.5] + [1] * len(result.spark))
        figure.suptitle("  When is an hour of flights complete?", x=0, ha="left", fontsize=14, fontweight="bold", color=_INK)
        _strandline(panels[0], result)
        for panel, delay in zip(panels[1:], result.spark, strict=True):
            _spark(panel, result, delay, max(float(_behind(result.unpaused).max()), 4.0))
        _axis(panels[-1])
        figure.supylabel("hours behind the clock", fontsize=9, color=_LINE)
        _legend(figure, panels)
    return figure


def _strandline(panel: Axes, result: Result) -> None:
    left = result.arrivals[~result.arrivals["cancelled"]]
    _dots(panel, left["arrives"], _behind(left), _FAINT, alpha=0.25, label="a departure that is counted")
    deepest = 4.0
    for airport, moves in frontiers(result.arrivals).items():
        x, lag = sawtooth(moves["minute"], moves["oldest"])
        lag[:-1][np.repeat(lag[:-1:2] <= 0, 2)] = 0  # no hour is open, or only the clock's own
        deepest = max(deepest, float(np.nanmax(lag)))
        label = f"{airport}: its open hours"
        panel.fill_between(_dates(x), np.maximum(lag, 0), 0, color=COLOURS[airport], alpha=0.45, lw=0.4, label=label)
    _frame(panel, deepest, strip=4)
    if result.pause is not None:
        begin, end = _dates([result.pause.begins, result.pause.ends])
        panel.axvspan(begin, end, color=COLOURS[result.pause.airport], alpha=0.06, lw=0)
    verdict = f"{result.ours.rows_lost:,} rows lost, {result.ours.hours_wrong:,} hours wrong"
    _title(panel, "Strandline", verdict, _LOST if result.problems else "#15803d")
    _notes(panel, result, deepest)


def _spark(panel: Axes, result: Result, delay: int, deepest: float) -> None:
    outcome = result.spark[delay]
    kept = result.unpaused[~result.unpaused["cancelled"]].drop(outcome.lost.index)
    _dots(panel, kept["arrives"], _behind(kept), _FAINT, alpha=0.25)
    x, lag = sawtooth(outcome.moves["minute"], outcome.moves["watermark"])
    standing = np.repeat(lag[:-1:2], 2)  # how far behind it is right after each batch, and how far it falls back until the next
    panel.fill_between(_dates(x[:-1]), standing, lag[:-1], color=_LINE, alpha=0.35, lw=0)
    panel.plot(_dates(x[:-1]), standing, color=_LINE, lw=0.8, label="Spark's watermark, from batch to batch")
    _dots(panel, outcome.lost["arrives"], _behind(outcome.lost), _LOST, size=7, alpha=0.8, label="a departure that is lost")
    _frame(panel, deepest)
    _title(
        panel,
        f"Spark, withWatermark {delay} minutes",
        f"{outcome.rows_lost:,} rows lost, {outcome.hours_wrong:,} hours wrong",
        _LOST,
    )


def _legend(figure: Figure, panels: Sequence[Axes]) -> None:
    dots, *hours = zip(*panels[0].get_legend_handles_labels(), strict=True)
    mark, lost = zip(*panels[1].get_legend_handles_labels(), strict=True)
    handles, labels = zip(hours[0], dots, hours[1], lost, hours[2], mark, strict=True)  # two rows, filled column by column
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, markerscale=2)
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(0.8)


def _notes(panel: Axes, result: Result, deepest: float) -> None:
    """Write what the pause and the latest flight show into the strip below the hours, each with a line to its place."""
    left = result.arrivals[~result.arrivals["cancelled"]]
    late = left[left["arrives"] == left["happened"]]
    latest = late.loc[_behind(late).idxmax()]
    text = f"a flight leaves {latest['delay'] / HOUR:.0f} h late:\nonly its own hour waits for it"
    notes = [(int(latest["arrives"]), float(_behind(latest)), text, COLOURS[latest["airport"]])]
    if (pause := result.pause) is not None:
        days = "1 day" if pause.days == 1 else f"{pause.days} days"
        text = f"{pause.airport} is silent for {days}: its hours stay open,\nand all other hours close"
        notes.append((pause.ends, deepest, text, COLOURS[pause.airport]))
    # Each text is narrower than a third of the panel. Two texts have a half of the panel each.
    rooms = [(0.17, 0.83)] if len(notes) == 1 else [(0.17, 0.33), (0.67, 0.83)]
    begin, end = panel.get_xlim()
    for (minute, depth, text, colour), (least, greatest) in zip(sorted(notes), rooms, strict=True):
        share = float((panel.convert_xunits(_dates(minute)) - begin) / (end - begin))
        panel.annotate(
            text,
            (_dates(minute), depth),
            xytext=(min(max(share, least), greatest), 0.02),
            textcoords="axes fraction",
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.8, "shrinkA": 1, "shrinkB": 1, "relpos": (0.5, 1)},
            ha="center",
            va="bottom",
            fontsize=9,
            color=colour,
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


def _frame(panel: Axes, deepest: float, strip: float = 1.25) -> None:
    # Most rows are within an hour and a few are most of a day away: linear near the clock, logarithmic beyond.
    panel.set_yscale("symlog", linthresh=2, linscale=1.0)
    panel.set_ylim(deepest * strip, -1.3)
    ticks = [tick for tick in (0, 1, 2, 4, 8, 16, 48, 144) if tick <= deepest]
    panel.set_yticks(ticks, [f"{tick} h" for tick in ticks])
    panel.minorticks_off()
    panel.axhline(0, color=_FAINT, lw=0.6, zorder=0)
    panel.margins(x=0.005)
    panel.grid(axis="y", color="#e5e7eb", lw=0.5)
    panel.set_axisbelow(True)


def _axis(panel: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=4, maxticks=12)  # type: ignore[no-untyped-call]
    panel.xaxis.set_major_locator(locator)
    panel.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _title(panel: Axes, name: str, verdict: str, colour: str) -> None:
    panel.set_title(name, loc="left", fontsize=11, fontweight="bold", color=_INK)
    panel.set_title(verdict, loc="right", fontsize=11, fontweight="bold", color=colour)
