"""The late table: a plain Delta table beside the channel, with every row that was set aside and the reason."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from strandline.channel import Channel, DataFile
from strandline.delta.file_stats import stats_text
from strandline.delta.log import DeltaCommit, DeltaLog
from strandline.delta.storage import Store, inside, location_of, open_store, storage_of
from strandline.delta.store_errors import native
from strandline.delta.table import Table, add_columns, create_table, different_columns, stored_schema
from strandline.ingest.late import errors
from strandline.ingest.late.looked_at import LookedAt
from strandline.ingest.names import late_path_beside
from strandline.ingest.state.query_entry import PendingState
from strandline.ingest.state.registrar_state import RegistrarState

__all__ = [
    "STAGED",
    "LateTable",
    "Publication",
    "assignment_of",
    "begins_with",
    "check_storage",
    "is_published",
    "missing",
    "pending",
    "publish",
    "with_all_columns",
]

STAGED = "_staged"
"""The folder of a batch's late files, in the late table's folder. VACUUM skips names that begin with an underscore."""
_KEY = "strandlineLate"
_PROPERTIES = {"delta.enableDeletionVectors": "false"}


@dataclass(frozen=True)
class Publication:
    """A batch's late files as the channel's commit names them. The commit alone decides that their rows are late.

    They are *published* when the late table has a commit with :attr:`transaction`. ``channel`` is the channel's Delta id.
    ``before`` is the newest earlier batch that had late rows, -1 for none. ``named_in`` is the channel's path, for errors.
    """

    query: str
    batch: int
    files: tuple[DataFile, ...]
    before: int
    channel: str = ""
    named_in: str = ""

    @property
    def transaction(self) -> tuple[str, int]:
        """The late table's transaction that states that the files are published."""
        return f"{self.query}@{self.channel}", self.batch

    @property
    def rows(self) -> int:
        """How many rows the files have."""
        return sum(file.rows for file in self.files)

    @property
    def state(self) -> PendingState:
        """What the registrar's state says of it."""
        files = [[file.path, file.size, file.rows] for file in self.files]
        return PendingState().changed(batch=self.batch, files=files, before=self.before)

    @classmethod
    def of(cls, query: str, state: PendingState, channel: Channel) -> Publication:
        """Return what a registrar's state says of a query."""
        files = tuple(DataFile(path, size, rows) for path, size, rows in state.files)
        return cls(query, state.batch, files, state.before, channel.table_id, channel.path)


def _check_staged(publication: Publication) -> None:
    """Raise :class:`ChannelError` when a log names files as late that are not staged, such as a table's own files."""
    for file in publication.files:
        if not inside(file.path).startswith(f"{STAGED}/"):
            raise errors.path_outside_table_late(file.path, publication.query, STAGED)


class LateTable:
    """An opened late table, and the way to add a batch's rows to it exactly once.

    Any engine may read the table, OPTIMIZE it, and delete rows that were dealt with. A batch is one commit, with a Delta
    transaction that names query, channel and batch. This commit follows the channel's commit, which names the files. So any later
    writer can complete it, and a batch is here only if the channel has it.

    Rows are distinguished by query and batch, so the rows of one query belong to one channel. A separate transaction
    (:func:`assignment_of`) states which channel, and is committed before the channel's commit.
    """

    def __init__(self, path: str, storage: Mapping[str, str] | None = None) -> None:
        self._table = Table(path, storage)
        self._version = self._table.loaded_version
        self._transactions: dict[str, int] = {}

    @classmethod
    def open_or_create(
        cls, path: str, schema: pa.Schema, storage: Mapping[str, str] | None = None, *, merges: bool = False
    ) -> LateTable:
        """Open the table, or create it.

        Args:
            path: The table's path.
            schema: The columns of the rows.
            storage: The options of the storage.
            merges: Whether the table and the rows may lack columns of each other.

        Raises:
            IngestError: The table has other columns.
        """
        if not is_table(path, storage):
            log = DeltaLog[DeltaCommit](path, storage)
            try:
                create_table(log, schema, _metadata_text(), _PROPERTIES, storage)
            except DeltaError:
                if not log.exists(0):
                    raise
        table = cls(path, storage)
        table.check(schema, merges=merges)
        return table

    def check(self, schema: pa.Schema, *, merges: bool = False) -> None:
        """Raise :class:`IngestError` unless rows of ``schema`` can be added, or, with ``merges``, their columns too."""
        have, want = self._table.schema, stored_schema(schema)
        if merges:
            folded = {name.lower(): name for name in have.names}
            known = [(field, folded[field.name.lower()]) for field in want if field.name.lower() in folded]
            have = pa.schema([have.field(name) for _, name in known])
            want = pa.schema([field for field, _ in known])
        different = different_columns(have, want)
        if different is not None:
            raise errors.schema_mismatch_late_table(self._table.path, different)

    def add_columns(self, schema: pa.Schema) -> None:
        """Add the columns of ``schema`` that the table lacks, after the others."""
        while not set(self._table.schema.names).issuperset(schema.names):
            self.update()
            new = [field for field in stored_schema(schema) if field.name not in self._table.schema.names]
            if not new:
                return
            self.check(schema, merges=True)
            with suppress(CommitFailedError):  # another commit came first, so look again whether the columns are there
                add_columns(self._table.log, new, self._table.storage_options)

    def was_replaced(self) -> bool:
        """Return whether another table, or none, is now where this one was."""
        log = self._table.log
        first = log.read(0)
        return log.read(self._version) is None or (first is not None and (first.metadata or {}).get("id") != self._table.id)

    def update(self) -> None:
        """Read the commits since the last time."""
        for commit in self._table.log.tail(self._version + 1):
            if commit.metadata_changed:
                self._table.load()
            self._transactions.update(commit.transactions)
            self._version = commit.version

    def committed(self, application: str) -> int:
        """Return the newest version of an application's transactions, -1 for none."""
        self.update()
        return self._known(application)

    def _known(self, application: str) -> int:
        """Return :meth:`committed`, as of the commits that were read so far."""
        seen = self._transactions.get(application)
        if seen is None:
            found = self._table.transaction_version(application)
            seen = self._transactions[application] = -1 if found is None else found
        return seen

    def assign_query(self, query: str, channel: Channel) -> tuple[int, int]:
        """Assign the rows of a query in this table to one channel, before a batch is committed to that channel.

        Raises :class:`IngestError` when the rows of the query belong to another channel's query. A batch is published after the
        channel's commit, so a batch that is here, but not in this channel, reveals a copy of the channel.

        Returns:
            The newest batch that is published here. The newest batch that was published here when the batch before it was not
            (-1 for none).
        """
        application, version = assignment_of(query, channel.table_id)
        self.check_not_beyond(query, channel)
        while self._known(application) != version:
            self.update()
            if self._known(application) not in (-1, version):
                raise errors.late_table_shared(self._table.path, query)
            self._commit([], _metadata_text(query=query, channel=channel.table_id), {application: version})
        return self.newest_of(query, channel), self._known(begins_with(query, channel.table_id))

    def newest_of(self, query: str, channel: Channel) -> int:
        """Return the newest batch of a query of this channel whose late rows are here, -1 for none."""
        return self.committed(Publication(query, 0, (), -1, channel.table_id).transaction[0])

    def check_not_beyond(self, query: str, channel: Channel) -> None:
        """Raise :class:`IngestError` if the table has a batch that the channel does not have.

        Late rows are published after the channel's commit. So the channel was restored to an earlier state, or is a copy. The
        batches that it lacks would be judged anew, and rows that are late here might be in time there.
        """
        newest = self.newest_of(query, channel)
        if newest <= channel.committed(query):
            return
        channel.refresh()
        if newest > (has := channel.committed(query)):
            raise errors.late_table_shared_batch(self._table.path, newest, query, channel.path, has)

    def published(self, publication: Publication) -> bool:
        """Return whether a batch's rows are here. In a table that was rewritten without its transactions, the rows decide."""
        self._table.log.store.settle()  # a commit whose sync failed is written anew before anybody relies on it
        application, batch = publication.transaction
        self.update()
        if self._known(application) >= batch:
            return True
        assigned_channel, mine = assignment_of(publication.query, publication.channel)
        recorded = self._known(application) >= 0 or self._known(assigned_channel) not in (-1, mine)
        return not recorded and self._has_rows(publication)

    def _has_rows(self, publication: Publication) -> bool:
        if not self._table.files():
            return False
        with native(self._table.path, self._table.storage_options):
            late = DeltaTable(self._table.log.store.location, storage_options=self._table.storage_options).to_pyarrow_dataset()
            queries = late.to_table(["_query"], filter=pc.field("_batch") == publication.batch).column("_query")
        return bool(pc.any(pc.equal(queries, publication.query)).as_py())

    def publish(self, publication: Publication) -> int | None:
        """Commit a batch's rows. Return ``None`` when they are already here.

        Calling it twice, or from two writers at once, changes nothing. Raises :class:`IngestError` when a file is gone, and when
        the rows of the query here belong to another channel.
        """
        _check_staged(publication)
        if self.published(publication):
            return None
        _refuse_missing(self._table.path, self._table.log.store, publication)
        query, channel = publication.query, publication.channel
        text = _metadata_text(query=query, batch=publication.batch, channel=channel)
        transactions = dict([publication.transaction, assignment_of(query, channel)])
        files = [self._with_stats(file) for file in publication.files]
        application, version = assignment_of(query, channel)
        done = False
        while not done and not self.published(publication):
            if self._known(application) not in (-1, version):
                raise errors.late_table_shared(self._table.path, query)
            if self._known(publication.transaction[0]) != publication.before:
                transactions[begins_with(query, channel)] = publication.batch
            done = self._commit(files, text, transactions)
        return self._version if done else None

    def _commit(self, files: Sequence[DataFile], text: str, transactions: Mapping[str, int]) -> bool:
        """Commit the next version. Return ``False`` when another writer was faster."""
        version = self._version + 1
        if not self._table.commit(version, files, text, transactions):
            return False
        self._version = version
        self._transactions.update(transactions)
        self._table.checkpoint_if_due(version)
        return True

    def _with_stats(self, file: DataFile) -> DataFile:
        """Return the file with Delta's statistics, which the channel's commit does not carry."""
        if file.stats is not None:
            return file
        with self._table.log.store.open_input(file.path) as source:
            metadata = pq.read_metadata(source)
        columns = metadata.schema.to_arrow_schema()  # some of the table may have come later
        stats = stats_text(metadata, columns, lambda: self._table.log.store.open_input(file.path))
        return DataFile(file.path, file.size, file.rows, stats)


def with_all_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the columns of ``schema``, of which those that they lack are null."""
    for field in schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field.name, pa.nulls(rows.num_rows, field.type))
    return rows.select(schema.names).cast(schema)


def assignment_of(query: str, channel: str) -> tuple[str, int]:
    """Return the late table's transaction that states the channel, by its Delta id, to which the rows of a query belong.

    A transaction has a number and no text, so a digest identifies the channel.
    """
    return f"{query}@", int.from_bytes(sha256(channel.encode()).digest()[:7], "big")


def begins_with(query: str, channel: str) -> str:
    """Return the application of the late table's transaction that names a batch at which a range of a query's batches begins.

    The batch before it was not here when this batch arrived. See :class:`~strandline.ingest.late.looked_at.LookedAt`.
    """
    return f"{query}@{channel}:begins"


def pending(channel: Channel) -> Iterator[tuple[str, Publication]]:
    """Yield what the channel names as late: the newest batch of each query, with the late table's path.

    Do not open the path without :func:`check_storage`. The channel does not name a late table that is beside it, so that both may
    be moved and copied together. Readmitted rows are left out: they were certainly published, and their late table may be gone.
    """
    looked_at = LookedAt.of(channel, "done").or_in(LookedAt.of(channel, "late"))
    for query, entry in RegistrarState.of(channel.progress).entries.items():
        if entry.pending is not None and not looked_at.covers(query, entry.pending.batch):
            late_path = location_of(entry.late or late_path_beside(channel.path))
            yield late_path, Publication.of(query, entry.pending, channel)


def check_storage(named: str, *own: str) -> str:
    """Return the address of a late table that a channel's log names, when one of the ``own`` addresses is on the same storage.

    ``own`` are addresses of the caller. The log is written by others, and what it names is opened with the caller's credentials.
    Otherwise raises :class:`IngestError` ``STRANDLINE_LATE_TABLE_ELSEWHERE``.

    >>> check_storage("s3://lake/late", "s3://lake/flights"), check_storage("/mnt/late", "/lake/flights")
    ('s3://lake/late', '/mnt/late')
    >>> check_storage("s3://elsewhere/late", "s3://lake/flights", "/lake/late")
    Traceback (most recent call last):
    strandline.errors.IngestError: [STRANDLINE_LATE_TABLE_ELSEWHERE] ...
    """
    if storage_of(named) in map(storage_of, own):
        return named
    raise errors.late_table_elsewhere(own[0], named)


def is_published(path: str, publication: Publication, storage: Mapping[str, str] | None) -> bool:
    """Return whether a batch's rows are in the late table ``path``, which may not exist."""
    _check_staged(publication)
    return is_table(path, storage) and LateTable(path, storage).published(publication)


def publish(path: str, publication: Publication, storage: Mapping[str, str] | None) -> int | None:
    """Publish a batch's rows in the late table ``path``, as :meth:`LateTable.publish` does. A table that is gone is recreated."""
    _check_staged(publication)
    if is_table(path, storage):
        return LateTable(path, storage).publish(publication)
    store = open_store(path, storage)
    _refuse_missing(path, store, publication)
    with store.open_input(publication.files[0].path) as source:
        schema = pq.read_schema(source)
    return LateTable.open_or_create(path, schema, storage).publish(publication)


def _metadata_text(**content: Any) -> str:
    """Return what a commit of the late table states in ``userMetadata``."""
    return json.dumps({_KEY: content}, separators=(",", ":"))


def missing(store: Store, files: Sequence[DataFile]) -> list[DataFile]:
    """Return the files that are gone."""
    return [file for file in files if store.size(file.path) is None]


def _refuse_missing(path: str, store: Store, publication: Publication) -> None:
    gone = missing(store, publication.files)
    if gone:
        raise errors.late_file_missing(gone[0].path, gone[0].rows, publication.query, path, publication.named_in)


def is_table(path: str, storage: Mapping[str, str] | None) -> bool:
    """Return whether there is a Delta table."""
    log = DeltaLog[DeltaCommit](path, storage)
    return bool(log.exists(0) or log.store.last_checkpoint())
