"""Dead partitions leave the channel for good: no copy brings them back, and no closed time opens when their names come again."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ingest_bench import Bench
from strandline.channel import Channel
from strandline.cli.__main__ import main
from strandline.errors import IngestError, ProducerError
from strandline.ingest import drop_partitions, forget_partitions, idle, ordered, status
from strandline.report import verify

LIVE = [f"live{i}" for i in range(3)]


def names(path: str) -> set[str]:
    return {partition.name for partition in status(path).partitions}


@pytest.mark.drawn
@pytest.mark.parametrize("corrections", [False, True])
@pytest.mark.parametrize("dead", [2, 100])
def test_forgotten_partitions_are_in_no_later_commit(corrections: bool, dead: int, tmp_path: Path) -> None:
    """With 100, statements and copies are in columns. With corrections, times are pairs, and states are one by one."""
    bench = Bench(tmp_path, ordered(), corrections=corrections)
    path = bench.settings.path
    gone = [f"ended-{i}" for i in range(dead)]
    bench.run(*[(1, name, 0) for name in (*LIVE, *gone)])
    bench.run((0, "ended-0", 1))  # late
    drop_partitions(path, gone)
    bench.run((2, "ended-1", 2), *[(2, name, 2) for name in LIVE])  # late as well
    before = status(path)
    assert before.aside == 2
    version = forget_partitions(path)
    assert version == before.version + 1
    assert names(path) == set(LIVE)
    assert status(path).aside == 2
    assert status(path).frontier == before.frontier
    assert forget_partitions(path) is None
    for n in range(3, 12):
        bench.run((n, LIVE[n % 3], n))
        text = (tmp_path / "channel" / "_delta_log" / f"{bench.channel.version:020d}.json").read_text()
        assert "ended-" not in text
        if n % 4 == 0:
            bench.restart()
    assert names(path) == set(LIVE)
    bench.run(*[(20, name, 1000) for name in gone])
    assert names(path) == {*LIVE, *gone}
    drop_partitions(path, gone)
    bench.run((21, LIVE[0], 1001))
    forget_partitions(path)
    bench.run((22, LIVE[0], 1002))
    assert names(path) == set(LIVE)
    assert verify(path).sound
    known = [Channel.open(path).frontier_at(v) for v in range(bench.channel.version + 1)]
    assert all(a.dominates(b) for a, b in pairwise(known))


@pytest.mark.drawn
def test_a_name_that_comes_again_joins_as_a_new_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    path = bench.settings.path
    bench.run((1, "a", 0), (1, "b", 0))
    for n in range(2, 30):  # so that b's own statements have great numbers
        bench.run((n, "a", n), (n, "b", n))
    drop_partitions(path, ["b"])
    bench.run((50, "a", 50))
    forget_partitions(path, ["b"])
    frontier = bench.frontier()
    bench.run((20, "b", 100), (50, "b", 101), (70, "b", 102))
    assert bench.frontier() == frontier == [50]
    assert [n for _, _, n in bench.late()] == [100]
    assert {101, 102} <= {n for _, _, n in bench.rows()}
    assert bench.holds()["b"] == [70]
    bench.restart()
    bench.run((60, "a", 60), (71, "b", 103))
    assert bench.frontier() == [60]
    # Each new generation begins after all that were before it.
    drop_partitions(path, ["b"])
    first = bench.channel.producers["b"].seq
    forget_partitions(path, "b")
    bench.run((80, "b", 104))
    assert bench.channel.producers["b"].seq > first
    assert verify(path).sound


def test_only_dead_ones_are_forgotten(tmp_path: Path) -> None:
    bench = Bench(tmp_path, idle(ordered(), "10 seconds"))
    path = bench.settings.path
    bench.run((1, "a", 0), (1, "b", 0), (1, "c", 0), now=1, run="r", to_end=True)
    bench.run((2, "a", 0), now=11_000, run="r", to_end=True)
    drop_partitions(path, ["c"])
    before = bench.channel.version
    for name, why in (("a", "holds .2"), ("b", "is idle")):
        with pytest.raises(IngestError, match=f"STRANDLINE_PARTITION_NOT_DEAD.*{name!r}.*{why}.*strandline drop {path} {name}"):
            forget_partitions(path, ["c", name])
    with pytest.raises(IngestError, match="STRANDLINE_PARTITION_UNKNOWN.*'d'"):
        forget_partitions(path, ["d"])
    assert bench.channel.version == before
    assert forget_partitions(path, before=datetime(1970, 1, 1, tzinfo=timezone.utc)) is None
    assert forget_partitions(path, before=datetime(1970, 1, 2, tzinfo=timezone.utc)) == before + 1
    assert names(path) == {"a", "b"}
    drop_partitions(path, ["b"])  # as the remedy says
    forget_partitions(path, ["b"])
    assert names(path) == {"a"}


def test_a_sealed_channel_refuses_a_forgotten_name_and_goes_on_without_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), partitions=["a", "b"])
    path = bench.settings.path
    bench.run((1, "a", 0), (1, "b", 0))
    drop_partitions(path, ["b"])
    forget_partitions(path, ["b"])
    with pytest.raises(ProducerError, match="STRANDLINE_CHANNEL_SEALED.*'b'.*partitions"):
        bench.run((2, "a", 1))
    without = Bench(tmp_path, ordered(), partitions=["a"])
    without.batch = bench.batch
    without.run((2, "a", 1))
    with pytest.raises(IngestError, match="STRANDLINE_PARTITION_UNKNOWN"):
        without.run((3, "b", 1))
    without.run((3, "a", 1))
    assert without.frontier() == [3]
    assert verify(path).sound


def test_a_batch_that_ran_while_its_partition_was_forgotten_is_planned_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    path = bench.settings.path
    bench.run((1, "a", 0), (1, "b", 0))
    drop_partitions(path, ["b"])
    reports = bench.take([(2, "a", 1), (9, "b", 2)])
    forget_partitions(path, ["b"])
    with pytest.raises(IngestError, match="STRANDLINE_INGEST_OVERTAKEN"):
        bench.commit(reports)
    bench.run((2, "a", 1), (9, "b", 2))
    assert [n for _, _, n in bench.rows()] == [0, 0, 1, 2]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench(tmp_path, ordered())
    path = bench.settings.path
    bench.run((1, "a", 0), (1, "b", 0), (1, "c", 0))
    drop_partitions(path, ["b", "c"])

    def told(*arguments: str) -> Any:
        assert main(["forget", path, *arguments, "--yes", "--json"]) in (0, None)
        return json.loads(capsys.readouterr().out)

    assert told("b")["forgotten"] == 1
    assert told("--before", "1970-01-01T00:00+05:00")["forgotten"] == 0
    for unclear in ("1970-01-01T00:00", "1795010112345", "20270101", "2027", "+10000-01-01T00:00Z"):
        assert main(["forget", path, "--before", unclear, "--yes"]) == 3
        assert "STRANDLINE_TIME_INVALID" in capsys.readouterr().err
    assert names(path) == {"a", "c"}
    assert told()["forgotten"] == 1
    assert names(path) == {"a"}
