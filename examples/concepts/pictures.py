"""Draws the pictures of ``docs/concepts.md``.

python examples/concepts/pictures.py [--folder docs/images]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from strandline.time.antichain import Antichain
from strandline.time.domain import product

INK, OPEN, CLOSED, ACCENT = "#1f2937", "#fde68a", "#d1fae5", "#b45309"


def producers(axes: Any) -> None:
    """Three producers on a time line: the least capability is the frontier."""
    holds = {"a": 7, "b": 9, "c": 4}
    frontier = min(holds.values())
    axes.axvspan(0, frontier, color=CLOSED)
    axes.axvspan(frontier, 12, color=OPEN)
    for row, (name, held) in enumerate(holds.items()):
        axes.plot([held, 12], [row, row], color=INK, linewidth=2)
        axes.plot(held, row, "o", color=ACCENT if held == frontier else INK, markersize=8)
        axes.text(held, row + 0.22, f"{name} holds {held}", ha="center", color=INK)
    axes.text(frontier / 2, 2.75, "complete", ha="center", color=INK, weight="bold")
    axes.text((frontier + 12) / 2, 2.75, "may still get rows", ha="center", color=INK, weight="bold")
    axes.set(xlim=(0, 12), ylim=(-0.6, 3.1), yticks=[], xticks=range(0, 13, 2), xlabel="time")


def antichain(axes: Any) -> None:
    """A frontier of two elements in a product of two coordinates."""
    domain = product(hour="int64", airport="int64")
    frontier = Antichain(domain, [(2, 5), (5, 1)])
    for hour in range(9):
        for airport in range(8):
            color = OPEN if frontier.less_equal((hour, airport)) else CLOSED
            axes.add_patch(Rectangle((hour - 0.5, airport - 0.5), 1, 1, facecolor=color, edgecolor="white"))
    for hour, airport in frontier:
        axes.plot(hour, airport, "o", color=ACCENT, markersize=10)
        axes.text(hour + 0.25, airport + 0.3, f"({hour}, {airport})", color=INK)
    axes.text(1.0, 2.0, "complete", ha="center", color=INK, weight="bold")
    axes.text(6.2, 6.4, "may still get rows", ha="center", color=INK, weight="bold")
    axes.set(xlim=(-0.5, 8.5), ylim=(-0.5, 7.5), xticks=range(9), yticks=range(8))
    axes.set(xlabel="first coordinate", ylabel="second coordinate")
    axes.set_aspect("equal")


def boxes(axes: Any) -> None:
    """A query as boxes. Each edge has a frontier, which the path summary of the box before it has moved."""
    names = ["channel\nmeasured", "window of\n1 hour", "sum by\nhour", "channel\nsums"]
    edges = ["{08:30}", "{08:00}", "{08:00}"]
    for at, name in enumerate(names):
        axes.add_patch(FancyBboxPatch((at * 3, 0), 1.6, 1, boxstyle="round,pad=0.1", facecolor="#eef2ff", edgecolor=INK))
        axes.text(at * 3 + 0.8, 0.5, name, ha="center", va="center", color=INK)
    for at, frontier in enumerate(edges):
        axes.add_patch(
            FancyArrowPatch((at * 3 + 1.75, 0.5), (at * 3 + 2.85, 0.5), arrowstyle="-|>", mutation_scale=14, color=INK)
        )
        axes.text(at * 3 + 2.3, 0.72, frontier, ha="center", color=ACCENT)
    axes.set(xlim=(-0.3, 11), ylim=(-0.3, 1.4))
    axes.axis("off")


def main() -> None:
    """Draw all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(__file__).resolve().parents[2] / "docs" / "images")
    folder = parser.parse_args().folder
    mpl.rcParams["svg.hashsalt"] = "strandline"  # the same picture has the same text
    for draw, size in ((producers, (6.4, 2.6)), (antichain, (5.2, 4.6)), (boxes, (7.6, 1.5))):
        figure, axes = plt.subplots(figsize=size, facecolor="white")
        draw(axes)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        figure.tight_layout()
        figure.savefig(folder / f"concepts-{draw.__name__}.svg", metadata={"Date": None})
        plt.close(figure)


if __name__ == "__main__":
    main()
