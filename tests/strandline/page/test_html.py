"""The HTML: whatever names the logs have, its structure is the same, nothing of them runs, and nothing is fetched."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from hashlib import sha256
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest_bench import Bench
from page_channels import LOOP, a_loop, look, make, send
from strandline.delta.storage import commit_name
from strandline.ingest import ordered
from strandline.page.model import Page, Problem
from strandline.page.render import main_html, page_html, report_html

HOSTILE = [
    "<script>pwned=1</script>",
    "\"><img src=x onerror='pwned=1'>",
    "' onmouseover='pwned=1",
    "</style><script>pwned=1</script>",
    "</title></svg></table></main><base href='https://evil.example/'>",
    "javascript:pwned=1",
    "{{ 7 * 7 }}{% raw %}${7*7}",
    "]]><!--",
    "&lt;b&gt; &amp;quot; &#60;script&#62;",
    "\u2028\u202e\u0000\x1b[2J",
    "url(https://evil.example/x)",
    "a\nb\tc\r\nd",
]
KEPT = {"id", "kind", "state", "unit", "source", "target", "channel"}
"""Fields that the templates compare, or that name another part. What others write is never in them, but for a few below."""


class Structure(HTMLParser):
    """The tags with the names of their attributes, in order, and everything that a browser would run or fetch."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = tuple(name for name, _ in attrs if name != "title")  # a long name has its whole in a title
        self.tags.append((tag, names))
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}", ()))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def mapped(value: Any, change: Callable[[str], str], name: str = "") -> Any:
    """A page with every text changed that may come from others."""
    if is_dataclass(value) and not isinstance(value, type):
        new = {field.name: mapped(getattr(value, field.name), change, field.name) for field in fields(value)}
        return replace(value, **new)
    if isinstance(value, tuple):
        return tuple(mapped(each, change, name) for each in value)
    return change(value) if isinstance(value, str) and value and name not in KEPT | {"channels"} else value


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """A page with everything that it can have."""
    folder = tmp_path_factory.mktemp("lake")
    a_loop(folder)
    bench = Bench(folder, ordered())
    bench.run((3, "p0", 0), (2, "p1", 0), now=1000)
    bench.run((1, "p0", 0), (9, "p1", 0), now=2000)
    torn = make(folder / "torn")
    send(torn, "a", [1], [2])
    Path(torn.path, commit_name(1)).write_bytes(b"")
    more = {"now_ms": 4_000_000_000_000, "stale_after": 1}
    made = look(folder / "components", bench.settings.path, torn.path, folder / "none", **more)
    kinds = {node.kind for node in made.nodes}
    assert kinds == {"channel", "query", "ingest", "producers"}
    assert made.attention
    assert {each.problem is None for each in made.channels} == {True, False}
    return replace(made, problems=(Problem("there", "STRANDLINE_EXAMPLE", "what", "remedy"),))


def check(html: str, *, live: bool) -> Structure:
    """Nothing runs but the page's own script, and nothing is fetched from elsewhere."""
    found = Structure(html)
    for tag, name, value in found.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name != "style", tag
        if name in ("src", "href", "action", "formaction", "data", "xlink:href"):
            assert value.startswith("#") or (live and value in ("page.css", "page.js", "icon.svg")), (tag, name, value)
    tags = [tag for tag, _ in found.tags]
    assert tags.count("script") == live
    assert not {"iframe", "object", "embed", "base", "form", "img", "input", "button"} & set(tags)
    if not live:
        assert "@import" not in html
        assert not re.search(r"url\((?!#)", "".join(re.findall(r"<style>.*?</style>", html, re.DOTALL)))
    return found


@pytest.mark.drawn
@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_texts_everywhere_change_only_texts(hostile: str, page: Page) -> None:
    plain = mapped(page, lambda text: "x" * len(hostile))
    changed = mapped(page, lambda text: hostile)
    for html_of, live in ((report_html, False), (lambda each: page_html(each, interval=1), True)):
        assert check(html_of(changed), live=live).tags == check(html_of(plain), live=live).tags
    assert Structure(main_html(changed)).tags == Structure(main_html(plain)).tags


@settings(max_examples=20)
@given(text=st.text(st.characters(codec="utf-8"), min_size=1, max_size=40))
def test_random_texts_change_only_texts(text: str, page: Page) -> None:
    plain, changed = mapped(page, lambda _: "x" * len(text)), mapped(page, lambda _: text)
    assert check(report_html(changed), live=False).tags == check(report_html(plain), live=False).tags


def test_a_producer_named_script_is_shown_as_text(tmp_path: Path) -> None:
    name = "<script>pwned=1</script>\u202e\x1b[2J"
    channel = make(tmp_path / "<b>&amp;" / "c", producers=[name, "x" * 1000], at=0)
    html = report_html(look(channel.path))
    check(html, live=False)
    assert "<script" not in html
    assert "<b>&amp;/c" not in html
    text = "".join(Structure(html).text)
    assert "<script>pwned=1</script>\\u202e\\x1b[2J" in text
    assert "strandline drop " in text


def test_the_report_needs_no_network_and_its_policy_allows_its_style_only(page: Page) -> None:
    html = report_html(page)
    [style] = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    [policy] = [value for tag, name, value in Structure(html).attributes if tag == "meta" and "default-src" in value]
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert "http://" not in html
    assert "https://" not in html


def test_headings_tables_and_pictures_say_what_they_are(page: Page) -> None:
    found = check(report_html(page), live=False)
    levels = [int(tag[1]) for tag, _ in found.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    tags = [tag for tag, _ in found.tags]
    assert tags.count("table") == tags.count("caption") > 5
    assert all("scope" in names for tag, names in found.tags if tag == "th")
    assert all("aria-label" in names for tag, names in found.tags if tag == "svg")
    ids = [value for _, name, value in found.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    linked = {value[1:] for tag, name, value in found.attributes if name == "href" and value.startswith("#")}
    labelled = {value for _, name, value in found.attributes if name == "aria-labelledby"}
    assert linked | labelled <= set(ids)


def test_what_is_first_is_what_stands_and_what_to_do(page: Page) -> None:
    text = re.sub(r"\s+", " ", "".join(Structure(main_html(page)).text))
    now, graph = text.index(" Now "), text.index(" Graph ")
    first = text[now:graph]
    assert "labels, result stand for" in first
    assert "It waits for query 5b1 of a loop in labels" in first
    assert "What to do" in first
    assert "STRANDLINE_COMMIT_TORN" in first
    assert first.index("cannot be read") < first.index("stand for") < first.index("All channels")


def test_very_large_frontiers_and_many_producers_stay_short(tmp_path: Path) -> None:
    channel = make(tmp_path / "c", LOOP, [f"p{n}" for n in range(60)], at=(0, 0))
    send(channel, "p0", [], [(n, 400 - n) for n in range(400)])
    for n in range(1, 60):
        send(channel, f"p{n}", [], [(500 + n, 500)])
    page = look(channel.path)
    html = report_html(page)
    assert "and 392 more" in html
    assert "40 more hold later times" in html
    assert len(html) < 150_000
