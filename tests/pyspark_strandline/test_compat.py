"""Channels and checkpoints of earlier versions continue: each archive of ``tests/compat`` from where it was left."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

import compat
from helpers import contents, say
from pyspark_strandline import read_channels
from strandline.channel import Channel
from strandline.ingest import status

pytestmark = pytest.mark.spark

ARCHIVES, SEVERAL, PATHS = (sorted(compat.ARCHIVES.glob(f"*-{kind}.tar.gz")) for kind in compat.KINDS)


def version_of(path: Path) -> str:
    return path.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module", params=ARCHIVES, ids=version_of)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(request.param, tmp_path_factory.mktemp("compat"))


@pytest.fixture(scope="module", params=SEVERAL, ids=version_of)
def several(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(request.param, tmp_path_factory.mktemp("compat"))


def unpacked(path: Path, folder: Path) -> Path:
    with tarfile.open(path) as archive:
        if hasattr(tarfile, "data_filter"):  # the first releases of Python 3.10 and 3.11 have none
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)  # noqa: S202 - the archive is ours
    return folder


def test_there_is_an_archive_of_the_first_version() -> None:
    assert {"0.1-flat", "0.1-several", "0.1-paths"} <= set(map(version_of, ARCHIVES + SEVERAL + PATHS))


@pytest.mark.drawn
def test_queries_continue_from_their_checkpoints(spark: Any, story: Path) -> None:
    for name, emitted in compat.EMITTED_BEFORE.items():
        for store in compat.STORES:
            assert contents(story / f"{name}-{store}") == compat.RESULTS[name][:emitted]
    compat.write_rows(story, compat.AFTER)
    compat.run_queries(spark, story)
    for name, results in compat.RESULTS.items():
        for store in compat.STORES:
            assert contents(story / f"{name}-{store}") == results, (name, store)
            assert not Channel.open(story / f"{name}-{store}").frontier


def test_a_channel_of_many_producers_is_read_and_written_on(story: Path) -> None:
    channel = Channel.open(story / "many")
    assert {name: list(state.holds) for name, state in channel.producers.items()} == {
        f"p{i}": [i + 1] for i in range(compat.MANY)
    }
    assert [channel.producers[f"p{i}"].state for i in range(compat.MANY)] == [{"at": i} for i in range(compat.MANY)]
    say(channel, "p0", (1, 7), then=[9])
    assert Channel.open(story / "many").frontier == channel.frontier
    assert list(channel.frontier) == [2]


@pytest.mark.drawn
def test_an_ingest_continues(spark: Any, story: Path) -> None:
    assert status(str(story / "ingested")).aside == 1
    compat.land(story, ("x", 95), ("y", 55), ("x", 89))
    compat.run_ingest(spark, story)
    channel = Channel.open(story / "ingested")
    assert sorted(row["at"] for row in channel.read().to_pylist()) == [50, 55, 60, 95, 100]
    assert sorted(DeltaTable(story / "ingested_late").to_pandas()["at"]) == [80, 89]
    assert {name: list(state.holds) for name, state in channel.producers.items()} == {"x": [90], "y": [50]}


@pytest.mark.drawn
def test_queries_of_several_channels_continue_as_they_were(spark: Any, several: Path) -> None:
    """Each operator closes by the channels that lead to it. So the sums of one do not wait for the other."""
    for name, emitted in compat.SEVERAL_EMITTED_BEFORE.items():
        for store in compat.STORES:
            assert contents(several / f"{name}-{store}") == compat.SEVERAL_RESULTS[name][:emitted]
    say(Channel.open(several / "left"), "a", then=[5])
    compat.write_rows(several, {"right": {"a": ([], [4])}})
    compat.run_queries(spark, several, compat.SEVERAL)
    for store in compat.STORES:
        sums = several / f"sums-{store}"
        assert contents(sums) == compat.SEVERAL_RESULTS["sums"][:4]
        assert list(Channel.open(sums).frontier) == [5]
        newest = max((several / "checkpoints" / f"sums-{store}" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        assert "inputs" in json.loads(newest.read_text().splitlines()[2])
    compat.write_rows(several, compat.SEVERAL_AFTER)
    compat.run_queries(spark, several, compat.SEVERAL)
    for name, results in compat.SEVERAL_RESULTS.items():
        for store in compat.STORES:
            assert contents(several / f"{name}-{store}") == results, (name, store)
            assert not Channel.open(several / f"{name}-{store}").frontier


@pytest.mark.drawn
@pytest.mark.parametrize("archive", PATHS, ids=version_of)
def test_queries_whose_times_come_by_several_paths_continue_as_they_were(spark: Any, tmp_path: Path, archive: Path) -> None:
    """The plan of the state depends on which times are the same if all channels have one frontier."""
    folder = unpacked(archive, tmp_path)
    for name, emitted in compat.PATHS_EMITTED_BEFORE.items():
        for store in compat.STORES:
            assert contents(folder / f"{name}-{store}") == emitted
    compat.write_rows(folder, compat.SEVERAL_AFTER)
    compat.run_queries(spark, folder, compat.PATHS)
    for name, results in compat.PATHS_RESULTS.items():
        for store in compat.STORES:
            assert contents(folder / f"{name}-{store}") == results, (name, store)
            assert not Channel.open(folder / f"{name}-{store}").frontier


@pytest.mark.drawn
def test_an_output_of_several_channels_is_resumed_as_it_was(spark: Any, tmp_path: Path) -> None:
    """The checkpoint is lost."""
    folder = unpacked(compat.ARCHIVES / "0.1-several.tar.gz", tmp_path)

    def start(checkpoint: str, resume: bool) -> list[int]:
        out = folder / "sums-hdfs"
        options = {"resume": str(out)} if resume else {}
        streams = read_channels(spark, {name: str(folder / name) for name in compat.SEVERAL_BEFORE}, **options)
        rows = streams["left"].groupBy("time", "key").agg(F.sum("n").alias("n"))
        writer = rows.writeStream.format("strandline").option("checkpointLocation", str(folder / "checkpoints" / checkpoint))
        writer = writer.options(**({"resume": "stateful"} if resume else {}))
        writer.trigger(availableNow=True).start(str(out)).awaitTermination()
        return list(Channel.open(out).frontier)

    assert start("resumed", resume=True) == [5]
    compat.write_rows(folder, {"right": {"a": ([], [4])}})
    assert start("resumed", resume=False) == [5]
    assert start("again", resume=True) == [5]
    compat.write_rows(folder, compat.SEVERAL_AFTER)
    assert start("again", resume=False) == []
    assert contents(folder / "sums-hdfs") == compat.SEVERAL_RESULTS["sums"]
