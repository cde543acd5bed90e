"""The late table: a plain Delta table beside the channel, with every row that was set aside and why."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from strandline.channel import DataFile
from strandline.channel.fitting import different_columns
from strandline.channel.log import Log
from strandline.channel.stats import delta_stats
from strandline.channel.store import location_of
from strandline.channel.table import Table, create_table, stored_schema
from strandline.ingest.errors import IngestError

__all__ = ["STAGED", "LateTable", "Publication", "beside", "cancelled_since", "is_published", "is_table", "pending", "publish"]

STAGED = "_staged"
"""Where a batch's late files are, in the late table's folder: VACUUM passes over names that begin with an underscore."""
_KEY = "strandlineLate"
_PROPERTIES = {"delta.enableDeletionVectors": "false"}


@dataclass(frozen=True)
class Publication:
    """A batch's late files as the channel's commit names them. The commit alone decides that their rows are late.

    They are *published* when the late table has a commit with the Delta transaction (query, batch). ``replaces`` says that the
    table had rows of this batch already when the channel's commit was made, as an earlier release left them that wrote the late
    table first: those of the channel's commit take their place.
    """

    query: str
    batch: int
    files: tuple[DataFile, ...]
    replaces: bool = False

    @property
    def transaction(self) -> tuple[str, int]:
        """The late table's transaction that says that the files are published."""
        return (f"{self.query}:replaced" if self.replaces else self.query), self.batch

    @property
    def rows(self) -> int:
        """How many rows they have."""
        return sum(file.rows for file in self.files)

    def to_json(self) -> dict[str, Any]:
        """The form that the registrar's state carries."""
        body: dict[str, Any] = {"batch": self.batch, "files": [[file.path, file.size, file.rows] for file in self.files]}
        return {**body, "replaces": True} if self.replaces else body

    @classmethod
    def from_json(cls, query: str, value: Mapping[str, Any] | None) -> Publication | None:
        """Read what :meth:`to_json` wrote."""
        if not value:
            return None
        files = tuple(DataFile(path, size, rows) for path, size, rows in value["files"])
        return cls(query, value["batch"], files, value.get("replaces", False))


class LateTable:
    """An opened late table, and the way to add a batch's rows to it exactly once.

    Any engine may read it, OPTIMIZE it, delete rows that were dealt with. A batch is one commit, with the Delta transaction
    (query id, batch id). It is made after the channel's commit, which names the files: so it can be completed by whoever comes
    next, and a batch is here only if the channel has it.
    """

    def __init__(self, path: str, storage: Mapping[str, str] | None = None) -> None:
        self._table = Table(path, storage)
        self._version = self._table.loaded_version
        self._transactions: dict[str, int] = {}

    @classmethod
    def open_or_create(cls, path: str, schema: pa.Schema, storage: Mapping[str, str] | None = None) -> LateTable:
        """Open the table, or create it; raises :class:`IngestError` when it has other columns."""
        if not is_table(path, storage):
            log = Log(path, storage)
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

    def was_replaced(self) -> bool:
        """Whether another table, or none, is where this one was."""
        log = self._table.log
        first = log.read(0)
        return log.read(self._version) is None or (first is not None and (first.metadata or {}).get("id") != self._table.id)

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

    def published(self, publication: Publication) -> bool:
        """Whether a batch's rows are here."""
        application, batch = publication.transaction
        return self.committed(application) >= batch

    def publish(self, publication: Publication) -> int | None:
        """Commit a batch's rows; ``None`` when they are here already. Doing so twice, or by two at once, changes nothing.

        Raises :class:`IngestError` when a file is gone.
        """
        if self.published(publication):
            return None
        if publication.replaces:
            return self._replace(publication)
        files = [self._with_stats(file, publication.query) for file in publication.files]
        text = json.dumps({_KEY: {"query": publication.query, "batch": publication.batch}}, separators=(",", ":"))
        application, batch = publication.transaction
        while not self.published(publication):
            version = self._version + 1
            if self._table.commit(version, files, text, {application: batch}):
                self._version, self._transactions[application] = version, batch
                self._table.checkpoint_if_due(version)
                return version
        return None

    def _with_stats(self, file: DataFile, query: str) -> DataFile:
        """The file with Delta's statistics, which the channel's commit does not carry."""
        if file.stats is not None:
            return file
        try:
            with self._table.log.store.open_input(file.path) as source:
                stats = delta_stats(pq.read_metadata(source), self._table.schema)
        except FileNotFoundError as error:
            raise IngestError(
                "STRANDLINE_LATE_FILE_MISSING",
                f"The file {file.path!r} with {file.rows} late rows of query {query} is gone from {self._table.path}, and was "
                "not published yet.",
                "Put it back from a copy; or give_up_late_rows(path, query) publishes the others, and forgets these.",
            ) from error
        return DataFile(file.path, file.size, file.rows, json.dumps(stats, separators=(",", ":"), ensure_ascii=False))

    def _replace(self, publication: Publication) -> int | None:
        """Put the rows in the place of those that are here of the same batch, in one commit."""
        application, batch = publication.transaction
        rows = [self._table.schema.empty_table()]
        for file in publication.files:
            with self._table.log.store.open_input(file.path) as source:
                rows.append(pq.read_table(source).cast(self._table.schema))
        query = publication.query.replace("'", "''")
        write_deltalake(
            DeltaTable(self._table.log.store.location, storage_options=self._table.storage_options),
            pa.concat_tables(rows),
            mode="overwrite",
            predicate=f"_query = '{query}' AND _batch = {batch}",
            commit_properties=CommitProperties(app_transactions=[Transaction(application, batch)]),
        )
        self.take_up()
        return self._version


def beside(path: str) -> str:
    """Where the late table of a channel is, unless it is said otherwise.

    >>> beside("/lake/flights/")
    '/lake/flights_late'
    """
    return f"{location_of(path)}_late"


def pending(path: str, common: Mapping[str, Any]) -> Iterator[tuple[str, Publication]]:
    """What the registrar's state of the channel ``path`` names as late: of each query the newest, with the late table's path.

    A late table beside the channel is not named there, so that both may be moved and copied together.
    """
    for query, entry in common.items():
        publication = Publication.from_json(query, entry.get("pending")) if isinstance(entry, dict) else None
        if publication is not None:
            yield location_of(entry.get("late") or beside(path)), publication


def cancelled_since(known: Sequence[Any]) -> list[Any]:
    """What the registrar's state says of a query's cancelled rows: from which batch on which columns, by partition pattern, are
    true in them. An earlier release knew its newest policy's columns only.

    >>> cancelled_since([["*", "gone"]]), cancelled_since([[0, [["*", "gone"]]], [7, [["*", None]]]])
    ([[0, [['*', 'gone']]]], [[0, [['*', 'gone']]], [7, [['*', None]]]])
    """
    return [[0, list(known)]] if known and isinstance(known[0][0], str) else list(known)


def is_published(path: str, publication: Publication, storage: Mapping[str, str] | None) -> bool:
    """Whether a batch's rows are in the late table ``path``, which may not be there."""
    return is_table(path, storage) and LateTable(path, storage).published(publication)


def publish(path: str, publication: Publication, storage: Mapping[str, str] | None) -> int | None:
    """Publish a batch's rows in the late table ``path``, as :meth:`LateTable.publish` does, but not before there is one."""
    if not is_table(path, storage):
        raise IngestError(
            "STRANDLINE_LATE_FILE_MISSING",
            f"The late table {path} is gone, in which {publication.rows} late rows of query {publication.query} are to be.",
            "Put it back from a copy; or give_up_late_rows(path, query) forgets these rows.",
        )
    return LateTable(path, storage).publish(publication)


def is_table(path: str, storage: Mapping[str, str] | None) -> bool:
    """Whether there is a Delta table."""
    log = Log(path, storage)
    return bool(log.exists(0) or log.store.last_checkpoint())
