"""The errors of tables, logs and storages."""

from __future__ import annotations

import errno
import re
import stat
from collections.abc import Iterable, Sequence

from strandline.errors import ChannelError, LogError, StorageError

_REMEDIES = {
    (errno.ENOSPC, errno.EDQUOT): "Free space on the storage, then try again.",
    (
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
    ): "Give this user the right to read and write below the table, or use a copy of the table.",
    (errno.EMFILE, errno.ENFILE): "Raise the limit of open files (ulimit -n), then try again.",
}
_NO_CREDENTIALS = re.compile(
    r"(?i)169\.254\.|metadata|missing\s*(secret|access)|no\s*credentials|invalid_client|failed to get token|imds"
)
_REFUSED_CREDENTIALS = re.compile(
    r"(?i)privileges|permission denied|40[13] |unauthori[sz]ed|forbidden|invalidaccesskeyid|signaturedoesnotmatch|expiredtoken"
)
_CREDENTIALS = (
    "S3 needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN, if they are temporary), Azure needs "
    "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_KEY. Give them as storage options, in Spark as storage.NAME, or in the "
    "environment of the driver and of every executor, or give these machines a role."
)


def checkpoint_misread(path: str, version: int, checkpoint: int) -> ChannelError:
    return ChannelError(
        "STRANDLINE_CHECKPOINT_MISREAD",
        f"A Delta checkpoint of {path} at version {version} would have wrong bounds of timestamps or dates, and "
        f"readers would skip rows. They would come from the checkpoint at version {checkpoint}: it has timestamps before 1677 "
        "or after 2262, or dates of Spark's old calendar, in columns as Spark keeps them, or it cannot be read.",
        "Set the table's properties delta.checkpoint.writeStatsAsStruct to false and delta.checkpoint.writeStatsAsJson "
        "to true, and let Delta Spark write a checkpoint. It writes one after a commit if delta.checkpointInterval is 1.",
    )


def column_mapping(table: str, mode: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_COLUMN_MAPPING",
        f"{table} has column mapping by {mode}, but a channel's files are read by the columns' own names.",
        "Copy the rows into a table without column mapping.",
    )


def _commit_invalid(version: int, table: str, what: str) -> LogError:
    return LogError(
        "STRANDLINE_COMMIT_INVALID",
        f"Commit {version}{f' of {table}' if table else ''} {what}.",
        "The log is damaged, or a faulty writer wrote it. Restore the commit's file from a backup.",
    )


def commit_invalid_action(version: int, kind: str, table: str) -> LogError:
    return _commit_invalid(version, table, f"has a {kind} action that is not an object")


def commit_invalid_add(version: int, error: ValueError, table: str) -> LogError:
    return _commit_invalid(version, table, f"has an invalid add action: {error}")


def commit_invalid_duplicate(version: int, file: str, table: str) -> LogError:
    what = f"adds the file {file[:200]!r} more than once, so a stream would read its rows repeatedly"
    return _commit_invalid(version, table, what)


def commit_invalid_json(version: int, error: Exception, table: str = "") -> LogError:
    return _commit_invalid(version, table, f"has a line that is not JSON ({error})")


def commit_invalid_line(version: int, table: str = "") -> LogError:
    return _commit_invalid(version, table, "has a line that is not a single action")


def commit_invalid_lines(version: int, most: int, table: str) -> LogError:
    return _commit_invalid(version, table, f"has more than {most} lines")


def commit_invalid_nesting(version: int, deepest: int, table: str = "") -> LogError:
    return _commit_invalid(version, table, f"has an action that is nested deeper than {deepest}")


def commit_invalid_size(version: int, most: int, table: str) -> LogError:
    return _commit_invalid(version, table, f"is larger than {most} bytes, which no Strandline writer writes")


def commit_invalid_txn(version: int, application: object, transaction: object, table: str) -> LogError:
    what = f"has a txn action of {str(application)[:80]!r} with the version {str(transaction)[:80]}"
    return _commit_invalid(version, table, what)


def _commit_torn(version: int, table: str, what: str) -> LogError:
    return LogError(
        "STRANDLINE_COMMIT_TORN",
        f"Commit {version}{f' of {table}' if table else ''} {what}. A power failure cut its file "
        "short, or the file was changed later.",
        "Restore the file from a backup. Or stop all writers, remove from _delta_log _last_checkpoint and each file whose "
        f"name has a version from {version} on (.json, .checkpoint, .compacted.json, .crc, also those that begin with a "
        "dot), and write their rows again. Queries that have read or written these commits then stop, and say how to go on.",
    )


def commit_torn_actions(version: int, actions: int, stated: int | None, table: str) -> LogError:
    return _commit_torn(version, table, f"has {actions} action(s), but its statement counts {stated}")


def commit_torn_empty(version: int, table: str) -> LogError:
    return _commit_torn(version, table, "has no action")


def commit_torn_files(version: int, stated: int, table: str) -> LogError:
    return _commit_torn(version, table, f"states {stated} row(s) but adds no file")


def commit_torn_rows(version: int, stated: int, rows: int, table: str) -> LogError:
    return _commit_torn(version, table, f"states {stated} row(s) but adds files with {rows}")


def _crc_stale(crc: int, path: str, what: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_CRC_STALE",
        f"The file {crc:020d}.crc of {path} {what}.",
        "Another engine wrote it for commits that were removed since. Remove it from _delta_log: no reader needs it.",
    )


def crc_stale(crc: int, path: str) -> ChannelError:
    return _crc_stale(crc, path, "cannot be compared with the log, which lacks commits up to it")


def crc_stale_content(crc: int, path: str, field: str, value: object, logged: object) -> ChannelError:
    return _crc_stale(crc, path, f"says that {field} is {str(value)[:200]}, but the commits say {str(logged)[:200]}")


def crc_stale_size(crc: int, path: str, size: int, most: int) -> ChannelError:
    return _crc_stale(crc, path, f"has {size} bytes, but no engine writes more than {most}")


def deletion_vectors(table: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_DELETION_VECTORS",
        f"{table} has deletion vectors, but a channel's files are read without them.",
        "Set delta.enableDeletionVectors to false, run REORG TABLE … APPLY (PURGE), and drop the feature.",
    )


def deletion_vectors_added(version: int, path: object) -> LogError:
    return LogError(
        "STRANDLINE_DELETION_VECTORS",
        f"Commit {version} adds {path!r} with a deletion vector, which channels do not support.",
        "Set delta.enableDeletionVectors to false, and run REORG TABLE … APPLY (PURGE).",
    )


def deltalake_panic(path: str, cause: str) -> StorageError:
    return StorageError(
        "STRANDLINE_DELTALAKE_PANIC",
        f"deltalake failed at {path[:300]!r} in a way that it does not expect: {cause}.",
        "Check the path and the storage options. If they are right, the table may be damaged: restore its log from a backup.",
    )


def _file_damaged(path: str, location: str, why: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_FILE_DAMAGED",
        f"The data file {path[:200]!r} of {location} cannot be read: {why}.",
        "The file was damaged or changed after its commit, or the storage failed. Try again; if that fails, restore the file "
        "from a backup.",
    )


def file_damaged(path: str, location: str, error: Exception) -> ChannelError:
    return _file_damaged(path, location, str(error).splitlines()[0][:300] if str(error) else type(error).__name__)


def file_damaged_rows(path: str, location: str, rows: int, stated: int) -> ChannelError:
    return _file_damaged(path, location, f"it has {rows} rows, but the log states {stated}")


def file_damaged_size(path: str, location: str, size: int, stated: int) -> ChannelError:
    return _file_damaged(path, location, f"it has {size} bytes, but the log states {stated}")


def file_missing(file: str, table: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_FILE_MISSING",
        f"The data file {file!r} of {table} does not exist any more: it was deleted, or VACUUM removed it after a "
        "later commit had replaced it.",
        "Read a newer version, or restore the file. Run VACUUM with a retention that is longer than every reader's lag.",
    )


def file_missing_newest(file: str, table: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_FILE_MISSING",
        f"The data file {file!r} of {table} does not exist any more, and the newest version names it: it was deleted.",
        "Restore the file from a backup. No later version has its rows.",
    )


def log_truncated(version: int, path: str, earliest: int) -> LogError:
    why = f"the log now begins at {earliest}" if earliest > version else "later commits exist, so it was removed"
    return LogError(
        "STRANDLINE_LOG_TRUNCATED",
        f"Commit {version} of {path} does not exist any more: {why}.",
        "Open the channel again. A stream starts from the newest snapshot with a new checkpoint. A writer whose last commit "
        "ended by an error first looks whether its rows are there. Keep delta.enableExpiredLogCleanup at false, and clean "
        "the log only with Channel.clean_log.",
    )


def not_a_file(path: str, mode: int) -> ChannelError:
    return ChannelError(
        "STRANDLINE_NOT_A_FILE",
        f"{path} is not a regular file ({stat.filemode(mode)}), so it is not read.",
        "Remove it: a writer of channels creates only regular files.",
    )


def not_a_table(path: str, inside: Sequence[str] = ()) -> ChannelError:
    within = f"Tables are in that folder: {', '.join(inside)}. Name one of them." if inside else ""
    return ChannelError(
        "STRANDLINE_NOT_A_TABLE",
        f"There is no Delta table at {path}.",
        within or "Check the path, or create it with Channel.create.",
    )


def not_a_table_file(path: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_NOT_A_TABLE",
        f"{path} is a file, but a Delta table is a folder.",
        "Check the path: name the folder that has _delta_log in it.",
    )


def not_a_table_without_commits(path: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_NOT_A_TABLE",
        f"{path} is not a Delta table, because it has no commit.",
        "Check the path, or create a channel there with Channel.create.",
    )


def partitioned(table: str, columns: Sequence[str]) -> ChannelError:
    return ChannelError(
        "STRANDLINE_PARTITIONED",
        f"{table} is partitioned by {list(columns)}, but a channel must not be partitioned.",
        "Copy the rows into a table without partition columns. Readers skip files by their statistics instead.",
    )


def path_outside_table(path: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_PATH_OUTSIDE_TABLE",
        f"The path {path[:200]!r} does not name a file below the table, so it is not opened.",
        "The log or a state is damaged or manipulated: restore it from a backup. A shallow clone is not a channel, because its "
        "files are elsewhere: copy the rows instead.",
    )


def path_outside_table_by_link(path: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_PATH_OUTSIDE_TABLE",
        f"{path[:300]} is, or is below, a symbolic link that leads out of the table, so it is not opened.",
        "Put the file itself there. The folder of the table may be a link.",
    )


def process_forked(location: str) -> StorageError:
    return StorageError(
        "STRANDLINE_PROCESS_FORKED",
        f"Cannot use {location[:300]!r} in a process that was forked after its parent had used deltalake: it "
        "lacks deltalake's threads.",
        "Start processes with multiprocessing's spawn or forkserver, or fork before the first channel is opened.",
    )


def process_forked_object(name: str, location: str) -> ChannelError:
    """Name an object that another process has made, and still uses."""
    return ChannelError(
        "STRANDLINE_PROCESS_FORKED",
        f"The {name} of {location} belongs to the process that this one was forked from.",
        "Start the process with multiprocessing's spawn or forkserver, and open the channel there. Give each process a producer "
        "of its own.",
    )


def _remedy_of(cause: str, path: str) -> str | None:
    """Return what helps for a cause that an object store named, or ``None`` if that is not known."""
    if "://" not in path:
        return None
    if _NO_CREDENTIALS.search(cause):
        return f"No complete credentials were found. {_CREDENTIALS}"
    if _REFUSED_CREDENTIALS.search(cause):
        return f"The store refuses these credentials, or gives them no right to do this. {_CREDENTIALS}"
    if "URL scheme is not allowed" in cause:
        return "The endpoint is http and not https: set AWS_ALLOW_HTTP or AZURE_ALLOW_HTTP to true if this is meant."
    if "NoSuchBucket" in cause or "ContainerNotFound" in cause:
        return "Create the bucket or container, or correct the path and the endpoint (AWS_ENDPOINT_URL, AZURE_ENDPOINT)."
    return None


def storage_failed(doing: str, path: str, cause: str, number: int | None = None) -> StorageError:
    """Name what helps: by the operating system's ``number`` of the error, or by the cause that an object store named."""
    remedy = next((text for numbers, text in _REMEDIES.items() if number in numbers), None) or _remedy_of(cause, path)
    return StorageError(
        "STRANDLINE_STORAGE_FAILED", f"Cannot {doing} {path[:300]!r}: {cause}.", remedy or "Check the storage, then try again."
    )


def _storage_option_invalid(name: object, problem: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_STORAGE_OPTION_INVALID",
        f"The storage option {str(name)[:80]} is {problem}.",
        "Give a text without a line break at its end, as from $(cat file) with strip().",
    )


def storage_option_invalid_durable(value: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_STORAGE_OPTION_INVALID",
        f"The storage option durable is {value!r}, not true or false.",
        "Set it to true (the default: a commit returns only when it is on the disk) or to false.",
    )


def storage_option_invalid_empty(name: str) -> ChannelError:
    return _storage_option_invalid(name, "empty")


def storage_option_invalid_text(name: str) -> ChannelError:
    return _storage_option_invalid(name, "a text with a line break or another control character, or with blanks at an end")


def storage_option_invalid_type(name: object, value: object) -> ChannelError:
    return _storage_option_invalid(name, f"of the type {type(value).__name__}")


def storage_url_invalid(path: str, error: ValueError) -> ChannelError:
    return ChannelError(
        "STRANDLINE_STORAGE_URL_INVALID",
        f"The path {path[:300]} cannot be read: {error}.",
        "Write s3://bucket/path, or a local path in UTF-8.",
    )


def storage_url_invalid_for_deltalake(url: str, cause: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_STORAGE_URL_INVALID",
        f"deltalake cannot open {url[:300]!r}: {cause}.",
        "Use a local path, s3://bucket/path or s3a://bucket/path, az://container/path or "
        "abfss://container@account.dfs.core.windows.net/path, or gs://bucket/path.",
    )


def storage_url_invalid_parts(path: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_STORAGE_URL_INVALID",
        f"The path {path[:300]!r} has a query, a fragment or a password.",
        "Write s3://bucket/path. Give keys, tokens and signatures as storage options, which are not shown.",
    )


def _store_overwrites(url: str, why: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_STORE_OVERWRITES",
        f"The store of {url[:300]!r} does not refuse to write an object that exists: {why}. Two writers of a channel "
        "would replace each other's commits, so nothing is written.",
        "Use a store with conditional writes (If-None-Match), such as Amazon's S3, a current MinIO, or Azure's Blob Storage, "
        "and do not set conditional_put. Reading is possible.",
    )


def store_overwrites_option(url: str) -> ChannelError:
    return _store_overwrites(url, "the option conditional_put switches this off")


def store_overwrites_probe(url: str) -> ChannelError:
    return _store_overwrites(url, "it accepted the same object twice")


def store_overwrites_unknown_scheme(url: str, schemes: Iterable[str]) -> ChannelError:
    return ChannelError(
        "STRANDLINE_STORE_OVERWRITES",
        f"Nobody knows whether the store of {url[:300]!r} refuses to write an object that exists, so nothing is written.",
        f"Use one of the schemes {', '.join(sorted(schemes))}, or a local path. Reading is possible.",
    )


def table_feature_retention(table: str, retention: object) -> ChannelError:
    return ChannelError(
        "STRANDLINE_TABLE_FEATURE",
        f"{table} has delta.setTransactionRetentionDuration = {str(retention)[:80]}. Delta forgets then which batches were "
        "committed, and a query that repeats one would write its rows twice.",
        "Unset it: ALTER TABLE … UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration').",
    )


def table_feature_unenforced(table: str, features: list[str]) -> ChannelError:
    return ChannelError(
        "STRANDLINE_TABLE_FEATURE",
        f"{table} has {', '.join(features)}, which Strandline's writers do not enforce.",
        "Drop these, or copy the rows into a channel.",
    )


def table_feature_unknown(path: str, features: list[str]) -> ChannelError:
    return ChannelError(
        "STRANDLINE_TABLE_FEATURE",
        f"The table {path} has the writer feature(s) {features}, which Strandline does not support.",
        "Drop them with ALTER TABLE … DROP FEATURE, or copy the rows into a channel.",
    )


def table_property_invalid(name: object) -> ChannelError:
    return ChannelError(
        "STRANDLINE_TABLE_PROPERTY_INVALID",
        f"The table property {ascii(name)[:200]}, or its value, is not a text in UTF-8.",
        "Give texts for names and values of properties.",
    )


def table_unreadable(path: str, version: int | None, cause: str) -> ChannelError:
    at = "" if version is None else f" at version {version}"
    return ChannelError(
        "STRANDLINE_TABLE_UNREADABLE",
        f"The Delta table at {path} cannot be opened{at}: {cause}.",
        "Its log lacks a file that this version needs, or has one that is damaged, or the table has features that deltalake "
        "does not read. Restore the log, or drop these features.",
    )


def table_unreadable_checkpoint(checkpoint: str, path: str, error: Exception) -> ChannelError:
    return ChannelError(
        "STRANDLINE_TABLE_UNREADABLE",
        f"The checkpoint {checkpoint} of {path} cannot be read: {(str(error).splitlines() or [''])[0]}.",
        "Remove the checkpoint if the log has all commits, or restore it from a backup.",
    )


def table_unreadable_columns(path: str, cause: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_TABLE_UNREADABLE",
        f"The columns of the Delta table at {path} have a name or a type that Arrow does not have: {cause}.",
        "Restore the log, or copy the rows into a table without such a column.",
    )


def table_unreadable_duplicate(version: int, path: str, file: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_TABLE_UNREADABLE",
        f"Version {version} of the Delta table at {path} has the file {file[:200]!r} more than once, so "
        "its rows would be read repeatedly.",
        "Its checkpoint is damaged, or a faulty writer wrote it. Remove the checkpoint if the log has all commits, or "
        "restore it from a backup.",
    )


def version_unknown(path: str, version: object) -> LogError:
    return LogError(
        "STRANDLINE_VERSION_UNKNOWN", f"{path} has no version {str(version)[:40]}.", "Request a version that the log has."
    )
