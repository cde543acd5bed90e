"""Delta checkpoints: which there are, and reading one directly: the files, the transactions and the table's id that it has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.delta.data_file import DataFile
from strandline.delta.storage import LOG_DIR, Store
from strandline.delta.store_errors import native
from strandline.report.soundness.verification import violated

__all__ = ["CheckpointFile", "Checkpoints", "read_checkpoint"]

_ONE = re.compile(r"(\d{20})\.checkpoint\.parquet")
_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_V2 = re.compile(r"(\d{20})\.checkpoint\.[0-9a-f-]{36}\.(parquet|json)")


class Checkpoints:
    """The checkpoints among the names of a log's files. One of several parts counts when all of them are there.

    >>> parts = [f"{7:020d}.checkpoint.{n:010d}.{2:010d}.parquet" for n in (1, 2)]
    >>> found = Checkpoints([*parts, parts[0].replace("7", "8"), f"{9:020d}.checkpoint.parquet"])
    >>> {version: [len(names) for names in each] for version, each in found.readable.items()}, found.newest
    ({9: [1], 7: [2]}, 9)
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.readable: dict[int, list[list[str]]] = {}
        """By version, the names of the files of each checkpoint that can be read here: those of Delta's first kinds."""
        self.newest = -1
        """The newest version that has any checkpoint."""
        parts: dict[tuple[int, int], set[str]] = {}
        for name in names:
            if one := _ONE.fullmatch(name):
                self.readable.setdefault(int(one[1]), []).append([name])
            elif part := _PART.fullmatch(name):
                parts.setdefault((int(part[1]), int(part[3])), set()).add(name)
            elif v2 := _V2.fullmatch(name):
                self.newest = max(self.newest, int(v2[1]))
        for (version, whole), there in sorted(parts.items()):
            if len(there) == whole:
                self.readable.setdefault(version, []).append(sorted(there))
        self.newest = max(self.newest, *self.readable, -1)


class CheckpointFile(NamedTuple):
    """The content of a checkpoint."""

    name: str
    files: list[DataFile]
    transactions: dict[str, int]
    ids: list[str]


def read_checkpoint(store: Store, version: int, names: list[str]) -> CheckpointFile:
    """Read the checkpoint of a version from its files. A file that is no part of a checkpoint is a violation."""
    found = CheckpointFile(f"{LOG_DIR}/{names[0]}", [], {}, [])
    for name in names:
        path = f"{LOG_DIR}/{name}"
        try:
            with native(store.location, store.options, threads=False), store.open_input(path) as source:
                rows = pq.ParquetFile(source).read(
                    columns=["add.path", "add.size", "add.stats", "txn.appId", "txn.version", "metaData.id"]
                )
            adds = [dict(zip(("path", "size", "stats"), row, strict=True)) for row in _rows(rows, "add")]
            found.files.extend(map(DataFile.from_add, adds))
            found.transactions.update(dict(_rows(rows, "txn")))
            found.ids.extend(row[0] for row in _rows(rows, "metaData"))
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            violated(version, path, (str(error).splitlines() or [type(error).__name__])[0], "a Delta checkpoint")
    return found


def _rows(table: pa.Table, kind: str) -> Iterator[tuple[Any, ...]]:
    """Yield the fields of each action of a kind. Every checkpoint has all files, so they are read as columns."""
    column = table.column(kind).combine_chunks()
    return zip(*(field.to_pylist() for field in column.drop_null().flatten()), strict=True)
