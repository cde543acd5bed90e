"""Reading a Delta checkpoint directly: the files, the transactions and the table's id that it has."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.delta.data_file import DataFile
from strandline.delta.storage import LOG_DIR, Store
from strandline.delta.store_errors import native
from strandline.report.soundness.verification import violated

__all__ = ["CheckpointFile", "read_checkpoint"]


class CheckpointFile(NamedTuple):
    """The content of a checkpoint."""

    name: str
    files: list[DataFile]
    transactions: dict[str, int]
    ids: list[str]


def read_checkpoint(store: Store, version: int) -> CheckpointFile:
    """Read the checkpoint of one file at a version. A file that is no checkpoint is a violation."""
    name = f"{LOG_DIR}/{version:020d}.checkpoint.parquet"
    try:
        with native(store.location, store.options, threads=False), store.open_input(name) as source:
            rows = pq.read_table(source, columns=["add", "txn", "metaData"])
        found = {kind: [row for row in rows.column(kind).to_pylist() if row is not None] for kind in ("add", "txn", "metaData")}
        return CheckpointFile(
            name,
            [DataFile.from_add(row) for row in found["add"]],
            {row["appId"]: row["version"] for row in found["txn"]},
            [row["id"] for row in found["metaData"]],
        )
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        violated(version, name, (str(error).splitlines() or [type(error).__name__])[0], "a Delta checkpoint")
