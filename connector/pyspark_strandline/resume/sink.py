"""The sink's part: the first batch of a query that goes on with an output is compared with what the output has, and committed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark_strandline.resume import errors
from pyspark_strandline.resume.beginnings import check_beginnings
from pyspark_strandline.resume.written import Rows, Written, rows_of, written
from strandline.channel import Channel, WriterSession
from strandline.channel.batch.batch_identity import BatchIdentity
from strandline.channel.progress.query_producer_state import QueryProducerState
from strandline.channel.statements.inputs import Input
from strandline.channel.statements.statement import ProducerState
from strandline.channel.write.append import Append
from strandline.errors import ProducerError
from strandline.time.antichain import Antichain

__all__ = ["FirstBatch", "go_on"]

_SAME_START = 2.0
"""Seconds. The start of a process is told with this tolerance."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FirstBatch:
    """The first batch of a query that goes on with an output.

    Attributes:
        query: The query's id.
        reads: How far the batch reads each input.
        holds: The frontier of the output after the batch.
        rows: The rows that the plan has made of the inputs up to there.
        others: How many sources of the query are no channels. Their positions are not known.
        running: The ids of the queries that run in this driver; ``None`` if they are not known.
        state: What its operators keep, as the shim says it: ``none``, ``rows`` or ``batches``.
        allows: The sink's option. ``stateful``: the user answers for the state of the operators where the output does not say
            what is in it. ``changed``: the query may make other rows than the channel has.
        name: The name that the user has given the query; empty if there is none.
        checkpoint: Where the query's checkpoint is, as its commits state it; empty if that is not known.
    """

    query: str
    reads: Sequence[Input]
    holds: Antichain
    rows: Rows
    others: int = 0
    running: frozenset[str] | None = None
    state: str = "batches"
    allows: str = "true"
    name: str = ""
    checkpoint: str = ""

    def producer(self, channel: Channel, name: str | None) -> Written:
        """Return the producer that the query goes on with. Raises unless the batch ends where that producer's query had stopped.

        Args:
            channel: The output.
            name: The producer's name, if it is given.

        Raises:
            StrandlineError: ``STRANDLINE_RESUME_IMPOSSIBLE``, or ``STRANDLINE_RESUME_DIFFERS`` if it begins elsewhere.
        """
        if self.others:
            raise errors.resume_impossible_sources(self.others, channel.path)
        self._check_state()
        found = written(channel, {each.table: each.path or "a channel" for each in self.reads}, name)
        had, has = ({(*each[:3], each.snapshot) for each in reads} for reads in (found.reads, self.reads))
        if had != has:
            raise errors.resume_impossible_positions(
                self.query, _positions(self.reads), found.producer, channel.path, _positions(found.reads)
            )
        if self.state != "none":
            check_beginnings(channel.path, self.query, found.reads, self.reads, trusted=self.allows == "stateful")
        return found

    def _check_state(self) -> None:
        """Raise if the operators cannot get the state that they had."""
        if self.allows == "changed" and self.state != "none":
            raise errors.resume_impossible_changed()
        if self.state == "batches":
            raise errors.resume_impossible_batches()

    def takes_over(self, state: ProducerState, owner: WriterSession) -> bool:
        """Whether the query that has the producer ran in this driver, and was stopped."""
        other = state.owner
        if other is None or self.running is None or other.id in self.running:
            return False
        same = (other.host, other.pid) == (owner.host, owner.pid)
        return same and abs(other.start - owner.start) < _SAME_START

    def check(self, channel: Channel, found: Written) -> None:
        """Raise unless the plan has made of the inputs what the output has.

        Raises:
            StrandlineError: ``STRANDLINE_RESUME_DIFFERS``.
        """
        state = channel.progress.get(found.producer)
        held = Antichain(self.holds.domain) if state is None else state.holds
        if held != self.holds:
            raise errors.resume_differs_frontier(found.producer, channel.path, held, self.query, self.holds)
        if self.allows == "changed":
            return
        stated = rows_of(channel, found.producer)
        if stated is None:
            _log.warning(
                "Query %s goes on as producer %s of %s. The log was cleaned up, so it is not checked whether the query makes the "
                "rows that the channel has.",
                self.query,
                found.producer,
                channel.path,
            )
            return
        if stated.total != self.rows.total:
            raise errors.resume_differs_rows(found.producer, channel.path, stated.total, self.query, self.rows.total)
        if stated.times is not None and self.rows.times is not None and stated.times != self.rows.times:
            has, makes = stated.times, self.rows.times
            key = self.holds.domain.sort_key
            time = next(time for time in sorted(has.keys() | makes.keys(), key=key) if has.get(time, 0) != makes.get(time, 0))
            raise errors.resume_differs_time(
                found.producer, channel.path, has.get(time, 0), self.holds.domain, time, self.query, makes.get(time, 0)
            )


def go_on(channel: Channel, path: str, batch: FirstBatch, name: str | None, owner: WriterSession, *, take_over: bool) -> None:
    """Make the commit of the first batch: no rows, and the producer is the query's.

    The producer's state names the query. So the query finds its producer again, and the query before is refused.

    Args:
        channel: The output.
        path: Its path, as the query names it.
        batch: What the batch has read and made.
        name: The producer's name, if it is given.
        owner: The query's session.
        take_over: Whether to fence the query before, although it may run.

    Raises:
        StrandlineError: ``STRANDLINE_RESUME_IMPOSSIBLE``, ``STRANDLINE_RESUME_DIFFERS``, or ``STRANDLINE_PRODUCER_LIVE``
            while the query before runs. Nothing was written.
    """
    if channel.transaction_version(batch.query) is not None:
        channel.settle()
        return  # a crash came between this commit and Spark's
    found = batch.producer(channel, name)
    state = channel.progress.get(found.producer)
    assert state is not None  # noqa: S101 - it has a commit
    take_over = take_over or batch.takes_over(state, owner)
    _refuse_live(channel, found.producer, owner, take_over=take_over)
    batch.check(channel, found)
    now = QueryProducerState.from_json(state.state).continued(batch.query)
    identity = BatchIdentity.of(batch.query, 0, [each[:3] for each in batch.reads])
    now = replace(now, outputs=(), newest=identity, damage="")  # the query has one output, and this batch writes no rows
    now = replace(now, name=batch.name, checkpoint=batch.checkpoint)

    def decide() -> Append:
        newest = channel.progress.get(found.producer)
        if newest is None or newest.seq != state.seq:
            raise errors.resume_impossible_session(path, found.producer, batch.query)
        return Append(
            session=owner,
            holds={found.producer: batch.holds},
            states={found.producer: now.to_json()},
            take_over=take_over,
            always=True,
            reads=tuple(batch.reads),
        )

    channel.append_decided(decide, (batch.query, 0))


def _refuse_live(channel: Channel, producer: str, owner: WriterSession, *, take_over: bool) -> None:
    """Raise if the query before may run. The remedy is in the words of a query's options."""
    try:
        channel.refuse_live([producer], owner, take_over=take_over)
    except ProducerError as error:
        raise errors.producer_live(error) from None


def _positions(reads: Sequence[Input]) -> str:
    return ", ".join(
        f"{each.path or f'table {each.table}'} up to commit {each.commit}"
        + (f", file {each.file}" if each.file else "")
        + (" of its first snapshot" if each.snapshot is not None else "")
        for each in reads
    )
