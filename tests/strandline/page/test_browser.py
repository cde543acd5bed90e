"""The page in a real browser: wide and narrow, light and dark, live, and with names that try to run."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from chromium import Chromium, missing
from page_channels import a_loop, look, make, send
from strandline.channel import Channel
from strandline.page import Looker
from strandline.page.render import report_html
from strandline.page.server import application, listen
from strandline.time.domain import timestamp

pytestmark = [pytest.mark.soak, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

HOSTILE = "<script>window.pwned=1</script><img src=x onerror=window.pwned=1>"

CONTRAST = """
const numbers = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
const linear = (c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const bright = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
function ground(element) {
  for (let at = element; at; at = at.parentElement) {
    const rect = at.tagName === "g" && at.querySelector("rect");
    if (rect) return numbers(getComputedStyle(rect).fill);
    const colour = numbers(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
}
const poor = [];
for (const element of document.querySelectorAll("body *")) {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!own || ["TITLE", "STYLE", "SCRIPT"].includes(element.tagName.toUpperCase())) continue;
  if (element.namespaceURI.endsWith("svg") ? false : !element.getClientRects().length) continue;
  const style = getComputedStyle(element);
  const ink = bright(numbers(element.namespaceURI.endsWith("svg") ? style.fill : style.color));
  const paper = bright(ground(element));
  const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  if (ratio < LEAST) poor.push([element.tagName, ratio, element.textContent.slice(0, 40)]);
}
return poor;
"""


@pytest.fixture(scope="module")
def opened() -> Iterator[Chromium]:
    with Chromium() as started:
        yield started


@pytest.fixture
def browser(opened: Chromium) -> Chromium:
    """The browser with an empty page: one that is still open would ask a server that has ended."""
    opened.open("about:blank")
    opened.problems()
    return opened


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("lake")
    a_loop(folder)
    flights = make(folder / "flights", timestamp, ["EWR", HOSTILE, "x" * 300], 0)
    for minute in range(1, 20):
        send(flights, "EWR", [minute * 60_000_000], [minute * 60_000_000])
    send(flights, HOSTILE, [0], [120_000_000])
    return [str(folder / "components"), flights.path, str(folder / HOSTILE.replace("/", ""))]


@pytest.fixture
def served(lake: list[str]) -> Iterator[str]:
    bound = listen("127.0.0.1", 0)
    app = application(Looker(lake, interval=0.2, stale_after=0), interval=0.2)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    yield f"http://127.0.0.1:{bound.getsockname()[1]}/"
    server.should_exit = True
    thread.join()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("live", [False, True])
def test_it_can_be_read(
    width: int, dark: bool, live: bool, browser: Chromium, lake: list[str], served: str, tmp_path: Path
) -> None:
    url = served
    if not live:
        file = tmp_path / "report.html"
        file.write_text(report_html(look(*lake, stale_after=0)), encoding="utf-8")
        url = file.as_uri()
    browser.open(url, width=width, dark=dark)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert (
        browser.run("for (const d of document.querySelectorAll('details')) d.open = true; return document.body.scrollWidth")
        <= width
    )
    assert browser.run(CONTRAST.replace("LEAST", "4.5")) == []
    assert len(browser.run(CONTRAST.replace("LEAST", "22"))) > 100  # it looks at texts
    assert browser.run("return window.pwned ?? null") is None
    assert browser.problems() == []
    if not live:
        assert browser.run("return performance.getEntriesByType('resource').length") == 0
    if folder := os.environ.get("STRANDLINE_SCREENSHOTS"):
        browser.photograph(Path(folder, f"{'live' if live else 'report'}-{width}-{'dark' if dark else 'light'}.png"))


def test_it_can_be_read_without_scripts(browser: Chromium, served: str) -> None:
    browser.open(served, scripts=False)
    try:
        browser.cdp("Emulation.setScriptExecutionDisabled", value=False)
        assert "It waits for" in browser.run("return document.body.innerText")
    finally:
        browser.open("about:blank")


def test_it_is_live_and_nothing_moves(browser: Chromium, lake: list[str], served: str) -> None:
    browser.open(served)
    browser.wait("return document.querySelectorAll('.age').length > 3;")
    browser.run("""
        window.shifts = []; window.kept = document.querySelector('#graph-picture');
        new PerformanceObserver((list) => window.shifts.push(...list.getEntries().map((e) => e.value)))
            .observe({type: 'layout-shift', buffered: false});
        document.getElementById('graph-table').open = true;
        [...document.querySelectorAll('tbody th a')].find((a) => a.textContent === 'flights').focus();
        const times = document.createRange(); window.looks = 0;
        const plain = window.fetch; window.fetch = (...given) => { window.looks += 1; return plain(...given); };
    """)
    browser.wait("return window.looks > 3;")
    assert browser.run("return window.shifts.reduce((a, b) => a + b, 0)") < 0.001
    flights = Channel.open(lake[1])
    send(flights, HOSTILE, [], [300_000_000])
    with Channel.open(lake[1]).producer("x" * 300) as last:
        last.delay([1_000_000_000])
    browser.wait("return document.getElementById('main').innerText.includes('{1970-01-01T00:05:00Z}');")
    state = browser.run("""return [document.activeElement.textContent, document.getElementById('graph-table').open,
        window.kept === document.querySelector('#graph-picture') && window.kept.isConnected, window.pwned ?? null]""")
    assert state == ["flights", True, True, None]
    assert browser.problems() == []


def test_texts_of_the_graph_stay_in_their_nodes(browser: Chromium, served: str) -> None:
    browser.open(served)
    over = browser.run("""
        const nodes = [...document.querySelectorAll('.graph .node')];
        const wide = (node) => node.querySelector('rect').getBBox().width - 8;
        return nodes.flatMap((node) => [...node.querySelectorAll('text')].filter((text) => text.getBBox().width > wide(node)))
            .map((text) => text.textContent);
    """)
    assert over == []


def test_a_server_that_ended_is_told(browser: Chromium, lake: list[str]) -> None:
    bound = listen("127.0.0.1", 0)
    app: Any = application(Looker(lake[:1], interval=0.2), interval=0.2)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", ws="none", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    browser.open(f"http://127.0.0.1:{bound.getsockname()[1]}/")
    server.should_exit = True
    thread.join()
    bound.close()
    browser.wait("return document.getElementById('connection').textContent.startsWith('The server does not answer');")
    assert "It waits for" in browser.run("return document.body.innerText")
