"""One ailment is said once: in words, and on the page. As data, every holder is there."""

from __future__ import annotations

from pathlib import Path

from ingest_bench import Bench
from strandline.ingest import ordered
from strandline.page import Looker
from strandline.page.render import report_html
from strandline.report import explain
from why_channels import dead, make, send

AFTER = 1 << 45
NAMES = [f"p{number:02}" for number in range(50)]


def test_a_dead_ingest_with_many_partitions_is_one_answer(tmp_path: Path) -> None:
    """It was a box for each partition, so that other trouble was out of sight."""
    bench = Bench(tmp_path, ordered())
    bench.owner = dead("q")
    bench.run(*((3, name, 0) for name in NAMES), now=1000)
    channel = bench.channel
    with channel.producer("late") as late:
        late.delay([40])
    channel.seal()
    answer = explain(channel.path, 60, most=5)
    first, other = answer.ailments
    assert (first.count, other.first.name, answer.more) == (50, "late", 0)
    words = list(answer.words())
    assert sum(line.startswith("It waits") for line in words) == 2
    whom = "which is gone (50 partitions: p00, p01, p02, p03, p04, …)"
    assert words[1].startswith(f"It waits for ingest q of {channel.path}, {whom}. p00 holds 3 since version ")
    assert words[3] == "  What would release it: start query q again: it takes in what its partitions have delivered."
    holders = explain(channel.path, 60, most=99).to_json()["holders"]
    assert {each["name"]: (each["cause"], each["alike"]) for each in holders} == {
        **dict.fromkeys(NAMES, ("query: q", 50)),
        "late": (None, 1),
    }

    page = Looker([channel.path], interval=0.0, clock_ms=lambda: AFTER).look()
    view = page.channels[0]
    assert [(each.who, each.count) for each in view.culprits] == [("ingest q", 50)]
    assert (len(page.attention), view.why_hidden) == (1, 0)
    assert report_html(page).count(whom) == 2  # in "Now", and in the channel's "Why"


def test_producers_of_one_dead_program_are_one_answer_and_one_command(tmp_path: Path) -> None:
    channel = make(tmp_path / "c", producers=["a", "b", "c"])
    owner = dead("s")
    for name in ("a", "b"):
        send(channel, name, [1], [1], owner=owner)
    send(channel, "c", [1], [1], owner=dead("t"))
    words = str(explain(channel.path, 1))
    assert words.count("It waits for") == 2
    program = f"program (process {owner.pid} on {owner.host})"
    assert f"It waits for {program} of {channel.path}, which is gone (2 producers: a, b)." in words
    assert f"strandline drop {channel.path} a b" in words
