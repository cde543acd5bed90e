"""The ways on of the operations page that no other test takes: each lets an ingest, or a frontier, go on that had stopped."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest_bench import Bench
from strandline.channel import Channel, ProducerError
from strandline.ingest import IngestError, drop_partitions, end_corrections, manifest, ordered, status
from support import ROOT


def announce(path: Path, *rows: tuple[int, str, int]) -> str:
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(("t", "p", "expected"))})
    write_deltalake(str(path), table, mode="overwrite")
    return str(path)


def test_corrections_end_so_that_everything_can_close(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), corrections=True, partitions=["a"])
    bench.run((1, "a", 0))
    drop_partitions(bench.settings.path, ["a"])
    assert bench.frontier() == [(-(1 << 63), 1)]
    assert "the ingest itself holds" in status(bench.settings.path).explain()
    assert end_corrections(bench.settings.path) is not None
    assert end_corrections(bench.settings.path) is None
    assert bench.frontier() == []


def test_an_open_channel_is_sealed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((1, "a", 0))
    drop_partitions(bench.settings.path, ["a"])
    assert bench.frontier() == [1]
    assert "the channel is not sealed" in status(bench.settings.path).explain()
    Channel.open(bench.settings.path).seal()
    assert bench.frontier() == []


def test_sealing_and_moving_the_registrar_keep_what_ingests_have_in_common(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((1, "a", 0), (None, None, 1))
    known = bench.channel.progress.get("$registrar")
    assert known is not None
    bench.channel.delay_registrar(7)
    bench.channel.seal()
    now = bench.channel.progress.get("$registrar")
    assert now is not None
    assert now.state == known.state
    assert status(bench.settings.path).aside == 1


def test_a_partition_of_nobodys_is_named_or_dropped(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), partitions=["a", "*"])
    bench.run((1, "a", 0))
    bench.channel.register(["left", "over"])
    bench.run((9, "a", 1))
    assert bench.frontier() == [1]
    drop_partitions(bench.settings.path, ["over"])
    named = Bench(tmp_path, manifest(announce(tmp_path / "m", (9, "a", 1))), partitions=["a", "left"])
    named.batch = bench.batch
    named.run()
    assert named.holds() == {"a": [], "left": [], "over": []}


def test_a_manifest_that_shrank_is_put_right(tmp_path: Path) -> None:
    bench = Bench(tmp_path, manifest(announce(tmp_path / "m", (1, "a", 1), (5, "a", 2))))
    bench.run((1, "a", 0))
    announce(tmp_path / "m", (1, "a", 1), (5, "a", 1))
    for _ in range(2):
        with pytest.raises(IngestError, match="STRANDLINE_MANIFEST_SHRINKS"):
            bench.run((5, "a", 1))
        bench.restart()
    announce(tmp_path / "m", (1, "a", 1), (5, "a", 2))
    bench.run((5, "a", 1), (5, "a", 2))
    assert bench.frontier() == []


def test_a_sealed_channel_refuses_a_new_name_and_goes_on_without_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), partitions=["a"])
    bench.run((1, "a", 0))
    more = Bench(tmp_path, ordered(), partitions=["a", "b"])
    more.batch = 1
    with pytest.raises(ProducerError, match="STRANDLINE_CHANNEL_SEALED.*'b'"):
        more.run((2, "a", 1))
    bench.run((2, "a", 1))
    assert bench.rows() == [(1, "a", 0), (2, "a", 1)]


def test_the_page_names_only_conditions_and_calls_that_there_are() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    code = "".join(path.read_text() for path in (ROOT / "python" / "strandline").rglob("*.py"))
    for condition in re.findall(r"`(STRANDLINE_\w+)`", page):
        assert f'"{condition}"' in code
    import strandline.ingest

    for call in re.findall(r"`(\w+)\(path[,)]", page):
        assert hasattr(strandline.ingest, call)
