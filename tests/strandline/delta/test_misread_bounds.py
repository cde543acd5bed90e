"""Which checkpoints may have bounds of timestamps that deltalake misreads."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from strandline.delta.checks.misread_bounds import may_misread_timestamps
from strandline.delta.storage import open_store

MOMENT = datetime(9999, 12, 31, tzinfo=timezone.utc)


def written(path: Path, version: int, add: dict[str, Any], *, name: str = "", sidecar: bool = False, **options: Any) -> None:
    """A file with the name of a checkpoint, which has one file with these statistics."""
    entry = {"path": "x.parquet"} if sidecar else None
    rows = pa.table({"add": [{"path": "a", **add}], "sidecar": pa.array([entry], pa.struct([("path", pa.string())]))})
    pq.write_table(rows, path / "_delta_log" / f"{version:020d}.checkpoint.{name}parquet", **options)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for n in range(5):
        write_deltalake(tmp_path, pa.table({"at": [MOMENT], "n": [n]}), mode="append")
    return tmp_path


@pytest.mark.parametrize(
    ("add", "options", "misread"),
    [
        ({"stats": "{}"}, {}, False),
        ({"stats_parsed": {"maxValues": {"n": 3}}}, {}, False),
        ({"stats_parsed": {"maxValues": {"at": MOMENT}}}, {"use_deprecated_int96_timestamps": True}, True),
        ({"stats_parsed": {"maxValues": {"at": MOMENT}}}, {"coerce_timestamps": "us"}, True),
        ({"stats_parsed": {"maxValues": {"n": 3}}}, {"sidecar": True}, True),
        ({"stats_parsed": {"maxValues": {"n": 3}}}, {"name": "80a083e8-7026-4e79-81be-64bd76c43a11."}, True),
    ],
)
def test_only_timestamps_in_columns_are_misread(table: Path, add: dict[str, Any], options: dict[str, Any], misread: bool) -> None:
    written(table, 3, add, **options)
    store = open_store(str(table), None)
    assert [may_misread_timestamps(store, version) for version in (2, 3, 4)] == [False, misread, misread]


def test_a_checkpoint_that_cannot_be_read_may_have_any(table: Path) -> None:
    (table / "_delta_log" / f"{3:020d}.checkpoint.parquet").write_bytes(b"no Parquet")
    assert may_misread_timestamps(open_store(str(table), None), 3)


def test_a_checkpoint_of_deltalake_has_none(table: Path) -> None:
    DeltaTable(table).create_checkpoint()
    assert not may_misread_timestamps(open_store(str(table), None), 4)
