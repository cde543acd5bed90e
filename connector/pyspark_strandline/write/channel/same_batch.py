"""Whether a batch that the channel has already was the same batch: it had read and written the same."""

from __future__ import annotations

import logging

from pyspark_strandline.write import errors
from pyspark_strandline.write.channel.written_files import OutputBatch
from strandline.channel import Channel
from strandline.channel.batch.batch_digest import BatchDigest, RowsDigest
from strandline.channel.batch.batch_identity import BatchIdentity
from strandline.channel.progress.query_producer_state import QueryProducerState
from strandline.channel.statements.commit_statement import CommitStatement

__all__ = ["ALWAYS", "check_same_batch"]

ALWAYS = -1
"""Instead of the number of a batch: every batch's committed rows are kept, because they are a recording."""

_log = logging.getLogger(__name__)


def check_same_batch(channel: Channel, producer: str, batch: OutputBatch, accepted: int | None) -> None:
    """Raise if the channel has a batch of this number that had read or written something else.

    Its rows would be taken for those that the channel has. After a crash Spark repeats the newest batch as it was. If a
    checkpoint was restored to an earlier state, or began anew, a batch of the same number may read more than before. If
    something that the query depends on has changed, the same rows give other ones.

    Args:
        channel: The channel.
        producer: The name of the query's producer.
        batch: The batch that is to be written.
        accepted: A batch whose committed rows are kept, although it makes other rows if it is repeated; or :data:`ALWAYS`.

    Raises:
        ChannelError: ``STRANDLINE_REPLAY_DIFFERS``.
    """
    newest = channel.transaction_version(batch.query)
    if newest is None or newest < batch.number:
        return
    commit = channel.commit_of(batch.transaction)
    had: BatchIdentity | None = None
    stated: CommitStatement | None = None
    why, damage = "the batch had not read the same then", ""
    if commit is not None:
        if (stated := commit.statement) is not None:
            had = batch.identity_with(stated.reads, stated.digest)
    elif batch.number == newest:  # the log was cleaned up
        known = channel.progress.get(producer)
        state = QueryProducerState.from_json(None if known is None else known.state)
        if state.newest is not None and state.newest.number == batch.number:
            had, damage = state.newest, state.damage
        else:
            why = "the log was cleaned up, and does not say any more what the batch had read then"
    elif not batch.written.files:
        return  # a batch without rows and without a move of the frontier made no commit
    if had is not None and had.read == batch.identity().read:
        if not damage:
            if had.wrote is not None:
                _check_rows(batch, had.wrote, stated, accepted)
            return
        why = f"what the channel's state says of its rows is damaged: {damage}"
    raise errors.replay_differs_reads(batch.number, batch.query, batch.path, newest, why)


def _check_rows(batch: OutputBatch, had: BatchDigest, stated: CommitStatement | None, accepted: int | None) -> None:
    """Raise if a batch that the channel has wrote other rows then, here or into another output of the query."""
    differs = _difference(batch, had, stated) if accepted != ALWAYS else _count_difference(batch, had)
    if differs is None:
        return
    where, why = differs
    if accepted in (batch.number, ALWAYS):
        _log.warning(
            "Batch %s of query %s was committed to %s before. Repeated, it has read the same and wrote other rows for %s. What "
            "differs is %s. The committed rows are kept, because %s.",
            batch.number,
            batch.query,
            batch.path,
            where,
            why,
            "they are a recording" if accepted == ALWAYS else f"acceptReplay is {accepted}",
        )
        return
    raise errors.replay_differs_rows(batch.number, batch.query, batch.path, where, why)


def _count_difference(batch: OutputBatch, had: BatchDigest) -> tuple[str, str] | None:
    """Return what differs in the number of a batch's rows: those of a recording have other times when they are written again."""
    if (now := batch.written.digest.rows) == had.own.rows:
        return None
    return batch.path, f"the number of rows: {had.own.rows} then, and {now} now"


def _difference(batch: OutputBatch, had: BatchDigest, stated: CommitStatement | None) -> tuple[str, str] | None:
    """Return the output for which a batch has other rows than before, and what differs, in words; ``None`` if nothing does."""
    times, now = batch.rows()
    # Rows that get new times by a clock have others now. What they were before is among the outputs.
    if batch.written.unstamped is None and (difference := had.own.difference(now.own)) is not None:
        first = None
        if stated is not None and not stated.spans:
            first = had.first_difference(stated.times, now, times, batch.domain)
        return batch.path, f"the batch as a whole: {difference}" if first is None else f"first the time {first}"
    for name, digest in sorted(had.others.items()):
        if (difference := digest.difference(batch.others.get(name, RowsDigest()))) is not None:
            return f"the output {name}", f"the batch as a whole: {difference}"
    return None
