"""The errors of parked rows."""

from __future__ import annotations

from strandline.errors import IngestError
from strandline.shell_words import command


def parked_file_differs(file: str, path: str, rows: int, least: str, greatest: str) -> IngestError:
    return IngestError(
        "STRANDLINE_PARKED_FILE_DIFFERS",
        f"The file {file!r} of {path} does not have the {rows} rows from {least} to "
        f"{greatest} that the log states for it, in the channel's columns. Nothing was written.",
        "The file or the log was changed: restore them from a backup. To give up the file's rows instead, stop the query, remove "
        f"the file, and type {command('release-parked', path, options=['--take-over', '--forget-missing'])}.",
    )


def parked_file_differs_list(file: str, path: str) -> IngestError:
    return IngestError(
        "STRANDLINE_PARKED_FILE_DIFFERS",
        f"The file {file!r} of {path}, which says where rows are that are parked beyond maxAhead, is not the one "
        "that the log states. Nothing was written.",
        "The file or the log was changed: restore them from a backup. To give up the rows instead, stop the query, remove "
        f"the file, and type {command('release-parked', path, options=['--take-over', '--forget-missing'])}.",
    )


def parked_file_missing(file: str, rows: int, path: str) -> IngestError:
    return IngestError(
        "STRANDLINE_PARKED_FILE_MISSING",
        f"The file {file!r} with {rows} rows that are parked beyond maxAhead does not exist in {path}.",
        f"Restore the file from a backup. Or stop the query, and type "
        f"{command('release-parked', path, options=['--take-over', '--forget-missing'])}. This gives these rows up.",
    )


def parked_file_missing_list(file: str, rows: int, path: str) -> IngestError:
    return IngestError(
        "STRANDLINE_PARKED_FILE_MISSING",
        f"The file {file!r}, which says where {rows} rows are that are parked beyond maxAhead, does not exist in {path}.",
        f"Restore the file from a backup. Or stop the query, and type "
        f"{command('release-parked', path, options=['--take-over', '--forget-missing'])}. This gives these rows up.",
    )
