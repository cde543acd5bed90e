"""`verify` of checkpoints of Delta's second kind: the files with their statistics are in sidecars, which a checkpoint names."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from helpers import make_channel, say, shared_session
from strandline.channel import Channel
from strandline.delta.storage import LOG_DIR, LocalStore
from strandline.errors import StorageError
from strandline.report import verify

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
Change = Callable[[list[dict[str, Any]]], None]
VERSION = pa.struct([("version", pa.int64())])
ENTRY = pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())])


def of_second_kind(path: Path, kind: str) -> tuple[Path, Path]:
    """Write a channel's checkpoint anew as Delta Spark writes those of the second kind. Returns its file and the sidecar."""
    log = path / LOG_DIR
    [whole] = log.glob("*.checkpoint.parquet")
    rows = pq.read_table(whole)
    is_file = pc.is_valid(rows.column("add"))
    sidecar = log / "_sidecars" / f"{UUID}.parquet"
    sidecar.parent.mkdir()
    pq.write_table(rows.filter(is_file).select(["add", "remove"]), sidecar)
    others = rows.filter(pc.invert(is_file)).drop_columns(["add", "remove", "sidecar"])
    main = log / f"{whole.name[:20]}.checkpoint.{UUID}.{kind}"
    entry = {"path": sidecar.name, "sizeInBytes": sidecar.stat().st_size, "modificationTime": 0}
    if kind == "json":
        others_rows = others.to_pylist(maps_as_pydicts="strict")
        actions = [{name: value for name, value in row.items() if value is not None} for row in others_rows]
        lines = [{"checkpointMetadata": {"version": int(whole.name[:20])}}, {"sidecar": entry}, *filter(None, actions)]
        main.write_text("\n".join(map(json.dumps, lines)))
    else:
        emptied = [*others.to_pylist(), dict.fromkeys(others.schema.names)]
        table = pa.Table.from_pylist(emptied, schema=others.schema)
        table = table.append_column("sidecar", pa.array([None] * others.num_rows + [entry], ENTRY))
        stated = pa.array([None] * others.num_rows + [{"version": int(whole.name[:20])}], VERSION)
        pq.write_table(table.append_column("checkpointMetadata", stated), main)
    whole.unlink()
    (log / "_last_checkpoint").unlink(missing_ok=True)
    return main, sidecar


def rewritten(main: Path, sidecar: Path, change: Change) -> None:
    """Change the adds of a sidecar, and the size that the checkpoint states."""
    table = pq.read_table(sidecar)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), sidecar)
    size = sidecar.stat().st_size
    if main.suffix == ".json":
        lines = [json.loads(line) for line in main.read_text().splitlines()]
        for line in lines:
            if "sidecar" in line:
                line["sidecar"]["sizeInBytes"] = size
        main.write_text("\n".join(map(json.dumps, lines)))
    else:
        named = pq.read_table(main)
        entries = [None if row is None else {**row, "sizeInBytes": size} for row in named.column("sidecar").to_pylist()]
        at = named.schema.get_field_index("sidecar")
        pq.write_table(named.set_column(at, "sidecar", pa.array(entries, ENTRY)), main)


def other_statistics(rows: list[dict[str, Any]]) -> None:
    rows[0]["add"]["stats"] = rows[0]["add"]["stats"].replace('"minValues":{"', '"minValues":{"x":1,"')


def other_size(rows: list[dict[str, Any]]) -> None:
    rows[0]["add"]["size"] += 1


def one_less(rows: list[dict[str, Any]]) -> None:
    del rows[0]


@pytest.fixture(params=["json", "parquet"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def channel(kind: str, tmp_path: Path) -> tuple[Path, Path, Path]:
    made = make_channel(tmp_path / "c", producers=("a",))
    for n in range(4):
        say(made, "a", (n, n), then=[n])
    made.checkpoint()
    return tmp_path / "c", *of_second_kind(tmp_path / "c", kind)


def test_a_sound_one_is_sound_and_may_stand_for_older_commits(channel: tuple[Path, Path, Path]) -> None:
    path, main, _ = channel
    assert verify(path).violation is None
    for file in (path / LOG_DIR).glob("*.json"):
        if len(file.name) == 25 and file.name < main.name[:20]:
            file.unlink()
    found = verify(path)
    assert (found.violation, found.rows) == (None, 4)


@pytest.mark.parametrize("change", [other_statistics, other_size, one_less])
def test_files_that_differ_are_found(change: Change, channel: tuple[Path, Path, Path]) -> None:
    path, main, sidecar = channel
    rewritten(main, sidecar, change)
    assert verify(path).violation is not None


@pytest.mark.parametrize("damage", ["gone", "cut", "empty", "another"])
def test_a_damaged_sidecar_is_found(damage: str, channel: tuple[Path, Path, Path]) -> None:
    path, main, sidecar = channel
    data = sidecar.read_bytes()
    if damage == "gone":
        sidecar.unlink()
    elif damage == "another":
        sidecar.write_bytes(main.read_bytes())
    else:
        sidecar.write_bytes(data[: len(data) // 2 if damage == "cut" else 0])
    assert verify(path).violation is not None


@pytest.mark.parametrize("kind", ["json"], indirect=True)
@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "7", "{}", "x", '{"sidecar": 3}', '{"sidecar": {"path": ".."}}', '{"add": {"path": 1}}', '{"txn": {}}'),
        *('{"sidecar": {"path": "x", "sizeInBytes": 1e999}}', '{"sidecar": {"path": "\\ud800", "sizeInBytes": 1}}'),
        *('{"checkpointMetadata": {"version": 4}}', '{"checkpointMetadata": {"version": 7}}'),  # twice, or another one
    ],
)
def test_a_damaged_file_of_text_is_found(text: str, channel: tuple[Path, Path, Path]) -> None:
    path, main, _ = channel
    main.write_text(f"{text}\n{main.read_text()}" if text else "")
    violation = verify(path).violation
    assert violation is not None
    made = Channel.open(path) if violation.condition != "STRANDLINE_TABLE_UNREADABLE" else None
    if made is None:  # nor is it sound where a newer checkpoint hides it from those who open the table
        (hidden := main.with_suffix(".hidden")).write_bytes(main.read_bytes())
        main.unlink()
        Channel.open(path).checkpoint()
        hidden.rename(main)
        assert verify(path).violation is not None


def test_a_checkpoint_that_does_not_say_its_version_is_found(channel: tuple[Path, Path, Path]) -> None:
    """Delta Spark does not read it, deltalake does."""
    path, main, _ = channel
    if main.suffix == ".json":
        main.write_text("\n".join(line for line in main.read_text().splitlines() if "checkpointMetadata" not in line))
    else:
        pq.write_table(pq.read_table(main).drop_columns(["checkpointMetadata"]), main)
    violation = verify(path).violation
    assert violation is not None
    assert violation.field.endswith("checkpointMetadata")


def test_a_sidecar_has_files_and_nothing_else(channel: tuple[Path, Path, Path]) -> None:
    path, main, sidecar = channel
    rows = pq.read_table(sidecar)
    txn = pa.array([{"appId": "x", "version": 3}] * rows.num_rows)
    pq.write_table(rows.append_column("txn", txn), sidecar)
    rewritten(main, sidecar, lambda rows: None)
    assert verify(path).violation is not None


def test_a_pipe_as_a_sidecar_is_refused_before_anything_waits_for_it(channel: tuple[Path, Path, Path]) -> None:
    path, _, sidecar = channel
    sidecar.unlink()
    os.mkfifo(sidecar)
    violation = verify(path).violation
    assert violation is not None
    assert violation.condition == "STRANDLINE_NOT_A_FILE"


def test_a_storage_that_fails_condemns_nothing(channel: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path, _, sidecar = channel
    opened = LocalStore.open_input

    def failing(store: LocalStore, name: str) -> pa.NativeFile:
        with store.errors("read", name):
            if name.endswith(sidecar.name):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return opened(store, name)

    monkeypatch.setattr(LocalStore, "open_input", failing)
    with pytest.raises(StorageError, match="STRANDLINE_STORAGE_FAILED"):
        verify(path)


@pytest.mark.drawn
@pytest.mark.spark
def test_those_of_delta_spark_are_sound_and_their_damages_are_found(kind: str, tmp_path: Path) -> None:
    made = make_channel(tmp_path / "c", producers=("a",))
    say(made, "a", (1, 1), then=[1])
    with shared_session(tmp_path / "spark") as spark:
        feature = "'delta.feature.v2Checkpoint'='supported', 'delta.checkpointPolicy'='v2'"
        spark.sql(f"ALTER TABLE delta.`{made.path}` SET TBLPROPERTIES ({feature})")
        spark.conf.set("spark.databricks.delta.checkpointV2.topLevelFileFormat", kind)
        deltas = spark._jvm.org.apache.spark.sql.delta.DeltaLog
        deltas.clearCache()
        none = spark._jvm.scala.Option.empty()
        log = deltas.forTable(spark._jsparkSession, made.path)
        log.checkpoint(log.update(False, none, none), none)
    say(made, "a", (2, 2), then=[2])
    found = verify(made.path)
    assert (found.violation, found.rows) == (None, 2)
    [main] = (tmp_path / "c" / LOG_DIR).glob(f"0*.checkpoint.*.{kind}")
    [sidecar] = (tmp_path / "c" / LOG_DIR / "_sidecars").glob("*.parquet")
    rewritten(main, sidecar, other_statistics)
    assert verify(made.path).violation is not None
