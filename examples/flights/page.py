"""The report as one HTML file: the same figures and picture, to be zoomed into; it loads nothing from anywhere."""

from __future__ import annotations

import base64
import io
import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from flights.data import AIRPORTS, DAY, FIRST_DAY, HOUR, clock
from flights.picture import COLOURS, draw, frontiers

if TYPE_CHECKING:
    from flights.report import Result

__all__ = ["write_page"]


def write_page(result: Result, path: Path) -> None:
    """Write the page."""
    from flights.report import notes

    here = Path(__file__).resolve().parent
    environment = Environment(
        loader=FileSystemLoader(here), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["n"] = lambda number: f"{number:,.0f}"
    png = io.BytesIO()
    draw(result).savefig(png, dpi=80, format="png")
    text = environment.get_template("page.html.j2").render(
        summary=result.summary(),
        notes=notes(result),
        airports=list(AIRPORTS),
        colours=COLOURS,
        first=f"{_new_york(result.flights['hour'].min()):%-d %B}",
        last=f"{_new_york(result.flights['hour'].max()):%-d %B %Y}",
        latest=int(result.flights["delay"].max() // HOUR),
        still=base64.b64encode(png.getvalue()).decode(),
        data=json.dumps(_data(result), separators=(",", ":")),
    )
    path.write_text(text, encoding="utf-8")


def _new_york(minute: int) -> datetime:
    return clock(minute - FIRST_DAY % DAY)


def _data(result: Result) -> dict[str, Any]:
    """What the page draws: minutes from the first scheduled hour on, packed."""
    left = result.unpaused[~result.unpaused["cancelled"]]
    arrivals = result.arrivals[~result.arrivals["cancelled"]]
    origin = int(left["hour"].min())
    arrives = arrivals.set_index("id")["arrives"].reindex(left["id"]).to_numpy()
    lost = np.zeros(len(left), dtype=np.int32)
    for bit, outcome in enumerate(result.spark.values()):
        lost[left.index.isin(outcome.lost.index)] |= 1 << bit
    names = sorted(set(left["carrier"]))
    return {
        "origin": origin,
        "airports": list(AIRPORTS),
        "carriers": names,
        "rows": {
            "hour": _pack(left["hour"] - origin),
            "left": _pack(left["arrives"] - origin),
            "told": _pack(arrives - origin),
            "airport": _pack(left["airport"].map(AIRPORTS.index)),
            "carrier": _pack(left["carrier"].map(names.index)),
            "flight": _pack(left["flight"]),
            "lost": _pack(lost),
        },
        "frontiers": {
            a: {"minute": _pack(m["minute"] - origin), "mark": _pack(m["oldest"] - origin)}
            for a, m in frontiers(result.arrivals).items()
        },
        "watermarks": {
            str(d): {"minute": _pack(o.moves["minute"] - origin), "mark": _pack(o.moves["watermark"] - origin)}
            for d, o in result.spark.items()
        },
        "pause": [result.pause.airport, result.pause.begins - origin, result.pause.ends - origin] if result.pause else None,
    }


def _pack(values: Any) -> str:
    """Little-endian 32-bit integers, in base64."""
    return base64.b64encode(np.asarray(values).astype("<i4").tobytes()).decode()
