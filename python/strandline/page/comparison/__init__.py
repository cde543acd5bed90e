"""The page of a comparison, or of a replay with its comparisons, as one HTML file."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from strandline import __version__
from strandline.page.render import static_text
from strandline.replay import ChangedRow, Comparison, Replayed, TimeDifference
from strandline.replay.values import values_of

__all__ = ["comparison_html"]

_MOST_ROWS = 50
_MOST_TIMES = 100
_MOST_COLUMNS = 40
_MOST_HINTS = 50
_CLIPPED = 200

_STYLE = """
td.was, td.is { font-variant-numeric: tabular-nums; }
td.was { background: var(--bad-ground); color: var(--bad); }
td.is { background: var(--warn-ground); color: var(--warn); font-weight: 600; }
"""


def comparison_html(found: Comparison | Replayed) -> str:
    """Return one page that needs no network and has no script. Its size is bounded, however much differs.

    >>> from strandline.replay import Replayed
    >>> html = comparison_html(Replayed("<b>.py", {"speed": "max"}, (), {}, {}, ()))
    >>> "<b>" in html, "&lt;b&gt;" in html, "<script" in html
    (False, True, False)
    """
    style = static_text("page.css") + _STYLE
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    replayed = found if isinstance(found, Replayed) else None
    comparisons: Mapping[str, Comparison] = found.comparisons if isinstance(found, Replayed) else {"": found}
    return (
        _environment()
        .get_template("comparison.html")
        .render(
            policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
            style=style,
            version=__version__,
            equal=found.equal,
            replayed=replayed,
            comparisons=comparisons,
            most_rows=_MOST_ROWS,
            most_times=_MOST_TIMES,
            most_hints=_MOST_HINTS,
        )
    )


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("strandline.page"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters |= {"clip": _clip, "shown": _rows_shown, "fields": _fields}
    return made


def _clip(value: Any, most: int = _CLIPPED) -> str:
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def _rows_shown(each: TimeDifference, side: str) -> tuple[list[str], list[list[Any]], int]:
    """Return the columns and the rows of one side that the page shows, and how many rows more there are."""
    table = each.only_a if side == "a" else each.only_b
    names = table.column_names[:_MOST_COLUMNS]
    rows = [[row[name] for name in names] for row in values_of(table.slice(0, _MOST_ROWS).select(names))]
    return names, rows, max(0, table.num_rows - _MOST_ROWS)


def _fields(row: ChangedRow) -> list[tuple[str, Any, Any]]:
    """Return the fields of a changed row that differ. A column that one channel lacks is null there.

    >>> _fields(ChangedRow({"k": 1}, {"n": 2}, {"n": 3, "m": 4}))
    [('n', 2, 3), ('m', None, 4)]
    """
    names = list(dict.fromkeys([*row.a, *row.b]))[:_MOST_COLUMNS]
    return [(name, row.a.get(name), row.b.get(name)) for name in names]
