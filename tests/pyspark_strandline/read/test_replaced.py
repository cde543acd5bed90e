"""A table that is deleted and made anew under those who read and write it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.streaming.datasource import ReadAllAvailable

from helpers import make_channel, rows, say
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.several.inputs import Inputs
from pyspark_strandline.read.source import StreamReader
from pyspark_strandline.schema import spark_schema
from strandline.channel import Channel, LogError
from strandline.delta.storage import commit_name
from strandline.errors import StrandlineError
from strandline.time.domain import int64

NAMES = tuple(f"producer-{n:05}" for n in range(5000))


def made(path: Path, commits: int) -> Channel:
    shutil.rmtree(path, ignore_errors=True)
    channel = make_channel(path, producers=("a",))
    for n in range(commits):
        say(channel, "a", (n, n), then=[n + 1])
    return channel


@pytest.mark.parametrize("commits", [1, 5, 6, 9])
def test_no_row_of_another_table_is_taken_for_the_next(tmp_path: Path, commits: int) -> None:
    """The table of before had five; the new one is shorter, as long, or longer, and nobody passes over its first rows."""
    old = made(tmp_path / "in", 5)
    opened = Channel.open(old.path)
    options = ReadOptions.parse({"path": str(tmp_path / "in"), "startingVersion": "0"})
    reader = StreamReader(options, spark_schema(old.schema, old.time_column, old.domain))
    at = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    made(tmp_path / "in", commits)
    for read in (lambda: reader.latestOffset(at, ReadAllAvailable()), opened.refresh):
        with pytest.raises(LogError, match="STRANDLINE_CHANNEL_REPLACED"):
            read()
    fresh = StreamReader(options, spark_schema(old.schema, old.time_column, old.domain))
    with pytest.raises(Exception, match="STRANDLINE_CHECKPOINT_MISMATCH"):
        fresh.latestOffset(at, ReadAllAvailable())


def test_a_deleted_channel_ends_its_readers(tmp_path: Path) -> None:
    old = made(tmp_path / "in", 3)
    options = ReadOptions.parse({"path": str(tmp_path / "in"), "startingVersion": "0"})
    reader = StreamReader(options, spark_schema(old.schema, old.time_column, old.domain))
    at = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(at, ReadAllAvailable()) == at
    shutil.rmtree(tmp_path / "in")
    for read in (lambda: reader.latestOffset(at, ReadAllAvailable()), old.refresh):
        with pytest.raises(LogError, match="STRANDLINE_CHANNEL_REPLACED"):
            read()


@pytest.mark.drawn
@pytest.mark.parametrize("replaced", [0, 2])
@pytest.mark.parametrize("commits", [None, 5, 9])
def test_a_source_of_several_channels_finds_a_replaced_one_as_soon_as_it_has_looked_at_each(
    tmp_path: Path, commits: int | None, replaced: int
) -> None:
    """Where nothing comes, each look checks the newest commit of one channel. A commit of the other table is found at once."""
    paths = {f"c{at}": str(tmp_path / f"c{at}") for at in range(3)}
    for path in paths.values():
        made(Path(path), 5)
    options = ReadOptions.parse({"channels": json.dumps(paths)}).for_stream()
    reader = StreamReader(options, Inputs(options).schema())
    at = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    for _ in range(4):
        assert reader.latestOffset(at, ReadAllAvailable()) is at
    if commits is None:
        shutil.rmtree(paths[f"c{replaced}"])
    else:
        made(Path(paths[f"c{replaced}"]), commits)
    looks = 0
    with pytest.raises(LogError, match="STRANDLINE_CHANNEL_REPLACED"):
        while looks < 3:
            assert reader.latestOffset(at, ReadAllAvailable()) is at
            looks += 1
    assert not looks or commits != 9
    again = StreamReader(options, Inputs(options).schema()) if commits else None
    if again is not None:
        with pytest.raises(StrandlineError, match="STRANDLINE_CHECKPOINT_MISMATCH"):
            again.latestOffset(at, ReadAllAvailable())


@pytest.mark.parametrize("commits", [None, 0, 2, 3, 4, 7])
def test_a_producer_writes_nothing_into_another_table(tmp_path: Path, commits: int | None) -> None:
    """Its own table had four commits; another one is in its place, or none."""
    old = made(tmp_path / "in", 3)
    with old.producer("a") as producer:
        if commits is None:
            shutil.rmtree(tmp_path / "in")
        else:
            made(tmp_path / "in", commits)
        before = sorted((tmp_path / "in").rglob("*.json"))
        producer.delay([9])
        with pytest.raises(LogError, match="STRANDLINE_CHANNEL_REPLACED"):
            producer.commit()
        with pytest.raises(LogError, match="STRANDLINE_CHANNEL_REPLACED"):
            old.append([], statements={"a": [11]})
        assert sorted((tmp_path / "in").rglob("*.json")) == before
        producer.abort()
        with pytest.raises(LogError, match="STRANDLINE_CHANNEL_REPLACED"):
            producer.close()


def table(path: Path, newest: str) -> Channel:
    """A channel of very many producers, made anew, with this as its newest commit."""
    shutil.rmtree(path, ignore_errors=True)
    channel = make_channel(path, producers=NAMES)
    if newest == "properties":
        DeltaTable(channel.path).alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    elif newest == "maintenance":
        Path(channel.path, commit_name(1)).write_text(json.dumps({"commitInfo": {"timestamp": 0, "operation": "OPTIMIZE"}}))
    elif newest == "statements":
        channel.append([], statements={name: [1] for name in NAMES})
    return Channel.open(channel.path)


@pytest.mark.drawn
@pytest.mark.parametrize("newest", ["founding", "properties", "maintenance", "statements"])
def test_a_table_is_known_by_its_id_whatever_its_newest_commit_is(tmp_path: Path, newest: str) -> None:
    old = table(tmp_path / "in", newest)
    assert old.refresh() == []
    table(tmp_path / "in", newest)
    with pytest.raises(LogError, match="STRANDLINE_CHANNEL_REPLACED"):
        old.refresh()
    with pytest.raises(LogError, match="STRANDLINE_CHANNEL_REPLACED"):
        old.append([], statements={NAMES[0]: [11]})


@pytest.mark.parametrize("anew", [False, True])
def test_nobody_goes_on_in_a_table_whose_next_commits_name_no_table(tmp_path: Path, anew: bool) -> None:
    """A plain table that is longer, or a new channel that was optimized: the next commit has no statement."""
    old = made(tmp_path / "in", 2)
    options = ReadOptions.parse({"path": str(tmp_path / "in"), "startingVersion": "0"})
    reader = StreamReader(options, spark_schema(old.schema, old.time_column, old.domain))
    at = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    producer = old.producer("a")
    version = old.version
    if anew:
        new = made(tmp_path / "in", 0)
        for at_version in range(new.version + 1, version + 3):
            maintained = json.dumps({"commitInfo": {"timestamp": 0, "operation": "VACUUM START"}})
            Path(new.path, commit_name(at_version)).write_text(maintained)
    else:
        shutil.rmtree(tmp_path / "in")
        for n in range(version + 3):
            write_deltalake(str(tmp_path / "in"), pa.table({"time": [n], "key": ["k"], "n": [n]}), mode="append")
    before = DeltaTable(tmp_path / "in").version()
    producer.send(rows(int64, (9, 9)))
    for use in (lambda: reader.latestOffset(at, ReadAllAvailable()), producer.commit, old.refresh):
        with pytest.raises(LogError, match="STRANDLINE_CHANNEL_REPLACED"):
            use()
    assert DeltaTable(tmp_path / "in").version() == before
