"""The page as HTML, made on the server: templates with escaping, SVG from numbers, and a report that is one file."""

from __future__ import annotations

import base64
import re
from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import cache
from hashlib import sha256
from importlib.resources import files
from unicodedata import east_asian_width

from jinja2 import Environment, PackageLoader, StrictUndefined

from strandline import __version__
from strandline.page.layout import HEIGHT, WIDTH, layout_of
from strandline.page.lead import lasting
from strandline.page.model import ChannelView, Page, Since

__all__ = ["main_html", "page_html", "report_html", "static_text"]

_CLIPPED = 120
_NAMES = re.compile(r"[A-Za-z_]\w*=")
_MORE = re.compile(r"and (\d+) more")
_OTHER_DAY = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)\S*Z")
_COMMAND = re.compile(r"""(strandline [a-z-]+ (?:"'"|\$?'(?:\\.|[^'])*'|[^;'])+)""")
"""A command as a shell takes it: to its end, or to a semicolon outside of quotes."""
_FRACTION = re.compile(r"\.\d+Z\Z")


def page_html(page: Page, *, interval: float) -> str:
    """Return the live page. Its style and its script are files of the server.

    Args:
        page: What it shows.
        interval: After how many seconds it asks for what is new.
    """
    return _environment().get_template("page.html").render(_values(page), live=True, interval=interval, style=None, policy=None)


def main_html(page: Page) -> str:
    """Return what changes in the live page."""
    return _environment().get_template("main.html").render(_values(page), live=True)


def report_html(page: Page) -> str:
    """Return the page as one file that needs no network and has no script.

    >>> html = report_html(Page(0, "<b>", 300.0, (), (), (), (), ()))
    >>> "<b>" in html, "&lt;b&gt;" in html, "<script" in html
    (False, True, False)
    """
    style = static_text("page.css")
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    template = _environment().get_template("page.html")
    return template.render(_values(page), live=False, interval=0, style=style, policy=policy)


@cache
def static_text(name: str) -> str:
    """Return a file of the folder ``static``."""
    return (files("strandline.page") / "static" / name).read_text(encoding="utf-8")


def _values(page: Page) -> dict[str, object]:
    return {
        "page": page,
        "layout": layout_of(page.nodes, page.edges),
        "node_width": WIDTH,
        "node_height": HEIGHT,
        "version": __version__,
        "today": _clock(page.made_ms)[:10],
        "standing": [view for view in page.channels if view.stale],
    }


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("strandline.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "moment": _moment,
        "clock": _clock,
        "ago": _ago,
        "clip": _clip,
        "fit": _fit,
        "count": _count,
        "few": _few,
        "sentence": _sentence,
        "advice": _advice,
        "lag": _lag,
    }
    made.globals |= {"steps": _steps, "top_of": _top_of, "since_text": _since_text, "frontier_text": _frontier_text}
    return made


def _moment(ms: int | None) -> str:
    """Return a moment as text, in UTC.

    >>> _moment(1_357_106_400_000), _moment(None)
    ('2013-01-02 06:00:00 UTC', 'unknown')
    """
    return "unknown" if ms is None else f"{datetime.fromtimestamp(ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def _clock(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def _ago(ms: int, now_ms: int) -> str:
    """Return how long ago a moment was. The script of the page counts on in the same form.

    >>> _ago(0, 999), _ago(0, 9_500), _ago(0, 192_000), _ago(5, 0)
    ('0 s', '9 s', '3 min 12 s', '0 s')
    """
    seconds = max(0, now_ms - ms) // 1000
    return f"{seconds} s" if seconds < 10 else lasting(seconds)


def _clip(text: str, most: int = _CLIPPED) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _fit(text: str, room: float, size: float) -> str:
    """Return so much of a text as has room beside others in a picture, where nothing wraps: by how wide its letters are about.

    >>> _fit("bounded(10 minutes), 50 producers", 156, 11.5), _fit("WWWWWWWWWWWWWWWWWWWW", 156, 13), _fit("hours", 156, 13)
    ('bounded(10 minutes), 5…', 'WWWWWWWWWWW…', 'hours')
    """
    ends, width = [], 0.0
    for char in text:
        width += size * _em(char)
        ends.append(width)
    if width <= room:
        return text
    return text[: bisect_right(ends, room - size)] + "…"


def _em(char: str) -> float:
    """Return about how wide a letter is, by the size of its font. It is rather too much than too little."""
    if east_asian_width(char) in "WF" or char in "WM@%":
        return 1.0
    if char in "mw—…":
        return 0.88
    if char in "iljtfr.,:;'|!()[]{} -":
        return 0.38
    return 0.76 if char.isupper() else 0.62


def _lag(value: float, unit: str) -> str:
    """Return a lag as text.

    >>> _lag(192, "s"), _lag(3, "epoch")
    ('3 min 12 s', '3 of epoch')
    """
    return lasting(value) if unit == "s" else f"{_count(int(value))}{' of ' + unit if unit else ''}"


def _sentence(text: str) -> str:
    """Return a text with a capital at its beginning, unless that is code.

    >>> _sentence("its process is gone"), _sentence("readmit('/lake/a') adds them"), _sentence("strandline drop /lake/a b")
    ('Its process is gone', "readmit('/lake/a') adds them", 'strandline drop /lake/a b')
    """
    first = text.partition(" ")[0]
    is_code = first == "strandline" or any(mark in first.rstrip(".,:;") for mark in "._(=/")
    return text if is_code else text[:1].upper() + text[1:]


def _advice(text: str) -> list[tuple[bool, str]]:
    """Return a remedy as prose and commands (true), one after the other.

    >>> _advice("later rows; or, if it is dead: strandline drop /a 'x; y'; or seal it: strandline seal /a")
    [(False, 'later rows; or, if it is dead: '), (True, "strandline drop /a 'x; y'"), (False, '; or seal it: '), \
(True, 'strandline seal /a')]
    """
    parts = _COMMAND.split(text)
    return [(number % 2 == 1, part) for number, part in enumerate(parts) if part]


def _count(number: float) -> str:
    return f"{number:,}".replace(",", "\u202f")


def _few(times: Sequence[str], most: int = 8) -> list[str]:
    """Return some texts of very many, and how many more there are. The last text may say that already.

    >>> _few(["1", "2", "3", "and 7 more"], 2)
    ['1', '2', 'and 8 more']
    """
    said = _MORE.fullmatch(times[-1]) if times else None
    shown, more = (times[:-1], int(said[1])) if said else (times, 0)
    more += max(0, len(shown) - most)
    return [*shown[:most], f"and {more} more"] if more else list(shown)


def _frontier_text(times: Sequence[str] | None, day: str, most: int = 16) -> str:
    """Return a frontier as a set, short enough for an edge of the graph, where its title has it whole.

    It is without the coordinates' names, without fractions of seconds, and without today's date.

    >>> _frontier_text(["2026-03-01T12:00:00.5Z"], "2026-03-01"), _frontier_text(["(a=1, b=2)", "(a=2, b=1)"], "")
    ('{12:00:00Z}', '{(1, 2), …}')
    """
    if times is None:
        return ""
    if not times:
        return "closed"
    text = _FRACTION.sub("Z", _NAMES.sub("", times[0]).removeprefix(f"{day}T"))
    text = _clip(_OTHER_DAY.sub(r"\1 \2", text), most)
    return f"{{{text}}}" if len(times) == 1 else f"{{{text}, …}}"


def _since_text(since: Since | None) -> str:
    if since is None:
        return "unknown"
    return f"version {since.version}" + ("" if since.exact else " or earlier")


def _top_of(view: ChannelView) -> float:
    """Return the greatest lag of the listed producers of a channel: the common scale of their pictures."""
    return max([value for holding in view.holdings for _, value in holding.lag], default=0) or 1


def _steps(lag: Sequence[tuple[int, float]], window: tuple[int, int] | None, top: float, width: int, height: int) -> str:
    """Return the SVG path of values that each count until the next one's moment.

    >>> _steps(((0, 0), (50, 4)), (0, 100), 4, 100, 20)
    'M0 20H50V0H100'
    """
    if window is None or not lag:
        return ""
    first, last = window
    span = max(last - first, 1)

    def x(ms: int) -> str:
        return f"{min(max((ms - first) / span, 0), 1) * width:.4g}"

    def y(value: float) -> str:
        return f"{height - min(value / (top or 1), 1) * height:.4g}"

    path = f"M{x(lag[0][0])} {y(lag[0][1])}"
    for ms, value in lag[1:]:
        path += f"H{x(ms)}V{y(value)}"
    return f"{path}H{width}"
