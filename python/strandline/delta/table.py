"""The Delta table of a channel.

This module creates it, checks whether it can be a channel, and commits exactly one next version.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from strandline.delta import errors
from strandline.delta.checks.crc_files import check_crc, check_crc_size, logged_transactions
from strandline.delta.checks.misread_bounds import misread_bounds, would_write_misread
from strandline.delta.data_file import DataFile
from strandline.delta.file_stats import stats_texts
from strandline.delta.log import DeltaCommit, DeltaLog, is_transaction
from strandline.delta.put_if_absent import Put
from strandline.delta.storage import LOG_DIR, LocalStore, commit_name
from strandline.delta.store_errors import cause_of, native
from strandline.errors import ChannelError, StorageError

__all__ = ["CHECKPOINT_INTERVAL", "NO_HOOKS", "Table", "commit_lines", "different_columns", "refuse_features", "refuse_misread"]

CHECKPOINT_INTERVAL = 100
"""The number of commits between Delta checkpoints. Other engines see it as ``delta.checkpointInterval``."""

NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""deltalake's own checkpoints after commits are not written: :meth:`Table.checkpoint` refuses some."""

_log = logging.getLogger(__name__)
_FULL = re.compile(r"\(os error (28|122)\)")
_MOST_LOOKED_AT = 1000
_MOST_NAMED = 5
"""No space, or no more of it for this user: deltalake says so only in its text."""
_WRITER_FEATURES = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "checkpointProtection",
    "columnMapping",
    "generatedColumns",
    "identityColumns",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}
"""The writer features that a table may name.

Those that would change the meaning of a file or a commit are refused when they are in use.
"""


class Table:
    """An opened Delta table, to which versions can be added."""

    def __init__(self, path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> None:
        self.path = os.fspath(path)
        self.storage_options = dict(storage_options) if storage_options else None
        self.log: DeltaLog[DeltaCommit] = DeltaLog(self.path, storage_options)
        self._handle: DeltaTable
        self._logged: tuple[int, dict[str, int] | None] = (-1, None)
        """A version of the handle, and its transactions if they are not deltalake's."""
        self.load()

    def load(self) -> None:
        """Read the newest snapshot's metadata.

        Raises :class:`ChannelError` if there is no table, or if the table cannot be a channel.
        """
        self._handle = handle = open_delta(self.log, self.storage_options)
        self._logged = (-1, None)
        with native(self.path, self.storage_options):
            metadata, protocol, version, schema = handle.metadata(), handle.protocol(), handle.version(), handle.schema()
            schema_fields = json.loads(schema.to_json())["fields"]
        self.id = str(metadata.id)
        self.configuration: dict[str, str] = dict(metadata.configuration)
        self.loaded_version: int = version
        refuse_features(f"The table {self.path}", self.configuration, list(metadata.partition_columns), schema_fields)
        if "deletionVectors" in (protocol.writer_features or ()):
            raise errors.deletion_vectors(f"The table {self.path}")
        unknown = sorted(set(protocol.writer_features or ()) - _WRITER_FEATURES)
        if unknown:
            raise errors.table_feature_unknown(self.path, unknown)
        try:
            with native(self.path, self.storage_options):
                self.schema: pa.Schema = pa.schema(schema)
        except StorageError:
            raise
        except Exception as error:  # deltalake raises a bare Exception here
            raise errors.table_unreadable_columns(self.path, cause_of(error, self.storage_options)) from None

    def transaction_version(self, application: str) -> int | None:
        """Return the newest version of an application's transactions, at least up to :attr:`loaded_version`.

        deltalake would believe a ``.crc`` file. Where it could see one, the log is read instead.
        """
        if not is_transaction(application, 0):
            return None  # no log can have it

        def asked(handle: DeltaTable) -> int | None:
            opened = int(handle.version())
            if self._logged[0] != opened:
                self._logged = opened, logged_transactions(self.log, opened)
            if self._logged[1] is not None:
                return self._logged[1].get(application)
            with native(self.path, self.storage_options), self.log.store.errors("read the transactions of"):
                version = handle.transaction_version(application)
            return None if version is None else int(version)

        try:
            return asked(self._handle)
        except (DeltaError, StorageError, OSError):  # it reads commits that may have been cleaned up since it was opened
            handle = open_delta(self.log, self.storage_options)
            with _readable(self.log, self.storage_options):
                return asked(handle)

    def files(self, version: int | None = None, *, stats: bool = False) -> list[DataFile]:
        """Return the data files of a version, oldest first. ``stats`` adds their statistics.

        Raises :class:`ChannelError` ``STRANDLINE_TABLE_UNREADABLE`` if a file is there twice. deltalake believes a checkpoint.
        """
        before = self.log.store.list(LOG_DIR) if stats else ()
        handle = open_delta(self.log, self.storage_options, version=version)
        with _readable(self.log, self.storage_options, version), native(self.path, self.storage_options):
            actions = pa.table(handle.get_add_actions(flatten=False))
        actions = actions.sort_by([("modification_time", "ascending"), ("path", "ascending")])
        columns = [actions.column(name).to_pylist() for name in ("path", "size_bytes", "num_records")]
        columns[0] = [unquote(path) if "%" in path else path for path in columns[0]]  # deltalake returns them as the log has them
        if len(set(columns[0])) < actions.num_rows:
            twice = next(path for path, times in Counter(columns[0]).items() if times > 1)
            raise errors.table_unreadable_duplicate(handle.version(), self.path, twice)
        texts: Sequence[str | None] = [None] * actions.num_rows
        if stats:
            misread = misread_bounds(self.log.store, int(handle.version()), before)
            texts = stats_texts(actions, timestamps=not misread.timestamps, dates=not misread.dates)
        return [
            DataFile(path, size, -1 if rows is None else rows, text)
            for path, size, rows, text in zip(*columns, texts, strict=True)
        ]

    def commit(
        self,
        version: int,
        files: Sequence[DataFile],
        user_metadata: str,
        transactions: Mapping[str, int],
        lines: bytes | None = None,
    ) -> bool:
        """Write exactly ``version``, all of it or nothing. Return ``False`` if another writer has written that version.

        In a local log this makes a hard link, in an object store it is one conditional write. deltalake does the same, but
        needs its handle, and keeping the handle up to date costs more the more files the table has. It writes on file systems
        without links, without rebasing. The method returns when the commit will survive a loss of power. Its files will
        survive it too, because they were synced when they were closed. ``lines`` is what :func:`commit_lines` returned for the
        same arguments, where the caller has it.

        A version is not written into the gap that the cleaning of a local log has left (``False``). This writer may stand still
        just before the commit gets its name. So it looks once more after that: cleaning removes the oldest commits first, so if
        the version before is there, this version was not removed. Otherwise it cannot know whether there was such a gap:
        :class:`LogError` ``STRANDLINE_LOG_TRUNCATED``. The commit is not removed, because others may have read it.
        """
        store = self.log.store
        put = store.create(
            commit_name(version), lines or commit_lines(files, user_metadata, transactions), lambda: self._is_gap(version)
        )
        made = put is Put.MADE
        if put is Put.UNSUPPORTED:
            with native(self.path, self.storage_options), store.errors("write", commit_name(version)):
                made = self._commit_deltalake(version, files, user_metadata, transactions)
        if made and isinstance(store, LocalStore) and self._is_gap(version):
            # Others may have read it, and gone on from it. Or they wrote this version before, and removed it.
            self.log.require(version - 1)  # raises
        if made:
            store.sync_commit(commit_name(version), content=put is Put.UNSUPPORTED)
        return made

    def _is_gap(self, version: int) -> bool:
        """Return whether a local log was cleaned up beyond a version.

        Then others have written the version before. Cleaning removes the oldest commits first.
        """
        log = self.log
        return version > 0 and not log.exists(version - 1) and max(log.versions(), default=version) > version

    def _commit_deltalake(
        self, version: int, files: Sequence[DataFile], user_metadata: str, transactions: Mapping[str, int]
    ) -> bool:
        if self._handle.version() < version - 1:
            if isinstance(self.log.store, LocalStore):
                self.log.check_nesting(version - 1)
            self._handle.update_incremental()
        if self._handle.version() != version - 1:
            return False
        now = time.time_ns() // 1_000_000
        try:
            self._handle.create_write_transaction(
                [AddAction(quote(f.path), f.size, {}, now, True, f.stats or "{}") for f in files],
                mode="append",
                schema=self._handle.schema(),
                partition_by=[],
                # Without retries deltalake neither rebases nor checks for conflicts: the version is free, or the commit fails.
                commit_properties=CommitProperties(
                    custom_metadata={"userMetadata": user_metadata},
                    max_commit_retries=0,
                    app_transactions=[Transaction(app, v) for app, v in transactions.items()],
                ),
                post_commithook_properties=NO_HOOKS,
            )
        except CommitFailedError:
            return False
        self._handle.update_incremental()  # a commit does not advance its own handle
        return True

    def checkpoint(self, version: int | None = None) -> None:
        """Write a Delta checkpoint of a version (default: the newest). This limits how much opening the table has to read.

        Raises :class:`ChannelError` ``STRANDLINE_CHECKPOINT_MISREAD`` if readers would skip rows by it.
        """
        before = self.log.store.list(LOG_DIR)
        handle = open_delta(self.log, self.storage_options, version=version)
        refuse_misread(self.log, handle, before, self.storage_options)
        with (
            _readable(self.log, self.storage_options, version),
            native(self.path, self.storage_options),
            self.log.store.errors("write a checkpoint of"),
        ):
            handle.create_checkpoint()
            version = handle.version()
        store, prefix = self.log.store, f"{version:020d}.checkpoint"
        made = [name for name in store.list(LOG_DIR) if name.startswith(prefix)]
        store.sync(*(f"{LOG_DIR}/{name}" for name in [*made, "_last_checkpoint"]))

    def checkpoint_if_due(self, version: int) -> None:
        """Write a checkpoint every :data:`CHECKPOINT_INTERVAL` commits.

        If this fails, the commit remains valid.
        """
        if version % CHECKPOINT_INTERVAL:
            return
        try:
            self.checkpoint()
        except (DeltaError, ChannelError, OSError) as error:
            _log.warning(
                "Cannot write a Delta checkpoint of %s at version %d. Opening the table stays slower until the next "
                "checkpoint. %s",
                self.path,
                version,
                cause_of(error, self.storage_options),
            )


def refuse_misread(log: DeltaLog[Any], handle: DeltaTable, before: Iterable[str], storage_options: Any) -> None:
    """Raise :class:`ChannelError` ``STRANDLINE_CHECKPOINT_MISREAD`` if a checkpoint of a version would make readers skip rows.

    Args:
        log: The table's log.
        handle: The table as deltalake opened it.
        before: The names of the log's files before that.
        storage_options: The options of its storage.
    """
    with native(log.path, storage_options):
        version, properties = int(handle.version()), handle.metadata().configuration
    asked = {key: str(value).lower() for key, value in properties.items()}
    columns = asked.get("delta.checkpoint.writeStatsAsStruct") == "true"
    texts = asked.get("delta.checkpoint.writeStatsAsJson", "true") == "true"
    base = would_write_misread(log.store, version, before, columns=columns, texts=texts)
    if base is not None:
        raise errors.checkpoint_misread(log.path, version, base)


def commit_lines(files: Sequence[DataFile], user_metadata: str, transactions: Mapping[str, int]) -> bytes:
    """Return the content of a commit's file."""
    now = time.time_ns() // 1_000_000
    actions: list[dict[str, Any]] = [
        {
            "commitInfo": {
                "timestamp": now,
                "operation": "WRITE",
                "operationParameters": {"mode": "Append", "partitionBy": "[]"},
                "isBlindAppend": True,
                "engineInfo": "Strandline",
                "userMetadata": user_metadata,
            }
        }
    ]
    actions += [{"txn": {"appId": app, "version": v, "lastUpdated": now}} for app, v in transactions.items()]
    for file in files:
        add: dict[str, Any] = {"path": quote(file.path), "partitionValues": {}, "size": file.size}
        add |= {"modificationTime": now, "dataChange": True}
        if file.stats is not None:
            add["stats"] = file.stats
        actions.append({"add": add})
    return "".join(json.dumps(action, separators=(",", ":"), ensure_ascii=False) + "\n" for action in actions).encode()


def check_properties(configuration: Mapping[str, str]) -> None:
    """Raise :class:`ChannelError` ``STRANDLINE_TABLE_PROPERTY_INVALID`` unless names and values are texts in UTF-8."""
    entries = configuration.items() if isinstance(configuration, Mapping) else [(configuration, None)]
    wrong = [key for key, value in entries if not is_text(key) or not is_text(value)]
    if wrong:
        raise errors.table_property_invalid(wrong[0])


def create_table(
    log: DeltaLog[Any], schema: pa.Schema, user_metadata: str, configuration: Mapping[str, str], storage_options: Any
) -> None:
    """Create the table with its founding statement in commit 0. Raises deltalake's error if the table exists."""
    log.store.require_create()
    log.store.make_folders()  # before the commit: whoever sees it may rely on the names of the folders above it
    with native(log.path, storage_options), log.store.errors("write", commit_name(0)):
        DeltaTable.create(
            log.store.location,
            schema=Schema.from_arrow(schema),
            mode="error",
            configuration=configuration,
            storage_options=storage_options,
            commit_properties=CommitProperties(custom_metadata={"userMetadata": user_metadata}),
            raise_if_key_not_exists=False,
        )
    log.store.sync_commit(commit_name(0))


def add_columns(log: DeltaLog[Any], fields: Sequence[pa.Field], storage_options: Any) -> int:
    """Add columns to the table. Return the version. Raises deltalake's error if another commit came first."""
    log.store.require_create()
    table = open_delta(log, storage_options)
    with native(log.path, storage_options), log.store.errors("add columns"):
        table.alter.add_columns([Field.from_arrow(field) for field in fields], post_commithook_properties=NO_HOOKS)
        version = table.version()
    log.store.sync_commit(commit_name(version))
    return version


def is_text(value: object) -> bool:
    """Return whether a value is a text in UTF-8.

    >>> is_text("a"), is_text("\\ud800"), is_text(5)
    (True, False, False)
    """
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeError:
        return False


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema as a Delta table returns it. Delta has fewer types than Arrow."""
    with native("a schema", threads=False):
        return pa.schema(Schema.from_arrow(schema))


def schema_text(schema: pa.Schema) -> str:
    """Return Delta's JSON of a schema, as a table of it has it."""
    with native("a schema", threads=False):
        return str(Schema.from_arrow(schema).to_json())


def open_delta(log: DeltaLog[Any], storage_options: Mapping[str, str] | None, *, version: int | None = None) -> DeltaTable:
    """Open a table with deltalake. Convert its errors to Strandline's errors.

    While others write, a listing of the log may have a commit but not the one before it. deltalake treats that as a gap. All
    commits before a listed commit already existed when it was listed. So the log is listed again, up to that commit. A real
    gap still raises an error.

    In a local log, what deltalake believes of a ``.crc`` file is compared with the commits (:func:`check_crc`). In an object
    store this would need a listing of the whole log.
    """
    options = dict(storage_options) if storage_options else None
    if version is not None and (type(version) is not int or not 0 <= version < 1 << 63):
        raise errors.version_unknown(log.path, version)
    crc = False
    try:
        if isinstance(log.store, LocalStore):  # elsewhere each look would be a request
            if os.path.isfile(log.store.location):
                raise errors.not_a_table_file(log.path)
            crc = log.store.check_links()
            log.check_nesting(version)
            if crc:
                check_crc_size(log, version)
        with _readable(log, options, version), native(log.path, options), log.store.errors("open"):
            try:
                table = DeltaTable(log.store.location, version=version, storage_options=options)
            except TableNotFoundError:
                raise
            except DeltaError:
                listed = log.versions()
                if version is not None or not listed:
                    raise
                table = DeltaTable(log.store.location, version=max(listed), storage_options=options)
        if crc:
            check_crc(log, table)
        return table
    except TableNotFoundError as error:
        raise errors.not_a_table(log.path, _tables_in(log)) from error


def _tables_in(log: DeltaLog[Any]) -> list[str]:
    """Return some tables in a folder that is none, as the parts of a loop: whoever names the folder means one of them."""
    if not isinstance(log.store, LocalStore):
        return []
    with suppress(OSError):
        folders = [f"{log.path.rstrip('/')}/{name}" for name in sorted(os.listdir(log.store.location))[:_MOST_LOOKED_AT]]
        return [folder for folder in folders if os.path.isdir(f"{folder}/{LOG_DIR}")][:_MOST_NAMED]
    return []


@contextmanager
def _readable(log: DeltaLog[Any], options: Mapping[str, str] | None, version: int | None = None) -> Iterator[None]:
    """Convert the errors of deltalake for a log that it cannot use, and those of a storage that is full."""
    try:
        yield
    except TableNotFoundError:
        raise
    except DeltaError as error:
        full = _FULL.search(str(error))
        if full is not None:
            with log.store.errors("write"):
                raise OSError(int(full.group(1)), os.strerror(int(full.group(1)))) from None
        raise errors.table_unreadable(log.path, version, cause_of(error, options)) from (
            error if isinstance(log.store, LocalStore) else None
        )


def different_columns(have: pa.Schema, want: pa.Schema) -> str | None:
    """Return the columns in which rows of ``want`` differ from a table of ``have``, each with both types.

    Returns ``None`` if they fit.

    >>> different_columns(pa.schema([("a", pa.int64()), ("b", pa.string())]), pa.schema([("b", pa.string()), ("a", pa.int32())]))
    'a (int32 for int64)'
    """
    there, rows = ({f.name: f.type for f in schema} for schema in (have, want))
    names = sorted(name for name in there.keys() | rows.keys() if there.get(name) != rows.get(name))
    return ", ".join(f"{name} ({rows.get(name, 'missing')} for {there.get(name, 'none')})" for name in names) or None


def refuse_features(
    what: str, configuration: Mapping[str, Any], partitions: Sequence[str], fields: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Raise :class:`ChannelError` for table features that would change the meaning of files and commits."""

    def on(key: str) -> bool:
        return str(configuration.get(key, "false")).lower() == "true"

    if on("delta.enableDeletionVectors"):
        raise errors.deletion_vectors(what)
    mapping = str(configuration.get("delta.columnMapping.mode", "none"))
    if mapping.lower() != "none":
        raise errors.column_mapping(what, mapping)
    if partitions:
        raise errors.partitioned(what, partitions)
    constraints = sorted(key for key in configuration if key.startswith("delta.constraints."))
    generated = [
        f["name"]
        for f in fields
        if any(k.startswith(("delta.generation", "delta.identity", "delta.invariants")) for k in f["metadata"])
    ]
    changes = on("delta.enableChangeDataFeed")
    if constraints or generated or changes:
        named = (
            constraints + [f"generated or checked column {name}" for name in generated] + ["delta.enableChangeDataFeed"] * changes
        )
        raise errors.table_feature_unenforced(what, named)
    if (retention := configuration.get("delta.setTransactionRetentionDuration")) is not None:
        raise errors.table_feature_retention(what, retention)
