"""Whether a batch was written already, and whether it was the same batch."""

from __future__ import annotations

import logging

from pyspark_strandline.write.channel.written_files import OutputBatch
from strandline.channel import Channel
from strandline.channel.batch.batch_digest import BatchDigest, RowsDigest
from strandline.channel.batch.batch_identity import BatchIdentity
from strandline.channel.progress.query_producer_state import QueryProducerState
from strandline.channel.statements.commit_statement import CommitStatement
from strandline.errors import ChannelError

__all__ = ["check_replay"]

_log = logging.getLogger(__name__)


def check_replay(channel: Channel, producer: str, batch: OutputBatch, accepted: int | None) -> None:
    """Raise if the channel has a batch of this number that had read or written something else.

    Its rows would be taken for those that the channel has. After a crash Spark repeats the newest batch as it was. If a
    checkpoint was restored to an earlier state, or began anew, a batch of the same number may read more than before. If
    something that the query depends on has changed, the same rows give other ones.

    Args:
        channel: The channel.
        producer: The name of the query's producer.
        batch: The batch that is to be written.
        accepted: A batch whose committed rows are kept, although it makes other rows if it is repeated.

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
    raise ChannelError(
        "STRANDLINE_REPLAY_DIFFERS",
        f"Batch {batch.number} of query {batch.query} was committed to {batch.path} before. The channel has the query's batches "
        f"up to {newest}. But {why}. The query's checkpoint may have been restored to an earlier state, or be a copy. Nothing of "
        "the batch was written.",
        "Restore the newest state of the checkpoint. Or start the query with a new checkpointLocation and the option resume: "
        "then it goes on after the rows that the channel has (docs/lost-checkpoint.md). Or with a new checkpointLocation and "
        "a new channel, which gets all rows, and let the readers change to it.",
    )


def _check_rows(batch: OutputBatch, had: BatchDigest, stated: CommitStatement | None, accepted: int | None) -> None:
    """Raise if a batch that the channel has wrote other rows then, here or into another output of the query."""
    differs = _difference(batch, had, stated)
    if differs is None:
        return
    where, why = differs
    what = (
        f"Batch {batch.number} of query {batch.query} was committed to {batch.path} before. Repeated, it has read the same "
        f"and wrote other rows for {where}. What differs is {why}."
    )
    if batch.number == accepted:
        _log.warning("%s The committed rows are kept, because acceptReplay is %s.", what, accepted)
        return
    raise ChannelError(
        "STRANDLINE_REPLAY_DIFFERS",
        f"{what} So the query depends on something that has changed: a table without a version, a function that gives "
        "another value each time, the order in which rows come (a sketch, a large rounding), or the program. Nothing of the "
        "batch was written.",
        "Bring back what the query depends on, and start it again with the same checkpoint. Or, if the committed rows are as "
        f"good as the others, set the option acceptReplay to {batch.number} at the sink: the channels that have the batch keep "
        "their rows. Or, if its operators keep no state, start it with a new checkpointLocation and the option resume, set "
        "to changed at the sink and to this path at each source (docs/lost-checkpoint.md). Or start it with a new "
        "checkpointLocation and a new channel, which gets all rows, and let the readers change to it. "
        "docs/repeated-batches.md says what a repeated batch sees.",
    )


def _difference(batch: OutputBatch, had: BatchDigest, stated: CommitStatement | None) -> tuple[str, str] | None:
    """Return the output for which a batch has other rows than before, and what differs, in words; ``None`` if nothing does."""
    times, now = batch.rows()
    if (difference := had.own.difference(now.own)) is not None:
        first = None
        if stated is not None and not stated.spans:
            first = had.first_difference(stated.times, now, times, batch.domain)
        return batch.path, f"the batch as a whole: {difference}" if first is None else f"first the time {first}"
    for name, digest in sorted(had.others.items()):
        if (difference := digest.difference(batch.others.get(name, RowsDigest()))) is not None:
            return f"the output {name}", f"the batch as a whole: {difference}"
    return None
