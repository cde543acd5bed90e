"""A process that really dies around the channel's commit and the late table's: nothing is lost, nothing comes twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import ROOT
from ingest_bench import Bench
from strandline.channel import Channel
from strandline.ingest import bounded, ordered
from strandline.ingest.late.late_table import LateTable

BATCHES = [
    [(5, "a", 0), (9, "a", 1), (3, "b", 2)],
    [(7, "a", 3), (9, "a", 4), (2, "b", 5), (None, "b", 6), (1, "c", 7), (4, "c", 8)],
    [(8, "a", 9), (12, "a", 10), (2, "c", 11)],
]

PROGRAM = """
import os, sys
from pathlib import Path
from ingest_bench import Bench
from strandline.channel import Channel
from strandline.delta.table import Table
from strandline.ingest import bounded
from strandline.ingest.late.late_table import LateTable
from test_kill import BATCHES

die_at = sys.argv[2]
def dies_before(cls, name, batch, path="", which=lambda *_: True):
    real = getattr(cls, name)
    def dying(self, *args, **kwargs):
        if bench.batch == batch and self.path.endswith(path) and which(*args):
            os._exit(9)
        return real(self, *args, **kwargs)
    setattr(cls, name, dying)
def dies_after(cls, name, batch):
    real = getattr(cls, name)
    def dying(self, *args, **kwargs):
        result = real(self, *args, **kwargs)
        if bench.batch == batch:
            os._exit(9)
        return result
    setattr(cls, name, dying)
where, batch = die_at.split(":")
{"before": lambda: dies_before(Channel, "append_decided", int(batch)),
 "between": lambda: dies_after(Channel, "append_decided", int(batch)),
 "place": lambda: dies_before(Table, "commit", int(batch), "_late"),
 "publishing": lambda: dies_before(Table, "commit", int(batch), "_late", lambda version, files, *_: files),
 "after": lambda: dies_after(LateTable, "publish", int(batch)),
 "never": lambda: None}[where]()
bench = Bench(Path(sys.argv[1]), bounded(1))
for rows in BATCHES:
    bench.run(*rows)
    bench.batch
"""


def feed(folder: Path, die_at: str) -> int:
    """Take in all batches in a process of its own, which dies where it is told to; its exit status."""
    paths = [str(ROOT / "tests" / "support"), str(Path(__file__).parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(folder), die_at], env=environment, check=False, timeout=120)
    return done.returncode


@pytest.mark.drawn
@pytest.mark.parametrize(
    "die_at",
    [
        *("before:1", "place:1", "between:2", "publishing:1", "after:2"),
        *(pytest.param(at, marks=pytest.mark.soak) for at in ("between:1", "publishing:2", "after:1")),
    ],
)
def test_killed_anywhere_around_the_commits(die_at: str, tmp_path: Path) -> None:
    assert feed(tmp_path / "dies", die_at) == 9
    bench = Bench(tmp_path / "dies", bounded(1))
    if die_at.startswith(("between", "publishing")):  # the channel has the batch, and names rows that the late table has not
        batch = int(die_at[-1])
        assert LateTable(bench.settings.late_path).committed(f"q@{bench.channel.table_id}") == batch - 1 - (batch == 1)
        assert bench.channel.transaction_version("q") == batch
    for rows in BATCHES:
        bench.run(*rows)
    whole = Bench(tmp_path / "lives", bounded(1))
    for rows in BATCHES:
        whole.run(*rows)
    assert bench.rows() == whole.rows()
    assert bench.late("n", "_reason", "_frontier", "_partition", "_batch") == whole.late(
        "n", "_reason", "_frontier", "_partition", "_batch"
    )
    assert bench.holds() == whole.holds()
    assert len(bench.rows()) + len(bench.late()) == sum(map(len, BATCHES))


def test_a_failed_batch_leaves_no_files_and_one_that_took_effect_keeps_them(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 0))
    reports = bench.take([(4, "a", 1), (6, "a", 2)])
    files = [tmp_path / "channel" / file.path for report in reports for file in report.files]
    late = [tmp_path / "channel_late" / file.path for report in reports for file in report.late_files]
    bench.ingest.abort(("q", bench.batch), reports, all_reported=False)
    assert not any(file.exists() for file in [*files, *late])
    reports = bench.take([(4, "a", 1), (6, "a", 2)])
    bench.commit(reports)
    bench.ingest.abort(("q", bench.batch), reports)  # Spark aborts when the answer got lost
    assert bench.rows() == [(5, "a", 0), (6, "a", 2)]
    assert bench.late() == [(4, "a", 1)]
    assert isinstance(bench.channel, Channel)
