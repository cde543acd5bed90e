"""The page of a comparison: everything is escaped, and its size is bounded."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
from typer.testing import CliRunner

from strandline.channel import Channel
from strandline.cli.app import app
from strandline.page.comparison import comparison_html
from strandline.replay import Replayed, ReplayedInput, compare
from strandline.time.antichain import Antichain
from strandline.time.arrow import time_field
from strandline.time.domain import int64

EVIL = '<script>alert("1")</script>&\u202e'


def made(path: Path, rows: list[dict[str, object]]) -> Channel:
    names = [name for name in rows[0] if name != "t"]
    schema = pa.schema([time_field("t", int64), *(pa.field(n, pa.array([rows[0][n]]).type) for n in names)])
    with Channel.create(path, schema, producers=["p"], at=0).producer("p") as producer:
        producer.send(pa.Table.from_pylist(rows, schema=schema))
        producer.delay([])
    return Channel.open(path)


def test_everything_is_escaped(tmp_path: Path) -> None:
    made(tmp_path / "<b>a", [{"t": 1, "<i>k": EVIL, "<i>n": EVIL}, {"t": 1, "<i>k": "x", "<i>n": "y"}])
    made(tmp_path / "b", [{"t": 1, "<i>k": EVIL, "<i>n": "other"}, {"t": 1, "<i>k": "z", "<i>n": EVIL}])
    found = compare(tmp_path / "<b>a", tmp_path / "b", key=["<i>k"])
    assert found.differences[0].changed
    given = ReplayedInput(EVIL, 3, Antichain(int64, [7]))
    replayed = Replayed(EVIL, {EVIL: EVIL}, (given,), {EVIL: EVIL}, {EVIL: found}, (EVIL,))
    for html in (comparison_html(found), comparison_html(replayed)):
        assert not re.search(r"<(script|i|b)\b", html)
        assert "&lt;script&gt;" in html
        assert html.startswith("<!doctype html>") or "<!doctype html>" in html[:20]
        assert "default-src &#39;none&#39;" in html or "default-src 'none'" in html


def test_its_size_is_bounded(tmp_path: Path) -> None:
    wide = {f"c{i}": "x" * 1000 for i in range(60)}
    made(tmp_path / "a", [{"t": i % 500, "k": i, **wide} for i in range(3000)])
    made(
        tmp_path / "b", [{"t": i % 500, "k": i, **wide, "c0": "y" * 1000} for i in range(3000)] + [{"t": 0, "k": -1, **wide}] * 99
    )
    html = comparison_html(compare(tmp_path / "a", tmp_path / "b"))
    assert len(html) < 2_000_000
    assert "the first of 500 times" in html
    assert "55 more" in html


def test_the_command_writes_it(tmp_path: Path) -> None:
    made(tmp_path / "a", [{"t": 1, "k": "x", "n": 1}])
    made(tmp_path / "b", [{"t": 1, "k": "x", "n": 2}])
    page = tmp_path / "page.html"
    arguments = ["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--html"]
    assert CliRunner().invoke(app, [*arguments, str(page)]).exit_code == 1
    assert '<td class="was">1</td><td class="is">2</td>' in page.read_text(encoding="utf-8")
    assert CliRunner().invoke(app, [*arguments, str(tmp_path)]).exit_code == 2
    assert CliRunner().invoke(app, [*arguments, str(tmp_path / "none" / "x.html")]).exit_code == 2
    equal = CliRunner().invoke(app, ["compare", str(tmp_path / "a"), str(tmp_path / "a"), "--html", str(page)])
    assert (equal.exit_code, "Equal at each time" in page.read_text(encoding="utf-8")) == (0, True)
