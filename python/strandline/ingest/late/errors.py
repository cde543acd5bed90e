"""The errors of late tables and corrections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strandline.errors import ChannelError, IngestError
from strandline.shell_words import command


def _corrections_unsupported(path: str, what: str, remedy: str) -> IngestError:
    return IngestError("STRANDLINE_CORRECTIONS_UNSUPPORTED", f"{path} {what}.", remedy)


def corrections_unsupported(path: str, domain: object) -> IngestError:
    return _corrections_unsupported(
        path,
        f"does not accept corrections, because its times are of {domain}",
        "Ingest into a new channel with corrections=True.",
    )


def corrections_unsupported_any_more(path: str) -> IngestError:
    return _corrections_unsupported(
        path,
        "does not accept corrections any more, because end_corrections was called",
        "This is permanent. Ingest the late rows into another channel.",
    )


def corrections_unsupported_yet(path: str) -> IngestError:
    return _corrections_unsupported(
        path,
        "is not ready for corrections, because its ingest has not committed a batch yet",
        "Start the ingest first.",
    )


def late_file_missing(file: str, rows: int, query: str, path: str, channel: str) -> IngestError:
    return IngestError(
        "STRANDLINE_LATE_FILE_MISSING",
        f"The file {file!r} with {rows} late rows of query {query} does not exist in {path}, and "
        "no late table there has these rows.",
        f"Restore the file from a backup. If the late table was moved, add its path after --late-path to this command: "
        f"{command('publish-late', channel)}. To give these rows up, call give_up_late_rows({channel!r}, {query!r}, "
        f"late_path={path!r}), which publishes the query's other late rows.",
    )


def late_file_missing_in_table(path: str, error: Exception) -> IngestError:
    return IngestError(
        "STRANDLINE_LATE_FILE_MISSING",
        f"The late table {path} names a file that does not exist: {str(error).splitlines()[0]}.",
        f"Restore the file from a backup, or give its rows up with DeltaTable({path!r}).repair().",
    )


def late_table_elsewhere(channel: str, named: str) -> IngestError:
    return IngestError(
        "STRANDLINE_LATE_TABLE_ELSEWHERE",
        f"The log of {channel} names a late table on another storage, {named[:200]!r}. It is not opened with your credentials.",
        f"If the table is yours, name it: {command('publish-late', channel, options=['--late-path', named])}.",
    )


def late_table_shared(path: str, query: str) -> IngestError:
    return IngestError(
        "STRANDLINE_LATE_TABLE_SHARED",
        f"The late table {path} has rows of query {query} of another channel, or of a copy of this channel. A "
        "late table distinguishes rows only by query and batch.",
        "Two queries with the same id (a copied checkpoint, or a recreated channel with an old checkpoint) cannot share a "
        "late table. Give this query another latePath, or its own checkpoint.",
    )


def late_table_shared_batch(path: str, batch: int, query: str, channel: str, newest: int) -> IngestError:
    """Name a batch that the channel does not have. ``newest`` is its newest one, -1 for none."""
    return IngestError(
        "STRANDLINE_LATE_TABLE_SHARED",
        f"The late table {path} has late rows of batch {batch} of query {query}, but the channel "
        f"{channel} has {'no batch' if newest < 0 else f'only the batches up to {newest}'} of it. The channel was "
        "restored to an earlier state, or it is a copy of the channel whose late rows these are. Nothing of the batch "
        "was written.",
        "Restore the channel to its newest commit, or copy the late table back from a backup of the same moment (Delta's "
        "RESTORE keeps what the table knows of batches). If the channel is a copy, give it another latePath.",
    )


def path_outside_table_late(file: str, query: str, folder: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_PATH_OUTSIDE_TABLE",
        f"The log names {file[:200]!r} as a file of late rows of query {query}. The file is not in the "
        f"folder {folder}, so it is not opened.",
        "The log is damaged or manipulated: restore it from a backup.",
    )


def readmit_overtaken(correction: int, path: str) -> IngestError:
    return IngestError(
        "STRANDLINE_READMIT_OVERTAKEN",
        f"Another call committed correction {correction} of {path} first. Nothing of this call was written.",
        "Call readmit again. It readmits the remaining rows.",
    )


def row_invalid_readmitted(column: str, value: str, domain: object) -> IngestError:
    return IngestError(
        "STRANDLINE_ROW_INVALID",
        f"A row to readmit has {column} = {value}, which is not a time of {domain}.",
        "Exclude the row with where, or correct it there.",
    )


def schema_mismatch_late_table(path: str, columns: Sequence[str]) -> IngestError:
    return IngestError(
        "STRANDLINE_SCHEMA_MISMATCH",
        f"The late table {path} differs from the rows in the columns {columns}.",
        "Give another latePath, or change the late table's columns to match.",
    )


def schema_mismatch_no_late_table(path: str, channel: str, lacking: Iterable[str]) -> IngestError:
    return IngestError(
        "STRANDLINE_SCHEMA_MISMATCH",
        f"{path} is not a late table of {channel}. It lacks the columns {', '.join(lacking)}.",
        "Give the late table's path.",
    )


def schema_mismatch_where(lacking: Iterable[str]) -> IngestError:
    return IngestError(
        "STRANDLINE_SCHEMA_MISMATCH",
        f"The rows that where returned lack the columns {', '.join(lacking)}.",
        "Return all columns from where.",
    )


def schema_mismatch_where_type(column: str, kind: object, wanted: object, error: Exception) -> IngestError:
    return IngestError(
        "STRANDLINE_SCHEMA_MISMATCH",
        f"Column {column!r} of the rows that where returned has the type {kind}, which cannot be converted to {wanted}: {error}.",
        "Cast the column in where.",
    )
