"""A query takes over the producer of another one. Each run of each is a driver of its own, as a scheduler starts them."""

from __future__ import annotations

import json
import os
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
