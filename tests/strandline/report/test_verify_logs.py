"""`verify` of long logs, of logs that are cleaned up meanwhile, and of times that Python's own dates do not have."""

from __future__ import annotations

import decimal
import json
import re
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from helpers import make_channel, say
from strandline.channel import Channel, StatementError
from strandline.channel.statements.checksum import with_checksum
from strandline.cli.__main__ import main
from strandline.delta.storage import LocalStore, commit_name
from strandline.report import verify
from strandline.report.soundness import verify as module
from strandline.time.arrow import time_field
from strandline.time.domain import int64


def test_a_log_that_is_cleaned_up_while_it_is_read_is_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    for n in range(4):
        say(channel, "a", (n, n), then=[n])
    real, left = LocalStore.read, [2]

    def read(self: LocalStore, path: str, limit: int) -> bytes | None:
        if path == commit_name(2) and limit > 1 and left:
            left.pop()
            Channel.open(tmp_path / "in").clean_log(timedelta(0))
        return real(self, path, limit)

    monkeypatch.setattr(LocalStore, "read", read)
    found = verify(tmp_path / "in")
    assert (found.violation, left) == (None, [])
    (tmp_path / "in" / commit_name(found.version)).write_text("")
    assert verify(tmp_path / "in").violation is not None


def test_statistics_of_a_file_are_parsed_once_however_many_checkpoints_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    for n in range(6):
        say(channel, "a", (n, n))
        channel.checkpoint()
    parsed: list[Any] = []
    real = module._statistics
    monkeypatch.setattr(module, "_statistics", lambda text: (parsed.append(text), real(text))[1])
    assert verify(tmp_path / "in").violation is None
    assert len(parsed) == len(set(parsed)) <= 12  # the log's text, and the checkpoint's


def test_each_checkpoint_is_compared_with_the_files_of_its_own_version(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    versions = []
    for n in range(3):
        say(channel, "a", (n, n))
        versions.append(channel.checkpoint())
    DeltaTable(channel.path).optimize.compact()
    channel = Channel.open(channel.path)
    versions.append(channel.checkpoint())
    assert verify(channel.path).violation is None
    log = tmp_path / "in" / "_delta_log"
    for earlier, later in pairwise(versions):
        file = log / f"{earlier:020d}.checkpoint.parquet"
        good = file.read_bytes()
        file.write_bytes((log / f"{later:020d}.checkpoint.parquet").read_bytes())
        violation = verify(channel.path).violation
        assert violation is not None
        assert (violation.version, violation.field) == (earlier, f"_delta_log/{file.name}, add")
        file.write_bytes(good)


def test_times_beyond_the_year_9999_are_compared_after_optimize(tmp_path: Path) -> None:
    far = pa.array([1 << 62, -(1 << 62)], pa.int64()).cast(pa.timestamp("us", "UTC"))
    kinds = {
        "at": far,
        "within": pa.array([{"at": None}, None], pa.struct([("at", far.type)])),
        "some": pa.array([[], None], pa.list_(far.type)),
    }
    schema = pa.schema([time_field("time", int64), *((name, array.type) for name, array in kinds.items())])
    channel = Channel.create(tmp_path / "in", schema, producers=["a"], at=0)
    with channel.producer("a") as a:
        for _ in range(2):
            a.send(pa.table({"time": [0, 0], **kinds}).cast(channel.schema))
            a.commit()
    DeltaTable(channel.path).optimize.compact()
    assert verify(channel.path).violation is None
    newest = tmp_path / "in" / commit_name(Channel.open(channel.path).version)
    assert json.loads(newest.read_text().splitlines()[0])  # OPTIMIZE made it


def split_checkpoint(folder: Path, version: int, parts: int) -> list[Path]:
    """Write a version's checkpoint anew as one of several parts, as Spark does, and remove it."""
    [whole] = folder.glob(f"{version:020d}.checkpoint.parquet")
    rows = pq.read_table(whole)
    step = -(-rows.num_rows // parts)
    made = [folder / f"{version:020d}.checkpoint.{n + 1:010d}.{parts:010d}.parquet" for n in range(parts)]
    for n, path in enumerate(made):
        pq.write_table(rows.slice(n * step, step), path)
    whole.unlink()
    return made


def test_a_checkpoint_of_several_parts_is_read_and_may_stand_for_older_commits(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "c", producers=("a",))
    for n in range(4):
        say(channel, "a", (n, n), then=[n])
    version = channel.checkpoint()
    log = tmp_path / "c" / "_delta_log"
    parts = split_checkpoint(log, version, 3)
    assert verify(channel.path).sound
    for old in range(3):
        (log / f"{old:020d}.json").unlink()
    found = verify(channel.path)
    assert (found.violation, found.rows) == (None, 4)
    added = next(path for path in parts if pq.read_table(path).column("add").null_count == 0)
    pq.write_table(pq.read_table(added).slice(0, 0), added)
    violation = verify(channel.path).violation
    assert violation is not None
    assert violation.field.endswith(", add")
    added.unlink()  # an incomplete checkpoint is none
    violation = verify(channel.path).violation
    assert violation is not None
    assert violation.field.startswith("_delta_log")


def test_a_hint_at_a_checkpoint_that_does_not_exist(tmp_path: Path) -> None:
    """Delta's kernel does not open such a table, though other readers do."""
    channel = make_channel(tmp_path / "c", producers=("a",))
    say(channel, "a", (1, 1))
    version = channel.checkpoint()
    hint = tmp_path / "c" / "_delta_log" / "_last_checkpoint"
    hint.write_text(json.dumps({"version": 9999, "size": 1}))
    violation = verify(channel.path).violation
    assert violation is not None
    assert (violation.field, violation.found) == ("_delta_log/_last_checkpoint", "version 9999")
    for text in ("garbage", json.dumps({"version": version}), "{}"):
        hint.write_text(text)
        assert verify(channel.path).sound


@pytest.mark.parametrize("whole", [True, False])
def test_a_channel_of_a_newer_release_is_refused_and_not_judged(whole: bool, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "c", producers=("a",))
    say(channel, "a", (1, 1))
    newest = tmp_path / "c" / commit_name(channel.version)
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    text = info["userMetadata"].replace('{"version":1,', '{"version":9,')
    assert text != info["userMetadata"]
    if whole:  # with its checksum, as a newer writer makes it
        commit = channel.log.read(channel.version)
        files = [(file.path, file.size, file.stats) for file in commit.files]
        text = with_checksum(re.sub(r',"sum":"[0-9a-f]*"', "", text), files, commit.transactions)
    info["userMetadata"] = text
    newest.write_text("".join(json.dumps(action) + "\n" for action in actions))
    if whole:
        with pytest.raises(StatementError, match="STRANDLINE_PROTOCOL_NEWER"):
            verify(channel.path)
        assert main(["verify", channel.path]) == 3
    else:  # a damage
        violation = verify(channel.path).violation
        assert violation is not None
        assert violation.field == "sum"


COLUMNS_ONLY = {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"}
COLUMNS_TOO = {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "true"}
OF_ALL_KINDS: dict[str, tuple[pa.DataType, Any, Any]] = {  # a type, a value, and a greatest value that hides it
    "x": (pa.float64(), 0.1, None),
    "y": (pa.float32(), 0.1, None),
    "d": (pa.decimal128(12, 2), decimal.Decimal("1.10"), decimal.Decimal("1.00")),
    "e": (pa.decimal128(12, 2), decimal.Decimal("1.50"), decimal.Decimal("1.49")),
    "t": (pa.timestamp("us", "UTC"), 1_234_567, 1_234_000),
    "u": (pa.timestamp("us"), -5, -1000),
    "s": (pa.string(), "é" * 50, "é"),
    "day": (pa.date32(), 20_000, 19_999),
    "st": (pa.struct([("v", pa.int32())]), {"v": 7}, {"v": 6}),
    "n": (pa.int64(), 7, 6),
}


def with_statistics_in_columns(path: Path, properties: dict[str, str], commits: int = 3) -> tuple[Channel, Path]:
    """A channel whose newest version has a checkpoint with statistics in columns."""
    schema = pa.schema([time_field("time", int64), *((name, kind) for name, (kind, _, _) in OF_ALL_KINDS.items())])
    channel = Channel.create(path, schema, producers=["a"], at=0)
    with channel.producer("a") as a:
        for at in range(1, commits + 1):
            values = {name: pa.array([value], kind) for name, (kind, value, _) in OF_ALL_KINDS.items()}
            a.send(pa.table({"time": [at], **values}, schema=channel.schema))
            a.delay(at + 1)
            a.commit()
    [metadata] = [json.loads(line) for line in (path / commit_name(0)).read_text().splitlines() if "metaData" in line[:12]]
    metadata["metaData"]["configuration"] |= properties
    info = {"commitInfo": {"timestamp": 1_800_000_000_000, "operation": "SET TBLPROPERTIES"}}
    altered = Channel.open(path).version + 1
    (path / commit_name(altered)).write_text(f"{json.dumps(info)}\n{json.dumps(metadata)}\n")
    version = Channel.open(path).checkpoint()
    [file] = (path / "_delta_log").glob(f"{version:020d}.checkpoint.parquet")
    assert "stats_parsed" in pq.read_table(file).schema.field("add").type.names
    return channel, file


def set_greatest(file: Path, name: str, value: Any) -> None:
    """Set the greatest value of a column in a checkpoint's statistics in columns."""
    whole = pq.read_table(file)

    def put(array: pa.StructArray, way: list[str]) -> pa.Array:
        if not way:
            kind = array.type
            return pa.array([value if array[i].is_valid or kind != pa.null() else None for i in range(len(array))], kind)
        fields = [put(array.field(f.name), way[1:]) if f.name == way[0] else array.field(f.name) for f in array.type]
        return pa.StructArray.from_arrays(fields, fields=list(array.type), mask=array.is_null())

    adds = put(whole.column("add").combine_chunks(), ["stats_parsed", "maxValues", name])
    pq.write_table(whole.set_column(whole.schema.get_field_index("add"), whole.schema.field("add"), adds), file)


@pytest.mark.drawn
@pytest.mark.parametrize("properties", [COLUMNS_ONLY, COLUMNS_TOO], ids=["columns only", "JSON too"])
@pytest.mark.parametrize("cleaned", [False, True])
def test_statistics_of_a_checkpoint_in_columns_are_compared(properties: dict[str, str], cleaned: bool, tmp_path: Path) -> None:
    channel, file = with_statistics_in_columns(tmp_path / "c", properties)
    if cleaned:  # nothing but the checkpoint states them
        for commit in range(int(file.name[:20])):
            (tmp_path / "c" / commit_name(commit)).unlink()
    found = verify(channel.path)
    assert (found.violation, found.files, found.unchecked) == (None, 3, ())
    good = file.read_bytes()
    for name, (_, _, wrong) in OF_ALL_KINDS.items():
        if wrong is None:
            continue
        set_greatest(file, name, wrong)
        violation = verify(channel.path).violation
        assert violation is not None, name
        assert "stats_parsed of part-" in violation.field
        assert f"maxValues.{name}" in violation.field
        file.write_bytes(good)
    assert verify(channel.path).sound
    DeltaTable(channel.path).optimize.compact()
    Channel.open(channel.path).checkpoint()
    assert verify(channel.path).violation is None
