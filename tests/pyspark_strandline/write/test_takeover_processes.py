"""A query takes over the producer of another one. Each run of each is a driver of its own, as a scheduler starts them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from forked_runners import forking_python
from helpers import ROOT, contents, make_channel, say
from strandline.channel import Channel
from strandline.report import verify

pytestmark = [pytest.mark.spark, pytest.mark.soak]  # four drivers


def test_a_query_that_was_taken_over_stays_fenced_in_every_later_run(tmp_path: Path) -> None:
    """Its successor has ended, too, each time. Nothing but the channel's log tells the one run of the other."""
    channel = make_channel(tmp_path / "in", producers=("a",))
    script, environment = ROOT / "tests" / "support" / "copy_query.py", {**os.environ, "PYSPARK_PYTHON": forking_python()}

    def drive(checkpoint: str, source: dict[str, str] | None = None, **sink: str) -> str:
        """Run the query in a driver; the error's text, if it fails."""
        command = [sys.executable, str(script), str(tmp_path), checkpoint, json.dumps(source or {}), json.dumps(sink)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == ("STRANDLINE_" in done.stdout), done.stderr[-4000:]
        return done.stdout

    say(channel, "a", (0, 1), (5, 2), then=[0])
    assert not drive("old")
    version = Channel.open(tmp_path / "in").version + 1
    say(channel, "a", (5, 3), (6, 4), then=[0])
    assert not drive("new", {"startingVersion": str(version)}, takeOver="true")  # only what the other one has not read
    assert contents(tmp_path / "out") == [(0, 1), (5, 2), (5, 3), (6, 4)]
    before = Channel.open(tmp_path / "out").version
    assert "STRANDLINE_PRODUCER_FENCED" in drive("old")
    assert Channel.open(tmp_path / "out").version == before
    say(channel, "a", (7, 5), then=[8])
    assert not drive("new", takeOver="true")  # the option stays in the program
    assert contents(tmp_path / "out") == [(0, 1), (5, 2), (5, 3), (6, 4), (7, 5)]
    assert list(Channel.open(tmp_path / "out").frontier) == [8]
    assert verify(tmp_path / "out").violation is None


def test_two_drivers_that_resume_at_once_write_each_row_once(tmp_path: Path) -> None:
    """One of them goes on. The other one is refused, or goes on after it when it has ended."""
    channel = make_channel(tmp_path / "in", producers=("a",))
    script, environment = ROOT / "tests" / "support" / "copy_query.py", {**os.environ, "PYSPARK_PYTHON": forking_python()}

    def start(checkpoint: str, **resume: dict[str, str]) -> subprocess.Popen[str]:
        source, sink = json.dumps(resume.get("source", {})), json.dumps(resume.get("sink", {}))
        command = [sys.executable, str(script), str(tmp_path), checkpoint, source, sink]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ended(driver: subprocess.Popen[str]) -> str:
        said, errors = driver.communicate()
        assert driver.returncode == ("STRANDLINE_" in said), errors[-4000:]
        return said

    say(channel, "a", (0, 1), (5, 2), then=[1])
    assert not ended(start("old"))
    say(channel, "a", (5, 3), (6, 4), then=[6])
    how: dict[str, dict[str, str]] = {"source": {"resume": str(tmp_path / "out")}, "sink": {"resume": "true"}}
    drivers = [start(name, **how) for name in ("one", "two")]
    said = [ended(driver) for driver in drivers]
    assert "" in said
    for refused in filter(None, said):
        assert re.search("STRANDLINE_(PRODUCER_LIVE|PRODUCER_FENCED|RESUME_IMPOSSIBLE)", refused), refused
    assert contents(tmp_path / "out") == [(0, 1), (5, 2), (5, 3), (6, 4)]
    assert list(Channel.open(tmp_path / "out").frontier) == [6]
    say(channel, "a", (7, 5), then=[8])
    later = [ended(start(name, **how)) for name in ("one", "two")]
    assert "" in later
    assert contents(tmp_path / "out") == [(0, 1), (5, 2), (5, 3), (6, 4), (7, 5)]
    assert verify(tmp_path / "out").violation is None
