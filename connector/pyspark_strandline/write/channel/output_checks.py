"""What is checked before a query writes into a channel: that it has the query's batches, and that nobody else writes for it."""

from __future__ import annotations

import pyarrow as pa

from pyspark_strandline.resume.written import Writer, writer_of
from pyspark_strandline.write import errors
from pyspark_strandline.write.channel.open_channel import OpenChannel
from strandline.channel import Channel
from strandline.channel.progress.query_producer_state import QueryProducerState
from strandline.channel.write.create import new_columns
from strandline.delta.table import different_columns
from strandline.time.domain import TimeDomain

__all__ = ["check_begun", "check_may_join", "check_not_continued", "check_outputs", "check_schema"]


def check_begun(output: OpenChannel | None, path: str, query: str, batch: int) -> None:
    """Raise unless the channel has the earlier batches of a query that continues.

    Otherwise the channel would promise rows that are not in it.
    """
    if batch > 0 and (output is None or not output.has_batch_of(query)):
        have = "there is no channel" if output is None else "the channel has no batch of this query"
        raise errors.output_missing_begun(batch, have, path)


def check_may_join(channel: Channel, path: str, producer: str, query: str, *, take_over: bool) -> None:
    """Raise if a query with a new checkpoint would write a channel that is sealed for others."""
    if channel.progress.get(producer) is not None:
        other = None if take_over else writer_of(channel, producer)
        if other not in (None, Writer(query)):
            raise errors.producer_exists(query, other, producer, path)
        return
    if not channel.sealed:
        return
    queries = sorted(name.removeprefix("query-") for name in channel.producers if name.startswith("query-"))
    raise errors.producer_unknown(query, path, producer, queries)


def check_not_continued(channel: Channel, producer: str, state: QueryProducerState, query: str) -> None:
    """Raise if another query goes on with the producer: the rows of both would be in the channel."""
    if state.writer not in (None, query):
        raise errors.producer_fenced(state.writer, producer, channel.path, query)


def check_outputs(before: tuple[str, ...], now: tuple[str, ...]) -> None:
    """Raise if the query had other outputs before: Spark would give its operators the states of others."""
    if before != now:
        raise errors.outputs_changed(before, now)


def check_schema(channel: Channel, time_column: str, domain: TimeDomain, schema: pa.Schema, *, merge: bool) -> None:
    """Raise unless the channel has the query's time column and columns.

    Args:
        channel: The channel.
        time_column: The query's time column.
        domain: The domain of its times.
        schema: The query's columns.
        merge: Whether each of the two may have columns that the other one lacks.
    """
    if (channel.time_column, channel.domain) != (time_column, domain):
        raise errors.schema_mismatch_time(time_column, domain, channel.path, channel.time_column, channel.domain)
    have, want = channel.schema, schema
    if merge:
        new_columns(channel.path, have, want)
        want = pa.schema([*want, *(field for field in have if field.name not in want.names)])
        have = pa.schema([*have, *(field for field in want if field.name not in have.names)])
    different = different_columns(have, want)
    if different is not None:
        raise errors.schema_mismatch_columns(channel.path, different)
