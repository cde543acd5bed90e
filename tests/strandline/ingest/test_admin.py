"""The ways on of the operations page that no other test takes: each lets an ingest, or a frontier, go on that had stopped."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from helpers import ROOT
from ingest_bench import Bench
from strandline.channel import Channel, ProducerError, WriterSession
from strandline.delta.table import Table
from strandline.ingest import (
    IngestError,
    PolicyError,
    drop_partitions,
    end_corrections,
    give_up_late_rows,
    manifest,
    ordered,
    publish_late_rows,
    readmit,
    release_parked,
    status,
)
from strandline.ingest.late.late_table import LateTable
from strandline.ingest.names import PARKED
from strandline.ingest.parked.parcel import parcels_from_json
from strandline.ingest.policies.ordered import Ordered
from strandline.time.arrow import time_field
from strandline.time.domain import int64


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


@pytest.mark.parametrize("name", ["$x", "$registrar", "", "strandline:parked", "x" * 5000])
def test_a_name_that_no_partition_can_have_is_refused_at_the_door(tmp_path: Path, name: str) -> None:
    with pytest.raises(IngestError, match="STRANDLINE_PARTITION_NAME_INVALID"):
        Bench(tmp_path, ordered(), partitions=["a", name])
    with pytest.raises(PolicyError, match="STRANDLINE_MANIFEST_INVALID.*Cancel them"):
        Bench(tmp_path, manifest(announce(tmp_path / "m", (1, "a", 1), (1, name, 2))))
    bench = Bench(tmp_path, manifest(announce(tmp_path / "m", (1, "a", 1), (2, "a", 1))))
    bench.run((1, "a", 0))
    announce(tmp_path / "m", (1, "a", 1), (2, "a", 1), (1, name, 2))
    for _ in range(2):
        with pytest.raises(PolicyError, match="STRANDLINE_MANIFEST_INVALID"):
            bench.run((2, "a", 1))
    announce(tmp_path / "m", (1, "a", 1), (2, "a", 1))
    bench.run((2, "a", 1))
    assert bench.frontier() == []


def test_a_growing_manifest_takes_back_a_name_that_no_partition_can_have(tmp_path: Path) -> None:
    schema = pa.schema([time_field("t", int64), ("p", pa.string()), ("expected", pa.int64())])
    announced = Channel.create(tmp_path / "m", schema, time="t", producers=["who"])

    def say(*rows: tuple[int, str, int]) -> None:
        with announced.producer("who") as producer:
            producer.send(pa.table({name: [row[i] for row in rows] for i, name in enumerate(schema.names)}))
            producer.delay([1])

    say((1, "a", 1), (1, "strandline:parked", 2))
    with pytest.raises(PolicyError, match="STRANDLINE_MANIFEST_INVALID.*add the negative count"):
        Bench(tmp_path, manifest(str(tmp_path / "m")))
    say((1, "strandline:parked", -2))
    bench = Bench(tmp_path, manifest(str(tmp_path / "m")))
    bench.run((1, "a", 0))
    say((5, "$x", 2))
    with pytest.raises(PolicyError, match="STRANDLINE_MANIFEST_INVALID"):
        bench.run()
    say((5, "$x", -2))
    with announced.producer("who") as producer:
        producer.drop()
    bench.run()
    assert bench.holds() == {"a": []}
    assert bench.frontier() == []


def test_a_policy_of_ones_own_names_partitions_that_can_be(tmp_path: Path) -> None:
    class Own(Ordered):
        def announced(self) -> list[str]:
            return ["strandline:corrections"]

    bench = Bench(tmp_path, Own())
    with pytest.raises(PolicyError, match="STRANDLINE_PARTITION_NAME_INVALID.*'strandline:corrections'"):
        bench.run((1, "a", 0))


def interrupted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch with two late rows, whose process ends before they are in the late table."""
    bench.run((9, "a", 0), (9, "b", 0))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LateTable, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            bench.run((1, "a", 1), (1, "b", 2))


@pytest.mark.parametrize("missing", ["none", "one", "all", "the table"])
def test_late_rows_of_a_query_that_is_gone_are_published_or_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    bench = Bench(tmp_path, ordered(), late_path=f"file://{tmp_path}/late/")
    path = bench.settings.path
    interrupted(bench, monkeypatch)
    ((query, late_path, rows),) = status(path).unpublished
    assert (query, late_path, rows) == ("q", str(tmp_path / "late"), 2)
    assert "2 late rows of query q are not yet in" in str(status(path))
    staged = sorted((tmp_path / "late" / "_staged").iterdir())
    assert len(staged) == 2
    for file in staged[: {"none": 0, "one": 1}.get(missing, 2)]:
        file.unlink()
    if missing == "the table":
        shutil.rmtree(tmp_path / "late")
    if missing == "none":
        assert give_up_late_rows(path, "q") is None
        assert publish_late_rows(path) == 0
        assert bench.late("n") == [(1,), (2,)]
    else:
        with pytest.raises(IngestError, match=r"STRANDLINE_LATE_FILE_MISSING.* late rows of query q .*give_up_late_rows"):
            publish_late_rows(path)
        give_up_late_rows(path, "q")
        if missing == "one":
            assert len(bench.late("n")) == 1
    assert status(path).unpublished == ()
    assert publish_late_rows(path) == 0
    other = Bench(tmp_path, ordered(), query="other", late_path=str(tmp_path / "late"), take_over=True)
    other.run((1, "a", 3))
    assert (3,) in other.late("n")


def test_one_late_table_is_one_however_its_path_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, ordered(), late_path=str(tmp_path / "late"))
    interrupted(bench, monkeypatch)
    monkeypatch.chdir(tmp_path)
    other = Bench(tmp_path, ordered(), query="other", late_path="late/", partitions=["c"])
    other.run((9, "c", 3))
    assert other.late("n") == [(1,), (2,)]


def test_each_late_table_of_a_query_is_readmitted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), corrections=True, late_path=str(tmp_path / "first"))
    path = bench.settings.path
    bench.run((9, "a", 0))
    bench.run((1, "a", 1))
    second = Bench(tmp_path, ordered(), corrections=True, late_path=str(tmp_path / "second"))
    second.batch = bench.batch
    second.run((2, "a", 2))
    assert readmit(path, str(tmp_path / "second")).rows == 1
    assert readmit(path, str(tmp_path / "first")).rows == 1
    for late in ("first", "second"):
        assert readmit(path, f"file://{tmp_path}/{late}/").rows == 0
    assert [row[2] for row in bench.rows()] == [1, 2, 0]


def test_rows_of_two_copies_of_a_late_table_come_in_once(tmp_path: Path) -> None:
    places = {name: str(tmp_path / name) for name in ("first", "copy", "moved")}
    bench = Bench(tmp_path, ordered(), corrections=True, late_path=places["first"])
    path = bench.settings.path
    bench.run((9, "a", 0))
    bench.run((1, "a", 1))
    shutil.copytree(places["first"], places["copy"])
    batch = bench.batch
    for n, name in enumerate(("copy", "first"), start=2):
        bench = Bench(tmp_path, ordered(), corrections=True, late_path=places[name])
        bench.batch = batch
        bench.run((n, "a", n))
        batch += 1
    assert readmit(path, places["first"]).rows == 2
    assert readmit(path, places["copy"]).rows == 1
    for name in ("first", "copy"):
        assert readmit(path, places[name]).rows == 0
    shutil.move(places["first"], places["moved"])
    bench = Bench(tmp_path, ordered(), corrections=True, late_path=places["moved"])
    bench.batch = batch
    bench.run((4, "a", 4))
    assert readmit(path, places["moved"]).rows == 1
    assert sorted(row[2] for row in bench.rows()) == [0, 1, 2, 3, 4]


def test_readmit_leaves_files_that_its_commit_may_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the answer is lost, or somebody presses Ctrl-C just then: the commit is there."""
    bench = Bench(tmp_path, ordered(), corrections=True)
    bench.run((9, "a", 0))
    bench.run((1, "a", 1))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Table, "checkpoint_if_due", killed)
        with pytest.raises(KeyboardInterrupt):
            readmit(bench.settings.path)
    assert sorted(row[2] for row in bench.rows()) == [0, 1]
    assert readmit(bench.settings.path).rows == 0


def test_readmit_takes_rows_of_its_own_channel_only(tmp_path: Path) -> None:
    for folder, query in (("a", "qa"), ("b", "qb")):
        bench = Bench(tmp_path / folder, ordered(), query=query, corrections=True, late_path=str(tmp_path / "late"))
        bench.run((9, "p", 0))
        bench.run((1, "p", 3), (2, "p", ord(folder)))
    for folder in ("a", "b"):
        path = str(tmp_path / folder / "channel")
        assert readmit(path, str(tmp_path / "late")).rows == 2
        assert sorted(row["n"] for row in Channel.open(path).read().to_pylist()) == [0, 3, ord(folder)]


def test_a_late_table_that_was_made_anew_under_a_running_query(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((9, "a", 0))
    bench.run((1, "a", 1))
    shutil.rmtree(bench.settings.late_path)
    bench.run((2, "a", 2))
    assert bench.late("n") == [(2,)]
    shutil.rmtree(bench.settings.late_path)
    other = Bench(tmp_path / "other", ordered(), query="other", late_path=bench.settings.late_path)
    other.run((9, "a", 0))
    for n in (3, 4, 5):
        bench.run((1, "a", n))
        other.run((1, "a", 10 * n))
    assert bench.late("n") == [(3,), (30,), (4,), (40,), (5,), (50,)]


@pytest.mark.parametrize("copied", [False, True])
def test_a_channel_and_its_late_table_move_and_are_copied_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    bench = Bench(tmp_path / "x", ordered())
    interrupted(bench, monkeypatch)
    (shutil.copytree if copied else shutil.move)(str(tmp_path / "x"), str(tmp_path / "y"))
    moved = Bench(tmp_path / "y", ordered())
    moved.batch = bench.batch + 1
    moved.run((2, "a", 3))
    assert moved.late("n") == [(1,), (2,), (3,)]
    if copied:
        assert bench.late("n") == []
        assert publish_late_rows(bench.settings.path) == 2
        assert bench.late("n") == [(1,), (2,)]


def test_late_rows_of_one_query_are_published_though_those_of_another_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Bench(tmp_path, ordered(), query="first", late_path=str(tmp_path / "1"), partitions=["a", "b", "c"])
    interrupted(first, monkeypatch)
    second = Bench(tmp_path, ordered(), query="second", late_path=str(tmp_path / "2"), partitions=["c"], take_over=True)
    second.run((99, "c", 0))
    with monkeypatch.context() as patch:
        patch.setattr(LateTable, "publish", lambda *_: None)
        second.run((1, "c", 7))
    shutil.rmtree(tmp_path / "1")
    with pytest.raises(IngestError, match="STRANDLINE_LATE_FILE_MISSING.*query first"):
        publish_late_rows(second.settings.path)
    assert second.late("n") == [(7,)]
    assert give_up_late_rows(second.settings.path, "first") is not None
    assert publish_late_rows(second.settings.path) == 0


def test_a_file_of_parked_rows_that_is_gone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), max_ahead=5)
    bench.run((1, "a", 0), (1, "b", 0))
    bench.run((50, "a", 1), (90, "a", 2))
    parcel, _ = parcels_from_json(bench.channel.producers[PARKED].state["parked"], int64)
    (tmp_path / "channel" / parcel.files[0].path).unlink()
    for _ in range(2):
        with pytest.raises(IngestError, match=r"STRANDLINE_PARKED_FILE_MISSING.*--take-over --forget-missing"):
            bench.run((100, "a", 3), (100, "b", 4))
        bench.restart()
    assert release_parked(bench.settings.path, take_over=True, forget_missing=True) is not None
    bench.run((100, "a", 3), (100, "b", 4))
    assert len(bench.rows()) == 5
    assert bench.frontier() == [100]


def test_what_a_channel_says_when_corrections_have_ended(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), corrections=True)
    bench.run((9, "a", 0))
    bench.run((1, "a", 1))
    end_corrections(bench.settings.path)
    with pytest.raises(IngestError, match="STRANDLINE_CORRECTIONS_UNSUPPORTED.*end_corrections was called"):
        readmit(bench.settings.path)


def test_parked_rows_of_another_machine_are_released_when_an_operator_says_that_it_is_gone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), max_ahead=5)
    bench.owner = WriterSession("q", "another-host", 1, 0.0)
    bench.run((1, "a", 0), (1, "b", 0))
    bench.run((50, "a", 1))
    with pytest.raises(ProducerError, match=r"STRANDLINE_PRODUCER_LIVE.*another-host.*strandline release-parked \S+ --take-over"):
        release_parked(bench.settings.path)
    assert bench.rows() == [(1, "a", 0), (1, "b", 0)]
    assert release_parked(bench.settings.path, take_over=True) is not None
    assert (50, "a", 1) in bench.rows()
    bench.run((60, "a", 2), (2, "b", 3))  # it was there after all, and goes on
    bench.run((60, "b", 4))
    bench.run((61, "b", 5))
    assert [row[2] for row in bench.rows()] == [0, 0, 3, 1, 2, 4, 5]
    assert bench.frontier() == [60]


def test_the_page_names_only_conditions_and_calls_that_there_are() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    packages = (ROOT / "python" / "strandline", ROOT / "connector" / "pyspark_strandline")
    code = "".join(path.read_text() for package in packages for path in package.rglob("*.py"))
    code += (ROOT / "jvm-shim/src/main/scala/strandline/spark/errors/Errors.scala").read_text()
    for condition in re.findall(r"`(STRANDLINE_\w+)`", page):
        assert f'"{condition}"' in code
    import strandline.ingest

    for call in re.findall(r"`(\w+)\(path[,)]", page):
        assert hasattr(strandline.ingest, call)


def test_what_would_drive_a_terminal_is_shown_as_escapes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    name = "JFK\x1b]0;owned\x07\r\n\u202etxt"
    bench.run((1, name, 0))
    said = str(status(bench.settings.path))
    assert r"JFK\x1b]0;owned\x07\r\n\u202etxt holds 1" in said
    with pytest.raises(IngestError) as caught:
        drop_partitions(bench.settings.path, [f"{name}?"])
    assert not set("\x1b\x07\r\u202e") & set(str(caught.value))
    assert str(IngestError("CONDITION", "a\ud800b\x1b")) == r"[CONDITION] a\ud800b\x1b"
