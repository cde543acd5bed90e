"""`verify` of what other engines write: forms that Strandline does not write are sound, and damages of them are found."""

from __future__ import annotations

import json
import math
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

import strandline.channel.write.file_writer as file_writer
from helpers import make_channel, say, shared_session
from ingest_bench import Bench
from strandline.channel import Channel, ChannelError, WriterSession
from strandline.channel.statements.statement import Span
from strandline.cli.__main__ import main
from strandline.delta.storage import LOG_DIR, LocalStore, commit_name
from strandline.errors import StrandlineError, TimeDomainError
from strandline.ingest import ordered
from strandline.report import verify
from strandline.report.soundness.compacted_files import check_compacted
from strandline.time.antichain import Antichain
from strandline.time.arrow import array_of, time_field
from strandline.time.domain import int64, lex, product

KINDS = {
    "f64": (pa.float64(), [0.1, math.nan, -0.0, None]),
    "f32": (pa.float32(), [math.nan, 0.1, None, 3.4e38]),
    "ts": (pa.timestamp("us", "UTC"), [0, -1, 1, None]),
    "ntz": (pa.timestamp("us"), [0, -1, 999, None]),
    "lists": (
        pa.list_(pa.struct([("a", pa.float64()), ("t", pa.timestamp("us", "UTC"))])),
        [None, [], [{"a": math.nan, "t": 0}]],
    ),
    "map": (pa.map_(pa.string(), pa.list_(pa.float64())), [None, [], [("k", [1.0, math.nan, None])]]),
}


def filled(path: Path, **columns: tuple[pa.DataType, list[Any]]) -> Channel:
    schema = pa.schema([time_field("time", int64), *(pa.field(name, kind) for name, (kind, _) in columns.items())])
    channel = Channel.create(path, schema, producers=["a"], at=0)
    with channel.producer("a") as a:
        for at in range(1, 4):
            values = {name: [given[i % len(given)] for i in range(4)] for name, (_, given) in columns.items()}
            a.send(pa.table({"time": [at] * 4, **values}, schema=schema))
            a.delay(at + 1)
            a.commit()
    return channel


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with shared_session(tmp_path_factory.mktemp("spark")) as session:
        session.conf.set("spark.sql.codegen.wholeStage", "false")
        session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        yield session


@pytest.mark.drawn
@pytest.mark.spark
@pytest.mark.parametrize("timestamps", ["INT96", "TIMESTAMP_MICROS"])
def test_files_of_delta_spark_are_sound(timestamps: str, spark: Any, tmp_path: Path) -> None:
    """Its bounds have NaN, and times of the type INT96, which have no order. Other types are compared as before."""
    channel = filled(tmp_path / "c", **KINDS)
    spark.conf.set("spark.sql.parquet.outputTimestampType", timestamps)
    spark.sql(f"OPTIMIZE delta.`{channel.path}`")
    found = verify(channel.path)
    assert (found.violation, found.unchecked) == (None, ())
    named = [json.loads(line) for line in (tmp_path / "c" / commit_name(found.version)).read_text().splitlines()]
    [file] = [line["add"]["path"] for line in named if "add" in line]
    kinds = {pq.ParquetFile(tmp_path / "c" / file).metadata.schema.column(i).physical_type for i in range(8)}
    assert ("INT96" in kinds) is (timestamps == "INT96")


@pytest.mark.drawn
@pytest.mark.spark
def test_a_checkpoint_with_statistics_in_columns_only_is_sound(spark: Any, tmp_path: Path) -> None:
    channel = filled(tmp_path / "c", n=(pa.int64(), [1, None]))
    properties = "'delta.checkpoint.writeStatsAsJson'='false', 'delta.checkpoint.writeStatsAsStruct'='true'"
    spark.sql(f"ALTER TABLE delta.`{channel.path}` SET TBLPROPERTIES ({properties})")
    deltas = spark._jvm.org.apache.spark.sql.delta.DeltaLog
    deltas.clearCache()
    none = spark._jvm.scala.Option.empty()
    log = deltas.forTable(spark._jsparkSession, channel.path)
    log.checkpoint(log.update(False, none, none), none)
    assert verify(channel.path).violation is None


def test_a_row_group_of_nan_beside_one_of_numbers_is_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "ROW_GROUP_ROWS", 1000)
    schema = pa.schema([time_field("time", int64), pa.field("x", pa.float64())])
    channel = Channel.create(tmp_path / "c", schema, producers=["a"], at=0)
    with channel.producer("a") as a:
        a.send(pa.table({"time": [1] * 2000, "x": [math.nan] * 1000 + [1.0] * 1000}, schema=schema))
        a.delay(2)
    [file] = (tmp_path / "c").glob("*.parquet")
    assert pq.ParquetFile(file).metadata.num_row_groups == 2
    assert verify(channel.path).violation is None


@pytest.mark.parametrize("kind", [pa.null(), pa.list_(pa.null()), pa.struct([("x", pa.null()), ("y", pa.int64())])], ids=str)
def test_a_column_of_type_void_is_sound(kind: pa.DataType, tmp_path: Path) -> None:
    """It has only nulls, and Parquet does not count them."""
    channel = filled(tmp_path / "c", v=(kind, [None]), n=(pa.int64(), [1, None]))
    DeltaTable(channel.path).optimize.compact()
    channel = Channel.open(channel.path)
    channel.checkpoint()
    assert verify(channel.path).violation is None
    assert {row["v"] for row in channel.read().to_pylist()} == {None}


@pytest.mark.parametrize("rows", [1000, 80_000])
def test_rows_at_closed_times_are_found_however_many_times_there_are(rows: int, tmp_path: Path) -> None:
    channel = Channel.create(tmp_path / "c", pa.schema([time_field("time", int64)]), producers=["a"], at=0)
    owner = WriterSession.here("a")
    channel.append([], statements={"a": [1_000_000]}, owner=owner)
    for first in (1_000_000, 0):
        with channel.file_writer() as writer:
            times = array_of([*range(first, first + rows)], int64)
            writer.write(pa.Table.from_arrays([times], schema=channel.schema))
            files = writer.finish()[0]
        channel.append(files, statements={"a": [1_000_000]}, spans=[Span(1_000_000, 2_000_000, rows)], owner=owner)
        found = verify(channel.path).violation
        assert (found is None) is bool(first)
    assert found is not None
    assert (found.version, found.field) == (channel.version, "times")


def commit_of(channel: Channel, times: list[Any], spans: list[tuple[Any, Any, int]], named: list[tuple[Any, int]]) -> int:
    """Commit rows at times, with spans and named times that need not fit. Return the version."""
    with channel.file_writer() as writer:
        writer.write(pa.Table.from_arrays([array_of(times, channel.domain)], schema=channel.schema))
        files = writer.finish()[0]
    given = [Span(*span) for span in spans]
    holds = Antichain.least(channel.domain)
    channel.append(files, statements={"a": holds}, spans=given, times=named, owner=WriterSession.here("a"), most_times=1 << 16)
    return channel.version


@pytest.mark.parametrize(
    ("domain", "times", "spans", "named", "sound"),
    [
        (int64, [1, 2, 6], [(0, 4, 2), (5, 9, 1)], [], True),
        (int64, [1, 2, 6], [(0, 4, 1), (5, 9, 2)], [], False),
        (int64, [1, 2, 6], [(0, 9, 2), (5, 9, 1)], [], True),
        (int64, [1, 2, 6], [(0, 9, 1), (5, 9, 2)], [], False),
        (int64, [1, 5, 5, 5, 9], [(1, 5, 2), (5, 9, 2)], [(5, 1)], True),
        (int64, [1, 5, 5, 5, 9], [(1, 5, 1), (5, 9, 3)], [(5, 1)], True),
        (int64, [1, 5, 5, 5, 9], [(1, 4, 2), (5, 9, 2)], [(5, 1)], False),
        (int64, [1, 5, 9], [(1, 1, 1), (9, 9, 2)], [], False),
        (int64, [1, 1, 9], [(5, 9, 1)], [(1, 1), (9, 1)], False),
        (lex(tick="int64", i="int64"), [(1, 7), (2, 0)], [((1, 0), (1, 9), 1), ((2, 0), (2, 0), 1)], [], True),
        (lex(tick="int64", i="int64"), [(1, 7), (1, 8), (2, 0)], [((1, 0), (1, 9), 1), ((2, 0), (2, 0), 2)], [], False),
        (product(a="int64", b="int64"), [(1, 7), (2, 0)], [((1, 0), (1, 9), 1), ((2, 0), (2, 5), 1)], [], True),
        (product(a="int64", b="int64"), [(1, 7), (1, 8), (2, 0)], [((1, 0), (1, 9), 1), ((2, 0), (2, 5), 2)], [], False),
        (product(a="int64", b=lex(x="int64", y="int64")), [(1, (2, 7))], [((0, (0, 0)), (1, (3, 0)), 1)], [], True),
        (product(a="int64", b=lex(x="int64", y="int64")), [(1, (2, 7))], [((0, (0, 0)), (1, (2, 0)), 1)], [], False),
        (product(a="int64", b="int64"), [(1, 7), (2, 6)], [((1, 0), (1, 9), 1), ((2, 0), (2, 5), 1)], [], False),
    ],
)
def test_each_span_has_its_rows(
    tmp_path: Path, domain: Any, times: list[Any], spans: list[Any], named: list[Any], sound: bool
) -> None:
    channel = Channel.create(tmp_path / "c", pa.schema([time_field("time", domain)]), producers=["a"])
    version = commit_of(channel, times, spans, named)
    found = verify(channel.path)
    assert found.sound is sound, str(found)
    assert found.sound or (found.violation is not None and found.violation.version == version)


@pytest.mark.parametrize("domain", [int64, product(a="int64", b="int64")], ids=str)
def test_many_spans_are_checked_in_seconds(tmp_path: Path, domain: Any) -> None:
    count = 1 << (15 if domain is int64 else 12)
    channel = Channel.create(tmp_path / "c", pa.schema([time_field("time", domain)]), producers=["a"])
    ends = [at if domain is int64 else (at, at) for at in range(0, 4 * count, 2)]
    commit_of(channel, ends, [(low, high, 2) for low, high in zip(ends[::2], ends[1::2], strict=True)], [])
    began = time.process_time()
    assert verify(channel.path).sound
    assert time.process_time() - began < 15


def test_overlapping_spans_of_a_partial_order_are_counted_as_unchecked(tmp_path: Path) -> None:
    channel = Channel.create(tmp_path / "c", pa.schema([time_field("time", product(a="int64", b="int64"))]), producers=["a"])
    commit_of(channel, [(1, 1), (1, 1), (2, 2)], [((0, 0), (5, 5), 1), ((1, 1), (2, 2), 2)], [])
    found = verify(channel.path)
    assert found.sound
    assert ["spans" in each for each in found.unchecked] == [True]


def lines(channel: Channel, first: int, last: int) -> Iterator[dict[str, Any]]:
    for version in range(first, last + 1):
        for line in (Path(channel.path) / commit_name(version)).read_text().splitlines():
            action = json.loads(line)
            if "commitInfo" not in action:
                yield action


COMPACTED: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "whole": lambda actions: None,
    "a file is missing": lambda actions: actions.pop(next(i for i, action in enumerate(actions) if "add" in action)),
    "a file too many": lambda actions: actions.append({"add": {"path": "x.parquet", "size": 1, "partitionValues": {}}}),
    "another size": lambda actions: next(action["add"] for action in actions if "add" in action).update(size=1),
    "a file is removed": lambda actions: actions.append({"remove": {"path": actions[-1]["add"]["path"]}}),
    "a transaction too many": lambda actions: actions.append({"txn": {"appId": "q", "version": 7}}),
}


def first_add(**changes: Any) -> Callable[[list[dict[str, Any]]], Any]:
    return lambda actions: next(action["add"] for action in actions if "add" in action).update(changes)


def metadata(**changes: Any) -> Callable[[list[dict[str, Any]]], Any]:
    return lambda actions: next(action["metaData"] for action in actions if "metaData" in action).update(changes)


VECTOR = {"storageType": "u", "pathOrInlineDv": "x" * 20, "sizeInBytes": 1, "cardinality": 2}
COMPACTED |= {
    "another form": lambda actions: [action.get("add", {}).update(dataChange=False, tags={}) for action in actions],
    "a deletion vector": first_add(deletionVector=VECTOR),
    "a value of a partition": first_add(partitionValues={"n": "7"}),
    "another moment": first_add(modificationTime=7),
    "no moment": first_add(modificationTime=-5),
    "no statistics": first_add(stats=None),
    "a field too many": first_add(qtats=None),
    "a row id": first_add(baseRowId=7),
    "partition columns": metadata(partitionColumns=["n"]),
    "another format": metadata(format={"provider": "csv"}),
    "a name": metadata(name="flights"),
    "another creation": metadata(createdTime=7),
    "an unknown action": lambda actions: actions.append({"foo": {"x": 1}}),
    "a domain": lambda actions: actions.append({"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}}),
    "an action twice": lambda actions: actions.append(actions[-1]),
    "no action": lambda actions: actions.append(7),
    "a path that is no text": lambda actions: actions.append({"add": {"path": ["x"], "size": {}}}),
    "no path": lambda actions: actions.append({"remove": {"path": ""}}),
    "half a character": lambda actions: actions.append({"add": {"path": "\ud800", "size": 1}}),
    "a transaction of nobody": lambda actions: actions.append({"txn": {"appId": ["q"], "version": 1}}),
    "features that are no list": lambda actions: next(a["protocol"] for a in actions if "protocol" in a).update(readerFeatures=7),
    "features that are no texts": lambda actions: next(a["protocol"] for a in actions if "protocol" in a).update(
        readerFeatures=["a", 7]
    ),
}
SOUND = ("whole", "another form")


@pytest.mark.drawn
@pytest.mark.parametrize("damage", COMPACTED)
def test_a_compacted_log_is_compared_with_its_commits(damage: str, tmp_path: Path) -> None:
    channel = filled(tmp_path / "c", n=(pa.int64(), [1]))
    actions = [*lines(channel, 0, 4)]
    COMPACTED[damage](actions)
    file = tmp_path / "c" / LOG_DIR / f"{0:020d}.{4:020d}.compacted.json"
    file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    found = verify(channel.path).violation
    assert (found is None) is (damage in SOUND), found
    assert found is None or (found.version == 4 and file.name in found.field)


@pytest.mark.parametrize("data", [b"", b"[" * 100_000, b'{"add": {"size": ' + b"9" * 5000 + b"}}", b"\xff\xfe{}"])
def test_a_compacted_log_that_is_no_log(data: bytes, tmp_path: Path) -> None:
    channel = filled(tmp_path / "c", n=(pa.int64(), [1]))
    file = tmp_path / "c" / LOG_DIR / f"{0:020d}.{4:020d}.compacted.json"
    file.write_bytes(data)
    found = verify(channel.path).violation
    assert found is not None
    assert file.name in found.field


def test_a_compacted_log_of_files_that_were_removed(tmp_path: Path) -> None:
    channel = filled(tmp_path / "c", n=(pa.int64(), [1]))
    DeltaTable(channel.path).optimize.compact()
    newest = channel.log.latest()
    for first, sound in ((1, False), (newest, False)):
        file = tmp_path / "c" / LOG_DIR / f"{first:020d}.{newest:020d}.compacted.json"
        kept = [action for action in lines(channel, newest, newest) if "add" in action]
        file.write_text("".join(json.dumps(action) + "\n" for action in kept))
        assert (verify(channel.path).violation is None) is (sound or first == 1)
        kept = [action for action in lines(channel, newest, newest) if "add" in action or "remove" in action]
        file.write_text("".join(json.dumps(action) + "\n" for action in kept))
        assert verify(channel.path).violation is None
        file.unlink()


@pytest.mark.parametrize("name", [f"{2:020d}.crc", f"{1:020d}.{2:020d}.compacted.json"])
def test_a_folder_in_the_place_of_a_file_of_the_log_is_found(name: str, tmp_path: Path) -> None:
    channel = filled(tmp_path / "c", n=(pa.int64(), [1]))
    (tmp_path / "c" / LOG_DIR / name).mkdir()
    found = verify(channel.path).violation
    assert found is not None
    assert name in found.field


def test_a_key_that_is_twice_in_an_action_is_found(tmp_path: Path) -> None:
    channel = filled(tmp_path / "c", n=(pa.int64(), [1]))
    file = tmp_path / "c" / commit_name(2)
    file.write_text(file.read_text().replace('"dataChange":true', '"dataChange":true,"dataChange":true', 1))
    found = verify(channel.path).violation
    assert found is not None
    assert "the key 'dataChange' is there twice" in found.found


def test_a_plain_delta_table_is_no_channel(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), pa.table({"n": [1]}))
    with pytest.raises(TimeDomainError, match="A plain Delta table is not a channel"):
        verify(tmp_path / "t")


def test_a_channel_that_changes_too_quickly_is_not_said_to_be_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time that a file is to be read, somebody has rewritten it, and vacuumed."""
    channel = make_channel(tmp_path / "c", producers=("a",))
    say(channel, "a", (0, 0), then=[1])
    real, left = LocalStore.size, [100]

    def size(self: LocalStore, path: str) -> int | None:
        if path.endswith(".parquet") and not path.startswith("_") and real(self, path) is not None and left[0]:
            left[0] -= 1
            channel.refresh()
            say(channel, "a", (channel.version, 0), then=[channel.version])
            table = DeltaTable(channel.path)
            table.optimize.compact()
            table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        return real(self, path)

    monkeypatch.setattr(LocalStore, "size", size)
    with pytest.raises(ChannelError, match="STRANDLINE_CHANNEL_CHANGES.*could not be verified: it changes too quickly"):
        verify(channel.path)
    assert left[0] > 0
    monkeypatch.undo()
    assert verify(channel.path).violation is None


def test_commits_whose_files_were_vacuumed_are_counted_as_unchecked(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "c", producers=("a",))
    for n in (1, 2):
        say(channel, "a", (n, n), then=[n + 1])
    written = [commit.version for commit in channel.log.tail(1) if commit.files]
    table = DeltaTable(channel.path)
    table.optimize.compact()
    compacted = table.version()
    assert verify(channel.path).unchecked == ()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    found = verify(channel.path)
    assert found.sound
    assert [each.partition(":")[0] for each in found.unchecked] == [f"version {n}" for n in (*written, compacted)]


@pytest.mark.drawn("core")
def test_a_compacted_log_of_commits_that_were_cleaned_up(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "c", producers=("a",))
    for n in range(150):
        say(channel, "a", (n, n), then=[n + 1])
    log = tmp_path / "c" / LOG_DIR
    ranges = {"below": (1, 10), "at the cut": (20, channel.version), "above": (channel.version - 1, channel.version)}
    files = {what: log / f"{first:020d}.{last:020d}.compacted.json" for what, (first, last) in ranges.items()}
    for what, file in files.items():
        file.write_text("".join(json.dumps(action) + "\n" for action in lines(channel, *ranges[what])))
    assert verify(channel.path).violation is None
    kept = {what: file.read_bytes() for what, file in files.items()}
    assert Channel.open(channel.path).clean_log(timedelta(0)) > 20
    first = Channel.open(channel.path).log.earliest()
    assert 20 < first <= ranges["above"][0]
    assert [what for what, file in files.items() if file.exists()] == ["above"]
    for what, file in files.items():  # an earlier release leaves them, and so do other engines
        file.write_bytes(kept[what])
    found = verify(channel.path)
    assert (found.violation, found.rows) == (None, 150)
    beyond = log / f"{channel.version:020d}.{channel.version + 9:020d}.compacted.json"
    beyond.write_bytes(kept["above"])
    violation = verify(channel.path).violation
    assert violation is not None
    assert beyond.name in violation.field


def test_a_damage_of_a_channel_that_is_being_written_is_said(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), max_ahead=5)
    bench.run((1, "A", 1), (1, "B", 1))
    bench.run((2, "A", 1), (90, "A", 2), (2, "B", 1))
    joined = {Path(file.path).name for file in bench.channel.snapshot_files(bench.channel.version)}
    for parked in (Path(bench.settings.path) / "_ahead").glob("*.parquet"):
        if parked.name not in joined:
            parked.unlink()
    bench.channel.register(["live"], [3])
    times = iter(range(4, 1000))
    with bench.channel.producer("live", owner="live") as live:

        def commit(*_: object) -> None:
            live.delay([next(times)])
            live.commit()

        found = verify(bench.settings.path, progress=commit).violation
    assert found is not None
    assert found.field.startswith("_ahead/")
    assert (found.found, found.condition) == ("no file", "STRANDLINE_PARKED_FILE_MISSING")


@pytest.mark.parametrize("known", [True, False])
def test_a_data_file_of_the_newest_version_that_is_gone_is_named_with_the_condition_of_readers(
    known: bool, tmp_path: Path
) -> None:
    channel = filled(tmp_path / "c", n=(pa.int64(), [1]))
    if not known:  # its commit was cleaned up
        DeltaTable(channel.path).create_checkpoint()
        for version in range(channel.version):
            (tmp_path / "c" / commit_name(version)).unlink()
    (tmp_path / "c" / channel.snapshot_files()[0].path).unlink()
    found = verify(channel.path).violation
    assert found is not None
    assert (found.found, found.condition) == ("no file", "STRANDLINE_DATA_FILE_MISSING")


@pytest.mark.parametrize("reads", [1, 2, 3])
def test_a_file_that_vacuum_removes_between_two_reads_of_it(reads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = filled(tmp_path / "c", n=(pa.int64(), [1]))
    DeltaTable(channel.path).optimize.compact()
    real, left = LocalStore.open_input, [reads]

    def open_input(self: LocalStore, path: str) -> pa.NativeFile:
        if path.endswith(".parquet") and not path.startswith("_"):
            left[0] -= 1
            if left[0] == 0:
                (tmp_path / "c" / path).unlink()  # as engines do it that make no commit for it
        return real(self, path)

    monkeypatch.setattr(LocalStore, "open_input", open_input)
    found = verify(channel.path)
    assert left[0] < 0
    assert (found.violation, found.files) == (None, 3)


@pytest.mark.parametrize("kept", ["zeros", "nothing", "blanks", "no JSON", "only the protocol"])
def test_damages_of_the_only_commit_of_a_channel(kept: str, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "c", producers=("a",))
    file = tmp_path / "c" / commit_name(0)
    data = file.read_bytes()
    protocol = b"".join(line for line in data.splitlines(keepends=True) if line.startswith(b'{"protocol"'))
    damages = {"zeros": bytes(len(data)), "nothing": b"", "blanks": b" " * len(data), "no JSON": b"x" * len(data)}
    file.write_bytes(damages.get(kept, protocol))
    assert protocol
    assert verify(channel.path).violation is not None
    assert main(["verify", channel.path]) == 1


def test_a_table_with_features_that_are_not_supported_is_refused_and_not_judged(tmp_path: Path) -> None:
    channel = filled(tmp_path / "c", n=(pa.int64(), [1]))
    [add] = [action["add"] for action in lines(channel, 4, 4) if "add" in action]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking", "domainMetadata"]}
    rows = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":3}', "removed": False}
    actions = [
        {"commitInfo": {"timestamp": 1_800_000_000_000, "operation": "ROW TRACKING BACKFILL"}},
        {"protocol": protocol},
        {"domainMetadata": rows},
        {"add": {**add, "dataChange": False, "baseRowId": 0, "defaultRowCommitVersion": 4}},
    ]
    newest = tmp_path / "c" / commit_name(channel.version + 1)
    newest.write_text("".join(json.dumps(action) + "\n" for action in actions))
    with pytest.raises(ChannelError, match="STRANDLINE_TABLE_FEATURE"):
        verify(channel.path)
    assert main(["verify", channel.path]) == 3


def test_a_compacted_log_takes_no_more_memory_than_a_few_of_its_commits(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "c", producers=("a",))
    for n in range(1, 41):
        state = {"a": {"note": f"{n} {'x' * 100_000}"}}
        channel.append([], statements={"a": [n]}, owner=WriterSession.here("w"), states=state)
    DeltaTable(channel.path).compact_logs(0, 40)
    tracemalloc.start()
    try:
        check_compacted(channel.log, 0, 40)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 << 20


def test_a_table_of_another_kind_is_refused_whatever_its_rows_say(tmp_path: Path) -> None:
    path = tmp_path / "strandline-lake" / "t"  # which deltalake's commit 0 tells, if the table is created
    path.parent.mkdir()
    DeltaTable.create(str(path), Schema.from_arrow(pa.schema([("strandline", pa.string())])), name="strandline's sites")
    write_deltalake(path, pa.table({"strandline": ["https://strandline.example"]}), mode="append")
    DeltaTable(path).delete("strandline = 'strandline'")
    with pytest.raises(StrandlineError, match="STRANDLINE_TIME_DOMAIN_MISSING"):
        verify(path)


def test_a_table_of_another_kind_is_refused_also_if_a_commit_is_torn(tmp_path: Path) -> None:
    for n in range(3):
        write_deltalake(tmp_path, pa.table({"n": [n]}), mode="append")
    torn = tmp_path / commit_name(1)
    torn.write_bytes(torn.read_bytes()[:-30])
    with pytest.raises(StrandlineError, match="STRANDLINE_TABLE_UNREADABLE"):
        verify(tmp_path)


def test_a_channel_whose_only_commit_is_torn_is_judged(tmp_path: Path) -> None:
    path = Path(Channel.create(tmp_path / "c", pa.schema([time_field("time", int64)]), producers=["a"], at=0).path)
    founding = path / commit_name(0)
    whole = founding.read_bytes()
    for left in (whole[:-30], whole[:20], b"", b"{}"):
        founding.write_bytes(left)
        assert not verify(path).sound
