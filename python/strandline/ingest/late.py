"""The late table: a plain Delta table beside the channel, with every row that was set aside and why."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError

from strandline.channel import DataFile
from strandline.channel.fitting import different_columns
from strandline.channel.log import Commit, Log
from strandline.channel.table import Table, create_table, stored_schema
from strandline.ingest.errors import IngestError

__all__ = ["LateTable"]

_KEY = "strandlineLate"
_PROPERTIES = {"delta.enableDeletionVectors": "false"}


class LateTable:
    """An opened late table, and the way to add a batch's rows to it exactly once.

    Any engine may read it, OPTIMIZE it, delete rows that were dealt with. A batch is one commit, with the Delta transaction
    (query id, batch id), made before the channel's commit with the same one: whoever replays the batch skips what is there.
    """

    def __init__(self, path: str, storage: Mapping[str, str] | None = None) -> None:
        self._table = Table(path, storage)
        self._version = self._table.loaded_version
        self._transactions: dict[str, int] = {}

    @classmethod
    def open_or_create(cls, path: str, schema: pa.Schema, storage: Mapping[str, str] | None = None) -> LateTable:
        """Open the table, or create it; raises :class:`IngestError` when it has other columns."""
        log = Log(path, storage)
        if not (log.exists(0) or log.store.last_checkpoint()):
            try:
                create_table(log, schema, json.dumps({_KEY: {}}), _PROPERTIES, storage)
            except DeltaError:
                if not log.exists(0):
                    raise
        table = cls(path, storage)
        table.check(schema)
        return table

    def check(self, schema: pa.Schema) -> None:
        """Raise :class:`IngestError` unless rows of ``schema`` can be added."""
        different = different_columns(self._table.schema, stored_schema(schema))
        if different is not None:
            raise IngestError(
                "STRANDLINE_SCHEMA_MISMATCH",
                f"The late table {self._table.path} differs from the rows in the columns {different}.",
                "Give another latePath, or bring the columns in line.",
            )

    def take_up(self) -> None:
        """Look at the commits since the last time."""
        for commit in self._table.log.tail(self._version + 1):
            if commit.metadata_changed:
                self._table.load()
            self._transactions.update(commit.transactions)
            self._version = commit.version

    def committed(self, application: str) -> int:
        """The newest batch of a query that is here, -1 for none."""
        self.take_up()
        seen = self._transactions.get(application)
        if seen is None:
            found = self._table.transaction_version(application)
            seen = self._transactions[application] = -1 if found is None else found
        return seen

    def append(
        self, files: Sequence[DataFile], transaction: tuple[str, int], counts: Mapping[tuple[str | None, str], int]
    ) -> int | None:
        """Commit a batch's rows; ``None`` when there are none, or the batch is here already, with the same counts.

        Raises :class:`IngestError` when it is here with others: then what is late has changed since, and rows would be lost.
        """
        application, batch = transaction
        said = sorted(([partition, reason, n] for (partition, reason), n in counts.items()), key=lambda r: (r[0] or "", r[1]))
        text = json.dumps({_KEY: {"query": application, "batch": batch, "rows": said}}, separators=(",", ":"))
        while True:
            if self.committed(application) >= batch:
                self._check_same(application, batch, said)
                return None
            if not files:
                return None
            version = self._version + 1
            if self._table.commit(version, files, text, {application: batch}):
                self._version, self._transactions[application] = version, batch
                self._table.checkpoint_if_due(version)
                return version

    def _check_same(self, application: str, batch: int, said: list[list[Any]]) -> None:
        commit = self._find(application, batch)
        if commit is None:
            return  # cleaned away: an older batch than the newest, whose channel commit is certain
        try:
            rows = json.loads(commit.info.get("userMetadata", "{}")).get(_KEY, {}).get("rows")
        except (ValueError, AttributeError):
            rows = None
        if rows is not None and rows != said:
            raise IngestError(
                "STRANDLINE_REPLAY_DIFFERS",
                f"Batch {batch} is in the late table {self._table.path} already (version {commit.version}) with {_shown(rows)}, "
                f"but its replay sets aside {_shown(said)}.",
                "The source gave other rows, or somebody moved the partitions' capabilities in between: RESTORE the late table "
                f"to version {commit.version - 1} and start again.",
            )

    def _find(self, application: str, batch: int) -> Commit | None:
        for version in range(self._version, -1, -1):
            commit = self._table.log.read(version)
            if commit is None or commit.transactions.get(application, batch) < batch:
                return None
            if commit.transactions.get(application) == batch:
                return commit
        return None


def _shown(rows: list[list[Any]]) -> str:
    total = sum(n for *_, n in rows)
    some = ", ".join(f"{n} of {partition!r} ({reason})" for partition, reason, n in rows[:3])
    return f"{total} rows" + (f": {some}{', …' if len(rows) > 3 else ''}" if rows else "")
