"""Before a commit is written, it is read as every reader will read it: nothing is written that readers refuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strandline.channel import errors
from strandline.channel.progress.snapshot import Snapshot
from strandline.channel.statements.checksum import with_checksum
from strandline.channel.statements.commit_statement import CommitStatement
from strandline.delta.data_file import DataFile
from strandline.delta.file_stats import check_stats
from strandline.delta.log import check_nesting
from strandline.delta.storage import inside
from strandline.delta.table import commit_lines
from strandline.errors import ChannelError, ProducerError

__all__ = ["accepted_lines", "check_founding"]


def accepted_lines(
    snapshot: Snapshot, version: int, statement: CommitStatement, files: Sequence[DataFile], transactions: Mapping[str, int]
) -> tuple[str, bytes]:
    """Return the ``userMetadata`` of a commit, with its checksum, and the content of its file.

    The content is parsed and checked by the readers' own code. So a writer learns at once what readers would refuse for ever.

    Args:
        snapshot: The channel as of the version before.
        version: The commit's version.
        statement: Its statement.
        files: The files that it adds.
        transactions: Its Delta transactions.

    Raises:
        ChannelError: ``STRANDLINE_COMMIT_REFUSED``, or ``STRANDLINE_STATEMENT_TOO_LARGE``.
        ProducerError: ``STRANDLINE_STATE_INVALID``.
    """
    try:
        beside = [(file.path, file.size, file.stats) for file in files]
        text = with_checksum(statement.to_user_metadata(), beside, transactions)
        lines = commit_lines(files, text, transactions)
    except (
        TypeError,
        ValueError,
        OverflowError,
        AttributeError,
    ) as error:  # a name that is no text, a number of numpy, half of a character
        if isinstance(error, (ChannelError, ProducerError)):
            raise
        raise errors.commit_refused_json(snapshot.table.path, error) from None
    try:
        check_nesting(version, lines)
        commit = snapshot.log.parse(version, lines)
        commit.check()
        commit.check_table(snapshot.table.id)
        _ = commit.transactions
        if commit.statement is not None:
            commit.statement.check_message_times(snapshot.domain, version)
        for path in commit.files.paths:
            inside(path)
        for file in files:
            check_stats(file)
    except ValueError as error:
        raise errors.commit_refused(snapshot.table.path, str(error)) from None
    except ChannelError as error:
        raise errors.commit_refused(snapshot.table.path, error.what.rstrip(".")) from None
    return text, lines


def check_founding(path: str, text: str) -> None:
    """Raise the same for the ``userMetadata`` of version 0, which deltalake writes."""
    try:
        CommitStatement.from_user_metadata(text, 0)
    except ChannelError as error:
        raise errors.commit_refused(path, error.what.rstrip(".")) from None
